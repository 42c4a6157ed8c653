//! Which file a record refers to, and the rows of `files`.

use ioreel_bpf::types::{file_id, file_more, rec_file};
use ioreel_traces::{
    Result, Text,
    host::mount_of_device,
    rows::File,
    text::{from_bytes, to_bytes},
};

use crate::{assemble::context_filter::MetFile, host};

use super::{Assembler, FileKey, Guess, KnownFile, kind_of};

impl Assembler {
    pub(crate) fn file_of(&mut self, id: file_id) -> KnownFile {
        self.files.get(&id.into()).unwrap_or_else(|| self.new_file(id, 0))
    }

    fn new_file(&mut self, id: file_id, made_ns: u64) -> KnownFile {
        let new = KnownFile {
            id: self.next_file,
            described: false,
            seekable: true,
            sb_dev: 0,
            guess: Guess::Other,
            disk: 0,
            made_ns,
        };
        self.next_file += 1;
        self.remember(id.into(), new);
        new
    }

    pub(super) fn remember(&mut self, key: FileKey, known: KnownFile) {
        self.files.insert(key, known, || self.writer.scratch());
    }

    /// A call that ended at `at_ns` created the file. If the file system has inode generations, the number identifies
    /// the file.
    pub(crate) fn made(&mut self, id: file_id, at_ns: u64) -> Result<KnownFile> {
        if id.generation != 0 { Ok(self.file_of(id)) } else { self.renewed(id, at_ns) }
    }

    /// A new file that reuses the inode number of an older one.
    fn renewed(&mut self, id: file_id, at_ns: u64) -> Result<KnownFile> {
        match self.files.get(&id.into()) {
            Some(known) if known.made_ns == at_ns => Ok(known),
            Some(known) => {
                if !known.described {
                    let row = self.undescribed_file(id.into(), known);
                    self.writer.files.push(row)?;
                }
                Ok(self.new_file(id, at_ns))
            }
            None => Ok(self.new_file(id, at_ns)),
        }
    }

    /// The file, which is a regular file on this file system and may never be opened.
    pub(crate) fn file_met(&mut self, id: file_id, sb_dev: u32) -> KnownFile {
        let mut known = self.file_of(id);
        if !known.described && known.guess == Guess::Other && sb_dev != 0 {
            (known.guess, known.sb_dev) = (Guess::Regular, i64::from(sb_dev));
            self.touched.insert(known.sb_dev);
            self.remember(id.into(), known);
        }
        known
    }

    pub(super) fn file(&mut self, rec: &rec_file, path: &[u8], fs_path: &[u8]) -> Result<()> {
        let known =
            if rec.more.renewed != 0 { self.renewed(rec.file, rec.hdr.end_ns)? } else { self.file_of(rec.file) };
        if known.described {
            return Ok(());
        }
        let kind = kind_of(rec.mode);
        let sb_dev = i64::from(rec.sb_dev);
        let seekable = matches!(kind, "regular" | "directory" | "block");
        self.remember(rec.file.into(), KnownFile { described: true, seekable, sb_dev, ..known });
        self.touched.insert(sb_dev);
        let first_ns = self.since(rec.hdr.end_ns).max(0);
        let more = &rec.more;
        let real = (more.real.ino != 0).then(|| self.file_of(more.real));
        let path = (!path.is_empty()).then(|| self.paths.get(path));
        let host_path = self.host_path(rec, fs_path).filter(|p| path.as_deref() != Some(p));
        if let Some(sieve) = &mut self.sieve {
            // An overlayfs has no disk; the file system below may have one.
            let below = if more.real.ino != 0 { i64::from(more.real_sb_dev) } else { sb_dev };
            let paths = [path.as_deref(), host_path.as_deref()];
            let met = MetFile { file: known.id, id: rec.file, paths, sb_dev: below, kind };
            sieve.file(&met, || self.writer.scratch());
        }
        let row = File {
            file: known.id,
            dev: i64::from(rec.file.dev),
            sb_dev,
            ino: rec.file.ino as i64,
            generation: i64::from(rec.file.generation),
            kind: Text::word(kind),
            first_ns,
            size_bytes: Some(rec.size_bytes),
            mode: Some((rec.mode & 0o7777) as i32),
            path,
            path_cut: rec.path_cut as i32,
            subvolume: (more.subvolume != 0).then_some(more.subvolume as i64),
            real_file: real.map(|r| r.id),
            host_path: host_path.map(|p| self.paths.get(&to_bytes(&p))),
            unlinked: Some(more.unlinked as i32),
            peer_ino: (more.peer_ino != 0).then_some(more.peer_ino as i64),
        };
        if let Some(real) = real.filter(|r| !r.described) {
            self.describe_real(more, real, &row)?;
        }
        self.writer.files.push(row)
    }

    /// The row of the file below an overlay file: bios refer to it.
    fn describe_real(&mut self, more: &file_more, real: KnownFile, overlay: &File) -> Result<()> {
        let sb_dev = i64::from(more.real_sb_dev);
        self.remember(more.real.into(), KnownFile { described: true, sb_dev, ..real });
        self.touched.insert(sb_dev);
        self.writer.files.push(File {
            file: real.id,
            dev: i64::from(more.real.dev),
            sb_dev,
            ino: more.real.ino as i64,
            generation: i64::from(more.real.generation),
            path: overlay.host_path.clone(),
            path_cut: 0,
            real_file: None,
            host_path: None,
            subvolume: None,
            unlinked: None,
            peer_ino: None,
            ..overlay.clone()
        })
    }

    /// Path of the file in the recorder's mount namespace; `None` if it is not visible there.
    fn host_path(&self, rec: &rec_file, fs_path: &[u8]) -> Option<String> {
        if fs_path.is_empty() || rec.more.unlinked != 0 {
            return None;
        }
        let dev = if rec.more.real.ino != 0 { rec.more.real_sb_dev } else { rec.sb_dev };
        let fs_path = from_bytes(fs_path);
        mount_of_device(&self.mounts, i64::from(dev), &fs_path)
    }

    /// The row of a file whose description was lost or never sent.
    pub(super) fn undescribed_file(&self, key: FileKey, known: KnownFile) -> File {
        // For files known only from bios, the kind may be known.
        let kind = match known.guess {
            Guess::Block => "block",
            Guess::Directory => "directory",
            Guess::Regular => "regular",
            Guess::Other => "other",
        };
        let path = (known.guess == Guess::Block).then(|| format!("/dev/{}", host::device(known.disk).name).into());
        File {
            file: known.id,
            dev: i64::from(key.dev),
            sb_dev: known.sb_dev,
            ino: key.ino as i64,
            generation: i64::from(key.generation),
            kind: kind.into(),
            path,
            ..File::default()
        }
    }
}
