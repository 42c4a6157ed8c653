//! `ioreel info`: a summary of a reel.

mod targets;

use crate::output::{is_harmful, one_line, out, print_json};
use std::{path::PathBuf, process::ExitCode};

use ioreel_analyze::{
    Summary,
    events::targets::Target,
    summary::{
        DEFAULT_TOP,
        actor::{FileSummary, Totals},
        operation::OperationSummary,
    },
};
use ioreel_replay::base::errno::errno_name;
use ioreel_traces::{
    Manifest, Reel,
    manifest::{KILLED, Kind, State, dev_name},
};
use serde::Serialize;
use targets::{heads, other_cells, other_targets, size, some_bytes, words};

use crate::{
    columns::{Columns, bold, count},
    names::NameFacts,
    units::{bytes, duration, seconds},
};

/// Arguments.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Reel to read
    reel: PathBuf,
    /// Print JSON (schema ioreel.info/1, docs/json.md)
    #[arg(long)]
    json: bool,
    /// Number of entries in each top list
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TOP)]
    top: usize,
    /// Start of the counted part: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    from: Option<i64>,
    /// End of the counted part: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m; events that start at or
    /// after it are excluded
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    to: Option<i64>,
}

/// The JSON of `--json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    reel: String,
    path: String,
    recorded_at: Option<String>,
    #[serde(flatten)]
    summary: &'a Summary,
    bytes_per_event: Option<f64>,
    names: &'a Option<NameFacts>,
    manifest: ManifestFacts<'a>,
}

/// Members of the manifest that are not in the summary.
#[derive(Serialize)]
struct ManifestFacts<'a> {
    format: &'a str,
    tool: &'a str,
    kind: Kind,
    state: State,
    backend: &'a str,
    filters: &'a [String],
    host: &'a ioreel_traces::manifest::Host,
    command: &'a Option<ioreel_traces::manifest::Command>,
    devices: &'a [ioreel_traces::manifest::Device],
    marks: &'a [ioreel_traces::manifest::Mark],
    replay: &'a Option<ioreel_traces::manifest::Replay>,
}

/// Runs `ioreel info`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    let summary = Summary::of_part(&reel, (args.from, args.to), args.top)?;
    let names = NameFacts::of(&reel)?;
    if args.json {
        let m = &reel.manifest;
        let document = Document {
            schema: "ioreel.info/1",
            reel: reel.name(),
            path: reel.path().display().to_string(),
            recorded_at: recorded_at(m),
            bytes_per_event: summary.bytes_per_event(),
            summary: &summary,
            names: &names,
            manifest: ManifestFacts {
                format: &m.format,
                tool: &m.tool,
                kind: m.kind,
                state: m.state,
                backend: &m.backend,
                filters: &m.filters,
                host: &m.host,
                command: &m.command,
                devices: &m.devices,
                marks: &m.marks,
                replay: &m.replay,
            },
        };
        print_json(&document)?;
    } else {
        print(&reel, &summary, names.as_ref(), reel.kept_from_ns()?);
    }
    Ok(ExitCode::SUCCESS)
}

fn recorded_at(m: &Manifest) -> Option<String> {
    if m.clock.realtime_ns <= 0 {
        return None;
    }
    let whole_seconds = m.clock.realtime_ns.div_euclid(1_000_000_000);
    jiff::Timestamp::from_second(whole_seconds).ok().map(|t| t.to_string())
}

fn print(reel: &Reel, s: &Summary, names: Option<&NameFacts>, kept_from_ns: i64) {
    print_head(reel, s, names, kept_from_ns);
    print_mounts(s);
    print_operations(s);
    print_block(reel, s);
    print_waits(s);
    print_files("Top files by bytes", &s.files_by_bytes, s);
    print_files("Top files by time in calls", &s.files_by_time, s);
    print_processes(s);
    print_ledger(s);
    for w in &s.warnings {
        out!();
        out!("{} {}", bold("Warning:"), one_line(w));
    }
}

/// Prints one labelled line of the head; an empty label continues the line above.
fn fact(name: &str, text: &str) {
    out!("{} {}", bold(&format!("{name:<10}")), one_line(text));
}

