/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Commits of journals and logs, whoever makes them: jbd2's commits and checkpoints, ext4's fast commits, writes of
 * XFS's log, transactions of btrfs. Loaded only with --waits. One record per commit, sent at its end. jbd2 and the file
 * systems may be modules; their tracepoints are found in the BTF of the module.
 */
#ifndef IOREEL_COMMITS_H
#define IOREEL_COMMITS_H

#include "base/wire.h"
#include "base/ledger.h"
#include "base/core_fixes.bpf.h"
#include "base/atomic.bpf.h"
#include "base/maps.bpf.h"

/*
 * Commits in progress, by the address of the journal, the log buffer, or the super block. A journal has one commit at a
 * time, a log eight buffers. An entry is removed at the end of its commit; one whose end no probe saw is overwritten by
 * the next commit.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct rec_commit);
} commits SEC(".maps");

/* jbd2_run_stats and jbd2_checkpoint_stats have the device instead of the journal. */
#define KEY_OF_DEVICE (1ull << 63)
#define KEY_OF_CHECKPOINT (1ull << 62)

/* Renamed by "xfs: use a union instead of a struct for iclog headers" (after 6.18). Both point to the header. */
struct xlog_in_core___data {
	void *ic_data;
} __attribute__((preserve_access_index));

struct xlog_in_core___header {
	struct xlog_rec_header *ic_header;
} __attribute__((preserve_access_index));

static __always_inline __u64 lsn_of(struct xlog_in_core *iclog)
{
	struct xlog_rec_header *header = NULL;

	if (bpf_core_field_exists(struct xlog_in_core___header, ic_header))
		header = BPF_CORE_READ((struct xlog_in_core___header *)iclog, ic_header);
	else if (bpf_core_field_exists(struct xlog_in_core___data, ic_data))
		header = BPF_CORE_READ((struct xlog_in_core___data *)iclog, ic_data);
	return header ? __builtin_bswap64(BPF_CORE_READ(header, h_lsn)) : 0;
}

static __always_inline __u64 btrfs_commit_start(struct btrfs_fs_info *info)
{
	return bpf_core_field_exists(info->commit_stats.critical_section_start_time)
		   ? BPF_CORE_READ(info, commit_stats.critical_section_start_time)
		   : 0;
}

static __always_inline struct rec_commit *commit_begins(__u64 key, __u32 kind, __u32 dev, __u64 transaction)
{
	struct rec_commit rec = {};

	rec.kind = kind;
	rec.dev = dev;
	rec.transaction = transaction;
	rec.start_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&commits, &key, &rec, BPF_ANY);
	return bpf_map_lookup_elem(&commits, &key);
}

/* Sends a commit that ends now, in the thread that ends it. */
static __always_inline void commit_ends(struct rec_commit *rec)
{
	rec->task_id = recorded_id(bpf_get_current_task_btf());
	bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	emit_fixed(rec, REC_COMMIT, CLASS_COMMITS, bpf_ktime_get_ns());
}

static __always_inline bool commits_wanted(void)
{
	return ops_active || block_active;
}

static __always_inline __u64 journal_key(struct journal_s *journal)
{
	return KEY_OF_DEVICE | BPF_CORE_READ(journal, j_fs_dev, bd_dev);
}

SEC("tp_btf/jbd2_start_commit")
int ATOMIC_PROG(jbd2_start, struct journal_s *journal, struct transaction_s *transaction)
{
	struct rec_commit *rec;

	if (!commits_wanted())
		return 0;
	rec = commit_begins(journal_key(journal), COMMIT_JBD2, BPF_CORE_READ(journal, j_fs_dev, bd_dev),
			    BPF_CORE_READ(transaction, t_tid));
	if (rec)
		rec->block_bytes = BPF_CORE_READ(journal, j_blocksize);
	return 0;
}

/* The commit of this journal that is in progress, if its start was seen. */
static __always_inline struct rec_commit *jbd2_running(struct journal_s *journal)
{
	__u64 key;

	if (!commits_wanted())
		return NULL;
	key = journal_key(journal);
	return bpf_map_lookup_elem(&commits, &key);
}

