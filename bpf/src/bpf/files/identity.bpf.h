/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* File identity: from descriptor to file, from file to device, inode and generation, from file to path. */
#ifndef IOREEL_IDENTITY_H
#define IOREEL_IDENTITY_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/maps.bpf.h"
#include "files/disks.bpf.h"

static __always_inline struct file *file_of_fd(struct task_struct *task, int fd)
{
	struct files_struct *files = plain_member(struct task_struct, task, files);
	struct fdtable *fdt;
	struct file *file;

	if (fd < 0 || !files)
		return NULL;
	fdt = files->fdt;
	if (!fdt || (__u32)fd >= fdt->max_fds)
		return NULL;
	file = kernel_pointer_at(fdt->fd + fd);
	return file ? kernel_cast(struct file, file) : NULL;
}

/* Offset of the flags in struct io_uring_params (include/uapi/linux/io_uring.h). */
#define URING_PARAMS_FLAGS 8
#define IORING_SETUP_REGISTERED_FD_ONLY 0x8000u

/* The file of an io_uring: by descriptor, or (`own`) by its index among the rings registered by the thread. */
static __always_inline struct file *ring_file(struct task_struct *task, int fd, bool own)
{
	struct io_uring_task *rings = plain_member(struct task_struct, task, io_uring);
	struct file *file = NULL;

	if (!own)
		return file_of_fd(task, fd);
	if (!rings || (__u32)fd >= 16)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), &rings->registered_rings[fd & 15]);
	return file ? kernel_cast(struct file, file) : NULL;
}

/* Device as stat(2) reports it: btrfs has one per subvolume, and inode numbers repeat across subvolumes. */
static __always_inline __u32 inode_dev(struct inode *inode)
{
	struct super_block *sb = peek(inode, i_sb);

	if (!sb)
		return 0;
	if (unlikely(peek(sb, s_magic) == BTRFS_SUPER_MAGIC) && bpf_core_type_exists(struct btrfs_inode)) {
		struct btrfs_inode *bi = container_of(inode, struct btrfs_inode, vfs_inode);
		__u32 dev = BPF_CORE_READ(bi, root, anon_dev);

		if (dev)
			return dev;
	}
	return peek(sb, s_dev);
}

static __always_inline void identify(struct inode *inode, struct file_id *id)
{
	id->ino = peek(inode, i_ino);
	id->dev = inode_dev(inode);
	id->generation = peek(inode, i_generation);
}

/* 16 Ki files that contain program code. If one is evicted, accesses to it make rows. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16 * 1024);
	__type(key, struct file_id);
	__type(value, __u8);
} code_files SEC(".maps");

static __always_inline void note_code(struct inode *inode)
{
	struct file_id id = {};
	__u8 one = 1;

	if (!inode)
		return;
	identify(inode, &id);
	if (!bpf_map_lookup_elem(&code_files, &id))
		bpf_map_update_elem(&code_files, &id, &one, BPF_ANY);
}

/* The upper file of an overlay inode (NULL before copy-up), and the topmost lower file, if any. */
static __always_inline struct dentry *overlaid(struct inode *inode, struct dentry **lower)
{
	struct ovl_inode *oi = container_of(inode, struct ovl_inode, vfs_inode);

	*lower = NULL;
	if (!bpf_core_type_exists(struct ovl_inode) || !bpf_core_field_exists(struct ovl_inode, __upperdentry))
		return NULL;
	if (bpf_core_field_exists(struct ovl_inode, oe)) {
		struct ovl_entry *oe = BPF_CORE_READ(oi, oe);

		if (oe && BPF_CORE_READ(oe, __numlower))
			*lower = BPF_CORE_READ(oe, __lowerstack[0].dentry);
	} else if (bpf_core_field_exists(struct ovl_inode___path, lowerpath)) {
		*lower = BPF_CORE_READ((struct ovl_inode___path *)oi, lowerpath.dentry);
	}
	return BPF_CORE_READ(oi, __upperdentry);
}

#define AF_UNIX 1

/* Inode number of the other end of a unix socket; 0 if not connected. */
static __always_inline __u64 peer_of(struct inode *inode)
{
	struct socket_alloc *alloc = container_of(inode, struct socket_alloc, vfs_inode);
	struct socket *other;
	struct sock *sk;

	if (!bpf_core_type_exists(struct unix_sock) || !bpf_core_type_exists(struct socket_alloc))
		return 0;
	sk = BPF_CORE_READ(alloc, socket.sk);
	if (!sk || BPF_CORE_READ(sk, __sk_common.skc_family) != AF_UNIX)
		return 0;
	other = BPF_CORE_READ((struct unix_sock *)sk, peer, sk_socket);
	if (!other)
		return 0;
	alloc = container_of(other, struct socket_alloc, socket);
	return BPF_CORE_READ(alloc, vfs_inode.i_ino);
}

