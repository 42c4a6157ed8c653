//! Which probes this kernel has a place for. Tracepoints come, go and change their arguments between releases;
//! what decides is the prototype in the kernel's own type information, never the version.

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use libbpf_rs::{
    OpenObject,
    btf::{
        Btf,
        types::{Enum, Func, FuncProto, Ptr, Typedef},
    },
};

/// What a probe is for, as far as it may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Requests to io_uring.
    Uring,
    /// Touches of mapped files.
    Fault,
    /// Stops of programs that make no calls (`--lossless`).
    Hold,
    /// The page cache.
    Cache,
    /// Moves between control groups.
    Moves,
    /// What the kernel does to files by itself.
    Vfs,
}

/// A probe that may be absent.
struct Optional {
    program: &'static str,
    tracepoint: &'static str,
    group: Group,
    /// Arguments of the tracepoint that the program understands.
    arguments: std::ops::RangeInclusive<usize>,
    /// In its place a function, for kernels without this tracepoint.
    instead_of: Option<&'static str>,
    /// What is not recorded without it; `None` where another program does the same on other kernels.
    without: Option<&'static str>,
}

const OPTIONAL: &[Optional] = &[
    uring("uring_submit", "io_uring_submit_req", 1..=9, None),
    uring("uring_submit_old", "io_uring_submit_sqe", 1..=9, None),
    uring("uring_refused", "io_uring_req_failed", 3..=9, Some("io_uring requests refused at submission")),
    uring("uring_punt", "io_uring_queue_async_work", 2..=2, Some("which io_uring requests went to worker threads")),
    uring("uring_poll", "io_uring_poll_arm", 1..=9, Some("which io_uring requests waited for readiness")),
    uring("uring_defer", "io_uring_defer", 1..=1, Some("which io_uring requests were held back by a drain")),
    uring("uring_link", "io_uring_link", 2..=2, Some("which io_uring requests were linked")),
    uring("uring_cancel", "io_uring_fail_link", 2..=2, Some("io_uring requests cancelled without a completion")),
    uring("uring_complete", "io_uring_complete", 3..=3, None),
    uring("uring_complete_old", "io_uring_complete", 5..=9, None),
    uring("uring_overflow", "io_uring_cqe_overflow", 4..=9, Some("results of io_uring requests whose queue was full")),
    uring("uring_create", "io_uring_create", 5..=9, Some("how io_uring instances were set up")),
    variant("fault_touch", "mm_filemap_fault", 2..=9, None),
    variant("fault_touch_entry", "filemap_fault", 1..=1, Some("mm_filemap_fault")),
    variant("fault_around", "mm_filemap_map_pages", 3..=9, None),
    variant("fault_around_exit", "filemap_map_pages", 3..=3, Some("mm_filemap_map_pages")),
    other("fault_dirty", "writeback_dirty_folio", Group::Fault, 2..=9, "first stores to pages of mapped files"),
    other(
        "fault_hold",
        "writeback_mark_inode_dirty",
        Group::Hold,
        1..=9,
        "some first stores to pages of programs that make no calls",
    ),
    other("cache_fill", "mm_filemap_add_to_page_cache", Group::Cache, 1..=9, "what enters the page cache"),
    other("cache_evict", "mm_filemap_delete_from_page_cache", Group::Cache, 1..=9, "what leaves the page cache"),
    other("cache_dirty", "writeback_dirty_folio", Group::Cache, 2..=9, "what is made dirty in the page cache"),
    other("cache_ra_order", "page_cache_ra_order", Group::Cache, 3..=9, "readahead into large folios"),
    other("cache_ra_pages", "page_cache_ra_unbounded", Group::Cache, 3..=9, "readahead"),
];

const fn other(
    program: &'static str,
    tracepoint: &'static str,
    group: Group,
    arguments: std::ops::RangeInclusive<usize>,
    what: &'static str,
) -> Optional {
    Optional { program, tracepoint, group, arguments, without: Some(what), instead_of: None }
}

const fn uring(
    program: &'static str,
    tracepoint: &'static str,
    arguments: std::ops::RangeInclusive<usize>,
    without: Option<&'static str>,
) -> Optional {
    Optional { program, tracepoint, group: Group::Uring, arguments, without, instead_of: None }
}