fn print_head(reel: &Reel, s: &Summary, names: Option<&NameFacts>, kept_from_ns: i64) {
    print_origin(reel);
    print_end(&reel.manifest, s);
    print_part(reel, s, kept_from_ns);
    print_totals(&reel.manifest, s, names);
    print_cost(s);
}

/// Prints what was recorded or replayed, where and when.
fn print_origin(reel: &Reel) {
    let m = &reel.manifest;
    let kind = match m.kind {
        Kind::Recording => "recording",
        Kind::Replay => "replay",
        Kind::Synthetic => "synthetic",
        Kind::Import => "import",
    };
    let state = match m.state {
        State::Complete => "",
        State::Recording => ", NOT CLOSED: recording is still running, or the recorder died",
        State::Truncated if m.ended == KILLED => ", ENDED EARLY: the recorder was killed",
        State::Truncated => ", TRUNCATED: the recorder could not write the rest",
    };
    fact("Reel", &format!("{} ({kind}, format {}, by {}{state})", reel.name(), m.format, m.tool));
    if let Some(c) = &m.command {
        fact("Command", &shown_command(&c.argv));
        let end = c.exit_status.map_or("still running at the end".to_owned(), exit_text);
        fact("", &format!("in {}, {end}", c.cwd));
    }
    if let Some(r) = &m.replay {
        fact(
            "Replay",
            &format!("of {} on {} ({}), pace {}, order {}", r.original, r.target, r.fstype, r.pace, r.order),
        );
        let skipped = r.skipped.values().copied().fold(0, i64::saturating_add);
        fact("", &format!("{} done, {} results differ, {skipped} not replayed", r.done, r.differing));
    }
    let h = &m.host;
    let when = recorded_at(m).map_or(String::new(), |t| t.replace('T', " ").replace('Z', " UTC"));
    let host = if h.kernel.is_empty() {
        String::new()
    } else {
        format!("on {} (Linux {} {}, {} CPUs, {})", h.name, h.kernel, h.arch, h.cpus, bytes(h.mem_bytes))
    };
    if !when.is_empty() || !host.is_empty() {
        fact("Made", format!("{when} {host}").trim());
    }
    for c in &m.containers {
        let pod = c.pod.as_ref().map_or(String::new(), |pod| format!(" of pod {pod}"));
        let image = c.image.as_ref().map_or(String::new(), |image| format!(", image {image}"));
        let id: String = c.id.chars().take(12).collect();
        fact(
            "Container",
            &format!("{}{pod} ({}{}{id}{image})", c.name, c.runtime, if c.runtime.is_empty() { "" } else { " " }),
        );
    }
    if !m.filters.is_empty() {
        fact("Filters", &m.filters.join(" "));
    }
}

/// Prints why the recording ended, and how long it was.
fn print_end(m: &Manifest, s: &Summary) {
    if !matches!(m.ended.as_str(), "" | "exit") {
        let why = match m.ended.as_str() {
            "signal" => "by a signal",
            "duration" => "by --duration",
            "max_size" => "by --max-size",
            "min_free" => "by --min-free: too little free space for the reel",
            "trigger" => "by --trigger-latency",
            "failed" => "by an error: the reel could not be written",
            KILLED => "early: the recorder was killed; what came later is missing",
            other => other,
        };
        fact("Ended", why);
    }
    let settling = if s.span.settle_ns > 0 {
        format!(
            " to the last operation, {} with settling",
            duration(s.span.elapsed_ns.saturating_add(s.span.settle_ns))
        )
    } else {
        " to the last operation".into()
    };
    fact("Elapsed", &format!("{}{settling}", duration(s.span.elapsed_ns)));
}

/// Prints which part is counted, if it is not all.
fn print_part(reel: &Reel, s: &Summary, kept_from_ns: i64) {
    let span = &s.span;
    if span.from_ns > 0 || span.to_ns < span.total_ns {
        let length = duration(span.to_ns.saturating_sub(span.from_ns));
        fact("Counted", &format!("{} to {} ({length})", duration(span.from_ns), duration(span.to_ns)));
    }
    if kept_from_ns > 0 {
        let dropped: Vec<String> =
            reel.dropped().map(|(n, what)| format!("{} {what}", count(n.unsigned_abs()))).collect();
        let what = if dropped.is_empty() { "events".into() } else { dropped.join(", ") };
        fact("Dropped", &format!("{what} before {}; no rate counts that time", duration(kept_from_ns)));
    }
}

