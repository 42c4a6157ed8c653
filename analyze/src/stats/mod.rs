//! Every named statistic of a reel or a part of it: `ioreel stats`.
//!
//! In: a reel and a scope. Out: [`Stats`]. May use: `events`, `meters`.
//!
//! A statistic has the same name in JSON, tables and pictures, and is defined where it is computed. Percentiles have three
//! digits. A statistic that would need unbounded memory uses a sample and states its size.

mod adjacent;
mod bios;
mod block;
pub mod compare;
mod extents;
pub mod flat;
mod operations;
mod period;
mod readahead;
mod regions;
mod sample;
mod seek;
mod sizes;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
};

use ioreel_traces::{Manifest, Reel, rows, table::Row};
use serde::Serialize;

pub use self::{
    adjacent::ADJACENT_NS,
    bios::ClassBytes,
    block::DeviceStats,
    extents::{FileLayout, Interleave, LayoutStats},
    operations::{FsyncStats, LockSerial, OperationStats},
    period::Period,
    readahead::ReadaheadStats,
    regions::{RMW_NS, RegionStats, WINDOWS_NS},
    seek::{HEAD_MS, SeekStats},
    sizes::SizeStats,
};
use self::{
    bios::BioPass,
    block::{BlockMeter, Queued},
    operations::OperationPass,
    regions::RegionMeter,
};
pub use crate::events::requests::MOST_DEVICES;
use crate::{
    Result,
    events::{
        requests::{
            Class, Request, bios_as_requests, bios_as_requests_with_ids, of_device, requests, requests_with_ids,
        },
        scope::Scope,
        stages::{MOST_ACTIONS, Moments, too_many},
    },
    meters::visits::Visits,
};

/// Statistics of a reel. The members are the JSON of `ioreel stats --json`: see `docs/json.md`.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Start, ns since the start of the reel. Of a rotated reel, the time from which on it is complete, unless another
    /// was requested.
    pub from_ns: i64,
    /// Length of the span, ns. Rates are relative to it.
    pub span_ns: i64,
    /// Operations. Null if the scope contains none.
    pub operations: Option<OperationStats>,
    /// Block devices, most bytes first.
    pub devices: Vec<DeviceStats>,
    /// Bytes by class, most time first.
    pub classes: Vec<ClassBytes>,
    /// Layout of files.
    pub layout: LayoutStats,
    /// Readahead.
    pub readahead: ReadaheadStats,
    /// Number of records of an imported block trace, if it exceeds [`MOST_ACTIONS`] and `Q2G`, `G2I` and `I2D` are
    /// therefore not computed. Otherwise null.
    pub stages_not_told: Option<i64>,
    /// Number of requests of devices beyond the first [`MOST_DEVICES`], which are not in `devices`.
    pub requests_not_told: u64,
}

/// Requests passed between threads at a time.
const HANDED: usize = 16 * 1024;

impl Stats {
    /// Computes the statistics. One thread reads each table of events; two others count requests.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel, scope: &Scope) -> Result<Self> {
        let (manifest, scope) = (&reel.manifest, &scope.of_kept(reel)?);
        let stated_ns = manifest.span.elapsed_ns.saturating_add(manifest.span.settle_ns);
        let whole_ns = stated_ns.max(last_row_ns(reel));
        let from_ns = scope.from_ns.unwrap_or(0).max(0);
        let to_ns = scope.to_ns.unwrap_or(whole_ns).min(whole_ns.max(from_ns));
        let mut passes = Passes::of(reel, scope, (from_ns, to_ns))?;
        passes.count_bios_of_devices_without_requests(reel, scope)?;
        let Passes { meters, places, calls, mut bios } = passes;

        OperationPass::reads_of(reel, &bios.files_read_ahead(), &mut bios.readahead)?;
        // Events after the stated end extend the span, unless a window was requested.
        let last_ns = meters.last_ns.max(calls.last_ns).max(whole_ns);
        let span_ns = scope.to_ns.map_or(last_ns, |to| to.min(last_ns)).saturating_sub(from_ns).max(0);

