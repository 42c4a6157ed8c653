//! Facts about the machine that a recording needs.
//!
//! In: `/proc`, `/sys` and block devices. Out: mounts, disks, on-disk layouts, kernel symbols, clocks, capabilities,
//! pending signals, and the errors of the crate. It only reads and uses no other stage.

pub(crate) mod cgroup;
pub mod containers;
pub(crate) mod error;
pub(crate) mod functions;
pub(crate) mod layout;
pub(crate) mod listing;
pub(crate) mod mount_sizes;
pub(crate) mod signals;
pub(crate) mod symbols;

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    fs, io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use crate::CaptureError;
pub use ioreel_traces::host::{dev_t, host, mount_of_path};
use ioreel_traces::{
    manifest::{Clock, Device, Mount},
    text,
};
use rustix::{
    fs::{major, minor},
    time::{ClockId, clock_gettime},
};

/// Converts the `st_dev` of stat(2) to the kernel's internal `dev_t` (major << 20 | minor).
pub fn dev_of_stat(dev: u64) -> i64 {
    dev_t(major(dev), minor(dev))
}

/// `CLOCK_MONOTONIC` in ns: the clock that the probes use.
pub fn monotonic_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Reads both clocks, one right after the other.
pub fn clock() -> Clock {
    let monotonic_ns = monotonic_ns();
    let t = clock_gettime(ClockId::Realtime);
    Clock { monotonic_ns, realtime_ns: t.tv_sec * 1_000_000_000 + t.tv_nsec }
}

/// The current time in UTC for a file name: `20261121T161055Z`.
pub fn utc_stamp() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|s| s.trim().to_owned())
}

fn read_number(path: impl AsRef<Path>) -> Option<i64> {
    read_trimmed(path)?.parse().ok()
}

/// Number of possible CPUs (also those offline now): one ring is needed for each.
pub fn possible_cpus() -> usize {
    libbpf_rs::num_possible_cpus().unwrap_or(1)
}

/// All mounts in this process's mount namespace, in mount order. Sizes stay empty, so that no file system is queried.
pub fn mounts() -> Vec<Mount> {
    ioreel_traces::host::mounts()
}

/// Places where file systems are mounted that a look at a tree does not enter: virtual ones, and those that other programs
/// or machines serve, which may not answer.
pub(crate) fn not_walked(mounts: &[Mount]) -> HashSet<PathBuf> {
    // The last mount at a place covers the others.
    let topmost: HashMap<&str, &Mount> = mounts.iter().map(|m| (m.mountpoint.as_str(), m)).collect();
    let is_walked = |m: &Mount| matches!(&*m.fstype, "tmpfs" | "overlay") || !disks_of(m).is_empty();
    let closed = topmost.into_iter().filter(|(_, m)| !is_walked(m));
    closed.map(|(place, _)| ioreel_traces::host::os_path(place)).collect()
}

/// Whole disks behind a mounted file system: the disk of its own device, of its journal, log or real-time device, all
/// members of a btrfs, and the disks below mapped devices among these. Empty for tmpfs and other file systems without a
/// device.
pub fn disks_of(mount: &Mount) -> Vec<i64> {
    let mut disks = Vec::new();
    if mount.sb_dev >> 20 != 0 {
        disks.extend(disk_of(mount.sb_dev));
        disks.extend(companions(mount).into_iter().filter_map(disk_of));
    } else if mount.fstype == "btrfs" {
        disks.extend(btrfs_members(&mount.source));
    }
    for top in disks.clone() {
        below(top, &mut disks);
    }
    disks.sort_unstable();
    disks.dedup();
    disks
}

/// Other devices of a file system: an external journal or log, the real-time device of XFS.
fn companions(mount: &Mount) -> Vec<i64> {
    let named = mount.options.split(',').filter_map(|o| o.strip_prefix("logdev=").or(o.strip_prefix("rtdev=")));
    let mut all: Vec<i64> = named.filter_map(|name| block_device(name).ok()).collect();
    if matches!(mount.fstype.as_str(), "ext3" | "ext4") {
        all.extend(layout::journal_device(mount.sb_dev));
    }
    all
}

fn btrfs_members(source: &str) -> Vec<i64> {
    let Ok(own) = block_device(source) else { return Vec::new() };
    let members = btrfs_devices().find(|devices| devices.contains(&own)).unwrap_or_else(|| vec![own]);
    members.into_iter().filter_map(disk_of).collect()
}

/// The member devices of every mounted btrfs, one list per file system.
pub(crate) fn btrfs_devices() -> impl Iterator<Item = Vec<i64>> {
    fs::read_dir("/sys/fs/btrfs").into_iter().flatten().flatten().filter_map(|of| {
        let devices = fs::read_dir(of.path().join("devices")).ok()?;
        Some(devices.flatten().filter_map(|device| sysfs_dev(&device.path())).collect())
    })
}

