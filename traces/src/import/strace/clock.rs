//! Times of lines on one scale, whichever kind the text has.

use super::line::{Event, Line, Time};

pub(super) const DAY_NS: i64 = 86_400 * 1_000_000_000;
/// A time of day that is less than this before the last one's midnight is late, and not of the next day.
const LATE_NS: i64 = 3600 * 1_000_000_000;
/// Time between two lines where the text has no times.
const STEP_NS: i64 = 1000;

/// The kind of times in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// No times.
    #[default]
    Order,
    /// ns since 1970.
    Epoch,
    /// Time of day, without a date.
    Day,
    /// Time since the line before.
    Relative,
}

impl Kind {
    pub(super) fn of(time: Time) -> Self {
        match time {
            Time::None => Self::Order,
            Time::Epoch(_) => Self::Epoch,
            Time::Day(_) => Self::Day,
            Time::Relative(_) => Self::Relative,
        }
    }

    /// Whether lines of different files can be ordered by their times.
    pub(super) fn is_common(self) -> bool {
        matches!(self, Self::Epoch | Self::Day)
    }
}

/// The day of each of these times of day, which begin texts of one run: those after a midnight are of day 1.
pub(super) fn days(starts: &[i64]) -> Vec<i64> {
    let mut sorted = starts.to_vec();
    sorted.sort_unstable();
    let next_day = sorted.windows(2).find(|w| w[1] - w[0] > DAY_NS / 2).map(|w| w[0]);
    starts.iter().map(|start| i64::from(next_day.is_some_and(|last| *start <= last))).collect()
}

/// Follows the times of a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    kind: Kind,
    /// Whether small numbers are times of a clock that was never set: the survey decides.
    early: bool,
    /// The time of the last line, ns.
    now: i64,
    /// Midnights passed.
    days: i64,
    last_of_day: Option<i64>,
}

impl Clock {
    /// `days`: midnights before the text. `early`: the times are of a clock that was never set.
    pub(super) fn new(kind: Kind, early: bool, days: i64) -> Self {
        Self { kind, early, days, ..Self::default() }
    }

    /// The time of the next line. `None` if it is of another kind than the text's.
    pub(super) fn at(&mut self, line: &Line<'_>) -> Option<i64> {
        let at = match (self.kind, line.time) {
            (Kind::Epoch, Time::Epoch(ns)) => ns,
            (Kind::Epoch, Time::Relative(ns)) if self.early => ns,
            (Kind::Day, Time::Day(ns)) => {
                // A clock that is set back goes back by less than half a day.
                match self.last_of_day {
                    Some(last) if last - ns > DAY_NS / 2 => self.days += 1,
                    Some(last) if self.days > 0 && ns - last > DAY_NS - LATE_NS => self.days -= 1,
                    _ => {}
                }
                self.last_of_day = Some(ns);
                ns.saturating_add(self.days.saturating_mul(DAY_NS))
            }
            (Kind::Relative, Time::Relative(ns)) => self.now.saturating_add(ns),
            (Kind::Order, Time::None) => {
                let at = self.now;
                let dur_ns = match &line.event {
                    Event::Call { end, .. } | Event::Resumed { end, .. } => end.dur_ns.unwrap_or(0),
                    _ => 0,
                };
                self.now = at.saturating_add(dur_ns.max(0)).saturating_add(STEP_NS);
                return Some(at);
            }
            _ => return None,
        };
        self.now = at;
        Some(at)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::{super::line::parse, *};

    fn times(kind: Kind, lines: &[&str]) -> Vec<Option<i64>> {
        let mut clock = Clock::new(kind, false, 0);
        lines.iter().map(|l| clock.at(&parse(l.as_bytes()).unwrap())).collect()
    }

    #[test]
    fn times_go_on_over_midnight_and_add_up() {
        let s = 1_000_000_000;
        let day = [
            "23:59:59 a() = 0",
            "23:59:58.5 a() = 0",
            "00:00:01 a() = 0",
            "a() = 0",
            "23:00:00 a() = 0",
            "01:00:00 a() = 0",
        ];
        let at = |days: i64, seconds: i64| Some(days * DAY_NS + seconds * s);
        assert_eq!(
            times(Kind::Day, &day),
            [at(0, 86_399), Some(86_398 * s + s / 2), at(1, 1), None, at(1, 82_800), at(2, 3600)]
        );
        // Two threads around midnight.
        let late = ["23:59:59 a() = 0", "00:00:01 a() = 0", "23:59:59.5 a() = 0", "00:00:02 a() = 0"];
        let half = Some(86_399 * s + s / 2);
        assert_eq!(times(Kind::Day, &late), [at(0, 86_399), at(1, 1), half, at(1, 2)]);
        let hours = |all: &[i64]| days(&all.iter().map(|h| h * 3600 * s).collect::<Vec<_>>());
        assert_eq!((hours(&[]), hours(&[23, 0, 22, 1]), hours(&[1, 12, 23])), (vec![], vec![0, 1, 0, 1], vec![0; 3]));
        assert_eq!(
            times(Kind::Relative, &["0.000000 a() = 0", "0.5 a() = 0", "0.25 a() = 0"]),
            [0, s / 2, s * 3 / 4].map(Some)
        );
        // Only a text of a clock that was never set has small times since 1970.
        let epoch = ["1700000000.5 a() = 0", "2.5 a() = 0"];
        assert_eq!(times(Kind::Epoch, &epoch), [Some(1_700_000_000 * s + s / 2), None]);
        let mut early = Clock::new(Kind::Epoch, true, 0);
        assert_eq!(early.at(&parse(epoch[1].as_bytes()).unwrap()), Some(2 * s + s / 2));
        assert_eq!(
            times(Kind::Order, &["a() = 0 <0.5>", "a() = 0", "a() = 0"]),
            [0, s / 2 + 1000, s / 2 + 2000].map(Some)
        );
    }
}