/// Prints totals of operations, names and rows.
fn print_totals(m: &Manifest, s: &Summary, names: Option<&NameFacts>) {
    let t = &s.total;
    fact(
        "Operations",
        &format!(
            "{} ({}/s), {} failed, {} in calls",
            count(t.totals.calls),
            count(t.ops_per_s.round() as u64),
            count(t.totals.errors),
            duration(t.totals.time_ns as i64)
        ),
    );
    for target in Target::ALL.into_iter().filter(|target| *target == Target::Files || t.moved.of(*target).sum() > 0) {
        let (of, label) = (t.moved.of(target), if target == Target::Files { "Bytes" } else { "" });
        fact(label, &format!("{}: {} read, {} written", words(target), size(of.read_bytes), size(of.write_bytes)));
    }
    if let Some(names) = names {
        fact("Names", &names.line());
    } else if m.kind == Kind::Recording && m.state == State::Truncated && t.totals.calls > 0 {
        fact("Names", "none: the recorder stopped before writing them; `ioreel validate --repair` derives what it can");
    }
    let rows = s.tables.iter().map(|t| t.rows).fold(0, i64::saturating_add);
    let size = s.tables.iter().map(|t| t.bytes).fold(0, i64::saturating_add);
    let per_event = s.bytes_per_event().map_or(String::new(), |b| format!(", {b:.1} bytes per event"));
    fact("On disk", &format!("{} in {} rows{per_event}", bytes(size), count(rows.max(0) as u64)));
}

/// Prints what recording cost.
fn print_cost(s: &Summary) {
    let c = &s.cost;
    if c.cpu_ns > 0 {
        fact(
            "Cost",
            &format!(
                "recorder: {} CPU, {} resident memory, {} of ring buffers",
                duration(c.cpu_ns),
                bytes(c.max_rss_bytes),
                bytes(c.ring_bytes)
            ),
        );
    }
    if let Some(call_ns) = c.call_ns {
        fact("", &format!("probes delay each recorded call by {}", duration(call_ns)));
    }
    if c.waited_ns > 0 {
        fact("", &format!("events waited in the rings for {} because of --cpu-budget", duration(c.waited_ns)));
    }
}

/// Characters of the command line that are printed: scripts for `sh -c` may be long. The JSON contains all.
const COMMAND_SHOWN: usize = 300;

/// A command line with shell quoting.
fn shown_command(argv: &[String]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
    let quoted = |w: &String| match w {
        w if !w.is_empty() && w.chars().all(plain) => w.clone(),
        w if w.chars().any(is_harmful) => format!("$'{}'", w.escape_debug().to_string().replace("\\\"", "\"")),
        w => format!("'{}'", w.replace('\'', "'\\''")),
    };
    let line = argv.iter().map(quoted).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(COMMAND_SHOWN) {
        Some((cut, _)) => format!("{} …", &line[..cut]),
        None => line,
    }
}

/// A wait(2) status in words.
fn exit_text(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit status {}", (status >> 8) & 0xff),
        signal => format!("killed by signal {signal}"),
    }
}

fn some_count(n: u64) -> String {
    if n == 0 { "-".into() } else { count(n) }
}

fn ns(n: u64) -> String {
    duration(n.min(i64::MAX as u64) as i64)
}

fn print_mounts(s: &Summary) {
    let mut t =
        Columns::new(&["type", "mounted on", "source", ">size", ">free", ">files", ">calls", ">read", ">written"]);
    for m in &s.mounts {
        t.row([
            m.fstype.clone(),
            m.mountpoint.clone(),
            m.source.clone(),
            bytes(m.total_bytes),
            bytes(m.free_bytes),
            some_count(m.files),
            some_count(m.totals.calls),
            some_bytes(m.totals.read_bytes),
            some_bytes(m.totals.write_bytes),
        ]);
    }
    t.print("File systems");
}

