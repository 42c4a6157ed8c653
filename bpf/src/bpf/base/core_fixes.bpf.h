/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Differences between kernels and architectures. Each entry names the upstream change that caused it. */
#ifndef IOREEL_CORE_FIXES_H
#define IOREEL_CORE_FIXES_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

/*
 * Number and arguments of a system call as saved at its entry, whether it came through the 32-bit entry, and the
 * offsets of st_mode and st_size in struct stat. At return arm64 has the result in the register of the first argument,
 * so the saved copy is used. 32-bit calls on arm64 are only counted, so their arguments are not needed.
 */
#if defined(__TARGET_ARCH_x86)
#define CALL_NUMBER orig_ax
/* arch/x86/include/asm/thread_info.h: TS_COMPAT */
#define by_32_bit_entry(task) ((task)->thread_info.status & 0x0002)
#define take_args(to, regs)                                                                                            \
	({                                                                                                             \
		(to)[0] = (regs)->di;                                                                                  \
		(to)[1] = (regs)->si;                                                                                  \
		(to)[2] = (regs)->dx;                                                                                  \
		(to)[3] = (regs)->r10;                                                                                 \
		(to)[4] = (regs)->r8;                                                                                  \
		(to)[5] = (regs)->r9;                                                                                  \
	})
#define take_args32(to, regs)                                                                                          \
	({                                                                                                             \
		(to)[0] = (__u32)(regs)->bx;                                                                           \
		(to)[1] = (__u32)(regs)->cx;                                                                           \
		(to)[2] = (__u32)(regs)->dx;                                                                           \
		(to)[3] = (__u32)(regs)->si;                                                                           \
		(to)[4] = (__u32)(regs)->di;                                                                           \
		(to)[5] = (__u32)(regs)->bp;                                                                           \
	})
#define STAT_MODE 24
#define STAT_SIZE 48
#elif defined(__TARGET_ARCH_arm64)
#define CALL_NUMBER syscallno
/* arch/arm64/include/asm/thread_info.h: TIF_32BIT */
#define by_32_bit_entry(task) ((task)->thread_info.flags & 1ul << 22)
#define take_args(to, from)                                                                                            \
	({                                                                                                             \
		(to)[0] = (from)->orig_x0;                                                                             \
		(to)[1] = (from)->regs[1];                                                                             \
		(to)[2] = (from)->regs[2];                                                                             \
		(to)[3] = (from)->regs[3];                                                                             \
		(to)[4] = (from)->regs[4];                                                                             \
		(to)[5] = (from)->regs[5];                                                                             \
	})
#define take_args32(to, regs) ({})
#define STAT_MODE 16
#define STAT_SIZE 48
#else
#error "no registers of system calls are known for this architecture"
#endif

/*
 * Whether the program runs in an interrupt, so that the current task has nothing to do with it. x86 keeps the count in
 * a variable of the CPU: alone in 6.1, in pcpu_hot from "x86/percpu: Move preempt_count next to current_task" (6.2)
 * until "x86/preempt: Move preempt count to percpu hot section" (6.15). User space finds its address, and that of the
 * offsets of CPUs, if the kernel lists its variables (CONFIG_KALLSYMS_ALL); a __ksym would make the verifier refuse the
 * program where it does not. Otherwise interrupts_known is not set, and only an interrupt of an idle CPU is told.
 */
#define COUNT_IN_SOFTIRQ 0x100u /* include/linux/preempt.h: SOFTIRQ_OFFSET */
#define COUNT_IN_HARDIRQ 0xff0000u /* hard and non-maskable interrupts */
#if defined(__TARGET_ARCH_x86)
struct pcpu_hot___count {
	int preempt_count;
} __attribute__((preserve_access_index));
const volatile __u64 preempt_count_at = 0; /* of __preempt_count or pcpu_hot, in the memory of each CPU */
const volatile __u64 cpu_offsets_at = 0; /* of __per_cpu_offset */
#define interrupts_known() (preempt_count_at && cpu_offsets_at)

