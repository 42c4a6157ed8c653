//! Derives the tree before the workload. Paths of the snapshot are known. For all others, an operation that succeeds on
//! a name the workload did not create shows that the name existed. If it is still there and unchanged, it is read from
//! disk now. If the workload changed it, only what the results of operations tell is known.

mod descriptors;
pub(crate) mod final_tree;
mod mount_calls;
mod mounts;
mod name_history;
mod path_resolution;
mod rows;
mod seen_files;
#[cfg(test)]
mod tests;
mod working_dirs;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, Result, Text,
    manifest::{Kind, State, TreeSnapshot},
    rows::{Fd, Map, Name, Op, Tree},
    table::{Column, Row, column},
};

use crate::before::{namespace::Names, snapshot::Snapshot};

use final_tree::AtEnd;
use mounts::INITIAL;
use name_history::{History, is};
use path_resolution::{follows, names_file, opens};
use rows::Disk;
use seen_files::{MOST, MetFiles};
use working_dirs::Places;

/// Whether the path is on a virtual file system, which is never prepared for a replay.
fn is_virtual(path: &str) -> bool {
    let path = Path::new(path);
    ["/proc", "/sys", "/dev"].iter().any(|v| path.starts_with(v)) && !path.starts_with("/dev/shm")
}

/// Writes the tables `tree`, `names` and `final_tree`. All other tables must have been flushed.
/// `at_end`: the final tree is looked at, since all recorded programs have ended.
pub(crate) fn write_tree(
    writer: &mut ReelWriter,
    manifest: &mut Manifest,
    mut snapshot: Snapshot,
    at_end: Option<AtEnd<'_>>,
) -> Result<()> {
    // Reads back what was written, because the operations may not fit in memory.
    writer.release();
    manifest.segments = writer.segments();
    writer.write_manifest(manifest)?;
    let reel = Reel::open_in(writer.folder()?)?;
    let disk = Disk { names: writer.names().cloned(), unseen: false };
    let extents = snapshot.extents.take();
    let snapshot = disk.mapped(snapshot);
    let d = follow(&reel, snapshot, &disk, writer)?;
    let left_out = d.left_out;
    let mut end = at_end.map(|at_end| final_tree::look(&d, &disk, at_end));
    let mut rows = d.rows(&disk, end.as_mut().map(|end| std::mem::take(&mut end.moved)).unwrap_or_default());
    if let Some(end) = end {
        manifest.final_tree = Some(TreeSnapshot { names: end.rows.len() as i64, partial: end.cut });
        if let Some(snapshot) = manifest.snapshot.as_mut().filter(|_| end.completes) {
            snapshot.partial = false;
        }
        end.rows.iter().try_for_each(|row| writer.final_tree.push_as_is(row))?;
    }
    if left_out > 0 {
        manifest.warnings.push(format!(
            "{left_out} files beyond the first {MOST} were not looked up by their descriptors; the initial tree and the \
             names over time may lack them"
        ));
    }
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    if let Some(extents) = extents {
        extents.write(&rows, |path| disk.clear(path), writer, manifest)?;
    }
    for (order, mut row) in rows.into_iter().enumerate() {
        row.order = order as i64;
        writer.tree.push_as_is(&row)?;
    }
    Ok(())
}

/// Adds the tables `tree` and `names` to a repaired reel whose recorder died before writing them, from the operations
/// in the reel. The disk is not read, because it may have changed. Returns a sentence for the user if anything was
/// added.
///
/// # Errors
/// The reel cannot be read or written.
pub fn complete(path: &Path) -> Result<Option<String>> {
    let reel = Reel::open(path)?;
    let mut manifest = reel.manifest.clone();
    let derived = [Tree::TABLE, Name::TABLE].iter().any(|t| manifest.segments.contains_key(*t));
    if manifest.kind != Kind::Recording || manifest.state != State::Truncated || derived || reel.count::<Op>() == 0 {
        return Ok(None);
    }
    let mut writer = ReelWriter::beside(path)?;
    let disk = Disk { names: None, unseen: true };
    let mut rows = follow(&reel, Snapshot::default(), &disk, &mut writer)?.rows(&disk, Vec::new());
    rows.sort_by(|a, b| a.path.cmp(&b.path));
    for (order, mut row) in rows.into_iter().enumerate() {
        row.order = order as i64;
        writer.tree.push_as_is(&row)?;
    }
    writer.flush()?;
    let done = format!(
        "tree ({} names) and names ({}) derived from the operations, without looking at the disk: sizes are least sizes",
        writer.tree.written(),
        writer.file_names.written()
    );
    manifest.segments.extend(writer.segments());
    manifest.cost.reel_bytes = manifest.segments.values().flatten().map(|s| s.bytes).sum();
    manifest.warnings.push(format!("repaired: {done}"));
    writer.write_manifest(&manifest)?;
    Ok(Some(done))
}

