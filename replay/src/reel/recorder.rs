//! Overhead of the recording.

use ioreel_traces::manifest::Cost;

/// Time that the recorder added to the recorded program between its calls; 0 if unknown. It is subtracted from think
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Recorder {
    /// Per call, ns.
    pub call_ns: i64,
}

impl Recorder {
    /// From the manifest. Values above 1 ms are implausible and are capped.
    pub fn of(cost: &Cost) -> Self {
        Self { call_ns: cost.call_ns.unwrap_or(0).clamp(0, 1_000_000) }
    }
}