fn print_operations(s: &Summary) {
    let others = other_targets(&s.operations.iter().map(|o| &o.moved).collect::<Vec<_>>());
    let times = [">total time", ">p50", ">p90", ">p99", ">p99.9", ">max"];
    let mut t = heads(&["operation", ">count", ">errors", ">files"], &others, &times);
    let row = |o: &OperationSummary, name: String| {
        let l = &o.latency;
        let times = [l.total_ns, l.p50_ns, l.p90_ns, l.p99_ns, l.p999_ns, l.max_ns].map(ns);
        let cells = [name, count(o.count), some_count(o.errors), some_bytes(o.moved.files.sum())];
        cells.into_iter().chain(other_cells(&o.moved, &others)).chain(times).collect::<Vec<_>>()
    };
    for o in &s.operations {
        t.row(row(o, o.op.clone()));
    }
    for o in &s.settling {
        t.row(row(o, format!("({} by ioreel)", o.op)));
    }
    t.print("Operations");
    let mut failures: Vec<(u64, String)> = s
        .operations
        .iter()
        .flat_map(|o| {
            o.errnos.iter().map(|(e, n)| (*n, format!("{} {} {}", o.op, errno_name(i64::from(*e)), count(*n))))
        })
        .collect();
    failures.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    if !failures.is_empty() {
        let more = failures.len().saturating_sub(8);
        let shown: Vec<String> = failures.into_iter().take(8).map(|f| f.1).collect();
        out!("  failed: {}{}", shown.join(", "), if more > 0 { format!(", and {more} more") } else { String::new() });
    }
    let in_flight: u64 = s.operations.iter().map(|o| o.in_flight).sum();
    if in_flight > 0 {
        out!("  {} operations were in flight when the recording ended", count(in_flight));
    }
}

fn print_block(reel: &Reel, s: &Summary) {
    if s.devices.is_empty() {
        out!();
        out!("{}", bold("Block requests"));
        out!("  none recorded");
        return;
    }
    let mut t = Columns::new(&[
        "device",
        "request",
        ">count",
        ">errors",
        ">bytes",
        ">mean size",
        ">D2C p50",
        ">p99",
        ">max",
        ">Q2C p50",
        ">p99",
    ]);
    for d in &s.devices {
        let name = if d.name.is_empty() { d.number.clone() } else { format!("{} ({})", d.name, d.number) };
        for (i, c) in d.classes.iter().enumerate() {
            let q2c = |n: u64| if c.q2c.count == 0 { "-".into() } else { ns(n) };
            t.row([
                if i == 0 { name.clone() } else { String::new() },
                c.op.name().to_owned(),
                count(c.count),
                some_count(c.errors),
                some_bytes(c.bytes),
                some_bytes(c.bytes / c.d2c.count.max(1)),
                ns(c.d2c.p50_ns),
                ns(c.d2c.p99_ns),
                ns(c.d2c.max_ns),
                q2c(c.q2c.p50_ns),
                q2c(c.q2c.p99_ns),
            ]);
        }
    }
    t.print("Block requests (D2C: issue to completion; Q2C: queueing to completion)");
    let mut t = Columns::new(&[
        "device",
        ">IOPS",
        ">read",
        ">written",
        ">adjacent seeks",
        ">far seeks",
        ">of",
        ">qd_mean",
        ">qd_max",
        ">util",
        "backed by",
    ]);
    for d in &s.devices {
        let facts = reel.manifest.device(d.dev);
        let backing = facts.and_then(|f| f.backing_file.clone()).unwrap_or_default();
        let kind = facts.map_or("", |f| if f.rotational { "rotating disk" } else { "" });
        t.row([
            if d.name.is_empty() { dev_name(d.dev) } else { d.name.clone() },
            format!("{:.0}", d.iops),
            some_bytes(d.read_bytes),
            some_bytes(d.write_bytes),
            count(d.seeks.exact),
            count(d.seeks.sw64k),
            count(d.seeks.candidates),
            format!("{:.2}", d.qd_mean),
            count(d.qd_max),
            format!("{:.1}%", d.util * 100.0),
            if backing.is_empty() { kind.to_owned() } else { backing },
        ]);
    }
    t.print("Devices (rates over the counted time, settling included)");
}

