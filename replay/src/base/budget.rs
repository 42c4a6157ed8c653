//! What planning may cost. Planning takes time and memory in proportion to the rows of a reel; a reel made to cost more
//! is refused with an error instead of exhausting the machine.

use std::path::PathBuf;

use crate::ReplayError;

/// Memory that any plan may take, bytes.
const BASE_BYTES: u64 = 1 << 30;
/// Further memory for each byte of the reel's files.
const BYTES_PER_BYTE: u64 = 64;
/// Work that any plan may take. One unit takes about 100 ns.
const BASE_WORK: u64 = 1 << 24;
/// Further work for each row.
const WORK_PER_ROW: u64 = 512;
/// The memory in use is looked up after as many rows or events, or as much work.
const ROWS_PER_LOOK: u64 = 2048;
const WORK_PER_LOOK: u64 = 1 << 16;

/// Work done so far, by cause.
pub(crate) type Work = [(&'static str, u64)];

/// Memory of this process, bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    resident: u64,
    address_space: u64,
}

impl Memory {
    /// `None` without /proc.
    fn now() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/self/statm").ok()?;
        let mut pages = text.split(' ').map_while(|n| n.parse::<u64>().ok());
        let page_bytes = rustix::param::page_size() as u64;
        Some(Self { address_space: pages.next()? * page_bytes, resident: pages.next()? * page_bytes })
    }
}

/// Memory that the machine has for new work, bytes.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// What planning one reel may cost, and what it has cost so far.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    reel: PathBuf,
    before: Option<Memory>,
    /// How much memory may grow.
    most: Memory,
    rows: u64,
    looked_at: (u64, u64),
    work: u64,
}

impl Budget {
    /// For a reel whose files have `reel_bytes` together.
    pub(crate) fn new(reel: PathBuf, reel_bytes: u64) -> Self {
        let before = Memory::now();
        let share = |bytes: u64| bytes / 4 * 3;
        let allowed = BASE_BYTES.saturating_add(reel_bytes.saturating_mul(BYTES_PER_BYTE));
        let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
        let left = |m: Memory| limit.map_or(u64::MAX, |limit| share(limit.saturating_sub(m.address_space)));
        let most = Memory {
            resident: allowed.min(available_bytes().map_or(u64::MAX, share)),
            address_space: before.map_or(u64::MAX, left),
        };
        Self { reel, before, most, rows: 0, looked_at: (0, 0), work: 0 }
    }

    /// A row was read or an event visited.
    pub(crate) fn row(&mut self) -> Result<(), ReplayError> {
        self.rows += 1;
        self.look()
    }

    /// Work done so far.
    pub(crate) fn worked(&mut self, work: &Work) -> Result<(), ReplayError> {
        self.work = work.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n));
        let most = BASE_WORK.saturating_add(self.rows.saturating_mul(WORK_PER_ROW));
        if self.work > most {
            let cause = work.iter().max_by_key(|(_, n)| *n).map_or("", |(cause, _)| *cause);
            return Err(
                self.exceeded(format!("its {} rows take more than {most} steps, most of them for {cause}", self.rows))
            );
        }
        self.look()
    }

    /// Looks the memory in use up, unless it did so shortly before.
    fn look(&mut self) -> Result<(), ReplayError> {
        if self.rows - self.looked_at.0 < ROWS_PER_LOOK && self.work - self.looked_at.1 < WORK_PER_LOOK {
            return Ok(());
        }
        self.looked_at = (self.rows, self.work);
        let (Some(before), Some(now)) = (self.before, Memory::now()) else { return Ok(()) };
        let grown = |now: u64, before: u64, most: u64| now.saturating_sub(before) > most;
        if grown(now.resident, before.resident, self.most.resident)
            || grown(now.address_space, before.address_space, self.most.address_space)
        {
            let most = self.most.resident.min(self.most.address_space) >> 20;
            return Err(self.exceeded(format!("its first {} rows take more than {most} MiB of memory", self.rows)));
        }
        Ok(())
    }

    fn exceeded(&self, why: String) -> ReplayError {
        ReplayError::TooMuchToPlan { path: self.reel.clone(), why }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn work_in_proportion_to_rows_is_allowed_and_more_is_not() {
        let mut b = Budget::new("/r.reel".into(), 0);
        (0..1000).for_each(|_| b.row().unwrap());
        b.worked(&[("paths", BASE_WORK), ("forks", 1000 * WORK_PER_ROW)]).unwrap();
        let e = b.worked(&[("paths", BASE_WORK), ("forks", BASE_WORK)]).unwrap_err().to_string();
        assert!(e.starts_with("/r.reel: ") && e.contains("1000 rows") && e.contains("--to"), "{e}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut b = Budget::new("/r.reel".into(), 0);
        b.most.resident = 64 << 20;
        let mut held = Vec::new();
        let refused = (0..1 << 20).find_map(|i: u64| {
            held.push(vec![i; 128]);
            b.row().err()
        });
        let e = refused.unwrap().to_string();
        assert!(e.contains("more than 64 MiB of memory"), "{e}");
        assert!(held.len() < 1 << 18);
    }
}
