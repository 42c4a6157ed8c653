//! A control group (v2) for a replay, with limits on memory and tasks: a reel that takes too much of them ends its own
//! replay instead of the machine's work.
//!
//! Whoever started ioreel may have chosen its control group for a reason. It is left only for one beside it, and only if
//! no limit and no supervision is lost by that.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::run::memory_limit::{own_group_of_process, parents};

/// How the names of groups begin; the process id follows.
const PREFIX: &str = "ioreel-replay-";

/// Limits of a replay that nobody has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultLimits {
    /// Memory, page cache included, bytes.
    pub memory_bytes: i64,
    /// Threads, those of the kernel for this process included.
    pub tasks: i64,
}

impl DefaultLimits {
    /// For a replay of at most `threads` at once. `strict`: at most half of the machine's memory, otherwise 7/8 of it.
    pub fn of(threads: usize, strict: bool) -> Self {
        let total = match ioreel_traces::host::host().mem_bytes {
            0 => i64::MAX,
            bytes => bytes,
        };
        let memory_bytes = if strict { total / 2 } else { total / 8 * 7 };
        // Workers of io_uring, and ioreel's own threads.
        Self { memory_bytes, tasks: threads as i64 * 2 + 256 }
    }
}

/// A control group that this process has entered. Dropping it leaves and removes the group.
#[derive(Debug)]
pub struct ControlGroup {
    dir: PathBuf,
    home: PathBuf,
}

impl ControlGroup {
    /// Makes a group and enters it. The error says why this is not possible or not done.
    pub fn enter(limits: DefaultLimits) -> Result<Self, String> {
        let (point, own) = own_group_of_process().ok_or("cgroup2 is not mounted")?;
        Self::below(&point, own, limits)
    }

    fn below(point: &Path, own: PathBuf, limits: DefaultLimits) -> Result<Self, String> {
        if let Some(why) = reason_to_stay(&own) {
            return Err(format!("it stays in {}, {why}", own.display()));
        }
        let mut why = String::new();
        for parent in parents(point, &own) {
            match Self::in_parent(parent, &own, limits) {
                Ok(group) => return Ok(group),
                Err(e) => why = format!("{}: {e}", parent.display()),
            }
        }
        Err(why)
    }

    fn in_parent(parent: &Path, own: &Path, limits: DefaultLimits) -> io::Result<Self> {
        let passed_on = fs::read_to_string(parent.join("cgroup.subtree_control"))?;
        let has = |controller| passed_on.split_whitespace().any(|c| c == controller);
        if !has("memory") && !has("pids") {
            return Err(io::Error::other("it passes neither memory nor pids on to groups in it"));
        }
        remove_left_behind(parent);
        let dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&dir)?;
        let group = Self { dir, home: own.into() };
        // A limit of the group that is left goes along.
        let least = |file: &str, wanted: i64| limit_in(own, file).map_or(wanted, |limit| limit.min(wanted));
        if has("memory") {
            group.set("memory.max", least("memory.max", limits.memory_bytes))?;
            if let Some(high) = limit_in(own, "memory.high") {
                group.set("memory.high", high)?;
            }
        }
        if has("pids") {
            group.set("pids.max", least("pids.max", limits.tasks))?;
        }
        group.set("cgroup.procs", std::process::id().into())?;
        Ok(group)
    }

    fn set(&self, file: &str, number: i64) -> io::Result<()> {
        fs::write(self.dir.join(file), number.to_string())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // If this fails, the process stays in the group until it exits.
        let _ = fs::write(self.home.join("cgroup.procs"), std::process::id().to_string());
        let _ = fs::remove_dir(&self.dir);
    }
}

/// The limit in a file of a group, if it has one.
fn limit_in(group: &Path, file: &str) -> Option<i64> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// Why a process in this group must not leave it.
fn reason_to_stay(own: &Path) -> Option<String> {
    if own.extension().is_some_and(|e| e == "service") {
        return Some("where a service manager supervises it".into());
    }
    let differs = |(file, usual): &(&str, &str)| {
        let text = fs::read_to_string(own.join(file)).unwrap_or_default();
        let text = text.trim();
        !text.is_empty() && text.split(' ').next() != Some(usual)
    };
    let chosen = [("cpu.max", "max"), ("cpu.weight", "100"), ("cpuset.cpus", ""), ("cpuset.mems", ""), ("io.max", "")];
    chosen.iter().find(|c| differs(c)).map(|(file, _)| format!("whose {file} holds for it"))
}

