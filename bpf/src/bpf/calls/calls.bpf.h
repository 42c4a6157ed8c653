/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * File operations at the system call boundary. A table made in user space says which argument plays
 * which part, so these two programs know no single call; meaning is given in capture/src/calls/.
 */
#ifndef IOREEL_OPS_H
#define IOREEL_OPS_H

#define MAP_ANONYMOUS 0x20
#define PROT_EXEC 0x4
#define O_APPEND 02000
#define RWF_APPEND 0x10
#define EBUSY 16
#define AT_FDCWD -100

/* The first file that is mapped in a range of addresses. */
struct vma_file {
	struct file *file;
	__u64 address;
	__u64 end;
	__u64 next; /* where the mapping found last ends */
	long found;
};

static long vma_step(struct task_struct *task, struct vm_area_struct *vma, void *context)
{
	struct vma_file *v = context;

	v->file = vma->vm_file;
	v->next = vma->vm_end;
	return 0;
}

/*
 * The map is only tried to be locked; while another thread changes it that fails. More tries would not help: a
 * waiting writer keeps readers out, and while this spins it may be this CPU that the writer waits for. As many mappings
 * of memory alone may come before the file's.
 */
#define VMA_TRIES 64

static long vma_try(__u32 i, void *context)
{
	struct vma_file *v = context;

	v->found = bpf_find_vma(bpf_get_current_task_btf(), v->address, vma_step, v, 0);
	if (v->found)
		return v->found != -EBUSY;
	if (v->file || v->next >= v->end)
		return 1;
	v->address = v->next;
	return 0;
}

/* Argument number `which` (1-6); 0: none. The barrier keeps the mask, which the verifier needs to see. */
static __always_inline __u64 arg_of(const struct rec_op *op, __u8 which)
{
	__u32 i = which - 1u;

	if (!which)
		return 0;
	barrier_var(i);
	return op->args[i & 7];
}

/* Fills in the operation's file; NULL where there is none. */
static __always_inline struct inode *take_file(struct task_state *st, struct file *file, __u16 flag)
{
	struct inode *inode = peek(file, f_inode);

	if (!inode)
		return NULL;
	identify(inode, &st->op.file);
	st->op.ofd = (__u64)file;
	st->op.pos_before = st->op.pos_after = peek(file, f_pos);
	st->op.flags |= flag;
	if (peek(file, f_flags) & O_APPEND)
		st->op.flags |= OPF_APPEND;
	return inode;
}

static __always_inline struct inode *take_file2(struct task_state *st, struct file *file, __u16 flag)
{
	struct inode *inode = peek(file, f_inode);

	if (!inode)
		return NULL;
	identify(inode, &st->tail.file2);
	st->tail.ofd2 = (__u64)file;
	st->tail.pos2_before = st->tail.pos2_after = peek(file, f_pos);
	st->op.flags |= flag;
	return inode;
}

static __always_inline void set_file(struct task_state *st, struct file *file, __u16 flag, __u64 now_ns)
{
	struct inode *inode = take_file(st, file, flag);

	if (inode)
		note_file(st, file, inode, &st->op.file, now_ns, st->op.flags & OPF_CREATED);
}

static __always_inline void set_file2(struct task_state *st, struct file *file, __u16 flag, __u64 now_ns)
{
	struct inode *inode = take_file2(st, file, flag);

	if (inode)
		note_file(st, file, inode, &st->tail.file2, now_ns, false);
}

/*
 * Where it stands: a copy would be made byte by byte. The barrier keeps the compiler from dropping the mask, which the
 * verifier needs to see.
 */
static __always_inline const struct call_desc *desc_of(__u64 nr, bool compat)
{
	barrier_var(nr);
	if (compat)
		return (const struct call_desc *)&calls32[nr & (WIRE_CALLS - 1)];
	return (const struct call_desc *)&calls[nr & (WIRE_CALLS - 1)];
}

