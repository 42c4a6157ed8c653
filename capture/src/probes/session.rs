//! The probes' life: open, load, attach, adopt, activate, drain, detach.

use std::{
    cell::{Cell, RefCell},
    mem::{MaybeUninit, size_of},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    time::Duration,
};

use ioreel_bpf::{
    IoreelSkel, IoreelSkelBuilder,
    types::{cpu_ledger, rec_class, rec_stream},
};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, OpenObject, PrintLevel,
    skel::{OpenSkel, Skel, SkelBuilder},
};

mod bio_ends;
mod iterators;
mod liveness;
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
    calls::{self, uring},
    decode::{
        op_rings::{OpRings, RECORD_BYTES},
        wire,
    },
    host::{self, error::is_out_of_descriptors, symbols},
    probes::{
        features,
        lossless::{Guardian, MAX_STOPS, Stops},
        refusal,
    },
};

/// Files outside every `--path` that the kernel remembers: 5 MiB.
const UNWANTED_FILES: u32 = 64 * 1024;
/// Number series of each CPU.
pub(crate) const STREAMS: usize = rec_stream::STREAM_COUNT.0 as usize;
/// Records taken in one pass, shared out among the rings: some 4 MB of plain operations, which stay in the cache of
/// the CPU that will assemble them.
const DRAIN_RECORDS: usize = 32 * 1024;
/// No ring's share is smaller.
const MIN_DRAIN_RECORDS: usize = 256;

/// Whether the call writes the memory that it is given, and nothing else: `--content` reads it.
fn writes(call: &str) -> bool {
    matches!(call, "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2")
}

