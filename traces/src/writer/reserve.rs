//! Room set aside on the reel's file system, so that a recording that fills it still ends in a whole reel.

use std::{fs::File, path::Path};

use rustix::fs::{FallocateFlags, fallocate, ftruncate};

/// For the manifest, and as much for the small tables written at the end.
const SHARE_BYTES: u64 = 64 << 10;
/// The manifest grows by so much with each segment.
const SEGMENT_BYTES: u64 = 256;

/// A file without a name, which goes with its owner however that ends. Where there is no room for it, or the file
/// system cannot set any aside, there is none.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    file: Option<File>,
    segments: usize,
}

impl Reserve {
    pub(super) fn new(reel: &Path) -> Self {
        let reserve = Self { file: tempfile::tempfile_in(reel).ok(), segments: 0 };
        reserve.allocate();
        reserve
    }

    fn bytes(&self) -> u64 {
        SHARE_BYTES + SEGMENT_BYTES * self.segments as u64
    }

    fn allocate(&self) {
        if let Some(file) = &self.file {
            // Best effort: see above.
            let _ = fallocate(file, FallocateFlags::empty(), 0, SHARE_BYTES + self.bytes());
        }
    }

    /// The reel has so many segments now.
    pub(super) fn grow(&mut self, segments: usize) {
        if segments > self.segments {
            // Twice: this is not asked for again soon.
            self.segments = segments * 2;
            self.allocate();
        }
    }

    /// Leaves its room to the small tables, and keeps what the manifest needs.
    pub(super) fn give_way(&self) {
        if let Some(file) = &self.file {
            // As above.
            let _ = ftruncate(file, self.bytes());
        }
    }

    /// Leaves all its room to others.
    pub(super) fn release(&mut self) {
        self.file = None;
    }
}
