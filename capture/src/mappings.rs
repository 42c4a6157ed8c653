//! Which file lies where in a process's memory, as told by the calls that mapped it. Asked when the kernel's
//! own map could not be looked at because another thread was changing it. Blind to anonymous memory mapped
//! over a file, and to mremap.

use std::collections::{BTreeMap, HashMap};

use ioreel_bpf::types::file_id;

/// Mappings end on a page.
fn page_bytes() -> i64 {
    rustix::param::page_size() as i64
}

/// Mapped files by process.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Start to end and file, for each process id.
    processes: HashMap<i32, BTreeMap<i64, (i64, file_id)>>,
}

impl Mappings {
    /// `file` was mapped.
    pub(crate) fn map(&mut self, pid: i32, start: i64, len_bytes: i64, file: file_id) {
        self.unmap(pid, start, len_bytes);
        self.processes.entry(pid).or_default().insert(start, (end_of(start, len_bytes), file));
    }

    /// Whatever lay there is gone.
    pub(crate) fn unmap(&mut self, pid: i32, start: i64, len_bytes: i64) {
        let Some(mappings) = self.processes.get_mut(&pid) else { return };
        let end = end_of(start, len_bytes);
        let hit: Vec<_> =
            mappings.range(..end).filter(|(_, (e, _))| *e > start).map(|(s, (e, file))| (*s, *e, *file)).collect();
        for (s, e, file) in hit {
            mappings.remove(&s);
            if s < start {
                mappings.insert(s, (start, file));
            }
            if e > end {
                mappings.insert(end, (e, file));
            }
        }
    }

    /// The file at this address.
    pub(crate) fn find(&self, pid: i32, address: i64) -> Option<file_id> {
        let (_, (end, file)) = self.processes.get(&pid)?.range(..=address).next_back()?;
        (address < *end).then_some(*file)
    }

    /// A child begins with what its parent has.
    pub(crate) fn fork(&mut self, parent: i32, child: i32) {
        if let Some(mappings) = self.processes.get(&parent).filter(|_| parent != child).cloned() {
            self.processes.insert(child, mappings);
        }
    }

    /// The process ended or runs another program.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.processes.remove(&pid);
    }
}

fn end_of(start: i64, len_bytes: i64) -> i64 {
    let page = page_bytes();
    start.saturating_add(len_bytes).saturating_add(page - 1) / page * page
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn file(ino: u64) -> file_id {
        file_id { ino, dev: 1, generation: 0 }
    }

    #[test]
    fn a_hole_leaves_both_ends() {
        let mut m = Mappings::default();
        m.map(7, 0x10000, 0x3001, file(5));
        m.unmap(7, 0x11000, 0x1000);
        let at = |m: &Mappings, pid, address| m.find(pid, address).map(|f| f.ino);
        assert_eq!(at(&m, 7, 0x10fff), Some(5));
        assert_eq!(at(&m, 7, 0x11000), None);
        assert_eq!(at(&m, 7, 0x13fff), Some(5), "a mapping ends on a page");
        assert_eq!(at(&m, 7, 0x14000), None);
        m.map(7, 0x12000, 0x1000, file(6));
        assert_eq!(at(&m, 7, 0x12000), Some(6));
        m.fork(7, 8);
        m.forget(7);
        assert_eq!((at(&m, 7, 0x10000), at(&m, 8, 0x12000)), (None, Some(6)));
        assert_eq!(m.find(8, 0x10000).unwrap().ino, 5);
    }
}
