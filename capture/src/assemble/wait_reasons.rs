//! Finds the reason of a wait from the function names on the kernel stack.
//!
//! Rules are tried in order. Within a rule any function of the stack may match, because the reason is usually far from
//! the scheduler: an fsync that waits for the journal finally waits for a device, but the journal explains the time.

/// Reason of a wait: the values of `waits.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    RunQueue,
    DirtyLimit,
    Wbt,
    BlockThrottle,
    Reclaim,
    Journal,
    InodeLock,
    Lock,
    PageLock,
    Writeback,
    Device,
    Request,
    Peer,
    Other,
}

impl Reason {
    /// Whether it is a kernel lock, which has an owner.
    pub(crate) fn is_lock(self) -> bool {
        matches!(self, Self::Lock | Self::InodeLock)
    }

    /// Whether threads end such waits, not interrupts.
    pub(crate) fn is_ended_by_threads(self) -> bool {
        self.is_lock() || matches!(self, Self::Journal | Self::Peer)
    }

    /// Value of the column.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::RunQueue => "run_queue",
            Self::DirtyLimit => "dirty_limit",
            Self::Wbt => "wbt",
            Self::BlockThrottle => "block_throttle",
            Self::Reclaim => "memory_reclaim",
            Self::Journal => "journal",
            Self::InodeLock => "inode_lock",
            Self::Lock => "lock",
            Self::PageLock => "page_lock",
            Self::Writeback => "page_under_write_back",
            Self::Device => "device",
            Self::Request => "request",
            Self::Peer => "peer",
            Self::Other => "other",
        }
    }
}

/// A name that ends in `*` matches by prefix.
type Names = &'static [&'static str];

