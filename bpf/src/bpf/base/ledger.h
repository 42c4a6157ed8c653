/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counters of each CPU: records seen and lost by class, and all that was left out on purpose. User space reads them at
 * the end of a recording and stores them in the manifest.
 */
#ifndef IOREEL_LEDGER_H
#define IOREEL_LEDGER_H

#include "base/vmlinux.h"

#include "base/wire.h"
#include "base/wire_block.h"

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