const fn variant(
    program: &'static str,
    tracepoint: &'static str,
    arguments: std::ops::RangeInclusive<usize>,
    instead_of: Option<&'static str>,
) -> Optional {
    Optional { program, tracepoint, group: Group::Fault, arguments, without: None, instead_of }
}

/// Runs programs of other tracepoints on system calls since "Add sleepable support for classic tracepoint programs" (7.2);
/// with that series, tracepoints stopped keeping the CPU for the programs that they run.
const PREEMPTIBLE: &str = "trace_call_bpf_faultable";

/// Functions of the kernel for programs: "bpf: Introduce bpf_preempt_[disable,enable] kfuncs" (6.10), "bpf: Introduce support
/// for bpf_local_irq_{save,restore}" (6.14).
const KEEP_CPU: &str = "bpf_preempt_disable";
const YIELD_LATER: &str = "bpf_local_irq_save";

/// Came with "iomap: split out the per-bio logic from iomap_dio_bio_iter" (7.0), in the same series.
const DIO_COUNTS_AFTER: &str = "bio_iov_iter_bounce";

/// The number of a bit, and what it was while it was a macro, before 6.11.
const RQF_FLUSH_SEQ: &str = "__RQF_FLUSH_SEQ";
const OLD_RQF_FLUSH_SEQ: i64 = 4;

/// What programs cannot find out by relocation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// A task can lose the CPU while it runs a program, so that the programs keep it and stand in for each other
    /// (`bpf/src/bpf/base/atomic.bpf.h`).
    pub(crate) preemptible: bool,
    /// Programs on functions, during which a task can lose the CPU on every kernel, have what it takes to keep it.
    pub(crate) functions_preemptible: bool,
    /// iomap counts a bio of direct I/O after it has queued it (`bpf/src/bpf/base/core_fixes.bpf.h`).
    pub(crate) dio_counts_after: bool,
    /// The flag of requests that a flush precedes or follows (likewise).
    pub(crate) rqf_flush_seq: u32,
}

/// How this kernel does things, by the functions that it has.
pub(crate) fn manners() -> Manners {
    let Ok(btf) = Btf::from_vmlinux() else { return Manners::default() };
    let has = |function| function_arguments(&btf, function).is_some();
    Manners {
        preemptible: has(PREEMPTIBLE),
        functions_preemptible: has(KEEP_CPU) && has(YIELD_LATER),
        dio_counts_after: has(DIO_COUNTS_AFTER),
        rqf_flush_seq: 1 << enumerator(&btf, RQF_FLUSH_SEQ).unwrap_or(OLD_RQF_FLUSH_SEQ),
    }
}

/// The value of an enumerator, whatever the name of its enum, if it has one.
fn enumerator(btf: &Btf<'_>, name: &str) -> Option<i64> {
    let mut enums = btf.type_by_kind::<Enum<'_>>();
    enums.find_map(|e| Some(e.iter().find(|m| m.name.is_some_and(|n| n == name))?.value))
}

/// Said where [`has_perf_calls`] does not hold.
pub(crate) const ALONE: &str = "the tracefs cannot be read: calls made while another task has lost the CPU inside a \
     probe are missed, counted; mount -t tracefs tracefs /sys/kernel/tracing";

/// Whether perf's tracepoints of calls can be named, which takes a look into the tracefs.
pub(crate) fn has_perf_calls() -> bool {
    // Where libbpf looks: by way of the debugfs, if that is there.
    let by_debugfs = Path::new("/sys/kernel/debug/tracing");
    let root = if by_debugfs.exists() { by_debugfs } else { Path::new("/sys/kernel/tracing") };
    std::fs::read(root.join("events/raw_syscalls/sys_enter/id")).is_ok()
}

/// What `task_moved` goes through the threads of a process by.
const TASK_ITERATOR: &str = "bpf_iter_task_new";

/// What loop devices do by asynchronous I/O.
const LOOP: (&[&str], &str, &str) =
    (&["loop_worker", "loop_done"], "lo_complete_rq", "asynchronous I/O of loop devices");

/// Tells of the end of threads of the kernel's.
const VFS_TASKS: &str = "vfs_task_exit";

/// Of these sets of programs one must fit, or what they are for is not recorded.
const ONE_OF: &[(&[&str], Group, &str)] = &[
    (&["uring_submit", "uring_submit_old"], Group::Uring, "io_uring requests"),
    (&["uring_complete", "uring_complete_old"], Group::Uring, "io_uring requests"),
    (&["fault_touch", "fault_touch_entry"], Group::Fault, "first touches of pages of mapped files"),
    (&["fault_around", "fault_around_exit"], Group::Fault, "touches of cached pages of mapped files"),
];

