//! The thread that turns drained bytes into a reel: it orders records, finds gaps, and feeds the assembler.
//!
//! In: the bytes of each pass over the rings. Out: the assembler with all rows, the losses, the ledger and the rows of
//! settling. May use all earlier stages: `host`, `calls`, `decode`, `probes`, `assemble` and `before`.

pub(crate) mod ledger;
pub(crate) mod settle;
pub(crate) mod standing;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use ioreel_bpf::types::{cpu_ledger, rec_bio, rec_class, rec_rq};
use ioreel_traces::{
    Manifest, ReelError,
    manifest::{Loss, Mark, Mount},
    rotate::Keep,
    rows::Stop,
};

use standing::Standing;

use crate::{
    assemble::Assembler,
    decode::{holes::Holes, wire},
    host,
    probes::session::{STREAMS, Tables, Unended},
};

/// Bytes of records that may be queued: half a second of a fast program. Beyond that draining waits, the rings fill up,
/// and the kernel drops and counts events. So memory is bounded.
const QUEUED_BYTES: i64 = 64 << 20;
/// Interval at which a waiting drain checks the queue.
const BEHIND_TICK: Duration = Duration::from_millis(1);
/// Number of empty buffers kept for reuse.
const SPARES: usize = 4;
/// A probe takes the time of a record before the record becomes visible. After this delay in ns it is surely visible,
/// even if a hypervisor takes the CPU away in between.
const SETTLED_NS: i64 = 10_000_000;

/// A message to the writer thread.
#[derive(Debug)]
pub(crate) enum Message {
    /// One pass over the rings.
    Records {
        /// Records, concatenated.
        bytes: Vec<u8>,
        /// Every record that ended before this time is in this message or an earlier one.
        complete_to_ns: i64,
    },
    /// Processes that were stopped (`--lossless`) and resumed; times are monotonic.
    Stops(Vec<Stop>),
    /// Write a copy of the reel.
    Copy(Box<Copy>),
    /// All markers so far.
    Marks(Vec<Mark>),
    /// Operations have ended. Contains those still in flight, and a channel for the file systems that were modified.
    EndOfOperations(Vec<u8>, SyncSender<BTreeSet<i64>>),
}

/// What the writer needs to write a copy.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Path of the copy.
    pub(crate) path: PathBuf,
    /// The manifest so far.
    pub(crate) manifest: Manifest,
    /// Mounts at the start of the recording.
    pub(crate) mounts: Vec<Mount>,
    /// The kernel's counters.
    pub(crate) ledgers: Vec<cpu_ledger>,
    /// Monotonic time when they were read.
    pub(crate) at_ns: i64,
    /// Receives the result.
    pub(crate) reply: SyncSender<Result<(), ReelError>>,
}

/// State shared between the writer and other threads.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Writing failed; the recording should end.
    pub(crate) failed: AtomicBool,
    /// Bytes missing on the output's file system: the oldest segments should be dropped. 0: none.
    pub(crate) missing_bytes: AtomicI64,
    /// An operation took at least as long as the latency limit.
    pub(crate) slow: AtomicBool,
    /// Size of the reel, with an estimate for open segments.
    reel_bytes: AtomicI64,
    /// Bytes of records sent and not yet processed.
    queued_bytes: AtomicI64,
    /// Monotonic time of the last block event of each disk.
    pub(crate) block_events: Mutex<BTreeMap<i64, i64>>,
}

/// Size on the wire divided by size in the reel: a record takes about 140 bytes in a ring.
const WIRE_TO_REEL: i64 = 12;

impl Progress {
    /// Whether records are queued.
    pub(crate) fn is_behind(&self) -> bool {
        self.queued_bytes.load(Ordering::Acquire) > 0
    }

    /// Estimated size of the reel after everything queued is written.
    pub(crate) fn reel_bytes(&self) -> i64 {
        self.reel_bytes.load(Ordering::Relaxed) + self.queued_bytes.load(Ordering::Relaxed) / WIRE_TO_REEL
    }
}

/// The final state of the writer thread.
#[derive(Debug)]
pub(crate) struct Assembled {
    /// The assembler; its writer is still open.
    pub(crate) assembler: Assembler,
    holes: Vec<Holes>,
    /// The first write error.
    pub(crate) error: Option<ReelError>,
    /// Operations in flight at the end.
    pub(crate) in_flight: i64,
}

