//! Limits of control groups. Both versions of the hierarchy are read; each controller belongs to one of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ioreel_traces::{
    host::{dev_t, os_path},
    manifest::{Cgroup, IoLimit, Mount},
    text,
};

/// Values from here on mean "no limit" in version 1 (`PAGE_COUNTER_MAX` pages).
const NO_LIMIT: i64 = 1 << 62;

/// The control groups of these processes, each once, with their limits.
pub(crate) fn of_processes(pids: &[u32]) -> Vec<Cgroup> {
    let mounts = super::mounts();
    let mut all: Vec<Cgroup> = Vec::new();
    for pid in pids {
        let text = text::from_bytes(&fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default());
        let group = limits(&folders(&text, &mounts));
        if !all.contains(&group) {
            all.push(group);
        }
    }
    all
}

/// The control group of this folder, which is in the hierarchy of version 2.
pub(crate) fn of_folder(folder: &Path) -> Option<Cgroup> {
    let mounts = super::mounts();
    let root = mounts.iter().find(|m| m.fstype == "cgroup2" && folder.starts_with(os_path(&m.mountpoint)))?;
    let root = os_path(&root.mountpoint);
    let path = name(&root, folder);
    Some(limits(&[Folder { root, folder: folder.to_path_buf(), path, version: 2 }]))
}

/// A group's folder in one hierarchy.
struct Folder {
    /// Where the hierarchy is mounted.
    root: PathBuf,
    folder: PathBuf,
    /// The group's name.
    path: String,
    version: u8,
}

fn name(root: &Path, folder: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let below = folder.strip_prefix(root).unwrap_or(folder);
    format!("/{}", text::from_bytes(below.as_os_str().as_bytes()))
}

/// The folders of a process, from the text of `/proc/PID/cgroup`: lines of `number:controllers:path`.
fn folders(text: &str, mounts: &[Mount]) -> Vec<Folder> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let version = if controllers.is_empty() { 2 } else { 1 };
        let of_it = |m: &&Mount| match controllers.split(',').next() {
            None | Some("") => m.fstype == "cgroup2",
            Some(one) => m.fstype == "cgroup" && m.options.split(',').any(|o| o == one),
        };
        let Some(mount) = mounts.iter().find(of_it) else { continue };
        let root = os_path(&mount.mountpoint);
        // In a container, the mount may show only the part of the hierarchy below the container's own group.
        let below = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(path);
        let folder = root.join(os_path(below.trim_start_matches('/')));
        all.push(Folder { root, folder, path: path.to_owned(), version });
    }
    all
}

/// The lowest limits of a group and of those above it.
fn limits(folders: &[Folder]) -> Cgroup {
    let mut group = Cgroup::default();
    // The group of version 2, or the first that is not the root.
    let named = folders.iter().find(|f| f.version == 2 && f.path != "/").or(folders.iter().find(|f| f.path != "/"));
    group.path = named.or(folders.first()).map(|f| f.path.clone()).unwrap_or_default();
    for f in folders {
        for folder in f.folder.ancestors().take_while(|folder| folder.starts_with(&f.root)) {
            match f.version {
                2 => version_2(folder, &mut group),
                _ => version_1(folder, &mut group),
            }
        }
    }
    group.io_max.sort_by_key(|l| l.dev);
    group
}

fn lower(limit: &mut Option<i64>, to: Option<i64>) {
    if let Some(to) = to {
        *limit = Some(limit.map_or(to, |l| l.min(to)));
    }
}

/// A file of the folder; empty where there is none.
fn content(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_default()
}

fn cpu(group: &mut Cgroup, quota_us: Option<i64>, period_us: Option<i64>) {
    let (Some(quota), Some(period)) = (quota_us.filter(|q| *q > 0), period_us.filter(|p| *p > 0)) else { return };
    let lower = match (group.cpu_quota_us, group.cpu_period_us) {
        (Some(q), Some(p)) => i128::from(quota) * i128::from(p) < i128::from(q) * i128::from(period),
        _ => true,
    };
    if lower {
        (group.cpu_quota_us, group.cpu_period_us) = (Some(quota), Some(period));
    }
}

fn io<'a>(group: &'a mut Cgroup, dev: &str) -> Option<&'a mut IoLimit> {
    let (major, minor) = dev.split_once(':')?;
    let dev = dev_t(major.parse().ok()?, minor.parse().ok()?);
    let at = group.io_max.iter().position(|l| l.dev == dev).unwrap_or_else(|| {
        group.io_max.push(IoLimit { dev, ..IoLimit::default() });
        group.io_max.len() - 1
    });
    group.io_max.get_mut(at)
}

