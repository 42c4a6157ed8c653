//! Makes rows from the values of lines.

use std::collections::{BTreeMap, HashMap};

use super::{
    Options, Rows,
    judge::{Checked, Judge},
    values::Values,
};
use crate::{
    ReelWriter, TableWriter, Text,
    format::{
        manifest::Device,
        rows::{Bio, Block, Op, Task},
        text,
    },
    host::dev_t,
    import::{Result, paths::Paths},
};

/// Rows of one line.
pub(super) enum Row {
    Block(Block, Option<Box<Bio>>),
    Op(Box<Op>),
}

/// A thread in the trace: process, thread and name.
type Thread = (i32, i32, Text);

pub(super) struct Maker<'a> {
    rows: Rows,
    judge: Judge<'a>,
    /// Time 0 on the clock of the file. If not given, that of the first row.
    base_ns: Option<i128>,
    /// Whether a row was before time 0, which ends the import.
    pub(super) is_earlier: bool,
    block: &'a mut TableWriter<Block>,
    bio: &'a mut TableWriter<Bio>,
    ops: &'a mut TableWriter<Op>,
    tasks: &'a mut TableWriter<Task>,
    paths: Paths<'a>,
    known: HashMap<Thread, i64>,
    new_task: Option<Task>,
    new_path: Option<Vec<u8>>,
    words: text::Interner,
    /// The last device.
    last_dev: (Vec<u8>, i64),
    /// A buffer for the name of a device.
    name: Vec<u8>,
    /// Devices identified by name instead of number.
    names: BTreeMap<Vec<u8>, i64>,
    numbers: BTreeMap<i64, ()>,
    /// Rows of the table so far.
    pub(super) count: i64,
    /// Bios so far.
    pub(super) bios: i64,
    pub(super) last_ns: i64,
}

impl<'a> Maker<'a> {
    pub(super) fn new(writer: &'a mut ReelWriter, base_ns: Option<i128>, options: &'a Options) -> Self {
        Self {
            rows: options.rows,
            judge: Judge::new(options),
            base_ns,
            is_earlier: false,
            block: &mut writer.block,
            bio: &mut writer.bio,
            ops: &mut writer.ops,
            tasks: &mut writer.tasks,
            paths: Paths::new(&mut writer.files),
            known: HashMap::new(),
            new_task: None,
            new_path: None,
            words: text::Interner::new(1 << 14),
            last_dev: Default::default(),
            name: Vec::new(),
            names: BTreeMap::new(),
            numbers: BTreeMap::new(),
            count: 0,
            bios: 0,
            last_ns: 0,
        }
    }

    /// The rows of a line, or why there are none. `ops`: the meaning of words in the operation column.
    pub(super) fn row(&mut self, v: &Values, ops: &[(String, String)]) -> Result<Row, String> {
        match self.rows {
            Rows::Block => {
                let checked = self.judge.request(v, ops)?;
                self.begin(v)?;
                self.request(v, checked)
            }
            Rows::Ops => {
                let (checked, op) = self.judge.op(v)?;
                self.begin(v)?;
                self.op(v, checked, op)
            }
        }
    }

    /// Whether the row is not before time 0.
    fn begin(&mut self, v: &Values) -> Result<(), String> {
        if let Some(earliest) = v.earliest()
            && earliest < *self.base_ns.get_or_insert(earliest)
        {
            self.is_earlier = true;
            return Err("time is before that of the first row".into());
        }
        Ok(())
    }

    fn at(&self, time: i128) -> Result<i64, String> {
        i64::try_from(time - self.base_ns.unwrap_or(0))
            .map_err(|_| "time is more than 292 years after the first; check the unit of the time column".into())
    }

    /// The number of the device.
    fn dev(&mut self, v: &Values) -> Result<i64, String> {
        if let (Some(major), Some(minor)) = (v.major, v.minor) {
            let pair = u32::try_from(major).ok().filter(|n| *n < 1 << 12).zip(u32::try_from(minor).ok());
            let pair = pair.filter(|(_, minor)| *minor < 1 << 20);
            let (major, minor) = pair.ok_or("major or minor is not a device's; check the columns' order")?;
            self.numbers.insert(dev_t(major, minor), ());
            return Ok(dev_t(major, minor));
        }
        if v.host.is_empty() && v.dev.is_empty() {
            return Ok(0);
        }
        if v.host.is_empty() {
            return Ok(self.named_dev(&v.dev));
        }
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        for part in [&v.host[..], b"_", &v.dev[..]] {
            name.extend_from_slice(part);
        }
        let dev = self.named_dev(&name);
        self.name = name;
        Ok(dev)
    }

    /// The number of a device given as `8:0`, `8,0`, a number or a name.
    fn named_dev(&mut self, word: &[u8]) -> i64 {
        if self.last_dev.0 == word {
            return self.last_dev.1;
        }
        let text = String::from_utf8_lossy(word);
        let pair = text.split_once([':', ',']).and_then(|(a, b)| Some(dev_t(a.parse().ok()?, b.parse().ok()?)));
        let number = pair.or_else(|| text.parse::<u32>().ok().map(i64::from));
        let dev = match number {
            Some(number) => {
                self.numbers.insert(number, ());
                number
            }
            None => {
                // Major 0 belongs to no disk.
                let next = self.names.len() as i64 + 1;
                *self.names.entry(word.to_vec()).or_insert(next)
            }
        };
        self.last_dev = (word.to_vec(), dev);
        dev
    }

