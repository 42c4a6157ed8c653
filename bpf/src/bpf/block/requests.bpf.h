/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Block requests as the device receives them: issue, requeue and completion, and with them the ends of their bios
 * (block/bio.bpf.h).
 */
#ifndef IOREEL_REQUESTS_H
#define IOREEL_REQUESTS_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/disks.bpf.h"
#include "inflight/bios.bpf.h"
#include "kernel/loop_own.bpf.h"
#include "block/bio_rows.bpf.h"
#include "block/bio.bpf.h"

static __always_inline void hide_rq(__u32 why)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l && why < HIDE_COUNT)
		l->hidden_rq[why]++;
}

/* Ends a request whose end was not seen. */
static __noinline void rq_end_unseen(const struct rq_slot *r)
{
	struct rec_rq rec = {
	    .queue_ns = r->queue_ns,
	    .issue_ns = r->issue_ns,
	    .sector = r->sector,
	    .dev = r->dev,
	    .len_bytes = r->len_bytes,
	    .opf = r->opf,
	    .issue_cpu = r->cpu,
	    .requeues = r->requeues,
	    .no_end = 1,
	};

	if (r->hide)
		return hide_rq(r->hide);
	rec.rq_id = __sync_fetch_and_add(&next_rq_id, 1) + 1;
	emit_fixed(&rec, REC_RQ, CLASS_BLOCK, bpf_ktime_get_ns());
}

