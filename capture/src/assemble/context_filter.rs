//! Filters operations in the recorder, and keeps what the remaining ones need as context.
//!
//! The probes drop what they can decide from one call. This stage decides by path, and keeps *context*: a kept
//! operation on a descriptor needs the calls that opened, duplicated and closed it, even if the filter does not select
//! them. Such calls are held with their open file description. They are written as soon as an operation on it is kept,
//! and left out if none is. Calls that change working directory, umask or credentials are always kept.

use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use ioreel_bpf::types::file_id;
use ioreel_traces::{manifest::Mount, rows::Op, text, writer::Scratch};

use crate::{
    assemble::spill_map::Met,
    calls::is_in_root,
    host,
    probes::{
        filter::{Filter, is_descriptor_call, is_place_call, normal},
        session::Tables,
    },
};

/// Why an operation is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Call,
    Thread,
    File,
    Quick,
}

/// Maximum number of rows held per description: its opening, and its duplications by calls. Copies made by fork are not
/// calls and do not count.
const MAX_HELD: usize = 64;

/// An open file description.
#[derive(Debug, Default)]
struct Held {
    /// An operation on it was kept.
    kept: bool,
    rows: Vec<Op>,
}

/// Number of directory paths in memory, per generation; see [`Met`].
const FOLDERS: usize = 16 * 1024;

/// A set of files by id. Ids are assigned in order, so it is a bitmap.
#[derive(Debug, Default)]
struct Files(Vec<u64>);

impl Files {
    fn put(&mut self, file: i64) {
        let (word, bit) = Self::place(file);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit;
    }

    fn has(&self, file: i64) -> bool {
        let (word, bit) = Self::place(file);
        self.0.get(word).is_some_and(|w| w & bit != 0)
    }

    fn place(file: i64) -> (usize, u64) {
        (file as usize / 64, 1 << (file % 64))
    }
}

/// A file that was described.
pub(crate) struct MetFile<'a> {
    pub(crate) file: i64,
    pub(crate) id: file_id,
    /// Its path, and its path in the recorder's mount namespace if that differs.
    pub(crate) paths: [Option<&'a str>; 2],
    /// Its file system.
    pub(crate) sb_dev: i64,
    /// Value of the column `kind` of the table `files`.
    pub(crate) kind: &'a str,
}

/// Where path lookup of a task starts.
#[derive(Clone, Debug, Default)]
struct Stands {
    cwd: Option<String>,
    /// Set by chroot; `None`: the real root.
    root: Option<String>,
}

/// Working directories and roots of tasks, shared as the tasks share them.
#[derive(Debug, Default)]
struct Directories {
    group_of: HashMap<i64, usize>,
    places: Vec<Stands>,
    free: Vec<usize>,
    users: Vec<usize>,
}

impl Directories {
    fn began(&mut self, task: i64, parent: Option<i64>, shares: bool) {
        let above = parent.and_then(|p| self.group_of.get(&p).copied());
        let group = match above {
            Some(group) if shares => group,
            _ => {
                let place = above.map(|a| self.places[a].clone()).unwrap_or_default();
                match self.free.pop() {
                    Some(group) => {
                        self.places[group] = place;
                        group
                    }
                    None => {
                        self.places.push(place);
                        self.users.push(0);
                        self.places.len() - 1
                    }
                }
            }
        };
        self.users[group] += 1;
        self.group_of.insert(task, group);
    }

    /// A task stops sharing its directories with others.
    fn apart(&mut self, task: i64) {
        let shared = self.group_of.get(&task).is_some_and(|g| self.users[*g] > 1);
        if shared {
            let parent = Some(task);
            let group = self.group_of[&task];
            self.began(task, parent, false);
            self.users[group] -= 1;
        }
    }

    fn ended(&mut self, task: i64) {
        if let Some(group) = self.group_of.remove(&task) {
            self.users[group] -= 1;
            if self.users[group] == 0 {
                self.free.push(group);
            }
        }
    }

    fn of(&self, task: i64) -> Option<&Stands> {
        Some(&self.places[*self.group_of.get(&task)?])
    }

    fn of_mut(&mut self, task: i64) -> Option<&mut Stands> {
        Some(&mut self.places[*self.group_of.get(&task)?])
    }
}

