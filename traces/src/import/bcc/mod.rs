//! Imports the tables of bcc's and libbpf-tools' programs: biosnoop, opensnoop, ext4slower and its siblings, fileslower.
//!
//! They print an event when it ends, so its start is its time less its duration.

mod table;

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use super::{
    Result,
    damage::Damage,
    input::{self, Source},
    lines::Lines,
    made,
    paths::Paths,
    records,
};
use crate::{
    Manifest, ReelWriter, TableWriter, Text,
    format::{
        manifest::{Device, Span},
        rows::{Bio, Block, Op, Task},
        text,
    },
};
use table::{At, Head, Row, Tool};

const EXPECTED: &str =
    "name a file with the table of biosnoop, opensnoop, ext4slower, xfsslower or fileslower, with its head line";
const AT_FDCWD: i32 = -100;
const DAY_NS: i64 = 86_400 * 1_000_000_000;
/// Time between two rows of a table without times.
const STEP_NS: i64 = 1000;

/// Imports tables as the reel `out`.
///
/// # Errors
/// If there is no head line of a known table, no row, or most lines are none; if an input cannot be read or the reel cannot
/// be written.
pub fn import(inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    from(&input::open(inputs, &input::scratch(out))?, out)
}

/// Whether these first bytes of a file have a head line.
pub(super) fn looks_so(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').take(50).any(|line| table::head(line.trim_ascii()).is_some())
}

/// The rows of all files, one after the other.
struct Rows {
    lines: Lines,
    head: Option<Head>,
    damage: Damage,
    /// Midnights passed, and the last time of day.
    days: i64,
    last_of_day: i64,
    steps: i64,
    /// Whether a table has no times.
    order_only: bool,
    /// Whether a table has times of the day.
    of_day: bool,
}

impl Rows {
    fn new(sources: &[Source]) -> Self {
        Self {
            lines: Lines::of(sources),
            head: None,
            damage: Damage::default(),
            days: 0,
            last_of_day: 0,
            steps: 0,
            order_only: false,
            of_day: false,
        }
    }

    /// Gives the next row and the time of its end to `take`. False at the end.
    fn next(&mut self, take: impl FnOnce(Tool, Row<'_>, i64) -> Result<()>) -> Result<bool> {
        loop {
            let Some(line) = self.lines.next()? else { return Ok(false) };
            let line = line.trim_ascii();
            if let Some(head) = table::head(line) {
                self.head = Some(head);
                continue;
            }
            if line.is_empty() || line.starts_with(b"Tracing ") {
                continue;
            }
            let Some((tool, row)) = self.head.as_ref().and_then(|h| Some((h.tool, h.row(line)?))) else {
                // Messages of the program come before the head line.
                if self.head.is_some() {
                    self.damage.line(
                        &self.lines,
                        "is not a row of the table",
                        "expected the columns of the head line",
                    )?;
                }
                continue;
            };
            self.damage.good += 1;
            let at_ns = match row.at {
                At::Ns(ns) => ns,
                At::OfDay(ns) => {
                    if self.last_of_day - ns > DAY_NS / 2 {
                        self.days += 1;
                    }
                    (self.last_of_day, self.of_day) = (ns, true);
                    ns.saturating_add(self.days.saturating_mul(DAY_NS))
                }
                At::Unknown => {
                    self.steps += STEP_NS;
                    self.order_only = true;
                    self.steps
                }
            };
            take(tool, row, at_ns)?;
            return Ok(true);
        }
    }
}

/// Start of a row: when its event was queued, issued or called.
fn start(row: &Row<'_>, end_ns: i64) -> i64 {
    end_ns.saturating_sub(row.latency_ns).saturating_sub(row.queue_ns.unwrap_or(0))
}

/// [`import`] of open inputs.
pub(super) fn from(sources: &[Source], out: &Path) -> Result<Manifest> {
    let mut base_ns: Option<i64> = None;
    let mut rows = Rows::new(sources);
    while rows.next(|_, row, end_ns| {
        base_ns = base_ns.into_iter().chain([start(&row, end_ns)]).min();
        Ok(())
    })? {}
    if rows.head.is_none() && rows.lines.read > 0 {
        return Err(rows.lines.error(format!("there is no head line of a known table; {EXPECTED}")));
    }
    rows.damage.check(&rows.lines, EXPECTED)?;
    let files: Vec<PathBuf> = sources.iter().map(|s| s.name.clone()).collect();
    made::reel(out, made::manifest("bcc", &files), |writer, manifest| {
        let mut maker = Maker::new(writer, base_ns.unwrap_or(0));
        let mut rows = Rows::new(sources);
        while rows.next(|tool, row, end_ns| match tool {
            Tool::Biosnoop => maker.request(&row, end_ns),
            Tool::Opensnoop => maker.opened(&row, end_ns),
            Tool::Slower => maker.operation(&row, end_ns),
        })? {}
        maker.describe(manifest);
        rows.damage.describe(&rows.lines, manifest);
        if rows.of_day {
            manifest.warnings.push("the table has times of the day, in seconds, without a date".into());
        }
        if rows.order_only {
            manifest.warnings.push("the table has no times: only the order of the calls is known, and each starts 1 µs after the one before it; run the program with -T".into());
        }
        if let Some(import) = &mut manifest.import {
            import.records = rows.damage.good;
        }
        Ok(())
    })
}

struct Maker<'a> {
    base_ns: i64,
    block: &'a mut TableWriter<Block>,
    bio: &'a mut TableWriter<Bio>,
    ops: &'a mut TableWriter<Op>,
    tasks: &'a mut TableWriter<Task>,
    paths: Paths<'a>,
    known: HashMap<(i32, Text), i64>,
    disks: BTreeMap<Vec<u8>, i64>,
    words: text::Interner,
    requests: i64,
    operations: i64,
    left_out: i64,
    /// Opens and syncs whose result the table does not tell.
    without_result: i64,
    last_ns: i64,
}

