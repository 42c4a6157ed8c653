//! Descriptors that adopted processes had when they were adopted. A process runs on while it is looked at, so the look
//! comes a moment too late; the operations recorded meanwhile tell what it missed: a descriptor closed before the look
//! was there, one made before it was not, and the first operation on a file says where its position stood.

use std::collections::{BTreeMap, HashMap, HashSet};

use ioreel_traces::rows::{Fd, Op};

/// A call that began before a look may end this much later and still say where the position stood.
const LATE_NS: i64 = 1_000_000_000;

/// The descriptor table of an adopted process, or of a thread that has its own.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<i32, Fd>,
    /// Descriptors made, or closed, since the adoption: what they are now is not from the start.
    changed: HashSet<i32>,
    /// The look has begun, or has ended at this moment.
    met: bool,
    looked_ns: Option<i64>,
}

/// Where a position stood.
#[derive(Clone, Copy, Debug)]
struct Stood {
    /// When that was.
    at_ns: i64,
    offset_bytes: i64,
}

/// A descriptor as an operation used it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// Its number; negative: none.
    pub(crate) fd: i32,
    /// Its open file description.
    pub(crate) ofd: i64,
    /// Its file.
    pub(crate) file: i64,
    /// Position on entry.
    pub(crate) offset_bytes: i64,
    /// Open flags as far as they are known.
    pub(crate) flags: i64,
}

/// Tables whose start is not settled yet; empty nearly always.
#[derive(Debug, Default)]
pub(crate) struct Start {
    tables: HashMap<i64, Table>,
    positions: HashMap<i64, Stood>,
}

impl Start {
    /// Nothing is to be noted.
    pub(crate) fn is_settled(&self) -> bool {
        self.tables.is_empty()
    }

    /// A task with a descriptor table of its own was adopted.
    pub(crate) fn adopted(&mut self, task: i64) {
        self.tables.insert(task, Table::default());
    }

    /// The task is being looked at.
    pub(crate) fn met(&mut self, task: i64) {
        if let Some(t) = self.tables.get_mut(&task) {
            t.met = true;
        }
    }

    /// An operation of a task that uses `owner`'s table ended. `makes`: its result is a new descriptor.
    pub(crate) fn note(&mut self, owner: i64, op: &Op, used: &[Used], makes: bool) {
        for u in used {
            let stood = Stood { at_ns: op.start_ns, offset_bytes: u.offset_bytes };
            let known = self.positions.entry(u.ofd).or_insert(stood);
            if op.start_ns < known.at_ns {
                *known = stood;
            }
        }
        let Some(table) = self.tables.get_mut(&owner).filter(|t| t.looked_ns.is_none()) else { return };
        for u in used.iter().filter(|u| u.fd >= 0 && !table.changed.contains(&u.fd)) {
            table.rows.entry(u.fd).or_insert_with(|| Fd {
                task_id: owner,
                fd: u.fd,
                ofd: u.ofd,
                file: Some(u.file),
                offset_bytes: u.offset_bytes,
                flags: u.flags,
                cloexec: 0,
            });
        }
        let Some(ret) = op.ret.filter(|r| *r >= 0) else { return };
        if makes {
            table.changed.insert(ret as i32);
        }
        match &*op.op {
            "close" => table.changed.extend(op.fd),
            "dup2" | "dup3" => table.changed.extend(op.fd2),
            _ => {}
        }
    }

    /// The look found this. Returns the row when it needs no more thought.
    pub(crate) fn found(&mut self, row: Fd, at_ns: i64) -> Option<Fd> {
        let Some(table) = self.tables.get_mut(&row.task_id) else { return Some(row) };
        self.positions.entry(row.ofd).or_insert(Stood { at_ns, offset_bytes: row.offset_bytes });
        match table.rows.get_mut(&row.fd) {
            Some(known) if known.ofd == row.ofd => (known.flags, known.cloexec) = (row.flags, row.cloexec),
            Some(_) => {}
            None if table.changed.contains(&row.fd) => {}
            None => {
                table.rows.insert(row.fd, row);
            }
        }
        None
    }

