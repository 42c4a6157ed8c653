//! Creates records from rows, for reels that were not imported from a block trace.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
};

use crate::{
    Reel, Text,
    blktrace::{Record, act, category, note, padded},
    export::Result,
    format::{
        manifest::dev_name,
        rows::{Bio, Block, Task, block_flags},
        text,
    },
    reader::ordered::Ordered,
};

use super::{Exported, files::Files};

/// First number for threads whose id the reel does not contain. Larger than any Linux thread id (2^22).
const FIRST_MADE_UP_PID: u32 = (1 << 22) + 1;

/// Writes the records.
pub(super) fn make(reel: &Reel, files: &mut Files, exported: &mut Exported) -> Result<()> {
    let mut maker = Maker::new(reel, files)?;
    let (mut bios, mut blocks) = (Ordered::<Bio>::new(reel), Ordered::<Block>::new(reel));
    loop {
        let (bio, block) = (bios.peek_ns()?, blocks.peek_ns()?);
        let Some(now) = bio.into_iter().chain(block).min() else { break };
        maker.write_until(now)?;
        // A bio is queued before its request is issued, even within the same ns.
        if bio == Some(now) {
            if let Some(row) = bios.next()? {
                let mut pieces = vec![row];
                while bios.peek_ns()? == Some(now)
                    && let Some(next) = bios.next()?
                {
                    pieces.push(next);
                }
                maker.bios(pieces);
            }
        } else if let Some(row) = blocks.next()? {
            maker.block(&row);
        }
    }
    maker.write_until(i64::MAX)?;
    exported.records = maker.records;
    if maker.zeroing > 0 {
        let n = maker.zeroing;
        exported.notes.push(format!(
            "{n} requests that write zeroes or manage zones were exported as writes; block traces cannot represent them"
        ));
    }
    Ok(())
}

/// An event. Ordered by time, then by creation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at_ns: i64,
    number: u64,
    act: u32,
    dev: i64,
    cpu: u32,
    sector: u64,
    bytes: u32,
    /// Category bits.
    kind: u32,
    pid: u32,
    comm: Option<Text>,
    error: u16,
    payload: Option<u64>,
    /// The issued request.
    rq_id: Option<i64>,
}

struct Maker<'a> {
    files: &'a mut Files,
    base_ns: i64,
    names: BTreeMap<i64, String>,
    reel: Reel,
    threads: HashMap<i64, u32>,
    cpus: Cpus,
    /// Invented thread numbers by name.
    made_up: HashMap<Text, u32>,
    /// The name last written for each thread number.
    told: HashMap<u32, Text>,
    /// First sector, end sector and first queuer of requests that have bios and are not yet issued.
    growing: HashMap<i64, (u64, u64, u32)>,
    pending: BinaryHeap<Reverse<Event>>,
    number: u64,
    sequences: HashMap<(i64, u32), u32>,
    records: i64,
    zeroing: i64,
}

/// The CPU that issued each request. Its bios go to that CPU's file, because a reel does not record where a bio was
/// queued.
#[derive(Debug, Default)]
struct Cpus {
    first: i64,
    dense: Vec<u16>,
}

/// In [`Cpus`]: no such request.
const NO_CPU: u16 = u16::MAX;

impl Cpus {
    fn of(reel: &Reel) -> Result<Self> {
        let (mut least, mut greatest) = (i64::MAX, i64::MIN);
        let rows = || reel.batches::<Block>(&["rq_id", "cpu"]);
        let each = |f: &mut dyn FnMut(i64, i32)| -> Result<()> {
            for batch in rows() {
                let batch = batch?;
                let bad = |why| crate::ReelError::BadSegment { path: "block".into(), why };
                let ids = crate::format::table::column::<i64>(&batch, "rq_id").map_err(bad)?;
                let cpus = crate::format::table::column::<i32>(&batch, "cpu").map_err(bad)?;
                for i in 0..batch.num_rows() {
                    use crate::format::table::Cell;
                    f(i64::get(&ids, i), i32::get(&cpus, i));
                }
            }
            Ok(())
        };
        each(&mut |id, _| (least, greatest) = (least.min(id), greatest.max(id)))?;
        let span = greatest.checked_sub(least).and_then(|s| usize::try_from(s).ok()).unwrap_or(usize::MAX);
        // Ids are consecutive. Ids far apart are not valid, and must not determine how much memory is allocated.
        if span > 64 * 1024 + 8 * usize::try_from(reel.count::<Block>()).unwrap_or(0) {
            return Ok(Self::default());
        }
        let mut out = Self { first: least, dense: vec![NO_CPU; span + 1] };
        each(&mut |id, cpu| {
            if let Some(slot) = usize::try_from(id - least).ok().and_then(|i| out.dense.get_mut(i)) {
                *slot = u16::try_from(cpu).unwrap_or(0);
            }
        })?;
        Ok(out)
    }

