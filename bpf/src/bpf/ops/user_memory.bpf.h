/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reads user memory that a call's arguments point to: lengths of buffers, offsets, times, stat results, paths.
 */
#ifndef IOREEL_OP_MEMORY_H
#define IOREEL_OP_MEMORY_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"

struct iovec_sum {
	__u64 base;
	__u64 sum;
	__u32 count;
	__u16 fault;
	__u16 is32; /* struct compat_iovec */
};

static long iovec_step(__u32 i, void *context)
{
	struct iovec_sum *s = context;
	__u64 len = 0;

	if (i >= s->count)
		return 1;
	if (s->is32 ? bpf_probe_read_user(&len, 4, (void *)(s->base + i * 8 + 4))
		    : bpf_probe_read_user(&len, sizeof(len), (void *)(s->base + i * 16 + 8))) {
		s->fault = 1;
		return 1;
	}
	s->sum += len;
	return 0;
}

/* Reads memory that the kernel only reads. Global functions are verified once, and not for each state of a caller. */
__noinline int read_user_on_entry(struct task_state *st, __u32 kind, __u64 user, __u64 user2)
{
	struct op_tail *t;
	long fault = 0;

	if (!st)
		return 0;
	t = &st->tail;
	if (kind == USER_IOVEC || kind == USER_IOVEC32) {
		struct iovec_sum s = {
		    .base = user,
		    .count = user2 > MAX_IOVECS ? 0 : user2,
		    .fault = user2 > MAX_IOVECS, /* the kernel rejects more */
		    .is32 = kind == USER_IOVEC32,
		};

		bpf_loop(MAX_IOVECS, iovec_step, &s, 0);
		t->extra[0] = s.sum;
		fault = s.fault;
	} else if (kind == USER_OFFSETS || kind == USER_OFFSETS32) {
		__u32 bytes = kind == USER_OFFSETS ? 8 : 4;

		if (user)
			fault |= bpf_probe_read_user(&t->extra[0], bytes, (void *)user);
		else
			t->extra[2] |= 1;
		if (user2)
			fault |= bpf_probe_read_user(&t->extra[1], bytes, (void *)user2);
		else
			t->extra[2] |= 2;
	} else if (kind == USER_TIMESPEC || kind == USER_TIMEVAL) {
		if (user)
			fault = bpf_probe_read_user(t->extra, 32, (void *)user);
		else
			t->extra[1] = ~0ull;
	} else if (kind == USER_UTIMBUF) {
		if (user)
			fault = bpf_probe_read_user(t->extra, 16, (void *)user);
		else
			t->extra[1] = ~0ull;
	} else if (kind == USER_OPEN_HOW) {
		fault = bpf_probe_read_user(t->extra, 24, (void *)user);
	}
	if (fault)
		st->op.flags |= OPF_USER_FAULT;
	return 0;
}

/* Reads st_mode and st_size of struct stat (uapi asm/stat.h), of i386's two structs, or the equivalent in struct
 * statx. */
__noinline int read_stat_on_exit(struct task_state *st, __u32 kind, __u64 user)
{
	struct op_tail *t;
	/* From st_mode on, in one read: each read of user memory costs as much as twenty loads. */
	__u32 words[(STAT_SIZE - STAT_MODE) / 4 + 2] = {};
	__u32 mode = 0;
	__u16 mode16 = 0;
	long fault;

	if (!st)
		return 0;
	t = &st->tail;
	if (kind == USER_STAT) {
		const __u32 size = (STAT_SIZE - STAT_MODE) / 4;

		fault = bpf_probe_read_user(words, (size + 2) * 4, (void *)(user + STAT_MODE));
		mode = words[0];
		t->extra[1] = (__u64)words[size + 1] << 32 | words[size];
	} else if (kind == USER_STAT32) {
		fault = bpf_probe_read_user(&mode16, sizeof(mode16), (void *)(user + 8));
		fault |= bpf_probe_read_user(&t->extra[1], 4, (void *)(user + 20));
		mode = mode16;
	} else if (kind == USER_STAT64) {
		fault = bpf_probe_read_user(&mode, sizeof(mode), (void *)(user + 16));
		fault |= bpf_probe_read_user(&t->extra[1], 8, (void *)(user + 44));
	} else {
		fault = bpf_probe_read_user(words, 20, (void *)(user + 28));
		mode = words[0] & 0xffff;
		t->extra[1] = (__u64)words[4] << 32 | words[3];
	}
	t->extra[0] = mode;
	if (fault)
		st->op.flags |= OPF_USER_FAULT;
	return 0;
}

#define OPF_FAULTS (OPF_PATH_FAULT | OPF_PATH2_FAULT)

__noinline int read_long_paths(struct task_state *st, __u64 path, __u64 path2)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct long_op *lo = bpf_task_storage_get(&long_ops, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct long_path *second = NULL;
	struct cpu_ledger *l;
	long n;

	if (!st)
		return 0;
	st->op.flags &= ~OPF_FAULTS;
	st->tail.path_bytes = st->tail.path2_bytes = 0;
	if (lo && path2)
		second = bpf_task_storage_get(&second_paths, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!lo || (path2 && !second)) {
		/* Without memory for paths, the operation is still recorded. */
		st->op.flags |= OPF_FAULTS;
		l = cpu_ledger();
		if (l)
			l->no_path_state++;
		return 0;
	}
	st->long_paths = 1;
	if (path) {
		n = bpf_probe_read_user_str(lo->path, WIRE_PATH_BYTES, (void *)path);
		if (n >= 0 && n <= WIRE_PATH_BYTES)
			st->tail.path_bytes = string_bytes(n);
		else
			st->op.flags |= OPF_PATH_FAULT;
	}
	if (second) {
		n = bpf_probe_read_user_str(second->path, WIRE_PATH_BYTES, (void *)path2);
		if (n >= 0 && n <= WIRE_PATH_BYTES)
			st->tail.path2_bytes = string_bytes(n);
		else
			st->op.flags |= OPF_PATH2_FAULT;
	}
	return 0;
}

/*
 * Reads the paths into the record at entry, because the caller may overwrite them before the call returns. If a page is
 * not resident, the path is read again at return.
 */
__noinline int read_paths(struct task_state *st, __u64 path, __u64 path2)
{
	__u32 used = 0;
	long n = 0, n2 = 0;

	if (!st)
		return 0;
	st->long_paths = 0;
	st->op.flags &= ~OPF_FAULTS;
	st->tail.path_bytes = st->tail.path2_bytes = 0;
	if (path) {
		n = bpf_probe_read_user_str(st->paths, SHORT_PATH_BYTES, (void *)path);
		if (likely(n >= 0 && n < SHORT_PATH_BYTES))
			used = string_bytes(n);
		else if (n < 0)
			st->op.flags |= OPF_PATH_FAULT;
		st->tail.path_bytes = used;
	}
	if (unlikely(path2)) {
		barrier_var(used);
		n2 = bpf_probe_read_user_str(st->paths + (used & (SHORT_PATH_BYTES - 1)), SHORT_PATH_BYTES,
					     (void *)path2);
		if (n2 >= 0 && n2 < SHORT_PATH_BYTES)
			st->tail.path2_bytes = string_bytes(n2);
		else if (n2 < 0)
			st->op.flags |= OPF_PATH2_FAULT;
	}
	if (unlikely(n >= SHORT_PATH_BYTES || n2 >= SHORT_PATH_BYTES))
		read_long_paths(st, path, path2);
	return 0;
}

#endif
