/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a bio carries: facts only. What they mean (data, journal, which table) is decided in
 * capture/src/classify.rs; docs/attribution.md tells from which kernel sources each fact is.
 */
#ifndef IOREEL_ATTRIBUTE_H
#define IOREEL_ATTRIBUTE_H

#define S_IFBLK 0060000
#define DIO_IS_SYNC 2u /* block/fops.c: blkdev_dio.iocb is the waiting task instead */
#define PAGE_MAPPING_FLAGS 3ul
#define PAGE_MAPPING_ANON 1ul
#define BTRFS_HEADER_OWNER 88 /* struct btrfs_header, on disk */
#define BTRFS_HEADER_LEVEL 100

static __always_inline __u32 end_io_kind(__u64 address)
{
#pragma unroll
	for (int i = 0; i < WIRE_END_IOS; i++) {
		__u64 known = end_ios[i].address;

		if (!known)
			break;
		if (known == address)
			return end_ios[i].kind;
	}
	return END_OTHER;
}

static __always_inline __u8 hidden_inode(struct inode *inode)
{
	struct hidden_key key = {};
	__u8 *hide;

	key.ino = peek(inode, i_ino);
	key.sb_dev = peek(peek(inode, i_sb), s_dev);
	hide = bpf_map_lookup_elem(&hidden_files, &key);
	return hide ? *hide : 0;
}

/* A recorded task's own direct I/O is never the recorder's: `look` is false then, which spares a lookup. */
static __always_inline void set_bio_file(struct rec_bio *b, struct inode *inode, __u8 how, bool look)
{
	if (look)
		b->hide = hidden_inode(inode);
	identify(inode, &b->file);
	b->sb_dev = peek(peek(inode, i_sb), s_dev);
	b->how = how;
	if ((peek(inode, i_mode) & S_IFMT) == S_IFDIR)
		b->flags |= BIOF_DIRECTORY;
}

/*
 * A request to io_uring begins with the kiocb of its read or write, and is the cause of a bio that is queued for it
 * whoever the thread is.
 */
static __always_inline void set_uring_cause(struct rec_bio *b, const void *kiocb)
{
	struct uring_slot *slot;

	if (!uring_met || !kiocb)
		return;
	slot = uring_find(kiocb);
	if (!slot)
		return;
	slot->state.rec.flags |= URF_IO;
	b->task_id = slot->state.rec.task_id;
	b->cause_ns = slot->state.rec.start_ns;
}

/* Direct I/O on a block device, of a request that is at hand or of the call the task is in. */
static __always_inline void set_bdev_file(struct rec_bio *b, struct bio *bio, struct file *file)
{
	struct inode *inode = peek(file, f_inode);

	if (!inode || (peek(inode, i_mode) & S_IFMT) != S_IFBLK || peek(inode, i_rdev) != bio->bi_bdev->bd_dev)
		return;
	set_bio_file(b, inode, BIO_DIRECT, false);
	b->file_offset_bytes = (b->sector - bio->bi_bdev->bd_start_sect) << 9;
}

/* Direct I/O whose first bio is the only one: at ki_pos. False where that is of no file. */
static __always_inline bool direct_simple(struct rec_bio *b, struct bio *owner, __u64 ofd, bool look)
{
	struct iomap_dio_simple *dio = container_of(owner, struct iomap_dio_simple, bio);
	struct inode *inode;
	struct kiocb *iocb;
	struct file *file;

	if (!bpf_core_type_exists(struct iomap_dio_simple))
		return false;
	iocb = BPF_CORE_READ(dio, iocb);
	file = iocb ? BPF_CORE_READ(iocb, ki_filp) : NULL;
	/* With an open file at hand only if it is that one: whoever waits for a bio may have made it in any way. */
	if (!file || (ofd && (__u64)file != ofd))
		return false;
	inode = BPF_CORE_READ(file, f_inode);
	if (!inode)
		return false;
	set_bio_file(b, kernel_cast(struct inode, inode), BIO_DIRECT, look);
	set_uring_cause(b, iocb);
	b->file_offset_bytes = BPF_CORE_READ(iocb, ki_pos);
	return true;
}

