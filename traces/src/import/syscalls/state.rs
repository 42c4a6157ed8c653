//! State of threads, descriptors and file offsets, derived from the output.

use std::collections::HashMap;

use super::{
    Told,
    args::{self as line, End},
    calls::{self, Arg},
    names,
};
use crate::{
    ReelWriter, TableWriter, Text,
    format::{
        rows::{Exec, File, Op, Task},
        text,
    },
    import::{Result, paths::Paths},
    shared_map::SharedMap,
};

const O_APPEND: i64 = 0o2000;
const O_DIRECTORY: i64 = 0o200_000;
const CLONE_FILES: i64 = 0x400;
const CLONE_THREAD: i64 = 0x1_0000;
const CLONE_VM: i64 = 0x100;
const CLONE_VFORK: i64 = 0x4000;
/// Maximum number of unfinished calls: one per thread.
const MOST_PENDING: usize = 1 << 20;

/// An open file description.
#[derive(Debug)]
struct Open {
    position: Option<i64>,
    append: bool,
    /// The file it was last seen with.
    file: Option<i64>,
}

/// A thread. Its row is written when it exits.
struct Thread {
    row: Task,
    /// Index of its descriptor table.
    table: usize,
}

/// A descriptor table: open file descriptions by descriptor.
#[derive(Clone, Default)]
struct Table {
    fds: SharedMap<i64>,
    /// Number of threads that have it.
    users: u32,
}

pub(in crate::import) struct State<'a> {
    base_ns: i64,
    ops: &'a mut TableWriter<Op>,
    tasks: &'a mut TableWriter<Task>,
    execs: &'a mut TableWriter<Exec>,
    paths: Paths<'a>,
    threads: HashMap<i32, Thread>,
    /// Descriptor tables, each with its number of users: copies share memory, and a table without users is empty.
    tables: Vec<Table>,
    descriptions: HashMap<i64, Open>,
    next_ofd: i64,
    next_task: i64,
    /// Calls begun and not ended, by thread: start, name, arguments so far.
    pending: HashMap<i32, (i64, Vec<u8>, Vec<u8>)>,
    words: text::Interner,
    /// Whether a file or folder was renamed.
    renames: bool,
    /// Whether the text has no times, so that the time between two lines is no duration.
    order_only: bool,
    regular: Text,
    directory: Text,
    other: Text,
    pub(in crate::import) told: Told,
}

impl<'a> State<'a> {
    pub(in crate::import) fn new(base_ns: i64, writer: &'a mut ReelWriter) -> Self {
        Self::of(base_ns, &mut writer.ops, &mut writer.tasks, &mut writer.execs, &mut writer.files)
    }

    /// With these tables.
    pub(in crate::import) fn of(
        base_ns: i64,
        ops: &'a mut TableWriter<Op>,
        tasks: &'a mut TableWriter<Task>,
        execs: &'a mut TableWriter<Exec>,
        files: &'a mut TableWriter<File>,
    ) -> Self {
        Self {
            base_ns,
            ops,
            tasks,
            execs,
            paths: Paths::new(files),
            threads: HashMap::new(),
            tables: Vec::new(),
            descriptions: HashMap::new(),
            next_ofd: 0,
            next_task: 0,
            pending: HashMap::new(),
            words: text::Interner::new(1 << 14),
            renames: false,
            order_only: false,
            regular: "regular".into(),
            directory: "directory".into(),
            other: "other".into(),
            told: Told::default(),
        }
    }

    /// From now on, times are only an order.
    pub(in crate::import) fn order_only(&mut self) {
        self.order_only = true;
    }

    /// A thread has this name, and is of this process if that is known. Returns its task.
    pub(in crate::import) fn named(&mut self, tid: i32, pid: Option<i32>, comm: &[u8]) -> i64 {
        let task_id = self.task_id(tid);
        let comm = self.words.get(&comm[..comm.len().min(15)]);
        if let Some(thread) = self.threads.get_mut(&tid) {
            if !comm.is_empty() {
                thread.row.comm = comm;
            }
            thread.row.pid = pid.unwrap_or(thread.row.pid);
        }
        task_id
    }

