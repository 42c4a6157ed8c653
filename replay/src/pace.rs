//! When a step is due.

/// How time passes in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pace {
    /// Each operation at its recorded time.
    Original,
    /// Each thread computes between operations for as long as it did.
    Think,
    /// Nothing is waited for but order.
    #[default]
    Max,
}

impl Pace {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Think => "think",
            Self::Max => "max",
        }
    }
}

/// The event a thread's computing time counts from: when it happened in the recording and now. It is the
/// latest of the thread's birth, the return of its last operation, and the ends of the children it
/// had to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// ns of the reel.
    pub recorded_ns: i64,
    /// ns of the replay.
    pub now_ns: i64,
}

impl Base {
    /// The later of two events by the recording.
    pub fn later(self, other: Self) -> Self {
        if other.recorded_ns > self.recorded_ns { other } else { self }
    }

    /// When what happened at `recorded_ns` is to happen, computing time kept.
    pub fn due_ns(self, recorded_ns: i64) -> i64 {
        self.now_ns.saturating_add(recorded_ns.saturating_sub(self.recorded_ns).max(0))
    }
}

impl Pace {
    /// When an operation recorded at `start_ns` is to be issued, ns of the replay; `None` for as soon as
    /// the order allows.
    pub fn due_ns(self, start_ns: i64, base: Base) -> Option<i64> {
        match self {
            Self::Original => Some(start_ns),
            Self::Think => Some(base.due_ns(start_ns)),
            Self::Max => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pace_has_its_own_clock() {
        let base = Base { recorded_ns: 1_000, now_ns: 400 };
        assert_eq!(Pace::Original.due_ns(1_500, base), Some(1_500));
        assert_eq!(Pace::Think.due_ns(1_500, base), Some(900));
        assert_eq!(Pace::Max.due_ns(1_500, base), None);
    }

    #[test]
    fn computing_time_counts_from_the_child_that_was_waited_for() {
        let own = Base { recorded_ns: 1_000, now_ns: 400 };
        let child = Base { recorded_ns: 9_000, now_ns: 2_000 };
        assert_eq!(own.later(child).due_ns(9_100), 2_100);
    }
}
