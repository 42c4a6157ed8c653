//! What the reel tells of the files that operations name, as far as names need it.

use ioreel_traces::{Reel, Result, Text, rows::File};

/// Files beyond are not looked up: names are derived in bounded memory, of some 150 bytes a file.
pub(super) const MOST: usize = 4 << 20;

/// A file; see the columns of `files`. Of a folder `path` and `unlinked` are as of the moment that is gone through.
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
#[derive(Debug, Default)]
pub(super) struct MetFiles(Vec<Option<Met>>);

impl MetFiles {
    /// The files of a reel, and how many are left out.
    pub(super) fn of(reel: &Reel) -> Result<(Self, i64)> {
        let mut all = Self::default();
        let mut left_out = 0;
        for file in reel.rows::<File>() {
            let file = file?;
            let met = Met {
                file: file.file,
                path: file.path,
                whole_path: file.path_cut == 0,
                unlinked: file.unlinked == Some(1),
                kind: word(&file.kind),
                first_ns: file.first_ns,
                size_bytes: file.size_bytes,
                mode: file.mode,
            };
            left_out += i64::from(!all.add(met));
        }
        Ok((all, left_out))
    }

    /// Whether there is room for it.
    pub(super) fn add(&mut self, met: Met) -> bool {
        let Some(place) = usize::try_from(met.file).ok().filter(|f| *f < MOST) else { return false };
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = Some(met);
        true
    }

    /// What is behind a name is now called otherwise, or gone (`None`). Of a folder that matters: others are named from it. By what
    /// other files were called first they are told apart from what had their names before.
    pub(super) fn renamed(&mut self, file: i64, path: Option<String>) {
        let met = usize::try_from(file).ok().and_then(|f| self.0.get_mut(f)?.as_mut());
        if let Some(met) = met.filter(|m| m.kind == *"directory") {
            met.unlinked = path.is_none();
            if let Some(path) = path {
                (met.path, met.whole_path) = (Some(path.into()), true);
            }
        }
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
