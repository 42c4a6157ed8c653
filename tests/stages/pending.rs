//! Findings that are still to be removed, without their lines. Lines are only ever taken out of these lists.

/// Imports against the order of stages, and large circles.
pub(crate) const EDGES: &[&str] = &[];

/// Long files.
pub(crate) const FILES: &[&str] =
    &["tests/end_to_end/block/attribution.rs has ", "tests/end_to_end/recording/life.rs has "];

/// Long functions that do not say why.
pub(crate) const FUNCTIONS: &[&str] = &[
    "analyze/src/stats/bios.rs of has ",
    "analyze/src/stats/mod.rs of has ",
    "analyze/tests/every/main.rs world has ",
    "analyze/tests/every/naive.rs operations has ",
    "capture/src/assemble/classify.rs decide has ",
    "capture/src/assemble/mod.rs take has ",
    "capture/src/assemble/op.rs op has ",
    "capture/src/assemble/uring.rs uring_request has ",
    "capture/src/before/derive.rs take has ",
    "capture/src/host/layout/ext4.rs layout has ",
    "capture/src/pipeline/ledger.rs fill has ",
    "capture/src/probes/session.rs attempt has ",
    "capture/src/record/main_loop.rs follow has ",
    "capture/src/record/mod.rs record has ",
    "tests/end_to_end/calls/workload/more.rs attributes has ",
    "tests/end_to_end/calls/workload/narrow.rs rest has ",
    "tests/end_to_end/main.rs main has ",
    "tests/end_to_end/main.rs tests has ",
    "traces/src/validate/checks.rs rows has ",
    "visualize/src/report/mod.rs parts has ",
    "visualize/tests/pictures/imported.rs stages_of_merged_requests has ",
];
