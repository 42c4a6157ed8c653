/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's probes. BTF tracepoints and iterators: they need no kprobe or fentry, and unlike
 * perf tracepoints they are skipped only when they interrupt themselves. Two perf tracepoints stand in for those of
 * calls where that is not enough: see calls/call_programs.bpf.h. What only functions' entries and exits tell
 * (kernel/vfs.bpf.h) is beside them, on kernels that allow it.
 */
#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "base/wire.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/disks.bpf.h"
#include "files/identity.bpf.h"
#include "ops/long_ops.bpf.h"
#include "ops/lossless.bpf.h"
#include "ops/special_calls.bpf.h"
#include "ops/filters.bpf.h"
#include "ops/user_memory.bpf.h"
#include "calls/calls.bpf.h"
#include "calls/call_programs.bpf.h"
#include "tasks/fault.bpf.h"
#include "tasks/tasks.bpf.h"
#include "inflight/bios.bpf.h"
#include "uring/uring.bpf.h"
#include "tasks/snapshot.bpf.h"
#include "block/attribute_files.bpf.h"
#include "block/attribute_btrfs.bpf.h"
#include "block/attribute.bpf.h"
#include "tasks/waits.bpf.h"
#include "kernel/loop_own.bpf.h"
#include "block/bio_rows.bpf.h"
#include "block/bio.bpf.h"
#include "block/requests.bpf.h"
#include "kernel/cache.bpf.h"
#include "kernel/vfs.bpf.h"
#include "kernel/loop.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
