//! Quiet stretches, and a time axis without them.
//!
//! A picture of ten seconds in which something happens for one is nine tenths white. A stretch in which no operation runs
//! and nothing is in flight on the drawn device can be cut out: no event reaches into it, so all durations stay as they are.

use ioreel_analyze::events::{
    bios::{Bio, each_bio},
    calls::{Call, each_call},
    requests::{Request, requests},
};
use ioreel_traces::Reel;

use crate::{
    Result,
    canvas::{
        raster::Cells,
        scale::{decimals, nice_step, time_unit},
    },
    model::survey::Survey,
};

/// Whether quiet stretches are cut out of the time axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SkipIdle {
    /// If more than half of the time is quiet.
    #[default]
    Auto,
    /// Whenever there are any.
    Always,
    /// Never.
    Never,
}

/// Parts of the time that are told apart.
const PARTS: u32 = 4096;
/// A stretch is cut if it has at least this share of the time.
const LEAST_SHARE: i64 = 50;
/// Maximum number of cuts: each has a mark.
const MOST_CUTS: usize = 12;
/// Of a cut stretch, one part in this many of what is left in all stays at each end, so that the mark does not lie on an
/// event.
const MARGIN_SHARE: i64 = 100;

/// What is cut out of a time axis. Times on the axis are those of the reel minus what was cut before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Squeeze {
    /// Cut stretches in order, disjoint: from, to.
    cuts: Vec<(i64, i64)>,
}

impl Squeeze {
    /// What to cut out of the picture of a reel.
    pub(crate) fn of(reel: &Reel, survey: &Survey, when: SkipIdle) -> Result<Self> {
        if when == SkipIdle::Never {
            return Ok(Self::default());
        }
        let is_drawn = |dev: i64| survey.device.as_ref().is_some_and(|d| d.dev == dev);
        let mut busy = Busy::new(survey.from_ns, survey.to_ns);
        each_call(reel, |c| {
            if !c.by_tool {
                busy.add(c.start_ns, if c.in_flight { i64::MAX } else { c.end_ns() });
            }
        })?;
        let mut all = requests(reel);
        while let Some(batch) = all.next_batch()? {
            batch.iter().filter(|r| is_drawn(r.dev)).for_each(|r| busy.add_request(r));
        }
        each_bio(reel, |b| {
            if is_drawn(b.dev) {
                busy.add(b.queue_ns, b.complete_ns.unwrap_or(i64::MAX));
            }
        })?;
        Ok(Self::without(&busy, when))
    }

    fn without(busy: &Busy, when: SkipIdle) -> Self {
        let span = busy.cells.to - busy.cells.from;
        let mut quiet = busy.quiet();
        quiet.retain(|(from, to)| to - from >= span / LEAST_SHARE);
        quiet.sort_by_key(|(from, to)| (std::cmp::Reverse(to - from), *from));
        quiet.truncate(MOST_CUTS);
        let idle: i64 = quiet.iter().map(|(from, to)| to - from).sum();
        if when == SkipIdle::Auto && idle <= span / 2 {
            return Self::default();
        }
        let margin = (span - idle) / MARGIN_SHARE;
        let mut cuts: Vec<(i64, i64)> = quiet.into_iter().map(|(from, to)| (from + margin, to - margin)).collect();
        cuts.retain(|(from, to)| from < to);
        cuts.sort_unstable();
        Self { cuts }
    }

    /// Cuts on the axis: its place there, and how much was cut.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (i64, i64)> {
        self.cuts.iter().map(|(from, to)| (self.place(*from), to - from))
    }

    /// The place of a time on the axis. Times in a cut stretch are all at its place.
    pub(crate) fn place(&self, t_ns: i64) -> i64 {
        if self.cuts.is_empty() {
            return t_ns;
        }
        let cut = |(from, to): &(i64, i64)| (t_ns.min(*to) - from).max(0);
        t_ns - self.cuts.iter().take_while(|(from, _)| *from < t_ns).map(cut).sum::<i64>()
    }

    /// Moves a request to its place on the axis.
    pub(crate) fn request(&self, r: &mut Request) {
        r.issue_ns = self.place(r.issue_ns);
        r.queue_ns = r.queue_ns.map(|t| self.place(t));
        r.complete_ns = r.complete_ns.map(|t| self.place(t));
    }

    /// Moves a call to its place on the axis.
    pub(crate) fn call<'a>(&self, c: &Call<'a>) -> Call<'a> {
        Call { start_ns: self.place(c.start_ns), ..*c }
    }

    /// Moves a bio to its place on the axis.
    pub(crate) fn bio<'a>(&self, b: &Bio<'a>) -> Bio<'a> {
        Bio { queue_ns: self.place(b.queue_ns), complete_ns: b.complete_ns.map(|t| self.place(t)), ..*b }
    }

    /// The time of the reel that an axis covers, ns.
    pub(crate) fn span_ns(&self, axis: Cells) -> i64 {
        self.cuts.iter().map(|(from, to)| to - from).fold(axis.to - axis.from, i64::saturating_add)
    }

    /// Ticks of the axis with the times of the reel: place and label. About `count` of them.
    pub(crate) fn ticks(&self, axis: Cells, count: u32) -> Vec<(i64, String)> {
        let end_ns = axis.from.saturating_add(self.span_ns(axis));
        let (_, unit) = time_unit(end_ns.saturating_sub(axis.from).max(1));
        // Steps are at least one nanosecond.
        let least = (axis.to - axis.from).max(1) as f64 / unit / f64::from(count.max(1));
        let step = nice_step(least).max(1.0 / unit);
        let mut ticks = Vec::new();
        let mut from = axis.from;
        for (to, next) in self.cuts.iter().copied().chain([(end_ns, end_ns)]) {
            let first = (from as f64 / unit / step).ceil();
            let values = (0..=count * 6).map(|i| (first + f64::from(i)) * step);
            let times = values.map(|v| ((v * unit).round() as i64, v)).take_while(|(t, _)| *t <= to);
            ticks.extend(times.map(|(t, v)| (self.place(t), format!("{v:.*}", decimals(step)))));
            from = next;
        }
        ticks
    }
}

