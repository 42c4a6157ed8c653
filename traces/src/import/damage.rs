//! Lines that cannot be read: counted, until there are too many.

use super::{Result, lines::Lines};
use crate::Manifest;

/// Number of unreadable lines that any file may have. Beyond it, an import ends when they are more than half of all lines,
/// because the file is probably in another format.
const MOST: i64 = 1000;

/// Counts unreadable lines.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Number of unreadable lines.
    pub(super) count: i64,
    /// Number of readable lines.
    pub(super) good: i64,
    /// The number of unreadable lines beyond which the import ends, if the user gave one.
    limit: Option<i64>,
    /// Message about the first one.
    example: String,
}

impl Damage {
    /// None so far. The import ends beyond `limit`, if there is one.
    pub(super) fn up_to(limit: Option<i64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Counts the current line, which `what` and `remedy` describe as in [`Lines::describe`].
    ///
    /// # Errors
    /// If there are too many such lines.
    pub(super) fn line(&mut self, lines: &Lines, what: &str, remedy: &str) -> Result<()> {
        if self.count == 0 {
            self.example = lines.describe(what, remedy);
        }
        self.count += 1;
        let too_many = match self.limit {
            Some(limit) => self.count > limit,
            None => self.count > MOST && self.count > self.good,
        };
        if too_many {
            let more = format!("{what}, after {} other unreadable lines", self.count - 1);
            return Err(lines.error(lines.describe(&more, remedy)));
        }
        Ok(())
    }

    /// The error of a file without a readable line. `expected` is a remedy.
    ///
    /// # Errors
    /// Always, unless a line was readable.
    pub(super) fn check(&self, lines: &Lines, expected: &str) -> Result<()> {
        if self.good > 0 {
            return Ok(());
        }
        Err(lines.error(match () {
            () if self.count > 0 => self.example.clone(),
            () if lines.too_long > 0 => format!("every line is longer than 1 MiB; {expected}"),
            () if lines.read == 0 && lines.broken.is_empty() => format!("the file is empty; {expected}"),
            () => match lines.broken.first() {
                Some(broken) => format!("no line can be read: {broken}"),
                None => format!("no line is part of a trace; {expected}"),
            },
        }))
    }

    /// Adds warnings to the manifest.
    pub(super) fn describe(&self, lines: &Lines, manifest: &mut Manifest) {
        if self.count > 0 {
            let (n, example) = (self.count, &self.example);
            manifest.warnings.push(format!("{n} lines could not be read and were ignored; the first: {example}"));
        }
        if lines.too_long > 0 {
            let n = lines.too_long;
            manifest.warnings.push(format!("{n} lines are longer than 1 MiB and were ignored"));
        }
        manifest.warnings.extend(lines.broken.iter().cloned());
    }
}
