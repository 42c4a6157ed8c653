//! The rules that each table must follow.

use arrow_array::RecordBatch;

use super::{
    Check,
    columns::{Ints, Words},
    ids::IdSet,
    tables::Place,
};
use crate::format::manifest::{Kind, Manifest};

/// Words of `ops.source`.
const SOURCES: &[&str] = &["syscall", "tool", "replay", "aio", "scm", "io_uring", "fault", "vfs", "lower"];
/// Words of `ops.state`.
const STATES: &[&str] = &["complete", "in_flight_at_end", "in_flight_at_start", "unknown", "unreported"];
/// Words of `block.op` and `bio.op`.
const BLOCK_OPS: &[&str] =
    &["read", "write", "flush", "discard", "secure_erase", "write_zeroes", "zone_append", "zone_mgmt", "other"];
/// Words of `bio.class`.
const CLASSES: &[&str] = &[
    "data",
    "journal",
    "inode_table",
    "directory",
    "bitmap",
    "tree",
    "extent_map",
    "superblock",
    "swap",
    "flush",
    "metadata",
    "unknown",
];
/// Words of `cache.event`.
const CACHE_EVENTS: &[&str] = &["fill", "readahead", "dirty", "writeback", "evict"];
/// Words of `actions.event`.
const EVENTS: &[&str] = &[
    "Q",
    "M",
    "F",
    "G",
    "S",
    "R",
    "D",
    "C",
    "P",
    "U",
    "UT",
    "I",
    "X",
    "B",
    "A",
    "abort",
    "driver",
    "process",
    "timestamp",
    "message",
    "?",
];
/// Words of `files.kind` and `tree.kind`.
const KINDS: &[&str] = &["regular", "directory", "symlink", "fifo", "socket", "char", "block", "other"];
/// Words of `final_tree.kind`.
const FINAL_KINDS: &[&str] =
    &["regular", "directory", "symlink", "fifo", "socket", "char", "block", "other", "absent", "unseen", "reel"];
/// Words of `names.how`.
const HOWS: &[&str] = &["there", "seen", "created", "linked", "renamed"];
/// Words of `names.ended`.
const ENDS: &[&str] = &["unlinked", "renamed", "replaced", "lost"];
/// Words of `commits.kind`.
const COMMITS: &[&str] = &["commit", "fast_commit", "log_write", "checkpoint"];
/// Words of `waits.reason`.
const REASONS: &[&str] = &[
    "device",
    "journal",
    "inode_lock",
    "lock",
    "page_lock",
    "page_under_write_back",
    // Written by older recorders in place of the next three.
    "write_back_throttle",
    "dirty_limit",
    "wbt",
    "block_throttle",
    "memory_reclaim",
    "run_queue",
    "request",
    "peer",
    "other",
];
/// Words of `waits.lock_kind`.
const LOCK_KINDS: &[&str] = &["mutex", "rwsem_read", "rwsem_write", "percpu_rwsem", "rt_mutex"];
/// Words of `tree.origin`.
const ORIGINS: &[&str] = &["snapshot", "first_touch", "derived"];

/// Ids seen so far, and facts about the whole reel.
#[derive(Debug)]
pub(super) struct Known {
    tasks: IdSet,
    files: IdSet,
    ops: IdSet,
    requests: IdSet,
    bios: IdSet,
    waits: IdSet,
    commits: IdSet,
    /// `op_id` of the previous row.
    last_op: i64,
    replay: bool,
    /// Whether records of requests were lost.
    requests_lost: bool,
    /// Rows of `ops` with source `tool`.
    pub(super) tool_ops: i64,
    /// Whether this is the second pass over `tasks`, which checks parents once all ids are known.
    pub(super) parents_pass: bool,
}

impl Known {
    pub(super) fn new(manifest: &Manifest) -> Self {
        Self {
            tasks: IdSet::default(),
            files: IdSet::default(),
            ops: IdSet::default(),
            requests: IdSet::default(),
            bios: IdSet::default(),
            waits: IdSet::default(),
            commits: IdSet::default(),
            last_op: -1,
            replay: manifest.kind == Kind::Replay,
            requests_lost: manifest.ledger.get("block").is_some_and(|l| l.lost > 0),
            tool_ops: 0,
            parents_pass: false,
        }
    }
}

