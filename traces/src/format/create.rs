//! Creates the temporary files of a reel.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Creates a file, replacing one that an interrupted write has left. A symbolic link of that name is removed, not
/// followed: whoever can write into the folder could point it at any file.
pub(crate) fn anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => File::create_new(path),
    }
}