/* Whether the name that a file was opened by is gone, for files with other names left (include/linux/dcache.h:
 * d_unlinked). */
static __always_inline bool name_is_gone(struct dentry *dentry)
{
	return dentry && !BPF_CORE_READ(dentry, d_hash.pprev) && BPF_CORE_READ(dentry, d_parent) != dentry;
}

static __always_inline void identify_more(struct inode *inode, struct dentry *dentry, struct file_more *more,
					  struct dentry **real)
{
	struct super_block *sb = peek(inode, i_sb);

	*real = NULL;
	if (!sb)
		return;
	more->unlinked = !peek(inode, i_nlink) ? 1 : name_is_gone(dentry) ? 2 : 0;
	if (peek(sb, s_magic) == BTRFS_SUPER_MAGIC && bpf_core_type_exists(struct btrfs_inode)) {
		struct btrfs_inode *bi = container_of(inode, struct btrfs_inode, vfs_inode);

		if (bpf_core_field_exists(struct btrfs_root, root_key))
			more->subvolume = BPF_CORE_READ(bi, root, root_key.objectid);
	} else if (peek(sb, s_magic) == SOCKFS_MAGIC) {
		more->peer_ino = peer_of(inode);
	} else if (peek(sb, s_magic) == OVERLAYFS_SUPER_MAGIC) {
		struct dentry *lower, *below = overlaid(inode, &lower) ?: lower;
		struct inode *under = below ? BPF_CORE_READ(below, d_inode) : NULL;

		if (under) {
			identify(kernel_cast(struct inode, under), &more->real);
			more->real_sb_dev = BPF_CORE_READ(under, i_sb, s_dev);
			*real = below;
		}
	}
}

struct path_walk {
	struct dentry *dentry;
	struct dentry *mnt_root;
	struct mount *mnt;
	char *buf;
	__u32 whole; /* the root was reached */
};

/*
 * Offset of the first byte of the path so far; the path ends at WIRE_WALK_BYTES. It is stored behind the path in the
 * map: the verifier would track every possible value of a variable on the stack.
 */
static __always_inline __u32 *path_off(char *buf)
{
	return (__u32 *)(buf + 2 * WIRE_WALK_BYTES - sizeof(__u32));
}

/* Prepends a name; false if there is no space. */
static __always_inline bool add_component(struct path_walk *w, struct dentry *dentry)
{
	__u32 len = peek(dentry, d_name.len), off = *path_off(w->buf);

	if (len > 255)
		len = 255;
	if (off < len + 1 || off > WIRE_WALK_BYTES)
		return false;
	off -= len;
	bpf_probe_read_kernel(w->buf + (off & (WIRE_WALK_BYTES - 1)), len & 255, peek(dentry, d_name.name));
	off -= 1;
	w->buf[off & (WIRE_WALK_BYTES - 1)] = '/';
	*path_off(w->buf) = off;
	return true;
}

/* Handles one component. A bpf_loop callback, because unrolled or bounded loops exceed the verifier's budget. */
static long path_step(__u32 i, void *context)
{
	struct path_walk *w = context;
	struct dentry *dentry = kernel_cast(struct dentry, w->dentry), *parent = peek(dentry, d_parent);

	if (dentry == w->mnt_root || dentry == parent) {
		struct mount *mnt = kernel_cast(struct mount, w->mnt), *up = peek(mnt, mnt_parent);

		if (dentry == w->mnt_root && mnt != up) {
			w->dentry = peek(mnt, mnt_mountpoint);
			w->mnt = up;
			w->mnt_root = peek(up, mnt.mnt_root);
			return 0;
		}
		/* Pipes, sockets and memfds are on mounts outside any mount namespace; they have no path. */
		__s64 ns = (__s64)BPF_CORE_READ(mnt, mnt_ns);
		w->whole = ns != 0 && (ns < -4095 || ns > 0);
		if (ns == 0 || (ns >= -4095 && ns < 0))
			*path_off(w->buf) = WIRE_WALK_BYTES;
		return 1;
	}
	if (!add_component(w, dentry))
		return 1;
	w->dentry = parent;
	return 0;
}

/* Likewise within one file system, regardless of mounts. */
static long fs_path_step(__u32 i, void *context)
{
	struct path_walk *w = context;
	struct dentry *dentry = kernel_cast(struct dentry, w->dentry), *parent = peek(dentry, d_parent);

	if (dentry == parent)
		return 1;
	if (!add_component(w, dentry))
		return 1;
	w->dentry = parent;
	return 0;
}

/*
 * Builds the path of `dentry` on `mnt` from the root of its mount namespace, at the end of buf's first half. Returns
 * its length; `cut` is set if the root was not reached.
 */
