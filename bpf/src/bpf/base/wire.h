/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The wire format: records that the probes write to the rings and the recorder reads. The Rust types are generated from
 * these definitions by libbpf-cargo, so no field is defined twice. Times are CLOCK_MONOTONIC ns. Values are raw; user
 * space resolves and names them (capture/src/decode/wire.rs).
 */
#ifndef IOREEL_WIRE_H
#define IOREEL_WIRE_H

#include "base/vmlinux.h"

/* Maximum length of a path in a system call: PATH_MAX. */
#define WIRE_PATH_BYTES 4096
/* Maximum length of a path built from a dentry up to the root. It may be longer than PATH_MAX. */
#define WIRE_WALK_BYTES 16384
/* Call table size: a power of two above every x86-64 and arm64 system call number in use. */
#define WIRE_CALLS 512
#define WIRE_COMM_BYTES 16
/* hdr.cpu of records made by iterators, which have no sequence number and are not counted. */
#define WIRE_NO_CPU 0xffff
/* Maximum length of a name that is not a path: XATTR_NAME_MAX. */
#define WIRE_NAME_BYTES 255
/* Maximum sizes of recorded input and output memory of a call. Values of extended attributes are seldom longer. */
#define WIRE_IN_BYTES 256
#define WIRE_OUT_BYTES 128

enum rec_type {
	REC_OP = 1, /* rec_op */
	REC_OP_LONG = 2, /* rec_op, op_tail, path, path2, name, in, out */
	REC_FILE = 3, /* rec_file, path */
	REC_TASK = 4, /* rec_task: a thread was created or adopted */
	REC_EXEC = 5, /* rec_exec, path */
	REC_EXIT = 6, /* rec_task */
	REC_BIO = 7, /* rec_bio */
	REC_RQ = 8, /* rec_rq */
	REC_RQ_BIO = 40, /* rec_bio up to comm, rq_part: a request and its only bio; uses two sequence numbers */
	REC_FD = 9, /* rec_fd; only from the snapshot of descriptors */
	REC_PLACE = 20, /* rec_place, cwd, root; only from the snapshot */
	REC_MAP = 21, /* rec_map, path; only from the snapshot */
	REC_NAMED = 25, /* rec_task: a thread has another name */
	REC_LEFT = 22, /* rec_task: the thread is no longer recorded, but still alive */
	REC_WAIT = 24, /* rec_wait, kernel stack, user stack */
	REC_LOOKED = 23, /* rec_hdr, made in user space: the snapshot is complete */
	REC_PASSED = 10, /* rec_passed: a descriptor was received with SCM_RIGHTS */
	REC_AIO = 11, /* rec_aio: a control block was submitted by io_submit */
	REC_AIO_END = 12, /* rec_aio_end: io_getevents returned its result */
	REC_URING = 32, /* rec_uring: a request ended */
	REC_URING_PATHS = 33, /* rec_uring_paths, path, path2: a request with paths was submitted */
	REC_URING_RING = 34, /* rec_uring_ring: a ring was created */
	REC_FAULT = 36, /* rec_fault */
	REC_CACHE = 37, /* rec_cache */
	REC_CONTENT = 38, /* rec_content, bytes */
	REC_URING_OVERFLOW = 35, /* rec_uring_ring: a completion overflowed the completion queue */
	REC_VFS = 39, /* rec_vfs */
	REC_COMMIT = 41, /* rec_commit */
};

/* Classes that the ledger counts separately. */
enum rec_class {
	CLASS_OPS = 0,
	CLASS_FILES = 1,
	CLASS_TASKS = 2, /* tasks and execs */
	CLASS_BLOCK = 3,
	CLASS_BIO = 4,
	CLASS_AIO = 5, /* results of Linux AIO; the requests are CLASS_OPS */
	CLASS_WAITS = 6,
	CLASS_URING = 7, /* io_uring requests */
	CLASS_URING_FACTS = 8, /* paths, rings, overflows: parts of the rows of requests */
	CLASS_FAULT = 9,
	CLASS_CACHE = 10,
	CLASS_CONTENT = 11, /* contents of writes */
	CLASS_VFS = 12, /* file I/O by the kernel itself */
	CLASS_COMMITS = 13,
	CLASS_COUNT = 14,
};

/* Records are numbered per CPU and stream. Only STREAM_SHARED needs atomics. */
enum rec_stream {
	STREAM_SHARED = 0, /* records of all other probes, also in interrupts */
	STREAM_OPS = 1, /* records of op_exit, which never interrupts itself */
	STREAM_COUNT = 2,
};

struct rec_hdr {
	__u64 seq; /* per CPU and stream; also increased for lost records */
	__u64 end_ns; /* when the record was made, which is the end of the event */
	__u32 len_bytes; /* of the whole record */
	__u16 cpu;
	__u8 type; /* enum rec_type */
	__u8 stream; /* enum rec_stream */
};

