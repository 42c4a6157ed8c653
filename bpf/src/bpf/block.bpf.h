/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The block layer: bios as the file system queues them, requests as the device gets them. A request
 * may carry bios of many files, so files are told per bio.
 */
#ifndef IOREEL_BLOCK_H
#define IOREEL_BLOCK_H

struct bio_state {
	__u64 queue_ns;
	__u64 sector;
	struct file_id file;
	__s64 file_offset_bytes;
	__u32 dev;
	__u32 len_bytes;
	__u32 opf;
	__u32 task_id;
	__u8 how;
	__u8 hide;
	__u8 pad[6];
	char comm[WIRE_COMM_BYTES];
};

/* Bios queued and not ended, by address: 4 MiB. A full table loses the queue time of a bio, counted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32 * 1024);
	__type(key, __u64);
	__type(value, struct bio_state);
} bios SEC(".maps");

struct rq_state {
	__u64 issue_ns;
	__u64 sector;
	__u32 len_bytes;
	__u32 dev;
	__u32 opf;
	__u32 cpu;
};

/* Requests issued and not completed, by address: 1 MiB; devices hold some hundred each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16 * 1024);
	__type(key, __u64);
	__type(value, struct rq_state);
} requests SEC(".maps");

static __always_inline void count_map_full(void)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l)
		l->map_full++;
}

static __always_inline __u32 disk_dev(struct gendisk *disk)
{
	return disk ? (BPF_CORE_READ(disk, major) << 20) | BPF_CORE_READ(disk, first_minor) : 0;
}

static __always_inline void set_bio_file(struct bio_state *b, struct inode *inode, __u8 how)
{
	struct hidden_key key = {};
	__u8 *hide;

	key.ino = inode->i_ino;
	key.sb_dev = inode->i_sb->s_dev;
	hide = bpf_map_lookup_elem(&hidden_files, &key);
	if (hide)
		b->hide = *hide;
	identify(inode, &b->file);
	b->how = how;
}

/*
 * Which file a bio carries. By the direct I/O request where there is one; else by the page it carries,
 * if that page belongs to a file system on this very device: the user buffer of a direct write may be
 * a page of some other file.
 */
static __always_inline void attribute(struct bio *bio, struct bio_state *b)
{
	struct bio_vec *vec = BPF_CORE_READ(bio, bi_io_vec);
	struct block_device *bdev = BPF_CORE_READ(bio, bi_bdev);
	struct address_space *mapping;
	struct inode *inode;
	struct folio *folio;
	unsigned long head;
	struct page *page;

	if (sym_iomap_dio_bio_end_io && (__u64)BPF_CORE_READ(bio, bi_end_io) == sym_iomap_dio_bio_end_io) {
		struct iomap_dio *dio = BPF_CORE_READ(bio, bi_private);
		struct kiocb *iocb = BPF_CORE_READ(dio, iocb);

		inode = BPF_CORE_READ(iocb, ki_filp, f_inode);
		if (inode) {
			set_bio_file(b, kernel_cast(struct inode, inode), BIO_DIRECT);
			b->file_offset_bytes = -1;
		}
		return;
	}
	if (!vec || !b->len_bytes)
		return;
	vec += BPF_CORE_READ(bio, bi_iter.bi_idx);
	page = BPF_CORE_READ(vec, bv_page);
	if (!page)
		return;
	head = BPF_CORE_READ(page, compound_head);
	folio = (struct folio *)(head & 1 ? head - 1 : (unsigned long)page);
	mapping = BPF_CORE_READ(folio, mapping);
	if (!mapping || ((unsigned long)mapping & 3))
		return;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode)
		return;
	if (BPF_CORE_READ(inode, i_sb, s_bdev) != bdev && BPF_CORE_READ(inode, i_sb, s_magic) != BTRFS_SUPER_MAGIC)
		return;
	set_bio_file(b, kernel_cast(struct inode, inode), BIO_PAGE);
	/* A large folio's vector starts anywhere in it. */
	b->file_offset_bytes = ((__s64)BPF_CORE_READ(folio, index) << 12) + BPF_CORE_READ(vec, bv_offset);
	if (head & 1)
		b->file_offset_bytes += ((unsigned long)page - (unsigned long)folio) / bpf_core_type_size(struct page)
					<< 12;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue, struct bio *bio)
{
	struct task_struct *task;
	struct bio_state b = {};
	__u64 key = (__u64)bio;
	__u32 task_id;
	__u8 one = 1;

	if (!block_active)
		return 0;
	b.dev = disk_dev(BPF_CORE_READ(bio, bi_bdev, bd_disk));
	task = bpf_get_current_task_btf();
	task_id = recorded_id(task);
	if (!bpf_map_lookup_elem(&devices, &b.dev)) {
		if (fixed_devices || !task_id)
			return 0;
	}
	b.queue_ns = bpf_ktime_get_ns();
	b.sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	b.len_bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
	b.opf = BPF_CORE_READ(bio, bi_opf);
	b.task_id = task_id;
	bpf_get_current_comm(b.comm, sizeof(b.comm));
	attribute(bio, &b);
	if ((__u32)task->tgid == self_tgid)
		b.hide = HIDE_OWN;
	/* What a recorded task makes a disk do belongs to the recording, unless a loop device passes it on. */
	if (task_id && !b.hide)
		bpf_map_update_elem(&devices, &b.dev, &one, BPF_ANY);
	if (bpf_map_update_elem(&bios, &key, &b, BPF_ANY))
		count_map_full();
	return 0;
}