/// mm/page-writeback.c: too many dirty pages in memory, for the device, or in the memory cgroup.
const DIRTY_LIMIT: Names = &["balance_dirty_pages*"];
/// block/blk-iocost.c, blk-iolatency.c, blk-throttle.c, blk-cgroup.c: limits and weights of cgroups. They share
/// `rq_qos_wait` with wbt, so they come first.
const BLOCK_THROTTLE: Names = &[
    "ioc_rqos_throttle*",
    "blkcg_iolatency_throttle*",
    "__blkcg_iolatency_throttle*",
    "blkcg_maybe_throttle_*",
    "blk_throtl_*",
    "__blk_throtl_*",
];
/// block/blk-wbt.c, blk-rq-qos.c: buffered writes are held back so that they do not delay reads.
const WBT: Names = &["wbt_wait*", "rq_qos_wait*"];
/// mm/vmscan.c, mm/page_alloc.c, mm/memcontrol.c
const RECLAIM: Names = &[
    "try_to_free_pages*",
    "try_to_free_mem_cgroup_pages*",
    "do_try_to_free_pages*",
    "shrink_node*",
    "shrink_slab*",
    "shrink_lruvec*",
    "throttle_direct_reclaim*",
    "reclaim_throttle*",
    "__alloc_pages_direct_*",
    "mem_cgroup_handle_over_high*",
    "__mem_cgroup_handle_over_high*",
    "out_of_memory*",
];
/// fs/jbd2, fs/ext4/fast_commit.c; fs/xfs/xfs_log*.c; fs/btrfs/transaction.c, tree-log.c; fs/f2fs/checkpoint.c
const JOURNAL: Names = &[
    "jbd2_*",
    "__jbd2_*",
    "start_this_handle",
    "add_transaction_credits",
    "wait_transaction_locked",
    "wait_transaction_switching",
    "do_get_write_access",
    "ext4_fc_commit*",
    "xlog_*",
    "xfs_log_*",
    "__xfs_log_*",
    "xfs_trans_alloc*",
    "btrfs_commit_transaction*",
    "btrfs_sync_log*",
    "btrfs_wait_for_commit*",
    "btrfs_wait_tree_log*",
    "wait_current_trans*",
    "wait_log_commit*",
    "wait_for_commit*",
    "f2fs_issue_checkpoint*",
    "f2fs_write_checkpoint*",
];
/// kernel/locking: functions between a sleeping lock and its caller.
const LOCKING: Names = &[
    "rwsem_down_*",
    "down_read*",
    "down_write*",
    "__down_read*",
    "__down_write*",
    "mutex_lock*",
    "__mutex_lock*",
    "rwsem_*",
    "ww_mutex_lock*",
    "percpu_rwsem_wait*",
    "__percpu_down_read*",
    "percpu_down_write*",
];
/// Callers that take locks other than an inode's: those of address spaces, super blocks, extent maps, tree nodes.
const OTHER_LOCKS: Names = &[
    "lock_mm_and_find_vma*",
    "do_user_addr_fault*",
    "exc_page_fault*",
    "mmap_*",
    "vm_mmap_pgoff*",
    "do_mmap*",
    "__vm_munmap*",
    "vma_*",
    "ext4_map_blocks*",
    "ext4_map_query_blocks*",
    "ext4_map_create_blocks*",
    "ext4_da_map_blocks*",
    "ext4_da_get_block*",
    "ext4_xattr_*",
    "ext4_writepages*",
    "ext4_mb_*",
    "ext4_orphan_*",
    "btrfs_tree_*",
    "__btrfs_tree_*",
    "btrfs_lock_root_node*",
    "btrfs_read_lock_root_node*",
    "super_lock*",
    "iterate_supers*",
    "sync_inodes_sb*",
    "sb_start_*",
    "bdev_*",
    "blkdev_*",
    "fdget_pos*",
    "__fdget_pos*",
    "pipe_*",
    "anon_pipe_*",
    "unix_*",
];
/// Callers that take an inode's lock: read and write paths of file systems, and directory operations.
const INODE_LOCKS: Names = &[
    "ext4_*",
    "xfs_*",
    "btrfs_*",
    "f2fs_*",
    "fuse_*",
    "ovl_*",
    "shmem_*",
    "nfs_*",
    "generic_*",
    "vfs_*",
    "inode_lock*",
    "iterate_dir*",
    "wrap_directory_iterator*",
    "path_openat*",
    "open_last_lookups*",
    "lookup_slow*",
    "walk_component*",
    "lock_rename*",
    "lock_two_*",
    "filename_create*",
    "start_dirop*",
    "__start_dirop*",
    "start_creating*",
    "start_removing*",
    "do_unlinkat*",
    "do_rmdir*",
    "do_renameat2*",
    "do_truncate*",
    "do_sys_ftruncate*",
    "chmod_common*",
    "chown_common*",
    "simple_*",
    "file_modified*",
    "default_llseek*",
    "dcache_*",
];
/// fs/locks.c: file locks and leases.
const FILE_LOCKS: Names = &[
    "locks_lock_inode_wait*",
    "flock_lock_inode_wait*",
    // The wait is inlined into this function.
    "fcntl_setlk*",
    "posix_lock_inode_wait*",
    "do_lock_file_wait*",
    "__break_lease*",
];
/// mm/filemap.c: a page is locked by another thread. A reader that waits for its own read does so in other functions,
/// which count as the device.
const PAGE_LOCK: Names = &["__folio_lock*", "folio_lock*", "__lock_page*", "lock_page*"];
/// mm/page-writeback.c: a page is under write-back. In an fsync that is a wait for the device.
const WRITEBACK: Names = &["folio_wait_writeback*", "folio_wait_stable*", "btrfs_start_ordered_extent*"];
/// Callers that write out a file and wait for it.
const SYNCS: Names = &[
    "vfs_fsync*",
    "do_fsync*",
    "file_write_and_wait_range*",
    "filemap_fdatawait*",
    "__filemap_fdatawait*",
    "filemap_write_and_wait*",
    "ksys_sync*",
    "sync_filesystem*",
    "sync_file_range*",
    "vfs_fsync_range*",
];
/// block/, mm/filemap.c, fs/buffer.c, fs/iomap: waits for I/O, or for space in the device's queue.
const DEVICE: Names = &[
    "io_schedule*",
    "blk_io_schedule*",
    "submit_bio_wait*",
    "blkdev_issue_*",
    "blk_mq_get_tag*",
    "__bio_queue_enter*",
    "bit_wait_io*",
    "__wait_on_buffer*",
    "out_of_line_wait_on_bit*",
    "filemap_update_page*",
    "filemap_read_folio*",
    "folio_wait_bit*",
    "folio_put_wait_locked*",
    "xfs_buf_iowait*",
    "__iomap_dio_rw*",
    "iomap_dio_rw*",
    "dio_await_*",
    "read_extent_buffer_pages*",
    "read_tree_block*",
    "wait_on_extent_buffer*",
    "btrfs_wait_ordered_*",
    // A sync waits for the flusher threads (fs/fs-writeback.c).
    "wb_wait_for_completion*",
];
/// io_uring/, fs/aio.c: the end of requests that the program submitted. Each request is an operation of its own.
const REQUEST: Names =
    &["io_cqring_wait*", "io_cqring_schedule*", "read_events", "do_io_getevents", "__do_sys_io_destroy"];
