/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * --content: the bytes of a write, read from the caller's memory after the call and before the caller continues. They
 * have their own ring, so that contents never displace operations. Pages that are not resident cannot be read here,
 * which is rare, because the write has just read them.
 *
 * The buffers of an asynchronous write are noted at submission. They are read at completion, before the program learns
 * of it. Until then they belong to the kernel, and linked earlier requests may still fill them.
 */
#ifndef IOREEL_CONTENTS_H
#define IOREEL_CONTENTS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/filters.bpf.h"

const volatile __u32 content_limit = 0; /* maximum size of a write that is read; 0: contents are not recorded */

/* Shared by all CPUs. A long write needs much space at once, and is copied without holding the ring's lock. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* user space, if used; if full, the content of a write is lost and counted */
} contents SEC(".maps");

/* Sizes in which records are reserved; user space uses the first hdr.len_bytes of them. */
#define CONTENT_SMALL 256
#define CONTENT_PAGE 4096
#define CONTENT_LARGE 32768

struct content_small {
	struct rec_content head;
	char data[CONTENT_SMALL];
};

struct content_page {
	struct rec_content head;
	char data[CONTENT_PAGE];
};

struct content_large {
	struct rec_content head;
	char data[CONTENT_LARGE];
};

enum content_state {
	CONTENT_GOING = 0,
	CONTENT_UNREAD = 1,
	CONTENT_LOST = 2,
};

/* An asynchronous write in flight, and a part of its vector. */
struct later_key {
	__u64 mm;
	__u64 context; /* address of the Linux AIO context; 0 for io_uring */
	__u64 request; /* address of the control block, or of the io_uring request */
	__u64 part;
};

/* Buffers per part of a vector. */
#define LATER_VECS 32
#define LATER_PARTS (MAX_IOVECS / LATER_VECS)

struct later_write {
	__u64 vec[2 * LATER_VECS];
	__u32 vecs; /* number of buffers in this part */
	__u32 parts; /* number of parts; set in the first part */
};

/*
 * Asynchronous writes in flight with their buffers: about 600 bytes per 32 buffers. If full, the content is not read,
 * and this is counted. Writes whose end is not seen stay until their address is reused.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* user space, if used */
	__type(key, struct later_key);
	__type(value, struct later_write);
} later_writes SEC(".maps");

struct content_walk {
	__u64 vec; /* next buffer of the vector */
	__u64 base; /* rest of the current buffer, and of the write */
	__u64 piece;
	__u64 left;
	__u64 of;
	__u64 end_ns;
	__u32 vecs;
	__u32 task_id;
	__u8 is32; /* struct compat_iovec */
	__u8 noted; /* the vector is in later_writes, not in the caller's memory */
	__u16 state; /* enum content_state */
	__u32 parts; /* parts after the current one */
	struct later_key key; /* key of the current part */
};

/* In a map, because the verifier would track every value on the stack through the loop. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct content_walk);
} content_walks SEC(".maps");

struct content_context {
	struct content_walk *walk;
};

/* Only the last record of a write is numbered, so that a lost write leaves one gap. */
static __always_inline void content_head(struct content_walk *w, struct rec_content *head, __u64 len)
{
	struct cpu_ledger *l = cpu_ledger();

	head->of = w->of;
	head->task_id = w->task_id;
	head->last = len == w->left;
	if (head->last && l) {
		begin_record(l, &head->hdr, bpf_get_smp_processor_id(), REC_CONTENT, CLASS_CONTENT, sizeof(*head) + len,
			     w->end_ns);
		return;
	}
	head->hdr.seq = 0;
	head->hdr.end_ns = w->end_ns;
	head->hdr.len_bytes = sizeof(*head) + len;
	head->hdr.cpu = WIRE_NO_CPU;
	head->hdr.type = REC_CONTENT;
	head->hdr.stream = STREAM_SHARED;
}

/* Sends the next bytes of a buffer in a record of this size. */
#define SEND_CONTENT(name, size)                                                                                       \
	static __noinline long send_##name(struct content_walk *w, __u64 len)                                          \
	{                                                                                                              \
		struct name *rec;                                                                                      \
                                                                                                                       \
		if (len == 0 || len > size) {                                                                          \
			w->state = CONTENT_UNREAD;                                                                     \
			return 1;                                                                                      \
		}                                                                                                      \
		rec = bpf_ringbuf_reserve(&contents, sizeof(*rec), 0);                                                 \
		if (!rec) {                                                                                            \
			w->state = CONTENT_LOST;                                                                       \
			return 1;                                                                                      \
		}                                                                                                      \
		barrier_var(len);                                                                                      \
		if (len > size || bpf_probe_read_user(rec->data, len, (void *)w->base)) {                              \
			bpf_ringbuf_discard(rec, BPF_RB_NO_WAKEUP);                                                    \
			w->state = CONTENT_UNREAD;                                                                     \
			return 1;                                                                                      \
		}                                                                                                      \
		content_head(w, &rec->head, len);                                                                      \
		bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);                                                             \
		w->base += len;                                                                                        \
		w->piece -= len;                                                                                       \
		w->left -= len;                                                                                        \
		return 0;                                                                                              \
	}

