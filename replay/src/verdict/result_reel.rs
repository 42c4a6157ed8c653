//! The result reel: the original's rows with the times and results of the replay.

use std::{collections::HashMap, path::Path, sync::Arc};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    disk::DiskActivity,
    host::host,
    manifest::{Clock, Kind, Ledger, Mount, Replay, Span},
    rows,
};

use crate::{
    ReplayError,
    plan::{
        chunk::Chunk,
        program::{Act, Plan},
    },
    reel::submission::Phase,
    run::{engine::Outcome, outcomes::Outcomes},
};

/// Facts about the replay for the result reel's manifest.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) replay: Replay,
    pub(crate) clock: Clock,
    pub(crate) span: Span,
    pub(crate) mount: Mount,
    pub(crate) warnings: Vec<String>,
    /// Start of the final syncfs, ns of the replay, and its result.
    pub(crate) sync_start_ns: i64,
    pub(crate) sync_ret: i64,
    /// Recorded activity of the target's disks.
    pub(crate) seen: DiskActivity,
}

/// Creates the result reel. Fails if it exists, before anything is replayed.
pub(crate) fn create(path: &Path) -> Result<ReelWriter, ReplayError> {
    Ok(ReelWriter::create(path, &Manifest::new(Kind::Replay, "replay"), WriterOptions::default())?)
}

/// Writes and closes the result reel. The original's rows are read again instead of being kept: nothing is written
/// while operations are issued, and an outcome takes 56 bytes of memory.
pub(crate) fn write(
    mut writer: ReelWriter,
    original: &Reel,
    plan: &Plan,
    outcomes: &Outcomes,
    making: Making,
) -> Result<(), ReplayError> {
    let mut cursors: Vec<Cursor> = Vec::new();
    cursors.resize_with(plan.tasks.len(), Cursor::default);
    for (row, op) in original.rows::<rows::Op>().enumerate() {
        let op = op?;
        let Some(task) = plan.task_index.get(&op.task_id) else { continue };
        let Some(o) = cursors[*task as usize].outcome(plan, outcomes, *task, row as u32) else { continue };
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
        // The same files by the same ids, but on the target's file system. Inode numbers are the original's.
        let sb_dev = making.mount.sb_dev;
        writer.files.push(rows::File { sb_dev, dev: sb_dev, ..file? })?;
    }
    let seen = making.seen;
    seen.block.into_iter().try_for_each(|row| writer.block.push(row))?;
    seen.bio.into_iter().try_for_each(|row| writer.bio.push(row))?;
    let done = outcomes.len();
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

/// Position in a thread's program while the original's rows are read again.
#[derive(Debug, Default)]
struct Cursor {
    chunk: Option<Arc<Chunk>>,
    index: usize,
    at: usize,
    /// Operations whose row is still to come, by row.
    passed: Vec<(u32, Issued)>,
    /// Ends of requests.
    ends: Ends,
}

/// How an operation was issued.
#[derive(Clone, Copy, Debug)]
enum Issued {
    /// By a call, in this step.
    Call(u32),
    /// As a request. Its end is a later step.
    Request,
}

/// Finds the ends of requests, which come later in the program than their submissions.
#[derive(Debug, Default)]
struct Ends {
    index: usize,
    found: HashMap<u32, u32>,
}

impl Ends {
    /// The step at which the request of this row ended.
    fn step_of(&mut self, plan: &Plan, task: u32, row: u32) -> Option<u32> {
        loop {
            if let Some(step) = self.found.remove(&row) {
                return Some(step);
            }
            let chunk = plan.chunk(task, self.index)?;
            self.index += 1;
            for (i, step) in chunk.steps.iter().enumerate() {
                if let Act::Call { rec, .. } = step.act {
                    let r = &chunk.recs[rec as usize];
                    if r.phase == Phase::Ended {
                        self.found.insert(r.row, chunk.first + i as u32);
                    }
                }
            }
        }
    }
}

/// A thread's rows are in the order of its program, except near a migration between CPUs, which puts neighbours into
/// different segments. A row is at most this many operations away from its place.
const NEIGHBOURS: usize = 8;

impl Cursor {
    /// The outcome of the operation in this row, if it was issued.
    fn outcome(&mut self, plan: &Plan, outcomes: &Outcomes, task: u32, row: u32) -> Option<Outcome> {
        if let Some(i) = self.passed.iter().position(|(r, _)| *r == row) {
            let issued = self.passed.swap_remove(i).1;
            return self.outcome_of(plan, outcomes, (task, row), issued);
        }
        loop {
            let chunk = match &self.chunk {
                Some(chunk) => chunk.clone(),
                None => self.chunk.insert(plan.chunk(task, self.index)?).clone(),
            };
            let number = |i: usize| chunk.first + i as u32;
            let issued = chunk.steps.iter().enumerate().skip(self.at).filter_map(|(i, s)| match s.act {
                Act::Call { rec, .. } => {
                    let r = &chunk.recs[rec as usize];
                    (r.phase != Phase::Ended).then_some((i, r.row, Issued::Call(number(i))))
                }
                Act::Submit { rec, .. } => Some((i, chunk.recs[rec as usize].row, Issued::Request)),
                _ => None,
            });
            let ahead: Vec<(usize, u32, Issued)> = issued.take(NEIGHBOURS).collect();
            if let Some(found) = ahead.iter().position(|(_, r, _)| *r == row) {
                self.passed.extend(ahead[..found].iter().map(|(_, r, issued)| (*r, *issued)));
                self.at = ahead[found].0 + 1;
                return self.outcome_of(plan, outcomes, (task, row), ahead[found].2);
            }
            if !ahead.is_empty() {
                // This row was not replayed.
                return None;
            }
            (self.chunk, self.index, self.at) = (None, self.index + 1, 0);
        }
    }

    fn outcome_of(
        &mut self,
        plan: &Plan,
        outcomes: &Outcomes,
        (task, row): (u32, u32),
        issued: Issued,
    ) -> Option<Outcome> {
        let step = match issued {
            Issued::Call(step) => step,
            Issued::Request => self.ends.step_of(plan, task, row)?,
        };
        outcomes.of(task, step)
    }
}
