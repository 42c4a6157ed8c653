//! All seek statistics of one device, over reads and writes in dispatch order.
//!
//! * `seeks.exact`, `seeks.sw64k`: see [`crate::meters::seeks`].
//! * `seeks.btt`: signed distance between the closest edges of a request and the previous one. Overlapping or adjacent
//!   requests have distance 0. Counts distances other than 0; mean, median and mode are over all.
//! * `seeks.win16`: requests that do not start at the end of one of the previous 16. `seeks.win32_128k`: requests that
//!   start more than 128 KiB from the ends of all previous 32. Interleaved sequential streams do not seek by these
//!   definitions.
//! * `seq_ratio`: 1 - `seeks.exact` / (n - 1).
//! * `seeks.hdd_ms`: modelled head movement time of a disk, see [`HEAD_MS`].

use serde::Serialize;

use super::sample::Sample;
use crate::meters::seeks::SeekCounter;

/// Sectors in 128 KiB.
const WIN32_SECTORS: u64 = 256;
/// Seek time of a 7200 rpm disk, ms: `HEAD_MS.0 + HEAD_MS.1 * sqrt(sectors)`; 1 ms from track to track, 15 ms across 2 TiB.
pub const HEAD_MS: (f64, f64) = (1.0, 14.0 / 65536.0);
const WINDOW: usize = 32;

/// Follows one device.
#[derive(Clone, Debug, Default)]
pub(super) struct SeekMeter {
    counter: SeekCounter,
    previous: Option<(i64, i64)>,
    recent: Recent,
    win16: u64,
    win32_128k: u64,
    btt: u64,
    distance_sum: i128,
    distances: Sample,
    head_ms: f64,
}

/// Ends of the last requests.
#[derive(Clone, Debug)]
struct Recent {
    /// A ring.
    ends: [i64; WINDOW],
    seen: usize,
    /// Number of ends per hash of their position. Most requests of a random load are known to be far from all ends
    /// after two lookups.
    in_places: [u8; 256],
}

impl Default for Recent {
    fn default() -> Self {
        Self { ends: [0; WINDOW], seen: 0, in_places: [0; 256] }
    }
}

impl Recent {
    /// Whether any end is within [`WIN32_SECTORS`] of `start`, and whether one of the last 16 is exactly there.
    fn near(&self, start: i64) -> (bool, bool) {
        let reach = WIN32_SECTORS as i64;
        let places = [start.saturating_sub(reach), start.saturating_add(reach)].map(place);
        if places.iter().all(|p| self.in_places[*p] == 0) {
            return (false, false);
        }
        let (have, mut near) = (self.seen.min(WINDOW), false);
        for back in 1..=have {
            let distance = self.ends[(self.seen - back) % WINDOW].abs_diff(start);
            near |= distance <= WIN32_SECTORS;
            if distance == 0 && back <= 16 {
                return (true, true);
            }
            if near && back >= 16 {
                break;
            }
        }
        (near, false)
    }

    fn push(&mut self, end: i64) {
        let slot = &mut self.ends[self.seen % WINDOW];
        let gone = std::mem::replace(slot, end);
        if self.seen >= WINDOW {
            self.in_places[place(gone)] -= 1;
        }
        self.in_places[place(end)] += 1;
        self.seen += 1;
    }
}

