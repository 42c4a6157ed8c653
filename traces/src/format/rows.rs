//! The tables of a reel, one struct each. Times are ns since the reel's start on the monotonic clock;
//! all integers are signed (unsigned 64-bit kernel values are bit-cast); ids are unique within a reel.

use crate::{
    Text,
    format::{bytes::Bytes, table::table},
};

table! {
    /// One row per file operation.
    ///
    /// Calls on two files (`copy_file_range`, `sendfile`, `dup2`, `rename`, `link`) put the source in `fd`, `path`, …
    /// and the destination in `fd2`, `path2`, …, whatever the order of their arguments. `docs/trace-format.md`
    /// tabulates what `flags`, `mode`, `len_bytes`, `aux` and `aux2` hold for each call.
    pub struct Op in "ops", sorted by start_ns, id op_id, lasting dur_ns, own where source is "tool", late parent_op {
        /// Unique id, ascending with `start_ns` within a segment. Negative before it is written.
        op_id: i64 as Delta,
        /// Entry into the call.
        start_ns: i64 as Delta,
        /// Duration. 0 if the end was not seen: see `state`.
        dur_ns: i64 as Split,
        /// CPU on which the call ended.
        cpu: i32 as Dict,
        /// Thread, key into `tasks`.
        task_id: i64 as Dict,
        /// Process (thread group id).
        pid: i32 as Dict,
        /// Thread id. The kernel reuses it; `task_id` is never reused.
        tid: i32 as Dict,
        /// The kernel's name of the system call. Source `fault`: `fault`, `map_pages`, `dirty`. Sources `vfs` and
        /// `lower`: `vfs_read`, `vfs_write`, `vfs_fsync`, `vfs_fallocate`.
        op: Text as Dict,
        /// Origin of the row: `syscall`, `io_uring`, `aio`, `fault`, `scm`, `vfs`, `lower`, `tool` or `replay`: see
        /// `docs/trace-format.md`.
        source: Text as Dict,
        /// `complete`, `in_flight_at_end`, `in_flight_at_start`, `unknown` or `unreported`: see `docs/trace-format.md`.
        state: Text as Dict,
        /// Descriptor argument. In a call on two files: the source.
        fd: Option<i32> as Dict,
        /// Second descriptor argument: the destination.
        fd2: Option<i32> as Dict,
        /// Directory descriptor to which `path` is relative. -100: the working directory.
        dirfd: Option<i32> as Dict,
        /// Directory descriptor to which `path2` is relative.
        dirfd2: Option<i32> as Dict,
        /// Open file description of `fd`, or the one that an open created. `dup` and `fork` share it.
        ofd: Option<i64> as Ids,
        /// Open file description of `fd2`.
        ofd2: Option<i64> as Ids,
        /// File of `fd`; the file that an open opened; for other calls on a name, the directory of `dirfd`. Key into
        /// `files`.
        file: Option<i64> as Ids,
        /// File of `fd2`, or the directory of `dirfd2`. For an open: the directory of `dirfd`.
        file2: Option<i64> as Ids,
        /// First path argument as given, at most 4095 bytes. For a symlink: the target's text.
        path: Option<Text> as Dict,
        /// Second path argument as given. For a symlink: the new name.
        path2: Option<Text> as Dict,
        /// Position on which the operation acts, also for plain read and write. For lseek: the position before; `ret`
        /// is the position after.
        offset_bytes: Option<i64> as Split,
        /// The same in the destination file.
        offset2_bytes: Option<i64> as Split,
        /// Bytes requested. For a truncate: the new length. For a successful stat: `st_size`.
        len_bytes: Option<i64> as Dict,
        /// Result, or -errno. Null: in flight, end not seen, or result of an unreported request not known.
        ret: Option<i64> as Dict,
        /// Flags argument, as the call defines it: `O_*`, `AT_*`, `RWF_*`, `MAP_*`, whence, fcntl command.
        flags: Option<i64> as Dict,
        /// Mode argument: permissions, `access` mask, umask, fallocate mode, mmap protection. For a successful stat:
        /// `st_mode`.
        mode: Option<i32> as Dict,
        /// Another argument or fact, by call.
        aux: Option<i64> as Dict,
        /// One more.
        aux2: Option<i64> as Dict,
        /// Name that is not a path: extended attribute, ioctl request, file system type, mount option, memfd. Sources
        /// `vfs` and `lower`: the kernel's function.
        name: Option<Text> as Dict,
        /// Short bytes other than file data: value of an attribute or mount option, file handle.
        value: Option<Text> as Dict,
        /// The io_uring, or the Linux AIO context. Unique in the reel.
        ring: Option<i64> as Dict,
        /// io_uring: `user_data` of the request.
        user_data: Option<i64> as Ids,
        /// io_uring: `IOSQE_*` as submitted, and what happened to the request. Bits: [`sqe_flags`].
        sqe_flags: Option<i32> as Dict,
        /// io_uring: index of the registered buffer, or the buffer group from which the kernel selects.
        buf_index: Option<i32> as Dict,
        /// Write recorded with `--content`: first 128 bits of the BLAKE3 hash of the bytes written, in hexadecimal.
        /// With `--anonymize`: a keyed hash of that. Null where the bytes could not be read: see `docs/record.md`.
        content_hash: Option<Text> as Dict,
        /// Write recorded with `--content`: reduction in size by zstd, in thousandths: 0 none, 1000 to nothing. An
        /// estimate: only parts of a long write are tried.
        compressibility_permille: Option<i32> as Dict,
        /// Source `lower`: the operation of which this is a part, where known. Key into this table.
        parent_op: Option<i64> as Ids,
        /// Recorded with `--waits`: the part of `dur_ns` that the thread was off its CPU, all waits together, also those
        /// without a row in `waits`. The rest is CPU time in the call, which includes spinning for a lock. Null for
        /// sources other than `syscall`, for calls in flight at the start or end, and where a switch reached no probe.
        off_cpu_ns: Option<i64> as Split,
        /// Replay: `op_id` of the original operation.
        orig_op_id: Option<i64> as Delta,
        /// Replay: time at which the operation was due. `start_ns - due_ns` is its lateness.
        due_ns: Option<i64> as Delta,
    }
}

