//! The thread that turns drained bytes into a reel: orders records, finds holes, feeds the assembler.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use ioreel_traces::{ReelError, manifest::Loss};

use crate::{
    assemble::Assembler,
    host,
    session::{STREAMS, Tables},
    wire,
};

/// Passes that may wait for the writer. When it cannot keep up, draining waits, the rings fill and the
/// kernel counts what it had to drop: memory stays bounded.
const QUEUED_PASSES: usize = 64;
/// A record's time is taken a moment before the record is visible. This much later it surely is, even on
/// a host whose hypervisor takes the CPU away in between.
const SETTLED_NS: i64 = 10_000_000;

/// What the writer thread is sent.
#[derive(Debug)]
pub(crate) enum Message {
    /// One pass over the rings.
    Records {
        /// Records, one after another.
        bytes: Vec<u8>,
        /// Every record that ended before this is here or came earlier.
        complete_to_ns: i64,
    },
    /// The operations have ended; these had not. Asks for the file systems changed.
    EndOfOperations(Vec<u8>, SyncSender<BTreeSet<i64>>),
}

/// What other threads may ask of the writer while it works.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Writing failed; the recording should end.
    pub(crate) failed: AtomicBool,
    /// Monotonic time of the last block event on each disk that had one.
    pub(crate) block_events: Mutex<BTreeMap<i64, i64>>,
}

/// What the writer thread leaves behind.
#[derive(Debug)]
pub(crate) struct Assembled {
    /// The assembler, its writer not yet closed.
    pub(crate) assembler: Assembler,
    holes: Vec<Holes>,
    /// The first write error.
    pub(crate) error: Option<ReelError>,
    /// Operations found in flight at the end.
    pub(crate) in_flight: i64,
}

impl Assembled {
    /// Where records were lost. `numbered`: how many records each CPU numbered in each of its streams, so that a
    /// hole at the very end is found too.
    pub(crate) fn losses(&mut self, numbered: &[u64]) -> Vec<Loss> {
        let (t0, end_ns) = (self.assembler.t0_ns, host::monotonic_ns());
        self.holes.resize_with(self.holes.len().max(numbered.len()), Holes::default);
        let mut losses = Vec::new();
        for (stream, mut holes) in std::mem::take(&mut self.holes).into_iter().enumerate() {
            if let Some(last) = numbered.get(stream).copied().filter(|n| *n > holes.next) {
                holes.open.push((holes.next..last, holes.last_ns, end_ns));
            }
            losses.extend(holes.losses((stream / STREAMS) as i32, t0));
        }
        losses
    }
}

/// The running writer.
#[derive(Debug)]
pub(crate) struct Pipeline {
    sender: SyncSender<Message>,
    thread: JoinHandle<Assembled>,
    /// Shared with the thread.
    pub(crate) progress: Arc<Progress>,
}

impl Pipeline {
    /// Starts the writer thread. `tables` gets the disks of file systems as they are met, unless the set
    /// of devices is fixed.
    pub(crate) fn start(assembler: Assembler, tables: Option<Tables>) -> Self {
        let (sender, receiver) = sync_channel(QUEUED_PASSES);
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let thread = std::thread::spawn(move || Worker::new(assembler, tables, shared).run(&receiver));
        Self { sender, thread, progress }
    }

    /// Hands a pass over; waits while the writer is behind.
    pub(crate) fn send(&self, message: Message) {
        // The thread ends only when this sender is gone.
        let _ = self.sender.send(message);
    }

    /// Tells the writer that operations have ended, with those still in flight; waits until it has taken
    /// all that was sent, and returns the file systems that operations changed.
    pub(crate) fn end_of_operations(&self, in_flight: Vec<u8>) -> BTreeSet<i64> {
        let (reply, answer) = sync_channel(1);
        self.send(Message::EndOfOperations(in_flight, reply));
        answer.recv().unwrap_or_default()
    }

