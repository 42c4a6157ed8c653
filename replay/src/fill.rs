//! Contents of the files that are there before the start.

use std::{io, os::fd::AsFd};

use rustix::{fs::ftruncate, io::write};

use crate::buffers::{PATTERN_BYTES, pattern};

/// Seed of what files hold, other than that of what is written.
pub const SEED: u64 = 0x1F5_EED;

/// Data to fill files with.
#[derive(Debug)]
pub struct Filler(Vec<u8>);

impl Filler {
    /// Pseudo-random data without zeros, the same for the same seed.
    pub fn new(seed: u64) -> Self {
        let mut data = vec![0; PATTERN_BYTES];
        pattern(seed, &mut data);
        Self(data)
    }

    /// Writes data and, up to `size_bytes`, leaves a hole after it. Files with different `salt` differ, so that no file
    /// system shares their blocks.
    pub fn fill(&self, fd: impl AsFd, size_bytes: i64, data_bytes: i64, salt: usize) -> io::Result<()> {
        let data = &self.0;
        let mut left = data_bytes as usize;
        let mut at = salt.wrapping_mul(8 * 37) % (data.len() / 2);
        while left > 0 {
            let n = write(&fd, &data[at..at + left.min(data.len() - at)])?;
            left -= n;
            at = (at + n) % data.len();
        }
        if size_bytes != data_bytes {
            ftruncate(&fd, size_bytes as u64)?;
        }
        Ok(())
    }
}