/* File identity. dev is that of stat(2) (btrfs: per subvolume); generation distinguishes reused inode numbers. */
struct file_id {
	__u64 ino;
	__u32 dev;
	__u32 generation;
};

/* Identity of a file beyond file_id. */
struct file_more {
	__u64 subvolume; /* btrfs: id of the tree that contains the inode; else 0 */
	__u64 peer_ino; /* connected unix socket: inode number of the other end; else 0 */
	struct file_id real; /* overlayfs: inode of the upper file, or of the topmost lower file; else 0 */
	__u32 unlinked; /* 1: no name left; 2: the name it was opened by is gone, other names are left */
	__u32 real_sb_dev;
	__u32 renewed; /* the inode number belonged to another recorded file, or the file was created just now */
	__u32 fs_path_bytes; /* of the path that follows the first: from the root of the (real) file's file system */
};

/* rec_op.off_cpu_ns of a call that left its CPU unseen by a probe. */
#define WIRE_OFF_CPU_UNKNOWN 0xffffffffffffffffull

enum op_flags {
	OPF_FILE = 1, /* file, ofd and positions are set */
	OPF_FILE2 = 2, /* the same for the tail's file2 */
	OPF_CREATED = 4, /* the open created the file (FMODE_CREATED) */
	OPF_APPEND = 8, /* the description is O_APPEND */
	OPF_PATH_FAULT = 16, /* path could not be read, neither at entry nor at return */
	OPF_PATH2_FAULT = 32,
	OPF_DIR = 64, /* file is the directory of dirfd, not an operand */
	OPF_DIR2 = 128, /* likewise for file2 */
	OPF_USER_FAULT = 256, /* extra could not be read */
	OPF_AT_SIZE = 512, /* pos_after is the size of the file after a call that may have appended */
	OPF_MAP_BUSY = 1024, /* the mapping at the address could not be looked up */
	OPF_MIDWAY = 2048, /* in flight when its thread was adopted: the start is the time of adoption */
	OPF_CONTENT = 8192, /* its content was sent before it */
	OPF_OTHER_THREAD = 16384, /* context, of a thread that the filter excludes */
	OPF_IO = 32768, /* bios were queued during the call */
	OPF_COMPAT = 4096, /* by the 32-bit entry: nr and args are those of i386 */
};

struct rec_op {
	struct rec_hdr hdr;
	__u64 dur_ns;
	__s64 ret;
	__u32 task_id;
	__u16 nr; /* system call number */
	__u16 flags; /* enum op_flags */
	__u64 ofd; /* address of the open file description (struct file); user space assigns ids */
	struct file_id file;
	__s64 pos_before; /* f_pos at entry and at return */
	__s64 pos_after;
	__u64 args[6];
	__u64 off_cpu_ns; /* --waits: time off the CPU inside the call, or WIRE_OFF_CPU_UNKNOWN */
};

/* Header of a CPU's ring of rec_op in shared memory. The probe writes the first half, the recorder the second. */
struct op_ring {
	__u64 head; /* records stored so far */
	__u64 seq; /* sequence numbers assigned in STREAM_OPS: operations seen */
	__u64 lost; /* operations lost because the ring was full */
	__u32 next; /* index of the next record */
	__u32 pad;
	__u64 pad2[4];
	__u64 tail; /* records read so far */
	__u64 pad3[7];
};

struct op_tail {
	__u64 extra[4]; /* user memory that the call pointed to, by enum call_user */
	__u64 ofd2;
	struct file_id file2;
	__s64 pos2_before;
	__s64 pos2_after;
	__u16 path_bytes; /* without the terminating NUL */
	__u16 path2_bytes;
	__u16 in_bytes; /* recorded input; less than the call was given if that was longer, or unreadable */
	__u8 name_bytes;
	__u8 out_bytes; /* recorded output */
};

/* The next part of the bytes that an operation wrote. */
struct rec_content {
	struct rec_hdr hdr;
	__u64 of; /* the operation of task_id: start of the call in ns, or address of the request */
	__u32 task_id;
	__u32 last; /* 1: the last part; only this record is numbered */
};

/* Output of a call of kind CALL_IDS in a user name space: ids of its thread after it, as the initial one has them. */
struct kernel_ids {
	__u64 capabilities; /* effective, in its user name space */
	__u32 uid;
	__u32 euid;
	__u32 suid;
	__u32 fsuid;
	__u32 gid;
	__u32 egid;
	__u32 sgid;
	__u32 fsgid;
};

/* A descriptor received by recvmsg or recvmmsg. */
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

