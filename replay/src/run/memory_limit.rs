//! Limits memory, page cache included, with a control group (v2) for the replay.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::ReplayError;

/// Lowest limit, bytes. The replayer itself may need this much.
pub const LEAST_LIMIT_BYTES: i64 = 64 << 20;

/// Memory use of a limited replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReport {
    /// The limit, bytes.
    pub limit_bytes: i64,
    /// Peak use, including page cache and the replayer itself. Null before Linux 5.19.
    pub peak_bytes: Option<i64>,
}

/// A control group that this process can enter. Dropping it leaves and removes the group.
#[derive(Debug)]
pub struct MemoryLimit {
    dir: PathBuf,
    home: PathBuf,
    bytes: i64,
}

/// Mount point of the control groups (v2), and this process's group, from /proc/self/mountinfo and /proc/self/cgroup.
fn own_group(mountinfo: &str, cgroup: &str) -> Option<(PathBuf, PathBuf)> {
    let mount = mountinfo.lines().find_map(|line| {
        let (fields, rest) = line.split_once(" - ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        // Field 4 is the mounted part of the hierarchy, field 5 the mount point.
        rest.starts_with("cgroup2 ").then(|| Some((*fields.get(3)?, *fields.get(4)?))).flatten()
    });
    let (root, point) = mount?;
    let path = cgroup.lines().find_map(|l| l.strip_prefix("0::"))?;
    let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("/");
    let point = PathBuf::from(point);
    let own = point.join(inside.trim_start_matches('/'));
    Some((point, own))
}

/// Mount point of the control groups, and this process's group.
pub(super) fn own_group_of_process() -> Option<(PathBuf, PathBuf)> {
    // The file may contain names of other mounts, which may be any bytes.
    let read = |path: &str| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    own_group(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
}

/// Where a group can be made: a group with processes in it cannot limit its children, so in the parent of this process's
/// group, else in the root.
pub(super) fn parents<'a>(point: &'a Path, own: &'a Path) -> Vec<&'a Path> {
    let mut parents: Vec<&Path> = own.parent().filter(|p| p.starts_with(point)).into_iter().chain([point]).collect();
    parents.dedup();
    parents
}

impl MemoryLimit {
    /// Creates the group.
    ///
    /// # Errors
    /// If no control group exists in which this user can limit memory, or the limit is too small.
    pub fn make(bytes: i64) -> Result<Self, ReplayError> {
        let refused = |why: String| ReplayError::MemoryLimit { why };
        if bytes < LEAST_LIMIT_BYTES {
            return Err(refused(format!("too small: ioreel itself needs {} MiB", LEAST_LIMIT_BYTES >> 20)));
        }
        let (point, own) = own_group_of_process().ok_or_else(|| refused("cgroup2 is not mounted".into()))?;
        Self::below(&point, own, bytes).map_err(refused)
    }

    fn below(point: &Path, own: PathBuf, bytes: i64) -> Result<Self, String> {
        let mut why = String::new();
        for parent in parents(point, &own) {
            match Self::in_parent(parent, &own, bytes) {
                Ok(limit) => return Ok(limit),
                Err(e) => why = format!("{}: {e}", parent.display()),
            }
        }
        Err(why)
    }

    fn in_parent(parent: &Path, own: &Path, bytes: i64) -> io::Result<Self> {
        let control = parent.join("cgroup.subtree_control");
        if !fs::read_to_string(&control)?.split_whitespace().any(|c| c == "memory") {
            let known = fs::read_to_string(parent.join("cgroup.controllers"))?;
            if !known.split_whitespace().any(|c| c == "memory") {
                return Err(io::Error::other("the memory controller is not available there (cgroup1 may have it)"));
            }
            fs::write(&control, "+memory")?;
        }
        let dir = parent.join(format!("ioreel-replay-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let limit = Self { dir, home: own.into(), bytes };
        fs::write(limit.dir.join("memory.max"), bytes.to_string())?;
        // Pages should not be swapped out instead. Ignored if swap is not controlled.
        let _ = fs::write(limit.dir.join("memory.swap.max"), "0");
        Ok(limit)
    }

    /// Moves this process into the group. The limit covers memory allocated from now on.
    pub fn enter(&self) -> Result<(), ReplayError> {
        fs::write(self.dir.join("cgroup.procs"), std::process::id().to_string())
            .map_err(|e| ReplayError::MemoryLimit { why: format!("entering {}: {e}", self.dir.display()) })
    }

    /// Moves this process back.
    pub fn leave(&self) -> MemoryReport {
        let peak = fs::read_to_string(self.dir.join("memory.peak")).ok();
        // If this fails, the process stays in the group until it exits.
        let _ = fs::write(self.home.join("cgroup.procs"), std::process::id().to_string());
        MemoryReport { limit_bytes: self.bytes, peak_bytes: peak.and_then(|p| p.trim().parse().ok()) }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        self.leave();
        // If it is still in use, it stays behind, empty and at no cost.
        let _ = fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found() {
        let unified = "24 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
        let both = "9 1 0:5 / /proc rw - proc proc rw\n30 1 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                    31 1 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let group = "4:memory:/else\n0::/user.slice/x.scope\n";
        let found = |m: &str| own_group(m, group).map(|(p, o)| (p.display().to_string(), o.display().to_string()));
        let at = |p: &str| Some((p.to_owned(), format!("{p}/user.slice/x.scope")));
        assert_eq!(found(unified), at("/sys/fs/cgroup"));
        assert_eq!(found(both), at("/sys/fs/cgroup/unified"));
        assert_eq!(found(""), None);
        // In a container, only a part of the hierarchy is mounted.
        let part = "24 1 0:22 /user.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(found(part).unwrap().1, "/sys/fs/cgroup/x.scope");
    }

    #[test]
    fn a_group_is_made_beside_ones_own_where_memory_is_controlled() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("user/session");
        fs::create_dir_all(&own).unwrap();
        let control = |at: &Path, controllers: &str, subtree: &str| {
            fs::write(at.join("cgroup.controllers"), controllers).unwrap();
            fs::write(at.join("cgroup.subtree_control"), subtree).unwrap();
        };
        control(dir.path(), "hugetlb", "");
        control(own.parent().unwrap(), "cpu", "");
        let why = MemoryLimit::below(dir.path(), own.clone(), 1 << 30).unwrap_err();
        assert!(why.contains("memory controller is not available"), "{why}");
        control(own.parent().unwrap(), "cpu memory", "cpu memory");
        let limit = MemoryLimit::below(dir.path(), own.clone(), 1 << 30).unwrap();
        assert_eq!(limit.dir.parent(), own.parent());
        assert_eq!(fs::read_to_string(limit.dir.join("memory.max")).unwrap(), (1_i64 << 30).to_string());
        limit.enter().unwrap();
        let me = std::process::id().to_string();
        assert_eq!(fs::read_to_string(limit.dir.join("cgroup.procs")).unwrap(), me);
        drop(limit);
        assert_eq!(fs::read_to_string(own.join("cgroup.procs")).unwrap(), me);
        assert!(matches!(MemoryLimit::make(1 << 20), Err(ReplayError::MemoryLimit { .. })));
    }
}
