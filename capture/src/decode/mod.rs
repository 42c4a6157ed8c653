//! From bytes to records.
//!
//! In: the bytes that the probes wrote, and the memory of the operation rings. Out: [`wire::Record`]s, and the intervals in
//! which records were lost. Parsing is pure: no libbpf, no state. May use `host` and `calls`.

pub(crate) mod holes;
pub(crate) mod op_rings;
pub mod wire;
