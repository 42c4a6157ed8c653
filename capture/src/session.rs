//! The probes' life: open, load, attach, adopt, activate, drain, detach.

use std::{
    cell::{Cell, RefCell},
    io::Read,
    mem::{MaybeUninit, offset_of, size_of},
    os::fd::{AsFd, AsRawFd},
    path::Path,
    rc::Rc,
};

use ioreel_bpf::{
    IoreelSkel, IoreelSkelBuilder,
    types::{
        adoption, cpu_ledger, file_id, hidden_key, rec_class, rec_hdr, rec_stream, rec_type, rec_uring, target_kind,
        uring_slot,
    },
};
use ioreel_traces::manifest::Probe;
use libbpf_rs::{
    Iter, MapCore, MapFlags, MapHandle, MapType, OpenObject, PrintLevel, RingBuffer, RingBufferBuilder,
    skel::{OpenSkel, Skel, SkelBuilder},
};

use crate::{
    CaptureError, calls,
    contents::Content,
    fault,
    filter::Filter,
    functions::Functions,
    host,
    lossless::{MAX_STOPS, Stops},
    op_rings::{OpRings, RECORD_BYTES},
    probes, symbols, uring,
    wire::{self, NO_CPU},
};

/// What the probes are told before they are loaded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who is recorded, beside whoever they start.
    pub target: Targets,
    /// Disks recorded from the start, by `dev_t`.
    pub devices: Vec<i64>,
    /// No disk is added by what recorded tasks do.
    pub fixed_devices: bool,
    /// Kernel memory for all rings together.
    pub ring_bytes: usize,
    /// Stop threads before a ring is full.
    pub lossless: bool,
    /// Record operations beside the block layer. Without, the probes of calls and tasks are not loaded, no
    /// call gets slower, and this process's own device I/O is recorded too.
    pub ops: bool,
    /// Record the page cache.
    pub cache: bool,
    /// Tell what recorded threads wait for.
    pub waits: Option<WaitsPlan>,
    /// Record calls; without, only threads are followed. Matters with `ops`.
    pub calls: bool,
    /// Record the block layer.
    pub block: bool,
    /// What of the content of writes.
    pub content: Content,
    /// Which operations.
    pub filter: Filter,
}

impl Default for Plan {
    /// Everything of no process and no device: for struct update.
    fn default() -> Self {
        Self {
            target: Targets::None,
            devices: Vec::new(),
            fixed_devices: false,
            ring_bytes: default_ring_bytes(),
            lossless: false,
            ops: true,
            calls: true,
            block: true,
            waits: None,
            cache: false,
            content: Content::None,
            filter: Filter::default(),
        }
    }
}

/// Operations faster than this have their waits dropped: 1 ms.
pub const DEFAULT_WAITS_MIN_NS: i64 = 1_000_000;

/// How waits are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitsPlan {
    /// Only of operations that last at least this long.
    pub min_ns: i64,
    /// With the program's stack too.
    pub user_stacks: bool,
}

/// Who is recorded, beside whoever they start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Nobody.
    None,
    /// A child of the recorder that waits to be released.
    Command(u32),
    /// Running processes.
    Processes(Vec<u32>),
    /// The tasks of a control group (its id) and of those below it, also those that enter later.
    Cgroup(u64),
    /// Every task but this process and kernel threads.
    All,
}

impl Targets {
    fn kind(&self) -> target_kind {
        match self {
            Self::None => target_kind::TARGET_NONE,
            Self::Command(_) => target_kind::TARGET_COMMAND,
            Self::Processes(_) => target_kind::TARGET_PROCESSES,
            Self::Cgroup(_) => target_kind::TARGET_CGROUP,
            Self::All => target_kind::TARGET_ALL,
        }
    }

    /// Processes named one by one.
    pub(crate) fn pids(&self) -> &[u32] {
        match self {
            Self::Command(pid) => std::slice::from_ref(pid),
            Self::Processes(pids) => pids,
            Self::None | Self::Cgroup(_) | Self::All => &[],
        }
    }
}

/// Kernel memory for all rings together. Half is for plain operations, 136 bytes each: on two CPUs 60 ms of the
/// fastest program measured.
pub const DEFAULT_RING_BYTES: usize = 64 << 20;
/// Files outside every `--path` that the kernel remembers: 5 MiB.
const UNWANTED_FILES: u32 = 64 * 1024;
/// No CPU has less: a ring has to hold some of the largest records, 12 KiB.
const MIN_CPU_BYTES: usize = 128 << 10;
/// Number series of each CPU.
pub(crate) const STREAMS: usize = rec_stream::STREAM_COUNT.0 as usize;
/// Records taken in one pass, shared out among the rings: some 4 MB of plain operations, which stay in the cache of
/// the CPU that will assemble them.
const DRAIN_RECORDS: usize = 32 * 1024;
/// No ring's share is smaller.
const MIN_DRAIN_RECORDS: usize = 256;

