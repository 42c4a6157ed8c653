/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Linux AIO, which has no tracepoints. Requests are read from the arguments of io_submit, results from what
 * io_getevents returned. Results that a program reads directly from the shared ring are not seen.
 */
#ifndef IOREEL_AIO_H
#define IOREEL_AIO_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/user_memory.bpf.h"
#include "ops/contents.bpf.h"

/* Maximum per io_submit or io_getevents: twice the default of fs.aio-max-nr, which limits all processes together. */
#define MAX_IOCBS (1 << 17)
#define IOCB_CMD_PWRITE 1
#define IOCB_CMD_POLL 5
#define IOCB_CMD_PREADV 7
#define IOCB_CMD_PWRITEV 8

/* struct iocb, linux/aio_abi.h. */
struct aio_iocb {
	__u64 data;
	__u32 key;
	__u32 rw_flags;
	__u16 opcode;
	__s16 reqprio;
	__u32 fd;
	__u64 buf;
	__u64 nbytes;
	__s64 offset;
	__u64 reserved;
	__u32 flags;
	__u32 resfd;
};

struct aio_event {
	__u64 data;
	__u64 obj;
	__s64 res;
	__s64 res2;
};

struct aio_walk {
	struct task_state *st;
	__u64 ctx;
	__u64 at;
	__u64 now_ns;
	__u64 count;
};

/* Space for a request and its record, which do not fit on the stack. */
struct aio_scratch {
	struct rec_aio rec;
	struct aio_iocb iocb;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct aio_scratch);
} aio_scratch SEC(".maps");

/* Processes at most MAX_IOCBS; those beyond are counted. */
static __always_inline void aio_walk(struct aio_walk *w, long (*step)(__u32, void *))
{
	struct cpu_ledger *l;

	if (bpf_loop(MAX_IOCBS, step, w, 0) < MAX_IOCBS || w->count <= MAX_IOCBS)
		return;
	l = cpu_ledger();
	if (l)
		__sync_fetch_and_add(&l->aio_unread, w->count - MAX_IOCBS);
}

static long submit_step(__u32 i, void *context)
{
	struct aio_walk *w = context;
	struct iovec_sum sum = {};
	struct aio_scratch *s;
	struct aio_iocb *iocb;
	struct rec_aio *rec;
	__u32 zero = 0;
	struct task_struct *task;
	struct cpu_ledger *l;
	struct file *file;

	s = bpf_map_lookup_elem(&aio_scratch, &zero);
	if (!s || i >= w->count)
		return 1;
	rec = &s->rec;
	iocb = &s->iocb;
	__builtin_memset(rec, 0, sizeof(*rec));
	rec->ctx = w->ctx;
	if (bpf_probe_read_user(&rec->iocb, sizeof(rec->iocb), (void *)(w->at + i * 8)) ||
	    bpf_probe_read_user(iocb, sizeof(*iocb), (void *)rec->iocb)) {
		l = cpu_ledger();
		if (l)
			__sync_fetch_and_add(&l->aio_unread, 1);
		return 1;
	}
	task = bpf_get_current_task_btf();
	rec->task_id = w->st->task_id;
	rec->fd = iocb->fd;
	rec->opcode = iocb->opcode;
	rec->rw_flags = iocb->rw_flags;
	rec->offset_bytes = iocb->offset;
	rec->len_bytes = iocb->nbytes;
	if (iocb->opcode == IOCB_CMD_POLL) {
		rec->count = iocb->buf;
		rec->len_bytes = 0;
	} else if (iocb->opcode == IOCB_CMD_PREADV || iocb->opcode == IOCB_CMD_PWRITEV) {
		sum.base = iocb->buf;
		sum.count = iocb->nbytes > MAX_IOVECS ? 0 : iocb->nbytes;
		bpf_loop(MAX_IOVECS, iovec_step, &sum, 0);
		rec->count = iocb->nbytes;
		rec->len_bytes = sum.sum;
		if (sum.fault)
			rec->flags |= OPF_USER_FAULT;
	}
	file = file_of_fd(task, (int)iocb->fd);
	if (file && peek(file, f_inode)) {
		identify(peek(file, f_inode), &rec->file);
		rec->ofd = (__u64)file;
		rec->flags |= OPF_FILE;
		if (peek(file, f_flags) & O_APPEND)
			rec->flags |= OPF_APPEND;
		note_file(w->st, file, peek(file, f_inode), &rec->file, w->now_ns, false);
		if (content_limit && has_content(peek(file, f_inode))) {
			if (iocb->opcode == IOCB_CMD_PWRITE)
				note_write(w->ctx, rec->iocb, iocb->buf, 0);
			else if (iocb->opcode == IOCB_CMD_PWRITEV && iocb->nbytes)
				note_write(w->ctx, rec->iocb, iocb->buf, iocb->nbytes);
		}
	}
	emit_fixed(rec, REC_AIO, CLASS_OPS, w->now_ns);
	return 0;
}

/* Requests are recorded at entry, so that no result precedes its request. */
__noinline int aio_submitted(struct task_state *st, __u64 now_ns)
{
	struct aio_walk w = {.now_ns = now_ns};

	if (!st || (__s64)st->op.args[1] <= 0)
		return 0;
	w.st = st;
	w.ctx = st->op.args[0];
	w.at = st->op.args[2];
	w.count = st->op.args[1];
	aio_walk(&w, submit_step);
	return 0;
}

static long event_step(__u32 i, void *context)
{
	struct aio_walk *w = context;
	struct rec_aio_end rec = {.ctx = w->ctx};
	struct aio_event event = {};
	struct cpu_ledger *l;

	if (i >= w->count)
		return 1;
	if (bpf_probe_read_user(&event, sizeof(event), (void *)(w->at + i * sizeof(event)))) {
		l = cpu_ledger();
		if (l)
			__sync_fetch_and_add(&l->aio_unread, 1);
		return 0;
	}
	rec.task_id = w->st->task_id;
	rec.iocb = event.obj;
	rec.res = event.res;
	if (content_limit)
		rec.content = content_later(w->ctx, event.obj, rec.task_id, event.res, w->now_ns);
	emit_fixed(&rec, REC_AIO_END, CLASS_AIO, w->now_ns);
	return 0;
}

__noinline int aio_ended(struct task_state *st, __s64 ret, __u64 now_ns)
{
	struct aio_walk w = {.now_ns = now_ns};

	if (!st || ret <= 0)
		return 0;
	w.st = st;
	w.ctx = st->op.args[0];
	w.at = st->op.args[3];
	w.count = ret;
	aio_walk(&w, event_step);
	return 0;
}

#endif