static __always_inline __u32 walk_path(char *buf, struct vfsmount *vfsmnt, struct dentry *dentry, __u32 *cut)
{
	struct path_walk walk = {};
	__u32 len;

	walk.buf = buf;
	walk.dentry = dentry;
	walk.mnt = container_of(vfsmnt, struct mount, mnt);
	walk.mnt_root = peek(vfsmnt, mnt_root);
	*path_off(buf) = WIRE_WALK_BYTES;
	bpf_loop(WIRE_WALK_BYTES / 2, path_step, &walk, 0);
	if (walk.whole && *path_off(buf) == WIRE_WALK_BYTES) { /* the root itself */
		*path_off(buf) = WIRE_WALK_BYTES - 1;
		buf[WIRE_WALK_BYTES - 1] = '/';
	}
	len = WIRE_WALK_BYTES - *path_off(buf);
	if (len > WIRE_WALK_BYTES - 1)
		len = WIRE_WALK_BYTES - 1;
	*cut = len && !walk.whole;
	return len;
}

/*
 * Builds the path from the root of the file system; for an overlay, of the real file. User space uses it to find the
 * file from outside a container or behind bind mounts. Empty if it adds nothing to the first path.
 */
static __always_inline __u32 walk_fs_path(char *buf, struct file *file, struct dentry *real)
{
	struct vfsmount *vfsmnt = peek(file, f_path.mnt);
	struct mount *mnt = container_of(vfsmnt, struct mount, mnt);
	struct path_walk walk = {.buf = buf};
	struct dentry *root = peek(vfsmnt, mnt_root);
	__u32 len;

	if (!real && root == peek(root, d_parent) && BPF_CORE_READ(mnt, mnt_ns, ns.inum) == host_mnt_ns)
		return 0;
	walk.dentry = real ? real : peek(file, f_path.dentry);
	*path_off(buf) = WIRE_WALK_BYTES;
	bpf_loop(WIRE_WALK_BYTES / 2, fs_path_step, &walk, 0);
	len = WIRE_WALK_BYTES - *path_off(buf);
	return len > WIRE_WALK_BYTES - 1 ? WIRE_WALK_BYTES - 1 : len;
}

/*
 * Distinguishes files that had the same inode number one after another. It contains the file system, because device
 * numbers are reused too. For inodes without a generation: on an overlay, the generation of the file that the number
 * comes from, which is the lower one even after copy-up; elsewhere, at least the file type. Not inlined, because the
 * caller's stack is full.
 */
static __noinline __u32 version_of(struct inode *inode)
{
	struct super_block *sb = peek(inode, i_sb);
	struct dentry *upper, *lower;
	__u32 version;

	if (!sb)
		return 0;
	version = fs_uuid(sb);
	if (peek(inode, i_generation))
		return version;
	if (peek(sb, s_magic) != OVERLAYFS_SUPER_MAGIC)
		return version ^ peek(inode, i_mode) >> 12;
	upper = overlaid(inode, &lower);
	if (!lower)
		lower = upper;
	return lower ? version ^ BPF_CORE_READ(lower, d_inode, i_generation) : version;
}

/* In place of a time: use the time when the record is made. Few calls need a record. */
#define WHEN_TOLD 0

/*
 * Sends the record of a file; returns 1 if it was lost. A global function, which is verified once. Otherwise it would
 * be verified for every combination of operands of a call. Such functions take no kernel pointers, so these are passed
 * as numbers.
 */