/* Where iomap keeps its request; f2fs may have put its own there, which leads on. */
static __always_inline void *iomap_request(struct bio *owner, __u32 kind)
{
	void *request = peek(owner, bi_private);
	struct bio_iostat_ctx *by_f2fs = request;

	if (kind == END_DIRECT_F2FS && bpf_core_type_exists(struct bio_iostat_ctx))
		request = BPF_CORE_READ(by_f2fs, post_read_ctx);
	return request;
}

/*
 * Of a write that fills no block, iomap zeroes the rest (iomap_dio_zero), which `size` does not count: behind the data
 * it would seem to lie before it. Blocks lie in a file as they do on the device.
 */
static __always_inline void behind_data(struct rec_bio *b, struct bio *bio, struct inode *inode)
{
	__u64 mask = (1ull << (peek(inode, i_blkbits) & 31)) - 1;
	__u64 place = (b->sector - bio->bi_bdev->bd_start_sect) << 9 & mask;

	if ((b->file_offset_bytes & mask) != place && ((b->file_offset_bytes + b->len_bytes) & mask) == place)
		b->file_offset_bytes += b->len_bytes;
}

static __always_inline void direct(struct rec_bio *b, struct bio *bio, struct bio *owner, __u32 kind, bool look)
{
	struct iomap_dio *dio = kernel_cast(struct iomap_dio, iomap_request(owner, kind));
	struct kiocb *iocb = peek(dio, iocb);
	struct file *file = peek(iocb, ki_filp);
	struct inode *inode = peek(file, f_inode);

	if (!inode)
		return;
	set_bio_file(b, inode, BIO_DIRECT, look);
	set_uring_cause(b, iocb);
	/* iomap_dio_bio_iter: `size` counts what was submitted before; ki_pos stays at the start. */
	b->file_offset_bytes = peek(iocb, ki_pos) + peek(dio, size) - (dio_counts_after ? 0 : b->len_bytes);
	if (b->file_offset_bytes < 0)
		b->file_offset_bytes = -1;
	else
		behind_data(b, bio, inode);
}

/*
 * Where the kernel maps a page: a constant away from the page's own address, scaled (CONFIG_SPARSEMEM_VMEMMAP). The
 * constant is not exported; it is learnt from structures that hold both addresses, and given up should two disagree.
 */
__s64 page_distance = 0;
__u32 page_distance_state = 0;

enum {
	DISTANCE_UNKNOWN = 0,
	DISTANCE_KNOWN = 1,
	DISTANCE_REFUTED = 2,
};

static __always_inline void learn_distance(const void *page, const void *address)
{
	__s64 distance = (__s64)address - (((__s64)page >> 6) << page_shift);

	if (!page || !address || bpf_core_type_size(struct page) != 64)
		return;
	if (page_distance_state == DISTANCE_UNKNOWN) {
		page_distance = distance;
		page_distance_state = DISTANCE_KNOWN;
	} else if (page_distance != distance) {
		page_distance_state = DISTANCE_REFUTED;
	}
}

static __always_inline const void *address_of(const void *page)
{
	if (!page || page_distance_state != DISTANCE_KNOWN)
		return NULL;
	return (const void *)((((__s64)page >> 6) << page_shift) + page_distance);
}

/* Looks at the first bytes of a metadata block: now for a write, when it has been read for a read. */
static __always_inline void peek_at(struct rec_bio *b, const void *address)
{
	if (!address)
		return;
	if ((b->opf & REQ_OP_MASK) == 0) {
		*(__u64 *)b->peek = (__u64)address;
		b->flags |= BIOF_PEEK_LATER;
	} else if (!bpf_probe_read_kernel(b->peek, WIRE_PEEK_BYTES, address)) {
		b->flags |= BIOF_PEEK;
	}
}

/*
 * The folio of a file's cache that this one carries the data of: itself, or the one that a page of ciphertext was made
 * from (fs/crypto/crypto.c, fscrypt_is_bounce_page). Of whoever writes pages of a cache and nothing else.
 */
static __always_inline struct folio *cached_folio(struct folio *folio)
{
	struct folio *plain;

	if (BPF_CORE_READ(folio, mapping))
		return folio;
	plain = BPF_CORE_READ(folio, private);
	return plain ? head_of(plain) : folio;
}

/*
 * Whether the bio's last page is not as far behind its first in the file as it is in the bio: what lies side by side on
 * the disk, with holes between, goes by one. Of clones and parts, whose vectors are others' too, it is not known.
 */
