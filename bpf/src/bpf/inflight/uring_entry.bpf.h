/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Submission queue entries: which fields an opcode uses, and the fields at their offsets (struct io_uring_sqe,
 * include/uapi/linux/io_uring.h), as stored in struct rec_uring.
 */
#ifndef IOREEL_URING_ENTRY_H
#define IOREEL_URING_ENTRY_H

#include "base/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "base/wire.h"

/* Sets of opcodes (IORING_OP_*, include/uapi/linux/io_uring.h) by the fields they use; set by user space. */
const volatile __u64 uring_rows = 0; /* file operations; all others are only counted */
const volatile __u64 uring_fd_ops = 0; /* use the descriptor */
const volatile __u64 uring_dir_ops = 0; /* the descriptor is a directory that paths are relative to */
const volatile __u64 uring_path_ops = 0; /* addr points to a path or a name */
const volatile __u64 uring_path2_ops = 0; /* addr2 points to a path or a name */
const volatile __u64 uring_path3_ops = 0; /* addr3 points to a path, addr to a name */
const volatile __u64 uring_vector_ops = 0; /* addr points to a vector of len buffers */
const volatile __u64 uring_splice_ops = 0; /* splice_fd_in is a second descriptor */
const volatile __u64 uring_dir2_ops = 0; /* len is a second directory */

#define URING_OP(name, nr) name = nr
enum {
	URING_OP(URING_WRITEV, 2),
	URING_OP(URING_WRITE_FIXED, 5),
	URING_OP(URING_OPENAT, 18),
	URING_OP(URING_CLOSE, 19),
	URING_OP(URING_STATX, 21),
	URING_OP(URING_WRITE, 23),
	URING_OP(URING_OPENAT2, 28),
	URING_OP(URING_WRITEV_FIXED, 61),
};

#define IOSQE_FIXED_FILE 1u
#define IOSQE_CQE_SKIP_SUCCESS 64u
#define IORING_SETUP_SQPOLL 2u
#define IORING_SETUP_SQE128 1024u
#define IORING_SETUP_NO_SQARRAY 65536u
#define IORING_CQE_F_MORE 2u
#define SPLICE_F_FD_IN_FIXED 0x80000000u
#define FILE_INDEX_ALLOC 0xffffffffu
#define ECANCELED 125

static __always_inline bool uring_is(__u64 set, __u8 opcode)
{
	return opcode < 64 && (set >> opcode & 1);
}

/* Whether it writes memory of the program to a file. */
static __always_inline bool uring_writes(__u8 opcode)
{
	return opcode == URING_WRITE || opcode == URING_WRITE_FIXED || opcode == URING_WRITEV ||
	       opcode == URING_WRITEV_FIXED;
}

static __always_inline __u8 sqe_flags(const struct rec_uring *r)
{
	return r->sqe[0] >> 8;
}

static __always_inline __u8 sqe_opcode(const struct rec_uring *r)
{
	return r->sqe[0];
}

static __always_inline __s32 sqe_fd(const struct rec_uring *r)
{
	return r->sqe[0] >> 32;
}

static __always_inline __u32 sqe_len(const struct rec_uring *r)
{
	return r->sqe[3];
}

static __always_inline __u32 sqe_op_flags(const struct rec_uring *r)
{
	return r->sqe[3] >> 32;
}

static __always_inline __u32 sqe_file_index(const struct rec_uring *r)
{
	return r->sqe[5] >> 32;
}

#endif
