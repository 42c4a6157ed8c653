//! `ioreel manual`: man pages and shell completions, from the same arguments that the program parses.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use crate::output::out;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Directory to write them to; made if it is not there
    dir: PathBuf,
}

const NOTES: &str = "\
Man pages go to DIR/man1, completions to DIR/bash, DIR/zsh and DIR/fish. For this user and bash:
  ioreel manual m && install -D m/bash/ioreel.bash ~/.local/share/bash-completion/completions/ioreel
Packages have both in place.";

/// The shells that packages have completions for, each with a folder.
const SHELLS: [(Shell, &str); 3] = [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")];

/// Writes them; `program` is all that `ioreel` takes.
pub(crate) fn run(args: &Args, program: Command) -> anyhow::Result<ExitCode> {
    // A page for each `help` of each subcommand would say the same again.
    let mut program = program.disable_help_subcommand(true);
    let made = |path: PathBuf| {
        fs::create_dir_all(&path).with_context(|| format!("{}: cannot make this directory", path.display()))?;
        anyhow::Ok(path)
    };
    for (shell, folder) in SHELLS {
        clap_complete::generate_to(shell, &mut program, "ioreel", made(args.dir.join(folder))?)?;
    }
    let man = made(args.dir.join("man1"))?;
    clap_mangen::generate_to(program, &man).with_context(|| format!("{}: cannot write here", man.display()))?;
    out!("{}", args.dir.display());
    Ok(ExitCode::SUCCESS)
}