static __always_inline bool is_long(const struct rec_op *op, const struct call_desc *d)
{
	return d->tail || has_memory(op, d);
}

#include "ops/contents.bpf.h"
#include "calls/aio.bpf.h"
#include "calls/scm_rights.bpf.h"

/*
 * What the kinds of their own need on entry; whether the call is to be recorded. Global functions are verified
 * once, not along each way that leads to them; they may not be given what cannot be written to.
 */
__noinline int enter_special(struct task_state *st)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct call_memory m = {};
	struct inode *inode = NULL;
	const struct call_desc *d;
	struct long_op *lo;
	struct file_id id;
	struct file *file;

	if (!st)
		return 0;
	d = desc_of(st->op.nr, st->op.flags & OPF_COMPAT);
	if (d->kind == CALL_MSG) {
		/* What is sent is known now, what is received is not. */
		if (!d->out)
			st->tail.extra[0] = descriptors_in(st, d->user2, st->op.args[2]);
		return d->out || st->tail.extra[0];
	}
	if (d->kind == CALL_IOCTL) {
		file = file_of_fd(task, ioctl_fd(&st->op));
		if (argument_is_source(st->op.args[1])) {
			st->tail.ofd2 = st->op.ofd;
			st->tail.file2 = st->op.file;
			if (st->op.flags & OPF_FILE)
				st->op.flags |= OPF_FILE2;
			st->op.flags &= ~OPF_FILE;
			inode = file ? take_file(st, file, OPF_FILE) : NULL;
			id = st->op.file;
		} else if (file) {
			inode = take_file2(st, file, OPF_FILE2);
			id = st->tail.file2;
		}
		/* By an id of its own: 6.1 does not let a global function look up by what its caller gave it. */
		if (inode)
			note_file(st, file, inode, &id, WHEN_TOLD, false);
	}
	memory_of(&st->op, d, &m);
	if (!m.name && !m.in)
		return 1;
	lo = bpf_task_storage_get(&long_ops, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (lo)
		read_given(st, lo, &m);
	return 1;
}

/* The same on exit, of a call that is recorded. */
__noinline int exit_special(struct task_state *st)
{
	struct call_memory m = {};
	const struct call_desc *d;
	struct long_op *lo;

	if (!st)
		return 0;
	d = desc_of(st->op.nr, st->op.flags & OPF_COMPAT);
	if (d->kind == CALL_MSG)
		return 0;
	lo = bpf_task_storage_get(&long_ops, bpf_get_current_task_btf(), 0, 0);
	if (!lo)
		return 0;
	memory_of(&st->op, d, &m);
	if ((m.name && !st->tail.name_bytes) || (m.in && !st->tail.in_bytes))
		read_given(st, lo, &m);
	if (m.out && st->op.ret >= 0)
		read_gotten(st, lo, &m);
	return 0;
}

/* One entry, and one exit, of so many are timed. */
#define TIMED 64

/*
 * By the number of the thread's last operation: the first calls of a thread, which find nothing in the caches, count
 * no more than others.
 */
static __always_inline bool times_entry(const struct task_state *st)
{
	return st->op.hdr.seq % TIMED == TIMED / 2;
}

/* An interrupt may have come between: not the probe's time. */
#define INTERRUPTED_NS 50000

/* The probe was at the entry of a call since then. */
static __always_inline void entered(__u64 since_ns, __u64 until_ns)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!l || until_ns - since_ns > INTERRUPTED_NS)
		return;
	l->entry_ns += until_ns - since_ns;
	l->timed_entries++;
}

/* The probe is done with an exit. All of it comes from memory: the stack is full. */
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

