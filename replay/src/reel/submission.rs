//! How an operation reached the kernel: as a call, or as an asynchronous request (io_uring, Linux AIO).

use crate::Call;

/// The interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Via {
    /// A system call.
    #[default]
    Call,
    /// An io_uring request.
    Uring,
    /// A Linux AIO request.
    Aio,
}

impl Via {
    /// From column `source`.
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

    /// The system call that does the same as the request `op`: at an explicit position, or with `at_position` at the
    /// position of the open file description. [`Call::Other`] if a replay does not issue such requests.
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
            // A rename request always has flags, even under the name of `renameat`.
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

/// Bits of column `sqe_flags`.
pub(crate) mod sqe {
    /// `fd` is a slot of the ring's file table.
    pub(crate) const FIXED: i32 = 1;
    /// Starts when all earlier requests have ended.
    pub(crate) const DRAIN: i32 = 2;
    /// The next request starts when this one has ended, and is cancelled if it failed. [`HARDLINK`]: it starts in any
    /// case.
    pub(crate) const LINK: i32 = 4;
    /// See [`LINK`].
    pub(crate) const HARDLINK: i32 = 8;
    /// Handed to a kernel worker at once.
    pub(crate) const ASYNC: i32 = 16;
    /// Submitted by the ring's kernel thread (SQPOLL).
    pub(crate) const BY_KERNEL: i32 = 2048;
    /// Refused at submission because of its form.
    pub(crate) const REFUSED: i32 = 4096;
    /// Opens into, or closes, a slot of the ring's file table.
    pub(crate) const DIRECT: i32 = 32768;
}

/// Whether a call creates, uses or destroys rings or AIO contexts. Such calls are not replayed themselves, but through
/// their requests.
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

/// Which event of an operation a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Phase {
    /// A call from entry to return.
    #[default]
    Whole,
    /// The submission of a request.
    Submitted,
    /// The end of a request.
    Ended,
    /// The entry of a call about rings.
    Entered,
    /// The return of a call about rings.
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
