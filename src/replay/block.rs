//! `ioreel replay --layer block`: replays a reel's bios on a block device or a file.

use crate::output::{out, print_json, tell};
use std::{path::PathBuf, process::ExitCode};

use clap::ValueEnum;
use ioreel_replay::block::{self, BlockReplay, Config, Report};
use ioreel_traces::confine::{self, Needs};

use super::print::{flow, line};
use crate::{
    columns::count,
    units::{bytes, duration},
};

/// Arguments of this layer.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Block replay (--layer block)")]
pub(crate) struct BlockArgs {
    /// What to replay: system calls on a file system, or bios on a block device
    #[arg(long, value_enum, default_value = "file")]
    pub(super) layer: Layer,
    /// Block device or file to replay on. Only reads are issued unless --allow-writes is given
    #[arg(
        long,
        value_name = "PATH",
        required_if_eq("layer", "block"),
        conflicts_with_all = ["target", "force", "root", "from", "to", "map", "prepare_only", "skip_prepare", "max_bytes", "cold", "without", "scale_footprint"]
    )]
    pub(super) device: Option<PathBuf>,
    /// Also issue writes, discards and flushes. DESTROYS the data on the device
    #[arg(long, requires = "device")]
    allow_writes: bool,
    /// Recorded device to replay, by name or MAJOR:MINOR [default: the one with the most bytes]
    #[arg(long, value_name = "NAME", requires = "device")]
    source: Option<String>,
    /// How to map addresses to a device of another size
    #[arg(long, value_enum, default_value = "exact", requires = "device")]
    fit: Fit,
}

/// What is replayed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// System calls
    File,
    /// Bios
    Block,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Fit {
    /// Keep addresses; refuse a device that is too small
    Exact,
    /// Move pieces of 16 MiB closer together in proportion to the device sizes
    Scale,
    /// Wrap addresses beyond the end to the start
    Wrap,
}

/// Arguments that both layers use.
pub(super) struct Common {
    pub(super) reel: PathBuf,
    pub(super) untrusted: bool,
    pub(super) clockwork: ioreel_replay::run::pace::Clockwork,
    pub(super) order: ioreel_replay::plan::edge::OrderMode,
    pub(super) result: Option<PathBuf>,
    pub(super) spin_ns: i64,
    pub(super) limits: ioreel_replay::verdict::judgement::Limits,
    pub(super) dry_run: bool,
    pub(super) json: bool,
}

#[derive(serde::Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

/// Replays bios.
pub(super) fn run(args: BlockArgs, device: PathBuf, common: Common) -> anyhow::Result<ExitCode> {
    if common.untrusted {
        let mut needs = Needs { io_uring: true, ..Needs::to_write(common.result.as_deref()) };
        needs.folders.push(device.clone());
        confine::reader(&needs);
    }
    let replay = BlockReplay::plan(Config {
        reel: common.reel,
        device,
        source: args.source,
        allow_writes: args.allow_writes,
        fit: match args.fit {
            Fit::Exact => block::Fit::Exact,
            Fit::Scale => block::Fit::Scale,
            Fit::Wrap => block::Fit::Wrap,
        },
        clockwork: common.clockwork,
        order: common.order,
        result: common.result,
        spin_ns: common.spin_ns,
        limits: common.limits,
        dry_run: common.dry_run,
    })?;
    if !common.json {
        print_summary(&replay.summary);
    }
    let report = replay.run()?;
    if common.json {
        print_json(&Document { schema: "ioreel.replay-block/1", report: &report })?;
    } else {
        print_report(&report);
    }
    Ok(ExitCode::from(report.status))
}

fn print_summary(s: &block::Summary) {
    let survey = &s.survey;
    out!(
        "to replay   {} bios of {} ({}), on {} ({}, blocks of {})",
        count(survey.ios.unsigned_abs()),
        s.source,
        bytes(s.source_bytes),
        s.device,
        bytes(s.device_bytes),
        s.device_block_bytes
    );
    for (kind, (n, moved)) in &survey.kinds {
        out!("            {:>12}  {:<12} {}", count(n.unsigned_abs()), kind.name(), bytes(*moved));
    }
    let left: i64 = survey.skipped.values().sum();
    if left > 0 {
        let all = (left + survey.ios).max(1) as f64;
        out!("skipped     {} bios, {:.1} %", count(left.unsigned_abs()), left as f64 / all * 100.0);
        for (why, n) in &survey.skipped {
            out!("            {:>12}  {:>5.1} %  {why}", count(n.unsigned_abs()), *n as f64 / all * 100.0);
        }
    }
}

fn print_report(r: &Report) {
    if !r.dry_run {
        out!("done        {} bios, {}; {} wrong results", count(r.done.unsigned_abs()), bytes(r.bytes), r.wrong);
    }
    for d in &r.differences {
        let why = if d.unsupported { "  (not supported by this device)" } else { "" };
        out!("            {:>12}  {}: {}{why}", count(d.count.unsigned_abs()), d.kind.name(), d.error);
    }
    if r.adjusted > 0 {
        out!(
            "            {:>12}  aligned to the device's block size, or cut to its size",
            count(r.adjusted.unsigned_abs())
        );
    }
    out!(
        "elapsed     {:>12} to the last completion, original {}",
        duration(r.elapsed_ns),
        duration(r.original_elapsed_ns)
    );
    out!("lateness    {}  of the replayer", line(r.own_ns));
    out!("            {}  forced by the device or by order", line(r.forced_ns));
    if let Some(ppm) = r.drift_ppm {
        out!("drift       {ppm:.1} ppm");
    }
    flow(r.shift_ns, &r.concurrency);
    for l in &r.latencies {
        out!("latency     {}  {}", line(l.replay_ns), l.op);
        out!("            {}  original", line(l.original_ns));
    }
    if !r.edges.is_empty() {
        let kinds: Vec<String> =
            r.edges.iter().map(|(kind, n)| format!("{} {}", count(n.unsigned_abs()), kind.name())).collect();
        out!("waited for  {}", kinds.join(", "));
    }
    out!("CPU         {}; {} busy-waiting before deadlines", duration(r.cpu_ns), duration(r.spun_ns));
    for w in &r.warnings {
        tell!("ioreel: {w}");
    }
    out!("{}", r.sentence);
}
