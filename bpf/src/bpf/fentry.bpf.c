/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Loads and attaches only if the kernel supports programs on entry and exit of its functions. */
#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC("fentry/vfs_fsync_range")
int BPF_PROG(trial_entry, struct file *file, long long start, long long end, int datasync)
{
	return 0;
}

SEC("fexit/vfs_fsync_range")
int BPF_PROG(trial_exit, struct file *file, long long start, long long end, int datasync, int ret)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