    /// Time since the start of the reel. strace uses the time of day, which may be set back.
    fn since_start(&self, at_ns: i64) -> i64 {
        at_ns.saturating_sub(self.base_ns).max(0)
    }

    fn task_id(&mut self, tid: i32) -> i64 {
        if let Some(thread) = self.threads.get(&tid) {
            return thread.row.task_id;
        }
        let table = self.new_table(SharedMap::default());
        self.start(tid, Task { pid: tid, tid, ..Task::default() }, table)
    }

    fn start(&mut self, tid: i32, row: Task, table: usize) -> i64 {
        let task_id = self.next_task;
        self.next_task += 1;
        self.tables[table].users += 1;
        if let Some(before) = self.threads.insert(tid, Thread { row: Task { task_id, ..row }, table }) {
            self.leave_table(before.table);
        }
        task_id
    }

    /// A table without users.
    fn new_table(&mut self, fds: SharedMap<i64>) -> usize {
        self.tables.push(Table { fds, users: 0 });
        self.tables.len() - 1
    }

    /// A thread has this table no longer. Returns what was in it; after its last user, it is empty.
    fn leave_table(&mut self, table: usize) -> SharedMap<i64> {
        let table = &mut self.tables[table];
        table.users = table.users.saturating_sub(1);
        if table.users == 0 { std::mem::take(&mut table.fds) } else { table.fds.clone() }
    }

    pub(in crate::import) fn begun(&mut self, tid: i32, at_ns: i64, name: &[u8], args: &[u8]) -> Result<()> {
        self.task_id(tid);
        // A line of the child may come before the fork returns.
        if let Some((start, name, args)) = self.pending.insert(tid, (at_ns, name.to_vec(), args.to_vec())) {
            self.unfinished(tid, start, &name, &args)?;
        }
        if self.pending.len() > MOST_PENDING {
            self.end_pending()?;
        }
        Ok(())
    }

    pub(in crate::import) fn resumed(
        &mut self,
        tid: i32,
        at_ns: i64,
        name: &[u8],
        args: &[u8],
        end: &End<'_>,
    ) -> Result<()> {
        match self.pending.remove(&tid) {
            Some((start, begun, mut all)) if line::is_same(&begun, name) => {
                all.extend_from_slice(args);
                let since = Some(at_ns.saturating_sub(start).max(0)).filter(|_| !self.order_only);
                let end = End { dur_ns: end.dur_ns.or(since), ..*end };
                self.call(tid, start, &begun, &all, &end)
            }
            other => {
                if let Some(other) = other {
                    self.pending.insert(tid, other);
                }
                *self.told.left_out.entry("calls begun before the text").or_default() += 1;
                Ok(())
            }
        }
    }

    pub(in crate::import) fn exited(&mut self, tid: i32, at_ns: i64, status: i32) -> Result<()> {
        self.task_id(tid);
        let end = self.since_start(at_ns);
        self.told.last_ns = self.told.last_ns.max(end);
        if let Some((start, name, args)) = self.pending.remove(&tid) {
            self.unfinished(tid, start, &name, &args)?;
        }
        if let Some(mut thread) = self.threads.remove(&tid) {
            thread.row.exit_ns = Some(end.max(thread.row.start_ns));
            thread.row.exit_code = Some(status);
            self.leave_table(thread.table);
            self.tasks.push(thread.row)?;
        }
        Ok(())
    }

    pub(in crate::import) fn finish(&mut self) -> Result<()> {
        self.end_pending()?;
        let mut left: Vec<Task> = self.threads.drain().map(|(_, t)| t.row).collect();
        left.sort_by_key(|t| t.task_id);
        for row in left {
            self.tasks.push(row)?;
        }
        Ok(())
    }

    fn end_pending(&mut self) -> Result<()> {
        let mut left: Vec<_> = self.pending.drain().collect();
        left.sort();
        for (tid, (start, name, args)) in left {
            self.unfinished(tid, start, &name, &args)?;
        }
        Ok(())
    }

    /// Handles a call whose end is missing.
    fn unfinished(&mut self, tid: i32, at_ns: i64, name: &[u8], args: &[u8]) -> Result<()> {
        let Some((name, wanted)) = calls::arguments(name) else { return self.leave_out("calls that are not on files") };
        let op = self.row(tid, at_ns, name, wanted, &line::split(args))?;
        let state = self.words.get(b"in_flight_at_end");
        self.push(Op { state, ..op })
    }

