/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Follows threads through fork, exec, exit, and moves between cgroups.
 */
#ifndef IOREEL_TASKS_H
#define IOREEL_TASKS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/lossless.bpf.h"
#include "tasks/fault.bpf.h"

#define CLONE_VM 0x00000100
#define CLONE_FS 0x00000200
#define CLONE_FILES 0x00000400
#define CLONE_THREAD 0x00010000
#define CLONE_NEWNS 0x00020000
#define CLONE_NEWUSER 0x10000000

/* Maximum depth of a cgroup; in practice the kernel's own limit is far lower. */
#define MAX_CGROUP_DEPTH 128

static __always_inline struct adoption how_to_adopt(void)
{
	__u32 zero = 0;
	struct adoption *a = bpf_map_lookup_elem(&adoption, &zero), none = {};

	return a ? *a : none;
}

static __always_inline __u64 cgroup_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

struct cgroup_search {
	struct cgroup *cgroup;
	__u32 level;
	__u32 found;
};

static long cgroup_step(__u32 i, void *context)
{
	struct cgroup_search *s = context;
	struct cgroup *cgroup = s->cgroup, *up = NULL;

	if (i > s->level)
		return 1;
	bpf_probe_read_kernel(&up, sizeof(up), &cgroup->ancestors[i]);
	if (up && BPF_CORE_READ(up, kn, id) == target_cgroup) {
		s->found = 1;
		return 1;
	}
	return 0;
}

static __always_inline bool in_target_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	struct cgroup_search s = {.cgroup = cgroup, .level = BPF_CORE_READ(cgroup, level)};

	bpf_loop(MAX_CGROUP_DEPTH, cgroup_step, &s, 0);
	return s.found;
}

/* The recorder's pid namespace, in which the user names processes; 0: the initial one. */
const volatile __u32 own_pid_ns = 0;

struct pid_walk {
	struct pid *pid;
	__u32 found; /* 0: the process is not in that namespace */
};

static long pid_step(__u32 i, void *context)
{
	struct pid_walk *w = context;
	struct pid *pid = w->pid;
	struct upid *upid;

	if (i > BPF_CORE_READ(pid, level))
		return 1;
	upid = (void *)pid + bpf_core_field_offset(struct pid, numbers) + i * bpf_core_type_size(struct upid);
	if (BPF_CORE_READ(upid, ns, ns.inum) != own_pid_ns)
		return 0;
	w->found = BPF_CORE_READ(upid, nr);
	return 1;
}

#define MAX_PID_NS_LEVEL 32

/* Process id as the recorder sees it. */
static __always_inline __u32 tgid_here(struct task_struct *task)
{
	struct pid_walk w = {};

	if (!own_pid_ns)
		return task->tgid;
	w.pid = BPF_CORE_READ(task, group_leader, thread_pid);
	if (w.pid)
		bpf_loop(MAX_PID_NS_LEVEL + 1, pid_step, &w, 0);
	return w.found;
}

/*
 * The recorder has its capabilities from its program's file: whoever started it may record what ptrace(2) would let it
 * trace, and no more (kernel/ptrace.c, __ptrace_may_access; security/commoncap.c, cap_ptrace_access_check).
 */
const volatile bool callers_only = false;
const volatile __u32 caller_uid = 0;
const volatile __u32 caller_gid = 0;

/*
 * Whether a task has no more rights than the recorder's caller: the same ids, and no capability outside user namespaces
 * that the caller made.
 */
static __noinline bool is_callers(struct task_struct *task)
{
	const struct cred *cred = BPF_CORE_READ(task, cred);
	__u64 capabilities = ~0ull;

	if (BPF_CORE_READ(cred, uid.val) != caller_uid || BPF_CORE_READ(cred, euid.val) != caller_uid ||
	    BPF_CORE_READ(cred, suid.val) != caller_uid || BPF_CORE_READ(cred, gid.val) != caller_gid ||
	    BPF_CORE_READ(cred, egid.val) != caller_gid || BPF_CORE_READ(cred, sgid.val) != caller_gid)
		return false;
	if (BPF_CORE_READ(cred, user_ns, level) > 0)
		return BPF_CORE_READ(cred, user_ns, owner.val) == caller_uid;
	BPF_CORE_READ_INTO(&capabilities, cred, cap_permitted);
	return !capabilities;
}

/* Whether this task itself, not an ancestor, is a target. */
static __noinline bool is_target(struct task_struct *task)
{
	__u32 tgid = task->tgid;

	if ((task->flags & (PF_KTHREAD | PF_IO_WORKER)) || tgid == self_tgid || tgid == guardian_tgid)
		return false;
	if (target_kind == TARGET_ALL)
		return true;
	if (target_kind == TARGET_CGROUP)
		return in_target_cgroup(task);
	tgid = tgid_here(task);
	return tgid && bpf_map_lookup_elem(&targets, &tgid) != NULL &&
	       (!callers_only || target_kind == TARGET_COMMAND || is_callers(task));
}

