/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The least that any observer costs on a kernel without kprobes: probes that do nothing (a traced call takes the slow
 * path in and out), that read the clock twice (as any measurement of a duration does), or that send the smallest useful
 * record, of times and sizes without identity. `make bench` measures the recorder against them.
 */
#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

const volatile bool reads_clock = false;
const volatile bool sends = false;
const volatile __u32 self_tgid = 0; /* whose calls are not sent */

__u64 never = 0; /* keeps the compiler from dropping the look, and is never written */
__u64 lost = 0;

struct least_record {
	__u64 key; /* the thread, or the bio by address; 0: none */
	__u64 begin_ns; /* called, or queued */
	__u64 issue_ns; /* of a request */
	__u64 end_ns;
	__u64 what; /* number of the call, or first sector */
	__s64 size; /* what the call returned, or bytes */
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

/* Of two that find the same slot the first is left out: it is the cost that matters. */
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

/* Threads are shifted to where slots are told apart. */
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

/* What it takes to tell of a bio, or a request, when it was queued, issued and completed. */

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
