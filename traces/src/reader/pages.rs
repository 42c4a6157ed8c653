//! Reads the headers of a segment's pages. They state the decompressed size of each page; the footer may claim less.
//!
//! A header is a struct in Thrift's compact protocol. Its first three members are the kind of the page, its decompressed size,
//! and its size in the file. A further struct says how many values the page has, and how they are encoded.

use std::{fs::File, os::unix::fs::FileExt};

/// Bytes read for a header at first, and at most. A header may contain the smallest and the largest value of a text column.
const HEADER_BYTES: [usize; 2] = [512, 1 << 20];
/// Maximum depth of nested structs.
const MOST_DEPTH: u32 = 8;

/// What the header of a page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Page {
    /// Size of the header itself.
    header: u64,
    unpacked: u64,
    packed: u64,
    /// Number of values of a data page.
    values: u64,
    is_dictionary: bool,
    encoding: i64,
}

/// Encodings of text in which the number of values does not follow from the size of a page (`DELTA_LENGTH_BYTE_ARRAY`,
/// `DELTA_BYTE_ARRAY`).
const COUNTED: [i64; 2] = [6, 7];

/// What the headers of a column's pages say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages {
    /// Decompressed size, headers included.
    pub(super) unpacked: u64,
    /// Number of values.
    pub(super) values: u64,
    /// Decompressed size of dictionaries.
    pub(super) dictionary_bytes: u64,
    /// Some pages have text in an encoding in which a few bytes can stand for many values.
    pub(super) is_counted: bool,
}

/// The pages in the `len` bytes of the file from `start` on.
pub(super) fn walk(file: &File, start: u64, len: u64) -> Result<Pages, String> {
    let end = start.saturating_add(len);
    let (mut at, mut sum) = (start, Pages::default());
    while at < end {
        let page = page_at(file, at, end)?;
        sum.unpacked = sum.unpacked.saturating_add(page.header).saturating_add(page.unpacked);
        sum.values = sum.values.saturating_add(page.values);
        if page.is_dictionary {
            sum.dictionary_bytes = sum.dictionary_bytes.saturating_add(page.unpacked);
        }
        sum.is_counted |= COUNTED.contains(&page.encoding);
        at = at.saturating_add(page.header).saturating_add(page.packed);
    }
    Ok(sum)
}

fn page_at(file: &File, at: u64, end: u64) -> Result<Page, String> {
    let mut bytes = Vec::new();
    for most in HEADER_BYTES {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX).min(most);
        bytes.resize(wanted, 0);
        file.read_exact_at(&mut bytes, at).map_err(|e| format!("reading the header of a page: {e}"))?;
        if let Some(page) = header(&bytes) {
            return Ok(page);
        }
    }
    Err(format!("the header of the page at byte {at} is damaged"))
}

/// The page with this header. `None` if the header does not end in these bytes, or is damaged.
fn header(bytes: &[u8]) -> Option<Page> {
    let mut rest = Compact { bytes, at: 0 };
    let mut page = Page::default();
    let (mut field, mut sizes) = (0, 0);
    while let Some((id, kind)) = rest.field(field)? {
        match (id, kind) {
            (2 | 3, 5) => {
                let size = u64::try_from(rest.integer()?).ok()?;
                *(if id == 2 { &mut page.unpacked } else { &mut page.packed }) = size;
                sizes += 1;
            }
            // Headers of data pages, of dictionaries, and of data pages of version 2.
            (5 | 7 | 8, 12) => {
                let (values, encoding) = rest.values(if id == 8 { 4 } else { 2 })?;
                page.encoding = encoding;
                page.is_dictionary = id == 7;
                page.values = if id == 7 { 0 } else { values };
            }
            _ => rest.skip(kind, MOST_DEPTH)?,
        }
        field = id;
    }
    page.header = rest.at as u64;
    // Both sizes are required: without them, each byte of a range of zeroes would be a page.
    (sizes == 2).then_some(page)
}

/// Bytes of Thrift's compact protocol.
struct Compact<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A zigzag integer.
    fn integer(&mut self) -> Option<i64> {
        let n = self.varint()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// Id and type of the member after the one with id `before`. `Some(None)` at the end of the struct.
    fn field(&mut self, before: i64) -> Option<Option<(i64, u8)>> {
        let byte = self.byte()?;
        let (delta, kind) = (byte >> 4, byte & 0xf);
        Some(match (delta, kind) {
            (_, 0) => None,
            (0, kind) => Some((self.integer()?, kind)),
            (delta, kind) => Some((before.checked_add(delta.into())?, kind)),
        })
    }

    /// The first member of a struct, the number of values, and that with this id, their encoding.
    fn values(&mut self, encoding_id: i64) -> Option<(u64, i64)> {
        let (mut values, mut encoding, mut field) = (None, None, 0);
        while let Some((id, kind)) = self.field(field)? {
            match (id, kind) {
                (1, 5) => values = Some(u64::try_from(self.integer()?).ok()?),
                (_, 5) if id == encoding_id => encoding = Some(self.integer()?),
                _ => self.skip(kind, MOST_DEPTH)?,
            }
            field = id;
        }
        Some((values?, encoding?))
    }

    fn pass(&mut self, bytes: u64) -> Option<()> {
        let at = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (at <= self.bytes.len()).then(|| self.at = at)
    }

    /// Skips a value of this type.
    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        match kind {
            // The type of a boolean is its value.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            12 if depth > 0 => {
                let mut field = 0;
                while let Some((id, kind)) = self.field(field)? {
                    self.skip(kind, depth - 1)?;
                    field = id;
                }
                Some(())
            }
            // Page headers contain no lists or maps.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of version 1 with statistics: type 0, 300 bytes unpacked, 20 packed, 7 values.
    const DATA: &[u8] =
        &[0x15, 0, 0x15, 0xd8, 4, 0x15, 40, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0x1c, 0x18, 2, 9, 9, 0, 0, 0];

    #[test]
    fn sizes_are_read_whatever_follows_them() {
        let page = Page { header: DATA.len() as u64, unpacked: 300, packed: 20, values: 7, ..Page::default() };
        assert_eq!(header(DATA), Some(page));
        assert_eq!(header(&[DATA, &[1, 2, 3]].concat()), Some(page));
    }

    #[test]
    fn what_is_cut_or_garbled_is_no_header() {
        for cut in 0..DATA.len() {
            assert_eq!(header(&DATA[..cut]), None, "{cut}");
        }
        // A negative size, a list, structs without end.
        assert_eq!(header(&[0x25, 1, 0]), None);
        assert_eq!(header(&[0x19, 0x15, 0, 0]), None);
        assert_eq!(header(&[0x1c; 1000]), None);
        // A struct without sizes.
        assert_eq!(header(&[0; 1000]), None);
    }
}
