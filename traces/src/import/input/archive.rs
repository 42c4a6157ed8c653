//! The members of tar archives.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use super::{Content, ImportError, Result, Source, copy_all, decode, stopped, unnamed};

/// Maximum number of bytes before the contents of a member: its headers, with long names and attributes. They are kept in
/// memory.
const MOST_HEADER_BYTES: u64 = 1 << 20;
/// Maximum number of files in an archive.
const MOST_MEMBERS: usize = 100_000;
/// Maximum number of bytes of the names of all files in an archive. They are kept in memory.
const MOST_NAMES_BYTES: usize = 32 << 20;

/// Reads an archive, and fails where headers are too long.
struct Guard<R> {
    from: R,
    /// Number of bytes that may be read.
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Guard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left.get()).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the name or the attributes of a file are longer than 1 MiB"));
        }
        let got = self.from.read(&mut buffer[..most])?;
        self.left.set(self.left.get() - got as u64);
        Ok(got)
    }
}

/// The regular files in an archive, in one unnamed file. `None` if this is no archive.
pub(super) fn members(source: &Source, scratch: &Path) -> Result<Option<Vec<Source>>> {
    if !decode::is_tar(&source.head(decode::TAR_BLOCK)?) {
        return Ok(None);
    }
    let failed = |why: String| ImportError::input(&source.name, why);
    let broken = |e: io::Error| match stopped(&e) {
        Some(why) => failed(why.to_owned()),
        None => failed(format!("cannot read this archive: {e}; check it with `tar -t`")),
    };
    let left = Rc::new(Cell::new(MOST_HEADER_BYTES));
    let mut archive = tar::Archive::new(Guard { from: source.open()?.0, left: left.clone() });
    let mut copy = unnamed(scratch)?;
    let mut found = Vec::new();
    let (mut at, mut names_bytes) = (0, 0);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        left.set(u64::MAX);
        if entry.header().entry_type().is_file() {
            let member = entry.path().map_err(broken)?.display().to_string();
            let name = PathBuf::from(format!("{}:{member}", source.name.display()));
            names_bytes += name.as_os_str().len();
            if names_bytes > MOST_NAMES_BYTES {
                return Err(failed(
                    "the names of the files in this archive are longer than 32 MiB; import parts of it".into(),
                ));
            }
            let len = copy_all(&mut entry, &mut copy, &name, scratch)?;
            found.push((name, at, len));
            at += len;
        } else if entry.header().entry_type().is_gnu_sparse() {
            // A few bytes may stand for any number of zeros, and a trace has no holes.
            let member = entry.path().map_err(broken)?.display().to_string();
            let why =
                format!("{member} is stored with holes (as a sparse file); unpack this archive and import its files");
            return Err(failed(why));
        } else {
            // Its bytes in the archive, of which there are usually none.
            io::copy(&mut entry, &mut io::sink()).map_err(broken)?;
        }
        if found.len() > MOST_MEMBERS {
            return Err(failed(format!("this archive has more than {MOST_MEMBERS} files; import parts of it")));
        }
        left.set(MOST_HEADER_BYTES);
    }
    if found.is_empty() {
        return Err(failed("this archive contains no files; name an archive with traces".into()));
    }
    let file: Arc<File> = Arc::new(copy);
    let part = |(name, from, len)| Source { name, content: Content::Part { file: file.clone(), from, len } };
    Ok(Some(found.into_iter().map(part).collect()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::{super::open, *};

    fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = tar::Builder::new(Vec::new());
        for (name, bytes) in members {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o600);
            header.set_cksum();
            out.append_data(&mut header, name, *bytes).unwrap();
        }
        out.into_inner().unwrap()
    }

    fn read(source: &Source) -> String {
        let mut text = String::new();
        source.open().unwrap().0.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn members_are_read_in_order_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar.gz");
        let mut packed = flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
        let inner = zstd::encode_all(&b"third"[..], 1).unwrap();
        packed.write_all(&tar(&[("d/a", b"first"), ("b", b""), ("c.zst", &inner)])).unwrap();
        packed.finish().unwrap();
        let sources = open(&[path], dir.path()).unwrap();
        for _ in 0..2 {
            assert_eq!(sources.iter().map(read).collect::<Vec<_>>(), ["first", "", "third"]);
        }
        assert!(sources[0].name.to_string_lossy().ends_with("a.tar.gz:d/a"));
        assert_eq!(sources[2].file_name(), "c");
        std::fs::write(dir.path().join("none.tar"), tar(&[])).unwrap();
        let broken = [&tar(&[("a", &[b'x'; 2000])])[..1000], &[][..]];
        for (i, bytes) in broken.iter().enumerate() {
            let path = dir.path().join(format!("{i}"));
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(open(&[path], dir.path()).is_err(), i == 0);
        }
    }

    /// A member of 8 EiB that takes a few blocks.
    #[test]
    fn holes_are_not_filled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::GNUSparse);
        header.set_path("holes").unwrap();
        let octal = |field: &mut [u8], n: u64| {
            // More than an octal number holds: the first bit says that the rest is binary.
            field.fill(0);
            field[0] = 0x80;
            let at = field.len() - 8;
            field[at..].copy_from_slice(&n.to_be_bytes());
        };
        let most = i64::MAX as u64;
        let gnu = header.as_gnu_mut().unwrap();
        octal(&mut gnu.sparse[0].offset, most);
        octal(&mut gnu.sparse[0].numbytes, 0);
        octal(&mut gnu.realsize, most);
        header.set_size(0);
        header.set_cksum();
        let mut all = tar(&[("first", b"content")]);
        all.truncate(1024);
        all.extend(header.as_bytes());
        all.extend([0; 1024]);
        std::fs::write(&path, all).unwrap();
        let e = open(&[path], dir.path()).unwrap_err().to_string();
        assert!(e.contains("holes is stored with holes") && e.contains("unpack this archive"), "{e}");
    }

    #[test]
    fn the_names_of_an_archive_have_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        let long = "n".repeat(900 << 10);
        for (files, fits) in [(36, true), (38, false)] {
            let mut all = Vec::new();
            for _ in 0..files {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(tar::EntryType::GNULongName);
                header.set_size(long.len() as u64);
                header.set_cksum();
                all.extend(header.as_bytes());
                all.extend(long.as_bytes());
                all.resize(all.len().next_multiple_of(512), 0);
                all.extend(&tar(&[("short", b"")])[..512]);
            }
            all.extend([0; 1024]);
            std::fs::write(&path, all).unwrap();
            match open(std::slice::from_ref(&path), dir.path()) {
                Ok(sources) => assert!(fits && sources.len() == files),
                Err(e) => assert!(!fits && e.to_string().contains("longer than 32 MiB"), "{e}"),
            }
        }
    }

    #[test]
    fn names_without_end_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar");
        for (len, fits) in [(1000, true), (3 << 20, false)] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::GNULongName);
            header.set_size(len as u64);
            header.set_cksum();
            let mut all = header.as_bytes().to_vec();
            all.extend(vec![b'n'; len]);
            all.resize(all.len().next_multiple_of(512), 0);
            all.extend(tar(&[("short", b"content")]));
            std::fs::write(&path, all).unwrap();
            match open(std::slice::from_ref(&path), dir.path()) {
                Ok(sources) => assert!(fits && read(&sources[0]) == "content"),
                Err(e) => assert!(!fits && e.to_string().contains("longer than 1 MiB"), "{e}"),
            }
        }
    }
}
