//! `ioreel diagnose`: where the time went, and what is wrong.

use std::{path::PathBuf, process::ExitCode};

use ioreel_analyze::findings::{
    Comparison, Confidence, DETECTORS, Diagnosis, Difference, Finding, LEAST_SHARE, LockHolder, Part, TimeInCalls,
    TimeOf,
};
use ioreel_traces::{Reel, suggest};
use serde::Serialize;

use crate::{
    columns::{Columns, bold, count, dim},
    output::{out, print_json},
    units::{bytes, duration},
};

/// Status when a finding of `--fail-on` was found.
const FOUND: u8 = 3;
/// Width of the longest bar.
const BAR: f64 = 30.0;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The reel
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// Split the difference in time between REEL and this one: another file system, another day, another kernel
    #[arg(long, value_name = "REEL", conflicts_with_all = ["all", "fail_on"])]
    against: Option<PathBuf>,
    /// Also report findings that cost less than 5 % of the elapsed time
    #[arg(long)]
    all: bool,
    /// Exit with status 3 if this finding costs at least SECONDS (default: 5 % of the elapsed time); repeatable
    #[arg(long, value_name = "ID[:SECONDS]", value_parser = limit)]
    fail_on: Vec<Limit>,
    /// Print JSON (schema ioreel.diagnosis/1, docs/json.md)
    #[arg(long)]
    json: bool,
}

const NOTES: &str = "\
docs/diagnosis.md describes each finding. The cost of a finding is the time by which the workload would be shorter with the
remedy. Costs overlap: one request may be part of several findings.

Record with --waits to learn what calls waited for. Without it, the times are derived from the requests in flight.";

/// A value of `--fail-on`.
#[derive(Clone, Copy, Debug)]
struct Limit {
    id: &'static str,
    seconds: Option<f64>,
}

fn limit(text: &str) -> Result<Limit, String> {
    let (id, seconds) = match text.split_once(':') {
        Some((id, seconds)) => (id, Some(seconds)),
        None => (text, None),
    };
    let ids: Vec<&str> = DETECTORS.iter().map(|d| d.id).collect();
    let Some(known) = ids.iter().find(|known| **known == id) else {
        return Err(suggest::unknown("finding", id, &ids));
    };
    let seconds = seconds
        .map(|s| s.parse::<f64>().ok().filter(|s| s.is_finite() && *s >= 0.0))
        .map(|s| s.ok_or_else(|| format!("'{text}': seconds expected after the colon, as in {id}:0.5")))
        .transpose()?;
    Ok(Limit { id: known, seconds })
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    reel: String,
    path: String,
    lost: i64,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
}

/// Runs `ioreel diagnose`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    if let Some(against) = &args.against {
        return compare(&reel, &Reel::open(against)?, args.json);
    }
    let needs_all = args.all || args.fail_on.iter().any(|l| l.seconds.is_some());
    let mut diagnosis = Diagnosis::of(&reel, needs_all)?;
    let failed = args.fail_on.iter().any(|limit| diagnosis.findings.iter().any(|f| reaches(f, limit)));
    if needs_all && !args.all {
        let all = diagnosis.findings.len();
        diagnosis.findings.retain(|f| f.share >= LEAST_SHARE);
        diagnosis.below_threshold = all - diagnosis.findings.len();
    }
    if args.json {
        let path = reel.path().display().to_string();
        print_json(&Document {
            schema: "ioreel.diagnosis/1",
            reel: reel.name(),
            path,
            lost: reel.manifest.lost(),
            diagnosis: &diagnosis,
        })?;
    } else {
        print(&reel, &diagnosis);
    }
    Ok(if failed { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}

#[derive(Serialize)]
struct ComparisonDocument<'a> {
    schema: &'static str,
    reel: String,
    against: String,
    #[serde(flatten)]
    comparison: &'a Comparison,
}

