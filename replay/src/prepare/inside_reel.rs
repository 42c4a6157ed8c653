//! Refuses to write into the reel that is being read.

use std::{
    collections::HashSet,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::ReplayError;

/// Refuses `path` if it is part of the reel or inside it, under whatever name: it would be overwritten while it is
/// read, or be taken for a part of the reel. `path` need not exist. A path that cannot be examined is refused later,
/// where it is used.
pub(crate) fn refuse_inside_reel(reel: &Path, what: &'static str, path: &Path) -> Result<(), ReplayError> {
    let parts = parts(reel).map_err(|source| ReplayError::Io { doing: "looking at the reel's files", source })?;
    let is_part = |p: &Path| fs::metadata(p).is_ok_and(|m| parts.contains(&(m.dev(), m.ino())));
    if resolved(path).is_some_and(|p| p.ancestors().any(is_part)) {
        return Err(ReplayError::InReel { what, path: path.into(), reel: reel.into() });
    }
    Ok(())
}

/// The path without symbolic links; for a missing file, that of its parent.
fn resolved(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok().or_else(|| {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::canonicalize(parent).ok()
    })
}

/// Device and inode numbers of the reel's directory, its tables' directories, and all files in these. The files may
/// have other names elsewhere (hard links).
fn parts(reel: &Path) -> io::Result<HashSet<(u64, u64)>> {
    let number = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino()));
    let mut out = HashSet::from([number(reel)?]);
    for table in fs::read_dir(reel)? {
        let table = table?;
        out.extend(number(&table.path()));
        if table.file_type()?.is_dir() {
            for file in fs::read_dir(table.path())? {
                out.extend(number(&file?.path()));
            }
        }
    }
    Ok(out)
}
