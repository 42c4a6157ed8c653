//! The meaning of io_uring submission queue entries, by opcode.
//!
//! Fields come from the entry as the program wrote it (`struct io_uring_sqe`, include/uapi/linux/io_uring.h). Their
//! meaning per opcode is defined by io_uring/opdef.c.

use ioreel_bpf::types::{file_id, rec_uring, uring_flags};
use ioreel_traces::rows::{Op, sqe_flags};

use crate::calls::appends;

/// What the probes record for an opcode. Bits of [`UringOp::parts`].
pub(crate) mod part {
    /// The descriptor is the operand.
    pub(crate) const FD: u8 = 1;
    /// The descriptor is a directory that a path is relative to.
    pub(crate) const DIR: u8 = 2;
    /// `addr` points to a path or a name.
    pub(crate) const PATH: u8 = 4;
    /// `addr2` points to a path or a name.
    pub(crate) const PATH2: u8 = 8;
    /// `addr3` points to a path, and `addr` to a name.
    pub(crate) const PATH3: u8 = 16;
    /// `addr` points to a vector of `len` buffers.
    pub(crate) const VECTOR: u8 = 32;
    /// `splice_fd_in` is the source descriptor.
    pub(crate) const SPLICE: u8 = 64;
    /// `len` is a second directory.
    pub(crate) const DIR2: u8 = 128;
}
use part::{DIR, DIR2, FD, PATH, PATH2, PATH3, SPLICE, VECTOR};

/// An opcode that makes rows.
pub(crate) struct UringOp {
    pub(crate) opcode: u8,
    /// The equivalent system call.
    pub(crate) name: &'static str,
    pub(crate) parts: u8,
    pub(crate) modifies: bool,
    pub(crate) fill: fn(&Entry<'_>, &mut Op),
}

/// A submitted entry and its result.
pub(crate) struct Entry<'a> {
    pub(crate) rec: &'a rec_uring,
}

impl Entry<'_> {
    pub(crate) fn has(&self, flag: uring_flags) -> bool {
        self.rec.flags & flag.0 != 0
    }
    pub(crate) fn fd(&self) -> i32 {
        (self.rec.sqe[0] >> 32) as i32
    }
    pub(crate) fn off(&self) -> i64 {
        self.rec.sqe[1] as i64
    }
    pub(crate) fn addr(&self) -> i64 {
        self.rec.sqe[2] as i64
    }
    pub(crate) fn len(&self) -> u32 {
        self.rec.sqe[3] as u32
    }
    /// The field for opcode-specific flags.
    pub(crate) fn op_flags(&self) -> u32 {
        (self.rec.sqe[3] >> 32) as u32
    }
    pub(crate) fn user_data(&self) -> i64 {
        self.rec.sqe[4] as i64
    }
    pub(crate) fn buf_index(&self) -> i32 {
        i32::from(self.rec.sqe[5] as u16)
    }
    /// `splice_fd_in` or `file_index`.
    pub(crate) fn index(&self) -> u32 {
        (self.rec.sqe[5] >> 32) as u32
    }
    pub(crate) fn addr3(&self) -> i64 {
        self.rec.sqe[6] as i64
    }
    pub(crate) fn user_known(&self) -> bool {
        !self.has(uring_flags::URF_USER_FAULT)
    }
    pub(crate) fn second(&self) -> Option<(u64, file_id)> {
        let [ofd, ino, rest] = self.rec.extra;
        let id = file_id { ino, dev: rest as u32, generation: (rest >> 32) as u32 };
        self.has(uring_flags::URF_FILE2).then_some((ofd, id))
    }

    /// Offset of a read or write: the given one, unless it is -1 or the write appends.
    pub(crate) fn position(&self, writes: bool) -> Option<i64> {
        let appends = writes && appends(self.has(uring_flags::URF_APPEND), self.op_flags().into());
        if self.off() != -1 && !(appends && self.rec.res > 0) {
            return Some(self.off());
        }
        let at = self.rec.pos_after - i64::from(self.rec.res.max(0));
        (self.has(uring_flags::URF_CURRENT) && at >= 0).then_some(at)
    }
}

fn transfer(e: &Entry<'_>, op: &mut Op, writes: bool) {
    op.len_bytes = Some(i64::from(e.len()));
    op.offset_bytes = e.position(writes);
    op.flags = Some(i64::from(e.op_flags()));
    if e.off() == -1 {
        op.aux2 = Some(1);
    }
}

fn vector(e: &Entry<'_>, op: &mut Op, writes: bool) {
    transfer(e, op, writes);
    op.len_bytes = e.user_known().then_some(e.rec.extra[0] as i64);
    op.aux = Some(i64::from(e.len()));
}

fn fixed(e: &Entry<'_>, op: &mut Op) {
    op.buf_index = Some(e.buf_index());
    add(op, sqe_flags::FIXED_BUFFER);
}

