//! Rotation keeps the newest segments of a reel that is being written, and the rows of other tables that they refer to.
//! References stay valid: see [`ReelWriter::rotate`].

use std::collections::{HashMap, HashSet};

use crate::{
    Manifest, ReelWriter, Result,
    format::{
        manifest::{Segment, Span},
        rows::{Bio, Block, Cache, Commit, Op, Stop, Task, Wait},
        table::Row,
    },
    writer::TableWriter,
};

mod merge;

/// What a rotating reel keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Maximum size, bytes.
    pub max_bytes: Option<i64>,
    /// Time span before the newest row.
    pub span_ns: Option<i64>,
}

/// Number of segments to drop from each table, oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Drop {
    ops: usize,
    block: usize,
    bio: usize,
    stops: usize,
    waits: usize,
    cache: usize,
    contents: usize,
    commits: usize,
}

impl ReelWriter {
    /// Drops the oldest closed segments beyond `keep`. `now_ns` is the reel's time, `living` the threads that have not
    /// ended. Bios lose their references to dropped requests and operations. Threads that have ended stay while a row
    /// refers to them; their programs, descriptors and mappings are dropped with them. Files stay. After a crash at any
    /// point, a repair makes the reel valid. Manifests written from then on tell the start of what is kept. Returns
    /// whether anything was dropped.
    pub fn rotate(&mut self, keep: Keep, now_ns: i64, living: &[Task]) -> Result<bool> {
        self.merge_small()?;
        let drop = self.too_old(keep, now_ns);
        if drop == Drop::default() {
            return Ok(false);
        }
        // Rows of open segments may refer to dropped ones.
        self.find_causes()?;
        self.bio.flush()?;
        let dropped_to_ns = self.last_end_ns(drop)?;
        self.forget_in_bios(drop)?;
        self.drop_oldest(drop)?;
        self.kept_from_ns = self.kept_from_ns.max(dropped_to_ns.saturating_add(1));
        if self.threads_are_many() {
            self.sweep_threads(now_ns, living)?;
        }
        Ok(true)
    }

    /// Number of closed rows in rotating tables, dropped ones included.
    pub fn closed_rows(&self) -> i64 {
        let of = |written: i64, rotated: i64| written + rotated;
        of(self.ops.written(), self.ops.rotated)
            + of(self.block.written(), self.block.rotated)
            + of(self.bio.written(), self.bio.rotated)
            + of(self.stops.written(), self.stops.rotated)
            + of(self.waits.written(), self.waits.rotated)
            + of(self.cache.written(), self.cache.rotated)
            + of(self.contents.written(), self.contents.rotated)
            + of(self.commits.written(), self.commits.rotated)
    }

    fn too_old(&mut self, keep: Keep, now_ns: i64) -> Drop {
        let mut bytes = self.bytes_about();
        let mut drop = Drop::default();
        loop {
            let next = |w: &[Segment], n: usize| w.get(n).map(|s| (s.to_ns, s.bytes));
            // The newest operations are the purpose of the reel, so they stay regardless of what else takes space.
            let ops = self.ops.segments.len().saturating_sub(usize::from(keep.max_bytes.is_some()));
            let oldest = [
                next(&self.ops.segments[..ops], drop.ops).map(|s| (s, 0)),
                next(&self.block.segments, drop.block).map(|s| (s, 1)),
                next(&self.bio.segments, drop.bio).map(|s| (s, 2)),
                next(&self.stops.segments, drop.stops).map(|s| (s, 3)),
                next(&self.waits.segments, drop.waits).map(|s| (s, 4)),
                next(&self.cache.segments, drop.cache).map(|s| (s, 5)),
                next(&self.contents.segments, drop.contents).map(|s| (s, 6)),
                next(&self.commits.segments, drop.commits).map(|s| (s, 7)),
            ];
            let Some(((to_ns, size), table)) = oldest.into_iter().flatten().min() else { return drop };
            let large = keep.max_bytes.is_some_and(|max| bytes > max);
            let old = keep.span_ns.is_some_and(|span| to_ns < now_ns.saturating_sub(span));
            if !large && !old {
                return drop;
            }
            bytes -= size;
            match table {
                0 => drop.ops += 1,
                1 => drop.block += 1,
                2 => drop.bio += 1,
                3 => drop.stops += 1,
                4 => drop.waits += 1,
                5 => drop.cache += 1,
                7 => drop.commits += 1,
                _ => drop.contents += 1,
            }
        }
    }