impl Assembled {
    /// The intervals in which records were lost. `numbered`: sequence numbers assigned per CPU and stream, so that gaps
    /// at the very end are found too.
    pub(crate) fn losses(&mut self, numbered: &[u64]) -> Vec<Loss> {
        let (t0, end_ns) = (self.assembler.t0_ns, host::monotonic_ns());
        self.holes.resize_with(self.holes.len().max(numbered.len()), Holes::default);
        let mut losses = Vec::new();
        for (stream, mut holes) in std::mem::take(&mut self.holes).into_iter().enumerate() {
            holes.end(numbered.get(stream).copied().unwrap_or(0), end_ns);
            losses.extend(holes.losses((stream / STREAMS) as i32, t0));
        }
        losses
    }
}

/// The running writer thread.
#[derive(Debug)]
pub(crate) struct Pipeline {
    sender: Sender<Message>,
    spare: Receiver<Vec<u8>>,
    thread: JoinHandle<Assembled>,
    /// Shared with the thread.
    pub(crate) progress: Arc<Progress>,
}

impl Pipeline {
    /// Starts the writer thread. It adds the disks of file systems to `tables` when they are first used, unless the set
    /// of devices is fixed. It keeps `standing` on disk up to date.
    pub(crate) fn start(
        assembler: Assembler,
        tables: Option<Tables>,
        keep: Option<Keep>,
        standing: Option<Standing>,
    ) -> Self {
        let (sender, receiver) = channel();
        let (spares, spare) = sync_channel(SPARES);
        let progress = Arc::new(Progress::default());
        let shared = Arc::clone(&progress);
        let worker = Worker { standing, ..Worker::new(assembler, tables, shared, keep, spares) };
        let thread = std::thread::spawn(move || worker.run(&receiver));
        Self { sender, spare, thread, progress }
    }

    /// A buffer to drain into. Buffers are reused, because new memory costs a page fault per page.
    pub(crate) fn spare(&self) -> Vec<u8> {
        self.spare.try_recv().unwrap_or_default()
    }

    /// Sends a message; waits while too much is queued.
    pub(crate) fn send(&self, message: Message) {
        if let Message::Records { bytes, .. } = &message {
            let queued = &self.progress.queued_bytes;
            while queued.load(Ordering::Acquire) > QUEUED_BYTES && !self.thread.is_finished() {
                std::thread::sleep(BEHIND_TICK);
            }
            queued.fetch_add(bytes.len() as i64, Ordering::AcqRel);
        }
        // Cannot fail: the thread ends only after this sender is dropped.
        let _ = self.sender.send(message);
    }

    /// Tells the writer that operations have ended, and which are in flight. Waits until everything sent is processed,
    /// and returns the file systems that operations modified.
    pub(crate) fn end_of_operations(&self, in_flight: Vec<u8>) -> BTreeSet<i64> {
        let (reply, answer) = sync_channel(1);
        self.send(Message::EndOfOperations(in_flight, reply));
        answer.recv().unwrap_or_default()
    }

    /// Disks that had block events since the start.
    pub(crate) fn disks_met(&self) -> BTreeSet<i64> {
        self.progress.block_events.lock().map(|e| e.keys().copied().collect()).unwrap_or_default()
    }

    /// Waits until everything sent is processed.
    pub(crate) fn finish(self) -> Option<Assembled> {
        drop(self.sender);
        self.thread.join().ok()
    }
}

/// A record waiting for all that ended before it.
#[derive(Clone, Copy)]
struct Waiting {
    /// End time times two; the record of a file comes before the operation that first used it, which has the same end
    /// time.
    order: i64,
    /// Number of its pass.
    pass: usize,
    /// Offset in the pass.
    at: usize,
}

/// A pass with records that are still waiting.
struct Pass {
    bytes: Vec<u8>,
    waiting: usize,
}

struct Worker {
    /// What a rotating reel keeps.
    keep: Option<Keep>,
    /// Number of closed rows at the last rotation.
    closed: i64,
    assembler: Assembler,
    tables: Option<Tables>,
    progress: Arc<Progress>,
    spares: SyncSender<Vec<u8>>,
    passes: VecDeque<Pass>,
    /// Number of the first pass in `passes`.
    first_pass: usize,
    /// Ordered by time.
    waiting: Vec<Waiting>,
    holes: Vec<Holes>,
    known_fs: usize,
    block_events: BTreeMap<i64, i64>,
    /// The entry of the last disk in `block_events`.
    last_block: Option<(i64, i64)>,
    error: Option<ReelError>,
    in_flight: i64,
    standing: Option<Standing>,
}