        let readahead = bios.readahead.stats(&calls.mapped);
        let in_syncs = requests_in(reel, scope, &calls.sync_times)?;
        let operations = (reel.count::<rows::Op>() > 0)
            .then(|| operation_stats(calls, &bios, span_ns, in_syncs, !meters.devices.is_empty()));
        let requests_not_told = meters.left_out;
        Ok(Self {
            from_ns,
            span_ns,
            operations,
            devices: device_stats(meters, places, &mut bios.devices, span_ns),
            layout: bios.layout.stats(),
            classes: bios.classes,
            readahead,
            stages_not_told: too_many(reel, MOST_ACTIONS),
            requests_not_told,
        })
    }
}

/// Statistics of files: a part of [`Stats`] that needs no requests, at a third of the cost.
#[derive(Clone, Debug, Default)]
pub struct FileStats {
    /// Files that several threads wrote concurrently.
    pub lock_serial: Vec<LockSerial>,
    /// Layout of files.
    pub layout: LayoutStats,
    /// Readahead.
    pub readahead: ReadaheadStats,
}

impl FileStats {
    /// Computes the statistics of the whole reel, on two threads.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel) -> Result<Self> {
        let scope = Scope::default();
        let (calls, bios) = std::thread::scope(|threads| {
            let calls = threads.spawn(|| OperationPass::of(reel, &scope));
            let bios = BioPass::of(reel, &scope);
            (calls.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), bios)
        });
        let (calls, mut bios) = (calls?, bios?);
        OperationPass::reads_of(reel, &bios.files_read_ahead(), &mut bios.readahead)?;
        let readahead = bios.readahead.stats(&calls.mapped);
        Ok(Self { lock_serial: calls.stats(0, 0).lock_serial, layout: bios.layout.stats(), readahead })
    }
}

/// What was counted of each table.
struct Passes<'a> {
    meters: Meters<'a>,
    places: Places,
    calls: OperationPass,
    bios: BioPass,
}

impl<'a> Passes<'a> {
    /// Reads all tables at once, with requests issued in `window`.
    fn of(reel: &'a Reel, scope: &Scope, window: (i64, i64)) -> Result<Self> {
        let wanted = scope.request_ids(reel)?;
        let moments = Moments::of(reel, MOST_ACTIONS)?;
        let mut meters =
            Meters { manifest: &reel.manifest, moments, window, last_ns: 0, devices: BTreeMap::new(), left_out: 0 };
        let (read, places, calls, bios) = std::thread::scope(|threads| {
            let calls = threads.spawn(|| OperationPass::of(reel, scope));
            let bios = threads.spawn(|| BioPass::of(reel, scope));
            let (sender, receiver) = sync_channel::<Arc<Vec<Request>>>(8);
            let (to_places, for_places) = sync_channel::<Arc<Vec<Request>>>(8);
            let reader = threads.spawn(move || hand_out(reel, scope, wanted.as_ref(), [to_places, sender]));
            // A separate thread, because this is half of the work: it waits for memory, not for the CPU.
            let places = threads.spawn(move || {
                let mut places = Places::default();
                for_places.iter().for_each(|batch| batch.iter().for_each(|r| places.push(r)));
                places
            });
            receiver.iter().for_each(|batch| batch.iter().for_each(|r| meters.push(r)));
            (reader.join(), places.join(), calls.join(), bios.join())
        });
        // A thread panicked, which is a bug.
        let died =
            |_| ioreel_traces::ReelError::BadSegment { path: reel.path().into(), why: "reading it failed".into() };
        read.map_err(died)??;
        let (calls, bios) = (calls.map_err(died)??, bios.map_err(died)??);
        Ok(Self { meters, places: places.map_err(died)?, calls, bios })
    }

    fn count_bios_of_devices_without_requests(&mut self, reel: &Reel, scope: &Scope) -> Result<()> {
        let (meters, places) = (&mut self.meters, &mut self.places);
        let without: BTreeSet<i64> =
            self.bios.devices.keys().filter(|dev| !meters.devices.contains_key(dev)).copied().collect();
        push_bios(reel, scope, &without, |r| {
            meters.push(r);
            places.push(r);
        })
    }
}