/// Meaning of `sqe_flags` in `ops`. The low byte is the kernel's own (`IOSQE_*`), the rest ioreel's.
pub mod sqe_flags {
    /// `fd` is a slot of the ring's own table of files (of a splice, `fd2`).
    pub const FIXED_FILE: i32 = 1;
    /// Waits for all requests submitted before, and those submitted after wait for it.
    pub const DRAIN: i32 = 2;
    /// The next request of the batch waits for this one to succeed.
    pub const LINK: i32 = 4;
    /// The next request of the batch waits for this one, whatever its result.
    pub const HARDLINK: i32 = 8;
    /// Asked to be done by a worker thread.
    pub const ASYNC: i32 = 16;
    /// The kernel takes a buffer from the group `buf_index`.
    pub const BUFFER_SELECT: i32 = 32;
    /// Asked for no completion on success.
    pub const CQE_SKIP_SUCCESS: i32 = 64;
    /// Was handed to a worker thread.
    pub const PUNTED: i32 = 256;
    /// Waited for its file to be ready before it was carried out.
    pub const POLLED: i32 = 512;
    /// Was held back because of a drain.
    pub const DEFERRED: i32 = 1024;
    /// Was submitted by the ring's kernel thread; the row's task is the one that made the ring.
    pub const SQPOLL: i32 = 2048;
    /// Was refused as it was submitted.
    pub const REFUSED: i32 = 4096;
    /// The completion queue was full when it ended.
    pub const OVERFLOWED: i32 = 8192;
    /// Followed another in a chain of links.
    pub const LINKED: i32 = 16384;
    /// `fd2` is a slot of the ring's table that an open's file was put in, or `fd` one that was closed.
    pub const DIRECT: i32 = 32768;
    /// Its buffer is the registered one at `buf_index`.
    pub const FIXED_BUFFER: i32 = 65536;
    /// Reads as often as there is something to read (`IORING_OP_READ_MULTISHOT`); `ret` is that of the last time.
    pub const MULTISHOT: i32 = 131_072;
    /// Its entry was overwritten while it was being submitted: arguments may be wrong.
    pub const CHANGED: i32 = 262_144;
}