/// A probe that is not in use because the kernel has no place for it, or refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The tracepoint.
    pub tracepoint: &'static str,
    /// What is not recorded for want of it.
    pub what: &'static str,
    /// The kernel's reason, where it has refused.
    pub refused: Option<String>,
    programs: &'static [&'static str],
}

impl Missing {
    /// In one line.
    pub fn tell(&self) -> String {
        let Self { tracepoint, what, .. } = self;
        match &self.refused {
            None => format!("this kernel has no {tracepoint} that fits: {what} are not recorded"),
            Some(why) => format!("this kernel refuses the probe of {tracepoint} ({why}): {what} are not recorded"),
        }
    }
}

/// Entry and exit of a function that the kernel itself calls.
struct Function {
    name: &'static str,
    programs: &'static [&'static str],
    arguments: usize,
    /// What is not recorded without them.
    what: &'static str,
}

const fn function(
    name: &'static str,
    programs: &'static [&'static str],
    arguments: usize,
    what: &'static str,
) -> Function {
    Function { name, programs, arguments, what }
}

const READS: &str = "some of the kernel's own reads";
const WRITES: &str = "some of the kernel's own writes";
/// Their arguments have been these from 6.1 to 7.3.
const FUNCTIONS: &[Function] = &[
    function("vfs_iter_read", &["vfs_iter_read_in", "vfs_iter_read_out"], 4, READS),
    function("vfs_iter_write", &["vfs_iter_write_in", "vfs_iter_write_out"], 4, WRITES),
    function("vfs_iocb_iter_read", &["vfs_iocb_read_in", "vfs_iocb_read_out"], 3, READS),
    function("vfs_iocb_iter_write", &["vfs_iocb_write_in", "vfs_iocb_write_out"], 3, WRITES),
    function("splice_direct_to_actor", &["vfs_splice_in", "vfs_splice_out"], 3, READS),
    // 6.1 has none, and needs none.
    function("vfs_splice_read", &["vfs_splice_read_in", "vfs_splice_read_out"], 5, ""),
    function("__kernel_read", &["vfs_kernel_read_in", "vfs_kernel_read_out"], 4, READS),
    function("__kernel_write_iter", &["vfs_kernel_write_in", "vfs_kernel_write_out"], 3, WRITES),
    function("vfs_fsync_range", &["vfs_fsync_in", "vfs_fsync_out"], 4, "the kernel's own fsyncs"),
    function("vfs_fsync", &["vfs_fsync_whole_in", "vfs_fsync_whole_out"], 2, "the kernel's own fsyncs"),
    function("vfs_fallocate", &["vfs_fallocate_in", "vfs_fallocate_out"], 4, "the kernel's own allocations"),
];

/// Programs that a recording can do without when the kernel refuses one of them, with the tracepoint and what is then
/// not recorded.
const SPARED: &[(&[&str], &str, &str)] = &[
    (&["bio_backmerge", "bio_frontmerge"], "block_bio_backmerge", "which bios joined a request"),
    (&["bio_remap"], "block_bio_remap", "where bios came from that a mapped device passed on"),
    (&["bio_split"], "block_split", "files of bios that were split"),
    (&["rq_requeue"], "block_rq_requeue", "requests that were given back"),
    (&["task_moved"], "cgroup_attach_task", "moves between control groups"),
    (&["content_exit"], "sys_exit", "contents of writes"),
    (
        &["op_enter_again", "op_exit_again"],
        "raw_syscalls",
        "calls made while another task has lost the CPU inside a probe, counted,",
    ),
    (AGAIN, "block, io_uring and mm_filemap", "events that the first of two probes was skipped for, counted,"),
    (&["wait_switch", "wait_waking", "symbols"], "sched_switch", "waits"),
    (&["mappings"], "iter/task_vma", "files that adopted processes have mapped"),
    LOOP,
];

/// Without any of these no request and no bio can be told of.
const BLOCK: &[&str] = &[
    "bio_queue",
    "bio_complete",
    "rq_issue",
    "rq_complete",
    "bio_remap",
    "bio_split",
    "bio_backmerge",
    "bio_frontmerge",
    "rq_requeue",
    "bio_queue_again",
    "bio_remap_again",
    "bio_complete_again",
    "rq_issue_again",
    "rq_complete_again",
];
const BLOCK_NEEDED: usize = 4;

