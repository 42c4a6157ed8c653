//! Measures the duration of system calls. It grows for all processes when probes are attached.

use rustix::fs::{Mode, OFlags, fstat, open, stat};

use crate::host;

/// Number of rounds; the median counts.
const ROUNDS: usize = 33;
/// Repetitions of four calls per round.
const TIMES: i64 = 16;

/// Mean duration in ns of a call by this process, which is not recorded. Different calls alternate as in real programs:
/// a call repeated alone would find everything in the nearest cache.
pub(super) fn call_ns() -> i64 {
    let mut rounds: Vec<i64> = (0..ROUNDS)
        .map(|_| {
            let began = host::monotonic_ns();
            for _ in 0..TIMES {
                // The results do not matter.
                let _ = stat("/");
                let _ = open("/", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).and_then(fstat);
            }
            (host::monotonic_ns() - began) / (TIMES * 4)
        })
        .collect();
    rounds.sort_unstable();
    rounds.get(ROUNDS / 2).copied().unwrap_or(0)
}
