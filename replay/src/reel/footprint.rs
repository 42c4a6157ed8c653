//! `--scale-footprint F`: positions and lengths for files that are F times as large as recorded, to fit a smaller
//! target.
//!
//! Block b of a file becomes block floor(F b). Several blocks may become the same block: the last of them keeps its
//! offsets within the block, the others start at its beginning. So aligned positions stay aligned, the order of
//! positions is kept, and distances never grow. Lengths shrink by the same rule, but not below one block: small reads
//! and writes keep their size and overlap more often. All operations get explicit positions, because the position of an
//! open file description would advance by other lengths.

use crate::{
    Call,
    reel::{
        input::{NO_ID, Rec},
        record_kind::shifts_data,
    },
};

/// Block size of the rule, bytes.
pub const SCALE_BLOCK_BYTES: i64 = 4096;

/// The factor, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(i64);

impl Default for Scale {
    fn default() -> Self {
        Self::NONE
    }
}

impl Scale {
    /// Does not scale.
    pub const NONE: Self = Self(1_000_000);

    /// `None` unless the factor is from 0.000001 to 1.
    pub fn new(factor: f64) -> Option<Self> {
        (1e-6..=1.0).contains(&factor).then(|| Self((factor * 1e6).round() as i64))
    }

    /// Whether nothing is scaled.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The factor.
    pub fn get(self) -> f64 {
        self.0 as f64 / 1e6
    }

    fn block(self, block: i64) -> i64 {
        (i128::from(block) * i128::from(self.0) / 1_000_000) as i64
    }

    /// Scales a position, bytes.
    pub fn position(self, at: i64) -> i64 {
        if self.is_none() || at <= 0 {
            return at;
        }
        let (block, rest) = (at / SCALE_BLOCK_BYTES, at % SCALE_BLOCK_BYTES);
        let to = self.block(block);
        let last = self.block(block + 1) > to;
        to * SCALE_BLOCK_BYTES + if last { rest } else { 0 }
    }

    /// Scales a file size, bytes. Every byte within the recorded size stays within the scaled one; the recorded end, if
    /// used unscaled, is at or beyond the new end.
    pub fn size(self, size: i64) -> i64 {
        if self.is_none() || size <= SCALE_BLOCK_BYTES {
            return size;
        }
        self.block((size - 1) / SCALE_BLOCK_BYTES) * SCALE_BLOCK_BYTES + SCALE_BLOCK_BYTES
    }

    /// Scales the length of a range that starts at `at`, bytes.
    pub fn length(self, at: i64, len: i64) -> i64 {
        if self.is_none() || len <= SCALE_BLOCK_BYTES {
            return len;
        }
        let at = at.max(0);
        (self.size(at.saturating_add(len)) - self.position(at)).clamp(SCALE_BLOCK_BYTES, len)
    }

    /// Scales a fallocate that removes or inserts a range. File systems take only whole blocks inside the file there, and
    /// the scaled file must be as long afterwards as its recorded length says. Where no such range exists, and where
    /// the recorded length before (`size`) is unknown, the length is set instead.
    pub(crate) fn apply_to_shift(self, r: &mut Rec, size: Option<i64>) {
        let b = SCALE_BLOCK_BYTES;
        let removes = r.mode == libc::FALLOC_FL_COLLAPSE_RANGE;
        let whole = |n: i64| n / b * b;
        let Some(size) = size else {
            let at = r.offset_bytes.max(0);
            r.len_bytes = whole(self.length(at, r.len_bytes)).max(b);
            r.offset_bytes = whole(self.position(at));
            return;
        };
        let after = if removes { size.saturating_sub(r.len_bytes) } else { size.saturating_add(r.len_bytes) }.max(0);
        let (from, to) = (self.size(size), self.size(after));
        let len = (to - from).abs();
        // The last block at which the range may start: some of the file must come behind it.
        let last = whole(if removes { from - len - 1 } else { from - 1 });
        if len == 0 || len % b != 0 || last < 0 || from - if removes { len } else { 0 } < 1 {
            // Scaled like any other, later.
            (r.call, r.mode, r.offset_bytes, r.len_bytes) = (Call::Ftruncate, 0, NO_ID, after);
            return;
        }
        r.offset_bytes = whole(self.position(r.offset_bytes.max(0))).min(last);
        r.len_bytes = len;
    }

