//! The probes' life: open, load, attach, adopt, activate, drain, detach.

use std::{
    cell::{Cell, RefCell},
    mem::{MaybeUninit, size_of},
    os::fd::AsFd,
    path::Path,
    time::Duration,
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

pub use super::plan::{Content, DEFAULT_WAITS_MIN_NS, Plan, Targets, Vfs, WaitsPlan};
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

/// Number series of each CPU.
pub(crate) const STREAMS: usize = rec_stream::STREAM_COUNT.0 as usize;
/// Records taken in one pass, shared out among the rings: some 4 MB of plain operations, which stay in the cache of
/// the CPU that will assemble them.
const DRAIN_RECORDS: usize = 32 * 1024;
/// No ring's share is smaller.
const MIN_DRAIN_RECORDS: usize = 256;

/// Loaded and attached probes.
pub struct Session<'obj> {
    skel: IoreelSkel<'obj>,
    op_rings: OpRings,
    rings: Vec<CpuRing>,
    /// Kernel memory held by the rings.
    pub ring_bytes: usize,
    /// How often the rings are to be looked at.
    pub(crate) tick: Duration,
    /// What will be told apart less well than elsewhere, for the reel's reader.
    pub warnings: Vec<String>,
    /// Probes that this kernel has no place for, each with what is not recorded for want of it.
    pub missing: Vec<features::Missing>,
    tables: Tables,
    /// What tasks adopted now are marked with.
    round: Cell<u16>,
    /// Whom the probes have stopped, with `lossless`.
    pub(crate) stops: Option<Stops>,
    /// The most that one pass over the rings brought since somebody asked, bytes.
    fullest: Cell<usize>,
    /// Programs on ends may be skipped, and all threads that are recorded can be listed.
    ends_may_be_unseen: bool,
    /// Whose end was told to no program.
    unseen_ends: RefCell<UnseenEnds>,
    /// Ends of bios.
    ends: Ends,
}

/// Where a session's programs are kept; room for a second attempt without those that the kernel refuses.
#[derive(Debug)]
pub struct Storage([MaybeUninit<OpenObject>; 2]);

impl Default for Storage {
    fn default() -> Self {
        Self([const { MaybeUninit::uninit() }; 2])
    }
}

/// Which optional programs the kernel refuses: left out one after another until the rest can be had. An error when a
/// program is refused without which there is no recording.
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

/// What one pass over the rings brought.
#[derive(Debug)]
pub struct Drained {
    /// Records of all rings, one after another.
    pub bytes: Vec<u8>,
    /// Every record that ended before this monotonic time is in this pass or was in an earlier one.
    pub complete_to_ns: i64,
    /// A ring was left with records: come back at once.
    pub more: bool,
}

impl Drained {
    /// Takes account of what one ring brought, which begins at `first`: unless it was left with `more`, every
    /// record made `before` is there.
    fn note(&mut self, first: usize, more: bool, before: i64) {
        let mut complete_to = before;
        if more {
            self.more = true;
            complete_to = last_end_ns(&self.bytes[first..]).unwrap_or(before);
        }
        self.complete_to_ns = self.complete_to_ns.min(complete_to);
    }
}

impl<'obj> Session<'obj> {
    /// Opens, loads and attaches; everything stays inert until [`Session::activate`]. Optional programs that the kernel
    /// refuses are left out, and told of in `missing`.
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

