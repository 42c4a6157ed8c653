//! Perfetto traces for ui.perfetto.dev: calls per thread, requests per device, flows between them, rates.
//!
//! The viewer uses a multiple of 60 bytes of memory per slice, so the number of slices is limited. Rates are complete.

mod counters;
mod proto;
mod trace;

use std::{
    collections::{BTreeMap, HashMap},
    io::BufWriter,
    path::Path,
};

use crate::{
    Reel, ReelError,
    format::{
        manifest::dev_name,
        rows::{self, Bio, Block, Op, Task},
    },
    private::Output,
};

use super::{ExportError, Result};
use crate::reader::ordered::Ordered;
use counters::{Bin, Bins};
use proto::{MERGE_BY_KEY, Message, field as f};
use trace::{Lanes, Slice, Trace, Value};

/// Default limit of slices: 60 MB, which a browser handles easily.
pub const DEFAULT_MOST_SLICES: u64 = 1_000_000;

/// Options of an export.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Maximum number of slices, calls and requests together.
    pub most_slices: u64,
    /// Skip events that end before this time.
    pub from_ns: i64,
    /// Skip events that start at or after this time.
    pub to_ns: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { most_slices: DEFAULT_MOST_SLICES, from_ns: 0, to_ns: i64::MAX }
    }
}

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Calls and requests in the window.
    pub events: u64,
    /// Events exported as slices.
    pub slices: u64,
    /// Requests with a flow from a call.
    pub flows: u64,
}

/// Writes the reel as a Perfetto trace.
///
/// # Errors
/// If the window is empty, the reel cannot be read, or the output already exists or cannot be written.
pub fn export(reel: &Reel, output: &Path, options: &Options) -> Result<Exported> {
    let choice = Choice::of(reel, options)?;
    if choice.events == 0 {
        return Err(ExportError::refused(
            reel.path(),
            "no calls and no requests in this window; widen --from and --to",
        ));
    }
    let mut file = super::create(output)?;
    let exported =
        Writer::new(reel, &mut file, options, choice).and_then(Writer::all).map_err(|fault| match fault {
            Fault::Read(e) => ExportError::from(e),
            Fault::Write(e) => ReelError::io(output, "writing the trace")(e).into(),
        })?;
    super::keep(file)?;
    Ok(exported)
}

/// A failure to read the reel or to write the trace.
enum Fault {
    Read(ReelError),
    Write(std::io::Error),
}

impl From<ReelError> for Fault {
    fn from(e: ReelError) -> Self {
        Self::Read(e)
    }
}

impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Self {
        Self::Write(e)
    }
}

impl From<ExportError> for Fault {
    fn from(e: ExportError) -> Self {
        match e {
            ExportError::Reel(e) => Self::Read(e),
            ExportError::Refused { path, why } => Self::Read(ReelError::BadSegment { path, why }),
        }
    }
}

fn in_window(options: &Options, from_ns: i64, to_ns: i64) -> bool {
    to_ns >= options.from_ns && from_ns < options.to_ns
}

/// Which events become slices: all, or the slowest and a sample of the others.
#[derive(Debug, Default)]
struct Choice {
    events: u64,
    /// Events at least this long are all exported.
    slow_ns: i64,
    /// Of the others, one in this many is exported.
    every: u64,
    met: u64,
    last_ns: i64,
}

impl Choice {
    fn of(reel: &Reel, options: &Options) -> Result<Self> {
        // Events by the power of two of their duration. This is exact enough to choose the limit.
        let mut by_log = [0u64; 65];
        let mut choice = Self { every: 1, ..Self::default() };
        let mut add = |from: i64, to: i64| {
            if in_window(options, from, to) {
                by_log[(64 - (to - from).max(0).leading_zeros()) as usize] += 1;
                choice.events += 1;
                choice.last_ns = choice.last_ns.max(to.min(options.to_ns));
            }
        };
        for op in reel.rows::<Op>() {
            let op = op?;
            add(op.start_ns, op.start_ns.saturating_add(op.dur_ns));
        }
        for block in reel.rows::<Block>() {
            let block = block?;
            add(block.issue_ns, block.complete_ns.unwrap_or(block.issue_ns));
        }
        if choice.events > options.most_slices {
            let half = options.most_slices / 2;
            let mut slow = 0;
            let mut log = 64;
            while log > 0 && slow + by_log[log] <= half {
                slow += by_log[log];
                log -= 1;
            }
            choice.slow_ns = if log >= 63 { i64::MAX } else { 1 << log };
            let rest = choice.events - slow;
            choice.every = rest.div_ceil((options.most_slices - slow).max(1));
        }
        Ok(choice)
    }

    fn takes(&mut self, dur_ns: i64) -> bool {
        if self.every == 1 || dur_ns >= self.slow_ns {
            return true;
        }
        self.met += 1;
        self.met.is_multiple_of(self.every)
    }
}

