/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Submission of io_uring requests. The fields come from the submission queue entry, whose layout is stable ABI, not
 * from the kernel's internal copies, which move between releases. A request is kept from submission to completion and
 * sent as one record. Other threads, other CPUs or the kernel's workers may complete it.
 *
 * Two kinds of completions fire no tracepoint that names the request: those that are not posted
 * (IOSQE_CQE_SKIP_SUCCESS), and those that overflow the completion queue. Such a request is sent when it must have
 * ended: when its memory is reused, when a request linked to it has completed, or at the end of the recording.
 */
#ifndef IOREEL_URING_SUBMIT_H
#define IOREEL_URING_SUBMIT_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/lossless.bpf.h"
#include "ops/filters.bpf.h"
#include "ops/user_memory.bpf.h"
#include "ops/contents.bpf.h"
#include "inflight/uring_entry.bpf.h"
#include "inflight/uring_requests.bpf.h"

/* Reads the paths of an entry and sends them in a separate record at once. */
static __always_inline void uring_paths(struct uring_scratch *s, struct rec_uring *r, __u64 path, __u64 path2,
					__u64 now_ns)
{
	__u32 used = 0, len, cpu = bpf_get_smp_processor_id();
	struct cpu_ledger *l = cpu_ledger();
	void *ring = cpu_ring(cpu);
	long n;

	if (!l || !ring)
		return;
	s->paths.start_ns = r->start_ns;
	s->paths.req = r->req;
	s->paths.path_bytes = s->paths.path2_bytes = 0;
	s->paths.fault = 0;
	if (path) {
		n = bpf_probe_read_user_str(s->names, WIRE_PATH_BYTES, (void *)path);
		if (n >= 0 && n <= WIRE_PATH_BYTES)
			used = string_bytes(n);
		else
			s->paths.fault |= 1;
		s->paths.path_bytes = used;
	}
	if (path2) {
		barrier_var(used); /* as in read_paths() */
		n = bpf_probe_read_user_str(s->names + (used & (WIRE_PATH_BYTES - 1)), WIRE_PATH_BYTES, (void *)path2);
		if (n >= 0 && n <= WIRE_PATH_BYTES)
			s->paths.path2_bytes = string_bytes(n);
		else
			s->paths.fault |= 2;
	}
	if (s->paths.fault)
		l->path_faults++;
	len = sizeof(s->paths) + (s->paths.path_bytes & (WIRE_PATH_BYTES - 1)) +
	      (s->paths.path2_bytes & (WIRE_PATH_BYTES - 1));
	if (len > sizeof(s->paths) + sizeof(s->names))
		return;
	begin_record(l, &s->paths.hdr, cpu, REC_URING_PATHS, CLASS_URING_FACTS, len, now_ns);
	send_record(l, ring, &s->paths, len, CLASS_URING_FACTS, cpu);
	r->flags |= URF_PATHS;
}

/* Reads the user memory that the entry points to, as far as columns need it. A global function: see tell_file. */
__noinline int uring_read_user(struct uring_scratch *s, struct rec_uring *r, __u32 opcode, __u64 now_ns)
{
	__u64 addr2, addr, addr3;

	if (!s || !r)
		return 0;
	addr2 = r->sqe[1];
	addr = r->sqe[2];
	addr3 = r->sqe[6];
	if (uring_is(uring_vector_ops, opcode)) {
		struct iovec_sum sum = {.base = addr, .count = sqe_len(r) > MAX_IOVECS ? 0 : sqe_len(r)};

		bpf_loop(MAX_IOVECS, iovec_step, &sum, 0);
		r->extra[0] = sum.sum;
		if (sum.fault)
			r->flags |= URF_USER_FAULT;
	} else if (opcode == URING_OPENAT2) {
		__u64 how[3] = {};

		if (bpf_probe_read_user(how, sizeof(how), (void *)addr2))
			r->flags |= URF_USER_FAULT;
		/* Replaces the pointers, which are no longer needed. */
		r->sqe[1] = how[0];
		r->sqe[2] = how[1];
		r->sqe[6] = how[2];
	}
	if (!uring_is(uring_path3_ops | uring_path_ops, opcode))
		return 0;
	if (uring_is(uring_path3_ops, opcode)) {
		addr2 = addr;
		addr = addr3;
	} else if (!uring_is(uring_path2_ops, opcode)) {
		addr2 = 0;
	}
	uring_paths(s, r, addr, addr2, now_ns);
	return 0;
}

/* Id of the submitter: a recorded thread, or (`on_behalf`) the task for which the ring's kernel thread submits. */
static __always_inline __u32 uring_submitter(struct task_struct *task, struct io_ring_ctx *ctx, bool *on_behalf)
{
	__u32 *owner, id = recorded_id(task);
	__u64 key = (__u64)ctx;

	*on_behalf = !id;
	if (id || !(task->flags & PF_IO_WORKER))
		return id;
	owner = bpf_map_lookup_elem(&uring_owners, &key);
	return owner ? *owner : recorded_id(task->group_leader);
}

