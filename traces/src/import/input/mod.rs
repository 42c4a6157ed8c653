//! What an import reads: files as they are or compressed, the members of tar archives, and standard input.
//!
//! Importers may read their input twice, so everything here can be read again: files are opened again, and what can be read
//! only once is copied to an unnamed file beside the reel while it is read.

mod archive;
mod decode;

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, Write},
    os::{fd::AsFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{ImportError, Result};

/// Name of standard input.
pub(super) const STDIN: &str = "-";
/// Number of bytes by which the format of a file is recognised.
pub(super) const HEAD_BYTES: usize = 64 * 1024;
/// Read buffer of an input.
const BUFFER_BYTES: usize = 256 * 1024;
/// Read buffer of a small member of an archive: 100,000 of them may be open at once.
const LEAST_BUFFER_BYTES: usize = 4096;

/// A file, a member of an archive, or standard input. Reading it starts at its beginning each time.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// As messages name it: the path, with the member of an archive after a colon.
    pub(super) name: PathBuf,
    content: Content,
}

/// Where the bytes are, before decompression.
#[derive(Clone, Debug)]
enum Content {
    Path(PathBuf),
    /// A part of an open file.
    Part {
        file: Arc<File>,
        from: u64,
        len: u64,
    },
    /// What can be read only once.
    Pipe(Arc<Mutex<Pipe>>),
}

/// Why an import cannot go on, which is no damage of the input. The message names cause and remedy.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Stopped(String);

/// The message, if the error says why the import cannot go on. Decoders pass such errors on.
pub(super) fn stopped(e: &io::Error) -> Option<&str> {
    e.get_ref()?.downcast_ref::<Stopped>().map(|Stopped(why)| &**why)
}

/// A pipe, and a copy of what was read from it.
#[derive(Debug)]
struct Pipe {
    from: File,
    copy: File,
    copied: u64,
    ended: bool,
    /// Why bytes of the pipe are lost.
    failed: Option<String>,
}

/// Reads a pipe from its beginning.
struct PipeReader {
    pipe: Arc<Mutex<Pipe>>,
    at: u64,
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &pipe.failed {
            return Err(io::Error::other(Stopped(why.clone())));
        }
        if self.at == pipe.copied && !pipe.ended {
            let got = pipe.from.read(buffer)?;
            pipe.ended = got == 0 && !buffer.is_empty();
            if let Err(e) = pipe.copy.write_all_at(&buffer[..got], self.at) {
                let why = format!("cannot keep a copy beside the reel: {e}; write the reel elsewhere");
                pipe.failed = Some(why.clone());
                return Err(io::Error::other(Stopped(why)));
            }
            pipe.copied += got as u64;
            self.at += got as u64;
            return Ok(got);
        }
        let left = usize::try_from(pipe.copied - self.at).unwrap_or(usize::MAX);
        let most = left.min(buffer.len());
        let got = pipe.copy.read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        Ok(got)
    }
}

/// Reads a part of a file that others may read too.
struct Part {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Part {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let got = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        self.left -= got as u64;
        Ok(got)
    }
}

/// Bytes of an input, decompressed.
pub(super) type Bytes = BufReader<Box<dyn Read + Send>>;

impl Source {
    /// This file, which may be compressed but is no archive.
    pub(super) fn of(path: &Path) -> Self {
        Self { name: path.into(), content: Content::Path(path.into()) }
    }

    /// The decompressed bytes, and whether they were compressed.
    pub(super) fn open(&self) -> Result<(Bytes, bool)> {
        let mut buffer_bytes = BUFFER_BYTES;
        let raw: Box<dyn Read + Send> = match &self.content {
            Content::Path(path) => Box::new(File::open(path).map_err(ImportError::reading(&self.name))?),
            Content::Part { file, from, len } => {
                buffer_bytes =
                    usize::try_from(*len).map_or(BUFFER_BYTES, |len| len.clamp(LEAST_BUFFER_BYTES, BUFFER_BYTES));
                Box::new(Part { file: file.clone(), at: *from, left: *len })
            }
            Content::Pipe(pipe) => Box::new(PipeReader { pipe: pipe.clone(), at: 0 }),
        };
        decode::decoded(raw, buffer_bytes).map_err(ImportError::reading(&self.name))
    }

