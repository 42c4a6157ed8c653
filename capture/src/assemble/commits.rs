//! Commits of journals and logs.

use ioreel_bpf::types::{commit_kind, rec_commit};
use ioreel_traces::{Result, rows::Commit};

use super::{Assembler, block};

impl Assembler {
    /// A commit ended. Only file systems that recorded tasks use have rows.
    pub(super) fn commit(&mut self, rec: &rec_commit) -> Result<()> {
        self.counts.commits += 1;
        let sb_dev = i64::from(rec.dev);
        if !self.touched.contains(&sb_dev) {
            self.counts.commits_elsewhere += 1;
            return Ok(());
        }
        self.task_met(rec.task_id, rec.start_ns);
        let time = |ns: u64| (ns != 0).then(|| self.since(ns)).filter(|ns| *ns >= 0);
        let kind = commit_kind(rec.kind);
        let amount = |n: u64, of: &[commit_kind]| (rec.known != 0 && of.contains(&kind)).then_some(n as i64);
        let row = Commit {
            commit_id: -1,
            sb_dev,
            kind: word(kind).into(),
            transaction: (rec.transaction != 0).then_some(rec.transaction as i64),
            start_ns: time(rec.start_ns),
            locking_ns: time(rec.locking_ns),
            flushing_ns: time(rec.flushing_ns),
            logging_ns: time(rec.logging_ns),
            end_ns: self.since(rec.hdr.end_ns),
            blocks: amount(
                rec.blocks.into(),
                &[commit_kind::COMMIT_JBD2, commit_kind::COMMIT_FAST, commit_kind::COMMIT_CHECKPOINT],
            ),
            len_bytes: amount(
                rec.len_bytes,
                &[commit_kind::COMMIT_JBD2, commit_kind::COMMIT_FAST, commit_kind::COMMIT_LOG_WRITE],
            ),
            handles: amount(rec.handles.into(), &[commit_kind::COMMIT_JBD2]),
            task_id: (rec.task_id != 0).then_some(i64::from(rec.task_id)),
            comm: Some(block::comm(&rec.comm)).filter(|comm| !comm.is_empty()),
        };
        self.writer.commits.push(row)
    }
}

/// Value of the column `kind`.
fn word(kind: commit_kind) -> &'static str {
    match kind {
        commit_kind::COMMIT_FAST => "fast_commit",
        commit_kind::COMMIT_CHECKPOINT => "checkpoint",
        commit_kind::COMMIT_LOG_WRITE => "log_write",
        _ => "commit",
    }
}
