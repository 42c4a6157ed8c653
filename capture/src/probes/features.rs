//! Which probes this kernel supports. Tracepoints appear, disappear and change their arguments between releases. The
//! kernel's BTF decides, never the version.

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

/// What an optional probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// io_uring requests.
    Uring,
    /// Accesses to mapped files.
    Fault,
    /// Stopping programs that make no system calls (`--lossless`).
    Hold,
    /// The page cache.
    Cache,
    /// Moves between cgroups.
    Moves,
    /// Names of threads.
    Names,
    /// File I/O by the kernel itself.
    Vfs,
    /// What operations wait for.
    Waits,
}

/// A probe that a kernel may not support.
struct Optional {
    program: &'static str,
    tracepoint: &'static str,
    group: Group,
    /// Numbers of tracepoint arguments that the program supports.
    arguments: std::ops::RangeInclusive<usize>,
    /// The program is attached to a function instead, on kernels without this tracepoint.
    instead_of: Option<&'static str>,
    /// What is not recorded without it; `None` if a variant of the program records the same.
    without: Option<&'static str>,
}

const LOCKS: &str = "for which locks operations wait, and who holds them";

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
    other("task_renamed", "task_rename", Group::Names, 2..=9, "changes of thread names"),
    other("lock_begin", "contention_begin", Group::Waits, 2..=9, LOCKS),
    other("lock_end", "contention_end", Group::Waits, 1..=9, LOCKS),
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

/// Since "Add sleepable support for classic tracepoint programs" (7.2), this function runs the programs of other
/// tracepoints on system calls. The same series made programs on tracepoints preemptible.
const PREEMPTIBLE: &str = "trace_call_bpf_faultable";

/// kfuncs: "bpf: Introduce bpf_preempt_[disable,enable] kfuncs" (6.10), "bpf: Introduce support for
/// bpf_local_irq_{save,restore}" (6.14).
const KEEP_CPU: &str = "bpf_preempt_disable";
const YIELD_LATER: &str = "bpf_local_irq_save";

/// Added by a commit of the same series as "iomap: split out the per-bio logic from iomap_dio_bio_iter" (7.0).
const DIO_COUNTS_AFTER: &str = "bio_iov_iter_bounce";

/// The enumerator gives the bit number. Before 6.11 it was a macro with the value below.
const RQF_FLUSH_SEQ: &str = "__RQF_FLUSH_SEQ";
const OLD_RQF_FLUSH_SEQ: i64 = 4;

/// Differences between kernels that CO-RE relocations cannot detect.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// Programs on tracepoints can be preempted. They then disable preemption themselves, and second programs stand in
    /// for skipped ones (`bpf/src/bpf/base/atomic.bpf.h`).
    pub(crate) preemptible: bool,
    /// The kfuncs exist with which programs on functions, which are preemptible on every kernel, can disable
    /// preemption.
    pub(crate) functions_preemptible: bool,
    /// iomap adds the length of a direct I/O bio to `iomap_dio.size` after it submits the bio, not before
    /// (`bpf/src/bpf/base/core_fixes.bpf.h`).
    pub(crate) dio_counts_after: bool,
    /// Flag of requests that belong to a flush sequence (likewise).
    pub(crate) rqf_flush_seq: u32,
}

/// Detects these differences by the functions and enumerators in the kernel's BTF.
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

/// The value of an enumerator, in whatever enum it is.
fn enumerator(btf: &Btf<'_>, name: &str) -> Option<i64> {
    let mut enums = btf.type_by_kind::<Enum<'_>>();
    enums.find_map(|e| Some(e.iter().find(|m| m.name.is_some_and(|n| n == name))?.value))
}

/// Printed when [`has_perf_calls`] is false.
pub(crate) const ALONE: &str = "cannot read tracefs, so a call made while a probe of another task is preempted is \
     missed (and counted); mount -t tracefs tracefs /sys/kernel/tracing";

/// Whether perf's tracepoints of system calls can be attached, which needs a readable tracefs.
pub(crate) fn has_perf_calls() -> bool {
    // libbpf also prefers the path through debugfs if it exists.
    let by_debugfs = Path::new("/sys/kernel/debug/tracing");
    let root = if by_debugfs.exists() { by_debugfs } else { Path::new("/sys/kernel/tracing") };
    std::fs::read(root.join("events/raw_syscalls/sys_enter/id")).is_ok()
}

