//! Restricts statistics to a time window, a device, files or processes.

use std::collections::{HashMap, HashSet};

use ioreel_traces::{
    Manifest, Reel, Text,
    manifest::dev_name,
    rows::{Bio, Exec, File, Task},
    table::{Cell, Row, column},
};

use crate::{Result, bad_column};

/// Restrictions of a statistic. The default has none: all that the reel keeps.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Only events that start at or after this time, ns. Default: the time from which on a rotated reel is complete.
    pub from_ns: Option<i64>,
    /// Only events that start before this time, ns.
    pub to_ns: Option<i64>,
    /// Only this block device.
    pub device: Option<i64>,
    /// Only these files, keys into `files`.
    pub files: Option<HashSet<i64>>,
    /// Only these threads, keys into `tasks`.
    pub tasks: Option<HashSet<i64>>,
}

impl Scope {
    /// Whether this start time is in the window.
    pub fn holds_time(&self, t_ns: i64) -> bool {
        self.from_ns.is_none_or(|from| t_ns >= from) && self.to_ns.is_none_or(|to| t_ns < to)
    }

    /// The same scope without events that the reel has only in part, because rotation dropped others of their time.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of_kept(&self, reel: &Reel) -> Result<Self> {
        let from_ns = match self.from_ns {
            Some(from_ns) => Some(from_ns),
            None => Some(reel.kept_from_ns()?).filter(|kept| *kept > 0),
        };
        Ok(Self { from_ns, ..self.clone() })
    }

    /// Whether the device is selected.
    pub fn holds_device(&self, dev: i64) -> bool {
        self.device.is_none_or(|d| d == dev)
    }

    /// Whether files or threads are restricted. Requests are then selected by their bios.
    pub fn needs_bios(&self) -> bool {
        self.files.is_some() || self.tasks.is_some()
    }

    /// Whether an operation or bio of this thread on these files is selected.
    pub fn holds(&self, task: Option<i64>, files: [Option<i64>; 2]) -> bool {
        let of = |set: &Option<HashSet<i64>>, ids: &[Option<i64>]| {
            set.as_ref().is_none_or(|set| ids.iter().flatten().any(|id| set.contains(id)))
        };
        of(&self.tasks, &[task]) && of(&self.files, &files)
    }

    /// Ids of the requests that contain a selected bio. `None` if all are selected.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(crate) fn request_ids(&self, reel: &Reel) -> Result<Option<HashSet<i64>>> {
        self.ids::<Option<i64>>(reel, "rq_id")
    }

    /// Ids of the selected bios. `None` if all are selected.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub(crate) fn bio_ids(&self, reel: &Reel) -> Result<Option<HashSet<i64>>> {
        self.ids::<i64>(reel, "bio_id")
    }

    fn ids<C: Cell + Into<Option<i64>>>(&self, reel: &Reel, name: &str) -> Result<Option<HashSet<i64>>> {
        if !self.needs_bios() {
            return Ok(None);
        }
        let mut ids = HashSet::new();
        for batch in reel.batches::<Bio>(&[name, "file", "task_id"]) {
            let batch = batch?;
            let bad = |why| bad_column(Bio::TABLE)(why);
            let id = column::<C>(&batch, name).map_err(bad)?;
            let file = column::<Option<i64>>(&batch, "file").map_err(bad)?;
            let task_id = column::<Option<i64>>(&batch, "task_id").map_err(bad)?;
            let get = <Option<i64> as Cell>::get;
            for i in 0..batch.num_rows() {
                if self.holds(get(&task_id, i), [get(&file, i), None])
                    && let Some(id) = <C as Cell>::get(&id, i).into()
                {
                    ids.insert(id);
                }
            }
        }
        Ok(Some(ids))
    }
}

/// The device of this name (`sda`, `/dev/sda`) or number (`8:0`) in the reel.
pub fn device_named(manifest: &Manifest, devices: &[i64], name: &str) -> Option<i64> {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let known = manifest.devices.iter().find(|d| d.name == short).map(|d| d.dev);
    known.or_else(|| devices.iter().copied().find(|d| dev_name(*d) == short))
}

/// Files at or below `path`.
///
/// # Errors
/// When the reel cannot be read.
pub fn files_below(reel: &Reel, path: &str) -> Result<HashSet<i64>> {
    let below = |p: &str| {
        p.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || path.ends_with('/'))
    };
    let mut found = HashSet::new();
    for row in reel.rows::<File>() {
        let row = row?;
        if row.path.as_deref().is_some_and(below) {
            found.insert(row.file);
        }
    }
    Ok(found)
}

/// Threads of the process with this id or name, or of the processes that ran this program.
///
/// # Errors
/// When the reel cannot be read.
pub fn tasks_named(reel: &Reel, process: &str) -> Result<HashSet<i64>> {
    let pid: Option<i32> = process.parse().ok();
    let named = |t: &Text| **t == *process;
    let mut found = HashSet::new();
    let mut pids: HashMap<i64, i32> = HashMap::new();
    for row in reel.rows::<Task>() {
        let row = row?;
        pids.insert(row.task_id, row.pid);
        if pid == Some(row.pid) || named(&row.comm) {
            found.insert(row.task_id);
        }
    }
    for row in reel.rows::<Exec>() {
        let row = row?;
        if named(&row.comm) || named(&row.path) || row.path.rsplit('/').next() == Some(process) {
            // The program runs in the whole process.
            let pid = pids.get(&row.task_id).copied();
            found.extend(pids.iter().filter(|(_, p)| Some(**p) == pid).map(|(t, _)| *t));
        }
    }
    Ok(found)
}
