/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Attribution of a btrfs bio: by its btrfs_bio, or on RAID 5 and 6 by the stripe that it belongs to. */
#ifndef IOREEL_ATTRIBUTE_BTRFS_H
#define IOREEL_ATTRIBUTE_BTRFS_H

#include "base/wire_block.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"
#include "block/attribute_files.bpf.h"

/*
 * Before 6.3 a btrfs_bio has no inode, but the private data of direct I/O and of compression do. Which of the two it is
 * follows from where the inode of a btrfs is found. Bios with neither carry page cache pages.
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

/* End functions of a btrfs_bio that needs special treatment. */
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
	/* Since 6.18 scrub uses the inode of the btree cache, whatever it reads. */
	end = btrfs_end_kind((__u64)BPF_CORE_READ(bbio, end_io));
	if (end == BTRFS_END_SCRUB)
		return;
	owner = BPF_CORE_READ(bbio, inode);
	if (!owner)
		return;
	/* Older kernels have a VFS inode here. */
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
	/* The btree inode has number 1 in tree 1. */
	if (root == 1 && b->file.ino == 1) {
		struct extent_buffer *eb = BPF_CORE_READ(bbio, private);
		const void *address = NULL, *folio = NULL;

		if (!eb || !bpf_core_field_exists(eb->addr) || !bpf_core_field_exists(eb->folios))
			return;
		/* The address is NULL if the pages are not contiguous. */
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
#define MAX_STRIPE_BIOS 1024

struct stripe_walk {
	struct bio *at;
	__u64 logical; /* the logical address to find */
	struct bio *found; /* the bio that contains it */
	__u64 inside; /* bytes from the start of that bio */
	__u64 end; /* end of the range that belongs to that bio, or to none */
};

/* Adjacent sectors of several bios in a stripe are sent to the disk as one bio. */
static long stripe_step(__u32 i, void *context)
{
	struct stripe_walk *w = context;
	struct bio *bio = w->at;
	__u64 from, end;

	if (!bio)
		return 1;
	w->at = BPF_CORE_READ(bio, bi_next);
	from = BPF_CORE_READ(bio, bi_iter.bi_sector) << 9;
	end = from + BPF_CORE_READ(bio, bi_iter.bi_size);
	if (from > w->logical) {
		if (from < w->end)
			w->end = from;
	} else if (end > w->logical) {
		w->found = bio;
		w->inside = w->logical - from;
		if (end < w->end)
			w->end = end;
	}
	return 0;
}

/* Finds the bio of the stripe that contains `logical`, and how far it reaches, at most to `end`. */
static __always_inline void look_in_stripe(struct stripe_walk *w, struct btrfs_raid_bio *rbio, __u64 logical, __u64 end)
{
	w->at = BPF_CORE_READ(rbio, bio_list.head);
	w->logical = logical;
	w->end = end;
	w->found = NULL;
	bpf_loop(MAX_STRIPE_BIOS, stripe_step, w, 0);
}

struct column_walk {
	struct btrfs_io_context *bioc;
	struct block_device *bdev;
	__u64 physical;
	__u64 logical; /* 0: none found */
	__u32 columns; /* columns with data */
	__u32 devices; /* columns with data or parity */
	bool found;
};

static long column_step(__u32 i, void *context)
{
	struct column_walk *w = context;
	struct btrfs_io_context *bioc = w->bioc;
	struct btrfs_io_stripe *stripe;
	__u64 from;

	if (i >= w->devices)
		return 1;
	stripe = (void *)bioc + bpf_core_field_offset(struct btrfs_io_context, stripes) +
		 i * bpf_core_type_size(struct btrfs_io_stripe);
	from = BPF_CORE_READ(stripe, physical);
	if (BPF_CORE_READ(stripe, dev, bdev) != w->bdev || w->physical < from || w->physical - from >= STRIPE_BYTES)
		return 0;
	w->found = true;
	if (i < w->columns)
		w->logical = BPF_CORE_READ(bioc, full_stripe_logical) + i * STRIPE_BYTES + (w->physical - from);
	return 1;
}

/* Address on the device where the bio was queued first, which is what the file system uses. */
static __always_inline __u64 first_place(const struct rec_bio *b)
{
	return (b->orig_dev ? b->orig_sector : b->sector) << 9;
}

/* Sets the file to that of the bio found in the stripe. */
static __always_inline void by_stripe_bio(struct rec_bio *b, const struct stripe_walk *w)
{
	by_btrfs(b, w->found);
	if (b->file_offset_bytes >= 0)
		b->file_offset_bytes += w->inside;
}

/*
 * Attributes a part of a stripe with parity: finds the bio that contains this place, among those the stripe was made
 * from (fs/btrfs/raid56.c, index_one_bio). If there is none, it is parity, or data read to compute it, depending on the
 * place. If there are several, each gets a row when the bio ends. A global function, which takes no kernel pointers, so
 * the bio's address is in `peek`. Returns 0 if the pages may tell more.
 */
__noinline int by_stripe(struct rec_bio *b)
{
	struct column_walk column = {};
	struct stripe_walk stripe = {};
	struct btrfs_raid_bio *rbio;
	struct bio *bio;
	__u64 end;

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
	column.devices = BPF_CORE_READ(rbio, real_stripes);
	bpf_loop(MAX_STRIPES, column_step, &column, 0);
	if (column.columns && column.devices <= MAX_STRIPES) {
		/* I/O on the target of a device replacement has no place in the stripe. */
		b->peek[0] = column.logical ? STRIPE_DATA : column.found ? STRIPE_PARITY : STRIPE_MIXED;
		b->flags |= BIOF_PEEK;
	}
	if (!column.logical)
		return column.columns && !column.found;
	/* A partial stripe write first reads old data, even where it will write. */
	if ((b->opf & REQ_OP_MASK) == 0 && BPF_CORE_READ(rbio, operation) == BTRFS_RBIO_WRITE)
		return 0;
	end = column.logical + b->len_bytes;
	look_in_stripe(&stripe, rbio, column.logical, end);
	/* A single page would not tell about the others. */
	if (!stripe.found)
		return 1;
	if (stripe.end < end) {
		b->peek[0] = STRIPE_MIXED;
		*(__u64 *)(b->peek + 8) = (__u64)rbio;
		*(__u64 *)(b->peek + 16) = column.logical - first_place(b);
		b->flags |= BIOF_PIECES;
		return 1;
	}
	b->flags &= ~BIOF_PEEK;
	by_stripe_bio(b, &stripe);
	return b->how != 0;
}

/*
 * Shortens the record of a bio of several files to its first piece; the remaining length is stored in `rest_bytes`. The
 * stripe exists until all of its bios have ended. A global function, which is verified once.
 */
__noinline int first_piece(struct rec_bio *b, __u32 *rest_bytes)
{
	struct stripe_walk stripe = {};
	struct btrfs_raid_bio *rbio;
	__u64 logical;

	if (!b || !rest_bytes || !bpf_core_type_exists(struct btrfs_raid_bio))
		return 0;
	rbio = (void *)*(__u64 *)(b->peek + 8);
	logical = first_place(b) + *(__u64 *)(b->peek + 16);
	look_in_stripe(&stripe, rbio, logical, logical + b->len_bytes);
	*rest_bytes = logical + b->len_bytes - stripe.end;
	b->len_bytes -= *rest_bytes;
	b->flags = (b->flags & ~BIOF_PIECES) | BIOF_SPLIT;
	if (stripe.found) {
		b->flags &= ~BIOF_PEEK;
		by_stripe_bio(b, &stripe);
	}
	return 0;
}

#endif
