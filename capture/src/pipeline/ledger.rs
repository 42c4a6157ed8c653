//! The ledger: events that the probes saw against rows in the reel. Also the cost of recording.

use ioreel_bpf::types::{cpu_ledger, filter_why, hide, rec_class};
use ioreel_traces::{
    Manifest,
    manifest::{Cost, Ledger, Mount},
};

use crate::{
    assemble::{
        Assembler,
        context_filter::{Sieve, Why},
    },
    host::{self, mount_sizes},
    probes::session::Unended,
};

/// A column of `ops` that has a value exactly where a content was examined.
const HASHED: &str = "compressibility_permille";

/// The kernel's counters, one entry per CPU.
pub(crate) struct Books<'a>(pub(crate) &'a [cpu_ledger]);

impl Books<'_> {
    fn sum(&self, f: impl Fn(&cpu_ledger) -> u64) -> i64 {
        self.0.iter().map(|c| f(c) as i64).sum()
    }

    /// Events of a class: seen, and lost because a ring was full.
    pub(crate) fn class(&self, c: rec_class) -> (i64, i64) {
        (self.sum(|l| l.seen[c.0 as usize]), self.sum(|l| l.lost[c.0 as usize]))
    }

    /// Hidden events: of the recorder's own files, and of the backing files of loop devices.
    pub(crate) fn hidden(&self, f: impl Fn(&cpu_ledger) -> [u64; 3]) -> (i64, i64) {
        let of = |h: hide| self.sum(|l| f(l)[h.0 as usize]);
        (of(hide::HIDE_OWN), of(hide::HIDE_BACKING))
    }
}

