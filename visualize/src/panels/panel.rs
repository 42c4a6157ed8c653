//! The interface of a panel: its input, its description and its height. [`super::ALL`] lists all panels.

use std::sync::Arc;

use ioreel_analyze::{
    events::{bios::Bio, calls::Call, requests::Request},
    meters::{bins::Bins, seeks::Seek},
};
use ioreel_traces::Reel;

use crate::{
    Result,
    canvas::raster::Cells,
    model::{idle::Squeeze, offset_axis::OffsetAxis, palette::Palette, shape::Shape, survey::Survey},
};

/// Height of the offset map, px: a multiple of every cell size.
pub(crate) const OFFSET_HEIGHT: u32 = 402;
/// Height of panels of rates, px.
pub(crate) const RATE_HEIGHT: u32 = 96;
/// Height of other fields, px.
pub(crate) const FIELD_HEIGHT: u32 = 204;
/// Height of charts, px.
pub(crate) const CHART_HEIGHT: u32 = 150;

/// A request of the drawn device, with facts that depend on the order of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) request: Request,
    /// Kind of seek, within the window.
    pub(crate) seek: Seek,
    /// Whether it was issued in the window.
    pub(crate) inside: bool,
}

/// Input for the construction of a panel.
pub(crate) struct Setup<'a> {
    pub(crate) reel: &'a Reel,
    pub(crate) survey: &'a Survey,
    /// The time axis in raster cells.
    pub(crate) time: Cells,
    /// What is cut out of the time axis. Panels get events that are at their places on it.
    pub(crate) squeeze: &'a Squeeze,
    /// Bins of rates.
    pub(crate) bins: Bins,
    /// The offset axis of all reels.
    pub(crate) offsets: &'a OffsetAxis,
    pub(crate) palette: Arc<Palette>,
}

/// The rows that a panel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Requests of the drawn device, in dispatch order.
    Requests,
    /// Calls.
    Calls,
    /// Bios of all devices.
    Bios,
    /// Calls, then bios.
    Both,
}

/// Counts one reel's events for one panel.
pub(crate) trait Panel: Send {
    /// The rows it needs.
    fn needs(&self) -> Needs;
    /// Relative time per request, for distributing panels to threads.
    fn cost(&self) -> u32 {
        1
    }
    /// Handles the next requests.
    fn requests(&mut self, _batch: &[Issue]) {}
    /// Handles the next call. ioreel's own calls are excluded.
    fn call(&mut self, _call: &Call<'_>) {}
    /// Handles the next bio.
    fn bio(&mut self, _bio: &Bio<'_>) {}
    /// The result.
    fn finish(self: Box<Self>) -> Shape;
}

/// Subject of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The device: empty if the reel has no requests.
    Device,
    /// Calls.
    Calls,
    /// Any.
    All,
}

/// Description of a panel.
pub(crate) struct Spec {
    /// Its name for `--panels`.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// Unit and counting rule, shown beside the heading.
    pub(crate) unit: &'static str,
    pub(crate) about: About,
    /// Approximate height, px.
    pub(crate) height: u32,
    pub(crate) make: fn(&Setup<'_>) -> Result<Box<dyn Panel>>,
}