fn sysfs_dev(dir: &Path) -> Option<i64> {
    let dev = read_trimmed(dir.join("dev"))?;
    let (major, minor) = dev.split_once(':')?;
    Some(dev_t(major.parse().ok()?, minor.parse().ok()?))
}

fn sysfs_dir(dev: i64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", dev >> 20, dev & 0xF_FFFF))
}

/// The whole disk of a device number: the device itself, or the disk that contains the partition.
pub fn disk_of(dev: i64) -> Option<i64> {
    let dir = sysfs_dir(dev).canonicalize().ok()?;
    if dir.join("partition").exists() { sysfs_dev(dir.parent()?) } else { sysfs_dev(&dir) }
}

/// Device number of a block device, named as `/dev/…`, by a name below `/dev`, or as `MAJOR:MINOR`.
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

/// What sysfs knows about a disk.
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
        model: read_trimmed(dir.join("device/model")).filter(|m| !m.is_empty()),
        write_cache: read_trimmed(queue.join("write_cache")),
        wbt_lat_usec: read_number(queue.join("wbt_lat_usec")),
        read_ahead_kb: read_number(queue.join("read_ahead_kb")),
        max_hw_sectors_kb: read_number(queue.join("max_hw_sectors_kb")),
        min_io_bytes: read_number(queue.join("minimum_io_size")),
        optimal_io_bytes: read_number(queue.join("optimal_io_size")),
        discard_max_bytes: read_number(queue.join("discard_max_bytes")),
    }
}

/// What the superblock of a mounted file system says about it; nothing where it cannot be read.
pub(crate) fn fill_facts(mount: &mut Mount) {
    // A btrfs has a device number of its own.
    let dev = if mount.sb_dev >> 20 != 0 { Some(mount.sb_dev) } else { block_device(&mount.source).ok() };
    if !matches!(mount.fstype.as_str(), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs") {
        return;
    }
    let Some(facts) = dev.and_then(|dev| layout::facts(dev, &mount.fstype)) else { return };
    mount.block_bytes = facts.block_bytes;
    mount.journal_bytes = facts.journal_bytes;
    mount.stripe_unit_bytes = facts.stripe_unit_bytes;
    mount.stripe_width_bytes = facts.stripe_width_bytes;
    mount.features = Some(facts.features);
}

/// Path of a block device's node.
pub(crate) fn device_node(dev: i64) -> Option<PathBuf> {
    let name = sysfs_dir(dev).canonicalize().ok()?.file_name()?.to_owned();
    // sysfs replaces the slash in names such as cciss/c0d0 by an exclamation mark.
    Some(Path::new("/dev").join(name.to_string_lossy().replace('!', "/")))
}

/// Disks and partitions in use as swap.
pub(crate) fn swap_devices() -> Vec<i64> {
    swaps().lines().skip(1).filter_map(|line| block_device(line.split_whitespace().next()?).ok()).collect()
}

/// Whether a swap file is in use.
pub(crate) fn swap_files() -> bool {
    swaps().lines().skip(1).any(|line| line.split_whitespace().nth(1) == Some("file"))
}

fn swaps() -> String {
    String::from_utf8_lossy(&fs::read("/proc/swaps").unwrap_or_default()).into_owned()
}

/// Disks below a device-mapper or md device, at every level.
fn below(dev: i64, found: &mut Vec<i64>) {
    for slave in fs::read_dir(sysfs_dir(dev).join("slaves")).into_iter().flatten().flatten() {
        if let Some(disk) = sysfs_dev(&slave.path()).and_then(disk_of)
            && !found.contains(&disk)
        {
            found.push(disk);
            below(disk, found);
        }
    }
}

/// Number of requests a disk has in flight.
pub fn in_flight(dev: i64) -> i64 {
    let text = read_trimmed(sysfs_dir(dev).join("inflight")).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse::<i64>().ok()).sum()
}

/// The id of a cgroup v2, which is the inode number of its folder: see [`cgroup_folder`].
pub fn cgroup_id(name: &str) -> Result<u64, CaptureError> {
    use std::os::unix::fs::MetadataExt;
    let no = |e: io::Error| CaptureError::NoCgroup { name: name.into(), why: e.to_string() };
    Ok(fs::metadata(cgroup_folder(name)?).map_err(no)?.ino())
}