/* The front part of a split bio goes on alone, as a clone whose end reports to the original. */
SEC("tp_btf/block_split")
int BPF_PROG(bio_split, struct bio *front, unsigned int sector)
{
	__u64 key = (__u64)front, parent = (__u64)BPF_CORE_READ(front, bi_private);
	struct bio_state *from, b;

	from = bpf_map_lookup_elem(&bios, &parent);
	if (!from)
		return 0;
	b = *from;
	b.sector = BPF_CORE_READ(front, bi_iter.bi_sector);
	b.len_bytes = BPF_CORE_READ(front, bi_iter.bi_size);
	from->sector = b.sector + (b.len_bytes >> 9);
	from->len_bytes -= b.len_bytes;
	if (from->how && from->file_offset_bytes >= 0)
		from->file_offset_bytes += b.len_bytes;
	if (bpf_map_update_elem(&bios, &key, &b, BPF_ANY))
		count_map_full();
	return 0;
}

static __always_inline void emit_bio(const struct bio_state *b, __u64 rq_id, __s32 error, __u64 now_ns)
{
	struct rec_bio rec = {};

	rec.rq_id = rq_id;
	rec.queue_ns = b->queue_ns;
	rec.sector = b->sector;
	rec.file = b->file;
	rec.file_offset_bytes = b->file_offset_bytes;
	rec.dev = b->dev;
	rec.len_bytes = b->len_bytes;
	rec.opf = b->opf;
	rec.task_id = b->task_id;
	rec.error = error;
	rec.how = b->how;
	__builtin_memcpy(rec.comm, b->comm, sizeof(rec.comm));
	emit_fixed(&rec, REC_BIO, CLASS_BIO, now_ns);
}

static __always_inline void hide_bio(__u8 hide)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l && hide < HIDE_COUNT)
		l->hidden_bio[hide]++;
}