/// Hash of a position in units of 512 KiB: everything within reach of a sector is in one or two units.
fn place(sector: i64) -> usize {
    ((sector >> 10).unsigned_abs().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// The statistics. Distances are in sectors of 512 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SeekStats {
    /// Possible seeks: reads and writes except the first.
    pub candidates: u64,
    /// `seeks.exact`.
    pub exact: u64,
    /// `seeks.sw64k`.
    pub sw64k: u64,
    /// `seeks.btt`.
    pub btt: u64,
    /// Mean of the signed distances, zeroes included.
    pub btt_mean_sectors: f64,
    /// Their median.
    pub btt_median_sectors: i64,
    /// Their mode.
    pub btt_mode_sectors: i64,
    /// `seeks.win16`.
    pub win16: u64,
    /// `seeks.win32_128k`.
    pub win32_128k: u64,
    /// `seq_ratio`; 1 if there is no possible seek.
    pub seq_ratio: f64,
    /// `seeks.hdd_ms`.
    pub hdd_ms: f64,
    /// Median and mode use one in this many distances.
    pub sampled: u64,
}

impl SeekMeter {
    /// Adds the next dispatched read or write with sectors `[start, end)`.
    pub(super) fn push(&mut self, start: i64, end: i64) {
        self.counter.push(start, end);
        if let Some((last_start, last_end)) = self.previous.replace((start, end)) {
            let distance = if start > last_end {
                start.saturating_sub(last_end)
            } else if end < last_start {
                end.saturating_sub(last_start)
            } else {
                0
            };
            self.btt += u64::from(distance != 0);
            self.distance_sum += i128::from(distance);
            self.distances.push(distance);
            let moved = last_end.abs_diff(start);
            if moved != 0 {
                self.head_ms += HEAD_MS.0 + HEAD_MS.1 * (moved as f64).sqrt();
            }
            let (near, exact) = self.recent.near(start);
            self.win32_128k += u64::from(!near);
            self.win16 += u64::from(!exact);
        }
        self.recent.push(end);
    }

    /// The statistics.
    pub(super) fn stats(self) -> SeekStats {
        let seeks = self.counter.seeks();
        let n = seeks.candidates as f64;
        let sampled = self.distances.step();
        let (median, mode) = self.distances.median_and_mode().unwrap_or_default();
        SeekStats {
            candidates: seeks.candidates,
            exact: seeks.exact,
            sw64k: seeks.sw64k,
            btt: self.btt,
            btt_mean_sectors: if seeks.candidates == 0 { 0.0 } else { self.distance_sum as f64 / n },
            btt_median_sectors: median,
            btt_mode_sectors: mode,
            win16: self.win16,
            win32_128k: self.win32_128k,
            seq_ratio: if seeks.candidates == 0 { 1.0 } else { 1.0 - seeks.exact as f64 / n },
            hdd_ms: self.head_ms,
            sampled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(starts: impl IntoIterator<Item = i64>, len: i64) -> SeekStats {
        let mut m = SeekMeter::default();
        starts.into_iter().for_each(|s| m.push(s, s + len));
        m.stats()
    }

    #[test]
    fn sixteen_interleaved_streams_are_sequential_by_the_window_and_seventeen_are_not() {
        let streams = |k: i64| (0..k * 100).map(move |i| (i % k) * (1 << 32) + i / k * 8);
        let s = of(streams(16), 8);
        assert_eq!((s.candidates, s.exact, s.win16), (1599, 1599, 15), "only each stream's first is a seek");
        let s = of(streams(17), 8);
        assert_eq!((s.exact, s.win16, s.win32_128k), (1699, 1699, 16));
        assert_eq!(of(streams(33), 8).win32_128k, 3299);
    }

    #[test]
    fn windows_are_as_counted_out() {
        let (mut m, mut seed, mut ends) = (SeekMeter::default(), 9u64, Vec::<i64>::new());
        let (mut win16, mut win32) = (0, 0);
        for i in 0..20_000i64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (seed >> 40) as i64;
            let start = match random % 4 {
                0 => ends
                    .get(ends.len().wrapping_sub(1 + random as usize / 4 % 40))
                    .map_or(0, |e| (*e).min(i64::MAX - 8)),
                1 => ends.last().copied().unwrap_or(0).saturating_add(random / 4 % 600 - 300).min(i64::MAX - 8),
                2 => random - (1 << 23),
                _ => [i64::MIN, -1, 0, i64::MAX - 8][random as usize / 4 % 4],
            };
            let last = |n: usize| ends[ends.len().saturating_sub(n)..].iter();
            if i > 0 {
                win16 += u64::from(!last(16).any(|e| *e == start));
                win32 += u64::from(!last(32).any(|e| e.abs_diff(start) <= WIN32_SECTORS));
            }
            m.push(start, start + 8);
            ends.push(start + 8);
        }
        let s = m.stats();
        assert_eq!((s.win16, s.win32_128k), (win16, win32));
    }

    #[test]
    fn btt_distances_are_signed_and_between_closest_edges() {
        // 0-8, then 100-108 (+92), then 50-58 (-42), then 54-62 (overlap), then 62-70 (touching).
        let s = of([0, 100, 50, 54, 62], 8);
        assert_eq!((s.candidates, s.btt), (4, 2));
        assert_eq!(s.btt_mean_sectors, (92.0 - 42.0) / 4.0);
        assert_eq!((s.btt_median_sectors, s.btt_mode_sectors), (0, 0));
    }

    #[test]
    fn a_sequential_stream_costs_the_head_nothing_at_any_address() {
        for base in [0, 1 << 31, (1 << 40) - 80_000] {
            let s = of((0..10_000).map(|i| base + i * 8), 8);
            assert_eq!((s.exact, s.sw64k, s.btt, s.win16, s.win32_128k), (0, 0, 0, 0, 0));
            assert_eq!((s.seq_ratio, s.hdd_ms), (1.0, 0.0));
        }
    }

    #[test]
    fn head_time_follows_the_curve() {
        // 100 jumps over 2^32 sectors: 15 ms each.
        let s = of((0..101).map(|i| i * ((1 << 32) + 8)), 8);
        assert!((s.hdd_ms - 1500.0).abs() < 1e-6, "{}", s.hdd_ms);
    }
}
