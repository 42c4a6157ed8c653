//! File types, from the reel's columns or from `st_mode`.

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Kind {
    /// The file exists, its type is unknown.
    #[default]
    Unknown,
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// FIFO or pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character or block device.
    Device,
    /// None of these.
    Other,
    /// Of any type, but not created by a replayed call: a bound socket, a file of another process, a device node that is
    /// left out.
    Foreign,
}

impl Kind {
    /// From a `kind` column of the reel.
    pub fn from_name(name: &str) -> Self {
        match name {
            "regular" => Self::Regular,
            "directory" => Self::Directory,
            "symlink" => Self::Symlink,
            "fifo" => Self::Fifo,
            "socket" => Self::Socket,
            "char" | "block" => Self::Device,
            _ => Self::Other,
        }
    }

    /// From `st_mode`.
    pub fn from_mode(mode: i32) -> Self {
        match mode as u32 & libc::S_IFMT {
            libc::S_IFREG => Self::Regular,
            libc::S_IFDIR => Self::Directory,
            libc::S_IFLNK => Self::Symlink,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR | libc::S_IFBLK => Self::Device,
            _ => Self::Unknown,
        }
    }
}
