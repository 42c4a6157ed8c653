//! Steps of loading the probes: constants, choice of programs, sizes of maps, rings.

use std::{
    mem::size_of,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use ioreel_bpf::{IoreelSkel, OpenIoreelSkel};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, skel::OpenSkel};

use super::{CpuRing, RingSizes, SHORTEST_TICK, bio_ends, half_of};
use crate::{
    CaptureError,
    calls::{self, uring},
    host::{
        self,
        symbols::{self, EndIos},
    },
    probes::{
        features::{self, Group, Manners, Missing},
        lossless::MAX_STOPS,
        plan::{Content, Plan, Targets},
        tables::Tables,
    },
};

/// Files outside every `--path` that the kernel remembers; takes 5 MiB.
const UNWANTED_FILES: u32 = 64 * 1024;
/// Longer writes are not read for their content: copying one occupies its CPU.
const MAX_CONTENT_BYTES: usize = 16 << 20;
/// Asynchronous writes in flight whose buffers are remembered for their content, about 600 bytes each.
const LATER_WRITES: u32 = 16 * 1024;
/// Content records taken per pass, at most 32 KiB each.
const CONTENT_RECORDS: usize = 512;
/// Minimum size of a BPF ring buffer.
const LEAST_RING_BYTES: usize = 4096;

/// Whether the call writes its memory argument to a file and does nothing else, so that `--content` reads it.
fn writes(call: &str) -> bool {
    matches!(call, "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2")
}

/// The choice of programs.
pub(super) struct Chosen {
    /// Programs that this kernel does not support.
    pub(super) missing: Vec<Missing>,
    /// A second program stands in for skipped programs on calls.
    pub(super) second: bool,
    /// The second program for ends of bios is attached only when a disk needs it.
    pub(super) later: bool,
}

/// Sizes of the rings.
pub(super) struct Sizes {
    /// Ring of each CPU, bytes.
    pub(super) ring_bytes: usize,
    /// Operation ring of each CPU, slots.
    pub(super) op_records: usize,
    /// Ring of contents, bytes; 0: none.
    pub(super) content_bytes: usize,
    /// Interval between two passes over the rings.
    pub(super) tick: Duration,
}

/// Sets the constants of the programs.
pub(super) fn set_constants(open: &mut OpenIoreelSkel<'_>, plan: &Plan, end_ios: &EndIos, manners: &Manners) {
    if plan.ops {
        set_calls(open, plan);
    }
    let Some(rodata) = open.maps.rodata_data.as_deref_mut() else { return };
    rodata.signals_all = host::capabilities() >> host::CAP_KILL & 1 != 0;
    rodata.own_uid = rustix::process::geteuid().as_raw();
    if let Some(caller) = plan.caller {
        rodata.callers_only = true;
        (rodata.caller_uid, rodata.caller_gid) = (caller.uid, caller.gid);
    }
    rodata.follow_waits = plan.waits.is_some();
    if plan.waits.is_some() {
        (rodata.preempt_count_at, rodata.cpu_offsets_at) = symbols::interrupt_counts();
    }
    rodata.user_stacks = plan.waits.as_ref().is_some_and(|w| w.user_stacks);
    rodata.host_mnt_ns = host::mount_namespace();
    rodata.target_kind = plan.target.kind().0;
    rodata.target_cgroup = if let Targets::Cgroup(id) = plan.target { id } else { 0 };
    // Without operations, this process is the one to watch; what the watching thread itself reads is not.
    (rodata.self_tgid, rodata.self_tid) = if plan.ops { (end_ios.own_tgid, 0) } else { (0, end_ios.own_tid) };
    rodata.own_pid_ns = host::own_pid_namespace();
    rodata.fixed_devices = plan.fixed_devices;
    for (slot, desc) in rodata.btrfs_ends.iter_mut().zip(&end_ios.btrfs) {
        *slot = *desc;
    }
    for (slot, desc) in rodata.end_ios.iter_mut().zip(&end_ios.known) {
        *slot = *desc;
    }
    rodata.page_shift = rustix::param::page_size().trailing_zeros();
    rodata.dirtying_calls = calls::dirtying();
    rodata.cache_wanted = plan.cache;
    (rodata.vfs_kernel, rodata.vfs_below) = (plan.vfs.kernel, plan.vfs.below);
    for (slot, work) in rodata.vfs_works.iter_mut().zip(&end_ios.works) {
        *slot = *work;
    }
    rodata.preemptible = manners.preemptible;
    rodata.functions_preemptible = manners.functions_preemptible;
    rodata.dio_counts_after = manners.dio_counts_after;
    rodata.rqf_flush_seq = manners.rqf_flush_seq;
    set_requests(open);
}