    /// Waits until all that was sent is in the writer.
    pub(crate) fn finish(self) -> Option<Assembled> {
        drop(self.sender);
        self.thread.join().ok()
    }
}

struct Worker {
    assembler: Assembler,
    tables: Option<Tables>,
    progress: Arc<Progress>,
    pending: Vec<u8>,
    holes: Vec<Holes>,
    known_fs: usize,
    block_events: BTreeMap<i64, i64>,
    error: Option<ReelError>,
    in_flight: i64,
}

impl Worker {
    fn new(assembler: Assembler, tables: Option<Tables>, progress: Arc<Progress>) -> Self {
        Self {
            assembler,
            tables,
            progress,
            pending: Vec::new(),
            holes: Vec::new(),
            known_fs: 0,
            block_events: BTreeMap::new(),
            error: None,
            in_flight: 0,
        }
    }

    fn run(mut self, receiver: &Receiver<Message>) -> Assembled {
        while let Ok(message) = receiver.recv() {
            match message {
                Message::Records { bytes, complete_to_ns } => self.records(bytes, complete_to_ns),
                Message::EndOfOperations(in_flight, reply) => {
                    // They ended, as far as the reel is concerned, after all else.
                    self.records(Vec::new(), i64::MAX);
                    self.take_in_flight(&in_flight);
                    let _ = reply.send(self.assembler.changed.file_systems.clone());
                }
            }
            self.note_progress();
        }
        self.records(Vec::new(), i64::MAX);
        Assembled { assembler: self.assembler, holes: self.holes, error: self.error, in_flight: self.in_flight }
    }

    fn records(&mut self, bytes: Vec<u8>, complete_to_ns: i64) {
        self.find_holes(&bytes);
        if self.pending.is_empty() {
            self.pending = bytes;
        } else {
            self.pending.extend_from_slice(&bytes);
        }
        let mut order = Vec::new();
        let mut at = 0;
        while let Some(hdr) = wire::header(&self.pending[at..]) {
            order.push((hdr.end_ns as i64, at, hdr.len_bytes as usize));
            at += hdr.len_bytes as usize;
        }
        // Stable: records of one moment keep their ring's order. The rings are runs, which the sort merges.
        order.sort_by_key(|(end_ns, ..)| *end_ns);
        let until = complete_to_ns.saturating_sub(SETTLED_NS);
        let ready = order.partition_point(|(end_ns, ..)| *end_ns < until);
        let pending = std::mem::take(&mut self.pending);
        for (_, at, len) in &order[..ready] {
            self.take(&pending[*at..*at + *len], false);
        }
        // Back into arrival order, so that the next stable sort sees it.
        let mut left: Vec<_> = order[ready..].iter().map(|(_, at, len)| (*at, *len)).collect();
        left.sort_unstable();
        for (at, len) in left {
            self.pending.extend_from_slice(&pending[at..at + len]);
        }
        if self.error.is_none()
            && let Err(e) = self.assembler.writer.flush_if_old()
        {
            self.fail(e);
        }
    }

    fn take(&mut self, bytes: &[u8], in_flight: bool) {
        // After a write error the rest is only counted, by what is missing in the end.
        if self.error.is_some() {
            return;
        }
        let Some(record) = wire::parse(bytes) else {
            self.assembler.counts.strange += 1;
            return;
        };
        if let wire::Record::Bio(bio) = &record {
            self.block_events.insert(i64::from(bio.dev), bio.hdr.end_ns as i64);
        }
        if let Err(e) = self.assembler.take(record, in_flight) {
            self.fail(e);
        }
    }

    fn take_in_flight(&mut self, mut bytes: &[u8]) {
        while let Some(hdr) = wire::header(bytes) {
            self.take(&bytes[..hdr.len_bytes as usize], true);
            self.in_flight += 1;
            bytes = &bytes[hdr.len_bytes as usize..];
        }
    }

    fn fail(&mut self, error: ReelError) {
        self.error.get_or_insert(error);
        self.progress.failed.store(true, Ordering::Relaxed);
    }

