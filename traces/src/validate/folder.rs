//! Compares the reel's folder with the manifest.

use std::{collections::HashSet, fs::TryLockError};

use super::{Check, findings::Findings};
use crate::{
    Reel, ReelError, Result,
    format::{manifest, tables},
    private::{Entry, Folder},
    writer::parts,
};

/// Whether a writer is running. A writer keeps the folder locked while it lives.
pub(super) fn writer_at_work(reel: &Folder) -> Result<bool> {
    let folder = reel.to_file().map_err(ReelError::io(reel.path(), "opening the reel"))?;
    // Without lock support in the file system, the reel counts as idle.
    Ok(matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The entries of a folder by name, each with whether it is a folder.
pub(super) fn entries(folder: &Folder) -> Result<Vec<(String, Entry)>> {
    let listing = folder.entries().map_err(ReelError::io(folder.path(), "listing the folder"))?;
    let mut all: Vec<_> = listing.into_iter().map(|entry| (entry.name.to_string_lossy().into_owned(), entry)).collect();
    // Segment numbers have six digits or more.
    all.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    Ok(all)
}

/// A table's folder; none when it is not there.
pub(super) fn table(reel: &Folder, name: &str) -> Result<Option<Folder>> {
    match reel.folder(name) {
        Ok(folder) => Ok(Some(folder)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(ReelError::io(&reel.path().join(name), "opening the table's folder")(e)),
    }
}

/// Reports unlisted segments, leftovers and unknown files.
pub(super) fn check(reel: &Reel, folder: &Folder, found: &mut Findings) -> Result<()> {
    let listed: HashSet<&str> =
        reel.manifest.segments.values().flatten().map(|segment| segment.file.as_str()).collect();
    let known: Vec<&str> = tables::all().iter().map(|t| t.name).collect();
    for table in reel.manifest.segments.keys().filter(|t| !known.contains(&t.as_str())) {
        found.note(format!("{table}: unknown table, not checked; a newer ioreel may know it"));
    }
    for (name, _) in entries(folder)? {
        if known.contains(&name.as_str()) {
            let Some(table) = table(folder, &name)? else { continue };
            for (file, _) in entries(&table)? {
                let path = format!("{name}/{file}");
                if !listed.contains(path.as_str()) {
                    stray(&path, found);
                }
            }
        } else if name != manifest::FILE_NAME && !reel.manifest.segments.contains_key(&name) {
            stray(&name, found);
        }
    }
    Ok(())
}

fn stray(path: &str, found: &mut Findings) {
    if path.ends_with(parts::ENDING) {
        found.add(Check::Folder, path, "", None, || {
            "rows of an open segment of a writer that died; `ioreel validate --repair` adds them".into()
        });
    } else if path.ends_with(".tmp") {
        found.add(Check::Folder, path, "", None, || {
            "incomplete file of a writer that died; `ioreel validate --repair` removes it".into()
        });
    } else if path.ends_with(".parquet") && path.contains('/') {
        found.add(Check::Folder, path, "", None, || {
            "not listed in the manifest, so readers ignore it; `ioreel validate --repair` adds it".into()
        });
    } else if path.ends_with(".damaged") {
        found.note(format!("{path}: moved aside by a repair; readers ignore it"));
    } else {
        found.note(format!("{path}: not part of the reel"));
    }
}
