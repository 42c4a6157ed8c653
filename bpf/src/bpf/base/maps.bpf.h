/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Maps, settings, and the functions that store records into the rings. User space sets sizes marked "user space" before
 * loading.
 */
#ifndef IOREEL_MAPS_H
#define IOREEL_MAPS_H

#include "base/wire.h"
#include "base/wire_block.h"
#include "base/ledger.h"
#include "base/config.h"
#include "base/core_fixes.bpf.h"

/* include/linux/sched.h */
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
#define PF_IO_WORKER 0x00000010 /* threads that io_uring makes for itself */

/* Settings, fixed at load: the verifier prunes what they switch off. */
const volatile struct call_desc calls[WIRE_CALLS] = {};
const volatile struct call_desc calls32[WIRE_CALLS] = {}; /* by i386's numbers */
const volatile __u32 target_kind = TARGET_NONE;
const volatile __u32 host_mnt_ns = 0; /* inode number of the recorder's mount name space */
const volatile __u64 target_cgroup = 0; /* TARGET_CGROUP: its id */
const volatile __u32 self_tgid = 0; /* the recorder */
const volatile bool lossless = false; /* threads are stopped when rings are half full */
const volatile __u32 ring_bytes = 0; /* of each of `rings` */
const volatile bool cache_wanted = false; /* --cache */
const volatile bool fixed_devices = false; /* --device: no device is added by what tasks do */
const volatile struct end_io_desc end_ios[WIRE_END_IOS] = {};
const volatile __u32 page_shift = 12;
const volatile bool vfs_kernel = false; /* what threads of the kernel's do (kernel/vfs.bpf.h) */

/*
 * Everything attached stays inert until user space flips these: the recording's time 0. Operations end
 * first, the block layer goes on until the file systems have settled.
 */
volatile bool ops_active = false;
volatile bool block_active = false;
/* Recorded threads alive; the recording ends when it reaches 0. */
__s64 alive = 0;
__u32 next_task_id = 0;
/* Tasks that joined what is recorded after the first pass: user space then looks at them. */
__u64 joined = 0;
/*
 * Written at the end of every request: in a cache line of its own, or all programs on all CPUs would wait for it when
 * they read what stands above. What follows nobody reads.
 */
__u64 next_rq_id __attribute__((aligned(64))) = 0;

/* Never read: makes the compiler describe every record, from which the Rust types are generated. */
struct wire_types {
	enum rec_type type;
	enum rec_class class;
	enum rec_stream stream;
	struct op_ring op_ring;
	enum op_flags flags;
	enum bio_how how;
	enum end_io end_io;
	enum btrfs_end btrfs_end;
	enum bio_flags bio_flags;
	enum hide hide;
	enum filter_why filter_why;
	enum second second;
	enum call_kind kind;
	enum call_user user;
	enum target_kind target;
	struct rec_place place;
	struct rec_map map;
	struct rec_wait wait;
	struct rec_file file;
	struct rec_task task;
	struct rec_exec exec;
	struct rec_fd fd;
	struct rec_bio bio;
	struct rec_rq rq;
	struct rq_part rq_part;
	struct stop_entry stop;
	enum stop_sent stop_sent;
	enum stop_mark stop_mark;
	struct rec_passed passed;
	struct rec_aio aio;
	struct rec_aio_end aio_end;
	enum uring_flags uring_flags;
	struct rec_uring uring;
	struct rec_uring_paths uring_paths;
	struct rec_uring_ring uring_ring;
	enum fault_what fault_what;
	enum stripe_place stripe_place;
	struct rec_fault fault;
	enum cache_event cache_event;
	struct rec_cache cache;
	struct rec_content content;
	enum vfs_fn vfs_fn;
	enum vfs_flags vfs_flags;
	struct rec_vfs vfs;
	enum work_kind work_kind;
	struct work_desc work;
	struct living_task living;
};
struct wire_types wire_types = {};

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* user space; a full ring loses records, counted per class */
};

/* One ring per CPU: a shared one costs a contended lock per record. Made by user space. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* user space: possible CPUs */
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_ledger);
} ledger SEC(".maps");

/*
 * Calls have rings of their own, one per CPU, in memory shared with user space: a record is stored where the
 * recorder will find it, without a lock and without a helper. Only op_exit writes them, so there is one
 * writer per ring. Long operations, which vary in size, and all else go through `rings`.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* user space: possible CPUs times op_ring_records; a full ring loses calls, counted */
	__type(key, __u32);
	__type(value, struct rec_op);
} op_rings SEC(".maps");