static __always_inline bool in_interrupt(void)
{
	__u64 offset = 0, at = preempt_count_at;
	__u32 count = 0;

	if (!bpf_get_current_task_btf()->pid)
		return true;
	if (!interrupts_known())
		return false;
	if (bpf_core_field_exists(struct pcpu_hot___count, preempt_count))
		at += bpf_core_field_offset(struct pcpu_hot___count, preempt_count);
	bpf_probe_read_kernel(&offset, sizeof(offset), (void *)(cpu_offsets_at + 8 * bpf_get_smp_processor_id()));
	bpf_probe_read_kernel(&count, sizeof(count), (void *)(at + offset));
	return count & (COUNT_IN_SOFTIRQ | COUNT_IN_HARDIRQ);
}
#else
const volatile __u64 preempt_count_at = 0; /* not needed */
const volatile __u64 cpu_offsets_at = 0;
#define interrupts_known() true

static __always_inline bool in_interrupt(void)
{
	return (__u32)bpf_get_current_task_btf()->thread_info.preempt_count & (COUNT_IN_SOFTIRQ | COUNT_IN_HARDIRQ);
}
#endif

/* include/linux/fs.h: FMODE_CREATED, bit 20 since 73a09dd94377 (4.19). */
#define FMODE_CREATED (1u << 20)

/* include/linux/blk_types.h: a bit of bi_flags; number 1 since 4.13. */
#define BIO_CLONED 1

/* include/linux/blk_types.h: operation in the low byte of bi_opf and cmd_flags since 4.10. */
#define REQ_OP_MASK 0xffu
#define REQ_OP_WRITE 1u
#define REQ_META (1u << 12)
#define REQ_OP_ZONE_APPEND 7u
#define REQ_OP_FLUSH 2u

/*
 * include/linux/blk-mq.h: RQF_FLUSH_SEQ. A macro until 5f89154e8e9e (6.11), then an enumerator. On some kernels its
 * enum has no name, so it cannot be relocated. User space.
 */
const volatile __u32 rqf_flush_seq = 0;

/*
 * In a page that is not the first of its folio, bit 0 of this word is set. The rest gives the first page: its address,
 * or, since "mm: rework compound_head() for power-of-2 sizeof(struct page)" (after 6.18), a mask to apply to the
 * address of this page. All masks lie in the last 4 GiB of addresses, where no page is. The word was renamed too.
 */
struct page___head {
	unsigned long compound_head;
} __attribute__((preserve_access_index));

struct page___info {
	unsigned long compound_info;
} __attribute__((preserve_access_index));

#define head_of(page)                                                                                                  \
	({                                                                                                             \
		unsigned long __info = bpf_core_field_exists(struct page___info, compound_info)                        \
					   ? BPF_CORE_READ((struct page___info *)(page), compound_info)                \
					   : BPF_CORE_READ((struct page___head *)(page), compound_head);               \
		(struct folio *)(!(__info & 1)			? (unsigned long)(page)                                \
				 : __info >> 32 == 0xfffffffful ? (unsigned long)(page)&__info                         \
								: __info - 1);                                         \
	})

/*
 * Before bd_holder_ops (6.5), bd_holder is a file system type, recognised by its name, or the open file of an exclusive
 * opener (O_EXCL). bd_super is reset before the last blocks are written.
 */
struct block_device___holder {
	void *bd_holder;
} __attribute__((preserve_access_index));

static __always_inline bool is_file_system_type(const void *holder)
{
	const char *name = NULL;
	char begin[3] = {};

	if (!holder || bpf_probe_read_kernel(&name, sizeof(name), holder) ||
	    bpf_probe_read_kernel(begin, sizeof(begin), name))
		return false;
	return begin[0] >= 'a' && begin[0] <= 'z' && begin[1] >= '0' && begin[1] <= 'z' && begin[2] >= '0' &&
	       begin[2] <= 'z';
}

#define has_file_system(bdev)                                                                                          \
	(bpf_core_field_exists((bdev)->bd_holder_ops)                                                                  \
	     ? peek(bdev, bd_holder_ops) != NULL                                                                       \
	     : is_file_system_type(BPF_CORE_READ((struct block_device___holder *)(bdev), bd_holder)))

/* Offset in the current vector of a bio. Renamed between 6.18 and 7.3. */
struct bvec_iter___done {
	unsigned int bi_bvec_done;
} __attribute__((preserve_access_index));

struct bvec_iter___offset {
	unsigned int bi_offset;
} __attribute__((preserve_access_index));

#define done_of(bio)                                                                                                   \
	(bpf_core_field_exists(struct bvec_iter___done, bi_bvec_done)                                                  \
	     ? BPF_CORE_READ((struct bvec_iter___done *)&(bio)->bi_iter, bi_bvec_done)                                 \
	     : BPF_CORE_READ((struct bvec_iter___offset *)&(bio)->bi_iter, bi_offset))

