//! Which file is mapped where in a process, from the calls that mapped it. Used when the probes could not search the
//! kernel's own map because another thread was changing it. Anonymous memory mapped over a file is not known here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ioreel_bpf::types::file_id;

/// Mappings end at a page boundary.
fn page_bytes() -> i64 {
    rustix::param::page_size() as i64
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    end: i64,
    file: file_id,
    /// When the call that mapped it returned.
    since_ns: u64,
}

/// A mapping that was unmapped or replaced.
#[derive(Clone, Copy, Debug)]
struct Gone {
    start: i64,
    mapped: Mapped,
    /// When the call that unmapped it returned.
    until_ns: u64,
}

/// File mappings of a process.
#[derive(Debug, Default)]
struct Process {
    /// By start address.
    mapped: BTreeMap<i64, Mapped>,
    /// Recent former mappings, the latest last.
    gone: VecDeque<Gone>,
}

/// Former mappings kept: as many as other threads may unmap while one is preempted inside a call.
const MOST_GONE: usize = 256;

/// File mappings of all processes.
///
/// When a thread unmaps an address, other threads may map and unmap it again before the first call has returned. So a
/// call affects only what was mapped when it was entered.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// By process id.
    processes: HashMap<i32, Process>,
}

impl Mappings {
    /// A call that returned at `since_ns` mapped `file`.
    pub(crate) fn map(&mut self, pid: i32, start: i64, len_bytes: i64, file: file_id, since_ns: u64) {
        self.unmap(pid, start, len_bytes, (u64::MAX, since_ns));
        let mapped = Mapped { end: end_of(start, len_bytes), file, since_ns };
        self.processes.entry(pid).or_default().mapped.insert(start, mapped);
    }

    /// Removes what was mapped in this range when the call was entered.
    pub(crate) fn unmap(&mut self, pid: i32, start: i64, len_bytes: i64, (entered_ns, returned_ns): (u64, u64)) {
        let Some(Process { mapped, gone }) = self.processes.get_mut(&pid) else { return };
        let end = end_of(start, len_bytes);
        let hit = |m: &Mapped| m.end > start && m.since_ns <= entered_ns;
        let hit: Vec<_> = mapped.range(..end).filter(|(_, m)| hit(m)).map(|(s, m)| (*s, *m)).collect();
        for (s, m) in hit {
            mapped.remove(&s);
            if s < start {
                mapped.insert(s, Mapped { end: start, ..m });
            }
            if m.end > end {
                mapped.insert(end, m);
            }
            if gone.len() == MOST_GONE {
                gone.pop_front();
            }
            gone.push_back(Gone {
                start: s.max(start),
                mapped: Mapped { end: m.end.min(end), ..m },
                until_ns: returned_ns,
            });
        }
    }

    /// The file with the lowest address in this range among those mapped at `entered_ns`.
    pub(crate) fn find(&self, pid: i32, start: i64, len_bytes: i64, entered_ns: u64) -> Option<file_id> {
        let Process { mapped, gone } = self.processes.get(&pid)?;
        let end = end_of(start, len_bytes.max(1));
        let there = |m: &Mapped| start < m.end && m.since_ns <= entered_ns;
        let before = mapped.range(..=start).next_back().filter(|(_, m)| there(m));
        let now = before.or_else(|| mapped.range(start..end).find(|(_, m)| there(m)));
        let lay = |g: &&Gone| g.start < end && there(&g.mapped) && entered_ns < g.until_ns;
        // Of the former mappings with the lowest address, the latest.
        let then = gone.iter().rev().filter(lay).min_by_key(|g| g.start.max(start));
        let now = now.map(|(at, m)| (start.max(*at), m.file));
        let then = then.map(|g| (start.max(g.start), g.mapped.file));
        // Where both exist, the current mapping wins.
        now.into_iter().chain(then).min_by_key(|(at, _)| *at).map(|(_, file)| file)
    }

