//! Open file descriptions, which the kernel tells by address.

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
    pub(super) moved: Vec<Range<i64>>,
    /// When the call that opened it was entered, ns of the reel; the least where it was open when it was first met.
    pub(super) opened_ns: i64,
    /// What had its address before, the latest last: a call may return when what it acted on is gone and another has the
    /// address. File, id, `opened_ns`.
    before: Vec<(FileKey, i64, i64)>,
}

/// Ranges remembered per description: more than there can be waiting calls that matter.
const REMEMBERED_RANGES: usize = 8;
/// Descriptions remembered that had an address before: as many as other threads can open there while one has lost its CPU.
const REMEMBERED_OWNERS: usize = 8;

impl Description {
    pub(super) fn note(&mut self, op: &Op, pos: (i64, i64)) {
        match (&*op.op, op.offset_bytes, op.ret) {
            ("lseek", ..) => self.moved.clear(),
            (_, Some(at), Some(n)) if n > 0 && pos.0 != pos.1 => {
                if self.moved.len() == REMEMBERED_RANGES {
                    self.moved.remove(0);
                }
                self.moved.push(at..at + n);
            }
            _ => {}
        }
    }
}

/// Descriptions by address.
#[derive(Debug, Default)]
pub(super) struct Ofds {
    at: FxHashMap<u64, Description>,
    last_id: i64,
}

impl Ofds {
    /// What is at this address now, if that is of this file and was there when a call was entered.
    pub(super) fn get(&self, address: u64, file: file_id, entered_ns: i64) -> Option<&Description> {
        self.at.get(&address).filter(|d| d.file == file.into() && d.opened_ns <= entered_ns)
    }

    /// The one with this id, if it is still there.
    pub(super) fn get_mut(&mut self, address: u64, id: i64) -> Option<&mut Description> {
        self.at.get_mut(&address).filter(|d| d.id == id)
    }

    /// A new one; whose place it takes.
    fn opened(&mut self, address: u64, file: FileKey, opened_ns: i64) -> (i64, Option<i64>) {
        self.last_id += 1;
        let gone = self.at.remove(&address);
        let gone_id = gone.as_ref().map(|d| d.id);
        let before = gone.map_or_else(Vec::new, |mut d| {
            if d.before.len() == REMEMBERED_OWNERS {
                d.before.remove(0);
            }
            d.before.push((d.file, d.id, d.opened_ns));
            d.before
        });
        self.at.insert(address, Description { file, id: self.last_id, moved: Vec::new(), opened_ns, before });
        (self.last_id, gone_id)
    }

    /// The id of what was at this address when a call on this file was entered.
    fn find(&self, address: u64, file: FileKey, entered_ns: i64) -> Option<i64> {
        let d = self.at.get(&address)?;
        let then = |(_, _, opened_ns): &&(FileKey, i64, i64)| *opened_ns <= entered_ns;
        let before = (entered_ns < d.opened_ns).then(|| d.before.iter().rev().find(then)).flatten();
        before.filter(|(gone, ..)| *gone == file).map(|(_, id, _)| *id).or((d.file == file).then_some(d.id))
    }
}

impl Assembler {
    /// A description that a call entered at `entered_ns`, ns of the reel, has opened.
    pub(crate) fn new_ofd(&mut self, address: u64, file: file_id, entered_ns: i64) -> i64 {
        let (id, gone) = self.ofds.opened(address, file.into(), entered_ns);
        if let (Some(sieve), Some(gone)) = (&mut self.sieve, gone) {
            sieve.forget(gone);
        }
        id
    }

    /// The description that was at this address when a call on this file was entered; a new one when the address now belongs to
    /// another file.
    pub(crate) fn ofd_of(&mut self, address: u64, file: file_id, entered_ns: i64) -> i64 {
        let known = self.ofds.find(address, file.into(), entered_ns);
        known.unwrap_or_else(|| self.new_ofd(address, file, i64::MIN))
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
        // A read entered at 20 and the close; before both have returned, another thread's open, entered at 30, has the address.
        let (second, gone) = ofds.opened(0x1000, file(5), 30);
        assert_eq!(gone, Some(first));
        assert_eq!(ofds.find(0x1000, file(5), 20), Some(first));
        assert_eq!(ofds.find(0x1000, file(5), 31), Some(second));
        assert!(ofds.get_mut(0x1000, first).is_none());
        let (third, _) = ofds.opened(0x1000, file(6), 40);
        assert_eq!((ofds.find(0x1000, file(5), 39), ofds.find(0x1000, file(6), 41)), (Some(second), Some(third)));
        assert_eq!(ofds.find(0x1000, file(5), 20), Some(first), "two owners ago");
        assert_eq!(ofds.find(0x1000, file(5), 41), None, "of another file");
        for i in 0..1000 {
            ofds.opened(0x1000, file(6), 50 + i);
        }
        assert_eq!(ofds.at[&0x1000].before.len(), REMEMBERED_OWNERS);
    }
}
