//! Prints a replay's plan and report.

use std::collections::BTreeMap;

use ioreel_replay::{
    Report, Skip, Summary,
    base::distribution::Spread,
    prepare::{layout::LayoutReport, page_cache::CacheStart},
    verdict::{concurrency::Concurrency, results::Class},
};

use crate::{
    output::{out, tell},
    units::{bytes, duration},
};

/// Prints the plan.
pub(super) fn summary(s: &Summary) {
    out!("to replay   {} operations of {} threads, on {}", s.operations, s.threads, s.fstype);
    if s.implied > 0 {
        out!("            {} more are carried out with others: calls on rings, receipts of descriptors", s.implied);
    }
    let left: i64 = s.skipped.values().sum();
    if left > 0 {
        let all = (left + s.operations).max(1) as f64;
        out!("skipped     {left} operations, {:.1} %", left as f64 / all * 100.0);
        for (why, n) in &s.skipped {
            let calls = if why == Skip::Unsupported.label() { most(&s.unknown) } else { String::new() };
            out!("            {n:>9}  {:>5.1} %  {why}{calls}", *n as f64 / all * 100.0);
        }
    }
    if s.set_ids_left_out > 0 {
        out!(
            "without     set-ID bits and privileged attributes: {} files and operations (--set-ids)",
            s.set_ids_left_out
        );
    }
    if s.device_nodes_left_out > 0 {
        out!("without     {} device nodes (--device-nodes, as root)", s.device_nodes_left_out);
    }
    if s.strayed > 0 {
        out!("also        {} names outside --root, moved or linked across its boundary", s.strayed);
    }
    out!("seed        {} of the data written", s.seed);
    out!("to prepare  {} names, {} of them files, {}", s.prepare_items, s.prepare_files, bytes(s.prepare_bytes));
    out!(
        "space       {} to prepare, {} written by the workload, {} free",
        bytes(s.prepare_bytes),
        bytes(s.growth_bytes),
        bytes(s.free_bytes)
    );
}

/// The most frequent of `calls`.
fn most(calls: &BTreeMap<String, i64>) -> String {
    const SHOWN: usize = 5;
    let mut calls: Vec<(&String, i64)> = calls.iter().map(|(name, n)| (name, *n)).collect();
    calls.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let words: Vec<String> = calls.iter().take(SHOWN).map(|(name, n)| format!("{name} {n}")).collect();
    let more = if calls.len() > SHOWN { ", …" } else { "" };
    if words.is_empty() { String::new() } else { format!(": {}{more}", words.join(", ")) }
}

/// Prints the report.
pub(super) fn report(r: &Report) {
    results(r);
    timing(r);
    state(r);
    for w in &r.warnings {
        tell!("ioreel: {w}");
    }
    out!("{}", r.verdict.sentence);
}

/// Prints how many results are equal, and the differences.
fn results(r: &Report) {
    let v = &r.verdict;
    let c = v.results.classes;
    if !r.dry_run {
        let more = |n: i64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
        out!(
            "done        {} operations: {} results equal{}{}, {} wrong",
            r.done,
            c.same,
            more(c.benign, "differ that raced in the recording"),
            more(c.unsupported, "not supported"),
            c.wrong
        );
    }
    for d in &v.results.differences {
        let class = if d.class == Class::Wrong { "" } else { "  (not counted)" };
        out!("            {:>9}  {}: {} -> {}{class}", d.count, d.op, d.recorded, d.replayed);
        for e in &d.examples {
            let path = e.path.as_deref().unwrap_or("(no path)");
            out!("                         {} -> {}  {path}", e.recorded, e.replayed);
        }
    }
}

/// Prints durations, lateness and concurrency.
fn timing(r: &Report) {
    let v = &r.verdict;
    out!("elapsed     {:>12} to the last call, original {}", duration(r.elapsed_ns), duration(r.original_elapsed_ns));
    if let Some(synced) = r.synced_ns {
        let original = r.original_synced_ns.map_or_else(|| "unknown".to_owned(), duration);
        out!("            {:>12} to the end of syncfs, original {original}", duration(synced));
    }
    out!(
        "            {:>12} inside calls, sum over threads, original {}",
        duration(v.replay_in_calls_ns),
        duration(v.original_in_calls_ns)
    );
    let t = &v.timing;
    out!("lateness    {}  of the replayer", line(t.own_ns));
    out!("            {}  of the replayer, with delays that followed from it", line(t.caused_ns));
    out!("            {}  forced by the target or by order", line(t.forced_ns));
    out!("cost        {} of the elapsed time due to the replayer, {:.1} %", duration(t.cost_ns), t.cost_share * 100.0);
    if let Some(ppm) = t.drift_ppm {
        out!("drift       {ppm:.1} ppm");
    }
    if let Some(gaps) = &t.gaps {
        out!("gaps        {}  error of inter-arrival times", line(gaps.error_ns));
    }
    if let Some(think) = t.think_error_ns {
        out!("thinking    {}  error of think times", line(think));
    }
    flow(r.shift_ns, &v.concurrency);
    out!(
        "CPU         {}; {} busy-waiting before deadlines, including waits for a CPU",
        duration(r.cpu_ns),
        duration(r.spun_ns)
    );
}

