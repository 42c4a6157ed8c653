//! ioreel: trace capture and replay for file systems.
//!
//! Each subcommand is one file here that turns arguments into a plain configuration, calls a library
//! crate and prints what comes back; nothing else lives in this crate.

use output::tell;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod anonymize;
mod columns;
#[cfg(feature = "capture")]
mod doctor;
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
mod quantity;
#[cfg(feature = "capture")]
mod record;
mod replay;
mod report;
mod serve;
mod stats;
#[cfg(feature = "capture")]
mod top;
mod units;
mod validate;
mod view;

/// Records what programs ask of file systems and what file systems ask of disks, draws it, and replays
/// it on other file systems.
#[derive(Parser, Debug)]
#[command(version, help_expected = true, after_help = EXAMPLES, propagate_version = true)]
struct Cli {
    /// Says more; twice, most of all (also libbpf's log)
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ioreel record -o tar.reel -- tar xf src.tar     record a command and all it starts
  ioreel info tar.reel                            what is in a reel
  ioreel stats tar.reel                           its statistics
  ioreel plot tar.reel -o tar.png                 draw it
  ioreel report tar.reel -o tar.html              a page to look into it with
  ioreel replay tar.reel --target /mnt/xfs --pace max -o on-xfs.reel
  ioreel plot tar.reel on-xfs.reel -o both.png    side by side

Exit status: 0 done; 1 ioreel failed; 2 wrong usage; 3 done, but what was asked for does not hold.
`record -- CMD` returns CMD's own status, or 1 where the reel ends early.";

#[derive(Subcommand, Debug)]
enum Command {
    /// Says what this kernel, these privileges and these file systems allow, and how to get the rest
    #[cfg(feature = "capture")]
    Doctor(doctor::Args),
    /// Records a command, or a running process, into a reel
    #[cfg(feature = "capture")]
    Record(Box<record::Args>),
    /// Puts a named moment into running recordings
    #[cfg(feature = "capture")]
    Mark(mark::Args),
    /// Shows what files, processes and devices do at this moment
    #[cfg(feature = "capture")]
    Top(top::Args),
    /// Summarises a reel
    Info(info::Args),
    /// Computes the named statistics of reels, side by side
    Stats(stats::Args),
    /// Checks a reel: references, times, counts
    Validate(validate::Args),
    /// Writes a reel anew with all names hashed
    Anonymize(anonymize::Args),
    /// Draws reels
    Plot(plot::Args),
    /// Shows a reel on the terminal, to move in
    View(view::Args),
    /// Makes a page of a reel, to look into with a browser
    Report(report::Args),
    /// Shows that page from this machine, with every detail of the reel at hand
    Serve(serve::Args),
    /// Re-issues a reel's operations against a mounted file system
    Replay(Box<replay::Args>),
    /// Makes a reel of another tool's trace
    Import(import::Args),
    /// Writes a reel in another tool's format
    Export(export::Args),
    /// Writes man pages and shell completions
    Manual(manual::Args),
}

impl Command {
    /// Whether it changes nothing and prints, so that it may end at any moment.
    fn only_reads(&self) -> bool {
        match self {
            #[cfg(feature = "capture")]
            Self::Doctor(_) => true,
            #[cfg(feature = "capture")]
            Self::Record(_) | Self::Mark(_) | Self::Top(_) => false,
            Self::Info(_) | Self::Stats(_) | Self::Validate(_) => true,
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

/// Lets `ioreel info x.reel | head` end quietly: Rust ignores SIGPIPE, and printing would panic.
fn end_with_the_reader() {
    // SAFETY: restores a default disposition; no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Stack that any of the commands needs, with room to spare.
const STACK_BYTES: u64 = 1 << 20;

/// The stack's limit where it is too small: overflowing it would end the program without a word.
fn small_stack_bytes() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: fills in what it is given.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    (asked == 0 && limit.rlim_cur < STACK_BYTES).then_some(limit.rlim_cur)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    logger::init(cli.verbose);
    if let Some(bytes) = small_stack_bytes() {
        tell!(
            "ioreel: the stack may only be {} KiB large: raise its limit (ulimit -s 8192, as root where that is refused)",
            bytes >> 10
        );
        return ExitCode::FAILURE;
    }
    if cli.command.only_reads() {
        end_with_the_reader();
    }
    let done = match cli.command {
        #[cfg(feature = "capture")]
        Command::Doctor(args) => doctor::run(args),
        #[cfg(feature = "capture")]
        Command::Record(args) => record::run(*args),
        #[cfg(feature = "capture")]
        Command::Top(args) => top::run(args),
        #[cfg(feature = "capture")]
        Command::Mark(args) => mark::run(args),
        Command::Info(args) => info::run(args),
        Command::Stats(args) => stats::run(args),
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
        ExitCode::FAILURE
    })
}

/// An error and its causes, without line breaks that names in it may have; a cause that the text above already ends with is not
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
