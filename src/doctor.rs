//! `ioreel doctor`.

use crate::output::{out, print_json};
use std::process::ExitCode;

use ioreel_capture::monitor::doctor::{Check, Verdict, examine, programs};
use ioreel_replay::run::control_group::{ControlGroup, DefaultLimits};

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = "Exit status: 0 recording works here; 3 it does not.")]
pub(crate) struct Args {
    /// Print JSON (schema ioreel.doctor/1, docs/json.md)
    #[arg(long)]
    json: bool,

    /// List the BPF programs that are loaded, with code size (bytes), the number of instructions that the verifier
    /// processed (the kernel's limit is 1,000,000), and the time to load each
    #[arg(long)]
    programs: bool,
}

/// Runs `ioreel doctor`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.programs {
        return list_programs(args.json);
    }
    let mut checks = examine();
    checks.push(control_group());
    let works = checks.iter().all(|c| c.verdict != Verdict::Missing);
    if args.json {
        print_json(&serde_json::json!({ "schema": "ioreel.doctor/1", "works": works, "checks": checks }))?;
    } else {
        let width = checks.iter().map(|c| c.what.len()).max().unwrap_or(0);
        for c in &checks {
            let word = match c.verdict {
                Verdict::Ok => "ok",
                Verdict::Limited => "limited",
                Verdict::Missing => "MISSING",
            };
            out!("{word:<8} {:<width$}  {}", c.what, c.found);
            if !c.remedy.is_empty() {
                out!("{:8} {:width$}  remedy: {}", "", "", c.remedy);
            }
        }
    }
    if !args.json {
        out!();
        out!(
            "{}",
            if works { "Recording works here." } else { "Recording does not work here; all other commands do." }
        );
    }
    Ok(if works { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// Whether a replay's memory and tasks can be limited. Tries it.
fn control_group() -> Check {
    let what = "limits of a replay (control group)";
    match ControlGroup::enter(DefaultLimits::of(0, false)) {
        Ok(group) => Check::ok(what, format!("{} and the like: memory and tasks", group.path().display())),
        Err(why) => Check::not(
            what,
            Verdict::Limited,
            why,
            "run replays in a session or scope of systemd, as root or with a delegated group, or limit memory otherwise",
        ),
    }
}

fn list_programs(json: bool) -> anyhow::Result<ExitCode> {
    let (programs, missing) = programs()?;
    if json {
        let all = serde_json::json!({ "schema": "ioreel.programs/1", "programs": programs, "missing": missing });
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    out!("{:>9} {:>8} {:>12} {:>8}  {:<20} attached to", "verified", "load ms", "instructions", "bytes", "program");
    for p in &programs {
        let (verified, load_ms) = (p.verified, p.load_ns as f64 / 1e6);
        out!("{verified:>9} {load_ms:>8.1} {:>12} {:>8}  {:<20} {}", p.instructions, p.native_bytes, p.name, p.place);
    }
    for line in &missing {
        out!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}
