//! One operation, as the facts see it.

use ioreel_traces::Text;
use rustc_hash::FxHashMap;

use super::time::Parts;
use crate::events::calls::{Call, Kind, Source};

/// Maximum number of distinct paths told apart. Further ones count as no path.
const MOST_PATHS: usize = 1 << 21;

/// `O_SYNC` contains `O_DSYNC`: writes through such a descriptor wait for the disk.
const O_DSYNC: i64 = 0o10000;
/// `O_DIRECT`.
const O_DIRECT: i64 = 0o40000;
/// Both bits of the access mode: 0 is read only.
const O_ACCMODE: i64 = 3;

/// One operation; fields as in [`Call`], without references.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Its id.
    pub op_id: i64,
    /// Number of its name in [`Words::ops`].
    pub op: usize,
    /// Its kind.
    pub kind: Kind,
    /// Time of entry.
    pub start_ns: i64,
    /// Time of return.
    pub end_ns: i64,
    /// The thread.
    pub task: i64,
    /// File it acts on.
    pub file: Option<i64>,
    /// Second file.
    pub file2: Option<i64>,
    /// Offset in the file.
    pub offset_bytes: Option<i64>,
    /// Bytes requested, or the size that a stat found.
    pub len_bytes: Option<i64>,
    /// Result or -errno.
    pub ret: Option<i64>,
    /// Further argument.
    pub aux: Option<i64>,
    /// Flags argument.
    pub flags: Option<i64>,
    /// Number of its path in [`Words::paths`].
    pub path: Option<u32>,
    /// Where the row comes from.
    pub source: Source,
    /// Whether a worker thread of io_uring carried it out.
    pub is_punted: bool,
    /// Whether it waits for another program at the other end of a pipe or socket.
    pub is_peer: bool,
    /// Whether it waits for requests to io_uring or Linux AIO.
    pub awaits_requests: bool,
    /// Time off the CPU, where recorded.
    pub off_cpu_ns: Option<i64>,
}

impl Operation {
    /// An operation of which nothing else is known, for tests.
    #[cfg(test)]
    pub(super) fn of_kind(kind: Kind) -> Self {
        Self {
            op_id: 0,
            op: 0,
            kind,
            start_ns: 0,
            end_ns: 0,
            task: 0,
            file: None,
            file2: None,
            offset_bytes: None,
            len_bytes: None,
            ret: None,
            aux: None,
            flags: None,
            path: None,
            source: Source::Call,
            is_punted: false,
            is_peer: false,
            awaits_requests: false,
            off_cpu_ns: None,
        }
    }

    /// Duration, ns.
    pub fn dur_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }

    /// Bytes moved.
    pub fn moved_bytes(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write | Kind::Copy => self.ret.and_then(|r| u64::try_from(r).ok()).unwrap_or(0),
            Kind::Sync | Kind::Metadata | Kind::Other => 0,
        }
    }

    /// The errno of a failed call, positive.
    pub fn errno(&self) -> Option<i32> {
        self.ret.filter(|r| (-4095..0).contains(r)).map(|r| -r as i32)
    }

    /// Whether it succeeded.
    pub fn succeeded(&self) -> bool {
        self.ret.is_some_and(|r| r >= 0)
    }

    /// For an open: whether the cache is bypassed.
    pub fn opens_direct(&self) -> bool {
        self.flags.is_some_and(|f| f & O_DIRECT != 0)
    }

    /// For an open: whether it may write.
    pub fn opens_to_write(&self) -> bool {
        self.flags.is_some_and(|f| f & O_ACCMODE != 0)
    }
}

/// An operation that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The operation.
    pub op: &'a Operation,
    /// What its name says.
    pub call: &'a Named,
    /// By how much the elapsed time would be shorter without it, ns: see [`super::progress`].
    pub share_ns: f64,
    /// What its duration consists of.
    pub parts: Parts,
    /// The device that it waited for.
    pub device: Option<i64>,
}

