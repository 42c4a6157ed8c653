/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The wire format: what the probes put into the rings and the recorder takes out. Included by the BPF
 * programs; the Rust side uses the types that libbpf-cargo generates from the same definitions, so no
 * field exists twice. Times are CLOCK_MONOTONIC ns. Nothing here is rounded, named or resolved: that is
 * user space's work (capture/src/decode.rs).
 */
#ifndef IOREEL_WIRE_H
#define IOREEL_WIRE_H

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

/* How the file of a bio, or what it is instead, was told in the kernel. */
enum bio_how {
	BIO_UNKNOWN = 0,
	BIO_PAGE = 1, /* file by the page cache page it carries */
	BIO_DIRECT = 2, /* file by the request behind it: direct I/O, or a call on the device itself */
	BIO_FS = 3, /* file by the file system's own structure around the bio (btrfs_bio) */
	BIO_BDEV = 4, /* a page of the block device's own page cache: the raw device */
	BIO_BDEV_FS = 6, /* the same while a file system lives there: metadata */
	BIO_CLONE = 5, /* file by the bio that a mapped device cloned */
};

/* Who is told when a bio ends, from its bi_end_io: one entry per meaning, not per function. */
enum end_io {
	END_OTHER = 0,
	END_PAGE = 1, /* page cache of a file, read or write-back */
	END_DIRECT = 2, /* iomap direct I/O */
	END_BDEV_DIRECT = 3, /* direct I/O on the block device itself, request in bi_private */
	END_BDEV_ASYNC = 4, /* the same, request around the bio */
	END_BUFFER = 5, /* one buffer head */
	END_BTRFS = 6, /* a struct btrfs_bio is around it */
	END_BTRFS_CLONE = 7, /* a mirror's clone of such a one */
	END_BTRFS_SUPER = 8,
	END_XFS_BUF = 9, /* one XFS metadata buffer */
	END_XFS_LOG = 10,
	END_SWAP = 11,
	END_WAIT = 12, /* somebody sleeps on it */
	END_CHAIN = 13, /* the end of part of another bio */
	END_DM = 14, /* a device mapper clone */
	END_BTRFS_RAID = 15, /* part of a RAID5 or RAID6 stripe */
	END_DIRECT_SIMPLE = 16, /* iomap direct I/O of one bio, the request around it */
	END_DIRECT_F2FS = 17, /* iomap direct I/O by way of f2fs's statistics */
	END_MD = 18, /* an array's clone, which accounts for the bio */
	END_MD_MIRROR = 19, /* a copy that a mirroring array makes, or the one that it reads */
	END_MD_MIRROR10 = 20, /* the same of RAID10 */
	END_BTRFS_SCRUB = 21, /* what btrfs looks over or mends by itself, nothing around it (before 6.4) */
	END_ENCRYPTED = 22, /* ciphertext that the block layer made of another bio's data */
	END_DECRYPTED = 23, /* the block layer will decrypt it, and tell then whom it was to tell */
};

/*
 * What lies where part of a stripe with parity goes: the first byte of peek, with BIOF_PEEK and no `how`. With
 * BIOF_PIECES bytes 8-15 have the stripe, and bytes 16-23 what makes a place on the device one in the file system.
 */
enum stripe_place {
	STRIPE_DATA = 1, /* data, and none of what the stripe was written with */
	STRIPE_PARITY = 2,
	STRIPE_MIXED = 3, /* data of several files, or from several places of one */
};

enum bio_flags {
	BIOF_SPLIT = 1, /* part of a bio that was too large for the device, or that carries several files */
	BIOF_MERGED = 2, /* joined a request that was there */
	BIOF_SWAP_PAGE = 4, /* carries anonymous memory */
	BIOF_PEEK = 8, /* peek is sent */
	BIOF_PEEK_LATER = 16, /* a read: peek holds an address until it ends */
	BIOF_NO_END = 32, /* its end was not seen */
	BIOF_DIRECTORY = 64, /* its file is one */
	BIOF_PIECES = 128, /* told piece by piece once it ends */
};

#define WIRE_PEEK_BYTES 32

struct rec_bio {
	struct rec_hdr hdr;
	__u64 rq_id; /* 0: no request */
	__u64 queue_ns; /* 0: queued before the recording */
	__u64 sector;
	__u64 orig_sector; /* where it was queued first, when orig_dev is set */
	__u64 cause_ns; /* start of the call that task_id was in, 0: none */
	struct file_id file;
	__s64 file_offset_bytes; /* -1: not known */
	__u32 dev;
	__u32 orig_dev; /* the partition or mapped device it was queued on, 0: the same */
	__u32 len_bytes;
	__u32 opf; /* the kernel's REQ_ bits */
	__u32 task_id; /* 0: no recorded task */
	__s32 error; /* blk_status_t, or -errno on older kernels; of the request, or of the bio itself */
	__u32 sb_dev; /* of the file's file system */
	__u8 how; /* enum bio_how */
	__u8 end_io; /* enum end_io */
	__u8 flags; /* enum bio_flags */
	__u8 hide; /* enum hide: not sent then */
	/* Sent only as far as needed: recorded tasks have a name already, and file data needs no look inside. */
	char comm[WIRE_COMM_BYTES];
	/* With BIOF_PEEK, what tells metadata apart: a buffer head's first bytes, the name of an XFS buffer's
	 * verifier, or the owner and level of a btrfs node (bytes 0-7 and 8). */
	__u8 peek[WIRE_PEEK_BYTES];
};

