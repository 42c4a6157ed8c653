/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Iterators: what was there before the recording began, and what is in flight when it ends. */
#ifndef IOREEL_SNAPSHOT_H
#define IOREEL_SNAPSHOT_H

/* Makes every thread of the target a recorded one and tells of it. */
SEC("iter/task")
int adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct rec_task rec = {};
	__u32 id;

	if (!task || (__u32)task->tgid != target_tgid)
		return 0;
	if (recorded_id(task))
		return 0;
	id = follow(task);
	if (!id)
		return 0;
	fill_task(&rec, task, id);
	rec.hdr.type = REC_TASK;
	rec.hdr.len_bytes = sizeof(rec);
	rec.hdr.end_ns = bpf_ktime_get_ns();
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	return 0;
}

/* Descriptors of recorded processes, with the kernel's own paths. */
SEC("iter/task_file")
int descriptors(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct rec_fd rec = {};
	unsigned long *bits, word = 0;
	struct inode *inode;
	__u32 zero = 0, id;
	char *path;
	long n;

	if (!task || !file || task->pid != task->tgid)
		return 0;
	id = recorded_id(task);
	path = bpf_map_lookup_elem(&path_scratch, &zero);
	inode = file->f_inode;
	if (!id || !path || !inode)
		return 0;
	rec.hdr.type = REC_FD;
	rec.task_id = id;
	rec.fd = ctx->fd;
	rec.ofd = (__u64)file;
	identify(inode, &rec.file);
	rec.sb_dev = inode->i_sb->s_dev;
	rec.mode = inode->i_mode;
	rec.size_bytes = inode->i_size;
	rec.offset_bytes = file->f_pos;
	rec.open_flags = file->f_flags;
	bits = task->files->fdt->close_on_exec;
	bpf_probe_read_kernel(&word, sizeof(word), bits + ctx->fd / 64);
	rec.cloexec = (word >> (ctx->fd % 64)) & 1;
	n = bpf_d_path(&file->f_path, path, WIRE_PATH_BYTES);
	if (n > 0 && n <= WIRE_PATH_BYTES)
		rec.path_bytes = n - 1;
	rec.hdr.len_bytes = sizeof(rec) + rec.path_bytes;
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	bpf_seq_write(ctx->meta->seq, path, rec.path_bytes & (WIRE_PATH_BYTES - 1));
	return 0;
}

/* Operations that have begun and not ended. */
SEC("iter/task")
int in_flight(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct call_desc desc;
	struct task_state *st;
	struct long_op *lo;
	__u32 len = 0;
	__u16 nr;

	if (!task)
		return 0;
	st = recorded(task);
	if (!st || !st->in_call)
		return 0;
	nr = st->in_call - 1;
	if (nr >= WIRE_CALLS)
		return 0;
	desc = desc_of(nr);
	st->op.task_id = st->task_id;
	st->op.hdr.end_ns = st->start_ns;
	st->op.dur_ns = 0;
	st->op.hdr.type = is_long(&desc) ? REC_OP_LONG : REC_OP;
	if (is_long(&desc))
		len = sizeof(st->tail) + (st->tail.path_bytes & (WIRE_PATH_BYTES - 1)) +
		      (st->tail.path2_bytes & (WIRE_PATH_BYTES - 1));
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
	if (lo && len <= sizeof(lo->paths))
		bpf_seq_write(ctx->meta->seq, lo->paths, len);
	return 0;
}

#endif
