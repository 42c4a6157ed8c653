/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Return of system calls: completes the record that the entry started (calls/enter.bpf.h) and sends it.
 */
#ifndef IOREEL_EXIT_H
#define IOREEL_EXIT_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/long_ops.bpf.h"
#include "ops/op_ring.bpf.h"
#include "ops/lossless.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/special_calls.bpf.h"
#include "ops/filters.bpf.h"
#include "ops/user_memory.bpf.h"
#include "ops/op_files.bpf.h"
#include "ops/contents.bpf.h"
#include "tasks/tasks.bpf.h"
#include "calls/aio.bpf.h"
#include "calls/scm_rights.bpf.h"
#include "calls/probe_cost.bpf.h"
#include "calls/special.bpf.h"

#define RWF_APPEND 0x10

/*
 * Counts context switches during the call that no probe saw. Some kernels do not fire the tracepoint for every switch,
 * but the scheduler counts all. Not for calls that started before the adoption of their thread.
 */
static __always_inline void count_unseen_waits(struct task_state *st)
{
	__u64 switches = switches_of(bpf_get_current_task_btf());
	struct cpu_ledger *l = cpu_ledger();

	if (switches <= st->switches || (st->op.flags & OPF_MIDWAY))
		return;
	st->op.off_cpu_ns = WIRE_OFF_CPU_UNKNOWN;
	if (l)
		l->waits_unseen += switches - st->switches;
}

/* Numbers an operation in its own stream, which only op_exit uses. */
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
			/* Name and input follow the paths, so they are read again too. */
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
 * Takes over a call that was in flight when its thread was adopted. Its arguments are still in the saved registers.
 * False if it is not recorded.
 */
static __noinline bool take_up_midway(struct task_struct *task, struct task_state *st, struct pt_regs *regs)
{
	__u64 nr = (long)regs->CALL_NUMBER;
	const struct call_desc *desc;

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
	if (desc->fd)
		set_file_of_fd(st, arg_of(&st->op, desc->fd), OPF_FILE, st->start_ns);
	if (desc->fd2)
		set_file_of_fd(st, arg_of(&st->op, desc->fd2), OPF_FILE2, st->start_ns);
	/* The memory that it pointed to is read now. */
	if (has_memory(&st->op, desc))
		st->op.flags |= OPF_PATH_FAULT;
	if (desc->user_kind && desc->user_kind < USER_STAT && desc->user_kind != USER_OFFSETS)
		st->op.flags |= OPF_USER_FAULT;
	st->in_call = nr + 1;
	return true;
}

/*
 * Completes and sends the record of a call.
 *
 * Long because the ways out (operation, long operation, event, nothing) share what is read once from the thread's
 * state.
 */
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
		/* Without descriptors it is not a file operation. */
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
				/* A duplicate of a descriptor keeps the mark of the call that created the file. */
				if (desc->kind != CALL_FD && (peek(file, f_mode) & FMODE_CREATED))
					st->op.flags |= OPF_CREATED;
				about_to_note(st, file);
				set_file(st, file, OPF_FILE, now_ns);
			}
		}
	} else if ((st->op.flags & OPF_FILE) && desc->kind != CALL_URING) {
		file = kernel_cast(struct file, (void *)st->op.ofd);
		st->op.pos_after = peek(file, f_pos);
		/*
		 * A positioned write that appends (O_APPEND overrides its offset) does not change the position; it ends
		 * at the end of the file. User space knows which calls these are. The sixth argument is that of
		 * pwritev2.
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
	/* Pages that were not resident at entry have been faulted in by the call. Offsets are not read again, because
	 * the call has changed them. */
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

/* Ends a call. A process may also be stopped here in calls that are not recorded or filtered out. */
static __always_inline void exit_call(struct pt_regs *regs, long ret)
{
	struct task_state *st = recorded_here(regs);

	if (!st || !ops_active)
		return;
	if (st->in_call)
		end_call(st, regs, ret);
	hold_if_nearly_full(st->task_id);
	if ((target_kind == TARGET_CGROUP || callers_only) && st->leaving)
		leave_now();
}

#endif
