/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Selects the recorded disks: those behind the file systems of recorded files. A disk is added here, with the first
 * record of a file, because kernel threads may use it before the recorder has read that record. The recorder adds disks
 * that cannot be found here, such as those below mapped devices.
 */
#ifndef IOREEL_DISKS_H
#define IOREEL_DISKS_H

#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"

#define MAX_POOL_DISKS 256 /* members of a btrfs */

static __always_inline __u32 disk_dev(struct gendisk *disk)
{
	return disk ? (peek(disk, major) << 20) | peek(disk, first_minor) : 0;
}

/* Part of the file system's UUID, which most file systems choose at random when they are created; else 0. */
static __always_inline __u32 fs_uuid(struct super_block *sb)
{
	__u32 uuid = 0;

	BPF_CORE_READ_INTO(&uuid, sb, s_uuid);
	return uuid;
}

/* The file system handled last, whose disks are in the map. Its device number alone is not enough, because it may be
 * reused. */
__u32 last_fs = 0;
__u32 last_fs_uuid = 0;

static __always_inline void add_disk(struct block_device *bdev)
{
	struct gendisk *disk = bdev ? BPF_CORE_READ(bdev, bd_disk) : NULL;
	__u8 one = 1;
	__u32 dev;

	if (!disk)
		return;
	dev = disk_dev(kernel_cast(struct gendisk, disk));
	if (dev && !bpf_map_lookup_elem(&devices, &dev))
		bpf_map_update_elem(&devices, &dev, &one, BPF_ANY);
}

struct pool_walk {
	struct list_head *at;
	struct list_head *end;
};

static long pool_step(__u32 i, void *context)
{
	struct pool_walk *w = context;
	struct list_head *at = w->at;
	struct btrfs_device *device;

	if (!at || at == w->end)
		return 1;
	device = (void *)at - bpf_core_field_offset(struct btrfs_device, dev_list);
	add_disk(BPF_CORE_READ(device, bdev));
	w->at = BPF_CORE_READ(at, next);
	return 0;
}

/* Adds the disks of an inode's file system. */
static __always_inline void add_disks(struct inode *inode)
{
	struct pool_walk pool = {};
	struct super_block *sb;
	__u32 dev, uuid;

	if (fixed_devices)
		return;
	sb = peek(inode, i_sb);
	if (!sb)
		return;
	dev = peek(sb, s_dev);
	uuid = fs_uuid(sb);
	if (dev == last_fs && uuid == last_fs_uuid)
		return;
	add_disk(peek(sb, s_bdev));
	if (peek(sb, s_magic) == BTRFS_SUPER_MAGIC && bpf_core_type_exists(struct btrfs_fs_devices)) {
		struct btrfs_fs_info *fs = (void *)peek(sb, s_fs_info);
		struct btrfs_fs_devices *devices = BPF_CORE_READ(fs, fs_devices);

		if (!devices)
			return;
		pool.end = (void *)devices + bpf_core_field_offset(struct btrfs_fs_devices, devices);
		pool.at = BPF_CORE_READ(devices, devices.next);
		bpf_loop(MAX_POOL_DISKS, pool_step, &pool, 0);
	}
	/* Set last, because other CPUs rely on it. */
	last_fs = dev;
	last_fs_uuid = uuid;
}

#endif