    /// The look at all tasks met has ended.
    pub(crate) fn looked(&mut self, at_ns: i64) {
        self.tables.values_mut().filter(|t| t.met && t.looked_ns.is_none()).for_each(|t| t.looked_ns = Some(at_ns));
    }

    /// Rows that are settled at `now_ns`; all, when the recording or their task has ended.
    pub(crate) fn settled(&mut self, now_ns: i64) -> Vec<Fd> {
        let done: Vec<i64> = self
            .tables
            .iter()
            .filter(|(_, t)| t.looked_ns.is_some_and(|at| now_ns.saturating_sub(at) > LATE_NS))
            .map(|(task, _)| *task)
            .collect();
        let mut rows: Vec<Fd> = done.into_iter().flat_map(|task| self.take(task)).collect();
        rows.sort_by_key(|r| (r.task_id, r.fd));
        rows
    }

    /// The rows of a task that ends.
    pub(crate) fn take(&mut self, task: i64) -> Vec<Fd> {
        let Some(table) = self.tables.remove(&task) else { return Vec::new() };
        let mut rows: Vec<Fd> = table.rows.into_values().collect();
        for row in &mut rows {
            if let Some(stood) = self.positions.get(&row.ofd) {
                row.offset_bytes = stood.offset_bytes;
            }
        }
        if self.tables.is_empty() {
            self.positions.clear();
        }
        rows
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> Vec<Fd> {
        let mut tasks: Vec<i64> = self.tables.keys().copied().collect();
        tasks.sort_unstable();
        tasks.into_iter().flat_map(|task| self.take(task)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(name: &str, start_ns: i64, fd: i32, ret: i64) -> Op {
        Op { op: name.into(), start_ns, fd: Some(fd), ret: Some(ret), ..Op::default() }
    }

    fn used(fd: i32, ofd: i64, offset_bytes: i64) -> Used {
        Used { fd, ofd, file: ofd, offset_bytes, flags: 0 }
    }

    fn row(fd: i32, ofd: i64, offset_bytes: i64) -> Fd {
        Fd { task_id: 1, fd, ofd, file: Some(ofd), offset_bytes, flags: 2, cloexec: 1 }
    }

    #[test]
    fn what_happened_before_the_look_is_undone() {
        let mut s = Start::default();
        s.adopted(1);
        s.note(1, &op("read", 10, 3, 5), &[used(3, 30, 100)], false);
        s.note(1, &op("close", 11, 4, 0), &[used(4, 40, 7)], false);
        s.note(1, &op("openat", 12, -100, 4), &[], true);
        s.note(1, &op("openat", 13, -100, 6), &[], true);
        s.met(1);
        // Position 105 after the read; 4 is another file by now, 6 is new.
        for found in [row(3, 30, 105), row(4, 41, 0), row(5, 50, 9), row(6, 60, 0)] {
            assert_eq!(s.found(found, 20), None);
        }
        s.looked(21);
        // Began before the look and ends after it.
        s.note(1, &op("read", 15, 5, 1), &[used(5, 50, 8)], false);
        s.note(1, &op("read", 30, 9, 1), &[used(9, 90, 0)], false);
        assert!(s.settled(22).is_empty());
        let rows = s.settled(LATE_NS + 22);
        let told: Vec<_> = rows.iter().map(|r| (r.fd, r.ofd, r.offset_bytes, r.flags)).collect();
        assert_eq!(told, [(3, 30, 100, 2), (4, 40, 7, 0), (5, 50, 8, 2)]);
        assert!(s.is_settled());
    }

    #[test]
    fn a_task_that_ends_before_the_look_keeps_what_it_used() {
        let mut s = Start::default();
        s.adopted(1);
        s.note(1, &op("write", 10, 3, 5), &[used(3, 30, 100)], false);
        assert_eq!(s.take(1).len(), 1);
        assert!(s.is_settled());
        assert_eq!(s.found(row(3, 30, 1), 20), Some(row(3, 30, 1)), "unknown tasks' rows pass");
    }
}
