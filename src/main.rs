//! ioreel: trace capture and replay for file systems.
//!
//! Each subcommand is one file: it turns arguments into a plain configuration, calls a library crate and
//! prints the result. Nothing else lives in this crate.

use output::tell;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ioreel_traces::confine::{self, Needs};
use privileges::Privileges;

mod anonymize;
mod beside;
mod columns;
mod diagnose;
#[cfg(feature = "capture")]
mod doctor;
mod explain;
mod export;
mod import;
mod info;
mod logger;
mod manual;
#[cfg(feature = "capture")]
mod mark;
mod names;
mod output;
mod plot;
mod privileges;
mod progress;
mod quantity;
#[cfg(feature = "capture")]
mod record;
mod replay;
mod report;
mod serve;
mod stats;
#[cfg(feature = "capture")]
mod top;
mod trust;
mod units;
mod validate;
mod view;

/// Record file system and block I/O of Linux programs with eBPF, analyse it, and replay it on other file
/// systems.
#[derive(Parser, Debug)]
#[command(version, help_expected = true, after_help = EXAMPLES, propagate_version = true)]
struct Cli {
    /// Show more detail; repeat (-vv) for debug output, including libbpf's log
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// Say only errors and warnings on standard error: no progress, no summary of a recording
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ioreel record -o tar.reel -- tar xf src.tar     record a command and its descendants
  ioreel info tar.reel                            summarise the reel
  ioreel stats tar.reel                           compute its statistics
  ioreel diagnose tar.reel                        say what is wrong with it
  ioreel plot tar.reel                            draw it: tar.png
  ioreel report tar.reel                          write an interactive report: tar.html
  ioreel replay tar.reel --target /mnt/xfs --pace max -o on-xfs.reel
  ioreel plot tar.reel on-xfs.reel -o both.png    draw both side by side

A reel is a trace: a folder of Parquet tables.

Exit status: 0 success; 1 error; 2 wrong usage; 3 completed, but a check failed (see each subcommand).
`record -- CMD` returns the status of CMD, or 1 when the reel is incomplete because of an error.";

#[derive(Subcommand, Debug)]
enum Command {
    /// Check what kernel, privileges and file systems allow, and how to enable the rest
    #[cfg(feature = "capture")]
    Doctor(doctor::Args),
    /// Record a command, running processes, a control group or the whole machine into a reel
    #[cfg(feature = "capture")]
    Record(Box<record::Args>),
    /// Add a named marker to running recordings
    #[cfg(feature = "capture")]
    Mark(mark::Args),
    /// Show live I/O by file, process and device
    #[cfg(feature = "capture")]
    Top(top::Args),
    /// Summarise a reel
    Info(info::Args),
    /// Compute statistics of one reel, or compare several
    Stats(stats::Args),
    /// Say where the time went and what is wrong
    Diagnose(diagnose::Args),
    /// Tell the story of single operations: what they waited for, and what they caused
    Explain(explain::Args),
    /// Check a reel for consistency, and repair it after a crash
    Validate(validate::Args),
    /// Copy a reel with all names hashed
    Anonymize(anonymize::Args),
    /// Draw reels as PNG, SVG or movie
    Plot(plot::Args),
    /// Browse a reel in the terminal (pan and zoom)
    View(view::Args),
    /// Write an interactive HTML report
    Report(report::Args),
    /// Serve the report locally with full detail at every zoom level
    Serve(serve::Args),
    /// Replay a reel on a mounted file system or a block device
    Replay(Box<replay::Args>),
    /// Convert another tool's trace to a reel
    Import(import::Args),
    /// Convert a reel to another tool's format
    Export(export::Args),
    /// Write man pages and shell completions
    Manual(manual::Args),
}

impl Command {
    /// Whether the command only prints and changes nothing, so that it may end at any moment.
    fn only_reads(&self) -> bool {
        match self {
            #[cfg(feature = "capture")]
            Self::Doctor(_) => true,
            #[cfg(feature = "capture")]
            Self::Record(_) | Self::Mark(_) | Self::Top(_) => false,
            Self::Info(_) | Self::Stats(_) | Self::Diagnose(_) | Self::Explain(_) | Self::Validate(_) => true,
            Self::Anonymize(_)
            | Self::Plot(_)
            | Self::View(_)
            | Self::Report(_)
            | Self::Serve(_)
            | Self::Replay(_)
            | Self::Import(_)
            | Self::Manual(_) => false,
            Self::Export(args) => args.only_prints(),
        }
    }
}

impl Command {
    /// Whether the command loads probes. All others run without capabilities.
    fn loads_probes(&self) -> bool {
        match self {
            #[cfg(feature = "capture")]
            Self::Record(_) | Self::Top(_) | Self::Doctor(_) => true,
            _ => false,
        }
    }