/* A call begins. */
static __always_inline void enter_call(struct pt_regs *regs, long id)
{
	struct task_state *st = recorded_here(regs);
	struct task_struct *task;
	__u64 since_ns = 0, start_ns = 0;
	const struct call_desc *desc;
	struct file *file;
	bool compat;

	/* Once inactive nothing is touched: what is in flight then stays to be told by the iterator. */
	if (!st || !ops_active)
		return;
	if (unlikely(times_entry(st)))
		since_ns = bpf_ktime_get_ns();
	if (lossless && st->held)
		release_held(st, bpf_get_current_task_btf());
	st->in_call = 0;
	if (unlikely((__u64)id >= WIRE_CALLS))
		return;
	task = task_here(st);
	compat = by_32_bit_entry(task);
	desc = desc_of(id, compat);
	if (!desc->kind)
		return;
	if (likely(!compat)) {
		take_args(st->op.args, regs);
	} else {
		if (desc->kind == CALL_UNMAPPED) {
			struct cpu_ledger *l = cpu_ledger();

			if (l)
				l->compat_calls++;
			return;
		}
		take_args32(st->op.args, regs);
	}
	if (unlikely(desc->kind == CALL_MMAP) && (st->op.args[3] & MAP_ANONYMOUS))
		return;
	if (unlikely(desc->kind >= CALL_FCNTL) && !wanted(task, st, desc->kind))
		return;

	st->op.flags = compat ? OPF_COMPAT : 0;
	st->op.nr = id;
	st->op.ofd = 0;
	st->op.pos_before = st->op.pos_after = 0;
	if (unlikely(desc->kind == CALL_VMA)) {
		struct vma_file v = {.address = st->op.args[0], .end = st->op.args[0] + st->op.args[1]};

		bpf_loop(VMA_TRIES, vma_try, &v, 0);
		if (!v.found && v.file)
			set_file(st, kernel_cast(struct file, v.file), OPF_FILE, WHEN_TOLD);
		else if (!v.found && v.next >= v.end)
			return;
		else
			/* Not looked at, or what lies behind a hole: user space knows what was mapped where. */
			st->op.flags |= OPF_MAP_BUSY;
	}
	/* Whatever filters leave out: touches of it are none of data. */
	if (unlikely(desc->kind == CALL_MMAP) && (st->op.args[2] & PROT_EXEC)) {
		file = file_of_fd(task, (int)arg_of(&st->op, desc->fd));
		if (file)
			note_code(peek(file, f_inode));
	}
	if (!is_message(desc) && unwanted_call(task, st, desc))
		return;
	if (unlikely(desc->kind == CALL_URING)) {
		bool own = arg_of(&st->op, desc->user) >> desc->user2 & 1;

		file = ring_file(task, (int)arg_of(&st->op, desc->fd), own);
		if (file) {
			set_file(st, file, OPF_FILE, WHEN_TOLD);
			st->op.pos_before = (__s64)peek(file, private_data);
		}
	} else if (desc->fd) {
		file = file_of_fd(task, (int)arg_of(&st->op, desc->fd));
		if (file)
			set_file(st, file, OPF_FILE, WHEN_TOLD);
	}
	if (!is_message(desc) && unwanted_file(st, desc))
		return;
	if (is_long(&st->op, desc)) {
		__builtin_memset(&st->tail, 0, sizeof(st->tail));
		if (unlikely(desc->fd2)) {
			file = file_of_fd(task, (int)arg_of(&st->op, desc->fd2));
			if (file)
				set_file2(st, file, OPF_FILE2, WHEN_TOLD);
		}
		/* A directory goes where no operand does: the result of an open takes the first place. */
		if (desc->dirfd && (int)arg_of(&st->op, desc->dirfd) != AT_FDCWD) {
			file = file_of_fd(task, (int)arg_of(&st->op, desc->dirfd));
			if (file && (desc->kind == CALL_OPEN || unlikely(desc->kind == CALL_HANDLE_OPEN)))
				set_file2(st, file, OPF_DIR2, WHEN_TOLD);
			else if (file)
				set_file(st, file, OPF_DIR, WHEN_TOLD);
		}
		if (unlikely(desc->dirfd2) && (int)arg_of(&st->op, desc->dirfd2) != AT_FDCWD) {
			file = file_of_fd(task, (int)arg_of(&st->op, desc->dirfd2));
			if (file)
				set_file2(st, file, OPF_DIR2, WHEN_TOLD);
		}
		if (unlikely(desc->user_kind && desc->user_kind < USER_STAT))
			read_user_on_entry(st, desc->user_kind, arg_of(&st->op, desc->user),
					   arg_of(&st->op, desc->user2));
		if (unlikely(has_memory(&st->op, desc))) {
			st->long_paths = 0;
			read_long_paths(st, arg_of(&st->op, desc->path), arg_of(&st->op, desc->path2));
			if (!enter_special(st))
				return;
			/* Not from there: see calls/scm_rights.bpf.h on the stack. */
			if (desc->kind == CALL_AIO_SUBMIT) {
				start_ns = bpf_ktime_get_ns();
				aio_submitted(st, start_ns);
			}
		} else if (desc->path || desc->path2) {
			read_paths(st, arg_of(&st->op, desc->path), arg_of(&st->op, desc->path2));
		}
	}
	/* Last of all: what was done here is no part of the call. */
	if (!start_ns)
		start_ns = bpf_ktime_get_ns();
	st->start_ns = start_ns;
	st->in_call = id + 1;
	if (follow_waits)
		st->switches = switches_of(bpf_get_current_task_btf());
	if (unlikely(since_ns))
		entered(since_ns, start_ns);
}

