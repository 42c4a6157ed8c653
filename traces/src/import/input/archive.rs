//! The members of tar archives.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use super::{Content, ImportError, Result, Source, copy_all, decode, unnamed};

/// Maximum number of bytes before the contents of a member: its headers, with long names and attributes. They are kept in
/// memory.
const MOST_HEADER_BYTES: u64 = 1 << 20;
/// Maximum number of files in an archive.
const MOST_MEMBERS: usize = 100_000;

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
pub(super) fn members(source: &Source, scratch: &std::path::Path) -> Result<Option<Vec<Source>>> {
    if !decode::is_tar(&source.head(decode::TAR_BLOCK)?) {
        return Ok(None);
    }
    let failed = |why: String| ImportError::input(&source.name, why);
    let broken = |e: io::Error| failed(format!("cannot read this archive: {e}; check it with `tar -t`"));
    let left = Rc::new(Cell::new(MOST_HEADER_BYTES));
    let mut archive = tar::Archive::new(Guard { from: source.open()?.0, left: left.clone() });
    let mut copy = unnamed(scratch)?;
    let mut found = Vec::new();
    let mut at = 0;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        left.set(u64::MAX);
        if entry.header().entry_type().is_file() {
            let member = entry.path().map_err(broken)?.display().to_string();
            let name = PathBuf::from(format!("{}:{member}", source.name.display()));
            let len = copy_all(&mut entry, &mut copy, &name, scratch)?;
            found.push((name, at, len));
            at += len;
        } else {
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