impl Known {
    /// The tables whose ids are too far apart to check all of them.
    pub(super) fn spread(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("tasks", &self.tasks),
            ("files", &self.files),
            ("ops", &self.ops),
            ("block", &self.requests),
            ("bio", &self.bios),
            ("waits", &self.waits),
            ("commits", &self.commits),
        ];
        all.into_iter().filter(|(_, ids)| ids.left_out()).map(|(table, _)| table)
    }
}

/// Checks a batch of `table`.
///
/// Long because it has one arm per table.
pub(super) fn rows(table: &str, batch: &RecordBatch, place: &mut Place<'_>, known: &mut Known) -> Result<(), String> {
    match table {
        "tasks" if known.parents_pass => references(batch, place, "parent", "tasks", &mut known.tasks),
        "tasks" => {
            unique(batch, place, "task_id", &mut known.tasks)?;
            in_order(batch, place, &["start_ns", "exit_ns"])?;
            in_order(batch, place, &["start_ns", "left_ns"])
        }
        "files" => {
            unique(batch, place, "file", &mut known.files)?;
            words(batch, place, "kind", KINDS)
        }
        "stops" => references(batch, place, "task_id", "tasks", &mut known.tasks),
        "execs" => references(batch, place, "task_id", "tasks", &mut known.tasks),
        "fds" => {
            references(batch, place, "task_id", "tasks", &mut known.tasks)?;
            references(batch, place, "file", "files", &mut known.files)
        }
        "names" => {
            references(batch, place, "file", "files", &mut known.files)?;
            references(batch, place, "from_op", "ops", &mut known.ops)?;
            references(batch, place, "until_op", "ops", &mut known.ops)?;
            in_order(batch, place, &["from_ns", "until_ns"])?;
            words(batch, place, "how", HOWS)?;
            let until = Ints::of(batch, "until_ns")?;
            let ended = Words::of(batch, "ended", ENDS)?;
            for i in 0..batch.num_rows() {
                match (until.get(i), ended.code(i)) {
                    (None, None) if ended.word(i) == "null" => {}
                    (Some(_), Some(_)) => {}
                    _ => place.bad(Check::Values, ended.name, i, || {
                        format!("ended is {:?}, until_ns {:?}: expected both or neither", ended.word(i), until.get(i))
                    }),
                }
            }
            Ok(())
        }
        "waits" => {
            unique(batch, place, "wait_id", &mut known.waits)?;
            for column in ["task_id", "waker_task_id", "owner_task_id"] {
                references(batch, place, column, "tasks", &mut known.tasks)?;
            }
            in_order(batch, place, &["op_start_ns", "start_ns"])?;
            at_least(batch, place, "run_queue_ns", 0)?;
            words(batch, place, "reason", REASONS)?;
            words_or_null(batch, place, "lock_kind", LOCK_KINDS)
        }
        "maps" => {
            references(batch, place, "task_id", "tasks", &mut known.tasks)?;
            references(batch, place, "file", "files", &mut known.files)?;
            at_least(batch, place, "len_bytes", 1)
        }
        "tree" => {
            words(batch, place, "kind", KINDS)?;
            words(batch, place, "origin", ORIGINS)
        }
        "final_tree" => {
            words(batch, place, "kind", FINAL_KINDS)?;
            at_least(batch, place, "size_bytes", 0)?;
            at_least(batch, place, "links", 0)
        }
        "extents" => {
            at_least(batch, place, "offset_bytes", 0)?;
            at_least(batch, place, "len_bytes", 1)
        }
        "ops" => ops(batch, place, known),
        "block" => {
            unique(batch, place, "rq_id", &mut known.requests)?;
            in_order(batch, place, &["queue_ns", "issue_ns", "complete_ns"])?;
            words(batch, place, "op", BLOCK_OPS)?;
            at_least(batch, place, "len_bytes", 0)
        }
        "bio" => {
            unique(batch, place, "bio_id", &mut known.bios)?;
            in_order(batch, place, &["queue_ns", "complete_ns"])?;
            // A request whose record was lost has no row. The ledger and a note report the loss.
            if !known.requests_lost {
                references(batch, place, "rq_id", "block", &mut known.requests)?;
            }
            references(batch, place, "task_id", "tasks", &mut known.tasks)?;
            references(batch, place, "file", "files", &mut known.files)?;
            references(batch, place, "cause", "ops", &mut known.ops)?;
            words(batch, place, "op", BLOCK_OPS)?;
            words(batch, place, "class", CLASSES)?;
            at_least(batch, place, "len_bytes", 0)?;
            at_least(batch, place, "confidence", 0)
        }
        "commits" => {
            unique(batch, place, "commit_id", &mut known.commits)?;
            references(batch, place, "task_id", "tasks", &mut known.tasks)?;
            in_order(batch, place, &["start_ns", "locking_ns", "flushing_ns", "logging_ns", "end_ns"])?;
            words(batch, place, "kind", COMMITS)?;
            at_least(batch, place, "blocks", 0)?;
            at_least(batch, place, "len_bytes", 0)
        }
        "cache" => {
            references(batch, place, "task_id", "tasks", &mut known.tasks)?;
            references(batch, place, "file", "files", &mut known.files)?;
            words(batch, place, "event", CACHE_EVENTS)?;
            at_least(batch, place, "offset_bytes", 0)?;
            at_least(batch, place, "len_bytes", 0)
        }
        "actions" => {
            words(batch, place, "event", EVENTS)?;
            at_least(batch, place, "place", 0)?;
            at_least(batch, place, "len_bytes", 0)
        }
        _ => Ok(()),
    }
}