struct rec_rq {
	struct rec_hdr hdr;
	__u64 rq_id;
	__u64 queue_ns;
	__u64 issue_ns;
	__u64 sector; /* all ones: none */
	__u32 dev;
	__u32 len_bytes;
	__u32 opf;
	__s32 error; /* as in rec_bio */
	__u32 issue_cpu;
	__u32 requeues; /* times the driver gave it back before */
	__u32 bios; /* carried */
	__u32 no_end; /* 1: its end was not seen, nor what it carried */
};

/* In the place of a bio's `comm`: what its request has that it has not. */
struct rq_part {
	__u64 issue_ns;
	__u32 opf;
	__u16 issue_cpu;
	__u16 requeues;
};

/* A process that --lossless has stopped, by process id. */
struct stop_entry {
	__u64 since_ns;
	/* When user_signal counts as dealt with, should the process still make calls; 0: it is to be handed on. */
	__u64 forget_ns;
	__u32 task_id; /* of the thread that met the full ring */
	__u32 cpu;
	__s32 user_signal; /* a stop that somebody else asked for meanwhile, 0: none */
	__u32 sent; /* enum stop_sent */
};

enum stop_sent {
	STOP_NOT_SENT = 0,
	STOP_SENT = 1, /* there is something to resume */
	STOP_COMING = 2, /* to be sent in a moment: others' stops are noted as if it were */
};

/* What a recorder's signals bring (sigqueue(3)), by which another one tells them from a user's. */
enum stop_mark {
	STOP_MARK = 0x696f7265,
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

enum hide {
	HIDE_OWN = 1, /* the recorder's own output */
	HIDE_BACKING = 2, /* a file behind a loop device: its I/O is seen on the loop device */
	HIDE_COUNT = 3,
};

/* Why a call was left out in the kernel. */
enum filter_why {
	FILTER_CALL = 0, /* --op */
	FILTER_THREAD = 1, /* --comm, --uid */
	FILTER_FILE = 2, /* --path */
	FILTER_QUICK = 3, /* --min-latency */
	FILTER_COUNT = 4,
};

/* The second of two programs, where the first leaves a mark of what it has done. */
enum second {
	SECOND_BIO_QUEUE = 0,
	SECOND_BIO_COMPLETE = 1,
	SECOND_RQ_ISSUE = 2,
	SECOND_RQ_COMPLETE = 3,
	SECOND_URING_SUBMIT = 4,
	SECOND_URING_COMPLETE = 5,
	SECOND_FAULT_TOUCH = 6,
	SECOND_FAULT_AROUND = 7,
	SECOND_TASK_FORK = 8,
	SECOND_TASK_EXEC = 9,
	SECOND_TASK_EXIT = 10,
	SECOND_COUNT = 11,
};

/*
 * Per CPU. seen = submitted + lost for every class; user space checks it. Operations that op_exit saw are
 * counted in struct op_ring.
 */
struct cpu_ledger {
	__u64 seq;
	__u64 seen[CLASS_COUNT]; /* but for CLASS_BIO: the rest of `seq` */
	__u64 lost[CLASS_COUNT];
	__u64 hidden_rq[HIDE_COUNT];
	__u64 hidden_bio[HIDE_COUNT];
	__u64 compat_calls; /* calls by the 32-bit entry that have no place in its table and are not recorded */
	__u64 path_faults; /* paths that stayed unreadable */
	__u64 no_path_state; /* calls recorded without paths: no memory for them */
	__u64 map_full; /* bios or requests for which a table had no room */
	__u64 unstoppable; /* threads that could not be stopped (--lossless) */
	__u64 aio_unread; /* control blocks and results of asynchronous I/O that could not be read */
	__u64 no_wait_state; /* waits not followed: no memory */
	__u64 waits_unseen; /* waits whose begin or end no probe saw */
	__u64 left_out[FILTER_COUNT]; /* calls, by enum filter_why */
	__u64 untracked; /* tasks that could not be followed: no memory */
	__u64 uring_other; /* requests to io_uring that are no file operations */
	__u64 code_faults; /* touches of program code, which are not recorded */
	__u64 hidden_cache; /* events of the recorder's own files */
	__u64 content_unread; /* contents that could not be read */
	__u64 content_large; /* contents of writes longer than is read */
	__u64 uring_more; /* further completions of requests that post several */
	__u64
	    unseen_begin; /* calls that end, of whose begin the kernel told no program; see calls/call_programs.bpf.h */
	__u64 unseen_end; /* the reverse */
	__u64 caught[SECOND_COUNT]; /* events that only the second of two programs was told of, by enum second */
	__u64 entry_ns; /* what the probe on entries took for so many of them */
	__u64 timed_entries;
	__u64 exit_ns; /* and that on exits */
	__u64 timed_exits;
	__u64 vfs_unfollowed; /* operations of the kernel's own that could not be followed: no memory, or too deep */
	__u64 told_rq; /* no count: the request whose end the first of two programs has just told here */
};

#endif
