//! The block device or regular file on which bios are issued.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, Mode, OFlags, SeekFrom, StatxFlags, fcntl_getfl, fcntl_setfl, ioctl_blksszget, major, minor, open,
        seek, statx,
    },
    io::Errno,
};

use crate::ReplayError;

/// An open device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) file: File,
    pub(super) size_bytes: i64,
    /// Addresses and lengths must be multiples of this.
    pub(super) block_bytes: i64,
    /// Device number, `major << 20 | minor`. 0 for a regular file.
    pub(super) dev: i64,
    /// Opened with O_DIRECT.
    pub(super) direct: bool,
}

impl Device {
    /// Opens `path`. A device that is going to be written must not be in use: not mounted, not swap, not part of
    /// another device.
    pub(super) fn open(path: &Path, allow_writes: bool, writes: bool) -> Result<Self, ReplayError> {
        let refuse = |why: String| ReplayError::Block { path: path.into(), why };
        let about = fs::metadata(path).map_err(|e| refuse(format!("cannot replay on this: {e}")))?;
        let is_device = about.file_type().is_block_device();
        if !is_device && !about.is_file() {
            return Err(refuse("neither a block device nor a regular file; use one of these".into()));
        }
        let write = allow_writes && writes;
        if write
            && !is_device
            && let Some(of) = loop_device_on(path)
        {
            return Err(refuse(format!("it backs {of}, which may be in use; detach {of} first")));
        }
        let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK | if write { OFlags::RDWR } else { OFlags::RDONLY };
        if is_device && write {
            // O_EXCL on a block device fails with EBUSY if the kernel uses the device.
            flags |= OFlags::EXCL;
        }
        let (fd, direct) = match open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Err(Errno::INVAL) => (open(path, flags, Mode::empty()), false),
            other => (other, true),
        };
        let fd = fd.map_err(|e| {
            refuse(match e {
                Errno::BUSY => "in use (mounted, swap, or part of another device), and --allow-writes would overwrite it; unmount it first".into(),
                e => format!("cannot open the device: {e}"),
            })
        })?;
        let io = |e: Errno| refuse(format!("cannot read the device's properties: {e}"));
        // O_NONBLOCK was meant for the open alone.
        let opened = fcntl_getfl(&fd).map_err(io)?;
        fcntl_setfl(&fd, opened - OFlags::NONBLOCK).map_err(io)?;
        let size_bytes = seek(&fd, SeekFrom::End(0)).map_err(io)?;
        let block_bytes = if is_device {
            i64::from(ioctl_blksszget(&fd).map_err(io)?)
        } else {
            let about = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
            let align = about.map_or(0, |s| i64::from(s.stx_dio_offset_align));
            if align > 0 { align } else { 4096 }
        };
        let rdev = about.rdev();
        let dev = if is_device { i64::from(major(rdev)) << 20 | i64::from(minor(rdev)) } else { 0 };
        let size_bytes = i64::try_from(size_bytes).unwrap_or(i64::MAX);
        Ok(Self { file: fd.into(), size_bytes, block_bytes: block_bytes.max(512), dev, direct })
    }

    #[cfg(test)]
    pub(super) fn of_size(size_bytes: i64, block_bytes: i64) -> Self {
        let file = File::open("/dev/null").expect("it is everywhere");
        Self { file, size_bytes, block_bytes, dev: 0, direct: false }
    }
}

/// The name of a loop device backed by this file.
fn loop_device_on(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let behind = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        (Path::new(file.trim_end()) == path).then(|| entry.file_name().to_string_lossy().into_owned())
    };
    fs::read_dir("/sys/block").ok()?.find_map(behind)
}