    fn leave_out(&mut self, why: &'static str) -> Result<()> {
        *self.told.left_out.entry(why).or_default() += 1;
        Ok(())
    }

    pub(in crate::import) fn call(
        &mut self,
        tid: i32,
        at_ns: i64,
        name: &[u8],
        args: &[u8],
        end: &End<'_>,
    ) -> Result<()> {
        self.task_id(tid);
        match name {
            b"clone" | b"clone3" | b"fork" | b"vfork" => self.forked(tid, at_ns, name, args, end),
            b"execve" | b"execveat" if end.ret == Some(0) => self.executed(tid, at_ns, name, args, end)?,
            _ => {}
        }
        let fcntl_dup = name == b"fcntl" && line::split(args).get(1).is_some_and(|a| a.starts_with(b"F_DUPFD"));
        const FCNTL: &[Arg] = &[Arg::Fd, Arg::Flags, Arg::Aux];
        let known = calls::arguments(name).or(fcntl_dup.then_some(("fcntl", FCNTL)));
        let Some((name, wanted)) = known else { return self.leave_out("calls that are not on files") };
        let Some(ret) = end.ret else {
            return self.leave_out("calls without a result (restarted, or the thread ended)");
        };
        let mut op = self.row(tid, at_ns, name, wanted, &line::split(args))?;
        op.ret = Some(ret);
        op.dur_ns = end.dur_ns.unwrap_or(0);
        self.told.without_duration += i64::from(end.dur_ns.is_none());
        op.state = self.words.get(b"complete");
        if ret < 0 && (name.ends_with("stat") || matches!(name, "newfstatat" | "statx")) {
            (op.mode, op.len_bytes) = (None, None);
        }
        self.follow(tid, name, &mut op, end)?;
        self.push(op)
    }

    fn push(&mut self, op: Op) -> Result<()> {
        self.told.ops += 1;
        self.told.last_ns = self.told.last_ns.max(op.start_ns.saturating_add(op.dur_ns));
        Ok(self.ops.push(op)?)
    }

    /// Stores the arguments in their columns.
    fn row(&mut self, tid: i32, at_ns: i64, name: &'static str, wanted: &[Arg], args: &[&[u8]]) -> Result<Op> {
        let task_id = self.task_id(tid);
        let pid = self.threads.get(&tid).map_or(tid, |t| t.row.pid);
        let start_ns = self.since_start(at_ns);
        let (op, source) = (self.words.get(name.as_bytes()), self.words.get(b"syscall"));
        let mut row = Op { op_id: -1, start_ns, task_id, pid, tid, op, source, ..Op::default() };
        for (arg, text) in wanted.iter().zip(args) {
            match arg {
                Arg::Skip => {}
                Arg::Fd => {
                    (row.fd, row.file) = self.descriptor(text, start_ns)?;
                    row.ofd = self.description(tid, row.fd, row.file);
                }
                Arg::Fd2 => {
                    (row.fd2, row.file2) = self.descriptor(text, start_ns)?;
                    row.ofd2 = self.description(tid, row.fd2, row.file2);
                }
                Arg::Dirfd => row.dirfd = line::directory(text),
                Arg::Dirfd2 => row.dirfd2 = line::directory(text),
                Arg::Path => row.path = self.path(text),
                Arg::Path2 => row.path2 = self.path(text),
                Arg::Len => row.len_bytes = self.value(text),
                Arg::Offset => row.offset_bytes = self.value(text),
                Arg::Vector => row.len_bytes = line::vector(text),
                Arg::Flags => row.flags = self.value(text),
                Arg::Mode => row.mode = self.value(text).map(|m| m as i32),
                Arg::How => {
                    let mut part = |name: &[u8]| line::member(text, name).and_then(|v| self.value(v));
                    (row.flags, row.aux2) = (part(b"flags="), part(b"resolve="));
                    row.mode = part(b"mode=").map(|m| m as i32);
                }
                Arg::Aux => row.aux = self.value(text),
                Arg::Aux2 => row.aux2 = self.value(text),
                Arg::Stat => {
                    row.mode = line::member(text, b"st_mode=")
                        .or(line::member(text, b"stx_mode="))
                        .and_then(names::value)
                        .map(|m| m as i32);
                    row.len_bytes =
                        line::member(text, b"st_size=").or(line::member(text, b"stx_size=")).and_then(line::integer);
                }
            }
        }
        Ok(row)
    }

