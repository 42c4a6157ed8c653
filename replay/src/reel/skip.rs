//! Reasons for which a recorded operation is not replayed.

use crate::base::file_kind::Kind;

/// A reason to skip an operation. Skipped operations are counted and reported before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// Below /proc.
    Proc,
    /// Through a link of /proc to a file or directory of another thread, which is not followed.
    MagicLink,
    /// Below /sys.
    Sys,
    /// Below /dev.
    Dev,
    /// Outside every `--root`.
    Outside,
    /// On a file system that the workload mounted: a tmpfs, an image. It is not part of the recorded tree.
    OtherMount,
    /// On a mount that the replay does not follow: an overlay that the workload mounted, or a mount namespace that a
    /// thread entered. It may show files of the recorded tree.
    UnfollowedMount,
    /// Inside a root, but through an io_uring request that resolves paths from its thread's root directory, which
    /// cannot reach the place.
    OtherRoot,
    /// On a pipe or FIFO.
    Pipe,
    /// On a socket.
    Socket,
    /// On a character or block device.
    Device,
    /// On a descriptor of something else than a file: epoll, eventfd, …
    NoFile,
    /// On a descriptor whose opening was not recorded.
    UnknownFd,
    /// On a name created by something not recorded: a socket, another process's file.
    OutOfSight,
    /// The recording ended before it returned.
    InFlight,
    /// A call that a replay does not know.
    Unsupported,
    /// Creates a device node. Only `--device-nodes` replays that, as root.
    DeviceNode,
    /// It failed for a cause that the target does not have (another file system, read-only mount, signal, …).
    ForeignCause,
    /// A fallocate that failed: it may have made its file longer, by an unknown length.
    PartlyReserved,
    /// Its path was not recorded completely.
    NoPath,
    /// Its path is longer than the kernel takes.
    LongPath,
    /// It sets an attribute whose value was not recorded.
    NoValue,
    /// It needs root, and the replay does not run as root: changes of owner, user ids, some flags and attributes.
    NeedsRoot,
    /// It sets, reads or removes an attribute that gives privileges. Only `--set-ids` replays those.
    PrivilegedAttribute,
    /// Would change mode, owner, attributes or flags of the target directory itself.
    TargetDirectory,
    /// Seeks to a position inside a directory, which means nothing on another file system.
    DirPosition,
    /// On a mapping that the replay does not have (made before the recording, or inherited by fork).
    NoMapping,
    /// Permission was denied to a task that the reel has as root: its change of user was not recorded.
    OtherUser,
    /// Would create namespaces.
    NameSpace,
    /// Names users of a user namespace that the replay does not create.
    MappedUser,
    /// A snapshot of a subvolume of btrfs: the target's file system has none, or too many names were copied.
    Snapshot,
    /// A result that no kernel gives: a directory moved into itself.
    Impossible,
    /// Recorded after its thread's exit.
    AfterExit,
    /// An io_uring request that a replay does not issue.
    Uring,
    /// A Linux AIO request that a replay does not issue.
    Aio,
    /// A touch of mapped memory.
    Touch,
    /// A descriptor received by message (SCM_RIGHTS).
    Message,
    /// Done by the kernel itself, or part of an operation that is replayed anyway.
    Kernel,
    /// Recorded in a layer other than calls, requests and touches.
    OtherLayer,
}

impl Skip {
    /// The place is not part of the tree that is replayed. Its names are followed, because paths may lead through them.
    pub(crate) fn is_elsewhere(self) -> bool {
        matches!(self, Self::Outside | Self::OtherMount | Self::UnfollowedMount)
    }

    /// Why operations on a file of this kind are skipped; `None` if they are replayed.
    pub fn of_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Fifo => Some(Self::Pipe),
            Kind::Socket => Some(Self::Socket),
            Kind::Device => Some(Self::Device),
            Kind::Other => Some(Self::NoFile),
            Kind::Foreign => Some(Self::OutOfSight),
            Kind::Unknown | Kind::Regular | Kind::Directory | Kind::Symlink => None,
        }
    }

    /// Why a row that is not a system call is skipped, by column `source`.
    pub fn of_source(source: &str) -> Self {
        match source {
            "io_uring" => Self::Uring,
            "aio" => Self::Aio,
            "fault" => Self::Touch,
            "scm" => Self::Message,
            "vfs" | "lower" => Self::Kernel,
            _ => Self::OtherLayer,
        }
    }

    /// For users; also the key in reports and manifests.
    pub fn label(self) -> &'static str {
        match self {
            Self::Proc => "under /proc",
            Self::MagicLink => "link of /proc that is not followed",
            Self::Sys => "under /sys",
            Self::Dev => "under /dev",
            Self::Outside => "outside --root",
            Self::OtherMount => "file system that the workload mounted",
            Self::UnfollowedMount => "mount that is not followed",
            Self::OtherRoot => "request out of a chroot",
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::Device => "terminal or device",
            Self::NoFile => "descriptor without a file",
            Self::UnknownFd => "descriptor opened out of sight",
            Self::OutOfSight => "name made out of sight",
            Self::InFlight => "in flight at the end of the recording",
            Self::Unsupported => "call not replayed",
            Self::DeviceNode => "device node, see --device-nodes",
            Self::ForeignCause => "failed for a cause the target does not have",
            Self::PartlyReserved => "failed fallocate, which may have lengthened its file",
            Self::NoPath => "path unreadable",
            Self::LongPath => "path longer than the kernel takes",
            Self::NoValue => "value not recorded",
            Self::NeedsRoot => "change that needs root",
            Self::PrivilegedAttribute => "privileged attribute, see --set-ids",
            Self::TargetDirectory => "would change the target directory itself",
            Self::DirPosition => "position inside a directory",
            Self::NoMapping => "mapping made out of sight",
            Self::OtherUser => "refused to a user who is not recorded",
            Self::NameSpace => "would make name spaces",
            Self::MappedUser => "users of another user name space",
            Self::Snapshot => "snapshot that the target cannot have",
            Self::Impossible => "result that cannot be",
            Self::AfterExit => "after its thread's end",
            Self::Uring => "request to io_uring",
            Self::Aio => "request of Linux AIO",
            Self::Touch => "touch of mapped memory",
            Self::Message => "descriptor that a message brought",
            Self::Kernel => "by the kernel itself",
            Self::OtherLayer => "by another layer",
        }
    }

    /// Whether a recorded failure says nothing about names and files. Issued on the target, the operation might succeed
    /// and change what later operations find.
    pub fn foreign_cause(ret: i64) -> bool {
        const CAUSES: &[i32] = &[
            libc::EXDEV,
            libc::EROFS,
            libc::EBUSY,
            libc::ETXTBSY,
            libc::EMFILE,
            libc::ENFILE,
            libc::EINTR,
            libc::EAGAIN,
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EIO,
            libc::ENOMEM,
            libc::EFAULT,
            libc::ENOSYS,
            libc::EFBIG,
        ];
        // 512 and up: the kernel's internal codes for an interrupted call (restart).
        ret < 0 && (ret <= -512 || CAUSES.iter().any(|c| ret == -i64::from(*c)))
    }
}