/// What is known about a name that existed before.
#[derive(Clone, Debug, Default)]
struct Clue {
    kind: Option<Text>,
    size_bytes: Option<i64>,
    mode: Option<i32>,
    /// The file that was opened under this name.
    file: Option<i64>,
}

impl Clue {
    fn directory() -> Self {
        Self { kind: Some("directory".into()), ..Self::default() }
    }

    /// What a call of the stat family returned.
    fn of_stat(op: &Op, ret: i64) -> Self {
        op.mode.filter(|_| ret == 0).map_or_else(Self::default, |m| Self {
            kind: Some(crate::assemble::kind_of(m as u32).into()),
            size_bytes: op.len_bytes,
            mode: Some(m & 0o7777),
            file: None,
        })
    }
}

/// Names that the workload changed: their current state is not the initial one.
#[derive(Debug, Default)]
struct Changes {
    /// Names whose content, mode or owner changed.
    any: HashSet<String>,
    /// Those whose content was written.
    content: HashSet<String>,
    /// Names whose extended attributes were set or removed.
    attributes: HashSet<String>,
}

/// Follows all operations of a reel.
fn follow(reel: &Reel, snapshot: Snapshot, disk: &Disk, writer: &mut ReelWriter) -> Result<Deriver> {
    let mut d = Deriver::new(reel, snapshot)?;
    d.names = std::mem::take(&mut d.names).mapped(disk.names.clone());
    if disk.unseen {
        d.names = std::mem::take(&mut d.names).unseen();
    }
    for segment in 0..reel.segments::<Op>().len() {
        if !has_clues(reel, segment)? {
            continue;
        }
        for op in reel.segment_rows(segment) {
            let op: Op = op?;
            if op.state == "in_flight_at_end" {
                continue;
            }
            match &*op.source {
                "syscall" | "io_uring" => {
                    d.places.follow_forks(op.start_ns);
                    d.take(&op);
                    d.places.descriptors.take(&op);
                }
                "scm" => d.places.descriptors.take(&op),
                _ => {}
            }
        }
        // These names are already in the form of the reel.
        d.history.take_gone().into_iter().try_for_each(|row| writer.file_names.push_as_is(&row))?;
    }
    std::mem::take(&mut d.history).into_held().try_for_each(|row| writer.file_names.push_as_is(&row))?;
    Ok(d)
}

/// Operations that say nothing about names and change nothing.
const WITHOUT_CLUES: &[&str] =
    &["read", "pread64", "readv", "preadv", "preadv2", "lseek", "close", "fsync", "fdatasync", "getdents64", "fstat"];

/// Whether a segment contains other operations. Hours of work may consist of such operations only, and reading one
/// column is a hundred times faster than reading rows.
fn has_clues(reel: &Reel, segment: usize) -> Result<bool> {
    for batch in reel.segment_batches::<Op>(segment, &["op"]) {
        let batch = batch?;
        // A column of an unexpected type is reported when its rows are read.
        let Ok(Column::Text(_, words)) = column::<Text>(&batch, "op") else { return Ok(true) };
        if words.iter().flatten().any(|word| !WITHOUT_CLUES.contains(&&**word)) {
            return Ok(true);
        }
    }
    Ok(false)
}

struct Deriver {
    names: Names,
    history: History,
    clues: HashMap<String, Clue>,
    changes: Changes,
    /// Names created by link(2), and the first name of the file.
    same_file: HashMap<String, String>,
    /// The directory of the reel, if the snapshot has seen the rest of it.
    with_reel: Option<String>,
    /// Requested directories of which the snapshot has seen a part.
    cut: Vec<String>,
    /// Directories that were not empty although no entry was known.
    filled: HashSet<String>,
    files: MetFiles,
    places: Places,
    /// Number of files that were not looked up by their descriptors.
    left_out: i64,
    /// Files of mounts that are not part of the tree and were opened by `fsopen` or `fsmount`.
    mounted_elsewhere: HashSet<i64>,
}

