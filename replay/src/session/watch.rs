//! What the target's disks do during a replay, seen by whoever can see it: this crate cannot.

use ioreel_traces::disk::DiskActivity;

/// Watches the target's disks.
pub trait Watch {
    /// Operations are about to be issued; what was prepared is on the disk.
    fn begin(&mut self);
    /// All has been synced. Rows in ns since `epoch_ns` on the monotonic clock, or a sentence why not.
    fn end(self, epoch_ns: i64) -> Result<DiskActivity, String>;
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&mut self) {}
    fn end(self, _: i64) -> Result<DiskActivity, String> {
        Ok(DiskActivity::default())
    }
}
