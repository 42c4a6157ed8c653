//! Stores paths, names and attribute values as the kernel takes them.

use std::{collections::HashMap, ffi::CStr};

use ioreel_traces::{Text, text::to_bytes};

use crate::base::codec::{Get, Put};

/// NUL-terminated byte strings in one buffer, by index.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    bytes: Vec<u8>,
    starts: Vec<u32>,
}

impl Paths {
    /// Adds a string and returns its index.
    pub fn push(&mut self, bytes: &[u8]) -> u32 {
        self.starts.push(self.bytes.len() as u32);
        self.bytes.extend_from_slice(bytes);
        self.bytes.push(0);
        self.starts.len() as u32 - 1
    }

    fn with_nul(&self, i: u32) -> &[u8] {
        let Some(from) = self.starts.get(i as usize) else { return &[0] };
        let to = self.starts.get(i as usize + 1).map_or(self.bytes.len(), |s| *s as usize);
        self.bytes.get(*from as usize..to).unwrap_or(&[0])
    }

    /// The string with this index, for a call.
    pub fn c_str(&self, i: u32) -> &CStr {
        CStr::from_bytes_until_nul(self.with_nul(i)).unwrap_or(c"")
    }

    /// The bytes with this index, without the NUL.
    pub fn bytes(&self, i: u32) -> &[u8] {
        self.with_nul(i).split_last().map_or(&[], |(_, bytes)| bytes)
    }

    /// Memory in use.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + 4 * self.starts.len()
    }

    pub(crate) fn encode(&self, out: &mut Put) {
        out.bytes(&self.bytes);
        out.list(&self.starts, |out, s| out.number((*s).into()));
    }

    pub(crate) fn decode(get: &mut Get<'_>) -> Option<Self> {
        Some(Self { bytes: get.bytes()?.to_vec(), starts: get.list(|get| Some(get.number()? as u32))? })
    }
}

/// Distinct texts of the operations in memory.
#[derive(Debug, Default)]
pub struct Texts {
    /// Their bytes.
    pub paths: Paths,
    pub(crate) known: HashMap<Text, u32>,
}

impl Texts {
    /// The index of `text`. The kernel takes no NUL inside a path, so a text ends at the first one.
    pub fn intern(&mut self, text: &Text) -> u32 {
        if let Some(i) = self.known.get(text) {
            return *i;
        }
        let raw = to_bytes(text);
        let i = self.paths.push(raw.split(|b| *b == 0).next().unwrap_or_default());
        self.known.insert(text.clone(), i);
        i
    }
}

/// The first 64 bits of a hash in hexadecimal.
pub(super) fn content_key(hash: &str) -> u64 {
    hash.get(..16).and_then(|h| u64::from_str_radix(h, 16).ok()).unwrap_or(0)
}
