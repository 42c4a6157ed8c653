//! Imports the output of `strace -f -ttt -T -y`.
//!
//! The output contains less than a recording. There are no inodes, so files are identified by the path that `-y` shows.
//! Offsets are derived from the opens in the output. Memory mappings and io_uring requests are missing.

mod calls;
mod line;
mod names;
mod state;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::{ImportError, Result, lines::Lines, made};
use crate::{
    Manifest,
    format::manifest::{Clock, ClockJump, Ledger, Span},
};
use line::{Event, Line};
use state::State;

/// Maximum number of unreadable lines before the file counts as not being strace output.
const MOST_DAMAGED: i64 = 1000;

/// Maximum number of clock jumps listed.
const MOST_JUMPS: usize = 1000;

/// Imports the strace output `input` as the reel `out`.
///
/// # Errors
/// If no line is strace output with `-ttt`, or too many lines are not; if the reel cannot be written. Single unreadable
/// lines are ignored and counted.
pub fn import(input: &Path, out: &Path) -> Result<Manifest> {
    let mut lines = Lines::open(input)?;
    let mut first: Option<ImportError> = None;
    let base_ns = loop {
        let Some(text) = lines.next()? else {
            return Err(first.unwrap_or_else(|| {
                lines.error("the file is empty; name a file written by `strace -f -ttt -T -y -o FILE`")
            }));
        };
        match line::parse(text) {
            Ok(line) => break line.at_ns,
            Err(_) if noise(text) => {}
            Err(why) => {
                first.get_or_insert_with(|| lines.error(lines.describe(why.what, why.remedy)));
                if lines.number > MOST_DAMAGED
                    && let Some(e) = first.take()
                {
                    return Err(e);
                }
            }
        }
    };
    let mut lines = Lines::open(input)?;
    made::reel(out, made::manifest("strace", &[input.to_path_buf()]), |writer, manifest| {
        let mut state = State::new(base_ns, writer);
        let mut damaged: i64 = 0;
        let mut jumps: usize = 0;
        let mut example = String::new();
        // Time of each thread's last line.
        let mut heard: HashMap<i64, i64> = HashMap::new();
        while let Some(text) = lines.next()? {
            if noise(text) {
                continue;
            }
            match line::parse(text) {
                Ok(line) => {
                    let last_ns = heard.insert(i64::from(line.tid.unwrap_or(0)), line.at_ns).unwrap_or(line.at_ns);
                    if line.at_ns < last_ns {
                        jumps += 1;
                        if manifest.clock_jumps.len() < MOST_JUMPS {
                            let (at_ns, back_ns) =
                                (last_ns.saturating_sub(base_ns), last_ns.saturating_sub(line.at_ns));
                            manifest.clock_jumps.push(ClockJump { at_ns, back_ns });
                        }
                    }
                    take(&mut state, line)?;
                }
                Err(why) => {
                    damaged += 1;
                    if damaged == 1 {
                        example = lines.describe(why.what, why.remedy);
                    }
                    if damaged > MOST_DAMAGED {
                        let more = format!("{}, after {MOST_DAMAGED} other unreadable lines", why.what);
                        return Err(lines.error(lines.describe(&more, why.remedy)));
                    }
                }
            }
        }
        state.finish()?;
        describe(manifest, &state.told, base_ns, jumps);
        if damaged > 0 {
            manifest.warnings.push(format!("{damaged} lines could not be read and were ignored; the first: {example}"));
        }
        if let Some(import) = &mut manifest.import {
            import.records = lines.number;
        }
        Ok(())
    })
}

/// Whether the line is empty or a message of strace.
fn noise(text: &[u8]) -> bool {
    text.is_empty() || text.starts_with(b"strace: ")
}

fn take(state: &mut State<'_>, line: Line<'_>) -> Result<()> {
    let tid = line.tid.unwrap_or(0);
    match line.event {
        Event::Call { name, args, end } => state.call(tid, line.at_ns, name, args, &end),
        Event::Begun { name, args } => state.begun(tid, line.at_ns, name, args),
        Event::Resumed { name, args, end } => state.resumed(tid, line.at_ns, name, args, &end),
        Event::Exit(status) => state.exited(tid, line.at_ns, status),
        Event::Other => Ok(()),
    }
}

/// Counters for warnings and the ledger.
#[derive(Debug, Default)]
struct Told {
    ops: i64,
    last_ns: i64,
    /// Calls that are not rows, by reason.
    left_out: BTreeMap<&'static str, i64>,
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

fn describe(manifest: &mut Manifest, told: &Told, base_ns: i64, jumps: usize) {
    let left_out: i64 = told.left_out.values().sum();
    if jumps > 0 {
        let first = if jumps > MOST_JUMPS { format!(", for the first {MOST_JUMPS}") } else { String::new() };
        let told = format!(
            "the clock went back {jumps} times within a thread; the manifest's `clock_jumps` lists when{first}"
        );
        manifest.warnings.push(told);
    }
    manifest.clock = Clock { monotonic_ns: 0, realtime_ns: base_ns };
    manifest.span = Span { elapsed_ns: told.last_ns, ..Span::default() };
    manifest.left_out = told.left_out.iter().map(|(why, n)| ((*why).to_owned(), *n)).collect();
    let ledger = Ledger { seen: told.ops.saturating_add(left_out), written: told.ops, lost: 0, filtered: left_out };
    manifest.ledger.insert("ops".into(), ledger);
    for (n, what) in [
        (told.without_duration, "calls have no duration, so it is 0; run strace with -T"),
        (told.without_path, "descriptors have no path, so their file is unknown; run strace with -y"),
        (
            told.without_position,
            "reads and writes have an unknown offset: they append, or their descriptor was opened before the trace",
        ),
        (told.unknown_flags, "arguments contain flag names that ioreel does not know, and are empty"),
        (told.cut_paths, "paths were cut by strace; run it with a larger -s"),
    ] {
        if n > 0 {
            manifest.warnings.push(format!("{n} {what}"));
        }
    }
    manifest.warnings.push(
        "strace output contains no inodes, mappings, io_uring requests or devices; files are identified by path".into(),
    );
}