fn add(op: &mut Op, bit: i32) {
    op.sqe_flags = Some(op.sqe_flags.unwrap_or(0) | bit);
}

fn range(e: &Entry<'_>, op: &mut Op) {
    op.offset_bytes = Some(e.off());
    op.len_bytes = Some(i64::from(e.len()));
}

/// A length that grew from 32 to 64 bits by moving to another field (commit bb5f5efc7cd4, Linux 6.10).
fn long_range(op: &mut Op, at: i64, long: i64, short: u32) {
    op.offset_bytes = Some(at);
    op.len_bytes = Some(if long != 0 { long } else { i64::from(short) });
}

fn opened(e: &Entry<'_>, op: &mut Op, flags: i64, mode: i64) {
    op.flags = Some(flags);
    if flags as i32 & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0 {
        op.mode = Some(mode as i32);
    }
    if e.rec.res >= 0 {
        let nameless = flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        op.aux = Some(i64::from(nameless || e.has(uring_flags::URF_CREATED)));
    }
    if e.index() != 0 {
        // The field holds the slot plus 1; all ones let the kernel choose a slot.
        op.fd2 = Some(if e.index() == u32::MAX { -1 } else { (e.index() - 1) as i32 });
        add(op, sqe_flags::DIRECT);
    }
}

fn spliced(e: &Entry<'_>, op: &mut Op) {
    op.fd = Some(e.index() as i32);
    op.fd2 = Some(e.fd());
    op.len_bytes = Some(i64::from(e.len()));
    op.flags = Some(i64::from(e.op_flags()));
}

fn attribute(e: &Entry<'_>, op: &mut Op) {
    op.len_bytes = Some(i64::from(e.len()));
    op.flags = Some(i64::from(e.op_flags()));
}

macro_rules! uring_ops {
    ($( $opcode:literal $name:literal $parts:expr, $modifies:literal, $fill:expr; )*) => {
        /// All opcodes that make rows.
        pub(crate) const OPS: &[UringOp] = &[
            $( UringOp { opcode: $opcode, name: $name, parts: $parts, modifies: $modifies, fill: $fill }, )*
        ];
    };
}

#[rustfmt::skip]
uring_ops! {
    1 "readv" FD | VECTOR, false, |e, op| vector(e, op, false);
    2 "writev" FD | VECTOR, true, |e, op| vector(e, op, true);
    3 "fsync" FD, false, |e, op| {
        op.flags = Some(i64::from(e.op_flags()));
        if e.op_flags() & 1 != 0 {
            op.op = "fdatasync".into();
        }
        if e.off() != 0 || e.len() != 0 {
            range(e, op);
        }
    };
    4 "read" FD, false, |e, op| { transfer(e, op, false); fixed(e, op); };
    5 "write" FD, true, |e, op| { transfer(e, op, true); fixed(e, op); };
    8 "sync_file_range" FD, false, |e, op| {
        range(e, op);
        op.flags = Some(i64::from(e.op_flags()));
    };
    17 "fallocate" FD, true, |e, op| {
        op.mode = Some(e.len() as i32);
        op.offset_bytes = Some(e.off());
        op.len_bytes = Some(e.addr());
    };
    18 "openat" DIR | PATH, true, |e, op| opened(e, op, i64::from(e.op_flags() as i32), i64::from(e.len()));
    19 "close" 0, false, |e, op| {
        if e.index() != 0 {
            op.fd = Some((e.index() - 1) as i32);
            add(op, sqe_flags::DIRECT);
        }
    };
    21 "statx" DIR | PATH, false, |e, op| {
        op.flags = Some(i64::from(e.op_flags()));
        op.aux = Some(i64::from(e.len()));
        if e.rec.res == 0 && e.user_known() && !e.has(uring_flags::URF_SILENT) {
            op.mode = Some(e.rec.extra[0] as i32);
            op.len_bytes = Some(e.rec.extra[1] as i64);
        }
    };
    22 "read" FD, false, |e, op| transfer(e, op, false);
    23 "write" FD, true, |e, op| transfer(e, op, true);
    24 "fadvise64" FD, false, |e, op| {
        long_range(op, e.off(), e.addr(), e.len());
        op.flags = Some(i64::from(e.op_flags()));
    };
    25 "madvise" 0, false, |e, op| {
        long_range(op, 0, e.off(), e.len());
        op.offset_bytes = None;
        op.aux = Some(e.addr());
        op.flags = Some(i64::from(e.op_flags()));
    };
    28 "openat2" DIR | PATH, true, |e, op| {
        if e.user_known() {
            opened(e, op, e.off(), e.addr());
            op.aux2 = Some(e.addr3());
        }
    };
    30 "splice" FD | SPLICE, true, |e, op| {
        spliced(e, op);
        op.offset_bytes = (e.addr() != -1).then(|| e.addr());
        op.offset2_bytes = (e.off() != -1).then(|| e.off());
        op.aux = Some(i64::from(e.addr() == -1) | i64::from(e.off() == -1) << 1);
    };
    33 "tee" FD | SPLICE, false, spliced;
    35 "renameat" DIR | DIR2 | PATH | PATH2, true, |e, op| {
        op.dirfd2 = Some(e.len() as i32);
        op.flags = Some(i64::from(e.op_flags()));
    };
    36 "unlinkat" DIR | PATH, true, |e, op| op.flags = Some(i64::from(e.op_flags()));
    37 "mkdirat" DIR | PATH, true, |e, op| op.mode = Some(e.len() as i32);
    38 "symlinkat" DIR | PATH | PATH2, true, |_, op| {
        // The target of the link is relative to nothing; the new name is relative to the directory.
        op.dirfd2 = op.dirfd.take();
        op.file2 = op.file.take();
    };
    39 "linkat" DIR | DIR2 | PATH | PATH2, true, |e, op| {
        op.dirfd2 = Some(e.len() as i32);
        op.flags = Some(i64::from(e.op_flags()));
    };
    41 "fsetxattr" FD | PATH, true, |e, op| { op.name = op.path.take(); attribute(e, op); };
    42 "setxattr" PATH3, true, |e, op| { op.name = op.path2.take(); attribute(e, op); };
    43 "fgetxattr" FD | PATH, false, |e, op| { op.name = op.path.take(); attribute(e, op); };
    44 "getxattr" PATH3, false, |e, op| { op.name = op.path2.take(); attribute(e, op); };
    49 "read" FD, false, |e, op| { transfer(e, op, false); add(op, sqe_flags::MULTISHOT); };
    54 "fixed_fd_install" FD, false, |e, op| op.flags = Some(i64::from(e.op_flags()));
    55 "ftruncate" FD, true, |e, op| op.len_bytes = Some(e.off());
    60 "readv" FD | VECTOR, false, |e, op| { vector(e, op, false); fixed(e, op); };
    61 "writev" FD | VECTOR, true, |e, op| { vector(e, op, true); fixed(e, op); };
}

