//! Made-up data: seeded, as compressible and as often repeated as wanted, or as it was where the reel tells.
//!
//! Each byte depends on a key and its place alone, so that any piece can be made again at any time. Of every 4 KiB the first
//! part is pseudo-random and the rest the same everywhere, which is what a compressor saves. No byte is zero, so that no
//! file system takes it for a hole.

use std::collections::HashMap;

use rustix::rand::GetRandomFlags;

use crate::{
    ReplayError,
    contents::fill::Filler,
    reel::input::{NO_ID, Rec},
};

/// Data comes in units of this length: what repeats is one of them.
pub const UNIT_BYTES: i64 = 4096;
/// Different units that repeated data is taken from.
const POOL: u64 = 16;
/// What a compressor saves.
const FILL: u8 = 0x2e;

/// What data is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOptions {
    /// Other data for another seed. A reel from a stranger must not know it: from overlapping writes of bytes that it knows
    /// it could compose any file.
    pub seed: u64,
    /// What a compressor saves, in thousandths; `None` for as the reel tells.
    pub saved_permille: Option<u16>,
    /// How much of what is written is repeated, in thousandths; `None` for as the reel tells.
    pub repeated_permille: Option<u16>,
    /// Data depends on file and position, and what is read is checked.
    pub verify: bool,
}

/// A seed that nobody can know before.
pub fn random_seed() -> Result<u64, ReplayError> {
    let mut seed = [0; 8];
    // Eight bytes are given whole (getrandom(2)).
    rustix::rand::getrandom(&mut seed, GetRandomFlags::empty())
        .map_err(|source| ReplayError::Io { doing: "drawing a seed", source: source.into() })?;
    Ok(u64::from_le_bytes(seed))
}

impl Default for DataOptions {
    fn default() -> Self {
        Self { seed: 1, saved_permille: None, repeated_permille: None, verify: false }
    }
}

/// What a piece of data is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// What a compressor saves, in thousandths.
    pub saved_permille: u16,
    /// Of its units, how many are repeated, in thousandths.
    pub repeated_permille: u16,
}

/// What the reel tells of the data that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordedData {
    /// Bytes written whose compressibility is known.
    pub bytes: i64,
    /// The sum of bytes times thousandths.
    pub saved: i128,
    /// Some writes have a hash of their content.
    pub hashed: bool,
}

impl RecordedData {
    /// A write is looked at.
    pub(crate) fn add(&mut self, r: &Rec) {
        self.hashed |= r.content != 0;
        if r.saved_permille >= 0 && r.ret > 0 {
            self.bytes = self.bytes.saturating_add(r.ret);
            self.saved += i128::from(r.ret) * i128::from(r.saved_permille);
        }
    }

    /// What a compressor would have saved of all, in thousandths.
    pub fn saved_permille(self) -> Option<u16> {
        (self.bytes > 0).then(|| (self.saved / i128::from(self.bytes)).clamp(0, 1000) as u16)
    }
}

/// All that says what is written.
#[derive(Clone, Debug)]
pub struct Data {
    options: DataOptions,
    /// What a compressor saves of what the reel tells nothing of.
    saved_permille: u16,
    /// Some is made for each write; else one pattern serves all.
    made: bool,
    /// Of files that were there before: their keys.
    keys: HashMap<i64, u64>,
}

impl Data {
    /// As wanted, else as told.
    pub fn new(options: DataOptions, told: RecordedData, keys: HashMap<i64, u64>) -> Self {
        let saved_permille = options.saved_permille.or(told.saved_permille()).unwrap_or(0);
        let wanted = options.saved_permille.is_some() || options.repeated_permille.is_some() || options.verify;
        Self { options, saved_permille, made: wanted || told.hashed || told.bytes > 0, keys }
    }

    /// Whether data is made for each write.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// Whether what is read is checked.
    pub fn is_checked(&self) -> bool {
        self.options.verify
    }

    /// What the data of files that are there before is like; `None` for one pattern.
    pub fn look(&self) -> Option<Look> {
        let repeated_permille = self.options.repeated_permille.unwrap_or(0);
        self.made.then_some(Look { saved_permille: self.saved_permille, repeated_permille })
    }

    /// What fills files that are there before.
    pub fn filler(&self) -> Filler {
        Filler::new(self.options.seed, self.look())
    }

