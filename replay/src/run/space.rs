//! Enforces the space that a replay may take on disks, before each call that can take some.
//!
//! What a plan says about space follows from sizes and offsets in the reel, which may be wrong or forged. So each call
//! that writes, reserves, copies or dirties asks here first. It takes from a credit, which is cheap. When the credit is
//! used up, the file systems are asked how much is really in use: a workload that overwrites or removes files takes less
//! than the sum of its writes. The credit is then what is left. What others write to the same file systems counts, too.

use std::{
    fmt::{Debug, Formatter},
    fs,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rustix::fs::{fstat, fstatvfs, syncfs};

use crate::{Call, ReplayError, contents::buffers::MAX_CALL_BYTES, reel::input::Rec};

/// Space of a new name, or of the block that a small write is rounded up to.
const BLOCK_BYTES: i64 = 4096;
/// Longest value of an extended attribute (`XATTR_SIZE_MAX`).
const LONGEST_VALUE_BYTES: i64 = 64 << 10;
/// Unwritten data is synced before measuring when less than this part of the limit is left.
const TIGHT: i64 = 16;

/// The space that a replay may take.
pub(crate) struct Space {
    max_bytes: i64,
    /// What calls may still take before the file systems are asked again.
    credit_bytes: AtomicI64,
    /// Granted to calls that have not returned.
    in_flight_bytes: AtomicI64,
    is_exhausted: AtomicBool,
    /// Asks the measuring thread. `None`: there is no limit.
    meter: Option<Mutex<Meter>>,
}

/// The thread that measures: replaying threads have no descriptors of ioreel's.
struct Meter {
    ask: Sender<bool>,
    answer: Receiver<i64>,
}

/// Space granted to one call. Dropping it says that the call has returned.
pub(crate) struct Grant<'a> {
    space: &'a Space,
    bytes: i64,
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.space.in_flight_bytes.fetch_sub(self.bytes, SeqCst);
        }
    }
}

impl Debug for Space {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

impl Space {
    /// At most `max_bytes` more than now, on the file systems of these directories.
    pub(crate) fn limited(dirs: Vec<OwnedFd>, max_bytes: i64) -> Result<Self, ReplayError> {
        let (ask, asked) = channel::<bool>();
        let (tell, answer) = channel();
        let mut devices = Vec::new();
        let dirs: Vec<OwnedFd> = dirs
            .into_iter()
            .filter(|dir| {
                let device = fstat(dir).map_or(0, |s| s.st_dev);
                let is_new = !devices.contains(&device);
                devices.push(device);
                is_new
            })
            .collect();
        let at_start = used_bytes(&dirs);
        thread::Builder::new()
            .name("space".into())
            .spawn(move || {
                for synced in asked {
                    if synced {
                        // If it fails, what is not written yet is missing from the measure.
                        for dir in &dirs {
                            let _ = syncfs(dir);
                        }
                    }
                    let grown = (used_bytes(&dirs) - at_start).max(0);
                    let unwritten = if synced { 0 } else { unwritten_bytes() };
                    if tell.send(grown.saturating_add(unwritten)).is_err() {
                        return;
                    }
                }
            })
            .map_err(|source| ReplayError::Io { doing: "starting a thread", source })?;
        Ok(Self {
            max_bytes,
            credit_bytes: AtomicI64::new(max_bytes),
            in_flight_bytes: AtomicI64::new(0),
            is_exhausted: AtomicBool::new(false),
            meter: Some(Mutex::new(Meter { ask, answer })),
        })
    }

    /// No limit.
    pub(crate) fn unlimited() -> Self {
        Self {
            max_bytes: i64::MAX,
            credit_bytes: AtomicI64::new(i64::MAX),
            in_flight_bytes: AtomicI64::new(0),
            is_exhausted: AtomicBool::new(false),
            meter: None,
        }
    }

    /// The limit.
    pub(crate) fn max_bytes(&self) -> i64 {
        self.max_bytes
    }

    /// Whether an operation was refused. The replay ends then.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted.load(SeqCst)
    }

