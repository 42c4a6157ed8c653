/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Maps, settings, and functions that store records in the rings. "User space" marks sizes and values that user space
 * sets before loading.
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
#define PF_IO_WORKER 0x00000010 /* worker threads of io_uring */

/* Settings, constant after loading, so that the verifier removes what they disable. */
const volatile struct call_desc calls[WIRE_CALLS] = {};
const volatile struct call_desc calls32[WIRE_CALLS] = {}; /* by i386's call numbers */
const volatile __u32 target_kind = TARGET_NONE;
const volatile __u32 host_mnt_ns = 0; /* inode number of the recorder's mount namespace */
const volatile __u64 target_cgroup = 0; /* TARGET_CGROUP: id of the cgroup */
const volatile __u32 self_tgid = 0; /* the recorder */
const volatile __u32 self_tid = 0; /* its watching thread, if the recorder's other threads are recorded */
const volatile bool lossless = false; /* --lossless: threads are stopped when rings are half full */
const volatile __u32 ring_bytes = 0; /* size of each of `rings` */
const volatile bool cache_wanted = false; /* --cache */
const volatile bool fixed_devices = false; /* --device: tasks add no devices */
const volatile struct end_io_desc end_ios[WIRE_END_IOS] = {};
const volatile __u32 page_shift = 12;
const volatile bool vfs_kernel = false; /* record what kernel threads do (kernel/vfs.bpf.h) */

/*
 * All probes do nothing until user space sets these, at time 0 of the recording. Operations end first; the block layer
 * continues until the file systems have settled.
 */
volatile bool ops_active = false;
volatile bool block_active = false;
/* Recorded threads alive; the recording ends at 0. */
__s64 alive = 0;
__u32 next_task_id = 0;
/* Tasks that joined after the first adoption pass; user space then takes a snapshot of them. */
__u64 joined = 0;
/*
 * Written at the end of every request. It has its own cache line, because otherwise all programs on all CPUs would wait
 * for it when they read the variables above. What follows it, wire_types, is never read.
 */
__u64 next_rq_id __attribute__((aligned(64))) = 0;

/* Never read. Makes the compiler emit BTF for every record, from which the Rust types are generated. */
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
	enum commit_kind commit_kind;
	struct rec_commit commit;
	struct rec_file file;
	struct rec_task task;
	struct rec_exec exec;
	struct kernel_ids kernel_ids;
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
	__uint(max_entries, 1 << 20); /* user space; a full ring loses records, which are counted per class */
};

/* One ring per CPU, because a shared one costs a contended lock per record. Created by user space. */
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
 * Operations have their own rings, one per CPU, in memory shared with user space: a record is stored where the recorder
 * reads it, without a lock or a helper. Only op_exit writes to them, so each ring has one writer. Everything else goes
 * through `rings`, as do long operations that do not fit here.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* user space: possible CPUs * op_ring_records; if full, calls are lost and counted */
	__type(key, __u32);
	__type(value, struct rec_op);
} op_rings SEC(".maps");

/* 128 bytes per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* user space: possible CPUs */
	__type(key, __u32);
	__type(value, struct op_ring);
} op_ring_heads SEC(".maps");

const volatile __u32 op_ring_records = 1; /* records in each ring */

/* Longer paths are rare and need a long_op. */
#define SHORT_PATH_BYTES 256

/* The thread was adopted while it may have been in a call whose entry no probe saw. */
#define IN_CALL_UNSEEN 0xffff

/* An inode whose file record was sent. Without a generation, its memory and number may later be another file's. */
struct seen_inode {
	__u64 inode;
	__u64 ino;
	__u32 generation;
	__u32 lost; /* its record was lost; it is sent again after this many more uses */
};

/* Inodes remembered per thread, which saves lookups: a directory and a few files are in use at a time. */
#define SEEN_INODES 4

const volatile bool follow_waits = false;

/* State of a recorded thread and of its current operation. */
struct task_state {
	__u32 task_id;
	__u16 in_call; /* nr + 1 during a recorded call, or IN_CALL_UNSEEN */
	__u8 long_paths; /* the paths are in long_ops */
	__u8 turn; /* enum turn */
	__u64 start_ns;
	__u64 switches; /* how often it had left its CPU when the call started, and its waits since */
	__u64 ended_ns; /* set by content_exit: when the call ended */
	__u64 told_file; /* the file whose record is being made */
	__u64 told_inode;
	__u64 task; /* the thread's task_struct */
	struct seen_inode seen[SEEN_INODES];
	__u16 ask; /* 1: look up which file has the number, whatever was seen */
	__u16 fault_settled; /* enum fault_what recorded by the first of two programs; 0 after the second */
	__u32 leaving; /* 1: after this call it is no longer recorded (leave_after_call) */
	__u32 held; /* 1: op, or the thread's long_op, waits for space in a ring (--lossless) */
	/* Built here between entry and exit, and sent from here as REC_OP or REC_OP_LONG. */
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
/* Maximum length of a record in a task_state. */
#define SHORT_RECORD_BYTES (sizeof(struct rec_op) + sizeof(struct op_tail) + 2 * SHORT_PATH_BYTES)

/* Process ids of TARGET_COMMAND and TARGET_PROCESSES; used only during adoption. */
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
 * Threads are identified by the address of their kernel stack, which a call's probe gets for free. One load and one
 * comparison are enough for nearly all tasks of the host, which are not recorded. They also find the state of a
 * recorded thread, for which task storage would take two calls into the kernel.
 *
 * hot_owners holds, by a hash of the stack's address, the key of the thread whose state is in hot_states, and two bits:
 * HOT_SHARED (another recorded thread has the same hash; its state is in cold_states) and HOT_CLAIMED (a claim is in
 * progress).
 */
#define HOT_SLOTS_BITS 12
#define HOT_SLOTS (1 << HOT_SLOTS_BITS)
#define HOT_SHARED 1ull
#define HOT_CLAIMED 2ull
__u64 hot_owners[HOT_SLOTS] = {};

/* 3 MiB. Threads that find their slot taken are in cold_states. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOT_SLOTS);
	__type(key, __u32);
	__type(value, struct task_state);
} hot_states SEC(".maps");

/* 768 bytes per recorded thread whose slot was taken; freed with the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} cold_states SEC(".maps");

struct task_ref {
	__u32 task_id;
	__u32 slot; /* index in hot_states plus 1; 0: in cold_states */
	__u32 gone; /* its end was recorded */
	__u32 round; /* mark of the snapshot in which it was adopted; 0: child of a recorded task */
	__u32 exec_settled; /* the first of two programs recorded an exec; 0 after the second */
};

