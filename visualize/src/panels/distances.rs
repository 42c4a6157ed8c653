//! P8, seek distances: signed, by powers of two, from the end of the previous request, and from the nearest end of the
//! previous 32, which is small for interleaved streams.

use super::panel::{About, CHART_HEIGHT, Issue, Needs, Panel, Spec};
use crate::{
    canvas::{scale::bytes, theme::Ink},
    model::shape::{Chart, Line, Shape, Slots},
};

pub(super) const SPEC: Spec = Spec {
    name: "distances",
    title: "Distances of seeks",
    unit: "reads and writes in dispatch order",
    about: About::Device,
    height: CHART_HEIGHT,
    make: |_| Ok(Box::new(Distances::default())),
};

/// Number of ends considered.
const WINDOW: usize = 32;
/// Slots on each side of zero.
const SIDE: usize = 56;

struct Distances {
    /// The last ends, in a ring buffer.
    ends: Vec<i64>,
    next: usize,
    last: Option<i64>,
    plain: Vec<u64>,
    windowed: Vec<u64>,
}

impl Default for Distances {
    fn default() -> Self {
        let zeroes = vec![0; 2 * SIDE + 1];
        Self { ends: Vec::with_capacity(WINDOW), next: 0, last: None, plain: zeroes.clone(), windowed: zeroes }
    }
}

/// The slot of a distance in sectors: 0 in the middle, then powers of two to each side.
fn slot(sectors: i64) -> usize {
    let far = sectors.unsigned_abs().checked_ilog2().map_or(0, |log| log as usize + 1).min(SIDE);
    if sectors < 0 { SIDE - far } else { SIDE + far }
}

/// Label of a slot's distance, for every fourth power of two.
fn distance(slot: i64) -> Option<String> {
    match slot {
        0 => Some("0".into()),
        _ if slot.abs() % 4 == 2 => {
            let sign = if slot > 0 { '+' } else { '-' };
            Some(format!("{sign}{}", bytes(512u64.checked_shl(slot.unsigned_abs() as u32 - 1)?)))
        }
        _ => None,
    }
}

impl Panel for Distances {
    fn needs(&self) -> Needs {
        Needs::Requests
    }

    fn cost(&self) -> u32 {
        2
    }

    fn requests(&mut self, batch: &[Issue]) {
        for r in batch.iter().filter(|i| i.inside && i.request.class.is_data()).map(|i| &i.request) {
            let end = r.end_sector();
            if let Some(last) = self.last.replace(end) {
                self.plain[slot(r.sector.saturating_sub(last))] += 1;
                // Of equally near ends, prefer the one before the request.
                let distances = self.ends.iter().map(|e| r.sector.saturating_sub(*e));
                let nearest = distances.min_by_key(|d| (d.unsigned_abs(), *d < 0));
                self.windowed[slot(nearest.unwrap_or(0))] += 1;
            }
            match self.ends.get_mut(self.next) {
                Some(oldest) => *oldest = end,
                None => self.ends.push(end),
            }
            self.next = (self.next + 1) % WINDOW;
        }
    }

    fn finish(self: Box<Self>) -> Shape {
        let used = (0..self.plain.len()).filter(|i| self.plain[*i] + self.windowed[*i] > 0);
        let far = used.map(|i| i.abs_diff(SIDE)).max().unwrap_or(0).clamp(12, SIDE);
        let cut = |counts: &[u64]| counts[SIDE - far..=SIDE + far].iter().map(|n| *n as f64).collect();
        let series = |ink, label: &str, counts: &[u64]| vec![Line::plain(ink, label, cut(counts))];
        let chart = |title: &str, series| Chart {
            title: title.into(),
            slots: Slots::Numbered { first: -(far as i64), label: distance, at: 0.5 },
            x: String::new(),
            top: None,
            series,
            bars: true,
            note: String::new(),
        };
        Shape::Charts(vec![
            chart("from the end of the previous request", series(Ink::Text, "", &self.plain)),
            chart("from the nearest end of the previous 32", series(Ink::Other, "", &self.windowed)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_powers_of_two_to_each_side() {
        let of = [0, 1, -1, 2, 3, 4, -4, i64::MAX, i64::MIN].map(slot);
        assert_eq!(of, [SIDE, SIDE + 1, SIDE - 1, SIDE + 2, SIDE + 2, SIDE + 3, SIDE - 3, 2 * SIDE, 0]);
    }
}
