//! Totals of a reel, for the table below the panels.

use ioreel_analyze::{
    meters::latency::LatencySummary,
    summary::{actor::Totals, device::DeviceSummary},
};

use crate::model::survey::Survey;

/// Totals of a reel: a row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Sheet {
    pub(crate) survey: Survey,
    /// Totals of the device in the window.
    pub(crate) device: Option<DeviceSummary>,
    /// Totals of the operations in the window.
    pub(crate) calls: Option<(Totals, LatencySummary)>,
}

impl Sheet {
    /// Takes the totals of operations from `calls` if there are none.
    pub(crate) fn join(&mut self, calls: &Self) {
        if self.calls.is_none() {
            self.calls.clone_from(&calls.calls);
        }
    }
}
