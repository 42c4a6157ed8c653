//! Disk activity during a recording or replay, on its way into a reel.

use std::collections::BTreeMap;

use crate::format::{
    manifest::{Device, Ledger, Probe},
    rows::{Bio, Block},
};

/// Rows of the block layer, with their manifest entries.
#[derive(Clone, Debug, Default)]
pub struct DiskActivity {
    /// Requests.
    pub block: Vec<Block>,
    /// Bios.
    pub bio: Vec<Bio>,
    /// The disks.
    pub devices: Vec<Device>,
    /// The probes that recorded them.
    pub probes: Vec<Probe>,
    /// Ledger of the classes `block` and `bio`.
    pub ledger: BTreeMap<String, Ledger>,
    /// Number of events left out, by reason.
    pub left_out: BTreeMap<String, i64>,
}