/// Reads the requests in the scope and sends them in batches to each of the counting threads.
fn hand_out(
    reel: &Reel,
    scope: &Scope,
    wanted: Option<&HashSet<i64>>,
    to: [SyncSender<Arc<Vec<Request>>>; 2],
) -> Result<()> {
    let all = if scope.needs_bios() { requests_with_ids(reel) } else { requests(reel) };
    let mut batch = Vec::with_capacity(HANDED);
    let send = |batch: Vec<Request>| {
        let batch = Arc::new(batch);
        to.iter().all(|to| to.send(batch.clone()).is_ok())
    };
    for request in all {
        let r = request?;
        let inside = scope.holds_time(r.issue_ns)
            && scope.holds_device(r.dev)
            && wanted.is_none_or(|ids| ids.contains(&r.rq_id));
        if inside {
            batch.push(r);
        }
        // Sending fails only if a counting thread has died.
        if batch.len() == HANDED && !send(std::mem::replace(&mut batch, Vec::with_capacity(HANDED))) {
            return Ok(());
        }
    }
    send(batch);
    Ok(())
}

/// The statistics of operations; `in_syncs` are the requests issued while a sync ran, and the flushes among them.
fn operation_stats(
    calls: OperationPass,
    bios: &BioPass,
    span_ns: i64,
    in_syncs: (u64, u64),
    with_devices: bool,
) -> OperationStats {
    let syncs = calls.sync_times.len() as f64;
    let mut s = calls.stats(span_ns, bios.index_blocks.len() as u64);
    if s.fsync.count > 0 && with_devices {
        s.fsync.requests = Some(in_syncs.0 as f64 / syncs);
        s.fsync.flushes = Some(in_syncs.1 as f64 / syncs);
    }
    let (journal, data) = (bios.written("journal"), bios.written("data"));
    s.fsync.journal_per_data = (journal > 0 && data > 0).then(|| journal as f64 / data as f64);
    s
}

/// The statistics of each device, most bytes first.
fn device_stats(
    meters: Meters<'_>,
    mut places: Places,
    queued: &mut BTreeMap<i64, Queued>,
    span_ns: i64,
) -> Vec<DeviceStats> {
    let manifest = meters.manifest;
    let of = |(dev, meter): (i64, BlockMeter)| {
        let (blocks, order) = places.of(dev);
        let seen = queued.remove(&dev);
        let known = seen.is_some();
        let mut stats = meter.stats(dev, manifest, span_ns, Some(seen.unwrap_or_else(|| order.queued())), blocks);
        if !known {
            (stats.queued, stats.merge_ratio) = (None, None);
        }
        stats
    };
    let mut devices: Vec<DeviceStats> = meters.devices.into_iter().map(of).collect();
    devices.sort_by_key(|d| {
        let data = d.bytes.iter().filter(|(c, _)| c.is_data()).map(|(_, n)| *n).fold(0, u64::saturating_add);
        (std::cmp::Reverse(data), d.dev)
    });
    devices
}

struct Meters<'a> {
    manifest: &'a Manifest,
    /// Stages of an imported block trace.
    moments: Option<Moments>,
    window: (i64, i64),
    last_ns: i64,
    devices: BTreeMap<i64, BlockMeter>,
    /// Requests of devices beyond the limit.
    left_out: u64,
}

impl Meters<'_> {
    fn push(&mut self, r: &Request) {
        self.last_ns = self.last_ns.max(r.last_ns());
        let (manifest, (from_ns, to_ns)) = (self.manifest, self.window);
        let Some(meter) = of_device(&mut self.devices, r.dev, || {
            BlockMeter::new(manifest.device(r.dev).map_or(0, |d| d.physical_block_bytes), from_ns, to_ns)
        }) else {
            self.left_out += 1;
            return;
        };
        meter.push(r);
        if let Some(stages) = self.moments.as_ref().and_then(|m| m.stages(r)) {
            meter.staged(r.issue_ns, &stages);
        }
    }
}

/// History of each block, and queue times of the requests, per device.
#[derive(Debug)]
struct Places {
    devices: BTreeMap<i64, (RegionMeter, QueueOrder)>,
    /// Limit for all devices together.
    visits: Visits,
}

