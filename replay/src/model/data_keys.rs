//! Keys from which the data of files that existed at the start is generated. They are the same in every slice of a
//! reel.

use std::collections::{HashMap, HashSet};

use crate::{
    contents::{
        data::{file_key, path_key},
        read_checks::change,
        slice_contents::{ChangedFiles, InitialData},
    },
    model::{
        machine::Machine,
        names::{InitialState, NO_NODE, Names, NodeId, PresentName},
    },
    reel::input::Rec,
};

/// Keys of file data.
#[derive(Debug, Default)]
pub struct Keys {
    /// By name at the start of a slice.
    places: HashMap<NodeId, u64>,
    /// By id, for files that existed at the start.
    files: HashMap<i64, u64>,
    /// Files whose data a snapshot copied from others: it cannot be checked.
    pub(crate) copied: HashSet<i64>,
    /// Contents of the files that were changed before the slice.
    pub(crate) written: ChangedFiles,
}

impl Keys {
    /// The key of the file with this initial name.
    pub fn of_place(&self, names: &Names, place: NodeId) -> u64 {
        if let Some(key) = self.places.get(&place) {
            return *key;
        }
        // All hard links of a file have one key.
        match names.inode_before(place) {
            Some(inode) => path_key(format!("inode {inode}").as_bytes()),
            None => path_key(&names.path(place)),
        }
    }

    /// The key of a file.
    pub fn of_file(&self, file: i64) -> u64 {
        self.files.get(&file).copied().unwrap_or_else(|| file_key(file))
    }

    /// Keys of the files that existed at the start, by id.
    pub fn files(&self) -> &HashMap<i64, u64> {
        &self.files
    }
}

impl Machine {
    /// A file was opened; its initial name is `pre`.
    pub(crate) fn file_opened(&mut self, file: i64, pre: NodeId, created: bool) {
        self.sizes.opened(file, pre, created);
        if !self.keep_keys || created {
            return;
        }
        if pre != NO_NODE && !self.keys.files.contains_key(&file) {
            let key = self.keys.of_place(&self.names, pre);
            self.keys.files.insert(file, key);
        }
    }

    /// At the start of a slice: carries the keys of existing data over to current names. Must run before
    /// [`Names::rebase`].
    pub(crate) fn keys_anew(&mut self, there: &[PresentName]) {
        if !self.keep_keys {
            return;
        }
        let mut places = HashMap::new();
        for t in there {
            let held = self.named_files.get(t.node);
            let key = match held {
                Some(file) => self.keys.of_file(file),
                None if t.pre != NO_NODE => self.keys.of_place(&self.names, t.pre),
                None => continue,
            };
            places.insert(t.node, key);
            if let Some(file) = held {
                self.keys.files.insert(file, key);
            }
        }
        self.keys.places = places;
    }

    /// Applies an operation before the slice to file contents, as it would have been issued.
    pub(crate) fn written_before(&mut self, mut r: Rec) {
        if !self.keep_keys {
            return;
        }
        self.footprint.apply(&mut r);
        // On a scaled file, fewer bytes are written.
        let ret = if r.call.writes() { r.ret.min(r.len_bytes) } else { r.ret };
        let Some((file, change)) = change(&r, ret) else { return };
        let there = InitialData { data_bytes: self.data_at_start(file), foreign: false };
        self.keys.written.change(file, there, change);
    }

    /// Prepared data of a file that nothing has changed yet, bytes.
    fn data_at_start(&self, file: i64) -> i64 {
        let Some(place) = self.sizes.place_of(file) else { return 0 };
        let InitialState::Present { row, .. } = self.names.before(place) else { return 0 };
        self.sizes.prepared_lengths(place, self.reel.tree.get(*row as usize)).1
    }
}
