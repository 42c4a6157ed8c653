//! `--restore`: returns a target to its state before a replay. Only what changed is created again.
//!
//! An object is unchanged if inode number and change time (ctime) are the same: the kernel sets the ctime at every
//! change, and no program can set it back. Changed files are created anew, not overwritten, so that nothing of the
//! replay remains in them.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, XattrFlags, chmod, chownat, llistxattr,
        lremovexattr, lsetxattr, openat, statat, unlinkat,
    },
    io::Errno,
};
use serde::Serialize;

use crate::{
    ReplayError,
    contents::fill::Filler,
    model::attributes::Attributes,
    prepare::{
        containment,
        directory::Directory,
        path_map::{Place, hidden},
        tree::{Item, ItemKind, make_one, set_mtime},
    },
};

/// The clock of file timestamps ticks at least this often: a later change has another ctime.
const TICK: Duration = Duration::from_millis(20);
/// Number of names listed that could not be restored.
const EXAMPLES: usize = 5;

/// Result of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Names that were unchanged.
    pub kept: i64,
    /// Names removed because they were not prepared.
    pub removed: i64,
    /// Names created again.
    pub made: i64,
    /// Directories whose mode, owner, times or attributes were set again.
    pub adjusted: i64,
}

/// Identity of an object before the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    ino: u64,
    ctime: (i64, i64),
    size: i64,
}

impl Print {
    fn of(stat: &Stat) -> Self {
        Self { ino: stat.st_ino, ctime: (stat.st_ctime, stat.st_ctime_nsec as i64), size: stat.st_size }
    }
}

#[derive(Debug)]
struct Kept {
    items: Vec<Item>,
    prints: Vec<Option<Print>>,
    filler: Filler,
    target: Directory,
    maps: Vec<Place>,
}

/// The state of a target before a replay. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Option<Kept>>>);

fn look(path: &[u8]) -> Option<Stat> {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()
}

impl Memory {
    /// Notes the state. Must be called inside the target, after all items are created. On return, any later change can
    /// be detected.
    pub(crate) fn remember(&self, items: &[Item], filler: Filler, (target, maps): &(Directory, Vec<Place>)) {
        thread::sleep(TICK);
        let prints = items.iter().map(|i| look(&i.path).map(|s| Print::of(&s))).collect();
        let kept = Kept { items: items.to_vec(), prints, filler, target: target.clone(), maps: maps.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// Restores the target. Returns what was done, and messages for what could not be.
    ///
    /// # Errors If the target cannot be entered or has no space.
    pub fn restore(&self) -> Result<(Restored, Vec<String>), ReplayError> {
        let Some(kept) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok((Restored::default(), Vec::new()));
        };
        let failed = || ReplayError::Io { doing: "restoring", source: io::Error::other("a thread panicked") };
        let worker = thread::Builder::new()
            .name("restorer".into())
            .spawn(move || {
                containment::enter(&kept.target, &kept.maps)?;
                kept.restore()
            })
            .map_err(|source| ReplayError::Io { doing: "starting a thread", source })?;
        worker.join().map_err(|_| failed())?
    }
}

/// A directory being visited.
struct Level {
    fd: OwnedFd,
    todo: Vec<Vec<u8>>,
    path_len: usize,
    /// Everything in it is removed, then the directory itself.
    goes: bool,
    name: Vec<u8>,
}

fn level(fd: OwnedFd, path_len: usize, goes: bool, name: Vec<u8>) -> Result<Level, Errno> {
    let mut todo = Vec::new();
    for entry in Dir::read_from(&fd)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            todo.push(name);
        }
    }
    Ok(Level { fd, todo, path_len, goes, name })
}

impl Kept {
    fn restore(&self) -> Result<(Restored, Vec<String>), ReplayError> {
        let mut done = Restored::default();
        let mut failed: Vec<String> = Vec::new();
        self.sweep(&mut done, &mut failed);
        // Inode numbers of restored files. A name that became a hard link of another file is created anew.
        let mut taken: HashSet<u64> = HashSet::new();
        for (i, (item, print)) in self.items.iter().zip(&self.prints).enumerate() {
            if item.what == ItemKind::Directory && look(&item.path).is_some() {
                continue;
            }
            let stat = look(&item.path);
            let same = stat.as_ref().map(Print::of).is_some_and(|s| Some(s) == *print);
            let keeps = match (&item.what, &stat) {
                (ItemKind::Link(first), Some(s)) => look(first).is_some_and(|f| f.st_ino == s.st_ino),
                (_, Some(s)) => same && taken.insert(s.st_ino),
                (_, None) => false,
            };
            if keeps {
                done.kept += 1;
                continue;
            }
            if stat.is_some()
                && let Err(e) = unlinkat(CWD, item.path.as_slice(), AtFlags::empty())
            {
                failed.push(told(&item.path, e));
                continue;
            }
            // It inherits the access list that its directory has by now.
            let own_attributes = |()| match item.what {
                ItemKind::Regular { .. } | ItemKind::Node { .. } => adjust(item).map_err(io::Error::from),
                _ => Ok(()),
            };
            match make_one(item, &self.filler, i).and_then(own_attributes) {
                Ok(()) => {
                    done.made += 1;
                    if !matches!(item.what, ItemKind::Link(_)) {
                        taken.extend(look(&item.path).map(|s| s.st_ino));
                    }
                }
                Err(source) if source.raw_os_error() == Some(libc::ENOSPC) => {
                    let path = PathBuf::from(String::from_utf8_lossy(&item.path).into_owned());
                    return Err(ReplayError::Prepare { path, source });
                }
                Err(e) => failed.push(told(&item.path, e)),
            }
        }
        for (item, print) in self.items.iter().zip(&self.prints).rev().filter(|(i, _)| i.what == ItemKind::Directory) {
            let same = look(&item.path).as_ref().map(Print::of).is_some_and(|s| {
                // The size of a directory depends on names that it once had.
                print.is_some_and(|p| (p.ino, p.ctime) == (s.ino, s.ctime))
            });
            if same {
                done.kept += 1;
            } else if let Err(e) = adjust(item) {
                failed.push(told(&item.path, e));
            } else {
                done.adjusted += 1;
            }
        }
        let more = failed.len().saturating_sub(EXAMPLES);
        failed.truncate(EXAMPLES);
        if more > 0 {
            failed.push(format!("{more} more names could not be restored"));
        }
        Ok((done, failed))
    }

