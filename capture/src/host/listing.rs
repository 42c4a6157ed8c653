//! Looks at directories and files that leave no trace on the disk.

use std::{
    ffi::OsStr,
    fs::{self, Metadata},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, StatxFlags, openat, statx},
    io::Errno,
};

/// The paths of what is in a directory. Where the recorder may, the listing does not change the directory's access time:
/// the change would be written to a disk that is recorded.
pub(crate) fn children(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<PathBuf>> + use<>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match openat(CWD, dir, flags | OFlags::NOATIME, Mode::empty()) {
        // Another user's directory.
        Err(Errno::PERM) => openat(CWD, dir, flags, Mode::empty()),
        opened => opened,
    };
    let dir = dir.to_owned();
    let name = move |entry: Result<rustix::fs::DirEntry, Errno>| match entry {
        Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
        Ok(entry) => Some(Ok(dir.join(OsStr::from_bytes(entry.file_name().to_bytes())))),
        Err(e) => Some(Err(e.into())),
    };
    Ok(Dir::new(opened?)?.filter_map(name))
}

/// The status of a name as the file system has it now. The kernel may have an older one of a file that changed through
/// another name (FUSE) or on a server (NFS).
pub(crate) fn current_status(path: &Path) -> io::Result<Metadata> {
    statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
    fs::symlink_metadata(path)
}
