//! One pass over the operations.

use ioreel_traces::{Reel, Text};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    by_file::FileUse,
    commits::{Commits, Riding},
    lookups::Lookups,
    names::{FileKind, Names},
    operation::{Ended, Operation, Words},
    own_io::OwnIo,
    progress::Progress,
    scans::Scans,
    tally::Tally,
    time::Parts,
    waits::{Held, HolderKey, Throttles, Waits},
};
use crate::{
    Result,
    events::{
        calls::{Kind, Source, each_detailed_call},
        order::InOrder,
    },
};

/// Maximum number of files and threads told apart.
const MOST_GROUPS: usize = 1 << 20;
/// A removal, rename or truncation this long is slow: names and inodes take microseconds.
const SLOW_NS: i64 = 1_000_000;

/// An operation this long stalls its thread.
const STALL_NS: i64 = 10_000_000;
/// Maximum number of stalls kept.
const MOST_STALLS: usize = 1 << 20;

/// A long operation that is no sync and does not wait for another program.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Its start.
    pub start_ns: i64,
    /// Its end.
    pub end_ns: i64,
    /// By how much the elapsed time would be shorter without it, ns.
    pub share_ns: f64,
}

/// Time in calls of one thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskUse {
    /// Its calls.
    pub calls: Tally,
    /// What they consist of.
    pub parts: Parts,
    /// Time between its calls, each at most [`super::progress`]'s limit.
    pub computing_ns: f64,
    /// Time in calls whose wait for a device alternates with computing.
    pub waits_ns: f64,
    last_end_ns: Option<i64>,
}

/// All operations.
#[derive(Debug, Default)]
pub struct Calls {
    /// All of them.
    pub all: Tally,
    /// Whether waits were recorded.
    pub waits_recorded: bool,
    /// What their durations consist of.
    pub parts: Parts,
    /// The same, as shares of the elapsed time.
    pub share_parts: Parts,
    /// By number of the call's name.
    pub by_name: Vec<(Tally, Parts)>,
    /// Names of calls by number.
    pub call_names: Vec<Text>,
    /// By file.
    pub files: FxHashMap<i64, FileUse>,
    /// By thread.
    pub tasks: FxHashMap<i64, TaskUse>,
    /// Look-ups.
    pub lookups: Lookups,
    /// Paths by number.
    pub paths: Vec<Text>,
    /// Calls that created or removed a name.
    pub names_changed: Tally,
    /// Removals, renames and truncations of at least a millisecond, and all of them.
    pub slow_removals: Tally,
    /// All removals, renames and truncations.
    pub removals: Tally,
    /// Writes into the cache that were held back. Share: the wait.
    pub throttled: Tally,
    /// Recorded waits of writers that were held back, by the limit.
    pub throttles: Throttles,
    /// Who held the locks that operations waited for. Empty without recorded waits.
    pub holders: FxHashMap<HolderKey, Held>,
    /// Syncs that rode on a recorded commit.
    pub riding: Riding,
    /// Opens for writing on an overlay that took at least a millisecond.
    pub copy_ups: Tally,
    /// The first paths of these.
    pub copied_up: Vec<String>,
    /// Requests to io_uring.
    pub uring: Tally,
    /// Those carried out by a worker thread.
    pub punted: Tally,
    /// Order of opens and stats.
    pub scans: Scans,
    /// Reads that moved bytes out of files.
    pub reads: Tally,
    /// Writes that moved bytes into files.
    pub writes: Tally,
    /// Calls that wait for the disk.
    pub syncs: Tally,
    /// Touches of mapped pages that wait.
    pub faults: Tally,
    /// Long operations, in order of their start, except syncs.
    pub stalls: Vec<Stall>,
    /// Share of the stalls of operations that change files or names, for reasons not known, ns.
    pub stalls_of_changes_ns: f64,
    /// Share of the waits of syncs for the journal, ns.
    pub journal_of_syncs_ns: f64,
    /// Share of the waits for each device, ns.
    pub device_waits_ns: FxHashMap<i64, f64>,
    /// Share of the waits for a device that is not known, ns.
    pub other_waits_ns: f64,
    /// End of the last one.
    pub last_ns: i64,
}

struct Pass<'a> {
    names: &'a Names,
    io: &'a OwnIo,
    waits: Waits,
    commits: Commits,
    words: Words,
    order: InOrder<Operation>,
    progress: Progress,
    synchronous: FxHashSet<i64>,
    /// Operations that end; kept for its memory.
    ended: Vec<(Operation, f64)>,
    calls: Calls,
}

