//! What the data of files that were there before depends on: the same in every part of a reel.

use std::collections::HashMap;

use crate::{
    contents::data::{file_key, path_key},
    model::names::{NO_NODE, Names, NodeId, There},
    plan::planner::Planner,
    prepare::slice_contents::Written,
};

/// Keys of data.
#[derive(Debug, Default)]
pub struct Keys {
    /// Of places at the start of a slice.
    places: HashMap<NodeId, u64>,
    /// Of files that were there.
    files: HashMap<i64, u64>,
    /// What files hold that were changed before the slice.
    pub(crate) written: Written,
}

impl Keys {
    /// The key of what stood at a place at the start.
    pub fn of_place(&self, names: &Names, place: NodeId) -> u64 {
        if let Some(key) = self.places.get(&place) {
            return *key;
        }
        // Names of one file have one key.
        match names.inode_before(place) {
            Some(inode) => path_key(format!("inode {inode}").as_bytes()),
            None => path_key(&names.path(place)),
        }
    }

    /// The key of a file.
    pub fn of_file(&self, file: i64) -> u64 {
        self.files.get(&file).copied().unwrap_or_else(|| file_key(file))
    }

    /// Files that were there before, and their keys.
    pub fn files(&self) -> &HashMap<i64, u64> {
        &self.files
    }
}

impl Planner {
    /// A file was opened by a name that stood at `pre` at the start.
    pub(crate) fn file_opened(&mut self, file: i64, pre: NodeId, created: bool) {
        self.sizes.opened(file, pre, created);
        if !self.options.keep_keys || created {
            return;
        }
        if pre != NO_NODE && !self.keys.files.contains_key(&file) {
            let key = self.keys.of_place(&self.names, pre);
            self.keys.files.insert(file, key);
        }
    }

    /// A slice begins: data stays what it is. Before the model of names begins anew.
    pub(crate) fn keys_anew(&mut self, there: &[There]) {
        if !self.options.keep_keys {
            return;
        }
        let mut places = HashMap::new();
        for t in there {
            let held = self.held.get(t.node);
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
}
