//! Reads trace files record by record, and merges several files by time.

use std::{cmp::Reverse, collections::BinaryHeap, io::Read, path::PathBuf};

use crate::{
    blktrace::{Endian, HEADER_BYTES, Record, VERSION, category, note, own_payload},
    import::{
        ImportError, Result,
        input::{self, Bytes, Source},
    },
};

/// Maximum number of clock jumps listed per file.
const MOST_JUMPS: usize = 1000;

/// An open file and its current record.
pub(super) struct Stream {
    pub(super) path: PathBuf,
    reader: Bytes,
    compressed: bool,
    order: Option<Endian>,
    /// For a per-CPU file: the CPU of its records, once known.
    cpu: Option<u32>,
    merged: bool,
    /// Offset of the next record.
    at_byte: u64,
    /// Index of the current record.
    pub(super) place: i64,
    pub(super) record: Record,
    pub(super) payload: Vec<u8>,
    /// Sort key of the current record: its time.
    key: u64,
    /// Number of records earlier than the previous one.
    pub(super) backwards: i64,
    /// The first of these jumps: time before the jump, and its size.
    pub(super) jumps: Vec<(u64, u64)>,
    /// Why the rest of the file is ignored.
    pub(super) left_out: Option<String>,
}

impl Stream {
    pub(super) fn open(source: &Source, merged: bool) -> Result<Self> {
        let (reader, compressed) = source.open()?;
        Ok(Self {
            path: source.name.clone(),
            reader,
            compressed,
            order: None,
            cpu: None,
            merged,
            at_byte: 0,
            place: -1,
            record: Record::default(),
            payload: Vec::new(),
            key: 0,
            backwards: 0,
            jumps: Vec::new(),
            left_out: None,
        })
    }

    /// Reads the next record. False at the end of the file, or if the rest cannot be parsed.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let mut header = [0; HEADER_BYTES];
        let got = self.fill(&mut header)?;
        if got == 0 {
            return Ok(false);
        }
        if got < HEADER_BYTES {
            return Ok(
                self.stop(&format!("the file ends in the middle of a record; its last {got} bytes were ignored"))
            );
        }
        let magic = [header[0], header[1], header[2], header[3]];
        let rest = |at: u64| format!("the file was ignored from byte {at} on");
        match (Endian::of(magic), self.order) {
            (None, _) => {
                return Ok(self.stop(&format!("not a blktrace record (wrong magic number); {}", rest(self.at_byte))));
            }
            (Some((_, version)), _) if version != VERSION => {
                let why = format!(
                    "blktrace format {version} is not supported, only {VERSION}; trace with a blktrace that writes {VERSION}"
                );
                return Err(ImportError::input(&self.path, why));
            }
            (Some((order, _)), None) => self.order = Some(order),
            (Some((order, _)), Some(known)) if order != known => {
                return Ok(self.stop(&format!("the byte order changes; {}", rest(self.at_byte))));
            }
            _ => {}
        }
        let record = Record::parse(&header, self.order.unwrap_or(Endian::Little));
        if i64::try_from(record.time_ns).is_err() || (!self.merged && self.cpu.is_some_and(|cpu| cpu != record.cpu)) {
            let what = if i64::try_from(record.time_ns).is_err() { "time" } else { "CPU" };
            return Ok(self.stop(&format!("a record has an impossible {what}; {}", rest(self.at_byte))));
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(usize::from(record.payload_bytes), 0);
        let got = self.fill(&mut payload)?;
        let whole = got == payload.len();
        self.payload = payload;
        if !whole {
            return Ok(self.stop("the file ends in the middle of a record, which was ignored"));
        }
        self.at_byte += (HEADER_BYTES + self.payload.len()) as u64;
        self.cpu = Some(record.cpu);
        self.place += 1;
        self.record = record;
        self.make_native();
        self.order_by_time();
        Ok(true)
    }

    /// Fills the buffer, or less at the end of the file.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.reader.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Damaged compressed data ends the file like a cut.
                Err(e) if self.compressed && input::stopped(&e).is_none() => break,
                Err(e) => return Err(ImportError::reading(&self.path)(e)),
            }
        }
        Ok(got)
    }

    fn stop(&mut self, why: &str) -> bool {
        self.left_out = Some(format!("{}: {why}", self.path.display()));
        false
    }

    /// Swaps the bytes of payloads that are read here: only the time of day and the cgroup id.
    fn make_native(&mut self) {
        if self.order == Some(Endian::Big) && self.record.is(category::NOTIFY) {
            if self.record.action & crate::blktrace::act::CGROUP != 0
                && let Some(id) = self.payload.get_mut(..8)
            {
                id.reverse();
            }
            if self.record.act() == note::TIMESTAMP && self.payload.len() >= 8 {
                let at = self.payload.len() - 8;
                self.payload[at..at + 4].reverse();
                self.payload[at + 4..].reverse();
            }
        }
    }

    /// Sets the sort key. A note in a dump has a different clock from its records, because blkparse subtracts the start
    /// time only from records, so it keeps its position.
    fn order_by_time(&mut self) {
        let time = self.record.time_ns;
        if self.record.is_silent_note() {
            self.key = if self.merged { self.key } else { self.key.max(time) };
        } else {
            if time < self.key {
                self.backwards += 1;
                if self.jumps.len() < MOST_JUMPS {
                    self.jumps.push((self.key, self.key - time));
                }
            }
            self.key = time;
        }
    }

    /// The time of day in the current record, ns since 1970.
    pub(super) fn time_of_day(&self) -> Option<i64> {
        if !self.record.is(category::NOTIFY) || self.record.act() != note::TIMESTAMP {
            return None;
        }
        let text = own_payload(&self.record, &self.payload);
        let word = |at: usize| text.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        Some(i64::from(word(0)?) * 1_000_000_000 + i64::from(word(4)?))
    }
}

/// Merges several files by time. Records of one file stay in file order.
pub(super) struct Merge {
    pub(super) streams: Vec<Stream>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream whose record was returned last. It advances before the next choice.
    given: Option<usize>,
}

impl Merge {
    pub(super) fn new(mut streams: Vec<Stream>) -> Result<Self> {
        let mut next = BinaryHeap::new();
        for (i, s) in streams.iter_mut().enumerate() {
            if s.advance()? {
                next.push(Reverse((s.key, i)));
            }
        }
        Ok(Self { streams, next, given: None })
    }

    /// Index of the stream with the next record, and that record's sort key.
    pub(super) fn next(&mut self) -> Result<Option<(usize, u64)>> {
        if let Some(i) = self.given.take()
            && self.streams[i].advance()?
        {
            let key = self.streams[i].key;
            // Records arrive in runs from one CPU, so usually no other stream is earlier.
            match self.next.peek() {
                Some(Reverse(least)) if *least < (key, i) => self.next.push(Reverse((key, i))),
                _ => {
                    self.given = Some(i);
                    return Ok(Some((i, key)));
                }
            }
        }
        Ok(self.next.pop().map(|Reverse((key, i))| {
            self.given = Some(i);
            (i, key)
        }))
    }
}
