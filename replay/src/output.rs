//! The result of a replay as a reel: the original's rows with the replay's times and results.

use std::path::Path;

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    disk::DiskActivity,
    host::host,
    manifest::{Clock, Kind, Ledger, Mount, Replay, Span},
    rows,
};

use crate::{ReplayError, outcomes::Outcomes, plan::Plan};

/// What the result reel says of its making.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) replay: Replay,
    pub(crate) clock: Clock,
    pub(crate) span: Span,
    pub(crate) mount: Mount,
    pub(crate) warnings: Vec<String>,
    /// When the settling began, ns of the replay, and what it returned.
    pub(crate) sync_start_ns: i64,
    pub(crate) sync_ret: i64,
    /// What the target's disks did.
    pub(crate) seen: DiskActivity,
}

/// Makes the result reel; fails when it exists, before anything is replayed.
pub(crate) fn create(path: &Path) -> Result<ReelWriter, ReplayError> {
    Ok(ReelWriter::create(path, &Manifest::new(Kind::Replay, "replay"), WriterOptions::default())?)
}

/// Writes and closes it. The original's rows are read once more rather than kept: nothing is written
/// while operations are being issued, and a result costs 48 bytes of memory.
pub(crate) fn write(
    mut writer: ReelWriter,
    original: &Reel,
    plan: &Plan,
    outcomes: &Outcomes,
    making: Making,
) -> Result<(), ReplayError> {
    let rows = plan.recs.iter().map(|r| r.row as usize + 1).max().unwrap_or(0);
    let mut by_row = vec![None; rows];
    for o in outcomes.iter() {
        by_row[plan.recs[o.rec as usize].row as usize] = Some(o);
    }
    for (row, op) in original.rows::<rows::Op>().enumerate().take(rows) {
        let op = op?;
        let Some(o) = by_row[row] else { continue };
        writer.ops.push(rows::Op {
            orig_op_id: Some(op.op_id),
            op_id: -1,
            start_ns: o.start_ns,
            dur_ns: o.end_ns - o.start_ns,
            cpu: o.cpu,
            source: "replay".into(),
            ret: Some(o.ret),
            due_ns: Some(o.due_ns),
            ..op
        })?;
    }
    writer.ops.push(rows::Op {
        op_id: -1,
        start_ns: making.sync_start_ns,
        dur_ns: making.span.elapsed_ns + making.span.settle_ns - making.sync_start_ns,
        task_id: -1,
        op: "syncfs".into(),
        source: "tool".into(),
        state: "complete".into(),
        path: Some(making.mount.mountpoint.as_str().into()),
        ret: Some(making.sync_ret),
        ..Default::default()
    })?;
    for task in original.rows::<rows::Task>() {
        writer.tasks.push(task?)?;
    }
    for exec in original.rows::<rows::Exec>() {
        writer.execs.push(exec?)?;
    }
    for file in original.rows::<rows::File>() {
        // The same files by the same ids, but on the target now; inode numbers are the original's.
        let sb_dev = making.mount.sb_dev;
        writer.files.push(rows::File { sb_dev, dev: sb_dev, ..file? })?;
    }
    let seen = making.seen;
    seen.block.into_iter().try_for_each(|row| writer.block.push(row))?;
    seen.bio.into_iter().try_for_each(|row| writer.bio.push(row))?;
    let done = outcomes.len() as i64;
    let mut manifest = Manifest::new(Kind::Replay, "replay");
    manifest.host = host();
    manifest.command = original.manifest.command.clone();
    manifest.clock = making.clock;
    manifest.span = making.span;
    manifest.mounts = vec![making.mount];
    manifest.ledger.insert("ops".into(), Ledger { seen: done, written: done, lost: 0, filtered: 0 });
    manifest.ledger.extend(seen.ledger);
    manifest.devices = seen.devices;
    manifest.probes = seen.probes;
    manifest.left_out = seen.left_out;
    manifest.warnings = making.warnings;
    manifest.replay = Some(making.replay);
    writer.close(manifest)?;
    Ok(())
}
