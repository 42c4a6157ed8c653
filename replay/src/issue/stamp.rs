//! What was issued, and when it entered the kernel and had come back. The clock is read right before an operation's first call
//! and right after each: whatever else a replayer does, before or behind, is its own time, and neither an operation for which
//! no call was made nor one in place of another can pass for the one that was due.

use std::cell::Cell;

use crate::{engine::Called, input::NONE, world::monotonic_ns};

const NOTHING: Called = Called { row: NONE, times_ns: None };

thread_local! {
    /// Of the operation at hand, on the monotonic clock.
    static CALLED: Cell<Called> = const { Cell::new(NOTHING) };
    /// Its row, whether or not a call was made.
    static ROW: Cell<u32> = const { Cell::new(NONE) };
}

/// The operation of this row is issued, from here on or once more.
pub(super) fn begin(row: u32) {
    if ROW.replace(row) != row {
        CALLED.set(NOTHING);
    }
}

/// A call was entered then, and has returned now.
pub(super) fn stamp(entered_ns: i64) {
    let returned_ns = monotonic_ns();
    let first_ns = CALLED.get().times_ns.map_or(entered_ns, |(first, _)| first);
    CALLED.set(Called { row: ROW.get(), times_ns: Some((first_ns, returned_ns)) });
}

/// The operation is carried out without a call, with this result: what it acts on is not there.
pub(crate) fn without_call(ret: i64) -> i64 {
    CALLED.set(Called { row: ROW.get(), ..CALLED.get() });
    ret
}

/// What was issued since this was asked last, times on the monotonic clock.
pub(crate) fn take() -> Called {
    ROW.set(NONE);
    CALLED.replace(NOTHING)
}