    fn value(&mut self, text: &[u8]) -> Option<i64> {
        // A comment may follow, as in `0x40 /* O_WHAT */`.
        let word = text.split(|b| *b == b' ').next().unwrap_or_default();
        let value = names::value(word);
        self.told.unknown_flags += i64::from(value.is_none());
        value
    }

    fn path(&mut self, text: &[u8]) -> Option<Text> {
        let (bytes, whole) = line::string(text)?;
        self.told.cut_paths += i64::from(!whole);
        Some(self.words.get(&bytes))
    }

    /// Stores a descriptor and its file.
    fn descriptor(&mut self, text: &[u8], at_ns: i64) -> Result<(Option<i32>, Option<i64>)> {
        let digits = text.split(|b| !(b.is_ascii_digit() || *b == b'-')).next().unwrap_or_default();
        let fd = line::integer(digits).and_then(|n| i32::try_from(n).ok());
        Ok((fd, self.file(line::descriptor_path(text), false, at_ns)?))
    }

    /// The file at the path that `-y` shows.
    fn file(&mut self, path: Option<&[u8]>, directory: bool, at_ns: i64) -> Result<Option<i64>> {
        let Some(path) = path else {
            self.told.without_path += 1;
            return Ok(None);
        };
        let (path, device) = line::plain_path(path);
        let path = line::unescaped(path);
        let kind = match path.first() {
            _ if device.is_some() => &self.words.get(device.unwrap_or_default()),
            Some(b'/') if directory => &self.directory,
            Some(b'/') => &self.regular,
            _ => &self.other,
        };
        Ok(Some(self.paths.file(&path, &kind.clone(), at_ns)?))
    }

    /// The open file description of a descriptor, which is open on `file` if the text shows that.
    fn description(&mut self, tid: i32, fd: Option<i32>, file: Option<i64>) -> Option<i64> {
        let table = self.threads.get(&tid)?.table;
        let fd = fd.filter(|fd| *fd >= 0)?;
        let next = self.next_ofd;
        let known = self.tables.get(table)?.fds.get(fd as u32).copied();
        if let Some(ofd) = known
            && self.is_still(ofd, file)
        {
            return Some(ofd);
        }
        // Opened before the trace, or by a call that the text does not show.
        self.tables.get_mut(table)?.fds.insert(fd as u32, next);
        self.next_ofd += 1;
        self.descriptions.insert(next, Open { position: None, append: false, file });
        Some(next)
    }

    /// Whether a description is open on this file. A renamed file has another path afterwards, and is the same one.
    fn is_still(&mut self, ofd: i64, file: Option<i64>) -> bool {
        let Some(open) = self.descriptions.get_mut(&ofd) else { return true };
        match (open.file, file) {
            (Some(was), Some(is)) if was != is && !self.renames => return false,
            (None, Some(_)) => open.file = file,
            _ => {}
        }
        true
    }

