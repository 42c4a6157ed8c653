//! A map with bounded memory, for files and other things by key. Recent entries are in memory; older ones are in a
//! database in an unlinked file. So a recording with millions of files needs no more memory than one with thousands.

use std::{cmp::Reverse, fmt::Debug, hash::Hash, io, marker::PhantomData, mem, os::unix::fs::FileExt};

use ioreel_traces::writer::Scratch;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use rustc_hash::FxHashMap;

/// Entries per generation; two generations are in memory. A file takes 70 bytes.
const GENERATION: usize = 128 * 1024;

/// Entries stored at a time, which takes some milliseconds. Storing a whole generation takes a second, during which
/// records would pile up.
const STEP: usize = 1024;

/// Memory for the database's page cache.
const CACHE_BYTES: usize = 8 << 20;

/// A value that can be stored in the database.
pub(crate) trait Stored: Clone + Debug + PartialEq {
    /// Its stored form.
    type Row: for<'a> redb::Value<SelfType<'a> = Self::Row> + 'static;

    /// Converts to the stored form.
    fn row(&self) -> Self::Row;
    /// Converts back.
    fn of(row: Self::Row) -> Self;
}

impl Stored for i64 {
    type Row = i64;

    fn row(&self) -> i64 {
        *self
    }
    fn of(row: i64) -> Self {
        row
    }
}

impl Stored for String {
    type Row = String;

    fn row(&self) -> String {
        self.clone()
    }
    fn of(row: String) -> Self {
        row
    }
}

/// The file of the database. It is never opened again, so it is not synced.
#[derive(Debug)]
struct Unsynced(Scratch);

