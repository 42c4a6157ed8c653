//! What a panel is: what it is fed with, what it is listed as, and how high it is drawn. [`super::ALL`] lists those there are.

use std::sync::Arc;

use ioreel_analyze::{
    events::{bios::Bio, calls::Call, requests::Request},
    meters::{bins::Bins, seeks::Seek},
};
use ioreel_traces::Reel;

use crate::{
    Result,
    canvas::raster::Cells,
    model::{offset_axis::OffsetAxis, palette::Palette, shape::Shape, survey::Survey},
};

/// Height of the offset map, px: a multiple of every cell size.
pub(crate) const OFFSET_HEIGHT: u32 = 402;
/// Height of panels of rates, px.
pub(crate) const RATE_HEIGHT: u32 = 96;
/// Height of fields but the offset map, px.
pub(crate) const FIELD_HEIGHT: u32 = 204;
/// Height of charts, px.
pub(crate) const CHART_HEIGHT: u32 = 150;

/// A request of the drawn device, with what only the order of all of them tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Issue {
    pub(crate) request: Request,
    /// What seek it was, within the window.
    pub(crate) seek: Seek,
    /// Whether it was issued in the window.
    pub(crate) inside: bool,
}

/// What a panel is made for.
pub(crate) struct Setup<'a> {
    pub(crate) reel: &'a Reel,
    pub(crate) survey: &'a Survey,
    /// The time axis, in cells of rasters.
    pub(crate) time: Cells,
    /// The bins of rates.
    pub(crate) bins: Bins,
    /// The offset axis of all reels.
    pub(crate) offsets: &'a OffsetAxis,
    pub(crate) palette: Arc<Palette>,
}

/// Which rows a panel is fed with.
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
    /// What it is fed with.
    fn needs(&self) -> Needs;
    /// Time per request beside other panels, for sharing the work out.
    fn cost(&self) -> u32 {
        1
    }
    /// The next requests.
    fn requests(&mut self, _batch: &[Issue]) {}
    /// The next call, none of them the tool's own.
    fn call(&mut self, _call: &Call<'_>) {}
    /// The next bio.
    fn bio(&mut self, _bio: &Bio<'_>) {}
    /// What was counted.
    fn finish(self: Box<Self>) -> Shape;
}

/// What a panel tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The device: nothing where the reel has no requests.
    Device,
    /// Calls.
    Calls,
    /// Either.
    All,
}

/// A panel that there is.
pub(crate) struct Spec {
    /// What `--panels` calls it.
    pub(crate) name: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
    /// Unit and rule of counting, beside the heading.
    pub(crate) unit: &'static str,
    pub(crate) about: About,
    /// About how high it is, px.
    pub(crate) height: u32,
    pub(crate) make: fn(&Setup<'_>) -> Result<Box<dyn Panel>>,
}
