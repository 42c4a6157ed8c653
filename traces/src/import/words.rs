//! Words and numbers in the lines of block traces.

use crate::host::dev_t;

/// Words of a line.
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl<'a> Words<'a> {
    /// The next word. Empty at the end of the line.
    pub(super) fn next(&mut self) -> &'a [u8] {
        let rest = self.0.trim_ascii_start();
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.0 = &rest[end..];
        &rest[..end]
    }

    /// The next word, without consuming it.
    pub(super) fn peek(&self) -> &'a [u8] {
        Words(self.0).next()
    }
}

/// A decimal number.
pub(super) fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    if text.first().is_none_or(|b| *b == b'+') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// `8,0` or `8:0` as a device number.
pub(super) fn device(text: &[u8]) -> Option<u32> {
    let at = text.iter().position(|b| matches!(b, b',' | b':'))?;
    let (major, minor) = (number::<u32>(&text[..at])?, number::<u32>(&text[at + 1..])?);
    (major < 1 << 12 && minor < 1 << 20).then(|| dev_t(major, minor) as u32)
}

/// Seconds with a fraction, in ns.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    let at = text.iter().position(|b| *b == b'.')?;
    let (whole, fraction) = (&text[..at], &text[at + 1..]);
    if fraction.is_empty() || fraction.len() > 9 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let ns = number::<u64>(fraction)? * 10_u64.pow(9 - fraction.len() as u32);
    let all = number::<u64>(whole)?.checked_mul(1_000_000_000)?.checked_add(ns)?;
    i64::try_from(all).ok().map(|ns| ns as u64)
}

/// Bytes of this many sectors.
pub(super) fn bytes(sectors: u64) -> Option<u32> {
    sectors.checked_mul(512).and_then(|n| u32::try_from(n).ok())
}
