/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Probes that do nothing, or nothing but look at the clock: the least that any observer costs on a kernel without
 * kprobes. A traced call takes the slow way in and out, and who tells how long something took has looked at the clock
 * twice. `make bench` measures the recorder against them.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

const volatile bool reads_clock = false;

__u64 never = 0; /* keeps the compiler from dropping the look, and is never written */

static __always_inline int look(void)
{
	if (reads_clock && !bpf_ktime_get_ns())
		never++;
	return 0;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(empty_enter, struct pt_regs *regs, long id)
{
	return look();
}

SEC("tp_btf/sys_exit")
int BPF_PROG(empty_exit, struct pt_regs *regs, long ret)
{
	return look();
}

/* What it takes to tell of a bio, or a request, when it was queued, issued and completed. */

SEC("tp_btf/block_bio_queue")
int BPF_PROG(empty_bio_queue, struct bio *bio)
{
	return look();
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(empty_bio_complete, struct request_queue *q, struct bio *bio)
{
	return look();
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(empty_rq_issue, struct request *rq)
{
	return look();
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(empty_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	return look();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