    fn get(&self, rq_id: i64) -> Option<u32> {
        let at = rq_id.checked_sub(self.first).and_then(|i| usize::try_from(i).ok())?;
        self.dense.get(at).filter(|cpu| **cpu != NO_CPU).map(|cpu| u32::from(*cpu))
    }
}

/// Category bits of an operation.
fn kind(op: &str, flags: i32) -> u32 {
    let mut out = match op {
        "read" => category::READ,
        // REQ_OP_FLUSH is even, so the tracer does not count it as a write.
        "flush" => category::READ | category::FLUSH,
        "discard" | "secure_erase" => category::WRITE | category::DISCARD,
        "other" => category::READ | category::PC,
        _ => category::WRITE,
    };
    for (flag, bit) in [
        (block_flags::SYNC, category::SYNC),
        (block_flags::META, category::META),
        (block_flags::READAHEAD, category::AHEAD),
        (block_flags::FUA, category::FUA),
        (block_flags::PREFLUSH, category::FLUSH),
    ] {
        out |= if flags & flag != 0 { bit } else { 0 };
    }
    out
}

/// The category of an event.
fn category_of(what: u32) -> u32 {
    match what {
        act::ISSUE => category::ISSUE,
        act::COMPLETE => category::COMPLETE,
        act::SPLIT => 0,
        _ => category::QUEUE,
    }
}

fn sector(sector: i64) -> u64 {
    u64::try_from(sector).unwrap_or(0)
}

