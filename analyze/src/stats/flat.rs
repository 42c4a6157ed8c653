//! Statistics as a list of names and values, for tables and comparisons.

use serde::Serialize;

use super::Stats;
use crate::meters::latency::LatencySummary;

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A count.
    Count,
    /// ns.
    Ns,
    /// Bytes.
    Bytes,
    /// A rate, per second.
    PerSecond,
    /// 10^6 bytes per second.
    Mbps,
    /// A ratio or a mean of counts.
    Ratio,
    /// A share of one.
    Share,
    /// Milliseconds.
    Ms,
    /// Sectors.
    Sectors,
}

impl Unit {
    /// Its word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Ns => "ns",
            Self::Bytes => "bytes",
            Self::PerSecond => "per_second",
            Self::Mbps => "mbps",
            Self::Ratio => "ratio",
            Self::Share => "share",
            Self::Ms => "ms",
            Self::Sectors => "sectors",
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Device name. Empty for statistics of the whole scope.
    pub device: String,
    /// The statistic's name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// The number.
    pub value: f64,
}

struct List {
    device: String,
    values: Vec<Value>,
}

impl List {
    fn add(&mut self, name: impl Into<String>, unit: Unit, value: f64) {
        self.values.push(Value { device: self.device.clone(), name: name.into(), unit, value });
    }

    fn maybe(&mut self, name: &str, unit: Unit, value: Option<f64>) {
        if let Some(v) = value {
            self.add(name, unit, v);
        }
    }

    fn latency(&mut self, name: &str, l: &LatencySummary) {
        if l.count == 0 {
            return;
        }
        let parts = [
            ("mean", l.mean_ns),
            ("p50", l.p50_ns),
            ("p90", l.p90_ns),
            ("p99", l.p99_ns),
            ("p99.9", l.p999_ns),
            ("max", l.max_ns),
        ];
        for (part, ns) in parts {
            self.add(format!("{name}.{part}"), Unit::Ns, ns as f64);
        }
    }
}

/// Names of the windows [`super::WINDOWS_NS`].
pub const WINDOWS: [&str; 3] = ["5s", "30s", "run"];

impl Stats {
    /// All values: operations first, then each device.
    pub fn values(&self) -> Vec<Value> {
        let mut out = List { device: String::new(), values: Vec::new() };
        out.add("span", Unit::Ns, self.span_ns as f64);
        if let Some(o) = &self.operations {
            operations(&mut out, o);
        }
        for c in &self.classes {
            out.add(format!("class.{}.written", c.class), Unit::Bytes, c.write_bytes as f64);
            out.add(format!("class.{}.read", c.class), Unit::Bytes, c.read_bytes as f64);
        }
        if self.layout.files > 0 {
            out.add("frag", Unit::Ratio, self.layout.frag);
            out.add("dls", Unit::Share, self.layout.dls);
            let most = self.layout.interleaved.first().map_or(0.0, |i| i.index);
            out.add("interleave", Unit::Share, most);
        }
        if self.readahead.pages > 0 {
            out.add("ra_waste", Unit::Share, self.readahead.ra_waste);
        }
        for d in &self.devices {
            out.device = if d.name.is_empty() { d.number.clone() } else { d.name.clone() };
            device(&mut out, d);
        }
        out.values
    }
}

fn operations(out: &mut List, o: &super::OperationStats) {
    out.add("ops", Unit::Count, o.ops as f64);
    out.add("ops_per_s", Unit::PerSecond, o.ops_per_s);
    out.add("time_in_ops", Unit::Ns, o.time_ns as f64);
    out.latency("op", &o.latency);
    out.latency("read", &o.read);
    out.latency("write", &o.write);
    out.latency("metadata", &o.metadata);
    out.add("md_share", Unit::Share, o.md_share);
    out.add("md_time_share", Unit::Share, o.md_time_share);
    out.maybe("stat_per_open", Unit::Ratio, o.stat_per_open);
    out.add("lookup_neg", Unit::Share, o.lookup_neg);
    out.maybe("index_churn", Unit::Ratio, o.index_churn);
    let f = &o.fsync;
    out.add("fsync.count", Unit::Count, f.count as f64);
    if f.count > 0 {
        out.add("fsync.rate", Unit::PerSecond, f.per_s);
        out.latency("fsync", &f.latency);
        out.add("fsync.dirty", Unit::Bytes, f.dirty_bytes);
        out.maybe("fsync.requests", Unit::Ratio, f.requests);
        out.maybe("fsync.flushes", Unit::Ratio, f.flushes);
        out.maybe("fsync.journal_per_data", Unit::Ratio, f.journal_per_data);
    }
    if let Some(l) = o.lock_serial.first() {
        out.add("lock_serial", Unit::Share, l.serial);
    }
}

