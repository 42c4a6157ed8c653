//! An open folder.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, fstat, linkat, mkdirat, openat, renameat,
        renameat_with, statat, unlinkat,
    },
    io::Errno,
};

use super::{FILE_MODE, FOLDER_MODE, give, is_trusted, own};

/// An open folder. Its methods take names of direct entries, and follow no link at them.
#[derive(Clone, Debug)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    /// For messages.
    path: Arc<Path>,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// A folder, and no link to one.
    pub is_folder: bool,
}

/// Flags of every folder that is opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The folder that `path` lies in, and its name there.
pub(super) fn place_of(path: &Path) -> io::Result<(Folder, OsString)> {
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it has no name"))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((Folder::open(parent)?, name.into()))
}

impl Folder {
    /// Opens the folder at `path`, which is the user's: links are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { fd: Arc::new(openat(CWD, path, FOLDER, Mode::empty())?), path: path.into() })
    }

    /// Creates the folder `path`, which must not be there yet, and opens it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (parent, name) = place_of(path)?;
        Ok(Self { path: path.into(), ..parent.create_folder(&name)? })
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether its path still leads to it.
    pub fn is_in_place(&self) -> bool {
        match (fstat(&self.fd), rustix::fs::stat(&*self.path)) {
            (Ok(here), Ok(there)) => same(&here, &there),
            _ => false,
        }
    }

    /// Whether it has been removed: nothing can be created in it any more.
    pub fn is_removed(&self) -> bool {
        fstat(&self.fd).is_ok_and(|s| s.st_nlink == 0)
    }

    /// Device and inode number.
    pub fn id(&self) -> io::Result<(u64, u64)> {
        let stat = fstat(&self.fd)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Opens the folder `name` in it.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = plain(name.as_ref())?;
        let fd = openat(&self.fd, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|e| {
            // Of a link, the kernel says that it is no directory.
            let is_link = |s: Stat| FileType::from_raw_mode(s.st_mode) == FileType::Symlink;
            let link = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_link);
            no_link(if link { Errno::LOOP } else { e })
        })?;
        Ok(Self { fd: Arc::new(fd), path: self.path.join(name).into() })
    }

    /// Creates the folder `name` in it, which must not be there yet.
    pub fn create_folder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = plain(name.as_ref())?;
        mkdirat(&self.fd, name, Mode::from_raw_mode(FOLDER_MODE))?;
        let folder = self.folder(name)?;
        if fstat(&folder.fd)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other("another user has exchanged the folder that was just created"));
        }
        Ok(Self { fd: Arc::new(own(folder.fd.try_clone()?, FOLDER_MODE)?), path: folder.path })
    }

    /// Opens the folder `name` in it, or creates it.
    pub fn folder_or_create(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        match self.create_folder(name.as_ref()) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.folder(name),
            done => done,
        }
    }

    /// Opens the regular file `name` in it for reading. Anything else is refused at once: a device or a FIFO could block.
    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = plain(name.as_ref())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = File::from(openat(&self.fd, name, flags, Mode::empty()).map_err(no_link)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
    }

    /// Creates the file `name` in it, which must not be there yet.
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.fd, plain(name.as_ref())?, flags, Mode::from_raw_mode(FILE_MODE))?;
        Ok(own(fd, FILE_MODE)?.into())
    }

    /// Creates the file `name` in it, in the place of one that an interrupted write has left. It belongs to the folder's
    /// owner, if that is not root: who repairs a reel of somebody else's as root leaves it theirs.
    pub fn replace_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        match self.remove_file(name.as_ref()) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file = self.create_file(name)?;
        let folder = fstat(&self.fd)?;
        // A folder of root's, such as /tmp, says nothing about whose the file is.
        let is_of_user = folder.st_uid != 0 && file.metadata()?.uid() != folder.st_uid;
        if is_of_user && rustix::process::geteuid().is_root() {
            give(file.as_fd(), folder.st_uid, folder.st_gid)?;
        }
        Ok(file)
    }

    /// Opens the file `name` in it for reading and writing, or creates it. Refuses a link, a second name of another file, and
    /// a file of a user whom [`is_trusted`] does not name.
    pub fn file_or_create(&self, name: impl AsRef<OsStr>, append: bool) -> io::Result<File> {
        let name = plain(name.as_ref())?;
        let mut flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        flags.set(OFlags::APPEND, append);
        let created = flags | OFlags::CREATE | OFlags::EXCL;
        let file = match openat(&self.fd, name, created, Mode::from_raw_mode(FILE_MODE)) {
            Ok(fd) => File::from(own(fd, FILE_MODE)?),
            Err(Errno::EXIST) => File::from(openat(&self.fd, name, flags, Mode::empty()).map_err(no_link)?),
            Err(e) => return Err(e.into()),
        };
        let meta = file.metadata()?;
        if !meta.is_file() || meta.nlink() != 1 {
            return Err(io::Error::other("not a regular file with a single link; remove it"));
        }
        match is_trusted(meta.uid()) {
            true => Ok(file),
            false => Err(io::Error::other(format!("the file belongs to user {}; remove it", meta.uid()))),
        }
    }

    /// Its owner and its permissions.
    pub fn owner_and_mode(&self) -> io::Result<(u32, u32)> {
        let stat = fstat(&self.fd)?;
        Ok((stat.st_uid, stat.st_mode))
    }

    /// Creates a file without a name, which goes when it is closed.
    pub fn unnamed_file(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(&self.fd, ".", flags, Mode::from_raw_mode(FILE_MODE)) {
            Ok(fd) => Ok(fd.into()),
            // The file system has none.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                static NEXT: AtomicU32 = AtomicU32::new(0);
                let next = NEXT.fetch_add(1, Ordering::Relaxed);
                let name = format!("scratch-{}-{next}.tmp", std::process::id());
                let file = self.replace_file(&name)?;
                self.remove_file(&name)?;
                Ok(file)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Gives the entry `from` the name `to`, which replaces a file of that name.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(renameat(&self.fd, plain(from.as_ref())?, &self.fd, plain(to.as_ref())?)?)
    }

    /// Exchanges two entries in one step, where the file system can.
    pub fn exchange(&self, one: impl AsRef<OsStr>, other: impl AsRef<OsStr>) -> io::Result<()> {
        let (one, other) = (plain(one.as_ref())?, plain(other.as_ref())?);
        Ok(renameat_with(&self.fd, one, &self.fd, other, RenameFlags::EXCHANGE)?)
    }

    /// Gives the file `name` the same name in the folder `to`.
    pub fn link(&self, name: impl AsRef<OsStr>, to: &Self) -> io::Result<()> {
        let name = plain(name.as_ref())?;
        Ok(linkat(&self.fd, name, &to.fd, name, AtFlags::empty())?)
    }

    /// Removes a name that is no folder's.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.fd, plain(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes an empty folder.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(unlinkat(&self.fd, plain(name.as_ref())?, AtFlags::REMOVEDIR)?)
    }

    /// Removes the folder `name` with the files in it, and those of its folders, but nothing deeper: a reel has no more.
    pub fn remove_reel(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.folder(name.as_ref())?.clear(2)?;
        self.remove_folder(name)
    }

    fn clear(&self, depth: u32) -> io::Result<()> {
        for entry in self.entries()? {
            match entry.is_folder && depth > 1 {
                true => {
                    self.folder(&entry.name)?.clear(depth - 1)?;
                    self.remove_folder(&entry.name)?;
                }
                false => self.remove_file(&entry.name)?,
            }
        }
        Ok(())
    }

    /// Removes this folder, a reel, if its path still leads to it.
    pub fn remove_this_reel(&self) -> io::Result<()> {
        self.clear(2)?;
        let (parent, name) = place_of(&self.path)?;
        let there = statat(&parent.fd, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if same(&fstat(&self.fd)?, &there) { parent.remove_folder(&name) } else { Ok(()) }
    }

    /// Its entries, unsorted.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut all = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let stat = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
                kind = stat.map_or(FileType::Unknown, |s| FileType::from_raw_mode(s.st_mode));
            }
            all.push(Entry { name: name.into(), is_folder: kind == FileType::Directory });
        }
        Ok(all)
    }

    /// Whether it has such an entry.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        plain(name.as_ref()).is_ok_and(|name| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Makes its names outlive a crash of the machine.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// A second descriptor of it, for locks.
    pub fn to_file(&self) -> io::Result<File> {
        // Locks are of an open file: one of its own, which closes when the lock's owner does.
        Ok(openat(&self.fd, ".", FOLDER, Mode::empty())?.into())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A name that leads out of no folder.
fn plain(name: &OsStr) -> io::Result<&OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no name in a folder")),
        bytes if bytes.contains(&b'/') => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no name in a folder")),
        _ => Ok(name),
    }
}

fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// What the kernel says of a link that is not to be followed is hard to understand.
fn no_link(e: Errno) -> io::Error {
    match e {
        Errno::LOOP => io::Error::other("a symbolic link, which is not followed"),
        e => e.into(),
    }
}

/// The folder at `path`, which is created with those above it where it is not there.
pub(super) fn open_or_create(path: &Path) -> io::Result<Folder> {
    match Folder::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {}
        done => return done,
    }
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        open_or_create(parent)?;
    }
    match Folder::create(&path.components().collect::<PathBuf>()) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Folder::open(path),
        done => done,
    }
}

impl Folder {
    /// Opens the folder at `path`. If it is not there, creates it, and those above it.
    pub fn open_or_create(path: &Path) -> io::Result<Self> {
        open_or_create(path)
    }
}