/// Maximum number of blocks, reads and writes, that are followed one by one: 8 TiB.
const MOST_VISITS: u64 = 1 << 31;

impl Default for Places {
    fn default() -> Self {
        Self { devices: BTreeMap::new(), visits: Visits::of(MOST_VISITS) }
    }
}

impl Places {
    fn push(&mut self, r: &Request) {
        let Some((meter, queue)) = of_device(&mut self.devices, r.dev, Default::default) else { return };
        queue.push(r);
        if r.class.is_data() {
            let end = self.visits.clip(r.sector, r.end_sector());
            meter.push(r.class == Class::Write, r.issue_ns, r.sector, end);
        }
    }

    fn of(&mut self, dev: i64) -> (RegionStats, QueueOrder) {
        let (meter, queue) = self.devices.remove(&dev).unwrap_or_default();
        (meter.stats(), queue)
    }
}

/// Counts bios as requests issued when they are queued, for devices without requests (zram, device mapper).
fn push_bios(reel: &Reel, scope: &Scope, devices: &BTreeSet<i64>, mut push: impl FnMut(&Request)) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let wanted = scope.bio_ids(reel)?;
    let mut all = if wanted.is_some() { bios_as_requests_with_ids(reel) } else { bios_as_requests(reel) };
    while let Some(batch) = all.next_batch()? {
        for r in batch.iter().filter(|r| devices.contains(&r.dev)) {
            let known = wanted.as_ref().is_none_or(|ids| ids.contains(&r.rq_id));
            if known && scope.holds_time(r.issue_ns) && scope.holds_device(r.dev) {
                push(r);
            }
        }
    }
    Ok(())
}

/// Time of the last event.
fn last_row_ns(reel: &Reel) -> i64 {
    let of = |table: &str| reel.manifest.segments.get(table).into_iter().flatten().map(|s| s.to_ns);
    [rows::Op::TABLE, rows::Block::TABLE, rows::Bio::TABLE].into_iter().flat_map(of).max().unwrap_or(0)
}

/// Restores the queue order of requests, for a reel without bios. Dispatch order is nearly the same.
#[derive(Debug, Default)]
struct QueueOrder {
    /// Sorted queue times.
    waiting: VecDeque<i64>,
    queued: Queued,
}

/// Maximum number of requests that a queue may hold back. Later ones count as queued when dispatched.
const HELD_BACK: usize = 4096;

impl QueueOrder {
    fn push(&mut self, r: &Request) {
        let Some(queue_ns) = r.queue_ns else { return };
        // Most arrive in order, so the end of a queue is faster than a heap.
        if self.waiting.back().is_none_or(|last| *last <= queue_ns) {
            self.waiting.push_back(queue_ns);
        } else {
            let at = self.waiting.partition_point(|t| *t <= queue_ns);
            self.waiting.insert(at, queue_ns);
        }
        if self.waiting.len() > HELD_BACK
            && let Some(first) = self.waiting.pop_front()
        {
            self.queued.follow(first);
        }
    }

    fn queued(mut self) -> Queued {
        self.waiting.into_iter().for_each(|t| self.queued.follow(t));
        self.queued
    }
}

/// Number of requests issued during any of these intervals, and number of flushes among them.
fn requests_in(reel: &Reel, scope: &Scope, intervals: &[(i64, i64)]) -> Result<(u64, u64)> {
    let mut sorted = intervals.to_vec();
    sorted.sort_unstable();
    // Overlapping intervals are joined, so that a request counts once.
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (from, to) in sorted {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    let (mut all, mut flushes, mut at) = (0, 0, 0);
    if joined.is_empty() {
        return Ok((0, 0));
    }
    for r in requests(reel) {
        let r = r?;
        while joined.get(at).is_some_and(|(_, to)| *to < r.issue_ns) {
            at += 1;
        }
        if joined.get(at).is_some_and(|(from, _)| *from <= r.issue_ns) && scope.holds_device(r.dev) {
            all += 1;
            flushes += u64::from(r.class == Class::Flush);
        }
    }
    Ok((all, flushes))
}