    /// Applies the effect of the call on descriptors and offsets.
    fn follow(&mut self, tid: i32, name: &str, op: &mut Op, end: &End<'_>) -> Result<()> {
        let ret = op.ret.unwrap_or(-1);
        let table = self.threads.get(&tid).map_or(0, |t| t.table);
        match name {
            "open" | "openat" | "openat2" | "creat" if ret >= 0 => {
                let flags = op.flags.unwrap_or(0);
                op.file = self.file(end.path, flags & O_DIRECTORY != 0, op.start_ns)?;
                let ofd = self.next_ofd;
                self.next_ofd += 1;
                self.descriptions.insert(ofd, Open { position: Some(0), append: flags & O_APPEND != 0, file: op.file });
                self.attach(table, ret, ofd);
                op.ofd = Some(ofd);
            }
            "dup" | "dup2" | "dup3" | "fcntl" if ret >= 0 => {
                if let Some(ofd) = op.ofd {
                    self.attach(table, ret, ofd);
                }
            }
            "close" if ret == 0 => {
                if let (Some(fd), Some(table)) = (op.fd, self.tables.get_mut(table)) {
                    table.fds.remove(fd as u32);
                }
            }
            "read" | "readv" | "write" | "writev" => {
                let writes = name.starts_with('w');
                if let Some(open) = op.ofd.and_then(|ofd| self.descriptions.get_mut(&ofd)) {
                    if writes && open.append {
                        open.position = None;
                    }
                    op.offset_bytes = open.position;
                    if ret > 0 {
                        open.position = open.position.and_then(|p| p.checked_add(ret));
                    }
                }
                self.told.without_position += i64::from(op.offset_bytes.is_none() && ret > 0);
            }
            "rename" | "renameat" | "renameat2" if ret == 0 => self.renames = true,
            "lseek" => {
                if let Some(open) = op.ofd.and_then(|ofd| self.descriptions.get_mut(&ofd)) {
                    op.offset_bytes = open.position;
                    if ret >= 0 {
                        open.position = Some(ret);
                    }
                }
            }
            // strace does not show whether these calls changed the file offsets.
            "copy_file_range" | "sendfile" if ret > 0 => {
                for ofd in [op.ofd, op.ofd2].into_iter().flatten() {
                    if let Some(open) = self.descriptions.get_mut(&ofd) {
                        open.position = None;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn attach(&mut self, table: usize, fd: i64, ofd: i64) {
        if let (Ok(fd), Some(table)) = (i32::try_from(fd), self.tables.get_mut(table)) {
            table.fds.insert(fd as u32, ofd);
        }
    }

    fn forked(&mut self, tid: i32, at_ns: i64, name: &[u8], args: &[u8], end: &End<'_>) {
        let Some(child) = end.ret.filter(|r| *r > 0).and_then(|r| i32::try_from(r).ok()) else { return };
        let flags = match name {
            b"fork" => 0,
            b"vfork" => CLONE_VM | CLONE_VFORK,
            _ => names::clone_flags(args),
        };
        let Some(parent) = self.threads.get(&tid) else { return };
        let (task_id, pid, comm) = (parent.row.task_id, parent.row.pid, parent.row.comm.clone());
        let from = parent.table;
        let table = if flags & CLONE_FILES != 0 {
            from
        } else {
            let copy = self.tables.get(from).map(|t| t.fds.clone()).unwrap_or_default();
            self.new_table(copy)
        };
        let pid = if flags & CLONE_THREAD != 0 { pid } else { child };
        let start_ns = self.since_start(at_ns);
        if let Some(known) = self.threads.get_mut(&child) {
            // The child ran before its parent's call returned: keep what it opened.
            let had_parent = known.row.parent.is_some();
            known.row = Task {
                parent: Some(task_id),
                pid,
                clone_flags: flags,
                start_ns: known.row.start_ns,
                ..known.row.clone()
            };
            let own = std::mem::replace(&mut known.table, table);
            self.tables[table].users += 1;
            let opened = self.leave_table(own);
            // A thread that had a parent already is another one, and its number was reused.
            if own != table && !had_parent {
                let fds = &mut self.tables[table].fds;
                opened.iter().for_each(|(fd, ofd)| _ = fds.insert(fd, *ofd));
            }
            return;
        }
        let row =
            Task { pid, tid: child, parent: Some(task_id), start_ns, clone_flags: flags, comm, ..Task::default() };
        self.start(child, row, table);
    }

    fn executed(&mut self, tid: i32, at_ns: i64, name: &[u8], args: &[u8], end: &End<'_>) -> Result<()> {
        let path = line::split(args).get(usize::from(name == b"execveat")).and_then(|a| line::string(a));
        let Some((path, _)) = path else { return Ok(()) };
        let base = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        let comm = self.words.get(&base[..base.len().min(15)]);
        let task_id = self.task_id(tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.row.comm = comm.clone();
        }
        let exec_ns = self.since_start(at_ns.saturating_add(end.dur_ns.unwrap_or(0)));
        self.told.last_ns = self.told.last_ns.max(exec_ns);
        Ok(self.execs.push(Exec {
            exec_ns,
            task_id,
            path: self.words.get(&path),
            comm,
            uid: None,
            gid: None,
            capabilities: None,
        })?)
    }
}
