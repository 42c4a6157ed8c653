//! io_uring: rings, state of requests that have not ended, and their rows.

mod chained;

use std::collections::{HashMap, VecDeque};

use ioreel_bpf::types::{rec_uring, rec_uring_paths, rec_uring_ring, uring_flags};
use ioreel_traces::{
    Result, Text,
    rows::{Op, sqe_flags},
    text::Interner,
};

use rustc_hash::FxHashMap;

use crate::assemble::Assembler;
use crate::calls::uring::{Entry, OPS, UringOp, part};
use chained::Chained;

/// Maximum number of requests whose paths are held; beyond it, all are dropped.
const MAX_WAITING: usize = 1 << 20;

/// Number of rings remembered per address.
const SUCCESSIVE_RINGS: usize = 8;

#[derive(Debug)]
struct Ring {
    since_ns: u64,
    id: i64,
}

/// A completion that overflowed its queue.
#[derive(Debug)]
struct Overflow {
    done_ns: u64,
    res: i32,
    flags: u32,
}

/// Overflowed completions of the requests of one ring with the same `user_data`.
#[derive(Debug, Default)]
struct Overflows {
    waiting: VecDeque<Overflow>,
    /// They differ, so it is unknown which belongs to which request.
    mixed: bool,
}

/// Rings, and requests that have not ended.
#[derive(Debug)]
pub(crate) struct Uring {
    names: Vec<Option<(&'static UringOp, Text)>>,
    source: Text,
    unreported: Text,
    /// Rings by address. Addresses are reused.
    rings: FxHashMap<u64, Vec<Ring>>,
    /// The ring that a task created last; its io_uring_setup returns next.
    made: HashMap<u32, rec_uring_ring>,
    paths: HashMap<(u64, u64), (Option<Text>, Option<Text>)>,
    overflows: HashMap<(u64, u64), Overflows>,
    chained: Chained,
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
            rings: FxHashMap::default(),
            made: HashMap::new(),
            paths: HashMap::new(),
            overflows: HashMap::new(),
            chained: Chained::default(),
        }
    }
}

impl Uring {
    /// Holds the paths that a request was submitted with.
    pub(crate) fn names(&mut self, rec: &rec_uring_paths, path: &[u8], path2: &[u8], texts: &mut Interner) {
        if self.paths.len() >= MAX_WAITING {
            self.paths.clear();
        }
        let mut text = |bytes: &[u8], fault: u8| (rec.fault & fault == 0).then(|| texts.get(bytes));
        self.paths.insert((rec.req, rec.start_ns), (text(path, 1), text(path2, 2)));
    }

    /// A completion overflowed its queue.
    pub(crate) fn overflowed(&mut self, rec: &rec_uring_ring) {
        let all = self.overflows.entry((rec.ring, rec.user_data)).or_default();
        all.mixed |= all.waiting.back().is_some_and(|o| (o.res, o.flags) != (rec.fd, rec.flags));
        all.waiting.push_back(Overflow { done_ns: rec.hdr.end_ns, res: rec.fd, flags: rec.flags });
    }

    /// The ring at this address at that time; `None` if unknown.
    fn ring_at(&self, address: u64, ns: u64) -> Option<i64> {
        let rings = self.rings.get(&address)?;
        rings.iter().rev().find(|r| r.since_ns <= ns).or(rings.first()).map(|r| r.id)
    }
}

impl Assembler {
    /// A ring was created.
    pub(crate) fn uring_ring(&mut self, rec: &rec_uring_ring) {
        let id = self.aio.new_ring();
        let here = self.uring.rings.entry(rec.ring).or_default();
        // Records of requests of older rings have all arrived by now.
        if here.len() == SUCCESSIVE_RINGS {
            here.remove(0);
        }
        here.push(Ring { since_ns: rec.hdr.end_ns, id });
        self.uring.made.insert(rec.task_id, *rec);
    }

    fn ring(&mut self, address: u64, ns: u64) -> i64 {
        match self.uring.ring_at(address, ns) {
            Some(id) => id,
            None => {
                // Created before the recording.
                let id = self.aio.new_ring();
                self.uring.rings.entry(address).or_default().push(Ring { since_ns: 0, id });
                id
            }
        }
    }