/// Fills the ledger of the manifest. All open segments must have been flushed, because rows that are not on disk count
/// as lost. `in_flight`: operations unfinished at the end; `unended`: requests and bios unfinished at the end.
///
/// Long because it fills one entry after another, each from its own counters.
pub(crate) fn fill(
    manifest: &mut Manifest,
    cpus: &[cpu_ledger],
    assembler: &mut Assembler,
    in_flight: i64,
    unended: &Unended,
) {
    let books = Books(cpus);
    // Hashes were counted when rows were made; only the segments say how many are still in the reel.
    let (hashed, hashes) = match &assembler.contents {
        Some(contents) => (contents.written, assembler.writer.ops.values_of(HASHED).unwrap_or(0)),
        None => (0, 0),
    };
    let hashes_rotated =
        if assembler.writer.ops.lost() == 0 && assembler.writer.ops.rotated() > 0 { hashed - hashes } else { 0 };
    let rotated = |name: &str| match name {
        "contents" => hashes_rotated,
        "ops" => assembler.writer.ops.rotated(),
        "block" => assembler.writer.block.rotated(),
        "bio" => assembler.writer.bio.rotated(),
        "waits" => assembler.writer.waits.rotated(),
        "cache" => assembler.writer.cache.rotated(),
        "commits" => assembler.writer.commits.rotated(),
        _ => 0,
    };
    let mut enter = |name: &str, (seen, dropped): (i64, i64), hidden: i64, written: i64, made: i64| {
        let rotated = rotated(name);
        // Made but not written: an output error.
        let lost = dropped + (made - written - rotated);
        let filtered = hidden + rotated;
        manifest.ledger.insert(name.into(), Ledger { seen: seen + hidden, written, lost, filtered });
    };
    let counts = assembler.counts;
    let (own_rq, backing_rq) = books.hidden(|l| l.hidden_rq);
    let (own_bio, backing_bio) = books.hidden(|l| l.hidden_bio);
    let (mut ops_seen, mut ops_lost) = books.class(rec_class::CLASS_OPS);
    // io_uring requests, accesses to mapped files and I/O by the kernel itself are rows of the same table.
    for class in [rec_class::CLASS_URING, rec_class::CLASS_FAULT, rec_class::CLASS_VFS] {
        let (seen, lost) = books.class(class);
        ops_seen += seen;
        ops_lost += lost;
    }
    let syscall_rows = assembler.writer.ops.written() - assembler.tool_rows;
    let unplaced = counts.unplaced;
    let refused = assembler.aio.refused;
    let sifted = assembler.sieve.as_ref().map_or(0, Sieve::left_out);
    let in_kernel = books.sum(|l| l.left_out.iter().sum());
    // These arrived as records and were dropped here.
    let orphans = assembler.below.left_out;
    let dropped_here = unplaced + refused + sifted + orphans;
    let seen = ops_seen + in_flight - dropped_here;
    enter("ops", (seen, ops_lost), dropped_here + in_kernel, syscall_rows.min(counts.ops), counts.ops);
    let (rq_seen, rq_lost) = books.class(rec_class::CLASS_BLOCK);
    let requests = (rq_seen + unended.requests.len() as i64, rq_lost);
    enter("block", requests, own_rq + backing_rq, assembler.writer.block.written(), counts.block);
    let (bio_seen, bio_lost) = books.class(rec_class::CLASS_BIO);
    let bios = (bio_seen + unended.bios.len() as i64, bio_lost);
    enter("bio", bios, own_bio + backing_bio, assembler.writer.bio.written(), counts.bio);
    let dropped = assembler.waits.as_ref().map_or(0, |w| w.dropped);
    if assembler.waits.is_some() {
        let (seen, lost) = books.class(rec_class::CLASS_WAITS);
        let written = assembler.writer.waits.written();
        enter("waits", (seen - dropped, lost), dropped, written, counts.waits - dropped);
    }
    let commits = books.class(rec_class::CLASS_COMMITS);
    if commits.0 != 0 {
        let (elsewhere, written) = (counts.commits_elsewhere, assembler.writer.commits.written());
        enter("commits", (commits.0 - elsewhere, commits.1), elsewhere, written, counts.commits - elsewhere);
    }
    // Several records may make one row, so records are counted.
    enter("files", books.class(rec_class::CLASS_FILES), 0, counts.files, counts.files);
    let results = books.class(rec_class::CLASS_AIO);
    if results.0 > 0 {
        enter("aio", results, 0, counts.aio_results, counts.aio_results);
    }
    let cache = books.class(rec_class::CLASS_CACHE);
    let own_cache = books.sum(|l| l.hidden_cache);
    if cache.0 + own_cache != 0 {
        enter("cache", cache, own_cache, assembler.writer.cache.written(), counts.cache);
    }
    let (unread, large) = (books.sum(|l| l.content_unread), books.sum(|l| l.content_large));
    if let Some(contents) = &assembler.contents {
        let (seen, lost) = books.class(rec_class::CLASS_CONTENT);
        // Contents that did not match an operation, because it was lost or arrived too early. They are not lost in the
        // ring.
        let sifted = contents.sifted;
        let made = (seen - lost - sifted).max(hashed);
        enter("contents", (seen - sifted, lost), unread + large + sifted, hashes, made);
    }
    let facts = books.class(rec_class::CLASS_URING_FACTS);
    if facts.0 != 0 {
        enter("io_uring", facts, 0, counts.uring_facts, counts.uring_facts);
    }
    enter("tasks", books.class(rec_class::CLASS_TASKS), 0, counts.tasks, counts.tasks);

    let mut left_out = |why: &str, n: i64| {
        if n != 0 {
            manifest.left_out.insert(why.into(), n);
        }
    };
    left_out("requests of the recorder's own reading and writing", own_rq);
    left_out("bios of the recorder's own reading and writing", own_bio);
    left_out("requests a recorded loop device passed to its backing file", backing_rq);
    left_out("bios a recorded loop device passed to its backing file", backing_bio);
    left_out("ends of requests that no probe saw before the recording's end", counts.endless_requests);
    left_out("ends of bios that no probe saw before the recording's end", counts.endless_bios);
    left_out("operations dropped again by rotation", assembler.writer.ops.rotated());
    left_out("requests dropped again by rotation", assembler.writer.block.rotated());
    left_out("bios dropped again by rotation", assembler.writer.bio.rotated());
    left_out("contents dropped again by rotation", hashes_rotated);
    left_out("waits dropped again by rotation", assembler.writer.waits.rotated());
    left_out("commits dropped again by rotation", assembler.writer.commits.rotated());
    left_out("commits of file systems that no recorded operation used", counts.commits_elsewhere);
    left_out("events of the page cache dropped again by rotation", assembler.writer.cache.rotated());
    left_out("times a process could not be stopped (--lossless)", books.sum(|l| l.unstoppable));
    left_out("calls by the 32-bit entry that are not recorded", books.sum(|l| l.compat_calls));
    left_out("paths that could not be read from the caller's memory", books.sum(|l| l.path_faults));
    left_out("calls recorded without paths for want of memory", books.sum(|l| l.no_path_state));
    left_out("bios and requests without queue or issue time for want of room in a table", books.sum(|l| l.map_full));
    left_out("requests that io_submit did not take", refused);
    left_out("asynchronous I/O whose control block or result could not be read", books.sum(|l| l.aio_unread));
    left_out("results of asynchronous I/O whose request is not recorded", assembler.aio.strange);
    left_out("waits of operations faster than asked for, or left out by the filters", dropped);
    left_out("waits not followed for want of memory", books.sum(|l| l.no_wait_state));
    left_out("waits whose begin or end no probe saw", books.sum(|l| l.waits_unseen));
    left_out("cache events of the recorder's own output", own_cache);
    left_out("touches of mapped program code", books.sum(|l| l.code_faults));
    left_out("io_uring requests that are no file operations", books.sum(|l| l.uring_other));
    left_out("contents of writes that could not be read from the caller's memory", unread);
    left_out("contents of writes longer than is read", large);
    let sifted = assembler.contents.as_ref().map_or(0, |c| c.sifted);
    left_out("contents of operations left out by filters", sifted);
    let without = assembler.contents.as_ref().map(|c| c.without).unwrap_or_default();
    left_out("contents of splices, copies and clones, which are never in the caller's memory", without.elsewhere);
    left_out("contents of first stores to pages of mapped files", without.mapped);
    left_out("contents of writes whose beginning or end no probe saw", without.unseen);
    left_out("further completions of io_uring requests that post several", books.sum(|l| l.uring_more));
    left_out("threads not followed for want of memory", books.sum(|l| l.untracked));
    for (option, why) in [
        ("--op", filter_why::FILTER_CALL),
        ("--comm or --uid", filter_why::FILTER_THREAD),
        ("--path or --device", filter_why::FILTER_FILE),
        ("--min-latency", filter_why::FILTER_QUICK),
    ] {
        left_out(&format!("calls left out by {option}, in the kernel"), books.sum(|l| l.left_out[why.0 as usize]));
    }
    if let Some(sieve) = &assembler.sieve {
        let (reasons, others, context) = sieve.reasons();
        for (option, n) in [
            ("--op", reasons[Why::Call as usize]),
            ("--comm or --uid", reasons[Why::Thread as usize]),
            ("--path or --device", reasons[Why::File as usize]),
            ("--min-latency", reasons[Why::Quick as usize]),
        ] {
            left_out(&format!("calls left out by {option}, by the recorder"), n);
        }
        left_out("io_uring requests, touches of mappings and the like left out by filters, by the recorder", others);
        left_out("openings, copies and closings of descriptors that nothing else kept uses", context);
    }
    left_out("operations below others that filters left out", orphans);
    left_out("operations of the kernel's own not followed for want of memory", books.sum(|l| l.vfs_unfollowed));
    left_out("unmappings of memory that is no recorded file's", unplaced);
    left_out("records of unknown form", counts.strange);
    for probe in &manifest.probes {
        if probe.missed != 0 {
            manifest.warnings.push(format!(
                "the kernel skipped the probe {} {} times; those events are missing",
                probe.name, probe.missed
            ));
        }
    }
}

