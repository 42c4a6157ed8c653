/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stores the files of an operation in its record, and sends a file's own record at its first use. */
#ifndef IOREEL_OP_FILES_H
#define IOREEL_OP_FILES_H

#include "base/wire.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"

/* Sets the operation's file; NULL if there is none. */
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
 * Sets the operation's first file (OPF_FILE, OPF_DIR) or second one to that of a descriptor of the current thread. A
 * global function: see tell_file.
 */
__noinline int set_file_of_fd(struct task_state *st, __u32 fd, __u32 flag, __u64 now_ns)
{
	struct file *file = file_of_fd(bpf_get_current_task_btf(), (int)fd);

	if (!st || !file)
		return 0;
	if (flag & (OPF_FILE | OPF_DIR))
		set_file(st, file, flag, now_ns);
	else
		set_file2(st, file, flag, now_ns);
	return 0;
}

#endif