impl<'a> Maker<'a> {
    fn new(writer: &'a mut ReelWriter, base_ns: i64) -> Self {
        Self {
            base_ns,
            block: &mut writer.block,
            bio: &mut writer.bio,
            ops: &mut writer.ops,
            tasks: &mut writer.tasks,
            paths: Paths::new(&mut writer.files),
            known: HashMap::new(),
            disks: BTreeMap::new(),
            words: text::Interner::new(1 << 14),
            requests: 0,
            operations: 0,
            left_out: 0,
            without_result: 0,
            last_ns: 0,
        }
    }

    fn at(&self, ns: i64) -> i64 {
        ns.saturating_sub(self.base_ns)
    }

    /// The thread of a row. Its name is part of it, since a process may execute another program.
    fn task(&mut self, row: &Row<'_>) -> Result<(i64, i32)> {
        let (pid, comm) = (row.pid.unwrap_or(0), self.words.get(row.comm));
        let next = self.known.len() as i64;
        let task_id = *self.known.entry((pid, comm.clone())).or_insert(next);
        if task_id == next {
            self.tasks.push(Task { task_id, pid, tid: pid, comm, ..Task::default() })?;
        }
        Ok((task_id, pid))
    }

    fn request(&mut self, row: &Row<'_>, end_ns: i64) -> Result<()> {
        let issue_ns = self.at(end_ns.saturating_sub(row.latency_ns));
        let queue_ns = row.queue_ns.map(|_| self.at(start(row, end_ns)));
        let (op, flags) = records::kind(row.kind, row.bytes);
        // The idle thread is no task.
        let task_id = if row.pid.is_some_and(|pid| pid > 0) { Some(self.task(row)?.0) } else { None };
        let comm = self.words.get(row.comm);
        // Major 0 belongs to no disk.
        let next = self.disks.len() as i64 + 1;
        let dev = *self.disks.entry(row.disk.to_vec()).or_insert(next);
        let sector = if row.bytes == 0 { -1 } else { row.sector.max(-1) };
        let complete_ns = Some(self.at(end_ns));
        self.last_ns = self.last_ns.max(self.at(end_ns));
        let request = Block {
            rq_id: self.requests,
            queue_ns,
            issue_ns,
            complete_ns,
            dev,
            sector,
            len_bytes: row.bytes,
            op: Text::word(op),
            flags,
            bios: Some(1),
            ..Block::default()
        };
        self.bio.push(Bio {
            bio_id: -1,
            rq_id: Some(self.requests),
            queue_ns: queue_ns.unwrap_or(issue_ns),
            complete_ns,
            dev,
            sector,
            len_bytes: row.bytes,
            op: Text::word(op),
            flags,
            task_id,
            comm,
            class: Text::word(if row.bytes == 0 { "flush" } else { "unknown" }),
            confidence: if row.bytes == 0 { 100 } else { 0 },
            ..Bio::default()
        })?;
        self.requests += 1;
        Ok(self.block.push(request)?)
    }

