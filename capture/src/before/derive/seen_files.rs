//! What the reel knows about files, as far as names need it.

use ioreel_traces::{Reel, Result, Text, rows::File};
use rustc_hash::FxHashMap;

/// Maximum number of files, which bounds memory: about 50 bytes per file, and the path of each directory.
pub(super) const MOST: usize = 4 << 20;

/// A file; for the fields see the columns of `files`. For a directory, `path` and `unlinked` are current.
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

const KINDS: [&str; 8] = ["regular", "directory", "symlink", "fifo", "socket", "char", "block", "other"];
const DIRECTORY: u8 = 1;

/// For a path without a directory.
const NO_FOLDER: u32 = u32::MAX;
const NO_SIZE: i64 = i64::MIN;
const NO_MODE: i32 = i32::MIN;

/// A file in compact form.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    first_ns: i64,
    size_bytes: i64,
    mode: i32,
    /// The path: the last component, and the number of the directory before it. For a directory, the number is that of
    /// its own path.
    folder: u32,
    name_at: u32,
    name_len: u16,
    kind: u8,
    flags: u8,
}

mod flag {
    /// This entry is in use.
    pub(super) const IS_MET: u8 = 1;
    pub(super) const HAS_PATH: u8 = 2;
    pub(super) const WHOLE_PATH: u8 = 4;
    pub(super) const UNLINKED: u8 = 8;
}

impl Kept {
    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Files by id. Ids count up from 0.
#[derive(Debug, Default)]
pub(super) struct MetFiles {
    files: Vec<Kept>,
    names: String,
    folders: Vec<Text>,
    number_of: FxHashMap<Text, u32>,
    /// Current names of renamed directories.
    renamed: FxHashMap<i64, Text>,
}

impl MetFiles {
    /// Reads the files of a reel; also returns how many did not fit.
    pub(super) fn of(reel: &Reel) -> Result<(Self, i64)> {
        let mut all = Self::default();
        let mut left_out = 0;
        for file in reel.rows::<File>() {
            let file = file?;
            let met = Met {
                file: file.file,
                unlinked: file.path_is_gone(),
                // A file below an overlay has another path than the overlay's.
                path: file.host_path.filter(|_| file.real_file.is_none()).or(file.path),
                whole_path: file.path_cut == 0,
                kind: file.kind,
                first_ns: file.first_ns,
                size_bytes: file.size_bytes,
                mode: file.mode,
            };
            left_out += i64::from(!all.add(&met));
        }
        Ok((all, left_out))
    }

    /// Adds a file; returns whether it fits.
    pub(super) fn add(&mut self, met: &Met) -> bool {
        let Some(place) = usize::try_from(met.file).ok().filter(|f| *f < MOST) else { return false };
        let kind = KINDS.iter().position(|k| **k == *met.kind).unwrap_or(KINDS.len() - 1) as u8;
        let (folder, name) = match met.path.as_deref() {
            None => (None, ""),
            Some(path) if kind == DIRECTORY => (Some(path), ""),
            Some(path) => path.rsplit_once('/').map_or((None, path), |(folder, name)| (Some(folder), name)),
        };
        let (Ok(name_at), Ok(name_len)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            return false;
        };
        self.names.push_str(name);
        let folder = folder.map_or(NO_FOLDER, |f| self.folder(f));
        let flags = [
            (true, flag::IS_MET),
            (met.path.is_some(), flag::HAS_PATH),
            (met.whole_path, flag::WHOLE_PATH),
            (met.unlinked, flag::UNLINKED),
        ];
        if self.files.len() <= place {
            self.files.resize(place + 1, Kept::default());
        }
        self.files[place] = Kept {
            first_ns: met.first_ns,
            size_bytes: met.size_bytes.unwrap_or(NO_SIZE),
            mode: met.mode.unwrap_or(NO_MODE),
            folder,
            name_at,
            name_len,
            kind,
            flags: flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum(),
        };
        true
    }

    fn folder(&mut self, path: &str) -> u32 {
        if let Some(number) = self.number_of.get(path) {
            return *number;
        }
        let (number, path) = (self.folders.len() as u32, Text::from(path));
        self.folders.push(path.clone());
        self.number_of.insert(path, number);
        number
    }

    /// A file was renamed, or removed (`None`). Only directories are updated, because other names start there. Other
    /// files keep their first name, which distinguishes them from earlier files of the same name.
    pub(super) fn renamed(&mut self, file: i64, path: Option<String>) {
        let met = usize::try_from(file).ok().and_then(|f| self.files.get_mut(f));
        let Some(met) = met.filter(|m| m.is(flag::IS_MET) && m.kind == DIRECTORY) else { return };
        let Some(path) = path else {
            met.flags |= flag::UNLINKED;
            return;
        };
        met.flags = met.flags & !flag::UNLINKED | flag::HAS_PATH | flag::WHOLE_PATH;
        self.renamed.insert(file, path.into());
    }