/// How much of the rings' memory each CPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingSizes {
    /// Of the ring for records of any size, a power of two.
    ring_bytes: usize,
    /// Places in the ring of operations.
    op_records: usize,
}

impl RingSizes {
    /// Shares `total` among the CPUs; all together never take more.
    fn of(total: usize, cpus: usize, ops: bool) -> Result<Self, CaptureError> {
        let per_cpu = total / cpus;
        if per_cpu < MIN_CPU_BYTES {
            let least_mib = (MIN_CPU_BYTES * cpus).div_ceil(1 << 20);
            return Err(CaptureError::RingsTooSmall { total_mib: total >> 20, cpus, least_mib });
        }
        let ring_bytes = if ops { per_cpu / 2 } else { per_cpu };
        let ring_bytes = if ring_bytes.is_power_of_two() { ring_bytes } else { ring_bytes.next_power_of_two() / 2 };
        Ok(Self { ring_bytes, op_records: if ops { (per_cpu - ring_bytes) / RECORD_BYTES } else { 1 } })
    }

    /// What a recording gets when nothing is asked for: more with very many CPUs.
    fn default_total(cpus: usize) -> usize {
        DEFAULT_RING_BYTES.max(cpus << 20)
    }
}

/// What a recording's rings take when nothing is asked for.
pub fn default_ring_bytes() -> usize {
    RingSizes::default_total(host::possible_cpus())
}

/// The largest share of the rings' memory that is a power of two and half of it at most.
fn half_of(total: usize) -> usize {
    (total / 2 + 1).next_power_of_two() / 2
}

/// Whether the call writes the memory that it is given, and nothing else: `--content` reads it.
fn writes(call: &str) -> bool {
    matches!(call, "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2")
}

/// No longer write is read for its content: while it is copied, its CPU does nothing else.
const MAX_CONTENT_BYTES: usize = 16 << 20;
/// Records of contents taken in one pass, of 32 KiB at most each.
const CONTENT_RECORDS: usize = 512;
/// The smallest ring there can be.
const LEAST_RING_BYTES: usize = 4096;

struct CpuRing {
    ring: RingBuffer<'static>,
    bytes: Rc<RefCell<Vec<u8>>>,
    /// No more records are taken in one pass.
    most: usize,
}

impl CpuRing {
    fn new(map: &impl MapCore, most: usize) -> Result<Self, CaptureError> {
        let bytes = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&bytes);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(map, move |record: &[u8]| {
                // Room is reserved in steps for some.
                let len = wire::header(record).map_or(record.len(), |h| h.len_bytes as usize);
                sink.borrow_mut().extend_from_slice(&record[..len]);
                0
            })
            .map_err(CaptureError::bpf("mapping a ring"))?;
        Ok(Self { ring: builder.build().map_err(CaptureError::bpf("mapping a ring"))?, bytes, most })
    }
}

/// Loaded and attached probes.
pub struct Session<'obj> {
    skel: IoreelSkel<'obj>,
    op_rings: OpRings,
    rings: Vec<CpuRing>,
    /// Kernel memory held by the rings.
    pub ring_bytes: usize,
    /// What will be told apart less well than elsewhere, for the reel's reader.
    pub warnings: Vec<String>,
    /// Probes that this kernel has no place for, each with what is not recorded for want of it.
    pub missing: Vec<probes::Missing>,
    tables: Tables,
    /// What tasks adopted now are marked with.
    round: Cell<u16>,
    /// Whom the probes have stopped, with `lossless`.
    pub(crate) stops: Option<Stops>,
    /// The most that one pass over the rings brought since somebody asked, bytes.
    fullest: Cell<usize>,
}

/// The maps that may be changed while recording, from any thread.
#[derive(Debug)]
pub struct Tables {
    devices: MapHandle,
    hidden_files: MapHandle,
    unwanted_files: MapHandle,
}

