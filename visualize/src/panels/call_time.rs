//! Time in system calls by kind: how many are in progress at each moment. Rates hide a single call that takes half a
//! second; here it is as wide as it is long.

use ioreel_analyze::{
    events::calls::Call,
    meters::bins::{Bins, Overlap},
    summary::series::CallSeries,
};

use super::{
    calls::INKS,
    panel::{About, Needs, Panel, RATE_HEIGHT, Spec},
};
use crate::model::shape::{Line, Lines, Shape};

pub(super) const SPEC: Spec = Spec {
    name: "call-time",
    title: "Time in calls",
    unit: "mean calls in progress, stacked",
    about: About::Calls,
    height: RATE_HEIGHT,
    make: |s| Ok(Box::new(CallTime { bins: s.bins, times: std::array::from_fn(|_| Overlap::new(s.bins)) })),
};

struct CallTime {
    bins: Bins,
    /// By [`CallSeries::row`].
    times: [Overlap; 5],
}

impl Panel for CallTime {
    fn needs(&self) -> Needs {
        Needs::Calls
    }

    fn call(&mut self, call: &Call<'_>) {
        let end_ns = match call.dur_ns {
            Some(_) => call.end_ns(),
            None if call.in_flight => i64::MAX,
            None => return,
        };
        self.times[CallSeries::row(call.kind)].add(call.start_ns, end_ns);
    }

    fn finish(self: Box<Self>) -> Shape {
        let rows = CallSeries::ROWS.iter().zip(INKS).zip(&self.times);
        let lines = rows
            .map(|((name, ink), time)| (ink, name, time.means()))
            .filter(|(.., means)| means.iter().any(|v| *v > 0.0))
            .map(|(ink, name, means)| Line { fill: Some(0.75), width: 1.0, ..Line::plain(ink, name, means) })
            .collect();
        Shape::Lines(Lines { bins: self.bins, lines, stacked: true, top: None, note: String::new() })
    }
}
