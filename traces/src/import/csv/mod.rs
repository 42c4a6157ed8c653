//! Imports requests or operations from CSV. The caller or the first line names the columns.

mod fields;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use super::{ImportError, Result, lines::Lines, made, paths::Paths};
use crate::{
    Manifest, ReelWriter, TableWriter, Text,
    format::{
        manifest::{Device, Span},
        rows::{Block, Op, Task},
        text,
    },
    host::dev_t,
};
use fields::{Field, Values, split};

/// What each line describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Block requests.
    Block,
    /// File operations.
    Ops,
}

/// Options of an import.
#[derive(Clone, Debug)]
pub struct Options {
    /// What each line describes.
    pub rows: Rows,
    /// Column names; `-` skips a column. If empty, the first line contains the names.
    pub columns: Vec<String>,
    /// Field separator.
    pub separator: u8,
    /// Lines to skip at the start, for example a header line if `columns` are given.
    pub skip: i64,
}

/// Imports the CSV file `input` as the reel `out`. `docs/import-export.md` lists the column names. Time 0 is the
/// earliest time in the file.
///
/// # Errors
/// If a column name is unknown, a required column is missing, or a line is invalid (with its number); if the input
/// cannot be read or the reel cannot be written.
pub fn import(input: &Path, out: &Path, options: &Options) -> Result<Manifest> {
    let (mut lines, columns) = begin(input, options)?;
    let mut base_ns: Option<i128> = None;
    let mut values = Values::default();
    while let Some(line) = lines.next()? {
        if line.is_empty() {
            continue;
        }
        if let Err(why) = values.read(line, &columns, options.separator) {
            return Err(lines.wrong(why));
        }
        base_ns = base_ns.into_iter().chain(values.earliest()).min();
    }
    let base_ns = base_ns.unwrap_or(0);
    let (mut lines, columns) = begin(input, options)?;
    made::reel(out, made::manifest("csv", &[input.to_path_buf()]), |writer, manifest| {
        let mut maker = Maker::new(writer, base_ns);
        while let Some(line) = lines.next()? {
            if line.is_empty() {
                continue;
            }
            let made = values.read(line, &columns, options.separator).and_then(|()| match options.rows {
                Rows::Block => maker.block(&values),
                Rows::Ops => maker.op(&values),
            });
            match made {
                Ok(row) => maker.push(row)?,
                Err(why) => return Err(lines.wrong(why)),
            }
        }
        let table = if options.rows == Rows::Block { "block" } else { "ops" };
        manifest.ledger.insert(table.into(), made::all_written(maker.count));
        manifest.span = Span { elapsed_ns: maker.last_ns, ..Span::default() };
        manifest.devices = maker.devices();
        if let Some(import) = &mut manifest.import {
            import.records = maker.count;
        }
        Ok(())
    })
}

/// Opens the file at its first row.
fn begin(input: &Path, options: &Options) -> Result<(Lines, Vec<Option<Field>>)> {
    let mut lines = Lines::open(input)?;
    for _ in 0..options.skip {
        lines.next()?;
    }
    let named: Vec<String> = if options.columns.is_empty() {
        let head = lines.next()?.unwrap_or_default();
        split(head, options.separator)
            .map_err(|e| ImportError::input(input, e))?
            .into_iter()
            .map(|w| String::from_utf8_lossy(&w).trim().to_owned())
            .collect()
    } else {
        options.columns.clone()
    };
    let columns = fields::columns(&named, options.rows).map_err(|e| ImportError::input(input, e))?;
    Ok((lines, columns))
}

enum Row {
    Block(Block),
    Op(Box<Op>),
}

struct Maker<'a> {
    base_ns: i128,
    block: &'a mut TableWriter<Block>,
    ops: &'a mut TableWriter<Op>,
    tasks: &'a mut TableWriter<Task>,
    paths: Paths<'a>,
    known: HashMap<(i64, i64), i64>,
    new_task: Option<Task>,
    new_path: Option<Vec<u8>>,
    words: text::Interner,
    /// Devices identified by name instead of number.
    names: BTreeMap<Vec<u8>, i64>,
    numbers: BTreeMap<i64, ()>,
    count: i64,
    last_ns: i64,
}

impl<'a> Maker<'a> {
    fn new(writer: &'a mut ReelWriter, base_ns: i128) -> Self {
        Self {
            base_ns,
            block: &mut writer.block,
            ops: &mut writer.ops,
            tasks: &mut writer.tasks,
            paths: Paths::new(&mut writer.files),
            known: HashMap::new(),
            new_task: None,
            new_path: None,
            words: text::Interner::new(1 << 14),
            names: BTreeMap::new(),
            numbers: BTreeMap::new(),
            count: 0,
            last_ns: 0,
        }
    }

    fn at(&self, time: i128) -> Result<i64, String> {
        i64::try_from(time - self.base_ns)
            .map_err(|_| "time is more than 292 years after the first; check the unit of the time column".into())
    }

