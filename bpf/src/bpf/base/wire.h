/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The wire format: what the probes put into the rings and the recorder takes out. Included by the BPF
 * programs; the Rust side uses the types that libbpf-cargo generates from the same definitions, so no
 * field exists twice. Times are CLOCK_MONOTONIC ns. Nothing here is rounded, named or resolved: that is
 * user space's work (capture/src/decode/wire.rs).
 */
#ifndef IOREEL_WIRE_H
#define IOREEL_WIRE_H

#include "base/vmlinux.h"

/* Longest path the kernel takes, PATH_MAX. */
#define WIRE_PATH_BYTES 4096
/* Longest path that is walked from a file to its root: folders can lie deeper than any path the kernel takes. */
#define WIRE_WALK_BYTES 16384
/* Call table size: a power of two above every x86-64 and arm64 system call number in use. */
#define WIRE_CALLS 512
#define WIRE_COMM_BYTES 16
/* hdr.cpu of what iterators tell: not numbered, not counted. */
#define WIRE_NO_CPU 0xffff
/* Most of a name beside the paths: XATTR_NAME_MAX. */
#define WIRE_NAME_BYTES 255
/* Most of what a call is given and of what it writes; values of extended attributes are seldom longer. */
#define WIRE_IN_BYTES 256
#define WIRE_OUT_BYTES 128

enum rec_type {
	REC_OP = 1, /* rec_op */
	REC_OP_LONG = 2, /* rec_op, op_tail, path, path2, name, in, out */
	REC_FILE = 3, /* rec_file, path */
	REC_TASK = 4, /* rec_task: a thread was made or adopted */
	REC_EXEC = 5, /* rec_exec, path */
	REC_EXIT = 6, /* rec_task */
	REC_BIO = 7, /* rec_bio */
	REC_RQ = 8, /* rec_rq */
	REC_RQ_BIO = 40, /* rec_bio as far as comm, rq_part: a request and all that it carried; two numbers */
	REC_FD = 9, /* rec_fd, only from the descriptor snapshot */
	REC_PLACE = 20, /* rec_place, cwd, root; only from the snapshot */
	REC_MAP = 21, /* rec_map, path; only from the snapshot */
	REC_LEFT = 22, /* rec_task: the thread is no longer recorded, and lives on */
	REC_WAIT = 24, /* rec_wait, kernel stack, user stack */
	REC_LOOKED = 23, /* rec_hdr, made in user space: the snapshot's passes have ended */
	REC_PASSED = 10, /* rec_passed: a descriptor came by SCM_RIGHTS */
	REC_AIO = 11, /* rec_aio: a control block was given to io_submit */
	REC_AIO_END = 12, /* rec_aio_end: its result was taken by io_getevents */
	REC_URING = 32, /* rec_uring: a request ended */
	REC_URING_PATHS = 33, /* rec_uring_paths, path, path2: a request with paths was submitted */
	REC_URING_RING = 34, /* rec_uring_ring: a ring was made */
	REC_FAULT = 36, /* rec_fault */
	REC_CACHE = 37, /* rec_cache */
	REC_CONTENT = 38, /* rec_content, bytes */
	REC_URING_OVERFLOW = 35, /* rec_uring_ring: a request ended, and the completion queue was full */
	REC_VFS = 39, /* rec_vfs */
};

/* What the ledger counts apart. */
enum rec_class {
	CLASS_OPS = 0,
	CLASS_FILES = 1,
	CLASS_TASKS = 2, /* tasks and execs */
	CLASS_BLOCK = 3,
	CLASS_BIO = 4,
	CLASS_AIO = 5, /* results of asynchronous I/O; the requests are CLASS_OPS */
	CLASS_WAITS = 6,
	CLASS_URING = 7, /* requests to io_uring */
	CLASS_URING_FACTS = 8, /* paths, rings, overflows: what requests are completed with */
	CLASS_FAULT = 9,
	CLASS_CACHE = 10,
	CLASS_CONTENT = 11, /* contents of writes */
	CLASS_VFS = 12, /* operations of the kernel's own */
	CLASS_COUNT = 13,
};

/* Records are numbered per CPU and stream: a stream's numbers need no atomics, or do. */
enum rec_stream {
	STREAM_SHARED = 0, /* whatever any probe sends, in interrupts too */
	STREAM_OPS = 1, /* what op_exit sends, which is never interrupted by itself */
	STREAM_COUNT = 2,
};

struct rec_hdr {
	__u64 seq; /* per CPU and stream; counted up also when the record is lost */
	__u64 end_ns; /* when the record was made: the end of what it speaks of */
	__u32 len_bytes; /* of the whole record */
	__u16 cpu;
	__u8 type; /* enum rec_type */
	__u8 stream; /* enum rec_stream */
};