impl Tables {
    /// Records this disk from now on.
    pub fn add_device(&self, dev: i64) -> Result<(), CaptureError> {
        self.devices
            .update(&(dev as u32).to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(CaptureError::bpf("naming a device to record"))
    }

    /// Leaves this file's own device I/O out, for a reason of the wire format's `hide`.
    pub fn hide_file(&self, ino: u64, sb_dev: u32, why: u32) -> Result<(), CaptureError> {
        let mut key = [0u8; size_of::<hidden_key>()];
        key[..8].copy_from_slice(&ino.to_ne_bytes());
        key[8..12].copy_from_slice(&sb_dev.to_ne_bytes());
        self.hidden_files
            .update(&key, &[why as u8], MapFlags::ANY)
            .map_err(CaptureError::bpf("hiding the recorder's own files"))
    }

    /// Leaves out, in the kernel, calls on this file alone.
    pub(crate) fn leave_out_file(&self, file: file_id) -> Result<(), CaptureError> {
        let mut key = [0u8; size_of::<file_id>()];
        key[..8].copy_from_slice(&file.ino.to_ne_bytes());
        key[8..12].copy_from_slice(&file.dev.to_ne_bytes());
        key[12..16].copy_from_slice(&file.generation.to_ne_bytes());
        self.unwanted_files
            .update(&key, &[1], MapFlags::ANY)
            .map_err(CaptureError::bpf("telling which files are left out"))
    }

    fn duplicate(&self) -> Result<Self, CaptureError> {
        let copy = |m: &MapHandle| MapHandle::try_from(m).map_err(CaptureError::bpf("sharing a table"));
        Ok(Self {
            devices: copy(&self.devices)?,
            hidden_files: copy(&self.hidden_files)?,
            unwanted_files: copy(&self.unwanted_files)?,
        })
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
    /// Opens, loads and attaches; everything stays inert until [`Session::activate`].
    pub fn load(plan: &Plan, storage: &'obj mut MaybeUninit<OpenObject>) -> Result<Self, CaptureError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(CaptureError::NoBtf);
        }
        libbpf_rs::set_print(Some((PrintLevel::Debug, log_line)));
        let cpus = host::possible_cpus();
        let end_ios = symbols::end_ios();
        let mut open = IoreelSkelBuilder::default().open(storage).map_err(CaptureError::bpf("opening them"))?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            if plan.ops {
                for (nr, desc) in calls::descriptors() {
                    rodata.calls[nr] = desc;
                }
                for c in calls::compat() {
                    rodata.calls32[c.nr] = c.desc;
                }
                plan.filter.tell(rodata);
                for call in calls::all() {
                    rodata.calls[call.nr as usize].data = u8::from(writes(call.name));
                }
                for c in calls::compat() {
                    rodata.calls32[c.nr].data = u8::from(c.call.is_some_and(|call| writes(call.name)));
                }
            }
            rodata.user_stacks = plan.waits.as_ref().is_some_and(|w| w.user_stacks);
            rodata.host_mnt_ns = host::mount_namespace();
            rodata.target_kind = plan.target.kind().0;
            rodata.target_cgroup = if let Targets::Cgroup(id) = plan.target { id } else { 0 };
            rodata.self_tgid = if plan.ops { std::process::id() } else { 0 };
            rodata.fixed_devices = plan.fixed_devices;
            for (slot, desc) in rodata.end_ios.iter_mut().zip(&end_ios.known) {
                *slot = *desc;
            }
            rodata.page_shift = rustix::param::page_size().trailing_zeros();
            let sets = uring::sets();
            rodata.dirtying_calls = fault::dirtying_calls();
            rodata.cache_wanted = plan.cache;
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
        let missing = probes::choose(open.open_object_mut(), &|group| match group {
            probes::Group::Uring | probes::Group::Fault => plan.ops,
            probes::Group::Cache => plan.cache,
        });
        if !plan.ops {
            let progs = &mut open.progs;
            for prog in [
                &mut progs.op_enter,
                &mut progs.op_exit,
                &mut progs.task_fork,
                &mut progs.task_exec,
                &mut progs.task_exit,
                &mut progs.adopt,
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
        if plan.content == Content::None || !plan.ops {
            open.progs.content_exit.set_autoload(false);
        }
        if !plan.lossless {
            open.progs.signal_sent.set_autoload(false);
            open.progs.held.set_autoload(false);
        }
        for mut prog in open.open_object_mut().progs_mut() {
            let section = prog.section().to_string_lossy();
            let layer = |first: &str| section.starts_with(first);
            let operations = layer("tp_btf/sys_")
                || layer("tp_btf/io_uring_")
                || prog.name().to_string_lossy().starts_with("fault_");
            if !plan.block && layer("tp_btf/block_") || !plan.calls && operations {
                prog.set_autoload(false);
            }
        }
        if plan.filter.has_files() {
            open.maps
                .unwanted_files
                .set_max_entries(UNWANTED_FILES)
                .map_err(CaptureError::bpf("sizing the table of files left out"))?;
        }
        let content_bytes = if plan.content == Content::None { 0 } else { half_of(plan.ring_bytes) };
        let RingSizes { ring_bytes, op_records } = RingSizes::of(plan.ring_bytes - content_bytes, cpus, plan.ops)?;
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
        let tables = Tables {
            devices: MapHandle::try_from(&skel.maps.devices).map_err(CaptureError::bpf("opening a table"))?,
            hidden_files: MapHandle::try_from(&skel.maps.hidden_files).map_err(CaptureError::bpf("opening a table"))?,
            unwanted_files: MapHandle::try_from(&skel.maps.unwanted_files)
                .map_err(CaptureError::bpf("opening a table"))?,
        };
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
            Some(Stops(MapHandle::try_from(&skel.maps.stops).map_err(CaptureError::bpf("opening a table"))?))
        } else {
            None
        };
        skel.attach().map_err(CaptureError::bpf("attaching them"))?;
        let ring_bytes = (ring_bytes + op_records * RECORD_BYTES) * cpus + content_bytes;
        let warnings = end_ios.warning.into_iter().collect();
        Ok(Self {
            skel,
            op_rings,
            rings,
            ring_bytes,
            missing,
            warnings,
            tables,
            round: Cell::new(1),
            stops,
            fullest: Cell::new(0),
        })
    }

    /// The tables that may change while recording.
    pub fn tables(&self) -> Result<Tables, CaptureError> {
        self.tables.duplicate()
    }

    /// Makes the target's threads recorded ones and looks at what they have; returns the records. To be called when
    /// active: a thread is recorded from the moment it is adopted, and threads made meanwhile are met by the fork
    /// probe, so none is missed.
    pub fn adopt(&self) -> Result<Vec<u8>, CaptureError> {
        let doing = "listing the target's threads";
        self.tell_adoption(0, true, true)?;
        let mut records = self.iterate(self.skel.links.adopt.as_ref(), doing)?;
        self.tell_adoption(0, true, false)?;
        // A pass that finds nobody new has seen all.
        loop {
            let more = self.iterate(self.skel.links.adopt.as_ref(), doing)?;
            if more.is_empty() {
                break;
            }
            records.extend(more);
        }
        records.extend(self.look()?);
        Ok(records)
    }

    /// How many tasks have joined the recorded ones by themselves: when it grows, [`Session::look`] is due.
    pub fn joined(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: a valid, aligned u64; the kernel changes it atomically.
            unsafe { std::ptr::from_ref(&bss.joined).read_volatile() }
        })
    }