static __always_inline void fill_task(struct rec_task *rec, struct task_struct *task, __u32 task_id)
{
	rec->task_id = task_id;
	rec->pid = task->tgid;
	rec->tid = task->pid;
	BPF_CORE_READ_STR_INTO(&rec->comm, task, comm);
}

static __always_inline __u64 shared_with(struct task_struct *task, struct task_struct *other)
{
	return (task->mm && task->mm == other->mm ? CLONE_VM : 0) | (task->fs && task->fs == other->fs ? CLONE_FS : 0) |
	       (task->files && task->files == other->files ? CLONE_FILES : 0) |
	       (task->tgid == other->tgid ? CLONE_THREAD : 0);
}

/* Finds space for a thread's state; see hot_owners. Returns the slot plus 1, 0 for cold_states, or ~0 without
 * memory. */
static __noinline __u32 claim_state(struct task_struct *task, __u32 task_id, __u16 in_call)
{
	__u64 key = stack_key((struct pt_regs *)bpf_task_pt_regs(task)), owner;
	__u32 slot = hot_slot(key);
	__u64 *place = &hot_owners[slot];
	struct task_state *st = bpf_map_lookup_elem(&hot_states, &slot);

	owner = *place;
	if (st && owner <= HOT_SHARED && __sync_val_compare_and_swap(place, owner, owner | HOT_CLAIMED) == owner) {
		__builtin_memset(st, 0, sizeof(*st));
		st->task_id = task_id;
		st->task = (__u64)task;
		st->in_call = in_call;
		st->start_ns = bpf_ktime_get_ns();
		/* Published last, so that the thread's calls find a complete state. */
		__sync_fetch_and_add(place, key - HOT_CLAIMED);
		return slot + 1;
	}
	st = bpf_task_storage_get(&cold_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st)
		return ~0u;
	st->task_id = task_id;
	st->task = (__u64)task;
	st->in_call = in_call;
	st->start_ns = bpf_ktime_get_ns();
	__sync_fetch_and_or(place, HOT_SHARED);
	return 0;
}

