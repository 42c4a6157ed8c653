/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * --lossless: a thread that fills a ring to more than half is stopped when it leaves the kernel; user space resumes it
 * after draining. Threads are stopped at the end of any call, recorded or not, in a page fault, and in the thread that
 * polls a submission queue. Until a stop takes effect, every thread may still produce the records of one call. A call
 * that finds no space even then waits in its thread's state, which is read once the thread is stopped.
 */
#ifndef IOREEL_LOSSLESS_H
#define IOREEL_LOSSLESS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "ops/long_ops.bpf.h"
#include "ops/op_ring.bpf.h"

#define SIGCONT 18
#define SIGSTOP 19
#define SIGTSTP 20
#define SIGTTOU 22
/* Signal set of SIGSTOP, SIGTSTP, SIGTTIN and SIGTTOU. */
#define STOP_SIGNALS (0xful << (SIGSTOP - 1))
/* Values of info for signals that the kernel itself sends: SEND_SIG_NOINFO 0, SEND_SIG_PRIV 1. */
#define FROM_USER(info) ((__u64)(info) > 1)

/*
 * Stopped processes by process id, 32 bytes each; large only with --lossless. If full, the process is not stopped,
 * which is counted. Key 0 exists if the recorder has died: then no process is stopped, because the guardian resumes
 * processes only for one second.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space */
	__type(key, __u32);
	__type(value, struct stop_entry);
} stops SEC(".maps");

/* si_code of signals that the kernel itself sends (include/uapi/asm-generic/siginfo.h). */
#define SI_KERNEL 0x80

struct signal_walk {
	struct list_head *head;
	struct list_head *at;
	__u32 found;
};

static long signal_step(__u32 i, void *context)
{
	struct signal_walk *w = context;
	struct list_head *at = w->at;
	struct sigqueue *q;

	if (!at || at == w->head)
		return 1;
	q = container_of(at, struct sigqueue, list);
	w->found = BPF_CORE_READ(q, info.si_signo) == SIGSTOP && BPF_CORE_READ(q, info.si_code) == SI_KERNEL;
	w->at = BPF_CORE_READ(at, next);
	return w->found;
}

/* Maximum number of pending signals checked per thread; a SIGSTOP beyond them counts as somebody else's. */
#define MAX_PENDING 1024

/* Whether a recorder's probe, of this recorder or another, sent the SIGSTOP pending for this thread. Others are from
 * users. */
static __always_inline bool stopped_by_probe(struct task_struct *task)
{
	struct list_head *head = (void *)task + bpf_core_field_offset(struct task_struct, pending.list);
	struct signal_walk w = {.head = head};

	w.at = BPF_CORE_READ(head, next);
	bpf_loop(MAX_PENDING, signal_step, &w, 0);
	return w.found;
}

/* include/linux/sched/jobctl.h: the process is about to stop, by the signal in the low bits. */
#define JOBCTL_STOP_SIGMASK 0xfffful
#define JOBCTL_STOP_PENDING (1ul << 17)

/* A stop signal of somebody else that is still pending. signal_sent sees every SIGSTOP anyway. */
static __always_inline int pending_stop(struct task_struct *task)
{
	unsigned long own = task->pending.signal.sig[0] & STOP_SIGNALS, stopping = task->jobctl;
	unsigned long set = BPF_CORE_READ(task, signal, shared_pending.signal.sig[0]) & STOP_SIGNALS;

	if ((own & (1ul << (SIGSTOP - 1))) && stopped_by_probe(task))
		own &= ~(1ul << (SIGSTOP - 1));
	set |= own;
	/* Another thread of the process has taken the signal. */
	if ((stopping & JOBCTL_STOP_PENDING) && (stopping & JOBCTL_STOP_SIGMASK) != SIGSTOP)
		set |= 1ul << ((stopping & 63) - 1);
	if (!set)
		return 0;
	for (int sig = SIGSTOP; sig <= SIGTTOU; sig++)
		if (set & (1ul << (sig - 1)))
			return sig;
	return 0;
}

