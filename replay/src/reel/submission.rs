//! How operations reached the kernel: by calls, or as requests that are submitted and end later.

use crate::Call;

/// By what means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Via {
    /// A system call.
    #[default]
    Call,
    /// A request to io_uring.
    Uring,
    /// A request of Linux AIO.
    Aio,
}

impl Via {
    /// Of a row with this source.
    pub fn of_source(source: &str) -> Self {
        match source {
            "io_uring" => Self::Uring,
            "aio" => Self::Aio,
            _ => Self::Call,
        }
    }

    /// As a number of two bits.
    pub(crate) fn bits(self) -> i64 {
        self as i64
    }

    /// From [`Self::bits`].
    pub(crate) fn from_bits(bits: i64) -> Self {
        match bits & 3 {
            1 => Self::Uring,
            2 => Self::Aio,
            _ => Self::Call,
        }
    }

    /// The request with this name, as the call that does the same at a given position, or with `at_position` at the file's own;
    /// [`Call::Other`] when a replay does not make such requests.
    pub fn request(self, op: &str, at_position: bool) -> Call {
        match (self, Call::from_name(op)) {
            (
                Self::Aio,
                c @ (Call::Pread64 | Call::Pwrite64 | Call::Preadv | Call::Pwritev | Call::Fsync | Call::Fdatasync),
            ) => c,
            (Self::Uring, Call::Read) => {
                if at_position {
                    Call::Read
                } else {
                    Call::Pread64
                }
            }
            (Self::Uring, Call::Write) => {
                if at_position {
                    Call::Write
                } else {
                    Call::Pwrite64
                }
            }
            (Self::Uring, Call::Readv) => {
                if at_position {
                    Call::Readv
                } else {
                    Call::Preadv
                }
            }
            (Self::Uring, Call::Writev) => {
                if at_position {
                    Call::Writev
                } else {
                    Call::Pwritev
                }
            }
            // A request has flags, whatever it is called.
            (Self::Uring, Call::Renameat) => Call::Renameat2,
            (
                Self::Uring,
                c @ (Call::Fsync
                | Call::Fdatasync
                | Call::SyncFileRange
                | Call::Fallocate
                | Call::Ftruncate
                | Call::Fadvise64
                | Call::Openat
                | Call::Openat2
                | Call::Close
                | Call::Statx
                | Call::Unlinkat
                | Call::Mkdirat
                | Call::Symlinkat
                | Call::Linkat
                | Call::Setxattr
                | Call::Fsetxattr
                | Call::Getxattr
                | Call::Fgetxattr),
            ) => c,
            _ => Call::Other,
        }
    }
}

/// Bits of the reel's `sqe_flags`.
pub(crate) mod sqe {
    /// `fd` is a slot of the ring's table of files.
    pub(crate) const FIXED: i32 = 1;
    /// Begins when all before it have ended.
    pub(crate) const DRAIN: i32 = 2;
    /// The next begins when it has ended, unless it failed; also [`HARDLINK`], whatever its end.
    pub(crate) const LINK: i32 = 4;
    /// See [`LINK`].
    pub(crate) const HARDLINK: i32 = 8;
    /// Handed to a worker at once.
    pub(crate) const ASYNC: i32 = 16;
    /// Submitted by the ring's kernel thread.
    pub(crate) const BY_KERNEL: i32 = 2048;
    /// Refused as it was submitted, for how it was asked.
    pub(crate) const REFUSED: i32 = 4096;
    /// Opens into, or closes, a slot of the ring's table.
    pub(crate) const DIRECT: i32 = 32768;
}

/// Whether a call makes, uses or ends rings: replayed through the requests that it was about.
pub fn is_about_rings(op: &str) -> bool {
    matches!(
        op,
        "io_uring_setup"
            | "io_uring_enter"
            | "io_uring_register"
            | "io_setup"
            | "io_destroy"
            | "io_submit"
            | "io_getevents"
            | "io_pgetevents"
    )
}

/// Where in its life a record of a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Phase {
    /// An operation as a whole: a call.
    #[default]
    Whole,
    /// A request is submitted.
    Submitted,
    /// A request has ended.
    Ended,
    /// A call about rings is entered.
    Entered,
    /// A call about rings has returned.
    Returned,
}

impl Phase {
    /// As a number of three bits.
    pub(crate) fn bits(self) -> i64 {
        self as i64
    }

    /// From [`Self::bits`].
    pub(crate) fn from_bits(bits: i64) -> Self {
        [Self::Whole, Self::Submitted, Self::Ended, Self::Entered, Self::Returned]
            .get((bits & 7) as usize)
            .copied()
            .unwrap_or_default()
    }
}
