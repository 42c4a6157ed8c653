//! Block devices of a test's own, gone when their owner is.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use super::{succeed, temp_dir, text};

/// A block device.
pub(crate) enum Device {
    /// Over a file without a name.
    Loop(PathBuf),
    /// Compressed memory: takes bios, not requests.
    Zram(u32, Node),
    /// Part of a device, which goes after it.
    Partition(Node, Box<Device>),
}

/// A device's name, made here where nobody else does.
pub(crate) struct Node {
    path: PathBuf,
    made: bool,
}

impl Node {
    /// `name` as below `/sys/class/block`.
    fn new(name: &str) -> Self {
        let path = Path::new("/dev").join(name);
        let made = !path.exists();
        if made {
            let numbers = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
            let (major, minor) = numbers.trim().split_once(':').unwrap();
            succeed(Command::new("mknod").args([text(&path), "b", major, minor]));
        }
        Self { path, made }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Sector at which the partition begins.
pub(crate) const PARTITION_SECTOR: i64 = 409_600;

impl Device {
    /// A loop device of this size.
    pub(crate) fn looped(bytes: u64) -> Self {
        Self::looped_in(temp_dir().path(), bytes)
    }

    /// The same over a file in this folder.
    pub(crate) fn looped_in(dir: &Path, bytes: u64) -> Self {
        let image = dir.join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let found = succeed(Command::new("losetup").args(["--find", "--show", "--direct-io=on", text(&image)]));
        Self::Loop(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim()))
    }

    pub(crate) fn zram(bytes: u64) -> Self {
        // Where it is no module, nothing has to be loaded.
        let _ = Command::new("modprobe").arg("zram").status();
        let number: u32 = fs::read_to_string("/sys/class/zram-control/hot_add").unwrap().trim().parse().unwrap();
        fs::write(format!("/sys/block/zram{number}/disksize"), bytes.to_string()).unwrap();
        Self::Zram(number, Node::new(&format!("zram{number}")))
    }

    /// The second partition of a loop device.
    pub(crate) fn partition(bytes: u64) -> Self {
        let whole = Self::looped(PARTITION_SECTOR as u64 * 512 + bytes);
        let (from, sectors) = (PARTITION_SECTOR.to_string(), (bytes / 512).to_string());
        succeed(Command::new("addpart").args([text(whole.path()), "2", &from, &sectors]));
        let name = format!("{}p2", whole.path().file_name().unwrap().to_str().unwrap());
        Self::Partition(Node::new(&name), whole.into())
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Loop(path) => path,
            Self::Zram(_, node) | Self::Partition(node, _) => &node.path,
        }
    }

    /// The device itself, or the one that it is part of.
    pub(crate) fn whole(&self) -> &Path {
        match self {
            Self::Partition(_, whole) => whole.path(),
            _ => self.path(),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Best effort: nothing more can be done here.
        match self {
            Self::Loop(path) => drop(Command::new("losetup").arg("--detach").arg(path).status()),
            Self::Zram(number, _) => {
                let _ = fs::write(format!("/sys/block/zram{number}/reset"), "1");
                let _ = fs::write("/sys/class/zram-control/hot_remove", number.to_string());
            }
            Self::Partition(_, whole) => drop(Command::new("delpart").args([text(whole.path()), "2"]).status()),
        }
    }
}
