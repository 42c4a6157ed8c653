//! The list of operations that a replay knows, with predicates on them. [`Call`] is the key of nearly every decision in
//! this crate.

macro_rules! calls {
    ($($variant:ident = $name:literal,)+) => {
        /// A file operation, named as in column `op`: a system call, a command of fcntl, a request of ioctl, or a touch
        /// of a mapped file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Call {
            $(#[doc = concat!("`", $name, "`.")] $variant,)+
            /// An operation that a replay does not know.
            Other,
        }

        impl Call {
            /// The operation with this name, or [`Self::Other`].
            pub fn from_name(name: &str) -> Self {
                match name { $($name => Self::$variant,)+ _ => Self::Other }
            }
            /// All operations.
            pub const ALL: &[Self] = &[$(Self::$variant,)+ Self::Other];
            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ Self::Other => "other" }
            }
        }
    };
}

calls! {
    Open = "open",
    Openat = "openat",
    Openat2 = "openat2",
    Creat = "creat",
    Close = "close",
    CloseRange = "close_range",
    Read = "read",
    Pread64 = "pread64",
    Readv = "readv",
    Preadv = "preadv",
    Preadv2 = "preadv2",
    Write = "write",
    Pwrite64 = "pwrite64",
    Writev = "writev",
    Pwritev = "pwritev",
    Pwritev2 = "pwritev2",
    Lseek = "lseek",
    Fsync = "fsync",
    Fdatasync = "fdatasync",
    SyncFileRange = "sync_file_range",
    Ftruncate = "ftruncate",
    Truncate = "truncate",
    Fallocate = "fallocate",
    Stat = "stat",
    Lstat = "lstat",
    Newfstatat = "newfstatat",
    Fstat = "fstat",
    Statx = "statx",
    Access = "access",
    Faccessat = "faccessat",
    Faccessat2 = "faccessat2",
    Getdents = "getdents",
    Getdents64 = "getdents64",
    Readlink = "readlink",
    Readlinkat = "readlinkat",
    Mkdir = "mkdir",
    Mkdirat = "mkdirat",
    Rmdir = "rmdir",
    Unlink = "unlink",
    Unlinkat = "unlinkat",
    Rename = "rename",
    Renameat = "renameat",
    Renameat2 = "renameat2",
    Link = "link",
    Linkat = "linkat",
    Symlink = "symlink",
    Symlinkat = "symlinkat",
    Mknod = "mknod",
    Mknodat = "mknodat",
    Chmod = "chmod",
    Fchmod = "fchmod",
    Fchmodat = "fchmodat",
    Fchmodat2 = "fchmodat2",
    Chown = "chown",
    Lchown = "lchown",
    Fchown = "fchown",
    Fchownat = "fchownat",
    Utime = "utime",
    Utimes = "utimes",
    Futimesat = "futimesat",
    Utimensat = "utimensat",
    Umask = "umask",
    Dup = "dup",
    Dup2 = "dup2",
    Dup3 = "dup3",
    Fcntl = "fcntl",
    SetFd = "F_SETFD",
    SetFl = "F_SETFL",
    Chdir = "chdir",
    Fchdir = "fchdir",
    CopyFileRange = "copy_file_range",
    Sendfile = "sendfile",
    Mmap = "mmap",
    Munmap = "munmap",
    Msync = "msync",
    Ficlone = "FICLONE",
    Ficlonerange = "FICLONERANGE",
    Setxattr = "setxattr",
    Lsetxattr = "lsetxattr",
    Fsetxattr = "fsetxattr",
    Removexattr = "removexattr",
    Lremovexattr = "lremovexattr",
    Fremovexattr = "fremovexattr",
    Fadvise64 = "fadvise64",
    Readahead = "readahead",
    Syncfs = "syncfs",
    Statfs = "statfs",
    Fstatfs = "fstatfs",
    Getxattr = "getxattr",
    Lgetxattr = "lgetxattr",
    Fgetxattr = "fgetxattr",
    Getxattrat = "getxattrat",
    Listxattr = "listxattr",
    Llistxattr = "llistxattr",
    Flistxattr = "flistxattr",
    Listxattrat = "listxattrat",
    Setxattrat = "setxattrat",
    Removexattrat = "removexattrat",
    FileGetattr = "file_getattr",
    FileSetattr = "file_setattr",
    GetFlags = "FS_IOC_GETFLAGS",
    SetFlags = "FS_IOC_SETFLAGS",
    GetVersion = "FS_IOC_GETVERSION",
    SetVersion = "FS_IOC_SETVERSION",
    GetXflags = "FS_IOC_FSGETXATTR",
    SetXflags = "FS_IOC_FSSETXATTR",
    GetLabel = "FS_IOC_GETFSLABEL",
    Fiemap = "FS_IOC_FIEMAP",
    Fibmap = "FIBMAP",
    Figetbsz = "FIGETBSZ",
    Tcgets = "TCGETS",
    Fideduperange = "FIDEDUPERANGE",
    SubvolCreate = "BTRFS_IOC_SUBVOL_CREATE",
    SubvolCreateV2 = "BTRFS_IOC_SUBVOL_CREATE_V2",
    SnapCreate = "BTRFS_IOC_SNAP_CREATE",
    SnapCreateV2 = "BTRFS_IOC_SNAP_CREATE_V2",
    SnapDestroy = "BTRFS_IOC_SNAP_DESTROY",
    SnapDestroyV2 = "BTRFS_IOC_SNAP_DESTROY_V2",
    Cachestat = "cachestat",
    Getcwd = "getcwd",
    Chroot = "chroot",
    Sync = "sync",
    Unshare = "unshare",
    Setuid = "setuid",
    Setgid = "setgid",
    Setreuid = "setreuid",
    Setregid = "setregid",
    Setresuid = "setresuid",
    Setresgid = "setresgid",
    Setfsuid = "setfsuid",
    Setfsgid = "setfsgid",
    Setgroups = "setgroups",
    Splice = "splice",
    NameToHandleAt = "name_to_handle_at",
    OpenByHandleAt = "open_by_handle_at",
    Flock = "flock",
    GetLk = "F_GETLK",
    SetLk = "F_SETLK",
    SetLkw = "F_SETLKW",
    OfdGetLk = "F_OFD_GETLK",
    OfdSetLk = "F_OFD_SETLK",
    OfdSetLkw = "F_OFD_SETLKW",
    Madvise = "madvise",
    Mincore = "mincore",
    Mremap = "mremap",
    Fault = "fault",
    MapPages = "map_pages",
    Dirty = "dirty",
    ScmRights = "scm_rights",
    PidfdGetfd = "pidfd_getfd",
    Mount = "mount",
    MoveMount = "move_mount",
    Umount2 = "umount2",
    PivotRoot = "pivot_root",
    Setns = "setns",
    OpenTree = "open_tree",
    Fsopen = "fsopen",
    Fsmount = "fsmount",
}