static __noinline bool has_holes(struct bio *bio, struct folio *folio, unsigned long first, __u32 len_bytes)
{
	struct bio_vec *vec = BPF_CORE_READ(bio, bi_io_vec);
	__u32 count = bio->bi_vcnt, into, offset = BPF_CORE_READ(vec, bv_offset), bytes;
	unsigned long last, from = BPF_CORE_READ(folio, index);
	struct folio *last_folio, *cached;
	struct page *page;

	if (!count || bio->bi_iter.bi_idx || done_of(bio) || (bio->bi_flags & (1u << BIO_CLONED)))
		return false;
	vec += count - 1;
	bytes = BPF_CORE_READ(vec, bv_len);
	if (!bytes || bytes > len_bytes)
		return false;
	into = (BPF_CORE_READ(vec, bv_offset) + bytes - 1) >> page_shift;
	page = (void *)BPF_CORE_READ(vec, bv_page) + into * bpf_core_type_size(struct page);
	last_folio = head_of(page);
	cached = cached_folio(last_folio);
	if (cached != last_folio)
		return BPF_CORE_READ(cached, index) != from + first + ((offset + len_bytes - 1) >> page_shift);
	last = BPF_CORE_READ(last_folio, index) +
	       ((unsigned long)page - (unsigned long)last_folio) / bpf_core_type_size(struct page);
	/* A part that fills no page begins and ends within it. */
	return last != from + first + ((offset + len_bytes - 1) >> page_shift);
}

/* By the first page; `trusted`: whoever is told of the end carries pages of a cache and nothing else; `bh`: its buffer
 * head. */
static __always_inline void by_page(struct rec_bio *b, struct bio *bio, const struct task_state *st, bool trusted,
				    void *bh)
{
	struct bio_vec *vec = BPF_CORE_READ(bio, bi_io_vec);
	struct address_space *mapping;
	unsigned long address, first;
	struct inode *inode;
	struct folio *folio;
	struct page *page;

	if (!vec || !b->len_bytes)
		return;
	vec += bio->bi_iter.bi_idx;
	page = BPF_CORE_READ(vec, bv_page);
	if (!page)
		return;
	folio = head_of(page);
	if (trusted) {
		struct folio *cached = cached_folio(folio);

		if (cached != folio)
			page = (struct page *)cached;
		folio = cached;
	}
	address = (unsigned long)BPF_CORE_READ(folio, mapping);
	if ((address & PAGE_MAPPING_FLAGS) == PAGE_MAPPING_ANON)
		b->flags |= BIOF_SWAP_PAGE;
	if (!address || (address & PAGE_MAPPING_FLAGS))
		return;
	mapping = kernel_cast(struct address_space, (void *)address);
	inode = peek(mapping, host);
	if (!inode)
		return;
	if ((peek(inode, i_mode) & S_IFMT) == S_IFBLK) {
		/* A user buffer may be a page of some other device. */
		if (!trusted && peek(inode, i_rdev) != (b->orig_dev ?: b->dev))
			return;
		/* Whoever reads the device itself reads no metadata, whatever lies there. */
		if ((b->opf & REQ_OP_MASK) == 0 && st && st->in_call && (st->op.flags & OPF_FILE)) {
			set_bdev_file(b, bio, kernel_cast(struct file, (void *)st->op.ofd));
			if (b->how)
				return;
		}
		identify(inode, &b->file);
		b->how = has_file_system(bio->bi_bdev) ? BIO_BDEV_FS : BIO_BDEV;
		if (bh) {
			const void *address = peek(kernel_cast(struct buffer_head, bh), b_data);

			learn_distance(page, address - BPF_CORE_READ(vec, bv_offset));
			peek_at(b, address);
		} else {
			const void *address = address_of(page);

			if (address)
				peek_at(b, address + BPF_CORE_READ(vec, bv_offset));
		}
	} else {
		struct super_block *sb = peek(inode, i_sb);

		if (!trusted && peek(sb, s_dev) != (b->orig_dev ?: b->dev) && peek(sb, s_magic) != BTRFS_SUPER_MAGIC)
			return;
		set_bio_file(b, inode, BIO_PAGE, true);
	}
	/* A large folio's vector starts anywhere in it. */
	first = ((unsigned long)page - (unsigned long)folio) / bpf_core_type_size(struct page);
	if (b->len_bytes <= 1u << page_shift || !has_holes(bio, folio, first, b->len_bytes))
		b->file_offset_bytes = ((__s64)(BPF_CORE_READ(folio, index) + first) << page_shift) +
				       BPF_CORE_READ(vec, bv_offset) + done_of(bio);
}

