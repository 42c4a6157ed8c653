//! The manifest while the recording runs: facts that a repair needs if the recorder dies.

use ioreel_traces::{
    Manifest, Result,
    manifest::{Mark, Mount},
};

use super::ledger;
use crate::{assemble::Assembler, host};

/// The manifest of a running recording.
#[derive(Debug)]
pub(crate) struct Standing {
    manifest: Manifest,
    /// Mounts at the start.
    mounts: Vec<Mount>,
    /// Number of file systems and of disks in the manifest on disk; `None`: nothing is on disk.
    written: Option<(usize, usize)>,
}

impl Standing {
    /// Starts with the facts known before the start.
    pub(crate) fn new(manifest: Manifest, mounts: Vec<Mount>) -> Self {
        Self { manifest, mounts, written: None }
    }

    /// Adds markers, of which these are all, and writes the manifest.
    pub(super) fn mark(&mut self, marks: Vec<Mark>, assembler: &Assembler) -> Result<()> {
        self.manifest.marks = marks;
        self.written = None;
        self.write_news(assembler)
    }

    /// Writes the manifest if file systems or disks were used that it lacks.
    pub(super) fn write_news(&mut self, assembler: &Assembler) -> Result<()> {
        let known = Some((assembler.touched.len(), assembler.disks.len()));
        if self.written == known {
            return Ok(());
        }
        self.written = known;
        let mut manifest = self.manifest.clone();
        // Sizes of later mounts are queried at the end: a file system that does not answer would stop the writer.
        let now = host::mounts();
        ledger::add_places(&mut manifest, assembler, self.mounts.iter().chain(&now));
        assembler.writer.write_manifest(&manifest)
    }
}
