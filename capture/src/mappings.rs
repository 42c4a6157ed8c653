//! Which file lies where in a process's memory, as told by the calls that mapped it. Asked when the kernel's
//! own map could not be looked at because another thread was changing it. Blind to anonymous memory mapped
//! over a file, and to mremap.

use std::collections::{BTreeMap, HashMap};

use ioreel_bpf::types::file_id;

/// Mappings end on a page.
fn page_bytes() -> i64 {
    rustix::param::page_size() as i64
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    end: i64,
    file: file_id,
    /// When the call that mapped it returned.
    since_ns: u64,
    /// What lay at its start until then.
    instead_of: Option<file_id>,
}

/// Mapped files by process.
///
/// An address that one thread's call gives up may be another's before the first has returned. So a call only meets
/// what had been mapped when it was entered.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// By start, for each process id.
    processes: HashMap<i32, BTreeMap<i64, Mapped>>,
}

impl Mappings {
    /// `file` was mapped by a call that returned at `since_ns`.
    pub(crate) fn map(&mut self, pid: i32, start: i64, len_bytes: i64, file: file_id, since_ns: u64) {
        let instead_of = self.find(pid, start, u64::MAX);
        self.unmap(pid, start, len_bytes, u64::MAX);
        let mapped = Mapped { end: end_of(start, len_bytes), file, since_ns, instead_of };
        self.processes.entry(pid).or_default().insert(start, mapped);
    }

    /// Whatever lay there at `entered_ns` is gone.
    pub(crate) fn unmap(&mut self, pid: i32, start: i64, len_bytes: i64, entered_ns: u64) {
        let Some(mappings) = self.processes.get_mut(&pid) else { return };
        let end = end_of(start, len_bytes);
        let hit = |m: &Mapped| m.end > start && m.since_ns <= entered_ns;
        let hit: Vec<_> = mappings.range(..end).filter(|(_, m)| hit(m)).map(|(s, m)| (*s, *m)).collect();
        for (s, m) in hit {
            mappings.remove(&s);
            if s < start {
                mappings.insert(s, Mapped { end: start, ..m });
            }
            if m.end > end {
                mappings.insert(end, m);
            }
        }
    }

    /// The file that lay at this address at `entered_ns`.
    pub(crate) fn find(&self, pid: i32, address: i64, entered_ns: u64) -> Option<file_id> {
        let (_, m) = self.processes.get(&pid)?.range(..=address).next_back()?;
        match address < m.end {
            true if m.since_ns > entered_ns => m.instead_of,
            true => Some(m.file),
            false => None,
        }
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
        m.map(7, 0x10000, 0x3001, file(5), 1);
        m.unmap(7, 0x11000, 0x1000, 2);
        let at = |m: &Mappings, pid, address| m.find(pid, address, 9).map(|f| f.ino);
        assert_eq!(at(&m, 7, 0x10fff), Some(5));
        assert_eq!(at(&m, 7, 0x11000), None);
        assert_eq!(at(&m, 7, 0x13fff), Some(5), "a mapping ends on a page");
        assert_eq!(at(&m, 7, 0x14000), None);
        m.map(7, 0x12000, 0x1000, file(6), 3);
        assert_eq!(at(&m, 7, 0x12000), Some(6));
        m.fork(7, 8);
        m.forget(7);
        assert_eq!((at(&m, 7, 0x10000), at(&m, 8, 0x12000)), (None, Some(6)));
        assert_eq!(m.find(8, 0x10000, 9).unwrap().ino, 5);
    }

    #[test]
    fn an_address_may_be_given_again_before_its_owner_has_returned() {
        let mut m = Mappings::default();
        m.map(7, 0x10000, 0x2000, file(5), 10);
        // Entered at 20; another thread's call gets the address and returns first, at 30.
        m.map(7, 0x10000, 0x1000, file(6), 30);
        assert_eq!(m.find(7, 0x10000, 20).unwrap().ino, 5);
        m.unmap(7, 0x10000, 0x2000, 20);
        assert_eq!(m.find(7, 0x10000, 40).unwrap().ino, 6);
        assert!(m.find(7, 0x11000, 40).is_none());
    }
}