impl Deriver {
    fn new(reel: &Reel, snapshot: Snapshot) -> Result<Self> {
        let (files, left_out) = MetFiles::of(reel)?;
        let fds = reel.read::<Fd>()?;
        let mut there: HashSet<i64> = fds.iter().filter_map(|f| f.file).collect();
        there.extend(reel.read::<Map>()?.iter().map(|m| m.file));
        Ok(Self { left_out, ..Self::at_start(snapshot, files, &there, Places::new(reel.read()?, &fds)) })
    }

    /// `there`: files open or mapped at the start.
    fn at_start(snapshot: Snapshot, files: MetFiles, there: &HashSet<i64>, places: Places) -> Self {
        Self {
            names: Names::new(snapshot.entries, snapshot.listed),
            with_reel: snapshot.with_reel,
            cut: snapshot.cut,
            history: History::there(there.iter().filter_map(|f| files.get(*f))),
            clues: HashMap::new(),
            changes: Changes::default(),
            same_file: HashMap::new(),
            filled: HashSet::new(),
            files,
            places,
            left_out: 0,
            mounted_elsewhere: HashSet::new(),
        }
    }

    /// Follows one operation: its names, and the files that they lead to.
    fn take(&mut self, op: &Op) {
        let Some(ret) = op.ret else { return };
        let flags = op.flags.unwrap_or(0) as i32;
        let (first, second) = (names_file(op, flags), !matches!(&*op.op, "mount" | "pivot_root"));
        let dir = if opens(op) { op.file2 } else { op.file };
        self.names.missed(ret == -i64::from(libc::ENOENT));
        let follow = follows(op, flags) && !self.is_plain(op, ret, dir);
        let seen = if first { self.resolve(op, op.path.as_ref(), op.dirfd, dir, follow) } else { None };
        let seen2 = self.resolve(op, op.path2.as_ref(), op.dirfd2, op.file2, !second);
        let (path, path2) = (self.real(op, seen.as_deref()), self.real(op, seen2.as_deref()));
        let file = if op.op.starts_with("link") { self.linked(op, follow) } else { op.file };
        let file = file.and_then(|f| self.files.get(f));
        // On a file system that is not part of the tree, a file has only the name under which it was seen.
        let (name, name2) = (path.as_deref().or(seen.as_deref()), path2.as_deref().or(seen2.as_deref()));
        self.history.take(op, file.as_ref(), name, name2);
        for (file, name) in self.history.take_moved() {
            self.files.renamed(file, name);
        }
        match &*op.op {
            "mount" | "move_mount" | "umount2" | "pivot_root" | "setns" | "fsopen" | "fsmount" => {
                self.seen(path, ret, Clue::default());
                self.seen(path2, ret, Clue::default());
                self.mounts_change(op, ret, flags, seen.as_deref(), seen2.as_deref());
            }
            "chroot" | "chdir" => self.place_changes(op, ret, path, seen.as_deref()),
            _ => self.effect(op, ret, flags, path, path2),
        }
    }

    /// A task changes its root or working directory.
    fn place_changes(&mut self, op: &Op, ret: i64, path: Option<String>, seen: Option<&str>) {
        self.seen(path, ret, Clue::directory());
        match &*op.op {
            _ if ret != 0 => {}
            "chroot" => self.places.set_root(op.task_id, seen),
            _ => self.places.set_cwd(op.task_id, seen),
        }
    }

