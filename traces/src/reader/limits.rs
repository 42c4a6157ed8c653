//! Refuses, before decoding, a reel that would take far more time or memory than the size of its files explains.
//!
//! A few bytes of Parquet can claim any number of rows, row groups and bytes. The limits are far above what the writer makes:
//! segments of 256 Ki rows in row groups of 128 Ki, with several bytes per row.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use parquet::{
    arrow::ProjectionMask,
    basic::Type,
    file::metadata::{ColumnChunkMetaData, ParquetMetaData},
    schema::types::SchemaDescriptor,
};

use super::{
    BATCH_ROWS, pages,
    values::{self, Decoded},
};
use crate::format::manifest::Segment;

/// Rows that a table of events may have, whatever the size of its files.
const FREE_EVENTS: i64 = 16 << 20;
/// Rows above that, per byte of the files. Recorded rows take several bytes each; rows of a sequential import take little.
const EVENTS_PER_BYTE: i64 = 16;
/// The same for other tables. Their rows have names and times, and readers hold them in memory.
const FREE_ROWS: i64 = 4 << 20;
const ROWS_PER_BYTE: i64 = 1;
/// Tables of events.
const EVENTS: [&str; 7] = ["ops", "block", "bio", "cache", "waits", "commits", "actions"];
/// Row groups that a segment may have, whatever its number of rows, and rows per further group.
const FREE_ROW_GROUPS: i64 = 1024;
const LEAST_ROWS_PER_GROUP: i64 = 1024;
/// Maximum size of a segment's footer. 200,000 columns fit.
const MOST_FOOTER_BYTES: u64 = 16 << 20;
/// Decompressed bytes that a row group may have, whatever its size, and further ones per compressed byte.
const FREE_GROUP_BYTES: i64 = 256 << 20;
const MOST_RATIO: i64 = 64;
/// Decoded size of a column's values that are read at a time, bytes. Fewer rows are read at a time where values are long.
const BATCH_BYTES: u64 = 256 << 20;
/// Bytes of dictionaries that batches of a segment may use altogether, whatever its size, and further ones per byte: each
/// batch copies the entries that it uses.
const FREE_COPIED_BYTES: u64 = 4 << 30;
const COPIED_PER_BYTE: u64 = 1024;

/// Compares the number of rows of a table with the size of its segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    rows: i64,
    bytes: i64,
    free_rows: i64,
    rows_per_byte: i64,
}

impl Budget {
    /// The budget of a table.
    pub(crate) fn of(table: &str) -> Self {
        let (free_rows, rows_per_byte) =
            if EVENTS.contains(&table) { (FREE_EVENTS, EVENTS_PER_BYTE) } else { (FREE_ROWS, ROWS_PER_BYTE) };
        Self { rows: 0, bytes: 0, free_rows, rows_per_byte }
    }

    /// Adds a segment. The error says why it is too much.
    pub(crate) fn add(&mut self, rows: i64, bytes: i64) -> Result<(), String> {
        if rows < 0 || bytes < 0 {
            return Err(format!("{rows} rows in {bytes} bytes are not possible"));
        }
        self.rows = self.rows.saturating_add(rows);
        self.bytes = self.bytes.saturating_add(bytes);
        let most = self.free_rows.saturating_add(self.bytes.saturating_mul(self.rows_per_byte));
        if self.rows > most {
            return Err(format!("{} rows in {} bytes; at most {most} are read from that size", self.rows, self.bytes));
        }
        Ok(())
    }
}

/// Refuses a table whose list has a file twice, or more rows than its files can hold.
pub(crate) fn check_list(table: &str, listed: &[Segment]) -> Result<(), String> {
    if let Some(file) = listed_twice(listed) {
        return Err(format!("{file} is listed twice; `ioreel validate --repair` lists it once"));
    }
    let mut budget = Budget::of(table);
    for segment in listed {
        budget.add(segment.rows, segment.bytes).map_err(|why| format!("{table}: {why}"))?;
    }
    Ok(())
}

/// A file that is listed more than once.
pub(crate) fn listed_twice(listed: &[Segment]) -> Option<&str> {
    let mut files: Vec<&str> = listed.iter().map(|s| s.file.as_str()).collect();
    files.sort_unstable();
    files.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Refuses a segment with more rows or fewer bytes than the manifest lists, because [`check_list`] relies on these numbers.
pub(crate) fn check_listed(listed: &Segment, bytes: u64, metadata: &ParquetMetaData) -> Result<(), String> {
    let rows = metadata.file_metadata().num_rows();
    let why = if rows > listed.rows {
        format!("it has {rows} rows, but the manifest lists {}", listed.rows)
    } else if i64::try_from(bytes).is_ok_and(|bytes| bytes < listed.bytes) {
        format!("it has {bytes} bytes, but the manifest lists {}", listed.bytes)
    } else {
        return Ok(());
    };
    Err(why)
}

/// Refuses a file of `bytes` whose footer is too long to parse.
pub(crate) fn check_footer_length(file: &File, bytes: u64) -> Result<(), String> {
    let mut tail = [0; 8];
    // A file too short for a footer is left to the decoder, which reports it.
    let Some(at) = bytes.checked_sub(8) else { return Ok(()) };
    match file.read_exact_at(&mut tail, at) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
        other => other.map_err(|e| e.to_string())?,
    }
    let [a, b, c, d, ..] = tail;
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    if footer > MOST_FOOTER_BYTES && footer < bytes {
        return Err(format!("its footer has {footer} bytes; at most {MOST_FOOTER_BYTES} are read"));
    }
    Ok(())
}

/// Maximum decompressed size of a row group with this many compressed bytes.
fn most_unpacked(packed: i64) -> i64 {
    FREE_GROUP_BYTES.saturating_add(packed.saturating_mul(MOST_RATIO))
}

