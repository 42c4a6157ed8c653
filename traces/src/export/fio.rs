//! I/O logs of fio (`read_iolog`), versions 2 and 3: reads, writes, syncs and trims of files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
    io::{BufWriter, Write},
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
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

/// What the log names.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Version of the format, 2 or 3.
    pub version: u32,
    /// The folder below which the files are. Default: [`default_root`].
    pub root: Option<PathBuf>,
    /// Block devices: by the path in the reel, that on this machine. Others are left out.
    pub devices: BTreeMap<String, PathBuf>,
}

/// The folder below which a log's files are, unless another is named: `job.files` beside `job.log`.
pub fn default_root(output: &Path) -> PathBuf {
    output.with_extension("files")
}

/// Result of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// Number of exported operations.
    pub operations: i64,
    /// Number of operations not exported, by reason.
    pub left_out: BTreeMap<&'static str, i64>,
    /// The folder below which the files are, absolute.
    pub root: PathBuf,
    /// Devices that the log writes to.
    pub devices: Vec<PathBuf>,
}

/// `FALLOC_FL_PUNCH_HOLE`
const PUNCH_HOLE: i32 = 2;

/// Writes the operations of a reel as fio's log of version 2 or 3. fio writes to the files that the log names: so these are
/// never the recorded ones, but files below a folder.
///
/// # Errors
/// If the reel has no operations or cannot be read, or if the output already exists or cannot be written.
pub fn export(reel: &Reel, output: &Path, options: &Options) -> Result<Exported> {
    if reel.count::<Op>() == 0 {
        let why = "no file operations in this reel; for a block trace, `ioreel export … blktrace --dump` writes a file that fio reads";
        return Err(ExportError::refused(reel.path(), why));
    }
    let root = options.root.clone().unwrap_or_else(|| default_root(output));
    // fio would look for a relative path in the folder that it is run in.
    let root = std::path::absolute(&root).map_err(ReelError::io(&root, "making the path absolute"))?;
    for path in options.devices.values().chain([&root]) {
        if !path.is_absolute() || !is_word(path) {
            let why = "fio's log cannot name this path: it must be absolute and without blanks; name another \
                       (--root, --device-map)";
            return Err(ExportError::refused(path, why));
        }
    }
    let mut file = super::create(output)?;
    let exported = write(reel, &mut file, output, options, root)?;
    super::keep(file)?;
    Ok(exported)
}

/// Whether fio's lines, which are words between spaces, can have this path.
fn is_word(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(u8::is_ascii_whitespace)
}

fn write(reel: &Reel, file: impl Write, output: &Path, options: &Options, root: PathBuf) -> Result<Exported> {
    let mut out = BufWriter::with_capacity(256 * 1024, file);
    let failed = |e| ReelError::io(output, "writing the log")(e);
    let mut log = Log::new(reel, options, root)?;
    let mut text = Vec::new();
    writeln!(out, "fio version {} iolog", log.version).map_err(failed)?;
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
    /// Paths of files that fio can work on, as bytes, or why it cannot.
    paths: HashMap<i64, std::result::Result<Vec<u8>, &'static str>>,
    /// Names already added and opened. fio identifies a file by its name and must get each name once. In the reel, one
    /// name may have belonged to several files in turn.
    opened: BTreeSet<Vec<u8>>,
    now_us: i64,
    exported: Exported,
}

impl Log {
    fn new(reel: &Reel, options: &Options, root: PathBuf) -> Result<Self> {
        let mut paths = HashMap::new();
        for file in reel.rows::<rows::File>() {
            let file = file?;
            paths.insert(file.file, path_of(&file, &root, &options.devices));
        }
        let exported = Exported { root, devices: options.devices.values().cloned().collect(), ..Exported::default() };
        Ok(Self { version: options.version, paths, opened: BTreeSet::new(), now_us: 0, exported })
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
        let path = match self.paths.get(&file) {
            Some(Ok(path)) => path,
            Some(Err(why)) => return self.skip(why),
            None => return self.skip("no file"),
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

/// The path that the log gives a file: below `root`, or that of a device.
fn path_of(
    file: &rows::File,
    root: &Path,
    devices: &BTreeMap<String, PathBuf>,
) -> std::result::Result<Vec<u8>, &'static str> {
    let path = match (&*file.kind, &file.path) {
        ("regular", Some(path)) if file.path_cut == 0 => below(root, &text::to_bytes(path))?,
        ("block", Some(path)) => devices.get(&**path).cloned().ok_or("a block device without --device-map")?,
        ("regular", _) => return Err("a file of unknown path"),
        _ => return Err("no regular file and no block device"),
    };
    if is_word(&path) && path.as_os_str().len() <= MOST_PATH_BYTES {
        Ok(path.as_os_str().as_bytes().to_vec())
    } else {
        Err("a path that fio cannot name (with blanks, or over 255 bytes with that of --root)")
    }
}

/// The longest path in a line.
const MOST_PATH_BYTES: usize = 255;

/// A recorded path below `root`. One that leads out of it is refused: a reel may be anyone's.
fn below(root: &Path, path: &[u8]) -> std::result::Result<PathBuf, &'static str> {
    let mut out = root.to_owned();
    for part in Path::new(std::ffi::OsStr::from_bytes(path)).components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err("a path that leads out of --root"),
        }
    }
    if out == root { Err("a file of unknown path") } else { Ok(out) }
}