static __always_inline void peek_node(struct rec_bio *b, const void *address)
{
	__u64 owner = 0;
	__u8 level = 0;

	if (bpf_probe_read_kernel(&owner, sizeof(owner), address + BTRFS_HEADER_OWNER) ||
	    bpf_probe_read_kernel(&level, sizeof(level), address + BTRFS_HEADER_LEVEL))
		return;
	*(__u64 *)b->peek = owner;
	b->peek[8] = level;
	b->flags |= BIOF_PEEK;
}

static __noinline void peek_later(struct rec_bio *b)
{
	const void *address = *(void **)b->peek;

	b->flags &= ~BIOF_PEEK_LATER;
	if (b->how == BIO_FS)
		peek_node(b, address);
	else if (!bpf_probe_read_kernel(b->peek, WIRE_PEEK_BYTES, address))
		b->flags |= BIOF_PEEK;
}

/*
 * Before 6.3 a btrfs_bio leads to no inode, but what direct I/O and compression have put aside for it does: which of
 * the two it is, is told by where an inode of a btrfs is found. What has neither carries pages of a cache.
 */
static __always_inline void by_btrfs_private(struct rec_bio *b, struct btrfs_bio *bbio)
{
	struct btrfs_dio_private *direct = BPF_CORE_READ(bbio, private);
	struct compressed_bio___inode *packed = (void *)direct;
	struct inode *inode;

	if (!direct || !bpf_core_type_exists(struct btrfs_dio_private) ||
	    !bpf_core_type_exists(struct compressed_bio___inode))
		return;
	inode = BPF_CORE_READ(direct, inode);
	if (BPF_CORE_READ(inode, i_sb, s_magic) == BTRFS_SUPER_MAGIC) {
		b->file_offset_bytes = BPF_CORE_READ(bbio, file_offset);
	} else {
		inode = BPF_CORE_READ(packed, inode);
		if (BPF_CORE_READ(inode, i_sb, s_magic) != BTRFS_SUPER_MAGIC)
			return;
		b->file_offset_bytes = BPF_CORE_READ(packed, start);
	}
	set_bio_file(b, kernel_cast(struct inode, inode), BIO_FS, true);
}

/* Who is told of a btrfs_bio's end where it does not carry what it seems to. */
const volatile struct end_io_desc btrfs_ends[WIRE_BTRFS_ENDS] = {};

static __always_inline __u32 btrfs_end_kind(__u64 address)
{
	__u32 found = 0;

#pragma unroll
	for (int i = 0; i < WIRE_BTRFS_ENDS; i++) {
		if (btrfs_ends[i].address && btrfs_ends[i].address == address)
			found = btrfs_ends[i].kind;
	}
	return found;
}

