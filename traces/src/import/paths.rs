//! Files identified by path.

use std::collections::HashMap;

use super::Result;
use crate::{
    Text,
    format::{rows::File, text},
    writer::TableWriter,
};

/// Assigns a file to each path and writes its row.
pub(super) struct Paths<'a> {
    files: &'a mut TableWriter<File>,
    known: HashMap<Vec<u8>, i64>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(files: &'a mut TableWriter<File>) -> Self {
        Self { files, known: HashMap::new() }
    }

    /// The file at this path. `kind` applies when the path is new. Its inode is invented: the file's id.
    pub(super) fn file(&mut self, path: &[u8], kind: &Text, at_ns: i64) -> Result<i64> {
        if let Some(file) = self.known.get(path) {
            return Ok(*file);
        }
        let file = self.known.len() as i64;
        self.known.insert(path.to_vec(), file);
        let row = File {
            file,
            ino: file,
            kind: kind.clone(),
            first_ns: at_ns,
            path: Some(text::from_bytes(path)),
            ..File::default()
        };
        self.files.push(row)?;
        Ok(file)
    }
}