impl StorageBackend for Unsynced {
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

/// The map; see the module.
#[derive(Debug)]
pub(crate) struct Met<K, V> {
    recent: FxHashMap<K, V>,
    /// The previous generation.
    older: FxHashMap<K, V>,
    /// Keys of the previous generation that are not stored yet, in reverse order. They are stored in steps while the
    /// recent generation grows.
    to_store: Vec<K>,
    /// The database, with all earlier generations and the stored part of the previous one.
    stored: Option<Database>,
    /// The entry used last: most records are about the same file as the one before.
    last: Option<(K, V)>,
    generation: usize,
    /// Storing failed and a warning was printed; from then on entries stay in memory.
    full: bool,
}

impl<K, V> Default for Met<K, V> {
    fn default() -> Self {
        Self::of_generations(GENERATION)
    }
}

impl<K, V> Met<K, V> {
    pub(crate) fn of_generations(generation: usize) -> Self {
        Self {
            recent: FxHashMap::default(),
            older: FxHashMap::default(),
            to_store: Vec::new(),
            stored: None,
            last: None,
            generation,
            full: false,
        }
    }
}

/// The only table.
struct Things<K, V>(PhantomData<(K, V)>);

impl<K: Stored<Row: redb::Key>, V: Stored> Things<K, V> {
    const TABLE: TableDefinition<'static, K::Row, V::Row> = TableDefinition::new("things");
}

impl<K, V> Met<K, V>
where
    K: Stored<Row: redb::Key + Ord> + Copy + Eq + Hash,
    V: Stored,
{
    /// Returns the entry of this key.
    pub(crate) fn get(&mut self, k: &K) -> Option<V> {
        if let Some((last, known)) = &self.last
            && last == k
        {
            return Some(known.clone());
        }
        if let Some(known) = self.recent.get(k) {
            self.last = Some((*k, known.clone()));
            return Some(known.clone());
        }
        let found = self.older.get(k).cloned().or_else(|| self.look(k))?;
        // Becomes a recent entry again.
        self.put(*k, found.clone());
        if self.stored.is_some() {
            self.age(|| Err(io::ErrorKind::Unsupported.into()));
        }
        Some(found)
    }

    fn look(&self, k: &K) -> Option<V> {
        let db = self.stored.as_ref()?;
        let look = || -> Result<_, redb::Error> {
            Ok(db.begin_read()?.open_table(Things::<K, V>::TABLE)?.get(k.row())?.map(|v| v.value()))
        };
        look()
            .inspect_err(|e| log::warn!("cannot read the stored state of a file, so it counts as a new file: {e}"))
            .ok()?
            .map(V::of)
    }

    /// Inserts or replaces an entry. `scratch` creates the file for the database.
    pub(crate) fn insert(&mut self, k: K, known: V, scratch: impl FnOnce() -> io::Result<Scratch>) {
        self.put(k, known);
        self.age(scratch);
    }

    fn put(&mut self, k: K, known: V) {
        self.recent.insert(k, known.clone());
        self.last = Some((k, known));
    }

    /// Stores a step of the previous generation if otherwise it would not be stored by the time the recent one is full.
    /// Drops the previous generation when it is stored and the recent one is full.
    fn age(&mut self, scratch: impl FnOnce() -> io::Result<Scratch>) {
        let room = self.generation.saturating_sub(self.recent.len());
        if self.full || room > 0 && self.to_store.len() <= room {
            return;
        }
        if let Err(e) = self.store(scratch) {
            log::warn!(
                "cannot store the state of inactive files, so it stays in memory: {e}; free some space beside the reel"
            );
            self.full = true;
            return;
        }
        if room == 0 && self.to_store.is_empty() {
            // Reuses the memory of the map.
            mem::swap(&mut self.recent, &mut self.older);
            self.recent.clear();
            self.to_store.extend(self.older.keys());
            // Sorted, because neighbouring keys share pages.
            self.to_store.sort_unstable_by_key(|k| Reverse(k.row()));
        }
    }

    /// Stores the next step of the previous generation.
    fn store(&mut self, scratch: impl FnOnce() -> io::Result<Scratch>) -> Result<(), redb::Error> {
        if self.to_store.is_empty() {
            return Ok(());
        }
        let db = match &mut self.stored {
            Some(db) => db,
            none => {
                none.insert(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(Unsynced(scratch()?))?)
            }
        };
        let kept = self.to_store.len().saturating_sub(STEP);
        let write = db.begin_write()?;
        {
            let mut table = write.open_table(Things::<K, V>::TABLE)?;
            for k in self.to_store[kept..].iter().rev() {
                if let Some(known) = self.older.get(k) {
                    table.insert(k.row(), known.row())?;
                }
            }
        }
        write.commit()?;
        self.to_store.truncate(kept);
        Ok(())
    }

    /// All entries for which `such` is true.
    pub(crate) fn all(&self, such: impl Fn(&V) -> bool) -> FxHashMap<K, V> {
        let mut found = self.stored_of(&such).unwrap_or_else(|e| {
            log::warn!("cannot read the stored state of files, so rows may be missing in table files: {e}");
            FxHashMap::default()
        });
        for (k, v) in self.older.iter().chain(&self.recent) {
            if such(v) {
                found.insert(*k, v.clone());
            } else {
                found.remove(k);
            }
        }
        found
    }

    fn stored_of(&self, such: impl Fn(&V) -> bool) -> Result<FxHashMap<K, V>, redb::Error> {
        let mut found = FxHashMap::default();
        let Some(db) = &self.stored else { return Ok(found) };
        for entry in db.begin_read()?.open_table(Things::<K, V>::TABLE)?.iter()? {
            let (k, v) = entry?;
            let v = V::of(v.value());
            if such(&v) {
                found.insert(K::of(k.value()), v);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use redb::ReadableTableMetadata;

    use super::*;

    fn scratch() -> io::Result<Scratch> {
        Ok(tempfile::tempfile()?.into())
    }

    fn thing(n: i64) -> String {
        format!("{}{n}", if n % 3 == 0 { "odd" } else { "plain" })
    }

    #[test]
    fn many_things_are_known_with_little_memory() {
        let mut all = Met::of_generations(100);
        for n in 0..5000i64 {
            assert!(all.get(&n).is_none());
            all.insert(n, thing(n), scratch);
            assert!(all.recent.len() + all.older.len() <= 200);
        }
        for n in (0..5000).rev() {
            assert_eq!(all.get(&n), Some(thing(n)));
        }
        let mut odd: Vec<i64> = all.all(|t| t.starts_with("odd")).into_keys().collect();
        odd.sort_unstable();
        assert_eq!(odd, (0..5000).step_by(3).collect::<Vec<_>>());
    }

    fn stored(all: &Met<i64, i64>) -> usize {
        let Some(db) = &all.stored else { return 0 };
        db.begin_read().unwrap().open_table(Things::<i64, i64>::TABLE).unwrap().len().unwrap() as usize
    }

    /// Inserts into a map with a generation of 8 steps; returns how many entries were stored.
    fn insert(all: &mut Met<i64, i64>, k: i64) -> usize {
        let before = stored(all);
        all.insert(k, k, scratch);
        assert!(all.recent.len() + all.older.len() <= 17 * STEP);
        stored(all) - before
    }

    #[test]
    fn a_generation_is_stored_bit_by_bit() {
        let mut all = Met::of_generations(8 * STEP);
        for k in 0..100 * STEP as i64 {
            let new = insert(&mut all, k);
            assert!(new <= STEP, "{k}: {new}");
            // Old entries are looked up in between.
            assert_eq!(all.get(&(k / 3)), Some(k / 3));
        }
        assert!(stored(&all) > 80 * STEP);
    }

    #[test]
    fn what_is_met_again_before_anything_was_stored_is_stored_bit_by_bit_too() {
        let n = 8 * STEP as i64;
        let mut all = Met::of_generations(8 * STEP);
        (0..n).for_each(|k| assert_eq!(insert(&mut all, k), 0));
        assert!((0..n).all(|k| all.get(&k) == Some(k)));
        for k in n..3 * n {
            let new = insert(&mut all, k);
            assert!(new <= STEP, "{k}: {new}");
        }
        assert!(stored(&all) >= n as usize && (0..3 * n).all(|k| all.get(&k) == Some(k)));
    }

    #[test]
    fn what_is_newly_known_replaces_what_was() {
        let mut all = Met::of_generations(10);
        for n in 0..100i64 {
            all.insert(n, thing(n), scratch);
        }
        all.insert(3, "new".into(), scratch);
        for n in 100..200 {
            all.insert(n, thing(n), scratch);
        }
        assert_eq!(all.get(&3).as_deref(), Some("new"));
        assert!(!all.all(|t| t.starts_with("odd")).contains_key(&3));
    }

    #[test]
    fn without_room_on_disk_memory_is_taken() {
        let mut all = Met::of_generations(10);
        for n in 0..100i64 {
            all.insert(n, thing(n), || Err(io::ErrorKind::StorageFull.into()));
        }
        assert!((0..100).all(|n| all.get(&n) == Some(thing(n))));
    }
}