/* Ends of bios that no request carried: devices without requests, bios refused before they got one. */
SEC("tp_btf/block_bio_complete")
int BPF_PROG(bio_complete, struct request_queue *q, struct bio *bio)
{
	__u64 key = (__u64)bio;
	struct bio_state *b = bpf_map_lookup_elem(&bios, &key);

	if (!b)
		return 0;
	if (b->hide)
		hide_bio(b->hide);
	else
		emit_bio(b, 0, BPF_CORE_READ(bio, bi_status) ? 5 : 0, bpf_ktime_get_ns());
	bpf_map_delete_elem(&bios, &key);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(rq_issue, struct request *rq)
{
	struct rq_state r = {};
	__u64 key = (__u64)rq;

	if (!block_active)
		return 0;
	r.dev = disk_dev(BPF_CORE_READ(rq, q, disk));
	if (!bpf_map_lookup_elem(&devices, &r.dev))
		return 0;
	r.issue_ns = bpf_ktime_get_ns();
	r.opf = BPF_CORE_READ(rq, cmd_flags);
	r.len_bytes = BPF_CORE_READ(rq, __data_len);
	r.sector = BPF_CORE_READ(rq, __sector);
	r.cpu = bpf_get_smp_processor_id();
	if (bpf_map_update_elem(&requests, &key, &r, BPF_ANY))
		count_map_full();
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(rq_requeue, struct request *rq)
{
	__u64 key = (__u64)rq;

	bpf_map_delete_elem(&requests, &key);
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
	__u8 emit; /* 0: only look for the earliest queue time and for hidden bios */
	__u8 hide;
};

static long rq_bio_step(__u32 i, void *context)
{
	struct rq_walk *w = context;
	struct bio *bio = w->bio;
	__u64 key = (__u64)bio;
	struct bio_state *b;
	__u32 size;

	if (!key)
		return 1;
	b = bpf_map_lookup_elem(&bios, &key);
	size = BPF_CORE_READ(bio, bi_iter.bi_size);
	if (!w->emit) {
		if (b && (!w->queue_ns || b->queue_ns < w->queue_ns))
			w->queue_ns = b->queue_ns;
		if (b && b->hide)
			w->hide = b->hide;
	} else {
		if (size > w->left_bytes)
			return 1;
		w->left_bytes -= size;
		if (b) {
			if (b->hide)
				hide_bio(b->hide);
			else
				emit_bio(b, w->rq_id, w->error, w->now_ns);
			bpf_map_delete_elem(&bios, &key);
		} else if (w->rq_id) {
			/* Queued before the recording began, or not remembered. */
			struct bio_state unknown = {};

			unknown.dev = w->dev;
			unknown.sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
			unknown.len_bytes = size;
			unknown.opf = w->opf;
			emit_bio(&unknown, w->rq_id, w->error, w->now_ns);
		}
	}
	w->bio = BPF_CORE_READ(bio, bi_next);
	return 0;
}

/* A request carries at most this many bios (BLK_MAX_SEGMENTS is 128; merges keep to it). */
#define MAX_RQ_BIOS 4096

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, int error, unsigned int bytes)
{
	__u64 key = (__u64)rq;
	struct rq_state *r = bpf_map_lookup_elem(&requests, &key);
	struct bio *first = BPF_CORE_READ(rq, bio);
	struct rq_walk walk = {};
	struct rec_rq rec = {};

	if (!block_active || (!r && !first))
		return 0;
	walk.bio = first;
	bpf_loop(MAX_RQ_BIOS, rq_bio_step, &walk, 0);
	walk.now_ns = bpf_ktime_get_ns();
	walk.error = error < 0 ? -error : error;
	walk.bio = first;
	walk.left_bytes = bytes;
	walk.emit = 1;
	/* Bios younger than the issue: the entry is of an earlier request at this address, whose end was not seen. */
	if (r && walk.queue_ns > r->issue_ns) {
		bpf_map_delete_elem(&requests, &key);
		r = NULL;
	}
	if (r) {
		rec.queue_ns = walk.queue_ns;
		rec.issue_ns = r->issue_ns;
		rec.sector = r->sector;
		rec.dev = walk.dev = r->dev;
		rec.len_bytes = r->len_bytes;
		rec.opf = walk.opf = r->opf;
		rec.error = walk.error;
		rec.issue_cpu = r->cpu;
		/* A completion in parts: the first part is this request, the rest follows as another. */
		if (bytes && bytes < r->len_bytes && bytes < BPF_CORE_READ(rq, __data_len) &&
		    (r->opf & REQ_OP_MASK) <= 1) {
			rec.len_bytes = bytes;
			r->sector += bytes >> 9;
			r->len_bytes -= bytes;
		} else {
			bpf_map_delete_elem(&requests, &key);
		}
		if (walk.hide) {
			struct cpu_ledger *l = cpu_ledger();

			if (l && walk.hide < HIDE_COUNT)
				l->hidden_rq[walk.hide]++;
		} else {
			rec.rq_id = walk.rq_id = __sync_fetch_and_add(&next_rq_id, 1) + 1;
			emit_fixed(&rec, REC_RQ, CLASS_BLOCK, walk.now_ns);
		}
	}
	bpf_loop(MAX_RQ_BIOS, rq_bio_step, &walk, 0);
	return 0;
}

#endif
