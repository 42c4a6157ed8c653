//! A replay from reel to report.

pub(crate) mod apart;
pub(crate) mod config;
pub(crate) mod limits;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod root_rounds;
pub mod watch;