static __always_inline int rq_issued(struct request *rq, bool again)
{
	const struct rec_bio *first;
	struct rq_slot *r;
	__u32 dev;

	if (!block_active)
		return 0;
	dev = disk_dev(rq->q->disk);
	if (!is_recorded_device(dev))
		return 0;
	r = take_rq(rq, again);
	if (!r)
		return 0;
	if (again && r->settled == SETTLED_ISSUE) {
		r->settled = 0;
		return 0;
	}
	r->settled = preemptible && !again ? SETTLED_ISSUE : 0;
	if (again)
		count_caught(SECOND_RQ_ISSUE);
	if (unlikely(r->issue_ns && !r->given_back))
		rq_end_unseen(r);
	if (!r->given_back)
		r->requeues = 0;
	r->given_back = 0;
	/* The kernel's own flushes have no bio. */
	first = rq->bio ? find_bio(rq->bio) : NULL;
	r->queue_ns = first ? first->queue_ns : 0;
	r->hide = first ? first->hide : 0;
	r->dev = dev;
	r->issue_ns = bpf_ktime_get_ns();
	r->opf = rq->cmd_flags;
	r->len_bytes = rq->__data_len;
	r->sector = rq->__sector;
	r->cpu = bpf_get_smp_processor_id();
	if (vfs_kernel && r->hide == HIDE_OWN)
		note_own_read(rq, r->issue_ns);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int ATOMIC_PROG(rq_issue, struct request *rq)
{
	return rq_issued(rq, false);
}

SEC("tp_btf/block_rq_issue")
int ATOMIC_PROG(rq_issue_again, struct request *rq)
{
	return rq_issued(rq, true);
}

SEC("tp_btf/block_rq_requeue")
int ATOMIC_PROG(rq_requeue, struct request *rq)
{
	struct rq_slot *r = find_rq(rq);

	if (r) {
		r->requeues++;
		r->given_back = 1;
		r->settled = 0;
	}
	return 0;
}

struct rq_walk {
	struct bio *bio;
	__u64 rq_id; /* 0: its issue was not seen */
	__u64 now_ns;
	__u64 queue_ns; /* queue time of the earliest bio */
	__s64 left_bytes; /* rest of the bytes that this completion covers */
	__s32 error;
	__u32 dev;
	__u32 opf;
	__u32 bios;
	__u8 hide;
	__u8 keep; /* the bios end later, when the cache has been flushed */
	__u8 again;
};

static __always_inline void look(struct rq_walk *w, const struct rec_bio *b)
{
	/*
	 * With the wraparound, 0 (unknown) counts as the latest. A comparison with 0 would not work: before "bpf:
	 * verify callbacks as if they are called unknown number of times" (6.7) the verifier removes code that the
	 * first iteration does not reach.
	 */
	if (b->queue_ns - 1 < w->queue_ns - 1)
		w->queue_ns = b->queue_ns;
	if (b->hide)
		w->hide = b->hide;
}

/* Finds the earliest queue time, the number of bios, and hidden ones. */
static long look_step(__u32 i, void *context)
{
	struct rq_walk *w = context;
	struct bio *bio = w->bio;
	struct rec_bio *b;

	if (!bio)
		return 1;
	b = find_bio(bio);
	if (b)
		look(w, b);
	w->bios++;
	w->bio = BPF_CORE_READ(bio, bi_next);
	return 0;
}

/* Space for the record of an unknown bio, which does not fit on the stack. One for the first program, which the second
 * may interrupt, and one for the second. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rec_bio);
} unknown_bio SEC(".maps");

/* The file of a bio can be found until its owner is notified of the end. Who queued it and when is unknown. */
static __noinline void attribute_at_end(struct bio *bio, struct rec_bio *b)
{
	set_origin(b, bio, bio->bi_bdev);
	attribute(bio, b, NULL);
	/* `size` has grown since, so the position of this bio in the request is unknown. */
	if (b->end_io == END_DIRECT || b->end_io == END_DIRECT_F2FS)
		b->file_offset_bytes = -1;
}

static __always_inline void end_bio(struct rq_walk *w, struct bio *bio, struct bio_slot *s, __u32 size)
{
	if (likely(s)) {
		if (w->rq_id)
			s->rec.rq_id = w->rq_id;
		if (w->keep)
			return;
		s->rec.error = w->error;
		send_bio(&s->rec, w->now_ns);
		free_bio_slot(bio, s);
	} else if (w->rq_id && !w->keep) {
		/* Queued before the recording, not in the table, or the kernel skipped bio_queue. */
		__u32 at = w->again;
		struct rec_bio *unknown = bpf_map_lookup_elem(&unknown_bio, &at);

		if (!unknown)
			return;
		__builtin_memset(unknown, 0, sizeof(*unknown));
		unknown->rq_id = w->rq_id;
		unknown->dev = w->dev;
		unknown->sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
		unknown->len_bytes = size;
		unknown->opf = w->opf;
		unknown->file_offset_bytes = -1;
		unknown->error = w->error;
		if (CAN_CAST)
			attribute_at_end(kernel_cast(struct bio, bio), unknown);
		send_bio(unknown, w->now_ns);
	}
}

static long end_step(__u32 i, void *context)
{
	struct rq_walk *w = context;
	struct bio *bio = w->bio;
	__u32 size;

	if (!bio)
		return 1;
	size = BPF_CORE_READ(bio, bi_iter.bi_size);
	if (size > w->left_bytes)
		return 1;
	w->left_bytes -= size;
	end_bio(w, bio, find_bio_slot(bio), size);
	w->bio = BPF_CORE_READ(bio, bi_next);
	return 0;
}

/* Maximum number of bios in a request (BLK_MAX_SEGMENTS is 128, and merges respect it). */
#define MAX_RQ_BIOS 4096

/* The device reports where it put a zone append, whose sector was the start of the zone until now. Such bios are never
 * merged. */
static __always_inline void appended(struct rq_slot *r, struct bio_slot *s, __u64 sector)
{
	if (r && (r->opf & REQ_OP_MASK) == REQ_OP_ZONE_APPEND)
		r->sector = sector;
	if (!s || (s->rec.opf & REQ_OP_MASK) != REQ_OP_ZONE_APPEND)
		return;
	if (s->rec.orig_dev)
		s->rec.orig_sector += sector - s->rec.sector;
	s->rec.sector = sector;
}

/* Adds the fields of a request that its only bio does not have. */
static __always_inline void add_rq(struct rec_bio *b, const struct rq_slot *r, const struct rq_walk *w)
{
	struct rq_part *part = (void *)b->comm;

	b->rq_id = w->rq_id;
	b->error = w->error;
	part->issue_ns = r->issue_ns;
	part->opf = r->opf;
	part->issue_cpu = r->cpu;
	part->requeues = r->requeues < 0xffff ? r->requeues : 0xffff;
}

/* Not inlined, so that its stack is free again when bios are sent. */
static __noinline void send_rq(const struct rq_slot *r, const struct rq_walk *w, __u32 len_bytes)
{
	struct rec_rq rec = {
	    .rq_id = w->rq_id,
	    .queue_ns = w->queue_ns,
	    .issue_ns = r->issue_ns,
	    .sector = r->sector,
	    .dev = r->dev,
	    .len_bytes = len_bytes,
	    .opf = r->opf,
	    .error = w->error,
	    .issue_cpu = r->cpu,
	    .requeues = r->requeues,
	    .bios = w->bios,
	};

	emit_fixed(&rec, REC_RQ, CLASS_BLOCK, w->now_ns);
}

/*
 * Handles the completion of a request or a part of it. Returns whether the request continues.
 *
 * Long because the ends of its bios, of a part, and of the whole share the walk over the bios, which can be made only
 * once.
 */
static __always_inline bool rq_completed(struct request *rq, int error, unsigned int bytes, bool again)
{
	struct bio *first = rq->bio;
	struct bio_slot *s = NULL;
	struct rq_walk walk = {};
	struct rq_slot *r;
	bool many, one = false, goes_on = false;

	/* Nothing was transferred; the driver (SCSI) reports this before it retries or gives up. */
	if (!bytes && !error && rq->__data_len)
		return true;
	r = find_rq(rq);
	if (again && r && r->settled == SETTLED_PART) {
		r->settled = 0;
		return false;
	}
	/* Everything is recorded, or the bios wait for the flush. */
	if (again && !r && (!first || (rq->rq_flags & rqf_flush_seq) || !find_bio_slot(first)))
		return false;
	if (!r && !first)
		return false;
	if (again)
		count_caught(SECOND_RQ_COMPLETE);
	many = first && first->bi_next;
	if (unlikely(many)) {
		walk.bio = first;
		bpf_loop(MAX_RQ_BIOS, look_step, &walk, 0);
	} else if (first) {
		s = find_bio_slot(first);
		if (s)
			look(&walk, &s->rec);
		walk.bios = 1;
	}
	walk.now_ns = bpf_ktime_get_ns();
	walk.again = again;
	walk.error = error;
	walk.bio = first;
	walk.left_bytes = bytes;
	/* If the bios are younger than the issue, the slot belongs to an earlier request at this address. */
	if (unlikely(r && (r->given_back || walk.queue_ns > r->issue_ns))) {
		if (!r->given_back)
			rq_end_unseen(r);
		r->key = 0;
		r = NULL;
	}
	if (!many && !error)
		appended(r, s, rq->__sector);
	if (r) {
		walk.dev = r->dev;
		walk.opf = r->opf;
		/* A flush follows the data; only then do the bios end. */
		walk.keep = bytes && (rq->rq_flags & rqf_flush_seq) && !error;
		/* Completion in parts: the first part is this request; the rest follows as another request. */
		goes_on =
		    bytes && bytes < r->len_bytes && bytes < rq->__data_len && (r->opf & REQ_OP_MASK) <= REQ_OP_WRITE;
		if (walk.hide)
			hide_rq(walk.hide);
		else
			walk.rq_id = __sync_fetch_and_add(&next_rq_id, 1) + 1;
		one = s && walk.rq_id && !walk.keep && are_one(r, &s->rec, bytes);
		if (likely(one))
			add_rq(&s->rec, r, &walk);
		else if (walk.rq_id)
			send_rq(r, &walk, goes_on ? bytes : r->len_bytes);
		if (goes_on) {
			r->sector += bytes >> 9;
			r->len_bytes -= bytes;
			r->settled = again ? 0 : SETTLED_PART;
		} else {
			r->key = 0;
		}
	}
	if (likely(one)) {
		send_with_rq(&s->rec, walk.now_ns);
		free_bio_slot(first, s);
	} else if (unlikely(many)) {
		bpf_loop(MAX_RQ_BIOS, end_step, &walk, 0);
	} else if (first) {
		__u32 size = first->bi_iter.bi_size;

		if (size <= bytes)
			end_bio(&walk, first, s, size);
	}
	return goes_on;
}

/*
 * The second program runs after the first on the same CPU. The first notes which request it has recorded completely,
 * because searching the table for a request that is no longer there is expensive. If the kernel skipped the first
 * program, because it was already running, there is no note.
 */
SEC("tp_btf/block_rq_complete")
int ATOMIC_PROG(rq_complete, struct request *rq, int error, unsigned int bytes)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!block_active || !l)
		return 0;
	l->told_rq = 0;
	if (!rq_completed(rq, error, bytes, false))
		l->told_rq = (__u64)rq;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int ATOMIC_PROG(rq_complete_again, struct request *rq, int error, unsigned int bytes)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!block_active || !l)
		return 0;
	if (!preemptible && l->told_rq == (__u64)rq)
		l->told_rq = 0;
	else
		rq_completed(rq, error, bytes, true);
	return 0;
}

#endif