static __always_inline void by_btrfs(struct rec_bio *b, struct bio *bio)
{
	struct btrfs_bio *bbio = container_of(bio, struct btrfs_bio, bio);
	struct btrfs_inode *owner;
	struct inode *inode;
	__u32 end;
	__u64 root;

	if (!bpf_core_type_exists(struct btrfs_bio))
		return;
	if (!bpf_core_field_exists(bbio->inode)) {
		by_btrfs_private(b, bbio);
		return;
	}
	/* What scrubs has the cache of trees for its inode since 6.18, whatever it reads. */
	end = btrfs_end_kind((__u64)BPF_CORE_READ(bbio, end_io));
	if (end == BTRFS_END_SCRUB)
		return;
	owner = BPF_CORE_READ(bbio, inode);
	if (!owner)
		return;
	/* Older kernels have a VFS inode there. */
	inode = (struct inode *)((unsigned long)owner + bpf_core_field_offset(struct btrfs_inode, vfs_inode));
	if (BPF_CORE_READ(inode, i_sb, s_magic) != BTRFS_SUPER_MAGIC)
		inode = (struct inode *)owner;
	if (BPF_CORE_READ(inode, i_sb, s_magic) != BTRFS_SUPER_MAGIC)
		return;
	set_bio_file(b, kernel_cast(struct inode, inode), BIO_FS, true);
	b->file_offset_bytes = end == BTRFS_END_ENCODED ? -1 : (__s64)BPF_CORE_READ(bbio, file_offset);
	if (end == BTRFS_END_DIRECT) {
		struct iomap_dio *direct = BPF_CORE_READ(bbio, private);

		set_uring_cause(b, BPF_CORE_READ(direct, iocb));
	}
	root = BPF_CORE_READ(container_of(inode, struct btrfs_inode, vfs_inode), root, root_key.objectid);
	/* The inode of the tree cache is number 1 of tree 1. */
	if (root == 1 && b->file.ino == 1) {
		struct extent_buffer *eb = BPF_CORE_READ(bbio, private);
		const void *address = NULL, *folio = NULL;

		if (!eb || !bpf_core_field_exists(eb->addr) || !bpf_core_field_exists(eb->folios))
			return;
		/* Without an address of its own when its pages do not lie side by side. */
		address = BPF_CORE_READ(eb, addr);
		folio = BPF_CORE_READ(eb, folios[0]);
		if (address)
			learn_distance(folio, address);
		else
			address = address_of(folio);
		if (!address)
			return;
		if ((b->opf & REQ_OP_MASK) == 0) {
			*(__u64 *)b->peek = (__u64)address;
			b->flags |= BIOF_PEEK_LATER;
		} else {
			peek_node(b, address);
		}
	}
}

/* fs/btrfs: BTRFS_STRIPE_LEN. */
#define STRIPE_BYTES 65536ull
#define MAX_STRIPES 64
#define MAX_STRIPE_BIOS 256

struct stripe_walk {
	struct bio *at;
	__u64 logical;
	__u64 inside; /* bytes from the found bio's first */
	bool found;
};

static long stripe_step(__u32 i, void *context)
{
	struct stripe_walk *w = context;
	struct bio *bio = w->at;
	__u64 from;

	if (!bio)
		return 1;
	from = BPF_CORE_READ(bio, bi_iter.bi_sector) << 9;
	if (w->logical >= from && w->logical - from < BPF_CORE_READ(bio, bi_iter.bi_size)) {
		w->inside = w->logical - from;
		w->found = true;
		return 1;
	}
	w->at = BPF_CORE_READ(bio, bi_next);
	return 0;
}

struct column_walk {
	struct btrfs_io_context *bioc;
	struct block_device *bdev;
	__u64 physical;
	__u64 logical; /* 0: none */
	__u32 columns;
};

static long column_step(__u32 i, void *context)
{
	struct column_walk *w = context;
	struct btrfs_io_context *bioc = w->bioc;
	struct btrfs_io_stripe *stripe;
	__u64 from;

	if (i >= w->columns)
		return 1;
	stripe = (void *)bioc + bpf_core_field_offset(struct btrfs_io_context, stripes) +
		 i * bpf_core_type_size(struct btrfs_io_stripe);
	from = BPF_CORE_READ(stripe, physical);
	if (BPF_CORE_READ(stripe, dev, bdev) != w->bdev || w->physical < from || w->physical - from >= STRIPE_BYTES)
		return 0;
	w->logical = BPF_CORE_READ(bioc, full_stripe_logical) + i * STRIPE_BYTES + (w->physical - from);
	return 1;
}

/*
 * Part of a stripe with parity: the bio that holds what goes to this place, among those the stripe was made of
 * (fs/btrfs/raid56.c, index_one_bio). None: parity, or data that is read to make it; the place tells. A global
 * function, which takes no kernel pointers: the bio's address is in `peek`.
 */
