//! P7, sizes of requests: by powers of two, and the sixteen most frequent sizes.

use std::collections::HashMap;

use ioreel_analyze::events::requests::Class;

use super::panel::{About, CHART_HEIGHT, Issue, Needs, Panel, Spec};
use crate::{
    canvas::{
        scale::{bytes, count},
        theme::Ink,
    },
    model::shape::{Chart, Line, Shape, Slots},
};

pub(super) const SPEC: Spec = Spec {
    name: "sizes",
    title: "Sizes of requests",
    unit: "requests",
    about: About::Device,
    height: CHART_HEIGHT,
    make: |_| Ok(Box::new(Sizes { counts: HashMap::new(), logs: [[0; 2]; 64] })),
};

/// Number of exact sizes shown.
const TOP: usize = 16;
/// Maximum number of exact sizes counted. A real device has a few thousand.
const MOST_SIZES: usize = 1 << 16;

/// Maximum number of exact sizes returned.
const MOST_KEPT: usize = 4096;

struct Sizes {
    /// Number of reads and writes of each size.
    counts: HashMap<i64, [u64; 2]>,
    /// Number of reads and writes per power of two.
    logs: [[u64; 2]; 64],
}

impl Panel for Sizes {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn requests(&mut self, batch: &[Issue]) {
        for i in batch.iter().filter(|i| i.inside && i.request.class.is_data() && i.request.len_bytes > 0) {
            let (size, write) = (i.request.len_bytes, usize::from(i.request.class == Class::Write));
            self.logs[size.ilog2() as usize][write] += 1;
            if self.counts.len() < MOST_SIZES || self.counts.contains_key(&size) {
                self.counts.entry(size).or_default()[write] += 1;
            }
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let used = |i: &usize| self.logs[*i] != [0, 0];
        let (low, high) = (0..64).filter(used).fold((63, 9), |(low, high), i| (low.min(i), high.max(i)));
        // At least from one sector to 1 MiB, so that pictures are comparable.
        let (low, high) = (low.min(9), high.max(20));
        let side = |write: usize| (low..=high).map(|i| self.logs[i][write] as f64).collect();
        let series =
            |reads, writes| vec![Line::plain(Ink::Read, "read", reads), Line::plain(Ink::Write, "write", writes)];
        let logs = Chart {
            title: "powers of two".into(),
            slots: Slots::Numbered { first: low as i64, label: power, at: 0.0 },
            x: "at least".into(),
            top: None,
            series: series(side(0), side(1)),
            bars: true,
            note: String::new(),
        };
        let mut top: Vec<(i64, [u64; 2])> = self.counts.into_iter().collect();
        let all: u64 = top.iter().map(|(_, n)| n[0] + n[1]).sum();
        top.sort_by_key(|(size, n)| (std::cmp::Reverse(n[0] + n[1]), *size));
        let more = top.len().saturating_sub(TOP);
        let shown: u64 = top.iter().take(TOP).map(|(_, n)| n[0] + n[1]).sum();
        // More than are shown, because the sixteen largest depend on the other reels.
        top.truncate(MOST_KEPT);
        let side = |write: usize| top.iter().map(|(_, n)| n[write] as f64).collect();
        let exact = Chart {
            title: "most frequent, exactly".into(),
            slots: Slots::Named { keys: top.iter().map(|(size, _)| *size).collect(), label: exactly, most: TOP },
            x: String::new(),
            top: None,
            series: series(side(0), side(1)),
            bars: true,
            note: if more > 0 {
                format!("{} other sizes, {} requests", count(more as u64), count(all - shown))
            } else {
                String::new()
            },
        };
        Shape::Charts(vec![logs, exact])
    }
}

/// Label of a power of two in bytes, for every other one.
fn power(i: i64) -> Option<String> {
    (i % 2 == 1 && i < 63).then(|| bytes(1 << i))
}

/// A size without rounding.
fn exactly(size: i64) -> String {
    match size {
        s if s % (1 << 20) == 0 => format!("{}M", s >> 20),
        s if s % 1024 == 0 => format!("{}k", s >> 10),
        s => format!("{s}"),
    }
}
