/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* io_uring requests in flight: where they are stored, what is kept of each, and sending their records. */
#ifndef IOREEL_URING_REQUESTS_H
#define IOREEL_URING_REQUESTS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "base/slots.bpf.h"
#include "files/identity.bpf.h"
#include "inflight/uring_entry.bpf.h"

struct uring_state {
	struct rec_uring rec;
	__u64 before; /* the request that it is linked to */
	__u64 last; /* the last of the requests linked to it */
	__u64 settled; /* the first of two programs has recorded the submission, and the second has not run yet */
};

#define URING_SLOTS_BITS 12

struct uring_slot {
	__u64 key; /* 0: free */
	struct uring_state state; /* built in place between submission and end */
};

/*
 * Submitted requests that have not been recorded, by address, in slots as in inflight/bios.bpf.h: 4 Ki of about 260
 * bytes, 1 MiB. Those without a free slot go to the hash below.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << URING_SLOTS_BITS);
	__type(key, __u32);
	__type(value, struct uring_slot);
} uring_slots SEC(".maps");

/* About 300 bytes per request in flight, allocated when needed. A request that does not fit is lost, which is
 * counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256 * 1024);
	__type(key, __u64);
	__type(value, struct uring_slot);
} uring_requests SEC(".maps");

/* Number of requests ever stored there. While 0, lookups in the hash are skipped. */
__u64 uring_requests_used = 0;
struct uring_slot no_request = {};
/* A request has been seen. While false, bios need no search for their requests. */
bool uring_met = false;

static __always_inline struct uring_slot *uring_find(const void *req)
{
	__u32 first = slot_of(req, URING_SLOTS_BITS);
	__u64 key = (__u64)req;

#pragma unroll
	for (__u32 i = 0; i < SLOT_TRIES; i++) {
		__u32 at = (first + i) & ((1 << URING_SLOTS_BITS) - 1);
		struct uring_slot *s = bpf_map_lookup_elem(&uring_slots, &at);

		if (s && s->key == key)
			return s;
	}
	return uring_requests_used ? bpf_map_lookup_elem(&uring_requests, &key) : NULL;
}

/* Takes a slot for this request, which has none. Its content is undefined. */
static __always_inline struct uring_slot *uring_take(const void *req)
{
	__u32 first = slot_of(req, URING_SLOTS_BITS);
	__u64 key = (__u64)req;

#pragma unroll
	for (__u32 i = 0; i < SLOT_TRIES; i++) {
		__u32 at = (first + i) & ((1 << URING_SLOTS_BITS) - 1);
		struct uring_slot *s = bpf_map_lookup_elem(&uring_slots, &at);

		if (s && !s->key && !__sync_val_compare_and_swap(&s->key, 0, key))
			return s;
	}
	if (bpf_map_update_elem(&uring_requests, &key, &no_request, BPF_ANY))
		return NULL;
	__sync_fetch_and_add(&uring_requests_used, 1);
	return bpf_map_lookup_elem(&uring_requests, &key);
}

/* Frees a slot; in the hash the field key is 0. */
static __always_inline void uring_free(const void *req, struct uring_slot *s)
{
	__u64 key = (__u64)req;

	if (s->key)
		s->key = 0;
	else
		bpf_map_delete_elem(&uring_requests, &key);
}

/* Task that created a ring whose submitter is a kernel thread. If evicted, the thread's process is used. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u32);
} uring_owners SEC(".maps");

struct uring_scratch {
	struct task_state cache; /* of the last file: requests may end in any thread */
	struct rec_uring_paths paths;
	char names[2 * WIRE_PATH_BYTES];
};

/* Scratch memory for handling a request. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct uring_scratch);
} uring_scratch SEC(".maps");

/* Reads a number from the memory of a ring, as the first member of a completion, which is a type that the verifier
 * knows. */
static __always_inline __u64 uring_word(const void *address)
{
	return peek(kernel_cast(struct io_uring_cqe, address), user_data);
}

