/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * File I/O of the kernel itself: by its threads (the NFS server, loop device workers, ksmbd), and on other files during
 * a task's call (the lower files of an overlay, the program file at exec).
 *
 * The programs are attached to functions that system calls of tasks do not use. read(2) and similar calls reach the
 * file system another way, so they do not get slower and are not recorded twice. Where both use the function (fsync,
 * splice), the file is compared with that of the call.
 */
#ifndef IOREEL_VFS_H
#define IOREEL_VFS_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/filters.bpf.h"
#include "tasks/tasks.bpf.h"
#include "inflight/uring_requests.bpf.h"
#include "kernel/loop_own.bpf.h"

const volatile bool vfs_below = false; /* what recorded tasks make the kernel do to other files */
const volatile struct work_desc vfs_works[WIRE_WORKS] = {};

/* include/linux/sched.h */
#define PF_WQ_WORKER 0x00000020

/* Maximum nesting of operations: an overlay of overlays exported by NFS has four. */
#define VFS_DEPTH 4
_Static_assert((VFS_DEPTH & (VFS_DEPTH - 1)) == 0, "a power of two");

struct vfs_state {
	__u32 task_id; /* id of a kernel thread */
	__u32 depth; /* number of operations in progress */
	__u64 frames_at[VFS_DEPTH]; /* stack address of the arguments of each */
	struct rec_vfs frames[VFS_DEPTH];
};

/* 592 bytes per thread with such operations. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct vfs_state);
} vfs_states SEC(".maps");

/* Address of a program's arguments as a number: the verifier lets no pointer into a global function. */
static __always_inline __u64 frame_of(const void *arguments)
{
	const void *kept = arguments;
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), &kept);
	return value;
}

static __always_inline __u64 first_argument(__u64 frame)
{
	__u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)frame);
	return value;
}

/* Index of the innermost operation; the verifier must see the bound where it is used. */
static __always_inline __u64 innermost(__u32 depth)
{
	__u64 i = depth - 1;

	asm volatile("%0 &= %1" : "+r"(i) : "i"(VFS_DEPTH - 1));
	return i;
}

/*
 * Whether an operation entered at `frame` is nested in an earlier one. If the kernel skipped the program at the earlier
 * one's exit, that is over: then its arguments are deeper on the stack than this frame, or have been overwritten.
 */
static __always_inline bool is_within(const struct vfs_state *vs, __u32 depth, __u64 frame)
{
	__u64 i = innermost(depth);

	return frame < vs->frames_at[i] && first_argument(vs->frames_at[i]) == vs->frames[i].ofd;
}

/* Sets the cause of a bio queued by a kernel thread during an operation: the outermost operation. */
static __noinline void set_vfs_cause(struct rec_bio *b, struct task_struct *task, __u64 frame)
{
	struct vfs_state *vs = bpf_task_storage_get(&vfs_states, task, 0, 0);

	if (!vs || !vs->depth || !is_within(vs, 1, frame))
		return;
	vs->frames[0].flags |= VFSF_IO;
	b->task_id = vs->task_id;
	b->cause_ns = vs->frames[0].start_ns;
}

static __always_inline bool same_file(const struct file_id *a, const struct file_id *b)
{
	return a->ino == b->ino && a->dev == b->dev && a->generation == b->generation;
}

/* What a worker thread is doing. */
static __always_inline __u32 work_of(struct task_struct *task)
{
	struct kthread *kthread = task->worker_private;
	struct worker *worker;
	__u64 function;
	int i;

	if (!(task->flags & PF_WQ_WORKER) || !kthread)
		return WORK_OTHER;
	worker = BPF_CORE_READ(kthread, data);
	function = worker ? (__u64)BPF_CORE_READ(worker, current_func) : 0;
	for (i = 0; i < WIRE_WORKS && vfs_works[i].address; i++) {
		if (vfs_works[i].address == function)
			return vfs_works[i].kind;
	}
	return WORK_OTHER;
}

static __always_inline void vfs_unfollowed(void)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l)
		l->vfs_unfollowed++;
}

/* Sends the record of a kernel thread at its first operation. */
static __noinline __u32 vfs_thread(struct task_struct *task)
{
	struct rec_task rec = {};
	__u32 id = __sync_fetch_and_add(&next_task_id, 1) + 1;

	fill_task(&rec, task, id);
	rec.parent = WIRE_KERNEL_TASK;
	emit_fixed(&rec, REC_TASK, CLASS_TASKS, bpf_ktime_get_ns());
	return id;
}

