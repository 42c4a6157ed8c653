//! Files that had the same path, one after the other: a journal that is removed and made again is one line of a list.

use std::{
    cmp::Reverse,
    hash::{DefaultHasher, Hash, Hasher},
};

use ioreel_traces::{
    Reel, Text,
    rows::File,
    table::{Cell, Row, column},
};
use rustc_hash::FxHashMap;

use super::totals::Totals;
use crate::{Result, bad_column};

/// Files of one path on one file system.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// Keys into `files`, ascending.
    pub(super) files: Vec<i64>,
    /// What calls on all of them added up to.
    pub(super) totals: Totals,
}

/// All groups of the files in use. Memory: 40 bytes per file.
pub(super) struct Groups {
    /// Hash of path and file system, and file, by hash.
    files: Vec<(u64, i64)>,
    /// Bytes and time of a group, and its first place and length in `files`.
    groups: Vec<(u64, u64, u32, u32)>,
}

impl Groups {
    /// Groups the files with totals. A file without a path is a group of its own.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(super) fn of(reel: &Reel, used: &FxHashMap<i64, Totals>) -> Result<Self> {
        let mut files: Vec<(u64, i64)> = Vec::new();
        let mut named: FxHashMap<i64, u64> = FxHashMap::default();
        let bad = |why| bad_column(File::TABLE)(why);
        for batch in reel.batches::<File>(&["file", "sb_dev", "path"]) {
            let batch = batch?;
            let file = column::<i64>(&batch, "file").map_err(bad)?;
            let sb_dev = column::<i64>(&batch, "sb_dev").map_err(bad)?;
            let path = column::<Option<Text>>(&batch, "path").map_err(bad)?;
            for i in 0..batch.num_rows() {
                let id = <i64 as Cell>::get(&file, i);
                if !used.contains_key(&id) {
                    continue;
                }
                if let Some(path) = <Option<Text> as Cell>::get(&path, i) {
                    named.insert(id, hash(&(<i64 as Cell>::get(&sb_dev, i), &*path)));
                }
            }
        }
        files.extend(used.keys().map(|id| (named.get(id).copied().unwrap_or_else(|| hash(&(id, "no path"))), *id)));
        files.sort_unstable();
        let mut groups = Vec::new();
        let mut start = 0;
        for group in files.chunk_by(|a, b| a.0 == b.0) {
            let totals = sum(group, used);
            groups.push((totals.bytes(), totals.time_ns, start, group.len() as u32));
            start += group.len() as u32;
        }
        Ok(Self { files, groups })
    }

    /// Number of groups.
    pub(super) fn count(&self) -> u64 {
        self.groups.len() as u64
    }

    /// The first `top` groups by `key` of bytes and time, those of 0 left out.
    pub(super) fn best(&self, top: usize, used: &FxHashMap<i64, Totals>, key: fn((u64, u64)) -> u64) -> Vec<Group> {
        let mut order: Vec<(Reverse<u64>, i64, u32, u32)> = self
            .groups
            .iter()
            .map(|(bytes, time, start, len)| (Reverse(key((*bytes, *time))), self.first(*start), *start, *len))
            .filter(|(key, ..)| key.0 > 0)
            .collect();
        order.sort_unstable();
        let group = |(_, _, start, len): (Reverse<u64>, i64, u32, u32)| {
            let files = self.files.iter().skip(start as usize).take(len as usize);
            let files: Vec<(u64, i64)> = files.copied().collect();
            Group { totals: sum(&files, used), files: files.into_iter().map(|(_, file)| file).collect() }
        };
        order.into_iter().take(top).map(group).collect()
    }

    fn first(&self, start: u32) -> i64 {
        self.files.get(start as usize).map_or(0, |(_, file)| *file)
    }
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn sum(files: &[(u64, i64)], used: &FxHashMap<i64, Totals>) -> Totals {
    let mut sum = Totals::default();
    files.iter().filter_map(|(_, file)| used.get(file)).for_each(|totals| sum.add(totals));
    sum
}
