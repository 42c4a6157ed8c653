//! Everything that `ioreel info` prints, computed in one pass over each table.
//!
//! In: a reel. Out: [`Summary`]. May use: `events`, `meters`.

pub mod actor;
pub mod brief;
pub mod device;
mod leaders;
pub mod operation;
mod paths;
pub mod series;
pub mod totals;
pub mod waits;

use std::collections::BTreeMap;

use ioreel_traces::{
    Manifest, Reel,
    manifest::{Cost, Ledger, Loss},
    rows::{Block, Op},
    table::Row,
};
use serde::Serialize;

use crate::{
    Result,
    events::{
        calls::each_call,
        requests::{MOST_DEVICES, of_device, requests},
        scope::Scope,
        targets::Moved,
    },
    meters::latency::LatencySummary,
    summary::{
        actor::{ActorMeter, FileSummary, MOST_ACTORS, MOST_THREADS, MountSummary, ProcessSummary},
        device::{DeviceMeter, DeviceSummary},
        operation::{OperationMeter, OperationSummary},
        totals::Totals,
        waits::{WaitSummary, waits},
    },
};

/// Statistics of one reel. The members are the JSON of `ioreel info --json`: see `docs/json.md`.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Duration of the recording.
    pub span: SpanSummary,
    /// All operations together, without ioreel's own.
    pub total: OperationTotals,
    /// Operations by system call, most time first.
    pub operations: Vec<OperationSummary>,
    /// ioreel's own operations to sync file systems at the end.
    pub settling: Vec<OperationSummary>,
    /// Block devices, most bytes first.
    pub devices: Vec<DeviceSummary>,
    /// What slow operations waited for, most time first.
    pub waits: Vec<WaitSummary>,
    /// Mounted file systems, most time first.
    pub mounts: Vec<MountSummary>,
    /// Number of files used by operations.
    pub files: u64,
    /// Number of paths that these files had.
    pub paths: u64,
    /// Top files, most bytes first.
    pub files_by_bytes: Vec<FileSummary>,
    /// Top files, most time first.
    pub files_by_time: Vec<FileSummary>,
    /// Number of processes.
    pub processes: u64,
    /// Top processes, most time first.
    pub processes_by_time: Vec<ProcessSummary>,
    /// Events by class: seen = written + lost + filtered.
    pub ledger: BTreeMap<String, Ledger>,
    /// When and where events were lost.
    pub losses: Vec<Loss>,
    /// Events left out by design, by reason.
    pub left_out: BTreeMap<String, i64>,
    /// Warnings.
    pub warnings: Vec<String>,
    /// Cost of recording.
    pub cost: Cost,
    /// Rows and bytes on disk by table.
    pub tables: Vec<TableSize>,
}

/// Duration of the recording, and the part of it that is counted, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpanSummary {
    /// Start of the counted part. Of a rotated reel, the time from which on it is complete, unless another was
    /// requested.
    pub from_ns: i64,
    /// End of the counted part. Rates of devices are relative to the time from `from_ns` to here.
    pub to_ns: i64,
    /// From the start to the end of the last recorded task or operation.
    pub elapsed_ns: i64,
    /// From there until the file systems were synced and the devices idle.
    pub settle_ns: i64,
    /// Both, or longer if an event ended later.
    pub total_ns: i64,
}

/// All operations together.
#[derive(Clone, Debug, Serialize)]
pub struct OperationTotals {
    /// Sums.
    #[serde(flatten)]
    pub totals: Totals,
    /// The bytes of these, by where they went to and came from.
    pub moved: Moved,
    /// Operations per second from `from_ns` to `elapsed_ns`.
    pub ops_per_s: f64,
    /// Their duration.
    pub latency: LatencySummary,
}

/// Size of a table on disk.
#[derive(Clone, Debug, Serialize)]
pub struct TableSize {
    /// Its name.
    pub table: String,
    /// Rows.
    pub rows: i64,
    /// Bytes of its Parquet files.
    pub bytes: i64,
    /// Bytes per row.
    pub bytes_per_row: f64,
}

/// Default length of top lists: fits a screen.
pub const DEFAULT_TOP: usize = 10;

