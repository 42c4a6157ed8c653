/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Calls that need more than the call table: names, input and output memory, and the calls fcntl, ioctl and those with
 * handles. capture/src/calls/ defines their meaning.
 */
#ifndef IOREEL_CALLS_H
#define IOREEL_CALLS_H

#include "base/wire.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/long_ops.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/kernel_ids.bpf.h"

#define F_DUPFD 0
#define F_GETFD 1
#define F_SETFD 2
#define F_GETFL 3
#define F_GETLK 5
#define F_SETLK 6
#define F_SETLKW 7
#define F_SETOWN 8
#define F_GETLK64 12
#define F_SETLKW64 14
#define F_SETOWN_EX 15
#define F_GETOWNER_UIDS 17
#define F_OFD_GETLK 36
#define F_OFD_SETLKW 38
#define F_DUPFD_CLOEXEC 1030
#define FLOCK_BYTES 32 /* struct flock; i386's structs are shorter */

#define IOC_WRITE 1
#define IOC_READ 2
#define ioc_dir(cmd) ((cmd) >> 30)
#define ioc_bytes(cmd) (((cmd) >> 16) & 0x3fff)
#define IOC_BYTES 64 /* maximum recorded of an ioctl's argument */
#define FIBMAP 1u
#define FIGETBSZ 2u
#define FICLONE 0x40049409u
#define FICLONERANGE 0x4020940du
#define FIDEDUPERANGE 0xc0189436u
#define DEDUPE_BYTES 56 /* struct file_dedupe_range and its first destination */
#define DEDUPE_FD 24 /* offset of the descriptor of the first destination */
/* ioctls on btrfs subvolumes (linux/btrfs.h) with struct btrfs_ioctl_vol_args and _v2. */
#define BTRFS_SNAP_CREATE 0x50009401u
#define BTRFS_SUBVOL_CREATE 0x5000940eu
#define BTRFS_SNAP_DESTROY 0x5000940fu
#define BTRFS_SNAP_CREATE_V2 0x50009417u
#define BTRFS_SUBVOL_CREATE_V2 0x50009418u
#define BTRFS_SNAP_DESTROY_V2 0x5000943fu
#define VOL_ARGS_NAME 8
#define VOL_ARGS_V2_NAME 56

#define HANDLE_HEAD_BYTES 8 /* struct file_handle without its variable part */

/* Input and output memory of a call. */
struct call_memory {
	__u64 name;
	__u64 in;
	__u64 out;
	__u32 in_bytes; /* 0: a string, if in is set */
	__u32 out_bytes;
};

static __always_inline bool is_file(struct file *file)
{
	struct inode *inode = peek(file, f_inode);
	__u16 kind = inode ? peek(inode, i_mode) & S_IFMT : 0;

	return kind == S_IFREG || kind == S_IFDIR || kind == S_IFBLK;
}

/* Whether a fcntl or ioctl is recorded; checked before anything is stored. Other kinds always are. */
static __noinline bool wanted(struct task_struct *task, struct task_state *st, __u8 kind)
{
	__u32 cmd = st->op.args[1];
	struct file *file;

	if (kind != CALL_FCNTL && kind != CALL_IOCTL)
		return true;
	if (kind == CALL_FCNTL) {
		if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC || cmd == F_SETFD)
			return true;
		if (cmd == F_GETFD || cmd == F_GETFL || (cmd >= F_SETOWN && cmd < F_GETLK64) ||
		    (cmd >= F_SETOWN_EX && cmd <= F_GETOWNER_UIDS))
			return false;
	}
	/* Calls on a descriptor that is not open are recorded: it is no terminal either. */
	file = file_of_fd(task, (int)st->op.args[0]);
	return !file || is_file(file);
}

/*
 * Whether bind gives a socket a name in a file system; checked before anything is stored. The argument then points to
 * the path instead of the address.
 */
static __noinline bool binds_name(struct task_state *st)
{
	__u16 family = 0;
	char first = 0;

	if (bpf_probe_read_user(&family, sizeof(family), (void *)st->op.args[1]) || family != AF_UNIX)
		return false;
	st->op.args[1] += sizeof(family);
	return !bpf_probe_read_user(&first, sizeof(first), (void *)st->op.args[1]) && first;
}

static __always_inline bool is_lock(__u32 cmd)
{
	return (cmd >= F_GETLK && cmd <= F_SETLKW) || (cmd >= F_GETLK64 && cmd <= F_SETLKW64) ||
	       (cmd >= F_OFD_GETLK && cmd <= F_OFD_SETLKW);
}

static __always_inline void ioctl_memory(const struct rec_op *op, struct call_memory *m)
{
	__u32 cmd = op->args[1], bytes = ioc_bytes(cmd);
	__u64 arg = op->args[2];

	if (cmd == FICLONE)
		return;
	if (cmd == FIBMAP || cmd == FIGETBSZ)
		bytes = 4;
	else if (cmd == FIDEDUPERANGE)
		bytes = DEDUPE_BYTES;
	if (bytes > IOC_BYTES)
		bytes = IOC_BYTES;
	if (bytes && ((ioc_dir(cmd) & IOC_WRITE) || cmd == FIBMAP)) {
		m->in = arg;
		m->in_bytes = bytes;
	}
	if ((ioc_dir(cmd) & IOC_READ) || cmd == FIBMAP || cmd == FIGETBSZ) {
		m->out = arg;
		m->out_bytes = bytes;
	}
	if (cmd == BTRFS_SNAP_CREATE || cmd == BTRFS_SUBVOL_CREATE || cmd == BTRFS_SNAP_DESTROY)
		m->name = arg + VOL_ARGS_NAME;
	else if (cmd == BTRFS_SNAP_CREATE_V2 || cmd == BTRFS_SUBVOL_CREATE_V2 || cmd == BTRFS_SNAP_DESTROY_V2)
		m->name = arg + VOL_ARGS_V2_NAME;
}