__noinline int by_stripe(struct rec_bio *b)
{
	struct column_walk column = {};
	struct stripe_walk stripe = {};
	struct btrfs_raid_bio *rbio;
	struct bio *bio;

	if (!b)
		return 0;
	bio = kernel_cast(struct bio, (void *)*(__u64 *)b->peek);
	*(__u64 *)b->peek = 0;
	rbio = peek(bio, bi_private);
	if (!rbio || !bpf_core_type_exists(struct btrfs_raid_bio) ||
	    !bpf_core_field_exists(struct btrfs_io_context, full_stripe_logical))
		return 0;
	column.bioc = BPF_CORE_READ(rbio, bioc);
	column.bdev = peek(bio, bi_bdev);
	column.physical = (peek(bio, bi_iter.bi_sector) - peek(peek(bio, bi_bdev), bd_start_sect)) << 9;
	column.columns = BPF_CORE_READ(rbio, nr_data);
	bpf_loop(MAX_STRIPES, column_step, &column, 0);
	if (column.columns && column.columns <= MAX_STRIPES) {
		b->peek[0] = column.logical ? STRIPE_DATA : STRIPE_PARITY;
		b->flags |= BIOF_PEEK;
	}
	if (!column.logical)
		return 0;
	stripe.logical = column.logical;
	stripe.at = BPF_CORE_READ(rbio, bio_list.head);
	bpf_loop(MAX_STRIPE_BIOS, stripe_step, &stripe, 0);
	if (!stripe.found)
		return 0;
	b->flags &= ~BIOF_PEEK;
	by_btrfs(b, stripe.at);
	if (b->how)
		b->file_offset_bytes += stripe.inside;
	return b->how != 0;
}

/* What a mirroring array copies, and from which of the array's sectors on. */
struct mirrored {
	struct bio *bio;
	__u64 sector;
};

/* False for what is no mirror's copy. */
static __always_inline bool mirrored(struct bio *copy, __u32 kind, struct mirrored *of)
{
	void *request = peek(copy, bi_private);

	if (kind == END_MD_MIRROR && bpf_core_type_exists(struct r1bio)) {
		of->bio = BPF_CORE_READ((struct r1bio *)request, master_bio);
		of->sector = BPF_CORE_READ((struct r1bio *)request, sector);
		return true;
	}
	if (kind == END_MD_MIRROR10 && bpf_core_type_exists(struct r10bio)) {
		of->bio = BPF_CORE_READ((struct r10bio *)request, master_bio);
		of->sector = BPF_CORE_READ((struct r10bio *)request, sector);
		return true;
	}
	return false;
}

/* The bio that a mapper or an array made this one from, of which it is a part; NULL where that is not known. */
static __always_inline struct bio *made_from(struct bio *bio, __u32 kind)
{
	struct mirrored of;

	if (kind == END_CHAIN)
		return peek(bio, bi_private);
	if (kind == END_DM && bpf_core_type_exists(struct dm_target_io) && bpf_core_type_exists(struct dm_io)) {
		struct dm_target_io *tio = container_of(bio, struct dm_target_io, clone);

		return BPF_CORE_READ(tio, io, orig_bio);
	}
	/* Around the clone: 7.3 does not say so in bi_private. */
	if (kind == END_MD && bpf_core_type_exists(struct md_io_clone)) {
		struct md_io_clone *made = container_of(bio, struct md_io_clone, bio_clone);

		return BPF_CORE_READ(made, orig_bio);
	}
	if (kind == END_MD && bpf_core_type_exists(struct md_io_acct)) {
		struct md_io_acct *made = container_of(bio, struct md_io_acct, bio_clone);

		return BPF_CORE_READ(made, orig_bio);
	}
	return mirrored(bio, kind, &of) ? of.bio : NULL;
}

/* A mirror's copy is made from the clone that accounts for a part of the bio. */
#define MADE_FROM_STEPS 4

static __noinline struct rec_bio *parent_of(struct bio *bio)
{
	struct rec_bio *parent;
	int i;

	for (i = 0; i < MADE_FROM_STEPS; i++) {
		bio = made_from(bio, end_io_kind((__u64)peek(bio, bi_end_io)));
		if (!bio)
			return NULL;
		parent = find_bio(bio);
		if (parent)
			return parent;
		bio = kernel_cast(struct bio, bio);
	}
	return NULL;
}