/// Iterator that `task_moved` uses to visit the threads of a process.
const TASK_ITERATOR: &str = "bpf_iter_task_new";

/// The programs for asynchronous I/O of loop devices.
const LOOP: (&[&str], &str, &str) =
    (&["loop_worker", "loop_done"], "lo_complete_rq", "asynchronous I/O of loop devices");

/// Notices the end of kernel threads.
const VFS_TASKS: &str = "vfs_task_exit";

/// One set of each of these variants must fit, or what they record is missing.
const ONE_OF: &[(&[&str], Group, &str)] = &[
    (&["uring_submit", "uring_submit_old"], Group::Uring, "io_uring requests"),
    (&["uring_complete", "uring_complete_old"], Group::Uring, "io_uring requests"),
    (&["fault_touch", "fault_touch_entry"], Group::Fault, "first touches of pages of mapped files"),
    (&["fault_around", "fault_around_exit"], Group::Fault, "touches of cached pages of mapped files"),
];

/// A probe that is not loaded because the kernel does not support it or refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The tracepoint.
    pub tracepoint: &'static str,
    /// What is not recorded without it.
    pub what: &'static str,
    /// The kernel's reason if it refused the probe.
    pub refused: Option<String>,
    programs: &'static [&'static str],
}

impl Missing {
    /// A message of one line.
    pub fn tell(&self) -> String {
        let Self { tracepoint, what, .. } = self;
        match &self.refused {
            None => format!("this kernel has no usable {tracepoint}; not recorded: {what}"),
            Some(why) => format!("this kernel refuses the probe on {tracepoint} ({why}); not recorded: {what}"),
        }
    }
}

/// A kernel function with programs at its entry and exit.
struct Function {
    name: &'static str,
    programs: &'static [&'static str],
    arguments: usize,
    /// What is not recorded without these programs.
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
/// These numbers of arguments are the same in Linux 6.1 to 7.3.
const FUNCTIONS: &[Function] = &[
    function("vfs_iter_read", &["vfs_iter_read_in", "vfs_iter_read_out"], 4, READS),
    function("vfs_iter_write", &["vfs_iter_write_in", "vfs_iter_write_out"], 4, WRITES),
    function("vfs_iocb_iter_read", &["vfs_iocb_read_in", "vfs_iocb_read_out"], 3, READS),
    function("vfs_iocb_iter_write", &["vfs_iocb_write_in", "vfs_iocb_write_out"], 3, WRITES),
    function("splice_direct_to_actor", &["vfs_splice_in", "vfs_splice_out"], 3, READS),
    // 6.1 does not have it and does not need it.
    function("vfs_splice_read", &["vfs_splice_read_in", "vfs_splice_read_out"], 5, ""),
    function("__kernel_read", &["vfs_kernel_read_in", "vfs_kernel_read_out"], 4, READS),
    function("__kernel_write_iter", &["vfs_kernel_write_in", "vfs_kernel_write_out"], 3, WRITES),
    function("vfs_fsync_range", &["vfs_fsync_in", "vfs_fsync_out"], 4, "the kernel's own fsyncs"),
    function("vfs_fsync", &["vfs_fsync_whole_in", "vfs_fsync_whole_out"], 2, "the kernel's own fsyncs"),
    function("vfs_fallocate", &["vfs_fallocate_in", "vfs_fallocate_out"], 4, "the kernel's own allocations"),
];

/// Programs that a recording can do without if the kernel refuses them, with the tracepoint and what is then not
/// recorded.
const SPARED: &[(&[&str], &str, &str)] = &[
    (&["bio_backmerge", "bio_frontmerge"], "block_bio_backmerge", "which bios joined a request"),
    (&["bio_remap"], "block_bio_remap", "the origin of bios that a mapped device passed on"),
    (&["bio_split"], "block_split", "files of bios that were split"),
    (&["rq_requeue"], "block_rq_requeue", "requests that were given back"),
    (&["task_moved"], "cgroup_attach_task", "moves between control groups"),
    (&["content_exit"], "sys_exit", "contents of writes"),
    (
        &["op_enter_again", "op_exit_again"],
        "raw_syscalls",
        "calls made while a probe of another task is preempted (counted)",
    ),
    (AGAIN, "block, io_uring and mm_filemap", "events for which the kernel skipped the first of two probes (counted)"),
    (&["wait_switch", "wait_waking", "symbols"], "sched_switch", "waits"),
    (&["mappings"], "iter/task_vma", "files that adopted processes have mapped"),
    LOOP,
];

