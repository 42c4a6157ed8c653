//! Settings of the probes.

use crate::probes::filter::Filter;

use super::rings::default_ring_bytes;
use ioreel_bpf::types::target_kind;

/// What the probes record; fixed when they are loaded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Recorded tasks; their children are always included.
    pub target: Targets,
    /// Disks recorded from the start (`dev_t`).
    pub devices: Vec<i64>,
    /// Do not add disks that recorded tasks use.
    pub fixed_devices: bool,
    /// Kernel memory for all rings together, in bytes.
    pub ring_bytes: usize,
    /// Stop threads before a ring is full.
    pub lossless: bool,
    /// Record operations and tasks. If false, only the block layer is recorded: their probes are not loaded, no call
    /// gets slower, and this process's own device I/O is recorded too, except that of the thread that loads the probes.
    pub ops: bool,
    /// File I/O by the kernel itself.
    pub vfs: Vfs,
    /// Record the page cache.
    pub cache: bool,
    /// Record what recorded threads wait for.
    pub waits: Option<WaitsPlan>,
    /// Record system calls. If false, threads are only tracked. Needs `ops`.
    pub calls: bool,
    /// Record the block layer.
    pub block: bool,
    /// How much of the content of writes is recorded.
    pub content: Content,
    /// Which operations are kept.
    pub filter: Filter,
    /// Whose tasks alone are recorded; `None`: everybody's.
    pub caller: Option<Caller>,
}

impl Default for Plan {
    /// Everything enabled, but no process and no device; for struct update syntax.
    fn default() -> Self {
        Self {
            target: Targets::None,
            devices: Vec::new(),
            fixed_devices: false,
            ring_bytes: default_ring_bytes(),
            lossless: false,
            ops: true,
            calls: true,
            block: true,
            waits: None,
            cache: false,
            vfs: Vfs::default(),
            content: Content::None,
            filter: Filter::default(),
            caller: None,
        }
    }
}

/// Who started a recorder that has its capabilities from its program's file. Only tasks with exactly these ids and
/// without capabilities are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The real user id.
    pub uid: u32,
    /// The real group id.
    pub gid: u32,
}

/// How much of the content of writes is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    #[default]
    None,
    /// A hash, and an estimate of compressibility.
    Hash,
    /// These and the bytes.
    Full,
}

/// Which file I/O of the kernel itself is recorded, by programs on VFS functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vfs {
    /// By kernel threads: the NFS server, workers of loop devices.
    pub kernel: bool,
    /// On other files, as part of a recorded operation: the files below an overlayfs.
    pub below: bool,
}

impl Vfs {
    /// Whether any is recorded.
    pub fn any(self) -> bool {
        self.kernel || self.below
    }
}

/// Default minimum duration of operations whose waits are kept: 1 ms.
pub const DEFAULT_WAITS_MIN_NS: i64 = 1_000_000;

/// How waits are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitsPlan {
    /// Only those of operations that take at least this long, ns.
    pub min_ns: i64,
    /// Include the user stack.
    pub user_stacks: bool,
}

/// Which tasks are recorded; their children are always included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Nobody.
    None,
    /// A child of the recorder that waits for the start.
    Command(u32),
    /// Running processes.
    Processes(Vec<u32>),
    /// All tasks of a cgroup (its id) and the cgroups below it, also those that enter later.
    Cgroup(u64),
    /// All tasks except this process and kernel threads.
    All,
}

impl Targets {
    pub(super) fn kind(&self) -> target_kind {
        match self {
            Self::None => target_kind::TARGET_NONE,
            Self::Command(_) => target_kind::TARGET_COMMAND,
            Self::Processes(_) => target_kind::TARGET_PROCESSES,
            Self::Cgroup(_) => target_kind::TARGET_CGROUP,
            Self::All => target_kind::TARGET_ALL,
        }
    }

    /// Processes that are targets by their id.
    pub(crate) fn pids(&self) -> &[u32] {
        match self {
            Self::Command(pid) => std::slice::from_ref(pid),
            Self::Processes(pids) => pids,
            Self::None | Self::Cgroup(_) | Self::All => &[],
        }
    }
}