/// Prints the state of cache, disk layout, memory, data and tree.
fn state(r: &Report) {
    let v = &r.verdict;
    if let Some(c) = &r.cache {
        let how = match c.start {
            CacheStart::Recorded => "as recorded",
            CacheStart::Warm => "all file data",
            _ => "empty",
        };
        out!("cached      {} at the start: {how}", bytes(c.resident_bytes));
    }
    if let Some(l) = &r.layout {
        layout(l);
    }
    if let Some(m) = &r.memory {
        let peak = m.peak_bytes.map_or_else(|| "unknown".to_owned(), bytes);
        out!("memory      peak {peak}, limit {}", bytes(m.limit_bytes));
    }
    if let Some(d) = &r.data {
        let foreign = if d.unchecked_bytes > 0 {
            format!(", {} copied or moved and not checked", bytes(d.unchecked_bytes))
        } else {
            String::new()
        };
        out!(
            "data        {} read correctly, {} of them holes; {} wrong{foreign}",
            bytes(d.good_bytes),
            bytes(d.hole_bytes),
            bytes(d.bad_bytes)
        );
        for e in &d.examples {
            let path = e.path.as_deref().unwrap_or("(no path)");
            out!("            {} wrong at offset {}  {path}", bytes(e.bytes), e.offset_bytes);
        }
    }
    let left = &v.left_out;
    if left.total() > 0 {
        out!("left out    {} operations on replayed files; the owner of {} names", left.operations, left.owners);
        for e in left.examples.iter().chain(&left.owner_examples) {
            out!("            {e}");
        }
    }
    if let Some(tree) = &v.tree {
        let c = &tree.compared;
        out!("tree        {} names, {} differ; digest {}", tree.found, tree.differing, tree.full_digest);
        out!(
            "            compared: {} types, {} sizes, {} modes, {} owners, {} link counts, {} sets of attributes",
            c.types,
            c.sizes,
            c.modes,
            c.uids,
            c.link_counts,
            c.attributes
        );
        for e in &tree.examples {
            out!("            {e}");
        }
    }
    if let Some(x) = &r.restored {
        out!(
            "restored    {} names recreated, {} directories adjusted, {} names removed, {} unchanged",
            x.made,
            x.adjusted,
            x.removed,
            x.kept
        );
    }
}

/// Prints how closely the disk layout was reproduced.
pub(super) fn layout(l: &LayoutReport) {
    let untold = if l.untold > 0 {
        format!("; {} files without layout information on this file system", l.untold)
    } else {
        String::new()
    };
    out!(
        "layout      {} extents of {} files, recorded {}; {} files with the recorded number{untold}",
        l.made_extents,
        l.files,
        l.recorded_extents,
        l.alike
    );
}

/// Percentiles of a time, on one line.
pub(super) fn line(s: Spread) -> String {
    format!("p50 {}  p90 {}  p99 {}  max {}", duration(s.p50), duration(s.p90), duration(s.p99), duration(s.max))
}

/// Prints median and range of the elapsed times of several runs.
pub(super) fn runs(mut elapsed_ns: Vec<i64>) {
    elapsed_ns.sort_unstable();
    let (Some(least), Some(most)) = (elapsed_ns.first(), elapsed_ns.last()) else { return };
    let median = elapsed_ns[elapsed_ns.len() / 2];
    out!(
        "elapsed     median {} of {} runs, {} to {}",
        duration(median),
        elapsed_ns.len(),
        duration(*least),
        duration(*most)
    );
}

/// Prints the shift of the schedule and the number of calls or bios in flight.
pub(super) fn flow(shift_ns: i64, k: &Concurrency) {
    if shift_ns > 0 {
        out!("shifted     {} because of stalls", duration(shift_ns));
    }
    out!(
        "in flight   mean {:.2}, max {}; original mean {:.2}, max {}",
        k.replay_mean,
        k.replay_max,
        k.original_mean,
        k.original_max
    );
}