fn compare(reel: &Reel, against: &Reel, json: bool) -> anyhow::Result<ExitCode> {
    let comparison = Comparison::of(reel, against)?;
    if json {
        let (reel, against) = (reel.name(), against.name());
        let schema = "ioreel.difference/1";
        print_json(&ComparisonDocument { schema, reel, against, comparison: &comparison })?;
        return Ok(ExitCode::SUCCESS);
    }
    let (here, there) = (comparison.elapsed_ns, comparison.against_elapsed_ns);
    let words = if here >= there { "longer" } else { "less" };
    out!(
        "{} {}, {} {}: {} {words}, {:.2} times as long",
        reel.name(),
        ns(here),
        against.name(),
        ns(there),
        ns((here - there).abs()),
        here / there
    );
    if let Some(cause) = &comparison.first_cause {
        let (operation, part) = cause.name.split_once(": ").unwrap_or((&cause.name, ""));
        out!("Most of it: {operation}, {}: {}", words_of_part(part), signed(cause));
    }
    print_differences("By part of the time", "part", &comparison.parts, |name| match name {
        "outside_calls" => "outside calls".to_owned(),
        name => words_of_part(name).to_owned(),
    });
    print_differences("By operation", "operation", &comparison.operations, str::to_owned);
    print_differences("By file", "file, below its mount point", &comparison.files, str::to_owned);
    for (title, ids) in [(reel.name(), &comparison.only_here), (against.name(), &comparison.only_there)] {
        if !ids.is_empty() {
            out!();
            out!("Found in {title} only: {}", ids.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn signed(d: &Difference) -> String {
    let sign = if d.longer_ns() < 0.0 { "-" } else { "+" };
    format!("{sign}{}", ns(d.longer_ns().abs()))
}

fn print_differences(title: &str, head: &'static str, all: &[Difference], name: impl Fn(&str) -> String) {
    let mut t = Columns::new(&[head, ">calls", ">against", ">time", ">against", ">difference"]);
    for d in all {
        let calls = |n: u64| if d.calls + d.against_calls == 0 { String::new() } else { count(n) };
        t.row([name(&d.name), calls(d.calls), calls(d.against_calls), ns(d.ns), ns(d.against_ns), signed(d)]);
    }
    t.print(title);
}

fn reaches(finding: &Finding, limit: &Limit) -> bool {
    finding.id == limit.id
        && match limit.seconds {
            Some(seconds) => finding.cost_s >= seconds,
            None => finding.share >= LEAST_SHARE,
        }
}

fn ns(ns: f64) -> String {
    duration(ns.round() as i64)
}

fn print(reel: &Reel, diagnosis: &Diagnosis) {
    let lost = reel.manifest.lost();
    let lost = if lost > 0 { format!(", {} EVENTS LOST", count(lost.unsigned_abs())) } else { String::new() };
    out!("{}, {}{lost}", reel.name(), ns(diagnosis.elapsed_ns));
    if let Some(time) = &diagnosis.time {
        print_time(time);
    }
    print_findings(diagnosis);
}

fn print_time(time: &TimeInCalls) {
    out!();
    let how = if time.from == "recorded" { "from recorded waits" } else { "derived from requests in flight" };
    out!("{} {}", bold("Time in calls"), dim(&format!("{} in {} calls, {how}", ns(time.time_ns), count(time.calls))));
    let mut parts = time.parts.named().to_vec();
    parts.retain(|(_, part_ns)| *part_ns > 0.0);
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let longest = parts.first().map_or(1.0, |(_, part_ns)| *part_ns).max(1.0);
    let mut t = Columns::new(&["part", ">time", ">share", ""]);
    for (name, part_ns) in parts {
        t.row([
            words_of_part(name).to_owned(),
            ns(part_ns),
            share(part_ns / time.time_ns.max(1.0)),
            "#".repeat((part_ns / longest * BAR).round() as usize),
        ]);
    }
    t.lines().iter().for_each(|line| out!("{line}"));
    print_throttles(time);
    print_times("By operation", "operation", &time.operations);
    print_times("By file", "file", &time.files);
    print_times("By process", "process", &time.processes);
    print_holders(&time.holders);
    let mut t = Columns::new(&["device", ">busy", ">depth", ">requests"]);
    for d in &time.devices {
        t.row([d.name.clone(), ns(d.busy_ns), format!("{:.1}", d.depth), count(d.requests)]);
    }
    t.print("By device");
}

/// The part that was held back, by limit.
fn print_throttles(time: &TimeInCalls) {
    let limits = [
        ("dirty limit", time.throttles.dirty_limit_ns),
        ("write-back throttling of the device (wbt)", time.throttles.wbt_ns),
        ("block throttling of the control group", time.throttles.block_throttle_ns),
    ];
    let words: Vec<String> =
        limits.iter().filter(|(_, of)| *of > 0.0).map(|(limit, of)| format!("{limit} {}", ns(*of))).collect();
    if !words.is_empty() {
        out!("{}", dim(&format!("held back by: {}", words.join(", "))));
    }
}

fn print_holders(holders: &[LockHolder]) {
    let mut t = Columns::new(&["holder", "in", "lock", ">waits", ">time", ">longest"]);
    for h in holders {
        let name = h.name.as_deref().unwrap_or("not known");
        let released = if h.how == "released" { " (released it)" } else { "" };
        let place = match (&h.op, &h.path) {
            (Some(op), Some(path)) => format!("{op} {path}"),
            (Some(op), None) => op.clone(),
            _ => String::new(),
        };
        let kind = h.lock_kind.clone().unwrap_or_default();
        t.row([format!("{name}{released}"), place, kind, count(h.waits), ns(h.time_ns), duration(h.max_ns)]);
    }
    t.print("Locks, by holder");
}

/// A part of the time in calls, in words.
fn words_of_part(name: &str) -> &str {
    match name {
        "cpu" => "on CPU",
        "device" => "waiting for a device",
        "journal" => "waiting for the journal",
        "lock" => "waiting for a lock",
        "throttle" => "held back (dirty pages, limits)",
        "reclaim" => "waiting for memory",
        "run_queue" => "waiting for a CPU",
        "peer" => "waiting for another program",
        _ => "not known",
    }
}

fn print_times(title: &str, head: &'static str, times: &[TimeOf]) {
    let mut t = Columns::new(&[head, ">calls", ">time", "mostly"]);
    for of in times.iter().take(5) {
        let mut parts = of.parts.named().to_vec();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let most: Vec<String> = parts
            .iter()
            .take(2)
            .filter(|(_, part_ns)| *part_ns >= 0.1 * of.time_ns && *part_ns > 0.0)
            .map(|(name, part_ns)| format!("{} {}", words_of_part(name), share(part_ns / of.time_ns.max(1.0))))
            .collect();
        t.row([of.name.clone(), count(of.calls), ns(of.time_ns), most.join(", ")]);
    }
    t.print(title);
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn print_findings(diagnosis: &Diagnosis) {
    out!();
    if diagnosis.findings.is_empty() {
        out!("{}", bold("Nothing found"));
    } else {
        out!("{}", bold("Findings"));
    }
    for (i, finding) in diagnosis.findings.iter().enumerate() {
        print_finding(i + 1, finding);
    }
    out!();
    let less = match diagnosis.below_threshold {
        0 => String::new(),
        n => format!("; {n} more cost less than {:.0} % of the time (--all shows them)", LEAST_SHARE * 100.0),
    };
    out!("Looked for {} patterns{less}.", diagnosis.looked_for.len());
    if !diagnosis.not_looked_for.is_empty() {
        out!("Not looked for, because the reel lacks their tables: {}.", diagnosis.not_looked_for.join(", "));
    }
}

fn print_finding(number: usize, f: &Finding) {
    let confidence = match f.confidence {
        Confidence::High => "high",
        Confidence::Medium => "medium",
        Confidence::Low => "low",
    };
    let calls = f.call_time_share.map_or(String::new(), |s| format!(", {} of the time in calls", share(s)));
    out!();
    let cost = format!(
        "costs {} ({} of the elapsed time{calls}); {confidence} confidence",
        ns(f.cost_s * 1e9),
        share(f.share)
    );
    out!("{number}. {}  {}", bold(f.id), dim(&cost));
    out!("   {}.", f.summary.trim_end_matches('.'));
    let evidence = &f.evidence;
    if let (Some(from_ns), Some(to_ns)) = (evidence.from_ns, evidence.to_ns) {
        out!("   when     {} to {}", duration(from_ns), duration(to_ns));
    }
    print_parts("files", &evidence.files);
    print_parts("locks", &evidence.holders);
    print_parts("by", &evidence.processes);
    print_parts("devices", &evidence.devices);
    out!("   remedy   {}", f.remedy);
    out!("   check    {}", f.check);
    out!("   rows     {}", dim(&evidence.sql));
}

fn print_parts(head: &str, parts: &[Part]) {
    for (i, part) in parts.iter().take(3).enumerate() {
        let head = if i == 0 { head } else { "" };
        let moved =
            if part.bytes > 0 { format!(", {}", bytes(part.bytes.min(i64::MAX as u64) as i64)) } else { String::new() };
        out!("   {head:<8} {} ({} times{moved}, {})", part.name, count(part.count), ns(part.share_s * 1e9));
    }
}
