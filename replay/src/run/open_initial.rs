//! Opens the initial descriptors and mappings: those that threads have before their first step.
//!
//! The thread that starts the others opens each open file description once. The others inherit all of them and close
//! those that are not theirs. So descriptions that processes shared in the recording are shared in the replay.

use std::{
    io,
    os::fd::{AsFd, IntoRawFd},
};

use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, OFlags, SeekFrom, Uid, XattrFlags, chmod, fchmod, fchown, fsetxattr, mkdir, open,
        openat, seek, unlinkat,
    },
    io::{Errno, close},
};

use crate::{
    contents::fill::Filler,
    plan::{
        initial_descriptors::{InitialFile, MapAtStart, OpenAtStart, Unnamed, UnnamedKind},
        program::Plan,
    },
    run::{issue::cells::Cells, space::Space},
};

/// Opens and maps everything. The calling thread is inside the target and has a descriptor table of its own. Returns
/// the descriptors by index in [`Begin::opens`](crate::plan::initial_descriptors::Begin::opens), -1 for none, and a
/// warning for each that failed.
pub(crate) fn open_all(plan: &Plan, cells: &Cells, (filler, space): (&Filler, &Space)) -> (Vec<i32>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut fds = vec![-1; plan.begin.opens.len()];
    // Files with a name first: creating one without a name takes a name for a moment.
    let mut todo: Vec<Vec<usize>> = vec![Vec::new(); plan.begin.unnamed.len()];
    for (i, o) in plan.begin.opens.iter().enumerate().filter(|(_, o)| o.needed) {
        match &o.file {
            InitialFile::Path(path) => match open_as_it_was(path, o) {
                Ok(fd) => fds[i] = fd,
                Err(e) => warnings.push(told(path, e)),
            },
            InitialFile::Unnamed(u) => todo[*u as usize].push(i),
        }
    }
    let mut maps: Vec<Vec<&MapAtStart>> = vec![Vec::new(); plan.begin.unnamed.len()];
    for m in plan.begin.maps.iter().filter(|m| m.needed) {
        match &m.file {
            InitialFile::Path(path) => map(path, m, cells).unwrap_or_else(|e| warnings.push(told(path, e))),
            InitialFile::Unnamed(u) => maps[*u as usize].push(m),
        }
    }
    for (u, (opens, maps)) in todo.iter().zip(&maps).enumerate() {
        if opens.is_empty() && maps.is_empty() {
            continue;
        }
        let taken = space.take(plan.begin.unnamed[u].size_bytes);
        let made = match taken {
            Some(_) => unnamed(plan, u, opens, maps, (cells, filler), &mut fds),
            None => Err(io::ErrorKind::StorageFull.into()),
        };
        if let Err(e) = made {
            warnings.push(format!("cannot create a nameless file that was open at the start: {e}"));
        }
    }
    (fds, warnings)
}

fn told(path: &[u8], e: Errno) -> String {
    format!("{}: cannot open this file, which was open at the start: {e}", String::from_utf8_lossy(path))
}

fn open_as_it_was(path: &[u8], o: &OpenAtStart) -> Result<i32, Errno> {
    if o.listed_bytes == 0 {
        return open_at(path, o.flags, o.offset_bytes);
    }
    let fd = open_at(path, o.flags, 0)?;
    skip_entries(fd, o.listed_bytes);
    Ok(fd)
}

/// Reads as many bytes of directory entries as were recorded. A directory position is meaningful only to the file
/// system that returned it, but entries have the same size on all.
fn skip_entries(fd: i32, listed_bytes: i64) {
    /// Size of an entry with the longest name.
    const ROOM: usize = 280;
    let mut room = [0u64; ROOM / 8];
    let mut skipped = 0i64;
    while skipped < listed_bytes {
        // Not more than is left. The kernel refuses if the next entry is longer, which happens because the order
        // differs.
        let bytes = (listed_bytes - skipped).min(ROOM as i64);
        // SAFETY: the kernel writes at most ROOM bytes there.
        let told = unsafe { libc::syscall(libc::SYS_getdents64, fd, room.as_mut_ptr(), bytes) };
        if told <= 0 {
            break;
        }
        skipped += told;
    }
}

