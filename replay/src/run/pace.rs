//! When a step is due.

use crate::reel::recorder::Recorder;

/// How time passes in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    /// Each operation at its recorded time.
    Original,
    /// The same with time stretched by a factor.
    Scale(Factor),
    /// Each thread computes between operations for as long as it did.
    Think,
    /// As many operations are in flight as there were.
    Load,
    /// Nothing is waited for but order.
    #[default]
    Max,
}

/// A factor of time, in millionths: 2 000 000 takes twice as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor(i64);

impl Factor {
    /// From 0.000001 to 1 000 000.
    pub fn new(factor: f64) -> Option<Self> {
        (1e-6..=1e6).contains(&factor).then(|| Self((factor * 1e6).round() as i64))
    }

    /// The factor as given.
    pub fn get(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// A time or duration stretched.
    pub fn of(self, ns: i64) -> i64 {
        i64::try_from(i128::from(ns) * i128::from(self.0) / 1_000_000).unwrap_or(i64::MAX)
    }
}

/// What is done with a schedule that a stall has made impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// The schedule moves later for all threads, whose distances stay.
    Shift,
    /// The schedule stays: what is late is issued as fast as order allows until all is on time again.
    #[default]
    Compress,
    /// The schedule of the thread that stalled moves later, and that of no other.
    None,
}

impl CatchUp {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shift => "shift",
            Self::Compress => "compress",
            Self::None => "none",
        }
    }
}

/// So late an operation has met a stall: schedules move for nothing less, since many small delays would add up to
/// a drift.
pub const STALL_NS: i64 = 1_000_000;

/// All that says when steps are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clockwork {
    /// How time passes.
    pub pace: Pace,
    /// What follows a stall, at the paces that have a schedule.
    pub catch_up: CatchUp,
}

/// The event a thread's computing time counts from: when it happened in the recording and now. It is the
/// latest of the thread's birth, the return of its last operation, and the ends of the children it
/// had to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Base {
    /// ns of the reel.
    pub recorded_ns: i64,
    /// ns of the replay.
    pub now_ns: i64,
    /// By how much the thread's schedule has moved later ([`CatchUp::None`]).
    pub lag_ns: i64,
    /// When what it waited for came through a pipe, of a thread that has issued nothing since; ns of the replay.
    pub passed_ns: Option<i64>,
}

impl Base {
    /// The later of two events by the recording.
    pub fn later(self, other: Self) -> Self {
        if other.recorded_ns > self.recorded_ns { other } else { self }
    }

    /// The thread's next event.
    pub fn at(self, recorded_ns: i64, now_ns: i64) -> Self {
        Self { recorded_ns, now_ns, lag_ns: self.lag_ns, passed_ns: None }
    }

    /// When what happened at `recorded_ns` is to happen, computing time kept.
    pub fn due_ns(self, recorded_ns: i64) -> i64 {
        self.now_ns.saturating_add(recorded_ns.saturating_sub(self.recorded_ns).max(0))
    }
}

impl Pace {
    /// As on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Original => "original".into(),
            Self::Scale(f) => format!("scale={}", f.get()),
            Self::Think => "think".into(),
            Self::Load => "load".into(),
            Self::Max => "max".into(),
        }
    }

    /// Whether each operation has a time of its own, counted from one epoch.
    pub fn has_schedule(self) -> bool {
        matches!(self, Self::Original | Self::Scale(_))
    }

    /// A recorded duration as it is to be now.
    pub fn stretched_ns(self, ns: i64) -> i64 {
        match self {
            Self::Scale(f) => f.of(ns),
            _ => ns,
        }
    }

    /// How late the replayer issued what was due and had nothing to wait for since `ready_ns`. It is made up for: computing times
    /// count from when the operation would have ended, those of threads that waited for it too.
    pub(crate) fn owed_ns(self, ready_ns: i64, start_ns: i64) -> i64 {
        if self == Self::Think { start_ns.saturating_sub(ready_ns).max(0) } else { 0 }
    }

    /// What recording took of a call's time, where computing times are kept.
    pub fn recorder_ns(self, recorder: Recorder) -> i64 {
        if self == Self::Think { recorder.call_ns } else { 0 }
    }

    /// When an operation recorded at `start_ns` is to be issued, ns of the replay, were it not for stalls; `None` for
    /// as soon as the order, or the number in flight, allows.
    pub fn due_ns(self, start_ns: i64, base: Base) -> Option<i64> {
        match self {
            Self::Original => Some(start_ns),
            Self::Scale(f) => Some(f.of(start_ns)),
            Self::Think => Some(base.due_ns(start_ns)),
            Self::Load | Self::Max => None,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn each_pace_has_its_own_clock() {
        let base = Base { recorded_ns: 1_000, now_ns: 400, ..Base::default() };
        assert_eq!(Pace::Original.due_ns(1_500, base), Some(1_500));
        assert_eq!(Pace::Scale(Factor::new(0.5).unwrap()).due_ns(1_500, base), Some(750));
        assert_eq!(Pace::Think.due_ns(1_500, base), Some(900));
        assert_eq!(Pace::Max.due_ns(1_500, base), None);
        assert_eq!(Pace::Load.due_ns(1_500, base), None);
    }

    #[test]
    fn factors_do_not_overflow() {
        assert_eq!(Factor::new(1e6).unwrap().of(i64::MAX), i64::MAX);
        assert_eq!(Factor::new(3.0).unwrap().of(7), 21);
        assert!(Factor::new(0.0).is_none() && Factor::new(f64::NAN).is_none() && Factor::new(-1.0).is_none());
    }

    #[test]
    fn computing_time_counts_from_the_child_that_was_waited_for() {
        let own = Base { recorded_ns: 1_000, now_ns: 400, ..Base::default() };
        let child = Base { recorded_ns: 9_000, now_ns: 2_000, ..Base::default() };
        assert_eq!(own.later(child).due_ns(9_100), 2_100);
    }
}