/// Whether an ioctl request sets (`FIOCLEX`, true) or clears (`FIONCLEX`, false) close-on-exec; `None` for other
/// requests.
pub(crate) fn closes_on_exec(request: i64) -> Option<bool> {
    match request {
        0x5451 => Some(true),
        0x5450 => Some(false),
        _ => None,
    }
}

impl Call {
    /// The operation of a row. fcntl and ioctl stand for many: `flags` has the command, and for an ioctl `name` the
    /// name of the request.
    pub fn of(op: &str, flags: i64, name: Option<&str>) -> Self {
        let command = flags as i32;
        match op {
            "fcntl" => match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => Self::Fcntl,
                libc::F_SETFD => Self::SetFd,
                libc::F_SETFL => Self::SetFl,
                libc::F_GETLK => Self::GetLk,
                libc::F_SETLK => Self::SetLk,
                libc::F_SETLKW => Self::SetLkw,
                libc::F_OFD_GETLK => Self::OfdGetLk,
                libc::F_OFD_SETLK => Self::OfdSetLk,
                libc::F_OFD_SETLKW => Self::OfdSetLkw,
                _ => Self::Other,
            },
            // TCGETS: libc asks whether a file is a terminal before it prints to it.
            "ioctl" if flags == 0x5401 => Self::Tcgets,
            "ioctl" if closes_on_exec(flags).is_some() => Self::SetFd,
            "ioctl" => name.map(Self::from_name).filter(|c| c.is_request()).unwrap_or(Self::Other),
            // A socket gets a name: see [`super::bind`].
            "bind" => Self::Mknod,
            _ => Some(Self::from_name(op))
                .filter(|c| !c.is_request() && !c.is_command() && !c.touches())
                .unwrap_or(Self::Other),
        }
    }

    /// The kind of touch of a mapped file.
    pub fn of_touch(op: &str) -> Self {
        Some(Self::from_name(op)).filter(|c| c.touches()).unwrap_or(Self::Other)
    }

    /// A command of fcntl with a variant of its own.
    fn is_command(self) -> bool {
        matches!(self, Self::SetFd | Self::SetFl) || self.locks_range() || self.asks_for_lock()
    }

    /// A request of ioctl.
    pub fn is_request(self) -> bool {
        self.clones()
            || self.dedupes()
            || matches!(
                self,
                Self::GetFlags
                    | Self::SetFlags
                    | Self::GetVersion
                    | Self::SetVersion
                    | Self::GetXflags
                    | Self::SetXflags
                    | Self::GetLabel
                    | Self::Fiemap
                    | Self::Fibmap
                    | Self::Figetbsz
                    | Self::Tcgets
                    | Self::SubvolCreate
                    | Self::SubvolCreateV2
                    | Self::SnapCreate
                    | Self::SnapCreateV2
                    | Self::SnapDestroy
                    | Self::SnapDestroyV2
            )
    }

    /// Makes a snapshot of a subvolume, or removes a subvolume with all in it.
    pub fn concerns_all_below(self) -> bool {
        matches!(self, Self::SnapCreate | Self::SnapDestroy)
    }

    /// Sets or removes an fcntl lock on a range of a file.
    pub fn locks_range(self) -> bool {
        matches!(self, Self::SetLk | Self::SetLkw | Self::OfdSetLk | Self::OfdSetLkw)
    }

    /// Asks who holds an fcntl lock (`F_GETLK`, `F_OFD_GETLK`).
    pub fn asks_for_lock(self) -> bool {
        matches!(self, Self::GetLk | Self::OfdGetLk)
    }

    /// Sets or removes a lock of any kind.
    pub fn locks(self) -> bool {
        self.locks_range() || self == Self::Flock
    }

    /// Changes user or group ids of the thread.
    pub fn sets_user(self) -> bool {
        matches!(
            self,
            Self::Setuid
                | Self::Setgid
                | Self::Setreuid
                | Self::Setregid
                | Self::Setresuid
                | Self::Setresgid
                | Self::Setfsuid
                | Self::Setfsgid
                | Self::Setgroups
        )
    }

    /// Shares equal ranges of two files.
    pub fn dedupes(self) -> bool {
        self == Self::Fideduperange
    }

    /// Acts on a range of memory into which a file is mapped.
    pub fn on_mapping(self) -> bool {
        matches!(self, Self::Munmap | Self::Msync | Self::Madvise | Self::Mincore | Self::Mremap)
    }

    /// Reads the value of an extended attribute.
    pub fn gets_attribute(self) -> bool {
        matches!(self, Self::Getxattr | Self::Lgetxattr | Self::Fgetxattr | Self::Getxattrat)
    }

    /// Makes a file handle or opens by one.
    pub fn has_handle(self) -> bool {
        matches!(self, Self::NameToHandleAt | Self::OpenByHandleAt)
    }

    /// Lists the names of extended attributes.
    pub fn lists_attributes(self) -> bool {
        matches!(self, Self::Listxattr | Self::Llistxattr | Self::Flistxattr | Self::Listxattrat)
    }

    /// A touch of a mapped file: the first load from or store to a page. Not a call.
    pub fn touches(self) -> bool {
        matches!(self, Self::Fault | Self::MapPages | Self::Dirty)
    }

    /// Removes an extended attribute.
    pub fn removes_attribute(self) -> bool {
        matches!(self, Self::Removexattr | Self::Lremovexattr | Self::Fremovexattr | Self::Removexattrat)
    }

    /// Sets the flags of an inode (`chattr`).
    pub fn sets_flags(self) -> bool {
        matches!(self, Self::SetFlags | Self::SetXflags | Self::FileSetattr)
    }

    /// Sets times.
    pub fn sets_times(self) -> bool {
        matches!(self, Self::Utime | Self::Utimes | Self::Futimesat | Self::Utimensat)
    }

    /// Changes mode or owner.
    pub fn changes_access(self) -> bool {
        use Call::{Chmod, Chown, Fchmod, Fchmodat, Fchmodat2, Fchown, Fchownat, Lchown};
        matches!(self, Chmod | Fchmod | Fchmodat | Fchmodat2 | Chown | Fchown | Fchownat | Lchown)
    }

    /// Makes a file share data of another.
    pub fn clones(self) -> bool {
        matches!(self, Self::Ficlone | Self::Ficlonerange)
    }

    /// Sets permission bits.
    pub fn chmods(self) -> bool {
        matches!(self, Self::Chmod | Self::Fchmod | Self::Fchmodat | Self::Fchmodat2)
    }

    /// Sets an extended attribute.
    pub fn sets_attribute(self) -> bool {
        matches!(self, Self::Setxattr | Self::Lsetxattr | Self::Fsetxattr | Self::Setxattrat)
    }

    /// Opens a file.
    pub fn opens(self) -> bool {
        matches!(self, Self::Open | Self::Openat | Self::Openat2 | Self::Creat | Self::OpenByHandleAt)
    }

    /// Brings a descriptor of a file that was opened elsewhere: by message, or out of another process.
    pub fn receives(self) -> bool {
        matches!(self, Self::ScmRights | Self::PidfdGetfd)
    }

    /// Changes which mounts a thread sees. A replay follows them and makes none.
    pub fn mounts(self) -> bool {
        use Call::{Fsmount, Fsopen, Mount, MoveMount, OpenTree, PivotRoot, Setns, Umount2};
        matches!(self, Mount | MoveMount | Umount2 | PivotRoot | Setns | OpenTree | Fsopen | Fsmount)
    }

    /// Makes another descriptor of the same open file description.
    pub fn duplicates(self) -> bool {
        matches!(self, Self::Dup | Self::Dup2 | Self::Dup3 | Self::Fcntl)
    }

    /// Reads data.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Pread64 | Self::Readv | Self::Preadv | Self::Preadv2)
    }

    /// Writes data.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Pwrite64 | Self::Writev | Self::Pwritev | Self::Pwritev2)
    }

    /// Moves data between two files.
    pub fn copies(self) -> bool {
        matches!(self, Self::CopyFileRange | Self::Sendfile | Self::Splice)
    }

    /// Creates, renames or removes the last component of its (first) path, instead of using the file that has the name.
    pub fn names_last(self) -> bool {
        self.renames()
            || matches!(
                self,
                Self::Mkdir
                    | Self::Mkdirat
                    | Self::Mknod
                    | Self::Mknodat
                    | Self::Rmdir
                    | Self::Unlink
                    | Self::Unlinkat
                    | Self::SnapDestroy
            )
    }

    /// Lists a directory.
    pub fn lists(self) -> bool {
        matches!(self, Self::Getdents | Self::Getdents64)
    }

    /// Renames.
    pub fn renames(self) -> bool {
        matches!(self, Self::Rename | Self::Renameat | Self::Renameat2)
    }

    /// Makes a hard link.
    pub fn links(self) -> bool {
        matches!(self, Self::Link | Self::Linkat)
    }

    /// Makes a symbolic link. `path` is its target, `path2` its name.
    pub fn symlinks(self) -> bool {
        matches!(self, Self::Symlink | Self::Symlinkat)
    }

    /// Reads attributes (stat family).
    pub fn stats(self) -> bool {
        matches!(self, Self::Stat | Self::Lstat | Self::Newfstatat | Self::Fstat | Self::Statx)
    }

    /// Changes the owner.
    pub fn chowns(self) -> bool {
        matches!(self, Self::Chown | Self::Lchown | Self::Fchown | Self::Fchownat)
    }

    /// Whether its result is a byte count that a replay must reproduce on a regular file or symbolic link.
    pub fn counts_bytes(self) -> bool {
        self.reads() || self.writes() || self.copies() || matches!(self, Self::Readlink | Self::Readlinkat)
    }

    /// Whether it takes a path, and is issued without a directory descriptor.
    pub fn takes_no_directory(self) -> bool {
        matches!(
            self,
            Self::Chdir
                | Self::Chroot
                | Self::Truncate
                | Self::Statfs
                | Self::Setxattr
                | Self::Lsetxattr
                | Self::Getxattr
                | Self::Lgetxattr
                | Self::Listxattr
                | Self::Llistxattr
                | Self::Removexattr
                | Self::Lremovexattr
        )
    }

    /// Whether path resolution follows a symbolic link in the last component of `path`.
    pub fn follows(self, flags: i64) -> bool {
        let flags = flags as i32;
        match self {
            Self::Open | Self::Openat | Self::Openat2 => {
                flags & libc::O_NOFOLLOW == 0 && flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL
            }
            Self::Newfstatat
            | Self::Statx
            | Self::Faccessat2
            | Self::Fchmodat2
            | Self::Fchownat
            | Self::Utimensat
            | Self::Getxattrat
            | Self::Listxattrat
            | Self::Setxattrat
            | Self::Removexattrat
            | Self::FileGetattr
            | Self::FileSetattr => flags & libc::AT_SYMLINK_NOFOLLOW == 0,
            Self::NameToHandleAt | Self::Linkat => flags & libc::AT_SYMLINK_FOLLOW != 0,
            Self::Lstat
            | Self::Lsetxattr
            | Self::Lremovexattr
            | Self::Lgetxattr
            | Self::Llistxattr
            | Self::Lchown
            | Self::Readlink
            | Self::Readlinkat
            | Self::Mkdir
            | Self::Mkdirat
            | Self::Mknod
            | Self::Mknodat
            | Self::Rmdir
            | Self::SnapDestroy
            | Self::Unlink
            | Self::Unlinkat
            | Self::Rename
            | Self::Renameat
            | Self::Renameat2
            | Self::Link
            | Self::Symlink
            | Self::Symlinkat => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Call;

    #[test]
    fn names_go_both_ways() {
        for name in ["openat", "copy_file_range", "msync", "newfstatat"] {
            assert_eq!(Call::from_name(name).name(), name);
        }
        assert_eq!(Call::from_name("io_uring_enter"), Call::Other);
    }

    #[test]
    fn one_word_for_many_calls() {
        assert_eq!(Call::of("fcntl", libc::F_DUPFD_CLOEXEC.into(), None), Call::Fcntl);
        assert_eq!(Call::of("fcntl", libc::F_SETLK.into(), None), Call::SetLk, "a lock is no descriptor");
        assert_eq!(Call::of("F_SETLK", 0, None), Call::Other);
        assert_eq!(Call::of("ioctl", 0x4004_9409, Some("FICLONE")), Call::Ficlone);
        assert_eq!(Call::of("ioctl", 0x5450, None), Call::SetFd, "FIONCLEX");
        assert_eq!(Call::of("ioctl", 0xc004_5877, Some("FIFREEZE")), Call::Other);
        assert_eq!(Call::of("ioctl", 0, Some("read")), Call::Other, "an ioctl is nothing but an ioctl");
        assert_eq!(Call::of("FICLONE", 0, None), Call::Other);
    }
}
