//! Combines records into requests and bios.
//!
//! A record does not identify its bio or request, so they are matched by sector. An issued request contains the waiting
//! bios that tile its sectors, regardless of merges. A completion ends the issued request that starts at its sector.
//! Rows mean the same as in a recording: a part of a split bio is a bio, a part of a request that completes separately
//! is a request, and a requeued issue is not a request.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::{
    Result, Text,
    blktrace::{Record, act, category, own_payload},
    format::rows::{Bio, Block, block_flags},
};

/// Maximum number of issued requests and waiting bios per device, since a trace without completions would keep all of
/// them. No device has as many in flight.
const MOST_OPEN: usize = 256 * 1024;
/// Maximum number of written writes remembered, because the end of their flush also reports their sector.
const MOST_FLUSHED: usize = 256;

/// Receives finished rows.
pub(super) trait Rows {
    fn block(&mut self, row: Block) -> Result<()>;
    fn bio(&mut self, row: Bio) -> Result<()>;
}

/// The thread that queued a bio.
#[derive(Clone, Debug)]
pub(super) struct Queuer {
    pub(super) task_id: Option<i64>,
    pub(super) comm: Text,
}

/// A bio that is not yet issued, or the rest of a split one.
#[derive(Clone, Debug)]
struct Waiting {
    len: u64,
    kind: u32,
    /// How often its request was requeued.
    requeues: i32,
    bio: Bio,
}

#[derive(Debug)]
struct Issued {
    /// Sectors not yet completed.
    len: u64,
    kind: u32,
    row: Block,
    /// Its bios, by sector.
    bios: BySector<Waiting>,
}

/// Values with their first sector.
type BySector<T> = Vec<(u64, T)>;

/// State of one device.
#[derive(Debug, Default)]
struct Queue {
    waiting: BTreeMap<u64, VecDeque<Waiting>>,
    waiting_count: usize,
    /// Empty bios (cache flushes), by sector.
    empty: VecDeque<(u64, Bio)>,
    issued: HashMap<u64, VecDeque<Issued>>,
    issued_count: usize,
    flushes: VecDeque<Issued>,
    /// Sectors of completed writes whose flush may follow.
    flushed: VecDeque<u64>,
}

/// Combines the records of all devices.
#[derive(Debug)]
pub(super) struct Pairing {
    queues: HashMap<u32, Queue>,
    words: Words,
    next_rq: i64,
    /// Completions without a matching request or bio, or before their issue.
    pub(super) unmatched: i64,
}

/// Texts shared by all rows.
#[derive(Debug)]
struct Words {
    read: Text,
    write: Text,
    flush: Text,
    discard: Text,
    other: Text,
    metadata: Text,
    unknown: Text,
}

/// Category bits that a request and its bios share: direction, discard, driver command.
const KIND: u32 = category::WRITE | category::DISCARD | category::PC;

fn sectors(bytes: u32) -> u64 {
    u64::from(bytes) >> 9
}

/// Number of bios of a request, if any are known.
fn carried(bios: usize) -> Option<i32> {
    i32::try_from(bios).ok().filter(|n| *n > 0)
}

fn is_flush(r: &Record) -> bool {
    r.bytes == 0 && r.is(category::FLUSH) && !r.is(category::WRITE)
}

pub(super) fn flags(r: &Record) -> i32 {
    let mut out = 0;
    for (bit, flag) in [
        (category::SYNC, block_flags::SYNC),
        (category::META, block_flags::META),
        (category::AHEAD, block_flags::READAHEAD),
        (category::FUA, block_flags::FUA),
    ] {
        out |= if r.is(bit) { flag } else { 0 };
    }
    if r.is(category::FLUSH) { out | block_flags::PREFLUSH } else { out }
}

impl Pairing {
    pub(super) fn new() -> Self {
        let words = Words {
            read: "read".into(),
            write: "write".into(),
            flush: "flush".into(),
            discard: "discard".into(),
            other: "other".into(),
            metadata: "metadata".into(),
            unknown: "unknown".into(),
        };
        Self { queues: HashMap::new(), words, next_rq: 0, unmatched: 0 }
    }

