//! A directory that was checked, as it is found again later: by its path, and only if it is still the same one.
//!
//! Descriptors do not lead into another mount namespace, so the replay opens its target again by path. Meanwhile
//! somebody who may write to a directory above can have put another one, or a link, in its place.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::fs::{Mode, OFlags, fstat, open};

/// A directory, by path and identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Path without symbolic links.
    pub path: PathBuf,
    /// Device and inode number.
    id: (u64, u64),
}

fn id(fd: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Directory {
    /// The open directory `dir`, which has this path.
    pub fn of(path: PathBuf, dir: impl AsFd) -> io::Result<Self> {
        Ok(Self { path, id: id(dir)? })
    }

    /// Opens it again, with these flags.
    ///
    /// # Errors
    /// If its path now leads to another directory.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        let dir = open(&self.path, flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if id(&dir)? != self.id {
            let path = self.path.display();
            return Err(io::Error::other(format!(
                "another directory has taken the place of {path}; use one below directories that only you may write to"
            )));
        }
        Ok(dir)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn only_the_same_directory_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("t"), dir.path().join("away"));
        fs::create_dir(&path).unwrap();
        let target = Directory::of(path.clone(), fs::File::open(&path).unwrap()).unwrap();
        target.open(OFlags::PATH).unwrap();
        fs::rename(&path, &away).unwrap();
        assert_eq!(target.open(OFlags::PATH).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&path).unwrap();
        let why = target.open(OFlags::PATH).unwrap_err().to_string();
        assert!(why.contains("another directory has taken the place of"), "{why}");
        fs::remove_dir(&path).unwrap();
        // A link to it is refused too: it can be switched.
        symlink(&away, &path).unwrap();
        target.open(OFlags::PATH).unwrap_err();
        fs::remove_file(&path).unwrap();
        fs::rename(&away, &path).unwrap();
        target.open(OFlags::PATH).unwrap();
    }
}
