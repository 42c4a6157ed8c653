//! The memory that the probes write to: how it is shared out among CPUs, and one CPU's ring.

use std::{cell::RefCell, rc::Rc, time::Duration};

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::{
    CaptureError,
    decode::{op_rings::RECORD_BYTES, wire},
    host,
};

/// Kernel memory for all rings together. Half is for plain operations, 136 bytes each: on two CPUs 60 ms of the
/// fastest program measured.
pub const DEFAULT_RING_BYTES: usize = 64 << 20;
/// No CPU has less: a ring has to hold some of the largest records, 12 KiB.
const MIN_CPU_BYTES: usize = 128 << 10;

/// A CPU's ring is looked at no less often than the fastest program would fill a quarter of it: calls of 300 ns with a
/// record of 136 bytes each, as measured, and the block layer alone some million requests a second.
const FASTEST_OPS_BYTES_PER_US: usize = 450;
const FASTEST_BLOCK_BYTES_PER_US: usize = 250;
/// As often as that at most, and where somebody waits for it.
pub(crate) const SHORTEST_TICK: Duration = Duration::from_millis(4);
/// And so seldom: what is recorded is to be told soon.
const LONGEST_TICK: Duration = Duration::from_millis(64);

/// How much of the rings' memory each CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingSizes {
    /// Of the ring for records of any size, a power of two.
    pub(super) ring_bytes: usize,
    /// Places in the ring of operations.
    pub(super) op_records: usize,
}

impl RingSizes {
    /// Shares `total` among the CPUs; all together never take more.
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

    /// How often to look at the rings. Each look disturbs: whoever had the CPU is moved, and may stay where it has less of one.
    pub(super) fn tick(self, ops: bool) -> Duration {
        let (bytes, fastest) = if ops {
            (self.ring_bytes.min(self.op_records * RECORD_BYTES), FASTEST_OPS_BYTES_PER_US)
        } else {
            (self.ring_bytes, FASTEST_BLOCK_BYTES_PER_US)
        };
        Duration::from_micros((bytes / 4 / fastest) as u64).clamp(SHORTEST_TICK, LONGEST_TICK)
    }

    /// What a recording gets when nothing is asked for: more with very many CPUs.
    pub(super) fn default_total(cpus: usize) -> usize {
        DEFAULT_RING_BYTES.max(cpus << 20)
    }
}

/// What a recording's rings take when nothing is asked for.
pub fn default_ring_bytes() -> usize {
    RingSizes::default_total(host::possible_cpus())
}

/// The largest share of the rings' memory that is a power of two and half of it at most.
pub(super) fn half_of(total: usize) -> usize {
    (total / 2 + 1).next_power_of_two() / 2
}

/// A ring for records of any size, and where a pass over it puts them.
pub(super) struct CpuRing {
    pub(super) ring: RingBuffer<'static>,
    pub(super) bytes: Rc<RefCell<Vec<u8>>>,
    /// No more records are taken in one pass.
    pub(super) most: usize,
}

impl CpuRing {
    pub(super) fn new(map: &impl MapCore, most: usize) -> Result<Self, CaptureError> {
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&bytes);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |record: &[u8]| {
                // Room is reserved in steps for some.
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