fn version_2(folder: &Path, group: &mut Cgroup) {
    // A limit that is not set is the word `max`.
    let number = |word: &str| word.trim().parse::<i64>().ok();
    lower(&mut group.memory_max_bytes, number(&content(folder, "memory.max")));
    lower(&mut group.memory_high_bytes, number(&content(folder, "memory.high")));
    let max = content(folder, "cpu.max");
    let mut max = max.split_whitespace();
    cpu(group, max.next().and_then(number), max.next().and_then(number));
    for line in content(folder, "io.max").lines() {
        let mut words = line.split_whitespace();
        let Some(limit) = words.next().and_then(|dev| io(group, dev)) else { continue };
        for (key, value) in words.filter_map(|w| w.split_once('=')) {
            match key {
                "rbps" => lower(&mut limit.read_bytes_per_s, number(value)),
                "wbps" => lower(&mut limit.write_bytes_per_s, number(value)),
                "riops" => lower(&mut limit.reads_per_s, number(value)),
                "wiops" => lower(&mut limit.writes_per_s, number(value)),
                _ => {}
            }
        }
    }
}

/// Picks a limit.
type Member = fn(&mut IoLimit) -> &mut Option<i64>;

fn version_1(folder: &Path, group: &mut Cgroup) {
    let number = |file: &str| content(folder, file).trim().parse::<i64>().ok();
    lower(&mut group.memory_max_bytes, number("memory.limit_in_bytes").filter(|n| *n < NO_LIMIT));
    cpu(group, number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"));
    let rates: [(&str, Member); 4] = [
        ("read_bps", |l| &mut l.read_bytes_per_s),
        ("write_bps", |l| &mut l.write_bytes_per_s),
        ("read_iops", |l| &mut l.reads_per_s),
        ("write_iops", |l| &mut l.writes_per_s),
    ];
    for (file, member) in rates {
        for line in content(folder, &format!("blkio.throttle.{file}_device")).lines() {
            if let Some((dev, value)) = line.split_once(' ')
                && let Some(limit) = io(group, dev)
            {
                lower(member(limit), value.trim().parse().ok());
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn mount(fstype: &str, at: &Path, options: &str) -> Mount {
        Mount {
            fstype: fstype.into(),
            mountpoint: at.to_str().unwrap().into(),
            root: "/".into(),
            options: options.into(),
            ..Mount::default()
        }
    }

    #[test]
    fn the_lowest_limit_of_the_group_and_those_above_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let put = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        put("a/memory.max", "1000000\n");
        put("a/b/memory.max", "max\n");
        put("a/b/memory.high", "700\n");
        put("a/cpu.max", "50000 100000\n");
        put("a/b/cpu.max", "80000 200000\n");
        put("a/io.max", "8:0 rbps=max wbps=2000 riops=max wiops=30\n");
        put("a/b/io.max", "8:0 rbps=500 wbps=9000 riops=max wiops=max\n259:1 rbps=1 wbps=max riops=max wiops=max\n");
        let mounts = [mount("cgroup2", dir.path(), "rw")];
        let group = limits(&folders("4:none:/x\n0::/a/b\n", &mounts));
        let expected = Cgroup {
            path: "/a/b".into(),
            memory_max_bytes: Some(1_000_000),
            memory_high_bytes: Some(700),
            cpu_quota_us: Some(80_000),
            cpu_period_us: Some(200_000),
            io_max: vec![
                IoLimit {
                    dev: 8 << 20,
                    read_bytes_per_s: Some(500),
                    write_bytes_per_s: Some(2000),
                    writes_per_s: Some(30),
                    ..IoLimit::default()
                },
                IoLimit { dev: 259 << 20 | 1, read_bytes_per_s: Some(1), ..IoLimit::default() },
            ],
        };
        assert_eq!(group, expected);
    }

    #[test]
    fn controllers_of_version_1_have_hierarchies_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["memory/m", "cpu", "blkio/b"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let put = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        put("memory/m/memory.limit_in_bytes", "4096\n");
        put("cpu/cpu.cfs_quota_us", "-1\n");
        put("cpu/cpu.cfs_period_us", "100000\n");
        put("blkio/b/blkio.throttle.write_bps_device", "7:0 1048576\n");
        let of = |name: &str| mount("cgroup", &dir.path().join(name), &format!("rw,relatime,{name}"));
        let mounts = [of("memory"), of("cpu"), of("blkio")];
        let group = limits(&folders("7:blkio:/b\n4:memory:/m\n1:cpu,cpuacct:/\n0::/\n", &mounts));
        assert_eq!((group.path.as_str(), group.memory_max_bytes, group.cpu_quota_us), ("/b", Some(4096), None));
        let limit = IoLimit { dev: 7 << 20, write_bytes_per_s: Some(1 << 20), ..IoLimit::default() };
        assert_eq!(group.io_max, [limit]);
    }
}
