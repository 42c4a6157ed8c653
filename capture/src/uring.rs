//! Requests to io_uring: what submission queue entries mean, and their rows.
//!
//! Fields are read from the entry as the program wrote it (`struct io_uring_sqe`,
//! include/uapi/linux/io_uring.h), by the opcode's meaning (io_uring/opdef.c).

use std::{
    collections::{HashMap, VecDeque},
    mem::offset_of,
};

use ioreel_bpf::types::{file_id, rec_hdr, rec_type, rec_uring, rec_uring_paths, rec_uring_ring, uring_flags};
use ioreel_traces::{
    Result, Text,
    rows::{Op, sqe_flags},
    text::Interner,
};

use crate::assemble::Assembler;

/// What the probes do for an opcode beyond counting it. Bits of [`UringOp::parts`].
mod part {
    /// Acts on the descriptor.
    pub(super) const FD: u8 = 1;
    /// The descriptor is a directory.
    pub(super) const DIR: u8 = 2;
    /// `addr` is a path or a name.
    pub(super) const PATH: u8 = 4;
    /// `addr2` is one too.
    pub(super) const PATH2: u8 = 8;
    /// `addr3` is a path, `addr` a name.
    pub(super) const PATH3: u8 = 16;
    /// `addr` is a vector of `len` buffers.
    pub(super) const VECTOR: u8 = 32;
    /// `splice_fd_in` is the source.
    pub(super) const SPLICE: u8 = 64;
    /// `len` is a second directory.
    pub(super) const DIR2: u8 = 128;
}
use part::{DIR, DIR2, FD, PATH, PATH2, PATH3, SPLICE, VECTOR};

/// One opcode that makes rows.
pub(crate) struct UringOp {
    opcode: u8,
    /// The system call that does the same.
    name: &'static str,
    parts: u8,
    modifies: bool,
    fill: fn(&Entry<'_>, &mut Op),
}

/// A submitted entry and what came of it.
struct Entry<'a> {
    rec: &'a rec_uring,
}

