//! How a known file is stored in the database of [`Met`](super::spill_map::Met).

use super::{FileKey, Guess, KnownFile};
use crate::assemble::spill_map::Stored;

mod bits {
    pub(super) const DESCRIBED: u8 = 1;
    pub(super) const SEEKABLE: u8 = 2;
    /// The [`super::Guess`] is stored in this bit and those above it.
    pub(super) const GUESS: u8 = 4;
}

impl Stored for FileKey {
    /// Files created together are stored together.
    type Row = (u32, u64, u32);

    fn row(&self) -> Self::Row {
        (self.dev, self.ino, self.generation)
    }
    fn of((dev, ino, generation): Self::Row) -> Self {
        Self { ino, dev, generation }
    }
}

impl Stored for KnownFile {
    /// Id, `sb_dev`, time of creation, disk, [`bits`].
    type Row = (i64, i64, u64, i64, u8);

    fn row(&self) -> Self::Row {
        let flags = [(self.described, bits::DESCRIBED), (self.seekable, bits::SEEKABLE)];
        let flags: u8 = flags.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
        (self.id, self.sb_dev, self.made_ns, self.disk, flags + self.guess as u8 * bits::GUESS)
    }
    fn of((id, sb_dev, made_ns, disk, flags): Self::Row) -> Self {
        let has = |bit: u8| flags & bit != 0;
        Self {
            id,
            sb_dev,
            made_ns,
            disk,
            described: has(bits::DESCRIBED),
            seekable: has(bits::SEEKABLE),
            guess: match flags / bits::GUESS {
                1 => Guess::Regular,
                2 => Guess::Directory,
                3 => Guess::Block,
                _ => Guess::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_file_comes_back_whole() {
        for id in 0..16 {
            let file = KnownFile {
                id,
                described: id % 3 != 0,
                seekable: id % 2 != 0,
                sb_dev: 8,
                guess: [Guess::Other, Guess::Regular, Guess::Directory, Guess::Block][(id % 4) as usize],
                made_ns: 77,
                disk: 5,
            };
            assert_eq!(KnownFile::of(file.row()), file);
        }
        let key = FileKey { ino: 1 << 40, dev: 3, generation: 9 };
        assert_eq!(FileKey::of(key.row()), key);
    }
}
