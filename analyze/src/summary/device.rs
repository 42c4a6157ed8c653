//! Totals of one block device.

use std::collections::BTreeMap;

use ioreel_traces::{Manifest, manifest::dev_name};
use serde::Serialize;

use crate::{
    events::requests::{Class, Request},
    meters::{
        depth::DepthMeter,
        latency::{Latency, LatencySummary},
        seeks::{Seek, SeekCounter, Seeks},
    },
};

/// Collects the requests of one device, in dispatch order.
#[derive(Clone, Debug, Default)]
pub struct DeviceMeter {
    classes: BTreeMap<Class, ClassMeter>,
    seeks: SeekCounter,
    depth: DepthMeter,
}

#[derive(Clone, Debug, Default)]
struct ClassMeter {
    count: u64,
    bytes: u64,
    errors: u64,
    incomplete: u64,
    d2c: Latency,
    q2c: Latency,
}

/// Totals of one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceSummary {
    /// Device number, `major << 20 | minor`.
    pub dev: i64,
    /// The same as `major:minor`.
    pub number: String,
    /// Kernel name. Empty if unknown.
    pub name: String,
    /// Requests by class, without empty classes.
    pub classes: Vec<ClassSummary>,
    /// Requests dispatched.
    pub requests: u64,
    /// Bytes read without error.
    pub read_bytes: u64,
    /// Bytes written without error. Discards and zeroing do not count.
    pub write_bytes: u64,
    /// Seeks over reads and writes; see [`crate::meters::seeks`].
    pub seeks: Seeks,
    /// `D2C` of reads and writes together: from issue to completion.
    pub d2c: LatencySummary,
    /// Requests completed per second of the span.
    pub iops: f64,
    /// Mean number in flight over the span.
    pub qd_mean: f64,
    /// Maximum number in flight.
    pub qd_max: u64,
    /// Share of the span with at least one request in flight.
    pub util: f64,
}

/// Totals of one class of requests of a device.
#[derive(Clone, Debug, Serialize)]
pub struct ClassSummary {
    /// The class.
    pub op: Class,
    /// Requests dispatched.
    pub count: u64,
    /// Bytes completed without error.
    pub bytes: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Requests whose completion is unknown. They have no latency and no bytes, and do not count in the queue depth.
    pub incomplete: u64,
    /// From issue to completion.
    pub d2c: LatencySummary,
    /// From queueing to completion, if the queueing is known.
    pub q2c: LatencySummary,
}

impl DeviceMeter {
    /// Adds a request, and returns whether it was a seek.
    pub fn push(&mut self, r: &Request) -> Seek {
        let class = self.classes.entry(r.class).or_default();
        class.count += 1;
        if let Some(complete_ns) = r.complete_ns {
            if r.error == 0 {
                class.bytes = class.bytes.saturating_add(u64::try_from(r.len_bytes).unwrap_or(0));
            } else {
                class.errors += 1;
            }
            class.d2c.record(complete_ns.saturating_sub(r.issue_ns));
            if let Some(queue_ns) = r.queue_ns {
                class.q2c.record(complete_ns.saturating_sub(queue_ns));
            }
            self.depth.push(r.issue_ns, complete_ns);
        } else {
            class.incomplete += 1;
        }
        if r.class.is_data() { self.seeks.push(r.sector, r.end_sector()) } else { Seek::default() }
    }

    /// Bytes of one class so far.
    pub fn bytes(&self, class: Class) -> u64 {
        self.classes.get(&class).map_or(0, |c| c.bytes)
    }

    /// Bytes read and written so far.
    pub fn data_bytes(&self) -> u64 {
        self.bytes(Class::Read).saturating_add(self.bytes(Class::Write))
    }

    /// The totals, with rates over the window from `from_ns` to `to_ns`, both since the start of the reel.
    pub fn summary(&self, dev: i64, manifest: &Manifest, (from_ns, to_ns): (i64, i64)) -> DeviceSummary {
        let span = to_ns.saturating_sub(from_ns).max(1) as f64;
        let mut d2c = Latency::default();
        self.classes.iter().filter(|(class, _)| class.is_data()).for_each(|(_, c)| d2c.add(&c.d2c));
        let completed: u64 = self.classes.values().map(|c| c.count - c.incomplete).sum();
        DeviceSummary {
            dev,
            number: dev_name(dev),
            name: manifest.device(dev).map(|d| d.name.clone()).unwrap_or_default(),
            classes: self
                .classes
                .iter()
                .map(|(op, c)| ClassSummary {
                    op: *op,
                    count: c.count,
                    bytes: c.bytes,
                    errors: c.errors,
                    incomplete: c.incomplete,
                    d2c: c.d2c.summary(),
                    q2c: c.q2c.summary(),
                })
                .collect(),
            requests: self.classes.values().map(|c| c.count).sum(),
            read_bytes: self.bytes(Class::Read),
            write_bytes: self.bytes(Class::Write),
            seeks: self.seeks.seeks(),
            d2c: d2c.summary(),
            iops: completed as f64 * 1e9 / span,
            qd_mean: self.depth.in_flight_ns() as f64 / span,
            qd_max: self.depth.max(),
            util: self.depth.busy_until(to_ns) as f64 / span,
        }
    }
}
