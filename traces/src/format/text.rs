//! Shared immutable text. Operation names and paths recur, so rows share them.

use std::{
    cmp::Ordering,
    fmt,
    hash::{BuildHasher, Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use rustc_hash::FxBuildHasher;

/// Whether a character of a name or word must not reach a terminal: it would end the line, control the terminal, or turn the
/// direction of writing, so that what follows is shown in another order.
pub fn is_harmful(c: char) -> bool {
    let turns = matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{200E}' | '\u{200F}' | '\u{061C}');
    // Some terminals and editors take these for the end of a line.
    c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}')
}

/// A cheap-to-clone string.
#[derive(Clone)]
pub struct Text(Kept);

#[derive(Clone)]
enum Kept {
    /// A static word. It has no reference counter, because it is cloned up to a million times a second.
    Word(&'static str),
    Shared(Arc<str>),
}

impl Text {
    /// A static word.
    pub const fn word(word: &'static str) -> Self {
        Self(Kept::Word(word))
    }

    /// A number for fast comparison: equal for clones, and different from other texts as long as one of the clones
    /// lives.
    pub(crate) fn address(&self) -> usize {
        // A word may be a prefix of another at the same address, so the length is included. User-space addresses end
        // below bit 47.
        self.as_ptr() as usize ^ (self.len() << 47)
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        match &self.0 {
            Kept::Word(word) => word,
            Kept::Shared(text) => text,
        }
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl std::borrow::Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl From<&str> for Text {
    fn from(s: &str) -> Self {
        Self(Kept::Shared(s.into()))
    }
}

impl From<String> for Text {
    fn from(s: String) -> Self {
        Self(Kept::Shared(s.into()))
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::word("")
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes like `str`, because tables are queried with `str`.
        (**self).hash(state);
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        &**self == other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        &**self == *other
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Linux names are bytes, Parquet strings are UTF-8. Bytes that are not valid UTF-8 are stored as private-use
/// characters U+F700 + byte, which no file system produces; [`to_bytes`] reverses it.
const ESCAPE_BASE: u32 = 0xF700;

/// Text of a file name or path of any bytes. [`to_bytes`] reverses it.
pub fn from_bytes(name: &[u8]) -> Text {
    if let Ok(s) = std::str::from_utf8(name)
        && (s.is_ascii() || !s.chars().any(is_escape))
    {
        return s.into();
    }
    let mut out = String::with_capacity(name.len() + 8);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_escape(c) {
                let mut buf = [0u8; 4];
                out.extend(c.encode_utf8(&mut buf).bytes().map(escape));
            } else {
                out.push(c);
            }
        }
        out.extend(chunk.invalid().iter().map(|b| escape(*b)));
    }
    out.into()
}

/// The original bytes of a recorded name.
pub fn to_bytes(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for c in name.chars() {
        if is_escape(c) {
            out.push((u32::from(c) - ESCAPE_BASE) as u8);
        } else {
            let mut buf = [0u8; 4];
            out.extend_from_slice(c.encode_utf8(&mut buf).as_bytes());
        }
    }
    out
}

fn is_escape(c: char) -> bool {
    (ESCAPE_BASE + 0x80..=ESCAPE_BASE + 0xFF).contains(&u32::from(c))
}

fn escape(byte: u8) -> char {
    char::from_u32(ESCAPE_BASE + u32::from(byte)).unwrap_or('\u{FFFD}')
}

/// Returns the same [`Text`] for equal strings that follow soon after each other. Each hash value has one slot, which
/// the next string with that hash value takes over. A complete table would grow, and miss the CPU cache.
#[derive(Debug)]
pub struct Interner {
    places: Vec<Option<Text>>,
}

impl Interner {
    /// An interner with at least this many slots.
    pub fn new(places: usize) -> Self {
        Self { places: vec![None; places.next_power_of_two()] }
    }

    /// The text of these bytes; see [`from_bytes`].
    pub fn get(&mut self, bytes: &[u8]) -> Text {
        let hash = FxBuildHasher.hash_one(bytes);
        let mask = self.places.len() - 1;
        // The upper bits are the well mixed ones.
        let place = &mut self.places[(hash >> 32) as usize & mask];
        match place {
            Some(text) if text.as_bytes() == bytes => text.clone(),
            _ => {
                let text = from_bytes(bytes);
                // Different bytes could otherwise map to the same text.
                if text.as_bytes() == bytes {
                    *place = Some(text.clone());
                }
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        for name in
            [&b"plain"[..], b"caf\xc3\xa9", b"\xff\xfe/x\x80", "\u{F7FF}".as_bytes(), b"a\xf0\x9f\x98\x80b\xed\xa0\x80"]
        {
            assert_eq!(to_bytes(&from_bytes(name)), name);
        }
    }

    #[test]
    fn interner_shares_what_returns_soon() {
        let mut i = Interner::new(64);
        let a = i.get(b"a");
        assert_eq!(a.address(), i.get(b"a").address());
        for n in 0..1000 {
            assert_eq!(&*i.get(n.to_string().as_bytes()), n.to_string());
        }
        // Invalid bytes and the characters that represent them must differ.
        let escaped = i.get(b"\xff");
        assert_eq!(to_bytes(&i.get(escaped.as_bytes())), escaped.as_bytes());
    }
}