/// The columns to read: those named (all when empty) with one number or text per row. No table of a reel has others, and
/// the number of values in them does not follow from the number of rows.
pub(crate) fn columns_to_read(schema: &SchemaDescriptor, named: &[String]) -> ProjectionMask {
    let is_wanted = |leaf: usize| {
        let column = schema.column(leaf);
        let name = column.path().parts().first();
        let is_flat = column.path().parts().len() == 1 && column.max_rep_level() == 0;
        let has_length = matches!(column.physical_type(), Type::FIXED_LEN_BYTE_ARRAY | Type::INT96);
        is_flat && !has_length && (named.is_empty() || name.is_some_and(|name| named.contains(name)))
    };
    ProjectionMask::leaves(schema, (0..schema.num_columns()).filter(|leaf| is_wanted(*leaf)))
}

/// Refuses a segment of `bytes` whose pages become more than their size explains, when decompressed or when decoded. Its
/// footer may claim less than the headers of the pages. Returns how many rows may be decoded at a time.
pub(crate) fn check_pages(
    file: &Arc<File>,
    metadata: &ParquetMetaData,
    mask: &ProjectionMask,
    bytes: u64,
) -> Result<usize, String> {
    let (mut longest, mut dictionaries) = (1u64, Vec::new());
    for group in metadata.row_groups() {
        let (mut packed, mut unpacked) = (0u64, 0u64);
        for (_, column) in group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf)) {
            let first =
                column.dictionary_page_offset().map_or(column.data_page_offset(), |d| d.min(column.data_page_offset()));
            let range = (u64::try_from(first), u64::try_from(column.compressed_size()));
            let (Ok(start), Ok(len)) = range else { return Err("a column starts before the file".into()) };
            if start.checked_add(len).is_none_or(|end| end > bytes) {
                return Err(format!("a column of {len} bytes at {start} ends beyond the file"));
            }
            packed = packed.saturating_add(len);
            let pages = pages::walk(file, start, len)?;
            if pages.values > group.num_rows().unsigned_abs() {
                return Err(format!("{} values in a row group of {} rows", pages.values, group.num_rows()));
            }
            unpacked = unpacked.saturating_add(pages.unpacked);
            check_unpacked(packed, unpacked)?;
            let decoded = decoded(file, column, &pages, group.num_rows())?;
            unpacked = unpacked.saturating_add(decoded.bytes);
            check_unpacked(packed, unpacked)?;
            longest = longest.max(decoded.longest);
            dictionaries.push((pages.dictionary_bytes, group.num_rows().unsigned_abs()));
        }
    }
    let batch_rows = (BATCH_BYTES / longest).clamp(1, BATCH_ROWS as u64);
    let copied = dictionaries
        .iter()
        .fold(0u64, |sum, (bytes, rows)| sum.saturating_add(bytes.saturating_mul(rows.div_ceil(batch_rows))));
    let most = FREE_COPIED_BYTES.saturating_add(bytes.saturating_mul(COPIED_PER_BYTE));
    if copied > most {
        return Err(format!("its {bytes} bytes would take {copied} bytes of dictionaries; at most {most} are read"));
    }
    Ok(batch_rows as usize)
}

fn check_unpacked(packed: u64, unpacked: u64) -> Result<(), String> {
    let most = most_unpacked(i64::try_from(packed).unwrap_or(i64::MAX)).unsigned_abs();
    if unpacked > most {
        return Err(format!(
            "pages of {packed} bytes would become {unpacked} when decompressed and decoded; at most {most} are read"
        ));
    }
    Ok(())
}

/// What the values of a column of a row group take, beyond the size of its pages.
fn decoded(file: &Arc<File>, column: &ColumnChunkMetaData, pages: &pages::Pages, rows: i64) -> Result<Decoded, String> {
    let is_long = pages.dictionary_bytes > BATCH_BYTES / BATCH_ROWS as u64;
    if column.column_type() != Type::BYTE_ARRAY || !pages.is_counted && !is_long {
        return Ok(Decoded::default());
    }
    values::decoded(file, column, rows, pages.is_counted)
}

/// Refuses a segment of `bytes` whose footer claims more than that size explains.
pub(crate) fn check_footer(metadata: &ParquetMetaData, bytes: u64) -> Result<(), String> {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let rows = metadata.file_metadata().num_rows();
    Budget::of(EVENTS[0]).add(rows, bytes)?;
    let groups = metadata.num_row_groups() as i64;
    let most = FREE_ROW_GROUPS.saturating_add(rows / LEAST_ROWS_PER_GROUP);
    if groups > most {
        return Err(format!("{rows} rows in {groups} row groups; at most {most} are read of that many rows"));
    }
    let (mut in_groups, mut in_file): (i64, i64) = (0, 0);
    for group in metadata.row_groups() {
        in_groups = in_groups.saturating_add(group.num_rows());
        let sum = |of: fn(&ColumnChunkMetaData) -> i64| group.columns().iter().map(of).fold(0, i64::saturating_add);
        let (packed, unpacked) = (sum(|c| c.compressed_size()).clamp(0, bytes), sum(|c| c.uncompressed_size()));
        in_file = in_file.saturating_add(packed);
        let most = most_unpacked(packed);
        if group.num_rows() < 0 || unpacked > most {
            return Err(format!(
                "a row group of {packed} bytes would become {unpacked} when decompressed; at most {most} are read"
            ));
        }
    }
    // [`check_pages`] and the decoder would read the same bytes once per column.
    if in_file > bytes {
        return Err(format!("its columns have {in_file} bytes, but the file has {bytes}"));
    }
    if in_groups != rows {
        return Err(format!("its footer says {rows} rows, but its row groups have {in_groups}"));
    }
    Ok(())
}
