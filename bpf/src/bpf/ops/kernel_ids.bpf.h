/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Ids of users and groups in user name spaces, translated to those of the initial one, which file systems store. What a
 * task passes are ids of its own name space.
 */
#ifndef IOREEL_KERNEL_IDS_H
#define IOREEL_KERNEL_IDS_H

#include "base/wire.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/long_ops.bpf.h"

#define MEMORY_IN_USER_NS 2
#define NO_ID (~0u)
/* include/linux/user_namespace.h: UID_GID_MAP_MAX_BASE_EXTENTS. A longer map is an array sorted by `first`. */
#define BASE_EXTENTS 5
/* Enough to find one of UID_GID_MAP_MAX_EXTENTS (340) by halves. */
#define EXTENT_STEPS 9
#define GROUPS (WIRE_OUT_BYTES / 4)

/* Whether the current thread is in another user name space than the initial one. */
__noinline int in_user_ns(void)
{
	return BPF_CORE_READ(bpf_get_current_task_btf(), cred, user_ns, level) > 0;
}

static __always_inline bool names_users(const struct call_desc *d)
{
	return d->kind >= CALL_OWNER && d->kind <= CALL_GROUPS;
}

struct id_search {
	__u64 extents;
	__u32 low;
	__u32 high;
	__u32 is_sorted;
	__u32 id;
	__u32 found;
};

/* A bpf_loop callback, because the verifier would follow every course of a loop. */
static long extent_step(__u32 i, void *context)
{
	struct id_search *s = context;
	__u32 at = s->is_sorted ? s->low + (s->high - s->low) / 2 : s->low;
	struct uid_gid_extent e;

	if (s->low >= s->high || bpf_probe_read_kernel(&e, sizeof(e), (void *)(s->extents + at * sizeof(e))))
		return 1;
	if (s->id >= e.first && s->id - e.first < e.count) {
		s->found = e.lower_first + (s->id - e.first);
		return 1;
	}
	if (s->is_sorted && s->id < e.first)
		s->high = at;
	else
		s->low = at + 1;
	return 0;
}

/*
 * The id in the initial user name space; NO_ID if there is none. The kernel stores an extent with ids of the initial
 * name space on the right side, however deep the name space is (kernel/user_namespace.c, map_write).
 */
__noinline int kernel_id(__u64 map_address, __u32 id)
{
	const struct uid_gid_map *map = (const void *)map_address;
	__u32 count = BPF_CORE_READ(map, nr_extents);
	bool is_sorted = count > BASE_EXTENTS;
	struct id_search search = {
	    .extents = is_sorted ? (__u64)BPF_CORE_READ(map, forward) : (__u64)&map->extent,
	    .high = count,
	    .is_sorted = is_sorted,
	    .id = id,
	    .found = NO_ID,
	};

	bpf_loop(EXTENT_STEPS, extent_step, &search, 0);
	return search.found;
}

static __always_inline __u32 owner_given(__u64 arg, bool is_short)
{
	return is_short && (__u16)arg == (__u16)NO_ID ? NO_ID : is_short ? (__u16)arg : (__u32)arg;
}

/* Adds to the output of a call, at its return: the owners that it named, or the ids that its thread has now. */
static __noinline void read_kernel_ids(struct task_state *st, struct long_op *lo, const struct call_desc *d)
{
	const struct cred *cred = BPF_CORE_READ(bpf_get_current_task_btf(), cred);
	__u32 at = rest_bytes(&st->tail), bytes = 0;

	if (at >= LONG_REST_BYTES - WIRE_OUT_BYTES)
		return;
	if (d->kind == CALL_OWNER) {
		struct user_namespace *ns = BPF_CORE_READ(cred, user_ns);
		__u32 ids[2] = {
		    owner_given(arg_of(&st->op, d->user), d->in_words == 2),
		    owner_given(arg_of(&st->op, d->user2), d->in_words == 2),
		};

		if (ids[0] != NO_ID)
			ids[0] = kernel_id((__u64)&ns->uid_map, ids[0]);
		if (ids[1] != NO_ID)
			ids[1] = kernel_id((__u64)&ns->gid_map, ids[1]);
		bytes = sizeof(ids);
		__builtin_memcpy(lo->rest + at, ids, sizeof(ids));
	} else if (d->kind == CALL_IDS) {
		struct kernel_ids ids = {
		    .uid = BPF_CORE_READ(cred, uid.val),
		    .euid = BPF_CORE_READ(cred, euid.val),
		    .suid = BPF_CORE_READ(cred, suid.val),
		    .fsuid = BPF_CORE_READ(cred, fsuid.val),
		    .gid = BPF_CORE_READ(cred, gid.val),
		    .egid = BPF_CORE_READ(cred, egid.val),
		    .sgid = BPF_CORE_READ(cred, sgid.val),
		    .fsgid = BPF_CORE_READ(cred, fsgid.val),
		};

		BPF_CORE_READ_INTO(&ids.capabilities, cred, cap_effective);
		bytes = sizeof(ids);
		__builtin_memcpy(lo->rest + at, &ids, sizeof(ids));
	} else {
		struct group_info *groups = BPF_CORE_READ(cred, group_info);
		__u32 count = BPF_CORE_READ(groups, ngroups);

		/* One byte stands for a list that is too long. */
		bytes = count > GROUPS ? 1 : count * 4;
		barrier_var(bytes);
		if (bytes > WIRE_OUT_BYTES || bpf_probe_read_kernel(lo->rest + at, bytes, &groups->gid))
			return;
	}
	st->tail.out_bytes = bytes;
}

#endif
