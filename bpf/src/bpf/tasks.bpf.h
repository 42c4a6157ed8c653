/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Following a tree of threads through fork, exec and exit. */
#ifndef IOREEL_TASKS_H
#define IOREEL_TASKS_H

#define CLONE_VM 0x00000100
#define CLONE_FS 0x00000200
#define CLONE_FILES 0x00000400
#define CLONE_THREAD 0x00010000

static __always_inline void fill_task(struct rec_task *rec, struct task_struct *task, const struct task_state *st)
{
	rec->task_id = st->task_id;
	rec->pid = task->tgid;
	rec->tid = task->pid;
	BPF_CORE_READ_STR_INTO(&rec->comm, task, comm);
}

static __always_inline struct task_state *follow(struct task_struct *task)
{
	struct task_state *st = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct cpu_ledger *l;

	if (!st) {
		l = cpu_ledger();
		if (l)
			l->untracked++;
		return NULL;
	}
	st->task_id = __sync_fetch_and_add(&next_task_id, 1) + 1;
	__sync_fetch_and_add(&alive, 1);
	return st;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_fork, struct task_struct *parent, struct task_struct *child)
{
	struct task_state *from = bpf_task_storage_get(&tasks, parent, 0, 0), *st;
	struct rec_task rec = {};

	if (!from)
		return 0;
	st = follow(child);
	if (!st)
		return 0;
	fill_task(&rec, child, st);
	rec.parent = from->task_id;
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
	struct task_state *st = bpf_task_storage_get(&tasks, task, 0, 0);
	__u32 zero = 0, len, cpu = bpf_get_smp_processor_id();
	struct cpu_ledger *l = cpu_ledger();
	void *ring = cpu_ring(cpu);
	struct exec_scratch *s;
	long n;

	if (!st || !ops_active || !l || !ring)
		return 0;
	s = bpf_map_lookup_elem(&exec_scratch, &zero);
	if (!s)
		return 0;
	n = bpf_probe_read_kernel_str(s->path, WIRE_PATH_BYTES, BPF_CORE_READ(bprm, filename));
	s->rec.task_id = st->task_id;
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
	struct task_state *st = bpf_task_storage_get(&tasks, task, 0, 0);
	struct rec_task rec = {};

	if (!st)
		return 0;
	fill_task(&rec, task, st);
	rec.exit_code = task->exit_code;
	emit_fixed(&rec, REC_EXIT, CLASS_TASKS, bpf_ktime_get_ns());
	__sync_fetch_and_add(&alive, -1);
	return 0;
}

#endif