    /// The latest end of an event in the segments to drop.
    fn last_end_ns(&self, drop: Drop) -> Result<i64> {
        let listed = |segments: &[Segment], n: usize| segments.iter().take(n).map(|s| s.to_ns).max();
        let mut last_ns = [
            listed(&self.ops.segments, drop.ops),
            listed(&self.stops.segments, drop.stops),
            listed(&self.waits.segments, drop.waits),
            listed(&self.cache.segments, drop.cache),
        ]
        .into_iter()
        .flatten()
        .fold(0, i64::max);
        // The list of segments does not count the time until a request or bio completes.
        for i in 0..drop.block {
            let ends = |b: &Block| b.complete_ns.map_or(b.issue_ns, |end| end.max(b.issue_ns));
            last_ns = self.block.rows_of(i)?.iter().map(ends).fold(last_ns, i64::max);
        }
        for i in 0..drop.bio {
            let ends = |b: &Bio| b.complete_ns.map_or(b.queue_ns, |end| end.max(b.queue_ns));
            last_ns = self.bio.rows_of(i)?.iter().map(ends).fold(last_ns, i64::max);
        }
        Ok(last_ns)
    }

    /// The manifest, with the start of what is kept.
    pub(super) fn with_kept(&self, manifest: &Manifest) -> Manifest {
        let span = Span { kept_from_ns: self.kept_from_ns.max(manifest.span.kept_from_ns), ..manifest.span.clone() };
        Manifest { span, ..manifest.clone() }
    }

    /// Clears references of remaining bios to dropped requests and operations.
    fn forget_in_bios(&mut self, drop: Drop) -> Result<()> {
        let mut requests = HashSet::new();
        for i in 0..drop.block {
            requests.extend(self.block.rows_of(i)?.iter().map(|b: &Block| b.rq_id));
        }
        if let Some(last) = drop.ops.checked_sub(1) {
            // Ids ascend from segment to segment.
            let greatest = self.ops.rows_of(last)?.iter().map(|o: &Op| o.op_id).max();
            self.least_op = greatest.map_or(self.least_op, |id| id + 1);
        }
        for i in drop.bio..self.bio.segments.len() {
            let mut rows: Vec<Bio> = self.bio.rows_of(i)?;
            let mut changed = false;
            for bio in &mut rows {
                if bio.rq_id.is_some_and(|rq| requests.contains(&rq)) {
                    (bio.rq_id, changed) = (None, true);
                }
                if bio.cause.is_some_and(|op| op < self.least_op) {
                    (bio.cause, changed) = (None, true);
                }
            }
            if changed {
                self.bio.replace(i, &rows)?;
            }
        }
        Ok(())
    }

    fn drop_oldest(&mut self, drop: Drop) -> Result<()> {
        drop_first(&mut self.bio, drop.bio)?;
        drop_first(&mut self.block, drop.block)?;
        drop_first(&mut self.stops, drop.stops)?;
        drop_first(&mut self.waits, drop.waits)?;
        drop_first(&mut self.cache, drop.cache)?;
        drop_first(&mut self.contents, drop.contents)?;
        drop_first(&mut self.commits, drop.commits)?;
        drop_first(&mut self.ops, drop.ops)
    }

