//! All statistics of a device's requests.

use ioreel_traces::{Manifest, manifest::dev_name};
use serde::Serialize;

use super::{
    adjacent::AdjacentMeter,
    period::{Period, PeriodMeter},
    regions::RegionStats,
    seek::{SeekMeter, SeekStats},
    sizes::{SizeMeter, SizeStats},
};
use crate::{
    events::{
        order::InOrder,
        requests::{Class, Request},
        stages::Stages,
    },
    meters::{
        depth::DepthMeter,
        latency::{Latency, LatencySummary},
    },
};

/// Collects the requests of one device in dispatch order.
#[derive(Debug)]
pub(super) struct BlockMeter {
    counts: [u64; Class::ALL.len()],
    bytes: [u64; Class::ALL.len()],
    errors: u64,
    incomplete: u64,
    d2c: [Latency; Class::ALL.len()],
    q2c: Latency,
    q2d: Latency,
    q2g: Latency,
    g2i: Latency,
    i2d: Latency,
    depth: DepthMeter,
    seeks: SeekMeter,
    adjacent: AdjacentMeter,
    sizes: SizeMeter,
    period: PeriodMeter,
    from_ns: i64,
}

/// The statistics of one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceStats {
    /// Device number, `major << 20 | minor`.
    pub dev: i64,
    /// `major:minor`.
    pub number: String,
    /// Kernel name, empty where unknown.
    pub name: String,
    /// Requests dispatched (`D`), by class.
    pub dispatched: Vec<(Class, u64)>,
    /// Bytes completed without error, by class. Discards and zeroing do not count as writes.
    pub bytes: Vec<(Class, u64)>,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Requests whose completion is unknown.
    pub incomplete: u64,
    /// `iops`: requests completed per second of the span.
    pub iops: f64,
    /// `mbps`: megabytes (10^6) read and written per second of the span.
    pub mbps: f64,
    /// `mbps` of reads only.
    pub read_mbps: f64,
    /// `mbps` of writes only.
    pub write_mbps: f64,
    /// `qd_mean`: sum of D2C over the span.
    pub qd_mean: f64,
    /// `qd_max`: most requests in flight.
    pub qd_max: u64,
    /// `util`: share of the span with a request in flight.
    pub util: f64,
    /// `sync_qd1`: share of the busy time with exactly one request in flight.
    pub sync_qd1: f64,
    /// `D2C`: issue to completion, reads and writes.
    pub d2c: LatencySummary,
    /// `D2C` of reads.
    pub d2c_read: LatencySummary,
    /// `D2C` of writes.
    pub d2c_write: LatencySummary,
    /// `D2C` of flushes.
    pub d2c_flush: LatencySummary,
    /// `Q2C`: queueing of the first bio to completion.
    pub q2c: LatencySummary,
    /// `Q2D`: queueing of the first bio to issue.
    pub q2d: LatencySummary,
    /// `Q2G`: queueing of the first bio to creation of the request. This and the next two exist only in imported block
    /// traces.
    pub q2g: LatencySummary,
    /// `G2I`: creation of the request to its insertion into the scheduler.
    pub g2i: LatencySummary,
    /// `I2D`: insertion into the scheduler to issue.
    pub i2d: LatencySummary,
    /// `Q2Q`: time between queued bios (between requests if there are no bios).
    pub q2q: LatencySummary,
    /// `#Q`: bios queued. Null if the reel has no bios of this device.
    pub queued: Option<u64>,
    /// `merge_ratio`: bios over requests that carried data.
    pub merge_ratio: Option<f64>,
    /// `unmerged_adjacent`.
    pub unmerged_adjacent: u64,
    /// Seeks.
    pub seeks: SeekStats,
    /// Sizes and alignment.
    pub sizes: SizeStats,
    /// Rewrites and rereads of blocks.
    pub blocks: RegionStats,
    /// `period`; null if writing is not periodic.
    pub period: Option<Period>,
}

/// Statistics of queued bios of a device.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// Number of bios.
    pub(super) bios: u64,
    /// Number of bios with data.
    pub(super) data: u64,
    /// Times between bios.
    pub(super) q2q: Latency,
    /// Time of the last one.
    pub(super) last_ns: Option<i64>,
    /// Bios that may not be the next in order.
    waiting: InOrder<()>,
}

impl Queued {
    /// Adds a bio queued at this time; see [`InOrder::push`].
    pub(super) fn queued(&mut self, queue_ns: i64, settled_ns: i64) {
        self.waiting.push(queue_ns, (), settled_ns);
        while let Some((t, ())) = self.waiting.pop() {
            self.follow(t);
        }
    }

    /// No more bios will arrive.
    pub(super) fn settle(&mut self) {
        self.waiting.end();
        while let Some((t, ())) = self.waiting.pop() {
            self.follow(t);
        }
    }

    /// Handles the next bio in order.
    pub(super) fn follow(&mut self, t: i64) {
        if let Some(last) = self.last_ns.replace(t) {
            self.q2q.record(t.saturating_sub(last));
        }
    }
}

