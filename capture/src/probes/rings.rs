//! The rings: their sizes, and how often they are read.

use std::{cell::RefCell, rc::Rc, time::Duration};

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::{
    CaptureError,
    decode::{op_rings::RECORD_BYTES, wire},
    host,
};

/// Default kernel memory for all rings together, in bytes. Half of it is for plain operations of 144 bytes: on two CPUs
/// it holds 60 ms of the fastest program measured.
pub const DEFAULT_RING_BYTES: usize = 64 << 20;
/// Minimum per CPU: a ring has to hold several of the largest records (12 KiB).
const MIN_CPU_BYTES: usize = 128 << 10;

/// Fill rates that set the interval of reading, so that no ring fills by more than a quarter between two passes.
/// Measured: one call per 300 ns with a record of 136 bytes; the block layer alone, about a million requests per
/// second.
const FASTEST_OPS_BYTES_PER_US: usize = 450;
const FASTEST_BLOCK_BYTES_PER_US: usize = 250;
/// Shortest interval, also used when somebody waits for records.
pub(crate) const SHORTEST_TICK: Duration = Duration::from_millis(4);
/// Longest interval, so that the live view and copies stay current.
const LONGEST_TICK: Duration = Duration::from_millis(64);

/// Sizes of one CPU's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSizes {
    /// Ring for records of any size, bytes; a power of two.
    pub(super) ring_bytes: usize,
    /// Slots of the operation ring.
    pub(super) op_records: usize,
}

impl RingSizes {
    /// Divides `total` bytes among the CPUs, rounding down.
    pub(super) fn of(total: usize, cpus: usize, ops: bool) -> Result<Self, CaptureError> {
        let per_cpu = total / cpus;
        if per_cpu < MIN_CPU_BYTES {
            let least_mib = (MIN_CPU_BYTES * cpus).div_ceil(1 << 20);
            return Err(CaptureError::RingsTooSmall { total_mib: total >> 20, cpus, least_mib });
        }
        let ring_bytes = if ops { per_cpu / 2 } else { per_cpu };
        let ring_bytes = if ring_bytes.is_power_of_two() { ring_bytes } else { ring_bytes.next_power_of_two() / 2 };
        Ok(Self { ring_bytes, op_records: if ops { (per_cpu - ring_bytes) / RECORD_BYTES } else { 1 } })
    }

    /// Interval between two passes over the rings. Each pass disturbs the recorded programs: the scheduler may move the
    /// one whose CPU it takes, and leave it on a busier one.
    pub(super) fn tick(self, ops: bool) -> Duration {
        let (bytes, fastest) = if ops {
            (self.ring_bytes.min(self.op_records * RECORD_BYTES), FASTEST_OPS_BYTES_PER_US)
        } else {
            (self.ring_bytes, FASTEST_BLOCK_BYTES_PER_US)
        };
        Duration::from_micros((bytes / 4 / fastest) as u64).clamp(SHORTEST_TICK, LONGEST_TICK)
    }

    /// Default memory for the rings; more with very many CPUs.
    pub(super) fn default_total(cpus: usize) -> usize {
        DEFAULT_RING_BYTES.max(cpus << 20)
    }
}

/// Default memory for the rings on this machine, bytes.
pub fn default_ring_bytes() -> usize {
    RingSizes::default_total(host::possible_cpus())
}

/// The largest power of two that is at most half of `total`.
pub(super) fn half_of(total: usize) -> usize {
    (total / 2 + 1).next_power_of_two() / 2
}

/// A ring for records of any size, and the buffer that a pass copies them to.
pub(super) struct CpuRing {
    pub(super) ring: RingBuffer<'static>,
    pub(super) bytes: Rc<RefCell<Vec<u8>>>,
    /// Maximum number of records taken per pass.
    pub(super) most: usize,
}

impl CpuRing {
    pub(super) fn new(map: &impl MapCore, most: usize) -> Result<Self, CaptureError> {
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&bytes);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |record: &[u8]| {
                // Some records reserve more space than they use.
                let len = wire::header(record).map_or(record.len(), |h| h.len_bytes as usize);
                sink.borrow_mut().extend_from_slice(&record[..len]);
                0
            })
            .map_err(CaptureError::bpf("mapping a ring"))?;
        Ok(Self { ring: builder.build().map_err(CaptureError::bpf("mapping a ring"))?, bytes, most })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rings_take_no_more_than_asked_for() {
        for cpus in 1..=1024 {
            for total in [1 << 20, 2 << 20, 3 << 20, 64 << 20, 100 << 20, RingSizes::default_total(cpus)] {
                for ops in [false, true] {
                    let Ok(sizes) = RingSizes::of(total, cpus, ops) else {
                        assert!(total / cpus < MIN_CPU_BYTES);
                        continue;
                    };
                    assert!(sizes.ring_bytes.is_power_of_two() && sizes.ring_bytes >= 4096);
                    let used = sizes.ring_bytes + if ops { sizes.op_records * RECORD_BYTES } else { 0 };
                    assert!(used * cpus <= total, "{cpus} CPUs: {sizes:?} of {total}");
                    assert!(used * cpus * 3 > total, "{cpus} CPUs: {sizes:?} of {total}");
                }
            }
            RingSizes::of(RingSizes::default_total(cpus), cpus, true).unwrap();
        }
    }

    #[test]
    fn larger_rings_are_looked_at_less_often() {
        let tick = |mib: usize, cpus, ops| RingSizes::of(mib << 20, cpus, ops).unwrap().tick(ops).as_millis();
        assert_eq!(tick(64, 2, true), 9);
        assert_eq!(tick(64, 2, false), 33);
        assert_eq!(tick(64, 64, true), 4);
        assert_eq!(tick(1024, 2, true), 64);
    }
}
