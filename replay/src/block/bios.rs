//! Reads the bios of one device in the order in which they were queued.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
};

use ioreel_traces::{
    Reel, Text,
    manifest::dev_name,
    reader::Rows,
    rows::{Bio, Block, block_flags},
    suggest,
    table::Row,
};
use serde::Serialize;

use crate::{
    ReplayError,
    verdict::concurrency::{InFlight, Level},
};

/// Unit of sector numbers in a reel, whatever the device's block size.
pub(super) const SECTOR_BYTES: i64 = 512;
/// Longest read or write that is replayed. No kernel puts more into a bio.
const MOST_DATA_BYTES: i64 = 64 << 20;

/// Times beyond this (36 years) are damaged data.
const MOST_NS: u64 = 1 << 60;

/// Operation of a bio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush of the device's cache. Has no address.
    Flush,
    /// Discard.
    Discard,
    /// Writing zeros without transferring data.
    WriteZeroes,
}

impl Kind {
    /// Name in the reel's `op` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "write_zeroes",
        }
    }

    fn of(op: &str) -> Option<Self> {
        [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes].into_iter().find(|k| k.name() == op)
    }

    /// Whether it changes data on the device.
    pub(super) fn changes(self) -> bool {
        matches!(self, Self::Write | Self::Discard | Self::WriteZeroes)
    }
}

/// One bio to issue.
#[derive(Clone, Debug)]
pub(super) struct Io {
    pub(super) kind: Kind,
    /// When it ended in the recording.
    pub(super) complete_ns: i64,
    /// Number of the thread that queued it, from 0.
    pub(super) thread: u32,
    /// How many bios were in flight after it was queued, itself included.
    pub(super) together: u32,
    /// The recorded row.
    pub(super) row: Bio,
}

impl Io {
    /// For pace `load`: whether it may be issued while `in_flight` others are. One bio may always be in flight.
    pub(super) fn may_join(&self, in_flight: usize) -> bool {
        in_flight < self.together.max(1) as usize
    }

    pub(super) fn queue_ns(&self) -> i64 {
        self.row.queue_ns
    }

    /// Whether earlier writes must be on the medium before it (flush or PREFLUSH).
    pub(super) fn flushes(&self) -> bool {
        self.kind == Kind::Flush || self.row.flags & block_flags::PREFLUSH != 0
    }

    /// Whether it must be on the medium when it ends (FUA).
    pub(super) fn is_fua(&self) -> bool {
        self.row.flags & block_flags::FUA != 0
    }
}

/// The table from which bios are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Bio,
    Block,
}

impl Table {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bio => Bio::TABLE,
            Self::Block => Block::TABLE,
        }
    }
}

/// What is going to be issued, and what is skipped.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Survey {
    /// Bios to issue.
    pub ios: i64,
    /// Those that change data on the device.
    pub writes: i64,
    /// By operation: number of bios, and bytes.
    pub kinds: BTreeMap<Kind, (i64, i64)>,
    /// Bios that are skipped, by reason.
    pub skipped: BTreeMap<&'static str, i64>,
    /// End of the highest recorded address, bytes.
    pub reach_bytes: i64,
    /// Longest read or write.
    #[serde(skip)]
    pub(super) longest_bytes: i64,
    /// Time at which the first bio was queued, then the last.
    #[serde(skip)]
    pub(super) first_ns: i64,
    #[serde(skip)]
    pub(super) last_ns: i64,
}

/// The operation of a row, or why it is skipped.
fn kind(row: &Bio, allow_writes: bool) -> Result<Kind, &'static str> {
    let kind = Kind::of(&row.op).ok_or(match &*row.op {
        "zone_append" | "zone_mgmt" => "operations on zones",
        _ => "operations of other kinds",
    })?;
    let flushes = row.flags & block_flags::PREFLUSH != 0;
    // A flush may be recorded as an empty write with the flag PREFLUSH.
    let kind = if flushes && row.len_bytes == 0 { Kind::Flush } else { kind };
    if row.queue_ns.unsigned_abs() > MOST_NS {
        return Err("at no possible time");
    }
    if row.error.is_some_and(|e| e != 0) {
        return Err("failed in the original");
    }
    if !allow_writes && kind != Kind::Read {
        return Err("writes, discards and flushes (--allow-writes)");
    }
    if kind != Kind::Flush {
        let end = row.sector.checked_mul(SECTOR_BYTES).and_then(|at| at.checked_add(row.len_bytes));
        if row.sector < 0 || row.len_bytes <= 0 || end.is_none() {
            return Err("without an address or a length");
        }
        if matches!(kind, Kind::Read | Kind::Write) && row.len_bytes > MOST_DATA_BYTES {
            return Err("longer than 64 MiB");
        }
    }
    Ok(kind)
}