impl Calls {
    /// Reads the tables `ops`, `waits` and `commits`.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(super) fn of(reel: &Reel, names: &Names, io: &OwnIo) -> Result<Self> {
        let mut pass = Pass {
            names,
            io,
            waits: Waits::of(reel)?,
            commits: Commits::of(reel)?,
            words: Words::default(),
            order: InOrder::default(),
            progress: Progress::new(reel.manifest.host.cpus),
            synchronous: FxHashSet::default(),
            ended: Vec::new(),
            calls: Self::default(),
        };
        each_detailed_call(reel, |call, settled_ns| {
            if call.by_tool || call.dur_ns.is_none() {
                return;
            }
            let is_peer = names.kind(call.file) == FileKind::Peer && call.kind != Kind::Metadata;
            let op = pass.words.operation(call, is_peer);
            pass.order.push(op.start_ns, op, settled_ns);
            pass.drain();
        })?;
        pass.order.end();
        pass.drain();
        Ok(pass.finish())
    }
}

impl Pass<'_> {
    fn drain(&mut self) {
        let mut ended = std::mem::take(&mut self.ended);
        while let Some((_, op)) = self.order.pop() {
            self.progress.start(op, &mut |op, share_ns| ended.push((*op, share_ns)));
            ended.drain(..).for_each(|(op, share_ns)| self.ended(&op, share_ns));
        }
        self.ended = ended;
    }

    fn finish(mut self) -> Calls {
        let mut ended = Vec::new();
        self.progress.finish(&mut |op, share_ns| ended.push((*op, share_ns)));
        ended.iter().for_each(|(op, share_ns)| self.ended(op, *share_ns));
        self.calls.paths = self.words.paths;
        self.calls.call_names = self.words.ops.into_iter().map(|call| call.name).collect();
        self.calls.stalls.sort_by_key(|stall| (stall.start_ns, stall.end_ns));
        self.calls.waits_recorded = self.waits.recorded;
        self.calls.throttles = self.waits.throttles;
        self.calls.holders = self.waits.holders();
        self.calls
    }

    fn ended(&mut self, op: &Operation, share_ns: f64) {
        let call = &self.words.ops[op.op];
        if call.opens_synchronous(op.flags, op.ret) {
            self.synchronous.extend(op.file);
        }
        let is_sync =
            op.kind == Kind::Sync || op.kind == Kind::Write && op.file.is_some_and(|f| self.synchronous.contains(&f));
        let waited = self.waits.of_operation(op);
        let parts = waited.parts(op, is_sync, self.io);
        self.waits.ended(op);
        let device = self.io.device_of(op).or_else(|| op.file.and_then(|f| self.names.device_of(f)));
        let ended = Ended { op, call, share_ns, parts, device };
        let calls = &mut self.calls;
        calls.last_ns = calls.last_ns.max(op.end_ns);
        if op.source != Source::Request {
            calls.of_time(&ended);
        }
        calls.of_kind(&ended, is_sync);
        if is_sync
            && waited.may_ride(op)
            && let Some(file) = op.file.and_then(|f| self.names.file(f))
        {
            calls.riding.push(&self.commits, &ended, file.sb_dev);
        }
        calls.of_names(&ended, self.names);
        calls.lookups.push(&ended);
        calls.scans.push(&ended, self.names);
        let reads = if op.kind == Kind::Write { self.io.reads_of(op) } else { Default::default() };
        if let Some(file) = op.file
            && self.names.kind(op.file) != FileKind::Peer
            && (calls.files.len() < MOST_GROUPS || calls.files.contains_key(&file))
        {
            calls.files.entry(file).or_default().push(&ended, is_sync, reads);
        }
    }
}

fn add_shared(sum: &mut Parts, ended: &Ended<'_>) {
    let p = &ended.parts;
    sum.add(&Parts {
        cpu_ns: ended.share_of(p.cpu_ns),
        device_ns: ended.share_of(p.device_ns),
        journal_ns: ended.share_of(p.journal_ns),
        lock_ns: ended.share_of(p.lock_ns),
        throttle_ns: ended.share_of(p.throttle_ns),
        reclaim_ns: ended.share_of(p.reclaim_ns),
        run_queue_ns: ended.share_of(p.run_queue_ns),
        peer_ns: ended.share_of(p.peer_ns),
        unknown_ns: ended.share_of(p.unknown_ns),
    });
}

