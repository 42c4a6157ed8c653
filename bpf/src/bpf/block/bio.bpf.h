/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Bios as the file system queues them; block/requests.bpf.h handles the requests that the device receives. A request
 * may carry bios of many files, so files are recorded per bio.
 */
#ifndef IOREEL_BLOCK_H
#define IOREEL_BLOCK_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/disks.bpf.h"
#include "tasks/fault.bpf.h"
#include "inflight/bios.bpf.h"
#include "inflight/uring_requests.bpf.h"
#include "kernel/cache.bpf.h"
#include "kernel/vfs.bpf.h"
#include "block/attribute_files.bpf.h"
#include "block/attribute.bpf.h"
#include "block/bio_rows.bpf.h"

/* The device checked last. Devices are never removed from the map, so a match needs no lookup. */
__u32 last_device = 0;

static __always_inline bool is_recorded_device(__u32 dev)
{
	if (likely(dev == last_device))
		return true;
	if (!bpf_map_lookup_elem(&devices, &dev))
		return false;
	last_device = dev;
	return true;
}

/* A bio that is about to be queued on another device: its address (key), where it came from, and where it goes. */
struct remapped {
	__u64 key;
	__u64 sector;
	__u64 to_sector;
	__u32 dev;
	__u32 to_dev;
};

/* Indexed by the target sector. Entries are needed only for a moment. Not per CPU, because a device mapper thread may
 * move to another CPU before it queues the bio. */
#define REMAPPED_BITS 10

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << REMAPPED_BITS);
	__type(key, __u32);
	__type(value, struct remapped);
} remapped SEC(".maps");

static __always_inline struct remapped *remapped_to(__u64 sector)
{
	__u32 slot = (sector * 0x9e3779b97f4a7c15ull) >> (64 - REMAPPED_BITS);

	return bpf_map_lookup_elem(&remapped, &slot);
}

/* Sets the device and sector where the bio was before. Its current device and sector must be set. */
static __always_inline void set_origin(struct rec_bio *b, const void *bio, struct block_device *bdev)
{
	struct remapped *from = remapped_to(b->sector);

	/* A remapped bio may never have been queued, and another bio may have its address now. */
	if (unlikely(from && from->key == (__u64)bio) && from->to_dev == b->dev && from->to_sector == b->sector) {
		b->orig_dev = from->dev;
		b->orig_sector = from->sector;
		from->key = 0;
	} else if (bdev->bd_start_sect) {
		b->orig_dev = bdev->bd_dev;
		b->orig_sector = b->sector - bdev->bd_start_sect;
	}
}

/*
 * There are two programs for every end. When the kernel skips one, because it is already running on that CPU, the other
 * records the event: a disk's interrupt may end dozens of requests while the end of another disk's request is handled.
 * Where programs are preemptible just before or after their work (base/atomic.bpf.h), there are two programs for
 * queueing, remapping and issue as well. They run one after the other, in the order below; `again` is true in the
 * second.
 */

/*
 * Handles a queued bio; `again` is true in the second of the two programs.
 *
 * Long because the record is filled in sequence, in the slot where it stays.
 */