/// Chooses the device to replay. Returns its table, its number, and what is going to be issued.
pub(super) fn survey(
    reel: &Reel,
    source: Option<&str>,
    allow_writes: bool,
) -> Result<(Table, i64, Survey), ReplayError> {
    let mut found: BTreeMap<i64, (i64, Survey)> = BTreeMap::new();
    let table = if reel.count::<Bio>() > 0 { Table::Bio } else { Table::Block };
    let no = |why: String| ReplayError::Block { path: reel.path().into(), why };
    each(reel, table, &mut |row| {
        let (moved, s) = found.entry(row.dev).or_default();
        *moved = moved.saturating_add(if row.op == *"read" || row.op == *"write" { row.len_bytes.max(0) } else { 0 });
        let kind = match kind(row, allow_writes) {
            Ok(kind) => kind,
            Err(why) => {
                *s.skipped.entry(why).or_default() += 1;
                return;
            }
        };
        if s.ios == 0 {
            (s.first_ns, s.last_ns) = (row.queue_ns, row.queue_ns);
        }
        s.ios += 1;
        (s.first_ns, s.last_ns) = (s.first_ns.min(row.queue_ns), s.last_ns.max(row.queue_ns));
        s.writes += i64::from(kind.changes());
        let (n, bytes) = s.kinds.entry(kind).or_default();
        *n += 1;
        *bytes = bytes.saturating_add(row.len_bytes.max(0));
        if kind != Kind::Flush {
            s.reach_bytes = s.reach_bytes.max(row.sector * SECTOR_BYTES + row.len_bytes);
        }
        if matches!(kind, Kind::Read | Kind::Write) {
            s.longest_bytes = s.longest_bytes.max(row.len_bytes);
        }
    })?;
    let name = |dev: i64| {
        let known = reel.manifest.device(dev).map(|d| d.name.clone()).filter(|n| !n.is_empty());
        known.unwrap_or_else(|| dev_name(dev))
    };
    let dev = match source {
        Some(wanted) => {
            let short = wanted.strip_prefix("/dev/").unwrap_or(wanted);
            let dev = found.keys().copied().find(|d| name(*d) == short || dev_name(*d) == short);
            dev.ok_or_else(|| {
                let names: Vec<String> = found.keys().take(16).map(|d| name(*d)).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let hint = suggest::hint(short, &names);
                no(format!("no bios of device '{wanted}'{hint}; devices with bios: {}", names.join(", ")))
            })?
        }
        None => {
            let most = found.iter().max_by_key(|(dev, (moved, _))| (*moved, Reverse(**dev))).map(|(dev, _)| *dev);
            most.ok_or_else(|| no("no bios and no requests; record with the block layer (the default)".into()))?
        }
    };
    let (_, survey) = found.remove(&dev).unwrap_or_default();
    if survey.ios == 0 {
        let why: Vec<String> = survey.skipped.iter().map(|(why, n)| format!("{n} {why}")).collect();
        return Err(no(format!("no bio of {} can be issued: {}", name(dev), why.join(", "))));
    }
    Ok((table, dev, survey))
}

fn as_bio(r: Block) -> Bio {
    Bio {
        bio_id: r.rq_id,
        rq_id: Some(r.rq_id),
        queue_ns: r.issue_ns,
        complete_ns: r.complete_ns,
        dev: r.dev,
        sector: r.sector,
        len_bytes: r.len_bytes,
        op: r.op,
        flags: r.flags,
        error: Some(r.error),
        ..Bio::default()
    }
}