/* Notes the buffers of a write for --content. In a chain, the file may be opened by the previous request. */
static __always_inline void uring_note_write(struct io_ring_ctx *ctx, const struct rec_uring *r)
{
	struct task_struct *task = bpf_get_current_task_btf();
	/* Read back from memory it is a number, no longer a pointer. */
	__u64 req = *(const volatile __u64 *)&r->req;
	__u8 opcode = sqe_opcode(r);

	if (!uring_writes(opcode))
		return;
	if ((r->flags & URF_FILE) && !has_content(peek(kernel_cast(struct file, (void *)r->ofd), f_inode)))
		return;
	/* Buffers registered by another process are not at these addresses here. */
	if ((opcode == URING_WRITE_FIXED || opcode == URING_WRITEV_FIXED) && ctx->mm_account != task->mm) {
		struct cpu_ledger *l = cpu_ledger();

		if (l)
			__sync_fetch_and_add(&l->content_unread, 1);
		return;
	}
	if (opcode == URING_WRITE || opcode == URING_WRITE_FIXED)
		note_write(0, req, r->sqe[2], 0);
	else if (sqe_len(r))
		note_write(0, req, r->sqe[2], sqe_len(r));
}

/*
 * A request is submitted: makes a record in flight, or one that ends at once if the request was refused.
 *
 * Long because it goes through the fields of an entry in sequence.
 */
static __always_inline void uring_submitted(struct io_kiocb *req, const struct io_uring_sqe *entry, bool refused,
					    bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct io_ring_ctx *ctx = req->ctx;
	struct uring_scratch *s;
	struct uring_slot *slot;
	struct cpu_ledger *l;
	struct file *file = NULL;
	struct rec_uring *r;
	bool on_behalf;
	__u64 now_ns;
	__u32 zero = 0, task_id, opcode = req->opcode;

	if (!ops_active)
		return;
	task_id = uring_submitter(task, ctx, &on_behalf);
	slot = task_id || uring_met ? uring_find(req) : NULL;
	if (!task_id && !slot)
		return;
	l = cpu_ledger();
	s = bpf_map_lookup_elem(&uring_scratch, &zero);
	if (!l || !s)
		return;
	now_ns = bpf_ktime_get_ns();
	if (again && slot && slot->state.settled) {
		slot->state.settled = 0;
		return;
	}
	/* The memory is reused, so the earlier request there has ended. */
	if (slot) {
		uring_send_silent(&slot->state, req, slot->state.rec.ring == (__u64)ctx, now_ns);
		uring_free(req, slot);
	}
	/* Submitted by a program that is not recorded. */
	if (!task_id)
		return;
	if (!uring_is(uring_rows, opcode)) {
		if (!again)
			l->uring_other++;
		return;
	}
	slot = uring_take(req);
	if (!slot) {
		if (!again)
			uring_lose();
		return;
	}
	uring_met = true;
	slot->state.settled = preemptible && !again && !refused;
	if (again)
		count_caught(SECOND_URING_SUBMIT);
	slot->state.before = slot->state.last = 0;
	r = &slot->state.rec;
	r->hdr.cpu = bpf_get_smp_processor_id(); /* for a request that never ends */
	r->start_ns = now_ns;
	r->done_ns = 0;
	r->req = (__u64)req;
	r->ofd = 0;
	r->file = (struct file_id){};
	r->pos_after = 0;
	r->extra[0] = r->extra[1] = r->extra[2] = 0;
	r->res = 0;
	r->cflags = 0;
	r->flags = 0;
	r->ring = (__u64)ctx;
	r->task_id = task_id;
	if (on_behalf)
		r->flags |= URF_SQPOLL;
	/* The ring's kernel thread has its own name, so that of the process is used. */
	if (other_thread(on_behalf ? task->group_leader : task))
		r->flags |= URF_OTHER_THREAD;
	if (refused)
		r->flags |= URF_REFUSED;
	if (!entry) {
		/* Finds the entry like io_get_sqe (io_uring/io_uring.c); the head has advanced by one since. */
		__u32 setup = ctx->flags, last = ctx->sq_entries - 1;
		__u32 head = (ctx->cached_sq_head - 1) & last;
		u32 *array = ctx->sq_array;

		if (!(setup & IORING_SETUP_NO_SQARRAY) && array)
			head = (__u32)uring_word(array + head);
		head &= last;
		if (setup & IORING_SETUP_SQE128)
			head <<= 1;
		/* Calculated as numbers: the verifier rejects adding an unbounded number to a pointer. */
		entry = (void *)(uring_word(&ctx->sq_sqes) + head * 64ull);
	}
#pragma unroll
	for (int i = 0; i < 8; i++)
		r->sqe[i] = uring_word((const __u64 *)entry + i);
	if (sqe_opcode(r) != opcode || r->sqe[4] != req->cqe.user_data) {
		r->flags |= URF_CHANGED;
		r->sqe[0] = (r->sqe[0] & ~0xffull) | opcode;
		r->sqe[4] = req->cqe.user_data;
	}

	if (uring_is(uring_dir_ops, opcode) && sqe_fd(r) != AT_FDCWD) {
		file = file_of_fd(task, sqe_fd(r));
		if (file)
			uring_set_file(s, r, file, URF_DIR, now_ns);
	} else if (opcode == URING_CLOSE) {
		__u32 slot = sqe_file_index(r);

		file = uring_file(ctx, task, slot ? (__s32)slot - 1 : sqe_fd(r), slot);
	} else if (uring_is(uring_fd_ops, opcode)) {
		file = uring_file(ctx, task, sqe_fd(r), sqe_flags(r) & IOSQE_FIXED_FILE);
	}
	if (file && !(r->flags & URF_DIR))
		uring_set_file(s, r, file, URF_FILE, now_ns);
	file = NULL;
	if (uring_is(uring_splice_ops, opcode))
		file = uring_file(ctx, task, sqe_file_index(r), sqe_op_flags(r) & SPLICE_F_FD_IN_FIXED);
	else if (uring_is(uring_dir2_ops, opcode) && (__s32)sqe_len(r) != AT_FDCWD)
		file = file_of_fd(task, sqe_len(r));
	if (file) {
		__u64 ofd = r->ofd;
		struct file_id id = r->file;

		uring_set_file(s, r, file, URF_FILE2, now_ns);
		uring_second(r);
		r->ofd = ofd;
		r->file = id;
	}
	uring_read_user(s, r, opcode, now_ns);
	if (content_limit)
		uring_note_write(ctx, r);
	/* A thread that uses a polled submission queue may make no calls, so it is held here. */
	if (on_behalf)
		hold_if_filling(task_id);
}