impl Worker {
    fn new(
        assembler: Assembler,
        tables: Option<Tables>,
        progress: Arc<Progress>,
        keep: Option<Keep>,
        spares: SyncSender<Vec<u8>>,
    ) -> Self {
        Self {
            keep,
            closed: 0,
            assembler,
            tables,
            progress,
            spares,
            passes: VecDeque::new(),
            first_pass: 0,
            waiting: Vec::new(),
            holes: Vec::new(),
            known_fs: 0,
            block_events: BTreeMap::new(),
            last_block: None,
            error: None,
            in_flight: 0,
            standing: None,
        }
    }

    fn run(mut self, receiver: &Receiver<Message>) -> Assembled {
        self.note_standing(None);
        while let Ok(message) = receiver.recv() {
            match message {
                Message::Records { bytes, complete_to_ns } => {
                    let taken = bytes.len() as i64;
                    self.records(bytes, complete_to_ns);
                    self.progress.queued_bytes.fetch_sub(taken, Ordering::AcqRel);
                }
                Message::Stops(stops) => self.stops(stops),
                Message::Copy(copy) => self.copy(*copy),
                Message::Marks(marks) => self.note_standing(Some(marks)),
                Message::EndOfOperations(in_flight, reply) => {
                    // In the reel they come after everything else.
                    self.records(Vec::new(), i64::MAX);
                    self.take_in_flight(&in_flight);
                    self.assembler.is_over = true;
                    let _ = reply.send(self.assembler.changed.file_systems.clone());
                }
            }
            self.note_progress();
        }
        self.records(Vec::new(), i64::MAX);
        Assembled { assembler: self.assembler, holes: self.holes, error: self.error, in_flight: self.in_flight }
    }

    fn records(&mut self, bytes: Vec<u8>, complete_to_ns: i64) {
        self.receive(bytes);
        if !self.waiting.is_sorted_by_key(|w| w.order) {
            // A stable sort: records with the same time keep the order of their ring. Each ring is a sorted run, which
            // the sort merges.
            self.waiting.sort_by_key(|w| w.order);
        }
        let until = complete_to_ns.saturating_sub(SETTLED_NS);
        let ready = self.waiting.partition_point(|w| w.order / 2 < until);
        let mut passes = std::mem::take(&mut self.passes);
        let mut waiting = std::mem::take(&mut self.waiting);
        for w in waiting.drain(..ready) {
            let pass = &mut passes[w.pass - self.first_pass];
            pass.waiting -= 1;
            self.take(&pass.bytes[w.at..], false);
        }
        while let Some(pass) = passes.pop_front_if(|p| p.waiting == 0) {
            self.first_pass += 1;
            let mut bytes = pass.bytes;
            bytes.clear();
            // If enough buffers are kept already, this one is freed.
            let _ = self.spares.try_send(bytes);
        }
        (self.passes, self.waiting) = (passes, waiting);
        if self.error.is_none()
            && let Err(e) = self.assembler.flush_if_old()
        {
            self.fail(e);
        }
    }

    fn copy(&mut self, copy: Copy) {
        let Copy { path, mut manifest, mounts, ledgers, at_ns, reply } = copy;
        if self.error.is_some() {
            return;
        }
        if let Err(e) = self.assembler.writer.flush() {
            self.fail(e);
            return;
        }
        manifest.span.elapsed_ns = self.assembler.last_ns;
        ledger::places(&mut manifest, &self.assembler, &mounts);
        ledger::fill(&mut manifest, &ledgers, &mut self.assembler, 0, &Unended::default());
        // Contents that wait for their operation are not lost.
        if let Some(contents) = manifest.ledger.get_mut("contents") {
            contents.lost = contents.lost.min(ledger::Books(&ledgers).class(rec_class::CLASS_CONTENT).1);
        }
        // Events that the kernel has counted and this thread has not processed are not part of the copy.
        for l in manifest.ledger.values_mut() {
            l.lost = l.lost.max(0);
            l.seen = l.written + l.lost + l.filtered;
        }
        let t0_ns = self.assembler.t0_ns;
        let holes = self.holes.iter().enumerate();
        let losses = holes.flat_map(|(stream, holes)| holes.clone().losses((stream / STREAMS) as i32, t0_ns));
        // Later gaps may still be filled, or belong to a loss after the copy.
        manifest.losses = losses.filter(|l| l.to_ns + t0_ns < at_ns - SETTLED_NS).collect();
        ledger::own_cost(&mut manifest.cost, &ledgers);
        let done = self.assembler.copy_to(&path, &manifest);
        // The requester may be gone.
        let _ = reply.send(done);
    }

    fn stops(&mut self, stops: Vec<Stop>) {
        let t0_ns = self.assembler.t0_ns;
        for mut stop in stops {
            self.assembler.task_met(stop.task_id as u32, stop.start_ns as u64);
            stop.start_ns -= t0_ns;
            if self.error.is_none()
                && let Err(e) = self.assembler.writer.stops.push(stop)
            {
                self.fail(e);
            }
        }
    }

