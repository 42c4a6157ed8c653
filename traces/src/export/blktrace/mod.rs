//! Block traces as blktrace(8) writes them, for blkparse, btt, iowatcher, seekwatcher and fio.
//!
//! If the reel was imported from block traces, the export returns its original records. Otherwise, records are created
//! from the tables; `docs/import-export.md` lists the differences.

mod files;
mod synth;

use std::path::{Path, PathBuf};

use crate::{
    Reel, ReelError,
    blktrace::{Record, padded},
    format::{
        rows::{Action, Bio, Block},
        table::Row,
        text,
    },
};

use super::{ExportError, Result};
use files::Files;

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// The files written.
    pub files: Vec<PathBuf>,
    /// Number of records, notes included.
    pub records: i64,
    /// What the format cannot represent.
    pub notes: Vec<String>,
}

/// Writes the block layer of a reel to `output`: a base name, to which `.blktrace.CPU` is added, or a folder. Several
/// devices need a folder. With `dump`, writes one file ordered by time, as `blkparse -d` does.
///
/// # Errors
/// If the reel has no rows of the block layer or cannot be read, or if a file already exists or cannot be written.
pub fn export(reel: &Reel, output: &Path, dump: bool) -> Result<Exported> {
    let exact = reel.count::<Action>() > 0;
    if !exact && reel.count::<Block>() == 0 && reel.count::<Bio>() == 0 {
        return Err(ExportError::refused(
            reel.path(),
            "no requests and no bios in this reel; record with the block layer (the default)",
        ));
    }
    let mut files = Files::new(output, dump)?;
    let mut exported = Exported::default();
    let done =
        if exact { give_back(reel, &mut files, &mut exported) } else { synth::make(reel, &mut files, &mut exported) };
    done?;
    exported.files = files.finish()?;
    Ok(exported)
}

/// Writes the original records of an imported trace.
fn give_back(reel: &Reel, files: &mut Files, exported: &mut Exported) -> Result<()> {
    let base_ns = reel.manifest.clock.monotonic_ns;
    // A dump lost the file order of its records, so a reel imported from a dump uses the order of the dump.
    let by_place = !files.dump() || reel.manifest.import.as_ref().is_some_and(|i| i.files.len() == 1);
    for index in 0..reel.segments::<Action>().len() {
        let mut rows: Vec<Action> = Vec::new();
        for batch in reel.segment_batches::<Action>(index, &[]) {
            let bad = |why| ReelError::BadSegment { path: Action::TABLE.into(), why };
            Action::read(&batch?, &mut rows).map_err(bad)?;
        }
        if by_place {
            rows.sort_by_key(|row| row.place);
        }
        for row in rows {
            let (mut record, payload) = record(&row, base_ns);
            if files.dump() && !record.is_silent_note() {
                record.time_ns = row.time_ns.max(0) as u64;
            }
            files.write(&row.trace, &record, &payload)?;
            exported.records += 1;
        }
    }
    Ok(())
}

/// The original record of a row.
fn record(row: &Action, base_ns: i64) -> (Record, Vec<u8>) {
    let hex = row.payload.as_deref().unwrap_or_default();
    let mut payload: Vec<u8> = match (&row.comm, &row.message) {
        (Some(comm), _) => padded(&text::to_bytes(comm)).into(),
        (None, Some(message)) => text::to_bytes(message),
        (None, None) => (0..hex.len() / 2)
            .map(|i| hex.get(2 * i..2 * i + 2).and_then(|b| u8::from_str_radix(b, 16).ok()).unwrap_or_default())
            .collect(),
    };
    payload.truncate(usize::from(u16::MAX));
    let record = Record {
        sequence: row.sequence as u32,
        time_ns: row.stamp_ns.unwrap_or(base_ns.saturating_add(row.time_ns)) as u64,
        sector: row.sector as u64,
        bytes: row.len_bytes as u32,
        action: row.action as u32,
        pid: row.pid as u32,
        dev: row.dev as u32,
        cpu: row.cpu as u32,
        error: row.error as u16,
        payload_bytes: payload.len() as u16,
    };
    (record, payload)
}