table! {
    /// One row per request issued to a device. Flushes have length 0.
    pub struct Block in "block", sorted by issue_ns, id rq_id {
        /// Unique id. Negative before it is written, unless bios refer to it.
        rq_id: i64 as Delta,
        /// Queueing of its first bio. Null: before the recording.
        queue_ns: Option<i64> as Delta,
        /// Issue to the driver.
        issue_ns: i64 as Delta,
        /// Completion by the driver. Null: the recording ended first, or no probe saw the end.
        complete_ns: Option<i64> as Delta,
        /// Device, `major << 20 | minor` (the kernel's `dev_t`).
        dev: i64 as Dict,
        /// First 512-byte sector on the whole disk. -1 for a flush and for passthrough (`other`).
        sector: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// `read`, `write`, `flush`, `discard`, `secure_erase`, `write_zeroes`, `zone_append`, `zone_mgmt`, `other`.
        op: Text as Dict,
        /// Bits: [`block_flags`].
        flags: i32 as Dict,
        /// CPU that issued it.
        cpu: i32 as Dict,
        /// 0, or the errno of the failure, positive.
        error: i32 as Dict,
        /// How often the driver returned it before its last issue, which is `issue_ns`.
        requeues: Option<i32> as Dict,
        /// Number of bios in it. 0 for a flush of the device's cache.
        bios: Option<i32> as Dict,
    }
}

table! {
    /// One row per bio: what the file system asked of a device.
    pub struct Bio in "bio", sorted by queue_ns, id bio_id, late cause {
        /// Unique id. Negative before it is written.
        bio_id: i64 as Delta,
        /// Request that carried it, key into `block`; the last one if the device completed it in parts. Null for
        /// devices without requests and for empty flushes.
        rq_id: Option<i64> as Delta,
        /// Queueing.
        queue_ns: i64 as Delta,
        /// Completion. Null: the recording ended first, or no probe saw the end.
        complete_ns: Option<i64> as Delta,
        /// Device, `major << 20 | minor`.
        dev: i64 as Dict,
        /// First 512-byte sector on the whole disk. -1 if it has none.
        sector: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// As in `block`.
        op: Text as Dict,
        /// Bits: [`block_flags`].
        flags: i32 as Dict,
        /// Thread that queued it, key into `tasks`. If an io_uring worker queued it: the thread that submitted the
        /// request, or the first thread of its process where that is not known (`--block-only`, pages read by a ring's
        /// own thread). Null for threads that are not recorded (kernel threads, except during recorded file I/O of
        /// their own).
        task_id: Option<i64> as Dict,
        /// Name of the thread that queued it.
        comm: Text as Dict,
        /// File whose pages it carries, key into `files`. Null where unknown.
        file: Option<i64> as Ids,
        /// Position in that file. Null also if what it carries has holes.
        file_offset_bytes: Option<i64> as Split,
        /// `data`, `journal`, `inode_table`, `directory`, `bitmap`, `tree`, `extent_map`, `superblock`, `swap`,
        /// `flush`, `metadata` (other metadata), `unknown`: see `docs/internals/attribution.md`.
        class: Text as Dict,
        /// Confidence in `file` and `class`, in percent.
        confidence: i32 as Dict,
        /// Operation that caused it, where known: the io_uring request for which it was queued, the call of its thread,
        /// the touch of a mapped page that was not resident, or file I/O by a kernel thread. Key into `ops`.
        cause: Option<i64> as Ids,
        /// Device on which it was first queued, if not `dev`: a partition, or a mapped or striped device above.
        orig_dev: Option<i64> as Dict,
        /// First 512-byte sector on `orig_dev`.
        orig_sector: Option<i64> as Split,
        /// Kind within the class: `block_bitmap`, `log`, `checksum`, …. Null for file data.
        detail: Option<Text> as Dict,
        /// How `class` and `file` were found: `page`, `request`, `inode`, `clone`, `layout`, `buffer`, `content`,
        /// `end_io`, `device`, `operation`, `flags`. Null for `unknown`.
        how: Option<Text> as Dict,
        /// 0, or the errno of the failure, positive.
        error: Option<i32> as Dict,
    }
}

