//! `manifest.json`: facts about the reel as a whole.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{ReelError, Result, private::Folder};

/// The manifest's file name.
pub const FILE_NAME: &str = "manifest.json";
/// Older readers must refuse a reel with a greater major part. With a greater minor part, they may miss columns or
/// tables. `docs/schema-changes.md` has the history.
pub const FORMAT: (u32, u32) = (1, 1);

/// The word of [`Manifest::ended`] for a recording whose recorder died.
pub const KILLED: &str = "killed";

/// Facts about the reel as a whole. Unknown members are ignored; missing ones have their default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Manifest {
    /// `major.minor` of the format.
    pub format: String,
    /// Name and version of the tool that made it.
    pub tool: String,
    /// Where the rows come from.
    pub kind: Kind,
    /// Whether the writer has closed the reel.
    pub state: State,
    /// The machine.
    pub host: Host,
    /// Clocks at the reel's time 0.
    pub clock: Clock,
    /// The recorded command and its exit status; absent for `--pid`.
    pub command: Option<Command>,
    /// Why the recording ended: `exit` (of the last recorded thread), `signal`, `duration`, `max_size`, `min_free`,
    /// `trigger`, `failed`, `killed` (by a repair: the recorder died). Empty if unknown.
    pub ended: String,
    /// Durations.
    pub span: Span,
    /// Mounts seen, by `sb_dev`.
    pub mounts: Vec<Mount>,
    /// Block devices behind them.
    pub devices: Vec<Device>,
    /// Control groups of the recorded command or processes at the start, or the recorded group, with their limits.
    pub cgroups: Vec<Cgroup>,
    /// Containers recorded with `--container`.
    pub containers: Vec<Container>,
    /// Probes in use, with the number of times the kernel skipped each.
    pub probes: Vec<Probe>,
    /// How the events were obtained: `tracepoint`, `fentry`, `replay`, `synthetic`, …
    pub backend: String,
    /// Filter options, as words of the command line.
    pub filters: Vec<String>,
    /// Recorded with `--waits`: operations of at least this duration have their waits in the table `waits`.
    pub waits_min_ns: Option<i64>,
    /// By class of event (`ops`, `block`, `bio`, `tasks`, `files`, …): events seen, written, lost and filtered.
    pub ledger: BTreeMap<String, Ledger>,
    /// Where events were lost.
    pub losses: Vec<Loss>,
    /// Where the clock of an imported trace went back: in one of its files, or in one of its threads.
    pub clock_jumps: Vec<ClockJump>,
    /// What was excluded on purpose: count by reason.
    pub left_out: BTreeMap<String, i64>,
    /// By source of operations (`ops.source`): how finely its rows show what happened, unless each call is one row.
    pub resolution: BTreeMap<String, String>,
    /// How much of the tree was looked at before the start; absent if nothing was.
    pub snapshot: Option<TreeSnapshot>,
    /// How much of the tree was looked at when the recording ended: table `final_tree`. Absent: recorded programs still
    /// ran, or what ran was no command.
    pub final_tree: Option<TreeSnapshot>,
    /// Cost of recording.
    pub cost: Cost,
    /// Warnings, as sentences.
    pub warnings: Vec<String>,
    /// Named moments.
    pub marks: Vec<Mark>,
    /// Only in the reel of a replay.
    pub replay: Option<Replay>,
    /// Only in an imported reel.
    pub import: Option<Import>,
    /// Closed segments per table.
    pub segments: BTreeMap<String, Vec<Segment>>,
}

/// Where the rows come from.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Recorded from a running system.
    #[default]
    Recording,
    /// The result of a replay.
    Replay,
    /// Made by a generator.
    Synthetic,
    /// Converted from another tool's trace.
    Import,
}

/// Whether the writer finished.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not closed: being written, or the writer died.
    #[default]
    Recording,
    /// Closed by its writer.
    Complete,
    /// Closed early by its writer (disk full), or repaired. All rows present are intact.
    Truncated,
}

