//! Directories that take the place of one of the reel's: `--map /var/log=/mnt/other`.
//!
//! Inside the replay's own mount namespace the directory is mounted where the reel has it, so that every path, link and
//! `..` leads there as it did, and nothing else of where it lies can be reached. It may lie on another file system.

use std::path::{Path, PathBuf};

use crate::{
    ReplayError,
    prepare::target::{Target, inside},
};

/// One of them, open.
#[derive(Debug)]
pub struct Map {
    /// Where the reel has it: absolute, without dots.
    pub from: Vec<u8>,
    /// The directory.
    pub to: Target,
}

/// Where a mapped directory is mounted, and where it is.
pub type Place = (Vec<u8>, PathBuf);

fn refused(from: &Path, to: &Path, why: &'static str) -> ReplayError {
    ReplayError::Map { from: from.into(), to: to.into(), why }
}

/// Opens them. `wanted`: the reel's directory, absolute, and the one to take its place; parents come before what is below.
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
            return Err(refused(from, to, "what is mapped must be an absolute path without .."));
        }
        if place == b"/" {
            return Err(refused(from, to, "the root is what --target maps"));
        }
        let is_at = |p: &[u8]| place == p || below(&place, p);
        if is_at(b"/proc") || is_at(b"/sys") || is_at(b"/dev") && !is_at(b"/dev/shm") {
            return Err(refused(from, to, "what is under /proc, /sys and /dev (but for /dev/shm) is not replayed"));
        }
        let open = Target::open(to, force)?;
        if open.path == target.path || target.path.starts_with(&open.path) {
            return Err(refused(from, to, "the target lies in it"));
        }
        for other in &maps {
            if other.from == place {
                return Err(refused(from, to, "mapped twice"));
            }
            if open.path.starts_with(&other.to.path) || other.to.path.starts_with(&open.path) {
                return Err(refused(from, to, "another mapped directory lies there"));
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

/// The one that holds this path of the reel: the deepest.
pub(crate) fn map_of<'a>(maps: &'a [Map], path: &[u8]) -> Option<&'a Map> {
    maps.iter().rev().find(|m| m.from == path || below(path, &m.from))
}

/// Where they are, seen from inside the target as far as they lie there: what is found in the target at these
/// places is not the target's.
pub(crate) fn hidden(maps: &[Place], target: &Path) -> Vec<Vec<u8>> {
    maps.iter().filter_map(|(_, to)| inside(target, to)).collect()
}
