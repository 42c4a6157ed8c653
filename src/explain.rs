//! `ioreel explain`: the story of single operations.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use glob::Pattern;
use ioreel_analyze::explain::{Actor, BioOf, Choice, CommitOf, Moment, Others, PathFilter, Story, What, explain};
use ioreel_traces::Reel;
use serde::Serialize;

use crate::{
    columns::{bold, count, dim},
    output::{out, print_json},
    units::{bytes, duration},
};

/// Moments printed for each operation; `--json` has all.
const MOST_PRINTED: usize = 40;

/// Operations explained in one run, as the help says. Each one's story is held in memory.
const MOST_EXPLAINED: u8 = 100;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The reel
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// Explain the operation with this `op_id`; repeatable, at most 100 times
    #[arg(long, value_name = "ID", conflicts_with_all = ["slowest", "of", "file"])]
    op: Vec<i64>,
    /// Explain the N slowest operations, at most 100
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_EXPLAINED)))]
    slowest: u8,
    /// Only operations of this name, as in `ioreel info`
    #[arg(long, value_name = "CALL")]
    of: Option<String>,
    /// Only operations on files whose path matches; `*` also matches `/`
    #[arg(long, value_name = "GLOB")]
    file: Option<Pattern>,
    /// Print JSON (schema ioreel.stories/1, docs/json.md)
    #[arg(long)]
    json: bool,
}

const NOTES: &str = "\
For each operation: what it waited for, who held the lock and who woke it, and the commit that a
sync rode on (with --waits); the bios that it caused, the journal while it waited, bios of others
in that time, and write-back of its file afterwards.";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    reel: String,
    path: String,
    stories: &'a [Story],
}

