//! Open descriptors of processes, following the operations of a recording; paths in proc refer to them.

use std::collections::{BTreeMap, HashMap};

use ioreel_traces::rows::{Fd, Op, sqe_flags};

/// Maximum number of descriptors remembered.
const MOST: usize = 1 << 20;

/// The file behind each descriptor of a process.
///
/// A descriptor that was closed or reused by something that is not recorded remains here. A later use through proc then
/// fails, or is an open, which reports its file.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    of: BTreeMap<(i32, i32), i64>,
    /// Descriptors that tasks had at the start, by task.
    given: HashMap<i64, Vec<(i32, i64)>>,
}

impl Descriptors {
    pub(super) fn given(fds: &[Fd]) -> Self {
        let mut given: HashMap<i64, Vec<(i32, i64)>> = HashMap::new();
        for fd in fds {
            if let Some(file) = fd.file {
                given.entry(fd.task_id).or_default().push((fd.fd, file));
            }
        }
        Self { of: BTreeMap::new(), given }
    }

    /// A process was created; it inherits the descriptors of its parent.
    pub(super) fn born(&mut self, task: i64, pid: i32, parent: Option<i32>) {
        self.ended(pid);
        let inherited = parent.into_iter().flat_map(|p| self.of.range((p, 0)..=(p, i32::MAX)));
        let mut all: Vec<(i32, i64)> = inherited.map(|((_, fd), file)| (*fd, *file)).collect();
        all.extend(self.given.remove(&task).unwrap_or_default());
        all.into_iter().for_each(|(fd, file)| self.set(pid, fd, Some(file)));
    }

    pub(super) fn ended(&mut self, pid: i32) {
        self.close(pid, 0, i32::MAX);
    }

    pub(super) fn get(&self, pid: i32, fd: i32) -> Option<i64> {
        self.of.get(&(pid, fd)).copied()
    }

    fn set(&mut self, pid: i32, fd: i32, file: Option<i64>) {
        match file {
            Some(file) if self.of.len() < MOST => self.of.insert((pid, fd), file),
            _ => self.of.remove(&(pid, fd)),
        };
    }

    fn close(&mut self, pid: i32, first: i32, last: i32) {
        while let Some((&found, _)) = self.of.range((pid, first)..=(pid, last.max(first))).next() {
            self.of.remove(&found);
        }
    }

    /// Processes a call.
    pub(super) fn take(&mut self, op: &Op) {
        // Slots of registered files are not descriptors.
        if op.sqe_flags.is_some_and(|f| f & (sqe_flags::FIXED_FILE | sqe_flags::DIRECT) != 0) {
            return;
        }
        let Some(ret) = op.ret.filter(|r| *r >= 0).and_then(|r| i32::try_from(r).ok()) else { return };
        match (&*op.op, op.fd) {
            ("close", Some(fd)) => self.set(op.pid, fd, None),
            ("close_range", Some(first)) => {
                // linux/close_range.h
                const CLOSE_RANGE_CLOEXEC: i64 = 4;
                if op.flags.unwrap_or(0) & CLOSE_RANGE_CLOEXEC == 0 {
                    let last = op.fd2.filter(|fd| *fd >= 0).unwrap_or(i32::MAX);
                    self.close(op.pid, first, last);
                }
            }
            ("fcntl", _) => {
                let command = op.flags.unwrap_or(0);
                if [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].iter().any(|dup| i64::from(*dup) == command) {
                    self.set(op.pid, ret, op.file);
                }
            }
            (
                "open" | "openat" | "openat2" | "creat" | "open_by_handle_at" | "open_tree" | "open_tree_attr"
                | "fsopen" | "fspick" | "fsmount" | "memfd_create" | "memfd_secret" | "io_uring_setup" | "dup" | "dup2"
                | "dup3" | "pidfd_getfd" | "scm_rights",
                _,
            ) => self.set(op.pid, ret, op.file),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_come_and_go() {
        let fd = |fd, file| Fd { fd, file: Some(file), ..Fd::default() };
        let mut d = Descriptors::given(&[fd(0, 5), fd(1, 6)]);
        let call = |op: &str, fd: Option<i32>, ret, file| Op {
            pid: 1,
            op: op.into(),
            fd,
            ret: Some(ret),
            file,
            ..Op::default()
        };
        d.born(0, 1, None);
        d.take(&call("openat", None, 3, Some(7)));
        d.take(&call("dup", Some(3), 4, Some(7)));
        d.born(1, 2, Some(1));
        d.take(&call("close", Some(3), 0, Some(7)));
        d.take(&call("openat", None, -2, None));
        // A pipe.
        d.take(&call("dup2", Some(9), 0, None));
        let of = |d: &Descriptors, pid| [0, 1, 3, 4].map(|fd| d.get(pid, fd));
        assert_eq!(of(&d, 1), [None, Some(6), None, Some(7)]);
        assert_eq!(of(&d, 2), [Some(5), Some(6), Some(7), Some(7)]);
        d.take(&Op { fd2: Some(-1), ..call("close_range", Some(2), 0, None) });
        assert_eq!(of(&d, 1), [None, Some(6), None, None]);
        d.ended(2);
        assert_eq!(d.of.len(), 1);
    }
}