/// Meaning of `flags` in `block` and `bio`: ioreel's own bits, since the kernel's move between releases.
pub mod block_flags {
    /// Someone waits for it (`REQ_SYNC`).
    pub const SYNC: i32 = 1;
    /// File-system metadata (`REQ_META`).
    pub const META: i32 = 2;
    /// Raised priority (`REQ_PRIO`).
    pub const PRIO: i32 = 4;
    /// Force unit access (`REQ_FUA`).
    pub const FUA: i32 = 8;
    /// The device cache is flushed first (`REQ_PREFLUSH`).
    pub const PREFLUSH: i32 = 16;
    /// Readahead (`REQ_RAHEAD`).
    pub const READAHEAD: i32 = 32;
    /// Background write-back (`REQ_BACKGROUND`).
    pub const BACKGROUND: i32 = 64;
    /// Part of a bio that was too large for the device, or that carries several files.
    pub const SPLIT: i32 = 128;
    /// Joined a request that was already waiting.
    pub const MERGED: i32 = 256;
    /// Every bit with its name, for printing.
    pub const NAMES: &[(i32, &str)] = &[
        (SYNC, "sync"),
        (META, "meta"),
        (PRIO, "prio"),
        (FUA, "fua"),
        (PREFLUSH, "preflush"),
        (READAHEAD, "readahead"),
        (BACKGROUND, "background"),
        (SPLIT, "split"),
        (MERGED, "merged"),
    ];
}

table! {
    /// One row per life of a thread.
    pub struct Task in "tasks", sorted by start_ns {
        /// Unique id.
        task_id: i64 as Delta,
        /// Thread group id.
        pid: i32 as Dict,
        /// Thread id.
        tid: i32 as Dict,
        /// Task that created this one. For a task that existed at the start and shared its descriptor table (a thread):
        /// the task with which it shared. Null: existed at the start, kernel thread, or record of its creation lost.
        parent: Option<i64> as Dict,
        /// Creation. 0: existed at the start. Kernel thread, or record of the creation lost: first seen. In the latter
        /// case `pid` and `tid` are 0 unless the end was seen.
        start_ns: i64 as Delta,
        /// End. Null: it outlived the recording.
        exit_ns: Option<i64> as Delta,
        /// Exit code as encoded by wait(2).
        exit_code: Option<i32> as Dict,
        /// What it shares with its parent: `CLONE_VM` 0x100, `CLONE_FS` 0x200, `CLONE_FILES` 0x400, `CLONE_THREAD`
        /// 0x10000. `CLONE_NEWNS` 0x20000, `CLONE_NEWUSER` 0x10000000: it began in a mount or user name space of its own.
        clone_flags: i64 as Dict,
        /// Name when last seen.
        comm: Text as Dict,
        /// Control group (v2) id at its start.
        cgroup: Option<i64> as Dict,
        /// Working directory at its start. Known for tasks without a parent; the others inherit it.
        cwd: Option<Text> as Dict,
        /// Root directory at its start, likewise.
        root: Option<Text> as Dict,
        /// File creation mask at its start, likewise.
        umask: Option<i32> as Dict,
        /// Effective user id at its start, likewise.
        uid: Option<i32> as Dict,
        /// Effective group id at its start, likewise.
        gid: Option<i32> as Dict,
        /// Effective capabilities at its start, likewise, if it was in another user name space than the initial one:
        /// bits as in linux/capability.h. They hold for the ids of that name space.
        capabilities: Option<i64> as Dict,
        /// When it was moved out of the recorded control group.
        left_ns: Option<i64> as Delta,
    }
}

table! {
    /// One row per file mapping of a process at its adoption (`--pid`, `--cgroup`, `--all`).
    pub struct Map in "maps", sorted by task_id {
        /// Task: the leader of the process.
        task_id: i64 as Dict,
        /// First address.
        address: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// Mapped file, key into `files`.
        file: i64 as Dict,
        /// Position in the file of the first mapped byte.
        offset_bytes: i64 as Dict,
        /// Protection, `PROT_*`.
        prot: i32 as Dict,
        /// `MAP_SHARED` 1 or `MAP_PRIVATE` 2.
        flags: i32 as Dict,
    }
}

