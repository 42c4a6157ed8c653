//! Shared by all importers: creates a reel completely or not at all, with a manifest that names its source.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use super::Result;
use crate::{
    Manifest, ReelWriter, WriterOptions,
    format::manifest::{Import, Kind, Ledger},
};

/// A manifest for an import of these files. It contains no facts about this machine, since the trace may be from
/// another.
pub(super) fn manifest(format: &str, files: &[PathBuf]) -> Manifest {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Manifest {
        import: Some(Import {
            format: format.into(),
            files: files.iter().map(|f| f.display().to_string()).collect(),
            at_realtime_ns: now.as_nanos() as i64,
            records: 0,
        }),
        ..Manifest::new(Kind::Import, format)
    }
}

/// Creates the reel `out`. `fill` writes its rows and completes the manifest. On failure, nothing is left.
pub(super) fn reel(
    out: &Path,
    mut manifest: Manifest,
    fill: impl FnOnce(&mut ReelWriter, &mut Manifest) -> Result<()>,
) -> Result<Manifest> {
    // An import may take minutes, and a crash need not keep any of it, so segments close by size only.
    let options = WriterOptions { segment_age: std::time::Duration::MAX, ..WriterOptions::default() };
    let mut writer = ReelWriter::create(out, &manifest, options)?;
    let done = fill(&mut writer, &mut manifest).and_then(|()| Ok(writer.close(manifest)?));
    if done.is_err() {
        // Best effort: a partial import looks like a complete one.
        let _ = fs::remove_dir_all(out);
    }
    done
}

/// The ledger of a class in which every event became a row.
pub(super) fn all_written(rows: i64) -> Ledger {
    Ledger { seen: rows, written: rows, ..Ledger::default() }
}
