//! What values take when decoded. A text column can have an encoding in which a page of a few bytes stands for
//! gigabytes: values that repeat the beginning of the one before (`DELTA_BYTE_ARRAY`), or an entry of the dictionary.

use std::{fs::File, sync::Arc};

use parquet::{
    basic::Encoding,
    column::page::{Page, PageReader},
    file::{metadata::ColumnChunkMetaData, serialized_reader::SerializedPageReader},
};

/// What the values of a column of a row group take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decoded {
    /// The longest value that can occur more than once, bytes.
    pub(super) longest: u64,
    /// All values that share a beginning, bytes.
    pub(super) bytes: u64,
}

impl Decoded {
    fn add(&mut self, other: Self) {
        self.longest = self.longest.max(other.longest);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Looks at the pages of a text column, whose sizes have been checked. `all`: not only at the dictionary, which comes
/// first.
pub(super) fn decoded(file: &Arc<File>, column: &ColumnChunkMetaData, rows: i64, all: bool) -> Result<Decoded, String> {
    let rows = usize::try_from(rows).map_err(|_| "a row group has a negative number of rows")?;
    let text = |e: parquet::errors::ParquetError| e.to_string();
    let mut pages = SerializedPageReader::new(file.clone(), column, rows, None).map_err(text)?;
    let optional = column.column_descr().max_def_level() > 0;
    let mut sum = Decoded::default();
    while let Some(page) = pages.get_next_page().map_err(text)? {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => sum.add(dictionary(&buf, num_values)?),
            Page::DataPage { buf, num_values, encoding, .. } => {
                sum.add(of_encoding(encoding, after_levels(&buf, optional)?, num_values)?);
            }
            Page::DataPageV2 { buf, num_values, encoding, def_levels_byte_len, rep_levels_byte_len, .. } => {
                let levels = def_levels_byte_len as usize + rep_levels_byte_len as usize;
                let values = buf.get(levels..).ok_or("a page is shorter than its levels")?;
                sum.add(of_encoding(encoding, values, num_values)?);
            }
        }
        if !all {
            break;
        }
    }
    Ok(sum)
}

/// The values of a page of version 1: which rows have one comes first, after its length.
fn after_levels(page: &[u8], optional: bool) -> Result<&[u8], String> {
    if !optional {
        return Ok(page);
    }
    let (length, rest) = page.split_first_chunk().ok_or("a page is shorter than its levels")?;
    rest.get(u32::from_le_bytes(*length) as usize..).ok_or_else(|| "a page is shorter than its levels".into())
}

fn of_encoding(encoding: Encoding, values: &[u8], most: u32) -> Result<Decoded, String> {
    match encoding {
        Encoding::DELTA_BYTE_ARRAY => shared_beginnings(values, most),
        // The values are in the page. Only the number of lengths could be anything.
        Encoding::DELTA_LENGTH_BYTE_ARRAY => lengths(values, most).map(|_| Decoded::default()),
        _ => Ok(Decoded::default()),
    }
}

/// A dictionary: each entry after its length.
fn dictionary(mut bytes: &[u8], entries: u32) -> Result<Decoded, String> {
    if u64::from(entries) * 4 > bytes.len() as u64 {
        return Err(format!("a dictionary of {} bytes cannot have {entries} entries", bytes.len()));
    }
    let mut longest = 0;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        longest = longest.max(length);
        // The decoder says what is wrong with an entry that is cut.
        bytes = rest.get(length as usize..).unwrap_or_default();
    }
    Ok(Decoded { longest: longest.into(), bytes: 0 })
}

/// Values of `DELTA_BYTE_ARRAY`: how much each has in common with the one before, then the lengths of what follows.
fn shared_beginnings(bytes: &[u8], most: u32) -> Result<Decoded, String> {
    let (shared, at) = lengths(bytes, most)?;
    let (rests, _) = lengths(bytes.get(at..).unwrap_or_default(), most)?;
    let mut sum = Decoded::default();
    let mut before = 0;
    for (shared, rest) in shared.into_iter().zip(rests) {
        // What is shared is no longer than the value before.
        let length = shared.min(before).saturating_add(rest);
        sum.add(Decoded { longest: length, bytes: length });
        before = length;
    }
    Ok(sum)
}

/// Numbers of `DELTA_BINARY_PACKED`, of which there are at most so many, and where their bytes end. Negative ones count as the
/// largest: the decoder takes them for unsigned.
fn lengths(bytes: &[u8], most: u32) -> Result<(Vec<u64>, usize), String> {
    let mut input = Input { bytes, at: 0 };
    let cut = || "the lengths of a page's values are cut".to_owned();
    let block = input.varint().ok_or_else(cut)?;
    let parts = input.varint().ok_or_else(cut)?;
    let count = input.varint().ok_or_else(cut)?;
    if count > u64::from(most) {
        return Err(format!("a page of {most} values has {count} lengths"));
    }
    if count == 0 {
        input.varint().ok_or_else(cut)?;
        return Ok((Vec::new(), input.at));
    }
    let per_part = block
        .checked_div(parts)
        .filter(|n| *n > 0 && n % 8 == 0)
        .ok_or("the lengths of a page's values are damaged")?;
    let mut last = input.zigzag().ok_or_else(cut)?;
    let mut found = vec![unsigned(last)];
    let left = |found: &Vec<u64>| count - found.len() as u64;
    while left(&found) > 0 {
        let least = input.zigzag().ok_or_else(cut)?;
        let widths = input.take(parts).ok_or_else(cut)?;
        for width in widths {
            if left(&found) == 0 {
                break;
            }
            if *width > 64 {
                return Err("the lengths of a page's values are damaged".into());
            }
            let packed = input.bits(u64::from(*width), per_part).ok_or_else(cut)?;
            for i in 0..per_part.min(left(&found)) {
                let delta = bits_at(packed, i, u32::from(*width));
                // Lengths are 32-bit numbers, whose sums wrap around.
                last = i64::from(last.wrapping_add(least).wrapping_add(delta as i64) as i32);
                found.push(unsigned(last));
            }
        }
    }
    Ok((found, input.at))
}