    pub(super) fn devices(&self) -> Vec<Device> {
        let named = self.names.iter().map(|(name, dev)| (*dev, text::from_bytes(name).to_string()));
        let all = named.chain(self.numbers.keys().map(|dev| (*dev, String::new())));
        all.map(|(dev, name)| Device { dev, name, ..Device::default() }).collect()
    }

    /// The thread of these values, new or known. `at_ns`: its start, if it is new.
    fn task(&mut self, pid: i32, tid: i32, comm: &Text, at_ns: i64) -> i64 {
        let next = self.known.len() as i64;
        let task_id = *self.known.entry((pid, tid, comm.clone())).or_insert(next);
        if task_id == next {
            self.new_task = Some(Task { task_id, pid, tid, start_ns: at_ns, comm: comm.clone(), ..Task::default() });
        }
        task_id
    }

    fn request(&mut self, v: &Values, checked: Checked) -> Result<Row, String> {
        let mut row = Block {
            rq_id: -1,
            queue_ns: v.queue.map(|t| self.at(t)).transpose()?,
            issue_ns: self.at(checked.start)?,
            complete_ns: checked.end.map(|t| self.at(t)).transpose()?,
            sector: checked.sector,
            len_bytes: v.len.unwrap_or(0),
            op: Text::word(checked.request),
            flags: 0,
            cpu: v.cpu.unwrap_or(0),
            error: v.error.unwrap_or(0),
            ..Block::default()
        };
        row.dev = self.dev(v)?;
        let told = v.pid.is_some() || v.tid.is_some() || !v.comm.is_empty();
        let bio = if told { Some(Box::new(self.bio(v, &mut row))) } else { None };
        Ok(Row::Block(row, bio))
    }

    /// The bio of a request whose thread is known: only bios have threads.
    fn bio(&mut self, v: &Values, row: &mut Block) -> Bio {
        row.rq_id = self.count;
        row.bios = Some(1);
        let queue_ns = row.queue_ns.unwrap_or(row.issue_ns);
        let comm = self.words.get(&v.comm);
        let pid = v.pid.or(v.tid);
        let task_id = pid.map(|pid| self.task(pid, v.tid.unwrap_or(pid), &comm, 0));
        Bio {
            bio_id: -1,
            rq_id: Some(row.rq_id),
            queue_ns,
            complete_ns: row.complete_ns,
            dev: row.dev,
            sector: row.sector,
            len_bytes: row.len_bytes,
            op: row.op.clone(),
            task_id,
            comm,
            class: self.words.get(if row.len_bytes == 0 { b"flush" } else { b"unknown" }),
            confidence: if row.len_bytes == 0 { 100 } else { 0 },
            ..Bio::default()
        }
    }

    fn op(&mut self, v: &Values, checked: Checked, op: &[u8]) -> Result<Row, String> {
        let start = checked.start;
        let dur_ns = checked.end.map_or(0, |end| (end - start) as i64);
        let pid = v.pid.or(v.tid).unwrap_or(0);
        let tid = v.tid.unwrap_or(pid);
        let start_ns = self.at(start)?;
        // One task per thread: its name is the first one.
        let next = self.known.len() as i64;
        let task_id = *self.known.entry((pid, tid, Text::default())).or_insert(next);
        if task_id == next {
            let comm = self.words.get(&v.comm);
            self.new_task = Some(Task { task_id, pid, tid, start_ns: 0, comm, ..Task::default() });
        }
        self.new_path = Some(v.path.clone()).filter(|p| !p.is_empty());
        let moved =
            matches!(op, b"read" | b"write" | b"pread64" | b"pwrite64" | b"readv" | b"writev" | b"preadv" | b"pwritev");
        Ok(Row::Op(Box::new(Op {
            op_id: -1,
            start_ns,
            dur_ns,
            cpu: v.cpu.unwrap_or(0),
            task_id,
            pid,
            tid,
            op: self.words.get(op),
            source: self.words.get(b"syscall"),
            state: self.words.get(b"complete"),
            fd: v.fd,
            offset_bytes: v.offset,
            len_bytes: v.len,
            // Without a result column, every operation counts as successful.
            ret: Some(v.ret.unwrap_or(if moved { v.len.unwrap_or(0) } else { 0 })),
            ..Op::default()
        })))
    }

    pub(super) fn push(&mut self, row: Row) -> Result<()> {
        self.count += 1;
        if let Some(task) = self.new_task.take() {
            self.tasks.push(task)?;
        }
        match row {
            Row::Block(row, bio) => {
                self.last_ns = self.last_ns.max(row.complete_ns.unwrap_or(row.issue_ns));
                if let Some(bio) = bio {
                    self.bios += 1;
                    self.bio.push(*bio)?;
                }
                Ok(self.block.push(row)?)
            }
            Row::Op(mut op) => {
                if let Some(path) = self.new_path.take() {
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
