//! Description of the reel as a whole: `about` in the page's data, read by the scripts in `page/`.

use ioreel_analyze::{
    Stats,
    stats::flat::Value,
    summary::{
        actor::{FileSummary, ProcessSummary},
        operation::OperationSummary,
    },
};
use ioreel_traces::{
    Reel,
    manifest::{Ledger, State},
};
use serde::Serialize;

use super::{Finding, lanes::shortened, window::Window};
use crate::Result;

/// Maximum number of marks, losses and warnings. Omitted ones are counted.
const MOST_LISTED: usize = 1000;
/// Maximum length of a warning or command line, bytes.
const LONGEST: usize = 2000;

/// Description of the reel.
#[derive(Debug, Serialize)]
pub(super) struct About {
    /// Display name.
    pub(super) name: String,
    /// Command line.
    pub(super) command: String,
    /// Exit status as wait(2) encodes it.
    pub(super) exit_status: Option<i32>,
    /// `recording`, `replay`, …
    pub(super) kind: String,
    /// The tool that made it.
    pub(super) tool: String,
    /// Time 0, ns since 1970.
    pub(super) realtime_ns: i64,
    /// Machine.
    pub(super) host: String,
    /// Kernel.
    pub(super) kernel: String,
    /// Number of CPUs.
    pub(super) cpus: u32,
    /// Memory, bytes.
    pub(super) mem_bytes: i64,
    /// From the start to the end of the last operation.
    pub(super) elapsed_ns: i64,
    /// From there until the devices were idle.
    pub(super) settle_ns: i64,
    /// Rotation dropped events before this time; 0 if it dropped none.
    pub(super) kept_from_ns: i64,
    /// Whether the reel was not closed by its writer.
    pub(super) unfinished: bool,
    /// File systems: mount point, type, source.
    pub(super) mounts: Vec<[String; 3]>,
    /// Event counts by class.
    pub(super) ledger: Vec<(String, Ledger)>,
    /// Losses: from, to, number of events.
    pub(super) losses: Vec<[i64; 3]>,
    /// Backward jumps of the clock of an imported trace: time and size.
    pub(super) clock_jumps: Vec<[i64; 2]>,
    /// Number of events left out by design, by reason.
    pub(super) left_out: Vec<(String, i64)>,
    /// Warnings.
    pub(super) warnings: Vec<String>,
    /// Named markers.
    pub(super) marks: Vec<(i64, String)>,
    /// Number of markers not listed.
    pub(super) marks_left_out: usize,
    /// Results of `diagnose`.
    pub(super) findings: Vec<Finding>,
    /// The shown window: from, to.
    pub(super) window: [i64; 2],
    /// Bins of the rates: width and number. The last bin ends with the window.
    pub(super) bins: [i64; 2],
    /// Values of `ioreel stats`. Empty for a part of a reel.
    pub(super) stats: Vec<Value>,
    /// Number of devices that are only in the tables' sums.
    pub(super) devices_left_out: usize,
    /// Operations by system call, most time first, as in `ioreel info`.
    pub(super) operations: Vec<OperationSummary>,
    /// Top files.
    pub(super) files: Vec<FileRow>,
    /// Number of files used by operations.
    pub(super) file_count: u64,
    /// Number of paths that these files had.
    pub(super) path_count: u64,
    /// Top processes.
    pub(super) processes: Vec<ProcessSummary>,
    /// Number of processes.
    pub(super) process_count: u64,
}

/// A file in the table: its operations, and device I/O for it.
#[derive(Debug, Serialize)]
pub(super) struct FileRow {
    /// Totals of its operations.
    #[serde(flatten)]
    pub(super) calls: FileSummary,
    /// Bytes that devices read for it.
    pub(super) disk_read_bytes: u64,
    /// Bytes that devices wrote for it.
    pub(super) disk_write_bytes: u64,
}

/// Maximum number of devices with statistics in the page.
const MOST_DEVICES: usize = 32;

/// The part that comes from the manifest.
///
/// # Errors
/// When the reel cannot be read.
pub(super) fn about(reel: &Reel, findings: &[Finding], window: Window, bins: [i64; 2]) -> Result<About> {
    let m = &reel.manifest;
    let text = |t: &str| shortened(t, LONGEST);
    Ok(About {
        name: text(&reel.name()),
        command: text(&m.command.as_ref().map(|c| c.argv.join(" ")).unwrap_or_default()),
        exit_status: m.command.as_ref().and_then(|c| c.exit_status),
        kind: format!("{:?}", m.kind).to_lowercase(),
        tool: text(&m.tool),
        realtime_ns: m.clock.realtime_ns,
        host: text(&m.host.name),
        kernel: text(&m.host.kernel),
        cpus: m.host.cpus,
        mem_bytes: m.host.mem_bytes,
        elapsed_ns: m.span.elapsed_ns,
        settle_ns: m.span.settle_ns,
        kept_from_ns: reel.kept_from_ns()?,
        unfinished: m.state != State::Complete,
        mounts: m.mounts.iter().take(64).map(|m| [text(&m.mountpoint), text(&m.fstype), text(&m.source)]).collect(),
        ledger: m.ledger.iter().take(MOST_LISTED).map(|(k, v)| (text(k), *v)).collect(),
        losses: losses(m.losses.iter().map(|l| [l.from_ns, l.to_ns, l.events]).collect()),
        clock_jumps: m.clock_jumps.iter().take(MOST_LISTED).map(|j| [j.at_ns, j.back_ns]).collect(),
        left_out: m.left_out.iter().take(MOST_LISTED).map(|(k, v)| (text(k), *v)).collect(),
        warnings: m.warnings.iter().take(100).map(|w| text(w)).collect(),
        marks: m.marks.iter().take(MOST_LISTED).map(|m| (m.ns, shortened(&m.name, 200))).collect(),
        marks_left_out: m.marks.len().saturating_sub(MOST_LISTED),
        findings: findings.iter().take(MOST_LISTED).cloned().collect(),
        window: [window.from_ns, window.to_ns],
        bins,
        stats: Vec::new(),
        operations: Vec::new(),
        devices_left_out: 0,
        files: Vec::new(),
        file_count: 0,
        path_count: 0,
        processes: Vec::new(),
        process_count: 0,
    })
}

impl About {
    /// Adds the statistics, for as many devices as the page can contain.
    pub(super) fn take(&mut self, mut stats: Stats) {
        self.devices_left_out = stats.devices.len().saturating_sub(MOST_DEVICES);
        stats.devices.truncate(MOST_DEVICES);
        self.stats = stats.values();
    }
}

/// Joins neighbouring losses until there are few.
fn losses(mut all: Vec<[i64; 3]>) -> Vec<[i64; 3]> {
    all.sort_unstable();
    while all.len() > MOST_LISTED {
        all = all
            .chunks(2)
            .map(|pair| pair.iter().skip(1).fold(pair[0], |a, b| [a[0], a[1].max(b[1]), a[2].saturating_add(b[2])]))
            .collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_losses_hold_as_many_events() {
        let all: Vec<[i64; 3]> = (0..5001).map(|i| [i * 10, i * 10 + 5, 2]).collect();
        let few = losses(all);
        assert!(few.len() <= MOST_LISTED);
        assert_eq!(few.iter().map(|l| l[2]).sum::<i64>(), 10_002);
        assert_eq!((few[0][0], few.last().map(|l| l[1])), (0, Some(50_005)));
    }
}
