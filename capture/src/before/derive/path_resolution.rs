//! Resolves the paths of operations.

use ioreel_traces::{Text, mounting::Mounting, rows::Op};

use super::Deriver;
use crate::before::derive::{
    mounts::{Mounts, is_elsewhere},
    name_history::History,
    seen_files::MetFiles,
    working_dirs::Place,
};
use crate::{
    before::namespace::{
        RealPath, Start,
        magic_links::{End, Link, end},
    },
    calls::is_in_root,
};

impl Deriver {
    /// Whether an open opened a file by exactly this name. If the name is a link now, the link was created later.
    pub(super) fn is_plain(&mut self, op: &Op, ret: i64, dir: Option<i64>) -> bool {
        let file = op.file.filter(|_| ret >= 0 && opens(op));
        let Some(path) = file.and_then(|f| self.files.get(f)).and_then(|f| f.path) else { return false };
        self.resolve(op, op.path.as_ref(), op.dirfd, dir, false)
            .and_then(|named| self.real(op, Some(&named)))
            .is_some_and(|named| *named == *path)
    }

    pub(super) fn resolve(
        &mut self,
        op: &Op,
        path: Option<&Text>,
        dirfd: Option<i32>,
        dir: Option<i64>,
        follow: bool,
    ) -> Option<String> {
        let path = path.filter(|p| !p.is_empty())?;
        let Self { names, history, files, places, .. } = self;
        let place = places.of(op.task_id).filter(|p| !p.elsewhere)?;
        let in_root = is_in_root(op);
        let base = |start| base(files, place, &places.mounts, start);
        let top = if in_root { base((dirfd, dir))? } else { place.top()? };
        let base = if in_root || path.starts_with('/') { top.clone() } else { base((dirfd, dir))? };
        let (mounts, space) = (&places.mounts, place.mounts);
        let real = |seen: &str| Some(mounts.real(space, seen).path).filter(|real| !is_elsewhere(real));
        let own = |link, is_last| {
            let whose = |of_process| if of_process { places.of_process(op.pid) } else { Some(place) };
            match link {
                Link::Cwd { of_process } => whose(of_process)?.cwd.name(),
                Link::Root { of_process } => whose(of_process)?.root.name(),
                Link::Fd(fd) => {
                    let file = places.descriptors.get(op.pid, fd)?;
                    // The descriptor may have been reused by a call that is not recorded.
                    let is_another = is_last && opens(op) && op.ret.is_some_and(|r| r >= 0) && op.file != Some(file);
                    name_of(files, history, file).filter(|_| !is_another).and_then(|n| mounts.seen(space, &n))
                }
            }
        };
        let real: Option<RealPath<'_>> = if mounts.is_plain(space) { None } else { Some(&real) };
        names.resolve(&Start { top: &top, base: &base, pid: op.pid, own: &own, real }, path, follow)
    }

    /// The path of the same file without the mounts of the workload. `None` if it is not part of the tree.
    pub(super) fn real(&self, op: &Op, seen: Option<&str>) -> Option<String> {
        let seen = seen?;
        let space = self.places.of(op.task_id)?.mounts;
        if self.places.mounts.is_plain(space) {
            return Some(seen.to_owned());
        }
        let real = self.places.mounts.real(space, seen).path;
        (!is_elsewhere(&real)).then(|| if real.is_empty() { "/".to_owned() } else { real })
    }

    /// The file that link(2) names through a descriptor: directly, or by its path in proc.
    pub(super) fn linked(&self, op: &Op, follow: bool) -> Option<i64> {
        let path = op.path.as_deref()?;
        match end(path, op.pid) {
            _ if path.is_empty() => op.file,
            End::Link(Link::Fd(fd)) if follow => self.places.descriptors.get(op.pid, fd),
            _ => None,
        }
    }
}

/// Current name of a file, if known.
fn name_of(files: &MetFiles, history: &History, file: i64) -> Option<Text> {
    let name = files.name_of(file)?;
    (files.is_folder(file) || history.is_at(&name, file)).then_some(name)
}

/// The directory that a relative path starts at.
fn base(files: &MetFiles, place: &Place, mounts: &Mounts, start: (Option<i32>, Option<i64>)) -> Option<String> {
    match start {
        (None | Some(libc::AT_FDCWD), _) => place.cwd.name(),
        (Some(_), dir) => files.name_of(dir?).and_then(|name| mounts.seen(place.mounts, &name)),
    }
}

/// Calls that open the file of their first path; the directory of `dirfd` is then their second file.
pub(super) fn opens(op: &Op) -> bool {
    matches!(&*op.op, "open" | "openat" | "openat2" | "creat" | "open_tree" | "open_tree_attr" | "fspick")
}

/// Whether the first path of a call is a name in the tree.
pub(super) fn names_file(op: &Op, flags: i32) -> bool {
    match &*op.op {
        // The first path is the target of the link.
        "symlink" | "symlinkat" => false,
        // The source is a device or any word, unless a directory is bind-mounted or a mount is moved.
        "mount" => Mounting::of(flags.into()).has_source_path(),
        _ => true,
    }
}

/// Whether a symbolic link at the end of the first path is followed.
pub(super) fn follows(op: &Op, flags: i32) -> bool {
    // linux/mount.h
    const FSPICK_SYMLINK_NOFOLLOW: i32 = 2;
    const MOVE_MOUNT_F_SYMLINKS: i32 = 1;
    match &*op.op {
        "lstat" | "lchown" | "readlink" | "readlinkat" | "unlink" | "unlinkat" | "rmdir" | "rename" | "renameat"
        | "renameat2" | "mkdir" | "mkdirat" | "mknod" | "mknodat" | "bind" | "link" | "ioctl" | "lsetxattr"
        | "lgetxattr" | "llistxattr" | "lremovexattr" => false,
        "linkat" | "name_to_handle_at" => flags & libc::AT_SYMLINK_FOLLOW != 0,
        "umount2" => flags & libc::UMOUNT_NOFOLLOW == 0,
        "fspick" => flags & FSPICK_SYMLINK_NOFOLLOW == 0,
        "move_mount" => flags & MOVE_MOUNT_F_SYMLINKS != 0,
        "open" | "openat" | "openat2" | "creat" => {
            flags & libc::O_NOFOLLOW == 0 && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL
        }
        _ => op.dirfd.is_none() || flags & libc::AT_SYMLINK_NOFOLLOW == 0,
    }
}
