//! Contents of the files that are there before the start.

use std::{io, os::fd::AsFd};

use rustix::{
    fs::ftruncate,
    io::{pwrite, write},
};

use crate::contents::{
    buffers::{PATTERN_BYTES, pattern},
    data::{Look, make},
};

/// Makes the pattern of what files hold another than that of what is written.
const SALT: u64 = 0x1F5_EED;
/// Made and written at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Data to fill files with.
#[derive(Debug)]
pub struct Filler {
    pattern: Vec<u8>,
    /// The seed, and what made data is to be like.
    made: Option<(u64, Look)>,
}

impl Filler {
    /// Data of this seed: with a look, made for each file; else one pattern without zeros, from different places on.
    pub fn new(seed: u64, look: Option<Look>) -> Self {
        let mut data = vec![0; if look.is_some() { PIECE_BYTES } else { PATTERN_BYTES }];
        pattern(seed ^ SALT, &mut data);
        Self { pattern: data, made: look.map(|look| (seed, look)) }
    }

    /// Writes data to a part of a file. The same part of the same file is always the same.
    pub(crate) fn fill_part(&self, fd: impl AsFd, from: i64, len: i64, (salt, key): (usize, u64)) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_BYTES.min(len.max(0) as usize)];
        let mut done = 0;
        while done < len {
            let at = from + done;
            let n = buffer.len().min((len - done) as usize);
            let data = match self.made {
                Some((seed, look)) => {
                    make(seed, key, look, at, &mut buffer[..n]);
                    &buffer[..n]
                }
                None => {
                    let start = (salt.wrapping_mul(8 * 37) + at as usize) % (self.pattern.len() - n);
                    &self.pattern[start..start + n]
                }
            };
            let written = pwrite(&fd, data, at as u64)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += written as i64;
        }
        Ok(())
    }

    /// Writes data and, up to `size_bytes`, leaves a hole after it. Files with different `salt`, or key, differ, so that no file
    /// system shares their blocks.
    pub fn fill(&self, fd: impl AsFd, size_bytes: i64, data_bytes: i64, (salt, key): (usize, u64)) -> io::Result<()> {
        match self.made {
            Some((seed, look)) => {
                let mut buffer = vec![0; PIECE_BYTES.min(data_bytes.max(0) as usize)];
                let mut at = 0;
                while at < data_bytes {
                    let n = buffer.len().min((data_bytes - at) as usize);
                    make(seed, key, look, at, &mut buffer[..n]);
                    all(&fd, &buffer[..n])?;
                    at += n as i64;
                }
            }
            None => {
                let data = &self.pattern;
                let mut left = data_bytes as usize;
                let mut at = salt.wrapping_mul(8 * 37) % (data.len() / 2);
                while left > 0 {
                    let n = left.min(data.len() - at);
                    all(&fd, &data[at..at + n])?;
                    left -= n;
                    at = (at + n) % data.len();
                }
            }
        }
        if size_bytes != data_bytes {
            ftruncate(&fd, size_bytes as u64)?;
        }
        Ok(())
    }
}

fn all(fd: impl AsFd, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match write(&fd, data)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => data = &data[n..],
        }
    }
    Ok(())
}
