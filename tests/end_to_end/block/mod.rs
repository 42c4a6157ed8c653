//! What reaches the disks: bios and requests, whose files they are of, and devices of all kinds.

pub(crate) mod attribution;
pub(crate) mod bytes;
pub(crate) mod devices;
pub(crate) mod renamed;
pub(crate) mod requests;
pub(crate) mod stacked;
pub(crate) mod truth;
pub(crate) mod uncommon;
pub(crate) mod witness;

use crate::{
    calls::kernel,
    harness::mount::Fs,
    list::{Tests, tests},
};

/// Adds the tests of this folder.
pub(crate) fn add_to(list: &mut Tests) {
    let on_disk = Fs::here(&[Fs::Ext4, Fs::Xfs, Fs::Btrfs]);
    if witness::is_here() {
        tests! { list on &on_disk => witness::blktrace_sees_the_same }
    }
    if kernel::is_guest() {
        tests! { list.add:
            requests::sorted_and_merged
            requests::refused
            requests::before_a_flush
            stacked::a_mapped_device
            stacked::a_mapped_device_made_later
            stacked::an_encrypted_device
            stacked::an_array
            stacked::zones
        }
    }
    tests! { list on &Fs::here(&Fs::ALL) =>
        bytes::a_copy_is_seen_whole
        attribution::data_goes_to_its_file
        attribution::counts_are_the_kernels
        truth::data_is_where_fiemap_says
    }
    tests! { list on &[Fs::Overlay, Fs::Fuse] => truth::little_device_time_is_nobodys }
    tests! { list.add:
        attribution::kinds_of_ext4
        attribution::beside_holes
        attribution::reads_of_the_disk_by_others
        attribution::bios_that_outlive_their_thread
        attribution::compressed_data_goes_to_its_file
        attribution::ext4_metadata_is_what_debugfs_says
        truth::xfs_metadata_is_what_xfs_db_says
        truth::btrfs_nodes_are_of_the_trees_that_dump_tree_says
        attribution::xfs_log_is_where_xfs_db_says
        attribution::btrfs_trees_are_told_by_owner
        attribution::journalled_data_goes_to_its_file
        attribution::what_was_on_its_way
        devices::an_ext4_journal_elsewhere
        devices::an_xfs_log_elsewhere
        devices::a_btrfs_mirror
        devices::btrfs_with_parity
        devices::btrfs_that_replaces_a_device
        devices::a_mount_in_the_place_of_another
        devices::a_partition
        devices::anothers_partition
        devices::compressed_memory
        devices::requests_in_workers_without_calls
        devices::swap
        devices::discards
        devices::zeroes
        devices::a_file_system_made_meanwhile
        devices::a_scrub
        renamed::bios_have_the_name_of_their_time
        uncommon::mounted_out_of_sight
        uncommon::ciphertext
        uncommon::clusters_of_small_blocks
        uncommon::parts_of_blocks
        uncommon::a_device_read_by_itself
        uncommon::a_mounted_image_read_by_itself
    }
}
