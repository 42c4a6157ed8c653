/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Following a tree of threads through fork, exec and exit. */
#ifndef IOREEL_TASKS_H
#define IOREEL_TASKS_H

#define CLONE_VM 0x00000100
#define CLONE_FS 0x00000200
#define CLONE_FILES 0x00000400
#define CLONE_THREAD 0x00010000

static __always_inline void fill_task(struct rec_task *rec, struct task_struct *task, __u32 task_id)
{
	rec->task_id = task_id;
	rec->pid = task->tgid;
	rec->tid = task->pid;
	BPF_CORE_READ_STR_INTO(&rec->comm, task, comm);
}

/* Finds a place for a thread's state: see hot_owners. Returns the place plus 1, or 0 for cold_states. */
static __noinline __u32 claim_state(struct task_struct *task, __u32 task_id)
{
	__u64 key = stack_key((struct pt_regs *)bpf_task_pt_regs(task)), owner;
	__u32 slot = hot_slot(key);
	__u64 *place = &hot_owners[slot];
	struct task_state *st = bpf_map_lookup_elem(&hot_states, &slot);

	owner = *place;
	if (st && owner <= HOT_SHARED && __sync_val_compare_and_swap(place, owner, owner | HOT_CLAIMED) == owner) {
		__builtin_memset(st, 0, sizeof(*st));
		st->task_id = task_id;
		/* Only now may its calls find it. */
		__sync_fetch_and_add(place, key - HOT_CLAIMED);
		return slot + 1;
	}
	st = bpf_task_storage_get(&cold_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!st)
		return ~0u;
	st->task_id = task_id;
	__sync_fetch_and_or(place, HOT_SHARED);
	return 0;
}

/* Makes a thread a recorded one; returns its id, or 0 when there is no memory for it. */
static __always_inline __u32 follow(struct task_struct *task)
{
	struct task_ref *ref = bpf_task_storage_get(&task_refs, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct cpu_ledger *l;
	__u32 id, slot = ~0u;

	id = __sync_fetch_and_add(&next_task_id, 1) + 1;
	if (ref) {
		slot = claim_state(task, id);
		ref->slot = slot;
		ref->task_id = id;
	}
	if (slot == ~0u) {
		if (ref)
			bpf_task_storage_delete(&task_refs, task);
		l = cpu_ledger();
		if (l)
			l->untracked++;
		return 0;
	}
	__sync_fetch_and_add(&alive, 1);
	return id;
}

/* Frees an ending thread's place: it makes no further calls. Its id stays known as long as the task does. */
static __always_inline void release_state(struct task_struct *task, const struct task_ref *ref)
{
	__u64 key = stack_key((struct pt_regs *)bpf_task_pt_regs(task));

	if (ref->slot)
		__sync_fetch_and_add(&hot_owners[hot_slot(key)], -key);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 from = recorded_id(parent), id;
	struct rec_task rec = {};

	if (!from)
		return 0;
	id = follow(child);
	if (!id)
		return 0;
	fill_task(&rec, child, id);
	rec.parent = from;
	rec.clone_flags = (child->mm && child->mm == parent->mm ? CLONE_VM : 0) |
			  (child->fs == parent->fs ? CLONE_FS : 0) | (child->files == parent->files ? CLONE_FILES : 0) |
			  (child->tgid == parent->tgid ? CLONE_THREAD : 0);
	rec.cgroup = bpf_get_current_cgroup_id();
	emit_fixed(&rec, REC_TASK, CLASS_TASKS, bpf_ktime_get_ns());
	return 0;
}

struct exec_scratch {
	struct rec_exec rec;
	char path[WIRE_PATH_BYTES];
};

/* Where an exec's record is put together: a path does not fit the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct exec_scratch);
} exec_scratch SEC(".maps");

SEC("tp_btf/sched_process_exec")
int BPF_PROG(task_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	__u32 id = recorded_id(task), zero = 0, len, cpu = bpf_get_smp_processor_id();
	struct cpu_ledger *l = cpu_ledger();
	void *ring = cpu_ring(cpu);
	struct exec_scratch *s;
	long n;

	if (!id || !ops_active || !l || !ring)
		return 0;
	s = bpf_map_lookup_elem(&exec_scratch, &zero);
	if (!s)
		return 0;
	n = bpf_probe_read_kernel_str(s->path, WIRE_PATH_BYTES, BPF_CORE_READ(bprm, filename));
	s->rec.task_id = id;
	s->rec.tid = task->pid;
	s->rec.path_bytes = n > 0 && n <= WIRE_PATH_BYTES ? n - 1 : 0;
	BPF_CORE_READ_STR_INTO(&s->rec.comm, task, comm);
	len = sizeof(s->rec) + (s->rec.path_bytes & (WIRE_PATH_BYTES - 1));
	begin_record(l, &s->rec.hdr, cpu, REC_EXEC, CLASS_TASKS, len, bpf_ktime_get_ns());
	if (bpf_ringbuf_output(ring, s, len, BPF_RB_NO_WAKEUP))
		lost_record(l, CLASS_TASKS);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_exit, struct task_struct *task)
{
	struct task_ref *ref = recorded_ref(task);
	struct rec_task rec = {};

	if (!ref)
		return 0;
	release_state(task, ref);
	fill_task(&rec, task, ref->task_id);
	rec.exit_code = task->exit_code;
	emit_fixed(&rec, REC_EXIT, CLASS_TASKS, bpf_ktime_get_ns());
	__sync_fetch_and_add(&alive, -1);
	return 0;
}

#endif
