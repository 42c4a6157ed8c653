//! `ioreel serve`: the report over HTTP, with every event of the window shown.

use crate::output::{out, tell};
use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context;
use ioreel_traces::Reel;
use ioreel_visualize::serve::Server;

/// Default address: the loopback interface, reachable only from this machine.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8417";

/// Arguments.
#[derive(clap::Args, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Reel to read
    #[arg(value_name = "REEL")]
    reel: PathBuf,
    /// Address and port to listen on; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value = DEFAULT_ADDRESS)]
    address: SocketAddr,
}

const NOTES: &str = "\
Prints the URL and serves until interrupted. The URL contains a random token; without it, every request is refused.
URL/window.json?from_ns=&to_ns=&dev=&from_bytes=&to_bytes=&limit= lists single events as JSON (schema ioreel.window/1,
docs/json.md).";

/// Runs `ioreel serve`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let reel = Reel::open(&args.reel)?;
    let server = Server::new(&reel, args.address, &[])?;
    let address = server.address().context("reading the listening address")?;
    if !address.ip().is_loopback() {
        tell!(
            "ioreel: warning: anyone who knows the address can read this reel, and the connection is not encrypted; use --address 127.0.0.1:{} to restrict it to this machine",
            address.port()
        );
    }
    out!("http://{address}{}", server.path());
    server.run();
    Ok(ExitCode::SUCCESS)
}
