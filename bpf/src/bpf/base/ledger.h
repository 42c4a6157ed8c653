/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Counters per CPU: records seen and lost by class, and everything left out on purpose. User space reads them at the
 * end of a recording and writes them to the manifest.
 */
#ifndef IOREEL_LEDGER_H
#define IOREEL_LEDGER_H

#include "base/vmlinux.h"

#include "base/wire.h"
#include "base/wire_block.h"

/* Why the kernel filter dropped a call. */
enum filter_why {
	FILTER_CALL = 0, /* --op */
	FILTER_THREAD = 1, /* --comm, --uid */
	FILTER_FILE = 2, /* --path */
	FILTER_QUICK = 3, /* --min-latency */
	FILTER_COUNT = 4,
};

/* Second programs whose first program marks what it has done. */
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
 * Counters of a CPU. For every class seen = submitted + lost, which user space checks. Operations that op_exit records
 * are counted in struct op_ring instead.
 */
struct cpu_ledger {
	__u64 seq;
	__u64 seen[CLASS_COUNT]; /* not set for CLASS_BIO, which has the rest of `seq` */
	__u64 lost[CLASS_COUNT];
	__u64 hidden_rq[HIDE_COUNT];
	__u64 hidden_bio[HIDE_COUNT];
	__u64 compat_calls; /* CALL_UNMAPPED: calls by the 32-bit entry that are only counted */
	__u64 path_faults; /* paths that could not be read */
	__u64 no_path_state; /* calls recorded without paths: no memory */
	__u64 map_full; /* bios or requests for which a table was full */
	__u64 unstoppable; /* threads that could not be stopped (--lossless) */
	__u64 aio_unread; /* Linux AIO control blocks and results that could not be read */
	__u64 no_wait_state; /* waits not followed: no memory */
	__u64 waits_unseen; /* waits whose start or end no probe saw */
	__u64 left_out[FILTER_COUNT]; /* calls, by enum filter_why */
	__u64 untracked; /* tasks not recorded: no memory */
	__u64 uring_other; /* io_uring requests that are not file operations */
	__u64 code_faults; /* accesses to mapped program code, which are not recorded */
	__u64 hidden_cache; /* page cache events of the recorder's own files */
	__u64 content_unread; /* contents that could not be read */
	__u64 content_large; /* contents of writes larger than the limit */
	__u64 uring_more; /* further completions of multishot requests */
	__u64 unseen_begin; /* returns of calls whose entry no program saw; see calls/call_programs.bpf.h */
	__u64 unseen_end; /* entries of calls whose return no program saw */
	__u64 caught[SECOND_COUNT]; /* events that only the second program saw, by enum second */
	__u64 entry_ns; /* time that the entry probe took in timed_entries runs */
	__u64 timed_entries;
	__u64 exit_ns; /* likewise for the exit probe */
	__u64 timed_exits;
	__u64 vfs_unfollowed; /* I/O by the kernel itself that was not recorded: no memory, or nested too deep */
	__u64 told_rq; /* not a counter: the request whose completion the first of two programs has just recorded */
};

#endif
