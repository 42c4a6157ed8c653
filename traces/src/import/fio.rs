//! Imports I/O logs of fio (`write_iolog`), versions 2 and 3.
//!
//! A log lists requested actions in order, without results, durations or threads. The imported operations have duration
//! 0 and full success.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use super::{
    ImportError, Result,
    input::{self, Source},
    lines::Lines,
    made,
    paths::Paths,
};
use crate::{
    Manifest, ReelWriter, Text,
    format::{
        manifest::Span,
        rows::{Op, Task},
    },
};

/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`: the effect of a trim on a file.
const PUNCH_HOLE: i32 = 3;
/// `O_RDWR`: a log does not contain open flags, and its lines may need both directions.
const O_RDWR: i64 = 2;
const AT_FDCWD: i32 = -100;
/// The actions of a log, with their fields.
const ACTIONS: &str = "expected add, open or close; sync or datasync; wait (version 2 only); or read, write, trim or \
                       sync_file_range with OFFSET LENGTH";

/// Imports the log `input` as the reel `out`.
///
/// # Errors
/// If the input cannot be read or a line is invalid (with its number); if the reel cannot be written.
pub fn import(input: &Path, out: &Path) -> Result<Manifest> {
    from(&input::open(&[input.to_path_buf()], &input::scratch(out))?, out)
}

/// [`import`] of an open input.
pub(super) fn from(sources: &[Source], out: &Path) -> Result<Manifest> {
    let input = sources.first().map_or_else(PathBuf::new, |s| s.name.clone());
    if sources.len() > 1 {
        let why = format!("this is one of {} files; import one log at a time", sources.len());
        return Err(ImportError::input(input, why));
    }
    let mut lines = Lines::of(sources);
    let version = match lines.next()? {
        Some(b"fio version 2 iolog") => 2,
        Some(b"fio version 3 iolog") => 3,
        _ => {
            lines.number = lines.number.max(1);
            return Err(lines.error(lines.describe(
                "does not start a fio I/O log",
                "expected `fio version 2 iolog` or `fio version 3 iolog`; name a file written by fio's write_iolog",
            )));
        }
    };
    made::reel(out, made::manifest("fio", &[input]), |writer, manifest| {
        let mut log = Log::new(writer);
        while let Some(line) = lines.next()? {
            let words: Vec<&[u8]> = line.split(|b| *b == b' ' || *b == b'\t').filter(|w| !w.is_empty()).collect();
            if words.is_empty() {
                continue;
            }
            if let Err(Fault { what, remedy }) = log.line(version, &words)? {
                return Err(lines.error(lines.describe(what, remedy)));
            }
        }
        manifest.ledger.insert("ops".into(), made::all_written(log.count));
        manifest.span = Span { elapsed_ns: log.now_ns, ..Span::default() };
        manifest.warnings.push(
            "a fio log contains no results, durations or threads: every operation gets duration 0 and full success"
                .into(),
        );
        manifest.warnings.append(&mut lines.broken);
        if lines.too_long > 0 {
            manifest.warnings.push(format!("{} lines are longer than 1 MiB and were ignored", lines.too_long));
        }
        if let Some(import) = &mut manifest.import {
            import.records = lines.number;
        }
        Ok(())
    })
}

struct Log<'a> {
    ops: &'a mut crate::TableWriter<Op>,
    tasks: &'a mut crate::TableWriter<Task>,
    paths: Paths<'a>,
    words: HashMap<&'static str, Text>,
    names: HashMap<Vec<u8>, Text>,
    regular: Text,
    /// Descriptor and open file description, by path.
    open: HashMap<Vec<u8>, (i32, i64)>,
    next_fd: i32,
    now_ns: i64,
    count: i64,
}

/// What is wrong with a line.
struct Fault {
    /// The fault, after `line N`.
    what: &'static str,
    /// What was expected.
    remedy: &'static str,
}

fn fault(what: &'static str, remedy: &'static str) -> Line {
    Err(Fault { what, remedy })
}

/// Fault of a line. The outer result is an error of writing.
type Line = std::result::Result<(), Fault>;

/// Remedy for an action on a file that is not open.
const OPEN_FIRST: &str = "expected `FILE open` on an earlier line";

impl<'a> Log<'a> {
    fn new(writer: &'a mut ReelWriter) -> Self {
        Self {
            ops: &mut writer.ops,
            tasks: &mut writer.tasks,
            paths: Paths::new(&mut writer.files),
            words: HashMap::new(),
            names: HashMap::new(),
            regular: "regular".into(),
            open: HashMap::new(),
            next_fd: 3,
            now_ns: 0,
            count: 0,
        }
    }

    fn line(&mut self, version: u32, words: &[&[u8]]) -> Result<Line> {
        let number = |w: &[u8]| std::str::from_utf8(w).ok()?.parse::<i64>().ok().filter(|n| *n >= 0);
        let rest = if version == 3 {
            let Some(us) = words.first().and_then(|w| number(w)) else {
                return Ok(fault("does not start with a time", "expected `MICROSECONDS FILE ACTION …` (version 3)"));
            };
            self.now_ns = self.now_ns.max(us.saturating_mul(1000));
            &words[1..]
        } else {
            words
        };
        let (path, action, offset, len) = match rest {
            [path, action] => (*path, *action, 0, 0),
            [path, action, offset, len] => match (number(offset), number(len)) {
                (Some(offset), Some(len)) => (*path, *action, offset, len),
                _ => {
                    let what = "has an offset or length that is not a number of bytes";
                    return Ok(fault(what, "expected `FILE ACTION OFFSET LENGTH`"));
                }
            },
            // Older fio versions write a wait without a length.
            [path, b"wait", us] if version == 2 => match number(us) {
                Some(us) => (*path, &b"wait"[..], us, 0),
                None => return Ok(fault("has a wait that is not a number", "expected `FILE wait MICROSECONDS`")),
            },
            _ => {
                let what = "is not a line of a fio log";
                return Ok(fault(what, "expected `FILE ACTION` or `FILE ACTION OFFSET LENGTH`"));
            }
        };
        let io = rest.len() == 4;
        match (action, io) {
            (b"add", false) => {
                self.paths.file(path, &self.regular, self.now_ns)?;
                Ok(Ok(()))
            }
            (b"open", false) => self.opened(path),
            (b"close", false) => self.closed(path),
            (b"wait", _) if version == 2 => {
                self.now_ns = self.now_ns.saturating_add(offset.saturating_mul(1000));
                Ok(Ok(()))
            }
            (b"read", true) => self.transfer(path, "pread64", offset, len),
            (b"write", true) => self.transfer(path, "pwrite64", offset, len),
            (b"trim", true) => self.transfer(path, "fallocate", offset, len),
            (b"sync", _) => self.transfer(path, "fsync", 0, 0),
            (b"datasync", _) => self.transfer(path, "fdatasync", 0, 0),
            (b"sync_file_range", true) => self.transfer(path, "sync_file_range", offset, len),
            _ => Ok(fault("has an unknown action", ACTIONS)),
        }
    }

    fn word(&mut self, word: &'static str) -> Text {
        self.words.entry(word).or_insert_with(|| word.into()).clone()
    }

    fn push(&mut self, op: Op) -> Result<()> {
        if self.count == 0 {
            self.tasks.push(Task { comm: "fio".into(), ..Task::default() })?;
        }
        self.count += 1;
        let (source, state) = (self.word("syscall"), self.word("complete"));
        Ok(self.ops.push(Op { op_id: -1, start_ns: self.now_ns, source, state, ..op })?)
    }

    fn opened(&mut self, path: &[u8]) -> Result<Line> {
        if self.open.contains_key(path) {
            return Ok(fault("opens a file that is already open", "expected `FILE close` on an earlier line"));
        }
        let file = self.paths.file(path, &self.regular, self.now_ns)?;
        let (fd, ofd) = (self.next_fd, i64::from(self.next_fd));
        self.next_fd = self.next_fd.saturating_add(1);
        self.open.insert(path.to_vec(), (fd, ofd));
        let name = self.names.entry(path.to_vec()).or_insert_with(|| crate::format::text::from_bytes(path)).clone();
        let op = self.word("openat");
        self.push(Op {
            op,
            dirfd: Some(AT_FDCWD),
            path: Some(name),
            flags: Some(O_RDWR),
            ofd: Some(ofd),
            file: Some(file),
            ret: Some(i64::from(fd)),
            ..Op::default()
        })?;
        Ok(Ok(()))
    }

    fn closed(&mut self, path: &[u8]) -> Result<Line> {
        let Some((fd, ofd)) = self.open.remove(path) else {
            return Ok(fault("closes a file that is not open", OPEN_FIRST));
        };
        let file = self.paths.file(path, &self.regular, self.now_ns)?;
        let op = self.word("close");
        self.push(Op { op, fd: Some(fd), ofd: Some(ofd), file: Some(file), ret: Some(0), ..Op::default() })?;
        Ok(Ok(()))
    }

    fn transfer(&mut self, path: &[u8], call: &'static str, offset: i64, len: i64) -> Result<Line> {
        let Some((fd, ofd)) = self.open.get(path).copied() else {
            return Ok(fault("uses a file that is not open", OPEN_FIRST));
        };
        let file = self.paths.file(path, &self.regular, self.now_ns)?;
        let ranged = matches!(call, "pread64" | "pwrite64" | "fallocate" | "sync_file_range");
        let moved = matches!(call, "pread64" | "pwrite64");
        let op = self.word(call);
        self.push(Op {
            op,
            fd: Some(fd),
            ofd: Some(ofd),
            file: Some(file),
            offset_bytes: ranged.then_some(offset),
            len_bytes: ranged.then_some(len),
            mode: (call == "fallocate").then_some(PUNCH_HOLE),
            ret: Some(if moved { len } else { 0 }),
            ..Op::default()
        })?;
        Ok(Ok(()))
    }
}
