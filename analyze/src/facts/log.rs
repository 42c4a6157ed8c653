//! A journal or log on disk, as its writes show it: where it lies, and how often it wraps.

/// A write that begins this far before the highest end so far, relative to the size seen, starts a new round.
const WRAP_SHARE: i64 = 2;
/// Maximum number of wraps whose times are kept.
const MOST_WRAPS: usize = 1 << 16;
/// Sectors of the smallest log that can wrap: below, a rewritten superblock of the log looks like one.
const LEAST_SECTORS: i64 = 256;

/// A log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// First sector written.
    pub first_sector: i64,
    /// The sector after the last one written.
    pub end_sector: i64,
    /// Where the last write ended.
    head: i64,
    writes: u64,
    /// When it wrapped.
    pub wraps_ns: Vec<i64>,
}

impl Log {
    /// Adds a write, in order of queueing.
    pub fn push(&mut self, t_ns: i64, sector: i64, end_sector: i64) {
        if sector < 0 {
            return;
        }
        if self.writes == 0 {
            (self.first_sector, self.end_sector) = (sector, end_sector);
        }
        self.writes += 1;
        let size = self.end_sector - self.first_sector;
        // One write back to the start may be the log's own superblock; the next one then goes on at the head.
        if size > LEAST_SECTORS && sector < self.head && (self.head - sector) > size / WRAP_SHARE {
            if sector <= self.first_sector + 8 && end_sector - sector <= 8 {
                self.first_sector = self.first_sector.min(sector);
                return;
            }
            if self.wraps_ns.len() < MOST_WRAPS {
                self.wraps_ns.push(t_ns);
            }
        }
        self.first_sector = self.first_sector.min(sector);
        self.end_sector = self.end_sector.max(end_sector);
        self.head = end_sector;
    }

    /// Bytes between its first and last sector written.
    pub fn size_bytes(&self) -> i64 {
        (self.end_sector - self.first_sector).saturating_mul(512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_wraps_when_it_begins_anew() {
        let mut log = Log::default();
        for i in 0..100i64 {
            // The superblock of the log, from time to time.
            if i % 10 == 0 {
                log.push(i, 1000, 1008);
            }
            let at = 1008 + i * 64 % 2048;
            log.push(i, at, at + 64);
        }
        assert_eq!(log.wraps_ns.len(), 3, "{log:?}");
        assert_eq!(log.size_bytes(), 2056 * 512);
    }
}
