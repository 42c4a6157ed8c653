/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Finds the file that is mapped at an address. */
#ifndef IOREEL_MAPPED_FILE_H
#define IOREEL_MAPPED_FILE_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define EBUSY 16

/* The first file mapped in a range of addresses. */
struct vma_file {
	struct file *file;
	__u64 address;
	__u64 end;
	__u64 next; /* end of the mapping found last */
	long found;
};

static long vma_step(struct task_struct *task, struct vm_area_struct *vma, void *context)
{
	struct vma_file *v = context;

	v->file = vma->vm_file;
	v->next = vma->vm_end;
	return 0;
}

/*
 * Maximum number of lookups. bpf_find_vma only tries to take the lock, which fails while another thread changes the
 * mappings. More tries would not help: a waiting writer blocks readers, and may itself be waiting for this CPU. The
 * number also limits how many mappings without a file may precede that of the file.
 */
#define VMA_TRIES 64

static long vma_try(__u32 i, void *context)
{
	struct vma_file *v = context;

	v->found = bpf_find_vma(bpf_get_current_task_btf(), v->address, vma_step, v, 0);
	if (v->found)
		return v->found != -EBUSY;
	if (v->file || v->next >= v->end)
		return 1;
	v->address = v->next;
	return 0;
}

#endif
