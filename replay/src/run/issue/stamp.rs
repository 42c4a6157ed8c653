//! What was issued, and when it entered the kernel and had come back. The clock is read right before an operation's first call
//! and right after each: whatever else a replayer does, before or behind, is its own time, and neither an operation for which
//! no call was made nor one in place of another can pass for the one that was due.

use std::cell::Cell;

use crate::{base::clock::monotonic_ns, reel::input::NONE, run::engine::Called};

/// What the operation at hand has come to.
#[derive(Clone, Copy)]
struct AtHand {
    /// Its row, whether or not a call was made.
    row: u32,
    /// Row and times of what was issued, on the monotonic clock.
    called: Called,
}

const NOTHING: Called = Called { row: NONE, times_ns: None };

thread_local! {
    // One for all: each look at such a place is a call of a function here.
    static AT_HAND: Cell<AtHand> = const { Cell::new(AtHand { row: NONE, called: NOTHING }) };
}

fn change(how: impl FnOnce(&mut AtHand)) {
    AT_HAND.with(|cell| {
        let mut at_hand = cell.get();
        how(&mut at_hand);
        cell.set(at_hand);
    });
}

/// The operation of this row is issued, from here on or once more.
pub(super) fn begin(row: u32) {
    change(|h| {
        if h.row != row {
            *h = AtHand { row, called: NOTHING };
        }
    });
}

/// A call was entered then, and has returned now.
pub(super) fn stamp(entered_ns: i64) {
    let returned_ns = monotonic_ns();
    change(|h| {
        let first_ns = h.called.times_ns.map_or(entered_ns, |(first, _)| first);
        h.called = Called { row: h.row, times_ns: Some((first_ns, returned_ns)) };
    });
}

/// The operation is carried out without a call, with this result: what it acts on is not there.
pub(crate) fn without_call(ret: i64) -> i64 {
    change(|h| h.called.row = h.row);
    ret
}

/// What was issued since this was asked last, times on the monotonic clock.
pub(crate) fn take() -> Called {
    AT_HAND.replace(AtHand { row: NONE, called: NOTHING }).called
}