/* Exists for recorded tasks, until the task is freed. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ref);
} task_refs SEC(".maps");

/* Space for a name, input and output of a call. */
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
 * 5.3 KiB per recorded thread that made a call with a long path, or with input or output memory. Since "bpf: Always
 * allow local storage to use kmalloc_nolock" (7.0) an entry may have at most 8 KiB. So a second path has a separate
 * entry of 4 KiB, allocated when needed.
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

/* 256 Ki files whose record was sent, 12 MiB. If one is evicted, its record is sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256 * 1024);
	__type(key, struct file_id);
	__type(value, __u32); /* see version_of() */
} files_seen SEC(".maps");

const volatile bool filter_files = false; /* unwanted_files is in use */

/* 64 Ki files outside every --path, 5 MiB; set by user space. For an evicted file, user space drops the calls. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* user space, when in use */
	__type(key, struct file_id);
	__type(value, __u8);
} unwanted_files SEC(".maps");

/* Space to build paths from the end backwards: 32 KiB twice per CPU, the maximum that the kernel allocates at once. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, char[2 * WIRE_WALK_BYTES]);
} path_scratch SEC(".maps");

/* Recorded disks, by dev_t. */
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
 * Identifies a thread by the address of its user registers, which is the end of its kernel stack. The key is relative
 * to a map, because the verifier allows only the subtraction of pointers. The low bits are 0.
 */
static __always_inline __u64 stack_key(struct pt_regs *regs)
{
	__u64 key = (__u64)regs;

	asm volatile("%0 -= %1" : "+r"(key) : "r"(hot_owners));
	return key;
}

/* Drops 12 bits: kernel stacks are aligned to their size. */
static __always_inline __u32 hot_slot(__u64 key)
{
	return ((__u32)(key >> 12) * 0x9E3779B1u) >> (32 - HOT_SLOTS_BITS);
}

/* Entry of any task; NULL unless it is recorded. */
static __always_inline struct task_ref *recorded_ref(struct task_struct *task)
{
	return plain_member(struct task_struct, task, bpf_storage) ? bpf_task_storage_get(&task_refs, task, 0, 0)
								   : NULL;
}

/* Id of a recorded thread; 0 for others. */
static __always_inline __u32 recorded_id(struct task_struct *task)
{
	struct task_ref *ref = recorded_ref(task);

	return ref ? ref->task_id : 0;
}

/* State of a recorded thread that has not ended. */
static __always_inline struct task_state *state_of(struct task_struct *task, const struct task_ref *ref)
{
	struct task_state *st;
	__u32 slot;

	if (!ref->slot)
		return bpf_task_storage_get(&cold_states, task, 0, 0);
	slot = ref->slot - 1;
	st = bpf_map_lookup_elem(&hot_states, &slot);
	/* The slot of an ended thread may have a new owner. */
	return st && st->task_id == ref->task_id ? st : NULL;
}

/* State of any task; NULL unless it is recorded. In a call's probe, use recorded_here for the current task. */
static __noinline struct task_state *recorded(struct task_struct *task)
{
	struct task_ref *ref = recorded_ref(task);

	return ref ? state_of(task, ref) : NULL;
}

/*
 * State of the current thread, for the probes of calls. Nearly all tasks of the host are not recorded, and each of
 * their calls pays for the code before the first return.
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
 * The task with this state, for reading. It is the current task, but asking the kernel costs as much as a dozen loads
 * where returns are mitigated against speculation.
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

/* The second of two programs handles an event for which the first was skipped. */
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
 * Numbers a record and counts it as seen. Atomic, because a block completion may interrupt another probe on the same
 * CPU. Bios are the most frequent of these records and are not counted: user space attributes the remaining numbers to
 * them.
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
 * 1 + the CPU whose ring was last found more than half full by a record that need not be followed by the exit of a call
 * on that CPU. The next records may come from other CPUs, by threads that cannot be stopped directly.
 */
volatile __u32 filling = 0;
/* How often processes have been stopped or resumed. */
volatile __u32 holds = 0;
/* The guardian process, which resumes stopped processes if the recorder dies. It is not recorded, so it is never
 * stopped. */
volatile __u32 guardian_tgid = 0;

/*
 * With --lossless the last quarter of a ring is reserved for threads, which still send records until they are stopped.
 * Records of the block layer, the page cache and kernel threads, which cannot be stopped, do not use it.
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

/* Sends a numbered record; returns whether there was space. */
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

/* Numbers and sends a record of fixed size. */
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