/// Removes groups of replays that were killed.
fn remove_left_behind(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok);
    for entry in entries {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix(PREFIX)).and_then(|n| n.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            // Refused if something is in it.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const LIMITS: DefaultLimits = DefaultLimits { memory_bytes: 1 << 30, tasks: 1000 };

    /// A hierarchy with a session's group, whose parent passes on these controllers.
    fn hierarchy(passed_on: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("user/session.scope");
        fs::create_dir_all(&own).unwrap();
        fs::write(dir.path().join("cgroup.subtree_control"), "").unwrap();
        fs::write(own.parent().unwrap().join("cgroup.subtree_control"), passed_on).unwrap();
        (dir, own)
    }

    fn read(group: &ControlGroup, file: &str) -> Option<String> {
        fs::read_to_string(group.path().join(file)).ok()
    }

    #[test]
    fn a_group_beside_ones_own_limits_memory_and_tasks() {
        let (dir, own) = hierarchy("cpu memory pids");
        fs::write(own.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(own.join("memory.max"), "max\n").unwrap();
        let dead = own.parent().unwrap().join(format!("{PREFIX}4194305"));
        fs::create_dir(&dead).unwrap();
        let group = ControlGroup::below(dir.path(), own.clone(), LIMITS).unwrap();
        assert_eq!(group.path().parent(), own.parent());
        assert!(!dead.exists(), "no process has such a number");
        let me = Some(std::process::id().to_string());
        assert_eq!(read(&group, "memory.max").as_deref(), Some("1073741824"));
        assert_eq!(read(&group, "pids.max").as_deref(), Some("1000"));
        assert_eq!(read(&group, "cgroup.procs"), me);
        assert_eq!(read(&group, "memory.high"), None);
        drop(group);
        assert_eq!(fs::read_to_string(own.join("cgroup.procs")).ok(), me);
    }

    #[test]
    fn no_limit_is_lost() {
        let (dir, own) = hierarchy("memory pids");
        for (file, text) in [("memory.max", "67108864\n"), ("memory.high", "33554432\n"), ("pids.max", "99\n")] {
            fs::write(own.join(file), text).unwrap();
        }
        let group = ControlGroup::below(dir.path(), own, LIMITS).unwrap();
        let all = ["memory.max", "memory.high", "pids.max"].map(|file| read(&group, file).unwrap());
        assert_eq!(all, ["67108864", "33554432", "99"]);
    }

    #[test]
    fn a_group_that_was_chosen_is_not_left() {
        for (file, text) in
            [("cpu.max", "50000 100000"), ("cpuset.cpus", "0-1"), ("io.max", "8:0 rbps=1"), ("cpu.weight", "10")]
        {
            let (dir, own) = hierarchy("memory pids");
            fs::write(own.join(file), text).unwrap();
            let why = ControlGroup::below(dir.path(), own, LIMITS).unwrap_err();
            assert!(why.contains(file), "{why}");
        }
        let (dir, own) = hierarchy("memory pids");
        let service = own.with_file_name("x.service");
        fs::create_dir(&service).unwrap();
        assert!(ControlGroup::below(dir.path(), service, LIMITS).unwrap_err().contains("supervises"));
        let (dir, own) = hierarchy("cpu");
        let why = ControlGroup::below(dir.path(), own, LIMITS).unwrap_err();
        assert!(why.contains("neither memory nor pids"), "{why}");
    }

    #[test]
    fn strict_limits_are_lower() {
        let (strict, usual) = (DefaultLimits::of(512, true), DefaultLimits::of(4096, false));
        assert!(0 < strict.memory_bytes && strict.memory_bytes < usual.memory_bytes && strict.tasks < usual.tasks);
    }
}
