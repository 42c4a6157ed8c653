//! Look-ups of names: those that fail, and those that repeat.

use rustc_hash::FxHashMap;

use super::{operation::Ended, tally::Tally};

/// No such file or directory.
const ENOENT: i32 = 2;

/// Look-ups of one path as given.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameUse {
    /// That found nothing.
    pub failed: Tally,
    /// That found something.
    pub found: Tally,
}

/// Look-ups by path.
#[derive(Debug, Default)]
pub struct Lookups {
    /// Of all paths.
    pub failed: Tally,
    /// Of all paths.
    pub found: Tally,
    /// By number of the path.
    pub names: FxHashMap<u32, NameUse>,
}

impl Lookups {
    /// Handles an operation.
    pub(super) fn push(&mut self, ended: &Ended<'_>) {
        let (Some(path), true) = (ended.op.path, ended.call.looks_up) else { return };
        let created = ended.call.opens && ended.op.aux.is_some_and(|a| a & 1 != 0);
        let of_path = self.names.entry(path).or_default();
        if ended.op.errno() == Some(ENOENT) {
            of_path.failed.push(ended, 0, ended.share_ns);
            self.failed.push(ended, 0, ended.share_ns);
        } else if ended.op.succeeded() && !created {
            of_path.found.push(ended, 0, ended.share_ns);
            self.found.push(ended, 0, ended.share_ns);
        }
    }

    /// Look-ups of a name that an earlier one had found, and their share.
    pub fn repeated(&self) -> (u64, f64) {
        self.names.values().map(|n| n.found).filter(|f| f.count > 1).fold((0, 0.0), |(count, share_ns), found| {
            let again = found.count - 1;
            (count + again, share_ns + found.share_ns * again as f64 / found.count as f64)
        })
    }
}