/// Runs `ioreel explain`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.op.len() > MOST_EXPLAINED.into() {
        bail!("--op: {} operations, more than {MOST_EXPLAINED}; explain them in several runs", args.op.len());
    }
    let reel = Reel::open(&args.reel)?;
    let matches = args.file.map(|pattern| PathFilter(Box::new(move |path| pattern.matches(path))));
    let choice = Choice { ids: args.op, slowest: args.slowest.into(), op: args.of, matches };
    let stories = explain(&reel, &choice)?;
    if stories.is_empty() {
        bail!("{}: no such operation; `ioreel info` lists the names of operations and files", args.reel.display());
    }
    if args.json {
        let path = reel.path().display().to_string();
        print_json(&Document { schema: "ioreel.stories/1", reel: reel.name(), path, stories: &stories })?;
    } else {
        for (i, story) in stories.iter().enumerate() {
            if i > 0 {
                out!();
            }
            print(story);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(story: &Story) {
    let path = story.path.as_deref().unwrap_or("");
    let place = match (story.offset_bytes, story.len_bytes) {
        (Some(at), Some(len)) => format!(", {} at {at}", bytes(len)),
        (Some(at), None) => format!(" at {at}"),
        _ => String::new(),
    };
    out!("{} {}", bold(&format!("{} {path}{place}", story.op)), dim(&format!("op_id {}", story.op_id)));
    let ret = story.ret.map_or("no result".to_owned(), |r| format!("returned {r}"));
    out!(
        "  {}[{}], at {}, took {}, {ret}",
        story.comm,
        story.pid,
        duration(story.start_ns),
        bold(&duration(story.dur_ns))
    );
    if let Some(reasons) = &story.waited_ns {
        let list: Vec<String> = reasons
            .iter()
            .map(|r| {
                let share = r.ns as f64 * 100.0 / story.dur_ns.max(1) as f64;
                format!("{} {} ({share:.0} %)", r.reason.replace('_', " "), duration(r.ns))
            })
            .collect();
        out!("  {}", list.join(", "));
    }
    if let Some(commit) = &story.commit {
        print_commit(commit);
    }
    out!();
    out!("  {:>12}  entered", "0");
    for moment in story.moments.iter().take(MOST_PRINTED) {
        print_moment(moment);
    }
    let more = story.moments.len().saturating_sub(MOST_PRINTED) as u64 + story.left_out;
    if more > 0 {
        out!("  {:>12}  {} more", "…", count(more));
    }
    out!("  {:>12}  returned", duration(story.dur_ns));
    print_others(&story.others);
    let after = &story.afterwards;
    if let Some(last_ns) = after.last_ns {
        out!();
        out!(
            "  Afterwards, {} writes of its file ({}), the last one done {} after its start",
            count(after.writes),
            bytes(after.write_bytes.min(i64::MAX as u64) as i64),
            duration(last_ns)
        );
    }
}

fn print_moment(moment: &Moment) {
    let at = duration(moment.at_ns);
    let took = moment.dur_ns.map_or("end not seen".to_owned(), duration);
    match &moment.what {
        What::Wait { reason, run_queue_ns, stack, waker, lock_kind, holder } => {
            let queued = if *run_queue_ns > 0 {
                format!(", of it {} for a CPU", duration(*run_queue_ns))
            } else {
                String::new()
            };
            let kind = lock_kind.as_ref().map_or(String::new(), |kind| format!(" ({})", kind.replace('_', " ")));
            let held = holder.as_ref().map_or(String::new(), |by| format!(", held by {}", actor_words(by)));
            let woken = waker.as_ref().map_or(String::new(), |by| format!(", woken by {}", actor_words(by)));
            let reason = reason.replace('_', " ");
            out!("  {at:>12}  waited {took} for {reason}{kind}{held}{queued}{woken}  {}", dim(&stack.join(" > ")));
        }
        What::OwnBio(bio) => out!("  {at:>12}  {} {took}", bio_words(bio)),
        What::Commit(bio) => out!("  {at:>12}  {} {took}  {}", bio_words(bio), dim(&format!("by {}", bio.comm))),
    }
}

fn actor_words(by: &Actor) -> String {
    let pid = by.pid.map_or(String::new(), |pid| format!("[{pid}]"));
    let op = by.op.as_ref().map_or(String::new(), |op| format!(" in {op}"));
    let path = by.path.as_ref().map_or(String::new(), |path| format!(" {path}"));
    let id = by.op_id.map_or(String::new(), |id| format!(" (op_id {id})"));
    format!("{}{pid}{op}{path}{id}", by.comm)
}

fn print_commit(c: &CommitOf) {
    let kind = match c.kind.as_str() {
        "fast_commit" => "fast commit",
        "log_write" => "log write",
        _ => "commit",
    };
    let number = c.transaction.map_or(String::new(), |n| format!(" {n}"));
    let by = c.comm.as_ref().map_or(String::new(), |comm| format!(" by {comm}"));
    let begun = match c.at_ns {
        Some(at) if at < 0 => format!("begun {} before it", duration(-at)),
        Some(at) => format!("begun {} after its start", duration(at)),
        None => "whose start is not known".to_owned(),
    };
    let mut facts = Vec::new();
    for (ns, what) in [
        (c.locking_ns, "waiting for changes in progress"),
        (c.data_ns, "writing file data"),
        (c.logging_ns, "writing the journal"),
    ] {
        facts.extend(ns.filter(|ns| *ns > 0).map(|ns| format!("{} {what}", duration(ns))));
    }
    facts.extend(c.handles.map(|n| format!("{} changes", count(n.unsigned_abs()))));
    facts.extend(c.len_bytes.map(|n| format!("{} to the journal", bytes(n))));
    if c.data_bytes > 0 {
        let of = if c.data_files.is_empty() { String::new() } else { format!(" of {}", c.data_files.join(", ")) };
        facts.push(format!("{} of data{of}", bytes(c.data_bytes.min(i64::MAX as u64) as i64)));
    }
    let facts = if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
    out!("  rode on {kind}{number}{by}, {begun}, ended at {}{facts}", duration(c.end_ns));
}

fn bio_words(bio: &BioOf) -> String {
    let place = if bio.sector < 0 { String::new() } else { format!(" at sector {}", bio.sector) };
    let len = if bio.len_bytes > 0 { format!(" {}", bytes(bio.len_bytes)) } else { String::new() };
    let of = match &bio.file {
        Some(file) => format!(" ({} of {file})", bio.class),
        None => format!(" ({})", bio.class),
    };
    format!("{}{len} on {}{place}{of}:", bio.op, bio.device)
}

fn print_others(others: &[Others]) {
    if others.is_empty() {
        return;
    }
    out!();
    out!("  In flight at the same time, not its own:");
    for o in others.iter().take(8) {
        let files = if o.files.is_empty() { String::new() } else { format!(": {}", o.files.join(", ")) };
        out!(
            "  {:>12}  {} of {} on {} by {}, {}{files}",
            count(o.count),
            o.op,
            o.class,
            o.device,
            o.comm,
            bytes(o.bytes.min(i64::MAX as u64) as i64)
        );
    }
    if others.len() > 8 {
        out!("  {:>12}  {} more kinds", "…", others.len() - 8);
    }
}
