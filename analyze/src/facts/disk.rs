//! Requests of a device: depth, seeks, sizes, outliers, limits.

use std::collections::{BTreeMap, VecDeque};

use ioreel_traces::{Manifest, Reel, manifest::dev_name, rows::Block};

use super::rate::Rates;
use crate::{
    Result,
    events::{
        bios::devices_of_bios,
        requests::{Class, Request, bios_as_requests, of_device, requests},
    },
    meters::{latency::Latency, share::ShareClock},
};

/// Distance beyond which a request counts as a seek, sectors: 64 KiB, as `seeks.sw64k`.
const SEEK_SECTORS: i64 = 128;
/// A write that begins where one of the last so many writes ended could have been merged with it.
const RECENT: usize = 32;

/// An outlier takes so many times as long as is typical.
const OUTLIER: f64 = 10.0;
/// Number of requests after which the typical duration is known.
const SETTLED: u64 = 100;

/// Requests of one device.
#[derive(Debug)]
pub struct Disk {
    /// Device number.
    pub dev: i64,
    /// Its name.
    pub name: String,
    /// Whether it reports that it rotates.
    pub rotational: bool,
    /// Time in which a request was in flight, ns.
    pub busy_ns: f64,
    /// The part of it with one request in flight.
    pub single_ns: f64,
    /// Sum of the requests' times in the device, ns.
    pub in_flight_ns: f64,
    /// Reads, writes, flushes and discards, with their part of the busy time.
    pub classes: BTreeMap<Class, Work>,
    /// Requests that do not begin near the end of the previous one.
    pub seeks: Work,
    /// The other reads and writes.
    pub sequential: Work,
    /// Writes that continue a write that had not completed when they were queued, and were not merged with it.
    pub unmerged: Work,
    /// Reads that took ten times the median while at most one other request was in flight.
    pub outliers: Work,
    /// Time from issue to completion of reads.
    pub read_latency: Latency,
    /// Time from issue to completion of writes.
    pub write_latency: Latency,
    /// Rates over time.
    pub rates: Rates,
    /// First issue.
    pub first_ns: i64,
    /// Last completion.
    pub last_ns: i64,
    clock: ShareClock<InFlight>,
    /// Requests that end; kept for its memory.
    ended: Vec<(InFlight, f64)>,
    typical_read: Typical,
    typical_write: Typical,
    head_sector: Option<i64>,
    recent_writes: VecDeque<(i64, i64)>,
}

/// A number of requests, their bytes and their part of the busy time.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Requests.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// Part of the time in which the device was busy, ns.
    pub share_ns: f64,
    /// Sum of the times from issue to completion, ns.
    pub time_ns: f64,
}

impl Work {
    fn push(&mut self, item: &InFlight, share_ns: f64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(item.bytes);
        self.share_ns += share_ns;
        self.time_ns += item.dur_ns as f64;
    }

    /// Mean size, bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.count.max(1) as f64
    }

    /// Mean part of the busy time, ns.
    pub fn mean_share_ns(&self) -> f64 {
        self.share_ns / self.count.max(1) as f64
    }

    /// Mean time from issue to completion, ns.
    pub fn mean_time_ns(&self) -> f64 {
        self.time_ns / self.count.max(1) as f64
    }
}

/// A running estimate of a median: it moves by a small step towards each value (stochastic approximation, Robbins and
/// Monro 1951), so that a few outliers do not move it.
#[derive(Clone, Copy, Debug, Default)]
struct Typical {
    seen: u64,
    ns: f64,
}

impl Typical {
    /// Adds a duration. Returns the estimate before it, once it is settled.
    fn next(&mut self, dur_ns: i64) -> Option<f64> {
        let dur_ns = dur_ns as f64;
        let before = (self.seen >= SETTLED).then_some(self.ns);
        self.ns = match self.seen {
            0 => dur_ns,
            _ => {
                let step = self.ns.max(1000.0) / (self.seen as f64).clamp(4.0, 64.0);
                self.ns + step * (dur_ns - self.ns).signum()
            }
        };
        self.seen += 1;
        before
    }
}

#[derive(Clone, Copy, Debug)]
struct InFlight {
    class: Class,
    bytes: u64,
    dur_ns: i64,
    seek: bool,
    unmerged: bool,
    /// Requests in flight at its issue.
    depth: usize,
}

impl Disk {
    fn new(dev: i64, manifest: &Manifest) -> Self {
        let known = manifest.devices.iter().find(|d| d.dev == dev);
        Self {
            dev,
            name: known.map_or_else(|| dev_name(dev), |d| d.name.clone()),
            rotational: known.is_some_and(|d| d.rotational),
            busy_ns: 0.0,
            single_ns: 0.0,
            in_flight_ns: 0.0,
            classes: BTreeMap::new(),
            seeks: Work::default(),
            sequential: Work::default(),
            unmerged: Work::default(),
            outliers: Work::default(),
            read_latency: Latency::default(),
            write_latency: Latency::default(),
            rates: Rates::default(),
            first_ns: i64::MAX,
            last_ns: 0,
            clock: ShareClock::default(),
            ended: Vec::new(),
            typical_read: Typical::default(),
            typical_write: Typical::default(),
            head_sector: None,
            recent_writes: VecDeque::new(),
        }
    }