SEC("tp_btf/jbd2_commit_locking")
int ATOMIC_PROG(jbd2_locking, struct journal_s *journal)
{
	struct rec_commit *rec = jbd2_running(journal);

	if (rec)
		rec->locking_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/jbd2_commit_flushing")
int ATOMIC_PROG(jbd2_flushing, struct journal_s *journal)
{
	struct rec_commit *rec = jbd2_running(journal);

	if (rec)
		rec->flushing_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/jbd2_commit_logging")
int ATOMIC_PROG(jbd2_logging, struct journal_s *journal)
{
	struct rec_commit *rec = jbd2_running(journal);

	if (rec)
		rec->logging_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/jbd2_run_stats")
int ATOMIC_PROG(jbd2_stats, __u32 dev, __u32 tid, struct transaction_run_stats_s *stats)
{
	__u64 key = KEY_OF_DEVICE | dev;
	struct rec_commit *rec;

	if (!commits_wanted())
		return 0;
	rec = bpf_map_lookup_elem(&commits, &key);
	if (!rec || rec->transaction != tid)
		return 0;
	rec->handles = BPF_CORE_READ(stats, rs_handle_count);
	rec->blocks = BPF_CORE_READ(stats, rs_blocks);
	rec->len_bytes = (__u64)BPF_CORE_READ(stats, rs_blocks_logged) * rec->block_bytes;
	rec->known = 1;
	return 0;
}

SEC("tp_btf/jbd2_end_commit")
int ATOMIC_PROG(jbd2_end, struct journal_s *journal, struct transaction_s *transaction)
{
	struct rec_commit *rec = jbd2_running(journal);
	__u64 key;

	if (!rec || rec->transaction != BPF_CORE_READ(transaction, t_tid))
		return 0;
	commit_ends(rec);
	key = journal_key(journal);
	bpf_map_delete_elem(&commits, &key);
	return 0;
}

/* Blocks of old transactions are about to be written in place, to gain space in the journal. */
SEC("tp_btf/jbd2_checkpoint")
int ATOMIC_PROG(jbd2_checkpoint, struct journal_s *journal)
{
	if (commits_wanted())
		commit_begins(journal_key(journal) | KEY_OF_CHECKPOINT, COMMIT_CHECKPOINT,
			      BPF_CORE_READ(journal, j_fs_dev, bd_dev), 0);
	return 0;
}

/*
 * All blocks of a transaction are in place. Only those that a checkpoint wrote have a row: where write-back did it, no
 * checkpoint took place.
 */
SEC("tp_btf/jbd2_checkpoint_stats")
int ATOMIC_PROG(jbd2_checkpointed, __u32 dev, __u32 tid, struct transaction_chp_stats_s *stats)
{
	__u64 key = KEY_OF_DEVICE | KEY_OF_CHECKPOINT | dev;
	struct rec_commit *rec;

	if (!commits_wanted() || !BPF_CORE_READ(stats, cs_written))
		return 0;
	rec = bpf_map_lookup_elem(&commits, &key);
	if (!rec)
		rec = commit_begins(key, COMMIT_CHECKPOINT, dev, tid);
	if (!rec)
		return 0;
	rec->transaction = tid;
	rec->blocks = BPF_CORE_READ(stats, cs_written);
	rec->known = 1;
	commit_ends(rec);
	return 0;
}

SEC("tp_btf/ext4_fc_commit_start")
int ATOMIC_PROG(ext4_fast_start, struct super_block *sb, __u32 tid)
{
	if (commits_wanted())
		commit_begins((__u64)sb, COMMIT_FAST, BPF_CORE_READ(sb, s_dev), tid);
	return 0;
}

/* reason: EXT4_FC_REASON_OK is 0. Otherwise the transaction is committed in full, which has a row of its own. */
SEC("tp_btf/ext4_fc_commit_stop")
int ATOMIC_PROG(ext4_fast_stop, struct super_block *sb, int blocks, int reason)
{
	__u64 key = (__u64)sb;
	struct rec_commit *rec;

	if (!commits_wanted())
		return 0;
	rec = bpf_map_lookup_elem(&commits, &key);
	if (!rec)
		return 0;
	if (!reason) {
		rec->blocks = blocks;
		rec->len_bytes = (__u64)blocks * BPF_CORE_READ(sb, s_blocksize);
		rec->known = 1;
		commit_ends(rec);
	}
	bpf_map_delete_elem(&commits, &key);
	return 0;
}

/* A buffer of XFS's log is written. */
SEC("tp_btf/xlog_iclog_sync")
int ATOMIC_PROG(xfs_log_start, struct xlog_in_core *iclog)
{
	struct rec_commit *rec;

	if (!commits_wanted())
		return 0;
	rec = commit_begins((__u64)iclog, COMMIT_LOG_WRITE, BPF_CORE_READ(iclog, ic_log, l_mp, m_super, s_dev),
			    lsn_of(iclog));
	if (rec) {
		rec->len_bytes = (__u64)BPF_CORE_READ(iclog, ic_offset) + BPF_CORE_READ(iclog, ic_log, l_iclog_hsize);
		rec->known = 1;
		rec->task_id = recorded_id(bpf_get_current_task_btf());
		bpf_get_current_comm(rec->comm, sizeof(rec->comm));
	}
	return 0;
}

SEC("tp_btf/xlog_iclog_sync_done")
int ATOMIC_PROG(xfs_log_done, struct xlog_in_core *iclog)
{
	__u64 key = (__u64)iclog;
	struct rec_commit *rec;

	if (!commits_wanted())
		return 0;
	rec = bpf_map_lookup_elem(&commits, &key);
	if (!rec)
		return 0;
	/* The thread that started it stays noted: a worker ends it. */
	emit_fixed(rec, REC_COMMIT, CLASS_COMMITS, bpf_ktime_get_ns());
	bpf_map_delete_elem(&commits, &key);
	return 0;
}

/* The end of a commit. Its start is known on kernels that keep it in fs_info (6.18; not 6.1). */
SEC("tp_btf/btrfs_transaction_commit")
int ATOMIC_PROG(btrfs_commit, struct btrfs_fs_info *info)
{
	struct rec_commit rec = {};

	if (!commits_wanted())
		return 0;
	rec.kind = COMMIT_BTRFS;
	rec.dev = BPF_CORE_READ(info, sb, s_dev);
	rec.transaction = BPF_CORE_READ(info, generation);
	rec.start_ns = btrfs_commit_start(info);
	commit_ends(&rec);
	return 0;
}

#endif