/*
 * HANDED_NS after a SIGTSTP was passed on: if the program still makes calls and the signal is no longer pending, the
 * program has taken it without a handler (sigwait(3), signalfd(2)). The time covers the gap between the kernel taking
 * the signal and signal_taken. A process that is held within this time gets the signal once more. With 1 ms, 20 awaited
 * signals became 31 to 130.
 *
 * TAKEN_NS after a thread took the signal to stop: if the program still makes calls, its process group is orphaned, and
 * the kernel ignores the stop.
 */
#define HANDED_NS 200000
#define TAKEN_NS 500000000

/* Without CAP_KILL the recorder can resume only processes of its own user (kernel/signal.c, kill_ok_by_cred). */
const volatile bool signals_all = true;
const volatile __u32 own_uid = 0;

static __always_inline bool may_resume(struct task_struct *task)
{
	return BPF_CORE_READ(task, cred, uid.val) == own_uid || BPF_CORE_READ(task, cred, suid.val) == own_uid;
}

static __always_inline void note_stop(struct stop_entry *entry, int sig)
{
	entry->forget_ns = 0;
	entry->user_signal = sig;
}

/*
 * Stops the current process. The entry is made before the signal, so that there is space for it. It is marked as sent
 * after the signal, or made again if user space deleted it meanwhile as finished: a stop without an entry would never
 * end. The entry is changed in place, because signal_sent may change it at the same time. From STOP_COMING on,
 * signal_sent notes other stop signals; earlier ones are still pending.
 */
static __noinline int hold(__u32 task_id, __u32 cpu)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 pid = task->tgid, nobody = 0;
	struct stop_entry entry = {.sent = STOP_COMING}, *known;
	struct cpu_ledger *l;

	if (!signals_all && !may_resume(task))
		goto cannot;
	/* An exiting task makes no more calls; a stop would only delay the recorder. */
	if ((task->flags & PF_EXITING) || bpf_map_lookup_elem(&stops, &nobody))
		return 1;
	entry.since_ns = bpf_ktime_get_ns();
	entry.task_id = task_id;
	entry.cpu = cpu;
	known = bpf_map_lookup_elem(&stops, &pid);
	if (!known) {
		if (bpf_map_update_elem(&stops, &pid, &entry, BPF_NOEXIST) && !bpf_map_lookup_elem(&stops, &pid))
			goto cannot;
		known = bpf_map_lookup_elem(&stops, &pid);
	} else if (!known->sent) {
		if (known->user_signal > SIGSTOP && known->forget_ns && entry.since_ns > known->forget_ns)
			known->user_signal = 0;
		known->since_ns = entry.since_ns;
		known->task_id = task_id;
		known->cpu = cpu;
		/* A full barrier before the check of pending signals, so that signal_sent sees both in this order. */
		__sync_lock_test_and_set(&known->sent, STOP_COMING);
	}
	entry.user_signal = pending_stop(task);
	if (known && entry.user_signal && !known->user_signal)
		note_stop(known, entry.user_signal);
	if (bpf_send_signal_thread(SIGSTOP)) {
		if (known && known->sent == STOP_COMING)
			known->sent = STOP_NOT_SENT;
		goto cannot;
	}
	__sync_fetch_and_add(&holds, 1);
	known = bpf_map_lookup_elem(&stops, &pid);
	if (known)
		known->sent = STOP_SENT;
	if (known && bpf_map_lookup_elem(&stops, &pid) == known)
		return 0;
	entry.sent = STOP_SENT;
	if (!bpf_map_update_elem(&stops, &pid, &entry, BPF_ANY))
		return 0;
cannot:
	l = cpu_ledger();
	if (l)
		l->unstoppable++;
	return 1;
}

static __always_inline bool half_full(__u32 cpu)
{
	void *ring = cpu_ring(cpu);

	return ring && bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) >= ring_bytes / 2;
}

/* Stops the current process if the ring noted in `filling` is still half full, on whichever CPU. */
static __always_inline void hold_if_filling(__u32 task_id)
{
	__u32 cpu;

	if (!lossless || !(cpu = filling))
		return;
	if (half_full(cpu - 1))
		hold(task_id, cpu - 1);
	else
		filling = 0;
}

