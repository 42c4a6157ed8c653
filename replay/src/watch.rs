//! What the target's disks do during a replay, seen by whoever can see it: this crate cannot.

use std::collections::BTreeMap;

use ioreel_traces::{
    manifest::{Device, Ledger, Probe},
    rows::{Bio, Block},
};

/// Rows of the block layer for the result reel, in the manifest's terms.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests.
    pub block: Vec<Block>,
    /// Bios.
    pub bio: Vec<Bio>,
    /// The disks.
    pub devices: Vec<Device>,
    /// The probes that saw them.
    pub probes: Vec<Probe>,
    /// By class.
    pub ledger: BTreeMap<String, Ledger>,
    /// By reason.
    pub left_out: BTreeMap<String, i64>,
}

/// Watches the target's disks.
pub trait Watch {
    /// Operations are about to be issued; what was prepared is on the disk.
    fn begin(&mut self);
    /// All has been synced. Rows in ns since `epoch_ns` on the monotonic clock, or a sentence why not.
    fn end(self, epoch_ns: i64) -> Result<Seen, String>;
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&mut self) {}
    fn end(self, _: i64) -> Result<Seen, String> {
        Ok(Seen::default())
    }
}