SEND_CONTENT(content_small, CONTENT_SMALL)
SEND_CONTENT(content_page, CONTENT_PAGE)
SEND_CONTENT(content_large, CONTENT_LARGE)

static long content_step(__u32 i, void *context)
{
	struct content_walk *w = ((struct content_context *)context)->walk;
	__u64 vec[2] = {}, len;
	__u32 vec32[2] = {};

	if (!w->left)
		return 1;
	if (!w->piece) {
		if (!w->vecs && w->parts) {
			struct later_write *more;

			w->key.part++;
			w->parts--;
			more = bpf_map_lookup_elem(&later_writes, &w->key);
			if (!more) {
				w->state = CONTENT_UNREAD;
				return 1;
			}
			w->vec = (__u64)more->vec;
			w->vecs = more->vecs;
			return 0;
		}
		if (!w->vecs || (w->noted  ? bpf_probe_read_kernel(vec, sizeof(vec), (void *)w->vec)
				 : w->is32 ? bpf_probe_read_user(vec32, sizeof(vec32), (void *)w->vec)
					   : bpf_probe_read_user(vec, sizeof(vec), (void *)w->vec))) {
			w->state = CONTENT_UNREAD;
			return 1;
		}
		w->base = w->is32 ? vec32[0] : vec[0];
		w->piece = w->is32 ? vec32[1] : vec[1];
		w->vec += w->is32 ? sizeof(vec32) : sizeof(vec);
		w->vecs--;
		return 0;
	}
	len = w->piece < w->left ? w->piece : w->left;
	if (len <= CONTENT_SMALL)
		return send_content_small(w, len);
	if (len < CONTENT_LARGE)
		return send_content_page(w, len < CONTENT_PAGE ? len : CONTENT_PAGE);
	return send_content_large(w, CONTENT_LARGE);
}

/* Sends the content of a write; returns whether it was sent. */
static __always_inline bool content_sent(struct content_walk *w, struct cpu_ledger *l)
{
	struct content_context step = {.walk = w};
	struct rec_hdr hdr = {};

	bpf_loop(4 * MAX_IOVECS + content_limit / CONTENT_PAGE, content_step, &step, 0);
	if (w->state == CONTENT_LOST) {
		begin_record(l, &hdr, bpf_get_smp_processor_id(), REC_CONTENT, CLASS_CONTENT, 0, w->end_ns);
		lost_record(l, CLASS_CONTENT);
		return false;
	}
	if (w->left)
		__sync_fetch_and_add(&l->content_unread, 1);
	return !w->left;
}

/* Whether files of this type have contents. */
static __always_inline bool has_content(struct inode *inode)
{
	__u16 kind = inode ? peek(inode, i_mode) & S_IFMT : 0;

	return kind == S_IFREG || kind == S_IFBLK;
}

/*
 * Sends the content of a successful write. A separate program that is attached before op_exit, which is near the
 * verifier's limit. It stores the time when the call ended, so that copying does not count as part of the call.
 */
static __noinline void exit_content(struct task_state *st, long ret)
{
	struct content_walk *w;
	const struct call_desc *desc;
	struct cpu_ledger *l;
	__u32 zero = 0;

	if (!st->in_call || st->in_call == IN_CALL_UNSEEN)
		return;
	st->ended_ns = 0;
	desc = desc_of(st->in_call - 1, st->op.flags & OPF_COMPAT);
	l = cpu_ledger();
	if (!desc->data || !l || ret <= 0 || !(st->op.flags & OPF_FILE))
		return;
	if (!has_content(peek(kernel_cast(struct file, (void *)st->op.ofd), f_inode)))
		return;
	st->ended_ns = bpf_ktime_get_ns();
	if (filter_least_ns && st->ended_ns - st->start_ns < filter_least_ns)
		return;
	if ((__u64)ret > content_limit) {
		__sync_fetch_and_add(&l->content_large, 1);
		return;
	}
	w = bpf_map_lookup_elem(&content_walks, &zero);
	if (!w)
		return;
	__builtin_memset(w, 0, sizeof(*w));
	w->left = ret;
	w->of = st->start_ns;
	/* Sorts before the record of the operation. */
	w->end_ns = st->ended_ns - 1;
	w->task_id = st->task_id;
	w->is32 = desc->user_kind == USER_IOVEC32;
	if (desc->user_kind) {
		w->vec = st->op.args[1];
		w->vecs = st->op.args[2] > MAX_IOVECS ? MAX_IOVECS : st->op.args[2];
	} else {
		w->base = st->op.args[1];
		w->piece = w->left;
	}
	if (content_sent(w, l))
		st->op.flags |= OPF_CONTENT;
}