static __noinline void memory_of(const struct rec_op *op, const struct call_desc *d, struct call_memory *m)
{
	__u32 cmd = op->args[1], limit;

	m->name = arg_of(op, d->name);
	m->in = arg_of(op, d->in);
	m->out = arg_of(op, d->out);
	m->in_bytes = limit = d->in_words * 8;
	m->out_bytes = d->out_words * 8;
	if (d->in_len) {
		__u64 len = arg_of(op, d->in_len);

		if (len < limit)
			m->in_bytes = len;
		if (!len)
			m->in = 0;
	}
	if (d->kind == CALL_FCNTL && is_lock(cmd)) {
		m->in = op->args[2];
		m->in_bytes = FLOCK_BYTES;
		if (cmd == F_GETLK || cmd == F_GETLK64 || cmd == F_OFD_GETLK) {
			m->out = op->args[2];
			m->out_bytes = FLOCK_BYTES;
		}
	} else if (d->kind == CALL_IOCTL) {
		ioctl_memory(op, m);
	} else if (d->kind == CALL_XATTRAT) {
		struct {
			__u64 value;
			__u32 size;
			__u32 flags;
		} args = {};

		if (m->in && !bpf_probe_read_user(&args, sizeof(args), (void *)m->in)) {
			m->in = args.size ? args.value : 0;
			m->in_bytes = args.size < limit ? args.size : limit;
		} else {
			m->in = 0;
		}
	} else if (d->kind == CALL_HANDLE || d->kind == CALL_HANDLE_OPEN) {
		__u64 at = m->in ? m->in : m->out;
		__u32 bytes = 0;

		/* A given handle states its length; a returned one is at most as long as the space for it. */
		limit = m->in ? limit : m->out_bytes;
		if (!bpf_probe_read_user(&bytes, sizeof(bytes), (void *)at))
			bytes = bytes < limit - HANDLE_HEAD_BYTES ? bytes + HANDLE_HEAD_BYTES : limit;
		m->in_bytes = m->out_bytes = bytes;
	}
}

/* Reads the name and input memory, after the paths. Called again at return, when pages may have become resident. */
static __noinline void read_given(struct task_state *st, struct long_op *lo, const struct call_memory *m)
{
	struct op_tail *t = &st->tail;
	__u32 at, len = m->in_bytes;
	long n;

	t->name_bytes = 0;
	t->in_bytes = 0;
	if (m->name) {
		n = bpf_probe_read_user_str(lo->rest, WIRE_NAME_BYTES + 1, (void *)m->name);
		if (n >= 0 && n <= WIRE_NAME_BYTES + 1)
			t->name_bytes = string_bytes(n);
	}
	if (!m->in)
		return;
	at = t->name_bytes;
	if (!len) {
		n = bpf_probe_read_user_str(lo->rest + at, WIRE_IN_BYTES, (void *)m->in);
		if (n >= 0 && n <= WIRE_IN_BYTES)
			t->in_bytes = string_bytes(n);
		return;
	}
	if (len > WIRE_IN_BYTES)
		len = WIRE_IN_BYTES;
	barrier_var(len);
	if (len <= WIRE_IN_BYTES && !bpf_probe_read_user(lo->rest + at, len, (void *)m->in))
		t->in_bytes = len;
}

/* Reads the memory that a successful call wrote. */
static __noinline void read_gotten(struct task_state *st, struct long_op *lo, const struct call_memory *m)
{
	struct op_tail *t = &st->tail;
	__u32 at = rest_bytes(t), len = m->out_bytes;

	if (len > WIRE_OUT_BYTES)
		len = WIRE_OUT_BYTES;
	barrier_var(len);
	if (at < LONG_REST_BYTES - WIRE_OUT_BYTES && len <= WIRE_OUT_BYTES &&
	    !bpf_probe_read_user(lo->rest + at, len, (void *)m->out))
		t->out_bytes = len;
}

/* Whether the functions above apply to the call. For fcntl only with locks, which most programs do not use. */
static __always_inline bool has_memory(const struct rec_op *op, const struct call_desc *d)
{
	if (d->kind == CALL_FCNTL)
		return is_lock(op->args[1]);
	if (unlikely(d->memory == MEMORY_IN_USER_NS))
		return in_user_ns();
	return d->memory;
}

/* Whether the ioctl's argument is the source of the data; the source comes first in a row. */
static __always_inline bool argument_is_source(__u32 cmd)
{
	return cmd == FICLONE || cmd == FICLONERANGE || cmd == BTRFS_SNAP_CREATE || cmd == BTRFS_SNAP_CREATE_V2;
}

/* Descriptor in an ioctl's argument; -1: none. */
static __always_inline int ioctl_fd(const struct rec_op *op)
{
	__u32 cmd = op->args[1], at = 0;
	__s64 fd = -1;

	if (cmd == FICLONE)
		return op->args[2];
	if (cmd == FIDEDUPERANGE)
		at = DEDUPE_FD;
	else if (cmd != FICLONERANGE && cmd != BTRFS_SNAP_CREATE && cmd != BTRFS_SNAP_CREATE_V2)
		return -1;
	return bpf_probe_read_user(&fd, sizeof(fd), (void *)(op->args[2] + at)) ? -1 : fd;
}

static __always_inline bool is_long(const struct rec_op *op, const struct call_desc *d)
{
	return d->tail || has_memory(op, d);
}

#endif
