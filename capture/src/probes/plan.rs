//! What a session is told before its probes are loaded.

use crate::probes::filter::Filter;

use super::rings::default_ring_bytes;
use ioreel_bpf::types::target_kind;

/// What the probes are told before they are loaded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Who is recorded, beside whoever they start.
    pub target: Targets,
    /// Disks recorded from the start, by `dev_t`.
    pub devices: Vec<i64>,
    /// No disk is added by what recorded tasks do.
    pub fixed_devices: bool,
    /// Kernel memory for all rings together.
    pub ring_bytes: usize,
    /// Stop threads before a ring is full.
    pub lossless: bool,
    /// Record operations beside the block layer. Without, the probes of calls and tasks are not loaded, no
    /// call gets slower, and this process's own device I/O is recorded too.
    pub ops: bool,
    /// What the kernel does to files by itself.
    pub vfs: Vfs,
    /// Record the page cache.
    pub cache: bool,
    /// Tell what recorded threads wait for.
    pub waits: Option<WaitsPlan>,
    /// Record calls; without, only threads are followed. Matters with `ops`.
    pub calls: bool,
    /// Record the block layer.
    pub block: bool,
    /// What of the content of writes.
    pub content: Content,
    /// Which operations.
    pub filter: Filter,
}

impl Default for Plan {
    /// Everything of no process and no device: for struct update.
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
        }
    }
}

/// What is kept of the content of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    #[default]
    None,
    /// A hash, and how well it could be compressed.
    Hash,
    /// These and the bytes.
    Full,
}

/// What of the kernel's own doing is recorded, by programs on functions of the virtual file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vfs {
    /// What threads of the kernel's do: the NFS server, workers of loop devices.
    pub kernel: bool,
    /// What recorded operations make the kernel do to other files: those under an overlay's.
    pub below: bool,
}

impl Vfs {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self.kernel || self.below
    }
}

/// Operations faster than this have their waits dropped: 1 ms.
pub const DEFAULT_WAITS_MIN_NS: i64 = 1_000_000;

/// How waits are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitsPlan {
    /// Only of operations that last at least this long.
    pub min_ns: i64,
    /// With the program's stack too.
    pub user_stacks: bool,
}

/// Who is recorded, beside whoever they start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Nobody.
    None,
    /// A child of the recorder that waits to be released.
    Command(u32),
    /// Running processes.
    Processes(Vec<u32>),
    /// The tasks of a control group (its id) and of those below it, also those that enter later.
    Cgroup(u64),
    /// Every task but this process and kernel threads.
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

    /// Processes named one by one.
    pub(crate) fn pids(&self) -> &[u32] {
        match self {
            Self::Command(pid) => std::slice::from_ref(pid),
            Self::Processes(pids) => pids,
            Self::None | Self::Cgroup(_) | Self::All => &[],
        }
    }
}
