//! Operations: data for drawing, and sums by file and process.

use ioreel_analyze::{
    events::{
        calls::{Call, Kind, each_call},
        targets::Target,
    },
    summary::{
        actor::ActorMeter,
        operation::{OperationMeter, OperationSummary},
        series::CallSeries,
    },
};
use ioreel_traces::{Reel, Text, rows::Op};
use rustc_hash::FxHashMap;

use super::{
    lanes::{Lanes, Used},
    requests::{MAP_ROWS, Plan},
    sample::{Held, Sample},
    window::{HEAT_ROWS, heat_row},
};
use crate::{
    Result,
    canvas::raster::{Cells, Counts, Grid},
};

/// Layer of a call: reads, writes and copies, syncs, names and attributes, others.
pub(super) fn layer(kind: Kind) -> usize {
    CallSeries::row(kind)
}

/// An individual call.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleCall {
    /// Time of entry.
    pub(super) start_ns: i64,
    /// Duration, if known.
    pub(super) dur_ns: Option<i64>,
    /// Name, as index into [`CallsView::names`].
    pub(super) op: usize,
    /// Its kind.
    pub(super) kind: Kind,
    /// Key into `files`.
    pub(super) file: Option<i64>,
    /// Offset in the file.
    pub(super) offset_bytes: Option<i64>,
    /// Result or -errno.
    pub(super) ret: Option<i64>,
    /// Key into `tasks`.
    pub(super) task: i64,
    /// What bytes read come from, and what bytes written go to.
    pub(super) targets: (Target, Target),
}

/// Data about operations.
#[derive(Debug)]
pub(super) struct CallsView {
    /// Sums by file and process.
    pub(super) actors: ActorMeter,
    /// Sums by system call.
    pub(super) operations: Vec<OperationSummary>,
    /// Rates.
    pub(super) series: CallSeries,
    /// Number of calls per cell of time and duration, by [`layer`], rows from the bottom. `None` if all are in the page
    /// individually.
    pub(super) heat: Option<[Counts; 5]>,
    /// Number of calls per cell of time and position on the file axis: reads, writes.
    pub(super) map: Option<[Counts; 2]>,
    /// Individual calls.
    pub(super) singles: Held<SingleCall>,
    /// Names of calls.
    pub(super) names: Vec<String>,
    /// Axis of the files.
    pub(super) lanes: Lanes,
}

/// Reads the operations. Reads them again for the file map if not all fit into the page individually.
pub(super) fn draw(reel: &Reel, plan: &Plan) -> Result<CallsView> {
    let window = plan.window;
    let complete = u64::try_from(reel.count::<Op>()).unwrap_or(0) <= plan.singles as u64;
    let time = Cells { from: window.from_ns, to: window.to_ns, count: plan.columns };
    let heat_time = Cells { count: plan.columns.min(2048), ..time };
    let mut heat: Option<[Grid; 5]> =
        (!complete).then(|| std::array::from_fn(|_| Grid::new(heat_time.count, HEAT_ROWS)));
    let mut series = CallSeries::new(plan.bins);
    let (mut actors, mut operations) = (ActorMeter::default(), OperationMeter::default());
    let mut used: FxHashMap<i64, Used> = FxHashMap::default();
    let mut singles = Sample::new(plan.singles, if complete { 0 } else { plan.slowest });
    let mut names: Vec<Text> = Vec::new();
    each_call(reel, |call| {
        if call.by_tool || !window.meets(call.start_ns, call.end_ns()) {
            return;
        }
        if call.op_index >= names.len() {
            names.resize(call.op_index + 1, Text::default());
        }
        if names[call.op_index].is_empty() {
            names[call.op_index] = call.op.clone();
        }
        // As `ioreel info` counts them: those that start in the window.
        if window.from_ns <= 0 || call.start_ns >= window.from_ns {
            actors.push(call);
            operations.push(call);
        }
        series.push(call);
        if let Some((file, offset, bytes, _)) = moved(call) {
            used.entry(file).or_default().add(offset, bytes);
        }
        if let (Some(heat), Some(dur_ns), Some(column)) = (&mut heat, call.dur_ns, heat_time.index(call.end_ns())) {
            let row = heat_row(dur_ns);
            heat[layer(call.kind)].add((column, column), (row, row));
        }
        singles.push(
            call.dur_ns.unwrap_or(0),
            SingleCall {
                start_ns: call.start_ns,
                dur_ns: call.dur_ns,
                op: call.op_index,
                kind: call.kind,
                file: call.file,
                offset_bytes: call.offset_bytes,
                ret: call.ret,
                task: call.task_id,
                targets: (call.moved().0.0, call.moved().1.0),
            },
        );
    })?;
    let singles = singles.finish();
    let lanes = Lanes::new(reel, &used)?;
    let map = if singles.is_complete() { None } else { Some(file_map(reel, plan, time, &lanes)?) };
    Ok(CallsView {
        actors,
        operations: operations.summaries(),
        series,
        heat: heat.filter(|_| !singles.is_complete()).map(|h| h.map(|g| g.counts())),
        map,
        singles,
        names: names.iter().map(Text::to_string).collect(),
        lanes,
    })
}

/// File, offset and bytes of a read or write at a known offset, and whether it writes. For a copy, its read.
fn moved(call: &Call<'_>) -> Option<(i64, i64, u64, bool)> {
    let (file, offset, bytes) = (call.file?, call.offset_bytes?, call.bytes());
    let moves = matches!(call.kind, Kind::Read | Kind::Write | Kind::Copy) && bytes > 0 && offset >= 0;
    moves.then_some((file, offset, bytes, call.kind == Kind::Write))
}

fn file_map(reel: &Reel, plan: &Plan, time: Cells, lanes: &Lanes) -> Result<[Counts; 2]> {
    let mut map: [Grid; 2] = std::array::from_fn(|_| Grid::new(time.count, MAP_ROWS));
    each_call(reel, |call| {
        if call.by_tool || !plan.window.meets(call.start_ns, call.end_ns()) {
            return;
        }
        let Some((file, offset, bytes, writes)) = moved(call) else { return };
        let rows = lanes.place(file).and_then(|lane| lanes.rows(lane, offset, bytes, MAP_ROWS));
        if let (Some(rows), Some(columns)) = (rows, time.span(call.start_ns, call.end_ns())) {
            map[usize::from(writes)].add(columns, rows);
        }
    })?;
    Ok(map.map(|g| g.counts()))
}