    /// Records of what the tasks adopted since the last look have: where they stand, descriptors, mapped files.
    pub fn look(&self) -> Result<Vec<u8>, CaptureError> {
        let round = self.round.get();
        // 0 marks tasks that are born to recorded ones.
        self.round.set(round.checked_add(1).unwrap_or(1));
        self.tell_adoption(round, false, false)?;
        let links = &self.skel.links;
        let mut records = self.iterate(links.places.as_ref(), "listing working directories")?;
        records.extend(self.iterate(links.descriptors.as_ref(), "listing open descriptors")?);
        records.extend(self.iterate(links.mappings.as_ref(), "listing mapped files")?);
        records.extend(looked());
        Ok(records)
    }

    fn tell_adoption(&self, look_round: u16, adopting: bool, leaders_only: bool) -> Result<(), CaptureError> {
        let mut value = [0u8; size_of::<adoption>()];
        value[..2].copy_from_slice(&self.round.get().to_ne_bytes());
        value[2..4].copy_from_slice(&look_round.to_ne_bytes());
        value[4] = u8::from(adopting);
        value[5] = u8::from(leaders_only);
        self.skel
            .maps
            .adoption
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(CaptureError::bpf("starting a snapshot"))
    }

    /// The kernel's functions with their addresses; none unless waits are recorded.
    pub(crate) fn symbols(&self) -> Result<Functions, CaptureError> {
        if self.skel.links.symbols.is_none() {
            return Ok(Functions::default());
        }
        let bytes = self.iterate(self.skel.links.symbols.as_ref(), "listing the kernel's functions")?;
        Ok(Functions::read(&bytes))
    }

