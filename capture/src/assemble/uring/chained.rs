//! Descriptors of io_uring requests that wait for others (links, drains). The probes look them up at submission, but
//! the kernel does so when it executes the request; earlier requests may have opened or closed descriptors since.

use std::collections::HashMap;

use ioreel_bpf::types::{file_id, rec_uring, uring_flags};
use ioreel_traces::rows::sqe_flags;

use crate::calls::uring::{Entry, UringOp, part};

/// `SPLICE_F_FD_IN_FIXED`, include/uapi/linux/io_uring.h.
const SOURCE_IS_SLOT: u32 = 1 << 31;

/// Maximum number of changes remembered; beyond it, all are forgotten.
const MOST: usize = 1 << 14;

/// The table that a descriptor number refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Table {
    /// The files registered with a ring (its address).
    Ring(u64),
    /// The descriptors of a process.
    Process(i32),
}

/// An open file: address of its description, and the file.
type Opened = (u64, file_id);

/// Recent changes of descriptors by requests.
#[derive(Debug, Default)]
pub(super) struct Chained {
    /// Time of the change, and the file there now.
    changed: HashMap<(Table, i32), (u64, Option<Opened>)>,
}

impl Chained {
    /// Corrects the files in the record of a request that waited.
    pub(super) fn correct(&self, rec: &mut rec_uring, op: &UringOp, bits: i32, pid: i32) {
        let process = |fd| (Table::Process(pid), fd);
        let slot = |number| (Table::Ring(rec.ring), number);
        let e = Entry { rec };
        let (fd, index) = (e.fd(), e.index());
        let first = match op.name {
            "close" => Some(if index != 0 { slot(index as i32 - 1) } else { process(fd) }),
            _ if op.parts & (part::FD | part::DIR) == 0 => None,
            _ if bits & sqe_flags::FIXED_FILE != 0 => Some(slot(fd)),
            _ => Some(process(fd)),
        };
        let second = if op.parts & part::SPLICE != 0 {
            Some(if e.op_flags() & SOURCE_IS_SLOT != 0 { slot(index as i32) } else { process(index as i32) })
        } else if op.parts & part::DIR2 != 0 {
            Some(process(e.len() as i32))
        } else {
            None
        };
        let since = |at| self.changed.get(&at).filter(|(at_ns, _)| *at_ns > rec.start_ns).map(|(_, now)| *now);
        let (first, second) = (first.and_then(since), second.and_then(since));
        let opens = matches!(op.name, "openat" | "openat2");
        if let Some(now) = first {
            if opens && e.has(uring_flags::URF_FILE) {
                put_second(rec, now);
            } else if op.parts & part::DIR != 0 || op.name == "close" {
                let flag = if op.name == "close" { uring_flags::URF_FILE } else { uring_flags::URF_DIR };
                rec.flags &= !flag.0;
                if let Some((ofd, file)) = now {
                    (rec.ofd, rec.file) = (ofd, file);
                    rec.flags |= flag.0;
                }
            } else if now.is_none() {
                // Otherwise the probes have seen the file that it used.
                rec.flags &= !uring_flags::URF_FILE.0;
            }
        }
        if let Some(now) = second {
            put_second(rec, now);
        }
    }

    /// Processes a successful request.
    pub(super) fn note(&mut self, rec: &rec_uring, op: &UringOp, pid: i32) {
        let e = Entry { rec };
        let (index, res) = (e.index(), rec.res);
        let at = match op.name {
            "close" if index == 0 => (Table::Process(pid), e.fd()),
            "openat" | "openat2" if index == 0 => (Table::Process(pid), res),
            "openat" | "openat2" if index == u32::MAX => (Table::Ring(rec.ring), res),
            "close" | "openat" | "openat2" => (Table::Ring(rec.ring), index as i32 - 1),
            "fixed_fd_install" => (Table::Process(pid), res),
            _ => return,
        };
        let opened = (op.name != "close" && e.has(uring_flags::URF_FILE)).then_some((rec.ofd, rec.file));
        if self.changed.len() >= MOST {
            self.changed.clear();
        }
        self.changed.insert(at, (rec.hdr.end_ns, opened));
    }
}

fn put_second(rec: &mut rec_uring, now: Option<Opened>) {
    rec.flags &= !uring_flags::URF_FILE2.0;
    if let Some((ofd, file)) = now {
        rec.extra = [ofd, file.ino, u64::from(file.dev) | u64::from(file.generation) << 32];
        rec.flags |= uring_flags::URF_FILE2.0;
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::calls::uring::OPS;

    fn rec(name: &str, start_ns: u64, end_ns: u64, fd: i32, index: u32, ino: u64) -> (rec_uring, &'static UringOp) {
        let op = OPS.iter().find(|o| o.name == name).unwrap();
        let mut rec = rec_uring { start_ns, ring: 64, ofd: ino, flags: uring_flags::URF_FILE.0, ..Default::default() };
        rec.hdr.end_ns = end_ns;
        rec.file.ino = ino;
        rec.sqe[0] = u64::from(fd as u32) << 32 | u64::from(op.opcode);
        rec.sqe[5] = u64::from(index) << 32;
        (rec, op)
    }

    #[test]
    fn a_chain_closes_what_it_has_opened() {
        let mut chained = Chained::default();
        let (open, op) = rec("openat", 10, 20, -100, 1, 5);
        chained.note(&open, op, 7);
        // Slot 0 held file 4 when all were submitted.
        let (mut close, op) = rec("close", 10, 30, 0, 1, 4);
        chained.correct(&mut close, op, 0, 7);
        assert_eq!((close.file.ino, close.ofd), (5, 5));
        chained.note(&close, op, 7);
        let (mut read, op) = rec("read", 10, 40, 0, 0, 4);
        chained.correct(&mut read, op, sqe_flags::FIXED_FILE, 7);
        assert_eq!(read.flags, 0, "nothing is there any more");
        let (mut later, op) = rec("close", 50, 60, 0, 1, 6);
        chained.correct(&mut later, op, 0, 7);
        assert_eq!(later.file.ino, 6, "the probes looked after the change");
    }

    #[test]
    fn a_folder_is_the_one_that_has_the_number_by_then() {
        let mut chained = Chained::default();
        let (close, op) = rec("close", 10, 20, 5, 0, 4);
        chained.note(&close, op, 7);
        let (mut open, op) = rec("openat", 10, 30, -100, 0, 9);
        open.res = 5;
        chained.note(&open, op, 7);
        let (mut make, op) = rec("mkdirat", 10, 40, 5, 0, 4);
        make.flags = uring_flags::URF_DIR.0;
        chained.correct(&mut make, op, 0, 7);
        assert_eq!((make.file.ino, make.flags), (9, uring_flags::URF_DIR.0));
        let (mut file, op) = rec("openat", 10, 50, 5, 0, 11);
        chained.correct(&mut file, op, 0, 7);
        assert_eq!((file.file.ino, file.extra[1]), (11, 9));
        let (mut elsewhere, op) = rec("mkdirat", 10, 40, 5, 0, 4);
        chained.correct(&mut elsewhere, op, 0, 8);
        assert_eq!(elsewhere.file.ino, 4, "another process's");
    }
}