    /// The number of a device given as `8:0`, `8,0`, a number or a name.
    fn dev(&mut self, word: &[u8]) -> Result<i64, String> {
        let text = String::from_utf8_lossy(word);
        let pair = text.split_once([':', ',']).and_then(|(a, b)| Some(dev_t(a.parse().ok()?, b.parse().ok()?)));
        let number = pair.or_else(|| text.parse::<u32>().ok().map(i64::from));
        if let Some(number) = number {
            self.numbers.insert(number, ());
            return Ok(number);
        }
        if word.is_empty() {
            return Err("empty device; expected MAJOR:MINOR, a number or a name".into());
        }
        // Major 0 belongs to no disk.
        let next = self.names.len() as i64 + 1;
        Ok(*self.names.entry(word.to_vec()).or_insert(next))
    }

    fn devices(&self) -> Vec<Device> {
        let named = self.names.iter().map(|(name, dev)| (*dev, text::from_bytes(name).to_string()));
        let all = named.chain(self.numbers.keys().map(|dev| (*dev, String::new())));
        all.map(|(dev, name)| Device { dev, name, ..Device::default() }).collect()
    }

    fn block(&mut self, v: &Values) -> Result<Row, String> {
        let issue = v.time.ok_or("empty issue time; every request needs one")?;
        let end = v.end.or(v.duration.map(|d| issue + d));
        if end.is_some_and(|end| end < issue) {
            return Err("request completes before it is issued; check the columns' order and units".into());
        }
        if v.queue.is_some_and(|queue| queue > issue) {
            return Err("request is issued before it is queued; check the columns' order and units".into());
        }
        let op = v.op.as_deref().ok_or("empty op; expected read, write, discard, flush, …")?;
        let op = fields::request(op).ok_or_else(|| fields::unknown_request(op))?;
        let dev = match &v.dev {
            Some(word) => self.dev(&word.clone())?,
            None => 0,
        };
        let len_bytes = v.len.unwrap_or(0);
        let sector = match v.offset {
            Some(offset) if offset % 512 != 0 => return Err(format!("offset {offset} is not a multiple of 512 bytes")),
            Some(offset) if len_bytes > 0 => offset / 512,
            _ => -1,
        };
        Ok(Row::Block(Block {
            rq_id: -1,
            queue_ns: v.queue.map(|t| self.at(t)).transpose()?,
            issue_ns: self.at(issue)?,
            complete_ns: end.map(|t| self.at(t)).transpose()?,
            dev,
            sector,
            len_bytes,
            op: self.words.get(op.as_bytes()),
            flags: 0,
            cpu: v.cpu.unwrap_or(0) as i32,
            error: v.error.unwrap_or(0) as i32,
            ..Block::default()
        }))
    }

    fn op(&mut self, v: &Values) -> Result<Row, String> {
        let start = v.time.ok_or("empty start time; every operation needs one")?;
        let dur = v.duration.or(v.end.map(|end| end - start)).unwrap_or(0);
        let dur_ns = i64::try_from(dur)
            .ok()
            .filter(|d| *d >= 0)
            .ok_or("operation ends before it starts; check the columns' order and units")?;
        let op = v.op.as_deref().filter(|o| !o.is_empty()).ok_or("empty op; expected a system call")?;
        let pid = v.pid.or(v.tid).unwrap_or(0);
        let tid = v.tid.unwrap_or(pid);
        let start_ns = self.at(start)?;
        let next = self.known.len() as i64;
        let task_id = *self.known.entry((pid, tid)).or_insert(next);
        if task_id == next {
            let comm = self.words.get(v.comm.as_deref().unwrap_or_default());
            let (pid, tid) = (pid as i32, tid as i32);
            self.new_task = Some(Task { task_id, pid, tid, start_ns: 0, comm, ..Task::default() });
        }
        self.new_path.clone_from(&v.path);
        let moved =
            matches!(op, b"read" | b"write" | b"pread64" | b"pwrite64" | b"readv" | b"writev" | b"preadv" | b"pwritev");
        Ok(Row::Op(Box::new(Op {
            op_id: -1,
            start_ns,
            dur_ns,
            cpu: v.cpu.unwrap_or(0) as i32,
            task_id,
            pid: pid as i32,
            tid: tid as i32,
            op: self.words.get(op),
            source: self.words.get(b"syscall"),
            state: self.words.get(b"complete"),
            fd: v.fd.map(|fd| fd as i32),
            offset_bytes: v.offset,
            len_bytes: v.len,
            // Without a result column, every operation counts as successful.
            ret: Some(v.ret.unwrap_or(if moved { v.len.unwrap_or(0) } else { 0 })),
            ..Op::default()
        })))
    }

    fn push(&mut self, row: Row) -> Result<()> {
        self.count += 1;
        match row {
            Row::Block(row) => {
                self.last_ns = self.last_ns.max(row.complete_ns.unwrap_or(row.issue_ns));
                Ok(self.block.push(row)?)
            }
            Row::Op(mut op) => {
                if let Some(task) = self.new_task.take() {
                    self.tasks.push(task)?;
                }
                if let Some(path) = self.new_path.take().filter(|p| !p.is_empty()) {
                    let regular: Text = self.words.get(b"regular");
                    op.file = Some(self.paths.file(&path, &regular, op.start_ns)?);
                    op.path = Some(self.words.get(&path));
                }
                self.last_ns = self.last_ns.max(op.start_ns.saturating_add(op.dur_ns));
                Ok(self.ops.push(*op)?)
            }
        }
    }
}
