//! Which file has which names, as far as opens and stats showed it.

use std::collections::{BTreeMap, HashMap};

use crate::model::names::{Names, NodeId};

/// Files by name, and names by file.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles {
    /// The file behind a name, and the name's number among all.
    files: HashMap<NodeId, (i64, u64)>,
    /// By number: a file may have many names.
    names: HashMap<i64, BTreeMap<u64, NodeId>>,
    numbers: u64,
}

impl NamedFiles {
    /// The file behind a name.
    pub(crate) fn get(&self, node: NodeId) -> Option<i64> {
        self.files.get(&node).map(|(file, _)| *file)
    }

    /// One of a file's names: the oldest.
    pub(crate) fn name_of(&self, file: i64) -> Option<NodeId> {
        self.names.get(&file)?.first_key_value().map(|(_, node)| *node)
    }

    /// Whether the file has a name.
    pub(crate) fn is_named(&self, file: i64) -> bool {
        self.names.contains_key(&file)
    }

    /// Gives the file this name; the file that had it loses it.
    pub(crate) fn insert(&mut self, node: NodeId, file: i64) {
        if self.get(node) != Some(file) {
            self.remove(node);
            self.numbers += 1;
            self.files.insert(node, (file, self.numbers));
            self.names.entry(file).or_default().insert(self.numbers, node);
        }
    }

    /// Removes a name and returns its file.
    pub(crate) fn remove(&mut self, node: NodeId) -> Option<i64> {
        let (file, number) = self.files.remove(&node)?;
        if let Some(names) = self.names.get_mut(&file) {
            names.remove(&number);
            if names.is_empty() {
                self.names.remove(&file);
            }
        }
        Some(file)
    }

    /// Removes a name and all below it, and returns them with their files.
    pub(crate) fn lift(&mut self, names: &Names, top: NodeId) -> Vec<(NodeId, i64)> {
        names.subtree(top).into_iter().filter_map(|n| Some((n, self.remove(n)?))).collect()
    }

    /// All names with their files.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, i64)> {
        self.files.iter().map(|(node, (file, _))| (*node, *file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_name_until_its_last_is_gone() {
        let mut h = NamedFiles::default();
        h.insert(1, 10);
        h.insert(2, 10);
        h.insert(2, 10);
        assert_eq!((h.get(1), h.name_of(10)), (Some(10), Some(1)));
        assert_eq!(h.remove(1), Some(10));
        assert!(h.is_named(10) && h.name_of(10) == Some(2));
        h.insert(2, 11);
        assert!(!h.is_named(10) && h.get(2) == Some(11));
        assert_eq!(h.remove(1), None);
    }
}
