//! Descriptors that adopted processes had at their adoption. The snapshot is taken slightly later, while the processes
//! run. Operations recorded in between correct it: a descriptor closed before the snapshot existed, one opened before
//! it did not, and the first operation on a file gives its initial position.

use std::collections::{BTreeMap, HashMap, HashSet};

use ioreel_traces::rows::{Fd, Op};

/// A call that started before the snapshot may end this much later and still give the initial position.
const LATE_NS: i64 = 1_000_000_000;

/// Descriptor table of an adopted process, or of a thread with its own table.
#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<i32, Fd>,
    /// Descriptors opened or closed since the adoption; their current state is not the initial one.
    changed: HashSet<i32>,
    /// The snapshot of this task has started; time when it ended.
    met: bool,
    looked_ns: Option<i64>,
}

/// A file position at some time.
#[derive(Clone, Copy, Debug)]
struct Stood {
    /// That time, ns since the start of the reel.
    at_ns: i64,
    offset_bytes: i64,
}

/// A descriptor used by an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// Number; negative: none.
    pub(crate) fd: i32,
    /// Open file description.
    pub(crate) ofd: i64,
    /// File.
    pub(crate) file: i64,
    /// Position at entry.
    pub(crate) offset_bytes: i64,
    /// Open flags, as far as known.
    pub(crate) flags: i64,
}

/// Tables whose initial state is not final yet; almost always empty.
#[derive(Debug, Default)]
pub(crate) struct Start {
    tables: HashMap<i64, Table>,
    positions: HashMap<i64, Stood>,
}

impl Start {
    /// Whether all tables are final.
    pub(crate) fn is_settled(&self) -> bool {
        self.tables.is_empty()
    }

    /// A task with its own descriptor table was adopted.
    pub(crate) fn adopted(&mut self, task: i64) {
        self.tables.insert(task, Table::default());
    }

    /// The snapshot of this task has started.
    pub(crate) fn met(&mut self, task: i64) {
        if let Some(t) = self.tables.get_mut(&task) {
            t.met = true;
        }
    }

    /// Processes an operation of a task that uses the table of `owner`. `makes`: its result is a new descriptor.
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

    /// Processes a descriptor of the snapshot. Returns the row if it is final.
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

    /// The snapshot of all tasks found so far has ended.
    pub(crate) fn looked(&mut self, at_ns: i64) {
        self.tables.values_mut().filter(|t| t.met && t.looked_ns.is_none()).for_each(|t| t.looked_ns = Some(at_ns));
    }

    /// Rows that are final at `now_ns`.
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

    /// Rows of a task that has ended.
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

    /// All remaining rows.
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
        // The position after the read is 105; descriptor 4 is another file by now, 6 is new.
        for found in [row(3, 30, 105), row(4, 41, 0), row(5, 50, 9), row(6, 60, 0)] {
            assert_eq!(s.found(found, 20), None);
        }
        s.looked(21);
        // Starts before the snapshot and ends after it.
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
