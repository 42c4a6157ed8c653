//! Limits of a recording: time, size, free space, latency.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::CaptureError;

/// Space that must stay free on the file system of the reel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinFree {
    /// Bytes.
    Bytes(i64),
    /// Percent of the size of the file system.
    Percent(f64),
}

impl MinFree {
    /// Bytes that are missing on a file system of this size; 0: none.
    fn missing_bytes(self, free_bytes: i64, total_bytes: i64) -> i64 {
        let least = match self {
            Self::Bytes(least) => least,
            Self::Percent(least) => (least * total_bytes as f64 / 100.0) as i64,
        };
        (least - free_bytes).max(0)
    }
}

/// Limits of a recording. The default has none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Time from the start.
    pub duration: Option<Duration>,
    /// Size of the reel.
    pub max_bytes: Option<i64>,
    /// Space that must stay free.
    pub min_free: Option<MinFree>,
    /// CPU time of the recorder, as a share of one CPU.
    pub cpu_share: Option<f64>,
    /// At [`Limits::max_bytes`] and [`Limits::min_free`], drop the oldest segments instead of ending.
    pub rotate: bool,
    /// With `rotate`, also drop what is older than this.
    pub span: Option<Duration>,
    /// On SIGUSR1 and on [`Limits::latency`], write a copy of the reel and continue.
    pub copies: bool,
    /// End, or write a copy, when an operation on a file takes at least this long.
    pub latency: Option<Duration>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The last recorded thread ended.
    #[default]
    Exit,
    /// A signal.
    Signal,
    /// [`Limits::duration`] was reached.
    Duration,
    /// [`Limits::max_bytes`] was reached.
    MaxSize,
    /// [`Limits::min_free`] was reached.
    MinFree,
    /// [`Limits::latency`] was reached. In a copy: any reason.
    Trigger,
    /// Writing the reel failed.
    Failed,
}

impl End {
    /// The value for the manifest: `exit`, `signal`, `duration`, `max_size`, `min_free`, `trigger` or `failed`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Duration => "duration",
            Self::MaxSize => "max_size",
            Self::MinFree => "min_free",
            Self::Trigger => "trigger",
            Self::Failed => "failed",
        }
    }
}

/// Interval between checks of free space.
const LOOK_FREE: Duration = Duration::from_millis(100);
/// Interval after space was missing: dropped files are freed with a delay.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Checks a running recording against its limits.
#[derive(Debug)]
pub(super) struct Watchman<'a> {
    limits: Limits,
    output: &'a Path,
    started: Instant,
    /// Time of the next check of free space.
    look_at: Instant,
}

impl<'a> Watchman<'a> {
    pub(super) fn new(limits: Limits, output: &'a Path, started: Instant) -> Self {
        Self { limits, output, started, look_at: started }
    }

    /// Whether limits rotate the reel instead of ending the recording.
    pub(super) fn rotates(&self) -> bool {
        self.limits.rotate
    }

    /// Time to sleep: `tick`, or less if the duration limit comes first.
    pub(super) fn at_most(&self, tick: Duration) -> Duration {
        self.limits.duration.map_or(tick, |d| tick.min(d.saturating_sub(self.started.elapsed())))
    }

    /// The limit that is reached, if any, for a reel of `reel_bytes`.
    pub(super) fn reached(&mut self, reel_bytes: i64) -> Option<End> {
        if self.limits.duration.is_some_and(|d| self.started.elapsed() >= d) {
            return Some(End::Duration);
        }
        if self.limits.rotate {
            return None;
        }
        if self.limits.max_bytes.is_some_and(|max| reel_bytes >= max) {
            return Some(End::MaxSize);
        }
        if self.missing_bytes() > 0 { Some(End::MinFree) } else { None }
    }

    /// Bytes missing on the file system of the output. Checks at most ten times per second and returns 0 in between.
    pub(super) fn missing_bytes(&mut self) -> i64 {
        let Some(min_free) = self.limits.min_free else { return 0 };
        if Instant::now() < self.look_at {
            return 0;
        }
        let missing = free_of(self.output).map_or(0, |(free, total)| min_free.missing_bytes(free, total));
        self.look_at = Instant::now() + if missing > 0 { LOOK_AGAIN } else { LOOK_FREE };
        missing
    }
}

/// Fails if too little space is free already, unless old segments can be dropped.
pub(super) fn expect_room(limits: &Limits, output: &Path) -> Result<(), CaptureError> {
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (limits.min_free, free_of(folder)) {
        (Some(min_free), Some((free_bytes, total)))
            if !limits.rotate && min_free.missing_bytes(free_bytes, total) > 0 =>
        {
            Err(CaptureError::NothingFree { free_bytes })
        }
        _ => Ok(()),
    }
}

/// Bytes free for unprivileged users, and total bytes, of the file system at `path`.
pub(super) fn free_of(path: &Path) -> Option<(i64, i64)> {
    let s = rustix::fs::statvfs(path).ok()?;
    Some(((s.f_bavail * s.f_frsize) as i64, (s.f_blocks * s.f_frsize) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_bytes_and_percent() {
        assert_eq!(MinFree::Bytes(100).missing_bytes(99, 1000), 1);
        assert_eq!(MinFree::Bytes(100).missing_bytes(100, 1000), 0);
        assert_eq!(MinFree::Percent(10.0).missing_bytes(60, 1000), 40);
        assert_eq!(MinFree::Percent(10.0).missing_bytes(100, 1000), 0);
    }

    #[test]
    fn the_size_is_a_limit() {
        let limits = Limits { max_bytes: Some(10), ..Limits::default() };
        let mut watchman = Watchman::new(limits, Path::new("/"), Instant::now());
        assert_eq!(watchman.reached(9), None);
        assert_eq!(watchman.reached(10), Some(End::MaxSize));
    }
}
