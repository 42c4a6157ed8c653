//! Settings of a recording.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use ioreel_traces::{Manifest, anonymize::Key, manifest::Container};

use super::limits::{End, Limits};
pub use crate::before::snapshot::Bound;
use crate::{
    CaptureError,
    probes::{
        fentry,
        filter::Filter,
        session::{Caller, Content, Vfs, WaitsPlan, default_ring_bytes},
    },
};

/// Settings of a recording.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the reel.
    pub output: PathBuf,
    /// Which tasks are recorded.
    pub target: Target,
    /// The containers that the recorded control group holds, for the manifest.
    pub containers: Vec<Container>,
    /// Disks to record, as named by the user; empty: those of the file systems in use.
    pub devices: Vec<String>,
    /// Stop the recorded processes before an event is lost.
    pub lossless: bool,
    /// Limits of time, size and CPU.
    pub limits: Limits,
    /// At the end, sync and wait until the disks are idle.
    pub settle: bool,
    /// Folders to take a snapshot of before the start, besides the working directory.
    pub snapshot: Vec<PathBuf>,
    /// Take a snapshot of the working directory, up to this bound.
    pub snapshot_cwd: Option<Bound>,
    /// Record the on-disk layout of existing files.
    pub extents: bool,
    /// Record what slow operations wait for.
    pub waits: Option<WaitsPlan>,
    /// Kernel memory for the rings, in bytes.
    pub ring_bytes: usize,
    /// Record page cache events.
    pub cache: bool,
    /// How much of the content of writes is recorded.
    pub content: Content,
    /// Which layers are recorded.
    pub layers: Layers,
    /// Which kernel hooks are used.
    pub backend: Backend,
    /// Which operations are kept.
    pub filter: Filter,
    /// Whose processes alone may be recorded, and nothing below their calls; `None`: everybody's.
    pub caller: Option<Caller>,
    /// Receives progress reports.
    pub observer: Option<Observer>,
    /// Key with which all names are hashed before they are written.
    pub anonymize: Option<Key>,
    /// Command line options that select what is recorded.
    pub filters: Vec<String>,
    /// Receives the events of [`Moment`].
    pub herald: Option<Herald>,
}

/// An event in the life of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The recording has started.
    Begun,
    /// The recording is ending, which may take seconds.
    Ending,
    /// Settling has lasted a second; what it waits for, as a sentence.
    Settling(String),
    /// A copy was written to this path; the recording continues.
    Copied(PathBuf),
    /// A copy could not be written, for this reason; the recording continues.
    NotCopied(String),
}

/// A callback for events. It runs on the recording's thread and should be quick.
#[derive(Clone)]
pub struct Herald(pub Arc<dyn Fn(&Moment) + Send + Sync>);

impl std::fmt::Debug for Herald {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Herald")
    }
}

impl Config {
    pub(super) fn tell(&self, moment: &Moment) {
        if let Some(Herald(hear)) = &self.herald {
            hear(moment);
        }
    }

    /// Settings to record `target` to `output`, with defaults for everything else.
    pub fn new(output: PathBuf, target: Target) -> Self {
        Self {
            output,
            target,
            containers: Vec::new(),
            devices: Vec::new(),
            lossless: false,
            limits: Limits::default(),
            settle: true,
            snapshot: Vec::new(),
            snapshot_cwd: Some(Bound::CWD),
            extents: false,
            waits: None,
            cache: false,
            content: Content::None,
            layers: Layers::Both,
            backend: Backend::Auto,
            filter: Filter::default(),
            caller: None,
            observer: None,
            anonymize: None,
            ring_bytes: default_ring_bytes(),
            filters: Vec::new(),
            herald: None,
        }
    }
}

/// Progress of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Operations seen so far.
    pub ops: u64,
    /// Events of all classes lost so far.
    pub lost: u64,
    /// Maximum fill level of the rings since the last report, 0 to 1.
    pub ring_fill: f64,
    /// Size of the closed segments.
    pub reel_bytes: u64,
}

/// A callback for progress, twice a second. It runs on the recording's thread and should be quick.
#[derive(Clone)]
pub struct Observer(pub Arc<dyn Fn(&Progress) + Send + Sync>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// Which kernel hooks are used to record operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Tracepoints. If all tasks are recorded and the kernel supports it, also entry and exit of functions used by
    /// kernel threads. I/O below the calls of tasks is not included: it is the same bytes again and costs another
    /// record. [`Backend::Fentry`] includes it.
    Auto,
    /// Only tracepoints.
    Tracepoint,
    /// Tracepoints, and VFS functions that the kernel itself calls.
    Fentry,
}

impl Backend {
    /// What this means for a recording of `target` on this kernel; tries whether the hooks work.
    pub(super) fn plan(self, target: &Target, layers: Layers) -> Result<Vfs, CaptureError> {
        if self == Self::Tracepoint || layers == Layers::Block || self == Self::Auto && !matches!(target, Target::All) {
            return Ok(Vfs::default());
        }
        match (fentry::attempt(), self) {
            (Ok(()), Self::Fentry) => Ok(Vfs { kernel: matches!(target, Target::All), below: true }),
            (Ok(()), _) => Ok(Vfs { kernel: true, below: false }),
            (Err(why), Self::Fentry) => Err(CaptureError::NoFentry { why }),
            (Err(why), _) => {
                log::info!("I/O by kernel threads is not recorded: {why}");
                Ok(Vfs::default())
            }
        }
    }
}

/// Which layers are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Operations and the block layer.
    Both,
    /// Only operations.
    Operations,
    /// Only the block layer: no call gets slower.
    Block,
}

/// Which tasks are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, started by the recorder, with its descendants.
    Command(Vec<OsString>),
    /// Running processes, with the children they create from now on.
    Processes(Vec<u32>),
    /// The tasks of a cgroup (a folder of cgroup v2, or its id) and of those below it, while they are in it; also those
    /// that enter later.
    Cgroup(String),
    /// All tasks except the recorder and kernel threads.
    All,
}

/// How a recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// The final manifest.
    pub manifest: Manifest,
    /// Wait status of the command, if it has ended.
    pub status: Option<i32>,
    /// Why the reel is incomplete, if it is.
    pub error: Option<CaptureError>,
    /// Process id of the command, if it was left running.
    pub still_running: Option<u32>,
    /// Why the recording ended.
    pub why: End,
    /// Signal that ended the recording.
    pub signal: Option<i32>,
}
