//! What bounds a recording besides its end: time and room.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::CaptureError;

/// Room left free on the file system that the reel is written to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinFree {
    /// So many bytes.
    Bytes(i64),
    /// So many percent of the file system.
    Percent(f64),
}

impl MinFree {
    /// How much less than this is free of a file system of this size; 0: nothing.
    fn missing_bytes(self, free_bytes: i64, total_bytes: i64) -> i64 {
        let least = match self {
            Self::Bytes(least) => least,
            Self::Percent(least) => (least * total_bytes as f64 / 100.0) as i64,
        };
        (least - free_bytes).max(0)
    }
}

/// What a recording may use. Nothing is limited by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Time from the start.
    pub duration: Option<Duration>,
    /// Size of the reel.
    pub max_bytes: Option<i64>,
    /// Room left to others.
    pub min_free: Option<MinFree>,
    /// CPU time of the recorder, as a share of one CPU.
    pub cpu_share: Option<f64>,
    /// Go on at [`Limits::max_bytes`] and [`Limits::min_free`]: the oldest segments are dropped.
    pub rotate: bool,
    /// Drop what is older than this, with `rotate`.
    pub span: Option<Duration>,
    /// On SIGUSR1, and on [`Limits::latency`], make a reel of what is kept, and go on.
    pub copies: bool,
    /// End, or make a copy, when an operation on a file took this long.
    pub latency: Option<Duration>,
}

/// Why a recording ended; the word goes into the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The last recorded thread ended.
    #[default]
    Exit,
    /// A signal asked for it.
    Signal,
    /// [`Limits::duration`].
    Duration,
    /// [`Limits::max_bytes`].
    MaxSize,
    /// [`Limits::min_free`].
    MinFree,
    /// [`Limits::latency`]; in a copy, whatever it was made for.
    Trigger,
    /// The reel could not be written on.
    Failed,
}

impl End {
    /// `exit`, `signal`, `duration`, `max_size`, `min_free`, `trigger` or `failed`.
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

/// How often the file system is asked for its room.
const LOOK_FREE: Duration = Duration::from_millis(100);
/// The same after something was missing: what is dropped for it is free a little later.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Holds a running recording against its limits.
#[derive(Debug)]
pub(super) struct Watchman<'a> {
    limits: Limits,
    output: &'a Path,
    started: Instant,
    /// When to look at the room next.
    look_at: Instant,
}

impl<'a> Watchman<'a> {
    pub(super) fn new(limits: Limits, output: &'a Path, started: Instant) -> Self {
        Self { limits, output, started, look_at: started }
    }

    /// Whether limits make the reel rotate rather than end.
    pub(super) fn rotates(&self) -> bool {
        self.limits.rotate
    }

    /// So long as nothing that has a time comes before.
    pub(super) fn at_most(&self, tick: Duration) -> Duration {
        self.limits.duration.map_or(tick, |d| tick.min(d.saturating_sub(self.started.elapsed())))
    }

    /// The limit that is reached, if any, with the reel at `reel_bytes`.
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

    /// How much less the output's file system has free than it shall; looks ten times a second at most, and says 0 in between.
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

/// Whether there is the room now that is to be left while recording; where the oldest is dropped for it there need not be.
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

/// Bytes free to unprivileged users, and bytes in all, of the file system that `path` lies on.
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
