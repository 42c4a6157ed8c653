//! What recording cost.

use ioreel_traces::manifest::Cost;

/// Time that recording took from the recorded program between its calls, ns; 0 if unknown. The program did not compute in it.
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