/* 128 bytes a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* user space: possible CPUs */
	__type(key, __u32);
	__type(value, struct op_ring);
} op_ring_heads SEC(".maps");

const volatile __u32 op_ring_records = 1; /* records each of op_rings holds */

/* Paths longer than this are rare and take the long way. */
#define SHORT_PATH_BYTES 256

/* Adopted while it may have been in a call whose entry nobody saw. */
#define IN_CALL_UNSEEN 0xffff

/* An inode whose file record is out. Without a generation the same memory, and number, may be another's later. */
struct seen_inode {
	__u64 inode;
	__u64 ino;
	__u32 generation;
	__u32 lost; /* its record was lost: it is told again when it has been met so often */
};

/* Remembered by each thread, which spares the lookup: a folder and a few files are in use at a time. */
#define SEEN_INODES 4

const volatile bool follow_waits = false;

/* What is known of a recorded thread, and the operation it is in. */
struct task_state {
	__u32 task_id;
	__u16 in_call; /* nr + 1 while in a recorded call, or IN_CALL_UNSEEN */
	__u8 long_paths; /* the paths are in long_ops */
	__u8 turn; /* enum turn */
	__u64 start_ns;
	__u64 switches; /* times it had left its CPU when the call began, and its waits since */
	__u64 ended_ns; /* when the call ended, where content_exit has looked */
	__u64 told_file; /* whose record is being made */
	__u64 told_inode;
	__u64 task; /* the thread's task_struct */
	struct seen_inode seen[SEEN_INODES];
	__u16 ask; /* 1: which file has the number is to be looked up, whatever was seen */
	__u16 fault_settled; /* enum fault_what the first of two programs has told, and the second has not come for */
	__u32 leaving; /* 1: it has left the control group that is recorded, in the middle of a call */
	__u32 held; /* 1: op, or the thread's long_op, waits for a place in a ring (--lossless) */
	/* Built in place between entry and exit, and sent from here as REC_OP or REC_OP_LONG. */
	struct rec_op op;
	struct op_tail tail;
	char paths[2 * SHORT_PATH_BYTES];
};
_Static_assert(__builtin_offsetof(struct task_state, tail) ==
		   __builtin_offsetof(struct task_state, op) + sizeof(struct rec_op),
	       "a record");
_Static_assert(__builtin_offsetof(struct task_state, paths) ==
		   __builtin_offsetof(struct task_state, tail) + sizeof(struct op_tail),
	       "a record");
/* The longest record that a task_state holds. */
#define SHORT_RECORD_BYTES (sizeof(struct rec_op) + sizeof(struct op_tail) + 2 * SHORT_PATH_BYTES)

/* Process ids that TARGET_COMMAND and TARGET_PROCESSES mean; only looked at while adopting. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct adoption);
} adoption SEC(".maps");

/*
 * Threads are told apart by where their kernel stack lies, which a call's probe is handed for free: one load
 * and one comparison decide for the nearly all tasks of the host that are not recorded, and find the state
 * of those that are, where task storage takes two calls into the kernel.
 *
 * hot_owners holds, by a hash of the stack's address, the key of the thread whose state is in hot_states, and
 * two bits: another recorded thread has the same hash (its state is in cold_states), and a claim in progress.
 */
#define HOT_SLOTS_BITS 12
#define HOT_SLOTS (1 << HOT_SLOTS_BITS)
#define HOT_SHARED 1ull
#define HOT_CLAIMED 2ull
__u64 hot_owners[HOT_SLOTS] = {};

/* 3 MiB. Of more threads than it holds, and of those that hash alike, one is in cold_states. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOT_SLOTS);
	__type(key, __u32);
	__type(value, struct task_state);
} hot_states SEC(".maps");

/* 768 bytes for each recorded thread that found its place taken; freed with it. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} cold_states SEC(".maps");

struct task_ref {
	__u32 task_id;
	__u32 slot; /* in hot_states, plus 1; 0: in cold_states */
	__u32 gone; /* its end has been told */
	__u32 round; /* adopted in this pass of the snapshot; 0: born to a recorded task */
	__u32 exec_settled; /* the first of two programs has told an exec, and the second has not come for it */
};

