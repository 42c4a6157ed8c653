//! Facts about the machine: mounts, block devices, memory, clocks. Reads only; decides nothing.

use std::{
    collections::BTreeMap,
    ffi::CString,
    fs, io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use ioreel_traces::{
    manifest::{Clock, Device, Host, Mount},
    text,
};
use rustix::{
    fs::{major, minor},
    time::{ClockId, clock_gettime},
};

/// The kernel's `dev_t` as the reel stores it.
pub fn dev_t(major: u32, minor: u32) -> i64 {
    i64::from(major) << 20 | i64::from(minor)
}

/// `dev_t` of a number as stat(2) gives it.
pub fn dev_of_stat(dev: u64) -> i64 {
    dev_t(major(dev), minor(dev))
}

/// `CLOCK_MONOTONIC`, the clock of the probes, ns.
pub fn monotonic_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Both clocks at one moment.
pub fn clock() -> Clock {
    let monotonic_ns = monotonic_ns();
    let t = clock_gettime(ClockId::Realtime);
    Clock { monotonic_ns, realtime_ns: t.tv_sec * 1_000_000_000 + t.tv_nsec }
}

fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

fn read_number(path: impl AsRef<Path>) -> Option<i64> {
    read_trimmed(path)?.parse().ok()
}

/// The machine, as the manifest tells it.
pub fn host() -> Host {
    let uname = rustix::system::uname();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let mem_kib =
        meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<i64>().ok());
    let mut vm_dirty = BTreeMap::new();
    for entry in fs::read_dir("/proc/sys/vm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("dirty")
            && let Some(value) = read_number(entry.path())
        {
            vm_dirty.insert(name, value);
        }
    }
    Host {
        name: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        arch: uname.machine().to_string_lossy().into_owned(),
        cpus: possible_cpus() as u32,
        mem_bytes: mem_kib.unwrap_or(0) * 1024,
        vm_dirty,
    }
}

/// CPUs that may ever be online: as many as there must be rings.
pub fn possible_cpus() -> usize {
    libbpf_rs::num_possible_cpus().unwrap_or(1)
}

/// Undoes the octal escapes of /proc/*/mountinfo.
fn unescape(field: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut out = Vec::with_capacity(field.len());
    let mut bytes = field.as_bytes();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        if *first == b'\\'
            && let Some(octal) = rest.get(..3).and_then(|o| std::str::from_utf8(o).ok())
            && let Ok(b) = u8::from_str_radix(octal, 8)
        {
            out.push(b);
            bytes = &rest[3..];
        } else {
            out.push(*first);
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

fn display(path: &Path) -> String {
    text::from_bytes(path.as_os_str().as_encoded_bytes()).to_string()
}

/// Every mount in this process's name space, in mount order.
pub fn mounts() -> Vec<Mount> {
    let info = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    info.lines().filter_map(mount).collect()
}

/// One line of mountinfo (Documentation/filesystems/proc.rst, 3.5).
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (major, minor) = left.get(2)?.split_once(':')?;
    let mountpoint = unescape(left.get(4)?);
    let fstype = right.next()?.to_owned();
    let source = display(&unescape(right.next()?));
    let stat = rustix::fs::statvfs(&mountpoint).ok();
    Some(Mount {
        sb_dev: dev_t(major.parse().ok()?, minor.parse().ok()?),
        fstype,
        source,
        root: display(&unescape(left.get(3)?)),
        options: format!("{},{}", left.get(5)?, right.next().unwrap_or_default()),
        total_bytes: stat.as_ref().map_or(0, |s| (s.f_blocks * s.f_frsize) as i64),
        free_bytes: stat.as_ref().map_or(0, |s| (s.f_bfree * s.f_frsize) as i64),
        mountpoint: display(&mountpoint),
    })
}

/// The mount that holds an absolute path, by its longest matching mount point.
pub fn mount_of_path<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    let holds = |m: &&Mount| {
        let point = m.mountpoint.trim_end_matches('/');
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // Of mounts stacked on one point the last is the visible one.
    mounts.iter().filter(holds).max_by_key(|m| m.mountpoint.len())
}

/// Disks behind a mounted file system: its own device's disk, all members of a btrfs, none for tmpfs and the like.
pub fn disks_of(mount: &Mount) -> Vec<i64> {
    let mut disks = Vec::new();
    if mount.sb_dev >> 20 != 0 {
        disks.extend(disk_of(mount.sb_dev));
    } else if mount.fstype == "btrfs" {
        disks.extend(btrfs_members(&mount.source));
    }
    disks.sort_unstable();
    disks.dedup();
    disks
}

fn btrfs_members(source: &str) -> Vec<i64> {
    let Some(own) = block_device(source).ok().and_then(disk_of) else { return Vec::new() };
    let mut all = vec![own];
    let name = Path::new(source).canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    for fs in fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten() {
        let members: Vec<_> = fs::read_dir(fs.path().join("devices")).into_iter().flatten().flatten().collect();
        if members.iter().any(|m| Some(m.file_name().to_string_lossy().into_owned()) == name) {
            all.extend(members.iter().filter_map(|m| disk_of(sysfs_dev(&m.path())?)));
        }
    }
    all
}

fn sysfs_dev(dir: &Path) -> Option<i64> {
    let dev = read_trimmed(dir.join("dev"))?;
    let (major, minor) = dev.split_once(':')?;
    Some(dev_t(major.parse().ok()?, minor.parse().ok()?))
}

fn sysfs_dir(dev: i64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", dev >> 20, dev & 0xF_FFFF))
}

/// The whole disk a device number stands for (itself, or the disk of a partition).
pub fn disk_of(dev: i64) -> Option<i64> {
    let dir = sysfs_dir(dev).canonicalize().ok()?;
    if dir.join("partition").exists() { sysfs_dev(dir.parent()?) } else { sysfs_dev(&dir) }
}

/// The device number of a block device given as `/dev/…`, a bare name below it, or `MAJOR:MINOR`.
pub fn block_device(name: &str) -> io::Result<i64> {
    use std::os::unix::fs::MetadataExt;
    if let Some((major, minor)) = name.split_once(':')
        && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
    {
        let dev = dev_t(major, minor);
        return if sysfs_dir(dev).exists() { Ok(dev) } else { Err(io::Error::from(io::ErrorKind::NotFound)) };
    }
    let path = if name.contains('/') { PathBuf::from(name) } else { Path::new("/dev").join(name) };
    let meta = fs::metadata(&path)?;
    if !meta.file_type().is_block_device() {
        return Err(io::Error::other("not a block device"));
    }
    Ok(dev_of_stat(meta.rdev()))
}

/// What sysfs tells of a disk.
pub fn device(dev: i64) -> Device {
    let dir = sysfs_dir(dev);
    let queue = dir.join("queue");
    let scheduler = read_trimmed(queue.join("scheduler")).unwrap_or_default();
    let chosen = scheduler.split_once('[').and_then(|(_, r)| Some(r.split_once(']')?.0.to_owned()));
    Device {
        dev,
        name: dir
            .canonicalize()
            .ok()
            .and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_default(),
        size_bytes: read_number(dir.join("size")).unwrap_or(0) * 512,
        rotational: read_number(queue.join("rotational")) == Some(1),
        logical_block_bytes: read_number(queue.join("logical_block_size")).unwrap_or(0),
        physical_block_bytes: read_number(queue.join("physical_block_size")).unwrap_or(0),
        max_sectors_kb: read_number(queue.join("max_sectors_kb")).unwrap_or(0),
        nr_requests: read_number(queue.join("nr_requests")).unwrap_or(0),
        scheduler: chosen.unwrap_or(scheduler),
        backing_file: read_trimmed(dir.join("loop/backing_file")),
    }
}

/// Requests a disk has in flight.
pub fn in_flight(dev: i64) -> i64 {
    let text = read_trimmed(sysfs_dir(dev).join("inflight")).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse::<i64>().ok()).sum()
}