fn ops(batch: &RecordBatch, place: &mut Place<'_>, known: &mut Known) -> Result<(), String> {
    let id = Ints::of(batch, "op_id")?;
    for i in 0..batch.num_rows() {
        let op = id.get(i).unwrap_or(-1);
        if op <= known.last_op && place.row(i) > 0 {
            let last = known.last_op;
            place.bad(Check::Ids, "ascending", i, || format!("op_id {op} follows {last}: ids must ascend"));
        }
        known.last_op = op;
    }
    unique(batch, place, "op_id", &mut known.ops)?;
    let source = Words::of(batch, "source", SOURCES)?;
    let state = Words::of(batch, "state", STATES)?;
    words(batch, place, "source", SOURCES)?;
    words(batch, place, "state", STATES)?;
    let (task, ret, dur) = (Ints::of(batch, "task_id")?, Ints::of(batch, "ret")?, Ints::of(batch, "dur_ns")?);
    let original = Ints::of(batch, "orig_op_id")?;
    let off_cpu = Ints::of(batch, "off_cpu_ns")?;
    for i in 0..batch.num_rows() {
        let tool = source.code(i) == Some(1);
        known.tool_ops += i64::from(tool);
        // ioreel's own calls belong to no recorded task.
        if !tool
            && let Some(id) = task.get(i)
            && !known.tasks.contains(id)
        {
            place.bad(Check::Reference, task.name, i, || format!("task_id {id} is in no row of tasks"));
        }
        match (state.code(i), ret.get(i)) {
            (Some(0 | 2), None) => place.bad(Check::Values, ret.name, i, || "complete, but ret is null".into()),
            (Some(1), Some(r)) => place.bad(Check::Values, ret.name, i, || format!("in flight, but ret is {r}")),
            (Some(3), Some(r)) => place.bad(Check::Values, ret.name, i, || format!("end unknown, but ret is {r}")),
            (Some(1 | 3), None) if dur.get(i) != Some(0) => {
                place.bad(Check::Values, dur.name, i, || "not seen to end, but dur_ns is not 0".into());
            }
            (Some(4), _) if dur.get(i) != Some(0) => {
                place.bad(Check::Values, dur.name, i, || "unreported, but dur_ns is not 0".into());
            }
            _ => {}
        }
        if let (Some(off), Some(all)) = (off_cpu.get(i), dur.get(i))
            && !(0..=all).contains(&off)
        {
            place.bad(Check::Values, off_cpu.name, i, || format!("off_cpu_ns is {off}, dur_ns {all}"));
        }
        if known.replay && source.code(i) == Some(2) && original.get(i).is_none_or(|o| o < 0) {
            place.bad(Check::Reference, original.name, i, || "replayed, but orig_op_id is not an id".into());
        }
    }
    references(batch, place, "file", "files", &mut known.files)?;
    references(batch, place, "file2", "files", &mut known.files)?;
    references(batch, place, "parent_op", "ops", &mut known.ops)
}