/* Sends the record of a file at its first use. The address is a number, as tell_file needs it. */
static __always_inline void vfs_note_file(__u64 file_address, struct inode *inode, const struct file_id *id,
					  __u64 now_ns)
{
	__u32 *seen = bpf_map_lookup_elem(&files_seen, id), version = version_of(inode);
	struct file *file = (void *)file_address;
	__u64 inode_address = 0;
	bool renewed = seen;

	if (seen && *seen == version)
		return;
	bpf_map_update_elem(&files_seen, id, &version, BPF_ANY);
	bpf_core_read(&inode_address, sizeof(inode_address), &file->f_inode);
	if (tell_file(file_address, inode_address, now_ns, renewed) && lossless)
		bpf_map_delete_elem(&files_seen, id); /* sent again at its next use */
}

/* Finds who performs the operation, and the recorded operation it is part of. False if it is not recorded. */
static __noinline bool vfs_origin(struct task_struct *task, struct rec_vfs *r)
{
	struct task_state *st;
	struct pt_regs *regs;
	__u64 nr;

	if (task->flags & PF_KTHREAD) {
		__u32 work = vfs_kernel ? work_of(task) : WORK_TOLD;

		if (work == WORK_LOOP)
			r->flags |= VFSF_LOOP;
		return work != WORK_TOLD;
	}
	if (!vfs_below)
		return false;
	if (task->flags & PF_IO_WORKER) {
		const void *request = uring_of_worker(task);
		struct uring_state *s = request ? uring_known(request) : NULL;

		if (!s || ((s->rec.flags & URF_FILE) && same_file(&s->rec.file, &r->file)))
			return false;
		/* The second file of a copy. */
		if ((s->rec.flags & URF_FILE2) && s->rec.extra[1] == r->file.ino &&
		    (__u32)s->rec.extra[2] == r->file.dev)
			return false;
		r->task_id = r->parent = s->rec.task_id;
		r->parent_ns = s->rec.start_ns;
		r->flags |= VFSF_BELOW;
		return true;
	}
	st = recorded(task);
	if (!st || st->in_call == IN_CALL_UNSEEN)
		return false;
	r->task_id = st->task_id;
	if (st->in_call) {
		if (((st->op.flags & OPF_FILE) && same_file(&st->op.file, &r->file)) ||
		    ((st->op.flags & OPF_FILE2) && same_file(&st->tail.file2, &r->file)))
			return false;
		r->parent = st->task_id;
		r->parent_ns = st->start_ns;
		r->flags |= VFSF_BELOW;
		return true;
	}
	/* If the call was filtered out, so is what is part of it. If the call is one that is never recorded, the
	 * operation is recorded. */
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	nr = (long)BPF_CORE_READ(regs, CALL_NUMBER);
	return nr >= WIRE_CALLS || desc_of(nr, by_32_bit_entry(task))->kind == CALL_NONE;
}

/* A global function, which is verified once. It takes no kernel pointers, so the file is found through the address of
 * the arguments. */
__noinline int vfs_enter(__u64 frame, __u32 fn, __s64 pos, __u64 len_bytes, __u32 arg)
{
	__u64 file_address = first_argument(frame);
	struct file *file = kernel_cast(struct file, (void *)file_address);
	struct task_struct *task = bpf_get_current_task_btf();
	struct inode *inode = peek(file, f_inode);
	struct hidden_key hidden = {};
	struct rec_vfs r = {}, *top;
	struct vfs_state *vs;
	__u32 depth;
	__u8 *why;
	int i;

	if (!inode)
		return 0;
	identify(inode, &r.file);
	if (!vfs_origin(task, &r))
		return 0;
	hidden.ino = r.file.ino;
	hidden.sb_dev = r.sb_dev = peek(peek(inode, i_sb), s_dev);
	why = bpf_map_lookup_elem(&hidden_files, &hidden);
	if (why && *why == HIDE_OWN)
		return 0;
	if ((r.flags & VFSF_LOOP) && fn == VFS_ITER_READ && is_own_read(file_address, pos))
		return 0;
	vs = bpf_task_storage_get(&vfs_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!vs) {
		vfs_unfollowed();
		return 0;
	}
	depth = vs->depth;
	for (i = 0; i < VFS_DEPTH && depth && !is_within(vs, depth, frame); i++)
		depth--;
	/* Part of the same operation: a synchronous write calls fsync itself. */
	if (depth && vs->frames[innermost(depth)].ofd == file_address)
		return 0;
	if (depth >= VFS_DEPTH) {
		vfs_unfollowed();
		return 0;
	}
	if (task->flags & PF_KTHREAD) {
		if (!vs->task_id)
			vs->task_id = vfs_thread(task);
		r.task_id = vs->task_id;
	}
	if (depth) {
		top = &vs->frames[innermost(depth)];
		r.parent = top->task_id;
		r.parent_ns = top->start_ns;
		r.flags |= VFSF_BELOW;
	}
	if (other_thread(task))
		r.flags |= VFSF_OTHER_THREAD;
	r.start_ns = bpf_ktime_get_ns();
	r.ofd = file_address;
	r.function = fn;
	r.arg = arg;
	r.pos_before = pos;
	r.len_bytes = len_bytes;
	vs->depth = ++depth;
	vs->frames[innermost(depth)] = r;
	vs->frames_at[innermost(depth)] = frame;
	vfs_note_file(file_address, inode, &r.file, r.start_ns);
	return 0;
}