/* File identity. dev is what stat(2) says (btrfs: per subvolume), generation tells reused inodes apart. */
struct file_id {
	__u64 ino;
	__u32 dev;
	__u32 generation;
};

/* What identifies a file beyond file_id. */
struct file_more {
	__u64 subvolume; /* btrfs: the id of the tree its inode is in; else 0 */
	__u64 peer_ino; /* a connected unix socket: the inode number of its other end; else 0 */
	struct file_id real; /* overlay: the inode of the upper file, or of the topmost lower one; else 0 */
	__u32 unlinked; /* 1: it had no name left; 2: the name it was opened by was gone, others were left */
	__u32 real_sb_dev;
	__u32 renewed; /* its number was another file's before, whose record is out, or it was made just now */
	__u32
	    fs_path_bytes; /* behind the path: the path from its file system's root, of the real file if there is one */
};

enum op_flags {
	OPF_FILE = 1, /* file, ofd and positions are set */
	OPF_FILE2 = 2, /* the same for the tail's file2 */
	OPF_CREATED = 4, /* the open made the file (FMODE_CREATED) */
	OPF_APPEND = 8, /* the description is O_APPEND */
	OPF_PATH_FAULT = 16, /* path could not be read, neither on entry nor on exit */
	OPF_PATH2_FAULT = 32,
	OPF_DIR = 64, /* file is the directory behind dirfd, not an operand */
	OPF_DIR2 = 128, /* the same of file2 */
	OPF_USER_FAULT = 256, /* extra could not be read */
	OPF_AT_SIZE = 512, /* pos_after is the file's size after a call that may have appended */
	OPF_MAP_BUSY = 1024, /* what is mapped there could not be looked up */
	OPF_MIDWAY = 2048, /* in flight when its thread was adopted: the start is that moment */
	OPF_CONTENT = 8192, /* what it wrote was sent, before it */
	OPF_OTHER_THREAD = 16384, /* context, by a thread that was not asked for */
	OPF_IO = 32768, /* bios were queued during the call */
	OPF_COMPAT = 4096, /* by the 32-bit entry: nr and args are i386's */
};

struct rec_op {
	struct rec_hdr hdr;
	__u64 dur_ns;
	__s64 ret;
	__u32 task_id;
	__u16 nr; /* system call number */
	__u16 flags; /* enum op_flags */
	__u64 ofd; /* address of the open file description; user space makes ids of these */
	struct file_id file;
	__s64 pos_before; /* f_pos on entry and on exit */
	__s64 pos_after;
	__u64 args[6];
};

/* A CPU's ring of rec_op in shared memory. The probe writes the first half, the recorder the second. */
struct op_ring {
	__u64 head; /* records put in so far */
	__u64 seq; /* numbers given out in STREAM_OPS: operations seen */
	__u64 lost; /* operations for which a ring had no room */
	__u32 next; /* where the next one goes */
	__u32 pad;
	__u64 pad2[4];
	__u64 tail; /* records taken out so far */
	__u64 pad3[7];
};

struct op_tail {
	__u64 extra[4]; /* user memory the call pointed to, by enum call_user */
	__u64 ofd2;
	struct file_id file2;
	__s64 pos2_before;
	__s64 pos2_after;
	__u16 path_bytes; /* without a terminating NUL */
	__u16 path2_bytes;
	__u16 in_bytes; /* of what the call was given; fewer than it took when there was more or it could not be read */
	__u8 name_bytes;
	__u8 out_bytes; /* of what the call wrote */
};

/* Bytes that an operation wrote, the next ones. */
struct rec_content {
	struct rec_hdr hdr;
	__u64 of; /* which one of task_id's: a call by its start, ns, an asynchronous one by the request's address */
	__u32 task_id;
	__u32 last; /* 1: these are the last, and the record is numbered */
};

/* One descriptor that a recvmsg or recvmmsg brought. */
struct rec_passed {
	struct rec_hdr hdr;
	__u64 dur_ns; /* of the call */
	__u64 ofd;
	struct file_id file;
	__u32 task_id;
	__s32 fd;
	__s32 socket;
	__u16 nr;
	__u16 flags; /* enum op_flags */
	__u32 cloexec;
	__u32 pad;
};

/* One control block of asynchronous I/O, as it was when io_submit was entered. */
struct rec_aio {
	struct rec_hdr hdr;
	__u64 ctx; /* the context's address */
	__u64 iocb; /* the control block's */
	__u64 ofd;
	struct file_id file;
	__s64 offset_bytes;
	__s64 len_bytes; /* the sum over a vector */
	__s64 count; /* of pieces; the events of a poll */
	__u32 task_id;
	__s32 fd;
	__u32 rw_flags;
	__u16 opcode; /* IOCB_CMD_ of linux/aio_abi.h */
	__u16 flags; /* enum op_flags */
};

