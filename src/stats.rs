//! `ioreel stats`: the named statistics of one reel, or of several side by side.

use crate::output::{as_it_is, one_line, out, print_json};
use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use ioreel_analyze::{
    Scope, Stats,
    events::{
        scope::{device_named, files_below, tasks_named},
        stages::MOST_ACTIONS,
    },
    stats::{
        MOST_DEVICES,
        compare::{Mean, Row, compare},
        flat::{Unit, Value},
    },
};
use ioreel_traces::{Reel, rows::File, suggest};
use serde::Serialize;

use crate::{
    columns::{Columns, bold, count},
    units::{bytes, duration, seconds},
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reels; several are compared side by side
    #[arg(required = true, value_name = "REEL")]
    reels: Vec<PathBuf>,
    /// Compare REELS with this second group. Both groups are repeated runs: show means with 95 % confidence intervals
    #[arg(long, num_args = 1.., value_name = "REEL")]
    vs: Vec<PathBuf>,
    /// Restrict to this block device
    #[arg(long, value_name = "NAME|MAJ:MIN")]
    device: Option<String>,
    /// Restrict to this file, or to all files below this directory
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Restrict to this process, by pid, thread name or program
    #[arg(long, value_name = "PID|NAME")]
    process: Option<String>,
    /// Start of the window: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    from: Option<i64>,
    /// End of the window: time since the start of the reel, such as 2.5 (seconds), 250ms or 1m; events that start at or
    /// after it are excluded
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    to: Option<i64>,
    /// Print JSON (schema ioreel.stats/1, docs/json.md)
    #[arg(long)]
    json: bool,
    /// Print a line for each reel and statistic, separated by tabs, with a head: reel, device, statistic, unit, value. Values
    /// are exact, in the units of the JSON
    #[arg(long, conflicts_with_all = ["json", "vs"])]
    flat: bool,
}

const NOTES: &str = "\
docs/statistics.md defines each statistic. With --file or --process, a request counts if it carries data of that file or
process.";

/// The JSON of `--json`.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// Reels by group.
    groups: Vec<Vec<One>>,
    /// Statistics of all groups, side by side.
    comparison: Vec<Row>,
}

#[derive(Serialize)]
struct One {
    reel: String,
    path: String,
    lost: i64,
    /// Whether the statistics begin where rotation stopped dropping events.
    #[serde(skip)]
    dropped: bool,
    #[serde(flatten)]
    stats: Stats,
}

