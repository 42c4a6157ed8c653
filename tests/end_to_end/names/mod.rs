//! Whose file a call is about, and under which name.

pub(crate) mod derived;
pub(crate) mod final_tree;
pub(crate) mod identity;

use crate::{
    harness::mount::Fs,
    list::{Tests, tests},
};

/// Adds the tests of this folder.
pub(crate) fn add_to(list: &mut Tests) {
    tests! { list on &Fs::here(&Fs::ALL) =>
        identity::names_over_time
    }
    tests! { list.add:
        identity::subvolumes
        identity::an_overlay
        identity::a_container
        identity::bind_mounts
        identity::reused_numbers
        identity::nameless
        identity::ends_of_a_socket
        identity::deep
        identity::an_adopted_container
        derived::roots_and_places
        derived::mounts
        derived::hard_links
        derived::out_of_sight
        derived::moving_places
        derived::subvolumes
        final_tree::moved_as_a_whole
        final_tree::own_output
        final_tree::not_looked_at
        final_tree::hashed_names
        final_tree::filtered
        final_tree::below_the_working_directory
        final_tree::beyond_the_snapshot
    }
}