    /// The first bytes, at most `most`. Damaged compressed data ends early.
    pub(super) fn head(&self, most: usize) -> Result<Vec<u8>> {
        let (bytes, compressed) = self.open()?;
        let mut out = Vec::new();
        match bytes.take(most as u64).read_to_end(&mut out) {
            Err(e) if !compressed || stopped(&e).is_some() => Err(ImportError::reading(&self.name)(e)),
            _ => Ok(out),
        }
    }

    /// The part of the name after the last `/`, without the suffix of a compression.
    pub(super) fn file_name(&self) -> String {
        let whole = self.name.to_string_lossy();
        let name = whole.rsplit(['/', ':']).next().unwrap_or_default();
        without_compression(name).to_owned()
    }
}

/// A file name without `.gz` and the like.
pub(super) fn without_compression(name: &str) -> &str {
    decode::SUFFIXES.iter().find_map(|s| name.strip_suffix(s)).filter(|n| !n.is_empty()).unwrap_or(name)
}

/// The inputs at these paths, in order: `-` is standard input, an archive stands for its members. `scratch` is the folder
/// for copies of what can be read only once.
pub(super) fn open(paths: &[PathBuf], scratch: &Path) -> Result<Vec<Source>> {
    let mut out = Vec::new();
    let mut stdin = false;
    for path in paths {
        if path.as_os_str() == STDIN && std::mem::replace(&mut stdin, true) {
            return Err(ImportError::input(path, "standard input is named twice; name it once"));
        }
        let source = given(path, scratch)?;
        match archive::members(&source, scratch)? {
            Some(members) => out.extend(members),
            None => out.push(source),
        }
    }
    Ok(out)
}

/// The input at a path. What is no regular file can be read only once, and is copied.
fn given(path: &Path, scratch: &Path) -> Result<Source> {
    let failed = ImportError::reading;
    let mut file = if path.as_os_str() == STDIN {
        File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed(path))?)
    } else {
        let meta = match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(ImportError::input(path, "no such file; name a file, or `-` for standard input"));
            }
            meta => meta.map_err(failed(path))?,
        };
        if meta.is_file() {
            return Ok(Source::of(path));
        }
        if meta.is_dir() {
            return Err(ImportError::input(path, "this is a folder; name the files in it"));
        }
        File::open(path).map_err(failed(path))?
    };
    let name = if path.as_os_str() == STDIN { PathBuf::from("standard input") } else { path.into() };
    let meta = file.metadata().map_err(failed(path))?;
    if !meta.is_file() {
        let pipe = Pipe { from: file, copy: unnamed(scratch)?, copied: 0, ended: false, failed: None };
        return Ok(Source { name, content: Content::Pipe(Arc::new(Mutex::new(pipe))) });
    }
    let from = file.stream_position().map_err(failed(path))?;
    let len = meta.len().saturating_sub(from);
    Ok(Source { name, content: Content::Part { file: Arc::new(file), from, len } })
}

fn unnamed(scratch: &Path) -> Result<File> {
    tempfile::tempfile_in(scratch).map_err(|e| {
        ImportError::input(scratch, format!("cannot create a file in this folder: {e}; write the reel elsewhere"))
    })
}

/// Copies with separate messages for reading and writing.
fn copy_all(from: &mut impl Read, to: &mut File, path: &Path, scratch: &Path) -> Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut copied = 0;
    loop {
        let got = match from.read(&mut buffer) {
            Ok(0) => return Ok(copied),
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(ImportError::reading(path)(e)),
        };
        to.write_all(&buffer[..got]).map_err(|e| {
            let why = format!("cannot keep a copy of {} in this folder: {e}; write the reel elsewhere", path.display());
            ImportError::input(scratch, why)
        })?;
        copied += got as u64;
    }
}

/// The folder in which copies are kept: that of the reel, or the nearest one above it that exists.
pub(super) fn scratch(out: &Path) -> PathBuf {
    let mut folder = folder(out);
    while !folder.exists() && folder.pop() {}
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder }
}

/// The folder of a file.
pub(super) fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
        _ => PathBuf::from("."),
    }
}