__noinline int vfs_leave(__u64 frame, __u32 fn, __s64 pos, __s64 ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct vfs_state *vs = bpf_task_storage_get(&vfs_states, task, 0, 0);
	struct rec_vfs *r;
	__u32 depth;
	int i;

	if (!vs)
		return 0;
	depth = vs->depth;
	/* Operations nested in it are over too. */
	for (i = 0; i < VFS_DEPTH && depth && vs->frames_at[innermost(depth)] < frame; i++)
		depth--;
	if (!depth || depth > VFS_DEPTH)
		return 0;
	r = &vs->frames[innermost(depth)];
	if (r->function != fn || vs->frames_at[innermost(depth)] != frame)
		return 0;
	vs->depth = depth - 1;
	r->pos_after = pos;
	r->ret = ret;
	emit_fixed(r, REC_VFS, CLASS_VFS, bpf_ktime_get_ns());
	return 0;
}

static __always_inline __s64 position_at(const long long *pos)
{
	__s64 value = 0;

	if (pos)
		bpf_probe_read_kernel(&value, sizeof(value), pos);
	return value;
}

SEC("fentry/vfs_iter_read")
int FUNCTION_PROG(vfs_iter_read_in, struct file *file, struct iov_iter *iter, long long *pos, __u32 flags)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_ITER_READ, position_at(pos), BPF_CORE_READ(iter, count), flags)
			  : 0;
}

SEC("fexit/vfs_iter_read")
int FUNCTION_PROG(vfs_iter_read_out, struct file *file, struct iov_iter *iter, long long *pos, __u32 flags, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_ITER_READ, position_at(pos), ret) : 0;
}

SEC("fentry/vfs_iter_write")
int FUNCTION_PROG(vfs_iter_write_in, struct file *file, struct iov_iter *iter, long long *pos, __u32 flags)
{
	return ops_active
		   ? vfs_enter(frame_of(ctx), VFS_ITER_WRITE, position_at(pos), BPF_CORE_READ(iter, count), flags)
		   : 0;
}

SEC("fexit/vfs_iter_write")
int FUNCTION_PROG(vfs_iter_write_out, struct file *file, struct iov_iter *iter, long long *pos, __u32 flags, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_ITER_WRITE, position_at(pos), ret) : 0;
}

SEC("fentry/vfs_iocb_iter_read")
int FUNCTION_PROG(vfs_iocb_read_in, struct file *file, struct kiocb *iocb, struct iov_iter *iter)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_IOCB_READ, iocb->ki_pos, BPF_CORE_READ(iter, count), 0) : 0;
}

SEC("fexit/vfs_iocb_iter_read")
int FUNCTION_PROG(vfs_iocb_read_out, struct file *file, struct kiocb *iocb, struct iov_iter *iter, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_IOCB_READ, iocb->ki_pos, ret) : 0;
}

SEC("fentry/vfs_iocb_iter_write")
int FUNCTION_PROG(vfs_iocb_write_in, struct file *file, struct kiocb *iocb, struct iov_iter *iter)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_IOCB_WRITE, iocb->ki_pos, BPF_CORE_READ(iter, count), 0) : 0;
}