    /// Handles a record. `at_ns` is its time since the start of the reel.
    pub(super) fn record(
        &mut self,
        r: &Record,
        payload: &[u8],
        at_ns: i64,
        queuer: impl FnOnce() -> Queuer,
        out: &mut impl Rows,
    ) -> Result<()> {
        match r.act() {
            act::QUEUE => {
                let Queuer { task_id, comm } = queuer();
                let bio = self.words.bio(r, at_ns, task_id, comm);
                self.queue(r).push(r.sector, r, bio);
            }
            act::SPLIT => {
                let second = own_payload(r, payload).get(..8).and_then(|p| p.try_into().ok()).map(u64::from_be_bytes);
                if let Some(second) = second {
                    self.queue(r).split(r, second);
                }
            }
            act::ISSUE => {
                let row = self.words.block(r, at_ns);
                self.queue(r).issue(r, row);
            }
            act::REQUEUE => self.queue(r).take_back(r),
            act::COMPLETE => self.complete(r, at_ns, out)?,
            _ => {}
        }
        self.keep_bounded(r.dev, out)
    }

    fn queue(&mut self, r: &Record) -> &mut Queue {
        self.queues.entry(r.dev).or_default()
    }

    fn complete(&mut self, r: &Record, at_ns: i64, out: &mut impl Rows) -> Result<()> {
        let queue = self.queues.entry(r.dev).or_default();
        if let Some(mut request) = queue.completed(r, at_ns) {
            let part = request.len > sectors(r.bytes) && r.bytes > 0;
            let error = i32::from(i16::from_ne_bytes(r.error.to_ne_bytes())).abs();
            let mut row = request.row.clone();
            row.rq_id = self.next_rq;
            self.next_rq += 1;
            row.complete_ns = Some(at_ns);
            row.error = error;
            let end = if part { r.sector.saturating_add(sectors(r.bytes)) } else { u64::MAX };
            if part {
                row.len_bytes = i64::from(r.bytes);
            }
            let mut left = Vec::new();
            let before = request.bios.len();
            for (sector, w) in std::mem::take(&mut request.bios) {
                if sector.saturating_add(w.len) > end {
                    left.push((sector, w));
                    continue;
                }
                let mut bio = w.bio;
                bio.rq_id = Some(row.rq_id);
                // After a clock jump, an end before the start is dropped.
                bio.complete_ns = Some(at_ns).filter(|t| *t >= bio.queue_ns);
                // A bio ends with its request, as in a recording. A later record about its end is ignored.
                if bio.flags & (block_flags::PREFLUSH | block_flags::FUA) != 0 {
                    queue.flushed.push_back(sector);
                    if queue.flushed.len() > MOST_FLUSHED {
                        queue.flushed.pop_front();
                    }
                }
                out.bio(bio)?;
            }
            if part {
                row.bios = carried(before - left.len());
            }
            out.block(row)?;
            if part {
                request.len -= sectors(r.bytes);
                request.row.sector = end as i64;
                request.row.len_bytes -= i64::from(r.bytes);
                request.row.bios = carried(left.len());
                request.bios = left;
                queue.add_issued(end, request);
            }
            return Ok(());
        }
        if r.bytes == 0 && queue.flush_ended(r.sector) {
            return Ok(());
        }
        // The bio itself ends: a flush, or a bio of a device without requests.
        if let Some(bio) = queue.bio_ended(r, at_ns) {
            return out.bio(bio);
        }
        self.unmatched += 1;
        Ok(())
    }

    /// Drops the oldest entries if there are too many.
    fn keep_bounded(&mut self, dev: u32, out: &mut impl Rows) -> Result<()> {
        let Some(queue) = self.queues.get_mut(&dev) else { return Ok(()) };
        if queue.issued_count + queue.waiting_count + queue.empty.len() + queue.flushes.len() <= MOST_OPEN {
            return Ok(());
        }
        let (issued, waiting) = queue.drain_open();
        let (old_issued, old_waiting) = (issued.len() / 2, waiting.len() / 2);
        for (i, (sector, request)) in issued.into_iter().enumerate() {
            if i < old_issued {
                Self::give_up(&mut self.next_rq, request, out)?;
            } else {
                queue.add_issued(sector, request);
            }
        }
        for (i, (sector, w)) in waiting.into_iter().enumerate() {
            if i < old_waiting { out.bio(w.bio)? } else { queue.add_waiting(sector, w) }
        }
        for (_, bio) in queue.empty.drain(..) {
            out.bio(bio)?;
        }
        for request in queue.flushes.drain(..) {
            Self::give_up(&mut self.next_rq, request, out)?;
        }
        Ok(())
    }

    fn give_up(next_rq: &mut i64, request: Issued, out: &mut impl Rows) -> Result<()> {
        let mut row = request.row;
        row.rq_id = *next_rq;
        *next_rq += 1;
        for (_, w) in request.bios {
            out.bio(Bio { rq_id: Some(row.rq_id), ..w.bio })?;
        }
        out.block(row)
    }

