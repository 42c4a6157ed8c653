//! What the reel tells of the files that operations name, as far as names need it.

use ioreel_traces::{Reel, Result, Text, rows::File};

/// Files beyond are not looked up: names are derived in bounded memory, of some 150 bytes a file.
pub(super) const MOST: usize = 4 << 20;

/// A file; see the columns of `files`.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    pub(super) file: i64,
    pub(super) path: Option<Text>,
    pub(super) whole_path: bool,
    pub(super) unlinked: bool,
    pub(super) kind: Text,
    pub(super) first_ns: i64,
    pub(super) size_bytes: Option<i64>,
    pub(super) mode: Option<i32>,
}

/// By id; ids count up from 0.
#[derive(Debug)]
pub(super) struct MetFiles(Vec<Option<Met>>);

impl MetFiles {
    /// The files of a reel, and how many are left out.
    pub(super) fn of(reel: &Reel) -> Result<(Self, i64)> {
        let mut all = Vec::new();
        let mut left_out = 0;
        for file in reel.rows::<File>() {
            let file = file?;
            let Some(place) = usize::try_from(file.file).ok().filter(|f| *f < MOST) else {
                left_out += 1;
                continue;
            };
            if all.len() <= place {
                all.resize(place + 1, None);
            }
            all[place] = Some(Met {
                file: file.file,
                path: file.path,
                whole_path: file.path_cut == 0,
                unlinked: file.unlinked == Some(1),
                kind: word(&file.kind),
                first_ns: file.first_ns,
                size_bytes: file.size_bytes,
                mode: file.mode,
            });
        }
        Ok((Self(all), left_out))
    }

    pub(super) fn get(&self, file: i64) -> Option<&Met> {
        self.0.get(usize::try_from(file).ok()?)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Met> {
        self.0.iter().flatten()
    }
}

/// Shared, as the kinds are few.
fn word(kind: &str) -> Text {
    const KINDS: [&str; 8] = ["regular", "directory", "symlink", "fifo", "socket", "char", "block", "other"];
    KINDS.iter().find(|k| **k == kind).map_or_else(|| kind.into(), |k| Text::word(k))
}