    /// Of this class.
    pub fn of(&self, class: Class) -> Work {
        self.classes.get(&class).cloned().unwrap_or_default()
    }

    /// Mean number of requests in flight while busy.
    pub fn depth(&self) -> f64 {
        self.in_flight_ns / self.busy_ns.max(1.0)
    }

    fn push(&mut self, r: &Request) {
        let end_ns = r.last_ns();
        self.first_ns = self.first_ns.min(r.issue_ns);
        self.last_ns = self.last_ns.max(end_ns);
        let depth = self.clock.in_flight();
        let has_place = r.class.is_data() && r.sector >= 0;
        let seek = has_place && self.head_sector.is_some_and(|head| (r.sector - head).abs() > SEEK_SECTORS);
        let unmerged = r.class == Class::Write && has_place && self.continues_write(r);
        if has_place {
            self.head_sector = Some(r.end_sector());
        }
        if r.class == Class::Write && has_place {
            self.recent_writes.push_back((r.end_sector(), end_ns));
            if self.recent_writes.len() > RECENT {
                self.recent_writes.pop_front();
            }
        }
        let dur_ns = end_ns.saturating_sub(r.issue_ns).max(0);
        let item = InFlight { class: r.class, bytes: r.len_bytes.max(0).unsigned_abs(), dur_ns, seek, unmerged, depth };
        self.rates.push(r.issue_ns, end_ns, item.bytes, r.class);
        let mut ended = std::mem::take(&mut self.ended);
        self.clock.start(r.issue_ns, end_ns, item, &mut |item, share_ns| ended.push((item, share_ns)));
        ended.drain(..).for_each(|(item, share_ns)| self.ended(&item, share_ns));
        self.ended = ended;
    }

    /// Whether it begins where a recent write ended that had not completed when it was queued.
    fn continues_write(&self, r: &Request) -> bool {
        let queue_ns = r.queue_ns.unwrap_or(r.issue_ns);
        self.recent_writes.iter().any(|(end_sector, end_ns)| *end_sector == r.sector && *end_ns > queue_ns)
    }

    fn ended(&mut self, item: &InFlight, share_ns: f64) {
        self.in_flight_ns += item.dur_ns as f64;
        self.classes.entry(item.class).or_default().push(item, share_ns);
        if item.class.is_data() {
            (if item.seek { &mut self.seeks } else { &mut self.sequential }).push(item, share_ns);
        }
        if item.unmerged {
            self.unmerged.push(item, share_ns);
        }
        // Alone for its whole time, it would have all of it.
        if share_ns > 0.99 * item.dur_ns as f64 {
            self.single_ns += share_ns;
        }
        let latency = match item.class {
            Class::Read => &mut self.read_latency,
            Class::Write => &mut self.write_latency,
            _ => return,
        };
        latency.record(item.dur_ns);
        let typical = if item.class == Class::Read { &mut self.typical_read } else { &mut self.typical_write };
        let typical_ns = typical.next(item.dur_ns);
        if item.depth <= 1
            && let Some(typical_ns) = typical_ns
            && item.dur_ns as f64 > OUTLIER * typical_ns
        {
            self.outliers.push(item, share_ns * (1.0 - typical_ns / item.dur_ns as f64));
        }
    }

    fn finish(&mut self) {
        let mut clock = std::mem::take(&mut self.clock);
        clock.finish(&mut |item, share_ns| self.ended(&item, share_ns));
        self.busy_ns = clock.busy_ns();
    }
}

/// Reads the table `block`; for devices without requests, the table `bio`. Most busy time first.
///
/// # Errors
/// When the reel cannot be read.
pub(super) fn disks(reel: &Reel) -> Result<Vec<Disk>> {
    let mut disks: BTreeMap<i64, Disk> = BTreeMap::new();
    if reel.count::<Block>() > 0 {
        for r in requests(reel) {
            push(&mut disks, &r?, &reel.manifest);
        }
    }
    let with_requests: Vec<i64> = disks.keys().copied().collect();
    if devices_of_bios(reel)?.iter().any(|dev| !with_requests.contains(dev)) {
        for r in bios_as_requests(reel) {
            let r = r?;
            if !with_requests.contains(&r.dev) {
                push(&mut disks, &r, &reel.manifest);
            }
        }
    }
    let mut disks: Vec<Disk> = disks.into_values().collect();
    disks.iter_mut().for_each(Disk::finish);
    disks.sort_by(|a, b| b.busy_ns.total_cmp(&a.busy_ns));
    Ok(disks)
}

fn push(disks: &mut BTreeMap<i64, Disk>, r: &Request, manifest: &Manifest) {
    if let Some(disk) = of_device(disks, r.dev, || Disk::new(r.dev, manifest)) {
        disk.push(r);
    }
}
