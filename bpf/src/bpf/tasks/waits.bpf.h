/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What recorded threads wait for during recorded calls: each time a thread leaves its CPU, with its kernel stack, until
 * it runs again. Loaded only with --waits. Whether an operation is slow is known only at its end, so all waits are
 * sent, and user space drops those of fast operations.
 */
#ifndef IOREEL_WAITS_H
#define IOREEL_WAITS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"

const volatile bool user_stacks = false;

#define BPF_F_USER_STACK 0x100
#define WAIT_STACK_BYTES (WIRE_STACK_DEPTH * 8)
#define WAIT_STACK_MASK 511 /* all bits set and at least WAIT_STACK_BYTES, for the verifier */

struct wait_state {
	struct rec_wait rec;
	__u64 kernel[WIRE_STACK_DEPTH];
	__u64 user[WIRE_STACK_DEPTH];
	/* Not sent: the lock that the thread contends for, with the flags of the tracepoint. */
	__u64 lock;
	__u64 lock_flags;
};
#define WAIT_RECORD_BYTES __builtin_offsetof(struct wait_state, lock)

/* include/trace/events/lock.h */
#define LCB_F_SPIN (1u << 0)
#define LCB_F_READ (1u << 1)
#define LCB_F_WRITE (1u << 2)
#define LCB_F_RT (1u << 3)
#define LCB_F_PERCPU (1u << 4)
#define LCB_F_MUTEX (1u << 5)
/* Low bits of the owner of a mutex and of a read-write semaphore (kernel/locking/mutex.h, rwsem.c). */
#define LOCK_OWNER_BITS 7ul
#define RWSEM_READER_OWNED 1ul

/* Whether a contended lock is one that threads sleep for. Spinning locks have no kind, or LCB_F_SPIN. */
static __always_inline bool sleeps_for(unsigned int flags)
{
	return (flags & (LCB_F_MUTEX | LCB_F_RT | LCB_F_PERCPU)) ||
	       (!(flags & LCB_F_SPIN) && (flags & (LCB_F_READ | LCB_F_WRITE)));
}

/*
 * Who holds the lock now. A mutex and a read-write semaphore that is held for writing store it. Of readers only the
 * last one to come is stored, who may be gone.
 */
static __always_inline void note_owner(struct rec_wait *rec)
{
	unsigned int flags = rec->lock_flags;
	unsigned long owner = 0;

	if (flags & LCB_F_MUTEX) {
		struct mutex *mutex = (void *)rec->lock;

		if (bpf_core_field_exists(mutex->owner))
			owner = BPF_CORE_READ(mutex, owner.counter);
	} else if (!(flags & (LCB_F_RT | LCB_F_PERCPU))) {
		struct rw_semaphore *sem = (void *)rec->lock;

		if (bpf_core_field_exists(sem->owner))
			owner = BPF_CORE_READ(sem, owner.counter);
		if (owner & RWSEM_READER_OWNED)
			owner = 0;
	}
	owner &= ~LOCK_OWNER_BITS;
	if (owner) {
		struct task_struct *task = (void *)owner;

		rec->owner_tid = BPF_CORE_READ(task, pid);
		BPF_CORE_READ_STR_INTO(&rec->owner_comm, task, comm);
	}
}

/* 900 bytes per recorded thread that ever left its CPU during a call; freed with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait_state);
} wait_states SEC(".maps");

static __always_inline void wait_begins(void *ctx, struct task_struct *task, bool runnable)
{
	struct wait_state *ws = bpf_task_storage_get(&wait_states, task, 0, 0);
	struct task_state *st = recorded(task);
	struct cpu_ledger *l;
	long n;

	/* The thread runs now, so a wait whose end no probe saw is over. count_unseen_waits counts it. */
	if (ws)
		ws->rec.off_ns = 0;
	if (!st || !st->in_call || st->in_call == IN_CALL_UNSEEN)
		return;
	if (!ws)
		ws = bpf_task_storage_get(&wait_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!ws) {
		l = cpu_ledger();
		if (l)
			l->no_wait_state++;
		st->switches++;
		st->op.off_cpu_ns = WIRE_OFF_CPU_UNKNOWN;
		return;
	}
	ws->rec.task_id = st->task_id;
	ws->rec.op_start_ns = st->start_ns;
	ws->rec.nr = st->in_call - 1;
	ws->rec.preempted = runnable;
	ws->rec.kernel_bytes = ws->rec.user_bytes = 0;
	ws->rec.off_ns = bpf_ktime_get_ns();
	ws->rec.wake_ns = runnable ? ws->rec.off_ns : 0;
	ws->rec.waker_task_id = ws->rec.owner_tid = 0;
	ws->rec.waker_comm[0] = ws->rec.owner_comm[0] = 0;
	ws->rec.lock = runnable ? 0 : ws->lock;
	ws->rec.lock_flags = ws->lock_flags;
	if (ws->rec.lock)
		note_owner(&ws->rec);
	n = bpf_get_stack(ctx, ws->kernel, sizeof(ws->kernel), 0);
	if (n > 0)
		ws->rec.kernel_bytes = n;
	if (user_stacks) {
		n = bpf_get_stack(ctx, ws->user, sizeof(ws->user), BPF_F_USER_STACK);
		if (n > 0)
			ws->rec.user_bytes = n;
	}
}