    /// The key of a file's data.
    pub fn key(&self, file: i64) -> u64 {
        self.keys.get(&file).copied().unwrap_or_else(|| file_key(file))
    }

    /// Makes what an operation writes, or, where data is checked, what a position of a file holds.
    pub fn make(&self, r: &Rec, file: i64, at: i64, out: &mut [u8]) {
        let saved = self.options.saved_permille.or(u16::try_from(r.saved_permille).ok().filter(|_| !self.is_checked()));
        let look = Look {
            saved_permille: saved.unwrap_or(self.saved_permille),
            repeated_permille: self.options.repeated_permille.unwrap_or(0),
        };
        let seed = self.options.seed;
        if self.is_checked() {
            return make(seed, self.key(file), look, at.max(0), out);
        }
        let same = r.content != 0 && self.options.repeated_permille.is_none();
        let key = if same { r.content } else { file_key(i64::from(r.row)) };
        make(seed, key, look, 0, out);
    }
}

/// The key of a file that the workload made.
pub fn file_key(file: i64) -> u64 {
    mix(file as u64 ^ 0x66_69_6c_65)
}

/// The key of a file that was there before.
pub fn path_key(path: &[u8]) -> u64 {
    path.iter().fold(0x70_61_74_68, |key, b| mix(key ^ u64::from(*b)))
}

/// The file behind a position, or none: what checked data depends on.
pub(crate) fn file_of(r: &Rec) -> Option<i64> {
    (r.file != NO_ID && r.offset_bytes != NO_ID).then_some(r.file)
}

/// splitmix64's finalizer.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Makes the data of this key from position `at` on.
pub fn make(seed: u64, key: u64, look: Look, at: i64, out: &mut [u8]) {
    let random = (UNIT_BYTES * i64::from(1000 - look.saved_permille.min(1000)) / 1000) as usize;
    let mut done = 0;
    while done < out.len() {
        let place = at.saturating_add(done as i64);
        let (unit, from) = (place / UNIT_BYTES, (place % UNIT_BYTES) as usize);
        let n = (UNIT_BYTES as usize - from).min(out.len() - done);
        let own = mix(seed ^ mix(key) ^ mix(unit as u64));
        let repeated = own % 1000 < u64::from(look.repeated_permille);
        let unit_key = if repeated { mix(seed ^ ((own >> 32) % POOL)) } else { own };
        make_unit(unit_key, random, from, &mut out[done..done + n]);
        done += n;
    }
}

fn make_unit(key: u64, random: usize, from: usize, out: &mut [u8]) {
    let n = random.saturating_sub(from).min(out.len());
    let (noise, rest) = out.split_at_mut(n);
    rest.fill(FILL);
    let mut place = from;
    let mut noise = noise;
    while !noise.is_empty() {
        let (word, skip) = (place / 8, place % 8);
        let bytes = mix(key ^ word as u64).to_le_bytes();
        let n = (8 - skip).min(noise.len());
        let (now, later) = noise.split_at_mut(n);
        for (o, b) in now.iter_mut().zip(&bytes[skip..]) {
            *o = (*b).max(1);
        }
        place += n;
        noise = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_piece_is_the_same_again() {
        let look = Look { saved_permille: 400, repeated_permille: 300 };
        let mut whole = vec![0; 20_000];
        make(7, 1, look, 0, &mut whole);
        assert!(!whole.contains(&0));
        for (at, len) in [(0, 1), (3, 5), (4090, 20), (8192, 4096), (12_345, 7000)] {
            let mut piece = vec![0; len];
            make(7, 1, look, at, &mut piece);
            assert_eq!(piece, whole[at as usize..at as usize + len]);
        }
        let (mut key, mut seed) = (vec![0; 4096], vec![0; 4096]);
        make(7, 2, look, 0, &mut key);
        make(8, 1, look, 0, &mut seed);
        assert!(key != whole[..4096] && seed != whole[..4096] && key != seed);
    }

    #[test]
    fn repeated_units_are_the_share_that_was_asked_for() {
        let look = Look { saved_permille: 0, repeated_permille: 250 };
        let mut data = vec![0; 4096 * 4000];
        make(1, 1, look, 0, &mut data);
        let different: std::collections::HashSet<&[u8]> = data.chunks(4096).collect();
        let repeated = 1.0 - different.len() as f64 / 4000.0;
        assert!((0.22..0.28).contains(&repeated), "{repeated}");
    }
}
