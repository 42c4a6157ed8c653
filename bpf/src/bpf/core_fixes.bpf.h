/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Everything that differs between kernels or architectures, in one place. Each difference names the
 * upstream change that made it.
 */
#ifndef IOREEL_CORE_FIXES_H
#define IOREEL_CORE_FIXES_H

/* arch/x86/include/asm/thread_info.h: set while a task is in a 32-bit system call. */
#define TS_COMPAT 0x0002

/* include/linux/fs.h: FMODE_CREATED, bit 20 since 73a09dd94377 (4.19). */
#define FMODE_CREATED (1u << 20)

/* include/linux/blk_types.h: operation in the low byte of bi_opf and cmd_flags since 4.10. */
#define REQ_OP_MASK 0xffu
#define REQ_OP_WRITE 1u
#define REQ_META (1u << 12)
#define REQ_OP_FLUSH 2u

/* include/linux/blk-mq.h: a macro with bit 4 until 5f89154e8e9e (6.11) made it an enumerator. */
#define RQF_FLUSH_SEQ                                                                                                  \
	(bpf_core_enum_value_exists(enum rqf_flags, __RQF_FLUSH_SEQ)                                                   \
	     ? 1u << bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ)                                              \
	     : 1u << 4)

#define OVERLAYFS_SUPER_MAGIC 0x794c7630ul
#define BTRFS_SUPER_MAGIC 0x9123683Eul

/* include/linux/page-flags.h: bit of a folio of several pages, fixed since 6.6 as far as this configuration goes. */
#define PG_HEAD 6

/*
 * A ring's own file table, an array of pointers with flags in their low bits until each entry became an
 * object of its own (7029acd8a950, 6.13).
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
 * Reads through a pointer that the verifier does not know as a kernel object, at the price of a plain
 * load (bpf_rdonly_cast, a35b9af4ec2c, 6.2); bpf_probe_read_kernel costs some 70 ns more a call.
 */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;

#define kernel_cast(type, ptr) ((type *)bpf_rdonly_cast((ptr), bpf_core_type_id_kernel(type)))

/* The pointer at an address. The verifier knows no arrays of pointers, so it is told of a list's node. */
#define kernel_pointer_at(address) ((void *)kernel_cast(struct llist_node, address)->next)

/*
 * Makes what was stored before visible before this store. On x86 stores are seen in order, so only the
 * compiler has to be kept from moving them.
 */
#define publish(place, value)                                                                                          \
	({                                                                                                             \
		barrier();                                                                                             \
		*(volatile typeof(place) *)&(place) = (value);                                                         \
	})

#endif