    /// Drops closed rows of threads that no row refers to, and what belongs to these threads.
    fn sweep_threads(&mut self, now_ns: i64, living: &[Task]) -> Result<()> {
        // Rows of open segments cannot be read.
        self.ops.flush()?;
        self.find_causes()?;
        self.bio.flush()?;
        self.stops.flush()?;
        self.waits.flush()?;
        self.cache.flush()?;
        self.commits.flush()?;
        // Their parents must stay too.
        self.tasks.flush()?;
        let mut tasks = HashSet::new();
        for i in 0..self.ops.segments.len() {
            tasks.extend(self.ops.rows_of(i)?.iter().map(|op: &Op| op.task_id));
        }
        for i in 0..self.bio.segments.len() {
            tasks.extend(self.bio.rows_of(i)?.iter().filter_map(|bio: &Bio| bio.task_id));
        }
        for i in 0..self.stops.segments.len() {
            tasks.extend(self.stops.rows_of(i)?.iter().map(|s: &Stop| s.task_id));
        }
        for i in 0..self.waits.segments.len() {
            let of = |w: &Wait| [Some(w.task_id), w.waker_task_id, w.owner_task_id];
            tasks.extend(self.waits.rows_of(i)?.iter().flat_map(of).flatten());
        }
        for i in 0..self.cache.segments.len() {
            tasks.extend(self.cache.rows_of(i)?.iter().filter_map(|c: &Cache| c.task_id));
        }
        for i in 0..self.commits.segments.len() {
            tasks.extend(self.commits.rows_of(i)?.iter().filter_map(|c: &Commit| c.task_id));
        }
        let mut parents: HashMap<i64, i64> = living.iter().filter_map(|t| Some((t.task_id, t.parent?))).collect();
        tasks.extend(parents.keys());
        for task in all(&self.tasks)? {
            if task.exit_ns.is_none_or(|t| t > now_ns.saturating_sub(LATE_BIOS_NS)) {
                tasks.insert(task.task_id);
            }
            parents.extend(task.parent.map(|p| (task.task_id, p)));
        }
        // Ancestors stay, because they define what a thread inherited.
        let mut waiting: Vec<i64> = tasks.iter().copied().collect();
        while let Some(task) = waiting.pop() {
            if let Some(parent) = parents.get(&task)
                && tasks.insert(*parent)
            {
                waiting.push(*parent);
            }
        }
        let living: HashSet<i64> = living.iter().map(|t| t.task_id).collect();
        let stays = |id: i64| tasks.contains(&id) || living.contains(&id);
        retain(&mut self.execs, |e| stays(e.task_id))?;
        retain(&mut self.fds, |f| stays(f.task_id))?;
        retain(&mut self.maps, |m| stays(m.task_id))?;
        retain(&mut self.tasks, |t| stays(t.task_id))
    }

    /// Whether the tables of threads take a considerable share of the reel.
    fn threads_are_many(&mut self) -> bool {
        let threads = self.tasks.bytes_about() + self.execs.bytes_about();
        threads * THREADS_SHARE > self.bytes_about()
    }
}

/// How long a bio may arrive after its thread has ended.
const LATE_BIOS_NS: i64 = 60_000_000_000;
/// Threads are swept when they take more than one part in this many of the reel.
const THREADS_SHARE: i64 = 8;

fn drop_first<R: Row>(table: &mut TableWriter<R>, n: usize) -> Result<()> {
    for _ in 0..n {
        let rows = table.segments[0].rows;
        table.replace(0, &[])?;
        table.events_written -= rows;
        table.rotated += rows;
    }
    Ok(())
}

fn all<R: Row>(table: &TableWriter<R>) -> Result<Vec<R>> {
    let mut rows = Vec::new();
    for i in 0..table.segments.len() {
        rows.extend(table.rows_of(i)?);
    }
    Ok(rows)
}

/// Keeps the rows of closed segments for which `stays` is true.
fn retain<R: Row>(table: &mut TableWriter<R>, stays: impl Fn(&R) -> bool) -> Result<()> {
    for i in (0..table.segments.len()).rev() {
        let mut rows = table.rows_of(i)?;
        let before = rows.len();
        rows.retain(&stays);
        if rows.len() < before {
            table.replace(i, &rows)?;
        }
    }
    Ok(())
}