table! {
    /// One row per stop of a process by the recorder (`--lossless`): its threads stood still while rings were emptied.
    /// The time is not part of any operation.
    pub struct Stop in "stops", sorted by start_ns, lasting dur_ns {
        /// When its first thread found a ring nearly full.
        start_ns: i64 as Delta,
        /// Time until it was resumed.
        dur_ns: i64 as Split,
        /// Thread that found the ring nearly full.
        task_id: i64 as Dict,
        /// Stopped process.
        pid: i32 as Dict,
        /// CPU of that ring.
        cpu: i32 as Dict,
    }
}

table! {
    /// One row per program start, where close-on-exec descriptors are closed. A separate table, since a thread may exec
    /// more than once.
    pub struct Exec in "execs", sorted by exec_ns {
        /// Start of the new program.
        exec_ns: i64 as Delta,
        /// Task.
        task_id: i64 as Dict,
        /// Path of the program as given to execve.
        path: Text as Dict,
        /// New name of the thread.
        comm: Text as Dict,
        /// Effective user id of the new program. Differs from the previous one for set-user-ID programs.
        uid: Option<i32> as Dict,
        /// Effective group id, likewise.
        gid: Option<i32> as Dict,
        /// Effective capabilities of the new program, if it is in another user name space than the initial one: bits as
        /// in linux/capability.h. They hold for the ids of that name space.
        capabilities: Option<i64> as Dict,
    }
}

table! {
    /// One row per file that the reel mentions.
    pub struct File in "files", sorted by first_ns {
        /// Unique id.
        file: i64 as Delta,
        /// Device as in stat(2), `major << 20 | minor`. On btrfs one per subvolume.
        dev: i64 as Dict,
        /// Device of the mounted file system, key into `mounts` in the manifest.
        sb_dev: i64 as Dict,
        /// Inode number.
        ino: i64 as Ids,
        /// Inode generation. Distinguishes files with a reused inode number.
        generation: i64 as Dict,
        /// `regular`, `directory`, `symlink`, `fifo`, `socket`, `char`, `block`, `other`.
        kind: Text as Dict,
        /// When first seen.
        first_ns: i64 as Delta,
        /// Size when first seen.
        size_bytes: Option<i64> as Dict,
        /// Permission bits when first seen.
        mode: Option<i32> as Dict,
        /// Absolute path under which it was first seen. Null where unknown.
        path: Option<Text> as Dict,
        /// 1: the path was too long or too deep, and is cut.
        path_cut: i32 as Dict,
        /// btrfs: id of the subvolume's tree. With `sb_dev` and `ino` it identifies the file, as `dev` does.
        subvolume: Option<i64> as Dict,
        /// Overlay: the file below it (upper, or topmost lower) when first seen. Key into this table.
        real_file: Option<i64> as Ids,
        /// Path in the recorder's mounts, if not `path`: seen in a container or behind a bind mount; for an overlay's
        /// file, the path of the file below. Null also if these mounts do not show the file.
        host_path: Option<Text> as Dict,
        /// 1: had no name when first seen (`path` is its last), or never had one. 2: had other names, but `path` no
        /// more.
        unlinked: Option<i32> as Dict,
        /// Connected unix socket: inode number of the other end when first seen. `dev` is the same.
        peer_ino: Option<i64> as Ids,
    }
}

impl File {
    /// Whether `path` was its name no more when it was first seen.
    pub fn path_is_gone(&self) -> bool {
        self.unlinked.is_some_and(|u| u != 0)
    }
}

