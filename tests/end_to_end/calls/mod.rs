//! System calls and what the kernel does for them: arguments, results, contents, mappings, io_uring, waits.

pub(crate) mod commits;
pub(crate) mod contents;
pub(crate) mod diagnosed;
pub(crate) mod ground_truth;
pub(crate) mod kernel;
pub(crate) mod mapped;
pub(crate) mod observer;
pub(crate) mod uring;
pub(crate) mod waits;
pub(crate) mod workload;

use crate::{
    harness::mount::Fs,
    list::{Tests, tests},
};

/// Adds the tests of this folder.
pub(crate) fn add_to(list: &mut Tests) {
    let on_disk = Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]);
    tests! { list on &Fs::here(&Fs::RECORDED) => ground_truth::the_reel_holds_exactly_what_was_done }
    if kernel::has_nfs_server() {
        tests! { list on &on_disk => kernel::the_nfs_server }
    }
    if kernel::is_guest() {
        tests! { list.add: kernel::ends_in_interrupts }
        tests! { list on &on_disk => kernel::files_under_an_overlay kernel::a_loop_device }
    }
    tests! { list on &Fs::here(&Fs::ALL) =>
        uring::every_request_is_seen
        mapped::touches_and_stores
        mapped::the_page_cache
        mapped::readahead_asked_for
        waits::a_sync
    }
    tests! { list on &[Fs::Overlay, Fs::Fuse] => uring::every_request_is_seen }
    tests! { list on &[Fs::Ext4, Fs::Xfs, Fs::Btrfs] => waits::one_file }
    tests! { list.add:
        contents::hashes_are_those_of_the_bytes
        contents::asynchronous_writes
        contents::of_a_32_bit_program
        contents::bytes_are_kept
        contents::only_what_was_asked_for
        contents::losses_of_contents_are_counted
        contents::rotated_contents_are_counted
        contents::contents_without_room_on_the_disk
        contents::bytes_without_room_on_the_disk
        contents::vectors_and_what_brings_no_bytes
        observer::counts_are_those_of_bpftrace
        observer::shipped_scripts_run
        waits::a_cold_read
        waits::busy_cpus
        waits::a_writer_ahead_of_its_disk
        waits::write_back_throttling
        waits::who_holds_a_lock
        commits::of_jbd2
        commits::of_a_small_journal
        commits::of_fast_commits
        commits::of_xfs
        commits::of_btrfs
        waits::time_off_the_cpu
        waits::nothing_unless_asked
        diagnosed::a_lock_held_for_30_ms
        diagnosed::a_file_lock_held_for_30_ms
        diagnosed::a_disk_that_takes_30_ms
        diagnosed::a_cpu_that_others_use
        diagnosed::a_sync_and_its_commit
        diagnosed::which_limit_holds_writers_back
        diagnosed::little_is_not_known
        waits::losses_are_exact
        kernel::backends
        mapped::by_many_at_once
        mapped::the_last_touch
        mapped::ranges_that_begin_elsewhere
        mapped::stores_to_what_may_be_executed
        uring::as_many_as_fio_says
        uring::direct_on_btrfs
        uring::batches_recur
    }
}
