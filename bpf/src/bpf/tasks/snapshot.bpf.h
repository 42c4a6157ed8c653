/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Iterators: the state of tasks before the recording, and the calls in flight at its end. */
#ifndef IOREEL_SNAPSHOT_H
#define IOREEL_SNAPSHOT_H

#include "base/wire.h"
#include "base/config.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/long_ops.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/special_calls.bpf.h"
#include "ops/filters.bpf.h"
#include "tasks/fault.bpf.h"
#include "tasks/tasks.bpf.h"

/* Space to build paths. Only the recorder reads iterators, one at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, char[2 * WIRE_WALK_BYTES]);
} snapshot_scratch SEC(".maps");

static __always_inline void begin_listed(struct rec_hdr *hdr, __u8 type, __u32 len_bytes)
{
	hdr->type = type;
	hdr->cpu = WIRE_NO_CPU;
	hdr->len_bytes = len_bytes;
	hdr->end_ns = bpf_ktime_get_ns();
}

/* Writes a path from walk_path. */
static __always_inline void write_path(struct seq_file *seq, char *path, __u32 len)
{
	len &= WIRE_WALK_BYTES - 1;
	bpf_seq_write(seq, path + ((WIRE_WALK_BYTES - len) & (2 * WIRE_WALK_BYTES - 1)), len);
}

/* Starts to record every thread of the target. */
SEC("iter/task")
int adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct rec_task rec = {};
	struct task_ref *ref;
	__u32 id;

	if (!task || (task->flags & PF_EXITING) || !is_target(task))
		return 0;
	if (how_to_adopt().leaders_only && task->pid != task->tgid)
		return 0;
	if (recorded_ref(task))
		return 0;
	id = follow(task, target_kind == TARGET_COMMAND ? 0 : IN_CALL_UNSEEN, how_to_adopt().adopt_round);
	if (!id)
		return 0;
	fill_task(&rec, task, id);
	rec.listed = 1;
	rec.clone_flags = task->pid == task->tgid ? 0 : shared_with(task, task->group_leader);
	rec.cgroup = cgroup_of(task);
	begin_listed(&rec.hdr, REC_TASK, sizeof(rec));
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	/* It may have ended before its state existed, so that the exit probe did not see it. */
	ref = recorded_ref(task);
	if (ref && (task->flags & PF_EXITING) && !__sync_val_compare_and_swap(&ref->gone, 0, 1)) {
		release_state(task, ref);
		__sync_fetch_and_add(&alive, -1);
		begin_listed(&rec.hdr, REC_EXIT, sizeof(rec));
		bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	}
	return 0;
}

/* Recorded threads whose end was not seen. Where the kernel skips programs, it may never be. */
SEC("iter/task")
int living(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_ref *ref = task ? recorded_ref(task) : NULL;
	struct living_task told = {};

	if (!ref || ref->gone)
		return 0;
	told.task_id = ref->task_id;
	told.ending = !!(task->flags & PF_EXITING);
	bpf_seq_write(ctx->meta->seq, &told, sizeof(told));
	return 0;
}

/* Id of a task adopted in the current round of the snapshot; else 0. */
static __always_inline __u32 to_look_at(struct task_struct *task)
{
	struct task_ref *ref = recorded_ref(task);

	return ref && ref->round && ref->round == how_to_adopt().look_round ? ref->task_id : 0;
}

