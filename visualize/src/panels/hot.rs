//! P10, hot places: requests by address, the share of requests in the hottest places, and the number of used places
//! over time. A place is 1 MiB; if more than a million are used, a power of two of it.

use std::collections::HashMap;

use ioreel_analyze::meters::{bins::Bins, visits::Visits};
use rustc_hash::FxBuildHasher;

use super::panel::{About, CHART_HEIGHT, Issue, Needs, Panel, Spec};
use crate::{
    canvas::{
        scale::{bytes, count, time_ticks},
        theme::Ink,
    },
    model::{
        offset_axis::OffsetAxis,
        shape::{Chart, Line, Shape, Slots},
    },
};

pub(super) const SPEC: Spec = Spec {
    name: "hot",
    title: "Hot places",
    unit: "",
    about: About::Device,
    height: CHART_HEIGHT,
    make: |s| {
        let slots = s.time.count.min(PROFILE);
        Ok(Box::new(Hot {
            bins: Bins::new(s.bins.edges_ns(0).0, s.bins.edges_ns(s.bins.count() - 1).1, s.bins.width_ns() * 4),
            shift: 11,
            places: HashMap::default(),
            in_use: vec![0; s.bins.count()],
            axis: OffsetAxis { row_px: 1, ..s.offsets.scaled(slots) },
            profile: vec![0; slots as usize],
            visits: Visits::of(MOST_VISITS),
        }))
    },
};

/// Slots of the address profile.
const PROFILE: u32 = 200;
/// Maximum number of blocks of 4 KiB that are counted: 2 TiB.
const MOST_VISITS: u64 = 1 << 29;
/// Maximum number of places.
const MOST_PLACES: usize = 1 << 20;

struct Hot {
    bins: Bins,
    /// Size of a place in sectors, as power of two.
    shift: u32,
    /// Number of requests per place, and the bin after its last use.
    places: HashMap<i64, (u64, u32), FxBuildHasher>,
    /// Number of places used in each bin.
    in_use: Vec<u64>,
    axis: OffsetAxis,
    profile: Vec<u64>,
    visits: Visits,
}

impl Hot {
    fn grow(&mut self) {
        self.shift += 1;
        for (place, (n, bin)) in std::mem::take(&mut self.places) {
            let joined = self.places.entry(place >> 1).or_default();
            *joined = (joined.0 + n, joined.1.max(bin));
        }
    }
}

/// Zipf exponent: the slope of counts over rank, both logarithmic, at ranks of equal ratio, so that the many cold
/// places do not outweigh the hot ones.
fn theta(sorted: &[u64]) -> Option<f64> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut rank = 1.0f64;
    while (rank as usize) <= sorted.len() {
        let i = rank as usize;
        if points.last().is_none_or(|(x, _)| *x < (i as f64).ln()) {
            points.push(((i as f64).ln(), (sorted[i - 1] as f64).ln()));
        }
        rank *= 1.19;
    }
    let n = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let (sxy, sxx) = points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + (x - mx) * (y - my), b + (x - mx).powi(2)));
    (points.len() >= 8 && sxx > 0.0).then(|| -sxy / sxx)
}

impl Panel for Hot {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn cost(&self) -> u32 {
        4
    }

    fn requests(&mut self, batch: &[Issue]) {
        for i in batch.iter().filter(|i| i.inside && i.request.class.is_data() && i.request.sector >= 0) {
            let r = &i.request;
            let bin = self.bins.index(r.issue_ns);
            let end = self.visits.clip(r.sector, r.end_sector());
            let last = end.max(r.sector.saturating_add(1)) - 1;
            for place in r.sector >> self.shift..=last >> self.shift {
                let (n, used) = self.places.entry(place).or_default();
                *n += 1;
                if let Some(bin) = bin
                    && *used != bin as u32 + 1
                {
                    *used = bin as u32 + 1;
                    self.in_use[bin] += 1;
                }
            }
            let (rows, profile) = (self.axis.rows, &mut self.profile);
            self.axis.spans(r.sector, last + 1, |(top, bottom)| {
                let (from, to) = ((rows - 1 - bottom) as usize, (rows - 1 - top) as usize);
                profile.get_mut(from..=to).into_iter().flatten().for_each(|n| *n += 1);
            });
            while self.places.len() > MOST_PLACES {
                self.grow();
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let place = bytes(512 << self.shift);
        let chart = |title: String, ticks, x: &str, top, line: Line, bars, note: String| Chart {
            title,
            slots: Slots::Same(ticks),
            x: x.into(),
            top,
            series: vec![line],
            bars,
            note,
        };
        let height = f64::from(self.axis.rows);
        let labels = self.axis.ticks().into_iter().map(|(from_top, label)| (height - from_top, label)).collect();
        let profile = Line::plain(Ink::Text, "", self.profile.iter().map(|n| *n as f64).collect());
        let unit = format!("{} from the device's start", self.axis.unit().0);
        let by_address = chart("requests by address".into(), labels, &unit, None, profile, true, String::new());

        let mut counts: Vec<u64> = self.places.values().map(|(n, _)| *n).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all: u64 = counts.iter().sum();
        let mut sum = 0;
        let mut at = 0;
        let slots = 100usize;
        let shares = (1..=slots).map(|i| {
            let until = counts.len() * i / slots;
            sum += counts[at..until].iter().sum::<u64>();
            at = until;
            sum as f64 * 100.0 / all.max(1) as f64
        });
        let line = Line::area(Ink::Hue(0), "", shares.collect());
        let ticks = (0..=4).map(|i| (f64::from(i) * 25.0, format!("{}", i * 25))).collect();
        let zipf = theta(&counts).map_or(String::new(), |t| format!(", Zipf theta {t:.2}"));
        let note = format!("{} places of {place}{zipf}", count(counts.len() as u64));
        let title = "% of requests in the hottest places".to_owned();
        let hottest = chart(title, ticks, "hottest places, %", Some(100.0), line, false, note);

        let line = Line::area(Ink::Other, "", self.in_use.iter().take(self.bins.count()).map(|n| *n as f64).collect());
        let (from, to) = (self.bins.edges_ns(0).0, self.bins.edges_ns(self.bins.count() - 1).1);
        let width = self.bins.count() as f64 / (to - from).max(1) as f64;
        let ticks = time_ticks(from, to, 4).into_iter().map(|(t, l)| ((t - from) as f64 * width, l)).collect();
        let unit = format!("time, {}", crate::canvas::scale::time_unit(to - from).0);
        let title = format!("places in use per {}", crate::canvas::scale::duration(self.bins.width_ns()));
        let used = chart(title, ticks, &unit, None, line, false, String::new());
        Shape::Charts(vec![by_address, hottest, used])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_of_a_zipf_distribution_is_found() {
        for exponent in [0.0, 0.7, 1.0, 1.3] {
            let counts: Vec<u64> = (1..=5000).map(|r| (1e9 / f64::from(r).powf(exponent)) as u64).collect();
            assert!(theta(&counts).is_some_and(|t| (t - exponent).abs() < 0.01), "{exponent}: {:?}", theta(&counts));
        }
        assert_eq!(theta(&[5, 4]), None);
    }
}
