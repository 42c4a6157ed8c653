//! Which probes this kernel has a place for. Tracepoints come, go and change their arguments between releases;
//! what decides is the prototype in the kernel's own type information, never the version.

use std::ffi::OsStr;

use libbpf_rs::{
    OpenObject,
    btf::{
        Btf,
        types::{FuncProto, Ptr, Typedef},
    },
};

/// What a probe is for, as far as it may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Requests to io_uring.
    Uring,
    /// Touches of mapped files.
    Fault,
    /// The page cache.
    Cache,
}

/// A probe that may be absent.
struct Optional {
    program: &'static str,
    tracepoint: &'static str,
    group: Group,
    /// Arguments of the tracepoint that the program understands.
    arguments: std::ops::RangeInclusive<usize>,
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
    other("fault_touch", "mm_filemap_fault", Group::Fault, 2..=9, "first touches of pages of mapped files"),
    other("fault_around", "mm_filemap_map_pages", Group::Fault, 3..=9, "touches of cached pages of mapped files"),
    other("fault_dirty", "writeback_dirty_folio", Group::Fault, 2..=9, "first stores to pages of mapped files"),
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
    Optional { program, tracepoint, group, arguments, without: Some(what) }
}

const fn uring(
    program: &'static str,
    tracepoint: &'static str,
    arguments: std::ops::RangeInclusive<usize>,
    without: Option<&'static str>,
) -> Optional {
    Optional { program, tracepoint, group: Group::Uring, arguments, without }
}

/// Of these sets of programs one must fit, or what they are for is not recorded.
const ONE_OF: &[(&[&str], Group, &str)] = &[
    (&["uring_submit", "uring_submit_old"], Group::Uring, "io_uring requests"),
    (&["uring_complete", "uring_complete_old"], Group::Uring, "io_uring requests"),
];

/// A probe that is not in use because the kernel has no place for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The tracepoint.
    pub tracepoint: &'static str,
    /// What is not recorded for want of it.
    pub what: &'static str,
}

/// Switches off the optional programs that `wanted` does not ask for or that do not fit this kernel; tells which
/// of those asked for have no place.
pub(crate) fn choose(object: &mut OpenObject, wanted: &dyn Fn(Group) -> bool) -> Vec<Missing> {
    let btf = Btf::from_vmlinux().ok();
    let fits = |o: &Optional| {
        let arguments = btf.as_ref().and_then(|btf| arguments(btf, o.tracepoint));
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
    missing.retain(|(_, group)| wanted(*group));
    missing.into_iter().map(|(m, _)| m).collect()
}

fn missing(used: &[(&Optional, bool)]) -> Vec<(Missing, Group)> {
    let single = used
        .iter()
        .filter(|(_, fits)| !fits)
        .filter_map(|(o, _)| o.without.map(|what| (Missing { tracepoint: o.tracepoint, what }, o.group)));
    let sets = ONE_OF.iter().filter_map(|(programs, group, what)| {
        let of_set = || used.iter().filter(|(o, _)| programs.contains(&o.program));
        let tracepoint = of_set().next()?.0.tracepoint;
        (!of_set().any(|(_, fits)| *fits)).then_some((Missing { tracepoint, what }, *group))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_that_fits_stands_for_the_other() {
        let all = |fit: &dyn Fn(&str) -> bool| -> Vec<Missing> {
            let used: Vec<_> = OPTIONAL.iter().map(|o| (o, fit(o.program))).collect();
            missing(&used).into_iter().map(|(m, _)| m).collect()
        };
        assert!(all(&|p| p != "uring_complete_old" && p != "uring_submit_old").is_empty());
        assert!(all(&|p| p != "uring_complete" && p != "uring_submit").is_empty());
        let none = all(&|p| !p.starts_with("uring_complete"));
        assert_eq!(none, [Missing { tracepoint: "io_uring_complete", what: "io_uring requests" }]);
    }
}
