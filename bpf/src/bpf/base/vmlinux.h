/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The few kernel types the probes touch, each with just the members they read. CO-RE relocates them
 * against the running kernel's BTF, so the build host's kernel does not matter and no generated
 * three-megabyte header is needed. It is a table of declarations, so the limit of 550 lines a file does not hold for it.
 */
#ifndef IOREEL_VMLINUX_H
#define IOREEL_VMLINUX_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
typedef unsigned long size_t;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_AVAIL_DATA = 0,
};

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* arch/.../include/asm/ptrace.h */
#if defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	u64 orig_x0;
	s32 syscallno;
};
#else
struct pt_regs {
	unsigned long bp, bx, r10, r9, r8, cx, dx, si, di, orig_ax;
};
#endif

/* include/trace/events/syscalls.h */
struct trace_event_raw_sys_enter {
	long id;
};

struct trace_event_raw_sys_exit {
	long ret;
};

/* One pointer: stands for an element of any array of pointers. */
struct list_head {
	struct list_head *next;
};

struct llist_node {
	struct llist_node *next;
};

struct thread_info {
	unsigned long flags;
	u32 status; /* x86's alone */
	u64 preempt_count; /* arm64's alone */
};

/* include/linux/types.h */
typedef struct {
	s64 counter;
} atomic64_t;

struct mutex {
	atomic64_t owner;
};

struct rw_semaphore {
	atomic64_t owner;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
};

struct qstr {
	union {
		struct {
			u32 hash;
			u32 len;
		};
	};
	const unsigned char *name;
};

struct hlist_bl_node {
	struct hlist_bl_node *next, **pprev;
};

struct dentry {
	struct hlist_bl_node d_hash;
	struct inode *d_inode;
	struct dentry *d_parent;
	struct qstr d_name;
};

struct block_device {
	unsigned long long bd_start_sect;
	struct gendisk *bd_disk;
	u32 bd_dev;
	const struct blk_holder_ops *bd_holder_ops;
};

typedef struct {
	u8 b[16];
} uuid_t;

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
	struct block_device *s_bdev;
	unsigned long s_blocksize;
	uuid_t s_uuid;
	void *s_fs_info;
};

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_rdev;
	long long i_size;
	u32 i_generation;
	unsigned char i_blkbits;
	struct address_space *i_mapping;
	unsigned int i_nlink;
};

struct file {
	u32 f_mode;
	struct inode *f_inode;
	u32 f_flags;
	long long f_pos;
	struct path f_path;
	void *private_data;
	struct address_space *f_mapping;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *close_on_exec;
};

