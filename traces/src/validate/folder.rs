//! Compares the reel's folder with the manifest.

use std::{
    collections::HashSet,
    fs::{self, DirEntry, File, TryLockError},
    path::Path,
};

use super::{Check, findings::Findings};
use crate::{
    Reel, ReelError, Result,
    format::{manifest, tables},
};

/// Whether a writer is running. A writer keeps the folder locked while it lives.
pub(super) fn writer_at_work(reel: &Path) -> Result<bool> {
    let folder = File::open(reel).map_err(ReelError::io(reel, "opening the reel"))?;
    // Without lock support in the file system, the reel counts as idle.
    Ok(matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The entries of a folder by name. Empty if the folder does not exist.
pub(super) fn entries(folder: &Path) -> Result<Vec<(String, DirEntry)>> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(ReelError::io(folder, "listing the folder")(e)),
    };
    let mut all = Vec::new();
    for entry in listing {
        let entry = entry.map_err(ReelError::io(folder, "listing the folder"))?;
        all.push((entry.file_name().to_string_lossy().into_owned(), entry));
    }
    // Segment numbers have six digits or more.
    all.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    Ok(all)
}

/// Reports unlisted segments, leftovers and unknown files.
pub(super) fn check(reel: &Reel, found: &mut Findings) -> Result<()> {
    let listed: HashSet<&str> =
        reel.manifest.segments.values().flatten().map(|segment| segment.file.as_str()).collect();
    let known: Vec<&str> = tables::all().iter().map(|t| t.name).collect();
    for table in reel.manifest.segments.keys().filter(|t| !known.contains(&t.as_str())) {
        found.note(format!("{table}: unknown table, not checked; a newer ioreel may know it"));
    }
    for (name, _) in entries(reel.path())? {
        if known.contains(&name.as_str()) {
            for (file, _) in entries(&reel.path().join(&name))? {
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
    if path.ends_with(".tmp") {
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
