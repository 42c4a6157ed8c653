/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Which file is this: descriptor to file, file to identity, file to path. */
#ifndef IOREEL_IDENTITY_H
#define IOREEL_IDENTITY_H

static __always_inline struct file *file_of_fd(struct task_struct *task, int fd)
{
	struct files_struct *files = task->files;
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
	struct io_uring_task *rings = task->io_uring;
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
	struct super_block *sb = inode->i_sb;

	if (!sb)
		return 0;
	if (sb->s_magic == BTRFS_SUPER_MAGIC && bpf_core_type_exists(struct btrfs_inode)) {
		struct btrfs_inode *bi = container_of(inode, struct btrfs_inode, vfs_inode);
		__u32 dev = BPF_CORE_READ(bi, root, anon_dev);

		if (dev)
			return dev;
	}
	return sb->s_dev;
}

static __always_inline void identify(struct inode *inode, struct file_id *id)
{
	id->ino = inode->i_ino;
	id->dev = inode_dev(inode);
	id->generation = inode->i_generation;
}

/* Files that are program code, 16 Ki of them. A forgotten one only makes rows. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16 * 1024);
	__type(key, struct file_id);
	__type(value, __u8);
} code_files SEC(".maps");

static __always_inline void note_code_id(const struct file_id *id)
{
	__u8 one = 1;

	if (!bpf_map_lookup_elem(&code_files, id))
		bpf_map_update_elem(&code_files, id, &one, BPF_ANY);
}

static __always_inline void note_code(struct inode *inode)
{
	struct file_id id = {};

	if (!inode)
		return;
	identify(inode, &id);
	note_code_id(&id);
}

struct path_walk {
	struct dentry *dentry;
	struct dentry *mnt_root;
	struct mount *mnt;
	char *buf;
	__u32 off; /* of the first byte so far; the path ends at WIRE_PATH_BYTES */
	__u32 whole; /* the root was reached */
};

/* One component. As a bpf_loop callback: unrolled or bounded loops exceed the verifier's budget. */
static long path_step(__u32 i, void *context)
{
	struct path_walk *w = context;
	struct dentry *dentry = kernel_cast(struct dentry, w->dentry), *parent = dentry->d_parent;
	__u32 len, off = w->off;

	if (dentry == w->mnt_root || dentry == parent) {
		struct mount *mnt = kernel_cast(struct mount, w->mnt), *up = mnt->mnt_parent;

		if (dentry == w->mnt_root && mnt != up) {
			w->dentry = mnt->mnt_mountpoint;
			w->mnt = up;
			w->mnt_root = up->mnt.mnt_root;
			return 0;
		}
		/* Pipes, sockets and memfds live on mounts that are in no name space: they have no path. */
		__s64 ns = (__s64)BPF_CORE_READ(mnt, mnt_ns);
		w->whole = ns != 0 && (ns < -4095 || ns > 0);
		if (ns == 0 || (ns >= -4095 && ns < 0))
			w->off = WIRE_PATH_BYTES;
		return 1;
	}
	len = dentry->d_name.len;
	if (len > 255)
		len = 255;
	if (off < len + 1 || off > WIRE_PATH_BYTES)
		return 1;
	off -= len;
	bpf_probe_read_kernel(w->buf + (off & (WIRE_PATH_BYTES - 1)), len & 255, dentry->d_name.name);
	off -= 1;
	w->buf[off & (WIRE_PATH_BYTES - 1)] = '/';
	w->off = off;
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
	walk.mnt_root = vfsmnt->mnt_root;
	walk.off = WIRE_PATH_BYTES;
	bpf_loop(WIRE_PATH_BYTES / 2, path_step, &walk, 0);
	if (walk.whole && walk.off == WIRE_PATH_BYTES) { /* the root itself */
		walk.off = WIRE_PATH_BYTES - 1;
		buf[WIRE_PATH_BYTES - 1] = '/';
	}
	len = WIRE_PATH_BYTES - walk.off;
	if (len > WIRE_PATH_BYTES - 1)
		len = WIRE_PATH_BYTES - 1;
	*cut = len && !walk.whole;
	return len;
}

/* Sends a file's record the first time it is met. */
static __always_inline void note_file(struct task_state *st, struct file *file, struct inode *inode,
				      const struct file_id *id, __u64 now_ns)
{
	struct rec_file rec = {};
	struct bpf_dynptr out;
	struct cpu_ledger *l;
	__u32 zero = 0, cpu, len;
	__u8 one = 1;
	void *ring;
	char *buf;

	if (st->seen_inode == (__u64)inode && st->seen_generation == id->generation)
		return;
	st->seen_inode = (__u64)inode;
	st->seen_generation = id->generation;
	if (bpf_map_lookup_elem(&files_seen, id))
		return;
	bpf_map_update_elem(&files_seen, id, &one, BPF_ANY);

	buf = bpf_map_lookup_elem(&path_scratch, &zero);
	cpu = bpf_get_smp_processor_id();
	ring = cpu_ring(cpu);
	l = cpu_ledger();
	if (!buf || !ring || !l)
		return;
	len = walk_path(buf, file->f_path.mnt, file->f_path.dentry, &rec.path_cut);
	rec.file = *id;
	rec.sb_dev = inode->i_sb->s_dev;
	rec.mode = inode->i_mode;
	rec.size_bytes = inode->i_size;
	rec.path_bytes = len;
	begin_record(l, &rec.hdr, cpu, REC_FILE, CLASS_FILES, sizeof(rec) + len, now_ns);
	if (bpf_ringbuf_reserve_dynptr(ring, sizeof(rec) + len, 0, &out)) {
		lost_record(l, CLASS_FILES);
		if (lossless) { /* Told again when it is met again. */
			bpf_map_delete_elem(&files_seen, id);
			st->seen_inode = 0;
		}
	} else {
		bpf_dynptr_write(&out, 0, &rec, sizeof(rec), 0);
		if (len)
			bpf_dynptr_write(&out, sizeof(rec), buf + ((WIRE_PATH_BYTES - len) & (WIRE_PATH_BYTES - 1)),
					 len, 0);
	}
	bpf_ringbuf_submit_dynptr(&out, BPF_RB_NO_WAKEUP);
}

#endif
