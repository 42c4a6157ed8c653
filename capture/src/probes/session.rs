//! A recording session of the probes: open, load, attach, adopt, activate, drain, detach.

use std::{
    cell::{Cell, RefCell},
    mem::{MaybeUninit, size_of},
    os::fd::AsFd,
    path::Path,
    time::{Duration, Instant},
};

use ioreel_bpf::{
    IoreelSkel, IoreelSkelBuilder,
    types::{cpu_ledger, rec_class, rec_stream},
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, OpenObject, PrintLevel,
    skel::{OpenSkel, Skel, SkelBuilder},
};

mod bio_ends;
mod iterators;
mod liveness;
mod load;
mod programs;
mod unfinished;

use bio_ends::{Ends, SecondEnd};
use liveness::UnseenEnds;
pub(crate) use unfinished::Unended;

pub use super::plan::{Caller, Content, DEFAULT_WAITS_MIN_NS, Plan, Targets, Vfs, WaitsPlan};
pub(crate) use super::rings::SHORTEST_TICK;
use super::rings::{CpuRing, RingSizes, half_of};
pub use super::rings::{DEFAULT_RING_BYTES, default_ring_bytes};
pub use super::tables::Tables;
pub use programs::Program;

use crate::{
    CaptureError,
    decode::{
        op_rings::{OpRings, RECORD_BYTES},
        wire,
    },
    host::{self, error::is_out_of_descriptors, symbols},
    probes::{
        features,
        lossless::{Guardian, Stops},
        refusal,
    },
};

/// Number of sequence number streams per CPU.
pub(crate) const STREAMS: usize = rec_stream::STREAM_COUNT.0 as usize;
/// Records taken in one pass, divided among the rings: about 4 MB of plain operations, which stay in the cache of the
/// CPU that assembles them.
const DRAIN_RECORDS: usize = 32 * 1024;
/// Minimum share of a ring.
const MIN_DRAIN_RECORDS: usize = 256;

/// The loaded and attached probes.
pub struct Session<'obj> {
    skel: IoreelSkel<'obj>,
    /// When all programs were loaded, ns since boot.
    loaded_at_ns: i64,
    op_rings: OpRings,
    rings: Vec<CpuRing>,
    /// Kernel memory of the rings, in bytes.
    pub ring_bytes: usize,
    /// Interval between two passes over the rings.
    pub(crate) tick: Duration,
    /// Warnings for the reader of the reel about what is less precise on this kernel.
    pub warnings: Vec<String>,
    /// Probes that this kernel does not support, each with what is not recorded.
    pub missing: Vec<features::Missing>,
    tables: Tables,
    /// Mark of the tasks that are adopted now.
    round: Cell<u16>,
    /// The stopped processes, with `lossless`.
    pub(crate) stops: Option<Stops>,
    /// Largest number of bytes of a pass since [`Session::take_fullest`].
    fullest: Cell<usize>,
    /// The kernel may skip programs for ends of threads, and all recorded threads can be listed.
    ends_may_be_unseen: bool,
    /// Threads whose end no program saw.
    unseen_ends: RefCell<UnseenEnds>,
    /// The second program for ends of bios.
    ends: Ends,
}

/// Memory for the BPF objects; a second one for the attempt without the refused programs.
#[derive(Debug)]
pub struct Storage([MaybeUninit<OpenObject>; 2]);

impl Default for Storage {
    fn default() -> Self {
        Self([const { MaybeUninit::uninit() }; 2])
    }
}

/// Finds which optional programs the kernel refuses: leaves them out one by one until the others load. An error if a
/// required program is refused.
fn refused(plan: &Plan, mut error: CaptureError) -> Result<Vec<features::Missing>, CaptureError> {
    let mut refused: Vec<features::Missing> = Vec::new();
    loop {
        let Some(refusal) = refusal::take() else { return Err(error) };
        log::info!("{} is refused: {}", refusal.program, refusal.why);
        if is_out_of_descriptors(&refusal.why) {
            return Err(CaptureError::FewDescriptors { doing: "loading them" });
        }
        match features::when_refused(&refusal.program, &refusal.why, plan.ops) {
            Some(missing) if !refused.contains(&missing) => refused.push(missing),
            _ => return Err(CaptureError::Refused { program: refusal.program, why: refusal.why }),
        }
        let mut storage = MaybeUninit::uninit();
        match Session::attempt(plan, &mut storage, &refused) {
            Ok(_) => return Ok(refused),
            Err(e) => error = e,
        }
    }
}

/// What one pass over the rings returned.
#[derive(Debug)]
pub struct Drained {
    /// Records of all rings, concatenated.
    pub bytes: Vec<u8>,
    /// Every record that ended before this monotonic time was returned by this pass or an earlier one.
    pub complete_to_ns: i64,
    /// A ring still has records: drain again at once.
    pub more: bool,
}

