/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Descriptors that travel through sockets: SCM_RIGHTS in the control part of a message. */
#ifndef IOREEL_PASSED_H
#define IOREEL_PASSED_H

#define SOL_SOCKET 1
#define SCM_RIGHTS 1
#define SCM_MAX_FD 253
#define MAX_CMSGS 16 /* parts of one message; more than there are kinds */
#define UIO_MAXIOV 1024 /* messages of one call */
#define MMSGHDR_BYTES 64
#define MSG_CONTROL 32 /* in struct msghdr: msg_control, msg_controllen */

struct cmsg_head {
	__u64 len;
	__s32 level;
	__s32 type;
};

struct message_walk {
	struct task_state *st;
	struct task_struct *task;
	__u64 message;
	__u64 stride;
	__u32 messages;
	__u32 tell; /* send a record for each descriptor */
	__u64 at; /* the next part of the control data */
	__u64 end;
	__u64 fds; /* of the part at hand */
	__u32 fds_count;
	__u32 total;
	__u64 now_ns;
};

static long passed_step(__u32 i, void *context)
{
	struct message_walk *w = context;
	struct task_struct *task = bpf_get_current_task_btf();
	struct rec_passed rec = {};
	unsigned long *bits, word = 0;
	struct file *file;

	if (i >= w->fds_count)
		return 1;
	w->total++;
	if (!w->tell || bpf_probe_read_user(&rec.fd, sizeof(rec.fd), (void *)(w->fds + i * 4)))
		return 0;
	rec.task_id = w->st->task_id;
	rec.socket = w->st->op.args[0];
	rec.nr = w->st->op.nr;
	rec.flags = w->st->op.flags & OPF_COMPAT;
	rec.dur_ns = w->now_ns - w->st->start_ns;
	file = file_of_fd(task, rec.fd);
	if (file && file->f_inode) {
		identify(file->f_inode, &rec.file);
		rec.ofd = (__u64)file;
		rec.flags |= OPF_FILE;
		bits = task->files->fdt->close_on_exec;
		bpf_probe_read_kernel(&word, sizeof(word), bits + (__u32)rec.fd / 64);
		rec.cloexec = (word >> ((__u32)rec.fd % 64)) & 1;
		note_file(w->st, file, file->f_inode, &rec.file, w->now_ns, false);
	}
	emit_fixed(&rec, REC_PASSED, CLASS_OPS, w->now_ns);
	return 0;
}

static long cmsg_step(__u32 i, void *context)
{
	struct message_walk *w = context;
	struct cmsg_head head = {};

	if (w->at + sizeof(head) > w->end || bpf_probe_read_user(&head, sizeof(head), (void *)w->at) ||
	    head.len < sizeof(head) || head.len > w->end - w->at)
		return 1;
	if (head.level == SOL_SOCKET && head.type == SCM_RIGHTS) {
		w->fds = w->at + sizeof(head);
		w->fds_count = (head.len - sizeof(head)) / 4;
		bpf_loop(SCM_MAX_FD, passed_step, w, 0);
	}
	w->at += (head.len + 7) & ~7ull;
	return 0;
}

static long message_step(__u32 i, void *context)
{
	struct message_walk *w = context;
	__u64 control[2] = {};

	if (i >= w->messages)
		return 1;
	if (!bpf_probe_read_user(control, sizeof(control), (void *)(w->message + i * w->stride + MSG_CONTROL)) &&
	    control[0] && control[1] >= sizeof(struct cmsg_head)) {
		w->at = control[0];
		w->end = control[0] + control[1];
		bpf_loop(MAX_CMSGS, cmsg_step, w, 0);
	}
	return 0;
}

/* How many descriptors a call's messages carry; tells of each where `tell`. Global: verified once. */
__noinline int descriptors_in(struct task_state *st, __u32 many, __u32 messages, __u32 tell, __u64 now_ns)
{
	struct message_walk w = {
	    .stride = MMSGHDR_BYTES,
	    .messages = many ? messages : 1,
	    .tell = tell,
	    .now_ns = now_ns,
	};

	if (!st)
		return 0;
	w.message = st->op.args[1];
	w.st = st;
	bpf_loop(UIO_MAXIOV, message_step, &w, 0);
	return w.total;
}

#endif
