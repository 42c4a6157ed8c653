/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Descriptors passed through sockets: SCM_RIGHTS in the control data of a message. */
#ifndef IOREEL_PASSED_H
#define IOREEL_PASSED_H

#include "base/wire.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"

#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define SCM_MAX_FD 253
#define MAX_CMSGS 16 /* control messages per message; more than there are types */
#define UIO_MAXIOV 1024 /* messages per call */
#define MMSGHDR_BYTES 64
#define MSG_CONTROL 32 /* offset of msg_control and msg_controllen in struct msghdr */

struct cmsg_head {
	__u64 len;
	__s32 level;
	__s32 type;
};

struct message_walk {
	struct task_state *st;
	__u64 message;
	__u64 at; /* the next control message */
	__u64 end;
	__u64 fds; /* descriptors of the current control message */
	__u64 now_ns;
	__u32 messages;
	__u32 fds_count;
	__u32 total;
};

/* Space for a record, which does not fit on the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rec_passed);
} passed_scratch SEC(".maps");

static long passed_step(__u32 i, void *context)
{
	struct message_walk *w = context;
	struct task_struct *task = bpf_get_current_task_btf();
	struct rec_passed *rec;
	__u32 zero = 0;
	unsigned long *bits;
	struct file *file;

	if (i >= w->fds_count)
		return 1;
	rec = bpf_map_lookup_elem(&passed_scratch, &zero);
	if (!rec)
		return 0;
	__builtin_memset(rec, 0, sizeof(*rec));
	if (bpf_probe_read_user(&rec->fd, sizeof(rec->fd), (void *)(w->fds + i * 4)))
		return 0;
	rec->task_id = w->st->task_id;
	rec->socket = w->st->op.args[0];
	rec->nr = w->st->op.nr;
	rec->flags = w->st->op.flags & OPF_COMPAT;
	rec->dur_ns = w->now_ns - w->st->start_ns;
	file = file_of_fd(task, rec->fd);
	if (file && peek(file, f_inode)) {
		identify(peek(file, f_inode), &rec->file);
		rec->ofd = (__u64)file;
		rec->flags |= OPF_FILE;
		bits = task->files->fdt->close_on_exec;
		/* The field seq is used as a temporary, because the stack is short; it is set last. */
		bpf_probe_read_kernel(&rec->hdr.seq, sizeof(rec->hdr.seq), bits + (__u32)rec->fd / 64);
		rec->cloexec = (rec->hdr.seq >> ((__u32)rec->fd % 64)) & 1;
		note_file(w->st, file, peek(file, f_inode), &rec->file, w->now_ns, false);
	}
	emit_fixed(rec, REC_PASSED, CLASS_OPS, w->now_ns);
	return 0;
}

/* Goes to the next control message; returns whether there was one. */
static __always_inline bool next_part(struct message_walk *w)
{
	struct cmsg_head head = {};

	if (w->at + sizeof(head) > w->end || bpf_probe_read_user(&head, sizeof(head), (void *)w->at) ||
	    head.len < sizeof(head) || head.len > w->end - w->at)
		return false;
	w->fds_count = 0;
	if (head.level == SOL_SOCKET && head.type == SCM_RIGHTS) {
		w->fds = w->at + sizeof(head);
		w->fds_count = (head.len - sizeof(head)) / 4;
	}
	w->at += (head.len + 7) & ~7ull;
	return true;
}

/* Goes to the control data of a message; returns whether it has any. */
static __always_inline bool open_message(struct message_walk *w, __u32 i)
{
	__u64 control[2] = {};

	if (bpf_probe_read_user(control, sizeof(control), (void *)(w->message + i * MMSGHDR_BYTES + MSG_CONTROL)) ||
	    !control[0] || control[1] < sizeof(struct cmsg_head))
		return false;
	w->at = control[0];
	w->end = control[0] + control[1];
	return true;
}

/*
 * Counting and recording are separate functions although they iterate in the same way. Before 6.13 (e00931c02568) all
 * functions that call each other share 512 bytes of stack, and those that record files need much of it.
 */
static long count_part(__u32 i, void *context)
{
	struct message_walk *w = context;

	if (!next_part(w))
		return 1;
	w->total += w->fds_count < SCM_MAX_FD ? w->fds_count : SCM_MAX_FD;
	return 0;
}

static long count_message(__u32 i, void *context)
{
	struct message_walk *w = context;

	if (i >= w->messages)
		return 1;
	if (open_message(w, i))
		bpf_loop(MAX_CMSGS, count_part, w, 0);
	return 0;
}

static long tell_part(__u32 i, void *context)
{
	struct message_walk *w = context;

	if (!next_part(w))
		return 1;
	if (w->fds_count)
		bpf_loop(SCM_MAX_FD, passed_step, w, 0);
	return 0;
}

static long tell_message(__u32 i, void *context)
{
	struct message_walk *w = context;

	if (i >= w->messages)
		return 1;
	if (open_message(w, i))
		bpf_loop(MAX_CMSGS, tell_part, w, 0);
	return 0;
}

/* Number of descriptors in a call's messages. A global function, which is verified once. */
__noinline int descriptors_in(struct task_state *st, __u32 many, __u32 messages)
{
	struct message_walk w = {.messages = many ? messages : 1};

	if (!st)
		return 0;
	w.message = st->op.args[1];
	bpf_loop(UIO_MAXIOV, count_message, &w, 0);
	return w.total;
}

/* Records each descriptor. */
__noinline int tell_descriptors(struct task_state *st, __u32 many, __u32 messages, __u64 now_ns)
{
	struct message_walk w = {.messages = many ? messages : 1, .now_ns = now_ns};

	if (!st)
		return 0;
	w.message = st->op.args[1];
	w.st = st;
	bpf_loop(UIO_MAXIOV, tell_message, &w, 0);
	return 0;
}

#endif