/// Adds the mounts and devices that rows refer to. `mounts`: those at the start.
pub(crate) fn places(manifest: &mut Manifest, assembler: &Assembler, mounts: &[Mount]) {
    // A file system may have been mounted during the recording. Sizes are queried only for file systems in use.
    let mut now = host::mounts();
    now.retain(|m| assembler.touched.contains(&m.sb_dev));
    manifest.warnings.extend(mount_sizes::fill(&mut now));
    let touched = now.iter().chain(mounts).filter(|m| assembler.touched.contains(&m.sb_dev));
    let rows: Vec<Mount> = touched.map(|mount| with_facts(mount, &now, mounts)).collect();
    add_places(manifest, assembler, rows.iter());
}

/// The mount with its free space at both ends, and what its superblock says. `now` are the mounts at the end, `mounts`
/// those at the start.
fn with_facts(mount: &Mount, now: &[Mount], mounts: &[Mount]) -> Mount {
    let sized = |all: &[Mount]| all.iter().find(|m| m.sb_dev == mount.sb_dev && m.total_bytes > 0).cloned();
    let mut row = Mount { free_end_bytes: sized(now).map(|m| m.free_bytes), ..mount.clone() };
    // Another file system may have the number by now.
    if let Some(before) = sized(mounts).filter(|b| b.fstype == row.fstype && b.source == row.source) {
        (row.total_bytes, row.free_bytes) = (row.total_bytes.max(before.total_bytes), before.free_bytes);
    }
    host::fill_facts(&mut row);
    row
}

/// Adds those of these mounts that rows refer to, and the devices. Of several mounts of a file system, the first counts.
pub(super) fn add_places<'a>(manifest: &mut Manifest, assembler: &Assembler, mounts: impl Iterator<Item = &'a Mount>) {
    for mount in mounts {
        if assembler.touched.contains(&mount.sb_dev)
            && !manifest.mounts.contains(mount)
            && manifest.mount_of(mount.sb_dev).is_none()
        {
            manifest.mounts.push(mount.clone());
        }
    }
    let mut disks = assembler.disks.clone();
    disks.extend(manifest.mounts.iter().flat_map(host::disks_of));
    manifest.devices = disks.iter().map(|d| host::device(*d)).collect();
}

/// The recorder's own use of CPU and memory.
pub(crate) fn own_cost(cost: &mut Cost, ledgers: &[cpu_ledger]) {
    // Measured when the probes were attached.
    let aside_ns = cost.call_ns.take().unwrap_or(0);
    let of_cpus = |what: fn(&cpu_ledger) -> u64| ledgers.iter().map(what).sum::<u64>() as i64;
    let entry_ns = of_cpus(|l| l.entry_ns).checked_div(of_cpus(|l| l.timed_entries));
    let exit_ns = of_cpus(|l| l.exit_ns).checked_div(of_cpus(|l| l.timed_exits));
    cost.call_ns = entry_ns.zip(exit_ns).map(|(entry_ns, exit_ns)| aside_ns + entry_ns + exit_ns);
    // SAFETY: a zeroed rusage is valid and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let ns = |t: libc::timeval| t.tv_sec * 1_000_000_000 + t.tv_usec * 1_000;
    cost.cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
    cost.max_rss_bytes = usage.ru_maxrss * 1024;
}
