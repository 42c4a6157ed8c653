/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Settings that user space passes to the probes: the call table, the meaning of kernel functions, and which tasks are
 * recorded. The Rust types are generated from these definitions, like those of base/wire.h.
 */
#ifndef IOREEL_TOLD_H
#define IOREEL_TOLD_H

#include "base/vmlinux.h"

/* Meaning of end functions by address, the most frequent first; an address of 0 ends the table. */
#define WIRE_END_IOS 64

struct end_io_desc {
	__u64 address;
	__u64 kind; /* enum end_io */
};

#define WIRE_BTRFS_ENDS 5

/* Meaning of the end functions of a btrfs_bio. */
enum btrfs_end {
	BTRFS_END_SCRUB = 1, /* of no file (fs/btrfs/scrub.c) */
	BTRFS_END_DIRECT = 2, /* bi_private is iomap's request (fs/btrfs/direct-io.c) */
	BTRFS_END_ENCODED = 3, /* an encoded read: raw extents, whose offset in the file is unknown */
};

enum call_kind {
	CALL_NONE = 0,
	CALL_PLAIN = 1,
	CALL_OPEN = 2, /* the result is a new open file description */
	CALL_FD = 3, /* the result is a descriptor of an open file description that may be known already */
	CALL_MMAP = 4, /* recorded only for files */
	CALL_VMA = 5, /* on an address: recorded only if a file is mapped there */
	/* Kinds that name users, whose ids the probes translate in user name spaces: ops/kernel_ids.bpf.h. */
	CALL_OWNER = 6, /* arguments `user` and `user2` are user and group, of 16 bits if in_words is 2 */
	CALL_IDS = 7, /* changes ids of its thread */
	CALL_GROUPS = 8, /* sets the supplementary groups of its thread */
	/* Kinds for which the probes do more than the table says: ops/special_calls.bpf.h. */
	CALL_FCNTL = 9, /* commands that make descriptors or concern files */
	CALL_IOCTL = 10, /* only on files, directories and block devices */
	CALL_MSG = 11, /* only if it carries descriptors; for the mmsg calls, user2 = 2 and argument 3 is the count */
	CALL_AIO_SUBMIT = 12,
	CALL_AIO_GET = 13,
	CALL_XATTRAT = 14, /* the value is behind a struct xattr_args */
	CALL_HANDLE = 15, /* a struct file_handle, which contains its own length */
	CALL_HANDLE_OPEN = 16, /* likewise; the result is a new open file description */
	CALL_UNMAPPED = 17, /* only by the 32-bit entry: only counted */
	CALL_BIND = 18, /* only to a path, which is in a struct sockaddr_un in argument 2 */
	CALL_URING = 32, /* io_uring_enter, io_uring_register; pos_before is the address of the ring */
	CALL_URING_SETUP = 33, /* likewise, for the new ring */
};

enum call_user {
	USER_NONE = 0,
	USER_IOVEC = 1, /* extra[0] = sum of the lengths; user: the vector, user2: the number of buffers */
	USER_OFFSETS = 2, /* extra[0], [1] = *user, *user2; bits 0, 1 of extra[2]: null pointer */
	USER_TIMESPEC = 3, /* extra = two timespecs; extra[1] all ones: null pointer */
	USER_TIMEVAL = 4,
	USER_UTIMBUF = 5, /* extra[0], [1] */
	USER_OPEN_HOW = 6, /* extra = flags, mode, resolve */
	USER_IOVEC32 = 7, /* likewise, for 32-bit callers */
	USER_OFFSETS32 = 8,
	USER_STAT = 9, /* on success: extra[0] = st_mode, [1] = st_size */
	USER_STATX = 10,
	USER_STAT32 = 11, /* i386: struct stat */
	USER_STAT64 = 12, /* i386: struct stat64 */
};

/* A system call: the argument (1-6; 0: none) for each role. */
struct call_desc {
	__u8 kind;
	__u8 fd;
	__u8 fd2;
	__u8 dirfd;
	__u8 dirfd2;
	__u8 path;
	__u8 path2;
	__u8 user_kind;
	__u8 user;
	__u8 user2;
	__u8 name; /* a string that is not a path */
	__u8 in; /* memory that the kernel reads */
	__u8 in_len; /* the argument with its length; 0: in_words long */
	__u8 in_words; /* at most this many 8-byte words are recorded; 0: a string */
	__u8 out; /* memory that the kernel wrote, if the call succeeded */
	__u8 out_words;
	__u8 unwanted; /* filtered out by --op */
	__u8 data; /* writes the memory at argument 2, or with USER_IOVEC the vector there */
	__u8 context; /* user space needs it to follow descriptors or directories */
	/* Derived from the fields above to save the probes several checks. The lock commands of fcntl have both. */
	__u8 memory; /* needs a function of ops/special_calls.bpf.h; 2: only in a user name space */
	__u8 tail; /* its record has a tail */
};

/* Which tasks are recorded; their children are always included. */
enum target_kind {
	TARGET_NONE = 0,
	TARGET_COMMAND = 1, /* a child of the recorder that waits for the start */
	TARGET_PROCESSES = 2,
	TARGET_CGROUP = 3, /* tasks in it and in cgroups below it */
	TARGET_ALL = 4, /* all but the recorder and kernel threads */
};

/* State of a snapshot for the iterators; user space changes it. */
struct adoption {
	__u16 adopt_round; /* mark for newly adopted tasks */
	__u16 look_round; /* the snapshot includes tasks with this mark */
	__u8 adopting; /* 1: children of a target that is not adopted yet are adopted at fork */
	__u8 leaders_only; /* 1: adopt only thread group leaders */
	__u8 pad[2];
};

/* A recorded thread, as the iterator `living` lists it. */
struct living_task {
	__u32 task_id;
	__u32 ending; /* 1: exiting, or a zombie */
};

/* What a kernel worker thread does, by its work function. */
enum work_kind {
	WORK_OTHER = 0,
	WORK_LOOP = 1, /* requests of a loop device */
	WORK_TOLD = 2, /* work that is recorded as a request of a task */
};

#define WIRE_WORKS 4

struct work_desc {
	__u64 address; /* 0: end of the table */
	__u64 kind; /* enum work_kind */
};

/* A process that --lossless has stopped, by process id. */
struct stop_entry {
	__u64 since_ns;
	/* When user_signal counts as handled if the process still makes calls; 0: user_signal must be passed on. */
	__u64 forget_ns;
	__u32 task_id; /* the thread that found the ring full */
	__u32 cpu;
	__s32 user_signal; /* a stop signal from somebody else in the meantime; 0: none */
	__u32 sent; /* enum stop_sent */
};

enum stop_sent {
	STOP_NOT_SENT = 0,
	STOP_SENT = 1, /* the process must be resumed */
	STOP_COMING = 2, /* about to be sent: stop signals of others are noted already */
};

/* Value carried by a recorder's signals (sigqueue(3)), so that another recorder does not take them for a user's. */
enum stop_mark {
	STOP_MARK = 0x696f7265,
};

#endif
