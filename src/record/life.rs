//! Arguments about the life of a recording: what ends it, and what it may use.

use std::time::Duration;

use ioreel_capture::record::{Limits, MinFree};

use crate::quantity;

/// What ends a recording, and what it may use.
#[derive(clap::Args, Debug)]
pub(super) struct Life {
    /// Stops recording after this long (seconds, or 90s, 10m, 2h); the command runs on
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time)]
    duration: Option<Duration>,
    /// Ends the recording when the reel reaches this size (bytes, or 100M, 2G); the command runs on
    #[arg(long, value_name = "SIZE", value_parser = quantity::some_bytes)]
    max_size: Option<i64>,
    /// Goes on at --max-size and --min-free, and drops the oldest segments; with a time, also what is older than that
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, value_parser = quantity::some_time)]
    rotate: Option<Option<Duration>>,
    /// Keeps the last so much time (--rotate=TIME); SIGUSR1, or --trigger-latency, puts it into a reel of its own beside
    /// -o, called by the time in UTC, and the recording goes on
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time, conflicts_with = "rotate")]
    flight_recorder: Option<Duration>,
    /// Ends the recording when an operation on a file has taken this long (100ms); with --flight-recorder, copies what is
    /// kept, once in its time at most
    #[arg(long, value_name = "TIME", value_parser = quantity::some_time)]
    trigger_latency: Option<Duration>,
    /// Ends the recording when the reel's file system has less free than this (bytes, 2G or 10%)
    #[arg(long, value_name = "SIZE|%", value_parser = min_free)]
    min_free: Option<MinFree>,
    /// Holds the recorder itself to so much of one CPU (5, 12.5): events wait in the rings meanwhile, and what finds no
    /// room is lost and counted
    #[arg(long, value_name = "PERCENT", value_parser = cpu_percent, conflicts_with = "lossless")]
    cpu_budget: Option<f64>,
    /// Stops the recorded processes while the rings are emptied, rather than losing an operation; stops are in the
    /// table `stops`, and parents see them (docs/record.md)
    #[arg(long)]
    pub(super) lossless: bool,
    /// Ends with status 3 when any event was lost; the reel is kept
    #[arg(long)]
    pub(super) strict: bool,
}

impl Life {
    /// As configuration.
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

    /// As words of the command line, for the manifest.
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
        _ => Err("not a percentage of one CPU, 1 at least".into()),
    }
}

fn min_free(s: &str) -> Result<MinFree, String> {
    match s.strip_suffix('%') {
        Some(percent) => match percent.parse::<f64>() {
            Ok(p) if (0.0..=100.0).contains(&p) => Ok(MinFree::Percent(p)),
            _ => Err("not a percentage from 0% to 100%".into()),
        },
        None => quantity::bytes(s).map(MinFree::Bytes),
    }
}