struct Writer<'a> {
    reel: &'a Reel,
    options: &'a Options,
    choice: Choice,
    trace: Trace<BufWriter<&'a mut Output>>,
    tasks: HashMap<i64, Task>,
    paths: HashMap<i64, crate::Text>,
    processes: HashMap<i32, u64>,
    threads: HashMap<i64, (u64, Lanes)>,
    devices: BTreeMap<i64, (u64, Lanes, Bins)>,
    /// Flows from a call and to a request, by bio.
    from_op: HashMap<i64, Vec<u64>>,
    to_request: HashMap<i64, Vec<u64>>,
    exported: Exported,
}

impl<'a> Writer<'a> {
    fn new(reel: &'a Reel, file: &'a mut Output, options: &'a Options, choice: Choice) -> Result<Self, Fault> {
        let tasks = reel.rows::<Task>().map(|t| t.map(|t| (t.task_id, t))).collect::<crate::Result<_>>()?;
        let mut paths = HashMap::new();
        for file in reel.rows::<rows::File>() {
            let file = file?;
            paths.extend(file.path.map(|p| (file.file, p)));
        }
        let (mut from_op, mut to_request): (HashMap<_, Vec<_>>, HashMap<_, Vec<_>>) = Default::default();
        for bio in reel.rows::<Bio>() {
            let bio = bio?;
            let end = bio.complete_ns.unwrap_or(bio.queue_ns);
            if let (Some(op), Some(rq)) = (bio.cause, bio.rq_id)
                && in_window(options, bio.queue_ns, end)
                && (from_op.len() as u64) < options.most_slices
            {
                // The viewer reserves id 0.
                let flow = bio.bio_id as u64 + 1;
                from_op.entry(op).or_default().push(flow);
                to_request.entry(rq).or_default().push(flow);
            }
        }
        let exported = Exported { events: choice.events, ..Exported::default() };
        Ok(Self {
            reel,
            options,
            choice,
            trace: Trace::new(BufWriter::with_capacity(1 << 20, file)),
            tasks,
            paths,
            processes: HashMap::new(),
            threads: HashMap::new(),
            devices: BTreeMap::new(),
            from_op,
            to_request,
            exported,
        })
    }

    fn all(mut self) -> Result<Exported, Fault> {
        let mut ops = Ordered::<Op>::new(self.reel);
        while let Some(op) = ops.next()? {
            let to_ns = op.start_ns.saturating_add(op.dur_ns);
            if in_window(self.options, op.start_ns, to_ns) && self.choice.takes(op.dur_ns) {
                self.op(&op, to_ns)?;
            }
        }
        let mut blocks = Ordered::<Block>::new(self.reel);
        while let Some(block) = blocks.next()? {
            let to_ns = block.complete_ns.unwrap_or(block.issue_ns);
            if in_window(self.options, block.issue_ns, to_ns) {
                self.block(&block, to_ns)?;
            }
        }
        self.counters()?;
        self.trace.finish()?;
        Ok(self.exported)
    }

    /// The track of a thread, below the track of its process.
    fn thread(&mut self, task_id: i64, pid: i32, tid: i32) -> Result<u64, Fault> {
        let name = self.tasks.get(&task_id).map(|t| t.comm.to_string()).unwrap_or_default();
        let process = match self.processes.get(&pid) {
            Some(track) => *track,
            None => {
                let mut process = Message::default();
                process.int(f::PROCESS_PID, i64::from(pid)).bytes(f::PROCESS_NAME, name.as_bytes());
                let track = self.trace.track("", None, |t| {
                    t.bytes(f::TRACK_PROCESS, &process.0);
                })?;
                self.processes.insert(pid, track);
                track
            }
        };
        let mut thread = Message::default();
        thread
            .int(f::THREAD_PID, i64::from(pid))
            .int(f::THREAD_TID, i64::from(tid))
            .bytes(f::THREAD_NAME, name.as_bytes());
        Ok(self.trace.track("", Some(process), |t| {
            t.bytes(f::TRACK_THREAD, &thread.0);
        })?)
    }

