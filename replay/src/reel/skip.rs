//! Why a recorded operation is not issued again.

use crate::base::file_kind::Kind;

/// A reason to leave an operation out; counted and told before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Skip {
    /// Under /proc.
    Proc,
    /// Under /sys.
    Sys,
    /// Under /dev.
    Dev,
    /// Outside every `--root`.
    Outside,
    /// Within, by a request that can only name places below its thread's root, from another.
    OtherRoot,
    /// On a pipe or FIFO.
    Pipe,
    /// On a socket.
    Socket,
    /// On a character or block device.
    Device,
    /// On a descriptor that is no file: epoll, eventfd, …
    NoFile,
    /// On a descriptor whose opening is not in the reel.
    UnknownFd,
    /// On a name that something not recorded made: a socket, another process's file.
    OutOfSight,
    /// The recording stopped before it returned.
    InFlight,
    /// A call a replay does not know.
    Unsupported,
    /// Would make a device node.
    DeviceNode,
    /// It failed for a cause that the target does not have (another file system, read-only mount, signal, …).
    ForeignCause,
    /// It was given no readable path.
    NoPath,
    /// It sets an attribute whose value is not in the reel.
    NoValue,
    /// Changing an owner, or who a thread is, or setting some flags and attributes needs root.
    NeedsRoot,
    /// It sets, reads or removes an attribute that gives privileges, which is only done where the user asks for it.
    PrivilegedAttribute,
    /// It changes mode, owner, attributes or flags of the target directory.
    TargetDirectory,
    /// A position inside a directory means nothing on another file system.
    DirPosition,
    /// On a mapping that is not a replayed one (made before the recording, or inherited by fork).
    NoMapping,
    /// It was refused for lack of rights, to a task that was root when last heard of: it had become another user.
    OtherUser,
    /// It makes name spaces.
    NameSpace,
    /// It names users of a user name space that the replay does not make.
    MappedUser,
    /// No kernel gives such a result: a directory moved into itself.
    Impossible,
    /// Recorded after its thread's end.
    AfterExit,
    /// A request to io_uring that is none of those a replay makes.
    Uring,
    /// A request of Linux AIO.
    Aio,
    /// A touch of mapped memory.
    Touch,
    /// A descriptor that a message brought.
    Message,
    /// Of the kernel's own doing, or part of what is issued again anyhow.
    Kernel,
    /// Seen by something else than the calls, requests and touches that a replay makes.
    OtherLayer,
}

impl Skip {
    /// Why operations on a file of this kind are not replayed; `None` if they are.
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

    /// Why a row that is no system call is left out.
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

    /// For people, and key in reports and manifests.
    pub fn label(self) -> &'static str {
        match self {
            Self::Proc => "under /proc",
            Self::Sys => "under /sys",
            Self::Dev => "under /dev",
            Self::Outside => "outside --root",
            Self::OtherRoot => "request out of a chroot",
            Self::Pipe => "pipe",
            Self::Socket => "socket",
            Self::Device => "terminal or device",
            Self::NoFile => "descriptor without a file",
            Self::UnknownFd => "descriptor opened out of sight",
            Self::OutOfSight => "name made out of sight",
            Self::InFlight => "in flight at the end of the recording",
            Self::Unsupported => "call not replayed",
            Self::DeviceNode => "would make a device node",
            Self::ForeignCause => "failed for a cause the target does not have",
            Self::NoPath => "path unreadable",
            Self::NoValue => "value not recorded",
            Self::NeedsRoot => "change that needs root",
            Self::PrivilegedAttribute => "privileged attribute, see --set-ids",
            Self::TargetDirectory => "would change the target directory itself",
            Self::DirPosition => "position inside a directory",
            Self::NoMapping => "mapping made out of sight",
            Self::OtherUser => "refused to a user who is not recorded",
            Self::NameSpace => "would make name spaces",
            Self::MappedUser => "users of another user name space",
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

    /// Whether a recorded failure says nothing about names and files: issued on the target it might
    /// succeed there, and change what later operations find.
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
        // 512 and up: the kernel's own codes for a call that a signal interrupted.
        ret < 0 && (ret <= -512 || CAUSES.iter().any(|c| ret == -i64::from(*c)))
    }
}
