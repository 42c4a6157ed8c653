//! The part of a reel that is replayed (`--from`, `--to`).

use serde::Serialize;

/// A time window: the operations that took effect in it are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// First time included, ns of the reel.
    pub from_ns: i64,
    /// First time excluded, ns of the reel; the largest number for the end of the reel.
    pub to_ns: i64,
}

impl Default for Slice {
    fn default() -> Self {
        Self { from_ns: 0, to_ns: i64::MAX }
    }
}

impl Slice {
    /// Whether it is the whole reel.
    pub fn is_whole(self) -> bool {
        self == Self::default()
    }
}