    /// Completes the row of a call on a ring. `address`: that of the ring; 0 if the descriptor is not a ring.
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
            // If the call failed, the descriptor may be anything.
            op.ring = if failed { self.uring.ring_at(address, end_ns) } else { Some(self.ring(address, end_ns)) };
        }
    }

    /// Makes the row of a request that ended, or was in flight at the end of the recording.
    ///
    /// Long because the row is filled in sequence: later columns depend on earlier ones.
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
        let quiet = bits & sqe_flags::CQE_SKIP_SUCCESS != 0;
        // It completed, but which of several results is its own is unknown.
        let mut unsure = false;
        let silent = in_flight || rec.flags & uring_flags::URF_SILENT.0 != 0;
        let mut done = (!silent || rec.done_ns != 0).then_some(rec.done_ns);
        if silent
            && done.is_none()
            && let Some(Overflows { waiting, mixed }) = self.uring.overflows.get_mut(&key)
            // Unless there is only success, which this request does not report.
            && let Some(at) = waiting.iter().position(|o| o.done_ns >= rec.start_ns && !(quiet && !*mixed && o.res >= 0))
            && let Some(overflow) = waiting.remove(at)
        {
            if *mixed {
                unsure = true;
            } else {
                done = Some(overflow.done_ns);
                (rec.res, rec.cflags) = (overflow.res, overflow.flags);
            }
            bits |= sqe_flags::OVERFLOWED;
            if waiting.is_empty() {
                self.uring.overflows.remove(&key);
            }
        }
        let cancelled = rec.flags & uring_flags::URF_CANCELLED.0 != 0;
        if silent && cancelled && done.is_some() && bits & sqe_flags::OVERFLOWED == 0 {
            rec.res = -libc::ECANCELED;
        }
        let (state, ret) = match done {
            Some(_) => (self.complete.clone(), Some(rec.res)),
            None if quiet || unsure || !in_flight => {
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
        let (pid, tid) = self.thread(rec.task_id);
        if bits & (sqe_flags::LINKED | sqe_flags::DRAIN) != 0 && !in_flight {
            self.uring.chained.correct(&mut rec, known, bits, pid);
        }
        if ret.is_some_and(|r| r >= 0) {
            self.uring.chained.note(&rec, known, pid);
        }
        let e = Entry { rec: &rec };
        let start_ns = self.since(rec.start_ns);
        let mut op = Op {
            op_id: -1,
            start_ns,
            dur_ns: done.map_or(0, |d| self.since(d) - start_ns),
            cpu: i32::from(rec.hdr.cpu),
            pid,
            tid,
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
        if known.parts & part::DIR != 0 {
            op.dirfd = Some(e.fd());
        } else if known.parts & part::FD != 0 || known.name == "close" {
            op.fd = Some(e.fd());
        }
        if rec.flags & uring_flags::URF_PATHS.0 != 0
            && let Some((path, path2)) = self.uring.paths.remove(&(rec.req, rec.start_ns))
        {
            op.path = path;
            op.path2 = path2.filter(|_| known.parts & (part::PATH2 | part::PATH3) != 0);
        }
        let opens = matches!(known.name, "openat" | "openat2");
        // One or two file systems; -1: none.
        let mut file_systems = [-1; 2];
        if e.has(uring_flags::URF_FILE) || e.has(uring_flags::URF_DIR) {
            let file = if opens && e.has(uring_flags::URF_CREATED) {
                self.made(rec.file, rec.hdr.end_ns)?
            } else {
                self.file_of(rec.file)
            };
            op.file = Some(file.id);
            if e.has(uring_flags::URF_FILE) && rec.ofd != 0 {
                // A request holds its file until it ends, and may have got it long after submission.
                op.ofd = Some(if opens {
                    self.new_ofd(rec.ofd, rec.file, op.start_ns)
                } else {
                    self.ofd_of(rec.ofd, rec.file, self.since(rec.hdr.end_ns))
                });
            }
            file_systems[0] = file.sb_dev;
        }
        if let Some((ofd, id)) = e.second() {
            let file = self.file_of(id);
            op.file2 = Some(file.id);
            if known.parts & part::SPLICE != 0 && ofd != 0 {
                op.ofd2 = Some(self.ofd_of(ofd, id, self.since(rec.hdr.end_ns)));
            }
            file_systems[1] = file.sb_dev;
        }
        if known.parts & part::SPLICE != 0 {
            // The first file of the probes is the destination.
            std::mem::swap(&mut op.file, &mut op.file2);
            std::mem::swap(&mut op.ofd, &mut op.ofd2);
        } else if opens && !e.has(uring_flags::URF_FILE) {
            // As in the row of the call: the directory of an open is the second file, also if the open failed.
            op.file2 = op.file.take();
        }
        (known.fill)(&e, &mut op);
        if op.file.is_some() && op.ofd.is_some() && !self.file_of(rec.file).seekable && known.parts & part::SPLICE == 0
        {
            op.offset_bytes = None;
        }
        if known.modifies && (ret.is_some_and(|r| r >= 0) || (ret.is_none() && quiet)) {
            let met: Vec<i64> = file_systems.into_iter().filter(|fs| *fs >= 0).collect();
            self.changed.note(&op, true, &met);
        }
        let has = |flag: uring_flags| rec.flags & flag.0 != 0;
        let content = has(uring_flags::URF_CONTENT).then_some((rec.task_id, rec.req));
        self.write_with_content(op, content, has(uring_flags::URF_OTHER_THREAD), has(uring_flags::URF_IO)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_used_again_is_another_ring() {
        let mut u = Uring::default();
        u.rings.insert(64, vec![Ring { since_ns: 10, id: 1 }, Ring { since_ns: 50, id: 2 }]);
        assert_eq!((u.ring_at(64, 49), u.ring_at(64, 50), u.ring_at(65, 50)), (Some(1), Some(2), None));
    }

    #[test]
    fn results_that_overflowed_are_told_apart_only_where_it_does_not_matter() {
        let mut u = Uring::default();
        let mut told = |ring, fd| u.overflowed(&rec_uring_ring { ring, user_data: 7, fd, ..Default::default() });
        [(1, 100), (1, 100), (2, 100), (2, 200)].into_iter().for_each(|(ring, fd)| told(ring, fd));
        assert!(!u.overflows[&(1, 7)].mixed && u.overflows[&(2, 7)].mixed);
    }
}
