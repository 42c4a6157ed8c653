//! Rows from system calls in text: what their arguments mean, and which descriptors, positions and threads follow from them.

pub(super) mod args;
mod calls;
mod names;
mod state;

use std::collections::BTreeMap;

use crate::{
    Manifest,
    format::manifest::{Ledger, Span},
};
pub(super) use calls::{Arg, arguments};
pub(super) use state::State;

/// Counters for warnings and the ledger.
#[derive(Debug, Default)]
pub(super) struct Told {
    ops: i64,
    pub(super) last_ns: i64,
    /// Calls that are not rows, by reason.
    pub(super) left_out: BTreeMap<&'static str, i64>,
    /// Calls without a duration.
    without_duration: i64,
    /// Descriptors without a path.
    without_path: i64,
    /// Reads and writes with an unknown offset.
    without_position: i64,
    /// Arguments with unknown flag names.
    unknown_flags: i64,
    /// Paths cut by strace.
    cut_paths: i64,
}

impl Told {
    /// Adds the rows of calls to the manifest. `strace`: the text is of strace, so warnings can name its options.
    pub(super) fn describe(&self, manifest: &mut Manifest, strace: bool) {
        let left_out: i64 = self.left_out.values().sum();
        manifest.span = Span { elapsed_ns: self.last_ns.max(manifest.span.elapsed_ns), ..Span::default() };
        manifest.left_out.extend(self.left_out.iter().map(|(why, n)| ((*why).to_owned(), *n)));
        let ledger = Ledger { seen: self.ops.saturating_add(left_out), written: self.ops, lost: 0, filtered: left_out };
        manifest.ledger.insert("ops".into(), ledger);
        for (n, what, remedy) in [
            (self.without_duration, "calls have no duration, so it is 0", "; run strace with -T"),
            (self.without_path, "descriptors have no path, so their file is unknown", "; run strace with -y"),
            (
                self.without_position,
                "reads and writes have an unknown offset: they append, or their descriptor was opened before the trace",
                "",
            ),
            (self.unknown_flags, "arguments contain flag names that ioreel does not know, and are empty", ""),
            (self.cut_paths, "paths were cut by strace", "; run it with a larger -s"),
        ] {
            if n > 0 {
                manifest.warnings.push(format!("{n} {what}{}", if strace { remedy } else { "" }));
            }
        }
    }
}