/* Working directory, root, user and shared structures of adopted tasks. */
SEC("iter/task")
int places(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct rec_place rec = {};
	__u32 zero = 0, one = 1, id, cut, cwd_bytes, root_bytes;
	struct fs_struct *fs;
	char *cwd, *root;

	if (!task)
		return 0;
	id = to_look_at(task);
	fs = task->fs;
	cwd = bpf_map_lookup_elem(&snapshot_scratch, &zero);
	root = bpf_map_lookup_elem(&snapshot_scratch, &one);
	if (!id || !fs || !cwd || !root)
		return 0;
	rec.task_id = id;
	rec.files = (__u64)task->files;
	rec.fs = (__u64)fs;
	rec.mm = (__u64)task->mm;
	rec.cgroup = cgroup_of(task);
	rec.umask = fs->umask;
	rec.uid = task->cred->euid.val;
	rec.gid = task->cred->egid.val;
	rec.in_user_ns = BPF_CORE_READ(task, cred, user_ns, level) > 0;
	BPF_CORE_READ_INTO(&rec.capabilities, task, cred, cap_effective);
	cwd_bytes = walk_path(cwd, fs->pwd.mnt, fs->pwd.dentry, &cut);
	root_bytes = walk_path(root, fs->root.mnt, fs->root.dentry, &cut);
	rec.cwd_bytes = cwd_bytes;
	rec.root_bytes = root_bytes;
	begin_listed(&rec.hdr, REC_PLACE, sizeof(rec) + cwd_bytes + root_bytes);
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	write_path(ctx->meta->seq, cwd, cwd_bytes);
	write_path(ctx->meta->seq, root, root_bytes);
	return 0;
}

/* Descriptors of adopted processes, and of threads with their own table. */
SEC("iter/task_file")
int descriptors(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct rec_fd rec = {};
	struct dentry *real;
	unsigned long *bits, word = 0;
	struct inode *inode;
	__u32 zero = 0, one = 1, id, cut, len, fs_len;
	char *path, *fs_path;

	if (!task || !file || (task->pid != task->tgid && task->files == task->group_leader->files))
		return 0;
	id = to_look_at(task);
	path = bpf_map_lookup_elem(&snapshot_scratch, &zero);
	fs_path = bpf_map_lookup_elem(&snapshot_scratch, &one);
	inode = file->f_inode;
	if (!id || !path || !fs_path || !inode)
		return 0;
	rec.task_id = id;
	rec.fd = ctx->fd;
	rec.ofd = (__u64)file;
	identify(inode, &rec.file);
	identify_more(inode, file->f_path.dentry, &rec.more, &real);
	rec.sb_dev = inode->i_sb->s_dev;
	rec.mode = inode->i_mode;
	rec.size_bytes = inode->i_size;
	rec.offset_bytes = file->f_pos;
	rec.open_flags = file->f_flags;
	bits = task->files->fdt->close_on_exec;
	bpf_probe_read_kernel(&word, sizeof(word), bits + ctx->fd / 64);
	rec.cloexec = (word >> (ctx->fd % 64)) & 1;
	len = walk_path(path, file->f_path.mnt, file->f_path.dentry, &cut);
	rec.path_bytes = len;
	rec.path_cut = cut;
	fs_len = len ? walk_fs_path(fs_path, file, real) : 0;
	rec.more.fs_path_bytes = fs_len;
	begin_listed(&rec.hdr, REC_FD, sizeof(rec) + len + fs_len);
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	write_path(ctx->meta->seq, path, len);
	write_path(ctx->meta->seq, fs_path, fs_len);
	return 0;
}

/* File mappings of adopted processes. */
SEC("iter/task_vma")
int mappings(struct bpf_iter__task_vma *ctx)
{
	struct task_struct *task = ctx->task;
	struct vm_area_struct *vma = ctx->vma;
	struct rec_map rec = {};
	struct dentry *real;
	__u32 zero = 0, one = 1, id, cut, len, fs_len;
	struct inode *inode;
	struct file *file;
	char *path, *fs_path;

	if (!task || !vma || task->pid != task->tgid)
		return 0;
	file = vma->vm_file;
	id = to_look_at(task);
	path = bpf_map_lookup_elem(&snapshot_scratch, &zero);
	fs_path = bpf_map_lookup_elem(&snapshot_scratch, &one);
	if (!id || !path || !fs_path || !file)
		return 0;
	inode = file->f_inode;
	if (!inode)
		return 0;
	rec.task_id = id;
	rec.start = vma->vm_start;
	rec.len_bytes = vma->vm_end - vma->vm_start;
	rec.offset_bytes = (__u64)vma->vm_pgoff << page_shift;
	rec.vm_flags = vma->vm_flags;
	identify(inode, &rec.file);
	identify_more(inode, file->f_path.dentry, &rec.more, &real);
	rec.sb_dev = inode->i_sb->s_dev;
	rec.mode = inode->i_mode;
	rec.size_bytes = inode->i_size;
	len = walk_path(path, file->f_path.mnt, file->f_path.dentry, &cut);
	rec.path_bytes = len;
	fs_len = len ? walk_fs_path(fs_path, file, real) : 0;
	rec.more.fs_path_bytes = fs_len;
	begin_listed(&rec.hdr, REC_MAP, sizeof(rec) + len + fs_len);
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	write_path(ctx->meta->seq, path, len);
	write_path(ctx->meta->seq, fs_path, fs_len);
	return 0;
}

