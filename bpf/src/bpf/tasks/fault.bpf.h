/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Accesses to mapped files, as far as the kernel is involved: the first access to a page, and the first store to a
 * clean page. Loads from a mapped page and stores to a dirty page are invisible.
 *
 * Accesses to program code are left out and counted. Program code is a file that a recorded program executes or maps
 * executable, or that has an execute permission. Starting a program accesses some hundred pages of it, which would
 * double the tables and says nothing about data.
 */
#ifndef IOREEL_FAULT_H
#define IOREEL_FAULT_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/uapi.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"
#include "files/identity.bpf.h"
#include "ops/lossless.bpf.h"
#include "ops/call_table.bpf.h"
#include "ops/filters.bpf.h"

/* Calls that dirty pages of their files; set by user space. One bit per call number, for the 64-bit and the 32-bit
 * entry. */
const volatile __u64 dirtying_calls[2][WIRE_CALLS / 64] = {};

/* A fault that may be retried after its page was read. */
struct fault_wait {
	struct rec_fault rec;
	__u32 holds; /* value of `holds` at its start */
};

/* 100 bytes per recorded thread that accessed a mapped file. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault_wait);
} faults SEC(".maps");

static __always_inline bool is_code(struct inode *inode, const struct file_id *id)
{
	/* An executable file is probably code. */
	return (inode->i_mode & 0111) || bpf_map_lookup_elem(&code_files, id);
}

/* Size of a folio in bytes. If it has several pages, its order is in the flags of the second page (ebc1baf5c9b4,
 * 6.6). */
static __always_inline __u32 folio_bytes(struct folio *folio)
{
	unsigned long flags = 0;
	__u32 order;

	bpf_probe_read_kernel(&flags, sizeof(flags), folio);
	if (!(flags & (1ul << PG_HEAD)))
		return 1u << page_shift;
	order = BPF_CORE_READ(folio, _flags_1) & 0xff;
	return 1u << (page_shift + (order < 19 ? order : 0));
}

static __always_inline void fault_send(struct rec_fault *rec)
{
	emit_fixed(rec, REC_FAULT, CLASS_FAULT, bpf_ktime_get_ns());
}

/* Sends a fault whose end is unknown or now. If the thread may have been stopped by --lossless, the duration is unknown
 * too. */
static __noinline void fault_flush(struct fault_wait *w, __u64 end_ns)
{
	if (!w->rec.start_ns)
		return;
	w->rec.dur_ns = end_ns && w->holds == holds ? end_ns - w->rec.start_ns : 0;
	fault_send(&w->rec);
	w->rec.start_ns = 0;
}

/* Stores the identity of a mapped file in `rec`; false if the file is not recorded. A store counts as data even if the
 * file is executable. */
static __always_inline bool fault_of(struct address_space *mapping, struct task_state *st, struct rec_fault *rec,
				     bool store)
{
	struct inode *inode = mapping->host;
	struct cpu_ledger *l;

	if (!inode || (inode->i_mode & S_IFMT) != S_IFREG)
		return false;
	identify(inode, &rec->file);
	if (!store && is_code(inode, &rec->file)) {
		l = cpu_ledger();
		if (l)
			l->code_faults++;
		return false;
	}
	rec->sb_dev = inode->i_sb->s_dev;
	rec->task_id = st->task_id;
	rec->other = other_thread(bpf_get_current_task_btf());
	return true;
}

/* For a bio queued outside calls: the current fault is its cause if it is for the same file. */
static __always_inline void set_fault_cause(struct rec_bio *b, struct task_struct *task)
{
	struct fault_wait *w = bpf_task_storage_get(&faults, task, 0, 0);

	if (!w || !w->rec.start_ns || w->rec.file.ino != b->file.ino || w->rec.file.dev != b->file.dev)
		return;
	b->cause_ns = w->rec.start_ns;
	w->rec.io = 1;
}