/// No longer write is read for its content: while it is copied, its CPU does nothing else.
const MAX_CONTENT_BYTES: usize = 16 << 20;
/// Asynchronous writes in flight whose buffers are noted for their content: some 600 bytes each while they are.
const LATER_WRITES: u32 = 16 * 1024;
/// Records of contents taken in one pass, of 32 KiB at most each.
const CONTENT_RECORDS: usize = 512;
/// The smallest ring there can be.
const LEAST_RING_BYTES: usize = 4096;

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
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            if plan.ops {
                calls::tell(&mut rodata.calls, &mut rodata.calls32);
                plan.filter.tell(rodata);
                for (nr, call) in calls::numbered() {
                    rodata.calls[nr].data = u8::from(writes(call.name));
                }
                for c in calls::compat() {
                    rodata.calls32[c.nr].data = u8::from(c.call.is_some_and(|call| writes(call.name)));
                }
            }
            rodata.signals_all = host::capabilities() >> host::CAP_KILL & 1 != 0;
            rodata.own_uid = rustix::process::geteuid().as_raw();
            rodata.follow_waits = plan.waits.is_some();
            rodata.user_stacks = plan.waits.as_ref().is_some_and(|w| w.user_stacks);
            rodata.host_mnt_ns = host::mount_namespace();
            rodata.target_kind = plan.target.kind().0;
            rodata.target_cgroup = if let Targets::Cgroup(id) = plan.target { id } else { 0 };
            rodata.self_tgid = if plan.ops { end_ios.own_tgid } else { 0 };
            rodata.own_pid_ns = host::own_pid_namespace();
            rodata.fixed_devices = plan.fixed_devices;
            for (slot, desc) in rodata.btrfs_ends.iter_mut().zip(&end_ios.btrfs) {
                *slot = *desc;
            }
            for (slot, desc) in rodata.end_ios.iter_mut().zip(&end_ios.known) {
                *slot = *desc;
            }
            rodata.page_shift = rustix::param::page_size().trailing_zeros();
            let sets = uring::sets();
            rodata.dirtying_calls = calls::dirtying();
            rodata.cache_wanted = plan.cache;
            (rodata.vfs_kernel, rodata.vfs_below) = (plan.vfs.kernel, plan.vfs.below);
            for (slot, work) in rodata.vfs_works.iter_mut().zip(&end_ios.works) {
                *slot = *work;
            }
            rodata.uring_rows = sets.rows;
            rodata.uring_fd_ops = sets.fd;
            rodata.uring_dir_ops = sets.dir;
            rodata.uring_path_ops = sets.path;
            rodata.uring_path2_ops = sets.path2;
            rodata.uring_path3_ops = sets.path3;
            rodata.uring_vector_ops = sets.vector;
            rodata.uring_splice_ops = sets.splice;
            rodata.uring_dir2_ops = sets.dir2;
        }
        let features::Manners { preemptible, functions_preemptible, dio_counts_after, rqf_flush_seq } =
            features::manners();
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.preemptible = preemptible;
            rodata.functions_preemptible = functions_preemptible;
            rodata.dio_counts_after = dio_counts_after;
            rodata.rqf_flush_seq = rqf_flush_seq;
        }
        let mut missing = features::choose(open.open_object_mut(), &|group| match group {
            features::Group::Uring | features::Group::Fault => plan.ops,
            features::Group::Hold => plan.ops && plan.lossless,
            features::Group::Cache => plan.cache,
            features::Group::Vfs => plan.ops && plan.calls && plan.vfs.any(),
            features::Group::Moves => matches!(plan.target, Targets::Cgroup(_)),
        });
        if !plan.ops {
            let progs = &mut open.progs;
            for prog in [
                &mut progs.task_fork,
                &mut progs.task_exec,
                &mut progs.task_exit,
                &mut progs.adopt,
                &mut progs.living,
                &mut progs.places,
                &mut progs.descriptors,
                &mut progs.mappings,
                &mut progs.in_flight,
            ] {
                prog.set_autoload(false);
            }
        }
        if plan.waits.is_none() {
            let progs = &mut open.progs;
            for prog in [&mut progs.wait_switch, &mut progs.wait_waking, &mut progs.symbols] {
                prog.set_autoload(false);
            }
        }
        if !matches!(plan.target, Targets::Cgroup(_)) {
            open.progs.task_moved.set_autoload(false);
        }
        let progs = &mut open.progs;
        progs.op_enter.set_autoload(plan.ops && !preemptible);
        progs.op_exit.set_autoload(plan.ops && !preemptible);
        progs.op_enter_first.set_autoload(plan.ops && preemptible);
        progs.op_exit_first.set_autoload(plan.ops && preemptible);
        let second = plan.ops && preemptible && features::has_perf_calls();
        progs.op_enter_again.set_autoload(second);
        progs.op_exit_again.set_autoload(second);
        progs.content_exit.set_autoload(plan.ops && plan.content != Content::None && !preemptible);
        if !plan.lossless {
            open.progs.signal_sent.set_autoload(false);
            open.progs.signal_taken.set_autoload(false);
            open.progs.held.set_autoload(false);
        }
        for mut prog in open.open_object_mut().progs_mut() {
            let section = prog.section().to_string_lossy();
            let layer = |first: &str| section.starts_with(first);
            let operations = layer("tp_btf/sys_")
                || layer("tp/raw_syscalls/")
                || layer("tp_btf/io_uring_")
                || prog.name().to_string_lossy().starts_with("fault_");
            if !plan.block && layer("tp_btf/block_") || !plan.calls && operations {
                prog.set_autoload(false);
            }
        }
        missing.extend_from_slice(refused);
        features::leave_out(open.open_object_mut(), refused);
        features::choose_second(open.open_object_mut(), preemptible);
        let later = plan.block && !preemptible && !bio_ends::interrupts_end_bios();
        open.progs.bio_complete_again.set_autoattach(!later);
        if plan.filter.has_files() {
            open.maps
                .unwanted_files
                .set_max_entries(UNWANTED_FILES)
                .map_err(CaptureError::bpf("sizing the table of files left out"))?;
        }
        let content_bytes = if plan.content == Content::None { 0 } else { half_of(plan.ring_bytes) };
        let calls = plan.ops && plan.calls;
        let sizes = RingSizes::of(plan.ring_bytes - content_bytes, cpus, calls)?;
        let RingSizes { ring_bytes, op_records } = sizes;
        // Stopped processes wait for it, and contents may be of any size.
        let hurried = plan.lossless || content_bytes > 0;
        let tick = if hurried { SHORTEST_TICK } else { sizes.tick(calls) };
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            rodata.op_ring_records = op_records as u32;
            rodata.ring_bytes = ring_bytes as u32;
            rodata.lossless = plan.lossless;
            rodata.content_limit = (content_bytes / 2).min(MAX_CONTENT_BYTES) as u32;
        }
        let sizing = CaptureError::bpf("sizing the rings");
        open.maps
            .rings
            .set_max_entries(cpus as u32)
            .and_then(|()| open.maps.op_ring_heads.set_max_entries(cpus as u32))
            .and_then(|()| open.maps.stops.set_max_entries(if plan.lossless { MAX_STOPS } else { 1 }))
            .and_then(|()| open.maps.op_rings.set_max_entries((cpus * op_records) as u32))
            .and_then(|()| open.maps.later_writes.set_max_entries(if content_bytes > 0 { LATER_WRITES } else { 1 }))
            .and_then(|()| open.maps.contents.set_max_entries(content_bytes.max(LEAST_RING_BYTES) as u32))
            .map_err(sizing)?;
        let mut skel = open.load().map_err(CaptureError::bpf("loading them"))?;

        let op_rings = OpRings::map(skel.maps.op_rings.as_fd(), skel.maps.op_ring_heads.as_fd(), cpus, op_records)?;
        let mut rings = Vec::with_capacity(cpus);
        for cpu in 0..cpus {
            let opts = libbpf_rs::libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
                ..Default::default()
            };
            let map =
                MapHandle::create(MapType::RingBuf, Some(format!("ioreel_ring{cpu}")), 0, 0, ring_bytes as u32, &opts)
                    .map_err(CaptureError::bpf("making a ring"))?;
            skel.maps
                .rings
                .update(&(cpu as u32).to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
                .map_err(CaptureError::bpf("installing a ring"))?;
            rings.push(CpuRing::new(&map, usize::MAX)?);
        }
        if content_bytes > 0 {
            // Last: when an operation is found in its ring, the content that it sent before is in this one.
            rings.push(CpuRing::new(&skel.maps.contents, CONTENT_RECORDS)?);
        }
        let tables = Tables::of(&skel)?;
        for dev in &plan.devices {
            tables.add_device(*dev)?;
        }
        for pid in plan.target.pids() {
            skel.maps
                .targets
                .update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(CaptureError::bpf("naming a process to record"))?;
        }
        let stops = if plan.lossless {
            Some(Stops::new(MapHandle::try_from(&skel.maps.stops).map_err(CaptureError::bpf("opening a table"))?)?)
        } else {
            None
        };
        skel.attach().map_err(CaptureError::bpf("attaching them"))?;
        let ring_bytes = (ring_bytes + op_records * RECORD_BYTES) * cpus + content_bytes;
        let alone = plan.ops && preemptible && !second;
        let warnings = end_ios.warning.into_iter().chain(alone.then(|| features::ALONE.to_owned())).collect();
        Ok(Self {
            skel,
            op_rings,
            rings,
            ring_bytes,
            tick,
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
