/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Completions of io_uring requests, and other events of rings: overflows and setup. */
#ifndef IOREEL_URING_COMPLETE_H
#define IOREEL_URING_COMPLETE_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/contents.bpf.h"
#include "inflight/uring_entry.bpf.h"
#include "inflight/uring_requests.bpf.h"
#include "uring/submit.bpf.h"

/* Reads what is known only after the request was executed. */
static __always_inline void uring_look_after(struct uring_scratch *s, struct rec_uring *r, struct io_kiocb *req,
					     __u64 now_ns)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct io_ring_ctx *ctx = (void *)r->ring;
	__u8 opcode = sqe_opcode(r);
	struct file *file = NULL;

	if (opcode == URING_OPENAT || opcode == URING_OPENAT2) {
		__u32 slot = sqe_file_index(r);

		if (r->res < 0)
			return;
		if (slot)
			file = uring_slot(ctx, slot == FILE_INDEX_ALLOC ? r->res : slot - 1);
		else
			file = file_of_fd(task, r->res);
		if (!file)
			return;
		/* As in the record of the call: the result of an open is the first file, and the directory the
		 * second. */
		if (r->flags & URF_DIR) {
			r->flags &= ~(URF_DIR | URF_APPEND);
			uring_second(r);
		}
		if (peek(file, f_mode) & FMODE_CREATED)
			r->flags |= URF_CREATED;
		about_to_note(&s->cache, file);
		uring_set_file(s, r, file, URF_FILE, now_ns);
		return;
	}
	if (opcode == URING_STATX) {
		__u64 buffer = r->sqe[1];
		__u16 mode = 0;

		if (r->res)
			return;
		/* Offsets of stx_mode and stx_size in struct statx. */
		if (bpf_probe_read_user(&mode, sizeof(mode), (void *)(buffer + 28)) ||
		    bpf_probe_read_user(&r->extra[1], 8, (void *)(buffer + 40)))
			r->flags |= URF_USER_FAULT;
		r->extra[0] = mode;
		return;
	}
	if (!uring_is(uring_fd_ops, opcode) || (r->flags & URF_REFUSED))
		return;
	/* In a chain, the previous request may have opened the descriptor; now the file is certain. */
	file = peek(req, file);
	if (!file)
		return;
	if ((__u64)file != r->ofd) {
		r->flags &= ~URF_APPEND;
		uring_set_file(s, r, kernel_cast(struct file, file), URF_FILE, now_ns);
	}
	r->pos_after = peek(kernel_cast(struct kiocb, req), ki_pos);
	r->flags |= URF_CURRENT;
}

/* Sends a request that must have ended because the one linked to it has completed. */
static long uring_before_step(__u32 i, void *context)
{
	__u64 *key = context, at = *key;
	struct uring_slot *slot;

	if (!at)
		return 1;
	slot = uring_find((void *)at);
	if (!slot || !(sqe_flags(&slot->state.rec) & IOSQE_CQE_SKIP_SUCCESS))
		return 1;
	*key = slot->state.before;
	uring_send_silent(&slot->state, (void *)at, true, bpf_ktime_get_ns());
	uring_free((void *)at, slot);
	return 0;
}

#define MAX_LINK 1024

static __always_inline void uring_completed(struct io_kiocb *req, __s32 res, __u32 cflags, bool again)
{
	struct uring_slot *slot = uring_find(req);
	struct uring_scratch *s;
	__u64 now_ns, before;
	struct rec_uring *r;
	__u32 zero = 0;

	if (!slot || !ops_active)
		return;
	s = bpf_map_lookup_elem(&uring_scratch, &zero);
	if (!s)
		return;
	if (again)
		count_caught(SECOND_URING_COMPLETE);
	now_ns = bpf_ktime_get_ns();
	r = &slot->state.rec;
	r->res = res;
	r->cflags = cflags;
	r->done_ns = now_ns;
	before = slot->state.before;
	uring_look_after(s, r, req, now_ns);
	if (content_limit && uring_writes(sqe_opcode(r))) {
		struct file *file = peek(req, file);

		/* For a write to a file without contents, only removes the note. */
		if (file && !has_content(peek(kernel_cast(struct file, file), f_inode)))
			res = 0;
		if (content_later(0, *(volatile __u64 *)&r->req, r->task_id, res, now_ns))
			r->flags |= URF_CONTENT;
	}
	uring_send(&slot->state, now_ns);
	uring_free(req, slot);
	if (before)
		bpf_loop(MAX_LINK, uring_before_step, &before, 0);
}

static __always_inline void uring_further(__u32 cflags)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l && (cflags & IORING_CQE_F_MORE) && recorded_id(bpf_get_current_task_btf()))
		l->uring_more++;
}

/* Completions without a request belong to multishot requests. */
SEC("tp_btf/io_uring_complete")
int ATOMIC_PROG(uring_complete, struct io_ring_ctx *ring, void *req, struct io_uring_cqe *cqe)
{
	if (!req)
		uring_further(cqe->flags);
	else
		uring_completed(kernel_cast(struct io_kiocb, req), cqe->res, cqe->flags, false);
	return 0;
}

/* A request that the first of the two programs has sent is no longer found. */
SEC("tp_btf/io_uring_complete")
int ATOMIC_PROG(uring_complete_again, struct io_ring_ctx *ring, void *req, struct io_uring_cqe *cqe)
{
	if (req)
		uring_completed(kernel_cast(struct io_kiocb, req), cqe->res, cqe->flags, true);
	return 0;
}

/* Before 6.17 (2f076a453f75) the fields of the completion were arguments. */
SEC("tp_btf/io_uring_complete")
int ATOMIC_PROG(uring_complete_old, void *ring, void *req, __u64 user_data, int res, unsigned int cflags)
{
	if (!req)
		uring_further(cflags);
	else
		uring_completed(kernel_cast(struct io_kiocb, req), res, cflags, false);
	return 0;
}

/* User space finds the request by ring and user_data. */
SEC("tp_btf/io_uring_cqe_overflow")
int ATOMIC_PROG(uring_overflow, void *ring, unsigned long long user_data, s32 res, u32 cflags)
{
	struct rec_uring_ring rec = {};
	bool on_behalf;

	if (!ops_active || !uring_submitter(bpf_get_current_task_btf(), ring, &on_behalf))
		return 0;
	rec.ring = (__u64)ring;
	rec.user_data = user_data;
	rec.fd = res;
	rec.flags = cflags;
	emit_fixed(&rec, REC_URING_OVERFLOW, CLASS_URING_FACTS, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/io_uring_create")
int ATOMIC_PROG(uring_create, int fd, void *ring, u32 sq_entries, u32 cq_entries, u32 flags)
{
	__u32 id = recorded_id(bpf_get_current_task_btf());
	struct rec_uring_ring rec = {};
	__u64 key = (__u64)ring;

	if (!id)
		return 0;
	if (flags & IORING_SETUP_SQPOLL)
		bpf_map_update_elem(&uring_owners, &key, &id, BPF_ANY);
	if (!ops_active)
		return 0;
	rec.ring = key;
	rec.task_id = id;
	rec.fd = fd;
	rec.flags = flags;
	rec.sq_entries = sq_entries;
	rec.cq_entries = cq_entries;
	emit_fixed(&rec, REC_URING_RING, CLASS_URING_FACTS, bpf_ktime_get_ns());
	return 0;
}

#endif
