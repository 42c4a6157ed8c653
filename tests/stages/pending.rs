//! Findings that are still to be removed, without their lines. Lines are only ever taken out of these lists.

/// Imports against the order of stages, and large circles.
pub(crate) const EDGES: &[&str] = &[];

/// Long files.
pub(crate) const FILES: &[&str] = &[];

/// Long functions that do not say why.
pub(crate) const FUNCTIONS: &[&str] = &[
    "analyze/src/stats/bios.rs of has ",
    "analyze/src/stats/mod.rs of has ",
    "analyze/tests/every/naive.rs operations has ",
    "capture/src/before/derive.rs take has ",
    "capture/src/host/layout/ext4.rs layout has ",
    "capture/src/record/main_loop.rs follow has ",
    "visualize/src/report/mod.rs parts has ",
];