impl BlockMeter {
    pub(super) fn new(phys_bytes: i64, from_ns: i64, to_ns: i64) -> Self {
        Self {
            counts: Default::default(),
            bytes: Default::default(),
            errors: 0,
            incomplete: 0,
            d2c: Default::default(),
            q2c: Latency::default(),
            q2d: Latency::default(),
            q2g: Latency::default(),
            g2i: Latency::default(),
            i2d: Latency::default(),
            depth: DepthMeter::default(),
            seeks: SeekMeter::default(),
            adjacent: AdjacentMeter::default(),
            sizes: SizeMeter::new(phys_bytes),
            period: PeriodMeter::new(from_ns, to_ns),
            from_ns,
        }
    }

    pub(super) fn push(&mut self, r: &Request) {
        let class = r.class as usize;
        self.counts[class] += 1;
        if let Some(queue_ns) = r.queue_ns {
            self.q2d.record(r.issue_ns.saturating_sub(queue_ns));
        }
        let len_bytes = u64::try_from(r.len_bytes).unwrap_or(0);
        let mut written = 0;
        if let Some(complete_ns) = r.complete_ns {
            let took_ns = complete_ns.saturating_sub(r.issue_ns);
            if r.error == 0 {
                self.bytes[class] = self.bytes[class].saturating_add(len_bytes);
                written = if r.class == Class::Write { len_bytes } else { 0 };
            } else {
                self.errors += 1;
            }
            self.d2c[class].record(took_ns);
            if let Some(queue_ns) = r.queue_ns {
                self.q2c.record(complete_ns.saturating_sub(queue_ns));
            }
            self.depth.push(r.issue_ns, complete_ns);
            self.period.push(r.issue_ns, took_ns, written);
        } else {
            self.incomplete += 1;
        }
        if r.class.is_data() {
            let end = r.end_sector();
            self.seeks.push(r.sector, end);
            self.sizes.push(r.sector, r.len_bytes);
            self.adjacent.push(r.class, r.issue_ns, r.sector, end);
        }
    }

    /// Stores the stages of the request pushed last.
    pub(super) fn staged(&mut self, issue_ns: i64, s: &Stages) {
        if let Some(made_ns) = s.made_ns {
            self.q2g.record(made_ns.saturating_sub(s.queue_ns));
            if let Some(inserted_ns) = s.inserted_ns {
                self.g2i.record(inserted_ns.saturating_sub(made_ns));
            }
        }
        if let Some(inserted_ns) = s.inserted_ns {
            self.i2d.record(issue_ns.saturating_sub(inserted_ns));
        }
    }

    /// The statistics. Those of `queued` bios and of `blocks` are collected separately.
    pub(super) fn stats(
        self,
        dev: i64,
        manifest: &Manifest,
        span_ns: i64,
        queued: Option<Queued>,
        blocks: RegionStats,
    ) -> DeviceStats {
        let span = span_ns.max(1) as f64;
        let some = |of: &[u64]| Class::ALL.into_iter().zip(of.iter().copied()).filter(|(_, n)| *n > 0).collect();
        let completed = self.counts.iter().sum::<u64>() - self.incomplete;
        let [read, write] = [Class::Read, Class::Write].map(|c| c as usize);
        let mbps = |bytes: u64| bytes as f64 * 1e3 / span;
        let mut d2c = self.d2c[read].clone();
        d2c.add(&self.d2c[write]);
        let d2c = d2c.summary();
        let data = self.counts[read] + self.counts[write];
        DeviceStats {
            dev,
            number: dev_name(dev),
            name: manifest.device(dev).map(|d| d.name.clone()).unwrap_or_default(),
            dispatched: some(&self.counts),
            bytes: some(&self.bytes),
            errors: self.errors,
            incomplete: self.incomplete,
            iops: completed as f64 * 1e9 / span,
            mbps: mbps(self.bytes[read].saturating_add(self.bytes[write])),
            read_mbps: mbps(self.bytes[read]),
            write_mbps: mbps(self.bytes[write]),
            qd_mean: self.depth.in_flight_ns() as f64 / span,
            qd_max: self.depth.max(),
            util: self.depth.busy_until(self.from_ns.saturating_add(span_ns)) as f64 / span,
            sync_qd1: if self.depth.busy_ns() == 0 {
                0.0
            } else {
                self.depth.alone_ns() as f64 / self.depth.busy_ns() as f64
            },
            d2c_read: self.d2c[read].summary(),
            d2c_write: self.d2c[write].summary(),
            d2c_flush: self.d2c[Class::Flush as usize].summary(),
            q2c: self.q2c.summary(),
            q2d: self.q2d.summary(),
            q2g: self.q2g.summary(),
            g2i: self.g2i.summary(),
            i2d: self.i2d.summary(),
            queued: queued.as_ref().map(|q| q.bios),
            merge_ratio: queued.as_ref().filter(|_| data > 0).map(|q| q.data as f64 / data as f64),
            q2q: queued.map(|q| q.q2q.summary()).unwrap_or_default(),
            unmerged_adjacent: self.adjacent.pairs(),
            seeks: self.seeks.stats(),
            sizes: self.sizes.stats(),
            blocks,
            period: self.period.period(d2c.p99_ns),
            d2c,
        }
    }
}
