/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The page cache of regular files: pages that are added, become dirty, are written back, or are removed. An event is
 * recorded if its thread is recorded or its file is on a recorded disk, whether caused by a thread, write-back or
 * reclaim. Loaded only with --cache.
 */
#ifndef IOREEL_CACHE_H
#define IOREEL_CACHE_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/disks.bpf.h"
#include "files/identity.bpf.h"
#include "tasks/fault.bpf.h"

struct ra_window {
	__u64 inode;
	__u64 first;
	__u64 last;
};

/* The readahead window that a thread is filling, so that its page-by-page part is not recorded twice. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct ra_window);
} ra_windows SEC(".maps");

/* Whether an event of this file is recorded; fills in thread and file. */
static __always_inline bool cache_begin(struct rec_cache *rec, struct inode *inode)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct hidden_key key = {};
	struct super_block *sb;
	struct cpu_ledger *l;
	__u32 disk;

	/* Until the end of settling, which writes back the dirty pages. */
	if (!block_active || !inode || (BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
		return false;
	sb = BPF_CORE_READ(inode, i_sb);
	rec->task_id = recorded_id(task);
	rec->sb_dev = BPF_CORE_READ(sb, s_dev);
	if (!rec->task_id) {
		struct gendisk *on = BPF_CORE_READ(sb, s_bdev, bd_disk);

		disk = on ? disk_dev(kernel_cast(struct gendisk, on)) : 0;
		if (!disk || !bpf_map_lookup_elem(&devices, &disk))
			return false;
	}
	key.ino = BPF_CORE_READ(inode, i_ino);
	key.sb_dev = rec->sb_dev;
	/* Pages of tmpfs are never read or written back: they are the file itself. */
	if (BPF_CORE_READ(sb, s_magic) == TMPFS_MAGIC)
		return false;
	/* The btree inode of btrfs. */
	if (key.ino == 1 && BPF_CORE_READ(sb, s_magic) == BTRFS_SUPER_MAGIC)
		return false;
	if ((__u32)task->tgid == self_tgid || bpf_map_lookup_elem(&hidden_files, &key)) {
		l = cpu_ledger();
		if (l)
			__sync_fetch_and_add(&l->hidden_cache, 1);
		return false;
	}
	identify(kernel_cast(struct inode, inode), &rec->file);
	rec->mode = BPF_CORE_READ(inode, i_mode);
	rec->size_bytes = BPF_CORE_READ(inode, i_size);
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	return true;
}

static __always_inline void cache_send(struct rec_cache *rec, __u32 event, __u64 offset_bytes, __u64 len_bytes)
{
	rec->event = event;
	rec->offset_bytes = offset_bytes;
	rec->len_bytes = len_bytes;
	emit_fixed(rec, REC_CACHE, CLASS_CACHE, bpf_ktime_get_ns());
}

static __always_inline void cache_folio(struct folio *folio, struct address_space *mapping, __u32 event)
{
	struct rec_cache rec = {};

	if (mapping && cache_begin(&rec, BPF_CORE_READ(mapping, host)))
		cache_send(&rec, event, (__u64)folio->index << page_shift, folio_bytes(folio));
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int ATOMIC_PROG(cache_fill, struct folio *folio)
{
	cache_folio(folio, folio->mapping, CACHE_FILL);
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int ATOMIC_PROG(cache_evict, struct folio *folio)
{
	cache_folio(folio, folio->mapping, CACHE_EVICT);
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int ATOMIC_PROG(cache_dirty, struct folio *folio, struct address_space *mapping)
{
	cache_folio(folio, mapping, CACHE_DIRTY);
	return 0;
}

/* Kernels with this tracepoint store the maximum folio order in the mapping's flags (6.11). */
static __always_inline bool has_large_folios(struct inode *inode)
{
	__u64 max = bpf_core_enum_value_exists(enum mapping_flags, AS_FOLIO_ORDER_MAX)
			? bpf_core_enum_value(enum mapping_flags, AS_FOLIO_ORDER_MAX)
			: 21;

	return BPF_CORE_READ(inode, i_mapping, flags) >> (max & 63) & 31;
}

SEC("tp_btf/page_cache_ra_order")
int ATOMIC_PROG(cache_ra_order, struct inode *inode, unsigned long first, struct file_ra_state *ra)
{
	__u64 key = (__u64)bpf_get_current_task_btf();
	struct rec_cache rec = {};
	struct ra_window w = {};

	if (!cache_begin(&rec, inode))
		return 0;
	w.inode = (__u64)inode;
	w.first = first;
	w.last = first + ra->size;
	/* With large folios, readahead is done in one step. */
	if (!has_large_folios(inode))
		bpf_map_update_elem(&ra_windows, &key, &w, BPF_ANY);
	cache_send(&rec, CACHE_READAHEAD, (__u64)first << page_shift, (__u64)ra->size << page_shift);
	return 0;
}

SEC("tp_btf/page_cache_ra_unbounded")
int ATOMIC_PROG(cache_ra_pages, struct inode *inode, unsigned long first, unsigned long pages)
{
	__u64 key = (__u64)bpf_get_current_task_btf();
	struct rec_cache rec = {};
	struct ra_window *w;

	if (!cache_begin(&rec, inode))
		return 0;
	w = bpf_map_lookup_elem(&ra_windows, &key);
	if (w) {
		bool part = w->inode == (__u64)inode && first >= w->first && first < w->last;

		bpf_map_delete_elem(&ra_windows, &key);
		if (part)
			return 0;
	}
	cache_send(&rec, CACHE_READAHEAD, (__u64)first << page_shift, (__u64)pages << page_shift);
	return 0;
}

/* Write-back: a bio queued from the page cache. */
static __noinline void cache_writeback(const struct rec_bio *b)
{
	struct rec_cache rec = {};

	if (b->how != BIO_PAGE || (b->opf & (REQ_OP_MASK | REQ_META)) != REQ_OP_WRITE || b->file_offset_bytes < 0)
		return;
	rec.file = b->file;
	rec.sb_dev = b->sb_dev;
	rec.task_id = b->task_id;
	bpf_get_current_comm(rec.comm, sizeof(rec.comm));
	cache_send(&rec, CACHE_WRITEBACK, b->file_offset_bytes, b->len_bytes);
}

#endif
