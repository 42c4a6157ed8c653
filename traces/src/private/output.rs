//! A file that a command writes for its user.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, FileType, statat};

use super::{Folder, folder::place_of};

/// A file that is being written. It is removed again unless [`Output::keep`] is called: half of it would be taken for the
/// whole.
#[derive(Debug)]
pub struct Output {
    folder: Folder,
    /// What it is called while it is written.
    name: OsString,
    /// What it is called then.
    to: OsString,
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Output {
    /// Creates the file `path`, which must not be there yet.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (folder, name) = place_of(path)?;
        let file = folder.create_file(&name)?;
        Ok(Self { folder, to: name.clone(), name, path: path.into(), file, kept: false })
    }

    /// Creates a file that takes the place of the file `path`, if there is one, once it is whole. The old one may have been
    /// open to others, so it is not written to.
    pub fn replace(path: &Path) -> io::Result<Self> {
        let (folder, to) = place_of(path)?;
        if let Ok(old) = statat(&folder, &to, AtFlags::SYMLINK_NOFOLLOW) {
            match FileType::from_raw_mode(old.st_mode) {
                FileType::RegularFile => {}
                FileType::Symlink => return Err(io::Error::other("a symbolic link, which is not followed")),
                _ => return Err(io::Error::other("something else than a regular file is there")),
            }
        }
        // Long names may be as long as the file system allows.
        let name = OsString::from(format!(".ioreel-{}.tmp", std::process::id()));
        let file = folder.replace_file(&name)?;
        Ok(Self { folder, name, to, path: path.into(), file, kept: false })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Lets the file stay, under its name.
    pub fn keep(mut self) -> io::Result<()> {
        if self.name != self.to {
            self.folder.rename(&self.name, &self.to)?;
        }
        self.kept = true;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.kept {
            // Best effort: nothing more can be done here.
            let _ = self.folder.remove_file(&self.name);
        }
    }
}
