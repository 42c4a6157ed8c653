//! The target directory: opens it and checks that it is usable.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use ioreel_traces::{host, manifest::Mount, text::from_bytes};
use rustix::{
    fs::{
        Access, AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid, accessat, fchmod, fchown, fstat, fstatvfs, ioctl_ficlone,
        major, minor, open, openat, syncfs,
    },
    io::Errno,
};

use crate::{
    ReplayError,
    plan::program::Plan,
    prepare::{containment::Privilege, directory::Directory},
};

/// An open target.
#[derive(Debug)]
pub struct Target {
    dir: OwnedFd,
    /// Attributes when it was opened.
    stat: Stat,
    /// Where it is found again, for mounting.
    pub directory: Directory,
    /// Its mount.
    pub mount: Mount,
    /// Free space for this user, bytes.
    pub free_bytes: i64,
    /// Free space that is reserved for root, bytes.
    pub reserved_bytes: i64,
    /// Files of it can share data (reflink).
    pub shares_data: bool,
}

impl Target {
    /// Opens `path`. Refuses anything but a directory, one that the user may not write to, and unless `force` is given,
    /// one that is not empty.
    pub fn open(path: &Path, force: bool) -> Result<Self, ReplayError> {
        Self::open_around(path, force, &[])
    }

    /// Likewise for a directory that contains `others`: entries on the way to these do not count as contents.
    pub fn open_around(path: &Path, force: bool, others: &[PathBuf]) -> Result<Self, ReplayError> {
        let bad = |why: String| ReplayError::Target { path: path.into(), why };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(path, flags, Mode::empty()).map_err(|e| bad(e.to_string()))?;
        let resolved = fs::canonicalize(path).map_err(|e| bad(e.to_string()))?;
        let access = accessat(CWD, &resolved, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
        // If the kernel cannot tell (set-ID programs before Linux 5.8), the preparation will.
        if let Err(e @ (Errno::ACCESS | Errno::PERM | Errno::ROFS)) = access {
            return Err(ReplayError::NotWritable { path: path.into(), source: e.into() });
        }
        if !force {
            let names = fs::read_dir(path).map_err(|e| bad(e.to_string()))?;
            for name in names {
                let name = name.map_err(|e| bad(e.to_string()))?.file_name();
                // Every new ext4 has it.
                let entry = resolved.join(&name);
                if name != "lost+found" && !others.iter().any(|o| o.starts_with(&entry)) {
                    return Err(ReplayError::NotEmpty {
                        path: path.into(),
                        found: name.to_string_lossy().into_owned(),
                    });
                }
            }
        }
        let stat = fstat(&dir).map_err(|e| bad(e.to_string()))?;
        let space = fstatvfs(&dir).map_err(|e| bad(e.to_string()))?;
        let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(space.f_frsize)).unwrap_or(i64::MAX);
        let mut mount = mount_of(path, stat.st_dev).unwrap_or_default();
        mount.total_bytes = bytes(space.f_blocks);
        mount.free_bytes = bytes(space.f_bavail);
        let directory = Directory::of(resolved, &dir).map_err(|e| bad(e.to_string()))?;
        // Other file systems count in f_bfree what cannot hold data, such as btrfs its metadata.
        let reserves = mount.fstype.starts_with("ext");
        let reserved_bytes = if reserves { bytes(space.f_bfree.saturating_sub(space.f_bavail)) } else { 0 };
        let shares_data = shares_data(&dir);
        Ok(Self { free_bytes: mount.free_bytes, reserved_bytes, shares_data, mount, directory, dir, stat })
    }

    /// Restores mode and owner of the directory as of its opening. Operations on it are not planned, but may reach it
    /// if a symbolic link is exchanged during path resolution. Returns a warning if something had changed.
    pub fn take_back(&self) -> Option<String> {
        let now = fstat(&self.dir).ok()?;
        let of = |s: &Stat| (s.st_mode & 0o7777, s.st_uid, s.st_gid);
        if of(&now) == of(&self.stat) {
            return None;
        }
        let (mode, uid, gid) = of(&self.stat);
        // The owner first, because changing it clears set-ID bits.
        let restored = fchown(&self.dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .and_then(|()| fchmod(&self.dir, Mode::from_raw_mode(mode)));
        let how = restored.map_or_else(|e| format!("could not be restored: {e}"), |()| "have been restored".into());
        Some(format!(
            "{}: the replay changed the mode or owner of the target directory; they {how}",
            self.directory.path.display()
        ))
    }

    /// Free bytes for a replay. Root may also use what the file system reserves, if no thread runs as another user.
    pub(crate) fn free_bytes_for(&self, plan: &Plan, privilege: Privilege) -> i64 {
        let others = plan.tasks.iter().filter_map(|t| t.root.as_ref()).any(|r| r.who.user.files != 0);
        let all_as_root = privilege.root && !plan.users_change && !others;
        self.free_bytes.saturating_add(if all_as_root { self.reserved_bytes } else { 0 })
    }

    /// A descriptor of the directory.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd, ReplayError> {
        self.dir.try_clone().map_err(|source| ReplayError::Io { doing: "keeping the target open", source })
    }

    /// Syncs the file system. Returns 0 or -errno.
    pub fn sync(&self) -> i64 {
        syncfs(&self.dir).map_or_else(|e| -i64::from(e.raw_os_error()), |()| 0)
    }
}

/// Whether files in this directory can share data. Tries it with two empty files without a name.
fn shares_data(dir: &OwnedFd) -> bool {
    let file = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        openat(dir, ".", flags, Mode::RUSR | Mode::WUSR)
    };
    file().and_then(|from| ioctl_ficlone(file()?, from)).is_ok()
}

/// `path` as an absolute path inside `target`, if it is there. Both without symbolic links.
pub(crate) fn inside(target: &Path, path: &Path) -> Option<Vec<u8>> {
    let rest = path.strip_prefix(target).ok()?;
    Some([b"/", rest.as_os_str().as_bytes()].concat())
}

/// Drops the page cache and clean directory and inode caches. Needs root.
pub fn drop_caches() -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// The mount that contains `path`, by the longest matching mount point. The device number does not suffice: on btrfs, a
/// subvolume has another one than its mount.
fn mount_of(path: &Path, dev: u64) -> Option<Mount> {
    let path = from_bytes(fs::canonicalize(path).ok()?.as_os_str().as_bytes());
    let mounts = host::mounts();
    let mut mount = host::mount_of_path(&mounts, &path)?.clone();
    if mount.sb_dev == 0 {
        mount.sb_dev = host::dev_t(major(dev), minor(dev));
    }
    Some(mount)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_changed_directory_gets_its_mode_back() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        set(0o750);
        let target = Target::open(dir.path(), false).unwrap();
        assert_eq!(target.take_back(), None);
        set(0o777);
        assert!(target.take_back().unwrap().contains("have been restored"));
        assert_eq!(fs::metadata(dir.path()).unwrap().permissions().mode() & 0o7777, 0o750);
    }

    #[test]
    fn a_target_that_cannot_be_written_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(dir.path(), 0o755);
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        set(&target, 0o555);
        let refused = std::thread::scope(|s| {
            s.spawn(|| {
                if rustix::process::geteuid().is_root() {
                    // SAFETY: plain integers; the raw call changes this thread alone.
                    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) }, 0);
                }
                Target::open(&target, false).map(|_| ())
            })
            .join()
            .unwrap()
        })
        .unwrap_err();
        assert!(matches!(refused, ReplayError::NotWritable { .. }), "{refused}");
        assert!(!refused.to_string().contains('\n'));
    }
}