    fn note_progress(&mut self) {
        if let Ok(mut events) = self.progress.block_events.lock() {
            events.append(&mut self.block_events);
        }
        if self.assembler.touched.len() == self.known_fs {
            return;
        }
        self.known_fs = self.assembler.touched.len();
        if let Some(tables) = &self.tables {
            let disks: BTreeSet<i64> = host::mounts()
                .iter()
                .filter(|m| self.assembler.touched.contains(&m.sb_dev))
                .flat_map(host::disks_of)
                .collect();
            for disk in disks {
                if let Err(e) = tables.add_device(disk) {
                    log::warn!("{e}");
                }
            }
        }
    }

    fn find_holes(&mut self, mut bytes: &[u8]) {
        while let Some(hdr) = wire::header(bytes) {
            if hdr.cpu == wire::NO_CPU {
                bytes = &bytes[hdr.len_bytes as usize..];
                continue;
            }
            let stream = usize::from(hdr.cpu) * STREAMS + usize::from(hdr.stream).min(STREAMS - 1);
            if stream >= self.holes.len() {
                self.holes.resize_with(stream + 1, Holes::default);
            }
            self.holes[stream].see(hdr.seq, hdr.end_ns as i64);
            bytes = &bytes[hdr.len_bytes as usize..];
        }
    }
}

/// Missing sequence numbers of one CPU's stream. Numbers may come slightly out of order: a completion interrupts a
/// call's probe between numbering and writing its record.
#[derive(Debug, Default)]
struct Holes {
    next: u64,
    last_ns: i64,
    /// Half-open ranges of numbers not seen, ascending, and the times around them.
    open: Vec<(std::ops::Range<u64>, i64, i64)>,
}

/// Holes remembered apart; beyond, neighbours are told as one.
const MAX_HOLES: usize = 4096;

impl Holes {
    fn see(&mut self, seq: u64, end_ns: i64) {
        if seq >= self.next {
            if seq > self.next {
                if self.open.len() >= MAX_HOLES
                    && let Some(last) = self.open.last_mut()
                {
                    // The range now covers numbers that were seen; see `losses` for the count.
                    last.0.end += seq - self.next;
                    last.2 = end_ns;
                } else {
                    self.open.push((self.next..seq, self.last_ns, end_ns));
                }
            }
            self.next = seq + 1;
        } else if let Some(i) = self.open.iter().rposition(|(r, ..)| r.contains(&seq)) {
            let (range, from, to) = self.open[i].clone();
            self.open[i].0 = range.start..seq;
            if seq + 1 < range.end {
                self.open.insert(i + 1, (seq + 1..range.end, from, to));
            }
            if self.open[i].0.is_empty() {
                self.open.remove(i);
            }
        }
        self.last_ns = self.last_ns.max(end_ns);
    }

    fn losses(self, cpu: i32, t0_ns: i64) -> impl Iterator<Item = Loss> {
        self.open.into_iter().map(move |(range, from, to)| Loss {
            cpu,
            from_ns: (from - t0_ns).max(0),
            to_ns: to - t0_ns,
            events: (range.end - range.start) as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_located_and_late_numbers_fill_them() {
        let mut h = Holes::default();
        for (seq, ns) in [(0, 10), (2, 30), (1, 20), (3, 40), (9, 100), (6, 70)] {
            h.see(seq, ns);
        }
        let losses: Vec<_> = h.losses(1, 0).map(|l| (l.from_ns, l.to_ns, l.events)).collect();
        assert_eq!(losses, [(40, 100, 2), (40, 100, 2)], "4, 5 and 7, 8 are missing");
    }

    #[test]
    fn very_many_holes_keep_their_count() {
        let mut h = Holes::default();
        for i in 0..10_000 {
            h.see(i * 2, i as i64);
        }
        assert!(h.open.len() <= MAX_HOLES);
        assert_eq!(h.losses(0, 0).map(|l| l.events).sum::<i64>(), 9_999);
    }
}
