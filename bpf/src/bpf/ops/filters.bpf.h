/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Filters that can decide by a single call. Calls that the user did not select are dropped and counted here. Unused
 * settings are constants of 0, so the verifier removes the code that depends on them. Calls that affect descriptors or
 * directories (call_desc.context) pass; user space keeps those that other rows need
 * (capture/src/assemble/context_filter.rs).
 */
#ifndef IOREEL_FILTERS_H
#define IOREEL_FILTERS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"

#define FILTER_WORDS 8 /* maximum number of names and of users */

const volatile bool filter_calls = false; /* some calls in the table are unwanted */
const volatile __u32 filter_comms = 0; /* number of names */
const volatile char filter_comm[FILTER_WORDS][WIRE_COMM_BYTES] = {};
const volatile __u32 filter_uids = 0; /* number of users */
const volatile __u32 filter_uid[FILTER_WORDS] = {};
const volatile __u64 filter_least_ns = 0; /* calls shorter than this are unwanted */

static __always_inline bool left_out(enum filter_why why)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l)
		__sync_fetch_and_add(&l->left_out[why], 1);
	return true;
}

/* Whether the filter selects this thread, which is the current one or one of its process. */
static __noinline bool wanted_thread(struct task_struct *task)
{
	char comm[WIRE_COMM_BYTES] = {};
	bool found = filter_comms == 0;
	__u32 uid;
	int i;

	if (filter_comms) {
		bpf_probe_read_kernel_str(comm, sizeof(comm), task->comm);
		for (i = 0; i < FILTER_WORDS && i < filter_comms; i++) {
			const __u64 *a = (const __u64 *)comm;
			/* Volatile, because otherwise the compiler uses the zeros of the initialiser. */
			const volatile __u64 *b = (const volatile __u64 *)filter_comm[i];

			if (a[0] == b[0] && a[1] == b[1])
				found = true;
		}
	}
	if (!found || !filter_uids)
		return found;
	uid = BPF_CORE_READ(task, cred, euid.val);
	for (i = 0; i < FILTER_WORDS && i < filter_uids; i++) {
		if (filter_uid[i] == uid)
			return true;
	}
	return false;
}

/* Whether rows of this thread that are not calls must be marked as not selected. */
static __always_inline bool other_thread(struct task_struct *task)
{
	return (filter_comms || filter_uids) && !wanted_thread(task);
}

/* Messages are filtered at return, when it is known whether they are operations. If not, they are not counted. */
static __always_inline bool is_message(const struct call_desc *d)
{
	return unlikely(d->kind == CALL_MSG);
}

/* At entry: whether the call is dropped because of its number or its thread. */
static __always_inline bool unwanted_call(struct task_struct *task, struct task_state *st, const struct call_desc *d)
{
	if (filter_calls && d->unwanted && !d->context)
		return left_out(FILTER_CALL);
	if (other_thread(task)) {
		if (!d->context)
			return left_out(FILTER_THREAD);
		st->op.flags |= OPF_OTHER_THREAD;
	}
	return false;
}

/* At entry, once the file is known: whether the file is outside every --path. Calls with another file are not dropped
 * here. */
static __always_inline bool unwanted_file(const struct task_state *st, const struct call_desc *d)
{
	if (!filter_files || !(st->op.flags & OPF_FILE) || d->context || d->path || d->path2 || d->fd2)
		return false;
	return bpf_map_lookup_elem(&unwanted_files, &st->op.file) && left_out(FILTER_FILE);
}

/* At return: whether the call is dropped because it was too short. */
static __always_inline bool too_quick(const struct task_state *st, const struct call_desc *d)
{
	return filter_least_ns && st->op.dur_ns < filter_least_ns && !d->context && left_out(FILTER_QUICK);
}

#endif