/*
 * Not every switch calls its tracepoint on every kernel, but the scheduler counts each. What was left of a call before
 * the thread was adopted is not known.
 */
static __always_inline void count_unseen_waits(struct task_state *st)
{
	__u64 switches = switches_of(bpf_get_current_task_btf());
	struct cpu_ledger *l = cpu_ledger();

	if (l && switches > st->switches && !(st->op.flags & OPF_MIDWAY))
		l->waits_unseen += switches - st->switches;
}

/* Numbers an operation in its own stream: only op_exit does. */
static __always_inline void begin_op(struct op_ring *r, struct rec_op *op, __u32 cpu, __u8 type, __u32 len_bytes,
				     __u64 now_ns)
{
	op->hdr.seq = r->seq++;
	op->hdr.end_ns = now_ns;
	op->hdr.len_bytes = len_bytes;
	op->hdr.cpu = cpu;
	op->hdr.type = type;
	op->hdr.stream = STREAM_OPS;
}

static __always_inline void emit_short(struct op_ring *r, struct task_state *st, __u32 cpu, __u64 now_ns)
{
	begin_op(r, &st->op, cpu, REC_OP, sizeof(st->op), now_ns);
	if (unlikely(!put_short(r, &st->op, cpu)))
		no_room(r, st);
}

static __always_inline void emit_long(struct op_ring *r, struct task_state *st, const struct call_desc *d, __u32 cpu,
				      __u64 now_ns)
{
	const __u32 fixed = sizeof(struct rec_op) + sizeof(struct op_tail);
	struct long_op *lo;
	void *ring;
	__u32 len;

	if (unlikely(st->op.flags & OPF_FAULTS)) {
		if (has_memory(&st->op, d)) {
			/* What lies behind the paths moves with them. */
			st->tail.name_bytes = st->tail.in_bytes = 0;
			read_long_paths(st, arg_of(&st->op, d->path), arg_of(&st->op, d->path2));
		} else {
			read_paths(st, arg_of(&st->op, d->path), arg_of(&st->op, d->path2));
		}
		if (st->op.flags & OPF_FAULTS) {
			struct cpu_ledger *l = cpu_ledger();

			if (l)
				l->path_faults++;
		}
	}
	if (likely(!st->long_paths)) {
		len = fixed + (st->tail.path_bytes & (SHORT_PATH_BYTES - 1)) +
		      (st->tail.path2_bytes & (SHORT_PATH_BYTES - 1));
		begin_op(r, &st->op, cpu, REC_OP_LONG, len, now_ns);
		if (unlikely(!put_tailed(r, st, cpu)))
			no_room(r, st);
		return;
	}
	lo = bpf_task_storage_get(&long_ops, bpf_get_current_task_btf(), 0, 0);
	ring = cpu_ring(cpu);
	if (!lo || !ring)
		return;
	if (has_memory(&st->op, d))
		exit_special(st);
	begin_op(r, &st->op, cpu, REC_OP_LONG, long_bytes(&st->tail), now_ns);
	lo->op = st->op;
	lo->tail = st->tail;
	if (send_long(ring, lo))
		no_room(r, st);
}

