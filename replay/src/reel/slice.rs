//! A part of a reel that is replayed by itself.

use serde::Serialize;

/// A part of a reel: the operations that took effect in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// From then on, ns of the reel.
    pub from_ns: i64,
    /// Until before then; the greatest number for the reel's end.
    pub to_ns: i64,
}

impl Default for Slice {
    fn default() -> Self {
        Self { from_ns: 0, to_ns: i64::MAX }
    }
}

impl Slice {
    /// Whether it is all of the reel.
    pub fn is_whole(self) -> bool {
        self == Self::default()
    }
}
