//! Arguments of `ioreel record` that end a recording or limit its resources.

use std::time::Duration;

use ioreel_capture::record::{Limits, MinFree};

use crate::quantity;

/// End conditions and resource limits.
#[derive(clap::Args, Debug)]
pub(super) struct Life {
    /// Stop recording after this time (seconds, or 90s, 10m, 2h); the command keeps running
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time)]
    duration: Option<Duration>,
    /// Stop recording when the reel reaches this size (bytes, or 100M, 2G); the command keeps running
    #[arg(long, value_name = "SIZE", value_parser = quantity::some_bytes)]
    max_size: Option<i64>,
    /// When --max-size or --min-free is reached, drop the oldest segments and keep recording. With a time, also drop
    /// segments older than it
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = quantity::some_time)]
    rotate: Option<Option<Duration>>,
    /// Keep only the most recent TIME (as --rotate=TIME). On SIGUSR1 or --trigger-latency, copy it to a new reel next to -o,
    /// named by the time in UTC, and keep recording
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time, conflicts_with = "rotate")]
    flight_recorder: Option<Duration>,
    /// Stop recording after the first file operation that takes at least this long (100ms). With --flight-recorder, write a
    /// copy instead, at most once per its TIME
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time)]
    trigger_latency: Option<Duration>,
    /// Stop recording when the reel's file system has less free space than this (bytes, 2G or 10%)
    #[arg(long, value_name = "SIZE|%", value_parser = min_free)]
    min_free: Option<MinFree>,
    /// Limit the recorder to this share of one CPU, in percent (5, 12.5). Events wait in the rings; events that find the
    /// rings full are lost and counted
    #[arg(long, value_name = "PERCENT", value_parser = cpu_percent, conflicts_with = "lossless")]
    cpu_budget: Option<f64>,
    /// Stop recorded processes (SIGSTOP) while full rings are drained, so that no operation is lost. Table `stops` lists the
    /// stops; parent processes notice them (docs/record.md)
    #[arg(long)]
    pub(super) lossless: bool,
    /// Exit with status 3 if any event was lost; the reel is kept
    #[arg(long)]
    pub(super) strict: bool,
}

impl Life {
    /// The limits as configuration.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            duration: self.duration,
            max_bytes: self.max_size,
            min_free: self.min_free,
            cpu_share: self.cpu_budget.map(|percent| percent / 100.0),
            rotate: self.rotate.is_some() || self.flight_recorder.is_some(),
            span: self.rotate.flatten().or(self.flight_recorder),
            copies: self.flight_recorder.is_some(),
            latency: self.trigger_latency,
        }
    }

    /// The limits as command-line options, for the manifest.
    pub(super) fn words(&self) -> impl Iterator<Item = String> {
        let min_free = self.min_free.map(|m| match m {
            MinFree::Bytes(n) => format!("--min-free {n}"),
            MinFree::Percent(p) => format!("--min-free {p}%"),
        });
        let time = |d: Duration| format!("{}s", d.as_secs_f64());
        [
            self.rotate.map(|span| span.map_or("--rotate".into(), |d| format!("--rotate={}", time(d)))),
            self.flight_recorder.map(|d| format!("--flight-recorder {}", time(d))),
            self.trigger_latency.map(|d| format!("--trigger-latency {}", time(d))),
            self.duration.map(|d| format!("--duration {}", d.as_secs_f64())),
            self.max_size.map(|n| format!("--max-size {n}")),
            min_free,
            self.cpu_budget.map(|percent| format!("--cpu-budget {percent}")),
            self.lossless.then(|| "--lossless".into()),
            self.strict.then(|| "--strict".into()),
        ]
        .into_iter()
        .flatten()
    }
}

fn cpu_percent(s: &str) -> Result<f64, String> {
    match s.strip_suffix('%').unwrap_or(s).parse::<f64>() {
        Ok(p) if (1.0..=100_000.0).contains(&p) => Ok(p),
        _ => Err("expected a percentage of one CPU, at least 1".into()),
    }
}

fn min_free(s: &str) -> Result<MinFree, String> {
    match s.strip_suffix('%') {
        Some(percent) => match percent.parse::<f64>() {
            Ok(p) if (0.0..=100.0).contains(&p) => Ok(MinFree::Percent(p)),
            _ => Err("expected a percentage from 0% to 100%".into()),
        },
        None => quantity::bytes(s).map(MinFree::Bytes),
    }
}