SEC("fexit/vfs_iocb_iter_write")
int FUNCTION_PROG(vfs_iocb_write_out, struct file *file, struct kiocb *iocb, struct iov_iter *iter, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_IOCB_WRITE, iocb->ki_pos, ret) : 0;
}

SEC("fentry/splice_direct_to_actor")
int FUNCTION_PROG(vfs_splice_in, struct file *in, struct splice_desc *sd)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_SPLICE, sd->pos, sd->total_len, 0) : 0;
}

SEC("fexit/splice_direct_to_actor")
int FUNCTION_PROG(vfs_splice_out, struct file *in, struct splice_desc *sd, void *actor, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_SPLICE, sd->pos, ret) : 0;
}

SEC("fentry/vfs_splice_read")
int FUNCTION_PROG(vfs_splice_read_in, struct file *in, long long *pos, void *pipe, size_t len)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_SPLICE_READ, position_at(pos), len, 0) : 0;
}

SEC("fexit/vfs_splice_read")
int FUNCTION_PROG(vfs_splice_read_out, struct file *in, long long *pos, void *pipe, size_t len, __u32 flags, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_SPLICE_READ, position_at(pos), ret) : 0;
}

SEC("fentry/__kernel_read")
int FUNCTION_PROG(vfs_kernel_read_in, struct file *file, void *buf, size_t count, long long *pos)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_KERNEL_READ, position_at(pos), count, 0) : 0;
}

SEC("fexit/__kernel_read")
int FUNCTION_PROG(vfs_kernel_read_out, struct file *file, void *buf, size_t count, long long *pos, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_KERNEL_READ, position_at(pos), ret) : 0;
}

SEC("fentry/__kernel_write_iter")
int FUNCTION_PROG(vfs_kernel_write_in, struct file *file, struct iov_iter *iter, long long *pos)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_KERNEL_WRITE, position_at(pos), BPF_CORE_READ(iter, count), 0)
			  : 0;
}

SEC("fexit/__kernel_write_iter")
int FUNCTION_PROG(vfs_kernel_write_out, struct file *file, struct iov_iter *iter, long long *pos, long ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_KERNEL_WRITE, position_at(pos), ret) : 0;
}

SEC("fentry/vfs_fsync_range")
int FUNCTION_PROG(vfs_fsync_in, struct file *file, long long start, long long end, int datasync)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_FSYNC, start, end - start, datasync != 0) : 0;
}

SEC("fexit/vfs_fsync_range")
int FUNCTION_PROG(vfs_fsync_out, struct file *file, long long start, long long end, int datasync, int ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_FSYNC, start, ret) : 0;
}

/* Likewise for a whole file, where the compiler has merged the two functions. */
SEC("fentry/vfs_fsync")
int FUNCTION_PROG(vfs_fsync_whole_in, struct file *file, int datasync)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_FSYNC, 0, (__u64)-1 >> 1, datasync != 0) : 0;
}

SEC("fexit/vfs_fsync")
int FUNCTION_PROG(vfs_fsync_whole_out, struct file *file, int datasync, int ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_FSYNC, 0, ret) : 0;
}

SEC("fentry/vfs_fallocate")
int FUNCTION_PROG(vfs_fallocate_in, struct file *file, int mode, long long offset, long long len)
{
	return ops_active ? vfs_enter(frame_of(ctx), VFS_FALLOCATE, offset, len, mode) : 0;
}

SEC("fexit/vfs_fallocate")
int FUNCTION_PROG(vfs_fallocate_out, struct file *file, int mode, long long offset, long long len, int ret)
{
	return ops_active ? vfs_leave(frame_of(ctx), VFS_FALLOCATE, offset, ret) : 0;
}

/* Records the end of kernel threads. */
SEC("tp_btf/sched_process_exit")
int ATOMIC_PROG(vfs_task_exit, struct task_struct *task)
{
	struct vfs_state *vs;
	struct rec_task rec = {};

	if (!block_active || !(task->flags & PF_KTHREAD))
		return 0;
	vs = bpf_task_storage_get(&vfs_states, task, 0, 0);
	if (!vs || !vs->task_id)
		return 0;
	fill_task(&rec, task, vs->task_id);
	rec.exit_code = task->exit_code;
	emit_fixed(&rec, REC_EXIT, CLASS_TASKS, bpf_ktime_get_ns());
	return 0;
}

#endif