/// Another program, or the person at a terminal: fs/pipe.c, splice.c, eventfd.c, signalfd.c, notify/, fuse/; net/;
/// drivers/tty/; kernel/futex/, exit.c; ipc/.
const PEER: Names = &[
    "pipe_read*",
    "pipe_write*",
    "anon_pipe_*",
    "fifo_pipe_*",
    "pipe_wait_*",
    "pipe_wait",
    "fifo_open*",
    "wait_for_partner*",
    "wait_for_space*",
    "opipe_prep*",
    "ipipe_prep*",
    "sock_*",
    "____sys_sendmsg*",
    "____sys_recvmsg*",
    "sk_wait_data*",
    "sk_stream_wait_*",
    "unix_*",
    "tcp_*",
    "udp_*",
    "vsock_*",
    "netlink_*",
    "eventfd_*",
    "signalfd_*",
    "inotify_*",
    "fanotify_*",
    "handle_userfault*",
    "userfaultfd_*",
    "n_tty_*",
    "tty_*",
    "request_wait_answer*",
    "fuse_dev_*",
    "cuse_*",
    "futex_*",
    "__futex_wait*",
    "do_wait*",
    "kernel_wait4*",
    "ep_poll*",
    "do_sys_poll*",
    "do_select*",
    "wq_sleep*",
    "do_msgrcv*",
    "do_msgsnd*",
];

fn matches(name: &str, names: Names) -> bool {
    names.iter().any(|n| n.strip_suffix('*').map_or(name == *n, |start| name.starts_with(start)))
}