fn device(out: &mut List, d: &super::DeviceStats) {
    for (class, n) in &d.dispatched {
        out.add(format!("requests.{}", class.name()), Unit::Count, *n as f64);
    }
    for (class, n) in d.bytes.iter().filter(|(_, n)| *n > 0) {
        out.add(format!("bytes.{}", class.name()), Unit::Bytes, *n as f64);
    }
    out.add("errors", Unit::Count, d.errors as f64);
    out.add("incomplete", Unit::Count, d.incomplete as f64);
    out.add("iops", Unit::PerSecond, d.iops);
    out.add("mbps", Unit::Mbps, d.mbps);
    out.add("mbps.read", Unit::Mbps, d.read_mbps);
    out.add("mbps.write", Unit::Mbps, d.write_mbps);
    out.latency("D2C", &d.d2c);
    out.latency("D2C.read", &d.d2c_read);
    out.latency("D2C.write", &d.d2c_write);
    out.latency("D2C.flush", &d.d2c_flush);
    out.latency("Q2C", &d.q2c);
    out.latency("Q2D", &d.q2d);
    out.latency("Q2G", &d.q2g);
    out.latency("G2I", &d.g2i);
    out.latency("I2D", &d.i2d);
    out.latency("Q2Q", &d.q2q);
    out.add("qd_mean", Unit::Ratio, d.qd_mean);
    out.add("qd_max", Unit::Count, d.qd_max as f64);
    out.add("util", Unit::Share, d.util);
    out.add("sync_qd1", Unit::Share, d.sync_qd1);
    out.maybe("queued", Unit::Count, d.queued.map(|n| n as f64));
    out.maybe("merge_ratio", Unit::Ratio, d.merge_ratio);
    out.add("unmerged_adjacent", Unit::Count, d.unmerged_adjacent as f64);
    let s = &d.seeks;
    out.add("seeks.exact", Unit::Count, s.exact as f64);
    out.add("seeks.sw64k", Unit::Count, s.sw64k as f64);
    out.add("seeks.btt", Unit::Count, s.btt as f64);
    out.add("seeks.btt.mean", Unit::Sectors, s.btt_mean_sectors);
    out.add("seeks.btt.median", Unit::Sectors, s.btt_median_sectors as f64);
    out.add("seeks.btt.mode", Unit::Sectors, s.btt_mode_sectors as f64);
    out.add("seeks.win16", Unit::Count, s.win16 as f64);
    out.add("seeks.win32_128k", Unit::Count, s.win32_128k as f64);
    out.add("seeks.hdd_ms", Unit::Ms, s.hdd_ms);
    out.add("seq_ratio", Unit::Share, s.seq_ratio);
    out.add("align4k", Unit::Share, d.sizes.align4k);
    out.add("align_phys", Unit::Share, d.sizes.align_phys);
    out.add("align_erase", Unit::Share, d.sizes.align_erase);
    for (i, window) in WINDOWS.iter().enumerate() {
        out.add(format!("waf.window({window})"), Unit::Ratio, d.blocks.waf_window[i]);
    }
    for (i, window) in WINDOWS.iter().enumerate() {
        out.add(format!("rewrite_le({window})"), Unit::Share, d.blocks.rewrite_le[i]);
    }
    for (i, window) in WINDOWS.iter().enumerate() {
        out.add(format!("dup_read({window})"), Unit::Bytes, d.blocks.dup_read_bytes[i] as f64);
    }
    out.add("rmw", Unit::Share, d.blocks.rmw);
    if let Some(p) = &d.period {
        out.add("period", Unit::Ns, p.period_ns as f64);
        out.add("period.strength", Unit::Share, p.strength);
        out.add("period.stall_overlap", Unit::Share, p.stall_overlap);
    }
}
