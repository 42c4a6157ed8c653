//! Maps addresses of the recorded device to a device of another size.

use std::path::Path;

use super::{bios::SECTOR_BYTES, device::Device};
use crate::ReplayError;

/// What happens to addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fit {
    /// They stay. If one is beyond the end of the device, the replay is refused before it starts.
    #[default]
    Exact,
    /// Pieces of 16 MiB move closer together in proportion to the sizes of the devices. Within a piece, distances stay.
    /// On a device that is large enough, addresses stay.
    Scale,
    /// Addresses beyond the end start again at 0.
    Wrap,
}

impl Fit {
    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Scale => "scale",
            Self::Wrap => "wrap",
        }
    }
}

/// Size of the pieces that [`Fit::Scale`] keeps whole, so that sequential runs stay sequential within them.
const PIECE_BYTES: i64 = 16 << 20;

/// The mapping for a pair of devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitting {
    fit: Fit,
    /// Size of the device in whole blocks, bytes.
    room_bytes: i64,
    block_bytes: i64,
    piece_bytes: i64,
    is_large_enough: bool,
    /// Number of pieces of the recorded device, and of this one.
    pieces: (i64, i64),
}

/// A byte range on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: i64,
    pub(super) len: i64,
    /// The range was widened to whole blocks of this device, or shortened to its size.
    pub(super) adjusted: bool,
}

impl Fitting {
    pub(super) fn new(
        fit: Fit,
        source: &str,
        source_bytes: i64,
        reach_bytes: i64,
        device: &Device,
        path: &Path,
    ) -> Result<Self, ReplayError> {
        let room_bytes = device.size_bytes / device.block_bytes * device.block_bytes;
        let refuse = |why: String| ReplayError::Block { path: path.into(), why };
        if room_bytes == 0 {
            return Err(refuse("the file is empty; make it as large as the recorded device (truncate -s)".into()));
        }
        if fit == Fit::Exact && reach_bytes > room_bytes {
            return Err(refuse(format!(
                "too small: {room_bytes} bytes, but addresses of {source} reach {reach_bytes}; use --fit scale or --fit wrap, or another recorded device (--source)"
            )));
        }
        let mut piece_bytes = PIECE_BYTES;
        while piece_bytes > device.block_bytes && piece_bytes * 4 > room_bytes {
            piece_bytes /= 2;
        }
        let pieces = ((source_bytes / piece_bytes).saturating_add(1), (room_bytes / piece_bytes).max(1));
        let is_large_enough = source_bytes <= room_bytes;
        Ok(Self { fit, room_bytes, block_bytes: device.block_bytes, piece_bytes, is_large_enough, pieces })
    }

    /// The place for `len_bytes` from `sector` on. The survey has checked both.
    pub(super) fn place(&self, sector: i64, len_bytes: i64) -> Place {
        let at = sector.saturating_mul(SECTOR_BYTES);
        let moved = match self.fit {
            Fit::Exact => at,
            Fit::Scale if self.is_large_enough => at,
            Fit::Scale => {
                let piece = i128::from(at / self.piece_bytes) * i128::from(self.pieces.1) / i128::from(self.pieces.0);
                piece as i64 * self.piece_bytes + at % self.piece_bytes
            }
            Fit::Wrap => at % self.room_bytes,
        };
        let first = moved / self.block_bytes * self.block_bytes;
        let last = moved.saturating_add(len_bytes);
        let last = last.saturating_add((self.block_bytes - last % self.block_bytes) % self.block_bytes);
        let len = (last - first).min(self.room_bytes);
        let offset = first.min(self.room_bytes - len);
        Place { offset, len, adjusted: len != len_bytes || (offset != moved) }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn fitting(fit: Fit, source: i64, room: i64, block_bytes: i64) -> Fitting {
        let device = Device::of_size(room, block_bytes);
        Fitting::new(fit, "sda", source, source, &device, Path::new("d")).unwrap()
    }

    #[test]
    fn what_fits_stays_where_it_was() {
        for fit in [Fit::Exact, Fit::Scale, Fit::Wrap] {
            let f = fitting(fit, 8 * GIB, 16 * GIB, 512);
            assert_eq!(f.place(12_345, 4096), Place { offset: 12_345 * 512, len: 4096, adjusted: false });
        }
        let small = Device::of_size(GIB, 512);
        assert!(Fitting::new(Fit::Exact, "sda", 2 * GIB, GIB + 1, &small, Path::new("d")).is_err());
        assert!(Fitting::new(Fit::Exact, "sda", 2 * GIB, GIB, &small, Path::new("d")).is_ok());
    }

    #[test]
    fn all_places_are_whole_blocks_on_the_device_whatever_was_recorded() {
        for fit in [Fit::Scale, Fit::Wrap] {
            for (room, block) in [(4096, 4096), (3 * 4096, 512), (GIB + 8192, 4096), (100 << 20, 512)] {
                let f = fitting(fit, 64 * GIB, room, block);
                for sector in [0, 1, 7, 2047, 1 << 20, (64 * GIB - 512) / 512, 1 << 53] {
                    for len in [1, 512, 4096, 1 << 20, 64 << 20] {
                        let p = f.place(sector, len);
                        assert!(p.offset >= 0 && p.len > 0 && p.offset + p.len <= room, "{p:?}");
                        assert_eq!((p.offset % block, p.len % block), (0, 0), "{p:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn scaled_runs_stay_sequential_within_a_piece_and_order_is_kept() {
        let f = fitting(Fit::Scale, 64 * GIB, GIB, 512);
        let at = |bytes: i64| f.place(bytes / 512, 4096).offset;
        assert!((0..1000).all(|i| at(i * 4096 + 4096) - at(i * 4096) == 4096));
        let pieces: Vec<i64> = (0..4096).map(|i| at(i * PIECE_BYTES)).collect();
        assert!(pieces.is_sorted() && *pieces.last().unwrap() >= GIB - 2 * PIECE_BYTES);
    }

    #[test]
    fn blocks_of_another_size_widen_and_say_so() {
        let f = fitting(Fit::Exact, GIB, GIB, 4096);
        assert_eq!(f.place(1, 512), Place { offset: 0, len: 4096, adjusted: true });
        assert_eq!(f.place(7, 1024), Place { offset: 0, len: 8192, adjusted: true });
        assert_eq!(f.place(8, 4096), Place { offset: 4096, len: 4096, adjusted: false });
    }
}
