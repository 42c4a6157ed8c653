//! What to record and where to.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use ioreel_traces::{Manifest, anonymize::Key};

use super::limits::{End, Limits};
use crate::{
    CaptureError,
    probes::{
        fentry,
        filter::Filter,
        session::{Content, Vfs, WaitsPlan, default_ring_bytes},
    },
};

/// What to record and where to.
#[derive(Clone, Debug)]
pub struct Config {
    /// The reel to make.
    pub output: PathBuf,
    /// Whose operations.
    pub target: Target,
    /// Disks to record, as given by the user; empty: those behind the file systems touched.
    pub devices: Vec<String>,
    /// Stop the recorded processes before an event is lost.
    pub lossless: bool,
    /// What the recording may use.
    pub limits: Limits,
    /// Sync and wait for quiet at the end.
    pub settle: bool,
    /// Folders whose tree is taken before the start, besides the command's working directory.
    pub snapshot: Vec<PathBuf>,
    /// Take the working directory too.
    pub snapshot_cwd: bool,
    /// Tell where the files of the tree lie on their disks.
    pub extents: bool,
    /// Tell what slow operations wait for.
    pub waits: Option<WaitsPlan>,
    /// Kernel memory for the rings.
    pub ring_bytes: usize,
    /// Record the page cache too.
    pub cache: bool,
    /// Look at what writes write.
    pub content: Content,
    /// Which layers.
    pub layers: Layers,
    /// By which kinds of programs.
    pub backend: Backend,
    /// Which operations.
    pub filter: Filter,
    /// Told now and then how it goes.
    pub observer: Option<Observer>,
    /// Hashes all names with this key before they reach the disk.
    pub anonymize: Option<Key>,
    /// The words of the command line that chose what is recorded.
    pub filters: Vec<String>,
    /// Told of the recording's great moments.
    pub herald: Option<Herald>,
}

/// A moment in the life of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    /// From now on all is recorded.
    Begun,
    /// Something ends the recording; what follows may take seconds.
    Ending,
    /// What was kept is in this reel; the recording goes on.
    Copied(PathBuf),
    /// What was kept could not be put into a reel of its own, for this reason; the recording goes on.
    NotCopied(String),
}

/// Is told of moments, on the recording's own thread: it should be quick.
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

    /// Recording `target` into `output`, all else at its default.
    pub fn new(output: PathBuf, target: Target) -> Self {
        Self {
            output,
            target,
            devices: Vec::new(),
            lossless: false,
            limits: Limits::default(),
            settle: true,
            snapshot: Vec::new(),
            snapshot_cwd: true,
            extents: false,
            waits: None,
            cache: false,
            content: Content::None,
            layers: Layers::Both,
            backend: Backend::Auto,
            filter: Filter::default(),
            observer: None,
            anonymize: None,
            ring_bytes: default_ring_bytes(),
            filters: Vec::new(),
            herald: None,
        }
    }
}

/// How a recording goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Since its start.
    pub elapsed: Duration,
    /// Operations met so far.
    pub ops: u64,
    /// Events of all classes lost so far.
    pub lost: u64,
    /// How full the rings were when last emptied, at most, since the last time this was told: 0 to 1.
    pub ring_fill: f64,
    /// Size of the closed segments.
    pub reel_bytes: u64,
}

/// Is told how a recording goes, twice a second, on the recording's own thread: it should be quick.
#[derive(Clone)]
pub struct Observer(pub Arc<dyn Fn(&Progress) + Send + Sync>);

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// By which kinds of programs operations are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Tracepoints and, where the whole machine is recorded and the kernel allows it, entries and exits of functions that
    /// its own threads go through. What is below the calls of tasks is the same bytes a second time, at the price of another
    /// record: only [`Backend::Fentry`] tells of it.
    Auto,
    /// Tracepoints alone.
    Tracepoint,
    /// Tracepoints, and functions of the virtual file system that the kernel itself calls.
    Fentry,
}

impl Backend {
    /// What this means for a recording of `target`, tried on this kernel.
    pub(super) fn plan(self, target: &Target, layers: Layers) -> Result<Vfs, CaptureError> {
        if self == Self::Tracepoint || layers == Layers::Block || self == Self::Auto && !matches!(target, Target::All) {
            return Ok(Vfs::default());
        }
        match (fentry::attempt(), self) {
            (Ok(()), Self::Fentry) => Ok(Vfs { kernel: matches!(target, Target::All), below: true }),
            (Ok(()), _) => Ok(Vfs { kernel: true, below: false }),
            (Err(why), Self::Fentry) => Err(CaptureError::NoFentry { why }),
            (Err(why), _) => {
                log::info!("what threads of the kernel's do is not recorded: {why}");
                Ok(Vfs::default())
            }
        }
    }
}

/// Which layers are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layers {
    /// Operations and what the disks make of them.
    Both,
    /// Operations alone.
    Operations,
    /// The block layer alone: no call gets slower.
    Block,
}

/// Whose operations are recorded.
#[derive(Clone, Debug)]
pub enum Target {
    /// A command, started by the recorder, and all its descendants.
    Command(Vec<OsString>),
    /// Running processes, and what they start from now on.
    Processes(Vec<u32>),
    /// The tasks in a control group (a folder of the unified hierarchy, or its id) and below it, those that enter later
    /// too, as long as they are there.
    Cgroup(String),
    /// Every task of the machine but the recorder; no kernel threads.
    All,
}

/// How a recording ended.
#[derive(Debug)]
pub struct Outcome {
    /// The final manifest.
    pub manifest: Manifest,
    /// The command's wait status, once it has ended.
    pub status: Option<i32>,
    /// Why the reel is shorter than it should be, if it is.
    pub error: Option<CaptureError>,
    /// The command was left running.
    pub still_running: Option<u32>,
    /// Why the recording ended.
    pub why: End,
    /// The signal that ended the recording.
    pub signal: Option<i32>,
}