    /// The same without what has been refused before.
    fn attempt(
        plan: &Plan,
        storage: &'obj mut MaybeUninit<OpenObject>,
        refused: &[features::Missing],
    ) -> Result<Self, CaptureError> {
        let cpus = host::possible_cpus();
        let end_ios = symbols::end_ios();
        refusal::take();
        let mut open = IoreelSkelBuilder::default().open(storage).map_err(CaptureError::bpf("opening them"))?;
        let manners = features::manners();
        let preemptible = manners.preemptible;
        load::set_constants(&mut open, plan, &end_ios, &manners);
        let load::Chosen { missing, second, later } = load::choose_programs(&mut open, plan, preemptible, refused);
        let sizes = load::size_maps(&mut open, plan, cpus)?;
        let mut skel = open.load().map_err(CaptureError::bpf("loading them"))?;

        let op_records = sizes.op_records;
        let op_rings = OpRings::map(skel.maps.op_rings.as_fd(), skel.maps.op_ring_heads.as_fd(), cpus, op_records)?;
        let rings = load::make_rings(&skel, cpus, &sizes)?;
        let tables = load::fill_tables(&skel, plan)?;
        let stops = if plan.lossless {
            Some(Stops::new(MapHandle::try_from(&skel.maps.stops).map_err(CaptureError::bpf("opening a table"))?)?)
        } else {
            None
        };
        skel.attach().map_err(CaptureError::bpf("attaching them"))?;
        let ring_bytes = (sizes.ring_bytes + op_records * RECORD_BYTES) * cpus + sizes.content_bytes;
        let alone = plan.ops && preemptible && !second;
        let warnings = end_ios.warning.into_iter().chain(alone.then(|| features::ALONE.to_owned())).collect();
        Ok(Self {
            skel,
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

    /// The tables that may change while recording.
    pub fn tables(&self) -> Result<Tables, CaptureError> {
        self.tables.duplicate()
    }

    /// Flips the switches: the recording's time 0.
    pub fn activate(&mut self) {
        self.switch(true, true);
    }

    /// Ends the recording of operations; the block layer goes on.
    pub fn end_operations(&mut self) {
        self.switch(false, true);
    }

    /// Ends all recording; what is in the rings stays there to be drained.
    pub fn end(&mut self) {
        self.switch(false, false);
    }

    fn switch(&mut self, ops: bool, block: bool) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // The kernel reads this memory while we change it.
            // SAFETY: valid, aligned bools that outlive the calls.
            unsafe {
                std::ptr::from_mut(&mut bss.ops_active).write_volatile(ops);
                std::ptr::from_mut(&mut bss.block_active).write_volatile(block);
            }
        }
    }

    /// Who is never recorded, and so never stopped.
    pub(crate) fn spare(&mut self, guardian: &Guardian) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // SAFETY: a valid, aligned u32 that outlives the call; the kernel reads it.
            unsafe { std::ptr::from_mut(&mut bss.guardian_tgid).write_volatile(guardian.pid()) };
        }
    }

    /// Takes what the rings hold, after what is in `bytes`.
    pub fn drain(&self, bytes: Vec<u8>) -> Drained {
        self.drain_some(bytes, DRAIN_RECORDS)
    }

    /// The same with about `records` taken at most.
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
            // Records go where they are to be, without a copy of their own.
            r.bytes.replace(std::mem::take(&mut out.bytes));
            let taken = r.ring.consume_raw_n(share);
            out.bytes = r.bytes.take();
            out.note(first, taken >= share as i32, before);
        }
        self.fullest.set(self.fullest.get().max(out.bytes.len()));
        out
    }

    /// The most bytes that one pass over the rings has brought since the last time this was asked.
    pub fn take_fullest(&self) -> usize {
        self.fullest.take()
    }

    /// How many records each CPU has numbered in each stream: stream 0 of CPU 0, stream 1 of CPU 0, and so on.
    pub fn numbered(&self) -> Result<Vec<u64>, CaptureError> {
        let shared = self.shared_ledgers()?;
        let ops = (0..self.op_rings.len()).map(|cpu| self.op_rings.counted(cpu).seen);
        Ok(shared.iter().map(|l| l.seq).zip(ops).flat_map(<[u64; STREAMS]>::from).collect())
    }

    /// The kernel's counts, one entry per CPU.
    pub fn ledgers(&self) -> Result<Vec<cpu_ledger>, CaptureError> {
        let mut ledgers = self.shared_ledgers()?;
        for ledger in &mut ledgers {
            // Each number that no other class has counted is a bio's. While probes run, one may just have been given.
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

    /// The counts of all probes but op_exit.
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
            // SAFETY: long enough, plain integers throughout, read unaligned.
            .map(|v| unsafe { v.as_ptr().cast::<cpu_ledger>().read_unaligned() })
            .collect())
    }
}

/// Lets libbpf say what it has to say into the log.
pub(crate) fn quiet() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, log_line)));
}

/// libbpf's own words, the verifier's log among them. Failures come back as errors as well, so even its
/// warnings are told only when asked for.
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

/// End time of the last record.
fn last_end_ns(bytes: &[u8]) -> Option<i64> {
    let mut rest = bytes;
    let mut last = None;
    while let Some(hdr) = wire::header(rest) {
        last = Some(hdr.end_ns as i64);
        rest = &rest[hdr.len_bytes as usize..];
    }
    last
}
