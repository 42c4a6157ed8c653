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

/* The file of an io_uring: by descriptor, or by its number among those the thread registered as its own. */
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

/* stat(2)'s device: btrfs answers with one per subvolume, and inode numbers repeat among those. */
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

/* Files that are program code, 16 Ki of them. A forgotten one only makes rows. */
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

/* The upper file of an overlay's inode, NULL before a copy-up; and the topmost lower one, if any. */
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

/* The inode number of a unix socket's other end, 0 where it is not connected. */
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

/* Of a file with other names, whether the one it was opened by is gone (include/linux/dcache.h: d_unlinked). */
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
 * Where the path's first byte so far is; it ends at WIRE_WALK_BYTES. Behind the path in the map: of a number on the
 * stack the verifier would look at every value that a walk can give it.
 */
static __always_inline __u32 *path_off(char *buf)
{
	return (__u32 *)(buf + 2 * WIRE_WALK_BYTES - sizeof(__u32));
}

/* Puts a name before what is there; false when there is no room. */
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

/* One component. As a bpf_loop callback: unrolled or bounded loops exceed the verifier's budget. */
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
		/* Pipes, sockets and memfds live on mounts that are in no name space: they have no path. */
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

/* The same within one file system, whatever is mounted where. */
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
 * The path of what lies at `mnt` and `dentry`, from the root of its mount name space, put at the end of
 * buf's first half. Its length; `cut` says that the root was not reached.
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
 * The path from the root of the file system, of the real file where it is an overlay's: with that user space finds
 * the file from outside a container, and behind bind mounts. Only where it says more than the path.
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
 * Tells apart the files that a number was given to one after another: by their file system, whose own number may have
 * been given again, and where inodes have no generation of their own, of an overlay's file by the generation of the one
 * that gave it the number, which is the lower one also after a copy-up; of any other at least by its type. Called, as
 * its caller's stack is full.
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

/* Instead of a time: the one at which a file's record is made, which few calls need. */
#define WHEN_TOLD 0

/*
 * Sends a file's record; 1 when it is lost. A global function, which the verifier looks at once: it would else do so
 * for every combination of operands that a call may have. Such functions take no kernel pointers, so these come as
 * numbers.
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
	/* Behind what a path may take: the stack of all who may call this is short. */
	rec = (void *)(buf + WIRE_WALK_BYTES + 512);
	__builtin_memset(rec, 0, sizeof(*rec));
	rec->more.renewed = renewed;
	rec->hdr.end_ns = now_ns == WHEN_TOLD ? bpf_ktime_get_ns() : now_ns;
	identify(inode, &rec->file);
	identify_more(inode, peek(file, f_path.dentry), &rec->more, &real);
	/* Of an overlay, those of the file below. */
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

/* An open tells for sure which file has the number; from then on the file keeps it, and nobody need ask again. */
static __always_inline void about_to_note(struct task_state *st, struct file *file)
{
	struct inode *inode = peek(file, f_inode);
	struct super_block *sb = inode ? peek(inode, i_sb) : NULL;

	/* Numbers that belong to no device go to the next that mounts. */
	if (sb && (!peek(inode, i_generation) || !(peek(sb, s_dev) >> 20)))
		st->ask = 1;
}

/* A record that was lost is sent again once its file has been met so often, not to make full rings fuller. */
#define TOLD_AGAIN 256

/* Sends a file's record the first time it is met. `created`: by the call that ends. */
static __always_inline void note_file(struct task_state *st, struct file *file, struct inode *inode,
				      const struct file_id *id, __u64 now_ns, bool created)
{
	struct seen_inode *mine = &st->seen[id->ino & (SEEN_INODES - 1)];
	bool ask = st->ask;
	__u32 version, *seen;

	if (likely(!ask && !created && mine->inode == (__u64)inode && mine->ino == id->ino &&
		   mine->generation == id->generation) &&
	    likely(!mine->lost || --mine->lost))
		return;
	st->ask = 0;
	mine->lost = 0;
	mine->inode = (__u64)inode;
	mine->ino = id->ino;
	mine->generation = id->generation;
	seen = bpf_map_lookup_elem(&files_seen, id);
	created = created && !id->generation;
	if (likely(seen && !ask && !created))
		return;
	version = version_of(inode);
	if (seen && *seen == version && !created)
		return;
	created = created || seen;
	/* What was left out by this number was another file. */
	if (filter_files && created)
		bpf_map_delete_elem(&unwanted_files, id);
	bpf_map_update_elem(&files_seen, id, &version, BPF_ANY);
	/* Numbers, and no longer pointers, once they come back from memory. */
	st->told_file = (__u64)file;
	st->told_inode = (__u64)inode;
	if (tell_file(*(volatile __u64 *)&st->told_file, *(volatile __u64 *)&st->told_inode, now_ns, created)) {
		/* Of one whose number was another's, that is to be told yet: it has no such version. */
		version = ~0u;
		if (created)
			bpf_map_update_elem(&files_seen, id, &version, BPF_ANY);
		else
			bpf_map_delete_elem(&files_seen, id);
		mine->lost = lossless ? 1 : TOLD_AGAIN;
	}
}

#endif
