//! Records which operation was issued, and when it entered the kernel and returned.
//!
//! The clock is read immediately before the first call of an operation and immediately after each call. All other time
//! counts as the replayer's own. An operation for which no call was made, or one issued in place of another, cannot
//! pass for the one that was due.

use std::cell::Cell;

use crate::{base::clock::monotonic_ns, reel::input::NONE, run::engine::Called};

/// State of the current operation.
#[derive(Clone, Copy)]
struct AtHand {
    /// Its row, whether or not a call was made.
    row: u32,
    /// What was issued: row and times on the monotonic clock.
    called: Called,
}

const NOTHING: Called = Called { row: NONE, times_ns: None };

thread_local! {
    // A single cell: each access to a thread-local is a function call here.
    static AT_HAND: Cell<AtHand> = const { Cell::new(AtHand { row: NONE, called: NOTHING }) };
}

fn change(how: impl FnOnce(&mut AtHand)) {
    AT_HAND.with(|cell| {
        let mut at_hand = cell.get();
        how(&mut at_hand);
        cell.set(at_hand);
    });
}

/// Starts the operation of this row, or continues it if it is issued again.
pub(super) fn begin(row: u32) {
    change(|h| {
        if h.row != row {
            *h = AtHand { row, called: NOTHING };
        }
    });
}

/// Records a call that was entered at `entered_ns` and has returned now.
pub(super) fn stamp(entered_ns: i64) {
    let returned_ns = monotonic_ns();
    change(|h| {
        let first_ns = h.called.times_ns.map_or(entered_ns, |(first, _)| first);
        h.called = Called { row: h.row, times_ns: Some((first_ns, returned_ns)) };
    });
}

/// Carries out the operation without a call, with this result: what it acts on does not exist.
pub(crate) fn without_call(ret: i64) -> i64 {
    change(|h| h.called.row = h.row);
    ret
}

/// What was issued since the last call of this function. Times are of the monotonic clock.
pub(crate) fn take() -> Called {
    AT_HAND.replace(AtHand { row: NONE, called: NOTHING }).called
}