struct files_struct {
	struct fdtable *fdt;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

typedef struct {
	u32 val;
} kuid_t;

typedef struct {
	u32 val;
} kgid_t;

/* Eight bytes on all kernels; before 6.3 two numbers of four. */
typedef struct {
	u64 val;
} kernel_cap_t;

struct uid_gid_extent {
	u32 first;
	u32 lower_first;
	u32 count;
};

/* Members of nested unions, which differ between kernels. */
struct uid_gid_map {
	u32 nr_extents;
	struct uid_gid_extent extent[5];
	struct uid_gid_extent *forward;
};

struct user_namespace {
	struct uid_gid_map uid_map;
	struct uid_gid_map gid_map;
	int level;
	kuid_t owner;
};

struct group_info {
	int ngroups;
	kgid_t gid[];
};

struct cred {
	kuid_t uid;
	kgid_t gid;
	kuid_t suid;
	kgid_t sgid;
	kuid_t euid;
	kgid_t egid;
	kuid_t fsuid;
	kgid_t fsgid;
	kernel_cap_t cap_permitted;
	kernel_cap_t cap_effective;
	struct user_namespace *user_ns;
	struct group_info *group_info;
};

struct fs_struct {
	int umask;
	struct path root;
	struct path pwd;
};

typedef struct {
	unsigned long sig[1];
} sigset_t;

struct sigpending {
	struct list_head list;
	sigset_t signal;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
	struct sigpending shared_pending;
};

struct kernel_siginfo {
	int si_signo;
	int si_code;
};

struct sigaction {
	void (*sa_handler)(int);
};

struct k_sigaction {
	struct sigaction sa;
};

struct sigqueue {
	struct list_head list;
	struct kernel_siginfo info;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[];
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	struct task_struct *group_leader;
	const struct cred *cred;
	struct css_set *cgroups;
	struct signal_struct *signal;
	struct sigpending pending;
	unsigned long jobctl;
	unsigned long nvcsw;
	unsigned long nivcsw;
	int pid;
	int tgid;
	struct pid *thread_pid;
	int exit_code;
	struct files_struct *files;
	struct fs_struct *fs;
	struct nsproxy *nsproxy;
	struct mm_struct *mm;
	void *bpf_storage;
	void *worker_private;
	struct io_uring_task *io_uring;
	char comm[16];
};

struct linux_binprm {
	struct file *file;
	const char *filename;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct rb_node;

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

struct address_space {
	struct inode *host;
	struct rb_root_cached i_mmap;
	unsigned long flags;
};

enum mapping_flags {
	AS_FOLIO_ORDER_MAX = 21,
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};

struct file_ra_state {
	unsigned int size;
};

struct page {
	unsigned long flags;
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
	void *private;
	unsigned long _flags_1;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	unsigned long long bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	unsigned short bi_flags;
	u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	unsigned short bi_vcnt;
	struct bio_vec *bi_io_vec;
};

struct gendisk {
	int major;
	int first_minor;
};

struct request_queue {
	struct gendisk *disk;
	void *queuedata;
};

struct request {
	struct request_queue *q;
	u64 start_time_ns;
	unsigned int cmd_flags;
	u32 rq_flags;
	unsigned int __data_len;
	unsigned long long __sector;
	struct bio *bio;
};

enum special_kfunc_type {
	KF_bpf_rdonly_cast = 1,
};

struct kiocb {
	struct file *ki_filp;
	long long ki_pos;
};

struct iov_iter {
	size_t count;
};

struct splice_desc {
	size_t total_len;
	long long pos;
};

/* drivers/block/loop.c */
struct loop_device {
	unsigned long long lo_offset;
	struct file *lo_backing_file;
};

struct loop_cmd {
	bool use_aio;
	long ret;
};

/* kernel/kthread.c, kernel/workqueue_internal.h */
struct kthread {
	void *data;
};

struct worker {
	void *current_func;
};

struct iomap_dio {
	struct kiocb *iocb;
	long long size;
};

struct blkdev_dio {
	struct kiocb *iocb;
	unsigned int flags;
	struct bio bio;
};

/* fs/iomap/direct-io.c; came between 6.18 and 7.3. */
struct iomap_dio_simple {
	struct kiocb *iocb;
	struct bio bio;
};

struct bio_post_read_ctx;

/* fs/f2fs/iostat.h */
struct bio_iostat_ctx {
	struct bio_post_read_ctx *post_read_ctx;
};

struct buffer_head {
	char *b_data;
};

struct xfs_buf_ops {
	char *name;
};

struct xfs_buf {
	const struct xfs_buf_ops *b_ops;
};

struct dm_io {
	struct bio *orig_bio;
};

struct dm_target_io {
	struct dm_io *io;
	struct bio clone;
};

/* drivers/md/md.h, raid1.h, raid10.h */
struct md_io_clone {
	struct bio *orig_bio;
	struct bio bio_clone;
};

/* Its name until "md: also clone new io if io accounting is disabled" (6.6). */
struct md_io_acct {
	struct bio *orig_bio;
	struct bio bio_clone;
};

struct bio_fallback_crypt_ctx {
	void *bi_private_orig;
	void *bi_end_io_orig;
};

struct r1bio {
	__u64 sector;
	struct bio *master_bio;
};

struct r10bio {
	__u64 sector;
	struct bio *master_bio;
};

struct btrfs_key {
	__u64 objectid;
} __attribute__((packed));

struct btrfs_root {
	struct btrfs_key root_key;
	u32 anon_dev;
};

struct ovl_path {
	struct dentry *dentry;
};

struct ovl_entry {
	unsigned int __numlower;
	struct ovl_path __lowerstack[];
};

struct sock_common {
	unsigned short skc_family;
};

struct sock {
	struct sock_common __sk_common;
	struct socket *sk_socket;
};

struct socket {
	struct sock *sk;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct unix_sock {
	struct sock *peer;
};

struct ovl_inode {
	struct inode vfs_inode;
	struct dentry *__upperdentry;
	struct ovl_entry *oe;
};

struct mnt_namespace {
	struct ns_common ns;
};

struct btrfs_inode {
	struct btrfs_root *root;
	struct inode vfs_inode;
};

struct btrfs_bio {
	struct btrfs_inode *inode;
	u64 file_offset;
	void *end_io;
	void *private;
	struct bio bio;
};

struct btrfs_device {
	struct list_head dev_list;
	struct block_device *bdev;
};

struct btrfs_fs_devices {
	struct list_head devices;
};

struct btrfs_commit_stats {
	u64 critical_section_start_time;
};

struct btrfs_fs_info {
	struct btrfs_fs_devices *fs_devices;
	u64 generation;
	struct super_block *sb;
	struct btrfs_commit_stats commit_stats;
};

/* include/linux/jbd2.h */
struct journal_s {
	int j_blocksize;
	struct block_device *j_fs_dev;
};

struct transaction_s {
	u32 t_tid;
};

struct transaction_run_stats_s {
	u32 rs_handle_count;
	u32 rs_blocks;
	u32 rs_blocks_logged;
};

struct transaction_chp_stats_s {
	u32 cs_written;
};

/* fs/xfs/xfs_log_priv.h, xfs_mount.h, libxfs/xfs_log_format.h */
struct xfs_mount {
	struct super_block *m_super;
};

struct xlog {
	struct xfs_mount *l_mp;
	int l_iclog_hsize;
};

struct xlog_in_core {
	struct xlog *ic_log;
	u32 ic_offset;
};

struct xlog_rec_header {
	u64 h_lsn; /* big-endian */
};

struct btrfs_io_context;

struct btrfs_io_stripe {
	struct btrfs_device *dev;
	u64 physical;
	struct btrfs_io_context *bioc;
};

struct btrfs_io_context {
	struct bio *orig_bio;
	u64 full_stripe_logical;
	struct btrfs_io_stripe stripes[];
};

struct bio_list {
	struct bio *head;
};

enum btrfs_rbio_ops {
	BTRFS_RBIO_WRITE,
};

struct btrfs_raid_bio {
	struct btrfs_io_context *bioc;
	enum btrfs_rbio_ops operation;
	struct bio_list bio_list;
	u8 real_stripes;
	u8 nr_data;
};

struct extent_buffer {
	void *addr;
	struct folio *folios[16];
};

struct io_rsrc_node {
	unsigned long file_ptr; /* with flags in its low bits */
};

struct io_rsrc_data {
	unsigned int nr;
	struct io_rsrc_node **nodes;
};

struct io_file_table {
	struct io_rsrc_data data;
};

struct io_uring_sqe;

struct io_ring_ctx {
	unsigned int flags;
	u32 *sq_array;
	struct io_uring_sqe *sq_sqes;
	unsigned int cached_sq_head;
	unsigned int sq_entries;
	struct io_file_table file_table;
	struct mm_struct *mm_account;
};

struct io_cqe {
	u64 user_data;
	s32 res;
};

struct io_wq_work {
	int cancel_seq;
};

struct io_kiocb {
	struct file *file; /* shares its place with the parameters, of which it is the first */
	u8 opcode;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
	struct io_wq_work work;
};

struct io_worker {
	struct io_wq_work *cur_work;
};

struct io_uring_cqe {
	u64 user_data;
	s32 res;
	u32 flags;
};

struct io_uring_task {
	struct file *registered_rings[16];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct kallsym_iter {
	char type;
	unsigned long value;
	char name[512];
};

struct bpf_iter__ksym {
	struct bpf_iter_meta *meta;
	struct kallsym_iter *ksym;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_iter__task_vma {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	struct vm_area_struct *vma;
};

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* Opaque to programs; the verifier wants just this size. */
struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));

#endif
