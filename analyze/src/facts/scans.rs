//! Order in which files are opened and examined, against the order of their inodes on disk.

use rustc_hash::FxHashMap;

use super::{names::Names, operation::Ended, tally::Tally};

/// Maximum number of threads followed.
const MOST_TASKS: usize = 1 << 16;

/// Opens and stats of different files, one after another.
#[derive(Debug, Default)]
pub struct Scans {
    /// Steps from one file to another of the same file system.
    pub steps: u64,
    /// Steps back to a smaller inode number.
    pub backward: u64,
    /// Opens and stats that wait for the device. Share: the wait.
    pub waits: Tally,
    last: FxHashMap<i64, (i64, i64)>,
}

impl Scans {
    /// Handles an operation.
    pub(super) fn push(&mut self, ended: &Ended<'_>, names: &Names) {
        let is_open = ended.call.opens;
        if !(is_open || ended.call.stats) {
            return;
        }
        let op = ended.op;
        if ended.parts.device_ns > 0.0 {
            self.waits.push(ended, 0, ended.share_of(ended.parts.device_ns));
        }
        let Some(file) = op.file.filter(|_| is_open).and_then(|f| names.file(f)) else { return };
        if self.last.len() >= MOST_TASKS && !self.last.contains_key(&op.task) {
            return;
        }
        if let Some((sb_dev, ino)) = self.last.insert(op.task, (file.sb_dev, file.ino))
            && sb_dev == file.sb_dev
            && ino != file.ino
        {
            self.steps += 1;
            self.backward += u64::from(file.ino < ino);
        }
    }

    /// Share of steps back: one half for a random order, little for the order of the disk.
    pub fn disorder(&self) -> f64 {
        self.backward as f64 / self.steps.max(1) as f64
    }
}
