//! What a call costs that does nothing: with probes on all calls it is more.

use crate::host;

/// The least of so many rounds counts: nothing else came between.
const ROUNDS: usize = 16;
const CALLS: i64 = 128;

/// What it takes this process, which is not recorded, to call the kernel. ns.
pub(super) fn call_ns() -> i64 {
    let round = |_| {
        let began = host::monotonic_ns();
        for _ in 0..CALLS {
            // SAFETY: has no arguments, and cannot fail.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        (host::monotonic_ns() - began) / CALLS
    };
    (0..ROUNDS).map(round).min().unwrap_or(0)
}
