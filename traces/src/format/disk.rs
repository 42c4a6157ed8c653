//! What disks did while something else was recorded or replayed, on its way into a reel.

use std::collections::BTreeMap;

use crate::format::{
    manifest::{Device, Ledger, Probe},
    rows::{Bio, Block},
};

/// Rows of the block layer and what the manifest says of them.
#[derive(Clone, Debug, Default)]
pub struct DiskActivity {
    /// Requests.
    pub block: Vec<Block>,
    /// Bios.
    pub bio: Vec<Bio>,
    /// The disks.
    pub devices: Vec<Device>,
    /// The probes that saw them.
    pub probes: Vec<Probe>,
    /// Of the classes `block` and `bio`.
    pub ledger: BTreeMap<String, Ledger>,
    /// What was left out, by reason.
    pub left_out: BTreeMap<String, i64>,
}
