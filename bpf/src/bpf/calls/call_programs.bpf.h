/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The programs on entry and return of system calls. Where programs are preemptible (base/atomic.bpf.h), there are two
 * of each. The kernel skips a program if another task on this CPU was preempted in it; then the second program does its
 * work. The second is slower: a classic tracepoint program, around which the kernel itself disables preemption. It is
 * skipped while a task is preempted during a bpf(2) call on a map. Entries and returns of a thread alternate, so its
 * state shows whether the other program has run. If both were skipped, this is counted at the thread's next event.
 */
#ifndef IOREEL_TURNS_H
#define IOREEL_TURNS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/contents.bpf.h"
#include "calls/enter.bpf.h"
#include "calls/exit.bpf.h"

/* The low bits of a turn say which program took it and what for. */
enum turn {
	TURN_UNSEEN = 0, /* new thread: the next event may be the return of an earlier call */
	TURN_BEGUN = 2,
	TURN_ENDED = 4,
};

/* Whether the other program has handled this event. */
static __always_inline bool settled(struct task_state *st, __u8 turn, bool second)
{
	return st->turn == (turn | !second);
}

/* Takes the turn. If this program also took the last one, an event in between was missed by both programs. */
static __always_inline void take_turn(struct task_state *st, struct pt_regs *regs, __u8 turn, bool second)
{
	struct cpu_ledger *l;
	__u64 nr;

	if (st->turn == (turn | second)) {
		l = cpu_ledger();
		nr = (long)regs->CALL_NUMBER;
		if (l && turn == TURN_BEGUN && st->in_call)
			l->unseen_end++;
		if (l && turn == TURN_ENDED && nr < WIRE_CALLS &&
		    desc_of(nr, by_32_bit_entry(bpf_get_current_task_btf()))->kind)
			l->unseen_begin++;
		if (turn == TURN_ENDED)
			st->in_call = 0;
	}
	st->turn = turn | second;
}

static __always_inline int begin_turn(struct pt_regs *regs, long id, bool second)
{
	struct task_state *st = recorded_here(regs);

	if (!st || !ops_active || settled(st, TURN_BEGUN, second))
		return 0;
	keep_cpu(preemptible);
	take_turn(st, regs, TURN_BEGUN, second);
	enter_call(regs, id);
	yield_cpu(preemptible);
	return 0;
}

static __always_inline int end_turn(struct pt_regs *regs, long ret, bool second)
{
	struct task_state *st = recorded_here(regs);

	if (!st || !ops_active || settled(st, TURN_ENDED, second))
		return 0;
	keep_cpu(preemptible);
	take_turn(st, regs, TURN_ENDED, second);
	/* Both in one program, because each of two programs may be skipped separately. */
	if (content_limit)
		exit_content(st, ret);
	exit_call(regs, ret);
	yield_cpu(preemptible);
	return 0;
}

/* Programs for kernels that run them with preemption disabled. */

SEC("tp_btf/sys_enter")
int BPF_PROG(op_enter, struct pt_regs *regs, long id)
{
	enter_call(regs, id);
	return 0;
}

/* A separate program, attached before op_exit, which is near the verifier's limit. */
SEC("tp_btf/sys_exit")
int BPF_PROG(content_exit, struct pt_regs *regs, long ret)
{
	struct task_state *st = recorded_here(regs);

	if (st && ops_active)
		exit_content(st, ret);
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(op_exit, struct pt_regs *regs, long ret)
{
	exit_call(regs, ret);
	return 0;
}

/* Programs for the other kernels. */

SEC("tp_btf/sys_enter")
int BPF_PROG(op_enter_first, struct pt_regs *regs, long id)
{
	return begin_turn(regs, id, false);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(op_exit_first, struct pt_regs *regs, long ret)
{
	return end_turn(regs, ret, false);
}

SEC("tp/raw_syscalls/sys_enter")
int op_enter_again(struct trace_event_raw_sys_enter *call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	return begin_turn(regs, call->id, true);
}

SEC("tp/raw_syscalls/sys_exit")
int op_exit_again(struct trace_event_raw_sys_exit *call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());

	return end_turn(regs, call->ret, true);
}

#endif