/*
 * Whether the first of two programs has already handled the event that the second runs for (see block/bio.bpf.h).
 * Faults of a thread do not overlap.
 */
static __always_inline bool fault_settled(struct task_state *st, enum fault_what what, bool again)
{
	bool settled = again && st->fault_settled == what;

	if (preemptible)
		st->fault_settled = again ? 0 : what;
	if (again && !settled)
		count_caught(what == FAULT_TOUCH ? SECOND_FAULT_TOUCH : SECOND_FAULT_AROUND);
	return settled;
}

static __always_inline int touched(struct address_space *mapping, unsigned long index, bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *st = recorded(task);
	struct rec_fault rec = {};
	struct fault_wait *w;
	__u64 now_ns;

	if (!st || !ops_active || fault_settled(st, FAULT_TOUCH, again) || !fault_of(mapping, st, &rec, false))
		return 0;
	w = bpf_task_storage_get(&faults, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	now_ns = bpf_ktime_get_ns();
	rec.what = FAULT_TOUCH;
	rec.start_ns = now_ns;
	rec.offset_bytes = (__u64)index << page_shift;
	rec.len_bytes = 1u << page_shift;
	if (!w) {
		fault_send(&rec);
	} else if (w->rec.start_ns && w->rec.mapping == (__u64)mapping && w->rec.offset_bytes == rec.offset_bytes) {
		/* The same page again with nothing in between: the fault is retried after the page was read. */
		fault_flush(w, now_ns);
	} else {
		fault_flush(w, 0);
		w->rec = rec;
		w->rec.mapping = (__u64)mapping;
		w->holds = holds;
	}
	hold_outside_calls(task, st->task_id);
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int ATOMIC_PROG(fault_touch, struct address_space *mapping, unsigned long index)
{
	return touched(mapping, index, false);
}

SEC("tp_btf/mm_filemap_fault")
int ATOMIC_PROG(fault_touch_again, struct address_space *mapping, unsigned long index)
{
	return touched(mapping, index, true);
}

/* For kernels without the tracepoint (before 6.12). */
SEC("fentry/filemap_fault")
int FUNCTION_PROG(fault_touch_entry, struct vm_fault *vmf)
{
	return touched(vmf->vma->vm_file->f_mapping, vmf->pgoff, false);
}

static __always_inline int touched_around(struct address_space *mapping, unsigned long first, unsigned long last,
					  bool again)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *st = recorded(task);
	struct rec_fault rec = {};
	struct fault_wait *w;
	__u64 now_ns;

	if (!st || !ops_active || fault_settled(st, FAULT_AROUND, again) || !fault_of(mapping, st, &rec, false))
		return 0;
	now_ns = bpf_ktime_get_ns();
	w = bpf_task_storage_get(&faults, task, 0, 0);
	if (w && w->rec.start_ns) {
		__u64 page = w->rec.offset_bytes >> page_shift;
		bool waited = w->rec.mapping == (__u64)mapping && page >= first && page <= last;

		fault_flush(w, waited ? now_ns : 0);
	}
	rec.what = FAULT_AROUND;
	rec.start_ns = now_ns;
	rec.offset_bytes = (__u64)first << page_shift;
	rec.len_bytes = (last - first + 1) << page_shift;
	fault_send(&rec);
	hold_outside_calls(task, st->task_id);
	return 0;
}

SEC("tp_btf/mm_filemap_map_pages")
int ATOMIC_PROG(fault_around, struct address_space *mapping, unsigned long first, unsigned long last)
{
	return touched_around(mapping, first, last, false);
}

SEC("tp_btf/mm_filemap_map_pages")
int ATOMIC_PROG(fault_around_again, struct address_space *mapping, unsigned long first, unsigned long last)
{
	return touched_around(mapping, first, last, true);
}

#define VM_FAULT_NOPAGE 0x100 /* the requested page is mapped */

SEC("fexit/filemap_map_pages")
int FUNCTION_PROG(fault_around_exit, struct vm_fault *vmf, unsigned long first, unsigned long last, unsigned int ret)
{
	if (!(ret & VM_FAULT_NOPAGE))
		return 0;
	return touched_around(vmf->vma->vm_file->f_mapping, first, last, false);
}

/* Whether this open file is an overlay file with its data in that inode. */
static __always_inline bool over(__u64 ofd, struct inode *inode)
{
	struct inode *of = peek(kernel_cast(struct file, (void *)ofd), f_inode);
	struct dentry *upper, *lower;

	if (!of || peek(peek(of, i_sb), s_magic) != OVERLAYFS_SUPER_MAGIC)
		return false;
	upper = overlaid(of, &lower);
	return upper && BPF_CORE_READ(upper, d_inode) == inode;
}

/* Whether this file belongs to the current writing call: by a descriptor, or in a way that cannot be checked. */
static __noinline bool by_call(const struct task_state *st, struct inode *inode, __u16 nr)
{
	struct file_id id = {};

	/* By a path, or by requests of an io_uring or of Linux AIO. */
	if (!(st->op.flags & OPF_FILE) || desc_of(nr, st->op.flags & OPF_COMPAT)->kind == CALL_URING)
		return true;
	identify(inode, &id);
	if (id.ino == st->op.file.ino && id.dev == st->op.file.dev)
		return true;
	if (over(st->op.ofd, inode))
		return true;
	if (!(st->op.flags & OPF_FILE2))
		return false;
	return (id.ino == st->tail.file2.ino && id.dev == st->tail.file2.dev) || over(st->tail.ofd2, inode);
}

/*
 * A clean folio becomes dirty, by a store to a mapping or by a write call. During a call, it is attributed to the call
 * if that may write and was given this file. Otherwise the call stored its result in mapped memory.
 */
SEC("tp_btf/writeback_dirty_folio")
int ATOMIC_PROG(fault_dirty, struct folio *folio, struct address_space *mapping)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *st = recorded(task);
	struct rec_fault rec = {};
	struct fault_wait *w;
	struct pt_regs *regs;
	struct inode *inode;

	if (!st || !ops_active || !mapping)
		return 0;
	/* Btree nodes of btrfs and buffers of block devices are never mapped. */
	if (!mapping->i_mmap.rb_root.rb_node)
		return 0;
	inode = mapping->host;
	if (!inode)
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if ((long)BPF_CORE_READ(regs, CALL_NUMBER) != -1) {
		/* If the call is not recorded, its files are unknown. */
		bool known = st->in_call && st->in_call != IN_CALL_UNSEEN;
		__u64 nr = known ? st->in_call - 1 : (__u64)(long)BPF_CORE_READ(regs, CALL_NUMBER);
		bool compat = known ? st->op.flags & OPF_COMPAT : by_32_bit_entry(task);

		if (nr >= WIRE_CALLS)
			return 0;
		if (dirtying_calls[compat][(nr & (WIRE_CALLS - 1)) / 64] >> (nr % 64) & 1 &&
		    (!known || by_call(st, inode, nr)))
			return 0;
	}
	if (!fault_of(mapping, st, &rec, true))
		return 0;
	w = bpf_task_storage_get(&faults, task, 0, 0);
	if (w)
		fault_flush(w, 0);
	rec.what = FAULT_DIRTY;
	rec.start_ns = bpf_ktime_get_ns();
	rec.offset_bytes = (__u64)folio->index << page_shift;
	rec.len_bytes = folio_bytes(folio);
	fault_send(&rec);
	return 0;
}

/*
 * Runs right after fault_dirty, which cannot send a signal because interrupts are disabled: the signal would be sent
 * late, when the process may have been resumed already.
 */
SEC("tp_btf/writeback_mark_inode_dirty")
int ATOMIC_PROG(fault_hold, struct inode *inode)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *st;

	if (!filling || !ops_active)
		return 0;
	st = recorded(task);
	if (st)
		hold_outside_calls(task, st->task_id);
	return 0;
}

#endif
