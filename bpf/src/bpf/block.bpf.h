/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The block layer: bios as the file system queues them, requests as the device gets them. A request
 * may carry bios of many files, so files are told per bio.
 */
#ifndef IOREEL_BLOCK_H
#define IOREEL_BLOCK_H

/* In cache.bpf.h and vfs.bpf.h. */
static __noinline void cache_writeback(const struct rec_bio *b);
static __always_inline __u64 frame_of(const void *arguments);
static __noinline void set_vfs_cause(struct rec_bio *b, struct task_struct *task, __u64 frame);

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
 * programs can lose the CPU just before or after their work (atomic.bpf.h) there are two of those that tell of
 * queueing, moving and issue as well. They are called one after the other, in the order below; `again` is the second.
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
	if (s) {
		if (!s->rec.orig_dev) {
			s->rec.orig_dev = dev;
			s->rec.orig_sector = sector;
		}
		s->rec.dev = disk_dev(bio->bi_bdev->bd_disk);
		s->rec.sector = bio->bi_iter.bi_sector;
	}
	/* Also then: the slot may be of one whose end was not seen, and whose memory this one has. */
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

static __always_inline void hide_rq(__u32 why)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l && why < HIDE_COUNT)
		l->hidden_rq[why]++;
}

/* A request of which no more will be heard. */
static __noinline void rq_end_unseen(const struct rq_slot *r)
{
	struct rec_rq rec = {
	    .queue_ns = r->queue_ns,
	    .issue_ns = r->issue_ns,
	    .sector = r->sector,
	    .dev = r->dev,
	    .len_bytes = r->len_bytes,
	    .opf = r->opf,
	    .issue_cpu = r->cpu,
	    .requeues = r->requeues,
	    .no_end = 1,
	};

	if (r->hide)
		return hide_rq(r->hide);
	rec.rq_id = __sync_fetch_and_add(&next_rq_id, 1) + 1;
	emit_fixed(&rec, REC_RQ, CLASS_BLOCK, bpf_ktime_get_ns());
}