impl Drained {
    /// Accounts for one ring, whose records start at `first`. Unless `more` remain, all its records made before
    /// `before` are included.
    fn note(&mut self, first: usize, more: bool, before: i64) {
        let mut complete_to = before;
        if more {
            self.more = true;
            complete_to = last_end_ns(&self.bytes[first..]).unwrap_or(before);
        }
        self.complete_to_ns = self.complete_to_ns.min(complete_to);
    }
}

/// The clock of the kernel's load times, ns.
fn boot_time_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

impl<'obj> Session<'obj> {
    /// Opens, loads and attaches the probes. They stay inactive until [`Session::activate`]. Optional programs that the
    /// kernel refuses are left out and listed in `missing`.
    pub fn load(plan: &Plan, storage: &'obj mut Storage) -> Result<Self, CaptureError> {
        quiet();
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(CaptureError::NoBtf);
        }
        if host::is_confidential() {
            return Err(CaptureError::Confidential);
        }
        let [first, second] = &mut storage.0;
        match Self::attempt(plan, first, &[]) {
            Ok(session) => Ok(session),
            Err(e) => Self::attempt(plan, second, &refused(plan, e)?),
        }
    }

    /// Loads the probes without those refused before.
    fn attempt(
        plan: &Plan,
        storage: &'obj mut MaybeUninit<OpenObject>,
        refused: &[features::Missing],
    ) -> Result<Self, CaptureError> {
        let began = Instant::now();
        let cpus = host::possible_cpus();
        let end_ios = symbols::end_ios();
        refusal::take();
        let mut open = IoreelSkelBuilder::default().open(storage).map_err(CaptureError::bpf("opening them"))?;
        let manners = features::manners();
        let preemptible = manners.preemptible;
        load::set_constants(&mut open, plan, &end_ios, &manners);
        let load::Chosen { missing, second, later } = load::choose_programs(&mut open, plan, preemptible, refused);
        let sizes = load::size_maps(&mut open, plan, cpus)?;
        let opened = Instant::now();
        let mut skel = open.load().map_err(CaptureError::bpf("loading them"))?;
        let loaded_at_ns = boot_time_ns();
        let loaded = Instant::now();

        let op_records = sizes.op_records;
        let op_rings = OpRings::map(skel.maps.op_rings.as_fd(), skel.maps.op_ring_heads.as_fd(), cpus, op_records)?;
        let rings = load::make_rings(&skel, cpus, &sizes)?;
        let tables = load::fill_tables(&skel, plan)?;
        let stops = if plan.lossless {
            Some(Stops::new(MapHandle::try_from(&skel.maps.stops).map_err(CaptureError::bpf("opening a table"))?)?)
        } else {
            None
        };
        let filled = Instant::now();
        skel.attach().map_err(CaptureError::bpf("attaching them"))?;
        log::info!(
            "start of the probes: {} ms to open them, {} ms to load them (verification by the kernel), {} ms for tables, {} \
             ms to attach them",
            (opened - began).as_millis(),
            (loaded - opened).as_millis(),
            (filled - loaded).as_millis(),
            filled.elapsed().as_millis()
        );
        let ring_bytes = (sizes.ring_bytes + op_records * RECORD_BYTES) * cpus + sizes.content_bytes;
        let alone = plan.ops && preemptible && !second;
        let warnings = end_ios.warning.into_iter().chain(alone.then(|| features::ALONE.to_owned())).collect();
        Ok(Self {
            skel,
            loaded_at_ns,
            op_rings,
            rings,
            ring_bytes,
            tick: sizes.tick,
            missing,
            warnings,
            tables,
            round: Cell::new(1),
            stops,
            fullest: Cell::new(0),
            ends_may_be_unseen: preemptible && matches!(plan.target, Targets::Command(_) | Targets::Processes(_)),
            unseen_ends: RefCell::default(),
            ends: Ends::new(if later { SecondEnd::Waiting } else { SecondEnd::Settled }),
        })
    }

    /// The maps that may change during a recording.
    pub fn tables(&self) -> Result<Tables, CaptureError> {
        self.tables.duplicate()
    }

    /// Starts recording: time 0 of the reel.
    pub fn activate(&mut self) {
        self.switch(true, true);
    }

    /// Stops recording operations; the block layer continues.
    pub fn end_operations(&mut self) {
        self.switch(false, true);
    }

    /// Stops all recording. The rings can still be drained.
    pub fn end(&mut self) {
        self.switch(false, false);
    }

    fn switch(&mut self, ops: bool, block: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // The kernel reads this memory concurrently.
            // SAFETY: valid, aligned bools that outlive the calls.
            unsafe {
                std::ptr::from_mut(&mut bss.ops_active).write_volatile(ops);
                std::ptr::from_mut(&mut bss.block_active).write_volatile(block);
            }
        }
    }

    /// Excludes the guardian from recording, so that it is never stopped.
    pub(crate) fn spare(&mut self, guardian: &Guardian) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // SAFETY: a valid, aligned u32 that outlives the call; the kernel reads it.
            unsafe { std::ptr::from_mut(&mut bss.guardian_tgid).write_volatile(guardian.pid()) };
        }
    }

    /// Appends the contents of the rings to `bytes`.
    pub fn drain(&self, bytes: Vec<u8>) -> Drained {
        self.drain_some(bytes, DRAIN_RECORDS)
    }

    /// Likewise, but takes at most about `records`.
    pub(crate) fn drain_some(&self, bytes: Vec<u8>, records: usize) -> Drained {
        let share = (records / (self.op_rings.len() + self.rings.len())).max(MIN_DRAIN_RECORDS);
        let mut out = Drained { bytes, complete_to_ns: i64::MAX, more: false };
        for cpu in 0..self.op_rings.len() {
            let before = host::monotonic_ns();
            let first = out.bytes.len();
            let more = self.op_rings.take(cpu, share, &mut out.bytes);
            out.note(first, more, before);
        }
        for r in &self.rings {
            let before = host::monotonic_ns();
            let share = share.min(r.most);
            let first = out.bytes.len();
            // The records go straight into the output buffer.
            r.bytes.replace(std::mem::take(&mut out.bytes));
            let taken = r.ring.consume_raw_n(share);
            out.bytes = r.bytes.take();
            out.note(first, taken >= share as i32, before);
        }
        self.fullest.set(self.fullest.get().max(out.bytes.len()));
        out
    }

    /// Largest number of bytes of one pass since the last call of this function.
    pub fn take_fullest(&self) -> usize {
        self.fullest.take()
    }

    /// Sequence numbers assigned so far, per CPU and stream: stream 0 of CPU 0, stream 1 of CPU 0, and so on.
    pub fn numbered(&self) -> Result<Vec<u64>, CaptureError> {
        let shared = self.shared_ledgers()?;
        let ops = (0..self.op_rings.len()).map(|cpu| self.op_rings.counted(cpu).seen);
        Ok(shared.iter().map(|l| l.seq).zip(ops).flat_map(<[u64; STREAMS]>::from).collect())
    }

    /// The kernel's counters, one entry per CPU.
    pub fn ledgers(&self) -> Result<Vec<cpu_ledger>, CaptureError> {
        let mut ledgers = self.shared_ledgers()?;
        for ledger in &mut ledgers {
            // Bios are not counted: their number is that of the sequence numbers that no other class has counted. While
            // probes run, it may be too high by an event in progress.
            let counted: u64 = ledger.seen.iter().sum();
            ledger.seen[rec_class::CLASS_BIO.0 as usize] = ledger.seq.saturating_sub(counted);
        }
        for (cpu, ledger) in ledgers.iter_mut().enumerate().take(self.op_rings.len()) {
            let ops = self.op_rings.counted(cpu);
            ledger.seen[rec_class::CLASS_OPS.0 as usize] += ops.seen;
            ledger.lost[rec_class::CLASS_OPS.0 as usize] += ops.lost;
        }
        Ok(ledgers)
    }

    /// Counters of all probes except op_exit.
    fn shared_ledgers(&self) -> Result<Vec<cpu_ledger>, CaptureError> {
        let values = self
            .skel
            .maps
            .ledger
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(CaptureError::bpf("reading the ledger"))?
            .unwrap_or_default();
        Ok(values
            .iter()
            .filter(|v| v.len() >= size_of::<cpu_ledger>())
            // SAFETY: long enough, integers only, read unaligned.
            .map(|v| unsafe { v.as_ptr().cast::<cpu_ledger>().read_unaligned() })
            .collect())
    }
}

/// Redirects libbpf's messages to the log.
pub(crate) fn quiet() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, log_line)));
}

/// Logs a message of libbpf, which may contain the verifier's log. Failures are also returned as errors, so even
/// warnings are logged only at debug level.
fn log_line(level: PrintLevel, text: String) {
    if matches!(level, PrintLevel::Warn) {
        refusal::note(&text);
    }
    let text = text.trim_end();
    match level {
        PrintLevel::Debug => log::trace!("{text}"),
        PrintLevel::Info | PrintLevel::Warn => log::debug!("{text}"),
    }
}

/// End time of the last record in `bytes`.
fn last_end_ns(bytes: &[u8]) -> Option<i64> {
    let mut rest = bytes;
    let mut last = None;
    while let Some(hdr) = wire::header(rest) {
        last = Some(hdr.end_ns as i64);
        rest = &rest[hdr.len_bytes as usize..];
    }
    last
}