static __always_inline void wait_ends(struct task_struct *task)
{
	struct wait_state *ws = task->bpf_storage ? bpf_task_storage_get(&wait_states, task, 0, 0) : NULL;
	__u32 cpu = bpf_get_smp_processor_id(), len;
	struct cpu_ledger *l = cpu_ledger();
	void *ring = cpu_ring(cpu);
	struct task_state *st;
	__u64 now_ns;

	if (!ws || !ws->rec.off_ns || !l || !ring)
		return;
	now_ns = bpf_ktime_get_ns();
	st = recorded(task);
	if (st) {
		st->switches++;
		if (st->op.off_cpu_ns != WIRE_OFF_CPU_UNKNOWN)
			st->op.off_cpu_ns += now_ns - ws->rec.off_ns;
	}
	/* User space expects the user stack after space for a full kernel stack. */
	len = ws->rec.user_bytes ? WAIT_RECORD_BYTES : sizeof(ws->rec) + (ws->rec.kernel_bytes & WAIT_STACK_MASK);
	if (len > WAIT_RECORD_BYTES)
		len = WAIT_RECORD_BYTES;
	begin_record(l, &ws->rec.hdr, cpu, REC_WAIT, CLASS_WAITS, len, now_ns);
	send_record(l, ring, ws, len, CLASS_WAITS, cpu);
	ws->rec.off_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(wait_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	if (!ops_active)
		return 0;
	if (prev->bpf_storage)
		wait_begins(ctx, prev, preempt || !prev_state);
	wait_ends(next);
	return 0;
}

/* From here on the thread only waits for a CPU. */
SEC("tp_btf/sched_waking")
int BPF_PROG(wait_waking, struct task_struct *task)
{
	struct wait_state *ws;

	if (!ops_active || !task->bpf_storage)
		return 0;
	ws = bpf_task_storage_get(&wait_states, task, 0, 0);
	if (!ws || !ws->rec.off_ns || ws->rec.wake_ns)
		return 0;
	ws->rec.wake_ns = bpf_ktime_get_ns();
	/* What an interrupt wakes, such as the end of a request, the interrupted task did not wake. */
	if (!in_interrupt()) {
		ws->rec.waker_task_id = recorded_id(bpf_get_current_task_btf());
		bpf_get_current_comm(ws->rec.waker_comm, sizeof(ws->rec.waker_comm));
		ws->rec.maybe_interrupt = !interrupts_known();
	}
	return 0;
}

/* A thread could not get a lock at once: it is about to sleep, or (LCB_F_SPIN) to spin before it sleeps. */
SEC("tp_btf/contention_begin")
int ATOMIC_PROG(lock_begin, void *lock, unsigned int flags)
{
	struct task_struct *task;
	struct wait_state *ws;
	struct task_state *st;

	if (!ops_active || !sleeps_for(flags))
		return 0;
	task = bpf_get_current_task_btf();
	st = recorded(task);
	if (!st || !st->in_call || st->in_call == IN_CALL_UNSEEN)
		return 0;
	ws = bpf_task_storage_get(&wait_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (ws) {
		ws->lock = (__u64)lock;
		ws->lock_flags = flags;
	}
	return 0;
}

SEC("tp_btf/contention_end")
int ATOMIC_PROG(lock_end, void *lock)
{
	struct task_struct *task;
	struct wait_state *ws;

	if (!ops_active)
		return 0;
	task = bpf_get_current_task_btf();
	ws = task->bpf_storage ? bpf_task_storage_get(&wait_states, task, 0, 0) : NULL;
	if (ws && ws->lock == (__u64)lock)
		ws->lock = 0;
	return 0;
}

#define SYMBOL_BYTES 64

struct symbol {
	__u64 address;
	__u8 len;
	char name[SYMBOL_BYTES - 1];
};

/* Addresses of kernel functions, which /proc/kallsyms shows only to root. */
SEC("iter/ksym")
int symbols(struct bpf_iter__ksym *ctx)
{
	struct kallsym_iter *k = ctx->ksym;
	struct symbol out = {};
	char type;
	long n;

	if (!k)
		return 0;
	type = k->type;
	if (type != 't' && type != 'T' && type != 'w' && type != 'W')
		return 0;
	out.address = k->value;
	n = bpf_probe_read_kernel_str(out.name, sizeof(out.name), k->name);
	out.len = n > 1 ? n - 1 : 0;
	bpf_seq_write(ctx->meta->seq, &out, sizeof(out));
	return 0;
}

#endif