/* One result of it. */
struct rec_aio_end {
	struct rec_hdr hdr;
	__u64 ctx;
	__u64 iocb;
	__s64 res;
	__u32 task_id;
	__u32 content; /* 1: what it wrote was sent, before it */
};

struct rec_file {
	struct rec_hdr hdr;
	struct file_id file;
	__u32 sb_dev; /* the mounted file system's device */
	__u32 mode; /* with type bits */
	__s64 size_bytes;
	__u32 path_bytes;
	__u32 path_cut; /* 1: too deep or too long */
	struct file_more more;
};

/* Parent of a thread of the kernel's: nobody has made it, and it has nothing of its own that is looked at. */
#define WIRE_KERNEL_TASK 0xffffffff

struct rec_task {
	struct rec_hdr hdr;
	__u32 task_id;
	__u32 parent; /* 0: adopted; or WIRE_KERNEL_TASK */
	__u32 pid;
	__u32 tid;
	__u64 clone_flags; /* CLONE_VM, FS, FILES, THREAD as found, not as asked */
	__u64 cgroup;
	__s32 exit_code;
	__u32 listed; /* 1: told by an iterator, not numbered in a ring */
	char comm[WIRE_COMM_BYTES];
};

/* What a task had when it was met. Equal addresses: shared. */
struct rec_place {
	struct rec_hdr hdr;
	__u64 files;
	__u64 fs;
	__u64 mm;
	__u64 cgroup;
	__u32 task_id;
	__u32 umask;
	__u32 uid; /* effective */
	__u32 gid;
	__u32 cwd_bytes;
	__u32 root_bytes;
};

/* A file mapped when its process was met. */
struct rec_map {
	struct rec_hdr hdr;
	__u64 start;
	__u64 len_bytes;
	__u64 offset_bytes;
	__u64 vm_flags; /* the kernel's VM_ bits; read, write, exec, shared are 1, 2, 4, 8 */
	struct file_id file;
	__s64 size_bytes;
	__u32 task_id;
	__u32 sb_dev;
	__u32 mode;
	__u32 path_bytes;
	struct file_more more;
};

struct rec_exec {
	struct rec_hdr hdr;
	__u32 task_id;
	__u32 path_bytes;
	__u32 tid; /* an exec by another thread than the leader takes over the leader's */
	__u32 uid; /* effective, of a program that may have made it another */
	__u32 gid;
	__u32 pad;
	char comm[WIRE_COMM_BYTES];
};

struct rec_fd {
	struct rec_hdr hdr;
	__u32 task_id;
	__s32 fd;
	__u64 ofd;
	struct file_id file;
	__u32 sb_dev;
	__u32 mode;
	__s64 size_bytes;
	__s64 offset_bytes;
	__u32 open_flags;
	__u32 cloexec;
	__u32 path_bytes;
	__u32 path_cut;
	struct file_more more;
};

enum uring_flags {
	URF_FILE = 1, /* file, ofd are set */
	URF_FILE2 = 2, /* extra holds the second file: ofd, ino, then dev and generation */
	URF_PUNTED = 4, /* handed to a worker thread */
	URF_POLLED = 8, /* waited for readiness first */
	URF_DEFERRED = 16, /* waited for all before it (IOSQE_IO_DRAIN) */
	URF_SQPOLL = 32, /* submitted by the ring's kernel thread; task_id is the ring's maker */
	URF_CANCELLED = 64, /* with the chain it is linked to, at done_ns */
	URF_SILENT = 128, /* no completion was posted; done_ns is 0 unless cancelled */
	URF_APPEND = 256, /* the description is O_APPEND */
	URF_USER_FAULT = 512, /* extra could not be read */
	URF_CHANGED = 1024, /* the entry was overwritten while it was being submitted: sqe is not to be trusted */
	URF_CREATED = 2048, /* the open made the file */
	URF_REFUSED = 4096, /* when it was submitted */
	URF_LINKED = 8192, /* waited for the request before it */
	URF_PATHS = 16384, /* a rec_uring_paths goes with it */
	URF_RESULT = 32768, /* silent, but res was still there to be read */
	URF_DIR = 65536, /* file is the directory behind dirfd */
	URF_CURRENT = 131072, /* pos_after was read */
	URF_IO = 262144, /* bios were queued for it */
	URF_CONTENT = 524288, /* what it wrote was sent, before it */
	URF_OTHER_THREAD = 1048576, /* submitted by a thread that was not asked for */
};

struct rec_uring {
	struct rec_hdr hdr;
	__u64 start_ns; /* submission */
	__u64 done_ns; /* completion; 0: not known */
	__u64 req; /* address: with start_ns it names the request */
	__u64 ring; /* address of its context */
	__u64 sqe[8]; /* struct io_uring_sqe as submitted; of an openat2, addr2, addr, addr3 are flags, mode, resolve */
	__u64 ofd;
	struct file_id file;
	__s64 pos_after; /* where reading or writing ended */
	__u64 extra[3]; /* sum of the vector; or st_mode, st_size; or the second file */
	__u32 task_id; /* submitter */
	__s32 res;
	__u32 cflags; /* of the completion */
	__u32 flags; /* enum uring_flags */
};

