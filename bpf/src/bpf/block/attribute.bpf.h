/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Attribution of a bio: collects facts about its file. capture/src/assemble/classify.rs decides what they mean (data,
 * journal, which table). docs/internals/attribution.md gives the kernel source of each fact.
 */
#ifndef IOREEL_ATTRIBUTE_H
#define IOREEL_ATTRIBUTE_H

#include "base/wire_block.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "inflight/bios.bpf.h"
#include "block/attribute_files.bpf.h"
#include "block/attribute_btrfs.bpf.h"

/* The bio that a mirroring array copies, and the first sector of the copy in the array. */
struct mirrored {
	struct bio *bio;
	__u64 sector;
};

/* False if the bio is not a mirror's copy. */
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

/* The bio that a mapped device or array made this one from; NULL if unknown. */
static __always_inline struct bio *made_from(struct bio *bio, __u32 kind)
{
	struct mirrored of;

	if (kind == END_CHAIN)
		return peek(bio, bi_private);
	if (kind == END_DM && bpf_core_type_exists(struct dm_target_io) && bpf_core_type_exists(struct dm_io)) {
		struct dm_target_io *tio = container_of(bio, struct dm_target_io, clone);

		return BPF_CORE_READ(tio, io, orig_bio);
	}
	/* The clone is embedded in it; 7.3 does not set bi_private. */
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

/* Several steps, because a mirror's copy is made from a clone that accounts for a part of the bio. */
#define MADE_FROM_STEPS 4

static __noinline struct rec_bio *parent_of(struct bio *bio)
{
	struct rec_bio *parent;
	int i;

	for (i = 0; i < MADE_FROM_STEPS; i++) {
		bio = made_from(bio, end_io_kind(peek(bio, bi_end_io)));
		if (!bio)
			return NULL;
		parent = find_bio(bio);
		if (parent)
			return parent;
		bio = kernel_cast(struct bio, bio);
	}
	return NULL;
}

/* A clone by a mapped device or array gets the attribution of the bio that it was made from. */
static __always_inline void by_parent(struct rec_bio *b, struct bio *clone)
{
	struct rec_bio *parent = parent_of(clone);
	struct mirrored of;
	bool is_copy;

	if (!parent)
		return;
	is_copy = mirrored(clone, b->end_io, &of);
	/* A mirror sets the target of a copy long before it queues the copy. */
	if (!b->orig_dev && is_copy) {
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
		/* The last copy of a mirror may end long after the bio that it was made from. */
		if (parent->flags & BIOF_PIECES && !is_copy) {
			*(__u64 *)(b->peek + 16) += first_place(parent) - (parent->sector << 9);
			b->flags |= BIOF_PIECES;
		}
	}
}

/*
 * Finds the file, or the metadata, that a bio belongs to.
 *
 * Long because it is a chain of cases, the cheapest first; the first match ends the search.
 */
static __always_inline void find_owner(struct bio *bio, struct rec_bio *b, struct task_state *st)
{
	struct owner owner;
	bool trusted = false;
	void *bh = NULL;

	owner_of(&owner, bio, b);
	b->end_io = owner.kind;
	switch (owner.kind) {
	case END_DIRECT:
	case END_DIRECT_F2FS:
		direct(b, bio, &owner, !st);
		return;
	case END_DIRECT_SIMPLE:
		direct_simple(b, &owner, 0, !st);
		return;
	case END_BDEV_DIRECT:
	case END_BDEV_ASYNC: {
		struct blkdev_dio *dio =
		    owner.kind == END_BDEV_DIRECT
			? kernel_cast(struct blkdev_dio, owner.private)
			: kernel_cast(struct blkdev_dio, container_of(owner.bio, struct blkdev_dio, bio));

		if (owner.kind == END_BDEV_ASYNC || !(peek(dio, flags) & DIO_IS_SYNC)) {
			struct kiocb *iocb = peek(dio, iocb);

			set_bdev_file(b, bio, peek(iocb, ki_filp));
			set_uring_cause(b, iocb);
			return;
		}
	}
		/* fallthrough */
	case END_WAIT:
		if (st && st->in_call && st->op.ofd && !direct_simple(b, &owner, st->op.ofd, false))
			set_bdev_file(b, bio, kernel_cast(struct file, (void *)st->op.ofd));
		break;
	case END_PAGE:
		trusted = true;
		break;
	case END_BUFFER:
		trusted = true;
		bh = owner.private;
		break;
	case END_BTRFS:
		by_btrfs(b, owner.bio);
		break;
	case END_BTRFS_CLONE: {
		struct btrfs_io_stripe *stripe = owner.private;
		struct bio *orig;

		if (!bpf_core_type_exists(struct btrfs_io_stripe))
			return;
		orig = BPF_CORE_READ(stripe, bioc, orig_bio);
		if (orig)
			by_btrfs(b, orig);
		break;
	}
	case END_BTRFS_RAID:
		*(volatile __u64 *)b->peek = (__u64)bio;
		if (by_stripe(b))
			return;
		break;
	case END_XFS_BUF: {
		struct xfs_buf *bp = owner.private;
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
		break;
	case END_XFS_LOG:
	case END_BTRFS_SUPER:
	case END_BTRFS_SCRUB:
		return;
	}
	if (!b->how)
		by_page(b, bio, &owner, st, trusted, bh);
}

/*
 * For the bio whose address is in b->peek. `st`: the thread's state, or NULL. A global function: see tell_file. Not on
 * kernels where it would have to copy each member of the bio, which costs more than the time to verify it again.
 */
__noinline int attribute_told(struct rec_bio *b, struct task_state *st)
{
	if (b && CAN_CAST)
		find_owner(kernel_cast(struct bio, (void *)*(__u64 *)b->peek), b, st);
	return 0;
}

static __always_inline void attribute(struct bio *bio, struct rec_bio *b, struct task_state *st)
{
	if (!CAN_CAST) {
		find_owner(bio, b, st);
		return;
	}
	/* Read from there it is a number, which a global function takes. */
	*(volatile __u64 *)b->peek = (__u64)bio;
	attribute_told(b, st);
}

#endif