impl Summary {
    /// Computes the summary of all that the reel keeps. Top lists have at most `top` entries.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel, top: usize) -> Result<Self> {
        Self::of_part(reel, (None, None), top)
    }

    /// The same of events that start at or after the first time and before the second, ns since the start of the reel.
    /// Facts about the reel as a whole stay: its duration, ledger, losses and tables.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of_part(reel: &Reel, (from_ns, to_ns): (Option<i64>, Option<i64>), top: usize) -> Result<Self> {
        let manifest = &reel.manifest;
        let scope = Scope { from_ns, to_ns, ..Scope::default() }.of_kept(reel)?;
        let (mut operations, mut settling) = (OperationMeter::default(), OperationMeter::default());
        let mut actors = ActorMeter::default();
        let (mut totals, mut moved) = (Totals::default(), Moved::default());
        let (mut last_call_ns, mut last_ns) = (0, 0);
        each_call(reel, |call| {
            last_ns = last_ns.max(call.end_ns());
            last_call_ns = if call.by_tool { last_call_ns } else { last_call_ns.max(call.end_ns()) };
            if !scope.holds_time(call.start_ns) {
                return;
            }
            if call.by_tool {
                settling.push(call);
                return;
            }
            let (read, written) = call.moved();
            totals.add_call(call, read.1, written.1);
            moved.add_bytes(read, written);
            operations.push(call);
            actors.push(call);
        })?;
        let requests = Requests::of(reel, &scope)?;
        last_ns = last_ns.max(requests.last_ns);
        // Without a stated duration (crash, import), the last operation determines it.
        let elapsed_ns = if manifest.span.elapsed_ns > 0 {
            manifest.span.elapsed_ns
        } else if last_call_ns > 0 {
            last_call_ns
        } else {
            last_ns
        };
        let settle_ns = manifest.span.settle_ns;
        let total_ns = last_ns.max(elapsed_ns.saturating_add(settle_ns));
        let from_ns = scope.from_ns.unwrap_or(0).max(0);
        let to_ns = scope.to_ns.map_or(total_ns, |to| to.min(total_ns)).max(from_ns);
        let span = SpanSummary { from_ns, to_ns, elapsed_ns, settle_ns, total_ns };
        let summary = |(dev, meter): (&i64, &DeviceMeter)| meter.summary(*dev, manifest, (from_ns, to_ns));
        let mut devices: Vec<_> = requests.devices.iter().map(summary).collect();
        devices.sort_by_key(|d| (std::cmp::Reverse(d.read_bytes.saturating_add(d.write_bytes)), d.dev));
        let latency = operations.latency();
        totals.time_ns = latency.total_ns;
        let files = actors.files(reel, top)?;
        let (processes_by_time, processes) = actors.processes(reel, top)?;
        Ok(Self {
            span,
            total: OperationTotals {
                totals,
                moved,
                ops_per_s: totals.calls as f64 * 1e9 / elapsed_ns.min(to_ns).saturating_sub(from_ns).max(1) as f64,
                latency,
            },
            operations: operations.summaries(),
            settling: settling.summaries(),
            devices,
            mounts: files.mounts,
            files: files.count,
            paths: files.paths,
            files_by_bytes: files.by_bytes,
            files_by_time: files.by_time,
            processes,
            processes_by_time,
            waits: waits(reel, &scope)?,
            ledger: manifest.ledger.clone(),
            losses: manifest.losses.clone(),
            left_out: manifest.left_out.clone(),
            warnings: warnings(manifest, actors.left_out(), requests.not_shown),
            cost: manifest.cost,
            tables: tables(reel),
        })
    }

    /// Bytes on disk per event: everything but the manifest, over rows of `ops`, `block` and `bio`.
    pub fn bytes_per_event(&self) -> Option<f64> {
        let events = self
            .tables
            .iter()
            .filter(|t| ["ops", "block", "bio"].contains(&&*t.table))
            .map(|t| t.rows)
            .fold(0, i64::saturating_add);
        let bytes = self.tables.iter().map(|t| t.bytes).fold(0, i64::saturating_add);
        (events > 0).then(|| bytes as f64 / events as f64)
    }

    /// Whether the reel contains requests, and whether it contains operations.
    pub fn has(reel: &Reel) -> (bool, bool) {
        let rows = |table: &str| reel.manifest.segments.get(table).is_some_and(|s| s.iter().any(|s| s.rows > 0));
        (rows(Block::TABLE), rows(Op::TABLE))
    }
}

/// Requests by device.
#[derive(Debug, Default)]
struct Requests {
    devices: BTreeMap<i64, DeviceMeter>,
    /// Time of the last event of any request, counted or not.
    last_ns: i64,
    /// Requests of devices beyond the limit.
    not_shown: u64,
}

impl Requests {
    /// Counts the requests issued in the scope's window.
    fn of(reel: &Reel, scope: &Scope) -> Result<Self> {
        let mut all = Self::default();
        for request in requests(reel) {
            let request = request?;
            all.last_ns = all.last_ns.max(request.last_ns());
            if !scope.holds_time(request.issue_ns) {
                continue;
            }
            match of_device(&mut all.devices, request.dev, DeviceMeter::default) {
                Some(device) => _ = device.push(&request),
                None => all.not_shown += 1,
            }
        }
        Ok(all)
    }
}

/// The warnings of the manifest, and one for each limit that the reel exceeds.
fn warnings(manifest: &Manifest, calls: u64, requests: u64) -> Vec<String> {
    let mut warnings = manifest.warnings.clone();
    if calls > 0 {
        warnings.push(format!(
            "{calls} calls concern files beyond the first {MOST_ACTORS} or threads beyond the first {MOST_THREADS}; lists of files and processes lack them"
        ));
    }
    if requests > 0 {
        warnings
            .push(format!("{requests} requests went to devices beyond the first {MOST_DEVICES}, which are not listed"));
    }
    warnings
}

fn tables(reel: &Reel) -> Vec<TableSize> {
    reel.manifest
        .segments
        .iter()
        .map(|(table, segments)| {
            let (rows, bytes) = segments
                .iter()
                .fold((0, 0), |(r, b), s| (i64::saturating_add(r, s.rows), i64::saturating_add(b, s.bytes)));
            TableSize { table: table.clone(), rows, bytes, bytes_per_row: bytes as f64 / rows.max(1) as f64 }
        })
        .collect()
}