/// The reason of a wait with this kernel stack, innermost function first. `runnable`: the thread did not sleep but was
/// preempted.
pub(crate) fn reason(stack: &[&str], runnable: bool) -> Reason {
    if runnable {
        return Reason::RunQueue;
    }
    let any = |names: Names| stack.iter().any(|f| matches(f, names));
    if any(DIRTY_LIMIT) {
        return Reason::DirtyLimit;
    }
    if any(BLOCK_THROTTLE) {
        return Reason::BlockThrottle;
    }
    if any(WBT) {
        return Reason::Wbt;
    }
    if any(RECLAIM) {
        return Reason::Reclaim;
    }
    if any(JOURNAL) {
        return Reason::Journal;
    }
    // Locks count only if the thread sleeps in them, so only near the top of the stack. The function above the lock
    // took it.
    if let Some(outermost) = stack.iter().take(8).rposition(|f| matches(f, LOCKING)) {
        let taker = stack.get(outermost + 1).copied().unwrap_or_default();
        return if matches(taker, OTHER_LOCKS) || !matches(taker, INODE_LOCKS) {
            Reason::Lock
        } else {
            Reason::InodeLock
        };
    }
    if any(FILE_LOCKS) {
        return Reason::Lock;
    }
    if any(PAGE_LOCK) {
        return Reason::PageLock;
    }
    if any(WRITEBACK) && !any(SYNCS) {
        return Reason::Writeback;
    }
    if any(DEVICE) {
        return Reason::Device;
    }
    if any(REQUEST) {
        return Reason::Request;
    }
    // Last: a program may read a file into a pipe or socket and wait for the disk.
    if any(PEER) { Reason::Peer } else { Reason::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stack: &str) -> Reason {
        let frames: Vec<&str> = stack.split(' ').collect();
        reason(&frames, false)
    }

    #[test]
    fn the_cause_far_from_the_scheduler_decides() {
        let cases = [
            ("schedule jbd2_log_wait_commit jbd2_complete_transaction ext4_sync_file do_fsync", Reason::Journal),
            (
                "schedule io_schedule folio_wait_bit_common folio_wait_writeback __filemap_fdatawait_range \
                 file_write_and_wait_range ext4_sync_file",
                Reason::Device,
            ),
            (
                "schedule_timeout io_schedule_timeout __wait_for_common submit_bio_wait blkdev_issue_flush",
                Reason::Device,
            ),
            (
                "schedule_preempt_disabled rwsem_down_write_slowpath down_write ext4_buffered_write_iter vfs_write",
                Reason::InodeLock,
            ),
            (
                "schedule rwsem_down_write_slowpath down_write_nested xfs_ilock xfs_file_buffered_write",
                Reason::InodeLock,
            ),
            ("schedule rwsem_down_read_slowpath down_read lock_mm_and_find_vma do_user_addr_fault", Reason::Lock),
            ("schedule rwsem_down_write_slowpath down_write ext4_map_blocks ext4_dio_write_iter", Reason::Lock),
            ("schedule __mutex_lock fdget_pos ksys_write", Reason::Lock),
            ("schedule_timeout io_schedule_timeout balance_dirty_pages generic_perform_write", Reason::DirtyLimit),
            (
                "schedule io_schedule rq_qos_wait wbt_wait __rq_qos_throttle blk_mq_submit_bio submit_bio_noacct_nocheck",
                Reason::Wbt,
            ),
            (
                "schedule io_schedule rq_qos_wait __blkcg_iolatency_throttle blkcg_iolatency_throttle __rq_qos_throttle",
                Reason::BlockThrottle,
            ),
            ("schedule io_schedule ioc_rqos_throttle __rq_qos_throttle blk_mq_submit_bio", Reason::BlockThrottle),
            ("schedule io_schedule blk_mq_get_tag __blk_mq_alloc_requests blk_mq_submit_bio", Reason::Device),
            ("schedule wb_wait_for_completion sync_inodes_sb iterate_supers ksys_sync", Reason::Device),
            ("schedule io_schedule shrink_folio_list shrink_lruvec try_to_free_pages", Reason::Reclaim),
            ("schedule io_schedule folio_wait_bit_common filemap_update_page filemap_get_pages", Reason::Device),
            ("schedule io_schedule folio_wait_bit_common __folio_lock write_cache_pages", Reason::PageLock),
            (
                "schedule io_schedule folio_wait_bit_common folio_wait_writeback folio_wait_stable ext4_write_begin",
                Reason::Writeback,
            ),
            ("schedule xlog_wait_on_iclog xfs_log_force_seq xfs_file_fsync", Reason::Journal),
            ("schedule btrfs_commit_transaction btrfs_sync_file", Reason::Journal),
            ("schedule locks_lock_inode_wait __do_sys_flock", Reason::Lock),
            ("schedule fcntl_setlk do_fcntl __x64_sys_fcntl", Reason::Lock),
            ("schedule anon_pipe_read vfs_read ksys_read", Reason::Peer),
            ("schedule pipe_wait_readable splice_file_to_pipe do_splice", Reason::Peer),
            (
                "schedule io_schedule folio_wait_bit_common filemap_update_page splice_file_to_pipe do_splice",
                Reason::Device,
            ),
            ("schedule wait_for_partner fifo_open do_dentry_open", Reason::Peer),
            (
                "schedule_timeout unix_stream_data_wait unix_stream_read_generic sock_recvmsg sock_read_iter",
                Reason::Peer,
            ),
            ("schedule eventfd_read vfs_read ksys_read", Reason::Peer),
            ("schedule request_wait_answer __fuse_request_send fuse_simple_request fuse_lookup_name", Reason::Peer),
            ("schedule __mutex_lock anon_pipe_write vfs_write", Reason::Lock),
            ("schedule io_cqring_wait __do_sys_io_uring_enter", Reason::Request),
            ("schedule read_events do_io_getevents __x64_sys_io_getevents", Reason::Request),
            ("hrtimer_nanosleep common_nsleep", Reason::Other),
            ("", Reason::Other),
        ];
        for (stack, expected) in cases {
            assert_eq!(of(stack), expected, "{stack}");
        }
        assert_eq!(reason(&["jbd2_log_wait_commit"], true), Reason::RunQueue);
    }
}
