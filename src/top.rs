//! `ioreel top`: live I/O by file, process and device.

mod columns;
mod screen;

use std::{
    io::{IsTerminal, stdout},
    process::ExitCode,
    thread::sleep,
    time::Duration,
};

use anyhow::Context;
use ioreel_capture::{
    monitor::live::{Entry, Live, View, Work},
    probes::{
        filter::Filter,
        session::{Caller, Targets},
    },
};
use serde::Serialize;

use screen::Ended;

use crate::{
    columns::{Columns, count},
    output::{one_line, out, print_json, tell},
    units::{bytes, duration},
};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Watch only this process and its children; repeatable [default: all processes]
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Refresh interval, in seconds (0.05 to 3600)
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// Column to sort by
    #[arg(long, value_name = "COLUMN", default_value = "bytes")]
    sort: Sort,
    /// Number of lines per list with --once
    #[arg(long, value_name = "N", default_value_t = 20)]
    lines: usize,
    /// Print one sample and exit
    #[arg(long)]
    once: bool,
    /// With --once: print JSON (schema ioreel.top/1, docs/json.md)
    #[arg(long, requires = "once")]
    json: bool,
}

const NOTES: &str = "\
Keys: f files, p processes, d devices, Tab next list; sort by b bytes, o operations, t time, m longest; a toggles totals
since the start; space pauses; q, Esc or Ctrl-C quits.";

/// Sort key of a list.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Bytes read and written
    Bytes,
    /// Number of calls or requests
    Ops,
    /// Total time
    Time,
    /// Longest call or request
    Max,
}

impl Sort {
    fn key(self, w: &Work) -> u64 {
        match self {
            Self::Bytes => w.bytes(),
            Self::Ops => w.count,
            Self::Time => w.time_ns,
            Self::Max => w.max_ns,
        }
    }
}

fn interval(s: &str) -> Result<Duration, String> {
    let value: f64 = s.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if !(0.05..=3600.0).contains(&value) {
        return Err("expected 0.05 to 3600 seconds".into());
    }
    Ok(Duration::from_secs_f64(value))
}

/// The `lines` entries with the highest `sort` key.
pub(crate) fn sorted(entries: &[Entry], sort: Sort, total: bool, lines: usize) -> Vec<(&Entry, Work)> {
    let mut all: Vec<(&Entry, Work)> =
        entries.iter().map(|e| (e, if total { e.total } else { e.recent })).filter(|(_, w)| w.count > 0).collect();
    all.sort_by(|a, b| sort.key(&b.1).cmp(&sort.key(&a.1)).then_with(|| a.0.name.cmp(&b.0.name)));
    all.truncate(lines);
    all
}

/// The JSON of `--once --json`.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    interval_s: f64,
    lost: u64,
    calls: Line,
    files: Vec<Line>,
    processes: Vec<Line>,
    devices: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    id: i64,
    count: u64,
    errors: u64,
    read_bytes: u64,
    write_bytes: u64,
    time_ns: u64,
    mean_ns: u64,
    max_ns: u64,
}

impl Line {
    fn of(entry: &Entry, w: &Work) -> Self {
        Self {
            name: entry.name.clone(),
            id: entry.id,
            count: w.count,
            errors: w.errors,
            read_bytes: w.read_bytes,
            write_bytes: w.write_bytes,
            time_ns: w.time_ns,
            mean_ns: w.mean_ns(),
            max_ns: w.max_ns,
        }
    }
}

/// Runs `ioreel top`.
pub(crate) fn run(args: Args, caller: Option<Caller>) -> anyhow::Result<ExitCode> {
    args.pid.iter().try_for_each(|pid| ioreel_capture::host::expect_process(*pid))?;
    let on_terminal = args.once || stdout().is_terminal();
    anyhow::ensure!(on_terminal, "standard output is not a terminal; use `ioreel top --once`");
    let target = if args.pid.is_empty() { Targets::All } else { Targets::Processes(args.pid) };
    let mut live = Live::start(target, Filter::default(), caller)?;
    if args.once {
        sleep(args.interval);
        let view = live.look();
        live.stop()?;
        if args.json {
            let list = |entries: &[Entry]| {
                sorted(entries, args.sort, false, args.lines).iter().map(|(e, w)| Line::of(e, w)).collect()
            };
            let document = Document {
                schema: "ioreel.top/1",
                interval_s: view.recent.as_secs_f64(),
                lost: view.lost,
                calls: Line::of(&view.calls, &view.calls.recent),
                files: list(&view.files),
                processes: list(&view.processes),
                devices: list(&view.devices),
            };
            print_json(&document)?;
        } else {
            print(&view, args.sort, args.lines);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let ended = screen::run(&mut live, args.interval, args.sort).context("showing the live view")?;
    live.stop()?;
    Ok(match ended {
        Ended::Key => ExitCode::SUCCESS,
        Ended::Target => {
            tell!("ioreel: all watched processes have exited");
            ExitCode::SUCCESS
        }
        Ended::Signal(signal) => ExitCode::from(128 + signal as u8),
    })
}

/// Headings of the number columns.
pub(crate) const HEADS: [&str; 7] = ["ops/s", "failed", "read/s", "written/s", "mean", "max", "busy"];

/// The number cells. `seconds`: the time that rates are computed over.
pub(crate) fn cells(w: &Work, seconds: f64) -> [String; 7] {
    let rate = |n: u64| n as f64 / seconds.max(1e-9);
    let some = |n: u64, text: String| if n == 0 { "-".into() } else { text };
    let ns = |n: u64| duration(n.min(i64::MAX as u64) as i64);
    [
        count(rate(w.count).round() as u64),
        some(w.errors, count(w.errors)),
        some(w.read_bytes, bytes(rate(w.read_bytes) as i64)),
        some(w.write_bytes, bytes(rate(w.write_bytes) as i64)),
        ns(w.mean_ns()),
        ns(w.max_ns),
        format!("{:.1}%", w.time_ns as f64 / seconds.max(1e-9) / 1e7),
    ]
}

fn print(view: &View, sort: Sort, lines: usize) {
    let seconds = view.recent.as_secs_f64();
    for (title, entries) in [("Files", &view.files), ("Processes", &view.processes), ("Devices", &view.devices)] {
        let mut heads: Vec<(String, bool)> = HEADS.iter().map(|h| ((*h).to_owned(), true)).collect();
        heads.push(("name".into(), false));
        let mut table = Columns::named(heads);
        for (entry, work) in sorted(entries, sort, false, lines) {
            table.row(cells(&work, seconds).into_iter().chain([shown(title, entry)]));
        }
        table.print(title);
    }
    if view.lost > 0 {
        out!();
        out!("{} events were lost; the numbers are too low", count(view.lost));
    }
}

/// The name of an entry, with control characters replaced.
pub(crate) fn shown(list: &str, entry: &Entry) -> String {
    let name = one_line(&entry.name);
    if list == "Processes" { format!("{} {name}", entry.id) } else { name }
}