/* A mapped device's clone, or an array's, carries what the bio carries that it was made from. */
static __always_inline void by_parent(struct rec_bio *b, struct bio *clone)
{
	struct rec_bio *parent = parent_of(clone);
	struct mirrored of;

	if (!parent)
		return;
	/* Mirrors say where a copy goes long before they queue it. */
	if (!b->orig_dev && mirrored(clone, b->end_io, &of)) {
		b->orig_dev = parent->dev;
		b->orig_sector = of.sector;
	}
	b->file = parent->file;
	b->sb_dev = parent->sb_dev;
	b->hide = parent->hide;
	b->end_io = parent->end_io;
	b->how = parent->how ? BIO_CLONE : 0;
	b->flags |= parent->flags & (BIOF_SWAP_PAGE | BIOF_DIRECTORY);
	if (parent->how == BIO_BDEV || parent->how == BIO_BDEV_FS || parent->how == BIO_FS)
		b->how = parent->how;
	b->file_offset_bytes = parent->file_offset_bytes;
	if (parent->file_offset_bytes >= 0 && b->orig_sector >= parent->sector)
		b->file_offset_bytes += (b->orig_sector - parent->sector) << 9;
	if (parent->flags & (BIOF_PEEK | BIOF_PEEK_LATER)) {
		__builtin_memcpy(b->peek, parent->peek, sizeof(b->peek));
		b->flags |= parent->flags & (BIOF_PEEK | BIOF_PEEK_LATER);
	}
}

static __always_inline void attribute(struct bio *bio, struct rec_bio *b, struct task_state *st)
{
	__u32 kind = end_io_kind((__u64)bio->bi_end_io);
	struct bio *owner = bio;

	/* Part of another bio, which says whose it is. */
	if (unlikely(kind == END_CHAIN)) {
		owner = kernel_cast(struct bio, bio->bi_private);
		kind = end_io_kind((__u64)peek(owner, bi_end_io));
	}
	b->end_io = kind;
	switch (kind) {
	case END_DIRECT:
	case END_DIRECT_F2FS:
		direct(b, bio, owner, kind, !st);
		return;
	case END_DIRECT_SIMPLE:
		direct_simple(b, owner, 0, !st);
		return;
	case END_BDEV_DIRECT:
	case END_BDEV_ASYNC: {
		struct blkdev_dio *dio =
		    kind == END_BDEV_DIRECT
			? kernel_cast(struct blkdev_dio, peek(owner, bi_private))
			: kernel_cast(struct blkdev_dio, container_of(owner, struct blkdev_dio, bio));

		if (kind == END_BDEV_ASYNC || !(peek(dio, flags) & DIO_IS_SYNC)) {
			struct kiocb *iocb = peek(dio, iocb);

			set_bdev_file(b, bio, peek(iocb, ki_filp));
			set_uring_cause(b, iocb);
			return;
		}
	}
		/* fallthrough */
	case END_WAIT:
		if (st && st->in_call && st->op.ofd && !direct_simple(b, owner, st->op.ofd, false))
			set_bdev_file(b, bio, kernel_cast(struct file, (void *)st->op.ofd));
		if (!b->how)
			by_page(b, bio, st, false, NULL);
		return;
	case END_PAGE:
		by_page(b, bio, st, true, NULL);
		return;
	case END_BUFFER:
		by_page(b, bio, st, true, peek(owner, bi_private));
		return;
	case END_BTRFS:
		by_btrfs(b, owner);
		if (!b->how)
			by_page(b, bio, st, false, NULL);
		return;
	case END_BTRFS_CLONE: {
		struct btrfs_io_stripe *stripe = peek(owner, bi_private);
		struct bio *orig;

		if (!bpf_core_type_exists(struct btrfs_io_stripe))
			return;
		orig = BPF_CORE_READ(stripe, bioc, orig_bio);
		if (orig)
			by_btrfs(b, orig);
		if (!b->how)
			by_page(b, bio, st, false, NULL);
		return;
	}
	case END_BTRFS_RAID:
		*(volatile __u64 *)b->peek = (__u64)bio;
		by_stripe(b);
		if (!b->how)
			by_page(b, bio, st, false, NULL);
		return;
	case END_XFS_BUF: {
		struct xfs_buf *bp = peek(owner, bi_private);
		const char *name;

		if (!bpf_core_type_exists(struct xfs_buf) || !bpf_core_field_exists(bp->b_ops))
			return;
		name = BPF_CORE_READ(bp, b_ops, name);
		if (name && bpf_probe_read_kernel_str(b->peek, WIRE_PEEK_BYTES, name) > 0)
			b->flags |= BIOF_PEEK;
		return;
	}
	case END_DM:
	case END_MD:
	case END_MD_MIRROR:
	case END_MD_MIRROR10:
		by_parent(b, bio);
		if (!b->how)
			by_page(b, bio, st, false, NULL);
		return;
	case END_XFS_LOG:
	case END_BTRFS_SUPER:
		return;
	default:
		by_page(b, bio, st, false, NULL);
	}
}

#endif