/// The second of two programs each, most of them only where a task can lose the CPU in one (`bpf/src/bpf/block/bio.bpf.h`).
const AGAIN: &[&str] = &[
    "bio_queue_again",
    "bio_remap_again",
    "bio_complete_again",
    "rq_issue_again",
    "rq_complete_again",
    "uring_submit_again",
    "uring_punt_again",
    "uring_complete_again",
    "fault_touch_again",
    "fault_around_again",
    "task_fork_again",
    "task_exec_again",
    "task_exit_again",
];

/// Those of them that interrupts call, too, which come while the first is at work, on every kernel.
const IN_INTERRUPTS: &[&str] = &["bio_complete_again", "rq_complete_again"];

/// Switches off those that are not needed, or whose first is off.
pub(crate) fn choose_second(object: &mut OpenObject, preemptible: bool) {
    let first_of = |name: &OsStr| name.to_string_lossy().trim_end_matches("_again").to_owned();
    let on: Vec<OsString> = object.progs().filter(|p| p.autoload()).map(|p| p.name().to_owned()).collect();
    for mut program in object.progs_mut() {
        let name = program.name().to_owned();
        let needed = preemptible || IN_INTERRUPTS.iter().any(|a| name == *a);
        if AGAIN.iter().any(|a| name == *a) && !(needed && on.contains(&first_of(&name).into())) {
            program.set_autoload(false);
        }
    }
}

/// What goes without a program that the kernel refuses; `None` where nothing does. `ops`: operations are recorded too,
/// so that the block layer can be spared.
pub(crate) fn when_refused(program: &str, why: &str, ops: bool) -> Option<Missing> {
    let missing = |programs, tracepoint, what| Missing { tracepoint, what, refused: Some(why.to_owned()), programs };
    if let Some((programs, _, what)) = ONE_OF.iter().find(|(programs, ..)| programs.contains(&program)) {
        let tracepoint = OPTIONAL.iter().find(|o| o.program == program)?.tracepoint;
        return Some(missing(programs, tracepoint, what));
    }
    if let Some(o) = OPTIONAL.iter().find(|o| o.program == program) {
        return Some(missing(std::slice::from_ref(&o.program), o.tracepoint, o.without?));
    }
    if let Some(f) = FUNCTIONS.iter().find(|f| f.programs.contains(&program)) {
        return Some(missing(f.programs, f.name, if f.what.is_empty() { READS } else { f.what }));
    }
    if BLOCK[..BLOCK_NEEDED].contains(&program) {
        return ops.then(|| missing(BLOCK, "block_rq_complete", "bios and requests"));
    }
    let (programs, tracepoint, what) = SPARED.iter().find(|(programs, ..)| programs.contains(&program))?;
    Some(missing(programs, tracepoint, what))
}

/// Switches off what has been refused.
pub(crate) fn leave_out(object: &mut OpenObject, refused: &[Missing]) {
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if refused.iter().any(|m| m.programs.contains(&name.as_str())) {
            program.set_autoload(false);
        }
    }
}

