//! Rates over time, of a device's requests and of operations.

use crate::{
    events::{
        calls::{Call, Kind},
        requests::{Class, Request},
        targets::Target,
    },
    meters::{
        bins::{Bins, Overlap},
        seeks::Seek,
    },
};

/// A device over time. Bytes and requests count at their completion, seeks at issue.
#[derive(Clone, Debug)]
pub struct DeviceSeries {
    /// The bins.
    pub bins: Bins,
    /// Bytes read without error.
    pub read_bytes: Vec<u64>,
    /// Bytes written without error.
    pub write_bytes: Vec<u64>,
    /// Reads completed.
    pub reads: Vec<u64>,
    /// Writes completed.
    pub writes: Vec<u64>,
    /// Other requests completed: flushes, discards, zeroing.
    pub others: Vec<u64>,
    /// `seeks.exact`.
    pub seeks_exact: Vec<u64>,
    /// `seeks.sw64k`.
    pub seeks_sw64k: Vec<u64>,
    /// Time in flight.
    pub in_flight: Overlap,
}

impl DeviceSeries {
    /// Empty.
    pub fn new(bins: Bins) -> Self {
        let zeroes = || vec![0; bins.count()];
        Self {
            bins,
            read_bytes: zeroes(),
            write_bytes: zeroes(),
            reads: zeroes(),
            writes: zeroes(),
            others: zeroes(),
            seeks_exact: zeroes(),
            seeks_sw64k: zeroes(),
            in_flight: Overlap::new(bins),
        }
    }

    /// Adds a request, with its kind of seek.
    pub fn push(&mut self, r: &Request, seek: Seek) {
        if let Some(i) = self.bins.index(r.issue_ns) {
            self.seeks_exact[i] += u64::from(seek.exact);
            self.seeks_sw64k[i] += u64::from(seek.sw64k);
        }
        let Some(complete_ns) = r.complete_ns else { return };
        self.in_flight.add(r.issue_ns, complete_ns);
        let Some(i) = self.bins.index(complete_ns) else { return };
        let bytes = if r.error == 0 { u64::try_from(r.len_bytes).unwrap_or(0) } else { 0 };
        match r.class {
            Class::Read => {
                self.reads[i] += 1;
                self.read_bytes[i] = self.read_bytes[i].saturating_add(bytes);
            }
            Class::Write => {
                self.writes[i] += 1;
                self.write_bytes[i] = self.write_bytes[i].saturating_add(bytes);
            }
            _ => self.others[i] += 1,
        }
    }
}

/// Operations over time, counted at their return. Without ioreel's own.
#[derive(Clone, Debug)]
pub struct CallSeries {
    /// The bins.
    pub bins: Bins,
    /// Bytes moved from files.
    pub read_bytes: Vec<u64>,
    /// Bytes moved to files.
    pub write_bytes: Vec<u64>,
    /// Bytes moved from and to pipes, devices and nowhere.
    pub other_bytes: [Vec<u64>; 3],
    /// Calls by [`CallSeries::row`].
    pub calls: [Vec<u64>; 5],
}

impl CallSeries {
    /// Labels of `other_bytes`.
    pub const OTHERS: [&'static str; 3] = ["pipes", "devices", "nowhere"];
    /// Labels of the rows of `calls`.
    pub const ROWS: [&'static str; 5] = ["read", "write", "sync", "metadata", "other"];

    /// Empty.
    pub fn new(bins: Bins) -> Self {
        let zeroes = || vec![0; bins.count()];
        Self {
            bins,
            read_bytes: zeroes(),
            write_bytes: zeroes(),
            other_bytes: std::array::from_fn(|_| zeroes()),
            calls: std::array::from_fn(|_| zeroes()),
        }
    }

    /// The row of `calls` for a kind. A copy counts as a write.
    pub fn row(kind: Kind) -> usize {
        match kind {
            Kind::Read => 0,
            Kind::Write | Kind::Copy => 1,
            Kind::Sync => 2,
            Kind::Metadata => 3,
            Kind::Other => 4,
        }
    }

    /// Adds a call.
    pub fn push(&mut self, call: &Call<'_>) {
        if call.by_tool || call.dur_ns.is_none() {
            return;
        }
        let Some(i) = self.bins.index(call.end_ns()) else { return };
        self.calls[Self::row(call.kind)][i] += 1;
        let ((from, read), (to, written)) = call.moved();
        for (target, bytes, of_files) in [(from, read, &mut self.read_bytes), (to, written, &mut self.write_bytes)] {
            let bin = match target {
                Target::Files => &mut of_files[i],
                Target::Pipes => &mut self.other_bytes[0][i],
                Target::Devices => &mut self.other_bytes[1][i],
                Target::Nowhere => &mut self.other_bytes[2][i],
            };
            *bin = bin.saturating_add(bytes);
        }
    }
}
