/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Attribution of a bio on any file system: by the direct I/O request, by its pages, or by the first bytes of a metadata
 * block.
 */
#ifndef IOREEL_ATTRIBUTE_FILES_H
#define IOREEL_ATTRIBUTE_FILES_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "base/slots.bpf.h"
#include "files/identity.bpf.h"
#include "inflight/uring_requests.bpf.h"

#define DIO_IS_SYNC 2u /* block/fops.c: blkdev_dio.iocb is replaced by the waiting task */
#define PAGE_MAPPING_FLAGS 3ul
#define PAGE_MAPPING_ANON 1ul
#define BTRFS_HEADER_OWNER 88 /* struct btrfs_header, on disk */
#define BTRFS_HEADER_LEVEL 100

/* A global function: the verifier checks it once and then assumes any result. */
__noinline __u32 kind_of_end_io(__u32 address_low)
{
#pragma unroll
	for (int i = 0; i < WIRE_END_IOS; i++) {
		__u64 known = end_ios[i].address;

		if (!known)
			break;
		if ((__u32)known == address_low)
			return end_ios[i].kind;
	}
	return END_OTHER;
}

/* Half of the address is enough: all functions of a kernel lie within 2 GiB. */
static __always_inline __u32 end_io_kind(const void *address)
{
	return kind_of_end_io(low_half(address));
}

/* The bio that tells the file: the bio itself, or the one that it is a part or the ciphertext of. */
struct owner {
	struct bio *bio;
	void *private;
	__u32 kind;
	struct bio_vec *plain; /* of ciphertext: the vector of the plain data */
	__s64 begin_bytes; /* of ciphertext: offset from the start of the plain data */
};

#define BIO_MAX_VECS 256
#define NOWHERE (-(1ll << 62)) /* an offset so low that the result is negative, which means unknown */

/* A global function, like kind_of_end_io. */
__noinline __u64 bytes_of_vecs(__u64 address, __u32 count)
{
	struct bio_vec *vec = (void *)address;
	__u64 bytes = 0;

	for (__u32 i = 0; i < BIO_MAX_VECS && i < count; i++)
		bytes += BPF_CORE_READ(vec + i, bv_len);
	return bytes;
}

/*
 * block/blk-crypto-fallback.c since aefc2a1fa2ed and b37fbce460ad (7.0): several ciphertext bios are queued one after
 * the other. The bio with the plain data is never queued; it has been advanced to the end of the current one. Adjacent
 * blocks of it are adjacent in the file, because the encryption depends on the position in the file.
 */
static __always_inline void owner_of_ciphertext(struct owner *o, struct bio *bio, const struct rec_bio *b)
{
	__u64 sector = b->sector - bio->bi_bdev->bd_start_sect;
	struct bio *from = bio->bi_private;
	__u64 advanced_bytes;

	o->bio = kernel_cast(struct bio, from);
	o->private = peek(o->bio, bi_private);
	o->kind = end_io_kind(peek(o->bio, bi_end_io));
	o->plain = BPF_CORE_READ(from, bi_io_vec);
	advanced_bytes = bytes_of_vecs((__u64)o->plain, BPF_CORE_READ(from, bi_iter.bi_idx)) + done_of(from);
	o->begin_bytes = advanced_bytes - ((BPF_CORE_READ(from, bi_iter.bi_sector) - sector) << 9);
	/* A cloned bio shares its vectors (registered buffers), so where it began is unknown. */
	if (peek(o->bio, bi_flags) & (1u << BIO_CLONED))
		o->begin_bytes = NOWHERE;
}

