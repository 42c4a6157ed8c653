/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The recorder's own reads of a loop device, for example of the tables of its file system. The device's worker performs
 * them on the backing file and does not know for whom. On kernels up to 6.12 it uses functions that kernel/vfs.bpf.h
 * watches, before the request ends. So the request that covers the position shows whose read it is.
 */
#ifndef IOREEL_LOOP_OWN_H
#define IOREEL_LOOP_OWN_H

#include "base/core_fixes.bpf.h"
#include "inflight/bios.bpf.h"

#define LOOP_MAJOR 7
#define OWN_READS 16 /* the recorder reads one place at a time, with some requests of readahead */

struct own_read {
	__u64 rq;
	__u64 issue_ns;
	__u64 file; /* backing file of the device */
	__s64 from_bytes; /* range in that file */
	__s64 to_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWN_READS);
	__type(key, __u32);
	__type(value, struct own_read);
} own_reads SEC(".maps");

__u32 own_reads_met = 0;

/* Notes a request of the recorder at its issue. If it is overwritten before it ends, the read is recorded. */
static __noinline void note_own_read(struct request *rq, __u64 issue_ns)
{
	struct loop_device *lo = BPF_CORE_READ(rq, q, queuedata);
	struct own_read *own;
	__u32 at;

	if (!bpf_core_type_exists(struct loop_device) || BPF_CORE_READ(rq, q, disk, major) != LOOP_MAJOR)
		return;
	at = __sync_fetch_and_add(&own_reads_met, 1) % OWN_READS;
	own = bpf_map_lookup_elem(&own_reads, &at);
	if (!own)
		return;
	own->rq = 0;
	own->file = (__u64)BPF_CORE_READ(lo, lo_backing_file);
	own->from_bytes = (BPF_CORE_READ(rq, __sector) << 9) + BPF_CORE_READ(lo, lo_offset);
	own->to_bytes = own->from_bytes + BPF_CORE_READ(rq, __data_len);
	own->issue_ns = issue_ns;
	own->rq = (__u64)rq;
}

/* Whether this read by a loop device's worker is for the recorder. */
static __noinline bool is_own_read(__u64 file, __s64 pos)
{
	__u32 i;

	if (!own_reads_met)
		return false;
	for (i = 0; i < OWN_READS; i++) {
		__u32 at = i;
		struct own_read *own = bpf_map_lookup_elem(&own_reads, &at);
		struct rq_slot *r;

		if (!own || !own->rq || own->file != file || pos < own->from_bytes || pos >= own->to_bytes)
			continue;
		r = find_rq((void *)own->rq);
		if (r && r->issue_ns == own->issue_ns)
			return true;
	}
	return false;
}

#endif