/// Resolves symbolic links, if the path still exists.
fn real(path: &str) -> String {
    let named = PathBuf::from(OsString::from_vec(text::to_bytes(path)));
    named.canonicalize().map_or_else(|_| path.to_owned(), |p| text::from_bytes(p.as_os_str().as_bytes()).to_string())
}

/// Which file systems are on the selected disks.
#[derive(Debug, Default)]
struct Disks {
    mounts: Vec<Mount>,
    known: HashMap<i64, bool>,
}

impl Disks {
    /// Whether this file system is; always true if no disk is selected.
    fn hold(&mut self, sb_dev: i64, disks: &[i64]) -> bool {
        if disks.is_empty() {
            return true;
        }
        if let Some(known) = self.known.get(&sb_dev) {
            return *known;
        }
        if !self.mounts.iter().any(|m| m.sb_dev == sb_dev) {
            self.mounts = ioreel_traces::host::mounts();
        }
        let found = match self.mounts.iter().find(|m| m.sb_dev == sb_dev).cloned() {
            Some(mount) if mount.fstype == "overlay" => self.holds_layer(&mount, disks),
            Some(mount) => host::disks_of(&mount).iter().any(|d| disks.contains(d)),
            // It is mounted where the recorder cannot see it.
            None => host::disk_of(sb_dev).is_some_and(|d| disks.contains(&d)),
        };
        self.known.insert(sb_dev, found);
        found
    }

    fn holds_layer(&mut self, overlay: &Mount, disks: &[i64]) -> bool {
        let layers =
            overlay.options.split(',').filter_map(|o| o.strip_prefix("upperdir=").or(o.strip_prefix("lowerdir=")));
        let layers: Vec<&str> = layers.flat_map(|dirs| dirs.split(':')).collect();
        layers.into_iter().any(|dir| {
            let below = host::mount_of_path(&self.mounts, dir).map(|m| m.sb_dev);
            below.is_some_and(|dev| dev != overlay.sb_dev && self.hold(dev, disks))
        })
    }

    /// Likewise for the file system that this absolute path leads to.
    fn hold_name(&mut self, path: &str, disks: &[i64]) -> bool {
        if disks.is_empty() {
            return true;
        }
        if self.mounts.is_empty() {
            self.mounts = ioreel_traces::host::mounts();
        }
        host::mount_of_path(&self.mounts, path).map(|m| m.sb_dev).is_some_and(|dev| self.hold(dev, disks))
    }

    /// Whether the block device at this path is a selected disk or part of one.
    fn hold_device(&self, node: &str, disks: &[i64]) -> bool {
        disks.is_empty() || host::block_device(node).ok().and_then(host::disk_of).is_some_and(|d| disks.contains(&d))
    }
}

/// The filter with its state.
#[derive(Debug)]
pub(crate) struct Sieve {
    filter: Filter,
    tables: Tables,
    /// Files outside the filter. A file without a description may be a selected one.
    unwanted: Files,
    /// Paths of directories, where path lookup may start.
    folders: Met<i64, String>,
    directories: Directories,
    disks: Disks,
    held: HashMap<i64, Held>,
    /// Open directories that the next operation's paths start at.
    through: Vec<i64>,
    /// Calls left out immediately, by [`Why`].
    left_out: [i64; 4],
    /// Operations of other sources left out.
    others: i64,
    taken: i64,
    passed: i64,
}

impl Sieve {
    /// Creates the filter. It tells the kernel through `tables` which files to drop there.
    pub(crate) fn new(filter: Filter, tables: Tables) -> Self {
        Self {
            filter,
            tables,
            unwanted: Files::default(),
            folders: Met::of_generations(FOLDERS),
            directories: Directories::default(),
            disks: Disks::default(),
            held: HashMap::new(),
            through: Vec::new(),
            left_out: [0; 4],
            others: 0,
            taken: 0,
            passed: 0,
        }
    }

