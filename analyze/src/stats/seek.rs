//! All seek statistics of one device, over reads and writes in dispatch order.
//!
//! * `seeks.exact`, `seeks.sw64k`: see [`crate::seeks`].
//! * `seeks.btt`: signed distance between the closest edges of a request and the one before; overlapping or touching
//!   requests are 0 apart. Counted where not 0, with the mean, the true median and the mode over all.
//! * `seeks.win16`: requests that do not start where one of the 16 before ended. `seeks.win32_128k`: that start more than
//!   128 KiB from the ends of all of the 32 before. Streams that are dispatched interleaved do not seek by these.
//! * `seq_ratio`: 1 - `seeks.exact` / (n - 1).
//! * `seeks.hdd_ms`: what a disk's head would have spent moving, see [`HEAD_MS`].

use serde::Serialize;

use super::sample::Sample;
use crate::seeks::SeekCounter;

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
    /// Ends of the last requests, a ring.
    ends: [i64; WINDOW],
    seen: usize,
    win16: u64,
    win32_128k: u64,
    btt: u64,
    distance_sum: i128,
    distances: Sample,
    head_ms: f64,
}

/// The statistics. Distances are in sectors of 512 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SeekStats {
    /// Requests that could have been a seek: reads and writes less the first.
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
    /// `seq_ratio`; 1 where nothing could have been a seek.
    pub seq_ratio: f64,
    /// `seeks.hdd_ms`.
    pub hdd_ms: f64,
    /// Median and mode are of one distance in this many.
    pub sampled: u64,
}

impl SeekMeter {
    /// The next read or write that was dispatched: its sectors `[start, end)`.
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
            let have = self.seen.min(WINDOW);
            let mut near = [u64::MAX; WINDOW];
            for (n, e) in near.iter_mut().zip(&self.ends[..have]) {
                *n = e.abs_diff(start);
            }
            let all = near.iter().copied().min().unwrap_or(u64::MAX);
            self.win32_128k += u64::from(all > WIN32_SECTORS);
            // The last 16 in the ring; only looked for when any of 32 fits exactly.
            let exact = all == 0 && (1..=have.min(16)).any(|back| near[(self.seen - back) % WINDOW] == 0);
            self.win16 += u64::from(!exact);
        }
        self.ends[self.seen % WINDOW] = end;
        self.seen += 1;
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