/// Ids are present, not negative, and unique in the reel.
fn unique(batch: &RecordBatch, place: &mut Place<'_>, name: &'static str, ids: &mut IdSet) -> Result<(), String> {
    let column = Ints::of(batch, name)?;
    for i in 0..batch.num_rows() {
        let id = column.get(i).unwrap_or(-1);
        if id < 0 {
            place.bad(Check::Ids, name, i, || format!("{name} is {id}, which is not an id"));
        } else if !ids.insert(id) {
            place.bad(Check::Ids, name, i, || format!("{name} {id} occurs twice"));
        }
    }
    Ok(())
}

/// Every non-null id is the id of a row in `table`.
fn references(
    batch: &RecordBatch,
    place: &mut Place<'_>,
    name: &'static str,
    table: &str,
    ids: &mut IdSet,
) -> Result<(), String> {
    let column = Ints::of(batch, name)?;
    for i in 0..batch.num_rows() {
        if let Some(id) = column.get(i)
            && !ids.contains(id)
        {
            place.bad(Check::Reference, name, i, || format!("{name} {id} is in no row of {table}"));
        }
    }
    Ok(())
}

/// Known times of a row are in order.
fn in_order(batch: &RecordBatch, place: &mut Place<'_>, names: &[&'static str]) -> Result<(), String> {
    let columns = names.iter().map(|n| Ints::of(batch, n)).collect::<Result<Vec<_>, _>>()?;
    for i in 0..batch.num_rows() {
        let mut before: Option<(i64, &str)> = None;
        for column in &columns {
            let Some(at) = column.get(i) else { continue };
            if let Some((earlier, name)) = before
                && at < earlier
            {
                place.bad(Check::Times, column.name, i, || format!("{} {at} is before {name} {earlier}", column.name));
            }
            before = Some((at, column.name));
        }
    }
    Ok(())
}

/// Every word is in the known list.
fn words(batch: &RecordBatch, place: &mut Place<'_>, name: &'static str, known: &[&str]) -> Result<(), String> {
    listed(batch, place, name, known, false)
}

/// Every word that is there is in the known list.
fn words_or_null(batch: &RecordBatch, place: &mut Place<'_>, name: &'static str, known: &[&str]) -> Result<(), String> {
    listed(batch, place, name, known, true)
}

fn listed(
    batch: &RecordBatch,
    place: &mut Place<'_>,
    name: &'static str,
    known: &[&str],
    may_be_null: bool,
) -> Result<(), String> {
    let column = Words::of(batch, name, known)?;
    for i in 0..batch.num_rows() {
        if column.code(i).is_none() && !(may_be_null && column.is_null(i)) {
            place.bad(Check::Values, column.name, i, || {
                format!("{name} is {:?}, which is none of: {}", column.word(i), known.join(", "))
            });
        }
    }
    Ok(())
}

fn at_least(batch: &RecordBatch, place: &mut Place<'_>, name: &'static str, least: i64) -> Result<(), String> {
    let column = Ints::of(batch, name)?;
    for i in 0..batch.num_rows() {
        if let Some(value) = column.get(i)
            && value < least
        {
            place.bad(Check::Values, name, i, || format!("{name} is {value}, less than {least}"));
        }
    }
    Ok(())
}
