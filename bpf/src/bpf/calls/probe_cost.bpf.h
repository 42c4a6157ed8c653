/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Measures the duration of the two probes on calls: one entry and one exit in 64 is timed. */
#ifndef IOREEL_PROBE_COST_H
#define IOREEL_PROBE_COST_H

#include "base/ledger.h"
#include "base/maps.bpf.h"

/* One entry and one exit in this many is timed. */
#define TIMED 64

/*
 * Selected by the sequence number of the thread's last operation. So the first calls of a thread, which find cold
 * caches, are not over-represented.
 */
static __always_inline bool times_entry(const struct task_state *st)
{
	return st->op.hdr.seq % TIMED == TIMED / 2;
}

/* Longer times probably include an interrupt and are ignored. */
#define INTERRUPTED_NS 50000

/* The entry probe ran from since_ns to until_ns. */
static __always_inline void entered(__u64 since_ns, __u64 until_ns)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!l || until_ns - since_ns > INTERRUPTED_NS)
		return;
	l->entry_ns += until_ns - since_ns;
	l->timed_entries++;
}

/* The exit probe is done. Everything is read from memory, because the stack is full. */
static __always_inline void exited(const struct task_state *st)
{
	struct cpu_ledger *l;
	__u64 took_ns;

	if (likely((st->start_ns >> 5) % TIMED))
		return;
	l = cpu_ledger();
	took_ns = bpf_ktime_get_ns() - st->start_ns - st->op.dur_ns;
	if (!l || took_ns > INTERRUPTED_NS)
		return;
	l->exit_ns += took_ns;
	l->timed_exits++;
}

/* How often a thread has left its CPU. */
static __always_inline __u64 switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

#endif