    /// A file was described. `scratch` creates the file for what does not fit in memory.
    pub(crate) fn file(&mut self, met: &MetFile<'_>, scratch: impl FnOnce() -> io::Result<Scratch>) {
        if !self.filter.has_files() {
            return;
        }
        let path = met.paths[0];
        let wanted = met.paths.into_iter().flatten().any(|p| self.filter.wants_path(p))
            && match path.filter(|_| met.kind == "block") {
                Some(node) => self.disks.hold_device(node, self.filter.disks()),
                None => self.disks.hold(met.sb_dev, self.filter.disks()),
            };
        // Without generations, the inode number may have belonged to another file that was dropped.
        let told = match wanted {
            false => self.tables.leave_out_file(met.id),
            true if met.id.generation == 0 => self.tables.keep_file(met.id),
            true => Ok(()),
        };
        if let Err(e) = told {
            // Then its calls are dropped here.
            log::debug!("{e}");
        }
        if !wanted {
            self.unwanted.put(met.file);
        }
        if let Some(path) = path.filter(|_| met.kind == "directory") {
            self.folders.insert(met.file, path.to_owned(), scratch);
        }
    }

    /// A task started.
    pub(crate) fn task_began(&mut self, task: i64, parent: Option<i64>, clone_flags: i64) {
        const CLONE_FS: i64 = 0x200;
        self.directories.began(task, parent, clone_flags & CLONE_FS != 0);
    }

    /// Sets the directories of an adopted task, unless a later change is known already.
    pub(crate) fn stands(&mut self, task: i64, cwd: &str, root: &str) {
        let told = |path: &str| Some(path.to_owned()).filter(|p| !p.is_empty());
        if let Some(place) = self.directories.of_mut(task) {
            place.cwd = place.cwd.take().or(told(cwd));
            place.root = place.root.take().or(told(root));
        }
    }

    /// A task ended.
    pub(crate) fn task_ended(&mut self, task: i64) {
        self.directories.ended(task);
    }

    /// Forgets a description that hardly any call can refer to any more.
    pub(crate) fn forget(&mut self, ofd: i64) {
        self.held.remove(&ofd);
    }

    /// The next operation's paths start at these descriptions.
    pub(crate) fn goes_through(&mut self, folders: impl Iterator<Item = i64>) {
        self.through.extend(folders);
    }

    /// Processes an operation and returns the rows to write now, in order. `other`: by a thread that the filter
    /// excludes.
    pub(crate) fn take(&mut self, op: Op, other: bool) -> Vec<Op> {
        self.taken += 1;
        let through = std::mem::take(&mut self.through);
        let out = match self.judge(&op, other) {
            Ok(()) => self.with_openings(op, &through),
            Err(why) => self.context(op, &through, why),
        };
        self.passed += out.len() as i64;
        out
    }

    /// A kept operation, preceded by the held calls on its descriptors.
    fn with_openings(&mut self, op: Op, through: &[i64]) -> Vec<Op> {
        let mut out = Vec::new();
        for ofd in [op.ofd, op.ofd2].into_iter().flatten().chain(through.iter().copied()) {
            let held = self.held.entry(ofd).or_default();
            held.kept = true;
            out.append(&mut held.rows);
        }
        out.push(op);
        out
    }

    fn context(&mut self, op: Op, through: &[i64], why: Why) -> Vec<Op> {
        const F_DUPFD: i64 = libc::F_DUPFD as i64;
        const F_DUPFD_CLOEXEC: i64 = libc::F_DUPFD_CLOEXEC as i64;
        let succeeded = op.ret.is_none_or(|r| r >= 0);
        if is_place_call(&op.op) || op.op == "close_range" && succeeded {
            return self.with_openings(op, through);
        }
        // Of fcntl, only the commands that duplicate.
        let copies = op.op != "fcntl" || matches!(op.flags, Some(F_DUPFD | F_DUPFD_CLOEXEC));
        if is_descriptor_call(&op.op)
            && copies
            && succeeded
            && let Some(ofd) = op.ofd
        {
            let held = self.held.entry(ofd).or_default();
            if held.kept {
                return vec![op];
            }
            if held.rows.len() < MAX_HELD {
                held.rows.push(op);
                return Vec::new();
            }
        }
        match &*op.source {
            "syscall" => self.left_out[why as usize] += 1,
            _ => self.others += 1,
        }
        Vec::new()
    }

    fn judge(&mut self, op: &Op, other: bool) -> Result<(), Why> {
        // Evaluated first: directories change even if the call is left out.
        let file = self.filter.has_files().then(|| self.on_wanted_file(op));
        if other {
            return Err(Why::Thread);
        }
        if !self.filter.wants_call(&op.op) {
            return Err(Why::Call);
        }
        // An operation that had not returned at the end has no duration yet.
        if op.ret.is_some() && (op.dur_ns as u64) < self.filter.min_latency_ns() {
            return Err(Why::Quick);
        }
        if file == Some(false) { Err(Why::File) } else { Ok(()) }
    }