table! {
    /// One row per wait: a recorded thread was off its CPU during an operation of at least `waits_min_ns` (manifest).
    pub struct Wait in "waits", sorted by start_ns, id wait_id, lasting dur_ns {
        /// Unique id. Negative before it is written.
        wait_id: i64 as Delta,
        /// Thread, key into `tasks`.
        task_id: i64 as Dict,
        /// When it left its CPU.
        start_ns: i64 as Delta,
        /// Time until it was back on a CPU.
        dur_ns: i64 as Split,
        /// Last part of `dur_ns`, spent runnable and waiting for a CPU.
        run_queue_ns: i64 as Split,
        /// Operation in which it waited: the kernel's name of the call.
        op: Text as Dict,
        /// `ops.start_ns` of that operation. With `task_id` it identifies the operation.
        op_start_ns: i64 as Delta,
        /// What it waited for: `device`, `journal`, `inode_lock`, `lock`, `page_lock`, `page_under_write_back`,
        /// `dirty_limit`, `wbt`, `block_throttle`, `memory_reclaim`, `run_queue`, `request`, `peer`, `other`: see
        /// `docs/trace-format.md`.
        reason: Text as Dict,
        /// Thread that ended the wait by waking it, key into `tasks`. Null: preempted, woken by an interrupt (the end of
        /// a request, a timer), or woken by a thread that is not recorded.
        waker_task_id: Option<i64> as Dict,
        /// Name of the thread that woke it, also of one that has no row in `tasks`. Null: preempted, woken by an
        /// interrupt, or not known.
        waker_comm: Option<Text> as Dict,
        /// Reasons `lock` and `inode_lock`: the lock. One lock has one number in the whole reel; the number of a lock that
        /// is freed may be that of another later. Null: the kernel does not report it (file locks, or before 5.19).
        lock_id: Option<i64> as Dict,
        /// Kind of that lock, and how it was wanted: `mutex`, `rwsem_read`, `rwsem_write`, `percpu_rwsem`, `rt_mutex`.
        lock_kind: Option<Text> as Dict,
        /// Thread that held it when the wait began, key into `tasks`. Null: not recorded, or not told by the lock: an
        /// rwsem held by readers, `percpu_rwsem`, `rt_mutex`.
        owner_task_id: Option<i64> as Dict,
        /// Name of that thread, also of one that has no row in `tasks`.
        owner_comm: Option<Text> as Dict,
        /// Kernel functions at that moment, outermost first, separated by `;`.
        stack: Option<Text> as Dict,
        /// Stack of the program in the same form, as module+offset. Only with `--user-stacks`.
        user_stack: Option<Text> as Dict,
    }
}

table! {
    /// One row per commit of a journal or log, whoever made it.
    pub struct Commit in "commits", sorted by end_ns, id commit_id {
        /// Unique id. Negative before it is written.
        commit_id: i64 as Delta,
        /// File system, key into `mounts` in the manifest.
        sb_dev: i64 as Dict,
        /// `commit` (a transaction of jbd2 or btrfs), `fast_commit` (ext4), `log_write` (a buffer of XFS's log),
        /// `checkpoint` (jbd2: blocks of an old transaction were written in place to free its part of the journal).
        kind: Text as Dict,
        /// Number of the transaction: jbd2's and ext4's tid, btrfs's generation. XFS: the log sequence number (LSN).
        transaction: Option<i64> as Delta,
        /// Start. Null: not known, or before the recording. btrfs: start of the critical section, on kernels that store
        /// it.
        start_ns: Option<i64> as Delta,
        /// jbd2 commit: the transaction is closed; it waits for running handles from here on.
        locking_ns: Option<i64> as Delta,
        /// jbd2 commit: data of ordered files is written from here on.
        flushing_ns: Option<i64> as Delta,
        /// jbd2 commit: metadata is written to the journal from here on.
        logging_ns: Option<i64> as Delta,
        /// End. The committed changes are on stable storage, as far as the file system waits for that.
        end_ns: i64 as Delta,
        /// Blocks: of metadata in the transaction (`commit` of jbd2), written to the journal (`fast_commit`), written in
        /// place (`checkpoint`). Null elsewhere.
        blocks: Option<i64> as Dict,
        /// Bytes written to the journal or log; of jbd2 with its descriptors and its commit block. Null elsewhere.
        len_bytes: Option<i64> as Dict,
        /// jbd2 commit: handles (changes by file system calls) in the transaction.
        handles: Option<i64> as Dict,
        /// Thread that made it, key into `tasks`. Null: not recorded, such as jbd2's thread.
        task_id: Option<i64> as Dict,
        /// Name of that thread. Null: not known.
        comm: Option<Text> as Dict,
    }
}