/// Sets of opcodes for the probes, one bit per opcode.
#[derive(Debug)]
pub(crate) struct Sets {
    pub(crate) rows: u64,
    pub(crate) fd: u64,
    pub(crate) dir: u64,
    pub(crate) path: u64,
    pub(crate) path2: u64,
    pub(crate) path3: u64,
    pub(crate) vector: u64,
    pub(crate) splice: u64,
    pub(crate) dir2: u64,
}

/// Computes the sets from [`OPS`].
pub(crate) fn sets() -> Sets {
    let of = |part: u8| OPS.iter().filter(|o| o.parts & part != 0).fold(0, |set, o| set | 1 << o.opcode);
    Sets {
        rows: OPS.iter().fold(0, |set, o| set | 1 << o.opcode),
        fd: of(FD),
        dir: of(DIR),
        path: of(PATH),
        path2: of(PATH2),
        path3: of(PATH3),
        vector: of(VECTOR),
        splice: of(SPLICE),
        dir2: of(DIR2),
    }
}

impl std::fmt::Debug for UringOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn entry() -> rec_uring {
        // SAFETY: plain integers throughout.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn every_opcode_stands_once() {
        let mut seen: Vec<u8> = OPS.iter().map(|o| o.opcode).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), OPS.len());
        assert_eq!(sets().rows.count_ones() as usize, OPS.len());
    }

    #[test]
    fn an_offset_of_minus_one_is_the_position_and_an_append_acts_at_the_end() {
        let mut rec = entry();
        rec.sqe[1] = u64::MAX;
        rec.res = 100;
        rec.pos_after = 600;
        rec.flags = uring_flags::URF_CURRENT.0;
        assert_eq!(Entry { rec: &rec }.position(false), Some(500));
        rec.sqe[1] = 7;
        assert_eq!(Entry { rec: &rec }.position(true), Some(7));
        rec.flags |= uring_flags::URF_APPEND.0;
        assert_eq!(Entry { rec: &rec }.position(true), Some(500));
        assert_eq!(Entry { rec: &rec }.position(false), Some(7), "reads do not append");
        rec.flags = 0;
        rec.sqe[1] = u64::MAX;
        assert_eq!(Entry { rec: &rec }.position(false), None, "not known while in flight");
    }

    #[test]
    fn a_direct_open_names_its_slot() {
        let mut rec = entry();
        rec.sqe[5] = 4 << 32;
        let mut op = Op::default();
        (OPS.iter().find(|o| o.name == "openat").unwrap().fill)(&Entry { rec: &rec }, &mut op);
        assert_eq!((op.fd2, op.sqe_flags), (Some(3), Some(sqe_flags::DIRECT)));
        rec.sqe[5] = u64::from(u32::MAX) << 32;
        (OPS.iter().find(|o| o.name == "openat").unwrap().fill)(&Entry { rec: &rec }, &mut op);
        assert_eq!(op.fd2, Some(-1), "the kernel chooses");
    }
}
