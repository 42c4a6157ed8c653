//! Creation of a reel's files under their temporary names.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Creates a file in the place of one that an interrupted write has left. A link of that name is removed and not followed:
/// whoever may write into the folder could lead it to any file.
pub(crate) fn anew(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => File::create_new(path),
    }
}