fn open_at(path: &[u8], flags: i32, offset_bytes: i64) -> Result<i32, Errno> {
    // The contents are prepared, so the open must not create or truncate.
    let making = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC;
    let flags = OFlags::from_bits_retain((flags & !making) as u32) | OFlags::NONBLOCK;
    let fd = open(path, flags, Mode::empty())?;
    // A file without a position (a directory on some file systems) starts at its beginning.
    let _ = seek(&fd, SeekFrom::Start(offset_bytes.max(0) as u64));
    Ok(fd.into_raw_fd())
}

fn map(path: &[u8], m: &MapAtStart, cells: &Cells) -> Result<(), Errno> {
    let writes = m.prot & libc::PROT_WRITE != 0 && m.flags & libc::MAP_SHARED != 0;
    let fd = open_at(path, if writes { libc::O_RDWR } else { libc::O_RDONLY }, 0)?;
    let ret = cells.map(m.slot, m.len_bytes, m.prot, m.flags, fd, m.offset_bytes);
    // SAFETY: opened above, and used by nothing else.
    unsafe { close(fd) };
    if ret < 0 { Err(Errno::from_raw_os_error(-ret as i32)) } else { Ok(()) }
}

/// Creates a file without a name: it has one only while it is opened.
fn unnamed(
    plan: &Plan,
    number: usize,
    opens: &[usize],
    maps: &[&MapAtStart],
    (cells, filler): (&Cells, &Filler),
    fds: &mut [i32],
) -> io::Result<()> {
    let u = &plan.begin.unnamed[number];
    let path = plan.names.path(u.node);
    match u.kind {
        UnnamedKind::Directory => mkdir(path.as_slice(), Mode::from_raw_mode(0o755))?,
        UnnamedKind::Temporary
            if let [only] = opens
                && maps.is_empty() =>
        {
            let o = &plan.begin.opens[*only];
            let flags = OFlags::from_bits_retain((o.flags & !libc::O_ACCMODE) as u32) | OFlags::TMPFILE | OFlags::RDWR;
            match openat(CWD, "/", flags, Mode::from_raw_mode(0o600)) {
                Ok(fd) => {
                    dress(&fd, u)?;
                    if let Some(mode) = u.set.mode {
                        fchmod(&fd, Mode::from_raw_mode(mode))?;
                    }
                    filler.fill(&fd, u.size_bytes, u.size_bytes, (number, u.key))?;
                    seek(&fd, SeekFrom::Start(o.offset_bytes.max(0) as u64))?;
                    fds[*only] = fd.into_raw_fd();
                    return Ok(());
                }
                // The file system has no O_TMPFILE. A removed file does as well, except that it cannot get a name.
                Err(Errno::OPNOTSUPP | Errno::ISDIR) => regular(&path, u, filler, number)?,
                Err(e) => return Err(e.into()),
            }
        }
        UnnamedKind::Removed | UnnamedKind::Temporary => regular(&path, u, filler, number)?,
    }
    let mut result = Ok(());
    for i in opens {
        let o = &plan.begin.opens[*i];
        match open_as_it_was(&path, o) {
            Ok(fd) => fds[*i] = fd,
            Err(e) => result = Err(e),
        }
    }
    for m in maps {
        result = result.and(map(&path, m, cells));
    }
    // Last, because the mode may deny what was allowed when the file was opened.
    if let Some(mode) = u.set.mode {
        result = result.and(chmod(path.as_slice(), Mode::from_raw_mode(mode)));
    }
    let flags = if u.kind == UnnamedKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(CWD, path.as_slice(), flags)?;
    Ok(result?)
}

fn regular(path: &[u8], u: &Unnamed, filler: &Filler, salt: usize) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW;
    let fd = open(path, flags, Mode::from_raw_mode(0o600))?;
    dress(&fd, u)?;
    filler.fill(fd, u.size_bytes, u.size_bytes, (salt, u.key))
}

/// Sets the owner and extended attributes of a new file. The mode is set later.
fn dress(fd: impl AsFd, u: &Unnamed) -> Result<(), Errno> {
    let set = &u.set;
    if set.uid.is_some() || set.gid.is_some() {
        fchown(&fd, set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw))?;
    }
    for (name, value) in &u.attributes {
        match fsetxattr(&fd, &**name, value, XattrFlags::empty()) {
            // On a file system without extended attributes, results of later operations differ, which is reported.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
