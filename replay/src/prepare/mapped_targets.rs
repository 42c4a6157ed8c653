//! The target and the directories that are mapped into it, as one.

use std::path::PathBuf;

use ioreel_traces::Reel;

use crate::{
    ReplayError,
    prepare::{
        page_cache::CacheStart,
        path_map::{Map, Place, map_of},
        target::{Target, drop_caches},
        tree::{self, Preparation},
    },
};

/// The target, and where mapped directories are mounted in it.
pub(crate) type Places = (PathBuf, Vec<Place>);

pub(crate) fn places(target: &Target, maps: &[Map]) -> Places {
    (target.path.clone(), maps.iter().map(|m| (m.from.clone(), m.to.path.clone())).collect())
}

/// Writes all out; 0 or -errno.
pub(crate) fn sync(target: &Target, maps: &[Map]) -> i64 {
    maps.iter().map(|m| m.to.sync()).fold(target.sync(), i64::min)
}

/// Empties the page cache where that is wanted; what could not be done, and what is not known.
pub(crate) fn empty_cache(start: CacheStart, reel: &Reel) -> Vec<String> {
    let mut out = Vec::new();
    if start == CacheStart::Prepared {
        return out;
    }
    if let Err(e) = drop_caches() {
        out.push(format!(
            "of the page cache only what files hold could be emptied ({e}): directories and inodes stay; root empties all"
        ));
    }
    if start == CacheStart::Recorded && !reel.manifest.ledger.contains_key("cache") {
        out.push("the reel does not tell what the page cache held: it begins cold; record with --cache".into());
    }
    out
}

/// Whether what is prepared in mapped directories has room where they lie.
pub(crate) fn check_rooms(maps: &[Map], preparation: &Preparation) -> Result<(), ReplayError> {
    for map in maps {
        let mine = |i: &&tree::Item| map_of(maps, &i.path).is_some_and(|m| m.from == map.from);
        let bytes = preparation.items.iter().filter(mine).fold(0, |sum: i64, i| sum.saturating_add(i.bytes()));
        if bytes > map.to.free_bytes {
            return Err(ReplayError::NoRoom {
                path: map.to.path.clone(),
                needed_bytes: bytes,
                prepare_bytes: bytes,
                growth_bytes: 0,
                free_bytes: map.to.free_bytes,
            });
        }
    }
    Ok(())
}
