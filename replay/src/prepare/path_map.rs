//! Directories that replace directories of the reel: `--map /var/log=/mnt/other`.
//!
//! In the mount namespace of the replay, the directory is mounted at its path in the reel. Paths, links and `..` lead
//! there as recorded, and nothing else around it is reachable. It may be on another file system.

use std::path::{Path, PathBuf};

use crate::{
    ReplayError,
    prepare::{
        directory::Directory,
        target::{Target, inside},
    },
};

/// A mapped directory.
#[derive(Debug)]
pub struct Map {
    /// Path in the reel: absolute, without dots.
    pub from: Vec<u8>,
    /// The directory.
    pub to: Target,
}

/// Mount point inside the target, and the mapped directory.
pub type Place = (Vec<u8>, Directory);

fn refused(from: &Path, to: &Path, why: &'static str) -> ReplayError {
    ReplayError::Map { from: from.into(), to: to.into(), why }
}

/// Opens the mapped directories. `wanted`: path in the reel (absolute), and directory to replace it. Returns them
/// sorted, parents first.
pub(crate) fn open_maps(
    wanted: &[(PathBuf, PathBuf)],
    target: &Target,
    normal: impl Fn(&Path) -> Vec<u8>,
    force: bool,
) -> Result<Vec<Map>, ReplayError> {
    let mut maps: Vec<Map> = Vec::new();
    for (from, to) in wanted {
        let dots = from.components().any(|c| c == std::path::Component::ParentDir);
        let place = normal(from);
        if !from.is_absolute() || dots {
            return Err(refused(from, to, "FROM must be an absolute path without .."));
        }
        if place == b"/" {
            return Err(refused(from, to, "the root directory is what --target replaces"));
        }
        let is_at = |p: &[u8]| place == p || below(&place, p);
        if is_at(b"/proc") || is_at(b"/sys") || is_at(b"/dev") && !is_at(b"/dev/shm") {
            return Err(refused(from, to, "nothing under /proc, /sys and /dev is replayed, except /dev/shm"));
        }
        let open = Target::open(to, force)?;
        if target.directory.path.starts_with(&open.directory.path) {
            return Err(refused(from, to, "TO contains the target"));
        }
        for other in &maps {
            if other.from == place {
                return Err(refused(from, to, "mapped twice"));
            }
            let (one, two) = (&open.directory.path, &other.to.directory.path);
            if one.starts_with(two) || two.starts_with(one) {
                return Err(refused(from, to, "TO is inside another mapped directory, or contains one"));
            }
        }
        maps.push(Map { from: place, to: open });
    }
    maps.sort_by(|a, b| a.from.cmp(&b.from));
    Ok(maps)
}

fn below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// The mapped directory that contains this path of the reel; of several, the deepest.
pub(crate) fn map_of<'a>(maps: &'a [Map], path: &[u8]) -> Option<&'a Map> {
    maps.iter().rev().find(|m| m.from == path || below(path, &m.from))
}

/// Paths, inside the target, of mapped directories that lie in the target. What exists there does not belong to the
/// target's tree.
pub(crate) fn hidden(maps: &[Place], target: &Path) -> Vec<Vec<u8>> {
    maps.iter().filter_map(|(_, to)| inside(target, &to.path)).collect()
}
