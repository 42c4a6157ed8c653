//! Block traces as blktrace(8) writes them, for blkparse, btt, iowatcher, seekwatcher and fio.
//!
//! A reel imported from block traces gives back their records as they were. Of others, records are made of what the
//! tables know: see `docs/import-export.md` for what that is not.

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

/// What was written.
#[derive(Debug, Default)]
pub struct Exported {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Records in them, notes included.
    pub records: i64,
    /// What the format could not say.
    pub notes: Vec<String>,
}

/// Writes the block layer of a reel to `output`: a base name that `.blktrace.CPU` is added to, or a folder (of several
/// devices, a folder it must be). With `dump`, to the one file `output`, in order of time, as `blkparse -d` does.
///
/// # Errors
/// When the reel has no rows of the block layer, a file is there already or cannot be written, or the reel not read.
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
    match done.and_then(|()| files.finish()) {
        Ok(paths) => {
            exported.files = paths;
            Ok(exported)
        }
        Err(e) => {
            files.remove();
            Err(e)
        }
    }
}

/// Writes the records of an imported trace.
fn give_back(reel: &Reel, files: &mut Files, exported: &mut Exported) -> Result<()> {
    let base_ns = reel.manifest.clock.monotonic_ns;
    // In a dump the order of the files it was made of is gone, and so a reel made of one goes by its own.
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

/// The record that a row was made of.
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
