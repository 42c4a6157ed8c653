/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Bios as the file system queues them. block/requests.bpf.h has the requests that the device gets. A request may carry
 * bios of many files, so files are recorded per bio.
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

/* The disk asked for last: devices are never taken off the list, so this needs no second look. */
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

/* Where a bio came from that is about to be queued on another device; its address, and where it goes. */
struct remapped {
	__u64 key;
	__u64 sector;
	__u64 to_sector;
	__u32 dev;
	__u32 to_dev;
};

/* By where it goes. For a moment, and not per CPU: a mapper's thread may lose its own before it queues what it
 * remapped. */
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

/* Which device the bio was for before, and where there; its device and sector are known. */
static __always_inline void set_origin(struct rec_bio *b, const void *bio, struct block_device *bdev)
{
	struct remapped *from = remapped_to(b->sector);

	/* What was remapped last here may never have come, and another bio have its address now. */
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
 * Of those that tell of ends there are two each: what the kernel skips one for, because it is at work on that CPU, the
 * other records. A disk's interrupt ends requests, by the dozen, while the end of another disk's is told of. Where
 * programs can lose the CPU just before or after their work (base/atomic.bpf.h) there are two of those that tell of
 * queueing, moving and issue as well. They are called one after the other, in the order below; `again` is the second.
 */

/*
 * A bio is queued; `again` is set in the second of the two programs.
 *
 * Long because the record is filled in one sequence, in the slot where it stays.
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
	/* By the stack for most: spares two lookups in task storage, where an ending thread keeps its id. */
	st = recorded_here((struct pt_regs *)bpf_task_pt_regs(task));
	if (likely(st)) {
		task_id = st->task_id;
	} else if ((ref = recorded_ref(task))) {
		task_id = ref->task_id;
		st = state_of(task, ref);
	} else if (task->flags & PF_IO_WORKER) {
		/* A worker is its process's, whose request it carries out may be known, too. */
		if (uring_met && (worker_for = uring_of_worker(task)))
			request = uring_find(worker_for);
		task_id = request ? request->state.rec.task_id : recorded_id(task->group_leader);
	}
	if (unlikely(!is_recorded_device(dev))) {
		if (fixed_devices)
			return 0;
		if (!task_id) {
			/* What lies below a recorded device is recorded with it, whoever makes it work first. */
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
	/* What a call on the device makes it do without any file's pages: zeroing. */
	if (!b->how && st && st->in_call && (st->op.flags & OPF_FILE))
		set_bdev_file(b, bio, kernel_cast(struct file, (void *)st->op.ofd));
	if (st && !st->in_call)
		set_fault_cause(b, task);
	if (vfs_kernel && !b->task_id && (task->flags & PF_KTHREAD))
		set_vfs_cause(b, task, frame_of(ctx));
	if (unlikely((__u32)task->tgid == self_tgid))
		b->hide = HIDE_OWN;
	if (cache_wanted && !b->hide)
		cache_writeback(b);
	/* What a recorded task makes a disk do belongs to the recording, unless a loop device passes it on. */
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
 * Whether it is this record's bio that goes on from there, and not one that was given the memory of a bio whose end was
 * not seen. Parts of it may have gone on untold. From an array it may come to a partition, and from that to its disk.
 */
static __always_inline bool moves(const struct rec_bio *b, struct bio *bio, __u32 dev, __u64 sector)
{
	return (b->dev == dev || b->dev == disk_dev(bio->bi_bdev->bd_disk)) && sector - b->sector <= b->len_bytes >> 9;
}

/*
 * A partition's or a mapped device's bio goes on to another device. A bio that is queued already (striped
 * arrays) moves; one that is not (a partition's, a mapper's clone) is about to be. Told twice it is the same.
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
	/* Whatever the slot holds: unless it moved just now, this bio is about to be queued. */
	to = remapped_to(bio->bi_iter.bi_sector);
	before = remapped_to(sector);
	if (!to || !before)
		return 0;
	/* A mapper's clone onto a partition comes here twice; the first time says where it came from. */
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

/* What is left of a bio once `len` bytes of it go on alone. */
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

/* The front part of a split bio goes on alone, as a clone whose end reports to the original. */
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
	/* Not every split calls its tracepoint on every kernel: the parts before went on untold, and end so. */
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
 * Ends of bios that no request carried: devices without requests, bios refused before they got one. Once told a bio is
 * not found again.
 */
static __always_inline int bio_completed(struct bio *bio, bool again)
{
	struct bio_slot *s = find_bio_slot(bio);

	if (!s)
		return 0;
	if (again)
		count_caught(SECOND_BIO_COMPLETE);
	s->rec.error = bio->bi_status;
	/* Else the entry is of an earlier bio at this address. */
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