    /// At the end of the trace: writes open requests and bios without an end.
    pub(super) fn finish(&mut self, out: &mut impl Rows) -> Result<()> {
        let mut queues: Vec<_> = std::mem::take(&mut self.queues).into_iter().collect();
        queues.sort_by_key(|(dev, _)| *dev);
        for (_, mut queue) in queues {
            let (issued, waiting) = queue.drain_open();
            for request in issued.into_iter().map(|(_, request)| request).chain(queue.flushes) {
                Self::give_up(&mut self.next_rq, request, out)?;
            }
            let open = waiting.into_iter().map(|(_, w)| w.bio);
            for bio in open.chain(queue.empty.into_iter().map(|(_, bio)| bio)) {
                out.bio(bio)?;
            }
        }
        Ok(())
    }
}

impl Queue {
    fn push(&mut self, sector: u64, r: &Record, bio: Bio) {
        if r.bytes == 0 {
            self.empty.push_back((sector, bio));
        } else {
            self.add_waiting(sector, Waiting { len: sectors(r.bytes), kind: r.action & KIND, requeues: 0, bio });
        }
    }

    fn add_waiting(&mut self, sector: u64, w: Waiting) {
        self.waiting.entry(sector).or_default().push_back(w);
        self.waiting_count += 1;
    }

    fn add_issued(&mut self, sector: u64, request: Issued) {
        self.issued.entry(sector).or_default().push_back(request);
        self.issued_count += 1;
    }

    /// Removes the oldest waiting bio of this kind that starts at `sector` and ends by `end`.
    fn take_waiting(&mut self, sector: u64, end: u64, kind: u32) -> Option<Waiting> {
        let here = self.waiting.get_mut(&sector)?;
        let i = here.iter().position(|w| w.kind == kind && sector.saturating_add(w.len) <= end)?;
        let taken = here.remove(i)?;
        if here.is_empty() {
            self.waiting.remove(&sector);
        }
        self.waiting_count -= 1;
        Some(taken)
    }

    /// Splits the youngest waiting bio that starts at the record's sector and extends beyond `second`.
    fn split(&mut self, r: &Record, second: u64) {
        let kind = r.action & KIND;
        let Some(first_len) = second.checked_sub(r.sector).filter(|len| *len > 0) else { return };
        let Some(here) = self.waiting.get_mut(&r.sector) else { return };
        let Some(w) = here.iter_mut().rev().find(|w| w.kind == kind && w.len > first_len) else { return };
        let mut rest = w.clone();
        rest.len = w.len - first_len;
        w.len = first_len;
        w.bio.len_bytes = (first_len << 9) as i64;
        rest.bio.len_bytes -= w.bio.len_bytes;
        rest.bio.sector = second as i64;
        self.add_waiting(second, rest);
    }

    fn issue(&mut self, r: &Record, row: Block) {
        if is_flush(r) {
            let row = Block { bios: Some(0), ..row };
            self.flushes.push_back(Issued { len: 0, kind: 0, row, bios: Vec::new() });
            return;
        }
        let (len, kind) = (sectors(r.bytes), r.action & KIND);
        let end = r.sector.saturating_add(len);
        let mut bios = Vec::new();
        let mut at = r.sector;
        while at < end {
            if let Some(w) = self.take_waiting(at, end, kind) {
                let next = at.saturating_add(w.len.max(1));
                bios.push((at, w));
                at = next;
                continue;
            }
            // A bio was queued before the trace or its record was lost: continue at the next known bio.
            match self.waiting.range(at.saturating_add(1)..end).next() {
                Some((next, _)) => at = *next,
                None => break,
            }
        }
        let queue_ns = bios.iter().map(|(_, w): &(u64, Waiting)| w.bio.queue_ns).min();
        let row = Block {
            queue_ns: queue_ns.filter(|q| *q <= row.issue_ns),
            // Without bios, the queue time is unknown: they were queued before the trace, or the trace has no such
            // records.
            requeues: bios.iter().map(|(_, w)| w.requeues).max(),
            bios: carried(bios.len()),
            ..row
        };
        self.add_issued(r.sector, Issued { len, kind, row, bios });
    }

    fn take_back(&mut self, r: &Record) {
        if is_flush(r) {
            self.flushes.pop_back();
        } else if let Some(request) = self.take_issued(r, i64::MAX) {
            for (sector, mut w) in request.bios {
                w.requeues = w.requeues.saturating_add(1);
                self.add_waiting(sector, w);
            }
        }
    }