/// Effective capabilities of this process, as in /proc/self/status.
pub fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}

/// include/uapi/linux/capability.h
pub const CAP_PERFMON: u32 = 38;
/// include/uapi/linux/capability.h
pub const CAP_BPF: u32 = 39;

/// Whether this process holds what loading the probes takes.
pub fn may_use_bpf() -> bool {
    let caps = capabilities();
    [CAP_BPF, CAP_PERFMON].iter().all(|c| caps >> c & 1 != 0)
}

/// The address of a kernel function; `None` when the kernel hides addresses.
pub fn kernel_symbol(name: &str) -> Option<u64> {
    use std::io::BufRead;
    let file = io::BufReader::new(fs::File::open("/proc/kallsyms").ok()?);
    for line in file.lines() {
        let line = line.ok()?;
        let mut words = line.split_whitespace();
        let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
        if symbol == name {
            return u64::from_str_radix(address, 16).ok().filter(|a| *a != 0);
        }
    }
    None
}

/// A path as the C interface wants it; `None` when it holds a NUL.
pub(crate) fn c_path(path: &str) -> Option<CString> {
    CString::new(text::to_bytes(path)).ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_understood() {
        let m = mount("36 35 98:0 /sub /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue").unwrap();
        assert_eq!((m.sb_dev, &*m.fstype, &*m.mountpoint, &*m.root), (98 << 20, "ext3", "/mnt/a b", "/sub"));
        assert_eq!(m.options, "rw,noatime,rw,errors=continue");
    }

    #[test]
    fn the_longest_mount_point_wins_and_names_are_whole() {
        let at = |p: &str| Mount { mountpoint: p.into(), ..Mount::default() };
        let mounts = [at("/"), at("/mnt"), at("/mnt/a")];
        assert_eq!(mount_of_path(&mounts, "/mnt/a/f").unwrap().mountpoint, "/mnt/a");
        assert_eq!(mount_of_path(&mounts, "/mnt/ab").unwrap().mountpoint, "/mnt");
        assert_eq!(mount_of_path(&mounts, "/x").unwrap().mountpoint, "/");
    }
}