/* The file in a slot of the ring's registered files. */
static __always_inline struct file *uring_slot(struct io_ring_ctx *ctx, __u32 slot)
{
	unsigned long file = 0;

	if (bpf_core_field_exists(struct io_file_table, data)) {
		struct io_rsrc_node **nodes = BPF_CORE_READ(ctx, file_table.data.nodes), *node = NULL;

		if (!nodes || slot >= BPF_CORE_READ(ctx, file_table.data.nr))
			return NULL;
		bpf_probe_read_kernel(&node, sizeof(node), nodes + slot);
		file = node ? BPF_CORE_READ(node, file_ptr) : 0;
	} else {
		struct io_ring_ctx___old *old = (void *)ctx;
		struct io_fixed_file___old *files = BPF_CORE_READ(old, file_table.files);

		if (!files || slot >= BPF_CORE_READ(old, nr_user_files))
			return NULL;
		bpf_probe_read_kernel(&file, sizeof(file), &files[slot].file_ptr);
	}
	file &= ~7ul;
	return file ? kernel_cast(struct file, (void *)file) : NULL;
}

static __always_inline struct file *uring_file(struct io_ring_ctx *ctx, struct task_struct *task, __s32 fd, bool fixed)
{
	return fixed ? uring_slot(ctx, fd) : file_of_fd(task, fd);
}

static __always_inline void uring_set_file(struct uring_scratch *s, struct rec_uring *r, struct file *file, __u32 flag,
					   __u64 now_ns)
{
	struct inode *inode = peek(file, f_inode);

	if (!inode)
		return;
	identify(inode, &r->file);
	r->ofd = (__u64)file;
	r->flags |= flag;
	if (peek(file, f_flags) & O_APPEND)
		r->flags |= URF_APPEND;
	note_file(&s->cache, file, inode, &r->file, now_ns, r->flags & URF_CREATED);
}

/* Makes the current file the second one. */
static __always_inline void uring_second(struct rec_uring *r)
{
	r->flags |= URF_FILE2;
	r->extra[0] = r->ofd;
	r->extra[1] = r->file.ino;
	r->extra[2] = r->file.dev | (__u64)r->file.generation << 32;
}

static __noinline void uring_send(struct uring_state *s, __u64 now_ns)
{
	emit_fixed(&s->rec, REC_URING, CLASS_URING, now_ns);
}

/* Sends a request that ended without a completion. `at_hand`: its memory still contains the result. */
static __always_inline void uring_send_silent(struct uring_state *s, struct io_kiocb *req, bool at_hand, __u64 now_ns)
{
	s->rec.flags |= URF_SILENT;
	if (s->rec.flags & URF_CANCELLED) {
		s->rec.res = -ECANCELED;
	} else if (at_hand) {
		s->rec.res = BPF_CORE_READ(req, cqe.res);
		s->rec.flags |= URF_RESULT;
	}
	uring_send(s, now_ns);
}

static __always_inline void uring_lose(void)
{
	struct cpu_ledger *l = cpu_ledger();
	struct rec_hdr hdr;

	if (!l)
		return;
	begin_record(l, &hdr, bpf_get_smp_processor_id(), REC_URING, CLASS_URING, 0, 0);
	lost_record(l, CLASS_URING);
}

static __always_inline struct uring_state *uring_known(const void *req)
{
	struct uring_slot *slot = uring_find(req);

	return slot ? &slot->state : NULL;
}

/* The request that a worker thread executes (io_uring/io-wq.c). */
static __always_inline const void *uring_of_worker(struct task_struct *task)
{
	struct io_worker *worker = task->worker_private;
	struct io_wq_work *work;

	if (!(task->flags & PF_IO_WORKER) || !worker || !bpf_core_type_exists(struct io_worker))
		return NULL;
	work = peek(kernel_cast(struct io_worker, worker), cur_work);
	return work ? container_of(work, struct io_kiocb, work) : NULL;
}

#endif