    /// Removes what was not prepared, and what is of another kind than prepared.
    fn sweep(&self, done: &mut Restored, failed: &mut Vec<String>) {
        let wanted: HashMap<&[u8], &ItemKind> = self.items.iter().map(|i| (i.path.as_slice(), &i.what)).collect();
        let hidden = hidden(&self.maps, &self.target.path);
        let places: Vec<&Vec<u8>> = self.maps.iter().map(|(from, _)| from).chain(&hidden).collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut path = Vec::new();
        let first = openat(CWD, "/", flags, Mode::empty()).and_then(|fd| level(fd, 0, false, Vec::new()));
        let mut levels: Vec<Level> = match first {
            Ok(first) => vec![first],
            Err(e) => return failed.push(told(b"/", e)),
        };
        while let Some(at) = levels.last_mut() {
            let Some(name) = at.todo.pop() else {
                let (goes, name) = (at.goes, std::mem::take(&mut at.name));
                path.truncate(at.path_len);
                levels.pop();
                if goes && let Some(above) = levels.last() {
                    match unlinkat(&above.fd, name.as_slice(), AtFlags::REMOVEDIR) {
                        Ok(()) => done.removed += 1,
                        Err(e) => failed.push(told(&path, e)),
                    }
                }
                continue;
            };
            path.truncate(at.path_len);
            let top = at.path_len == 0 || self.maps.iter().any(|(from, _)| *from == path);
            path.push(b'/');
            path.extend_from_slice(&name);
            if top && name == b"lost+found" || hidden.contains(&path) && !wanted.contains_key(path.as_slice()) {
                continue;
            }
            let Ok(stat) = statat(&at.fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let stays = !at.goes
                && match wanted.get(path.as_slice()) {
                    Some(ItemKind::Directory) => kind == FileType::Directory,
                    Some(ItemKind::Regular { .. }) => kind == FileType::RegularFile,
                    Some(ItemKind::Link(_)) => kind != FileType::Directory,
                    Some(ItemKind::Symlink(_)) => kind == FileType::Symlink,
                    // Compared by inode number.
                    Some(ItemKind::Node { .. }) => !matches!(kind, FileType::Directory | FileType::RegularFile),
                    // Leads to a mapped directory.
                    None => kind == FileType::Directory && places.iter().any(|p| p.starts_with(&path)),
                };
            if kind == FileType::Directory {
                // The mode may deny access. A directory to be removed need not keep it.
                let below = openat(&at.fd, name.as_slice(), flags, Mode::empty());
                match below.and_then(|fd| level(fd, path.len(), !stays, name)) {
                    Ok(below) => levels.push(below),
                    Err(e) => failed.push(told(&path, e)),
                }
            } else if !stays {
                match unlinkat(&at.fd, name.as_slice(), AtFlags::empty()) {
                    Ok(()) => done.removed += 1,
                    Err(e) => failed.push(told(&path, e)),
                }
            }
        }
    }
}

fn told(path: &[u8], why: impl std::fmt::Display) -> String {
    format!("{}: not restored: {why}", String::from_utf8_lossy(path))
}

/// Sets all attributes of a directory that a replay may have changed, or of a file that was made in such a directory.
fn adjust(item: &Item) -> Result<(), Errno> {
    let path = item.path.as_slice();
    if let Some((uid, gid)) = item.owner {
        chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    for name in attributes_of(path)? {
        if !item.attributes.contains_key(name.to_bytes()) {
            match lremovexattr(path, &*name) {
                // Attributes that the kernel or a security module sets.
                Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::INVAL | Errno::NODATA) => {}
                Err(e) => return Err(e),
            }
        }
    }
    set_attributes(path, &item.attributes)?;
    chmod(path, Mode::from_bits_truncate(item.mode))?;
    set_mtime(item);
    Ok(())
}

fn set_attributes(path: &[u8], attributes: &Attributes) -> Result<(), Errno> {
    attributes.iter().try_for_each(|(name, value)| match lsetxattr(path, &**name, value, XattrFlags::empty()) {
        // If the file system has no extended attributes, results will show that.
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(e) => Err(e),
    })
}

fn attributes_of(path: &[u8]) -> Result<Vec<CString>, Errno> {
    let mut list = vec![0_u8; 64 << 10];
    let n = match llistxattr(path, &mut list[..]) {
        Ok(n) => n,
        Err(Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e),
    };
    Ok(list[..n].split(|b| *b == 0).filter(|n| !n.is_empty()).filter_map(|n| CString::new(n).ok()).collect())
}
