//! I/O logs of fio (`read_iolog`), versions 2 and 3: reads, writes, syncs and trims of files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use super::{ExportError, Result};
use crate::reader::ordered::Ordered;
use crate::{
    Reel, ReelError,
    format::{
        rows::{self, Op},
        text,
    },
};

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Number of exported operations.
    pub operations: i64,
    /// Number of operations not exported, by reason.
    pub left_out: BTreeMap<&'static str, i64>,
}

/// `FALLOC_FL_PUNCH_HOLE`
const PUNCH_HOLE: i32 = 2;

/// Writes the operations of a reel as a fio log of version 2 or 3.
///
/// # Errors
/// If the reel has no operations or cannot be read, or if the output already exists or cannot be written.
pub fn export(reel: &Reel, output: &Path, version: u32) -> Result<Exported> {
    if reel.count::<Op>() == 0 {
        let why = "no file operations in this reel; for a block trace, `ioreel export … blktrace --dump` writes a file that fio reads";
        return Err(ExportError::refused(reel.path(), why));
    }
    let file = super::create(output)?;
    let done = write(reel, file, output, version);
    if done.is_err() {
        // Best effort: a partial log looks like a complete one.
        let _ = std::fs::remove_file(output);
    }
    done
}

fn write(reel: &Reel, file: File, output: &Path, version: u32) -> Result<Exported> {
    let mut out = BufWriter::with_capacity(256 * 1024, file);
    let failed = |e| ReelError::io(output, "writing the log")(e);
    let mut log = Log::new(reel, version)?;
    let mut text = Vec::new();
    writeln!(out, "fio version {version} iolog").map_err(failed)?;
    let mut ops = Ordered::<Op>::new(reel);
    while let Some(op) = ops.next()? {
        text.clear();
        log.op(&op, &mut text);
        out.write_all(&text).map_err(failed)?;
    }
    text.clear();
    log.close_all(&mut text);
    out.write_all(&text).and_then(|()| out.flush()).map_err(failed)?;
    Ok(log.exported)
}

struct Log {
    version: u32,
    /// Path of each file as bytes, `None` if fio cannot use it.
    paths: HashMap<i64, Option<Vec<u8>>>,
    /// Names already added and opened. fio identifies a file by its name and must get each name once. In the reel, one
    /// name may have belonged to several files in turn.
    opened: BTreeSet<Vec<u8>>,
    now_us: i64,
    exported: Exported,
}

impl Log {
    fn new(reel: &Reel, version: u32) -> Result<Self> {
        let mut paths = HashMap::new();
        for file in reel.rows::<rows::File>() {
            let file = file?;
            let path = file.path.filter(|_| matches!(&*file.kind, "regular" | "block") && file.path_cut == 0);
            // fio splits lines at spaces, and limits names to 256 bytes.
            let bytes =
                path.map(|p| text::to_bytes(&p)).filter(|p| p.len() <= 255 && !p.iter().any(u8::is_ascii_whitespace));
            paths.insert(file.file, bytes);
        }
        Ok(Self { version, paths, opened: BTreeSet::new(), now_us: 0, exported: Exported::default() })
    }

    fn op(&mut self, op: &Op, out: &mut Vec<u8>) {
        if op.source == "lower" {
            return self.skip("part of other operations");
        }
        let ret = op.ret.unwrap_or(-1);
        let (action, offset, len) = match &*op.op {
            "read" | "pread64" | "readv" | "preadv" | "preadv2" | "vfs_read" => ("read", op.offset_bytes, ret),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" | "vfs_write" => ("write", op.offset_bytes, ret),
            "fsync" | "vfs_fsync" => ("sync", Some(0), 0),
            "fdatasync" => ("datasync", Some(0), 0),
            "fallocate" if op.mode.unwrap_or(0) & PUNCH_HOLE != 0 => {
                ("trim", op.offset_bytes, op.len_bytes.unwrap_or(0))
            }
            _ => return self.skip("calls that are no transfer and no synchronisation"),
        };
        if op.source == "tool" {
            return self.skip("ioreel's own");
        }
        if ret < 0 {
            return self.skip("failed or unfinished");
        }
        let moves = matches!(action, "read" | "write" | "trim");
        if moves && len == 0 {
            return self.skip("moved nothing");
        }
        let Some(file) = op.file else { return self.skip("no file") };
        let Some(Some(path)) = self.paths.get(&file) else {
            return self
                .skip("no regular file, or a path that fio cannot name (unknown, with blanks, or over 255 bytes)");
        };
        let Some(offset) = offset.filter(|o| *o >= 0) else { return self.skip("no position") };
        let (path, at_us) = (path.clone(), op.start_ns / 1000);
        if self.opened.insert(path.clone()) {
            self.line(at_us, &path, "add", None, out);
            self.line(at_us, &path, "open", None, out);
        }
        self.line(at_us, &path, action, Some((offset, len)), out);
        self.exported.operations += 1;
    }

    fn skip(&mut self, why: &'static str) {
        *self.exported.left_out.entry(why).or_default() += 1;
    }

    fn line(&mut self, at_us: i64, path: &[u8], action: &str, range: Option<(i64, i64)>, out: &mut Vec<u8>) {
        let mut tail = format!(" {action}");
        if let Some((offset, len)) = range {
            // Writing into a string cannot fail.
            let _ = write!(tail, " {offset} {len}");
        }
        if self.version == 3 {
            out.extend(format!("{at_us} ").bytes());
        } else if range.is_some() && at_us > self.now_us {
            out.extend_from_slice(path);
            // Waits are relative to the previous one.
            out.extend(format!(" wait {} 0\n", at_us - self.now_us).bytes());
            self.now_us = at_us;
        }
        if self.version == 3 {
            self.now_us = self.now_us.max(at_us);
        }
        out.extend_from_slice(path);
        out.extend(tail.bytes());
        out.push(b'\n');
    }

    fn close_all(&mut self, out: &mut Vec<u8>) {
        for path in std::mem::take(&mut self.opened) {
            self.line(self.now_us, &path, "close", None, out);
        }
    }
}