    /// A child process starts with the mappings of its parent.
    pub(crate) fn fork(&mut self, parent: i32, child: i32) {
        if let Some(process) = self.processes.get(&parent).filter(|_| parent != child) {
            let child_has = Process { mapped: process.mapped.clone(), gone: VecDeque::new() };
            self.processes.insert(child, child_has);
        }
    }

    /// The process has ended or called execve.
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
        m.unmap(7, 0x11000, 0x1000, (2, 2));
        let at = |m: &Mappings, pid, address| m.find(pid, address, 1, 9).map(|f| f.ino);
        assert_eq!(at(&m, 7, 0x10fff), Some(5));
        assert_eq!(at(&m, 7, 0x11000), None);
        assert_eq!(at(&m, 7, 0x13fff), Some(5), "a mapping ends on a page");
        assert_eq!(at(&m, 7, 0x14000), None);
        m.map(7, 0x12000, 0x1000, file(6), 3);
        assert_eq!(at(&m, 7, 0x12000), Some(6));
        m.fork(7, 8);
        m.forget(7);
        assert_eq!((at(&m, 7, 0x10000), at(&m, 8, 0x12000)), (None, Some(6)));
        assert_eq!(m.find(8, 0x10000, 1, 9).unwrap().ino, 5);
    }

    #[test]
    fn an_address_may_be_given_again_before_its_owner_has_returned() {
        let mut m = Mappings::default();
        m.map(7, 0x10000, 0x2000, file(5), 10);
        // Entered at 20. Another thread's call gets the address and returns first, at 30.
        m.map(7, 0x10000, 0x1000, file(6), 30);
        assert_eq!(m.find(7, 0x10000, 1, 20).unwrap().ino, 5);
        m.unmap(7, 0x10000, 0x2000, (20, 35));
        assert_eq!(m.find(7, 0x10000, 1, 40).unwrap().ino, 6);
        assert!(m.find(7, 0x11000, 1, 40).is_none());
    }

    #[test]
    fn the_first_file_of_a_range_is_found_behind_what_is_none() {
        let mut m = Mappings::default();
        m.map(7, 0x20000, 0x1000, file(5), 10);
        m.map(7, 0x30000, 0x1000, file(6), 10);
        let at = |m: &Mappings, start, len, ns| m.find(7, start, len, ns).map(|f| f.ino);
        assert_eq!((at(&m, 0x10000, 0x10000, 20), at(&m, 0x10000, 0x10001, 20)), (None, Some(5)));
        assert_eq!(at(&m, 0x21000, 0x20000, 20), Some(6));
        m.unmap(7, 0x20000, 0x1000, (30, 40));
        assert_eq!((at(&m, 0x10000, 0x30000, 35), at(&m, 0x10000, 0x30000, 50)), (Some(5), Some(6)));
    }

    #[test]
    fn it_may_be_given_twice() {
        let mut m = Mappings::default();
        m.map(7, 0x10000, 0x1000, file(5), 10);
        // Entered at 20. Two other threads map and unmap the address, one after the other.
        for (number, since_ns) in [(6, 30), (7, 40)] {
            m.map(7, 0x10000, 0x1000, file(number), since_ns);
            m.unmap(7, 0x10000, 0x1000, (since_ns + 1, since_ns + 2));
        }
        let at = |m: &Mappings, ns| m.find(7, 0x10000, 1, ns).map(|f| f.ino);
        assert_eq!((at(&m, 20), at(&m, 31), at(&m, 40), at(&m, 50)), (Some(5), Some(6), Some(7), None));
        m.unmap(7, 0x10000, 0x1000, (20, 60));
        assert_eq!(at(&m, 70), None);
        for i in 0..10_000 {
            m.map(7, 0x10000, 0x1000, file(8), 100 + i);
        }
        assert_eq!(m.processes[&7].gone.len(), MOST_GONE);
    }
}