static __always_inline void owner_of(struct owner *o, struct bio *bio, const struct rec_bio *b)
{
	*o = (struct owner){.bio = bio, .private = bio->bi_private, .kind = end_io_kind(bio->bi_end_io)};
	switch (o->kind) {
	case END_CHAIN:
		o->bio = kernel_cast(struct bio, o->private);
		o->private = peek(o->bio, bi_private);
		o->kind = end_io_kind(peek(o->bio, bi_end_io));
		return;
	case END_ENCRYPTED:
		/* Before 7.0, the bio with the plain data is queued and recorded itself. */
		if (dio_counts_after)
			owner_of_ciphertext(o, bio, b);
		return;
	case END_DECRYPTED: {
		struct bio_fallback_crypt_ctx *ctx = o->private;

		if (!bpf_core_type_exists(struct bio_fallback_crypt_ctx))
			return;
		o->private = BPF_CORE_READ(ctx, bi_private_orig);
		o->kind = end_io_kind(BPF_CORE_READ(ctx, bi_end_io_orig));
		return;
	}
	}
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

/* `look`: check for hidden files. Not needed for direct I/O of a recorded task, which is never the recorder's. */
static __always_inline void set_bio_file(struct rec_bio *b, struct inode *inode, __u8 how, bool look)
{
	if (look)
		b->hide = hidden_inode(inode);
	/* A loop device does its I/O in kernel threads. I/O on its image by other tasks is not hidden. */
	if (unlikely(b->hide == HIDE_BACKING) && how != BIO_DIRECT && !(bpf_get_current_task_btf()->flags & PF_KTHREAD))
		b->hide = 0;
	identify(inode, &b->file);
	b->sb_dev = peek(peek(inode, i_sb), s_dev);
	b->how = how;
	if ((peek(inode, i_mode) & S_IFMT) == S_IFDIR)
		b->flags |= BIOF_DIRECTORY;
}

/*
 * The request is the cause of a bio queued for it, by whatever thread. struct io_kiocb starts with the kiocb of a read
 * or write.
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

/* Sets the file for direct I/O on a block device: that of a request, or of the task's current call. */
static __always_inline void set_bdev_file(struct rec_bio *b, struct bio *bio, struct file *file)
{
	struct inode *inode = peek(file, f_inode);

	if (!inode || (peek(inode, i_mode) & S_IFMT) != S_IFBLK || peek(inode, i_rdev) != bio->bi_bdev->bd_dev)
		return;
	set_bio_file(b, inode, BIO_DIRECT, false);
	b->file_offset_bytes = (b->sector - bio->bi_bdev->bd_start_sect) << 9;
}

/* Direct I/O whose single bio starts at ki_pos. False if it has no file. */
static __always_inline bool direct_simple(struct rec_bio *b, const struct owner *owner, __u64 ofd, bool look)
{
	struct iomap_dio_simple *dio = container_of(owner->bio, struct iomap_dio_simple, bio);
	struct inode *inode;
	struct kiocb *iocb;
	struct file *file;

	if (!bpf_core_type_exists(struct iomap_dio_simple))
		return false;
	iocb = BPF_CORE_READ(dio, iocb);
	file = iocb ? BPF_CORE_READ(iocb, ki_filp) : NULL;
	/* If the current call has an open file, only that file is accepted: the bio may come from somewhere else. */
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

/* iomap's request; f2fs may have put its own structure in front of it. */
static __always_inline void *iomap_request(const struct owner *owner)
{
	struct bio_iostat_ctx *by_f2fs = owner->private;

	if (owner->kind == END_DIRECT_F2FS && bpf_core_type_exists(struct bio_iostat_ctx))
		return BPF_CORE_READ(by_f2fs, post_read_ctx);
	return owner->private;
}

/*
 * If a write does not fill its blocks, iomap zeroes the rest (iomap_dio_zero) without counting it in `size`. Zeroes
 * after the data would seem to precede the data. If `size` is increased only after submission, data after zeroed space
 * would seem to start too late. Blocks have the same alignment in the file as on the device, which shows the right
 * offset.
 */
static __always_inline void beside_data(struct rec_bio *b, struct bio *bio, struct inode *inode)
{
	__u64 mask = (1ull << (peek(inode, i_blkbits) & 31)) - 1;
	__u64 place = (b->sector - bio->bi_bdev->bd_start_sect) << 9 & mask;
	__s64 other = b->file_offset_bytes + (dio_counts_after ? -(__s64)b->len_bytes : b->len_bytes);

	if ((b->file_offset_bytes & mask) != place && (other & mask) == place)
		b->file_offset_bytes = other;
}

static __always_inline void direct(struct rec_bio *b, struct bio *bio, const struct owner *owner, bool look)
{
	struct iomap_dio *dio = kernel_cast(struct iomap_dio, iomap_request(owner));
	struct kiocb *iocb = peek(dio, iocb);
	struct file *file = peek(iocb, ki_filp);
	struct inode *inode = peek(file, f_inode);

	if (!inode)
		return;
	set_bio_file(b, inode, BIO_DIRECT, look);
	set_uring_cause(b, iocb);
	/* iomap_dio_bio_iter: `size` counts what was submitted before; ki_pos stays at the start of the request. */
	b->file_offset_bytes =
	    peek(iocb, ki_pos) + peek(dio, size) - (dio_counts_after ? 0 : b->len_bytes) + owner->begin_bytes;
	if (b->file_offset_bytes < 0)
		b->file_offset_bytes = -1;
	else
		beside_data(b, bio, inode);
}

/*
 * Where the kernel maps a page: at a constant distance from the address of its struct page, scaled
 * (CONFIG_SPARSEMEM_VMEMMAP). The constant is not exported. It is learned from structures that contain both addresses,
 * and not used if two of them disagree.
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

/* Records the first bytes of a metadata block: now for a write, at the end for a read. */
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
 * The page cache folio whose data this folio carries: itself, or the one that it is the ciphertext of
 * (fs/crypto/crypto.c, fscrypt_is_bounce_page). Only for bios that carry nothing but page cache pages.
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
 * Whether the bio covers a range of the file with holes: the distance of its first and last byte in the file differs
 * from that in the bio. Blocks that are adjacent on disk may be in one bio even with holes between them. For clones and
 * split parts, which share their vectors, this is unknown (false). `from`: offset in the file of the first vector's
 * page.
 */
static __noinline bool has_holes(struct bio *bio, __u64 from, __u32 len_bytes)
{
	struct bio_vec *vec = BPF_CORE_READ(bio, bi_io_vec);
	__u32 count = bio->bi_vcnt, offset = BPF_CORE_READ(vec, bv_offset), bytes, end;
	struct folio *last_folio, *cached;
	struct page *page;
	__u64 last;

	if (count < 2 || bio->bi_iter.bi_idx || done_of(bio) || (bio->bi_flags & (1u << BIO_CLONED)))
		return false;
	vec += count - 1;
	bytes = BPF_CORE_READ(vec, bv_len);
	if (!bytes || bytes > len_bytes)
		return false;
	end = BPF_CORE_READ(vec, bv_offset) + bytes - 1;
	page = (void *)BPF_CORE_READ(vec, bv_page) + (end >> page_shift) * bpf_core_type_size(struct page);
	last_folio = head_of(page);
	cached = cached_folio(last_folio);
	last = BPF_CORE_READ(cached, index);
	if (cached == last_folio)
		last += ((unsigned long)page - (unsigned long)last_folio) / bpf_core_type_size(struct page);
	return (last << page_shift) + (end & ((1u << page_shift) - 1)) != from + offset + len_bytes - 1;
}

/* Attribution by the first page. `trusted`: the end function is one that handles only page cache pages; `bh`: buffer
 * head of the bio, if any. */
static __always_inline void by_page(struct rec_bio *b, struct bio *bio, const struct owner *owner,
				    const struct task_state *st, bool trusted, void *bh)
{
	struct bio_vec *vec = owner->plain;
	__s64 done_bytes = owner->begin_bytes;
	struct address_space *mapping;
	unsigned long address, first;
	struct inode *inode;
	struct folio *folio;
	struct page *page;

	if (!vec) {
		vec = BPF_CORE_READ(bio, bi_io_vec);
		if (!vec)
			return;
		vec += bio->bi_iter.bi_idx;
		done_bytes = done_of(bio);
	}
	if (!b->len_bytes)
		return;
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
		/* A user buffer may be a page cache page of another device. */
		if (!trusted && peek(inode, i_rdev) != (b->orig_dev ?: b->dev))
			return;
		/* A read by a call on the device node is data, whatever is stored there. */
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
	/* The vector of a large folio may start at any of its pages. */
	first = BPF_CORE_READ(folio, index) +
		((unsigned long)page - (unsigned long)folio) / bpf_core_type_size(struct page);
	if (bio->bi_vcnt < 2 || owner->plain || !has_holes(bio, first << page_shift, b->len_bytes))
		b->file_offset_bytes = (__s64)(first << page_shift) + BPF_CORE_READ(vec, bv_offset) + done_bytes;
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

#endif