    /// What an operation on these names shows of them, and what it changes.
    fn effect(&mut self, op: &Op, ret: i64, flags: i32, path: Option<String>, path2: Option<String>) {
        match &*op.op {
            "open" | "openat" | "openat2" | "creat" => self.open(op, ret, flags, path),
            "mkdir" | "mkdirat" | "mknod" | "mknodat" | "bind" => self.made(path, ret),
            "symlink" | "symlinkat" => self.symlink(op, ret, path2),
            "link" | "linkat" => self.link(ret, path, path2),
            "unlink" | "unlinkat" | "rmdir" => self.unlink(op, ret, flags, path),
            "rename" | "renameat" | "renameat2" => self.rename(ret, flags, path, path2),
            "ioctl" if is(op, "SNAP_CREATE") => self.made(path2, ret),
            "ioctl" if is(op, "SUBVOL_CREATE") => self.made(path, ret),
            "ioctl" if is(op, "SNAP_DESTROY") => self.subvolume_destroyed(ret, path),
            // The latter two imply CLONE_FS.
            "unshare" if ret == 0 && flags & (libc::CLONE_FS | libc::CLONE_NEWNS | libc::CLONE_NEWUSER) != 0 => {
                self.places.apart(op.task_id);
                if flags & libc::CLONE_NEWNS != 0 {
                    self.places.own_mounts(op.task_id);
                }
            }
            "fchdir" if ret == 0 => {
                let path = op.file.and_then(|f| self.files.name_of(f));
                let space = self.places.of(op.task_id).map_or(INITIAL, |p| p.mounts);
                let seen = path.and_then(|p| self.places.mounts.seen(space, &p));
                self.places.set_cwd(op.task_id, seen.as_deref());
            }
            "readlink" | "readlinkat" => {
                let kind = (ret >= 0).then(|| "symlink".into());
                self.seen(path, ret.min(0), Clue { kind, ..Clue::default() });
            }
            "stat" | "lstat" | "newfstatat" | "statx" => self.seen(path, ret, Clue::of_stat(op, ret)),
            "truncate" | "chmod" | "fchmodat" | "fchmodat2" | "chown" | "lchown" | "fchownat" | "utime" | "utimes"
            | "futimesat" | "utimensat" => self.attributes_set(op, ret, path),
            call if call.contains("setxattr") || call.contains("removexattr") => {
                self.extended_attributes_set(op, ret, path);
            }
            _ if op.path.is_some() => self.seen(path, ret, Clue::default()),
            _ => self.through_descriptor(op, ret),
        }
    }

    fn symlink(&mut self, op: &Op, ret: i64, at: Option<String>) {
        if let (0, Some(at), Some(target)) = (ret, &at, &op.path) {
            self.names.make_link(at, target);
        }
        self.made(at, ret);
    }

    fn link(&mut self, ret: i64, old: Option<String>, new: Option<String>) {
        self.seen(old.clone(), ret, Clue::default());
        if let (Some(old), Some(new), 0) = (old, &new, ret) {
            let first = self.same_file.get(&old).cloned().unwrap_or(old);
            self.same_file.insert(new.clone(), first);
        }
        self.made(new, ret);
    }

    fn unlink(&mut self, op: &Op, ret: i64, flags: i32, path: Option<String>) {
        let is_dir = op.op == "rmdir" || op.op == "unlinkat" && flags & libc::AT_REMOVEDIR != 0;
        let kind = Some(if is_dir { "directory" } else { "regular" }.into());
        self.seen(path.clone(), ret, Clue { kind, ..Clue::default() });
        if let (Some(p), true) = (&path, is_dir && ret == -i64::from(libc::ENOTEMPTY))
            && let Some(before) = self.names.exists(p)
            && !self.names.has_children(p)
        {
            // An entry that keeps it from being empty is not known yet.
            self.filled.insert(before);
        }
        if let (Some(p), true) = (path, ret == 0) {
            self.note_changed(&p);
            self.names.remove(&p);
            if is_dir {
                self.places.removed(&p);
            }
        }
    }

    fn rename(&mut self, ret: i64, flags: i32, from: Option<String>, to: Option<String>) {
        self.seen(from.clone(), ret, Clue::default());
        if let (Some(from), Some(to), true) = (from, to, ret == 0) {
            let exchange = flags & libc::RENAME_EXCHANGE as i32 != 0;
            if exchange {
                self.names.exists(&to);
            }
            self.note_changed(&from);
            // An unknown target name did not exist.
            if self.names.is_known(&to) {
                self.note_changed(&to);
            }
            self.places.renamed(&from, &to, exchange);
            if exchange {
                self.names.exchange(&from, &to);
            } else {
                self.names.rename(&from, &to);
            }
        }
    }

    fn subvolume_destroyed(&mut self, ret: i64, path: Option<String>) {
        self.seen(path.clone(), ret, Clue::directory());
        if let (Some(p), 0) = (path, ret) {
            self.note_changed(&p);
            self.names.remove(&p);
            self.places.removed(&p);
        }
    }

    /// An operation that sets a size, mode, owner or time by name.
    fn attributes_set(&mut self, op: &Op, ret: i64, path: Option<String>) {
        self.seen(path.clone(), ret, Clue::default());
        if let (Some(p), 0) = (path, ret) {
            if op.op == "truncate" {
                self.note_written(&p);
            }
            self.note_changed(&p);
        }
    }

