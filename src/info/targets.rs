//! Bytes of calls by where they went to and came from: words and columns of tables.

use ioreel_analyze::events::targets::{Moved, Target};

use crate::{columns::Columns, units::bytes};

/// A target in words.
pub(super) fn words(target: Target) -> &'static str {
    match target {
        Target::Files => "files",
        Target::Pipes => "pipes and sockets",
        Target::Devices => "devices",
        Target::Nowhere => "nowhere (/dev/null, /dev/zero, …)",
    }
}

/// A number of bytes in words.
pub(super) fn size(n: u64) -> String {
    bytes(n.min(i64::MAX as u64) as i64)
}

/// The targets beside files that any of these moved bytes of: they get columns of their own.
pub(super) fn other_targets(all: &[&Moved]) -> Vec<Target> {
    let used = |target: &Target| all.iter().any(|moved| moved.of(*target).sum() > 0);
    [Target::Pipes, Target::Devices, Target::Nowhere].into_iter().filter(used).collect()
}

/// Headings of columns; `>` marks a column of numbers.
pub(super) fn heads(names: &[&str], others: &[Target], rest: &[&str]) -> Columns {
    let name = |h: &&str| h.strip_prefix('>').map_or(((*h).to_owned(), false), |h| (h.to_owned(), true));
    let others = others.iter().map(|target| (target.name().to_owned(), true));
    Columns::named(names.iter().map(name).chain(others).chain(rest.iter().map(name)).collect())
}

/// Bytes of these targets, both directions together.
pub(super) fn other_cells(moved: &Moved, others: &[Target]) -> Vec<String> {
    others.iter().map(|target| some_bytes(moved.of(*target).sum())).collect()
}

/// Bytes as a table cell; `-` for zero.
pub(super) fn some_bytes(n: u64) -> String {
    if n == 0 { "-".into() } else { size(n) }
}
