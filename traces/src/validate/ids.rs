//! A set of row ids.

use std::collections::HashMap;

/// Ids per chunk: a bitmap of 512 bytes.
const CHUNK: i64 = 4096;
/// Maximum number of chunks (128 MiB) that have fewer than [`LEAST_PER_CHUNK`] ids on average. Only a damaged reel spreads few
/// ids over more.
const MOST_CHUNKS: usize = 1 << 18;
const LEAST_PER_CHUNK: usize = 256;
/// Words per chunk.
const WORDS: usize = CHUNK as usize / 64;

/// The ids of a table. Takes one bit per id if ids are dense, as writers assign them, and at most 512 bytes per id, 128 MiB
/// in all, if they are not.
#[derive(Debug, Default)]
pub(super) struct IdSet {
    chunks: HashMap<i64, Box<[u64; WORDS]>>,
    /// The last lookup. Consecutive rows often refer to the same task or file.
    last: Option<(i64, bool)>,
    /// Number of ids.
    count: usize,
    /// Whether an id was ignored. An unknown id may be that one, so it counts as present.
    left_out: bool,
}

fn place(id: i64) -> (i64, usize, u64) {
    let inside = id.rem_euclid(CHUNK) as usize;
    (id.div_euclid(CHUNK), inside / 64, 1 << (inside % 64))
}

impl IdSet {
    /// Adds an id. False if it was already present. Beyond [`MOST_CHUNKS`], ids are ignored and count as new.
    pub(super) fn insert(&mut self, id: i64) -> bool {
        let (chunk, word, bit) = place(id);
        self.last = None;
        let spread = self.chunks.len() >= MOST_CHUNKS && self.count < self.chunks.len() * LEAST_PER_CHUNK;
        if spread && !self.chunks.contains_key(&chunk) {
            self.left_out = true;
            return true;
        }
        let words = self.chunks.entry(chunk).or_insert_with(|| Box::new([0; WORDS]));
        let new = words[word] & bit == 0;
        words[word] |= bit;
        self.count += usize::from(new);
        new
    }

    /// Whether ids were ignored because they are too far apart.
    pub(super) fn left_out(&self) -> bool {
        self.left_out
    }

    /// Whether the id is there.
    pub(super) fn contains(&mut self, id: i64) -> bool {
        if let Some((last, known)) = self.last
            && last == id
        {
            return known;
        }
        let (chunk, word, bit) = place(id);
        let known = self.chunks.get(&chunk).map_or(self.left_out, |w| w[word] & bit != 0);
        self.last = Some((id, known));
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_size_are_told_apart() {
        let mut ids = IdSet::default();
        for id in [0, 1, 63, 64, 4095, 4096, -1, -4096, i64::MAX, i64::MIN] {
            assert!(!ids.contains(id));
            assert!(ids.insert(id));
            assert!(!ids.insert(id));
            assert!(ids.contains(id));
        }
        assert!(!ids.contains(2));
    }
}
