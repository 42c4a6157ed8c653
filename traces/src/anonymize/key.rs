//! The key of the name hashes.

use std::{fs, io::Read, path::Path};

use crate::{ReelError, Result};

/// Minimum length of a key. Shorter keys could be found by trying all of them.
pub(super) const MIN_KEY_BYTES: usize = 16;

/// A key. Two reels anonymized with the same key get the same names.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A random key that is never stored: it ends with this process.
    pub fn random() -> Result<Self> {
        let path = Path::new("/dev/urandom");
        let mut bytes = [0; 32];
        fs::File::open(path)
            .and_then(|mut f| f.read_exact(&mut bytes))
            .map_err(ReelError::io(path, "drawing a random key"))?;
        Ok(Self(bytes))
    }

    /// The key derived from all of these bytes.
    ///
    /// # Errors
    /// Returns the number of bytes if there are fewer than [`MIN_KEY_BYTES`].
    pub fn of(secret: &[u8]) -> Result<Self, usize> {
        if secret.len() < MIN_KEY_BYTES {
            return Err(secret.len());
        }
        Ok(Self(blake3::derive_key("ioreel 2026 names of an anonymized reel", secret)))
    }

    /// The key derived from the content of a file, without a line break at its end.
    pub fn from_file(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(ReelError::io(path, "reading the key"))?;
        let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        Self::of(secret).map_err(|found| ReelError::ShortKey { path: path.into(), found, least: MIN_KEY_BYTES })
    }

    pub(super) fn bytes(&self) -> [u8; 32] {
        self.0
    }
}
