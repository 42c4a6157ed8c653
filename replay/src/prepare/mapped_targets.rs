//! Operations on the target together with the directories of `--map`.

use ioreel_traces::Reel;

use crate::{
    ReplayError,
    prepare::{
        directory::Directory,
        page_cache::CacheStart,
        path_map::{Map, Place, map_of},
        target::{Target, drop_caches},
        tree::{self, Preparation},
    },
};

/// The target, and the places of mapped directories.
pub(crate) type TargetPaths = (Directory, Vec<Place>);

pub(crate) fn target_paths(target: &Target, maps: &[Map]) -> TargetPaths {
    (target.directory.clone(), maps.iter().map(|m| (m.from.clone(), m.to.directory.clone())).collect())
}

/// Syncs the file systems of all. Returns 0 or -errno.
pub(crate) fn sync(target: &Target, maps: &[Map]) -> i64 {
    maps.iter().map(|m| m.to.sync()).fold(target.sync(), i64::min)
}

/// Empties the page cache unless it stays as prepared. Returns warnings.
pub(crate) fn empty_cache(start: CacheStart, reel: &Reel) -> Vec<String> {
    let mut out = Vec::new();
    if start == CacheStart::Prepared {
        return out;
    }
    if let Err(e) = drop_caches() {
        out.push(format!(
            "only cached file data could be dropped ({e}), cached directories and inodes stay; run as root to drop all"
        ));
    }
    if start == CacheStart::Recorded && !reel.manifest.ledger.contains_key("cache") {
        out.push(
            "the reel does not contain the page cache, so the replay starts with a cold cache; record with --cache"
                .into(),
        );
    }
    out
}

/// Checks that each mapped directory has enough free space for the files prepared in it.
pub(crate) fn check_free_space(maps: &[Map], preparation: &Preparation) -> Result<(), ReplayError> {
    for map in maps {
        let mine = |i: &&tree::Item| map_of(maps, &i.path).is_some_and(|m| m.from == map.from);
        let bytes = preparation.items.iter().filter(mine).fold(0, |sum: i64, i| sum.saturating_add(i.bytes()));
        if bytes > map.to.free_bytes {
            return Err(ReplayError::NoRoom {
                path: map.to.directory.path.clone(),
                needed_bytes: bytes,
                prepare_bytes: bytes,
                growth_bytes: 0,
                free_bytes: map.to.free_bytes,
            });
        }
    }
    Ok(())
}
