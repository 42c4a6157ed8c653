/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Addresses of kernel functions. The iterator gives them to any process that may load it, even where /proc/kallsyms
 * shows zeros to all but root.
 */
#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define KSYM_NAME_BYTES 48

struct ksym_rec {
	__u64 address;
	char name[KSYM_NAME_BYTES];
};

struct ksym_rec ksym_rec_type = {}; /* never read: makes the compiler emit the type for Rust */

/* Names to look up; filled by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, char[KSYM_NAME_BYTES]);
	__type(value, __u8);
} wanted SEC(".maps");

/* Process id of the reader in the initial pid namespace, which it cannot find out itself. */
__u32 reader_tgid = 0;
__u32 reader_tid = 0;

SEC("iter/ksym")
int ksyms(struct bpf_iter__ksym *ctx)
{
	struct kallsym_iter *sym = ctx->ksym;
	struct ksym_rec rec = {};

	reader_tgid = bpf_get_current_pid_tgid() >> 32;
	reader_tid = (__u32)bpf_get_current_pid_tgid();
	if (!sym)
		return 0;
	bpf_probe_read_kernel_str(rec.name, sizeof(rec.name), sym->name);
	if (!bpf_map_lookup_elem(&wanted, rec.name))
		return 0;
	rec.address = sym->value;
	bpf_seq_write(ctx->meta->seq, &rec, sizeof(rec));
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