    /// Grants an operation what it can take, or ends the replay. `None`: the operation must not be issued. An operation
    /// that failed in the recording is refused without consequences.
    pub(crate) fn grant(&self, r: &Rec, bytes: i64) -> Option<Grant<'_>> {
        if self.is_exhausted() {
            return None;
        }
        let grant = self.take(bytes);
        if grant.is_none() && r.ret >= 0 {
            self.is_exhausted.store(true, SeqCst);
        }
        grant
    }

    /// Grants that many bytes. `None` if the limit does not allow them.
    pub(crate) fn take(&self, bytes: i64) -> Option<Grant<'_>> {
        if bytes <= 0 || self.meter.is_none() {
            return Some(Grant { space: self, bytes: 0 });
        }
        self.in_flight_bytes.fetch_add(bytes, SeqCst);
        let grant = Grant { space: self, bytes };
        if self.credit_bytes.fetch_sub(bytes, SeqCst) >= bytes {
            return Some(grant);
        }
        self.credit_bytes.fetch_add(bytes, SeqCst);
        self.renew(bytes).then_some(grant)
    }

    /// Sets the credit to what is left of the limit and takes `bytes`, which are in flight already. Whether that much is
    /// left.
    fn renew(&self, bytes: i64) -> bool {
        /// Until calls in flight return, which may have taken less than they could.
        const PATIENCE: u32 = 200;
        let Some(meter) = &self.meter else { return true };
        let meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        for attempt in 0..PATIENCE {
            if self.is_exhausted() {
                return false;
            }
            // Another thread may have renewed it meanwhile.
            if self.credit_bytes.fetch_sub(bytes, SeqCst) >= bytes {
                return true;
            }
            self.credit_bytes.fetch_add(bytes, SeqCst);
            let others = self.in_flight_bytes.load(SeqCst) - bytes;
            let mut left = self.left(&meter, false).saturating_sub(others);
            if left < bytes || left < self.max_bytes / TIGHT {
                left = self.left(&meter, true).saturating_sub(others);
            }
            if left >= bytes {
                self.credit_bytes.store(left - bytes, SeqCst);
                return true;
            }
            if others <= 0 || attempt + 1 == PATIENCE {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// What is left of the limit; `synced`: after writing out what is in the page cache.
    fn left(&self, meter: &Meter, synced: bool) -> i64 {
        let _ = meter.ask.send(synced);
        // Without an answer, nothing is known to be left.
        meter.answer.recv().map_or(0, |taken| self.max_bytes.saturating_sub(taken))
    }
}

/// Bytes in use on the file systems of these directories.
fn used_bytes(dirs: &[impl AsFd]) -> i64 {
    let used = |dir| {
        let space = fstatvfs(dir).ok()?;
        i64::try_from(space.f_blocks.saturating_sub(space.f_bfree).saturating_mul(space.f_frsize)).ok()
    };
    dirs.iter().filter_map(used).fold(0, i64::saturating_add)
}

/// Bytes of all file systems that wait to be written, for which some have not reserved space yet (/proc/meminfo).
fn unwritten_bytes() -> i64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<i64>().ok()
    };
    (kib("Dirty:").unwrap_or(0) + kib("Writeback:").unwrap_or(0)).saturating_mul(1024)
}

/// Bytes of disk that an operation can take at most. `mapped_bytes`: length of the mapping that it is about.
/// `source_bytes`: length of the file that it copies from; `None` if that is not open, as for a copy out of a pipe.
pub(crate) fn most_bytes(r: &Rec, mapped_bytes: impl Fn() -> i64, source_bytes: impl Fn() -> Option<i64>) -> i64 {
    const FREES: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_COLLAPSE_RANGE;
    let len = r.len_bytes.clamp(0, MAX_CALL_BYTES as i64);
    let data = match r.call {
        c if c.writes() => len,
        // A program that copies a whole file often asks for 2 GiB.
        c if c.copies() => {
            source_bytes().map_or(r.ret.clamp(0, MAX_CALL_BYTES as i64), |size| len.max(r.ret).min(size))
        }
        // Shares the data; otherwise, `copies::clone` asks for more.
        c if c.clones() || c.dedupes() => 0,
        Call::Fallocate if r.mode & FREES != 0 => return 0,
        Call::Fallocate => r.len_bytes.max(0),
        Call::Dirty => r.len_bytes.clamp(0, mapped_bytes().max(0)),
        Call::Madvise if r.flags == i64::from(libc::MADV_POPULATE_WRITE) => r.len_bytes.clamp(0, mapped_bytes().max(0)),
        c if c.opens() && (c == Call::Creat || r.flags as i32 & (libc::O_CREAT | libc::O_TMPFILE) != 0) => 0,
        c if c.sets_attribute() => r.len_bytes.clamp(0, LONGEST_VALUE_BYTES),
        c if c.links() || c.symlinks() || c.renames() => 0,
        Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat | Call::Truncate | Call::Ftruncate => 0,
        _ => return 0,
    };
    data.saturating_add(BLOCK_BYTES)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::*;

    fn space(dir: &std::path::Path, max_bytes: i64) -> Space {
        Space::limited(vec![fs::File::open(dir).unwrap().into()], max_bytes).unwrap()
    }

    #[test]
    fn what_is_overwritten_counts_once_and_what_grows_is_refused() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let max_bytes = 64 << 20;
        let space = space(dir.path(), max_bytes);
        let piece = vec![7; 8 << 20];
        let write_again = |name: &str| {
            let grant = space.take(piece.len() as i64)?;
            fs::File::create(dir.path().join(name)).unwrap().write_all(&piece).unwrap();
            drop(grant);
            Some(())
        };
        // Four times the limit, into the same place.
        for _ in 0..32 {
            assert!(write_again("same").is_some());
        }
        let written = (0..32).take_while(|i| write_again(&i.to_string()).is_some()).count();
        // Others may use the file system meanwhile.
        assert!((3..=8).contains(&written), "{written} pieces of 8 MiB within 64 MiB");
    }

    #[test]
    fn calls_in_flight_count_until_they_return() {
        // Other tests write meanwhile, but not that much.
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let space = space(dir.path(), 10 << 30);
        let first = space.take(7 << 30).unwrap();
        assert!(space.take(7 << 30).is_none());
        drop(first);
        assert!(space.take(7 << 30).is_some(), "it has taken nothing after all");
        assert!(space.take(i64::MAX).is_none());
        assert!(Space::unlimited().take(i64::MAX).is_some());
    }
}
