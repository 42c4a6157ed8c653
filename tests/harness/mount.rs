//! Freshly made file systems on loop devices, gone when their owner is.

use std::{
    fs::{self, File},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{LazyLock, Mutex, PoisonError},
};

use tempfile::TempDir;

use super::{device::Device, succeed, temp_dir, text};

/// The smallest size that mkfs.xfs takes, and enough for the tests.
pub(crate) const DEFAULT_SIZE_BYTES: u64 = 512 << 20;

/// File systems to test on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fs {
    Ext4,
    Xfs,
    Btrfs,
    /// Where the kernel knows it.
    F2fs,
    Tmpfs,
    /// Upper and lower layer on one ext4.
    Overlay,
    /// bindfs over ext4.
    Fuse,
}

impl Fs {
    pub(crate) const ALL: [Self; 4] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::Tmpfs];
    /// Those that recording must be right on.
    pub(crate) const RECORDED: [Self; 6] = [Self::Ext4, Self::Xfs, Self::Btrfs, Self::Tmpfs, Self::Overlay, Self::Fuse];
    /// What few kernels are built with; tests on stock kernels load its module first.
    const SELDOM: [Self; 1] = [Self::F2fs];

    /// Those of `usual`, and the seldom ones that this kernel knows.
    pub(crate) fn here(usual: &[Self]) -> Vec<Self> {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let seldom = Self::SELDOM.into_iter().filter(|fs| known.split_whitespace().any(|w| w == fs.name()));
        usual.iter().copied().chain(seldom).collect()
    }

    /// Whether the workload's plain calls all succeed there.
    pub(crate) fn has_everything(self) -> bool {
        Self::ALL.contains(&self)
    }

    /// Whether it lies on others' files.
    fn is_above_another(self) -> bool {
        matches!(self, Self::Overlay | Self::Fuse)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
            Self::Tmpfs => "tmpfs",
            Self::Overlay => "overlay",
            Self::Fuse => "fuse",
        }
    }

    /// The command that makes it, up to the device. Nothing may be left to do in the background.
    fn mkfs(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Ext4 => Some(&["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs => Some(&["mkfs.xfs", "-q", "-f"]),
            Self::Btrfs => Some(&["mkfs.btrfs", "-q", "-f"]),
            Self::F2fs => Some(&["mkfs.f2fs", "-q", "-f"]),
            Self::Tmpfs | Self::Overlay | Self::Fuse => None,
        }
    }
}

/// A mounted file system.
pub(crate) struct Mounted {
    dir: TempDir,
    device: Option<PathBuf>,
    /// The server of a FUSE file system; ends with the unmount.
    server: Option<Child>,
    /// What it lies on; dropped, and so unmounted, after it.
    below: Option<Box<Mounted>>,
    /// Given back after the unmount.
    _scratch: Option<Scratch>,
}

/// A real disk that tests may overwrite, one of those that `IOREEL_TEST_DISKS` names; used before loop devices.
struct Scratch(PathBuf);

/// Disks that nobody uses now.
static SCRATCH: LazyLock<Mutex<Vec<PathBuf>>> = LazyLock::new(|| {
    let named = std::env::var("IOREEL_TEST_DISKS").unwrap_or_default();
    Mutex::new(named.split_whitespace().map(PathBuf::from).collect())
});

impl Scratch {
    fn take() -> Option<Self> {
        let disk = SCRATCH.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(Self(disk))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        SCRATCH.lock().unwrap_or_else(PoisonError::into_inner).push(self.0.clone());
    }
}

impl Mounted {
    /// Makes one and mounts it. The loop device detaches itself with the unmount, and its image has no name
    /// from the start: nothing stays behind even when the test is killed, since tests mount in a name space of
    /// their own.
    pub(crate) fn new(fs: Fs, size_bytes: u64) -> Self {
        // What is written stays where it was put: its collector moves and discards what tests look for on the disk.
        Self::with(fs, size_bytes, &[], if fs == Fs::F2fs { "background_gc=off" } else { "defaults" })
    }