fn each(reel: &Reel, table: Table, take: &mut dyn FnMut(&Bio)) -> Result<(), ReplayError> {
    match table {
        Table::Bio => reel.rows::<Bio>().try_for_each(|row| row.map(|row| take(&row)))?,
        Table::Block => reel.rows::<Block>().try_for_each(|row| row.map(|row| take(&as_bio(row))))?,
    }
    Ok(())
}

/// Rows of a segment.
enum Segment {
    Bio(Rows<Bio>),
    Block(Rows<Block>),
}

impl Segment {
    fn next(&mut self) -> Option<Result<Bio, ReplayError>> {
        match self {
            Self::Bio(rows) => rows.next().map(|r| r.map_err(ReplayError::from)),
            Self::Block(rows) => rows.next().map(|r| r.map(as_bio).map_err(ReplayError::from)),
        }
    }
}

/// Merges segments, each sorted by time, into one stream. Segments overlap; memory holds one batch of each segment that
/// overlaps the current time.
pub(super) struct Bios {
    reel: Reel,
    table: Table,
    dev: i64,
    allow_writes: bool,
    /// Segments not opened yet: time of the first row, and index.
    closed: VecDeque<(i64, usize)>,
    open: Vec<(Bio, Segment)>,
    threads: HashMap<(Option<i64>, Text), u32>,
    in_flight: InFlight,
}

impl Bios {
    pub(super) fn new(reel: &Reel, dev: i64, allow_writes: bool) -> Result<Self, ReplayError> {
        let table = if reel.count::<Bio>() > 0 { Table::Bio } else { Table::Block };
        let listed = reel.manifest.segments.get(table.name()).map(Vec::as_slice).unwrap_or_default();
        let mut closed: Vec<(i64, usize)> = listed.iter().enumerate().map(|(i, s)| (s.from_ns, i)).collect();
        closed.sort_unstable();
        Ok(Self {
            reel: reel.clone(),
            table,
            dev,
            allow_writes,
            closed: closed.into(),
            open: Vec::new(),
            threads: HashMap::new(),
            in_flight: InFlight::default(),
        })
    }

    /// The next row, of any device.
    fn row(&mut self) -> Result<Option<Bio>, ReplayError> {
        loop {
            let first = (0..self.open.len()).min_by_key(|i| self.open[*i].0.queue_ns);
            let due = first.map_or(i64::MAX, |i| self.open[i].0.queue_ns);
            if let Some((_, index)) = self.closed.pop_front_if(|(from_ns, _)| *from_ns <= due) {
                let mut segment = match self.table {
                    Table::Bio => Segment::Bio(self.reel.segment_rows(index)),
                    Table::Block => Segment::Block(self.reel.segment_rows(index)),
                };
                if let Some(row) = segment.next() {
                    self.open.push((row?, segment));
                }
                continue;
            }
            let Some(i) = first else { return Ok(None) };
            let (head, segment) = &mut self.open[i];
            return Ok(Some(match segment.next() {
                Some(next) => std::mem::replace(head, next?),
                None => self.open.swap_remove(i).0,
            }));
        }
    }

    /// The next bio to issue.
    pub(super) fn next(&mut self) -> Result<Option<Io>, ReplayError> {
        while let Some(row) = self.row()? {
            if row.dev != self.dev {
                continue;
            }
            let Ok(kind) = kind(&row, self.allow_writes) else { continue };
            // A bio without a recorded end counts as ended when it was queued.
            let complete_ns = row.complete_ns.unwrap_or(row.queue_ns);
            let together = self.in_flight.add(row.queue_ns, complete_ns.max(row.queue_ns)) as u32;
            // Kernel threads have no id, so they are identified by name.
            let name = if row.task_id.is_some() { Text::default() } else { row.comm.clone() };
            let next = self.threads.len() as u32;
            let thread = *self.threads.entry((row.task_id, name)).or_insert(next);
            return Ok(Some(Io { kind, complete_ns, thread, together, row }));
        }
        Ok(None)
    }

    /// The recorded number of bios in flight over time. Call after the last bio.
    pub(super) fn level(self) -> Level {
        self.in_flight.level()
    }
}