/// Switches off the optional programs that `wanted` does not ask for or that do not fit this kernel; tells which
/// of those asked for have no place.
pub(crate) fn choose(object: &mut OpenObject, wanted: &dyn Fn(Group) -> bool) -> Vec<Missing> {
    let btf = Btf::from_vmlinux().ok();
    let fits = |o: &Optional| {
        let Some(btf) = btf.as_ref() else { return false };
        let arguments = match o.instead_of {
            None => arguments(btf, o.tracepoint),
            Some(tracepoint) if arguments(btf, tracepoint).is_some() => None,
            Some(_) => function_arguments(btf, o.tracepoint),
        };
        arguments.is_some_and(|n| o.arguments.contains(&n))
    };
    let used: Vec<(&Optional, bool)> = OPTIONAL.iter().map(|o| (o, fits(o))).collect();
    for mut program in object.progs_mut() {
        let name = program.name().to_owned();
        if let Some((o, fits)) = used.iter().find(|(o, _)| name == OsStr::new(o.program)) {
            program.set_autoload(*fits && wanted(o.group));
        }
    }
    let mut missing = missing(&used);
    if btf.as_ref().is_none_or(|btf| function_arguments(btf, TASK_ITERATOR).is_none()) {
        let moved = Missing {
            tracepoint: TASK_ITERATOR,
            what: "moves between control groups",
            refused: None,
            programs: &["task_moved"],
        };
        leave_out(object, std::slice::from_ref(&moved));
        missing.push((moved, Group::Moves));
    }
    // Their functions are its module's, which has to be there to be asked.
    let loops = wanted(Group::Vfs) && Path::new("/sys/kernel/btf/loop").exists();
    object.progs_mut().filter(|p| LOOP.0.iter().any(|n| p.name() == *n)).for_each(|mut p| p.set_autoload(loops));
    for f in FUNCTIONS {
        let fits = btf.as_ref().is_some_and(|btf| function_arguments(btf, f.name) == Some(f.arguments));
        if !fits || !wanted(Group::Vfs) {
            let absent = Missing { tracepoint: f.name, what: f.what, refused: None, programs: f.programs };
            leave_out(object, std::slice::from_ref(&absent));
            if !f.what.is_empty() {
                missing.push((absent, Group::Vfs));
            }
        }
    }
    object.progs_mut().filter(|p| p.name() == VFS_TASKS).for_each(|mut p| p.set_autoload(wanted(Group::Vfs)));
    missing.retain(|(_, group)| wanted(*group));
    missing.into_iter().map(|(m, _)| m).collect()
}

fn missing(used: &[(&Optional, bool)]) -> Vec<(Missing, Group)> {
    let single = used.iter().filter(|(_, fits)| !fits).filter_map(|(o, _)| {
        o.without.map(|what| (Missing { tracepoint: o.tracepoint, what, refused: None, programs: &[] }, o.group))
    });
    let sets = ONE_OF.iter().filter_map(|(programs, group, what)| {
        let of_set = || used.iter().filter(|(o, _)| programs.contains(&o.program));
        let tracepoint = of_set().next()?.0.tracepoint;
        let missing = Missing { tracepoint, what, refused: None, programs: &[] };
        (!of_set().any(|(_, fits)| *fits)).then_some((missing, *group))
    });
    single.chain(sets).collect()
}

/// How many arguments a tracepoint passes to a program; `None` when the kernel has no such tracepoint.
fn arguments(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let typedef: Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let pointer = Ptr::try_from(typedef.next_type()?).ok()?;
    let prototype = FuncProto::try_from(pointer.next_type()?).ok()?;
    // The first is the tracepoint's own data.
    Some(prototype.iter().count().saturating_sub(1))
}

/// How many arguments a function of the kernel has; `None` when it has no such function.
fn function_arguments(btf: &Btf<'_>, function: &str) -> Option<usize> {
    let function: Func<'_> = btf.type_by_name(function)?;
    Some(FuncProto::try_from(function.next_type()?).ok()?.iter().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_that_fits_stands_for_the_other() {
        let all = |fit: &dyn Fn(&str) -> bool| -> Vec<Missing> {
            let used: Vec<_> = OPTIONAL.iter().map(|o| (o, fit(o.program))).collect();
            missing(&used).into_iter().map(|(m, _)| m).collect()
        };
        assert!(
            all(&|p| p != "uring_complete_old" && p != "uring_submit_old" && !p.starts_with("fault_touch_")).is_empty()
        );
        assert!(all(&|p| p != "uring_complete" && p != "uring_submit").is_empty());
        let none = all(&|p| !p.starts_with("uring_complete"));
        let expected =
            Missing { tracepoint: "io_uring_complete", what: "io_uring requests", refused: None, programs: &[] };
        assert_eq!(none, [expected]);
    }

    #[test]
    fn what_is_refused_takes_along_what_is_no_use_without_it() {
        let programs = |p: &str, ops| when_refused(p, "no", ops).map(|m| m.programs.len());
        assert_eq!(programs("cache_fill", true), Some(1));
        assert_eq!(programs("uring_complete", true), Some(2));
        assert_eq!(programs("rq_issue", true), Some(BLOCK.len()));
        assert_eq!(programs("rq_issue", false), None, "nothing would be left");
        assert_eq!(programs("op_exit", true), None);
        let told = when_refused("bio_split", "too large", true).map(|m| m.tell());
        assert!(told.is_some_and(|t| t.contains("block_split (too large)")));
    }
}
