//! Replays of recordings made here, on the same and on other file systems.

pub(crate) mod alike;
pub(crate) mod block_replay;
pub(crate) mod cached;
pub(crate) mod corpus;
pub(crate) mod handed;
pub(crate) mod layout;
pub(crate) mod replays;
pub(crate) mod slices;
pub(crate) mod subvolumes;
pub(crate) mod users;
pub(crate) mod written;

use crate::{
    harness::mount::Fs,
    list::{Tests, tests},
};

/// Adds the tests of this folder.
pub(crate) fn add_to(list: &mut Tests) {
    let on_disk = Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]);
    tests! { list on &on_disk => block_replay::the_same_places }
    tests! { list on &Fs::here(&Fs::ALL) =>
        replays::an_unpacked_archive
        replays::a_reworked_tree
        replays::moves_without_a_snapshot
        replays::rare_names
        replays::links_made_where_nothing_was
        replays::direct_io_that_is_not_aligned_here
        replays::copies_and_attributes
        handed::a_separated_worker
    }
    for (from, to) in
        on_disk.iter().map(|&fs| (fs, fs)).chain([(Fs::Ext4, Fs::Xfs), (Fs::Xfs, Fs::Btrfs), (Fs::Btrfs, Fs::Ext4)])
    {
        let onto = if from == to { String::new() } else { format!("_on_{}", to.name()) };
        list.add(format!("layout::pieces_and_holes::{}{onto}", from.name()), move || {
            layout::pieces_and_holes(from, to);
        });
    }
    let chosen = std::env::var("IOREEL_CORPUS").unwrap_or_default();
    if let Some(chosen) = chosen.strip_prefix("foretell").map(str::to_owned) {
        list.add("corpus::foretells", move || corpus::foretells(&chosen));
    }
    for (i, program) in alike::PROGRAMS.iter().enumerate() {
        list.add(format!("alike::{}", program.name), move || alike::or_says_so(i));
    }
    for (i, program) in corpus::PROGRAMS.iter().enumerate() {
        list.add(format!("corpus::{}", program.name), move || corpus::replays(i));
    }
    tests! { list.add:
        replays::hashed_links
        replays::a_target_that_does_not_do
        replays::inside_a_chroot
        handed::device_nodes
        users::owners_and_refusals
        alike::the_comparison_itself
        block_replay::what_is_in_use_is_left_alone
        cached::as_it_was
        written::compresses_as_it_did
        slices::parts_of_a_program
        subvolumes::come_back_on_btrfs_and_are_named_elsewhere
        subvolumes::are_directories_elsewhere
    }
}