    /// The same with further options to mkfs and mount; for those with a device.
    pub(crate) fn with(fs: Fs, size_bytes: u64, made: &[&str], mounted: &str) -> Self {
        if fs.is_above_another() {
            return Self::above(Self::new(Fs::Ext4, size_bytes), fs);
        }
        let dir = temp_dir();
        let Some(mkfs) = fs.mkfs() else {
            let size = format!("size={size_bytes}");
            succeed(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "ioreel-test", text(dir.path())]));
            return Self { dir, device: None, server: None, below: None, _scratch: None };
        };
        if let Some(scratch) = Scratch::take() {
            let disk = scratch.0.clone();
            succeed(Command::new(mkfs[0]).args(&mkfs[1..]).args(made).arg(&disk));
            succeed(Command::new("mount").args(["-o", mounted]).arg(&disk).arg(dir.path()));
            let _ = fs::remove_dir(dir.path().join("lost+found"));
            return Self { dir, device: Some(disk), server: None, below: None, _scratch: Some(scratch) };
        }
        let image = dir.path().join("image");
        File::create(&image).unwrap().set_len(size_bytes).unwrap();
        let attach = ["--find", "--show", "--direct-io=on", text(&image)];
        let found = succeed(Command::new("losetup").args(attach));
        let device = PathBuf::from(String::from_utf8(found.stdout).unwrap().trim());
        fs::remove_file(&image).unwrap();
        // Detaches now or, once mounted, with the unmount; also when making the file system panics.
        let detach = Detach(&device);
        succeed(Command::new(mkfs[0]).args(&mkfs[1..]).args(made).arg(&device));
        succeed(Command::new("mount").args(["-o", mounted]).arg(&device).arg(dir.path()));
        drop(detach);
        // Tests compare trees, and this one would be in the way.
        let _ = fs::remove_dir(dir.path().join("lost+found"));
        Self { dir, device: Some(device), server: None, below: None, _scratch: None }
    }

    /// A file system that `mkfs` makes on these devices; it is mounted from the first.
    pub(crate) fn over(devices: &[&Device], mkfs: &[&str], mounted: &str) -> Self {
        Self::over_paths(&devices.iter().map(|d| d.path()).collect::<Vec<_>>(), mkfs, mounted)
    }

    /// The same on devices that somebody else made.
    pub(crate) fn over_paths(devices: &[&Path], mkfs: &[&str], mounted: &str) -> Self {
        let dir = temp_dir();
        succeed(Command::new(mkfs[0]).args(&mkfs[1..]).args(devices));
        if devices.len() > 1 {
            succeed(Command::new("btrfs").args(["device", "scan"]).args(devices));
        }
        let device = devices[0].to_owned();
        succeed(Command::new("mount").args(["-o", mounted]).arg(&device).arg(dir.path()));
        Self { dir, device: Some(device), server: None, below: None, _scratch: None }
    }

    /// A file system that keeps its files in another.
    fn above(below: Self, fs: Fs) -> Self {
        let dir = temp_dir();
        let at = |name: &str| {
            let path = below.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let mut server = None;
        if fs == Fs::Overlay {
            let [lower, upper, work] = ["lower", "upper", "work"].map(at);
            let options = format!("lowerdir={},upperdir={},workdir={}", text(&lower), text(&upper), text(&work));
            succeed(Command::new("mount").args(["-t", "overlay", "-o", &options, "overlay", text(dir.path())]));
        } else {
            let source = at("source");
            // In the foreground: it belongs to this test and ends with its file system.
            server = Some(Command::new("bindfs").args(["-f", text(&source), text(dir.path())]).spawn().unwrap());
            let under = fs::metadata(dir.path().parent().unwrap()).unwrap().dev();
            super::wait_for("bindfs", || (fs::metadata(dir.path()).unwrap().dev() != under).then_some(()));
        }
        Self { dir, device: None, server, below: Some(Box::new(below)), _scratch: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The process that serves a FUSE file system.
    pub(crate) fn server(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// The loop device; none for tmpfs.
    pub(crate) fn device(&self) -> Option<&Path> {
        self.device.as_deref()
    }

    /// The loop device that it, or what it keeps its files in, lies on.
    pub(crate) fn device_below(&self) -> &Path {
        let below = self.below.as_ref().map(|b| b.device_below());
        self.device().or(below).unwrap()
    }

    /// Its number as reels write it.
    pub(crate) fn device_number(&self) -> Option<i64> {
        self.device().map(|d| {
            let dev = fs::metadata(d).unwrap().rdev();
            i64::from(libc::major(dev)) << 20 | i64::from(libc::minor(dev))
        })
    }
}

/// Writes out and forgets what every file system has in memory.
pub(crate) fn go_cold() {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
}

/// The same until nothing of these files is left: a page that somebody holds at that moment stays.
pub(crate) fn go_cold_with(files: &[impl AsRef<Path>]) {
    super::wait_for("the page cache to forget", || {
        go_cold();
        files.iter().all(|f| !is_cached(f.as_ref())).then_some(())
    });
}

/// Whether any page of the file is in the page cache.
fn is_cached(file: &Path) -> bool {
    let file = File::open(file).unwrap();
    let len = file.metadata().unwrap().len() as usize;
    if len == 0 {
        return false;
    }
    let mut pages = vec![0_u8; len.div_ceil(4096)];
    // SAFETY: a mapping of its own that nobody touches, and a vector with a byte for each of its pages.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.iter().any(|p| p & 1 != 0)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process that still has it open must not keep the test from ending.
        let _ = Command::new("umount").arg(self.dir.path()).status().is_ok_and(|s| s.success())
            || Command::new("umount").arg("--lazy").arg(self.dir.path()).status().is_ok();
        if let Some(server) = &mut self.server {
            let _ = server.wait();
        }
    }
}

struct Detach<'a>(&'a Path);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(self.0).status();
    }
}
