//! From bytes to records.
//!
//! In: the bytes that the probes wrote to the rings. Out: [`wire::Record`]s, and the intervals in which records were
//! lost. Parsing uses neither libbpf nor state. May use `host` and `calls`.

pub(crate) mod holes;
pub(crate) mod op_rings;
pub mod wire;
