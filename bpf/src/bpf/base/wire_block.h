/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Records of bios and of block requests. Part of the wire format: see base/wire.h. */
#ifndef IOREEL_WIRE_BLOCK_H
#define IOREEL_WIRE_BLOCK_H

#include "base/vmlinux.h"

#include "base/wire.h"

enum hide {
	HIDE_OWN = 1, /* output files of the recorder */
	HIDE_BACKING = 2, /* backing file of a loop device: its I/O is recorded on the loop device */
	HIDE_COUNT = 3,
};

/* How the probe found the file of a bio, or what else the bio carries. */
enum bio_how {
	BIO_UNKNOWN = 0,
	BIO_PAGE = 1, /* the file of the page cache page that it carries */
	BIO_DIRECT = 2, /* the file of the request behind it: direct I/O, or a call on the device node */
	BIO_FS = 3, /* the file in the file system's structure around the bio (btrfs_bio) */
	BIO_BDEV = 4, /* a page of the block device's page cache: the raw device */
	BIO_BDEV_FS = 6, /* likewise while a file system is mounted: metadata */
	BIO_CLONE = 5, /* the file of the bio that a mapped device cloned */
};

/* Who ends a bio, by its bi_end_io: one value per meaning, not per function. */
enum end_io {
	END_OTHER = 0,
	END_PAGE = 1, /* page cache of a file, read or write-back */
	END_DIRECT = 2, /* iomap direct I/O */
	END_BDEV_DIRECT = 3, /* direct I/O on the device node, request in bi_private */
	END_BDEV_ASYNC = 4, /* likewise, request around the bio */
	END_BUFFER = 5, /* one buffer head */
	END_BTRFS = 6, /* in a struct btrfs_bio */
	END_BTRFS_CLONE = 7, /* a mirror's clone of a btrfs_bio */
	END_BTRFS_SUPER = 8,
	END_XFS_BUF = 9, /* one XFS metadata buffer */
	END_XFS_LOG = 10,
	END_SWAP = 11,
	END_WAIT = 12, /* a thread sleeps until it ends */
	END_CHAIN = 13, /* ends a part of another bio */
	END_DM = 14, /* a device mapper clone */
	END_BTRFS_RAID = 15, /* part of a RAID5 or RAID6 stripe */
	END_DIRECT_SIMPLE = 16, /* iomap direct I/O with a single bio, the request around it */
	END_DIRECT_F2FS = 17, /* iomap direct I/O through the statistics of f2fs */
	END_MD = 18, /* a clone made by an md array to account for the bio */
	END_MD_MIRROR = 19, /* a copy written, or the one read, by a mirroring md array */
	END_MD_MIRROR10 = 20, /* likewise for RAID10 */
	END_BTRFS_SCRUB = 21, /* scrub or repair by btrfs, without a structure around it (before 6.4) */
	END_ENCRYPTED = 22, /* ciphertext that the block layer made from another bio's data */
	END_DECRYPTED = 23, /* the block layer will decrypt it, then call the original end function */
};

/*
 * Contents of a part of a RAID 5 or 6 stripe: the first byte of peek, with BIOF_PEEK and `how` 0. With BIOF_PIECES,
 * bytes 8-15 hold the address of the stripe, and bytes 16-23 the value that converts a position on the device to one in
 * the file system.
 */
enum stripe_place {
	STRIPE_DATA = 1, /* data, but not what was written to the stripe */
	STRIPE_PARITY = 2,
	STRIPE_MIXED = 3, /* data of several files, or from several places of a file */
};

enum bio_flags {
	BIOF_SPLIT = 1, /* part of a bio that was too large for the device, or that carries several files */
	BIOF_MERGED = 2, /* merged into an existing request */
	BIOF_SWAP_PAGE = 4, /* carries anonymous memory */
	BIOF_PEEK = 8, /* peek is set */
	BIOF_PEEK_LATER = 16, /* a read: until its end, peek holds an address */
	BIOF_NO_END = 32, /* no probe saw its end */
	BIOF_DIRECTORY = 64, /* its file is a directory */
	BIOF_PIECES = 128, /* recorded in pieces when it ends */
};

#define WIRE_PEEK_BYTES 32

struct rec_bio {
	struct rec_hdr hdr;
	__u64 rq_id; /* 0: no request */
	__u64 queue_ns; /* 0: queued before the recording */
	__u64 sector;
	__u64 orig_sector; /* where it was queued first, if orig_dev is set */
	__u64 cause_ns; /* start of task_id's call that queued it; 0: none */
	struct file_id file;
	__s64 file_offset_bytes; /* -1: unknown */
	__u32 dev;
	__u32 orig_dev; /* partition or mapped device where it was queued first; 0: dev */
	__u32 len_bytes;
	__u32 opf; /* the kernel's REQ_ bits */
	__u32 task_id; /* 0: no recorded task */
	__s32 error; /* blk_status_t, or -errno on older kernels; of the request or of the bio */
	__u32 sb_dev; /* device of the file's file system */
	__u8 how; /* enum bio_how */
	__u8 end_io; /* enum end_io */
	__u8 flags; /* enum bio_flags */
	__u8 hide; /* enum hide: not sent if set */
	/* Sent only if needed: recorded tasks have a name already, and file data needs no peek. */
	char comm[WIRE_COMM_BYTES];
	/* With BIOF_PEEK, what identifies metadata: the first bytes of a buffer head, the name of an XFS buffer's
	 * verifier, or owner (bytes 0-7) and level (byte 8) of a btrfs node. */
	__u8 peek[WIRE_PEEK_BYTES];
};

struct rec_rq {
	struct rec_hdr hdr;
	__u64 rq_id;
	__u64 queue_ns;
	__u64 issue_ns;
	__u64 sector; /* all ones: no sector */
	__u32 dev;
	__u32 len_bytes;
	__u32 opf;
	__s32 error; /* as in rec_bio */
	__u32 issue_cpu;
	__u32 requeues; /* how often the driver gave it back */
	__u32 bios; /* number of bios in it */
	__u32 no_end; /* 1: no probe saw its end, nor its bios */
};

/* In REC_RQ_BIO, stored in place of the bio's `comm`: the fields of the request that the bio does not have. */
struct rq_part {
	__u64 issue_ns;
	__u32 opf;
	__u16 issue_cpu;
	__u16 requeues;
};

#endif
