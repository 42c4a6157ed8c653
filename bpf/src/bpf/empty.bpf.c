/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The minimum cost of any observer on a kernel without kprobes. The probes do nothing (a traced call takes the slow
 * path in and out), read the clock (as any measurement of a duration does), or send the smallest useful record, with
 * times and sizes but without identity. `make bench` compares the recorder with them.
 */
#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

const volatile bool reads_clock = false;
const volatile bool sends = false;
const volatile __u32 self_tgid = 0; /* calls of this process are not sent */

__u64 never = 0; /* never written; keeps the compiler from removing the read of the clock */
__u64 lost = 0;

struct least_record {
	__u64 key; /* thread id, or address of the bio; 0: none */
	__u64 begin_ns; /* start of the call, or queueing */
	__u64 issue_ns; /* issue of the request */
	__u64 end_ns;
	__u64 what; /* call number, or first sector */
	__s64 size; /* result of the call, or bytes */
};

#define LEAST_SLOTS_BITS 14

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << LEAST_SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct least_record);
} least_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} least_ring SEC(".maps");

static __always_inline int look(void)
{
	if (reads_clock && !bpf_ktime_get_ns())
		never++;
	return 0;
}

/* If two keys hash to the same slot, the first is lost: only the cost matters. */
static __always_inline struct least_record *slot(__u64 key)
{
	__u32 at;

	asm volatile("%0 = %1" : "=w"(at) : "w"((__u32)key));
	at = (at >> 6) * 2654435761u >> (32 - LEAST_SLOTS_BITS);

	return bpf_map_lookup_elem(&least_slots, &at);
}

static __always_inline int begin(__u64 key, __u64 what, __s64 size)
{
	struct least_record *r = slot(key);

	if (!r || !key)
		return 0;
	r->begin_ns = bpf_ktime_get_ns();
	r->issue_ns = 0;
	r->what = what;
	r->size = size;
	r->key = key;
	return 0;
}

static __always_inline struct least_record *begun(__u64 key)
{
	struct least_record *r = slot(key);

	return r && key && r->key == key ? r : NULL;
}

static __always_inline int end(struct least_record *r)
{
	if (!r)
		return 0;
	r->end_ns = bpf_ktime_get_ns();
	if (bpf_ringbuf_output(&least_ring, r, sizeof(*r), BPF_RB_NO_WAKEUP))
		lost++;
	r->key = 0;
	return 0;
}

/* Shifted, because the hash drops the low 6 bits. */
static __always_inline __u64 thread(void)
{
	__u64 id = bpf_get_current_pid_tgid();

	return id >> 32 == self_tgid ? 0 : id << 6;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(empty_enter, struct pt_regs *regs, long id)
{
	return sends ? begin(thread(), id, 0) : look();
}

SEC("tp_btf/sys_exit")
int BPF_PROG(empty_exit, struct pt_regs *regs, long ret)
{
	struct least_record *r;

	if (!sends)
		return look();
	r = begun(thread());
	if (r)
		r->size = ret;
	return end(r);
}

/* Minimum needed to record a bio or request when it is queued, issued and completed. */

SEC("tp_btf/block_bio_queue")
int BPF_PROG(empty_bio_queue, struct bio *bio)
{
	return sends ? begin((__u64)bio, bio->bi_iter.bi_sector, bio->bi_iter.bi_size) : look();
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(empty_bio_complete, struct request_queue *q, struct bio *bio)
{
	return sends ? end(begun((__u64)bio)) : look();
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(empty_rq_issue, struct request *rq)
{
	struct least_record *r;

	if (!sends)
		return look();
	r = begun((__u64)rq->bio);
	if (r)
		r->issue_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(empty_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	return sends ? end(begun((__u64)rq->bio)) : look();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
