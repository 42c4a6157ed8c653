//! Totals per system call.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    events::{
        calls::{Call, Kind},
        targets::Moved,
    },
    meters::latency::{Latency, LatencySummary},
};

/// Maximum number of names. No kernel has so many system calls. Calls of further names count as `others`.
const MOST_NAMES: usize = 2048;

/// Collects calls by name.
#[derive(Debug, Default)]
pub struct OperationMeter {
    by_index: Vec<Option<Meter>>,
}

#[derive(Debug)]
struct Meter {
    op: String,
    kind: Kind,
    count: u64,
    in_flight: u64,
    errors: BTreeMap<i32, u64>,
    bytes: u64,
    moved: Moved,
    latency: Latency,
}

/// Totals of one system call.
#[derive(Clone, Debug, Serialize)]
pub struct OperationSummary {
    /// The kernel's name of it.
    pub op: String,
    /// Its kind.
    pub kind: Kind,
    /// Calls.
    pub count: u64,
    /// Calls in flight at the end of the recording.
    pub in_flight: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Failed calls by errno.
    pub errnos: BTreeMap<i32, u64>,
    /// Bytes moved.
    pub bytes: u64,
    /// The same, by where they went to and came from. A copy counts in both.
    pub moved: Moved,
    /// Duration of the calls.
    pub latency: LatencySummary,
}

impl OperationMeter {
    /// Adds a call.
    pub fn push(&mut self, call: &Call<'_>) {
        let index = call.op_index.min(MOST_NAMES);
        if self.by_index.len() <= index {
            self.by_index.resize_with(index + 1, || None);
        }
        let m = self.by_index[index].get_or_insert_with(|| Meter {
            op: if index < MOST_NAMES { call.op.to_string() } else { "others".into() },
            kind: call.kind,
            count: 0,
            in_flight: 0,
            errors: BTreeMap::new(),
            bytes: 0,
            moved: Moved::default(),
            latency: Latency::default(),
        });
        m.count += 1;
        m.bytes = m.bytes.saturating_add(call.bytes());
        let (read, written) = call.moved();
        m.moved.add_bytes(read, written);
        match call.dur_ns {
            Some(ns) => m.latency.record(ns),
            None => m.in_flight += u64::from(call.in_flight),
        }
        if let Some(errno) = call.errno() {
            *m.errors.entry(errno).or_default() += 1;
        }
    }

    /// The totals, most time first.
    pub fn summaries(&self) -> Vec<OperationSummary> {
        let mut all: Vec<_> = self
            .by_index
            .iter()
            .flatten()
            .map(|m| OperationSummary {
                op: m.op.clone(),
                kind: m.kind,
                count: m.count,
                in_flight: m.in_flight,
                errors: m.errors.values().sum(),
                errnos: m.errors.clone(),
                bytes: m.bytes,
                moved: m.moved,
                latency: m.latency.summary(),
            })
            .collect();
        all.sort_by(|a, b| {
            (b.latency.total_ns, b.count).cmp(&(a.latency.total_ns, a.count)).then_with(|| a.op.cmp(&b.op))
        });
        all
    }

    /// Latency of all calls together.
    pub fn latency(&self) -> LatencySummary {
        let mut all = Latency::default();
        self.by_index.iter().flatten().for_each(|m| all.add(&m.latency));
        all.summary()
    }
}
