/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Stores operations in this CPU's ring of shared memory (`op_rings`). */
#ifndef IOREEL_OP_RING_H
#define IOREEL_OP_RING_H

#include "base/wire.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"

/* Stores a numbered operation in this CPU's ring; false if the ring is full. */
static __always_inline bool put_short(struct op_ring *r, const struct rec_op *op, __u32 cpu)
{
	__u32 next = r->next, at = cpu * op_ring_records + next;
	struct rec_op *place = bpf_map_lookup_elem(&op_rings, &at);

	if (unlikely(!place || r->head - *(volatile __u64 *)&r->tail >= op_ring_records))
		return false;
	*place = *op;
	r->next = next + 1 < op_ring_records ? next + 1 : 0;
	publish(r->head, r->head + 1);
	return true;
}

/* Maximum number of slots of an operation with a tail; with longer paths it goes through `rings`. */
#define MAX_PLACES 5
_Static_assert(MAX_PLACES * sizeof(struct rec_op) <= SHORT_RECORD_BYTES, "places are copied whole");

/*
 * Stores an operation with its tail and short paths in as many slots as needed; its length is rounded up to whole
 * slots. Returns 0 if there is no space. A global function, which is verified once.
 */
__noinline int put_places(struct op_ring *r, struct task_state *st, __u32 cpu, __u32 count)
{
	__u32 next;
	int i;

	if (!r || !st || count > MAX_PLACES)
		return 0;
	if (r->head - *(volatile __u64 *)&r->tail + count > op_ring_records)
		return 0;
	next = r->next;
	st->op.hdr.len_bytes = count * sizeof(struct rec_op);
#pragma unroll
	for (i = 0; i < MAX_PLACES; i++) {
		__u32 at = cpu * op_ring_records + next;
		struct rec_op *place;

		if (i >= count)
			break;
		place = bpf_map_lookup_elem(&op_rings, &at);
		if (!place)
			return 0;
		*place = *(struct rec_op *)((char *)&st->op + i * sizeof(struct rec_op));
		next = next + 1 < op_ring_records ? next + 1 : 0;
	}
	r->next = next;
	publish(r->head, r->head + count);
	return 1;
}

static __always_inline bool put_tailed(struct op_ring *r, struct task_state *st, __u32 cpu)
{
	__u32 len = st->op.hdr.len_bytes, count = (len + sizeof(struct rec_op) - 1) / sizeof(struct rec_op);
	void *ring;

	if (likely(count <= MAX_PLACES))
		return put_places(r, st, cpu, count);
	ring = cpu_ring(cpu);
	return ring && len <= SHORT_RECORD_BYTES && !bpf_ringbuf_output(ring, &st->op, len, BPF_RB_NO_WAKEUP);
}

#endif
