//! Open file descriptions, which the kernel tells by address.

use std::ops::Range;

use ioreel_bpf::types::file_id;
use ioreel_traces::rows::Op;

use super::{Assembler, FileKey};

/// An open file description.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) file: FileKey,
    pub(super) id: i64,
    /// See [`Moved`].
    pub(super) moved: Vec<Range<i64>>,
}

/// Ranges remembered per description: more than there can be waiting calls that matter.
const REMEMBERED_RANGES: usize = 8;

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

impl Assembler {
    pub(crate) fn new_ofd(&mut self, address: u64, file: file_id) -> i64 {
        self.next_ofd += 1;
        let gone = self.ofds.insert(address, Description { file: file.into(), id: self.next_ofd, moved: Vec::new() });
        if let (Some(sieve), Some(gone)) = (&mut self.sieve, gone) {
            sieve.forget(gone.id);
        }
        self.next_ofd
    }

    /// The description at this address; a new one when the address now belongs to another file.
    pub(crate) fn ofd_of(&mut self, address: u64, file: file_id) -> i64 {
        match self.ofds.get(&address) {
            Some(d) if d.file == file.into() => d.id,
            _ => self.new_ofd(address, file),
        }
    }
}
