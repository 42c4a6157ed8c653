//! Files and folders that only their owner may read, created and found by descriptor.
//!
//! In: a path that the user gave. Out: an open [`Folder`], or an [`Output`] to write. May use: nothing.
//!
//! Recordings contain paths, arguments and data of other programs, and root often makes them in a folder of somebody else's.
//! So everything is created for its owner alone (folders 0700, files 0600), whatever the umask is. Under sudo, the owner is
//! the user who called it. A path is resolved once; from then on, names are looked up in the open folder without following
//! links, so that nobody can lead a write elsewhere by exchanging a folder.

mod folder;
mod output;

use std::{
    fs::{File, Permissions},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{PermissionsExt, fchown},
    },
};

pub use folder::{Entry, Folder};
pub use output::Output;

/// Permissions of files.
const FILE_MODE: u32 = 0o600;
/// Permissions of folders.
const FOLDER_MODE: u32 = 0o700;

/// The user and group that called sudo, if this process is root by sudo.
pub fn sudo_caller() -> Option<(u32, u32)> {
    let id = |name| std::env::var(name).ok()?.parse().ok();
    if rustix::process::geteuid().is_root() { Some((id("SUDO_UID")?, id("SUDO_GID")?)) } else { None }
}

/// Whether files of this user may be written to: its own, root's, and those of the user that called sudo.
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw() || sudo_caller().is_some_and(|(caller, _)| user == caller)
}

/// Gives a file or folder that this process has just created its permissions and its owner. A file system without owners
/// keeps its own.
fn own(fd: OwnedFd, mode: u32) -> io::Result<OwnedFd> {
    let file = File::from(fd);
    // Removes bits that the umask lacks or that a default ACL of the folder adds.
    let _ = file.set_permissions(Permissions::from_mode(mode));
    if let Some((user, group)) = sudo_caller() {
        give(file.as_fd(), user, group)?;
    }
    Ok(file.into())
}

/// Gives an open file to a user, where the file system has owners and this process may.
fn give(file: BorrowedFd<'_>, user: u32, group: u32) -> io::Result<()> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match fchown(file, Some(user), Some(group)) {
        Err(e) if !matches!(e.kind(), PermissionDenied | InvalidInput | Unsupported) => Err(e),
        _ => Ok(()),
    }
}
