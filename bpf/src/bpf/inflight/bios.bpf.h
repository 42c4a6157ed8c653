/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Bios and block requests in flight, by address. The tables have slots; an address can be in one of a few slots,
 * without a lock, a copy or an allocation. A BPF hash would cost a fifth of what a bio-based device needs for 4 KiB.
 */
#ifndef IOREEL_BIOS_H
#define IOREEL_BIOS_H

#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/maps.bpf.h"
#include "base/slots.bpf.h"

#define BIO_SLOTS_BITS 14
#define RQ_SLOTS_BITS 14
struct bio_slot {
	__u64 key; /* 0: free */
	struct rec_bio rec; /* built in place between queueing and end */
	__u64 settled; /* the first of two programs has recorded the queueing, and the second has not run yet */
};

/* 16 Ki bios of 192 bytes, 3 MiB; those without a free slot go to the hash below. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << BIO_SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct bio_slot);
} bio_slots SEC(".maps");

/* 32 Ki bios, allocated as needed. If full, the information about a bio is lost, which is counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32 * 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct bio_slot);
} bios_more SEC(".maps");

/* Number of bios ever stored there. While 0, lookups in the hash are skipped. */
__u64 bios_more_used = 0;

enum settled {
	SETTLED_ISSUE = 1,
	SETTLED_PART = 2, /* completion of a part; the request continues */
};

struct rq_slot {
	__u64 key;
	__u64 queue_ns; /* of the first bio; 0: unknown */
	__u64 issue_ns;
	__u64 sector;
	__u32 len_bytes;
	__u32 dev;
	__u32 opf;
	__u32 cpu;
	__u32 requeues;
	__u32 given_back; /* 1: requeued and not issued again */
	__u32 hide; /* enum hide, of the first bio */
	__u32 settled; /* enum settled: what the first of two programs has recorded, until the second one runs */
};

/* 16 Ki requests of 64 bytes, 1 MiB; a device has some hundred. Without a free slot a request is lost, which is
 * counted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << RQ_SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct rq_slot);
} rq_slots SEC(".maps");

/* The second of two programs does not count, because the first has. */
static __always_inline void count_map_full(bool again)
{
	struct cpu_ledger *l = again ? NULL : cpu_ledger();

	if (l)
		l->map_full++;
}

static __always_inline struct bio_slot *find_bio_slot(const void *bio)
{
	__u32 first = slot_of(bio, BIO_SLOTS_BITS);
	__u64 key = (__u64)bio;

#pragma unroll
	for (__u32 i = 0; i < SLOT_TRIES; i++) {
		__u32 at = (first + i) & ((1 << BIO_SLOTS_BITS) - 1);
		struct bio_slot *s = bpf_map_lookup_elem(&bio_slots, &at);

		if (likely(s && s->key == key))
			return s;
	}
	return unlikely(bios_more_used) ? bpf_map_lookup_elem(&bios_more, &key) : NULL;
}

static __always_inline struct rec_bio *find_bio(const void *bio)
{
	struct bio_slot *s = find_bio_slot(bio);

	return s ? &s->rec : NULL;
}

struct bio_slot no_bio = {};

/*
 * Returns a slot for this bio. If its record has a queue time, it belongs to an earlier bio at this address whose end
 * was not seen: some kernels have a path that ends requests without a tracepoint.
 */
static __always_inline struct bio_slot *take_bio_slot(const void *bio, bool again)
{
	__u32 first = slot_of(bio, BIO_SLOTS_BITS);
	__u64 key = (__u64)bio;
	struct bio_slot *s;

#pragma unroll
	for (__u32 i = 0; i < SLOT_TRIES; i++) {
		__u32 at = (first + i) & ((1 << BIO_SLOTS_BITS) - 1);

		s = bpf_map_lookup_elem(&bio_slots, &at);

		if (!s)
			continue;
		if (unlikely(s->key == key))
			return s;
		if (likely(!s->key) && !__sync_val_compare_and_swap(&s->key, 0, key)) {
			s->rec.queue_ns = 0;
			s->settled = 0;
			return s;
		}
	}
	if (!bpf_map_update_elem(&bios_more, &key, &no_bio, BPF_NOEXIST))
		__sync_fetch_and_add(&bios_more_used, 1);
	s = bpf_map_lookup_elem(&bios_more, &key);
	if (!s)
		count_map_full(again);
	return s;
}

static __always_inline void free_bio_slot(const void *bio, struct bio_slot *s)
{
	__u64 key = (__u64)bio;

	if (s->key)
		s->key = 0;
	else
		bpf_map_delete_elem(&bios_more, &key);
}

static __always_inline struct rq_slot *find_rq(const void *rq)
{
	__u32 first = slot_of(rq, RQ_SLOTS_BITS);
	__u64 key = (__u64)rq;

#pragma unroll
	for (__u32 i = 0; i < SLOT_TRIES; i++) {
		__u32 at = (first + i) & ((1 << RQ_SLOTS_BITS) - 1);
		struct rq_slot *s = bpf_map_lookup_elem(&rq_slots, &at);

		if (s && s->key == key)
			return s;
	}
	return NULL;
}

/* Returns a slot for this request. If it has an issue time and was not requeued, it belongs to an earlier request, as
 * for bios. */
static __always_inline struct rq_slot *take_rq(const void *rq, bool again)
{
	__u32 first = slot_of(rq, RQ_SLOTS_BITS);
	__u64 key = (__u64)rq;

#pragma unroll
	for (__u32 i = 0; i < SLOT_TRIES; i++) {
		__u32 at = (first + i) & ((1 << RQ_SLOTS_BITS) - 1);
		struct rq_slot *s = bpf_map_lookup_elem(&rq_slots, &at);

		if (s && s->key == key)
			return s;
		if (s && !s->key && !__sync_val_compare_and_swap(&s->key, 0, key)) {
			s->given_back = 0;
			s->issue_ns = 0;
			s->settled = 0;
			return s;
		}
	}
	count_map_full(again);
	return NULL;
}

#endif