/// Programs of the block layer. It is recorded only if all that are required can be loaded.
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

/// Second programs, most of them needed only where programs are preemptible (`bpf/src/bpf/block/bio.bpf.h`).
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

/// Those needed on every kernel: interrupts trigger them while the first program runs.
const IN_INTERRUPTS: &[&str] = &["bio_complete_again", "rq_complete_again"];

/// Disables the second programs that are not needed, or whose first program is disabled.
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

/// Programs for commits of journals and logs, by the module that may have their tracepoints.
const COMMITS: &[(&str, &[&str], &str)] = &[
    (
        "jbd2",
        &[
            "jbd2_start",
            "jbd2_locking",
            "jbd2_flushing",
            "jbd2_logging",
            "jbd2_stats",
            "jbd2_end",
            "jbd2_checkpoint",
            "jbd2_checkpointed",
        ],
        "jbd2_end_commit",
    ),
    ("ext4", &["ext4_fast_start", "ext4_fast_stop"], "ext4_fc_commit_stop"),
    ("xfs", &["xfs_log_start", "xfs_log_done"], "xlog_iclog_sync"),
    ("btrfs", &["btrfs_commit"], "btrfs_transaction_commit"),
];

/// Enables the programs for commits whose tracepoints exist, in the kernel or in a module that is loaded. A file system
/// that is not there makes no commits, so nothing is missing then.
fn choose_commits(object: &mut OpenObject, btf: Option<&Btf<'_>>, wanted: bool) {
    let built_in = |tracepoint| btf.is_some_and(|btf| arguments(btf, tracepoint).is_some());
    for (module, programs, tracepoint) in COMMITS {
        let there = built_in(tracepoint) || Path::new("/sys/kernel/btf").join(module).exists();
        object
            .progs_mut()
            .filter(|p| programs.iter().any(|n| p.name() == *n))
            .for_each(|mut p| p.set_autoload(wanted && there));
    }
}

/// What is lost with a program that the kernel refuses; `None` if the recording cannot do without it. `ops`: operations
/// are recorded as well, so the block layer is dispensable.
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
    if let Some((_, programs, tracepoint)) = COMMITS.iter().find(|(_, programs, _)| programs.contains(&program)) {
        return Some(missing(programs, tracepoint, "commits of journals and logs"));
    }
    if BLOCK[..BLOCK_NEEDED].contains(&program) {
        return ops.then(|| missing(BLOCK, "block_rq_complete", "bios and requests"));
    }
    let (programs, tracepoint, what) = SPARED.iter().find(|(programs, ..)| programs.contains(&program))?;
    Some(missing(programs, tracepoint, what))
}

/// Disables the programs that were refused.
pub(crate) fn leave_out(object: &mut OpenObject, refused: &[Missing]) {
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if refused.iter().any(|m| m.programs.contains(&name.as_str())) {
            program.set_autoload(false);
        }
    }
}

/// Disables the optional programs that are not `wanted` or not supported by this kernel. Returns what is wanted and not
/// supported.
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
    // These functions are in the module's BTF, so the module must be loaded.
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
    choose_commits(object, btf.as_ref(), wanted(Group::Waits));
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

/// Number of arguments that a tracepoint passes to a program; `None` if the kernel does not have it.
fn arguments(btf: &Btf<'_>, tracepoint: &str) -> Option<usize> {
    let typedef: Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let pointer = Ptr::try_from(typedef.next_type()?).ok()?;
    let prototype = FuncProto::try_from(pointer.next_type()?).ok()?;
    // The first argument is the tracepoint's private data.
    Some(prototype.iter().count().saturating_sub(1))
}

/// Number of arguments of a kernel function; `None` if the kernel does not have it.
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