table! {
    /// One row per name that a file had for a time.
    pub struct Name in "names", sorted by from_ns {
        /// File, key into `files`. Null: no recorded call opened it under this name.
        file: Option<i64> as Ids,
        /// Absolute name without symbolic links, as the task saw it.
        path: Text as Dict,
        /// Start of the time in which it had the name: end of the call that gave it, start of the call that found it,
        /// or 0.
        from_ns: i64 as Delta,
        /// End of that time. Null: it had the name at the end.
        until_ns: Option<i64> as Delta,
        /// How it got the name: `there` (open or mapped at the start), `seen` (found when opened, moved, linked or
        /// removed), `created`, `linked`, `renamed` (itself or a directory above).
        how: Text as Dict,
        /// How it lost the name: `unlinked`, `renamed`, `replaced` (something else was renamed to it), `lost` (not by a
        /// recorded call: something else was found under it, or its directory was gone). Null: it kept the name.
        ended: Option<Text> as Dict,
        /// Call that gave or found the name, key into `ops`. Null for `there`.
        from_op: Option<i64> as Delta,
        /// Call that took the name or found it gone, key into `ops`.
        until_op: Option<i64> as Delta,
    }
}

table! {
    /// One row per descriptor that was open when the recording, or that of its process, began.
    pub struct Fd in "fds", sorted by task_id {
        /// Task: the leader of the process.
        task_id: i64 as Dict,
        /// Descriptor number.
        fd: i32 as Dict,
        /// Open file description.
        ofd: i64 as Dict,
        /// File, key into `files`.
        file: Option<i64> as Dict,
        /// Position.
        offset_bytes: i64 as Dict,
        /// Open flags.
        flags: i64 as Dict,
        /// 1: closed on exec.
        cloexec: i32 as Dict,
    }
}

table! {
    /// Bytes of writes (`record --content full`), referenced by `ops.content_hash`. One row per content, however often
    /// it was written, as far as the recorder remembers.
    pub struct Content in "contents", sorted by first_ns {
        /// Start of the first write with this content.
        first_ns: i64 as Delta,
        /// As in `ops`.
        content_hash: Text as Dict,
        /// Bytes.
        data: Bytes as Plain,
    }
}

table! {
    /// The name space before the workload changed it. Sorted by `path`, so that parents come first.
    pub struct Tree in "tree", sorted by order {
        /// Position in path order.
        order: i64 as Delta,
        /// Absolute path.
        path: Text as Dict,
        /// `snapshot`, `first_touch` or `derived`: see `docs/trace-format.md`.
        origin: Text as Dict,
        /// As in `files`.
        kind: Text as Dict,
        /// Size. If `origin` is `derived`: a lower bound.
        size_bytes: Option<i64> as Dict,
        /// Bytes allocated. Less than the size for a sparse file.
        alloc_bytes: Option<i64> as Dict,
        /// Permission bits.
        mode: Option<i32> as Dict,
        /// Owner.
        uid: Option<i32> as Dict,
        /// Group.
        gid: Option<i32> as Dict,
        /// Modification time, ns since 1970.
        mtime_ns: Option<i64> as Dict,
        /// Names with the same non-null value are one file (hard links).
        link_id: Option<i64> as Dict,
        /// Target of a symbolic link.
        target: Option<Text> as Dict,
        /// Device of a character or block device node, `major << 20 | minor`.
        rdev: Option<i64> as Dict,
        /// Extended attributes, a JSON object of names and values: `user.*`, `trusted.*`, access control lists and file
        /// capabilities. Null: none, or not known.
        xattrs: Option<Text> as Dict,
    }
}

