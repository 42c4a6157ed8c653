//! Tables with aligned columns; escape codes only if standard output is a terminal.

use std::io::IsTerminal;

use crate::output::{one_line, out};

/// A table whose columns are as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Columns {
    /// Heading, and whether the column holds numbers, which are right-aligned.
    heads: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    /// Columns by heading; `>` marks a column of numbers.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self::named(
            heads.iter().map(|h| h.strip_prefix('>').map_or((h.to_string(), false), |h| (h.into(), true))).collect(),
        )
    }

    /// Columns by heading and whether they hold numbers.
    pub(crate) fn named(heads: Vec<(String, bool)>) -> Self {
        Self { heads, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| one_line(&cell)).collect());
    }

    /// Whether the table has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines: indented by two, two spaces between columns, no trailing spaces.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width = |s: &str| s.chars().count();
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(i, (head, _))| {
                let cells = self.rows.iter().filter_map(|r| r.get(i)).map(|c| width(c));
                cells.chain([width(head)]).max().unwrap_or(0)
            })
            .collect();
        let line = |cells: Vec<&str>| {
            let mut out = String::new();
            for ((cell, (_, number)), wide) in cells.iter().zip(&self.heads).zip(&widths) {
                let pad = " ".repeat(wide.saturating_sub(width(cell)));
                out.push_str("  ");
                out.push_str(&if *number { format!("{pad}{cell}") } else { format!("{cell}{pad}") });
            }
            out.trim_end().to_owned()
        };
        let head = dim(&line(self.heads.iter().map(|(h, _)| h.as_str()).collect()));
        [head].into_iter().chain(self.rows.iter().map(|r| line(r.iter().map(String::as_str).collect()))).collect()
    }

    /// Prints the table under a title. A table without rows prints nothing.
    pub(crate) fn print(&self, title: &str) {
        if self.is_empty() {
            return;
        }
        out!();
        out!("{}", bold(title));
        self.lines().iter().for_each(|l| out!("{l}"));
    }
}

fn coloured() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// `text` in bold, if standard output is a terminal.
pub(crate) fn bold(text: &str) -> String {
    if coloured() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// `text` faint, if standard output is a terminal.
pub(crate) fn dim(text: &str) -> String {
    if coloured() { format!("\x1b[2m{text}\x1b[0m") } else { text.to_owned() }
}

/// A count with thousands separators: `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, d) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(d);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut t = Columns::new(&["name", ">n", "note"]);
        t.row(["a".into(), "1".into(), String::new()]);
        t.row(["longer".into(), "1,000".into(), "µ".into()]);
        assert_eq!(t.lines(), ["  name        n  note", "  a           1", "  longer  1,000  µ"]);
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }
}