/// Which parts of the time have events.
struct Busy {
    cells: Cells,
    used: Vec<bool>,
}

impl Busy {
    fn new(from: i64, to: i64) -> Self {
        let count = PARTS.min(u32::try_from(to - from).unwrap_or(PARTS)).max(1);
        Self { cells: Cells { from, to, count }, used: vec![false; count as usize] }
    }

    fn add(&mut self, from: i64, to: i64) {
        if let Some((first, last)) = self.cells.span(from, to) {
            self.used[first as usize..=last as usize].fill(true);
        }
    }

    fn add_request(&mut self, r: &Request) {
        let from = r.queue_ns.unwrap_or(r.issue_ns).min(r.issue_ns);
        self.add(from, r.complete_ns.unwrap_or(i64::MAX));
    }

    /// Stretches without events between parts with events, and at the ends.
    fn quiet(&self) -> Vec<(i64, i64)> {
        let at = |i: usize| {
            let share = i as i128 * i128::from(self.cells.to - self.cells.from) / i128::from(self.cells.count);
            self.cells.from + share as i64
        };
        let mut out = Vec::new();
        let mut i = 0;
        while i < self.used.len() {
            let end = i + self.used[i..].iter().take_while(|used| !**used).count();
            if end > i {
                out.push((at(i), at(end)));
            }
            i = end.max(i) + 1;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn squeeze(events: &[(i64, i64)], to: i64, when: SkipIdle) -> Squeeze {
        let mut busy = Busy::new(0, to);
        events.iter().for_each(|(from, to)| busy.add(*from, *to));
        Squeeze::without(&busy, when)
    }

    #[test]
    fn only_long_quiet_stretches_are_cut_and_nothing_reaches_into_them() {
        let events = [(0, S), (4 * S, 5 * S), (5 * S + S / 10, 5 * S + S / 5), (9 * S, 10 * S)];
        let s = squeeze(&events, 10 * S, SkipIdle::Auto);
        assert_eq!(s.cuts.len(), 2, "{s:?}");
        for (from, to) in events {
            assert_eq!(s.place(to) - s.place(from), to - from, "{from}");
        }
        let end = s.place(10 * S);
        assert!((3 * S..4 * S).contains(&end), "{end}");
        assert_eq!(s.place(0), 0);
        let places: Vec<i64> = (0..1000).map(|i| s.place(i * S / 100)).collect();
        assert!(places.is_sorted());
    }

    #[test]
    fn a_busy_picture_is_cut_only_on_demand() {
        let events = [(0, 6 * S), (9 * S, 10 * S)];
        assert_eq!(squeeze(&events, 10 * S, SkipIdle::Auto), Squeeze::default());
        assert_eq!(squeeze(&events, 10 * S, SkipIdle::Always).cuts.len(), 1);
        assert_eq!(squeeze(&[(0, 10 * S)], 10 * S, SkipIdle::Always), Squeeze::default());
    }

    #[test]
    fn ticks_have_the_times_of_the_reel() {
        let s = Squeeze { cuts: vec![(2 * S, 8 * S)] };
        let axis = Cells { from: 0, to: 4 * S, count: 400 };
        let ticks = s.ticks(axis, 4);
        let labels: Vec<&str> = ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(labels, ["0", "1", "2", "8", "9", "10"]);
        assert!(ticks.iter().all(|t| (0..=4 * S).contains(&t.0)) && ticks.is_sorted_by_key(|t| t.0));
        let plain = Squeeze::default().ticks(axis, 4);
        assert_eq!(plain, crate::canvas::scale::time_ticks(0, 4 * S, 4));
    }
}