    /// Scales positions and lengths of an operation.
    pub(crate) fn apply(self, r: &mut Rec) {
        if self.is_none() {
            return;
        }
        let known = r.offset_bytes != NO_ID;
        let at = r.offset_bytes.max(0);
        match r.call {
            c if c.opens() => r.flags &= !i64::from(libc::O_APPEND),
            Call::SetFl => r.aux &= !i64::from(libc::O_APPEND),
            c if (c.reads() || c.writes()) && r.regular && known => {
                r.loose = true;
                r.call = match c {
                    Call::Read => Call::Pread64,
                    Call::Write => Call::Pwrite64,
                    Call::Readv => Call::Preadv,
                    Call::Writev => Call::Pwritev,
                    c => c,
                };
                if matches!(c, Call::Preadv2 | Call::Pwritev2) {
                    r.aux2 = 0;
                    r.flags &= !i64::from(libc::RWF_APPEND);
                }
                if c.reads() && r.ret == 0 && r.len_bytes > 0 {
                    // A read at the end of the file found nothing. Its recorded position is beyond the scaled end as
                    // well.
                    return;
                }
                r.len_bytes = self.length(at, r.len_bytes);
                r.offset_bytes = self.position(at);
            }
            Call::Lseek if r.ret >= 0 && (0..=2).contains(&r.flags) => {
                (r.flags, r.aux) = (libc::SEEK_SET.into(), self.position(r.ret));
            }
            Call::Lseek if r.ret >= 0 => r.aux = self.position(r.aux),
            Call::Ftruncate | Call::Truncate => r.len_bytes = self.size(r.len_bytes),
            // splice between two files fails at any position.
            Call::Splice => {}
            c if c.copies() || c.clones() || c.dedupes() => {
                r.loose = true;
                if known {
                    r.len_bytes = self.length(at, r.len_bytes);
                    if !(c.copies() && r.ret == 0) {
                        r.offset_bytes = self.position(at);
                    }
                    if c.copies() {
                        r.aux &= !1;
                    }
                }
                if r.offset2_bytes != NO_ID && c != Call::Sendfile {
                    r.offset2_bytes = self.position(r.offset2_bytes);
                    if c.copies() {
                        r.aux &= !2;
                    }
                }
            }
            // Done by the planner, which knows the size of the file.
            Call::Fallocate if shifts_data(r) && r.ret >= 0 => {}
            Call::Fallocate | Call::Fadvise64 | Call::Readahead | Call::SyncFileRange => {
                r.len_bytes = self.length(at, r.len_bytes);
                r.offset_bytes = self.position(at);
            }
            Call::Mmap if known => r.offset_bytes = self.position(at),
            c if c.touches() => {
                // `offset2_bytes` is the offset within the mapping. The start of the mapping is scaled, too.
                let base = at.saturating_sub(r.offset2_bytes);
                r.offset2_bytes = self.position(at) - self.position(base);
                r.len_bytes = self.length(at, r.len_bytes);
                r.offset_bytes = self.position(at);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_and_nothing_more() {
        let b = SCALE_BLOCK_BYTES;
        let mut x = 12345_u64;
        let mut random = |below: i64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((x >> 33) as i64) % below
        };
        for factor in [0.000_001, 0.01, 0.1, 0.3, 0.5, 0.75, 0.999, 1.0] {
            let s = Scale::new(factor).unwrap();
            for _ in 0..3000 {
                let (at, len) = (random(40 * b), 1 + random(20 * b));
                let (to, short) = (s.position(at), s.length(at, len));
                assert!(to <= at && short <= len && short >= len.min(b), "{factor} {at} {len}");
                assert_eq!(at % b == 0, at % b == 0 && to % b == 0, "aligned stays aligned");
                if at % b == 0 && len % b == 0 {
                    assert_eq!(short % b, 0);
                }
                // Any byte of the range is inside the scaled range, and inside a scaled file that ends with the range.
                let inside = at + random(len);
                assert!(s.position(inside) < to + short, "{factor} {at} {len} {inside}");
                assert!(s.position(inside) < s.size(at + len));
                assert!(s.size(at + len) <= (at + len).max(b), "its end stays at or behind the end");
                assert!(to + short <= at + len);
                assert!(s.position(at) <= s.position(at + 1) && s.position(at + 1) <= s.position(at) + 1);
            }
        }
    }

    #[test]
    fn shifted_ranges_are_whole_blocks_and_leave_the_scaled_length() {
        let b = SCALE_BLOCK_BYTES;
        for factor in [0.000_001, 0.01, 0.3, 0.5, 0.75, 0.999] {
            let s = Scale::new(factor).unwrap();
            for size in [2 * b, 3 * b + 1, 10 * b, 100 * b + 5, 1000 * b] {
                for (at, len) in [(0, b), (b, b), (1024, 1024), (b, size / b / 2 * b), (0, size / b * b - b)] {
                    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
                        let after = if mode == libc::FALLOC_FL_COLLAPSE_RANGE { size - len } else { size + len };
                        let mut r = Rec { call: Call::Fallocate, mode, ..Rec::none() };
                        (r.offset_bytes, r.len_bytes) = (at, len);
                        s.apply_to_shift(&mut r, Some(size));
                        s.apply(&mut r);
                        if r.call == Call::Ftruncate {
                            assert_eq!(r.len_bytes, s.size(after));
                            continue;
                        }
                        let what = format!("{factor} {size} {at} {len} {mode}: {} {}", r.offset_bytes, r.len_bytes);
                        assert!(r.len_bytes > 0 && r.len_bytes % b == 0 && r.offset_bytes % b == 0, "{what}");
                        let removes = mode == libc::FALLOC_FL_COLLAPSE_RANGE;
                        let by = if removes { -r.len_bytes } else { r.len_bytes };
                        assert_eq!(s.size(size) + by, s.size(after), "{what}");
                        let end = r.offset_bytes + if removes { r.len_bytes } else { 0 };
                        assert!(r.offset_bytes >= 0 && end < s.size(size), "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn factors_that_are_none() {
        for f in [0.0, -1.0, 1.000_001, 1e9, f64::NAN, f64::INFINITY] {
            assert_eq!(Scale::new(f), None);
        }
        let s = Scale::new(0.5).unwrap();
        assert!(s.position(i64::MAX) > 0 && s.size(i64::MAX) > 0 && s.length(i64::MAX, i64::MAX) > 0);
    }
}