/// Sets which calls are recorded, and which of them write.
fn set_calls(open: &mut OpenIoreelSkel<'_>, plan: &Plan) {
    let Some(rodata) = open.maps.rodata_data.as_deref_mut() else { return };
    calls::tell(&mut rodata.calls, &mut rodata.calls32);
    plan.filter.tell(rodata);
    for (nr, call) in calls::numbered() {
        rodata.calls[nr].data = u8::from(writes(call.name));
    }
    for c in calls::compat() {
        rodata.calls32[c.nr].data = u8::from(c.call.is_some_and(|call| writes(call.name)));
    }
}

/// Sets which io_uring requests are recorded, and which fields they use.
fn set_requests(open: &mut OpenIoreelSkel<'_>) {
    let Some(rodata) = open.maps.rodata_data.as_deref_mut() else { return };
    let sets = uring::sets();
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

/// Chooses the programs to load: those that the recording needs and the kernel supports, without those it refused.
pub(super) fn choose_programs(
    open: &mut OpenIoreelSkel<'_>,
    plan: &Plan,
    preemptible: bool,
    refused: &[Missing],
) -> Chosen {
    let mut missing = features::choose(open.open_object_mut(), &|group| match group {
        Group::Uring | Group::Fault => plan.ops,
        Group::Hold => plan.ops && plan.lossless,
        Group::Cache => plan.cache,
        Group::Vfs => plan.ops && plan.calls && plan.vfs.any(),
        Group::Waits => plan.ops && plan.waits.is_some(),
        Group::Moves => matches!(plan.target, Targets::Cgroup(_)),
        Group::Names => plan.ops,
    });
    let progs = &mut open.progs;
    progs.op_enter.set_autoload(plan.ops && !preemptible);
    progs.op_exit.set_autoload(plan.ops && !preemptible);
    progs.op_enter_first.set_autoload(plan.ops && preemptible);
    progs.op_exit_first.set_autoload(plan.ops && preemptible);
    let second = plan.ops && preemptible && features::has_perf_calls();
    progs.op_enter_again.set_autoload(second);
    progs.op_exit_again.set_autoload(second);
    progs.content_exit.set_autoload(plan.ops && plan.content != Content::None && !preemptible);
    // After the choice by kernel support, which would enable them again.
    leave_out_unneeded(open, plan);
    missing.extend_from_slice(refused);
    features::leave_out(open.open_object_mut(), refused);
    features::choose_second(open.open_object_mut(), preemptible);
    let later = plan.block && !preemptible && !bio_ends::interrupts_end_bios();
    open.progs.bio_complete_again.set_autoattach(!later);
    Chosen { missing, second, later }
}

/// Disables the programs that this recording does not need.
fn leave_out_unneeded(open: &mut OpenIoreelSkel<'_>, plan: &Plan) {
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
}

/// Sets the sizes of the maps and the constants that hold them.
pub(super) fn size_maps(open: &mut OpenIoreelSkel<'_>, plan: &Plan, cpus: usize) -> Result<Sizes, CaptureError> {
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
    // Stopped processes wait for a pass, and contents fill their ring at any rate.
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
    Ok(Sizes { ring_bytes, op_records, content_bytes, tick })
}

/// Creates one ring per CPU, and one for contents if they are recorded.
pub(super) fn make_rings(skel: &IoreelSkel<'_>, cpus: usize, sizes: &Sizes) -> Result<Vec<CpuRing>, CaptureError> {
    let mut rings = Vec::with_capacity(cpus);
    for cpu in 0..cpus {
        let opts = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let map = MapHandle::create(
            MapType::RingBuf,
            Some(format!("ioreel_ring{cpu}")),
            0,
            0,
            sizes.ring_bytes as u32,
            &opts,
        )
        .map_err(CaptureError::bpf("making a ring"))?;
        skel.maps
            .rings
            .update(&(cpu as u32).to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(CaptureError::bpf("installing a ring"))?;
        rings.push(CpuRing::new(&map, usize::MAX)?);
    }
    if sizes.content_bytes > 0 {
        // Last: the content of an operation is sent before the operation, so it is in this ring when the operation is
        // read.
        rings.push(CpuRing::new(&skel.maps.contents, CONTENT_RECORDS)?);
    }
    Ok(rings)
}

/// Fills in the recorded devices and processes.
pub(super) fn fill_tables(skel: &IoreelSkel<'_>, plan: &Plan) -> Result<Tables, CaptureError> {
    let tables = Tables::of(skel)?;
    for dev in &plan.devices {
        tables.add_device(*dev)?;
    }
    for pid in plan.target.pids() {
        skel.maps
            .targets
            .update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(CaptureError::bpf("naming a process to record"))?;
    }
    Ok(tables)
}