fn totals_cells(t: &Totals) -> [String; 4] {
    [count(t.calls), some_bytes(t.read_bytes), some_bytes(t.write_bytes), ns(t.time_ns)]
}

fn print_files(title: &str, files: &[FileSummary], s: &Summary) {
    let mut t = Columns::new(&[">calls", ">read", ">written", ">time", "on", "file"]);
    for f in files {
        let path = f.path.clone().unwrap_or_else(|| format!("(file {}, {}, path unknown)", f.file, f.kind));
        // A journal that is removed and made again is many files.
        let many = if f.files > 1 { format!(", {} files", count(f.files)) } else { String::new() };
        let on = if f.target == Target::Files { f.fstype.clone() } else { f.target.name().into() };
        t.row(totals_cells(&f.totals).into_iter().chain([on, format!("{path}{many}")]));
    }
    let of = if (files.len() as u64) < s.paths {
        format!(" ({} of {})", files.len(), count(s.paths))
    } else {
        String::new()
    };
    t.print(&format!("{title}{of}"));
}

fn print_processes(s: &Summary) {
    let others = other_targets(&s.processes_by_time.iter().map(|p| &p.moved).collect::<Vec<_>>());
    let names = [">pid", ">threads", ">calls", ">files read", ">files written"];
    let mut t = heads(&names, &others, &[">time", ">from", ">for", "end", "program"]);
    for p in &s.processes_by_time {
        let files = p.moved.files;
        let program = match &p.program {
            Some(path) if path.rsplit('/').next() != Some(p.comm.as_str()) => format!("{path} ({})", p.comm),
            Some(path) => path.clone(),
            None => format!("({})", p.comm),
        };
        let moved = [p.pid.to_string(), count(p.threads), count(p.totals.calls)]
            .into_iter()
            .chain([some_bytes(files.read_bytes), some_bytes(files.write_bytes)])
            .chain(other_cells(&p.moved, &others));
        t.row(moved.chain([
            ns(p.totals.time_ns),
            duration(p.start_ns),
            p.exit_ns.map_or("-".into(), |e| duration(e.saturating_sub(p.start_ns))),
            p.exit_code.map_or("-".into(), |c| if c == 0 { "ok".into() } else { exit_text(c) }),
            program,
        ]));
    }
    let shown = s.processes_by_time.len() as u64;
    let of = if shown < s.processes { format!(" ({shown} of {})", count(s.processes)) } else { String::new() };
    t.print(&format!("Top processes by time in calls{of}"));
}

fn print_waits(s: &Summary) {
    let mut t = Columns::new(&["for", ">waits", ">time", ">run queue", ">longest"]);
    for w in &s.waits {
        let cpu = if w.run_queue_ns > 0 { duration(w.run_queue_ns) } else { "-".into() };
        t.row([w.reason.replace('_', " "), count(w.count), duration(w.total_ns), cpu, duration(w.max_ns)]);
    }
    t.print("Waits of slow operations (sums over threads)");
}

fn print_ledger(s: &Summary) {
    let mut t = Columns::new(&["event", ">seen", ">written", ">lost", ">filtered"]);
    let n = |n: i64| some_count(n.max(0) as u64);
    for (class, l) in &s.ledger {
        t.row([class.clone(), count(l.seen.max(0) as u64), n(l.written), n(l.lost), n(l.filtered)]);
    }
    let lost = s.ledger.values().map(|l| l.lost).fold(0, i64::saturating_add);
    t.print(if lost > 0 { "Events: SOME WERE LOST" } else { "Events: none lost" });
    if !s.losses.is_empty() {
        let mut t = Columns::new(&[">CPU", ">from", ">to", ">events lost"]);
        for l in &s.losses {
            t.row([l.cpu.to_string(), duration(l.from_ns), duration(l.to_ns), count(l.events.max(0) as u64)]);
        }
        t.print("Where events were lost");
    }
    let mut t = Columns::new(&[">count", "reason"]);
    for (reason, n) in &s.left_out {
        t.row([count((*n).max(0) as u64), reason.clone()]);
    }
    t.print("Not recorded");
}