/* Presence means recorded, until the task is gone altogether. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ref);
} task_refs SEC(".maps");

/* A name, what a call gives and gets. */
#define LONG_REST_BYTES 1024

struct long_op {
	struct rec_op op;
	struct op_tail tail;
	char path[WIRE_PATH_BYTES];
	char rest[LONG_REST_BYTES];
};

struct long_path {
	char path[WIRE_PATH_BYTES];
};

/*
 * 5.3 KiB for each recorded thread that made a call with a long path, or one that brings or gets memory. Since
 * "bpf: Always allow local storage to use kmalloc_nolock" (7.0) none that is larger than 8 KiB can be had, so a second
 * path has memory of its own, 4 KiB, once there is one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct long_op);
} long_ops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct long_path);
} second_paths SEC(".maps");

/* Files whose record is out, 256 Ki of them, 12 MiB. Forgetting one only sends its record again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256 * 1024);
	__type(key, struct file_id);
	__type(value, __u32); /* see version_of() */
} files_seen SEC(".maps");

const volatile bool filter_files = false; /* unwanted_files is in use */

/* Files outside every --path, told by user space. 64 Ki of them, 5 MiB; of one forgotten, user space drops the calls.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* user space, when in use */
	__type(key, struct file_id);
	__type(value, __u8);
} unwanted_files SEC(".maps");

/* Room to build a path in, from its end backwards: 32 KiB twice per CPU, the most that the kernel gives at once. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, char[2 * WIRE_WALK_BYTES]);
} path_scratch SEC(".maps");

/* Disks being recorded, by dev_t. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u8);
} devices SEC(".maps");

struct hidden_key {
	__u64 ino;
	__u32 sb_dev;
	__u32 pad;
};

/* Files whose I/O is left out, with the reason (enum hide). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct hidden_key);
	__type(value, __u8);
} hidden_files SEC(".maps");

/*
 * Names a thread by the address of its user registers, which is where its kernel stack ends. Relative to a
 * map: pointers may be subtracted from each other, and nothing else may be done to them. The low bits are 0.
 */
static __always_inline __u64 stack_key(struct pt_regs *regs)
{
	__u64 key = (__u64)regs;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(hot_owners));
	return key;
}

/* Stacks lie at multiples of their size. */
static __always_inline __u32 hot_slot(__u64 key)
{
	return ((__u32)(key >> 12) * 0x9E3779B1u) >> (32 - HOT_SLOTS_BITS);
}

/* What is known of any task; NULL unless it is recorded. */
static __always_inline struct task_ref *recorded_ref(struct task_struct *task)
{
	return plain_member(struct task_struct, task, bpf_storage) ? bpf_task_storage_get(&task_refs, task, 0, 0)
								   : NULL;
}

/* The id of a recorded thread, 0 of others. */
static __always_inline __u32 recorded_id(struct task_struct *task)
{
	struct task_ref *ref = recorded_ref(task);

	return ref ? ref->task_id : 0;
}

/* The state of a recorded thread that has not ended. */
static __always_inline struct task_state *state_of(struct task_struct *task, const struct task_ref *ref)
{
	struct task_state *st;
	__u32 slot;

	if (!ref->slot)
		return bpf_task_storage_get(&cold_states, task, 0, 0);
	slot = ref->slot - 1;
	st = bpf_map_lookup_elem(&hot_states, &slot);
	/* An ended thread's place may be another's by now. */
	return st && st->task_id == ref->task_id ? st : NULL;
}

/* The same of any task; NULL unless it is recorded. For the current one in a call's probe, see recorded_here. */
static __noinline struct task_state *recorded(struct task_struct *task)
{
	struct task_ref *ref = recorded_ref(task);

	return ref ? state_of(task, ref) : NULL;
}

/*
 * The state of the current thread, for the probes of calls. Nearly all tasks of the host are not recorded,
 * and each of their calls pays for what stands before the first return.
 */
static __always_inline struct task_state *recorded_here(struct pt_regs *regs)
{
	__u64 key = stack_key(regs), owner;
	__u32 slot = hot_slot(key);

	owner = hot_owners[slot];
	if (likely(!owner))
		return NULL;
	if (likely((owner & ~HOT_SHARED) == key))
		return bpf_map_lookup_elem(&hot_states, &slot);
	return owner & HOT_SHARED ? recorded(bpf_get_current_task_btf()) : NULL;
}

/*
 * The current task, whose state this is, to read from: asking the kernel for it costs as much as a dozen reads, where
 * returns are guarded against speculation.
 */