/// The folder of a cgroup v2, named by that folder (absolute, or relative to the mount point of the hierarchy) or by
/// its id.
pub fn cgroup_folder(name: &str) -> Result<PathBuf, CaptureError> {
    use std::os::unix::fs::MetadataExt;
    let no = |why: &str| CaptureError::NoCgroup { name: name.into(), why: why.into() };
    let root = ioreel_traces::host::mounts().into_iter().find(|m| m.fstype == "cgroup2");
    let root = root.ok_or_else(|| no("no cgroup2 hierarchy is mounted"))?.mountpoint;
    if let Ok(id) = name.parse::<u64>() {
        let mut waiting = vec![PathBuf::from(&root)];
        while let Some(dir) = waiting.pop() {
            let Ok(meta) = fs::symlink_metadata(&dir) else { continue };
            if meta.ino() == id {
                return Ok(dir);
            }
            let below = fs::read_dir(&dir).into_iter().flatten().flatten();
            waiting.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        return Err(no("no control group has this id"));
    }
    // `/proc/PID/cgroup` and systemd name it below the mount point; any other path names a folder.
    let below = Path::new(&root).join(name.trim_start_matches('/'));
    let given = PathBuf::from(name);
    let path = if (name.starts_with('/') || !below.exists()) && given.exists() { given } else { below };
    let meta = fs::metadata(&path).map_err(|e| no(&e.to_string()))?;
    let on_cgroup2 = rustix::fs::statfs(&path).is_ok_and(|s| s.f_type == libc::CGROUP2_SUPER_MAGIC);
    if !meta.is_dir() || !on_cgroup2 {
        return Err(no("not a directory of the cgroup2 hierarchy"));
    }
    Ok(path)
}

/// Whether `pid` is a kernel thread.
fn is_kernel_thread(pid: u32) -> bool {
    // Fields are counted from the last parenthesis: the name in parentheses may contain anything.
    const FLAGS: usize = 6;
    const PF_KTHREAD: u32 = 0x0020_0000;
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(FLAGS)?.parse::<u32>().ok());
    flags.is_some_and(|f| f & PF_KTHREAD != 0)
}

/// Inode number of this process's mount namespace.
pub fn mount_namespace() -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/mnt").map_or(0, |m| m.ino() as u32)
}

/// Inode number of this process's pid namespace; 0 for the initial one, whose numbers the kernel uses.
pub fn own_pid_namespace() -> u32 {
    use std::os::unix::fs::MetadataExt;
    /// include/linux/proc_ns.h, `PROC_PID_INIT_INO`.
    const INITIAL: u64 = 0xEFFF_FFFC;
    let number = fs::metadata("/proc/self/ns/pid").map_or(INITIAL, |m| m.ino());
    if number == INITIAL { 0 } else { number as u32 }
}

/// Effective capabilities of this process, as a bit mask (`CapEff` in /proc/self/status).
pub fn capabilities() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}

/// include/uapi/linux/capability.h
pub const CAP_DAC_READ_SEARCH: u32 = 2;
/// include/uapi/linux/capability.h
pub const CAP_KILL: u32 = 5;
/// include/uapi/linux/capability.h
pub const CAP_PERFMON: u32 = 38;
/// include/uapi/linux/capability.h
pub const CAP_BPF: u32 = 39;

/// Whether lockdown is at "confidentiality", where BPF programs may not read kernel memory. False when it cannot be
/// read.
pub fn is_confidential() -> bool {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    text.contains("[confidentiality]")
}

/// Whether this process has the capabilities that loading the probes needs.
pub fn may_use_bpf() -> bool {
    let caps = capabilities();
    [CAP_BPF, CAP_PERFMON].iter().all(|c| caps >> c & 1 != 0)
}

/// A path for a C interface; `None` when it contains a NUL.
pub(crate) fn c_path(path: &str) -> Option<CString> {
    CString::new(text::to_bytes(path)).ok()
}

/// Whether this process may look into that one, as ptrace(2) has it.
///
/// # Errors
/// It may not: the other belongs to another user, or has more rights.
pub fn expect_own_process(pid: u32) -> Result<(), CaptureError> {
    match fs::read_link(format!("/proc/{pid}/cwd")) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(CaptureError::NoProcess { pid }),
        Err(_) => Err(CaptureError::NotCallers { option: format!("--pid {pid}") }),
    }
}

/// Checks that `pid` is a running process.
///
/// # Errors
/// No such process, or a zombie; a thread id that is not the process id; a kernel thread.
pub fn expect_process(pid: u32) -> Result<(), CaptureError> {
    let gone = || CaptureError::NoProcess { pid };
    // Read as bytes: a process name may be invalid UTF-8.
    let status = fs::read(format!("/proc/{pid}/status")).map_err(|_| gone())?;
    let status = String::from_utf8_lossy(&status);
    let of = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
    match of("Tgid:").and_then(|t| t.parse().ok()) {
        Some(tgid) if tgid != pid => return Err(CaptureError::ThreadOf { pid, tgid }),
        _ => {}
    }
    if is_kernel_thread(pid) {
        return Err(CaptureError::KernelThread { pid });
    }
    // A leader that exited is in state Z while other threads still run, so the number of threads counts too.
    let ended = of("State:").is_some_and(|s| s.starts_with(['Z', 'X'])) && of("Threads:") == Some("1");
    if ended { Err(gone()) } else { Ok(()) }
}
