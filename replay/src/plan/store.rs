//! Stores pieces of a plan and of its outcomes: in memory up to a limit, then in an unnamed file.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Limit for a plan, and again for its outcomes. With the name space and what is in flight, a replay then stays well
/// below 1 GiB.
pub const DEFAULT_MEMORY_BYTES: usize = 160 << 20;

/// A stored piece.
#[derive(Clone, Debug)]
pub enum Stored<T> {
    /// In memory.
    Memory(Arc<T>),
    /// In the file.
    File {
        /// Offset.
        at: u64,
        /// Length, bytes.
        len: u32,
    },
}

/// Something that can be stored.
pub trait Piece: Sized {
    /// Approximate size in memory.
    fn size_bytes(&self) -> usize;
    /// Encodes it.
    fn to_bytes(&self) -> Vec<u8>;
    /// Decodes it; `None` if invalid.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// Stores pieces in memory, then in a file in the directory for temporary files.
#[derive(Debug)]
pub struct Store {
    memory_bytes: usize,
    used: Mutex<usize>,
    file: Mutex<Option<Arc<File>>>,
    end: AtomicU64,
}

impl Store {
    /// A store that keeps at most `memory_bytes` in memory.
    pub fn new(memory_bytes: usize) -> Self {
        Self { memory_bytes, used: Mutex::new(0), file: Mutex::new(None), end: AtomicU64::new(0) }
    }

    /// Stores a piece.
    pub fn put<T: Piece>(&self, piece: T) -> io::Result<Stored<T>> {
        let size = piece.size_bytes();
        {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if *used + size <= self.memory_bytes {
                *used += size;
                return Ok(Stored::Memory(Arc::new(piece)));
            }
        }
        let bytes = piece.to_bytes();
        let at = self.end.fetch_add(bytes.len() as u64, Relaxed);
        self.file()?.write_all_at(&bytes, at)?;
        Ok(Stored::File { at, len: bytes.len() as u32 })
    }

    /// Loads a piece.
    pub fn get<T: Piece>(&self, kept: &Stored<T>) -> io::Result<Arc<T>> {
        match kept {
            Stored::Memory(piece) => Ok(piece.clone()),
            Stored::File { at, len } => {
                let mut bytes = vec![0; *len as usize];
                self.file()?.read_exact_at(&mut bytes, *at)?;
                T::from_bytes(&bytes).map(Arc::new).ok_or_else(|| io::ErrorKind::InvalidData.into())
            }
        }
    }

    /// Replaces a piece. The new one must have the same encoded length.
    pub fn replace<T: Piece>(&self, kept: &mut Stored<T>, piece: T) -> io::Result<()> {
        match kept {
            Stored::Memory(old) => *old = Arc::new(piece),
            Stored::File { at, .. } => self.file()?.write_all_at(&piece.to_bytes(), *at)?,
        }
        Ok(())
    }

    /// Whether everything is in memory.
    pub fn is_small(&self) -> bool {
        self.end.load(Relaxed) == 0
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(file.clone());
        }
        let made = Arc::new(unnamed()?);
        *file = Some(made.clone());
        Ok(made)
    }
}

/// Creates an unnamed file in the directory for temporary files.
fn unnamed() -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat, unlinkat};
    let dir = std::env::temp_dir();
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(fd) = openat(CWD, &dir, flags | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR) {
        return Ok(fd.into());
    }
    // Without O_TMPFILE, the name exists for a moment.
    let path = dir.join(format!("ioreel-replay-{}", std::process::id()));
    let fd = openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
    unlinkat(CWD, &path, rustix::fs::AtFlags::empty())?;
    Ok(fd.into())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    impl Piece for u64 {
        fn size_bytes(&self) -> usize {
            8
        }
        fn to_bytes(&self) -> Vec<u8> {
            self.to_le_bytes().to_vec()
        }
        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            Some(Self::from_le_bytes(bytes.try_into().ok()?))
        }
    }

    #[test]
    fn what_does_not_fit_goes_to_a_file_and_comes_back() {
        let store = Store::new(80);
        let mut kept: Vec<_> = (0..1000_u64).map(|n| store.put(n).unwrap()).collect();
        assert_eq!(kept.iter().filter(|k| matches!(k, Stored::Memory(_))).count(), 10);
        assert!(!store.is_small() && kept.iter().enumerate().all(|(i, k)| *store.get(k).unwrap() == i as u64));
        for at in [3, 700] {
            store.replace(&mut kept[at], 5).unwrap();
            assert_eq!(*store.get(&kept[at]).unwrap(), 5);
        }
    }
}