/*
 * A call that was in flight when its thread was adopted ends: its arguments are still in the saved
 * registers. False when it is none that is recorded.
 */
static __noinline bool take_up_midway(struct task_struct *task, struct task_state *st, struct pt_regs *regs)
{
	__u64 nr = (long)regs->CALL_NUMBER;
	const struct call_desc *desc;
	struct file *file;

	st->in_call = 0;
	if (nr >= WIRE_CALLS || by_32_bit_entry(task))
		return false;
	desc = desc_of(nr, false);
	if (!desc->kind || desc->kind == CALL_VMA || desc->kind > CALL_IOCTL)
		return false;
	take_args(st->op.args, regs);
	if (desc->kind >= CALL_FCNTL && !wanted(task, st, desc->kind))
		return false;
	if (desc->kind == CALL_MMAP && (st->op.args[3] & MAP_ANONYMOUS))
		return false;
	st->long_paths = 0;
	st->op.flags = OPF_MIDWAY;
	st->op.nr = nr;
	st->op.ofd = 0;
	st->op.pos_before = st->op.pos_after = 0;
	__builtin_memset(&st->tail, 0, sizeof(st->tail));
	if (desc->fd) {
		file = file_of_fd(task, (int)arg_of(&st->op, desc->fd));
		if (file)
			set_file(st, file, OPF_FILE, st->start_ns);
	}
	if (desc->fd2) {
		file = file_of_fd(task, (int)arg_of(&st->op, desc->fd2));
		if (file)
			set_file2(st, file, OPF_FILE2, st->start_ns);
	}
	/* What it pointed to is read now. */
	if (has_memory(&st->op, desc))
		st->op.flags |= OPF_PATH_FAULT;
	if (desc->user_kind && desc->user_kind < USER_STAT && desc->user_kind != USER_OFFSETS)
		st->op.flags |= OPF_USER_FAULT;
	st->in_call = nr + 1;
	return true;
}

