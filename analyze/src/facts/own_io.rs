//! Bios in flight during operations: those that an operation caused, and those of the journal.

use super::operation::Operation;

/// Maximum number of bios with a known cause. Operations that caused further ones are taken not to have waited.
const MOST_CAUSED: usize = 1 << 24;
/// Shorter operations did not wait for a device.
const LEAST_NS: i64 = 2_000;

/// Times in which at least one interval is open. Memory: one entry per busy period.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Disjoint, in order: start, end, and the sum of the lengths before it.
    busy: Vec<(i64, i64, i64)>,
}

impl Timeline {
    /// Joins intervals.
    pub(super) fn of(mut intervals: Vec<(i64, i64)>) -> Self {
        intervals.sort_unstable();
        let mut busy: Vec<(i64, i64, i64)> = Vec::new();
        for (start, end) in intervals {
            match busy.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ if end > start => busy.push((start, end, 0)),
                _ => {}
            }
        }
        let mut sum_ns: i64 = 0;
        for (start, end, before_ns) in &mut busy {
            *before_ns = sum_ns;
            sum_ns = sum_ns.saturating_add(end.saturating_sub(*start));
        }
        busy.shrink_to_fit();
        Self { busy }
    }

    /// Time in `[from_ns, to_ns)` in which an interval is open.
    pub(super) fn overlap_ns(&self, from_ns: i64, to_ns: i64) -> i64 {
        self.until_ns(to_ns).saturating_sub(self.until_ns(from_ns)).max(0)
    }

    /// Time before `to_ns` in which an interval is open.
    fn until_ns(&self, to_ns: i64) -> i64 {
        let count = self.busy.partition_point(|(start, ..)| *start < to_ns);
        self.busy[..count]
            .last()
            .map_or(0, |(start, end, before_ns)| before_ns.saturating_add((*end).min(to_ns).saturating_sub(*start)))
    }
}

/// A bio that an operation caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Caused {
    pub(super) op_id: i64,
    pub(super) queue_ns: i64,
    pub(super) complete_ns: i64,
    pub(super) len_bytes: u32,
    /// Number of its device in [`OwnIo::devices`].
    pub(super) device: u16,
    pub(super) reads: bool,
}

/// Bios by operation, and timelines.
#[derive(Debug, Default)]
pub(super) struct OwnIo {
    caused: Vec<Caused>,
    /// Devices of the bios.
    devices: Vec<i64>,
    pub(super) timelines: Timelines,
}

/// When bios of a kind were in flight.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    /// Of the journal.
    pub(super) journal: Timeline,
    /// Empty flushes.
    pub(super) flushes: Timeline,
    /// Writes of anybody.
    pub(super) writes: Timeline,
    /// Queued by recorded threads.
    pub(super) own: Timeline,
}

/// What bios of an operation read and wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CausedReads {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) read_wait_ns: i64,
}

impl OwnIo {
    pub(super) fn new(mut caused: Vec<Caused>, devices: Vec<i64>, timelines: Timelines) -> Self {
        caused.truncate(MOST_CAUSED);
        caused.sort_unstable();
        Self { caused, devices, timelines }
    }

    /// The device of the first bio that the operation caused.
    pub(super) fn device_of(&self, op: &Operation) -> Option<i64> {
        let first = self.of(op).first()?;
        self.devices.get(usize::from(first.device)).copied()
    }

    fn of(&self, op: &Operation) -> &[Caused] {
        if op.dur_ns() < LEAST_NS || self.caused.is_empty() {
            return &[];
        }
        let first = self.caused.partition_point(|c| c.op_id < op.op_id);
        let count = self.caused[first..].iter().take_while(|c| c.op_id == op.op_id).count();
        &self.caused[first..first + count]
    }

    /// Time of the operation in which a bio that it caused was in flight.
    pub(super) fn waited_ns(&self, op: &Operation) -> i64 {
        union_ns(self.of(op).iter(), op)
    }

    /// The reads that the operation caused.
    pub(super) fn reads_of(&self, op: &Operation) -> CausedReads {
        let own = self.of(op);
        let reads = || own.iter().filter(|c| c.reads);
        CausedReads {
            reads: reads().count() as u64,
            read_bytes: reads().map(|c| u64::from(c.len_bytes)).sum(),
            read_wait_ns: union_ns(reads(), op),
        }
    }
}

/// Time of the operation in which one of these bios, in order of queueing, was in flight.
fn union_ns<'a>(bios: impl Iterator<Item = &'a Caused>, op: &Operation) -> i64 {
    let (mut until_ns, mut sum_ns) = (op.start_ns, 0);
    for bio in bios {
        let (from_ns, to_ns) = (bio.queue_ns.max(until_ns), bio.complete_ns.min(op.end_ns));
        if to_ns > from_ns {
            sum_ns += to_ns - from_ns;
            until_ns = to_ns;
        }
    }
    sum_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_joins_what_overlaps() {
        let t = Timeline::of(vec![(10, 20), (0, 5), (15, 30), (40, 40), (50, 60)]);
        assert_eq!(t.overlap_ns(3, 12), 4);
        assert_eq!(t.overlap_ns(30, 50), 0);
        assert_eq!(t.overlap_ns(i64::MIN, i64::MAX), 35);
    }
}