/* The topmost lower file of an overlay inode, until the whole stack moved there (0af950f57fef, 6.5). */
struct ovl_inode___path {
	struct ovl_path lowerpath;
} __attribute__((preserve_access_index));

/*
 * Private data of a btrfs_bio, which leads to the file on kernels before "btrfs: add a btrfs_inode pointer to struct
 * btrfs_bio" (6.3): fs/btrfs/inode.c, compression.h.
 */
struct btrfs_dio_private {
	struct inode *inode;
} __attribute__((preserve_access_index));

struct compressed_bio___inode {
	struct inode *inode;
	__u64 start;
} __attribute__((preserve_access_index));

/*
 * Whether iomap adds the length of a direct I/O bio to iomap_dio.size after it submits the bio: since "iomap: split out
 * the per-bio logic from iomap_dio_bio_iter" (7.0). User space detects it by a function added with that change.
 */
const volatile bool dio_counts_after = false;

#define OVERLAYFS_SUPER_MAGIC 0x794c7630ul
#define BTRFS_SUPER_MAGIC 0x9123683Eul
#define TMPFS_MAGIC 0x01021994ul
#define SOCKFS_MAGIC 0x534F434Bul

/* include/linux/page-flags.h: flag of a folio with several pages; fixed since 6.6 for this configuration. */
#define PG_HEAD 6

/*
 * The table of registered files: an array of pointers with flags in their low bits, until each entry became an object
 * (7029acd8a950, 6.13).
 */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct io_fixed_file___old {
	unsigned long file_ptr;
};

struct io_file_table___old {
	struct io_fixed_file___old *files;
};

struct io_ring_ctx___old {
	struct io_file_table___old file_table;
	unsigned int nr_user_files;
};
#pragma clang attribute pop

/*
 * Reads through a pointer that the verifier does not know as a kernel object, at the cost of a plain load
 * (bpf_rdonly_cast, a35b9af4ec2c, 6.2). Older kernels use bpf_probe_read_kernel, which costs about 70 ns more per call.
 * CAN_CAST checks the verifier's own list of such functions. It is constant at load, so the code for other kernels is
 * removed.
 */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#define CAN_CAST bpf_core_enum_value_exists(enum special_kfunc_type, KF_bpf_rdonly_cast)

#define kernel_cast(type, ptr)                                                                                         \
	({                                                                                                             \
		const void *__address = (ptr);                                                                         \
		CAN_CAST ? (type *)bpf_rdonly_cast(__address, bpf_core_type_id_kernel(type)) : (type *)__address;      \
	})

/* Reads a member through a pointer from kernel_cast. */
#define peek(ptr, member)                                                                                              \
	({                                                                                                             \
		typeof(ptr) __from = (ptr);                                                                            \
		typeof(__from->member) __value;                                                                        \
		if (CAN_CAST)                                                                                          \
			__value = __from->member;                                                                      \
		else                                                                                                   \
			bpf_core_read(&__value, sizeof(__value), &__from->member);                                     \
		__value;                                                                                               \
	})

/*
 * A pointer member of a trusted pointer, read as untrusted. To decide whether the member is trusted, the verifier looks
 * up a type name among all types of the kernel, which takes half a millisecond at each visit. That was half of the time
 * to load.
 */
#define plain_member(type, ptr, member) ({ CAN_CAST ? peek(kernel_cast(type, ptr), member) : (ptr)->member; })

/* The pointer at an address. The verifier has no type for an array of pointers, so a list node is used. */
#define kernel_pointer_at(address) ((void *)peek(kernel_cast(struct llist_node, address), next))

/*
 * Length of a string read from user space, without the NUL. For an empty string the helper returns 0 before "maccess:
 * fix strncpy_from_user_nofault() empty string handling" (6.1 and 6.12 are older), otherwise 1.
 */
#define string_bytes(n) ((n) > 0 ? (n)-1 : 0)

/*
 * Stores a value so that earlier stores are visible before it. x86 keeps the order of stores, so only the compiler must
 * not reorder them. Elsewhere an atomic exchange does it.
 */
#if defined(__TARGET_ARCH_x86)
#define publish(place, value)                                                                                          \
	({                                                                                                             \
		barrier();                                                                                             \
		*(volatile typeof(place) *)&(place) = (value);                                                         \
	})
#else
#define publish(place, value) ((void)__sync_lock_test_and_set(&(place), value))
#endif

#endif