impl Ended<'_> {
    /// The share of the part `ns` of the duration.
    pub fn share_of(&self, ns: f64) -> f64 {
        let dur_ns = self.op.dur_ns().max(1) as f64;
        self.share_ns * (ns / dur_ns).clamp(0.0, 1.0)
    }

    /// By how much the elapsed time would be shorter without its waits for devices and the journal, ns.
    pub fn device_share_ns(&self) -> f64 {
        self.share_of(self.parts.device_ns + self.parts.journal_ns)
    }
}

/// What the name of a call says. Looked up once for each name, not for each call.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// The kernel's name.
    pub name: Text,
    /// It opens a file.
    pub opens: bool,
    /// It reads attributes by path.
    pub stats: bool,
    /// It only looks up a path: opens, stats, reads a link.
    pub looks_up: bool,
    /// It creates a name, beside an open.
    pub makes: bool,
    /// It removes or changes a name.
    pub removes: bool,
    /// It changes the size of a file.
    pub truncates: bool,
    /// It waits for requests to io_uring or Linux AIO.
    pub awaits_requests: bool,
    /// It is the touch of a page that was not mapped.
    pub faults: bool,
}

impl Named {
    /// Whether a call with these flags and this result opened a file so that writes wait for the disk.
    pub fn opens_synchronous(&self, flags: Option<i64>, ret: Option<i64>) -> bool {
        self.opens && flags.is_some_and(|f| f & O_DSYNC != 0) && ret.is_some_and(|r| r >= 0)
    }

    pub(crate) fn of(name: &Text) -> Self {
        let opens = matches!(&**name, "open" | "openat" | "openat2" | "creat");
        let stats = matches!(&**name, "stat" | "lstat" | "newfstatat" | "statx");
        Self {
            name: name.clone(),
            opens,
            stats,
            looks_up: (opens && &**name != "creat")
                || stats
                || matches!(
                    &**name,
                    "access" | "faccessat" | "faccessat2" | "readlink" | "readlinkat" | "execve" | "execveat"
                ),
            makes: matches!(
                &**name,
                "mkdir" | "mkdirat" | "mknod" | "mknodat" | "symlink" | "symlinkat" | "link" | "linkat"
            ),
            removes: matches!(&**name, "unlink" | "unlinkat" | "rmdir" | "rename" | "renameat" | "renameat2"),
            truncates: matches!(&**name, "truncate" | "ftruncate"),
            awaits_requests: matches!(&**name, "io_uring_enter" | "io_getevents" | "io_pgetevents"),
            faults: &**name == "fault",
        }
    }
}

/// Names of operations and paths, by number.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Names of operations.
    pub(super) ops: Vec<Named>,
    /// Paths as given.
    pub(super) paths: Vec<Text>,
    numbers: FxHashMap<Text, u32>,
}

impl Words {
    /// Copies a call. `is_peer`: see [`Operation::is_peer`].
    pub(super) fn operation(&mut self, call: &Call<'_>, is_peer: bool) -> Operation {
        if call.op_index >= self.ops.len() {
            self.ops.resize(call.op_index + 1, Named::default());
            self.ops[call.op_index] = Named::of(call.op);
        }
        Operation {
            op_id: call.op_id,
            op: call.op_index,
            kind: call.kind,
            start_ns: call.start_ns,
            end_ns: call.end_ns().max(call.start_ns),
            task: call.task_id,
            file: call.file,
            file2: call.file2,
            offset_bytes: call.offset_bytes,
            len_bytes: call.detail.len_bytes,
            ret: call.ret,
            aux: call.aux,
            flags: call.detail.flags,
            path: call.detail.path.and_then(|path| self.path(path)),
            source: call.detail.source,
            is_punted: call.detail.sqe_flags.is_some_and(|f| f & 256 != 0),
            is_peer,
            awaits_requests: self.ops[call.op_index].awaits_requests,
            off_cpu_ns: call.detail.off_cpu_ns,
        }
    }

    fn path(&mut self, path: &Text) -> Option<u32> {
        if let Some(number) = self.numbers.get(path) {
            return Some(*number);
        }
        if self.paths.len() >= MOST_PATHS {
            return None;
        }
        let number = self.paths.len() as u32;
        self.paths.push(path.clone());
        self.numbers.insert(path.clone(), number);
        Some(number)
    }
}
