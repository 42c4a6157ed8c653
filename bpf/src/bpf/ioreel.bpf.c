/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's probes. BTF tracepoints and iterators: they need no kprobe or fentry, and unlike
 * perf tracepoints they are skipped only when they interrupt themselves. Two perf tracepoints stand in for those of
 * calls where that is not enough: see turns.bpf.h. What only functions' entries and exits tell (vfs.bpf.h) is beside
 * them, on kernels that allow it.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "wire.h"
#include "told.h"
#include "core_fixes.bpf.h"
#include "atomic.bpf.h"
#include "maps.bpf.h"
#include "disks.bpf.h"
#include "identity.bpf.h"
#include "long_ops.bpf.h"
#include "lossless.bpf.h"
#include "calls.bpf.h"
#include "filters.bpf.h"
#include "op_memory.bpf.h"
#include "ops.bpf.h"
#include "turns.bpf.h"
#include "fault.bpf.h"
#include "tasks.bpf.h"
#include "bios.bpf.h"
#include "uring.bpf.h"
#include "snapshot.bpf.h"
#include "attribute_files.bpf.h"
#include "attribute_btrfs.bpf.h"
#include "attribute.bpf.h"
#include "waits.bpf.h"
#include "loop_own.bpf.h"
#include "bio_rows.bpf.h"
#include "block.bpf.h"
#include "requests.bpf.h"
#include "cache.bpf.h"
#include "vfs.bpf.h"
#include "loop.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
