//! What ids mean: files, threads, file systems.

use std::collections::BTreeMap;

use ioreel_traces::{
    Manifest, Reel, Text,
    manifest::Mount,
    rows::{File, Task},
    table::{Cell, Column, Row, column},
};
use rustc_hash::FxHashMap;

use crate::{Result, bad_column};

/// Maximum number of files and of threads with names. Further ones count, but have no name.
const MOST_NAMED: usize = 1 << 22;

/// What a descriptor leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Pipe or socket: the other end is a program.
    Peer,
    /// Anything else, or not known.
    #[default]
    Other,
}

/// A file of the reel.
#[derive(Clone, Debug, Default)]
pub struct FileName {
    /// Path when first seen.
    pub path: Option<Text>,
    /// Its kind.
    pub kind: FileKind,
    /// Device of its file system: key into the manifest's mounts.
    pub sb_dev: i64,
    /// Inode number.
    pub ino: i64,
    /// Size when first seen.
    pub size_bytes: Option<i64>,
    /// Overlay: it has a file below.
    pub is_on_overlay: bool,
}

/// A thread of the reel.
#[derive(Clone, Debug, Default)]
pub struct TaskName {
    /// Process id.
    pub pid: i32,
    /// Name when last seen.
    pub comm: Text,
}

/// Names of the ids in a reel.
#[derive(Debug, Default)]
pub struct Names {
    files: FxHashMap<i64, FileName>,
    tasks: FxHashMap<i64, TaskName>,
    mounts: BTreeMap<i64, Mount>,
    /// Disks by `sb_dev`.
    disks: BTreeMap<i64, i64>,
}

impl Names {
    /// Reads the tables `files` and `tasks`.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel) -> Result<Self> {
        let mounts = mounts_by_device(&reel.manifest);
        Ok(Self { files: files(reel)?, tasks: tasks(reel)?, mounts, disks: disks_by_mount(&reel.manifest) })
    }

    /// A file, if it has a row.
    pub fn file(&self, file: i64) -> Option<&FileName> {
        self.files.get(&file)
    }

    /// The kind of a file.
    pub fn kind(&self, file: Option<i64>) -> FileKind {
        file.and_then(|f| self.files.get(&f)).map_or(FileKind::Other, |f| f.kind)
    }

    /// The path of a file, or its id.
    pub fn path(&self, file: i64) -> String {
        match self.files.get(&file).and_then(|f| f.path.as_ref()) {
            Some(path) => path.to_string(),
            None => format!("file {file}"),
        }
    }

    /// Name and process id of a thread.
    pub fn task(&self, task: i64) -> TaskName {
        self.tasks.get(&task).cloned().unwrap_or_default()
    }

    /// The mount of a file.
    pub fn mount_of(&self, file: i64) -> Option<&Mount> {
        self.mounts.get(&self.files.get(&file)?.sb_dev)
    }

    /// The disk of the file system of a file.
    pub fn device_of(&self, file: i64) -> Option<i64> {
        self.disks.get(&self.files.get(&file)?.sb_dev).copied()
    }

    /// The type of the file system of a file. Empty if not known.
    pub fn fstype_of(&self, file: i64) -> &str {
        self.mount_of(file).map_or("", |m| &m.fstype)
    }

    /// All mounts.
    pub fn mounts(&self) -> impl Iterator<Item = &Mount> {
        self.mounts.values()
    }
}

fn mounts_by_device(manifest: &Manifest) -> BTreeMap<i64, Mount> {
    manifest.mounts.iter().map(|m| (m.sb_dev, m.clone())).collect()
}

/// The disk that each file system lies on: requests name whole disks, mounts may name partitions.
fn disks_by_mount(manifest: &Manifest) -> BTreeMap<i64, i64> {
    let devices = &manifest.devices;
    let mut disks = BTreeMap::new();
    for mount in &manifest.mounts {
        let name = mount.source.rsplit('/').next().unwrap_or("");
        let named = devices.iter().find(|d| d.name == name).or_else(|| devices.iter().find(|d| d.dev == mount.sb_dev));
        let Some(device) = named else { continue };
        let whole = devices.iter().find(|d| is_partition(&device.name, &d.name)).unwrap_or(device);
        disks.insert(mount.sb_dev, whole.dev);
    }
    disks
}

/// Whether `name` is a partition of `disk`: `vda1` of `vda`, `loop0p1` of `loop0`.
fn is_partition(name: &str, disk: &str) -> bool {
    let Some(rest) = name.strip_prefix(disk) else { return false };
    let number = if disk.ends_with(|c: char| c.is_ascii_digit()) { rest.strip_prefix('p') } else { Some(rest) };
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn files(reel: &Reel) -> Result<FxHashMap<i64, FileName>> {
    let mut files = FxHashMap::default();
    for batch in reel.batches::<File>(&["file", "sb_dev", "ino", "kind", "size_bytes", "path", "real_file"]) {
        let batch = batch?;
        let bad = |why| bad_column(File::TABLE)(why);
        let number = |name| column::<i64>(&batch, name).map_err(bad);
        let maybe = |name| column::<Option<i64>>(&batch, name).map_err(bad);
        let (file, sb_dev, ino) = (number("file")?, number("sb_dev")?, number("ino")?);
        let (size_bytes, real_file) = (maybe("size_bytes")?, maybe("real_file")?);
        let (kind, path) =
            (column::<Text>(&batch, "kind").map_err(bad)?, column::<Option<Text>>(&batch, "path").map_err(bad)?);
        for i in 0..batch.num_rows() {
            if files.len() >= MOST_NAMED {
                return Ok(files);
            }
            let kind = match text(&kind, i).map(|t| &**t) {
                Some("regular") => FileKind::Regular,
                Some("directory") => FileKind::Directory,
                Some("fifo" | "socket") => FileKind::Peer,
                _ => FileKind::Other,
            };
            let name = FileName {
                path: text(&path, i).cloned(),
                kind,
                sb_dev: <i64 as Cell>::get(&sb_dev, i),
                ino: <i64 as Cell>::get(&ino, i),
                size_bytes: <Option<i64> as Cell>::get(&size_bytes, i),
                is_on_overlay: <Option<i64> as Cell>::get(&real_file, i).is_some(),
            };
            files.insert(<i64 as Cell>::get(&file, i), name);
        }
    }
    Ok(files)
}

fn tasks(reel: &Reel) -> Result<FxHashMap<i64, TaskName>> {
    let mut tasks = FxHashMap::default();
    for batch in reel.batches::<Task>(&["task_id", "pid", "comm"]) {
        let batch = batch?;
        let bad = |why| bad_column(Task::TABLE)(why);
        let id = column::<i64>(&batch, "task_id").map_err(bad)?;
        let pid = column::<i32>(&batch, "pid").map_err(bad)?;
        let comm = column::<Text>(&batch, "comm").map_err(bad)?;
        for i in 0..batch.num_rows() {
            if tasks.len() >= MOST_NAMED {
                return Ok(tasks);
            }
            let name = TaskName { pid: <i32 as Cell>::get(&pid, i), comm: text(&comm, i).cloned().unwrap_or_default() };
            tasks.insert(<i64 as Cell>::get(&id, i), name);
        }
    }
    Ok(tasks)
}

/// The text in row `i`.
pub(super) fn text<'a>(column: &'a Column<'a>, i: usize) -> Option<&'a Text> {
    let Column::Text(keys, words) = column else { return None };
    use arrow_array::Array;
    if keys.is_null(i) {
        return None;
    }
    words.get(usize::try_from(keys.keys().value(i)).ok()?)?.as_ref()
}
