//! Placeholder.

use std::process::ExitCode;

/// Arguments.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

/// Runs it.
pub(crate) fn run(_: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