    /// Removes the issued request at the record's sector: one with the same length, otherwise the oldest longer one.
    fn take_issued(&mut self, r: &Record, at_ns: i64) -> Option<Issued> {
        let (len, kind) = (sectors(r.bytes), r.action & KIND);
        let here = self.issued.get_mut(&r.sector)?;
        let fits = |i: &Issued| i.kind == kind && i.row.issue_ns <= at_ns;
        let exact = here.iter().position(|i| fits(i) && i.len == len);
        let longer = || if len > 0 { here.iter().position(|i| fits(i) && i.len > len) } else { None };
        let taken = here.remove(exact.or_else(longer)?)?;
        if here.is_empty() {
            self.issued.remove(&r.sector);
        }
        self.issued_count -= 1;
        Some(taken)
    }

    /// The request that a completion ends, completely or in part.
    fn completed(&mut self, r: &Record, at_ns: i64) -> Option<Issued> {
        if is_flush(r) {
            return if self.flushes.front()?.row.issue_ns <= at_ns { self.flushes.pop_front() } else { None };
        }
        self.take_issued(r, at_ns)
    }

    /// The bio that a completion without a request ends.
    fn bio_ended(&mut self, r: &Record, at_ns: i64) -> Option<Bio> {
        let end = |mut bio: Bio| {
            bio.complete_ns = Some(at_ns).filter(|t| *t >= bio.queue_ns);
            bio
        };
        if r.bytes > 0 {
            let whole = r.sector.saturating_add(sectors(r.bytes));
            let w = self.take_waiting(r.sector, whole, r.action & KIND)?;
            return if w.bio.queue_ns <= at_ns { Some(end(w.bio)) } else { None };
        }
        let i = self.empty.iter().position(|(sector, bio)| *sector == r.sector && bio.queue_ns <= at_ns)?;
        self.empty.remove(i).map(|(_, bio)| end(bio))
    }

    /// Whether a write to this sector was waiting for the end of its flush.
    fn flush_ended(&mut self, sector: u64) -> bool {
        let i = self.flushed.iter().position(|s| *s == sector);
        i.is_some_and(|i| self.flushed.remove(i).is_some())
    }

    /// All open requests and bios, oldest first.
    fn drain_open(&mut self) -> (BySector<Issued>, BySector<Waiting>) {
        let each = |(sector, all): (u64, VecDeque<Issued>)| all.into_iter().map(move |one| (sector, one));
        let mut issued: Vec<_> = self.issued.drain().flat_map(each).collect();
        issued.sort_by_key(|(sector, request)| (request.row.issue_ns, *sector));
        let each = |(sector, all): (u64, VecDeque<Waiting>)| all.into_iter().map(move |one| (sector, one));
        let mut waiting: Vec<_> = std::mem::take(&mut self.waiting).into_iter().flat_map(each).collect();
        waiting.sort_by_key(|(_, w)| w.bio.queue_ns);
        self.issued_count = 0;
        self.waiting_count = 0;
        (issued, waiting)
    }
}

impl Words {
    fn op(&self, r: &Record) -> Text {
        let word = match r {
            r if is_flush(r) => &self.flush,
            r if r.is(category::PC) => &self.other,
            r if r.is(category::DISCARD) => &self.discard,
            r if r.is(category::WRITE) => &self.write,
            _ => &self.read,
        };
        word.clone()
    }

    fn block(&self, r: &Record, at_ns: i64) -> Block {
        Block {
            rq_id: -1,
            queue_ns: None,
            issue_ns: at_ns,
            complete_ns: None,
            dev: i64::from(r.dev),
            sector: if r.bytes == 0 { -1 } else { r.sector as i64 },
            len_bytes: i64::from(r.bytes),
            op: self.op(r),
            flags: flags(r),
            cpu: r.cpu as i32,
            error: 0,
            ..Block::default()
        }
    }

    fn bio(&self, r: &Record, at_ns: i64, task_id: Option<i64>, comm: Text) -> Bio {
        let (class, confidence) = match r {
            r if r.bytes == 0 => (&self.flush, 100),
            r if r.is(category::META) => (&self.metadata, 90),
            _ => (&self.unknown, 0),
        };
        Bio {
            bio_id: -1,
            queue_ns: at_ns,
            dev: i64::from(r.dev),
            sector: if r.bytes == 0 { -1 } else { r.sector as i64 },
            len_bytes: i64::from(r.bytes),
            op: self.op(r),
            flags: flags(r),
            task_id,
            comm,
            class: class.clone(),
            confidence,
            ..Bio::default()
        }
    }
}

#[cfg(test)]
mod tests;