static __always_inline void end_call(struct task_state *st, struct pt_regs *regs, long ret)
{
	__u32 cpu = bpf_get_smp_processor_id();
	const struct call_desc *desc;
	struct op_ring *r;
	struct file *file;
	__u64 now_ns;
	__u16 nr;

	if (unlikely(st->in_call == IN_CALL_UNSEEN) && !take_up_midway(bpf_get_current_task_btf(), st, regs))
		return;
	if (follow_waits)
		count_unseen_waits(st);
	nr = st->in_call - 1;
	st->in_call = 0;
	r = bpf_map_lookup_elem(&op_ring_heads, &cpu);
	if (unlikely(nr >= WIRE_CALLS || !r))
		return;
	desc = desc_of(nr, st->op.flags & OPF_COMPAT);
	now_ns = content_limit && st->ended_ns ? st->ended_ns : bpf_ktime_get_ns();
	st->op.task_id = st->task_id;
	st->op.dur_ns = now_ns - st->start_ns;
	st->op.ret = ret;
	if (is_message(desc)) {
		/* Without descriptors it is no file operation. */
		if (desc->out)
			st->tail.extra[0] = ret < 0 ? 0 : descriptors_in(st, desc->user2, ret);
		if (!st->tail.extra[0] || unwanted_call(task_here(st), st, desc) || unwanted_file(st, desc))
			return;
	}
	if (too_quick(st, desc))
		return;
	if (unlikely(desc->kind == CALL_URING_SETUP)) {
		__u32 setup = 0;

		bpf_probe_read_user(&setup, sizeof(setup), (void *)st->op.args[1] + URING_PARAMS_FLAGS);
		file = ret < 0
			   ? NULL
			   : ring_file(bpf_get_current_task_btf(), (int)ret, setup & IORING_SETUP_REGISTERED_FD_ONLY);
		if (file) {
			set_file(st, file, OPF_FILE, now_ns);
			st->op.pos_before = (__s64)peek(file, private_data);
		}
	} else if (desc->kind == CALL_OPEN || desc->kind == CALL_FD || desc->kind == CALL_HANDLE_OPEN) {
		if (ret >= 0) {
			file = file_of_fd(task_here(st), (int)ret);
			if (file) {
				if (peek(file, f_mode) & FMODE_CREATED)
					st->op.flags |= OPF_CREATED;
				about_to_note(st, file);
				set_file(st, file, OPF_FILE, now_ns);
			}
		}
	} else if ((st->op.flags & OPF_FILE) && desc->kind != CALL_URING) {
		file = kernel_cast(struct file, (void *)st->op.ofd);
		st->op.pos_after = peek(file, f_pos);
		/*
		 * A positioned write that appends (O_APPEND overrides its offset) leaves the position alone: it ended
		 * where the file does. Which calls these are, user space knows; the sixth argument is pwritev2's.
		 */
		if (ret > 0 && st->op.pos_after == st->op.pos_before &&
		    unlikely((st->op.flags & OPF_APPEND) ||
			     (desc->user_kind == USER_IOVEC && (st->op.args[5] & RWF_APPEND)))) {
			struct inode *inode = peek(file, f_inode);

			if (inode && (peek(inode, i_mode) & S_IFMT) == S_IFREG) {
				st->op.pos_after = peek(inode, i_size);
				st->op.flags |= OPF_AT_SIZE;
			}
		}
	}
	if (likely(!is_long(&st->op, desc))) {
		emit_short(r, st, cpu, now_ns);
		exited(st);
		return;
	}
	if (unlikely(st->op.flags & OPF_FILE2))
		st->tail.pos2_after = peek(kernel_cast(struct file, (void *)st->tail.ofd2), f_pos);
	/* What was not resident on entry has been faulted in by the call itself; offsets it has changed since. */
	if (unlikely(st->op.flags & OPF_USER_FAULT) && desc->user_kind && desc->user_kind < USER_STAT &&
	    desc->user_kind != USER_OFFSETS) {
		st->op.flags &= ~OPF_USER_FAULT;
		read_user_on_entry(st, desc->user_kind, arg_of(&st->op, desc->user), arg_of(&st->op, desc->user2));
	}
	if (desc->user_kind >= USER_STAT && ret == 0)
		read_stat_on_exit(st, desc->user_kind, arg_of(&st->op, desc->user));
	emit_long(r, st, desc, cpu, now_ns);
	if (unlikely(desc->kind == CALL_MSG) && desc->out)
		tell_descriptors(st, desc->user2, ret, now_ns);
	else if (unlikely(desc->kind == CALL_AIO_GET))
		aio_ended(st, ret, now_ns);
	exited(st);
}

/* In tasks/tasks.bpf.h. */
static __noinline void leave_now(void);

/* And ends it. Also calls that are not recorded, or that filters leave out, are where a process can be stopped. */
static __always_inline void exit_call(struct pt_regs *regs, long ret)
{
	struct task_state *st = recorded_here(regs);

	if (!st || !ops_active)
		return;
	if (st->in_call)
		end_call(st, regs, ret);
	hold_if_nearly_full(st->task_id);
	if (target_kind == TARGET_CGROUP && st->leaving)
		leave_now();
}

#endif
