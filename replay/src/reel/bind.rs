//! Binds of sockets to names in a file system.

use crate::{
    Call,
    reel::input::{NO_FD, NO_ID, Rec},
};

/// A bind of a socket to a path becomes a mknod: it creates the node in the same way (net/unix/af_unix.c), and nobody
/// connects to it in a replay.
pub(super) fn as_mknod(r: &mut Rec, op: &str) {
    if op != "bind" || r.call != Call::Mknod {
        return;
    }
    (r.fd, r.dirfd, r.file, r.ofd) = (NO_FD, libc::AT_FDCWD, NO_ID, NO_ID);
    (r.mode, r.aux) = ((libc::S_IFSOCK | 0o777) as i32, 0);
    if r.ret == -i64::from(libc::EADDRINUSE) {
        r.ret = -i64::from(libc::EEXIST);
    }
}