    fn kept(&self, file: i64) -> Option<&Kept> {
        self.files.get(usize::try_from(file).ok()?).filter(|f| f.is(flag::IS_MET))
    }

    fn path(&self, file: i64, kept: &Kept) -> Option<Text> {
        if !kept.is(flag::HAS_PATH) {
            return None;
        }
        let name = &self.names[kept.name_at as usize..][..usize::from(kept.name_len)];
        let folder = self.folders.get(kept.folder as usize);
        Some(match (self.renamed.get(&file), folder) {
            (Some(path), _) => path.clone(),
            (None, Some(path)) if kept.kind == DIRECTORY => path.clone(),
            (None, Some(folder)) => format!("{folder}/{name}").into(),
            (None, None) => name.into(),
        })
    }

    pub(super) fn get(&self, file: i64) -> Option<Met> {
        let kept = self.kept(file)?;
        Some(Met {
            file,
            path: self.path(file, kept),
            whole_path: kept.is(flag::WHOLE_PATH),
            unlinked: kept.is(flag::UNLINKED),
            kind: KINDS.get(usize::from(kept.kind)).map(|k| Text::word(k)).unwrap_or_default(),
            first_ns: kept.first_ns,
            size_bytes: Some(kept.size_bytes).filter(|s| *s != NO_SIZE),
            mode: Some(kept.mode).filter(|m| *m != NO_MODE),
        })
    }

    /// The path of a file, if complete; the kernel reports only the end of very deep paths.
    pub(super) fn path_of(&self, file: i64) -> Option<Text> {
        self.kept(file).filter(|f| f.is(flag::WHOLE_PATH)).and_then(|f| self.path(file, f))
    }

    /// Current name of a directory, if it still exists.
    pub(super) fn name_of(&self, file: i64) -> Option<Text> {
        self.path_of(file).filter(|_| self.kept(file).is_some_and(|f| !f.is(flag::UNLINKED)))
    }

    pub(super) fn is_folder(&self, file: i64) -> bool {
        self.kept(file).is_some_and(|f| f.kind == DIRECTORY)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_file_comes_back_whole() {
        let paths = [None, Some("/"), Some("/a"), Some("/a/b"), Some("a"), Some("pipe:[7]"), Some("/a/"), Some("")];
        let mut all = MetFiles::default();
        let mut told = Vec::new();
        for (n, path) in paths.iter().cycle().take(KINDS.len() * paths.len()).enumerate() {
            let met = Met {
                file: 3 * n as i64,
                path: path.map(Into::into),
                whole_path: n % 3 != 0,
                unlinked: n % 5 == 0,
                kind: KINDS[n / paths.len()].into(),
                first_ns: -(n as i64),
                size_bytes: Some(n as i64).filter(|n| n % 2 == 0),
                mode: Some(n as i32).filter(|n| n % 7 != 0),
            };
            assert!(all.add(&met));
            told.push(format!("{met:?}"));
        }
        let kept: Vec<_> = (0..told.len() as i64).map(|n| format!("{:?}", all.get(3 * n).unwrap())).collect();
        assert_eq!(kept, told);
        assert!(all.get(1).is_none() && all.get(-1).is_none() && all.get(i64::MAX).is_none());
    }

    #[test]
    fn folders_take_their_new_names_and_nothing_else_does() {
        let mut all = MetFiles::default();
        let met = |file, path: &str, kind: &str| Met {
            file,
            path: Some(path.into()),
            whole_path: true,
            kind: kind.into(),
            ..Met::default()
        };
        assert!(all.add(&met(0, "/d", "directory")) && all.add(&met(1, "/d/f", "regular")));
        all.renamed(0, Some("/e".into()));
        all.renamed(1, Some("/e/f".into()));
        assert_eq!((all.name_of(0).as_deref(), all.name_of(1).as_deref()), (Some("/e"), Some("/d/f")));
        all.renamed(0, None);
        assert!(all.name_of(0).is_none() && all.path_of(0).as_deref() == Some("/e"));
    }

    #[test]
    fn what_there_is_no_room_for_is_told() {
        let mut all = MetFiles::default();
        assert!(!all.add(&Met { file: MOST as i64, ..Met::default() }));
        assert!(!all.add(&Met { path: Some("x".repeat(1 << 17).into()), ..Met::default() }));
    }
}
