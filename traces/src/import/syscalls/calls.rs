//! The meaning of each argument of each call.

/// Column of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::import) enum Arg {
    /// Not stored.
    Skip,
    /// Descriptor, source descriptor.
    Fd,
    /// Destination descriptor.
    Fd2,
    /// Directory of the path.
    Dirfd,
    /// Directory of the second path.
    Dirfd2,
    /// Path.
    Path,
    /// Second path.
    Path2,
    /// Length.
    Len,
    /// Position.
    Offset,
    /// An array of buffers: their total length.
    Vector,
    /// Flags.
    Flags,
    /// Mode.
    Mode,
    /// Flags, mode and how a path is followed, of `openat2`.
    How,
    /// Further argument.
    Aux,
    /// One more.
    Aux2,
    /// Output of stat(2).
    Stat,
}

use Arg::{Aux, Aux2, Dirfd, Dirfd2, Fd, Fd2, Flags, How, Len, Mode, Offset, Path, Path2, Skip, Stat, Vector};

/// File system calls, with their arguments in order.
const CALLS: &[(&str, &[Arg])] = &[
    ("open", &[Path, Flags, Mode]),
    ("openat", &[Dirfd, Path, Flags, Mode]),
    ("openat2", &[Dirfd, Path, How]),
    ("creat", &[Path, Mode]),
    ("close", &[Fd]),
    ("read", &[Fd, Skip, Len]),
    ("write", &[Fd, Skip, Len]),
    ("pread64", &[Fd, Skip, Len, Offset]),
    ("pwrite64", &[Fd, Skip, Len, Offset]),
    ("readv", &[Fd, Vector, Aux]),
    ("writev", &[Fd, Vector, Aux]),
    ("preadv", &[Fd, Vector, Aux, Offset]),
    ("pwritev", &[Fd, Vector, Aux, Offset]),
    ("preadv2", &[Fd, Vector, Aux, Offset]),
    ("pwritev2", &[Fd, Vector, Aux, Offset]),
    ("lseek", &[Fd, Aux, Flags]),
    ("fsync", &[Fd]),
    ("fdatasync", &[Fd]),
    ("sync", &[]),
    ("syncfs", &[Fd]),
    ("sync_file_range", &[Fd, Offset, Len, Flags]),
    ("truncate", &[Path, Len]),
    ("ftruncate", &[Fd, Len]),
    ("fallocate", &[Fd, Mode, Offset, Len]),
    ("stat", &[Path, Stat]),
    ("lstat", &[Path, Stat]),
    ("fstat", &[Fd, Stat]),
    ("newfstatat", &[Dirfd, Path, Stat, Flags]),
    ("statx", &[Dirfd, Path, Flags, Aux, Stat]),
    ("access", &[Path, Mode]),
    ("faccessat", &[Dirfd, Path, Mode]),
    ("faccessat2", &[Dirfd, Path, Mode, Flags]),
    ("readlink", &[Path, Skip, Len]),
    ("readlinkat", &[Dirfd, Path, Skip, Len]),
    ("getdents", &[Fd, Skip, Len]),
    ("getdents64", &[Fd, Skip, Len]),
    ("mkdir", &[Path, Mode]),
    ("mkdirat", &[Dirfd, Path, Mode]),
    ("rmdir", &[Path]),
    ("unlink", &[Path]),
    ("unlinkat", &[Dirfd, Path, Flags]),
    ("rename", &[Path, Path2]),
    ("renameat", &[Dirfd, Path, Dirfd2, Path2]),
    ("renameat2", &[Dirfd, Path, Dirfd2, Path2, Flags]),
    ("link", &[Path, Path2]),
    ("linkat", &[Dirfd, Path, Dirfd2, Path2, Flags]),
    ("symlink", &[Path, Path2]),
    ("symlinkat", &[Path, Dirfd2, Path2]),
    ("chmod", &[Path, Mode]),
    ("fchmod", &[Fd, Mode]),
    ("fchmodat", &[Dirfd, Path, Mode]),
    ("chown", &[Path, Aux, Aux2]),
    ("lchown", &[Path, Aux, Aux2]),
    ("fchown", &[Fd, Aux, Aux2]),
    ("fchownat", &[Dirfd, Path, Aux, Aux2, Flags]),
    ("umask", &[Mode]),
    ("dup", &[Fd]),
    ("dup2", &[Fd, Fd2]),
    ("dup3", &[Fd, Fd2, Flags]),
    ("chdir", &[Path]),
    ("fchdir", &[Fd]),
    ("copy_file_range", &[Fd, Skip, Fd2, Skip, Len]),
    ("sendfile", &[Fd2, Fd, Skip, Len]),
];

/// The arguments of a file system call.
pub(in crate::import) fn arguments(name: &[u8]) -> Option<(&'static str, &'static [Arg])> {
    CALLS.iter().find(|(n, _)| n.as_bytes() == name).map(|(n, a)| (*n, *a))
}
