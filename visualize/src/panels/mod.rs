//! The panels. Each file counts one thing and returns a [`Shape`](crate::model::shape::Shape).
//!
//! In: requests, bios and calls of a reel. Out: a shape per panel. May use: `canvas`, `model`.
//!
//! To add a panel, write a file with a type that implements [`Panel`](panel::Panel), and list it in [`ALL`]. Reading,
//! scales, legends, several reels, differences, losses and themes work the same for all panels.

mod call_throughput;
mod call_time;
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
pub(crate) mod panel;
mod phase;
mod reuse;
mod rewrites;
mod seeks;
mod sizes;
mod stages;
pub(crate) mod table;
mod throughput;

use self::panel::Spec;
use crate::{PlotError, Result};

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
    call_time::SPEC,
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

/// Names of all panels.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|s| s.name).collect()
}

/// The panels of these names, in this order.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Spec>> {
    let of = |name: &String| {
        ALL.iter()
            .find(|s| s.name == name)
            .ok_or_else(|| PlotError::UnknownPanel { asked: name.clone(), present: self::names() })
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

/// Whether the panel shows requests in colours that may depend on their bios (process, class, file).
pub(crate) fn colors_requests(spec: &Spec) -> bool {
    [latency::D2C.name, latency::Q2C.name, latency::Q2D.name, phase::SPEC.name].contains(&spec.name)
}

/// Whether the panel measures times between events, so that quiet stretches must stay.
pub(crate) fn needs_idle(spec: &Spec) -> bool {
    [stages::SPEC.name, phase::SPEC.name, rewrites::SPEC.name, hot::SPEC.name, reuse::SPEC.name].contains(&spec.name)
}

/// Default panels for reels with requests and with calls.
pub(crate) fn default_names(requests: bool, calls: bool) -> &'static [&'static str] {
    match (requests, calls) {
        (true, false) => &["offsets", "throughput", "iops", "seeks", "latency", "depth", "table"],
        (true, true) => &["offsets", "files", "gantt", "call-time", "latency", "throughput", "table"],
        (false, _) => &["files", "gantt", "call-time", "latency-calls", "call-throughput", "table"],
    }
}
