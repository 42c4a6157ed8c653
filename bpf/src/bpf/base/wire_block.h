/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Records of bios and of block requests. Part of the wire format: see base/wire.h. */
#ifndef IOREEL_WIRE_BLOCK_H
#define IOREEL_WIRE_BLOCK_H

#include "base/vmlinux.h"

#include "base/wire.h"

enum hide {
	HIDE_OWN = 1, /* the recorder's own output */
	HIDE_BACKING = 2, /* a file behind a loop device: its I/O is seen on the loop device */
	HIDE_COUNT = 3,
};

/* How the file of a bio, or what it is instead, was told in the kernel. */
enum bio_how {
	BIO_UNKNOWN = 0,
	BIO_PAGE = 1, /* file by the page cache page it carries */
	BIO_DIRECT = 2, /* file by the request behind it: direct I/O, or a call on the device itself */
	BIO_FS = 3, /* file by the file system's own structure around the bio (btrfs_bio) */
	BIO_BDEV = 4, /* a page of the block device's own page cache: the raw device */
	BIO_BDEV_FS = 6, /* the same while a file system lives there: metadata */
	BIO_CLONE = 5, /* file by the bio that a mapped device cloned */
};

/* Who is told when a bio ends, from its bi_end_io: one entry per meaning, not per function. */
enum end_io {
	END_OTHER = 0,
	END_PAGE = 1, /* page cache of a file, read or write-back */
	END_DIRECT = 2, /* iomap direct I/O */
	END_BDEV_DIRECT = 3, /* direct I/O on the block device itself, request in bi_private */
	END_BDEV_ASYNC = 4, /* the same, request around the bio */
	END_BUFFER = 5, /* one buffer head */
	END_BTRFS = 6, /* a struct btrfs_bio is around it */
	END_BTRFS_CLONE = 7, /* a mirror's clone of such a one */
	END_BTRFS_SUPER = 8,
	END_XFS_BUF = 9, /* one XFS metadata buffer */
	END_XFS_LOG = 10,
	END_SWAP = 11,
	END_WAIT = 12, /* somebody sleeps on it */
	END_CHAIN = 13, /* the end of part of another bio */
	END_DM = 14, /* a device mapper clone */
	END_BTRFS_RAID = 15, /* part of a RAID5 or RAID6 stripe */
	END_DIRECT_SIMPLE = 16, /* iomap direct I/O of one bio, the request around it */
	END_DIRECT_F2FS = 17, /* iomap direct I/O by way of f2fs's statistics */
	END_MD = 18, /* an array's clone, which accounts for the bio */
	END_MD_MIRROR = 19, /* a copy that a mirroring array makes, or the one that it reads */
	END_MD_MIRROR10 = 20, /* the same of RAID10 */
	END_BTRFS_SCRUB = 21, /* what btrfs looks over or mends by itself, nothing around it (before 6.4) */
	END_ENCRYPTED = 22, /* ciphertext that the block layer made of another bio's data */
	END_DECRYPTED = 23, /* the block layer will decrypt it, and tell then whom it was to tell */
};

/*
 * What lies where part of a stripe with parity goes: the first byte of peek, with BIOF_PEEK and no `how`. With
 * BIOF_PIECES bytes 8-15 have the stripe, and bytes 16-23 what makes a place on the device one in the file system.
 */
enum stripe_place {
	STRIPE_DATA = 1, /* data, and none of what the stripe was written with */
	STRIPE_PARITY = 2,
	STRIPE_MIXED = 3, /* data of several files, or from several places of one */
};

enum bio_flags {
	BIOF_SPLIT = 1, /* part of a bio that was too large for the device, or that carries several files */
	BIOF_MERGED = 2, /* joined a request that was there */
	BIOF_SWAP_PAGE = 4, /* carries anonymous memory */
	BIOF_PEEK = 8, /* peek is sent */
	BIOF_PEEK_LATER = 16, /* a read: peek holds an address until it ends */
	BIOF_NO_END = 32, /* its end was not seen */
	BIOF_DIRECTORY = 64, /* its file is one */
	BIOF_PIECES = 128, /* told piece by piece once it ends */
};

#define WIRE_PEEK_BYTES 32

struct rec_bio {
	struct rec_hdr hdr;
	__u64 rq_id; /* 0: no request */
	__u64 queue_ns; /* 0: queued before the recording */
	__u64 sector;
	__u64 orig_sector; /* where it was queued first, when orig_dev is set */
	__u64 cause_ns; /* start of the call that task_id was in, 0: none */
	struct file_id file;
	__s64 file_offset_bytes; /* -1: not known */
	__u32 dev;
	__u32 orig_dev; /* the partition or mapped device it was queued on, 0: the same */
	__u32 len_bytes;
	__u32 opf; /* the kernel's REQ_ bits */
	__u32 task_id; /* 0: no recorded task */
	__s32 error; /* blk_status_t, or -errno on older kernels; of the request, or of the bio itself */
	__u32 sb_dev; /* of the file's file system */
	__u8 how; /* enum bio_how */
	__u8 end_io; /* enum end_io */
	__u8 flags; /* enum bio_flags */
	__u8 hide; /* enum hide: not sent then */
	/* Sent only as far as needed: recorded tasks have a name already, and file data needs no look inside. */
	char comm[WIRE_COMM_BYTES];
	/* With BIOF_PEEK, what tells metadata apart: a buffer head's first bytes, the name of an XFS buffer's
	 * verifier, or the owner and level of a btrfs node (bytes 0-7 and 8). */
	__u8 peek[WIRE_PEEK_BYTES];
};

struct rec_rq {
	struct rec_hdr hdr;
	__u64 rq_id;
	__u64 queue_ns;
	__u64 issue_ns;
	__u64 sector; /* all ones: none */
	__u32 dev;
	__u32 len_bytes;
	__u32 opf;
	__s32 error; /* as in rec_bio */
	__u32 issue_cpu;
	__u32 requeues; /* times the driver gave it back before */
	__u32 bios; /* carried */
	__u32 no_end; /* 1: its end was not seen, nor what it carried */
};

/* In the place of a bio's `comm`: what its request has that it has not. */
struct rq_part {
	__u64 issue_ns;
	__u32 opf;
	__u16 issue_cpu;
	__u16 requeues;
};

#endif