impl Entry<'_> {
    fn has(&self, flag: uring_flags) -> bool {
        self.rec.flags & flag.0 != 0
    }
    fn fd(&self) -> i32 {
        (self.rec.sqe[0] >> 32) as i32
    }
    fn off(&self) -> i64 {
        self.rec.sqe[1] as i64
    }
    fn addr(&self) -> i64 {
        self.rec.sqe[2] as i64
    }
    fn len(&self) -> u32 {
        self.rec.sqe[3] as u32
    }
    /// The field that each opcode uses for flags of its own.
    fn op_flags(&self) -> u32 {
        (self.rec.sqe[3] >> 32) as u32
    }
    fn user_data(&self) -> i64 {
        self.rec.sqe[4] as i64
    }
    fn buf_index(&self) -> i32 {
        i32::from(self.rec.sqe[5] as u16)
    }
    /// `splice_fd_in`, `file_index`.
    fn index(&self) -> u32 {
        (self.rec.sqe[5] >> 32) as u32
    }
    fn addr3(&self) -> i64 {
        self.rec.sqe[6] as i64
    }
    fn user_known(&self) -> bool {
        !self.has(uring_flags::URF_USER_FAULT)
    }
    fn second(&self) -> Option<(u64, file_id)> {
        let [ofd, ino, rest] = self.rec.extra;
        let id = file_id { ino, dev: rest as u32, generation: (rest >> 32) as u32 };
        self.has(uring_flags::URF_FILE2).then_some((ofd, id))
    }

    /// Where a read or write acted: at the offset given, unless that is -1 or the file appends.
    fn position(&self, writes: bool) -> Option<i64> {
        const RWF_APPEND: u32 = 0x10;
        let appends = writes && (self.has(uring_flags::URF_APPEND) || self.op_flags() & RWF_APPEND != 0);
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

/// The length that grew from 32 to 64 bits by taking another field (bb5f5efc7cd4, 6.10).
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
        // One more than the slot; all ones let the kernel choose.
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
        /// Every opcode that makes rows.
        const OPS: &[UringOp] = &[
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
        // The target is relative to nothing, the new name to the directory.
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

/// What the probes are told of opcodes: sets, one bit each.
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

/// The sets of [`OPS`].
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

/// A request found in flight when operations ended, as the record that its end would have sent; first its
/// submission. `rec` holds the record as far as it is made, its header empty.
pub(crate) fn in_flight(rec: &[u8]) -> (u64, Vec<u8>) {
    let mut bytes = rec.to_vec();
    let field = |at: usize| rec.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes);
    let start_ns = field(offset_of!(rec_uring, start_ns));
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let hdr = offset_of!(rec_uring, hdr);
    put(hdr + offset_of!(rec_hdr, end_ns), &start_ns.to_ne_bytes());
    put(hdr + offset_of!(rec_hdr, len_bytes), &(rec.len() as u32).to_ne_bytes());
    put(hdr + offset_of!(rec_hdr, r#type), &[rec_type::REC_URING.0 as u8]);
    (start_ns, bytes)
}

/// Paths waiting for their requests' ends; beyond, the oldest are given up.
const MAX_WAITING: usize = 1 << 20;

#[derive(Debug)]
struct Ring {
    since_ns: u64,
    id: i64,
}

/// A completion that its queue had no room for.
#[derive(Debug)]
struct Overflow {
    done_ns: u64,
    res: i32,
    flags: u32,
}

/// What is known of rings, and of requests not yet told of.
#[derive(Debug)]
pub(crate) struct Uring {
    names: Vec<Option<(&'static UringOp, Text)>>,
    source: Text,
    unreported: Text,
    /// Rings by address; addresses are used again.
    rings: HashMap<u64, Vec<Ring>>,
    /// The latest ring a task made: its call returns next.
    made: HashMap<u32, rec_uring_ring>,
    paths: HashMap<(u64, u64), (Option<Text>, Option<Text>)>,
    overflows: HashMap<(u64, u64), VecDeque<Overflow>>,
}

impl std::fmt::Debug for UringOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Default for Uring {
    fn default() -> Self {
        let mut names: Vec<_> = (0..64).map(|_| None).collect();
        for op in OPS {
            names[usize::from(op.opcode)] = Some((op, Text::from(op.name)));
        }
        Self {
            names,
            source: "io_uring".into(),
            unreported: "unreported".into(),
            rings: HashMap::new(),
            made: HashMap::new(),
            paths: HashMap::new(),
            overflows: HashMap::new(),
        }
    }
}

impl Uring {
    /// Takes the names that a request was submitted with.
    pub(crate) fn names(&mut self, rec: &rec_uring_paths, path: &[u8], path2: &[u8], texts: &mut Interner) {
        if self.paths.len() >= MAX_WAITING {
            self.paths.clear();
        }
        let mut text = |bytes: &[u8], fault: u8| (rec.fault & fault == 0).then(|| texts.get(bytes));
        self.paths.insert((rec.req, rec.start_ns), (text(path, 1), text(path2, 2)));
    }

    /// A completion found its queue full.
    pub(crate) fn overflowed(&mut self, rec: &rec_uring_ring) {
        self.overflows.entry((rec.ring, rec.user_data)).or_default().push_back(Overflow {
            done_ns: rec.hdr.end_ns,
            res: rec.fd,
            flags: rec.flags,
        });
    }

    /// The ring at this address at that time; `None` when none is known.
    fn ring_at(&self, address: u64, ns: u64) -> Option<i64> {
        let rings = self.rings.get(&address)?;
        rings.iter().rev().find(|r| r.since_ns <= ns).or(rings.first()).map(|r| r.id)
    }
}

impl Assembler {
    /// A ring was made.
    pub(crate) fn uring_ring(&mut self, rec: &rec_uring_ring) {
        let id = self.aio.new_ring();
        self.uring.rings.entry(rec.ring).or_default().push(Ring { since_ns: rec.hdr.end_ns, id });
        self.uring.made.insert(rec.task_id, *rec);
    }

    fn ring(&mut self, address: u64, ns: u64) -> i64 {
        match self.uring.ring_at(address, ns) {
            Some(id) => id,
            None => {
                // Made before the recording.
                let id = self.aio.new_ring();
                self.uring.rings.entry(address).or_default().push(Ring { since_ns: 0, id });
                id
            }
        }
    }

    /// Completes the row of a call on a ring. `address`: of the ring, 0 where the descriptor is none.
    pub(crate) fn uring_call(&mut self, op: &mut Op, task_id: u32, address: u64, end_ns: u64) {
        let failed = op.ret.is_some_and(|r| r < 0);
        if op.op == "io_uring_setup" {
            if let Some(made) = self.uring.made.remove(&task_id).filter(|_| !failed) {
                op.flags = Some(i64::from(made.flags));
                op.aux = Some(i64::from(made.sq_entries));
                op.aux2 = Some(i64::from(made.cq_entries));
                op.ring = self.uring.ring_at(made.ring, made.hdr.end_ns);
            }
        } else if address != 0 {
            // The descriptor of a call that failed may be anything.
            op.ring = if failed { self.uring.ring_at(address, end_ns) } else { Some(self.ring(address, end_ns)) };
        }
    }

    /// A request ended, or was in flight when the recording did.
    pub(crate) fn uring_request(&mut self, rec: &rec_uring, in_flight: bool) -> Result<()> {
        let opcode = rec.sqe[0] as u8;
        let Some((known, name)) =
            self.uring.names.get(usize::from(opcode)).and_then(|n| n.as_ref().map(|(o, t)| (*o, t.clone())))
        else {
            self.counts.strange += 1;
            return Ok(());
        };
        let mut rec = *rec;
        let mut bits = i32::from((rec.sqe[0] >> 8) as u8);
        let key = (rec.ring, rec.sqe[4]);
        let silent = in_flight || rec.flags & uring_flags::URF_SILENT.0 != 0;
        let mut done = (!silent || rec.done_ns != 0).then_some(rec.done_ns);
        if silent
            && done.is_none()
            && let Some(waiting) = self.uring.overflows.get_mut(&key)
            && let Some(at) = waiting.iter().position(|o| o.done_ns >= rec.start_ns)
            && let Some(overflow) = waiting.remove(at)
        {
            done = Some(overflow.done_ns);
            (rec.res, rec.cflags) = (overflow.res, overflow.flags);
            bits |= sqe_flags::OVERFLOWED;
            if waiting.is_empty() {
                self.uring.overflows.remove(&key);
            }
        }
        let cancelled = rec.flags & uring_flags::URF_CANCELLED.0 != 0;
        if silent && cancelled && done.is_some() && bits & sqe_flags::OVERFLOWED == 0 {
            rec.res = -libc::ECANCELED;
        }
        let quiet = bits & sqe_flags::CQE_SKIP_SUCCESS != 0;
        let (state, ret) = match done {
            Some(_) => (self.complete.clone(), Some(rec.res)),
            None if quiet || !in_flight => {
                let known = !in_flight && rec.flags & uring_flags::URF_RESULT.0 != 0;
                (self.uring.unreported.clone(), known.then_some(rec.res))
            }
            None => (self.in_flight.clone(), None),
        };
        if ret.is_none() {
            rec.res = -1;
        }
        for (flag, bit) in [
            (uring_flags::URF_PUNTED, sqe_flags::PUNTED),
            (uring_flags::URF_POLLED, sqe_flags::POLLED),
            (uring_flags::URF_DEFERRED, sqe_flags::DEFERRED),
            (uring_flags::URF_SQPOLL, sqe_flags::SQPOLL),
            (uring_flags::URF_REFUSED, sqe_flags::REFUSED),
            (uring_flags::URF_LINKED, sqe_flags::LINKED),
            (uring_flags::URF_CHANGED, sqe_flags::CHANGED),
        ] {
            if rec.flags & flag.0 != 0 {
                bits |= bit;
            }
        }
        let e = Entry { rec: &rec };
        let start_ns = self.since(rec.start_ns);
        let mut op = Op {
            op_id: -1,
            start_ns,
            dur_ns: done.map_or(0, |d| self.since(d) - start_ns),
            cpu: i32::from(rec.hdr.cpu),
            task_id: i64::from(rec.task_id),
            op: name,
            source: self.uring.source.clone(),
            state,
            ret: ret.map(i64::from),
            ring: Some(self.ring(rec.ring, rec.start_ns)),
            user_data: Some(e.user_data()),
            sqe_flags: Some(bits),
            buf_index: (bits & sqe_flags::BUFFER_SELECT != 0).then(|| e.buf_index()),
            ..Op::default()
        };
        (op.pid, op.tid) = self.thread(rec.task_id);
        if known.parts & DIR != 0 {
            op.dirfd = Some(e.fd());
        } else if known.parts & FD != 0 || known.name == "close" {
            op.fd = Some(e.fd());
        }
        if rec.flags & uring_flags::URF_PATHS.0 != 0
            && let Some((path, path2)) = self.uring.paths.remove(&(rec.req, rec.start_ns))
        {
            op.path = path;
            op.path2 = path2.filter(|_| known.parts & (PATH2 | PATH3) != 0);
        }
        let opens = matches!(known.name, "openat" | "openat2");
        let mut file_systems = Vec::new();
        if e.has(uring_flags::URF_FILE) || e.has(uring_flags::URF_DIR) {
            let file = self.file_of(rec.file);
            op.file = Some(file.id);
            if e.has(uring_flags::URF_FILE) && rec.ofd != 0 {
                op.ofd = Some(if opens { self.new_ofd(rec.ofd, rec.file) } else { self.ofd_of(rec.ofd, rec.file) });
            }
            file_systems.push(file.sb_dev);
        }
        if let Some((ofd, id)) = e.second() {
            let file = self.file_of(id);
            op.file2 = Some(file.id);
            if known.parts & SPLICE != 0 && ofd != 0 {
                op.ofd2 = Some(self.ofd_of(ofd, id));
            }
            file_systems.push(file.sb_dev);
        }
        if known.parts & SPLICE != 0 {
            // The probe's first file is the destination.
            std::mem::swap(&mut op.file, &mut op.file2);
            std::mem::swap(&mut op.ofd, &mut op.ofd2);
        } else if opens && !e.has(uring_flags::URF_FILE) {
            // As of the call: the directory of an open stands second, also when nothing was opened.
            op.file2 = op.file.take();
        }
        (known.fill)(&e, &mut op);
        if op.file.is_some() && op.ofd.is_some() && !self.file_of(rec.file).seekable && known.parts & SPLICE == 0 {
            op.offset_bytes = None;
        }
        if ret.is_some_and(|r| r >= 0) || (ret.is_none() && quiet) {
            let modifies = known.modifies
                && (!opens || op.aux == Some(1) || op.flags.is_some_and(|f| f as i32 & libc::O_TRUNC != 0));
            self.changed.note(&op, modifies, &file_systems);
        }
        self.counts.ops += 1;
        self.last_ns = self.last_ns.max(op.start_ns + op.dur_ns);
        self.writer.ops.push(op)
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

    #[test]
    fn an_address_used_again_is_another_ring() {
        let mut u = Uring::default();
        u.rings.insert(64, vec![Ring { since_ns: 10, id: 1 }, Ring { since_ns: 50, id: 2 }]);
        assert_eq!((u.ring_at(64, 49), u.ring_at(64, 50), u.ring_at(65, 50)), (Some(1), Some(2), None));
    }
}
