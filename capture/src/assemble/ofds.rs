//! Open file descriptions. The probes identify them by the kernel address of `struct file`, which is reused.

use std::ops::Range;

use ioreel_bpf::types::file_id;
use ioreel_traces::rows::Op;
use rustc_hash::FxHashMap;

use super::{Assembler, FileKey};

/// An open file description.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) file: FileKey,
    pub(super) id: i64,
    /// See [`Moved`].
    moved: Vec<Range<i64>>,
    /// Return times of these calls.
    moved_ns: Vec<i64>,
    /// When the call that opened it, or first used it, was entered, ns since the start of the reel. `i64::MIN` if the
    /// address was not used before.
    pub(super) opened_ns: i64,
    /// Earlier descriptions at this address, the latest last: file, id, `opened_ns`. A call may return after its
    /// description is gone and the address is used by another.
    before: Vec<(FileKey, i64, i64)>,
}

/// Ranges remembered per description; more concurrent calls than this do not matter.
const REMEMBERED_RANGES: usize = 8;
/// Earlier descriptions remembered per address: as many as other threads may open there while one is preempted inside a
/// call.
const REMEMBERED_OWNERS: usize = 8;

impl Description {
    /// Ranges used by calls that returned after a call was entered at `entered_ns`. Calls that returned earlier do not
    /// count: the file may have been truncated since, and an append may go to the same range again.
    pub(super) fn moved_since(&self, entered_ns: i64) -> &[Range<i64>] {
        &self.moved[self.moved_ns.partition_point(|at| *at <= entered_ns)..]
    }

    pub(super) fn note(&mut self, op: &Op, pos: (i64, i64)) {
        match (&*op.op, op.offset_bytes, op.ret) {
            ("lseek", ..) => {
                self.moved.clear();
                self.moved_ns.clear();
            }
            (_, Some(at), Some(n)) if n > 0 && pos.0 != pos.1 => {
                if self.moved.len() == REMEMBERED_RANGES {
                    self.moved.remove(0);
                    self.moved_ns.remove(0);
                }
                self.moved.push(at..at + n);
                self.moved_ns.push(op.start_ns + op.dur_ns);
            }
            _ => {}
        }
    }
}

/// Current descriptions, by address.
#[derive(Debug, Default)]
pub(super) struct Ofds {
    at: FxHashMap<u64, Description>,
    last_id: i64,
}

impl Ofds {
    /// The current description at this address, if it is of this file and existed when the call was entered.
    pub(super) fn get(&self, address: u64, file: file_id, entered_ns: i64) -> Option<&Description> {
        self.at.get(&address).filter(|d| d.file == file.into() && d.opened_ns <= entered_ns)
    }

    /// The description with this id, if it is still the current one.
    pub(super) fn get_mut(&mut self, address: u64, id: i64) -> Option<&mut Description> {
        self.at.get_mut(&address).filter(|d| d.id == id)
    }

    /// Adds a description. Also returns the id of one so old that hardly any call can still refer to it.
    fn opened(&mut self, address: u64, file: FileKey, opened_ns: i64) -> (i64, Option<i64>) {
        self.last_id += 1;
        let mut forgotten = None;
        let before = self.at.remove(&address).map_or_else(Vec::new, |mut d| {
            // The filter may still need the rows it holds for the description that has just gone. Those of the one
            // before it are forgotten.
            forgotten = d.before.last().map(|(_, id, _)| *id);
            if d.before.len() == REMEMBERED_OWNERS {
                d.before.remove(0);
            }
            d.before.push((d.file, d.id, d.opened_ns));
            d.before
        });
        self.at.insert(
            address,
            Description { file, id: self.last_id, moved: Vec::new(), moved_ns: Vec::new(), opened_ns, before },
        );
        (self.last_id, forgotten)
    }

    /// Adds a description whose opening was not seen.
    fn met(&mut self, address: u64, file: FileKey, entered_ns: i64) -> (i64, Option<i64>) {
        let is_known = self.at.contains_key(&address);
        self.opened(address, file, if is_known { entered_ns } else { i64::MIN })
    }

    /// The id of the description at this address when a call on this file was entered.
    fn find(&self, address: u64, file: FileKey, entered_ns: i64) -> Option<i64> {
        let d = self.at.get(&address)?;
        let then = |(_, _, opened_ns): &&(FileKey, i64, i64)| *opened_ns <= entered_ns;
        let before = (entered_ns < d.opened_ns).then(|| d.before.iter().rev().find(then)).flatten();
        before.filter(|(gone, ..)| *gone == file).map(|(_, id, _)| *id).or((d.file == file).then_some(d.id))
    }
}

impl Assembler {
    /// The id of a description opened by a call that was entered at `entered_ns` (ns since the start of the reel).
    pub(crate) fn new_ofd(&mut self, address: u64, file: file_id, entered_ns: i64) -> i64 {
        let made = self.ofds.opened(address, file.into(), entered_ns);
        self.made_ofd(made)
    }

    fn made_ofd(&mut self, (id, forgotten): (i64, Option<i64>)) -> i64 {
        if let (Some(sieve), Some(forgotten)) = (&mut self.sieve, forgotten) {
            sieve.forget(forgotten);
        }
        id
    }

    /// The id of the description at this address when a call on this file was entered. A new id if the address now
    /// belongs to another file.
    pub(crate) fn ofd_of(&mut self, address: u64, file: file_id, entered_ns: i64) -> i64 {
        if let Some(id) = self.ofds.find(address, file.into(), entered_ns) {
            return id;
        }
        let met = self.ofds.met(address, file.into(), entered_ns);
        self.made_ofd(met)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_may_return_after_its_description_is_gone() {
        let file = |ino| FileKey::from(file_id { ino, dev: 1, generation: 0 });
        let mut ofds = Ofds::default();
        let (first, _) = ofds.opened(0x1000, file(5), 10);
        // A read entered at 20, and the close. Before both have returned, another thread's open, entered at 30, gets
        // the address.
        let (second, _) = ofds.opened(0x1000, file(5), 30);
        assert_eq!(ofds.find(0x1000, file(5), 20), Some(first));
        assert_eq!(ofds.find(0x1000, file(5), 31), Some(second));
        assert!(ofds.get_mut(0x1000, first).is_none());
        let (third, _) = ofds.opened(0x1000, file(6), 40);
        assert_eq!((ofds.find(0x1000, file(5), 39), ofds.find(0x1000, file(6), 41)), (Some(second), Some(third)));
        assert_eq!(ofds.find(0x1000, file(5), 20), Some(first), "two owners ago");
        assert_eq!(ofds.find(0x1000, file(5), 41), None, "of another file");
        let forgotten: Vec<i64> = (0..1000).filter_map(|i| ofds.opened(0x1000, file(6), 50 + i).1).collect();
        assert_eq!((forgotten[0], forgotten.len()), (second, 1000));
        assert_eq!(ofds.at[&0x1000].before.len(), REMEMBERED_OWNERS);
    }

    #[test]
    fn a_pipe_may_have_the_address_of_what_is_being_closed() {
        let file = |ino| FileKey::from(file_id { ino, dev: 1, generation: 0 });
        let mut ofds = Ofds::default();
        let (closed, _) = ofds.met(0x1000, file(5), 10);
        // The close was entered at 20. A write to the pipe, entered at 25, returns first; a read entered at 22 returns
        // last.
        let (pipe, _) = ofds.met(0x1000, file(9), 25);
        assert_eq!(ofds.find(0x1000, file(5), 20), Some(closed));
        assert_eq!(ofds.find(0x1000, file(9), 22), Some(pipe));
    }
}