    fn on_wanted_file(&mut self, op: &Op) -> bool {
        let at = |fd: Option<i32>| fd.is_some_and(|fd| fd != libc::AT_FDCWD);
        let opens = matches!(&*op.op, "open" | "openat" | "openat2" | "creat");
        let first_is_folder = op.ofd.is_none() && at(op.dirfd);
        let second_is_folder = op.ofd2.is_none() && (at(op.dirfd2) || opens);
        let operands: Vec<i64> = [(op.file, first_is_folder), (op.file2, second_is_folder)]
            .into_iter()
            .filter_map(|(file, folder)| file.filter(|_| !folder))
            .collect();
        let by_file = operands.iter().any(|f| !self.unwanted.has(*f));
        let (folder, folder2) = if opens { (op.file2, None) } else { (op.file, op.file2) };
        let target_text = op.op.starts_with("symlink");
        let path = op.path.as_ref().filter(|_| !target_text).and_then(|p| {
            if is_in_root(op) {
                let root = self.resolve(op.task_id, ".", op.dirfd, folder)?;
                return Some(normal("/", &format!("{root}{}", normal("/", p))));
            }
            self.resolve(op.task_id, p, op.dirfd, folder)
        });
        let attribute = op.op.contains("xattr");
        let path2 =
            op.path2.as_ref().filter(|_| !attribute).and_then(|p| self.resolve(op.task_id, p, op.dirfd2, folder2));
        if op.ret == Some(0) && matches!(&*op.op, "mount" | "move_mount" | "umount2") {
            self.disks = Disks::default();
        }
        if op.ret == Some(0) && op.op == "unshare" {
            const FS: i64 = (libc::CLONE_FS | libc::CLONE_NEWNS | libc::CLONE_NEWUSER) as i64;
            if op.flags.is_some_and(|f| f & FS != 0) {
                self.directories.apart(op.task_id);
            }
        }
        if op.ret == Some(0) {
            let place = match &*op.op {
                "chdir" | "chroot" => path.as_deref().map(real),
                "fchdir" => op.file.and_then(|f| self.folders.get(&f)),
                _ => None,
            };
            if let Some(stands) = self.directories.of_mut(op.task_id) {
                match &*op.op {
                    "chroot" => stands.root = place,
                    "chdir" | "fchdir" => stands.cwd = place,
                    _ => {}
                }
            }
        }
        // The file that was opened decides, not the path, which may be a symbolic link.
        if !operands.is_empty() {
            return by_file;
        }
        // With an empty path the descriptor itself is meant, which need not be a directory.
        let by_itself = at(op.dirfd) && op.path.as_deref().is_some_and(str::is_empty);
        if by_itself && folder.is_some_and(|f| !self.unwanted.has(f)) {
            return true;
        }
        let Self { filter, disks, .. } = self;
        [path, path2].into_iter().flatten().any(|p| filter.wants_path(&p) && disks.hold_name(&p, filter.disks()))
    }

    fn resolve(&mut self, task: i64, path: &str, dirfd: Option<i32>, folder: Option<i64>) -> Option<String> {
        let stands = self.directories.of(task);
        let base = match dirfd {
            _ if path.starts_with('/') => {
                // `..` does not lead out of a root.
                let below = normal("/", path);
                let root = stands.and_then(|s| s.root.as_deref()).unwrap_or_default();
                return Some(normal("/", &format!("{root}{below}")));
            }
            None | Some(libc::AT_FDCWD) => stands?.cwd.clone()?,
            Some(_) => self.folders.get(&folder?)?,
        };
        Some(normal(&base, path))
    }

    /// Number of operations that were left out.
    pub(crate) fn left_out(&self) -> i64 {
        self.taken - self.passed
    }

    /// Likewise by reason: calls by [`Why`], operations of other sources, and context that was not needed.
    pub(crate) fn reasons(&self) -> ([i64; 4], i64, i64) {
        let told = self.left_out.iter().sum::<i64>() + self.others;
        (self.left_out, self.others, self.left_out() - told)
    }
}
