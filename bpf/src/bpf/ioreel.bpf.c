/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's probes: BTF tracepoints and iterators, which need neither kprobes nor fentry. Unlike perf tracepoints,
 * BTF tracepoint programs are skipped only when they interrupt themselves. Where that is not enough, two perf
 * tracepoints stand in for those of system calls (calls/call_programs.bpf.h). On kernels with fentry, kernel/vfs.bpf.h
 * and kernel/loop.bpf.h also attach to functions.
 *
 * The headers below are listed from the lowest to the highest layer. A header includes what it uses, and only headers
 * listed before it. Folders are layers too, in this order:
 *
 *   base      wire format, settings, maps, kernel differences
 *   files     identity, path and disks of a file
 *   ops       parts of the record of an operation; stopping threads for --lossless
 *   tasks     page faults, start and end of threads, waits, snapshot iterators
 *   calls     entry and return of system calls
 *   inflight  tables of bios, block requests and io_uring requests in flight
 *   uring     submission and completion of io_uring requests
 *   kernel    page cache, commits of journals, and file I/O of the kernel itself
 *   block     bios and block requests, and the files they belong to
 */
#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "base/slots.bpf.h"
#include "files/disks.bpf.h"
#include "files/identity.bpf.h"
#include "ops/long_ops.bpf.h"
#include "ops/op_ring.bpf.h"
#include "ops/lossless.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/kernel_ids.bpf.h"
#include "ops/special_calls.bpf.h"
#include "ops/filters.bpf.h"
#include "ops/user_memory.bpf.h"
#include "ops/op_files.bpf.h"
#include "ops/contents.bpf.h"
#include "tasks/fault.bpf.h"
#include "tasks/tasks.bpf.h"
#include "tasks/waits.bpf.h"
#include "tasks/snapshot.bpf.h"
#include "calls/aio.bpf.h"
#include "calls/scm_rights.bpf.h"
#include "calls/mapped_file.bpf.h"
#include "calls/probe_cost.bpf.h"
#include "calls/special.bpf.h"
#include "calls/enter.bpf.h"
#include "calls/exit.bpf.h"
#include "calls/call_programs.bpf.h"
#include "inflight/bios.bpf.h"
#include "inflight/uring_entry.bpf.h"
#include "inflight/uring_requests.bpf.h"
#include "uring/submit.bpf.h"
#include "uring/complete.bpf.h"
#include "kernel/cache.bpf.h"
#include "kernel/commits.bpf.h"
#include "kernel/loop_own.bpf.h"
#include "kernel/vfs.bpf.h"
#include "kernel/loop.bpf.h"
#include "block/attribute_files.bpf.h"
#include "block/attribute_btrfs.bpf.h"
#include "block/attribute.bpf.h"
#include "block/bio_rows.bpf.h"
#include "block/bio.bpf.h"
#include "block/requests.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
