//! `ioreel serve`: the page of a reel from this machine, which shows all of a window.

use crate::output::{out, tell};
use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context;
use ioreel_traces::Reel;
use ioreel_visualize::serve::Server;

/// Where it listens unless told otherwise: this machine alone can ask.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8417";

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// The reel
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// Address and port to listen at; port 0 is any free one
    #[arg(long, value_name = "IP:PORT", default_value = DEFAULT_ADDRESS)]
    address: SocketAddr,
}

const NOTES: &str = "\
Prints the address to open, and serves until it is ended. /window.json?from_ns=&to_ns=&dev=&from_bytes=&to_bytes=&limit= lists single
events as JSON (schema `ioreel.window/1`, docs/json.md).";

/// Runs it.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    let server = Server::new(&reel, args.address, &[])?;
    let address = server.address().context("asking where it listens")?;
    if !address.ip().is_loopback() {
        tell!(
            "ioreel: warning: whoever reaches {address} can read this reel; --address 127.0.0.1:{} is for this machine alone",
            address.port()
        );
    }
    out!("http://{address}/");
    server.run();
    Ok(ExitCode::SUCCESS)
}
