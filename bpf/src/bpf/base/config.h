/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Configuration that user space gives to the probes: the call table, what kernel functions mean, which tasks are
 * recorded. The Rust types are generated from these definitions, like those of base/wire.h.
 */
#ifndef IOREEL_TOLD_H
#define IOREEL_TOLD_H

#include "base/vmlinux.h"

/* Addresses of functions with their meaning, the most frequent first, ended by an address of 0. */
#define WIRE_END_IOS 64

struct end_io_desc {
	__u64 address;
	__u64 kind; /* enum end_io */
};

#define WIRE_BTRFS_ENDS 5

/* Likewise of a btrfs_bio. */
enum btrfs_end {
	BTRFS_END_SCRUB = 1, /* it is of no file (fs/btrfs/scrub.c) */
	BTRFS_END_DIRECT = 2, /* its private is iomap's request (fs/btrfs/direct-io.c) */
	BTRFS_END_ENCODED = 3, /* it is read as it lies on the disk, and not told where in the file it belongs */
};

enum call_kind {
	CALL_NONE = 0,
	CALL_PLAIN = 1,
	CALL_OPEN = 2, /* the result is a new description */
	CALL_FD = 3, /* the result is a descriptor of a description that may be known */
	CALL_MMAP = 4, /* only of files */
	CALL_VMA = 5, /* of an address: only where a file is mapped */
	/* From here on the probes know more than the table says: ops/special_calls.bpf.h. */
	CALL_FCNTL = 6, /* what makes descriptors or concerns files */
	CALL_IOCTL = 7, /* only on files, directories and block devices */
	CALL_MSG = 8, /* only with descriptors in it; the mmsg calls have user2 = 2, argument 3 says how many */
	CALL_AIO_SUBMIT = 9,
	CALL_AIO_GET = 10,
	CALL_XATTRAT = 11, /* the value lies behind a struct xattr_args */
	CALL_HANDLE = 12, /* a struct file_handle, which tells its own length */
	CALL_HANDLE_OPEN = 13, /* the same; the result is a new description */
	CALL_UNMAPPED = 14, /* of the 32-bit entry alone: only counted */
	CALL_URING = 32, /* io_uring_enter, io_uring_register; pos_before is the ring */
	CALL_URING_SETUP = 33, /* the same of the ring it makes */
};

enum call_user {
	USER_NONE = 0,
	USER_IOVEC = 1, /* extra[0] = sum of lengths; arg user, count in arg user2 */
	USER_OFFSETS = 2, /* extra[0], [1] = *user, *user2; extra[2] bit 0, 1: null */
	USER_TIMESPEC = 3, /* extra = two timespecs; extra all ones at [1]: null pointer */
	USER_TIMEVAL = 4,
	USER_UTIMBUF = 5, /* extra[0], [1] */
	USER_OPEN_HOW = 6, /* extra = flags, mode, resolve */
	USER_IOVEC32 = 7, /* the same of 32-bit callers */
	USER_OFFSETS32 = 8,
	USER_STAT = 9, /* on success: extra[0] = st_mode, [1] = st_size */
	USER_STATX = 10,
	USER_STAT32 = 11, /* i386: struct stat */
	USER_STAT64 = 12, /* i386: struct stat64 */
};

/* One system call: which argument (1-6, 0 none) plays which part. */
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
	__u8 name; /* a string that is no path */
	__u8 in; /* memory that the kernel reads */
	__u8 in_len; /* the argument that holds its length; 0: it is in_words long */
	__u8 in_words; /* at most so many 8-byte words of it are taken; 0: a string */
	__u8 out; /* memory that the kernel has written when the call succeeded */
	__u8 out_words;
	__u8 unwanted; /* left out by --op */
	__u8 data; /* writes the bytes of argument 2: its memory, or with USER_IOVEC a vector */
	__u8 context; /* keeps descriptors or directories in order: user space decides */
	/* Found out from the others, so that the probes need not ask each: fcntl's locks have both, too. */
	__u8 memory; /* it needs a look by what is in ops/special_calls.bpf.h */
	__u8 tail; /* its record has a tail */
};

/* Who is recorded, beside whoever they start. */
enum target_kind {
	TARGET_NONE = 0,
	TARGET_COMMAND = 1, /* the recorder's child, which waits for the start */
	TARGET_PROCESSES = 2,
	TARGET_CGROUP = 3, /* tasks in it and below */
	TARGET_ALL = 4, /* all but the recorder and kernel threads */
};

/* How the iterators go about a snapshot; changed by user space. */
struct adoption {
	__u16 adopt_round; /* what adopted tasks are marked with */
	__u16 look_round; /* which of them are looked at */
	__u8 adopting; /* what an unadopted target makes is to be taken at birth */
	__u8 leaders_only; /* adopt no thread before its process's leader */
	__u8 pad[2];
};

/* What the iterator `living` tells of a recorded thread. */
struct living_task {
	__u32 task_id;
	__u32 ending; /* 1: it is on its way out, or a zombie */
};

/* What a worker thread of the kernel's is at, by the function it runs. */
enum work_kind {
	WORK_OTHER = 0,
	WORK_LOOP = 1, /* requests of a loop device */
	WORK_TOLD = 2, /* what is recorded as the request of a task */
};

#define WIRE_WORKS 4

struct work_desc {
	__u64 address; /* 0: no more */
	__u64 kind; /* enum work_kind */
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

#endif
