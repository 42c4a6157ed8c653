//! Reels that are damaged, and the samples in git.

pub(crate) mod damaged;
pub(crate) mod samples;

use crate::list::{Tests, tests};

/// Adds the tests of this folder.
pub(crate) fn add_to(list: &mut Tests) {
    tests! { list.add_for_all:
        damaged::a_sound_reel_is_valid
        damaged::a_missing_reel
        damaged::a_newer_format
        damaged::a_broken_manifest
        damaged::a_truncated_segment
        damaged::a_reader_that_goes_away
        samples::are_valid_and_small
    }
}
