//! Log messages on standard error, one line each; warnings only unless `-v` is given.

use crate::output::tell;
use log::{Level, LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &Record<'_>) {
        match record.level() {
            Level::Warn | Level::Error => tell!("ioreel: {}", record.args()),
            // The kernel's verifier has much to say.
            level => record.args().to_string().lines().for_each(|line| {
                tell!("ioreel: {}: {line}", level.as_str().to_lowercase());
            }),
        }
    }
    fn flush(&self) {}
}

/// Installs the logger: warnings only, `-v` progress, `-vv` everything.
pub(crate) fn init(verbose: u8) {
    log::set_max_level(match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Trace,
    });
    // Fails only when a logger is installed already, and this is the one place that does.
    let _ = log::set_logger(&Stderr);
}