/* Scratch memory to note or forget a write. In a map, because the stacks of all callers are short. */
struct later_scratch {
	struct later_write write;
	struct later_key key;
	__u64 base; /* address of the vector */
	__u64 vecs; /* number of all its buffers */
	__u32 first; /* first part */
	__u32 unread; /* a part could not be noted */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct later_scratch);
} later_scratch SEC(".maps");

struct later_context {
	struct later_scratch *s;
};

static long forget_part(__u32 i, void *context)
{
	struct later_scratch *s = ((struct later_context *)context)->s;

	s->key.part = s->first + i;
	return bpf_map_delete_elem(&later_writes, &s->key) != 0;
}

/* Forgets a noted write from this part on. */
static __always_inline void forget_write(struct later_scratch *s, __u32 first)
{
	struct later_context step = {.s = s};

	s->first = first;
	bpf_loop(LATER_PARTS, forget_part, &step, 0);
}

static long note_part(__u32 i, void *context)
{
	struct later_scratch *s = ((struct later_context *)context)->s;
	__u64 done = (__u64)i * LATER_VECS, vecs = s->vecs - done, len;

	if (vecs > LATER_VECS)
		vecs = LATER_VECS;
	len = vecs * 2 * sizeof(__u64);
	s->key.part = i;
	s->write.vecs = vecs;
	s->write.parts = (s->vecs + LATER_VECS - 1) / LATER_VECS;
	barrier_var(len);
	if (len > sizeof(s->write.vec) ||
	    bpf_probe_read_user(s->write.vec, len, (void *)(s->base + done * 2 * sizeof(__u64))) ||
	    bpf_map_update_elem(&later_writes, &s->key, &s->write, BPF_ANY)) {
		s->unread = 1;
		return 1;
	}
	return done + vecs >= s->vecs;
}

/* Notes an asynchronous write. `vecs`: number of buffers of the vector at `base`; 0: `base` is the only buffer. */
__noinline int note_write(__u64 context, __u64 request, __u64 base, __u64 vecs)
{
	struct cpu_ledger *l = cpu_ledger();
	struct later_context step = {};
	struct later_scratch *s;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&later_scratch, &zero);
	if (!l || !s)
		return 0;
	s->key.mm = (__u64)bpf_get_current_task_btf()->mm;
	s->key.context = context;
	s->key.request = request;
	s->unread = 0;
	/* An earlier write at this address whose end was not seen may have more parts. */
	forget_write(s, 0);
	if (!vecs) {
		s->key.part = 0;
		s->write.vec[0] = base;
		s->write.vec[1] = ~0ull;
		s->write.vecs = s->write.parts = 1;
		s->unread = bpf_map_update_elem(&later_writes, &s->key, &s->write, BPF_ANY) != 0;
	} else if (vecs <= MAX_IOVECS) { /* With more, the request fails. */
		s->base = base;
		s->vecs = vecs;
		step.s = s;
		bpf_loop(LATER_PARTS, note_part, &step, 0);
	}
	if (s->unread) {
		forget_write(s, 0);
		__sync_fetch_and_add(&l->content_unread, 1);
	}
	return 0;
}

/* A write has completed: sends its content if it was noted; returns 1 if sent. Others have none, or were counted. */
__noinline int content_later(__u64 context, __u64 request, __u32 task_id, __s64 ret, __u64 now_ns)
{
	struct cpu_ledger *l = cpu_ledger();
	struct later_write *noted;
	struct later_scratch *s;
	struct content_walk *w;
	__u32 zero = 0;
	int sent = 0;

	w = bpf_map_lookup_elem(&content_walks, &zero);
	s = bpf_map_lookup_elem(&later_scratch, &zero);
	if (!l || !w || !s)
		return 0;
	s->key.mm = (__u64)bpf_get_current_task_btf()->mm;
	s->key.context = context;
	s->key.request = request;
	s->key.part = 0;
	noted = bpf_map_lookup_elem(&later_writes, &s->key);
	if (!noted)
		return 0;
	if (ret > 0 && (__u64)ret > content_limit) {
		__sync_fetch_and_add(&l->content_large, 1);
	} else if (ret > 0) {
		__builtin_memset(w, 0, sizeof(*w));
		w->left = ret;
		w->of = request;
		w->end_ns = now_ns - 1;
		w->task_id = task_id;
		w->noted = 1;
		w->vec = (__u64)noted->vec;
		w->vecs = noted->vecs;
		w->parts = noted->parts - 1;
		w->key = s->key;
		sent = content_sent(w, l);
	}
	forget_write(s, 0);
	return sent;
}

#endif
