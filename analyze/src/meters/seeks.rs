//! Seeks of one device: reads and writes in dispatch order. The first request is not a seek. Flushes, discards and
//! other requests neither count nor move the head.
//!
//! * `seeks.exact`: the request does not start at the sector where the previous one ended.
//! * `seeks.sw64k`: it starts more than 128 sectors (64 KiB) from there. This is Seekwatcher's rule with integers; with
//!   its 32-bit floats, a sequential stream at 1 TiB shows a seek every 32 requests.

use serde::Serialize;

/// The window of `seeks.sw64k`, sectors.
pub const SW64K_SECTORS: u64 = 128;

/// Follows one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct SeekCounter {
    previous_end: Option<i64>,
    seeks: Seeks,
}

/// Seeks counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seeks {
    /// Possible seeks: reads and writes except the first.
    pub candidates: u64,
    /// `seeks.exact`.
    pub exact: u64,
    /// `seeks.sw64k`.
    pub sw64k: u64,
}

/// Whether a request was a seek.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seek {
    /// By `seeks.exact`.
    pub exact: bool,
    /// By `seeks.sw64k`.
    pub sw64k: bool,
}

impl SeekCounter {
    /// Adds the next dispatched read or write with sectors `[start, end)`.
    pub fn push(&mut self, start: i64, end: i64) -> Seek {
        let Some(previous) = self.previous_end.replace(end) else { return Seek::default() };
        let distance = previous.abs_diff(start);
        let seek = Seek { exact: distance != 0, sw64k: distance > SW64K_SECTORS };
        self.seeks.candidates += 1;
        self.seeks.exact += u64::from(seek.exact);
        self.seeks.sw64k += u64::from(seek.sw64k);
        seek
    }

    /// The counts so far.
    pub fn seeks(&self) -> Seeks {
        self.seeks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses beyond which 32-bit floats, and then scaled 53-bit ones, are inexact.
    const BASES: [i64; 4] = [0, 1 << 31, 1 << 33, (1 << 40) - 2_000_000];

    #[test]
    fn a_sequential_stream_never_seeks_at_any_address() {
        for base in BASES {
            let mut c = SeekCounter::default();
            (0..100_000).for_each(|i| {
                c.push(base + i * 8, base + (i + 1) * 8);
            });
            assert_eq!(c.seeks(), Seeks { candidates: 99_999, exact: 0, sw64k: 0 }, "base {base}");
        }
    }

    #[test]
    fn every_true_seek_counts_once_at_any_address() {
        for base in BASES {
            let mut c = SeekCounter::default();
            (0..10_000).for_each(|i| {
                let start = base + if i % 2 == 0 { i * 8 } else { 1_000_000 + i * 8 };
                c.push(start, start + 8);
            });
            assert_eq!(c.seeks(), Seeks { candidates: 9_999, exact: 9_999, sw64k: 9_999 }, "base {base}");
        }
    }

    #[test]
    fn the_window_is_128_sectors_either_way() {
        for (step, exact, sw64k) in [(0, 0, 0), (1, 1, 0), (128, 1, 0), (129, 1, 1), (-128, 1, 0), (-129, 1, 1)] {
            let mut c = SeekCounter::default();
            c.push(1000, 1008);
            c.push(1008 + step, 1016 + step);
            assert_eq!(c.seeks(), Seeks { candidates: 1, exact, sw64k }, "step {step}");
        }
    }
}