table! {
    /// The name space that a command left behind, seen when its recording ended. Parents come first. Written only if
    /// all recorded programs had ended by then.
    pub struct FinalName in "final_tree", sorted by order {
        /// Position.
        order: i64 as Delta,
        /// Absolute path.
        path: Text as Dict,
        /// As in `files`, or `absent`: the operations say that the name exists, but it does not. `unseen`: not looked at,
        /// since something else is mounted there, or the look failed. `reel`: the reel itself.
        kind: Text as Dict,
        /// Size. Null for a file that the recorder itself had open as its standard input, output or error.
        size_bytes: Option<i64> as Dict,
        /// Permission bits.
        mode: Option<i32> as Dict,
        /// Owner.
        uid: Option<i32> as Dict,
        /// Group.
        gid: Option<i32> as Dict,
        /// Number of names of the file. Null for directories.
        links: Option<i64> as Dict,
        /// Names with the same non-null value are one file (hard links).
        link_id: Option<i64> as Dict,
        /// Target of a symbolic link.
        target: Option<Text> as Dict,
        /// Device of a character or block device node, `major << 20 | minor`.
        rdev: Option<i64> as Dict,
        /// Extended attributes, as in `tree`. Null: none.
        xattrs: Option<Text> as Dict,
        /// 1: a directory all of whose names are in this table. Null elsewhere.
        complete: Option<i32> as Dict,
    }
}

table! {
    /// Where files of `tree` lay on their disks (`record --extents`). Extents that are contiguous in the file and on
    /// the disk are one row.
    pub struct Extent in "extents", sorted by order {
        /// Position in the order of paths and offsets.
        order: i64 as Delta,
        /// Absolute path as in `tree`. For a file with several names: the first one.
        path: Text as Dict,
        /// Start in the file.
        offset_bytes: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// Start on the device. On btrfs: in its own address space.
        physical_bytes: i64 as Split,
        /// `FIEMAP_EXTENT_*` without `FIEMAP_EXTENT_LAST`. 0x800: allocated without data.
        flags: i64 as Dict,
    }
}

table! {
    /// One row per event of the page cache on a regular file (`record --cache`).
    pub struct Cache in "cache", sorted by time_ns {
        /// Time.
        time_ns: i64 as Delta,
        /// CPU.
        cpu: i32 as Dict,
        /// Thread at work, key into `tasks`. Null: not recorded (write-back, reclaim).
        task_id: Option<i64> as Dict,
        /// Name of the thread.
        comm: Text as Dict,
        /// `fill`, `readahead`, `dirty`, `writeback` or `evict`.
        event: Text as Dict,
        /// File, key into `files`.
        file: i64 as Ids,
        /// First byte.
        offset_bytes: i64 as Split,
        /// Length. For `readahead`: the length requested.
        len_bytes: i64 as Dict,
        /// Device of the mounted file system, as in `files`.
        sb_dev: i64 as Dict,
    }
}

table! {
    /// One row per record of an imported block trace, unchanged. It includes the records behind `block` and `bio`:
    /// these tables keep half of a record, and an export must return all of it.
    pub struct Action in "actions", sorted by time_ns {
        /// Time. A note about processes or the time of day has the time of its place in the file.
        time_ns: i64 as Delta,
        /// Timestamp of the record, ns, if it is not the reel's start plus `time_ns` (notes only).
        stamp_ns: Option<i64> as Dict,
        /// Trace of origin: part of the file name before `.blktrace.`, or the name of the dump.
        trace: Text as Dict,
        /// Position in its file.
        place: i64 as Delta,
        /// The kernel's sequence number, per device and CPU. 0 for notes.
        sequence: i64 as Delta,
        /// Letter that blkparse prints: `Q`, `G`, `I`, `D`, `C`, `M`, …. For notes: `process`, `timestamp`, `message`.
        /// Unknown: `?`.
        event: Text as Dict,
        /// The kernel's action with its category bits (include/uapi/linux/blktrace_api.h).
        action: i64 as Dict,
        /// First 512-byte sector.
        sector: i64 as Split,
        /// Length. For a completion: the length completed.
        len_bytes: i64 as Dict,
        /// Thread at work. For a completion: the interrupted thread.
        pid: i64 as Dict,
        /// Device, `major << 20 | minor`.
        dev: i64 as Dict,
        /// CPU.
        cpu: i64 as Dict,
        /// Error of a completion as written by the kernel: 16 bits of a negative errno.
        error: i32 as Dict,
        /// Note about a process: name of the thread.
        comm: Option<Text> as Dict,
        /// Text of a message.
        message: Option<Text> as Dict,
        /// Other bytes after the record, in hexadecimal.
        payload: Option<Text> as Dict,
    }
}