/* Likewise, or if a ring of this CPU is half full. */
static __always_inline void hold_if_nearly_full(__u32 task_id)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct op_ring *r;

	if (!lossless)
		return;
	r = bpf_map_lookup_elem(&op_ring_heads, &cpu);
	if ((r && r->head - *(volatile __u64 *)&r->tail >= op_ring_records / 2) || half_full(cpu))
		hold(task_id, cpu);
	else
		hold_if_filling(task_id);
}

/*
 * Likewise, for threads that cause records outside their calls. Not during a call, which would be interrupted.
 */
static __always_inline void hold_outside_calls(struct task_struct *task, __u32 task_id)
{
	struct pt_regs *regs;

	if (!lossless || !filling)
		return;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if ((long)BPF_CORE_READ(regs, CALL_NUMBER) == -1)
		hold_if_filling(task_id);
}

/* There is no space for the operation: it is lost, or (--lossless) waits in the state of its thread. */
static __always_inline void no_room(struct op_ring *r, struct task_state *st)
{
	if (lossless)
		st->held = 1;
	else
		r->lost++;
}

/* Sends the waiting operation of a thread that somebody else resumed, or that ends. If there is still no space, it is
 * lost. */
static __noinline int release_held(struct task_state *st, struct task_struct *task)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct op_ring *r = bpf_map_lookup_elem(&op_ring_heads, &cpu);
	void *ring = cpu_ring(cpu);
	struct long_op *lo;

	if (!st || !task || !r || !ring || __sync_val_compare_and_swap(&st->held, 1, 0) != 1)
		return 0;
	if (st->op.hdr.type != REC_OP_LONG) {
		if (!put_short(r, &st->op, cpu))
			r->lost++;
		return 0;
	}
	if (!st->long_paths) {
		if (!put_tailed(r, st, cpu))
			r->lost++;
		return 0;
	}
	lo = bpf_task_storage_get(&long_ops, task, 0, 0);
	if (!lo || send_long(ring, lo))
		r->lost++;
	return 0;
}

/* include/uapi/asm-generic/siginfo.h, 64-bit: offsets of si_code and of the value of sigqueue(3). */
#define SI_CODE 8
#define SI_QUEUE (-1)
#define SI_VALUE 24

/* Whether a recorder (this one or another) sent the signal, to resume a process or to pass on a user's stop. */
static __always_inline bool by_recorder(struct kernel_siginfo *info)
{
	int code = 0, value = 0;

	if (!FROM_USER(info))
		return false;
	bpf_probe_read_kernel(&code, sizeof(code), (void *)info + SI_CODE);
	bpf_probe_read_kernel(&value, sizeof(value), (void *)info + SI_VALUE);
	return code == SI_QUEUE && value == STOP_MARK;
}

/* Result value of the tracepoint signal_generate (include/trace/events/signal.h). */
#define TRACE_SIGNAL_IGNORED 1

/* The recorder resumed a process, or then passed on a stop signal that somebody else had sent meanwhile. */
static __always_inline void signal_of_ours(int sig, struct stop_entry *entry, bool ignored)
{
	if (sig == SIGCONT)
		__sync_fetch_and_add(&holds, 1);
	if (!entry)
		return;
	if (sig == SIGCONT) {
		/* The process may be held again before the other signal arrives. */
		entry->forget_ns = 0;
		if (entry->sent == STOP_SENT)
			entry->sent = STOP_NOT_SENT;
	} else if (ignored) {
		entry->user_signal = 0;
	} else if (!entry->user_signal) {
		/* The sender has resumed the process since, so the recorder must resume it again. */
		entry->since_ns = bpf_ktime_get_ns();
		entry->sent = STOP_SENT;
	} else if (sig != SIGSTOP) {
		entry->forget_ns = bpf_ktime_get_ns() + HANDED_NS;
	}
}