    /// Records of operations that have begun and not ended.
    pub fn in_flight(&self) -> Result<Vec<u8>, CaptureError> {
        let mut records = self.iterate(self.skel.links.in_flight.as_ref(), "listing operations in flight")?;
        let mut left = Vec::new();
        for map in [&self.skel.maps.uring_slots, &self.skel.maps.uring_requests] {
            if !self.skel.maps.bss_data.as_deref().is_some_and(|bss| bss.uring_met) {
                break;
            }
            // A place in the array holds a request when its key is set; in the hash it has none.
            let array = map.map_type() == MapType::Array;
            for key in map.keys() {
                // One may end at this very moment; its record came too late to be taken.
                if let Some(slot) = map.lookup(&key, MapFlags::ANY).map_err(CaptureError::bpf("listing requests"))?
                    && let Some((name, state)) = slot.split_at_checked(offset_of!(uring_slot, state))
                    && (!array || name.iter().any(|b| *b != 0))
                    && let Some(rec) = state.get(..size_of::<rec_uring>())
                {
                    left.push(uring::in_flight(rec));
                }
            }
        }
        left.sort_by_key(|(start_ns, _)| *start_ns);
        records.extend(left.into_iter().flat_map(|(_, rec)| rec));
        Ok(records)
    }

    /// Records of operations that wait in stopped threads for want of room.
    pub(crate) fn held(&self) -> Result<Vec<u8>, CaptureError> {
        self.iterate(self.skel.links.held.as_ref(), "listing operations of stopped threads")
    }

    fn iterate(&self, link: Option<&libbpf_rs::Link>, doing: &'static str) -> Result<Vec<u8>, CaptureError> {
        let link = link.ok_or(CaptureError::Bpf { doing, why: "the iterator is not attached".into() })?;
        let mut records = Vec::new();
        Iter::new(link)
            .map_err(CaptureError::bpf(doing))?
            .read_to_end(&mut records)
            .map_err(CaptureError::os(doing))?;
        Ok(records)
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

    /// Recorded threads alive.
    pub fn alive(&self) -> i64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: a valid, aligned i64; the kernel changes it atomically.
            unsafe { std::ptr::from_ref(&bss.alive).read_volatile() }
        })
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
            let taken = self.op_rings.take(cpu, share, &mut out.bytes);
            out.note(first, taken >= share, before);
        }
        for r in &self.rings {
            let before = host::monotonic_ns();
            let share = share.min(r.most);
            let taken = r.ring.consume_raw_n(share);
            let mut bytes = r.bytes.borrow_mut();
            let first = out.bytes.len();
            out.bytes.extend_from_slice(&bytes);
            bytes.clear();
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

    /// Every program with the number of times the kernel skipped it.
    pub fn probes(&self) -> Vec<Probe> {
        let missed = |program: &libbpf_rs::Program<'_>| {
            let mut info = libbpf_rs::libbpf_sys::bpf_prog_info::default();
            let mut len = size_of_val(&info) as u32;
            // By descriptor: to go through the ids of all programs takes CAP_SYS_ADMIN.
            // SAFETY: `info` is `len` bytes of plain integers, which the kernel fills.
            let failed = unsafe {
                libbpf_rs::libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut len)
            };
            (failed == 0).then_some(info.recursion_misses as i64)
        };
        let object = self.skel.object();
        object
            .progs()
            .filter_map(|p| Some(Probe { name: p.name().to_string_lossy().into_owned(), missed: missed(&p)? }))
            .collect()
    }
}

/// The record that ends a look: header alone, since only its moment matters.
fn looked() -> Vec<u8> {
    let mut bytes = vec![0; size_of::<rec_hdr>()];
    bytes[8..16].copy_from_slice(&host::monotonic_ns().to_ne_bytes());
    bytes[16..20].copy_from_slice(&(size_of::<rec_hdr>() as u32).to_ne_bytes());
    bytes[20..22].copy_from_slice(&NO_CPU.to_ne_bytes());
    bytes[22] = rec_type::REC_LOOKED.0 as u8;
    bytes
}

/// libbpf's own words, the verifier's log among them. Failures come back as errors as well, so even its
/// warnings are told only when asked for.
fn log_line(level: PrintLevel, text: String) {
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn rings_take_no_more_than_asked_for() {
        for cpus in 1..=1024 {
            for total in [1 << 20, 2 << 20, 3 << 20, 64 << 20, 100 << 20, RingSizes::default_total(cpus)] {
                for ops in [false, true] {
                    let Ok(sizes) = RingSizes::of(total, cpus, ops) else {
                        assert!(total / cpus < MIN_CPU_BYTES);
                        continue;
                    };
                    assert!(sizes.ring_bytes.is_power_of_two() && sizes.ring_bytes >= 4096);
                    let used = sizes.ring_bytes + if ops { sizes.op_records * RECORD_BYTES } else { 0 };
                    assert!(used * cpus <= total, "{cpus} CPUs: {sizes:?} of {total}");
                    assert!(used * cpus * 3 > total, "{cpus} CPUs: {sizes:?} of {total}");
                }
            }
            RingSizes::of(RingSizes::default_total(cpus), cpus, true).unwrap();
        }
    }
}