/// The machine a reel was made on.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Host {
    /// Host name.
    pub name: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -m`.
    pub arch: String,
    /// CPUs online.
    pub cpus: u32,
    /// Memory.
    pub mem_bytes: i64,
    /// `/proc/sys/vm/dirty_*` by name.
    pub vm_dirty: BTreeMap<String, i64>,
}

/// Clocks at the reel's time 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Clock {
    /// `CLOCK_MONOTONIC` at the reel's time 0.
    pub monotonic_ns: i64,
    /// `CLOCK_REALTIME` at the same moment, ns since 1970.
    pub realtime_ns: i64,
}

/// The recorded command.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Command {
    /// Its words.
    pub argv: Vec<String>,
    /// Its working directory.
    pub cwd: String,
    /// As wait(2) encodes it.
    pub exit_status: Option<i32>,
}

/// Durations, ns.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Span {
    /// From the start to the end of the last recorded task or operation.
    pub elapsed_ns: i64,
    /// From then until the file systems were synced and the devices were idle.
    pub settle_ns: i64,
    /// Start of what a rotating reel keeps: every event that ended before it may have been dropped, none that started
    /// at or after it was. 0 if nothing was dropped.
    pub kept_from_ns: i64,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Mount {
    /// `files.sb_dev`.
    pub sb_dev: i64,
    /// File system type.
    pub fstype: String,
    /// Source as mounted.
    pub source: String,
    /// Mount point.
    pub mountpoint: String,
    /// Root of the mount within the file system.
    pub root: String,
    /// Mount options.
    pub options: String,
    /// Size of the file system.
    pub total_bytes: i64,
    /// Free at the start; if it was mounted during the recording, free at the end.
    pub free_bytes: i64,
    /// Free at the end of the recording, after settling. Null if not known.
    pub free_end_bytes: Option<i64>,
    /// Size of a block. This and the next members: from the superblock of ext2, ext3, ext4, XFS and btrfs; null where it
    /// could not be read or has no such member.
    pub block_bytes: Option<i64>,
    /// Size of the journal (ext3, ext4) or log (XFS), also of an external one.
    pub journal_bytes: Option<i64>,
    /// The part of a stripe on one disk (ext4 `stride`, XFS `sunit`). Null: none set.
    pub stripe_unit_bytes: Option<i64>,
    /// A whole stripe without parity (ext4 `stripe_width`, XFS `swidth`). Null: none set.
    pub stripe_width_bytes: Option<i64>,
    /// Features, by the names that the file system's own tools use. A bit without a name: its field and value.
    pub features: Option<Vec<String>>,
}

/// A container, as its runtime names it. Empty or null: unknown.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Its name; in Kubernetes, that in its pod.
    pub name: String,
    /// Name of its image.
    pub image: Option<String>,
    /// `docker`, `podman`, `containerd` or `cri-o`.
    pub runtime: String,
    /// Its pod.
    pub pod: Option<String>,
    /// The pod's namespace in Kubernetes.
    pub namespace: Option<String>,
}

/// Limits of a control group: the lowest of the group and of those above it. Null: no limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Cgroup {
    /// Its name, as in `/proc/PID/cgroup`.
    pub path: String,
    /// `memory.max`, in version 1 `memory.limit_in_bytes`.
    pub memory_max_bytes: Option<i64>,
    /// `memory.high`: from here on the kernel reclaims and slows down.
    pub memory_high_bytes: Option<i64>,
    /// CPU time per period, `cpu.max`.
    pub cpu_quota_us: Option<i64>,
    /// That period.
    pub cpu_period_us: Option<i64>,
    /// `io.max`, by device.
    pub io_max: Vec<IoLimit>,
}

/// Limits of a control group on one device. Null: no limit.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct IoLimit {
    /// `block.dev`.
    pub dev: i64,
    /// `rbps`.
    pub read_bytes_per_s: Option<i64>,
    /// `wbps`.
    pub write_bytes_per_s: Option<i64>,
    /// `riops`.
    pub reads_per_s: Option<i64>,
    /// `wiops`.
    pub writes_per_s: Option<i64>,
}

/// How much of the tree was looked at.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct TreeSnapshot {
    /// Names found.
    pub names: i64,
    /// It ended at a limit: a name that is not in the table is unknown, not absent.
    pub partial: bool,
}

/// A block device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Device {
    /// `block.dev`.
    pub dev: i64,
    /// Kernel name.
    pub name: String,
    /// Size.
    pub size_bytes: i64,
    /// Whether it reports that it rotates.
    pub rotational: bool,
    /// Logical block size.
    pub logical_block_bytes: i64,
    /// Physical block size.
    pub physical_block_bytes: i64,
    /// Largest request.
    pub max_sectors_kb: i64,
    /// Requests that a queue can hold.
    pub nr_requests: i64,
    /// I/O scheduler in use.
    pub scheduler: String,
    /// For a loop device: the file behind it.
    pub backing_file: Option<String>,
    /// Model, as the device reports it. This and the next members, from sysfs at the end: null if the kernel does not say.
    pub model: Option<String>,
    /// `write back`: it has a volatile cache, and flushes are sent to it. `write through`: it has none.
    pub write_cache: Option<String>,
    /// Read latency that write-back throttling aims at, µs. 0: throttling is off. Null: the device has none.
    pub wbt_lat_usec: Option<i64>,
    /// Most that is read ahead, KiB.
    pub read_ahead_kb: Option<i64>,
    /// Largest request that the device can take, KiB: the limit of `max_sectors_kb`.
    pub max_hw_sectors_kb: Option<i64>,
    /// Smallest request without a penalty: for a RAID, the part of a stripe on one disk.
    pub min_io_bytes: Option<i64>,
    /// Best size of a request: for a RAID, a whole stripe. 0: not told.
    pub optimal_io_bytes: Option<i64>,
    /// Largest discard that the kernel sends. 0: none are sent.
    pub discard_max_bytes: Option<i64>,
}

/// One BPF program at work.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Probe {
    /// Its name in `bpf/`.
    pub name: String,
    /// How often the kernel skipped it (already active on that CPU) and no other program replaced it.
    pub missed: i64,
}

/// Classes in which one event makes one row, so that `written` is also a number of rows. The other classes (`tasks`,
/// `files`, …) count records: a row may have several, or none.
pub const ROW_CLASSES: &[&str] = &["ops", "block", "bio", "waits", "cache", "commits", "actions"];

/// `seen = written + lost + filtered` for each class of event.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Ledger {
    /// Events that the probes saw.
    pub seen: i64,
    /// Events that reached the reel.
    pub written: i64,
    /// Events lost: no space in a ring, in a map or in the output.
    pub lost: i64,
    /// Events excluded on purpose (such as the recorder's own): see `left_out`.
    pub filtered: i64,
}

/// An interval in which one CPU lost events.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Loss {
    /// The CPU.
    pub cpu: i32,
    /// End of the last event before the gap.
    pub from_ns: i64,
    /// End of the first event after it.
    pub to_ns: i64,
    /// Missing events.
    pub events: i64,
}

/// A moment at which a clock went back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClockJump {
    /// Time, by the clock before it jumped.
    pub at_ns: i64,
    /// How far it went back.
    pub back_ns: i64,
}

/// Cost of recording.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Cost {
    /// CPU time of the recorder, user and system.
    pub cpu_ns: i64,
    /// Its maximum resident size.
    pub max_rss_bytes: i64,
    /// Kernel memory held by the rings.
    pub ring_bytes: i64,
    /// Bytes written to the reel.
    pub reel_bytes: i64,
    /// How long events waited in the rings because of `--cpu-budget`.
    pub waited_ns: i64,
    /// Delay of a recorded call by the probes, before it began and after it had ended. `None`: no call was timed.
    pub call_ns: Option<i64>,
}

/// A named moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Mark {
    /// Time.
    pub ns: i64,
    /// Its name.
    pub name: String,
}

/// How a replay's reel was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Replay {
    /// The original reel, as named on the command line.
    pub original: String,
    /// `original`, `scale=F`, `think`, `load` or `max`.
    pub pace: String,
    /// `resource`, `thread`, `global` or `none`.
    pub order: String,
    /// The target directory.
    pub target: String,
    /// The target's file system type.
    pub fstype: String,
    /// Elapsed time of the original, from its start to the end of its last operation.
    pub original_elapsed_ns: i64,
    /// Operations issued.
    pub done: i64,
    /// Results that wrongly differ from the original's.
    pub differing: i64,
    /// Whether the replay was faithful; null if not judged.
    pub faithful: Option<bool>,
    /// The verdict as a sentence.
    pub verdict: String,
    /// Operations of the original that were not issued, by reason.
    pub skipped: BTreeMap<String, i64>,
    /// Start of the replayed part of the original, ns; null for all of it. Times in the tables count from there.
    pub from_ns: Option<i64>,
    /// End of that part; null for the original's end.
    pub to_ns: Option<i64>,
}

/// How an imported reel was made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Import {
    /// `blktrace`, `blkparse`, `ktrace`, `bcc`, `fio`, `strace`, `csv`, or the name of a CSV preset.
    pub format: String,
    /// The files read, as named on the command line.
    pub files: Vec<String>,
    /// Time of the import, ns since 1970.
    pub at_realtime_ns: i64,
    /// Records read: for `blktrace` its records, for text its lines.
    pub records: i64,
}

/// One closed Parquet file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(default)]
pub struct Segment {
    /// Path inside the reel.
    pub file: String,
    /// Rows.
    pub rows: i64,
    /// Size of the file.
    pub bytes: i64,
    /// Earliest time of a row.
    pub from_ns: i64,
    /// Latest time of a row, its duration included.
    pub to_ns: i64,
}

/// Name of a manifest that is being written.
const TEMPORARY_NAME: &str = "manifest.json.tmp";
/// Bytes of a manifest at most. Half a million segments take so much.
const MOST_BYTES: u64 = 64 << 20;

/// The text of the manifest in this folder.
fn text_of(folder: &Folder) -> io::Result<String> {
    let mut text = String::new();
    // Read beyond the limit: the file may grow, and files of /proc have no size.
    folder.file(FILE_NAME)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(io::Error::other(format!("larger than {} MiB", MOST_BYTES >> 20)));
    }
    Ok(text)
}

impl Manifest {
    /// An empty manifest of the current format.
    pub fn new(kind: Kind, backend: &str) -> Self {
        Self {
            format: format!("{}.{}", FORMAT.0, FORMAT.1),
            tool: concat!("ioreel ", env!("CARGO_PKG_VERSION")).into(),
            kind,
            backend: backend.into(),
            ..Self::default()
        }
    }

    /// Reads the manifest of the reel at `reel`.
    pub fn read(reel: &Path) -> Result<Self> {
        let no_reel = |e: io::Error| ReelError::NotAReel { path: reel.into(), why: format!("{FILE_NAME}: {e}") };
        Self::read_in(&Folder::open(reel).map_err(no_reel)?)
    }

    /// Reads the manifest of the reel in this folder.
    pub fn read_in(folder: &Folder) -> Result<Self> {
        let (reel, path) = (folder.path(), folder.path().join(FILE_NAME));
        let text =
            text_of(folder).map_err(|e| ReelError::NotAReel { path: reel.into(), why: format!("{FILE_NAME}: {e}") })?;
        let bad = |why: String| ReelError::BadManifest { path: path.clone(), why };
        // The version is read first and alone: a newer format may hold what this version cannot parse.
        #[derive(Deserialize)]
        struct Version {
            format: String,
        }
        let version: Version = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let major = version.format.split('.').next().and_then(|m| m.parse::<u32>().ok());
        match major {
            None => return Err(bad(format!("format {:?} is not a version", version.format))),
            Some(m) if m > FORMAT.0 => {
                return Err(ReelError::NewerFormat {
                    path: reel.into(),
                    found: version.format,
                    known: format!("{}.{}", FORMAT.0, FORMAT.1),
                });
            }
            Some(_) => {}
        }
        serde_json::from_str(&text).map_err(|e| bad(e.to_string()))
    }

    /// Writes it into the reel in this folder, replacing the previous one in one step.
    pub fn write(&self, reel: &Folder) -> Result<()> {
        let (path, tmp) = (reel.path().join(FILE_NAME), reel.path().join(TEMPORARY_NAME));
        let text =
            serde_json::to_vec_pretty(self).map_err(|e| ReelError::Write { path: path.clone(), why: e.to_string() })?;
        let mut file = reel.replace_file(TEMPORARY_NAME).map_err(ReelError::io(&tmp, "creating the manifest"))?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        written.map_err(ReelError::io(&tmp, "writing the manifest")).inspect_err(|_| {
            // Best effort: a partial manifest is useless and takes space.
            let _ = reel.remove_file(TEMPORARY_NAME);
        })?;
        reel.rename(TEMPORARY_NAME, FILE_NAME).map_err(ReelError::io(&path, "putting the manifest in place"))
    }

    /// The mount whose files carry this `sb_dev`.
    pub fn mount_of(&self, sb_dev: i64) -> Option<&Mount> {
        self.mounts.iter().find(|m| m.sb_dev == sb_dev)
    }

    /// The device with this number.
    pub fn device(&self, dev: i64) -> Option<&Device> {
        self.devices.iter().find(|d| d.dev == dev)
    }

    /// Events lost, all classes together.
    pub fn lost(&self) -> i64 {
        self.ledger.values().map(|l| l.lost).fold(0, i64::saturating_add)
    }
}

/// `major:minor` of a device number as the reel stores it.
pub fn dev_name(dev: i64) -> String {
    format!("{}:{}", dev >> 20, dev & 0xF_FFFF)
}
