/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Entry and exit of calls that need more than the call table: messages, ioctls, handles, extended attributes. */
#ifndef IOREEL_SPECIAL_H
#define IOREEL_SPECIAL_H

#include "base/wire.h"
#include "base/config.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/special_calls.bpf.h"
#include "ops/op_files.bpf.h"
#include "calls/scm_rights.bpf.h"

/*
 * Handles the special call kinds at entry; returns whether the call is recorded. Global functions are verified once,
 * not for every path that leads to them. They cannot take pointers to read-only memory.
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
		/* Descriptors sent are known now; descriptors received are known at return. */
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

/* Likewise at return, for a recorded call. */
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
	if (names_users(d) && in_user_ns())
		read_kernel_ids(st, lo, d);
	if (m.out && st->op.ret >= 0)
		read_gotten(st, lo, &m);
	return 0;
}

#endif