static __always_inline int rq_issued(struct request *rq, bool again)
{
	const struct rec_bio *first;
	struct rq_slot *r;
	__u32 dev;

	if (!block_active)
		return 0;
	dev = disk_dev(rq->q->disk);
	if (!is_recorded_device(dev))
		return 0;
	r = take_rq(rq, again);
	if (!r)
		return 0;
	if (again && r->settled == SETTLED_ISSUE) {
		r->settled = 0;
		return 0;
	}
	r->settled = preemptible && !again ? SETTLED_ISSUE : 0;
	if (again)
		count_caught(SECOND_RQ_ISSUE);
	if (unlikely(r->issue_ns && !r->given_back))
		rq_end_unseen(r);
	if (!r->given_back)
		r->requeues = 0;
	r->given_back = 0;
	/* The kernel's own flushes have none. */
	first = rq->bio ? find_bio(rq->bio) : NULL;
	r->queue_ns = first ? first->queue_ns : 0;
	r->hide = first ? first->hide : 0;
	r->dev = dev;
	r->issue_ns = bpf_ktime_get_ns();
	r->opf = rq->cmd_flags;
	r->len_bytes = rq->__data_len;
	r->sector = rq->__sector;
	r->cpu = bpf_get_smp_processor_id();
	if (vfs_kernel && r->hide == HIDE_OWN)
		note_own_read(rq, r->issue_ns);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int ATOMIC_PROG(rq_issue, struct request *rq)
{
	return rq_issued(rq, false);
}

SEC("tp_btf/block_rq_issue")
int ATOMIC_PROG(rq_issue_again, struct request *rq)
{
	return rq_issued(rq, true);
}

SEC("tp_btf/block_rq_requeue")
int ATOMIC_PROG(rq_requeue, struct request *rq)
{
	struct rq_slot *r = find_rq(rq);

	if (r) {
		r->requeues++;
		r->given_back = 1;
		r->settled = 0;
	}
	return 0;
}

struct rq_walk {
	struct bio *bio;
	__u64 rq_id; /* 0: the request was not seen being issued */
	__u64 now_ns;
	__u64 queue_ns; /* of the earliest bio */
	__s64 left_bytes; /* of what this completion covers */
	__s32 error;
	__u32 dev;
	__u32 opf;
	__u32 bios;
	__u8 hide;
	__u8 keep; /* the bios end later, when the cache is flushed */
	__u8 again;
};

static __always_inline void look(struct rq_walk *w, const struct rec_bio *b)
{
	/*
	 * 0, which is none, is the latest. Before "bpf: verify callbacks as if they are called unknown number of times"
	 * (6.7) the verifier takes away what the first bio does not come to, as a comparison after asking for 0 would
	 * be.
	 */
	if (b->queue_ns - 1 < w->queue_ns - 1)
		w->queue_ns = b->queue_ns;
	if (b->hide)
		w->hide = b->hide;
}

/* Only for the earliest queue time, the number of bios and hidden ones. */
static long look_step(__u32 i, void *context)
{
	struct rq_walk *w = context;
	struct bio *bio = w->bio;
	struct rec_bio *b;

	if (!bio)
		return 1;
	b = find_bio(bio);
	if (b)
		look(w, b);
	w->bios++;
	w->bio = BPF_CORE_READ(bio, bi_next);
	return 0;
}

/* Room for the record of a bio that nothing is known of, which would not fit the stack: the first program's, which the
 * second may interrupt, and the second's. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct rec_bio);
} unknown_bio SEC(".maps");

/* Whose it is can still be told, until its owner hears of the end; who queued it, and when, cannot. */
static __noinline void attribute_at_end(struct bio *bio, struct rec_bio *b)
{
	set_origin(b, bio, bio->bi_bdev);
	attribute(bio, b, NULL);
	/* The request counts what was submitted since, so where in it this bio lies is not known any more. */
	if (b->end_io == END_DIRECT || b->end_io == END_DIRECT_F2FS)
		b->file_offset_bytes = -1;
}

static __always_inline void end_bio(struct rq_walk *w, struct bio *bio, struct bio_slot *s, __u32 size)
{
	if (likely(s)) {
		if (w->rq_id)
			s->rec.rq_id = w->rq_id;
		if (w->keep)
			return;
		s->rec.error = w->error;
		send_bio(&s->rec, w->now_ns);
		free_bio_slot(bio, s);
	} else if (w->rq_id && !w->keep) {
		/* Queued before the recording began, not remembered, or where the kernel skipped bio_queue. */
		__u32 at = w->again;
		struct rec_bio *unknown = bpf_map_lookup_elem(&unknown_bio, &at);

		if (!unknown)
			return;
		__builtin_memset(unknown, 0, sizeof(*unknown));
		unknown->rq_id = w->rq_id;
		unknown->dev = w->dev;
		unknown->sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
		unknown->len_bytes = size;
		unknown->opf = w->opf;
		unknown->file_offset_bytes = -1;
		unknown->error = w->error;
		if (CAN_CAST)
			attribute_at_end(kernel_cast(struct bio, bio), unknown);
		send_bio(unknown, w->now_ns);
	}
}

static long end_step(__u32 i, void *context)
{
	struct rq_walk *w = context;
	struct bio *bio = w->bio;
	__u32 size;

	if (!bio)
		return 1;
	size = BPF_CORE_READ(bio, bi_iter.bi_size);
	if (size > w->left_bytes)
		return 1;
	w->left_bytes -= size;
	end_bio(w, bio, find_bio_slot(bio), size);
	w->bio = BPF_CORE_READ(bio, bi_next);
	return 0;
}

/* A request carries at most this many bios (BLK_MAX_SEGMENTS is 128; merges keep to it). */
#define MAX_RQ_BIOS 4096

/* The device says where it has put what was appended, which until now had the zone's beginning. Such bios are alone. */
static __always_inline void appended(struct rq_slot *r, struct bio_slot *s, __u64 sector)
{
	if (r && (r->opf & REQ_OP_MASK) == REQ_OP_ZONE_APPEND)
		r->sector = sector;
	if (!s || (s->rec.opf & REQ_OP_MASK) != REQ_OP_ZONE_APPEND)
		return;
	if (s->rec.orig_dev)
		s->rec.orig_sector += sector - s->rec.sector;
	s->rec.sector = sector;
}

/* What of the request is not of its only bio as well. */
static __always_inline void add_rq(struct rec_bio *b, const struct rq_slot *r, const struct rq_walk *w)
{
	struct rq_part *part = (void *)b->comm;

	b->rq_id = w->rq_id;
	b->error = w->error;
	part->issue_ns = r->issue_ns;
	part->opf = r->opf;
	part->issue_cpu = r->cpu;
	part->requeues = r->requeues < 0xffff ? r->requeues : 0xffff;
}

/* A function of its own: what it needs of the stack is free again when bios are told. */
static __noinline void send_rq(const struct rq_slot *r, const struct rq_walk *w, __u32 len_bytes)
{
	struct rec_rq rec = {
	    .rq_id = w->rq_id,
	    .queue_ns = w->queue_ns,
	    .issue_ns = r->issue_ns,
	    .sector = r->sector,
	    .dev = r->dev,
	    .len_bytes = len_bytes,
	    .opf = r->opf,
	    .error = w->error,
	    .issue_cpu = r->cpu,
	    .requeues = r->requeues,
	    .bios = w->bios,
	};

	emit_fixed(&rec, REC_RQ, CLASS_BLOCK, w->now_ns);
}

/* Whether the request goes on: this is the end of a part of it. */
static __always_inline bool rq_completed(struct request *rq, int error, unsigned int bytes, bool again)
{
	struct bio *first = rq->bio;
	struct bio_slot *s = NULL;
	struct rq_walk walk = {};
	struct rq_slot *r;
	bool many, one = false, goes_on = false;

	/* None of it was done, which the driver tells before it tries again or gives up: SCSI does. */
	if (!bytes && !error && rq->__data_len)
		return true;
	r = find_rq(rq);
	if (again && r && r->settled == SETTLED_PART) {
		r->settled = 0;
		return false;
	}
	/* All of it is told, or its bios wait for the flush. */
	if (again && !r && (!first || (rq->rq_flags & rqf_flush_seq) || !find_bio_slot(first)))
		return false;
	if (!r && !first)
		return false;
	if (again)
		count_caught(SECOND_RQ_COMPLETE);
	many = first && first->bi_next;
	if (unlikely(many)) {
		walk.bio = first;
		bpf_loop(MAX_RQ_BIOS, look_step, &walk, 0);
	} else if (first) {
		s = find_bio_slot(first);
		if (s)
			look(&walk, &s->rec);
		walk.bios = 1;
	}
	walk.now_ns = bpf_ktime_get_ns();
	walk.again = again;
	walk.error = error;
	walk.bio = first;
	walk.left_bytes = bytes;
	/* Bios younger than the issue: the entry is of an earlier request at this address. */
	if (unlikely(r && (r->given_back || walk.queue_ns > r->issue_ns))) {
		if (!r->given_back)
			rq_end_unseen(r);
		r->key = 0;
		r = NULL;
	}
	if (!many && !error)
		appended(r, s, rq->__sector);
	if (r) {
		walk.dev = r->dev;
		walk.opf = r->opf;
		/* A flush follows the data, and only then are the bios told. */
		walk.keep = bytes && (rq->rq_flags & rqf_flush_seq) && !error;
		/* A completion in parts: the first part is this request, the rest follows as another. */
		goes_on =
		    bytes && bytes < r->len_bytes && bytes < rq->__data_len && (r->opf & REQ_OP_MASK) <= REQ_OP_WRITE;
		if (walk.hide)
			hide_rq(walk.hide);
		else
			walk.rq_id = __sync_fetch_and_add(&next_rq_id, 1) + 1;
		one = s && walk.rq_id && !walk.keep && are_one(r, &s->rec, bytes);
		if (likely(one))
			add_rq(&s->rec, r, &walk);
		else if (walk.rq_id)
			send_rq(r, &walk, goes_on ? bytes : r->len_bytes);
		if (goes_on) {
			r->sector += bytes >> 9;
			r->len_bytes -= bytes;
			r->settled = again ? 0 : SETTLED_PART;
		} else {
			r->key = 0;
		}
	}
	if (likely(one)) {
		send_with_rq(&s->rec, walk.now_ns);
		free_bio_slot(first, s);
	} else if (unlikely(many)) {
		bpf_loop(MAX_RQ_BIOS, end_step, &walk, 0);
	} else if (first) {
		__u32 size = first->bi_iter.bi_size;

		if (size <= bytes)
			end_bio(&walk, first, s, size);
	}
	return goes_on;
}

/*
 * The second program follows the first on the same CPU, where the first leaves word of what it has told: to find that
 * nothing is known of a request any more takes looking at all places where it might be. While the first is at work,
 * which is when the kernel skips it, it has left none.
 */
SEC("tp_btf/block_rq_complete")
int ATOMIC_PROG(rq_complete, struct request *rq, int error, unsigned int bytes)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!block_active || !l)
		return 0;
	l->told_rq = 0;
	if (!rq_completed(rq, error, bytes, false))
		l->told_rq = (__u64)rq;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int ATOMIC_PROG(rq_complete_again, struct request *rq, int error, unsigned int bytes)
{
	struct cpu_ledger *l = cpu_ledger();

	if (!block_active || !l)
		return 0;
	if (!preemptible && l->told_rq == (__u64)rq)
		l->told_rq = 0;
	else
		rq_completed(rq, error, bytes, true);
	return 0;
}

#endif
