//! The directory to replay into: what it is, and whether it will do.

use std::{fs, io, os::fd::OwnedFd, path::Path};

use ioreel_traces::manifest::Mount;
use rustix::fs::{Mode, OFlags, fstat, fstatvfs, major, minor, open, syncfs};

use crate::ReplayError;

/// An open target.
#[derive(Debug)]
pub struct Target {
    dir: OwnedFd,
    /// Its mount.
    pub mount: Mount,
    /// Bytes this user may still write.
    pub free_bytes: i64,
}

impl Target {
    /// Opens `path`; refuses what is no directory, and what is not empty unless `force`.
    pub fn open(path: &Path, force: bool) -> Result<Self, ReplayError> {
        let bad = |why: String| ReplayError::Target { path: path.into(), why };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(path, flags, Mode::empty()).map_err(|e| bad(e.to_string()))?;
        if !force {
            let names = fs::read_dir(path).map_err(|e| bad(e.to_string()))?;
            for name in names {
                let name = name.map_err(|e| bad(e.to_string()))?.file_name();
                // Every new ext4 has it.
                if name != "lost+found" {
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
        Ok(Self { free_bytes: mount.free_bytes, mount, dir })
    }

    /// Writes everything out; 0 or -errno.
    pub fn sync(&self) -> i64 {
        syncfs(&self.dir).map_or_else(|e| -i64::from(e.raw_os_error()), |()| 0)
    }
}

/// Empties the page cache, so that a replay begins as cold as it can.
pub fn drop_caches() -> io::Result<()> {
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// The mount that holds `path`, by the longest mountpoint that leads to it. The device number alone does
/// not tell: on btrfs a subvolume's differs from its mount's.
fn mount_of(path: &Path, dev: u64) -> Option<Mount> {
    let path = fs::canonicalize(path).ok()?;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mounts = table.lines().filter_map(parse_mount);
    let mut mount = mounts.filter(|m| path.starts_with(&m.mountpoint)).reduce(|a, b| {
        // Of several on the same point the last is on top.
        if b.mountpoint.len() >= a.mountpoint.len() { b } else { a }
    })?;
    if mount.sb_dev == 0 {
        mount.sb_dev = i64::from(major(dev)) << 20 | i64::from(minor(dev));
    }
    Some(mount)
}

/// A line of /proc/self/mountinfo: see proc_pid_mountinfo(5).
fn parse_mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let (maj, min) = left.get(2)?.split_once(':')?;
    Some(Mount {
        sb_dev: maj.parse::<i64>().ok()? << 20 | min.parse::<i64>().ok()?,
        root: unescape(left.get(3)?),
        mountpoint: unescape(left.get(4)?),
        options: format!("{},{}", left.get(5)?, right.get(2).unwrap_or(&"")),
        fstype: (*right.first()?).to_owned(),
        source: unescape(right.get(1)?),
        ..Mount::default()
    })
}

/// Blanks and backslashes are written as octal there.
fn unescape(text: &str) -> String {
    ["\\040", "\\011", "\\012", "\\134"]
        .iter()
        .zip([" ", "\t", "\n", "\\"])
        .fold(text.to_owned(), |t, (code, plain)| t.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_understood() {
        let m = parse_mount("36 35 7:1 /sub /mnt/a\\040b rw,noatime shared:1 - btrfs /dev/loop1 rw,space_cache=v2")
            .expect("a mount");
        assert_eq!((m.sb_dev, m.fstype.as_str()), (7 << 20 | 1, "btrfs"));
        assert_eq!((m.mountpoint.as_str(), m.root.as_str()), ("/mnt/a b", "/sub"));
    }
}