fn unsigned(length: i64) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Number `i` of numbers with this many bits, low bits first. Bits beyond the end are 0.
fn bits_at(packed: &[u8], i: u64, width: u32) -> u64 {
    let first_bit = i * u64::from(width);
    let (byte, shift) = ((first_bit / 8) as usize, (first_bit % 8) as u32);
    let mut word = [0_u8; 16];
    let there = packed.get(byte..).unwrap_or_default();
    let n = there.len().min(16);
    word[..n].copy_from_slice(&there[..n]);
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    (u128::from_le_bytes(word) >> shift) as u64 & mask
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let n = self.varint()?;
        Some((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(n).ok()?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    /// The bytes of `n` numbers of `width` bits. The last part of a page may be cut.
    fn bits(&mut self, width: u64, n: u64) -> Option<&'a [u8]> {
        let wanted = usize::try_from(width.checked_mul(n)?.div_ceil(8)).ok()?;
        let left = self.bytes.len() - self.at;
        self.take(wanted.min(left) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut n: u64, to: &mut Vec<u8>) {
        while n > 127 {
            to.push(n as u8 | 0x80);
            n >>= 7;
        }
        to.push(n as u8);
    }

    /// So many equal lengths: two numbers, and a block of deltas without bits.
    fn equal(count: u64, length: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [count.next_multiple_of(128), 1, count, length * 2] {
            varint(n, &mut out);
        }
        out.extend([0, 0]);
        out
    }

    #[test]
    fn a_few_bytes_that_stand_for_many_values_are_counted() {
        let (found, at) = lengths(&equal(100_000, 5), 100_000).expect("valid");
        assert_eq!((found.len(), found[99_999], at), (100_000, 5, equal(100_000, 5).len()));
        assert!(lengths(&equal(100_000, 5), 99_999).is_err(), "more than the page says");
        assert!(lengths(&equal(u64::MAX >> 8, 5), u32::MAX).is_err());
    }

    #[test]
    fn values_with_a_shared_beginning_take_its_length_each() {
        // The first value has 1000 bytes; 9,999 more share them and have none of their own.
        let mut rests = Vec::new();
        [10_112, 1, 10_000, 2000].into_iter().for_each(|n| varint(n, &mut rests));
        // The first delta is -1000, all others 0: with the least at -1000, deltas of 10 bits.
        varint(1999, &mut rests);
        rests.push(10);
        let mut bits = vec![0_u8; 10_112 * 10 / 8];
        for i in 1..9_999_usize {
            for bit in 0..10 {
                let at = i * 10 + bit;
                bits[at / 8] |= ((1000_u32 >> bit & 1) as u8) << (at % 8);
            }
        }
        rests.extend(bits);
        let page = [equal(10_000, 1000), rests].concat();
        let found = shared_beginnings(&page, 10_000).expect("valid");
        assert_eq!(found, Decoded { longest: 1000, bytes: 10_000_000 });
    }

    /// `equal` with a length of -1.
    #[test]
    fn a_negative_length_shares_all() {
        let mut negative = equal(3, 0);
        negative[4] = 1;
        assert_eq!(lengths(&negative, 3).expect("valid").0, [u64::MAX; 3]);
        let page = [&negative[..], &equal(3, 50)].concat();
        assert_eq!(shared_beginnings(&page, 3), Ok(Decoded { longest: 150, bytes: 300 }));
    }

    #[test]
    fn damaged_lengths_are_refused_without_a_panic() {
        let whole = equal(1000, 7);
        for cut in 0..whole.len() - 1 {
            assert!(lengths(&whole[..cut], 1000).is_err(), "{cut}");
        }
        for bytes in [&[0x80, 1, 0, 5, 2][..], &[0x80, 1, 3, 5, 2, 0, 0], &[8, 1, 5, 2, 0, 65], &[0xff; 40]] {
            assert!(lengths(bytes, 1000).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_longest_entry_of_a_dictionary_is_found() {
        let bytes = [&[3, 0, 0, 0][..], b"abc", &[5, 0, 0, 0], b"abcde", &[0, 0, 0, 0]].concat();
        assert_eq!(dictionary(&bytes, 3), Ok(Decoded { longest: 5, bytes: 0 }));
        assert!(dictionary(&bytes, 6).is_err(), "six lengths do not fit");
    }
}
