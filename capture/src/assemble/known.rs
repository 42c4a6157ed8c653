//! The files met so far. Those met lately are in memory, the others in a database in a file that no folder names,
//! so that a recording that meets millions of files needs no more memory than one that meets thousands.

use std::{fs::File, io, mem, os::unix::fs::FileExt};

use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use rustc_hash::FxHashMap;

use super::{FileKey, Guess, KnownFile};

/// Files of one generation; there are two, of some 70 bytes a file.
const GENERATION: usize = 128 * 1024;

/// Memory that the database may take for its pages.
const CACHE_BYTES: usize = 8 << 20;

/// Inode, device, generation: files that were made together stand together.
type Key = (u32, u64, u32);
/// Id, device of the file system, time of its making, disk, [`bits`].
type Value = (i64, i64, u64, i64, u8);
const FILES: TableDefinition<'_, Key, Value> = TableDefinition::new("files");

mod bits {
    pub(super) const DESCRIBED: u8 = 1;
    pub(super) const SEEKABLE: u8 = 2;
    /// A [`super::Guess`] above it.
    pub(super) const GUESS: u8 = 4;
}

fn key(k: &FileKey) -> Key {
    (k.dev, k.ino, k.generation)
}

fn value(f: &KnownFile) -> Value {
    let flags = [(f.described, bits::DESCRIBED), (f.seekable, bits::SEEKABLE)];
    let flags: u8 = flags.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
    (f.id, f.sb_dev, f.made_ns, f.disk, flags + f.guess as u8 * bits::GUESS)
}

fn known(v: Value) -> KnownFile {
    let has = |bit: u8| v.4 & bit != 0;
    KnownFile {
        id: v.0,
        sb_dev: v.1,
        made_ns: v.2,
        disk: v.3,
        described: has(bits::DESCRIBED),
        seekable: has(bits::SEEKABLE),
        guess: match v.4 / bits::GUESS {
            1 => Guess::Regular,
            2 => Guess::Directory,
            3 => Guess::Block,
            _ => Guess::Other,
        },
    }
}

/// The database's file. Nobody opens it again: it need not reach the disk.
#[derive(Debug)]
struct Scratch(File);

impl StorageBackend for Scratch {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, at)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, at)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct KnownFiles {
    recent: FxHashMap<FileKey, KnownFile>,
    /// The generation before.
    older: FxHashMap<FileKey, KnownFile>,
    /// The generations before that.
    stored: Option<Database>,
    /// The file asked for last: most records speak of the file that the one before spoke of.
    last: Option<(FileKey, KnownFile)>,
    generation: usize,
    /// Nothing more can be stored, as has been told: memory is taken instead.
    full: bool,
}

impl Default for KnownFiles {
    fn default() -> Self {
        Self::of_generations(GENERATION)
    }
}

impl KnownFiles {
    fn of_generations(generation: usize) -> Self {
        Self {
            recent: FxHashMap::default(),
            older: FxHashMap::default(),
            stored: None,
            last: None,
            generation,
            full: false,
        }
    }

    /// What is known of a file.
    pub(super) fn get(&mut self, k: &FileKey) -> Option<KnownFile> {
        if let Some((last, known)) = &self.last
            && last == k
        {
            return Some(*known);
        }
        if let Some(known) = self.recent.get(k) {
            self.last = Some((*k, *known));
            return Some(*known);
        }
        let found = self.older.get(k).copied().or_else(|| self.look(k))?;
        // As good as new; there is a file to keep others in when it comes from there.
        self.insert(*k, found, || Err(io::ErrorKind::Unsupported.into()));
        Some(found)
    }

    fn look(&self, k: &FileKey) -> Option<KnownFile> {
        let db = self.stored.as_ref()?;
        let look =
            || -> Result<_, redb::Error> { Ok(db.begin_read()?.open_table(FILES)?.get(key(k))?.map(|v| v.value())) };
        look()
            .inspect_err(|e| log::warn!("a file met before is taken for another: reading what is known of it: {e}"))
            .ok()?
            .map(known)
    }

