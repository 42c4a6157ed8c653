//! Disk space reserved for the end of a recording, so that a recording that fills the disk still ends with a complete
//! reel.

use std::fs::File;

use rustix::fs::{FallocateFlags, fallocate, ftruncate};

use crate::private::Folder;

/// Reserve for the manifest. The small tables written at the end get the same amount.
const SHARE_BYTES: u64 = 64 << 10;
/// Growth of the manifest per segment.
const SEGMENT_BYTES: u64 = 256;

/// A nameless file, which disappears with the process however it ends. If there is no space for it, or the file system
/// cannot preallocate, there is no reserve.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    file: Option<File>,
    segments: usize,
}

impl Reserve {
    pub(super) fn new(reel: &Folder) -> Self {
        let reserve = Self { file: reel.unnamed_file().ok(), segments: 0 };
        reserve.allocate();
        reserve
    }

    fn bytes(&self) -> u64 {
        SHARE_BYTES + SEGMENT_BYTES * self.segments as u64
    }

    fn allocate(&self) {
        if let Some(file) = &self.file {
            // Best effort, see above.
            let _ = fallocate(file, FallocateFlags::empty(), 0, SHARE_BYTES + self.bytes());
        }
    }

    /// Adjusts the reserve to the number of segments.
    pub(super) fn grow(&mut self, segments: usize) {
        if segments > self.segments {
            // Doubled, so that this happens rarely.
            self.segments = segments * 2;
            self.allocate();
        }
    }

    /// Frees the space for the small tables, and keeps that of the manifest.
    pub(super) fn give_way(&self) {
        if let Some(file) = &self.file {
            // Best effort, see above.
            let _ = ftruncate(file, self.bytes());
        }
    }

    /// Frees all reserved space.
    pub(super) fn release(&mut self) {
        self.file = None;
    }
}