/// Runs `ioreel stats`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let groups: Vec<Vec<PathBuf>> = if args.vs.is_empty() {
        args.reels.iter().map(|r| vec![r.clone()]).collect()
    } else {
        vec![args.reels.clone(), args.vs.clone()]
    };
    let groups = groups
        .iter()
        .map(|g| g.iter().map(|path| one(path, &args)).collect::<anyhow::Result<Vec<_>>>())
        .collect::<anyhow::Result<Vec<_>>>()?;
    let values: Vec<Vec<_>> = groups.iter().map(|g| g.iter().map(|o| o.stats.values()).collect()).collect();
    if args.flat {
        print_flat(&groups, &values);
        return Ok(ExitCode::SUCCESS);
    }
    let comparison = compare(&values);
    if args.json {
        let document = Document { schema: "ioreel.stats/1", groups, comparison };
        print_json(&document)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&groups, &comparison);
    for one in groups.iter().flatten() {
        if let Some(records) = one.stats.stages_not_told {
            out!();
            out!(
                "  {}: Q2G, G2I and I2D not computed: the trace has {} records, the limit is {}",
                one.reel,
                count(records.unsigned_abs()),
                count(MOST_ACTIONS.unsigned_abs())
            );
        }
        if one.stats.requests_not_told > 0 {
            out!();
            out!(
                "  {}: {} requests not shown: they belong to devices beyond the first {MOST_DEVICES}",
                one.reel,
                count(one.stats.requests_not_told)
            );
        }
    }
    if let [group] = &groups[..]
        && let [one] = &group[..]
    {
        print_lists(&args.reels[0], &one.stats)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the statistics of each reel for other programs.
fn print_flat(groups: &[Vec<One>], values: &[Vec<Vec<Value>>]) {
    as_it_is("reel\tdevice\tstatistic\tunit\tvalue");
    for (one, values) in groups.iter().flatten().zip(values.iter().flatten()) {
        for v in values {
            let (reel, device) = (one_line(&one.reel), one_line(&v.device));
            as_it_is(&format!("{reel}\t{device}\t{}\t{}\t{}", v.name, v.unit.word(), v.value));
        }
    }
}

fn one(path: &PathBuf, args: &Args) -> anyhow::Result<One> {
    let reel = Reel::open(path)?;
    let mut scope = Scope { from_ns: args.from, to_ns: args.to, ..Scope::default() };
    if let Some(name) = &args.device {
        let present: Vec<i64> = reel.manifest.devices.iter().map(|d| d.dev).collect();
        let Some(dev) = device_named(&reel.manifest, &present, name) else {
            let names: Vec<&str> = reel.manifest.devices.iter().map(|d| d.name.as_str()).collect();
            bail!("{}: {}", path.display(), suggest::unknown("device", name, &names));
        };
        scope.device = Some(dev);
    }
    if let Some(file) = &args.file {
        let files = files_below(&reel, file)?;
        if files.is_empty() {
            bail!("{}: no file at or below {file}; use an absolute path as shown by `ioreel info`", path.display());
        }
        scope.files = Some(files);
    }
    if let Some(process) = &args.process {
        let tasks = tasks_named(&reel, process)?;
        if tasks.is_empty() {
            bail!("{}: unknown process '{process}'; `ioreel info` lists the processes", path.display());
        }
        scope.tasks = Some(tasks);
    }
    let stats = Stats::of(&reel, &scope)?;
    let dropped = args.from.is_none() && stats.from_ns > 0;
    Ok(One { reel: reel.name(), path: reel.path().display().to_string(), lost: reel.manifest.lost(), dropped, stats })
}

fn print(groups: &[Vec<One>], rows: &[Row]) {
    let repeated = groups.iter().any(|g| g.len() > 1);
    for (i, group) in groups.iter().enumerate() {
        for one in group {
            let lost = if one.lost > 0 { format!(", {} EVENTS LOST", count(one.lost as u64)) } else { String::new() };
            let from =
                if one.stats.from_ns > 0 { format!(" from {}", duration(one.stats.from_ns)) } else { String::new() };
            let dropped = if one.dropped { ", earlier events were dropped" } else { "" };
            let label = if groups.len() > 1 { format!("{} ", letter(i)) } else { String::new() };
            out!("{}{}{from}, {}{dropped}{lost}", bold(&label), one.reel, duration(one.stats.span_ns));
        }
    }
    let heads: Vec<String> =
        (0..groups.len()).map(|i| if groups.len() > 1 { letter(i) } else { "value".into() }).collect();
    let mut at = 0;
    while at < rows.len() {
        let device = &rows[at].device;
        let until = at + rows[at..].iter().take_while(|r| r.device == *device).count();
        let mut t = Columns::named(
            std::iter::once(("statistic".to_owned(), false))
                .chain(heads.iter().map(|h| (h.clone(), true)))
                .chain(
                    (groups.len() > 1)
                        .then(|| [("difference".to_owned(), true), ("%".to_owned(), true)])
                        .into_iter()
                        .flatten(),
                )
                .collect(),
        );
        for row in &rows[at..until] {
            let mut cells = vec![row.name.clone()];
            cells.extend(row.groups.iter().map(|m| m.map_or("-".into(), |m| mean(m, row.unit))));
            if groups.len() > 1 {
                cells.extend(difference(row, repeated));
            }
            t.row(cells);
        }
        t.print(if device.is_empty() { "Operations and files" } else { device });
        at = until;
    }
}

fn letter(i: usize) -> String {
    char::from_u32('A' as u32 + i as u32)
        .filter(char::is_ascii_uppercase)
        .map_or_else(|| format!("#{}", i + 1), String::from)
}

fn mean(m: Mean, unit: Unit) -> String {
    let value = number(m.mean, unit);
    m.ci95.map_or(value.clone(), |ci| format!("{value} ±{}", number(ci, unit)))
}

fn difference(row: &Row, repeated: bool) -> [String; 2] {
    let Some(d) = row.difference else { return ["-".into(), "-".into()] };
    let sign = if d > 0.0 {
        "+"
    } else if d < 0.0 {
        "-"
    } else {
        ""
    };
    let size = format!("{sign}{}", number(d.abs(), row.unit));
    // A difference whose confidence interval contains zero is not significant.
    let unclear = repeated && row.difference_ci95.is_none_or(|ci| ci >= d.abs()) && d != 0.0;
    let text = match row.difference_ci95 {
        Some(ci) => format!("{size} ±{}{}", number(ci, row.unit), if unclear { " ?" } else { "" }),
        None => size,
    };
    let first = row.groups.first().copied().flatten().map_or(0.0, |m| m.mean);
    let percent = if first == 0.0 { "-".into() } else { format!("{:+.1}", d * 100.0 / first.abs()) };
    [text, percent]
}

/// Formats a number with its unit.
fn number(v: f64, unit: Unit) -> String {
    let rounded = v.round().clamp(i64::MIN as f64, i64::MAX as f64) as i64;
    match unit {
        Unit::Count | Unit::Sectors if rounded < 0 => format!("-{}", count(rounded.unsigned_abs())),
        Unit::Count | Unit::Sectors => count(rounded.unsigned_abs()),
        Unit::Ns => duration(rounded),
        Unit::Bytes => bytes(rounded),
        Unit::PerSecond => format!("{v:.1}/s"),
        Unit::Mbps => format!("{:.1} MiB/s", v * 1e6 / f64::from(1 << 20)),
        Unit::Ratio => format!("{v:.2}"),
        Unit::Share => format!("{:.2}%", v * 100.0),
        Unit::Ms => format!("{v:.1} ms"),
    }
}

/// Prints the lists: request sizes, most fragmented files, files written by several threads.
fn print_lists(path: &PathBuf, s: &Stats) -> anyhow::Result<()> {
    for d in &s.devices {
        let mut t = Columns::new(&[">size", ">requests"]);
        d.sizes.top.iter().for_each(|(size, n)| t.row([bytes(*size), count(*n)]));
        t.print(&format!("Most frequent sizes on {}", if d.name.is_empty() { &d.number } else { &d.name }));
        let sampled = d.blocks.sampled.max(d.seeks.sampled);
        if sampled > 1 {
            out!(
                "  waf, rewrite_le, dup_read, rmw and the seek median and mode are computed from a sample of 1 in {}",
                count(sampled)
            );
        }
    }
    let mut t = Columns::new(&["class", ">reads", ">read", ">writes", ">written", ">Q2C time"]);
    for c in &s.classes {
        let time = duration(c.time_ns.min(i64::MAX as u64) as i64);
        let size = |n: u64| bytes(n.min(i64::MAX as u64) as i64);
        t.row([c.class.clone(), count(c.reads), size(c.read_bytes), count(c.writes), size(c.write_bytes), time]);
    }
    t.print("Bios by class");
    let lock = s.operations.iter().flat_map(|o| &o.lock_serial);
    let wanted: Vec<i64> = s.layout.worst.iter().map(|f| f.file).chain(lock.clone().map(|l| l.file)).collect();
    let reel = Reel::open(path)?;
    let mut names = std::collections::HashMap::new();
    if !wanted.is_empty() && reel.count::<File>() > 0 {
        for row in reel.rows::<File>() {
            let row = row?;
            if wanted.contains(&row.file) {
                names.insert(row.file, row.path.map_or_else(|| format!("(file {})", row.file), |p| p.to_string()));
            }
        }
    }
    let name = |file: i64| names.get(&file).cloned().unwrap_or_else(|| format!("(file {file})"));
    let mut t = Columns::new(&[">extents", ">known", ">frag", ">dls", "file"]);
    for f in s.layout.worst.iter().filter(|f| f.extents > 1) {
        t.row([count(f.extents), bytes(f.bytes), format!("{:.2}", f.frag), format!("{:.3}", f.dls), name(f.file)]);
    }
    t.print("Most fragmented files (frag: extents per MiB; dls: share of pages contiguous with the previous page)");
    let mut t = Columns::new(&[">interleave", "files"]);
    for i in s.layout.interleaved.iter().take(4) {
        t.row([format!("{:.3}", i.index), format!("{} and {}", name(i.files.0), name(i.files.1))]);
    }
    t.print("Interleaved files");
    let mut t = Columns::new(&[">threads", ">time in writes", ">lock_serial", "file"]);
    for l in lock {
        let time = duration(l.time_ns.min(i64::MAX as u64) as i64);
        t.row([count(l.threads), time, format!("{:.1}%", l.serial * 100.0), name(l.file)]);
    }
    t.print("Files written by several threads");
    if s.layout.left_out + s.readahead.left_out > 0 {
        out!();
        out!(
            "  not counted: {} bios of fragmented files, {} pages of mapped files",
            count(s.layout.left_out),
            count(s.readahead.left_out)
        );
    }
    Ok(())
}
