/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Entry of system calls. The call table, filled by user space, gives the role of each argument. This code knows no call
 * by name; user space interprets the record.
 */
#ifndef IOREEL_ENTER_H
#define IOREEL_ENTER_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/lossless.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/special_calls.bpf.h"
#include "ops/filters.bpf.h"
#include "ops/user_memory.bpf.h"
#include "ops/op_files.bpf.h"
#include "calls/aio.bpf.h"
#include "calls/mapped_file.bpf.h"
#include "calls/probe_cost.bpf.h"
#include "calls/special.bpf.h"

/*
 * Stores a call's arguments in the thread's state.
 *
 * Long because every branch returns at the earliest point: the order of the checks determines the cost of an unrecorded
 * or simple call.
 */
static __always_inline void enter_call(struct pt_regs *regs, long id)
{
	struct task_state *st = recorded_here(regs);
	struct task_struct *task;
	__u64 since_ns = 0, start_ns = 0;
	const struct call_desc *desc;
	struct file *file;
	bool compat;

	/* When inactive, the state is not touched: operations in flight are then listed by the iterator. */
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

	if (unlikely(desc->kind == CALL_BIND) && !binds_name(st))
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
			/* Not searched, or behind a gap: user space knows what was mapped where. */
			st->op.flags |= OPF_MAP_BUSY;
	}
	/* Also for filtered calls: accesses to program code are not recorded as data. */
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
		if (unlikely(desc->fd2))
			set_file_of_fd(st, arg_of(&st->op, desc->fd2), OPF_FILE2, WHEN_TOLD);
		/* The directory is the second file if the call opens a file, which will be the first. */
		if (desc->dirfd && (int)arg_of(&st->op, desc->dirfd) != AT_FDCWD) {
			bool opens = desc->kind == CALL_OPEN || unlikely(desc->kind == CALL_HANDLE_OPEN);

			set_file_of_fd(st, arg_of(&st->op, desc->dirfd), opens ? OPF_DIR2 : OPF_DIR, WHEN_TOLD);
		}
		if (unlikely(desc->dirfd2) && (int)arg_of(&st->op, desc->dirfd2) != AT_FDCWD)
			set_file_of_fd(st, arg_of(&st->op, desc->dirfd2), OPF_DIR2, WHEN_TOLD);
		if (unlikely(desc->user_kind && desc->user_kind < USER_STAT))
			read_user_on_entry(st, desc->user_kind, arg_of(&st->op, desc->user),
					   arg_of(&st->op, desc->user2));
		if (unlikely(has_memory(&st->op, desc))) {
			st->long_paths = 0;
			read_long_paths(st, arg_of(&st->op, desc->path), arg_of(&st->op, desc->path2));
			if (!enter_special(st))
				return;
			/* Not called from enter_special, because of the stack: see calls/scm_rights.bpf.h. */
			if (desc->kind == CALL_AIO_SUBMIT) {
				start_ns = bpf_ktime_get_ns();
				aio_submitted(st, start_ns);
			}
		} else if (desc->path || desc->path2) {
			read_paths(st, arg_of(&st->op, desc->path), arg_of(&st->op, desc->path2));
		}
	}
	/* Last, so that the time of this probe is not part of the call. */
	if (!start_ns)
		start_ns = bpf_ktime_get_ns();
	st->start_ns = start_ns;
	if (follow_waits)
		st->op.off_cpu_ns = 0;
	st->in_call = id + 1;
	if (follow_waits)
		st->switches = switches_of(bpf_get_current_task_btf());
	if (unlikely(since_ns))
		entered(since_ns, start_ns);
}

#endif
