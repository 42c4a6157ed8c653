//! What a replay says for people.

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

/// What is about to be done.
pub(super) fn summary(s: &Summary) {
    out!("to replay   {} operations of {} threads, on {}", s.operations, s.threads, s.fstype);
    if s.implied > 0 {
        out!("            {} calls on rings are made by the requests themselves", s.implied);
    }
    let left: i64 = s.skipped.values().sum();
    if left > 0 {
        let all = (left + s.operations).max(1) as f64;
        out!("left out    {left} operations, {:.1} %", left as f64 / all * 100.0);
        for (why, n) in &s.skipped {
            let calls = if why == Skip::Unsupported.label() { most(&s.unknown) } else { String::new() };
            out!("            {n:>9}  {:>5.1} %  {why}{calls}", *n as f64 / all * 100.0);
        }
    }
    if s.strayed > 0 {
        out!("also        {} names outside --root: what was moved or linked over its border", s.strayed);
    }
    out!("to prepare  {} names, of which {} files, {}", s.prepare_items, s.prepare_files, bytes(s.prepare_bytes));
    out!(
        "room        {} to prepare and {} written, of {} free",
        bytes(s.prepare_bytes),
        bytes(s.growth_bytes),
        bytes(s.free_bytes)
    );
}

/// The most frequent of these calls.
fn most(calls: &BTreeMap<String, i64>) -> String {
    const TOLD: usize = 5;
    let mut calls: Vec<(&String, i64)> = calls.iter().map(|(name, n)| (name, *n)).collect();
    calls.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let words: Vec<String> = calls.iter().take(TOLD).map(|(name, n)| format!("{name} {n}")).collect();
    let more = if calls.len() > TOLD { ", …" } else { "" };
    if words.is_empty() { String::new() } else { format!(": {}{more}", words.join(", ")) }
}

/// How it went.
pub(super) fn report(r: &Report) {
    let v = &r.verdict;
    let c = v.results.classes;
    if !r.dry_run {
        let more = |n: i64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
        out!(
            "done        {} operations: {} results the same{}{}, {} wrong",
            r.done,
            c.same,
            more(c.benign, "differ that raced in the original"),
            more(c.unsupported, "not supported"),
            c.wrong
        );
    }
    for d in &v.results.differences {
        let class = if d.class == Class::Wrong { "" } else { "  (no fault)" };
        out!("            {:>9}  {}: {} -> {}{class}", d.count, d.op, d.recorded, d.replayed);
        for e in &d.examples {
            let path = e.path.as_deref().unwrap_or("(no path)");
            out!("                         {} -> {}  {path}", e.recorded, e.replayed);
        }
    }
    out!("elapsed     {:>12} to the last call, original {}", duration(r.elapsed_ns), duration(r.original_elapsed_ns));
    if let Some(synced) = r.synced_ns {
        let original = r.original_synced_ns.map_or_else(|| "unknown".to_owned(), duration);
        out!("            {:>12} to the end of syncfs, original {original}", duration(synced));
    }
    out!(
        "            {:>12} inside calls, all threads together, original {}",
        duration(v.replay_in_calls_ns),
        duration(v.original_in_calls_ns)
    );
    let t = &v.timing;
    out!("lateness    {}  the replayer's own", line(t.own_ns));
    out!("            {}  the same with what followed from it", line(t.caused_ns));
    out!("            {}  forced, by the target or by order", line(t.forced_ns));
    out!(
        "cost        {} of the elapsed time are the replayer's own, {:.1} %",
        duration(t.cost_ns),
        t.cost_share * 100.0
    );
    if let Some(ppm) = t.drift_ppm {
        out!("drift       {ppm:.1} ppm");
    }
    if let Some(gaps) = &t.gaps {
        out!("gaps        {}  error of inter-arrival times", line(gaps.error_ns));
    }
    if let Some(think) = t.think_error_ns {
        out!("thinking    {}  error of computing times", line(think));
    }
    flow(r.shift_ns, &v.concurrency);
    out!("CPU         {}; {} spun before deadlines, waits for a CPU included", duration(r.cpu_ns), duration(r.spun_ns));
    if let Some(c) = &r.cache {
        let how = match c.start {
            CacheStart::Recorded => "as recorded",
            CacheStart::Warm => "all that files hold",
            _ => "nothing",
        };
        out!("cached      {} at the start: {how}", bytes(c.resident_bytes));
    }
    if let Some(l) = &r.layout {
        layout(l);
    }
    if let Some(m) = &r.memory {
        let peak = m.peak_bytes.map_or_else(|| "unknown".to_owned(), bytes);
        out!("memory      {peak} at most, of {} allowed", bytes(m.limit_bytes));
    }
    if let Some(d) = &r.data {
        let foreign = if d.unchecked_bytes > 0 {
            format!(", {} copied or moved, not checked", bytes(d.unchecked_bytes))
        } else {
            String::new()
        };
        out!(
            "data        {} read as written, {} of them holes; {} wrong{foreign}",
            bytes(d.good_bytes),
            bytes(d.hole_bytes),
            bytes(d.bad_bytes)
        );
        for e in &d.examples {
            let path = e.path.as_deref().unwrap_or("(no path)");
            out!("            {} wrong from {} on  {path}", bytes(e.bytes), e.offset_bytes);
        }
    }
    if let Some(tree) = &v.tree {
        out!("tree        {} names, {} differ; digest {}", tree.found, tree.differing, tree.full_digest);
        for e in &tree.examples {
            out!("            {e}");
        }
    }
    if let Some(x) = &r.restored {
        out!(
            "restored    {} names made again, {} directories adjusted, {} names removed, {} kept",
            x.made,
            x.adjusted,
            x.removed,
            x.kept
        );
    }
    for w in &r.warnings {
        tell!("ioreel: {w}");
    }
    out!("{}", v.sentence);
}

/// How near files came to how they lay.
pub(super) fn layout(l: &LayoutReport) {
    let untold = if l.untold > 0 { format!("; {} files cannot be asked here", l.untold) } else { String::new() };
    out!(
        "layout      {} extents of {} files, recorded {}; {} files with as many as they had{untold}",
        l.made_extents,
        l.files,
        l.recorded_extents,
        l.alike
    );
}

/// Percentiles of a time in a line.
pub(super) fn line(s: Spread) -> String {
    format!("p50 {}  p90 {}  p99 {}  max {}", duration(s.p50), duration(s.p90), duration(s.p99), duration(s.max))
}

/// How long runs took.
pub(super) fn runs(mut elapsed_ns: Vec<i64>) {
    elapsed_ns.sort_unstable();
    let (Some(least), Some(most)) = (elapsed_ns.first(), elapsed_ns.last()) else { return };
    let median = elapsed_ns[elapsed_ns.len() / 2];
    out!(
        "elapsed     {} in the median of {} runs, {} to {}",
        duration(median),
        elapsed_ns.len(),
        duration(*least),
        duration(*most)
    );
}

/// How far stalls moved the schedule, and how many were in flight, of calls or of bios.
pub(super) fn flow(shift_ns: i64, k: &Concurrency) {
    if shift_ns > 0 {
        out!("shifted     {} by stalls", duration(shift_ns));
    }
    out!(
        "in flight   mean {:.2}, most {}; original mean {:.2}, most {}",
        k.replay_mean,
        k.replay_max,
        k.original_mean,
        k.original_max
    );
}