/* A Linux AIO control block, as it was when io_submit was entered. */
struct rec_aio {
	struct rec_hdr hdr;
	__u64 ctx; /* address of the context */
	__u64 iocb; /* address of the control block */
	__u64 ofd;
	struct file_id file;
	__s64 offset_bytes;
	__s64 len_bytes; /* sum over a vector */
	__s64 count; /* number of buffers; for poll, the events */
	__u32 task_id;
	__s32 fd;
	__u32 rw_flags;
	__u16 opcode; /* IOCB_CMD_ of linux/aio_abi.h */
	__u16 flags; /* enum op_flags */
};

/* A result of Linux AIO. */
struct rec_aio_end {
	struct rec_hdr hdr;
	__u64 ctx;
	__u64 iocb;
	__s64 res;
	__u32 task_id;
	__u32 content; /* 1: its content was sent before it */
};

struct rec_file {
	struct rec_hdr hdr;
	struct file_id file;
	__u32 sb_dev; /* device of the mounted file system */
	__u32 mode; /* with type bits */
	__s64 size_bytes;
	__u32 path_bytes;
	__u32 path_cut; /* 1: too deep or too long */
	struct file_more more;
};

/* Parent of kernel threads, which have no recorded parent, descriptors or directories. */
#define WIRE_KERNEL_TASK 0xffffffff

struct rec_task {
	struct rec_hdr hdr;
	__u32 task_id;
	__u32 parent; /* 0: adopted; or WIRE_KERNEL_TASK */
	__u32 pid;
	__u32 tid;
	__u64 clone_flags; /* CLONE_VM, FS, FILES, THREAD, NEWNS, NEWUSER as observed, not as requested */
	__u64 cgroup;
	__s32 exit_code;
	__u32 listed; /* 1: from an iterator, without a sequence number */
	char comm[WIRE_COMM_BYTES];
};

/* State of an adopted task. Equal addresses mean that tasks share it. */
struct rec_place {
	struct rec_hdr hdr;
	__u64 files;
	__u64 fs;
	__u64 mm;
	__u64 cgroup;
	__u64 capabilities; /* effective, in its user name space */
	__u32 task_id;
	__u32 umask;
	__u32 uid; /* effective */
	__u32 gid;
	__u32 cwd_bytes;
	__u32 root_bytes;
	__u32 in_user_ns; /* 1: in another user name space than the initial one */
	__u32 pad;
};

/* A file mapping of an adopted process. */
struct rec_map {
	struct rec_hdr hdr;
	__u64 start;
	__u64 len_bytes;
	__u64 offset_bytes;
	__u64 vm_flags; /* VM_ flags of the kernel; read, write, exec, shared are 1, 2, 4, 8 */
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
	__u32 tid; /* an exec by another thread takes over the leader's tid */
	__u32 uid; /* effective; the program may have changed it (set-user-ID) */
	__u32 gid;
	__u32 in_user_ns; /* 1: in another user name space than the initial one */
	__u64 capabilities; /* effective, in its user name space */
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
	URF_PUNTED = 4, /* executed by a worker thread */
	URF_POLLED = 8, /* waited for readiness */
	URF_DEFERRED = 16, /* waited for all earlier requests (IOSQE_IO_DRAIN) */
	URF_SQPOLL = 32, /* submitted by the kernel thread of the ring; task_id is the creator of the ring */
	URF_CANCELLED = 64, /* cancelled with its chain of links, at done_ns */
	URF_SILENT = 128, /* no completion was posted; done_ns is 0 unless cancelled */
	URF_APPEND = 256, /* the description is O_APPEND */
	URF_USER_FAULT = 512, /* extra could not be read */
	URF_CHANGED = 1024, /* the entry was overwritten during submission: sqe is unreliable */
	URF_CREATED = 2048, /* the open created the file */
	URF_REFUSED = 4096, /* refused at submission */
	URF_LINKED = 8192, /* waited for the request before it */
	URF_PATHS = 16384, /* a rec_uring_paths belongs to it */
	URF_RESULT = 32768, /* silent, but res could still be read */
	URF_DIR = 65536, /* file is the directory of dirfd */
	URF_CURRENT = 131072, /* pos_after was read */
	URF_IO = 262144, /* bios were queued for it */
	URF_CONTENT = 524288, /* its content was sent before it */
	URF_OTHER_THREAD = 1048576, /* submitted by a thread that the filter excludes */
};

struct rec_uring {
	struct rec_hdr hdr;
	__u64 start_ns; /* submission */
	__u64 done_ns; /* completion; 0: unknown */
	__u64 req; /* address; identifies the request together with start_ns */
	__u64 ring; /* address of its context */
	__u64 sqe[8]; /* struct io_uring_sqe as submitted; for openat2, addr2, addr, addr3 are flags, mode, resolve */
	__u64 ofd;
	struct file_id file;
	__s64 pos_after; /* file position at its end */
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
	__u8 fault; /* 1, 2: this path could not be read */
	__u8 pad[3];
};