/* Operations that found no space and wait in the state of their stopped threads (--lossless). */
SEC("iter/task")
int held(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct task_state *st;
	struct long_op *lo;
	long failed;
	__u32 len;

	if (!task)
		return 0;
	st = recorded(task);
	if (!st || __sync_val_compare_and_swap(&st->held, 1, 0) != 1)
		return 0;
	len = st->op.hdr.len_bytes;
	if (st->op.hdr.type == REC_OP_LONG && st->long_paths) {
		lo = bpf_task_storage_get(&long_ops, task, 0, 0);
		if (!lo)
			return 0;
		failed = bpf_seq_write(ctx->meta->seq, lo, sizeof(lo->op) + sizeof(lo->tail));
		if (!failed)
			failed = list_strings(ctx->meta->seq, task, lo, &lo->tail);
	} else {
		if (len > SHORT_RECORD_BYTES)
			return 0;
		failed = bpf_seq_write(ctx->meta->seq, &st->op, len);
	}
	/* The kernel calls again with a larger buffer. */
	if (failed)
		st->held = 1;
	return 0;
}

/* Operations in flight, and the last fault of each thread. */
SEC("iter/task")
int in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	const struct call_desc *desc;
	struct fault_wait *touch;
	struct task_state *st;
	struct long_op *lo;
	__u32 len = 0;
	__u16 nr;

	if (!task)
		return 0;
	st = recorded(task);
	if (!st)
		return 0;
	touch = bpf_task_storage_get(&faults, task, 0, 0);
	if (touch && touch->rec.start_ns) {
		begin_listed(&touch->rec.hdr, REC_FAULT, sizeof(touch->rec));
		touch->rec.hdr.end_ns = touch->rec.start_ns;
		bpf_seq_write(ctx->meta->seq, &touch->rec, sizeof(touch->rec));
	}
	if (!st->in_call)
		return 0;
	nr = st->in_call - 1;
	if (nr >= WIRE_CALLS)
		return 0;
	desc = desc_of(nr, st->op.flags & OPF_COMPAT);
	/* Whether it receives descriptors is not known yet. */
	if (is_message(desc) && desc->out)
		return 0;
	st->op.task_id = st->task_id;
	st->op.hdr.end_ns = st->start_ns;
	st->op.dur_ns = 0;
	st->op.hdr.type = is_long(&st->op, desc) ? REC_OP_LONG : REC_OP;
	if (is_long(&st->op, desc))
		len = sizeof(st->tail) + strings_bytes(&st->tail);
	st->op.hdr.len_bytes = sizeof(st->op) + len;
	bpf_seq_write(ctx->meta->seq, &st->op, sizeof(st->op));
	if (!len)
		return 0;
	bpf_seq_write(ctx->meta->seq, &st->tail, sizeof(st->tail));
	len -= sizeof(st->tail);
	if (!st->long_paths && len <= sizeof(st->paths)) {
		bpf_seq_write(ctx->meta->seq, st->paths, len);
		return 0;
	}
	lo = bpf_task_storage_get(&long_ops, task, 0, 0);
	if (lo)
		list_strings(ctx->meta->seq, task, lo, &st->tail);
	return 0;
}

#endif
