//! The panels. Each file counts one thing and returns a [`Shape`].
//!
//! In: requests, bios and calls of a reel. Out: a shape per panel. May use: `canvas`, `model`.
//!
//! To add a panel, write a file with a type that implements [`Panel`] and list it in [`ALL`]. Reading, scales, legends,
//! several reels, differences, losses and both themes are handled for all panels alike.

mod call_throughput;
mod calls;
mod depth;
mod distances;
mod files;
mod gantt;
pub(crate) mod gather;
mod hot;
mod iops;
mod latency;
mod offsets;
mod phase;
mod reuse;
mod rewrites;
mod seeks;
mod sizes;
mod stages;
pub(crate) mod table;
mod throughput;

use std::sync::Arc;

use ioreel_analyze::{
    events::{bios::Bio, calls::Call},
    meters::bins::Bins,
};
use ioreel_traces::Reel;

use crate::{
    PlotError, Result,
    canvas::raster::Cells,
    model::{offset_axis::OffsetAxis, palette::Palette, shape::Shape, survey::Survey},
    panels::gather::Issue,
};

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

/// All panels, in the order of `docs/pictures.md`.
pub(crate) static ALL: &[Spec] = &[
    offsets::SPEC,
    files::SPEC,
    throughput::SPEC,
    iops::SPEC,
    seeks::SPEC,
    latency::D2C,
    latency::Q2C,
    latency::Q2D,
    latency::CALLS,
    depth::SPEC,
    calls::SPEC,
    call_throughput::SPEC,
    stages::SPEC,
    phase::SPEC,
    gantt::SPEC,
    rewrites::SPEC,
    sizes::SPEC,
    distances::SPEC,
    hot::SPEC,
    reuse::SPEC,
    table::SPEC,
];

/// Height of the offset map, px: a multiple of every cell size.
pub(crate) const OFFSET_HEIGHT: u32 = 402;
/// Height of panels of rates, px.
const RATE_HEIGHT: u32 = 96;
/// Height of fields but the offset map, px.
const FIELD_HEIGHT: u32 = 204;
/// Height of charts, px.
const CHART_HEIGHT: u32 = 150;

/// Names of all panels.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|s| s.name).collect()
}

/// The panels of these names, in this order.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Spec>> {
    let of = |name: &String| {
        ALL.iter()
            .find(|s| s.name == name)
            .ok_or_else(|| PlotError::UnknownPanel { asked: name.clone(), present: self::names().join(", ") })
    };
    let mut out: Vec<&'static Spec> = Vec::new();
    for name in names {
        let spec = of(name)?;
        if !out.iter().any(|s| s.name == spec.name) {
            out.push(spec);
        }
    }
    Ok(out)
}

/// Whether the panel is fed with requests and has them in colours, which by process, class or file only their bios tell.
pub(crate) fn colors_requests(spec: &Spec) -> bool {
    [latency::D2C.name, latency::Q2C.name, latency::Q2D.name, phase::SPEC.name].contains(&spec.name)
}

/// What is drawn unless asked otherwise, of reels with requests, with calls.
pub(crate) fn default_names(requests: bool, calls: bool) -> &'static [&'static str] {
    match (requests, calls) {
        (true, false) => &["offsets", "throughput", "iops", "seeks", "latency", "depth", "table"],
        (true, true) => &["offsets", "throughput", "seeks", "latency", "depth", "calls", "table"],
        (false, _) => &["files", "latency-calls", "call-throughput", "calls", "table"],
    }
}
