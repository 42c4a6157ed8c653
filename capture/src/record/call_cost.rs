//! What calls cost: with probes on all of them it is more.

use rustix::fs::{Mode, OFlags, fstat, open, stat};

use crate::host;

/// The median of so many rounds counts.
const ROUNDS: usize = 33;
/// Each of so many times four calls.
const TIMES: i64 = 16;

/// What a call takes this process, which is not recorded, where calls alternate as they do in programs: one that is made again and
/// again finds all it needs in the nearest cache. ns.
pub(super) fn call_ns() -> i64 {
    let mut rounds: Vec<i64> = (0..ROUNDS)
        .map(|_| {
            let began = host::monotonic_ns();
            for _ in 0..TIMES {
                // Whatever they say.
                let _ = stat("/");
                let _ = open("/", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).and_then(fstat);
            }
            (host::monotonic_ns() - began) / (TIMES * 4)
        })
        .collect();
    rounds.sort_unstable();
    rounds.get(ROUNDS / 2).copied().unwrap_or(0)
}