impl Calls {
    /// Time of threads. That of requests is in the calls that wait for them.
    fn of_time(&mut self, ended: &Ended<'_>) {
        let op = ended.op;
        self.all.push(ended, op.moved_bytes(), ended.share_ns);
        self.parts.add(&ended.parts);
        add_shared(&mut self.share_parts, ended);
        if op.op >= self.by_name.len() {
            self.by_name.resize(op.op + 1, Default::default());
        }
        let of_name = &mut self.by_name[op.op];
        of_name.0.push(ended, op.moved_bytes(), ended.share_ns);
        of_name.1.add(&ended.parts);
        let waited_ns = ended.device_share_ns() + ended.share_of(ended.parts.throttle_ns);
        match ended.device {
            _ if waited_ns <= 0.0 => {}
            Some(dev) => *self.device_waits_ns.entry(dev).or_default() += waited_ns,
            None => self.other_waits_ns += waited_ns,
        }
        self.of_task(ended);
    }

    fn of_task(&mut self, ended: &Ended<'_>) {
        let op = ended.op;
        if self.tasks.len() >= MOST_GROUPS && !self.tasks.contains_key(&op.task) {
            return;
        }
        let task = self.tasks.entry(op.task).or_default();
        task.calls.push(ended, op.moved_bytes(), ended.share_ns);
        task.parts.add(&ended.parts);
        if op.source != Source::Call {
            return;
        }
        if let Some(last_end_ns) = task.last_end_ns {
            let gap_ns = (op.start_ns - last_end_ns).max(0);
            if gap_ns <= super::progress::COMPUTES_NS {
                task.computing_ns += gap_ns as f64;
            }
        }
        task.waits_ns += ended.parts.device_ns;
        task.last_end_ns = Some(op.end_ns);
    }

    fn of_kind(&mut self, ended: &Ended<'_>, is_sync: bool) {
        let op = ended.op;
        match op.kind {
            _ if op.is_peer => {}
            Kind::Read => self.reads.push(ended, op.moved_bytes(), ended.share_ns),
            Kind::Write | Kind::Copy => self.writes.push(ended, op.moved_bytes(), ended.share_ns),
            _ => {}
        }
        if is_sync {
            self.syncs.push(ended, 0, ended.share_ns);
            self.journal_of_syncs_ns += ended.share_of(ended.parts.journal_ns);
        } else if op.dur_ns() >= STALL_NS && !op.is_peer && op.source == Source::Call {
            self.stalled(ended);
        }
        if ended.parts.throttle_ns > 0.0 {
            self.throttled.push(ended, op.moved_bytes(), ended.share_of(ended.parts.throttle_ns));
        }
        match op.source {
            Source::Request => {
                self.uring.push(ended, op.moved_bytes(), ended.share_ns);
                if op.is_punted {
                    self.punted.push(ended, op.moved_bytes(), ended.share_ns);
                }
            }
            Source::Fault if ended.call.faults && op.dur_ns() > 0 => {
                self.faults.push(ended, op.len_bytes.unwrap_or(0).max(0).unsigned_abs(), ended.share_ns);
            }
            _ => {}
        }
    }

    fn stalled(&mut self, ended: &Ended<'_>) {
        let op = ended.op;
        if matches!(op.kind, Kind::Write | Kind::Metadata) {
            self.stalls_of_changes_ns += ended.share_of(ended.parts.unknown_ns);
        }
        if self.stalls.len() < MOST_STALLS {
            self.stalls.push(Stall { start_ns: op.start_ns, end_ns: op.end_ns, share_ns: ended.share_ns });
        }
    }

    fn of_names(&mut self, ended: &Ended<'_>, names: &Names) {
        let (op, call) = (ended.op, ended.call);
        let removes = call.removes || call.truncates;
        let created = call.opens && op.aux.is_some_and(|a| a & 1 != 0);
        if op.succeeded() && (call.makes || created || call.removes) {
            self.names_changed.push(ended, 0, ended.share_ns);
        }
        if removes && op.succeeded() {
            self.removals.push(ended, 0, ended.share_ns);
            if op.dur_ns() >= SLOW_NS {
                self.slow_removals.push(ended, 0, ended.share_ns);
            }
        }
        if call.opens
            && op.opens_to_write()
            && op.dur_ns() >= SLOW_NS
            && let Some(file) = op.file
            && names.fstype_of(file) == "overlay"
        {
            self.copy_ups.push(ended, 0, ended.share_ns);
            if self.copied_up.len() < 3 {
                self.copied_up.push(names.path(file));
            }
        }
    }
}