static __always_inline struct task_struct *task_here(const struct task_state *st)
{
	return CAN_CAST ? kernel_cast(struct task_struct, (void *)st->task) : bpf_get_current_task_btf();
}

static __always_inline struct cpu_ledger *cpu_ledger(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ledger, &zero);
}

/* The second of two programs does the work of the first, which was skipped. */
static __always_inline void count_caught(enum second second)
{
	struct cpu_ledger *l = cpu_ledger();

	if (l)
		l->caught[second]++;
}

static __always_inline void *cpu_ring(__u32 cpu)
{
	return bpf_map_lookup_elem(&rings, &cpu);
}

/*
 * Numbers a record and counts it as seen. Atomic, because a block completion may interrupt another probe on
 * the same CPU. Bios, the most frequent of these records, make do with one: user space counts the numbers that no
 * other class has.
 */
static __always_inline void begin_records(struct cpu_ledger *l, __u32 records, struct rec_hdr *hdr, __u32 cpu,
					  __u8 type, __u32 class, __u32 len_bytes, __u64 now_ns)
{
	hdr->seq = __sync_fetch_and_add(&l->seq, records);
	hdr->end_ns = now_ns;
	hdr->len_bytes = len_bytes;
	hdr->cpu = cpu;
	hdr->type = type;
	hdr->stream = STREAM_SHARED;
	if (class != CLASS_BIO)
		__sync_fetch_and_add(&l->seen[class], 1);
}

static __always_inline void begin_record(struct cpu_ledger *l, struct rec_hdr *hdr, __u32 cpu, __u8 type, __u32 class,
					 __u32 len_bytes, __u64 now_ns)
{
	begin_records(l, 1, hdr, cpu, type, class, len_bytes, now_ns);
}

static __always_inline void lost_record(struct cpu_ledger *l, __u32 class)
{
	__sync_fetch_and_add(&l->lost[class], 1);
}

/*
 * 1 + the CPU whose ring was last more than half full where something was sent that is not known to end in the exit of
 * a call there: what brings the next may well go on on other CPUs, in threads that cannot be stopped themselves.
 */
volatile __u32 filling = 0;
/* How often a process has been asked to stop, or resumed. */
volatile __u32 holds = 0;
/* The process that resumes who is stopped once the recorder has died: it is not recorded, and so not stopped. */
volatile __u32 guardian_tgid = 0;

/*
 * With --lossless the last quarter of a ring is kept from the block layer, the page cache and the kernel's own threads,
 * which cannot be stopped: it is for what threads still send until theirs is.
 */
static __always_inline bool crowded(void *ring, __u32 class, __u32 cpu)
{
	__u64 bytes;

	if (!lossless)
		return false;
	bytes = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	if (class == CLASS_BLOCK || class == CLASS_BIO || class == CLASS_CACHE ||
	    (class == CLASS_VFS && (bpf_get_current_task_btf()->flags & PF_KTHREAD)))
		return bytes > (__u64)ring_bytes / 4 * 3;
	if (bytes > ring_bytes / 2 && filling != cpu + 1)
		filling = cpu + 1;
	return false;
}

/* Sends a record that is numbered; whether it could be. */
static __always_inline bool sent(void *ring, void *rec, __u64 len_bytes, __u32 class, __u32 cpu)
{
	return !crowded(ring, class, cpu) && !bpf_ringbuf_output(ring, rec, len_bytes, BPF_RB_NO_WAKEUP);
}

static __always_inline void send_record(struct cpu_ledger *l, void *ring, void *rec, __u64 len_bytes, __u32 class,
					__u32 cpu)
{
	if (!sent(ring, rec, len_bytes, class, cpu))
		lost_record(l, class);
}

/* Sends a record of fixed size. */
#define emit_fixed(rec, record_type, class, now_ns)                                                                    \
	({                                                                                                             \
		struct cpu_ledger *__l = cpu_ledger();                                                                 \
		__u32 __cpu = bpf_get_smp_processor_id();                                                              \
		void *__ring = cpu_ring(__cpu);                                                                        \
		if (__l && __ring) {                                                                                   \
			begin_record(__l, &(rec)->hdr, __cpu, record_type, class, sizeof(*(rec)), now_ns);             \
			send_record(__l, __ring, rec, sizeof(*(rec)), class, __cpu);                                   \
		}                                                                                                      \
	})

#endif
