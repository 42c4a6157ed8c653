//! Totals of a reel, for the table below the panels.

use ioreel_analyze::{events::targets::Moved, meters::latency::LatencySummary, summary::device::DeviceSummary};

use crate::model::survey::Survey;

/// Totals of a reel: a row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) survey: Survey,
    /// Totals of the device in the window.
    pub(crate) device: Option<DeviceSummary>,
    /// Totals of the operations in the window.
    pub(crate) calls: Option<CallTotals>,
}

/// Totals of operations.
#[derive(Clone, Debug)]
pub(crate) struct CallTotals {
    /// Operations that started in the window.
    pub(crate) calls: u64,
    /// Those that failed.
    pub(crate) errors: u64,
    /// Bytes, by where they went to and came from.
    pub(crate) moved: Moved,
    /// Duration.
    pub(crate) latency: LatencySummary,
}

impl Sheet {
    /// Takes the totals of operations from `calls` if there are none.
    pub(crate) fn join(&mut self, calls: &Self) {
        if self.calls.is_none() {
            self.calls.clone_from(&calls.calls);
        }
    }
}