    fn op(&mut self, op: &Op, to_ns: i64) -> Result<(), Fault> {
        if !self.threads.contains_key(&op.task_id) {
            let track = self.thread(op.task_id, op.pid, op.tid)?;
            self.threads.insert(op.task_id, (track, Lanes::default()));
        }
        let Some((own, lanes)) = self.threads.get_mut(&op.task_id) else { return Ok(()) };
        let trace = &mut self.trace;
        // A thread is in one call at a time. Its io_uring requests, which run beside calls, get tracks below it.
        let track = lanes.place(op.start_ns, to_ns, |lane| match lane {
            0 => Ok(*own),
            n => trace.track(&format!("in flight {n}"), Some(*own), |_| {}),
        })?;
        let path = op.path.as_ref().or_else(|| op.file.and_then(|file| self.paths.get(&file)));
        let mut notes = Vec::new();
        notes.extend(path.map(|p| ("path", Value::Text(p))));
        for (name, value) in
            [("fd", op.fd.map(i64::from)), ("offset", op.offset_bytes), ("length", op.len_bytes), ("result", op.ret)]
        {
            notes.extend(value.map(|v| (name, Value::Int(v))));
        }
        let flows = self.from_op.get(&op.op_id).map(Vec::as_slice).unwrap_or_default();
        let (from_ns, name) = (op.start_ns, &*op.op);
        trace.slice(&Slice { track, category: "call", name, from_ns, to_ns, notes: &notes, flows, ends: &[] })?;
        self.exported.slices += 1;
        Ok(())
    }

    fn block(&mut self, row: &Block, to_ns: i64) -> Result<(), Fault> {
        /// Maximum number of disks: the rates of each take up to 1 MB. Requests of others are not exported, and so are
        /// missing from the number of exported slices.
        const MOST_DEVICES: usize = 512;
        if !self.devices.contains_key(&row.dev) {
            if self.devices.len() >= MOST_DEVICES {
                return Ok(());
            }
            let known = self.reel.manifest.device(row.dev).map(|d| d.name.clone()).filter(|n| !n.is_empty());
            let name = known.unwrap_or_else(|| dev_name(row.dev));
            let track = self.trace.track(&format!("disk {name}"), None, |_| {})?;
            let bins = Bins::new(self.options.from_ns.max(0), self.choice.last_ns);
            self.devices.insert(row.dev, (track, Lanes::default(), bins));
        }
        let Some((parent, lanes, bins)) = self.devices.get_mut(&row.dev) else { return Ok(()) };
        bins.add(&row.op, row.issue_ns, row.complete_ns, row.sector, row.len_bytes);
        if !self.choice.takes(to_ns.saturating_sub(row.issue_ns)) {
            return Ok(());
        }
        let trace = &mut self.trace;
        let key = format!("requests {}", row.dev);
        let track = lanes.place(row.issue_ns, to_ns, |_| {
            trace.track("requests", Some(*parent), |t| {
                t.int(f::TRACK_MERGE, MERGE_BY_KEY).bytes(f::TRACK_MERGE_KEY, key.as_bytes());
            })
        })?;
        let mut notes = vec![("sector", Value::Int(row.sector)), ("length", Value::Int(row.len_bytes))];
        notes.extend(row.queue_ns.map(|q| ("queued for ns", Value::Int(row.issue_ns.saturating_sub(q)))));
        if row.complete_ns.is_none() {
            notes.push(("end", Value::Text("not seen")));
        }
        if row.error != 0 {
            notes.push(("errno", Value::Int(i64::from(row.error))));
        }
        let ends = self.to_request.get(&row.rq_id).map(Vec::as_slice).unwrap_or_default();
        let slice = Slice {
            track,
            category: "request",
            name: &row.op,
            from_ns: row.issue_ns,
            to_ns,
            notes: &notes,
            flows: &[],
            ends,
        };
        trace.slice(&slice)?;
        self.exported.slices += 1;
        self.exported.flows += u64::from(!ends.is_empty());
        Ok(())
    }

    fn counters(&mut self) -> Result<(), Fault> {
        type Rate = (&'static str, &'static str, fn(&Bin, f64) -> f64);
        const RATES: [Rate; 5] = [
            ("read", "B/s", |b, s| b.read_bytes as f64 / s),
            ("written", "B/s", |b, s| b.write_bytes as f64 / s),
            ("requests done", "1/s", |b, s| b.requests as f64 / s),
            ("seeks", "1/s", |b, s| b.seeks as f64 / s),
            ("in flight", "", |b, s| b.busy_ns as f64 / 1e9 / s),
        ];
        for (parent, _, bins) in std::mem::take(&mut self.devices).into_values() {
            for (name, unit, rate) in RATES {
                let mut counter = Message::default();
                if !unit.is_empty() {
                    counter.bytes(f::COUNTER_UNIT_NAME, unit.as_bytes());
                }
                let track = self.trace.track(name, Some(parent), |t| {
                    t.bytes(f::TRACK_COUNTER, &counter.0);
                })?;
                let seconds = bins.width_ns as f64 / 1e9;
                let mut before = None;
                for (i, bin) in bins.bins.iter().enumerate() {
                    let value = rate(bin, seconds);
                    // A counter keeps its value until its next point.
                    if before != Some(value) {
                        self.trace.counter(track, bins.at_ns(i), value)?;
                        before = Some(value);
                    }
                }
                self.trace.counter(track, bins.at_ns(bins.bins.len()), 0.0)?;
            }
        }
        Ok(())
    }
}