__noinline int tell_file(__u64 file_address, __u64 inode_address, __u64 now_ns, __u32 renewed)
{
	struct file *file = kernel_cast(struct file, (void *)file_address);
	struct inode *inode = kernel_cast(struct inode, (void *)inode_address);
	__u32 zero = 0, one = 1, cpu, len, fs_len;
	char *buf = bpf_map_lookup_elem(&path_scratch, &zero), *fs_buf = bpf_map_lookup_elem(&path_scratch, &one);
	struct rec_file *rec;
	struct bpf_dynptr out;
	struct cpu_ledger *l;
	struct dentry *real;
	void *ring;
	int lost = 0;

	if (!buf || !fs_buf)
		return 0;
	/* Behind the space for the path: the stacks of all callers are short. */
	rec = (void *)(buf + WIRE_WALK_BYTES + 512);
	__builtin_memset(rec, 0, sizeof(*rec));
	rec->more.renewed = renewed;
	rec->hdr.end_ns = now_ns == WHEN_TOLD ? bpf_ktime_get_ns() : now_ns;
	identify(inode, &rec->file);
	identify_more(inode, peek(file, f_path.dentry), &rec->more, &real);
	/* For an overlay, the disks of the file below. */
	add_disks(real ? kernel_cast(struct inode, BPF_CORE_READ(real, d_inode)) : inode);
	len = walk_path(buf, peek(file, f_path.mnt), peek(file, f_path.dentry), &rec->path_cut);
	fs_len = len ? walk_fs_path(fs_buf, file, real) : 0;
	rec->more.fs_path_bytes = fs_len;
	rec->sb_dev = peek(peek(inode, i_sb), s_dev);
	rec->mode = peek(inode, i_mode);
	rec->size_bytes = peek(inode, i_size);
	rec->path_bytes = len;
	cpu = bpf_get_smp_processor_id();
	ring = cpu_ring(cpu);
	l = cpu_ledger();
	if (!ring || !l)
		return 0;
	begin_record(l, &rec->hdr, cpu, REC_FILE, CLASS_FILES, sizeof(*rec) + len + fs_len, rec->hdr.end_ns);
	crowded(ring, CLASS_FILES, cpu);
	if (bpf_ringbuf_reserve_dynptr(ring, sizeof(*rec) + len + fs_len, 0, &out)) {
		lost_record(l, CLASS_FILES);
		lost = 1;
	} else {
		bpf_dynptr_write(&out, 0, rec, sizeof(*rec), 0);
		if (len)
			bpf_dynptr_write(&out, sizeof(*rec), buf + ((WIRE_WALK_BYTES - len) & (WIRE_WALK_BYTES - 1)),
					 len, 0);
		if (fs_len)
			bpf_dynptr_write(&out, sizeof(*rec) + len,
					 fs_buf + ((WIRE_WALK_BYTES - fs_len) & (WIRE_WALK_BYTES - 1)), fs_len, 0);
	}
	bpf_ringbuf_submit_dynptr(&out, BPF_RB_NO_WAKEUP);
	return lost;
}

/* An open shows which file has an inode number now. The file keeps it while it is open, so later calls need not
 * check. */
static __always_inline void about_to_note(struct task_state *st, struct file *file)
{
	struct inode *inode = peek(file, f_inode);
	struct super_block *sb = inode ? peek(inode, i_sb) : NULL;

	/* Anonymous device numbers are reused by later mounts. */
	if (sb && (!peek(inode, i_generation) || !(peek(sb, s_dev) >> 20)))
		st->ask = 1;
}

/* After a loss, a file's record is sent again after this many uses, so that full rings do not get even fuller. */
#define TOLD_AGAIN 256

/*
 * Sends the record of st->told_file if this is its first use. `created`: the call created the file. A global function:
 * see tell_file.
 */
__noinline int note_first_use(struct task_state *st, const struct file_id *id, __u64 now_ns, __u32 created)
{
	struct seen_inode *mine;
	__u32 version, *seen;
	struct file_id key;
	bool ask;

	if (!st || !id)
		return 0;
	/* On 6.1 a global function cannot use memory of its caller as a map key. */
	key = *id;
	mine = &st->seen[key.ino & (SEEN_INODES - 1)];
	ask = st->ask;
	st->ask = 0;
	mine->lost = 0;
	mine->inode = st->told_inode;
	mine->ino = key.ino;
	mine->generation = key.generation;
	seen = bpf_map_lookup_elem(&files_seen, &key);
	created = created && !key.generation;
	if (likely(seen && !ask && !created))
		return 0;
	version = version_of(kernel_cast(struct inode, (void *)st->told_inode));
	if (seen && *seen == version && !created)
		return 0;
	created = created || seen;
	/* The file that was filtered by this number was another one. */
	if (filter_files && created)
		bpf_map_delete_elem(&unwanted_files, &key);
	bpf_map_update_elem(&files_seen, &key, &version, BPF_ANY);
	if (tell_file(st->told_file, st->told_inode, now_ns, created)) {
		/* A reused number must still be reported: no inode has this version. */
		version = ~0u;
		if (created)
			bpf_map_update_elem(&files_seen, &key, &version, BPF_ANY);
		else
			bpf_map_delete_elem(&files_seen, &key);
		mine->lost = lossless ? 1 : TOLD_AGAIN;
	}
	return 0;
}

/* Sends the record of a file at its first use. */
static __always_inline void note_file(struct task_state *st, struct file *file, struct inode *inode,
				      const struct file_id *id, __u64 now_ns, bool created)
{
	struct seen_inode *mine = &st->seen[id->ino & (SEEN_INODES - 1)];

	if (likely(!st->ask && !created && mine->inode == (__u64)inode && mine->ino == id->ino &&
		   mine->generation == id->generation) &&
	    likely(!mine->lost || --mine->lost))
		return;
	/* Read from there they are numbers, which a global function takes. */
	st->told_file = (__u64)file;
	st->told_inode = (__u64)inode;
	note_first_use(st, id, now_ns, created);
}

#endif
