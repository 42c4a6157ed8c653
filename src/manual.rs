//! `ioreel manual`: man pages and shell completions, generated from the command-line definition.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;

use crate::output::out;

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Directory to write to; created if missing
    dir: PathBuf,
}

const NOTES: &str = "\
Man pages go to DIR/man1, completions to DIR/bash, DIR/zsh and DIR/fish. To install bash completion for one user:
  ioreel manual m && install -D m/bash/ioreel.bash ~/.local/share/bash-completion/completions/ioreel
Packages already install both.";

/// Shells to write completions for, each with its folder.
const SHELLS: [(Shell, &str); 3] = [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")];

/// Runs `ioreel manual`. `program`: the definition of the whole command line.
pub(crate) fn run(args: &Args, program: Command) -> anyhow::Result<ExitCode> {
    // Pages for the `help` subcommands would only repeat the others.
    let mut program = program.disable_help_subcommand(true);
    let made = |path: PathBuf| {
        fs::create_dir_all(&path).with_context(|| format!("{}: cannot create this directory", path.display()))?;
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