fn bytes(len: i64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl<'a> Maker<'a> {
    fn new(reel: &Reel, files: &'a mut Files) -> Result<Self> {
        let tasks = reel.rows::<Task>().collect::<crate::Result<Vec<Task>>>()?;
        Ok(Self {
            files,
            base_ns: reel.manifest.clock.monotonic_ns,
            names: BTreeMap::new(),
            reel: reel.clone(),
            threads: tasks.into_iter().map(|t| (t.task_id, t.tid as u32)).collect(),
            cpus: Cpus::of(reel)?,
            made_up: HashMap::new(),
            told: HashMap::new(),
            growing: HashMap::new(),
            pending: BinaryHeap::new(),
            number: 0,
            sequences: HashMap::new(),
            records: 0,
            zeroing: 0,
        })
    }

    fn push(&mut self, event: Event) {
        self.number += 1;
        self.pending.push(Reverse(Event { number: self.number, ..event }));
    }

    /// The id of the thread that queued a bio, or an invented one if the reel has only its name.
    fn pid(&mut self, bio: &Bio) -> u32 {
        if let Some(pid) = bio.task_id.and_then(|t| self.threads.get(&t)) {
            return *pid;
        }
        if bio.comm.is_empty() {
            return 0;
        }
        let next = FIRST_MADE_UP_PID + self.made_up.len() as u32;
        *self.made_up.entry(bio.comm.clone()).or_insert(next)
    }

    /// Writes bios queued in the same ns. Parts of a split bio are among them; they are adjacent on disk.
    fn bios(&mut self, rows: Vec<Bio>) {
        let mut rest = &rows[..];
        while let [first, more @ ..] = rest {
            let mut end = first.sector.saturating_add(first.len_bytes >> 9);
            let mut pieces = 1;
            for next in more {
                let same = (next.dev, &next.op, next.flags, next.task_id, &next.comm)
                    == (first.dev, &first.op, first.flags, first.task_id, &first.comm);
                if first.len_bytes == 0 || next.sector != end || !same {
                    break;
                }
                end = end.saturating_add(next.len_bytes >> 9);
                pieces += 1;
            }
            self.bio(&rest[..pieces]);
            rest = &rest[pieces..];
        }
    }

    /// Writes one bio, in parts if it was split.
    fn bio(&mut self, pieces: &[Bio]) {
        let Some(first) = pieces.first() else { return };
        let pid = self.pid(first);
        // An empty flush is queued as a write without data.
        let kind = if first.len_bytes == 0 {
            kind("write", first.flags | block_flags::PREFLUSH)
        } else {
            kind(&first.op, first.flags)
        };
        let cpu = first.rq_id.and_then(|rq| self.cpus.get(rq)).unwrap_or(0);
        let event = |what: u32, from: &Bio, len: i64| Event {
            at_ns: from.queue_ns,
            number: 0,
            act: what,
            dev: from.dev,
            cpu,
            sector: sector(from.sector),
            bytes: bytes(len),
            kind,
            pid,
            comm: Some(from.comm.clone()),
            error: 0,
            payload: None,
            rq_id: None,
        };
        let whole = pieces.iter().map(|p| p.len_bytes).fold(0i64, i64::saturating_add);
        self.push(event(act::QUEUE, first, whole));
        for (i, piece) in pieces.iter().enumerate() {
            if i + 1 < pieces.len() {
                let second = sector(piece.sector) + u64::from(bytes(piece.len_bytes) >> 9);
                self.push(Event { payload: Some(second), ..event(act::SPLIT, piece, piece.len_bytes) });
            }
            match piece.rq_id {
                Some(rq) if self.cpus.get(rq).is_some() && piece.len_bytes > 0 => {
                    let (from, to) =
                        (sector(piece.sector), sector(piece.sector) + u64::from(bytes(piece.len_bytes) >> 9));
                    let what = match self.growing.get_mut(&rq) {
                        None => {
                            self.growing.insert(rq, (from, to, pid));
                            act::GET_RQ
                        }
                        Some((first, end, _)) if to == *first => {
                            (*first, _) = (from, *end);
                            act::FRONT_MERGE
                        }
                        Some((_, end, _)) => {
                            *end = to;
                            act::BACK_MERGE
                        }
                    };
                    self.push(event(what, piece, piece.len_bytes));
                }
                // Without a request, the bio completes by itself.
                _ => {
                    if let Some(done) = piece.complete_ns {
                        let end = event(act::COMPLETE, piece, piece.len_bytes);
                        self.push(Event { at_ns: done.max(piece.queue_ns), pid: 0, comm: None, ..end });
                    }
                }
            }
        }
    }

    fn block(&mut self, row: &Block) {
        let kind = kind(&row.op, row.flags);
        if !matches!(&*row.op, "read" | "write" | "flush" | "discard" | "secure_erase" | "other") {
            self.zeroing += 1;
        }
        let issue = Event {
            at_ns: row.issue_ns,
            number: 0,
            act: act::ISSUE,
            dev: row.dev,
            cpu: u32::try_from(row.cpu).unwrap_or(0),
            sector: sector(row.sector),
            bytes: bytes(row.len_bytes),
            kind,
            pid: 0,
            comm: None,
            error: 0,
            payload: None,
            rq_id: Some(row.rq_id),
        };
        if let Some(done) = row.complete_ns {
            let error = row.error.unsigned_abs().min(4095) as u16;
            let (act, error) = (act::COMPLETE, 0u16.wrapping_sub(error));
            self.push(Event { at_ns: done.max(row.issue_ns), act, error, rq_id: None, comm: None, ..issue });
        }
        self.push(Event { comm: None, ..issue });
    }

    /// Writes all events up to and including this time.
    fn write_until(&mut self, now: i64) -> Result<()> {
        while let Some(Reverse(event)) = self.pending.peek()
            && event.at_ns < now
        {
            let Some(Reverse(event)) = self.pending.pop() else { break };
            self.write(event)?;
        }
        Ok(())
    }

    fn write(&mut self, event: Event) -> Result<()> {
        let name = match self.names.get(&event.dev) {
            Some(name) => name.clone(),
            None => {
                let known = self.reel.manifest.device(event.dev).map(|d| d.name.clone()).filter(|n| !n.is_empty());
                let name = known.unwrap_or_else(|| dev_name(event.dev).replace(':', "-"));
                self.names.insert(event.dev, name.clone());
                name
            }
        };
        let time_ns = event.at_ns.saturating_add(if self.files.dump() { 0 } else { self.base_ns }).max(0) as u64;
        let mut record = Record { time_ns, dev: event.dev as u32, cpu: event.cpu, pid: event.pid, ..Record::default() };
        if self.records == 0 {
            self.time_of_day(&name, &record)?;
        }
        if let Some(comm) = event.comm.filter(|c| event.pid != 0 && self.told.get(&event.pid) != Some(c)) {
            let bytes = padded(&text::to_bytes(&comm));
            let told = Record { action: category::NOTIFY | note::PROCESS, payload_bytes: 16, ..record };
            self.told.insert(event.pid, comm);
            self.files.write(&name, &told, &bytes)?;
            self.records += 1;
        }
        if let Some((_, _, pid)) = event.rq_id.and_then(|rq| self.growing.remove(&rq)) {
            record.pid = pid;
        }
        let sequence = self.sequences.entry((event.dev, event.cpu)).or_default();
        *sequence = sequence.wrapping_add(1);
        record.sequence = *sequence;
        record.sector = event.sector;
        record.bytes = event.bytes;
        record.action = event.act | category_of(event.act) | event.kind;
        record.error = event.error;
        let payload = event.payload.map(u64::to_be_bytes);
        let payload = payload.as_ref().map(|p| &p[..]).unwrap_or_default();
        record.payload_bytes = payload.len() as u16;
        self.records += 1;
        self.files.write(&name, &record, payload)
    }

    /// Writes the time of day, which blktrace writes first.
    fn time_of_day(&mut self, name: &str, first: &Record) -> Result<()> {
        let day = self.reel.manifest.clock.realtime_ns;
        if day <= 0 {
            return Ok(());
        }
        let time_ns = self.base_ns.max(0) as u64;
        let note = Record { action: category::NOTIFY | note::TIMESTAMP, payload_bytes: 8, pid: 0, time_ns, ..*first };
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&((day / 1_000_000_000) as u32).to_le_bytes());
        payload[4..].copy_from_slice(&((day % 1_000_000_000) as u32).to_le_bytes());
        self.records += 1;
        self.files.write(name, &note, &payload)
    }
}
