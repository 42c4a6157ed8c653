/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Sends the records of a bio that has ended: one, or one per file if it carries data of several files. */
#ifndef IOREEL_BIO_ROWS_H
#define IOREEL_BIO_ROWS_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "inflight/bios.bpf.h"
#include "block/attribute_files.bpf.h"
#include "block/attribute_btrfs.bpf.h"

/* Sends only what is needed: most bios belong to recorded tasks and have no peek. */
static __always_inline void send_bio_row(struct cpu_ledger *l, struct rec_bio *b, __u64 now_ns)
{
	__u32 cpu = bpf_get_smp_processor_id(), len;
	void *ring = cpu_ring(cpu);

	if (!ring)
		return;
	if (unlikely(b->flags & BIOF_PEEK_LATER))
		peek_later(b);
	len = b->flags & BIOF_PEEK ? sizeof(*b)
	      : b->task_id	   ? __builtin_offsetof(struct rec_bio, comm)
				   : __builtin_offsetof(struct rec_bio, peek);
	begin_record(l, &b->hdr, cpu, REC_BIO, CLASS_BIO, len, now_ns);
	/* Each length is a constant for the verifier, in a separate call. */
	if (len == sizeof(*b))
		send_record(l, ring, b, sizeof(*b), CLASS_BIO, cpu);
	else if (len == __builtin_offsetof(struct rec_bio, comm))
		send_record(l, ring, b, __builtin_offsetof(struct rec_bio, comm), CLASS_BIO, cpu);
	else
		send_record(l, ring, b, __builtin_offsetof(struct rec_bio, peek), CLASS_BIO, cpu);
}

/* Maximum number of 4 KiB sectors in a bio of a stripe, and one for a rest. */
#define MAX_PIECES 17

struct pieces {
	struct rec_bio *b;
	__u64 now_ns;
	__u64 stripe;
	__u64 to_logical;
	__u8 flags;
};

static long piece_step(__u32 i, void *context)
{
	struct pieces *p = context;
	struct cpu_ledger *l = cpu_ledger();
	struct rec_bio *b = p->b;
	__u32 rest = 0;

	if (!l || !b)
		return 1;
	/* Resets what by_btrfs may have written. */
	b->file = (struct file_id){};
	b->file_offset_bytes = -1;
	b->sb_dev = 0;
	b->how = 0;
	b->flags = p->flags;
	b->peek[0] = STRIPE_MIXED;
	*(__u64 *)(b->peek + 8) = p->stripe;
	*(__u64 *)(b->peek + 16) = p->to_logical;
	if (i + 1 < MAX_PIECES)
		first_piece(b, &rest);
	send_bio_row(l, b, p->now_ns);
	b->sector += b->len_bytes >> 9;
	if (b->orig_dev)
		b->orig_sector += b->len_bytes >> 9;
	b->len_bytes = rest;
	return !rest;
}

/* Sends one row per file that a bio carries. A global function, which is verified once. */
__noinline int send_pieces(struct rec_bio *b, __u64 now_ns)
{
	struct pieces p = {};

	if (!b)
		return 0;
	p.b = b;
	p.now_ns = now_ns;
	p.stripe = *(__u64 *)(b->peek + 8);
	p.to_logical = *(__u64 *)(b->peek + 16);
	p.flags = b->flags;
	bpf_loop(MAX_PIECES, piece_step, &p, 0);
	return 0;
}

static __always_inline void send_bio(struct rec_bio *b, __u64 now_ns)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!l)
		return;
	if (unlikely(b->hide)) {
		if (b->hide < HIDE_COUNT)
			l->hidden_bio[b->hide]++;
	} else if (unlikely(b->flags & BIOF_PIECES)) {
		send_pieces(b, now_ns);
	} else {
		send_bio_row(l, b, now_ns);
	}
}

/*
 * Whether one record describes a request and its only bio, which is true for nearly all on disks without merging. Two
 * records would cost half as much again to send and to process.
 */
static __always_inline bool are_one(const struct rq_slot *r, const struct rec_bio *b, __u32 bytes)
{
	/* Threads that are not recorded need the field `comm`. */
	return b->task_id && !b->hide && !(b->flags & (BIOF_PEEK | BIOF_PEEK_LATER | BIOF_PIECES)) && bytes &&
	       b->len_bytes == bytes && r->len_bytes == bytes && b->sector == r->sector && b->dev == r->dev;
}

static __always_inline void send_with_rq(struct rec_bio *b, __u64 now_ns)
{
	struct cpu_ledger *l = cpu_ledger();
	__u32 cpu = bpf_get_smp_processor_id(), len = __builtin_offsetof(struct rec_bio, comm) + sizeof(struct rq_part);
	void *ring = cpu_ring(cpu);

	if (!l || !ring)
		return;
	begin_records(l, 2, &b->hdr, cpu, REC_RQ_BIO, CLASS_BLOCK, len, now_ns);
	if (!sent(ring, b, len, CLASS_BLOCK, cpu)) {
		lost_record(l, CLASS_BLOCK);
		lost_record(l, CLASS_BIO);
	}
}

/* Ends a bio whose end was not seen. What it read is not examined, because its memory may have been reused. */
static __noinline void end_unseen(struct rec_bio *b)
{
	b->flags = (b->flags & ~(BIOF_PEEK_LATER | BIOF_PIECES)) | BIOF_NO_END;
	send_bio(b, bpf_ktime_get_ns());
}

#endif
