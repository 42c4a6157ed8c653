//! Deadlines: when an operation is due.

use crate::reel::recorder::Recorder;

/// Rule for issue times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    /// Each operation at its recorded time.
    Original,
    /// Each operation at its recorded time multiplied by a factor.
    Scale(Factor),
    /// Each thread computes between two operations as long as it did in the recording.
    Think,
    /// As many operations in flight as in the recording.
    Load,
    /// As soon as the order allows.
    #[default]
    Max,
}

/// A factor of time, in millionths: 2 000 000 takes twice as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor(i64);

impl Factor {
    /// A factor from 0.000001 to 1 000 000. `None` otherwise.
    pub fn new(factor: f64) -> Option<Self> {
        (1e-6..=1e6).contains(&factor).then(|| Self((factor * 1e6).round() as i64))
    }

    /// The factor.
    pub fn get(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// A time or duration multiplied by the factor.
    pub fn of(self, ns: i64) -> i64 {
        i64::try_from(i128::from(ns) * i128::from(self.0) / 1_000_000).unwrap_or(i64::MAX)
    }
}

/// What happens to the schedule after a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// The schedule moves later for all threads. Intervals between operations stay.
    Shift,
    /// The schedule stays. Late operations are issued as fast as the order allows.
    #[default]
    Compress,
    /// The schedule moves later only for the stalled thread.
    None,
}

impl CatchUp {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shift => "shift",
            Self::Compress => "compress",
            Self::None => "none",
        }
    }
}

/// An operation this late has met a stall. Shorter delays do not move the schedule, because they would add up to a
/// drift.
pub const STALL_NS: i64 = 1_000_000;

/// Pace and catch-up policy. Together they determine deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clockwork {
    /// Rule for issue times.
    pub pace: Pace,
    /// What happens after a stall, at paces with a schedule.
    pub catch_up: CatchUp,
}

/// The event from which a thread's think time counts, with its recorded and its replayed time. It is the latest of the
/// thread's birth, the return of its last operation, and the ends of children that it had to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Base {
    /// Recorded time, ns of the reel.
    pub recorded_ns: i64,
    /// Replayed time, ns of the replay.
    pub now_ns: i64,
    /// How much the thread's schedule has moved later ([`CatchUp::None`]), ns.
    pub lag_ns: i64,
    /// When data that the thread waited for had arrived through a pipe, if it has issued nothing since; ns of the
    /// replay.
    pub passed_ns: Option<i64>,
}

impl Base {
    /// The event that is later in the recording.
    pub fn later(self, other: Self) -> Self {
        if other.recorded_ns > self.recorded_ns { other } else { self }
    }

    /// The thread's next event.
    pub fn at(self, recorded_ns: i64, now_ns: i64) -> Self {
        Self { recorded_ns, now_ns, lag_ns: self.lag_ns, passed_ns: None }
    }

    /// When something recorded at `recorded_ns` is due, with the think time kept; ns of the replay.
    pub fn due_ns(self, recorded_ns: i64) -> i64 {
        self.now_ns.saturating_add(recorded_ns.saturating_sub(self.recorded_ns).max(0))
    }
}

impl Pace {
    /// Name on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Original => "original".into(),
            Self::Scale(f) => format!("scale={}", f.get()),
            Self::Think => "think".into(),
            Self::Load => "load".into(),
            Self::Max => "max".into(),
        }
    }

    /// Whether each operation has a deadline of its own, counted from one epoch.
    pub fn has_schedule(self) -> bool {
        matches!(self, Self::Original | Self::Scale(_))
    }

    /// A recorded duration, stretched by the pace.
    pub fn stretched_ns(self, ns: i64) -> i64 {
        match self {
            Self::Scale(f) => f.of(ns),
            _ => ns,
        }
    }

    /// How late the replayer issued an operation that was due and had nothing to wait for since `ready_ns`. Pace
    /// `think` makes up for it: the next think time, also that of threads that waited for the operation, counts from
    /// the time at which the operation would have ended without this lateness.
    pub(crate) fn owed_ns(self, ready_ns: i64, start_ns: i64) -> i64 {
        if self == Self::Think { start_ns.saturating_sub(ready_ns).max(0) } else { 0 }
    }

    /// Time that recording added to each call. Pace `think` subtracts it from think times.
    pub fn recorder_ns(self, recorder: Recorder) -> i64 {
        if self == Self::Think { recorder.call_ns } else { 0 }
    }

    /// Deadline without stalls of an operation recorded at `start_ns`, ns of the replay. `None`: as soon as the order,
    /// or the number in flight, allows.
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