/* Starts to record a thread. Returns its id, or 0 if it was recorded already or there is no memory. */
static __always_inline __u32 follow(struct task_struct *task, __u16 in_call, __u16 round)
{
	/* Stored together with the reference: of two programs that find a task at the same time, one sees that it
	 * lost. */
	struct task_ref init = {.slot = ~0u, .round = round}, *ref;
	struct cpu_ledger *l;
	__u32 slot;

	init.task_id = __sync_fetch_and_add(&next_task_id, 1) + 1;
	ref = bpf_task_storage_get(&task_refs, task, &init, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (ref && ref->task_id != init.task_id)
		return 0;
	slot = ref ? claim_state(task, init.task_id, in_call) : ~0u;
	if (slot == ~0u) {
		if (ref)
			bpf_task_storage_delete(&task_refs, task);
		l = cpu_ledger();
		if (l)
			l->untracked++;
		return 0;
	}
	ref->slot = slot;
	__sync_fetch_and_add(&alive, 1);
	return init.task_id;
}

/* Frees the slot of an ending thread, which makes no more calls. Its id stays known until the task is freed. */
static __always_inline void release_state(struct task_struct *task, const struct task_ref *ref)
{
	__u64 key = stack_key((struct pt_regs *)bpf_task_pt_regs(task));

	if (ref->slot)
		__sync_fetch_and_add(&hot_owners[hot_slot(key)], -key);
}

/* Starts to record a task without a recorded parent. User space then takes a snapshot of its state. */
static __always_inline void join(struct task_struct *task, __u16 in_call)
{
	struct rec_task rec = {};
	__u32 id = follow(task, in_call, how_to_adopt().adopt_round);

	if (!id)
		return;
	fill_task(&rec, task, id);
	rec.clone_flags = task->pid == task->tgid ? 0 : shared_with(task, task->group_leader);
	rec.cgroup = cgroup_of(task);
	emit_fixed(&rec, REC_TASK, CLASS_TASKS, bpf_ktime_get_ns());
	__sync_fetch_and_add(&joined, 1);
}

/*
 * Frees the slot of a new thread's stack if a dead thread still owns it. If no program saw that thread's end, calls of
 * the new thread would be attributed to it.
 */
static __always_inline void forget_stack(struct task_struct *child)
{
	__u64 key = stack_key((struct pt_regs *)bpf_task_pt_regs(child));
	__u64 *place = &hot_owners[hot_slot(key)], owner = *place;

	if ((owner & ~HOT_SHARED) == key && !recorded_ref(child))
		__sync_val_compare_and_swap(place, owner, owner - key);
}

/*
 * Forks and exits are recorded until the file systems have settled. Where there are two programs (base/atomic.bpf.h),
 * the second sees what the first has done.
 */
static __always_inline int tell_fork(struct task_struct *parent, struct task_struct *child, bool again)
{
	__u32 from = recorded_id(parent), id;
	struct rec_task rec = {};

	if (!block_active)
		return 0;
	if (again && recorded_ref(child))
		return 0;
	forget_stack(child);
	if (target_kind == TARGET_CGROUP && ops_active && !is_target(child))
		return 0; /* created outside by CLONE_INTO_CGROUP */
	if (!from) {
		if (!ops_active || (__u32)parent->tgid == self_tgid)
			return 0;
		if (target_kind == TARGET_ALL || target_kind == TARGET_CGROUP
			? is_target(child)
			: how_to_adopt().adopting && is_target(parent))
			join(child, 0);
		return 0;
	}
	id = follow(child, 0, 0);
	if (!id)
		return 0;
	if (again)
		count_caught(SECOND_TASK_FORK);
	fill_task(&rec, child, id);
	rec.parent = from;
	rec.clone_flags = shared_with(child, parent);
	if (child->cred->user_ns != parent->cred->user_ns)
		rec.clone_flags |= CLONE_NEWUSER;
	if (BPF_CORE_READ(child, nsproxy, mnt_ns) != BPF_CORE_READ(parent, nsproxy, mnt_ns))
		rec.clone_flags |= CLONE_NEWNS;
	rec.cgroup = cgroup_of(child);
	emit_fixed(&rec, REC_TASK, CLASS_TASKS, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_fork")
int ATOMIC_PROG(task_fork, struct task_struct *parent, struct task_struct *child)
{
	return tell_fork(parent, child, false);
}

SEC("tp_btf/sched_process_fork")
int ATOMIC_PROG(task_fork_again, struct task_struct *parent, struct task_struct *child)
{
	return tell_fork(parent, child, true);
}

/* A thread is no longer recorded, and its call, if any, has ended. */
static __noinline void leave(struct task_struct *task, struct task_ref *ref)
{
	struct fault_wait *touch = ops_active ? bpf_task_storage_get(&faults, task, 0, 0) : NULL;
	struct task_state *st = state_of(task, ref);
	struct rec_task rec = {};

	if (touch)
		fault_flush(touch, 0);
	if (lossless && st)
		release_held(st, task);
	fill_task(&rec, task, ref->task_id);
	emit_fixed(&rec, REC_LEFT, CLASS_TASKS, bpf_ktime_get_ns());
	release_state(task, ref);
	__sync_fetch_and_add(&alive, -1);
	bpf_task_storage_delete(&cold_states, task);
	bpf_task_storage_delete(&task_refs, task);
}

/* Likewise for the current thread, at the end of that call. */
static __noinline void leave_now(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_ref *ref = recorded_ref(task);

	if (ref)
		leave(task, ref);
}

/* From the end of its call on, a thread is recorded no more. */
static __always_inline void leave_after_call(struct task_struct *task, struct task_ref *ref)
{
	struct task_state *st;

	if (__sync_val_compare_and_swap(&ref->gone, 0, 1))
		return;
	st = state_of(task, ref);
	if (st && st->in_call)
		st->leaving = 1;
	else
		leave(task, ref);
}

struct exec_scratch {
	struct rec_exec rec;
	char path[WIRE_PATH_BYTES];
};

/* Space for the record of an exec: a path does not fit on the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exec_scratch);
} exec_scratch SEC(".maps");

static __always_inline int tell_exec(struct task_struct *task, struct linux_binprm *bprm, bool again)
{
	__u32 zero = 0, len, cpu = bpf_get_smp_processor_id();
	struct task_ref *ref = recorded_ref(task);
	struct cpu_ledger *l = cpu_ledger();
	void *ring = cpu_ring(cpu);
	struct exec_scratch *s;
	long n;

	if (!ops_active || !l || !ring)
		return 0;
	if (!ref) {
		/* The kernel itself started the program. */
		if (target_kind == TARGET_ALL && is_target(task)) {
			join(task, 0);
			ref = recorded_ref(task);
			if (ref)
				ref->exec_settled = preemptible && !again;
		}
		return 0;
	}
	if (again && ref->exec_settled) {
		ref->exec_settled = 0;
		return 0;
	}
	ref->exec_settled = preemptible && !again;
	if (again)
		count_caught(SECOND_TASK_EXEC);
	/* A program with more rights than the caller, as a set-user-ID program has, is not the caller's to look at. */
	if (callers_only && !is_callers(task)) {
		leave_after_call(task, ref);
		return 0;
	}
	note_code(bprm->file->f_inode);
	s = bpf_map_lookup_elem(&exec_scratch, &zero);
	if (!s)
		return 0;
	n = bpf_probe_read_kernel_str(s->path, WIRE_PATH_BYTES, BPF_CORE_READ(bprm, filename));
	s->rec.task_id = ref->task_id;
	s->rec.tid = task->pid;
	s->rec.uid = BPF_CORE_READ(task, cred, euid.val);
	s->rec.gid = BPF_CORE_READ(task, cred, egid.val);
	s->rec.in_user_ns = BPF_CORE_READ(task, cred, user_ns, level) > 0;
	BPF_CORE_READ_INTO(&s->rec.capabilities, task, cred, cap_effective);
	s->rec.path_bytes = n > 0 && n <= WIRE_PATH_BYTES ? n - 1 : 0;
	BPF_CORE_READ_STR_INTO(&s->rec.comm, task, comm);
	len = sizeof(s->rec) + (s->rec.path_bytes & (WIRE_PATH_BYTES - 1));
	begin_record(l, &s->rec.hdr, cpu, REC_EXEC, CLASS_TASKS, len, bpf_ktime_get_ns());
	send_record(l, ring, s, len, CLASS_TASKS, cpu);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int ATOMIC_PROG(task_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	return tell_exec(task, bprm, false);
}

SEC("tp_btf/sched_process_exec")
int ATOMIC_PROG(task_exec_again, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	return tell_exec(task, bprm, true);
}

/*
 * A thread gets another name: by prctl, by a write to its file `comm`, or by an exec, which names it before it sends
 * its own record.
 */
SEC("tp_btf/task_rename")
int ATOMIC_PROG(task_renamed, struct task_struct *task, const char *name)
{
	struct task_ref *ref = recorded_ref(task);
	struct rec_task rec = {};

	if (!ref || !block_active)
		return 0;
	rec.task_id = ref->task_id;
	rec.pid = task->tgid;
	rec.tid = task->pid;
	bpf_probe_read_kernel_str(rec.comm, sizeof(rec.comm), name);
	emit_fixed(&rec, REC_NAMED, CLASS_TASKS, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int tell_exit(struct task_struct *task, bool again)
{
	struct task_ref *ref = recorded_ref(task);
	__u32 pid = task->tgid;
	struct rec_task rec = {};
	struct fault_wait *touch;
	struct task_state *st;

	if (!ref || !block_active)
		return 0;
	if (__sync_val_compare_and_swap(&ref->gone, 0, 1)) {
		st = state_of(task, ref);
		if (st && st->leaving)
			leave(task, ref);
		return 0;
	}
	if (again)
		count_caught(SECOND_TASK_EXIT);
	if (lossless) {
		release_held(recorded(task), task);
		/* The last thread of the process: the entry must not apply to a later process with this id. */
		if (!BPF_CORE_READ(task, signal, live.counter))
			bpf_map_delete_elem(&stops, &pid);
	}
	touch = ops_active ? bpf_task_storage_get(&faults, task, 0, 0) : NULL;
	if (touch)
		fault_flush(touch, 0);
	fill_task(&rec, task, ref->task_id);
	rec.exit_code = task->exit_code;
	emit_fixed(&rec, REC_EXIT, CLASS_TASKS, bpf_ktime_get_ns());
	release_state(task, ref);
	__sync_fetch_and_add(&alive, -1);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int ATOMIC_PROG(task_exit, struct task_struct *task)
{
	return tell_exit(task, false);
}

SEC("tp_btf/sched_process_exit")
int ATOMIC_PROG(task_exit_again, struct task_struct *task)
{
	return tell_exit(task, true);
}

extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task, unsigned int flags) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym __weak;

/* kernel/bpf/task_iter.c: iterates over the threads of the task's process (6.7). */
#define BPF_TASK_ITER_PROC_THREADS 1u

/* A process or thread was moved to another cgroup: starts or stops recording it. */
SEC("tp_btf/cgroup_attach_task")
int ATOMIC_PROG(task_moved, struct cgroup *to, const char *path, struct task_struct *leader, bool threadgroup)
{
	struct bpf_iter_task it;
	struct task_struct *task;

	if (!ops_active)
		return 0;
	bpf_iter_task_new(&it, leader, BPF_TASK_ITER_PROC_THREADS);
	while ((task = bpf_iter_task_next(&it))) {
		struct task_ref *ref = recorded_ref(task);
		bool inside = is_target(task);

		if (inside && !ref) {
			join(task, IN_CALL_UNSEEN);
		} else if (inside) {
			struct task_state *st = state_of(task, ref);

			/* It came back before the call ended. */
			if (st && st->leaving)
				st->leaving = ref->gone = 0;
		} else if (ref) {
			leave_after_call(task, ref);
		}
	}
	bpf_iter_task_destroy(&it);
	return 0;
}

#endif
