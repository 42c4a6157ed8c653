//! Records file-system activity with eBPF into a reel.
//!
//! A folder is a stage. Each stage uses only those before it:
//!
//! | stage | does |
//! |---|---|
//! | [`host`] | reads facts about the machine: mounts, disks, on-disk layouts, kernel symbols; errors |
//! | [`calls`] | defines what each system call and io_uring opcode means |
//! | [`decode`] | parses the bytes of the rings into records |
//! | [`probes`] | chooses, loads and attaches the BPF programs, adopts threads, drains the rings |
//! | [`assemble`] | turns records into rows |
//! | [`before`] | infers what existed before the workload |
//! | `pipeline` | drains, orders records, feeds the assembler, settles, balances the ledger |
//! | [`record`] | runs a recording from start to end |
//! | [`monitor`] | live view, disk activity for replays, `doctor` |

pub mod assemble;
pub mod before;
pub mod calls;
pub mod decode;
pub mod host;
pub mod monitor;
mod pipeline;
pub mod probes;
pub mod record;

pub use host::error::CaptureError;