    fn extended_attributes_set(&mut self, op: &Op, ret: i64, path: Option<String>) {
        let by_descriptor = || op.file.and_then(|f| self.files.path_of(f)).map(|p| p.to_string());
        if let (Some(p), 0) = (path.clone().or_else(by_descriptor), ret)
            && !self.names.is_new(&p)
        {
            let others = [self.same_file.get(&p).cloned(), self.names.origin(&p)];
            self.changes.attributes.extend(others.into_iter().flatten().chain([p]));
        }
        self.seen(path, ret, Clue::default());
    }

    /// An operation on a descriptor: notes what it changes.
    fn through_descriptor(&mut self, op: &Op, ret: i64) {
        let target = match &*op.op {
            "copy_file_range" | "sendfile" => op.file2,
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "ftruncate" | "fallocate" | "fchmod"
            | "fchown" => op.file,
            "mmap"
                if op.flags.unwrap_or(0) as i32 & libc::MAP_SHARED != 0
                    && op.mode.unwrap_or(0) & libc::PROT_WRITE != 0 =>
            {
                op.file
            }
            _ => None,
        };
        if ret >= 0
            && let Some(path) = target.and_then(|f| self.files.path_of(f)).map(|p| p.to_string())
        {
            let first = self.same_file.get(&path).unwrap_or(&path).clone();
            self.note_written(&path);
            self.note_written(&first);
        }
    }

    fn open(&mut self, op: &Op, ret: i64, flags: i32, path: Option<String>) {
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            return self.seen(path, ret.min(0), Clue::directory());
        }
        if ret >= 0 && op.aux == Some(1) {
            return self.made(path, 0);
        }
        // A path that ends in a slash, directly or through a link, is refused whether or not the file exists.
        if ret == -i64::from(libc::EISDIR) && flags & libc::O_CREAT != 0 {
            let last = |p: Option<&str>| p.map(|p| p.rsplit('/').next().unwrap_or_default().to_owned());
            if last(op.path.as_deref()) != last(path.as_deref()) {
                return;
            }
        }
        let file = op.file.filter(|_| ret >= 0).and_then(|f| self.files.get(f));
        let mut clue = file.map_or_else(Clue::default, |f| Clue {
            kind: Some(f.kind.clone()),
            size_bytes: f.size_bytes,
            mode: f.mode,
            file: Some(f.file).filter(|_| f.kind == *"regular"),
        });
        if flags & libc::O_DIRECTORY != 0 && ret >= 0 {
            clue.kind = Some("directory".into());
        }
        if flags & libc::O_TRUNC != 0
            && ret >= 0
            && let Some(p) = &path
        {
            self.note_written(p);
        }
        self.seen(path, ret.min(0), clue);
    }

    /// What has this name is no longer in its initial state. Names that did not exist before are not noted.
    fn note_changed(&mut self, path: &str) {
        if !self.names.is_new(path) {
            self.changes.any.insert(path.to_owned());
        }
    }

    fn note_written(&mut self, path: &str) {
        if !self.names.is_new(path) {
            self.changes.any.insert(path.to_owned());
            self.changes.content.insert(path.to_owned());
        }
    }

    /// A name was used. It existed if `ret` is not negative or is an error that implies so.
    fn seen(&mut self, path: Option<String>, ret: i64, clue: Clue) {
        let Some(path) = path else { return };
        let there = ret >= 0 || [libc::EEXIST, libc::EISDIR, libc::ELOOP].iter().any(|e| ret == -i64::from(*e));
        if !there {
            return;
        }
        let linked = |d: &Self| d.same_file.get(&path).cloned();
        let before = self.names.exists(&path).or_else(|| self.names.origin(&path));
        if let Some(before) = before.or_else(|| self.names.exists(&linked(self)?)) {
            let known = self.clues.entry(before).or_default();
            known.kind = known.kind.take().or(clue.kind);
            known.size_bytes = known.size_bytes.or(clue.size_bytes);
            known.mode = known.mode.or(clue.mode);
            known.file = known.file.or(clue.file);
        }
    }

    /// A name was created, or (EEXIST) existed already.
    fn made(&mut self, path: Option<String>, ret: i64) {
        let Some(path) = path else { return };
        if ret == 0 {
            self.names.make(&path);
        } else if ret == -i64::from(libc::EEXIST) {
            self.seen(Some(path), 0, Clue::default());
        }
    }
}
