//! The tables of a reel, one struct each. Times are ns since the reel's start on the monotonic clock;
//! all integers are signed (unsigned 64-bit kernel values are bit-cast); ids are unique within a reel.

use crate::{
    Text,
    format::{bytes::Bytes, table::table},
};

table! {
    /// One row per file operation.
    ///
    /// Two-file calls (`copy_file_range`, `sendfile`, `dup2`, `rename`, `link`) put the source in `fd`,
    /// `path`, … and the destination in `fd2`, `path2`, …, whatever the order of the call's arguments.
    /// What `flags`, `mode`, `len_bytes`, `aux` and `aux2` hold per call is tabulated in `docs/trace-format.md`.
    pub struct Op in "ops", sorted by start_ns, id op_id, lasting dur_ns, own where source is "tool", late parent_op {
        /// Unique id, ascending with `start_ns` within a segment; negative until written.
        op_id: i64 as Delta,
        /// When the call was entered.
        start_ns: i64 as Delta,
        /// How long it took; 0 with `state` other than `complete`.
        dur_ns: i64 as Split,
        /// CPU it ended on.
        cpu: i32 as Dict,
        /// Thread, key into `tasks`.
        task_id: i64 as Dict,
        /// Thread group id (process).
        pid: i32 as Dict,
        /// Thread id; the kernel reuses these, `task_id` is never reused.
        tid: i32 as Dict,
        /// The kernel's system call name; of source `fault`: `fault`, `map_pages`, `dirty`; of `vfs` and `lower`: `vfs_read`,
        /// `vfs_write`, `vfs_fsync`, `vfs_fallocate`.
        op: Text as Dict,
        /// Which layer saw it: `syscall`, `io_uring` (a request to io_uring), `aio` (a request of Linux AIO), `fault` (use of mapped files),
        /// `scm` (a descriptor that a message brought), `vfs` (the kernel's own doing: the NFS server and other threads of the
        /// kernel's), `lower` (what an operation that is told already makes the kernel do to another file: those under an
        /// overlay's, the file behind a loop device; counted by no total), `tool` (ioreel's own settling), `replay`.
        source: Text as Dict,
        /// `complete`; `in_flight_at_end` when the recording stopped first; `in_flight_at_start` when the call had begun before
        /// its thread was recorded: `start_ns` is then the moment from which it was; `unknown` when its end was not seen; `unreported`
        /// for a request to io_uring that asked for no completion on success and got none.
        state: Text as Dict,
        /// Descriptor argument (the source of a two-file call).
        fd: Option<i32> as Dict,
        /// Second descriptor argument (the destination).
        fd2: Option<i32> as Dict,
        /// Directory descriptor that `path` is relative to; -100 is the working directory.
        dirfd: Option<i32> as Dict,
        /// Directory descriptor that `path2` is relative to.
        dirfd2: Option<i32> as Dict,
        /// Open file description behind `fd`, or the one an open made: shared by dup and fork.
        ofd: Option<i64> as Ids,
        /// Open file description behind `fd2`.
        ofd2: Option<i64> as Ids,
        /// File behind `fd`, the one an open opened, or, for a call on a name, the directory behind `dirfd`; key into `files`.
        file: Option<i64> as Ids,
        /// File behind `fd2`, or the directory behind `dirfd2` (an open's `dirfd`).
        file2: Option<i64> as Ids,
        /// First path argument as given, at most 4095 bytes of it (target text of a symlink goes to `path`, its name to `path2`).
        path: Option<Text> as Dict,
        /// Second path argument as given.
        path2: Option<Text> as Dict,
        /// Byte position the operation acts at, also for plain read and write; the position after an lseek is `ret`.
        offset_bytes: Option<i64> as Split,
        /// The same in the destination file.
        offset2_bytes: Option<i64> as Split,
        /// Bytes asked for; the new length of a truncate; `st_size` of a successful stat.
        len_bytes: Option<i64> as Dict,
        /// The result, or -errno. Null while in flight, and of an unreported request whose result is not known.
        ret: Option<i64> as Dict,
        /// Flags argument, as the call defines it (`O_*`, `AT_*`, `RWF_*`, `MAP_*`, whence, fcntl command).
        flags: Option<i64> as Dict,
        /// Mode argument (permissions, `access` mask, umask, fallocate mode, mmap protection); `st_mode` of a successful stat.
        mode: Option<i32> as Dict,
        /// Further argument or fact, by call.
        aux: Option<i64> as Dict,
        /// One more.
        aux2: Option<i64> as Dict,
        /// A name that is no path: of an extended attribute, an ioctl request, a file system type, a mount option, a memfd; of
        /// source `vfs` and `lower`, the kernel's function.
        name: Option<Text> as Dict,
        /// Bytes given or gotten beside data, where they were short enough to be taken: an attribute's value, a handle, a mount option's value.
        value: Option<Text> as Dict,
        /// Which io_uring, or which context of Linux AIO; unique within the reel.
        ring: Option<i64> as Dict,
        /// Of a request to io_uring: what the program knows it by.
        user_data: Option<i64> as Ids,
        /// Of a request to io_uring: `IOSQE_*` as submitted, and what became of it. Bits of [`sqe_flags`].
        sqe_flags: Option<i32> as Dict,
        /// Of a request to io_uring: its registered buffer, or the group of buffers it selects from.
        buf_index: Option<i32> as Dict,
        /// Of a write recorded with `--content`: the first 128 bits of the BLAKE3 hash of the bytes it wrote, in hexadecimal; with
        /// `--anonymize` a keyed hash of that. Null where they could not be read: see `docs/record.md`.
        content_hash: Option<Text> as Dict,
        /// Likewise: how much smaller zstd makes these bytes, in thousandths: 0 not at all, 1000 to nothing. An estimate: of a long
        /// write a part is tried.
        compressibility_permille: Option<i32> as Dict,
        /// Of source `lower`: the operation that it was part of, where that is known; key into this table.
        parent_op: Option<i64> as Ids,
        /// In a replay's reel: the `op_id` of the original.
        orig_op_id: Option<i64> as Delta,
        /// In a replay's reel: when the operation was to be issued; `start_ns - due_ns` is its lateness.
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
    /// One row per request dispatched to a device: what the device saw. Flushes have length 0.
    pub struct Block in "block", sorted by issue_ns, id rq_id {
        /// Unique id; negative until written unless bios refer to it.
        rq_id: i64 as Delta,
        /// When its first bio was queued; null when that was before the recording.
        queue_ns: Option<i64> as Delta,
        /// When it was given to the driver.
        issue_ns: i64 as Delta,
        /// When the driver ended it; null when the recording ended first, or no probe saw it end.
        complete_ns: Option<i64> as Delta,
        /// Device, `major << 20 | minor` (the kernel's `dev_t`).
        dev: i64 as Dict,
        /// First 512-byte sector on the whole disk; -1 for a flush and for what is passed through to the device (`other`).
        sector: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// `read`, `write`, `flush`, `discard`, `secure_erase`, `write_zeroes`, `zone_append`, `zone_mgmt`, `other`.
        op: Text as Dict,
        /// Bits of [`block_flags`].
        flags: i32 as Dict,
        /// CPU that issued it.
        cpu: i32 as Dict,
        /// 0, or the errno it ended with, positive.
        error: i32 as Dict,
        /// Times the driver gave it back before it was issued for the last time, which is `issue_ns`.
        requeues: Option<i32> as Dict,
        /// Bios it carried; 0 for a flush of the device's cache.
        bios: Option<i32> as Dict,
    }
}

table! {
    /// One row per bio: what the file system asked of a device.
    pub struct Bio in "bio", sorted by queue_ns, id bio_id, late cause {
        /// Unique id; negative until written.
        bio_id: i64 as Delta,
        /// Request that carried it, key into `block`, the last one where the device ended it in parts; null for devices
        /// without requests and for empty flushes.
        rq_id: Option<i64> as Delta,
        /// When it was queued.
        queue_ns: i64 as Delta,
        /// When it ended; null when the recording ended first, or no probe saw it end.
        complete_ns: Option<i64> as Delta,
        /// Device, `major << 20 | minor`.
        dev: i64 as Dict,
        /// First 512-byte sector on the whole disk; -1 where it has none.
        sector: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// As in `block`.
        op: Text as Dict,
        /// Bits of [`block_flags`].
        flags: i32 as Dict,
        /// Thread that queued it, key into `tasks`; for what a worker of io_uring queues, the one that submitted the
        /// request, or where that is not known (`--block-only`, pages that a ring's own thread reads) the first of its
        /// process; null when it is no recorded one (kernel threads, unless they were at a file of theirs).
        task_id: Option<i64> as Dict,
        /// Name of that thread.
        comm: Text as Dict,
        /// File whose pages it carries, key into `files`; null where unknown.
        file: Option<i64> as Ids,
        /// Where in that file; null also where there are holes in what it carries.
        file_offset_bytes: Option<i64> as Split,
        /// `data`, `journal`, `inode_table`, `directory`, `bitmap`, `tree`, `extent_map`, `superblock`, `swap`, `flush`,
        /// `metadata` (of another kind), `unknown`: see `docs/internals/attribution.md`.
        class: Text as Dict,
        /// How sure `file` and `class` are, in percent.
        confidence: i32 as Dict,
        /// Operation that caused it, where that is known: the request to io_uring that it was queued for, the call its
        /// thread was in, the touch of a mapped page that was not there, or what a thread of the kernel's did to a file.
        cause: Option<i64> as Ids,
        /// Device it was queued on first when that is not `dev`: a partition, or a mapped or striped device above.
        orig_dev: Option<i64> as Dict,
        /// First 512-byte sector on `orig_dev`.
        orig_sector: Option<i64> as Split,
        /// What of its class it is: `block_bitmap`, `log`, `checksum`, …; null for data of files.
        detail: Option<Text> as Dict,
        /// How `class` and `file` were told: `page`, `request`, `inode`, `clone`, `layout`, `buffer`, `content`, `end_io`,
        /// `device`, `operation`, `flags`; null for `unknown`.
        how: Option<Text> as Dict,
        /// 0, or the errno it ended with, positive.
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
        /// Task that made this one. Null for those the recording began with, except that a task there which shared its
        /// descriptors with another (a thread) has that one here; null, too, where the record of its beginning was lost: it then
        /// starts when it was first met, and `pid` and `tid` are 0 unless its end was seen. Null of threads of the kernel's.
        parent: Option<i64> as Dict,
        /// When it was made, or 0 for those the recording began with; of a thread of the kernel's: when it was first met.
        start_ns: i64 as Delta,
        /// When it ended; null when it outlived the recording.
        exit_ns: Option<i64> as Delta,
        /// Exit code as wait(2) encodes it.
        exit_code: Option<i32> as Dict,
        /// What it shares with its parent: `CLONE_VM` 0x100, `CLONE_FS` 0x200, `CLONE_FILES` 0x400, `CLONE_THREAD` 0x10000.
        clone_flags: i64 as Dict,
        /// Its name when last seen.
        comm: Text as Dict,
        /// Control group (v2) id at its start.
        cgroup: Option<i64> as Dict,
        /// Working directory at its start; known for tasks without a parent, inherited by the others.
        cwd: Option<Text> as Dict,
        /// Root directory at its start, likewise.
        root: Option<Text> as Dict,
        /// File creation mask at its start, likewise.
        umask: Option<i32> as Dict,
        /// Effective user id at its start, likewise.
        uid: Option<i32> as Dict,
        /// Effective group id at its start, likewise.
        gid: Option<i32> as Dict,
        /// When it left what is recorded without ending: it was moved out of the recorded control group.
        left_ns: Option<i64> as Delta,
    }
}

table! {
    /// One row per file mapping that a process had when it was adopted (`--pid`, `--cgroup`, `--all`).
    pub struct Map in "maps", sorted by task_id {
        /// The task (the leader of its process).
        task_id: i64 as Dict,
        /// First address.
        address: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// The file.
        file: i64 as Dict,
        /// Where in the file it begins.
        offset_bytes: i64 as Dict,
        /// Protection, `PROT_*`.
        prot: i32 as Dict,
        /// `MAP_SHARED` 1 or `MAP_PRIVATE` 2.
        flags: i32 as Dict,
    }
}

table! {
    /// One row per stop of a process by the recorder (`--lossless`): its threads stood still while rings were
    /// emptied. The time is no part of any operation.
    pub struct Stop in "stops", sorted by start_ns, lasting dur_ns {
        /// When the first of its threads met a ring that was nearly full.
        start_ns: i64 as Delta,
        /// Until it was resumed.
        dur_ns: i64 as Split,
        /// That thread.
        task_id: i64 as Dict,
        /// The process.
        pid: i32 as Dict,
        /// The CPU whose ring it was.
        cpu: i32 as Dict,
    }
}

table! {
    /// One row per program start: descriptors marked close-on-exec end here. A table of its own
    /// because one life of a thread may exec more than once.
    pub struct Exec in "execs", sorted by exec_ns {
        /// When the new program took over.
        exec_ns: i64 as Delta,
        /// The task.
        task_id: i64 as Dict,
        /// The program's path as given to execve.
        path: Text as Dict,
        /// The thread's new name.
        comm: Text as Dict,
        /// Effective user id of the new program: another than before where its file says so (set-user-ID).
        uid: Option<i32> as Dict,
        /// Effective group id, likewise.
        gid: Option<i32> as Dict,
    }
}

table! {
    /// One row per file that the reel speaks of.
    pub struct File in "files", sorted by first_ns {
        /// Unique id.
        file: i64 as Delta,
        /// Device as stat(2) tells it, `major << 20 | minor`: on btrfs one per subvolume.
        dev: i64 as Dict,
        /// Device of the mounted file system, key into the manifest's mounts.
        sb_dev: i64 as Dict,
        /// Inode number.
        ino: i64 as Ids,
        /// Inode generation: tells reused inode numbers apart.
        generation: i64 as Dict,
        /// `regular`, `directory`, `symlink`, `fifo`, `socket`, `char`, `block`, `other`.
        kind: Text as Dict,
        /// When it was first seen.
        first_ns: i64 as Delta,
        /// Size when first seen.
        size_bytes: Option<i64> as Dict,
        /// Permission bits when first seen.
        mode: Option<i32> as Dict,
        /// Absolute path by which it was first seen; null where unknown.
        path: Option<Text> as Dict,
        /// 1 when the path was cut because it was too long or too deep.
        path_cut: i32 as Dict,
        /// btrfs: id of the subvolume's tree; with `sb_dev` and `ino` it tells files apart as `dev` does.
        subvolume: Option<i64> as Dict,
        /// Overlay: the file under it, upper or topmost lower, when first seen; key into this table.
        real_file: Option<i64> as Ids,
        /// Where the recorder's mounts show it, when that is not `path`: it was seen in a container, behind a bind
        /// mount, or it is an overlay's (then the file under it). Null too where they do not show it.
        host_path: Option<Text> as Dict,
        /// 1 when it had no name any more, or never had one, when first seen: `path` is its last. 2 when it had others, but
        /// not `path` any more.
        unlinked: Option<i32> as Dict,
        /// A connected unix socket: inode number of its other end, when first seen; `dev` is the same.
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
    /// One row per wait: a recorded thread was off its CPU inside a slow operation.
    pub struct Wait in "waits", sorted by start_ns, id wait_id, lasting dur_ns {
        /// Unique id; negative until written.
        wait_id: i64 as Delta,
        /// Thread, key into `tasks`.
        task_id: i64 as Dict,
        /// When it left its CPU.
        start_ns: i64 as Delta,
        /// Until it was back on one.
        dur_ns: i64 as Split,
        /// The last part of that, in which it only waited for a CPU.
        run_queue_ns: i64 as Split,
        /// The operation it was in: the kernel's name of the call.
        op: Text as Dict,
        /// `ops.start_ns` of that operation; with `task_id` it tells which one.
        op_start_ns: i64 as Delta,
        /// What for: `device`, `journal`, `inode_lock`, `lock`, `page_lock`, `page_under_write_back`,
        /// `write_back_throttle`, `memory_reclaim`, `run_queue`, `other`.
        reason: Text as Dict,
        /// Kernel functions at that moment, outermost first, separated by `;`.
        stack: Option<Text> as Dict,
        /// The program's, likewise, as module+offset; only on request.
        user_stack: Option<Text> as Dict,
    }
}

table! {
    /// One row per name that a file had for a while.
    pub struct Name in "names", sorted by from_ns {
        /// The file, key into `files`; null where no recorded call had it open under this name.
        file: Option<i64> as Ids,
        /// The name, absolute and without links, as the task saw it.
        path: Text as Dict,
        /// From then on: when the call that gave it had ended, the one that found it had begun, or 0.
        from_ns: i64 as Delta,
        /// Until then; null when it still had it at the end.
        until_ns: Option<i64> as Delta,
        /// How it came to it: `there` (open or mapped at the start), `seen` (found when it was opened, moved, linked or
        /// removed), `created`, `linked`, `renamed` (itself, or a folder above it).
        how: Text as Dict,
        /// How it lost it: `unlinked`, `renamed`, `replaced` (something else was renamed to it), `lost` (something
        /// else was found under it, or its folder went: no recorded call did that). Null when it did not.
        ended: Option<Text> as Dict,
        /// The call that gave or found it, key into `ops`; null for `there`.
        from_op: Option<i64> as Delta,
        /// The call that took it, or found it gone, key into `ops`.
        until_op: Option<i64> as Delta,
    }
}

table! {
    /// One row per descriptor that was open when the recording, or that of its process, began.
    pub struct Fd in "fds", sorted by task_id {
        /// The task (the leader of its process).
        task_id: i64 as Dict,
        /// Descriptor number.
        fd: i32 as Dict,
        /// Open file description.
        ofd: i64 as Dict,
        /// The file.
        file: Option<i64> as Dict,
        /// Position.
        offset_bytes: i64 as Dict,
        /// Open flags.
        flags: i64 as Dict,
        /// 1 when it closes on exec.
        cloexec: i32 as Dict,
    }
}

table! {
    /// The bytes of writes: `record --content full`. One row per content, however often it was written, as far as the
    /// recorder remembers; `ops.content_hash` leads here.
    pub struct Content in "contents", sorted by first_ns {
        /// Start of the first write of it.
        first_ns: i64 as Delta,
        /// As in `ops`.
        content_hash: Text as Dict,
        /// The bytes.
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
        /// Size; a least size when `origin` is `derived`.
        size_bytes: Option<i64> as Dict,
        /// Bytes allocated; less than the size for a sparse file.
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
    }
}

table! {
    /// Where files of `tree` lay on their disks: `record --extents`. Those that go on where the last one ended, in the file and
    /// on the disk, are one row.
    pub struct Extent in "extents", sorted by order {
        /// Position in the order of paths and offsets.
        order: i64 as Delta,
        /// Absolute path, as in `tree`; the first one of a file with several.
        path: Text as Dict,
        /// Where in the file it begins.
        offset_bytes: i64 as Split,
        /// Length.
        len_bytes: i64 as Dict,
        /// Where on the device (btrfs: in its own address space) it begins.
        physical_bytes: i64 as Split,
        /// `FIEMAP_EXTENT_*`, but for the mark of the last one: 0x800 is room without data.
        flags: i64 as Dict,
    }
}

table! {
    /// One row per event of the page cache, by regular file: `record --cache`.
    pub struct Cache in "cache", sorted by time_ns {
        /// When.
        time_ns: i64 as Delta,
        /// CPU.
        cpu: i32 as Dict,
        /// Thread at work, key into `tasks`; null when it is no recorded one (write-back, reclaim).
        task_id: Option<i64> as Dict,
        /// Its name.
        comm: Text as Dict,
        /// `fill`, `readahead`, `dirty`, `writeback` or `evict`.
        event: Text as Dict,
        /// The file, key into `files`.
        file: i64 as Ids,
        /// First byte.
        offset_bytes: i64 as Split,
        /// Length; of a readahead, what was asked for.
        len_bytes: i64 as Dict,
        /// Device of the mounted file system, as in `files`.
        sb_dev: i64 as Dict,
    }
}

table! {
    /// One row per record of an imported block trace, as it was: what `block` and `bio` tell of is in it too, since
    /// they keep half of what a record says, and an export must give back all of it.
    pub struct Action in "actions", sorted by time_ns {
        /// When; a note about processes or the time of day stands where it was met.
        time_ns: i64 as Delta,
        /// The record's own clock, ns, where it is not the reel's start plus `time_ns` (notes only).
        stamp_ns: Option<i64> as Dict,
        /// Trace it came from: the part of the file name before `.blktrace.`, or the name of the dump.
        trace: Text as Dict,
        /// Its place in its file.
        place: i64 as Delta,
        /// Its number as the kernel counted, per device and CPU; 0 for notes.
        sequence: i64 as Delta,
        /// The letter blkparse prints: `Q`, `G`, `I`, `D`, `C`, `M`, …; `process`, `timestamp`, `message` for notes; `?`.
        event: Text as Dict,
        /// The kernel's action, with its category bits (include/uapi/linux/blktrace_api.h).
        action: i64 as Dict,
        /// First 512-byte sector.
        sector: i64 as Split,
        /// Length; of a completion, what it completed.
        len_bytes: i64 as Dict,
        /// Thread at work, which in a completion is the interrupted one.
        pid: i64 as Dict,
        /// Device, `major << 20 | minor`.
        dev: i64 as Dict,
        /// CPU.
        cpu: i64 as Dict,
        /// Error of a completion, as the kernel wrote it: 16 bits of a negative errno.
        error: i32 as Dict,
        /// In a note about a process: the thread's name.
        comm: Option<Text> as Dict,
        /// The text of a message.
        message: Option<Text> as Dict,
        /// What else followed the record, in hexadecimal.
        payload: Option<Text> as Dict,
    }
}
