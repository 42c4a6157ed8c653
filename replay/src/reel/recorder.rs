//! What recording cost.

use ioreel_traces::manifest::Cost;

/// What recording cost the recorded program between its calls, which is no computing time of its own. ns; 0 where it is not
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Recorder {
    /// Per call.
    pub call_ns: i64,
}

impl Recorder {
    /// As the reel tells; no probe takes longer than a millisecond, whatever a reel says.
    pub fn of(cost: &Cost) -> Self {
        Self { call_ns: cost.call_ns.unwrap_or(0).clamp(0, 1_000_000) }
    }
}