    /// Lists the records of a pass and checks their sequence numbers.
    fn receive(&mut self, bytes: Vec<u8>) {
        let number = self.first_pass + self.passes.len();
        let before = self.waiting.len();
        let mut at = 0;
        while let Some(hdr) = wire::header(&bytes[at..]) {
            if hdr.cpu != wire::NO_CPU {
                let stream = usize::from(hdr.cpu) * STREAMS + usize::from(hdr.stream).min(STREAMS - 1);
                if stream >= self.holes.len() {
                    self.holes.resize_with(stream + 1, Holes::default);
                }
                for number in 0..wire::numbers(&hdr) {
                    self.holes[stream].see(hdr.seq + number, hdr.end_ns as i64);
                }
            }
            let order = 2 * hdr.end_ns as i64 + i64::from(!wire::is_file(&hdr));
            self.waiting.push(Waiting { order, pass: number, at });
            at += hdr.len_bytes as usize;
        }
        self.holes.iter_mut().for_each(Holes::settle);
        self.passes.push_back(Pass { bytes, waiting: self.waiting.len() - before });
    }

    /// Processes the record at the start of `bytes`.
    fn take(&mut self, bytes: &[u8], in_flight: bool) {
        // After a write error, records are not processed; the ledger counts them as lost.
        if self.error.is_some() {
            return;
        }
        let taken = if let Some((op, tail)) = wire::op(bytes) {
            self.assembler.op(&op, tail.as_ref(), in_flight)
        } else if let Some((rq, bio)) = wire::block(bytes) {
            self.take_block(rq.as_ref(), bio.as_ref())
        } else if let Some(record) = wire::parse(bytes) {
            self.assembler.take(record, in_flight)
        } else {
            self.assembler.counts.strange += 1;
            Ok(())
        };
        if let Err(e) = taken {
            self.fail(e);
        }
    }

    #[inline]
    fn take_block(&mut self, rq: Option<&rec_rq>, bio: Option<&rec_bio>) -> ioreel_traces::Result<()> {
        if let Some(rq) = rq {
            self.assembler.rq(rq)?;
        }
        let Some(bio) = bio else { return Ok(()) };
        let (dev, end_ns) = (i64::from(bio.dev), bio.hdr.end_ns as i64);
        match &mut self.last_block {
            Some((last, at_ns)) if *last == dev => *at_ns = end_ns,
            last => self.block_events.extend(last.replace((dev, end_ns))),
        }
        self.assembler.bio(bio)
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

    /// Drops the oldest segments when another was closed or space is short. After operations have ended nothing is
    /// dropped, so that later disk I/O, including that of programs that continue to run, does not displace operations.
    fn rotate(&mut self) {
        let is_done = self.error.is_some() || self.assembler.is_over;
        let Some(mut keep) = self.keep.filter(|_| !is_done) else { return };
        let closed = self.assembler.writer.closed_rows();
        let missing_bytes = self.progress.missing_bytes.swap(0, Ordering::Relaxed);
        if closed == self.closed && missing_bytes == 0 {
            return;
        }
        self.closed = closed;
        if missing_bytes > 0 {
            // At least one segment must be dropped.
            let most = self.assembler.writer.bytes_about() - missing_bytes;
            keep.max_bytes = Some(keep.max_bytes.map_or(most, |max| max.min(most)));
        }
        if let Err(e) = self.assembler.rotate(keep) {
            self.fail(e);
        }
        // What was missing so far has been dropped and must not be dropped twice.
        self.progress.missing_bytes.store(0, Ordering::Relaxed);
        // Rotation itself closes segments.
        self.closed = self.assembler.writer.closed_rows();
    }

    /// Writes the manifest if it lacks something, also these markers.
    fn note_standing(&mut self, marks: Option<Vec<Mark>>) {
        let Some(standing) = self.standing.as_mut().filter(|_| self.error.is_none()) else { return };
        let written = match marks {
            Some(marks) => standing.mark(marks, &self.assembler),
            None => standing.write_news(&self.assembler),
        };
        if let Err(e) = written {
            // The end of the recording writes it again, and reports an error.
            log::debug!("{e}");
        }
    }

    fn note_progress(&mut self) {
        self.rotate();
        self.note_standing(None);
        if std::mem::take(&mut self.assembler.slow_seen) {
            self.progress.slow.store(true, Ordering::Relaxed);
        }
        self.progress.reel_bytes.store(self.assembler.writer.bytes_about(), Ordering::Relaxed);
        self.block_events.extend(self.last_block.take());
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
}