struct rec_uring_ring {
	struct rec_hdr hdr;
	__u64 ring;
	__u64 user_data; /* of the request, if this is an overflow */
	__u32 task_id;
	__s32 fd; /* result of io_uring_setup; for an overflow, of the request */
	__u32 flags; /* IORING_SETUP_*; for an overflow, flags of the completion */
	__u32 sq_entries;
	__u32 cq_entries;
	__u32 pad;
};

enum fault_what {
	FAULT_TOUCH = 1, /* access to a page that no fault-around had mapped */
	FAULT_AROUND = 2, /* fault-around mapped the cached pages around an accessed page */
	FAULT_DIRTY = 3, /* a store made a clean folio dirty */
};

struct rec_fault {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 dur_ns; /* 0: unknown, or too short */
	__u64 mapping; /* address of the mapping */
	struct file_id file;
	__u64 offset_bytes;
	__u32 len_bytes;
	__u32 sb_dev;
	__u32 task_id;
	__u32 what; /* enum fault_what */
	__u32 io; /* 1: bios were queued during it */
	__u32 other; /* 1: by a thread that the filter excludes */
};

/* VFS functions (fs/read_write.c, splice.c, sync.c, open.c) that the kernel itself calls. */
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
	VFS_LOOP_READ = 11, /* of a loop device with asynchronous I/O (lo_rw_aio, drivers/block/loop.c) */
	VFS_LOOP_WRITE = 12,
};

enum vfs_flags {
	VFSF_BELOW = 1, /* part of a recorded operation, on another file */
	VFSF_LOOP = 2, /* by a worker of a loop device, on the backing file */
	VFSF_OTHER_THREAD = 4, /* by a thread that the filter excludes */
	VFSF_IO = 8, /* bios were queued during it */
};

struct rec_vfs {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 parent_ns; /* start of the operation that it is part of, by thread `parent`; 0: unknown */
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
	__u32 arg; /* RWF_ flags of an iter read or write, FALLOC_FL_ of a fallocate, 1 for datasync */
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
	__u32 task_id; /* 0: not a recorded task */
	__u32 event; /* enum cache_event */
	__u32 mode; /* with type bits */
	__s64 size_bytes;
	char comm[WIRE_COMM_BYTES];
};

enum commit_kind {
	COMMIT_JBD2 = 1,
	COMMIT_FAST = 2, /* ext4 */
	COMMIT_CHECKPOINT = 3, /* jbd2 */
	COMMIT_LOG_WRITE = 4, /* XFS */
	COMMIT_BTRFS = 5,
};

/* A commit of a journal or log; its end is that of the record. Times of 0 are unknown. */
struct rec_commit {
	struct rec_hdr hdr;
	__u64 start_ns;
	__u64 locking_ns;
	__u64 flushing_ns;
	__u64 logging_ns;
	__u64 transaction; /* jbd2: tid; XFS: LSN; btrfs: generation */
	__u64 len_bytes;
	__u32 blocks;
	__u32 handles;
	__u32 kind; /* enum commit_kind */
	__u32 dev; /* of the file system, as in rec_file.sb_dev */
	__u32 block_bytes;
	__u32 known; /* 1: the amounts are set */
	__u32 task_id; /* 0: not a recorded task */
	__u32 pad;
	char comm[WIRE_COMM_BYTES];
};

/* Maximum number of functions of a recorded stack, innermost first. */
#define WIRE_STACK_DEPTH 48

/* A recorded thread was off its CPU during a recorded call. */
struct rec_wait {
	struct rec_hdr hdr;
	__u64 op_start_ns;
	__u64 off_ns;
	__u64 wake_ns; /* when it became runnable; 0: unknown */
	__u64 lock; /* address of the lock that it was waiting for; 0: none */
	__u32 task_id;
	__u32 kernel_bytes;
	__u32 user_bytes; /* if not 0, the user stack follows at a fixed distance of WIRE_STACK_DEPTH functions */
	__u16 nr;
	__u16 preempted; /* 1: it was runnable all the time */
	__u32 lock_flags; /* LCB_F_ flags of include/trace/events/lock.h */
	__u32 owner_tid; /* thread that held the lock when the wait began; 0: not known */
	__u32 waker_task_id; /* recorded thread that woke it; 0: another, or an interrupt */
	__u32 maybe_interrupt; /* 1: the waker may be the thread that an interrupt came in */
	char waker_comm[WIRE_COMM_BYTES]; /* empty: unknown, or an interrupt */
	char owner_comm[WIRE_COMM_BYTES];
};

#endif