    /// What a command that only reads reels and traces needs beside reading. `None` for those that record, replay or
    /// serve.
    fn needs(&self) -> Option<Needs> {
        Some(match self {
            #[cfg(feature = "capture")]
            Self::Doctor(_) | Self::Record(_) | Self::Mark(_) | Self::Top(_) => return None,
            Self::Serve(_) | Self::Replay(_) | Self::Manual(_) => return None,
            Self::Info(_) | Self::Stats(_) | Self::Diagnose(_) | Self::Explain(_) | Self::View(_) => Needs::default(),
            Self::Validate(args) => args.needs(),
            Self::Anonymize(args) => args.needs(),
            Self::Plot(args) => args.needs(),
            Self::Report(args) => args.needs(),
            Self::Import(args) => args.needs(),
            Self::Export(args) => args.needs(),
        })
    }
}

/// Restores SIGPIPE, so that `ioreel info x.reel | head` ends quietly. Rust ignores the signal, and printing would
/// panic.
fn restore_sigpipe() {
    // SAFETY: restores a default disposition; no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Stack that every command can run with.
const STACK_BYTES: u64 = 1 << 20;

/// The stack limit, bytes, if it is too small: a stack overflow kills the program without a message.
fn small_stack_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills in what it is given.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    (asked == 0 && limit.rlim_cur < STACK_BYTES).then_some(limit.rlim_cur)
}

fn main() -> ExitCode {
    let privileges = Privileges::at_start();
    let cli = Cli::parse();
    logger::init(cli.verbose);
    if cli.quiet {
        output::be_quiet();
    }
    let narrowed = privileges.and_then(|p| {
        if cli.command.loads_probes() { p.use_for_probes() } else { p.drop_all() }?;
        Ok(p)
    });
    #[cfg_attr(not(feature = "capture"), expect(unused_variables, reason = "only recorders ask for it"))]
    let privileges = match narrowed {
        Ok(privileges) => privileges,
        Err(e) => {
            tell!("ioreel: dropping capabilities: {e}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(bytes) = small_stack_bytes() {
        tell!(
            "ioreel: the stack limit of {} KiB is too small; raise it (ulimit -s 8192, as root if that is refused)",
            bytes >> 10
        );
        return ExitCode::FAILURE;
    }
    if cli.command.only_reads() {
        restore_sigpipe();
    }
    if let Some(needs) = cli.command.needs() {
        confine::reader(&needs);
    }
    let done = match cli.command {
        #[cfg(feature = "capture")]
        Command::Doctor(args) => doctor::run(args),
        #[cfg(feature = "capture")]
        Command::Record(args) => record::run(*args, privileges.caller()),
        #[cfg(feature = "capture")]
        Command::Top(args) => top::run(args, privileges.caller()),
        #[cfg(feature = "capture")]
        Command::Mark(args) => mark::run(args),
        Command::Info(args) => info::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Diagnose(args) => diagnose::run(&args),
        Command::Explain(args) => explain::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Anonymize(args) => anonymize::run(args),
        Command::Plot(args) => plot::run(args),
        Command::View(args) => view::run(args),
        Command::Report(args) => report::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Replay(args) => replay::run(*args),
        Command::Import(args) => import::run(args),
        Command::Export(args) => export::run(args),
        Command::Manual(args) => manual::run(&args, Cli::command()),
    };
    done.unwrap_or_else(|e| {
        tell!("ioreel: {}", one_line(&e));
        if e.is::<WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}

/// An error in the command line that only the command itself finds. Exit status 2, like all others.
#[derive(Debug)]
pub(crate) struct WrongUsage(pub(crate) String);

impl std::fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongUsage {}

/// An error and its causes on one line. Line breaks in names are replaced. A cause whose text is already there is not
/// repeated.
fn one_line(error: &anyhow::Error) -> String {
    let text =
        error.chain().skip(1).map(ToString::to_string).fold(error.to_string(), |line, cause| {
            if line.contains(&cause) { line } else { format!("{line}: {cause}") }
        });
    output::one_line(&text)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
