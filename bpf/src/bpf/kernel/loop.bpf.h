/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Reads and writes of loop devices that use no VFS function; they are recorded when a request ends. Other I/O of loop
 * devices uses VFS functions (kernel/vfs.bpf.h).
 */
#ifndef IOREEL_LOOP_H
#define IOREEL_LOOP_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "inflight/bios.bpf.h"
#include "kernel/vfs.bpf.h"

/* Task id of the worker that last handled a device's requests, by the address of the device; 16 bytes each. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} loop_workers SEC(".maps");

/* A worker starts on waiting requests. The file is recorded here, because a request may end in an interrupt, where a
 * path cannot be built. */
SEC("fentry/loop_process_work")
int FUNCTION_PROG(loop_worker, void *worker, void *commands, struct loop_device *lo)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 key = (__u64)lo, file_address = 0;
	struct file_id id = {};
	struct vfs_state *vs;
	struct inode *inode;
	struct file *file;

	if (!ops_active || !vfs_kernel)
		return 0;
	vs = bpf_task_storage_get(&vfs_states, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!vs) {
		vfs_unfollowed();
		return 0;
	}
	if (!vs->task_id)
		vs->task_id = vfs_thread(task);
	bpf_map_update_elem(&loop_workers, &key, &vs->task_id, BPF_ANY);
	bpf_core_read(&file_address, sizeof(file_address), &lo->lo_backing_file);
	if (!file_address)
		return 0;
	file = kernel_cast(struct file, (void *)file_address);
	inode = peek(file, f_inode);
	if (!inode)
		return 0;
	identify(inode, &id);
	vfs_note_file(file_address, inode, &id, bpf_ktime_get_ns());
	return 0;
}

SEC("fentry/lo_complete_rq")
int FUNCTION_PROG(loop_done, struct request *rq)
{
	struct loop_cmd *command = (void *)rq + bpf_core_type_size(struct request);
	struct loop_device *lo = BPF_CORE_READ(rq, q, queuedata);
	__u64 key = (__u64)lo, now_ns = bpf_ktime_get_ns(), since_ns;
	__u32 op = rq->cmd_flags & REQ_OP_MASK, *worker;
	struct hidden_key hidden = {};
	struct rec_vfs r = {};
	struct rq_slot *s;
	struct inode *inode;
	struct rec_bio *b;
	__u8 *why;

	if (!ops_active || !vfs_kernel || op > REQ_OP_WRITE)
		return 0;
	/*
	 * Without asynchronous I/O: up to 6.12 functions are used that kernel/vfs.bpf.h watches, and the result here is
	 * only success or an error. Later kernels call the file system directly, and the result is the number of bytes.
	 */
	r.ret = BPF_CORE_READ(command, ret);
	if (!BPF_CORE_READ(command, use_aio) && r.ret <= 0)
		return 0;
	worker = bpf_map_lookup_elem(&loop_workers, &key);
	inode = BPF_CORE_READ(lo, lo_backing_file, f_inode);
	/* Without a worker, the request was started before the recording. */
	if (!worker || !inode)
		return 0;
	r.task_id = *worker;
	inode = kernel_cast(struct inode, inode);
	identify(inode, &r.file);
	hidden.ino = r.file.ino;
	hidden.sb_dev = r.sb_dev = peek(peek(inode, i_sb), s_dev);
	why = bpf_map_lookup_elem(&hidden_files, &hidden);
	if (why && *why == HIDE_OWN)
		return 0;
	/* The recorder's own reads of the device are not recorded here either. */
	b = rq->bio ? find_bio(rq->bio) : NULL;
	if (b && b->hide == HIDE_OWN)
		return 0;
	s = find_rq(rq);
	since_ns = s ? s->issue_ns : BPF_CORE_READ(rq, start_time_ns);
	r.start_ns = since_ns && since_ns < now_ns ? since_ns : now_ns;
	r.ofd = (__u64)BPF_CORE_READ(lo, lo_backing_file);
	r.function = op == REQ_OP_WRITE ? VFS_LOOP_WRITE : VFS_LOOP_READ;
	r.flags = VFSF_LOOP;
	r.len_bytes = rq->__data_len;
	r.pos_before = (rq->__sector << 9) + BPF_CORE_READ(lo, lo_offset);
	r.pos_after = r.pos_before + (r.ret > 0 ? r.ret : 0);
	emit_fixed(&r, REC_VFS, CLASS_VFS, now_ns);
	return 0;
}

#endif