/* Notes a stop signal that is in progress while the process is not held. */
static __always_inline void note_for_now(struct task_struct *task, struct stop_entry *entry, int sig)
{
	struct stop_entry fresh = {.user_signal = sig, .forget_ns = bpf_ktime_get_ns() + TAKEN_NS};
	__u32 pid = task->tgid;

	if (!entry) {
		if (!recorded_id(task))
			return;
		bpf_map_update_elem(&stops, &pid, &fresh, BPF_NOEXIST);
		entry = bpf_map_lookup_elem(&stops, &pid);
	}
	if (entry && entry->user_signal != SIGSTOP) {
		entry->forget_ns = entry->sent ? 0 : fresh.forget_ns;
		entry->user_signal = sig;
	}
}

/*
 * Notes stop signals of others, so that the recorder's SIGCONT does not undo them. A probe's own SIGSTOP has no info;
 * its sender is the process itself, or a kernel thread where such threads run deferred interrupt work. SIGSTOP is
 * remembered until somebody resumes the process. The other stop signals may be handled by the program, so they are
 * remembered only while the process is held, or until a thread takes them.
 *
 * The order is that in which the signals take effect, because the sender holds the process's lock. So the recorder's
 * own signals are noted here too. SIGCONT by another recorder is not a user's. Stops that another recorder passes on
 * are known already, except those that are noted only while the process is held.
 */
SEC("tp_btf/signal_generate")
int BPF_PROG(signal_sent, int sig, struct kernel_siginfo *info, struct task_struct *task, int group, int result)
{
	struct task_struct *from = bpf_get_current_task_btf();
	__u32 pid = task->tgid, sender = from->tgid;
	struct stop_entry *entry, fresh = {.user_signal = sig};
	bool ignored = result == TRACE_SIGNAL_IGNORED;

	if (sig < SIGCONT || sig > SIGTTOU)
		return 0;
	entry = bpf_map_lookup_elem(&stops, &pid);
	if (by_recorder(info)) {
		if (sender == self_tgid)
			signal_of_ours(sig, entry, ignored);
		else if (entry && entry->sent && !entry->user_signal && sig > SIGSTOP && !ignored)
			note_stop(entry, sig);
		return 0;
	}
	if (sig == SIGCONT) {
		if (entry)
			entry->user_signal = 0;
	} else if (ignored) {
		return 0;
	} else if (sig == SIGSTOP && !FROM_USER(info) && sender == pid) {
		return 0;
	} else if (sig == SIGSTOP && !FROM_USER(info) && (from->flags & PF_KTHREAD)) {
		/* The signal came late: the process may have been resumed already. */
		fresh.user_signal = 0;
		fresh.since_ns = bpf_ktime_get_ns();
		fresh.task_id = recorded_id(task);
		fresh.cpu = bpf_get_smp_processor_id();
		fresh.sent = STOP_SENT;
		if (!entry && fresh.task_id)
			bpf_map_update_elem(&stops, &pid, &fresh, BPF_NOEXIST);
	} else if (entry && (entry->sent || sig == SIGSTOP)) {
		note_stop(entry, sig);
	} else if (sig == SIGSTOP && recorded_id(task)) {
		bpf_map_update_elem(&stops, &pid, &fresh, BPF_NOEXIST);
	} else if (sig != SIGSTOP && !group) {
		/* It is in the queue of one thread, where another thread that is held does not see it. */
		note_for_now(task, entry, sig);
	}
	return 0;
}

/*
 * A thread takes a SIGTSTP, SIGTTIN or SIGTTOU. Without a handler, the kernel briefly releases the process's lock to
 * check whether the process group is orphaned, before it stops all threads. A stop by a probe and the following SIGCONT
 * in this gap would undo the stop. So it is noted from here on.
 */
SEC("tp_btf/signal_deliver")
int BPF_PROG(signal_taken, int sig, struct kernel_siginfo *info, struct k_sigaction *ka)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct stop_entry *entry;
	__u32 pid = task->tgid;

	if (sig <= SIGSTOP || sig > SIGTTOU)
		return 0;
	entry = bpf_map_lookup_elem(&stops, &pid);
	if (BPF_CORE_READ(ka, sa.sa_handler)) {
		/* Ignored or handled, so it does not stop the process. */
		if (entry && entry->user_signal > SIGSTOP)
			entry->user_signal = 0;
		return 0;
	}
	note_for_now(task, entry, sig);
	return 0;
}

#endif
