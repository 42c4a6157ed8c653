/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Attribution of a bio on any file system: by the direct I/O request, by its pages, by the first bytes of a metadata
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

#define DIO_IS_SYNC 2u /* block/fops.c: blkdev_dio.iocb is the waiting task instead */
#define PAGE_MAPPING_FLAGS 3ul
#define PAGE_MAPPING_ANON 1ul
#define BTRFS_HEADER_OWNER 88 /* struct btrfs_header, on disk */
#define BTRFS_HEADER_LEVEL 100

/* Global: the verifier looks at it once, and goes on with a kind that may be any. */
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

/* Half an address is enough: a kernel's functions lie within 2 GiB. */
static __always_inline __u32 end_io_kind(const void *address)
{
	return kind_of_end_io(low_half(address));
}

/* Who says whose a bio is: the bio itself, or the one that it is a part or the ciphertext of. */
struct owner {
	struct bio *bio;
	void *private;
	__u32 kind;
	struct bio_vec *plain; /* of ciphertext: what was encrypted */
	__s64 begin_bytes; /* and how far behind the beginning of that */
};

#define BIO_MAX_VECS 256
#define NOWHERE (-(1ll << 62)) /* makes any offset one before the file */

/* Global, as above. */
__noinline __u64 bytes_of_vecs(__u64 address, __u32 count)
{
	struct bio_vec *vec = (void *)address;
	__u64 bytes = 0;

	for (__u32 i = 0; i < BIO_MAX_VECS && i < count; i++)
		bytes += BPF_CORE_READ(vec + i, bv_len);
	return bytes;
}

/*
 * block/blk-crypto-fallback.c since aefc2a1fa2ed and b37fbce460ad (7.0): one bio of ciphertext after the other is
 * queued, and the one with the data, which never is, has been advanced to where each ends. What that one has side by
 * side lies so in the file: where a block lies is part of how it is encrypted.
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
	/* Of vectors that are others' too (registered buffers) it is not known where it began. */
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
		/* Before that the bio with the data was queued, and is told itself. */
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

/* A recorded task's own direct I/O is never the recorder's: `look` is false then, which spares a lookup. */
static __always_inline void set_bio_file(struct rec_bio *b, struct inode *inode, __u8 how, bool look)
{
	if (look)
		b->hide = hidden_inode(inode);
	/* What loop devices do, threads of the kernel's do. Others may read an image, too. */
	if (unlikely(b->hide == HIDE_BACKING) && how != BIO_DIRECT && !(bpf_get_current_task_btf()->flags & PF_KTHREAD))
		b->hide = 0;
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
static __always_inline void *iomap_request(const struct owner *owner)
{
	struct bio_iostat_ctx *by_f2fs = owner->private;

	if (owner->kind == END_DIRECT_F2FS && bpf_core_type_exists(struct bio_iostat_ctx))
		return BPF_CORE_READ(by_f2fs, post_read_ctx);
	return owner->private;
}

/*
 * Of a write that fills no block, iomap zeroes the rest (iomap_dio_zero), which `size` does not count: behind the data
 * it would seem to lie before it, and where `size` counts only afterwards, before the data behind its beginning. Blocks
 * lie in a file as they do on the device.
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
	/* iomap_dio_bio_iter: `size` counts what was submitted before; ki_pos stays at the start. */
	b->file_offset_bytes =
	    peek(iocb, ki_pos) + peek(dio, size) - (dio_counts_after ? 0 : b->len_bytes) + owner->begin_bytes;
	if (b->file_offset_bytes < 0)
		b->file_offset_bytes = -1;
	else
		beside_data(b, bio, inode);
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
 * Whether the bio's last byte is not as far behind its first in the file as it is in the bio: what lies side by side on
 * the disk, with holes between, goes by one. Of clones and parts, whose vectors are others' too, it is not known.
 * `from`: where in the file the first vector's page begins.
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

/* By the first page; `trusted`: whoever is told of the end carries pages of a cache and nothing else; `bh`: its buffer
 * head. */
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