struct rec_uring_paths {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 req;
	__u16 path_bytes;
	__u16 path2_bytes;
	__u8 fault; /* 1, 2: which could not be read */
	__u8 pad[3];
};

struct rec_uring_ring {
	struct rec_hdr hdr;
	__u64 ring;
	__u64 user_data; /* of the request, for an overflow */
	__u32 task_id;
	__s32 fd; /* as setup returned it; result of the request */
	__u32 flags; /* IORING_SETUP_*; flags of the completion */
	__u32 sq_entries;
	__u32 cq_entries;
	__u32 pad;
};

enum fault_what {
	FAULT_TOUCH = 1, /* a page was touched that no fault-around had mapped */
	FAULT_AROUND = 2, /* what is cached of the pages around one that was touched was mapped */
	FAULT_DIRTY = 3, /* a store made a clean folio dirty */
};

struct rec_fault {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 dur_ns; /* 0: not known, or too short to be */
	__u64 mapping; /* address */
	struct file_id file;
	__u64 offset_bytes;
	__u32 len_bytes;
	__u32 sb_dev;
	__u32 task_id;
	__u32 what; /* enum fault_what */
	__u32 io; /* 1: bios were queued for it */
	__u32 other; /* 1: by a thread that was not asked for */
};

/* Functions of the virtual file system (fs/read_write.c, splice.c, sync.c, open.c) that the kernel itself calls. */
enum vfs_fn {
	VFS_ITER_READ = 1, /* vfs_iter_read */
	VFS_ITER_WRITE = 2,
	VFS_IOCB_READ = 3, /* vfs_iocb_iter_read */
	VFS_IOCB_WRITE = 4,
	VFS_SPLICE = 5, /* splice_direct_to_actor: reads */
	VFS_SPLICE_READ = 6, /* vfs_splice_read */
	VFS_KERNEL_READ = 7, /* __kernel_read */
	VFS_KERNEL_WRITE = 8, /* __kernel_write_iter */
	VFS_FSYNC = 9, /* vfs_fsync_range */
	VFS_FALLOCATE = 10,
	VFS_LOOP_READ = 11, /* of a loop device, by asynchronous I/O (lo_rw_aio, drivers/block/loop.c) */
	VFS_LOOP_WRITE = 12,
};

enum vfs_flags {
	VFSF_BELOW = 1, /* of what is told already, on another file */
	VFSF_LOOP = 2, /* by a worker of a loop device, on its backing file */
	VFSF_OTHER_THREAD = 4, /* by a thread that was not asked for */
	VFSF_IO = 8, /* bios were queued during it */
};

struct rec_vfs {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 parent_ns; /* start of the operation that it is below of, whose thread is `parent`; 0: none is known */
	__u64 ofd;
	struct file_id file;
	__s64 pos_before;
	__s64 pos_after;
	__s64 len_bytes;
	__s64 ret;
	__u32 parent;
	__u32 task_id;
	__u32 sb_dev;
	__u32 function; /* enum vfs_fn */
	__u32 flags; /* enum vfs_flags */
	__u32 arg; /* RWF_ flags of an iter read or write, FALLOC_FL_ of a fallocate, 1: datasync */
};

enum cache_event {
	CACHE_FILL = 1,
	CACHE_READAHEAD = 2,
	CACHE_DIRTY = 3,
	CACHE_WRITEBACK = 4,
	CACHE_EVICT = 5,
};

struct rec_cache {
	struct rec_hdr hdr;
	struct file_id file;
	__u64 offset_bytes;
	__u64 len_bytes;
	__u32 sb_dev;
	__u32 task_id; /* 0: no recorded one */
	__u32 event; /* enum cache_event */
	__u32 mode; /* with type bits */
	__s64 size_bytes;
	char comm[WIRE_COMM_BYTES];
};

/* Functions of a stack that are kept, innermost first. */
#define WIRE_STACK_DEPTH 48

/* A recorded thread left its CPU in a recorded call, and is back. */
struct rec_wait {
	struct rec_hdr hdr;
	__u64 op_start_ns;
	__u64 off_ns;
	__u64 wake_ns; /* from then on it only waited for a CPU; 0: unknown */
	__u32 task_id;
	__u32 kernel_bytes;
	__u32 user_bytes; /* if any, this stack stands behind room for WIRE_STACK_DEPTH functions of the kernel's */
	__u16 nr;
	__u16 preempted; /* it was runnable all the time */
};

#endif
