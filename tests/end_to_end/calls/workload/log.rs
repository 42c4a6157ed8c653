//! What the workload did, as the reel should tell it.

use serde::{Deserialize, Serialize};

/// The identity of a file as stat(2) and `FS_IOC_GETVERSION` tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// `major << 20 | minor`.
    pub(crate) dev: i64,
    pub(crate) ino: i64,
    /// Not known on file systems without that ioctl.
    pub(crate) generation: Option<i64>,
}

/// One call. A `None` among the identifying fields (descriptors, paths) must be null in the reel; among the
/// others it says that the call has no such thing and the reel's value is not looked at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) op: String,
    pub(crate) ret: i64,
    pub(crate) fd: Option<i32>,
    pub(crate) fd2: Option<i32>,
    pub(crate) dirfd: Option<i32>,
    pub(crate) dirfd2: Option<i32>,
    pub(crate) path: Option<String>,
    pub(crate) path2: Option<String>,
    pub(crate) offset_bytes: Option<i64>,
    pub(crate) offset2_bytes: Option<i64>,
    pub(crate) len_bytes: Option<i64>,
    pub(crate) flags: Option<i64>,
    pub(crate) mode: Option<i32>,
    pub(crate) aux: Option<i64>,
    pub(crate) aux2: Option<i64>,
    /// Must be the reel's, null included.
    pub(crate) name: Option<String>,
    /// The same.
    pub(crate) value: Option<String>,
    /// `syscall` unless told otherwise.
    pub(crate) source: Option<String>,
    /// `complete` unless told otherwise.
    pub(crate) state: Option<String>,
    /// The workload's own number for the open file description; the reel may use any other, one to one.
    pub(crate) ofd: Option<u64>,
    pub(crate) ofd2: Option<u64>,
    pub(crate) file: Option<Identity>,
    pub(crate) file2: Option<Identity>,
    /// i386's number, of a call by the 32-bit entry.
    pub(crate) nr32: Option<i64>,
    /// The descriptor is known not to be open: the reel must not name a file.
    pub(crate) no_file: bool,
    /// The true position is where this record ended up in the shared file of that name.
    pub(crate) record: Option<(String, u32)>,
    /// Absolute path of the file an open opened.
    pub(crate) opened: Option<String>,
    /// `CLOCK_MONOTONIC` just before and just after.
    pub(crate) before_ns: i64,
    pub(crate) after_ns: i64,
}

/// All calls of one thread between its two marks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadLog {
    pub(crate) thread: u32,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) entries: Vec<Entry>,
    /// Rows of other sources, in no order.
    pub(crate) beside: Vec<Entry>,
}

/// The path whose failing access(2) begins thread `n`'s calls.
pub(crate) fn begin_mark(thread: u32) -> String {
    format!("/ioreel-ground-truth-begin-{thread}")
}

/// The one that ends them.
pub(crate) fn end_mark(thread: u32) -> String {
    format!("/ioreel-ground-truth-end-{thread}")
}

/// Bytes of the head of a record in a shared file: its number and its whole length.
pub(crate) const RECORD_HEAD_BYTES: usize = 8;

/// A record that can be found again in a file that several threads wrote to at once.
pub(crate) fn record(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![b'r'; len.max(RECORD_HEAD_BYTES)];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}