SEC("tp_btf/io_uring_submit_req")
int ATOMIC_PROG(uring_submit, struct io_kiocb *req)
{
	uring_submitted(req, NULL, false, false);
	return 0;
}

/* Second program, as in the block layer (block/bio.bpf.h). */
SEC("tp_btf/io_uring_submit_req")
int ATOMIC_PROG(uring_submit_again, struct io_kiocb *req)
{
	uring_submitted(req, NULL, false, true);
	return 0;
}

/* Name of the tracepoint before 6.4 (3e9665ce0a8a). */
SEC("tp_btf/io_uring_submit_sqe")
int ATOMIC_PROG(uring_submit_old, struct io_kiocb *req)
{
	uring_submitted(req, NULL, false, false);
	return 0;
}

SEC("tp_btf/io_uring_req_failed")
int ATOMIC_PROG(uring_refused, const struct io_uring_sqe *sqe, struct io_kiocb *req)
{
	uring_submitted(req, sqe, true, false);
	return 0;
}

static __always_inline int uring_punted(const struct io_kiocb *req)
{
	struct uring_state *s = uring_known(req);

	if (s)
		s->rec.flags |= URF_PUNTED;
	return 0;
}

SEC("tp_btf/io_uring_queue_async_work")
int ATOMIC_PROG(uring_punt, struct io_kiocb *req)
{
	return uring_punted(req);
}

SEC("tp_btf/io_uring_queue_async_work")
int ATOMIC_PROG(uring_punt_again, struct io_kiocb *req)
{
	return uring_punted(req);
}

SEC("tp_btf/io_uring_poll_arm")
int ATOMIC_PROG(uring_poll, struct io_kiocb *req)
{
	struct uring_state *s = uring_known(req);

	if (s)
		s->rec.flags |= URF_POLLED;
	return 0;
}

SEC("tp_btf/io_uring_defer")
int ATOMIC_PROG(uring_defer, struct io_kiocb *req)
{
	struct uring_state *s = uring_known(req);

	if (s)
		s->rec.flags |= URF_DEFERRED;
	return 0;
}

SEC("tp_btf/io_uring_link")
int ATOMIC_PROG(uring_link, struct io_kiocb *req, struct io_kiocb *before)
{
	struct uring_state *s = uring_known(req), *to = uring_known(before);

	/*
	 * Up to 6.14, `before` is the first request of the chain, not the previous one, which is the one linked to it
	 * last. Later kernels never name the same request twice.
	 */
	if (s) {
		s->rec.flags |= URF_LINKED;
		s->before = to && to->last ? to->last : (__u64)before;
	}
	if (to)
		to->last = (__u64)req;
	return 0;
}

SEC("tp_btf/io_uring_fail_link")
int ATOMIC_PROG(uring_cancel, struct io_kiocb *req, struct io_kiocb *link)
{
	struct uring_state *s = uring_known(link);

	if (s && !(s->rec.flags & URF_REFUSED)) {
		s->rec.flags |= URF_CANCELLED;
		s->rec.done_ns = bpf_ktime_get_ns();
	}
	return 0;
}

#endif
