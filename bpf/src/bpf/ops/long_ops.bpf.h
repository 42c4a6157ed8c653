/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Operations whose strings do not fit in the thread's task_state. Their records are assembled from several places. */
#ifndef IOREEL_LONG_OPS_H
#define IOREEL_LONG_OPS_H

#include "base/wire.h"
#include "base/maps.bpf.h"

static __always_inline __u32 path_bytes(const struct op_tail *t)
{
	return t->path_bytes & (WIRE_PATH_BYTES - 1);
}

static __always_inline __u32 path2_bytes(const struct op_tail *t)
{
	return t->path2_bytes & (WIRE_PATH_BYTES - 1);
}

/* Bytes after the paths. */
static __always_inline __u32 rest_bytes(const struct op_tail *t)
{
	return t->name_bytes + (t->in_bytes > WIRE_IN_BYTES ? 0 : t->in_bytes) +
	       (t->out_bytes > WIRE_OUT_BYTES ? 0 : t->out_bytes);
}

/* Bytes after the tail. */
static __always_inline __u32 strings_bytes(const struct op_tail *t)
{
	return path_bytes(t) + path2_bytes(t) + rest_bytes(t);
}

static __always_inline __u32 long_bytes(const struct op_tail *t)
{
	return sizeof(struct rec_op) + sizeof(struct op_tail) + strings_bytes(t);
}

/* Sends an operation of the current thread; returns an error if there is no space. */
static __noinline long send_long(void *ring, struct long_op *lo)
{
	__u32 at = sizeof(lo->op) + sizeof(lo->tail);
	__u32 first = path_bytes(&lo->tail), second = path2_bytes(&lo->tail), rest = rest_bytes(&lo->tail);
	struct long_path *other;
	struct bpf_dynptr out;
	long failed;

	failed = bpf_ringbuf_reserve_dynptr(ring, at + first + second + rest, 0, &out);
	if (!failed) {
		bpf_dynptr_write(&out, 0, lo, at, 0);
		if (first)
			bpf_dynptr_write(&out, at, lo->path, first, 0);
		other = second ? bpf_task_storage_get(&second_paths, bpf_get_current_task_btf(), 0, 0) : NULL;
		if (other)
			bpf_dynptr_write(&out, at + first, other->path, second, 0);
		if (rest)
			bpf_dynptr_write(&out, at + first + second, lo->rest, rest, 0);
	}
	bpf_ringbuf_submit_dynptr(&out, BPF_RB_NO_WAKEUP);
	return failed;
}

/* Writes the strings of another thread's operation to an iterator; returns an error if there is no space. */
static __noinline long list_strings(struct seq_file *seq, struct task_struct *task, struct long_op *lo,
				    const struct op_tail *t)
{
	__u32 first = path_bytes(t), second = path2_bytes(t), rest = rest_bytes(t);
	struct long_path *other = NULL;

	if (second)
		other = bpf_task_storage_get(&second_paths, task, 0, 0);
	return (first ? bpf_seq_write(seq, lo->path, first) : 0) |
	       (other ? bpf_seq_write(seq, other->path, second) : 0) | (rest ? bpf_seq_write(seq, lo->rest, rest) : 0);
}

#endif
