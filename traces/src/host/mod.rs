//! Facts of this machine for a reel's manifest, and the on-disk layout of a file.
//!
//! In: /proc, /sys and the FIEMAP ioctl. Out: [`Host`], mounts and extents. Reads only. May use: `format`.

pub mod attributes;
pub mod fiemap;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use crate::format::{
    manifest::{Host, Mount},
    text,
};

/// The kernel's `dev_t`, as stored in a reel.
pub fn dev_t(major: u32, minor: u32) -> i64 {
    i64::from(major) << 20 | i64::from(minor)
}

fn read_trimmed(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Facts about this machine. Unreadable ones are empty or 0.
pub fn host() -> Host {
    let meminfo = read_trimmed("/proc/meminfo");
    let mem_kib =
        meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<i64>().ok());
    let vm_dirty: BTreeMap<String, i64> = fs::read_dir("/proc/sys/vm")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok().filter(|n| n.starts_with("dirty"))?;
            Some((name, read_trimmed(entry.path()).parse().ok()?))
        })
        .collect();
    Host {
        name: read_trimmed("/proc/sys/kernel/hostname"),
        kernel: read_trimmed("/proc/sys/kernel/osrelease"),
        arch: std::env::consts::ARCH.into(),
        cpus: std::thread::available_parallelism().map_or(0, |n| n.get() as u32),
        mem_bytes: mem_kib.unwrap_or(0) * 1024,
        vm_dirty,
    }
}

/// All mounts of this mount namespace, in mount order. Sizes are 0.
pub fn mounts() -> Vec<Mount> {
    mounts_of(&fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Names in mountinfo may contain any bytes.
fn mounts_of(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|b| *b == b'\n').filter_map(|line| mount(&text::from_bytes(line))).collect()
}

/// Parses a line of mountinfo (Documentation/filesystems/proc.rst, 3.5).
fn mount(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let mut right = right.split(' ');
    let (major, minor) = left.get(2)?.split_once(':')?;
    Some(Mount {
        sb_dev: dev_t(major.parse().ok()?, minor.parse().ok()?),
        root: unescape(left.get(3)?),
        mountpoint: unescape(left.get(4)?),
        fstype: right.next()?.to_owned(),
        source: unescape(right.next()?),
        options: format!("{},{}", left.get(5)?, right.next().unwrap_or_default()),
        ..Mount::default()
    })
}

/// Decodes the octal escapes of mountinfo. The result is text as stored in reels.
fn unescape(field: &str) -> String {
    let mut out = Vec::with_capacity(field.len());
    let field = text::to_bytes(field);
    let mut bytes = field.as_slice();
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
    text::from_bytes(&out).to_string()
}

/// The path for system calls of a path in a reel.
pub fn os_path(path: &str) -> PathBuf {
    OsString::from_vec(text::to_bytes(path)).into()
}

/// The path at which `mounts` show `fs_path`, a path relative to the root of the file system on this device. `None` if
/// no mount shows it.
pub fn mount_of_device(mounts: &[Mount], sb_dev: i64, fs_path: &str) -> Option<String> {
    let inside = |root: &str| {
        let root = root.trim_end_matches('/');
        fs_path.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let candidates = mounts.iter().filter(|m| m.sb_dev == sb_dev);
    let shown = candidates.filter_map(|m| Some((m, inside(&m.root)?)));
    // The mount that shows the largest part of the file system; the first of several. This is the one that people
    // expect.
    let (mount, rest) = shown.min_by_key(|(m, _)| m.root.len())?;
    let point = mount.mountpoint.trim_end_matches('/');
    Some(if rest.is_empty() && point.is_empty() { "/".into() } else { format!("{point}{rest}") })
}

/// The mount of an absolute path: the one with the longest matching mount point.
pub fn mount_of_path<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    let holds = |m: &&Mount| {
        let point = m.mountpoint.trim_end_matches('/');
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    // Of several mounts at the same point, the last one is visible.
    mounts.iter().filter(holds).max_by_key(|m| m.mountpoint.len())
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
    fn names_in_mountinfo_hold_any_bytes() {
        let line = b"36 35 98:0 / /mnt/\xff\\040 rw - tmpfs a\xfe rw\n37 35 98:0 / /b rw - tmpfs b rw\n";
        let found = mounts_of(line);
        let bytes = |i: usize| (text::to_bytes(&found[i].mountpoint), text::to_bytes(&found[i].source));
        assert_eq!(bytes(0), (b"/mnt/\xff ".to_vec(), b"a\xfe".to_vec()));
        assert_eq!(bytes(1), (b"/b".to_vec(), b"b".to_vec()));
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
