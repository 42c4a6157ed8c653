//! Columns of the page's data: bytes, or integers as zigzag variable-length bytes, plain or as differences.

/// Encoding of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One byte each.
    Bytes,
    /// Integers, 7 bits per byte, low bits first, sign in the lowest bit.
    Integers,
    /// Differences between consecutive integers, encoded like integers. Differences and sums are those of 64-bit words,
    /// so every integer comes out as it went in.
    Differences,
    /// UTF-8.
    Text,
}

impl Kind {
    /// Its name in the container's index. `bundle.js` uses the same names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "u8",
            Self::Integers => "int",
            Self::Differences => "diff",
            Self::Text => "text",
        }
    }
}

/// A column, encoded.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its name, unique in the container.
    pub(super) name: String,
    /// Its encoding.
    pub(super) kind: Kind,
    /// Its content.
    pub(super) bytes: Vec<u8>,
}

impl Column {
    /// A column of bytes.
    pub(super) fn bytes(name: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self { name: name.into(), kind: Kind::Bytes, bytes }
    }

    /// A text.
    pub(super) fn text(name: impl Into<String>, text: String) -> Self {
        Self { name: name.into(), kind: Kind::Text, bytes: text.into_bytes() }
    }

    /// A column of unordered integers.
    pub(super) fn integers(name: impl Into<String>, values: impl Iterator<Item = i64>) -> Self {
        let mut bytes = Vec::new();
        values.for_each(|v| put(&mut bytes, v));
        Self { name: name.into(), kind: Kind::Integers, bytes }
    }

    /// A column of ascending or similar integers.
    pub(super) fn differences(name: impl Into<String>, values: impl Iterator<Item = i64>) -> Self {
        let (mut bytes, mut last) = (Vec::new(), 0i64);
        for v in values {
            put(&mut bytes, v.wrapping_sub(last));
            last = v;
        }
        Self { name: name.into(), kind: Kind::Differences, bytes }
    }
}

fn put(out: &mut Vec<u8>, v: i64) {
    let mut rest = ((v << 1) ^ (v >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_short_where_they_are_small() {
        let c = Column::integers("x", [0, -1, 1, 63, 64, -65].into_iter());
        assert_eq!(c.bytes, [0, 1, 2, 126, 128, 1, 129, 1]);
        assert_eq!(Column::differences("x", [5, 6, 4].into_iter()).bytes, [10, 2, 3]);
        assert_eq!(Column::differences("x", [i64::MIN, i64::MAX].into_iter()).bytes.len(), 10 + 1);
    }
}