    fn opened(&mut self, row: &Row<'_>, end_ns: i64) -> Result<()> {
        let ret = if row.fd >= 0 { i64::from(row.fd) } else { -i64::from(row.error).abs() };
        let op = self.op(row, end_ns, "openat", Some(ret))?;
        let file = if row.fd >= 0 && !row.path.is_empty() { Some(self.file(row, op.start_ns)?) } else { None };
        self.push(Op { file, ..op })
    }

    fn operation(&mut self, row: &Row<'_>, end_ns: i64) -> Result<()> {
        let (name, moves) = match row.kind {
            b"R" => ("read", true),
            b"W" => ("write", true),
            b"O" => ("openat", false),
            b"S" | b"F" => ("fsync", false),
            _ => {
                self.left_out += 1;
                return Ok(());
            }
        };
        // Of an open and a sync, the table tells no result, and a complete operation has one.
        self.without_result += i64::from(!moves);
        let ret = Some(if moves { row.bytes } else { 0 });
        let op = self.op(row, end_ns, name, ret)?;
        let file = if row.path.is_empty() { None } else { Some(self.file(row, op.start_ns)?) };
        let (offset_bytes, len_bytes) = if moves { (row.offset, Some(row.bytes)) } else { (None, None) };
        self.push(Op { file, offset_bytes, len_bytes, ..op })
    }

    fn file(&mut self, row: &Row<'_>, at_ns: i64) -> Result<i64> {
        self.paths.file(row.path, &Text::word("regular"), at_ns)
    }

    fn op(&mut self, row: &Row<'_>, end_ns: i64, name: &'static str, ret: Option<i64>) -> Result<Op> {
        let (task_id, pid) = self.task(row)?;
        let opens = name == "openat";
        Ok(Op {
            op_id: -1,
            start_ns: self.at(start(row, end_ns)),
            dur_ns: row.latency_ns,
            task_id,
            pid,
            tid: pid,
            op: Text::word(name),
            source: Text::word("syscall"),
            state: Text::word("complete"),
            dirfd: opens.then_some(AT_FDCWD),
            path: opens.then(|| self.words.get(row.path)),
            flags: row.flags.filter(|_| opens),
            ret,
            ..Op::default()
        })
    }

    fn push(&mut self, op: Op) -> Result<()> {
        self.operations += 1;
        self.last_ns = self.last_ns.max(op.start_ns.saturating_add(op.dur_ns));
        Ok(self.ops.push(op)?)
    }

    fn describe(self, manifest: &mut Manifest) {
        if self.requests > 0 {
            manifest.ledger.insert("block".into(), made::all_written(self.requests));
            manifest.ledger.insert("bio".into(), made::all_written(self.requests));
        }
        if self.operations + self.left_out > 0 {
            let mut ledger = made::all_written(self.operations);
            (ledger.seen, ledger.filtered) = (ledger.seen + self.left_out, self.left_out);
            manifest.ledger.insert("ops".into(), ledger);
        }
        if self.without_result > 0 {
            let n = self.without_result;
            manifest.warnings.push(format!(
                "the table has no results of {n} opens and syncs: they count as complete, with result 0"
            ));
        }
        if self.left_out > 0 {
            manifest.left_out.insert("operations of other kinds".into(), self.left_out);
        }
        manifest.span = Span { elapsed_ns: self.last_ns, ..Span::default() };
        let disk = |(name, dev): (Vec<u8>, i64)| Device {
            dev,
            name: text::from_bytes(&name).to_string(),
            ..Device::default()
        };
        manifest.devices = self.disks.into_iter().map(disk).collect();
    }
}