static __always_inline int bio_queued(unsigned long long *ctx, struct bio *bio, bool again)
{
	struct block_device *bdev = bio->bi_bdev;
	struct task_struct *task;
	struct task_state *st;
	struct uring_slot *request = NULL;
	const void *worker_for;
	struct task_ref *ref;
	struct bio_slot *s;
	struct rec_bio *b;
	__u32 dev, task_id = 0;
	__u8 one = 1;

	if (!block_active)
		return 0;
	if (again) {
		s = find_bio_slot(bio);
		if (s && s->settled) {
			s->settled = 0;
			return 0;
		}
	}
	dev = disk_dev(bdev->bd_disk);
	task = bpf_get_current_task_btf();
	/* For most threads the stack is enough. It saves two lookups in task storage, which keeps the id of an ending
	 * thread. */
	st = recorded_here((struct pt_regs *)bpf_task_pt_regs(task));
	if (likely(st)) {
		task_id = st->task_id;
	} else if ((ref = recorded_ref(task))) {
		task_id = ref->task_id;
		st = state_of(task, ref);
	} else if (task->flags & PF_IO_WORKER) {
		/* A worker belongs to its process; the request that it executes may be known too. */
		if (uring_met && (worker_for = uring_of_worker(task)))
			request = uring_find(worker_for);
		task_id = request ? request->state.rec.task_id : recorded_id(task->group_leader);
	}
	if (unlikely(!is_recorded_device(dev))) {
		if (fixed_devices)
			return 0;
		if (!task_id) {
			/* Devices below a recorded device are recorded too, whoever uses them first. */
			if (!parent_of(bio))
				return 0;
			bpf_map_update_elem(&devices, &dev, &one, BPF_ANY);
		}
	}
	s = take_bio_slot(bio, again);
	if (!s)
		return 0;
	b = &s->rec;
	if (unlikely(b->queue_ns))
		end_unseen(b);
	s->settled = preemptible && !again;
	if (again)
		count_caught(SECOND_BIO_QUEUE);
	b->rq_id = 0;
	b->queue_ns = bpf_ktime_get_ns();
	b->sector = bio->bi_iter.bi_sector;
	b->len_bytes = bio->bi_iter.bi_size;
	b->opf = bio->bi_opf;
	b->dev = dev;
	b->orig_dev = 0;
	b->orig_sector = 0;
	b->cause_ns = 0;
	b->file = (struct file_id){};
	b->file_offset_bytes = -1;
	b->sb_dev = 0;
	b->how = 0;
	b->flags = 0;
	b->hide = 0;
	b->task_id = task_id;
	if (st && st->in_call) {
		b->cause_ns = st->start_ns;
		st->op.flags |= OPF_IO;
	} else if (request) {
		b->cause_ns = request->state.rec.start_ns;
		request->state.rec.flags |= URF_IO;
	}
	if (!task_id)
		__builtin_memcpy(b->comm, task->comm, sizeof(b->comm));
	set_origin(b, bio, bdev);
	attribute(bio, b, st);
	/* I/O of a call on the device node without pages of a file: zeroing. */
	if (!b->how && st && st->in_call && (st->op.flags & OPF_FILE))
		set_bdev_file(b, bio, kernel_cast(struct file, (void *)st->op.ofd));
	if (st && !st->in_call)
		set_fault_cause(b, task);
	if (vfs_kernel && !b->task_id && (task->flags & PF_KTHREAD))
		set_vfs_cause(b, task, frame_of(ctx));
	/* Its layouts are read while bios are recorded. */
	if (unlikely((__u32)task->tgid == self_tgid || (self_tid && (__u32)task->pid == self_tid)))
		b->hide = HIDE_OWN;
	if (cache_wanted && !b->hide)
		cache_writeback(b);
	/* Disks used by recorded tasks are recorded, except when a loop device passes on the I/O. */
	if (unlikely(dev != last_device) && task_id && !b->hide)
		bpf_map_update_elem(&devices, &dev, &one, BPF_ANY);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int ATOMIC_PROG(bio_queue, struct bio *bio)
{
	return bio_queued(ctx, bio, false);
}

SEC("tp_btf/block_bio_queue")
int ATOMIC_PROG(bio_queue_again, struct bio *bio)
{
	return bio_queued(ctx, bio, true);
}

/*
 * Whether the bio that moves is this record's, and not one that reused the memory of a bio whose end was not seen.
 * Parts of it may have been sent on unseen. A bio may move from an array to a partition, and from there to the disk.
 */
static __always_inline bool moves(const struct rec_bio *b, struct bio *bio, __u32 dev, __u64 sector)
{
	return (b->dev == dev || b->dev == disk_dev(bio->bi_bdev->bd_disk)) && sector - b->sector <= b->len_bytes >> 9;
}

/*
 * A partition or mapped device passes a bio on to another device. A bio that is already queued (striped arrays) moves;
 * others (of a partition, or a clone of a mapped device) are about to be queued. Running twice gives the same result.
 */
static __always_inline int bio_remapped(struct bio *bio, __u32 dev, __u64 sector)
{
	struct bio_slot *s;
	struct remapped *to, *before;

	if (!block_active)
		return 0;
	s = find_bio_slot(bio);
	if (s && moves(&s->rec, bio, dev, sector)) {
		if (!s->rec.orig_dev) {
			s->rec.orig_dev = dev;
			s->rec.orig_sector = sector;
		}
		s->rec.dev = disk_dev(bio->bi_bdev->bd_disk);
		s->rec.sector = bio->bi_iter.bi_sector;
	}
	/* Whatever the slot contains: unless it moved just now, this bio is about to be queued. */
	to = remapped_to(bio->bi_iter.bi_sector);
	before = remapped_to(sector);
	if (!to || !before)
		return 0;
	/* A mapped device's clone onto a partition passes here twice; the first time tells its origin. */
	if (before->key == (__u64)bio && before->to_sector == sector) {
		dev = before->dev;
		sector = before->sector;
	}
	to->dev = dev;
	to->sector = sector;
	to->key = (__u64)bio;
	to->to_dev = disk_dev(bio->bi_bdev->bd_disk);
	to->to_sector = bio->bi_iter.bi_sector;
	return 0;
}

SEC("tp_btf/block_bio_remap")
int ATOMIC_PROG(bio_remap, struct bio *bio, __u32 dev, __u64 sector)
{
	return bio_remapped(bio, dev, sector);
}

SEC("tp_btf/block_bio_remap")
int ATOMIC_PROG(bio_remap_again, struct bio *bio, __u32 dev, __u64 sector)
{
	return bio_remapped(bio, dev, sector);
}

/* Removes the first `len` bytes from a bio, which are now a bio of their own. */
static __always_inline void cut_front(struct rec_bio *from, __u32 len)
{
	from->flags |= BIOF_SPLIT;
	from->sector += len >> 9;
	from->len_bytes -= len;
	if (from->orig_dev)
		from->orig_sector += len >> 9;
	if (from->file_offset_bytes >= 0)
		from->file_offset_bytes += len;
}

/* The front of a split bio becomes a separate bio, a clone that reports its end to the original. */
SEC("tp_btf/block_split")
int ATOMIC_PROG(bio_split, struct bio *front, unsigned int sector)
{
	const void *parent = front->bi_private;
	struct rec_bio *from, *b;
	struct bio_slot *s;
	__u64 missed;

	if (!block_active)
		return 0;
	from = find_bio(parent);
	if (!from)
		return 0;
	s = take_bio_slot(front, false);
	if (!s)
		return 0;
	b = &s->rec;
	if (b->queue_ns)
		end_unseen(b);
	/* Some kernels do not fire the tracepoint for every split. The earlier parts were not seen, and their end will
	 * not be seen. */
	missed = (front->bi_iter.bi_sector - from->sector) << 9;
	if (missed && missed < from->len_bytes && from->dev == disk_dev(front->bi_bdev->bd_disk)) {
		*b = *from;
		b->len_bytes = missed;
		b->flags |= BIOF_SPLIT;
		cut_front(from, missed);
		end_unseen(b);
	}
	*b = *from;
	b->len_bytes = front->bi_iter.bi_size;
	b->sector = front->bi_iter.bi_sector;
	b->flags |= BIOF_SPLIT;
	cut_front(from, b->len_bytes);
	from->sector = b->sector + (b->len_bytes >> 9);
	return 0;
}

SEC("tp_btf/block_bio_backmerge")
int ATOMIC_PROG(bio_backmerge, struct bio *bio)
{
	struct rec_bio *b = find_bio(bio);

	if (b)
		b->flags |= BIOF_MERGED;
	return 0;
}

SEC("tp_btf/block_bio_frontmerge")
int ATOMIC_PROG(bio_frontmerge, struct bio *bio)
{
	struct rec_bio *b = find_bio(bio);

	if (b)
		b->flags |= BIOF_MERGED;
	return 0;
}

/*
 * Ends of bios that are not in a request: of devices without requests, or refused before they got one. A recorded bio
 * is removed from the table, so the second program does not find it.
 */
static __always_inline int bio_completed(struct bio *bio, bool again)
{
	struct bio_slot *s = find_bio_slot(bio);

	if (!s)
		return 0;
	if (again)
		count_caught(SECOND_BIO_COMPLETE);
	s->rec.error = bio->bi_status;
	/* Otherwise the slot belongs to an earlier bio at this address. */
	if (likely(s->rec.dev == disk_dev(bio->bi_bdev->bd_disk)))
		send_bio(&s->rec, bpf_ktime_get_ns());
	else
		end_unseen(&s->rec);
	free_bio_slot(bio, s);
	return 0;
}

SEC("tp_btf/block_bio_complete")
int ATOMIC_PROG(bio_complete, struct request_queue *q, struct bio *bio)
{
	return bio_completed(bio, false);
}

SEC("tp_btf/block_bio_complete")
int ATOMIC_PROG(bio_complete_again, struct request_queue *q, struct bio *bio)
{
	return bio_completed(bio, true);
}

#endif