    /// Remembers a file, or what is newly known of it. `scratch` makes the file to keep others in.
    pub(super) fn insert(&mut self, k: FileKey, file: KnownFile, scratch: impl FnOnce() -> io::Result<File>) {
        self.recent.insert(k, file);
        self.last = Some((k, file));
        if self.recent.len() < self.generation || self.full {
            return;
        }
        if let Err(e) = self.store(scratch) {
            log::warn!("what is known of files met long ago stays in memory: {e}; make room beside the reel");
            self.full = true;
            return;
        }
        self.older = mem::take(&mut self.recent);
    }

    /// Stores the older generation.
    fn store(&mut self, scratch: impl FnOnce() -> io::Result<File>) -> Result<(), redb::Error> {
        if self.older.is_empty() {
            return Ok(());
        }
        let db = match &mut self.stored {
            Some(db) => db,
            none => {
                none.insert(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(Scratch(scratch()?))?)
            }
        };
        let mut sorted: Vec<_> = self.older.iter().map(|(k, f)| (key(k), value(f))).collect();
        // Neighbours lie on the same pages.
        sorted.sort_unstable();
        let write = db.begin_write()?;
        {
            let mut table = write.open_table(FILES)?;
            for (k, v) in sorted {
                table.insert(k, v)?;
            }
        }
        Ok(write.commit()?)
    }

    /// The files that no record has described, by id.
    pub(super) fn undescribed(&self) -> Vec<(FileKey, KnownFile)> {
        let mut found = self.stored_undescribed().unwrap_or_else(|e| {
            log::warn!("files without a description may be missing: reading what is known of them: {e}");
            FxHashMap::default()
        });
        for (k, f) in self.older.iter().chain(&self.recent) {
            if f.described {
                found.remove(k);
            } else {
                found.insert(*k, *f);
            }
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_unstable_by_key(|(_, f)| f.id);
        found
    }

    fn stored_undescribed(&self) -> Result<FxHashMap<FileKey, KnownFile>, redb::Error> {
        let mut found = FxHashMap::default();
        let Some(db) = &self.stored else { return Ok(found) };
        for entry in db.begin_read()?.open_table(FILES)?.iter()? {
            let (k, f) = entry?;
            let ((dev, ino, generation), f) = (k.value(), known(f.value()));
            if !f.described {
                found.insert(FileKey { ino, dev, generation }, f);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> io::Result<File> {
        tempfile::tempfile()
    }

    fn file(id: i64) -> KnownFile {
        KnownFile {
            id,
            described: id % 3 != 0,
            seekable: true,
            sb_dev: 8,
            guess: [Guess::Other, Guess::Regular, Guess::Directory, Guess::Block][(id % 4) as usize],
            made_ns: 0,
            disk: 0,
        }
    }

    fn name(n: i64) -> FileKey {
        FileKey { ino: (n * 7919) as u64, dev: 1, generation: n as u32 }
    }

    #[test]
    fn many_files_are_known_with_little_memory() {
        let mut all = KnownFiles::of_generations(100);
        for n in 0..5000 {
            assert!(all.get(&name(n)).is_none());
            all.insert(name(n), file(n), scratch);
            assert!(all.recent.len() + all.older.len() <= 200);
        }
        for n in (0..5000).rev() {
            assert_eq!(all.get(&name(n)), Some(file(n)));
        }
        let without: Vec<i64> = all.undescribed().iter().map(|(_, f)| f.id).collect();
        assert_eq!(without, (0..5000).step_by(3).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_newly_known_replaces_what_was() {
        let mut all = KnownFiles::of_generations(10);
        for n in 0..100 {
            all.insert(name(n), file(n), scratch);
        }
        all.insert(name(3), KnownFile { described: true, ..file(1003) }, scratch);
        for n in 100..200 {
            all.insert(name(n), file(n), scratch);
        }
        assert_eq!(all.get(&name(3)).map(|f| f.id), Some(1003));
        assert!(all.undescribed().iter().all(|(_, f)| f.id != 3 && f.id != 1003));
    }

    #[test]
    fn without_room_on_disk_memory_is_taken() {
        let mut all = KnownFiles::of_generations(10);
        for n in 0..100 {
            all.insert(name(n), file(n), || Err(io::ErrorKind::StorageFull.into()));
        }
        assert!((0..100).all(|n| all.get(&name(n)) == Some(file(n))));
    }
}
