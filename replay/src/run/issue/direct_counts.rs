//! Counts direct I/O that the target refused.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Counts of direct I/O that went through the page cache instead.
#[derive(Debug, Default)]
pub struct DirectCounts {
    /// Reads and writes.
    pub adjusted: AtomicI64,
    /// The target's alignment of offsets and lengths for direct I/O; 0 if the target does not state it.
    pub align_bytes: AtomicI64,
    /// Opens.
    pub opens: AtomicI64,
}

impl DirectCounts {
    /// Warnings for the user.
    pub fn told(&self) -> Vec<String> {
        let (adjusted, opens) = (self.adjusted.load(Relaxed), self.opens.load(Relaxed));
        let mut out = Vec::new();
        if adjusted > 0 {
            let align = match self.align_bytes.load(Relaxed) {
                0 => String::new(),
                n => format!(" (multiples of {n} bytes)"),
            };
            out.push(format!(
                "{adjusted} direct reads and writes are not aligned for the target{align}; they went through the page cache"
            ));
        }
        if opens > 0 {
            out.push(format!("the target has no direct I/O; {opens} opens were made without O_DIRECT"));
        }
        out
    }
}
