//! `--content`: computes a hash and an estimated compressibility from the bytes of writes, which the probes read
//! (`ops/contents.bpf.h`). With `full`, also makes rows of `contents`.

use std::collections::HashSet;

use ioreel_bpf::types::rec_content;
use ioreel_traces::{
    Result, Text,
    rows::{self, Op},
};
use rustc_hash::FxHashMap;

use crate::{assemble::Assembler, probes::plan::Content};

/// Length of the stored hash. Among a billion contents, the chance that any two collide is 10^-21.
const HASH_BYTES: usize = 16;
/// Bytes compressed at a time for the estimate.
const SAMPLE_BYTES: usize = 32 << 10;
/// A long write is sampled: the first [`DENSE`] samples are compressed, then one in [`SPARSE`].
const DENSE: usize = 4;
const SPARSE: usize = 8;
/// The fastest level; only an estimate is needed.
const ZSTD_LEVEL: i32 = 1;
/// Number of stored contents remembered, 16 bytes each. Beyond it all are forgotten, and a content may be stored twice.
const REMEMBERED: usize = 1 << 20;
/// Maximum number of incomplete contents. A content and its operation arrive within the same nanosecond, so more than
/// this are leftovers.
const MOST_COMING: usize = 256;
/// Size at which the open segment of contents is closed, because it is held in memory.
const SEGMENT_BYTES: usize = 16 << 20;

/// Result for one write.
#[derive(Debug)]
pub(crate) struct Told {
    hash: [u8; HASH_BYTES],
    permille: i32,
    bytes: Vec<u8>,
}

/// A write whose bytes are still arriving.
#[derive(Debug)]
struct Coming {
    hasher: blake3::Hasher,
    sample: Vec<u8>,
    samples: usize,
    /// Bytes compressed so far, and their compressed size.
    tried: usize,
    came_to: usize,
    bytes: Vec<u8>,
    whole: bool,
}

impl Coming {
    fn new() -> Self {
        Self {
            hasher: blake3::Hasher::new(),
            sample: Vec::new(),
            samples: 0,
            tried: 0,
            came_to: 0,
            bytes: Vec::new(),
            whole: false,
        }
    }

    fn take(&mut self, mut data: &[u8], zstd: &mut Compressor, keep: bool) {
        self.hasher.update(data);
        if keep {
            self.bytes.extend_from_slice(data);
        }
        while !data.is_empty() {
            let (now, later) = data.split_at(data.len().min(SAMPLE_BYTES - self.sample.len()));
            self.sample.extend_from_slice(now);
            data = later;
            if self.sample.len() == SAMPLE_BYTES {
                self.try_sample(zstd);
            }
        }
    }

    fn try_sample(&mut self, zstd: &mut Compressor) {
        if (self.samples < DENSE || self.samples.is_multiple_of(SPARSE)) && !self.sample.is_empty() {
            self.tried += self.sample.len();
            self.came_to += zstd.size(&self.sample);
        }
        self.samples += 1;
        self.sample.clear();
    }

    fn told(mut self, zstd: &mut Compressor) -> Told {
        self.try_sample(zstd);
        let saved = self.tried.saturating_sub(self.came_to);
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(&self.hasher.finalize().as_bytes()[..HASH_BYTES]);
        Told { hash, permille: (saved * 1000 / self.tried.max(1)) as i32, bytes: self.bytes }
    }
}

/// Compresses samples to measure their size.
struct Compressor(Option<zstd::bulk::Compressor<'static>>);

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Compressor")
    }
}

impl Compressor {
    /// Compressed size; the original size if compression fails.
    fn size(&mut self, bytes: &[u8]) -> usize {
        /// zstd's magic number and frame header. They are not counted, because they would matter for short writes.
        const FRAME_BYTES: usize = 6;
        let compressed = self.0.as_mut().and_then(|z| z.compress(bytes).ok());
        compressed.map_or(bytes.len(), |c| c.len().saturating_sub(FRAME_BYTES).max(1))
    }
}

/// Contents of writes before they become rows.
#[derive(Debug)]
pub(crate) struct Contents {
    full: bool,
    /// By task and its operation.
    coming: FxHashMap<(u32, u64), Coming>,
    zstd: Compressor,
    stored: HashSet<[u8; HASH_BYTES]>,
    /// Bytes in the open segment, and the size at which it is closed.
    waiting: usize,
    segment: usize,
    /// Complete contents received; those whose operation was written to `ops`; those whose operation was filtered out.
    pub(crate) came: i64,
    pub(crate) written: i64,
    pub(crate) sifted: i64,
    /// Operations written without content, by reason.
    pub(crate) without: Without,
}

/// Operations that changed the content of a file with bytes that are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Without {
    /// The bytes never were in user memory.
    pub(crate) elsewhere: i64,
    /// First store to a page of a mapped file.
    pub(crate) mapped: i64,
    /// Write whose entry or return no probe saw.
    pub(crate) unseen: i64,
}

impl Without {
    /// Processes a row that was written.
    pub(crate) fn note(&mut self, op: &Op) {
        let moved = op.ret.is_some_and(|r| r > 0);
        match &*op.op {
            // A destination without a position is not a regular file.
            "splice" | "sendfile" | "copy_file_range" if moved && op.offset2_bytes.is_some() => self.elsewhere += 1,
            "ioctl" if op.ret == Some(0) && matches!(op.name.as_deref(), Some("FICLONE" | "FICLONERANGE")) => {
                self.elsewhere += 1;
            }
            "dirty" if op.source == "fault" => self.mapped += 1,
            name if name.starts_with("write") || name.starts_with("pwrite") => {
                let may_have_written = op.ret.is_none() || moved;
                self.unseen += i64::from(op.state != "complete" && may_have_written && op.offset_bytes.is_some());
            }
            _ => {}
        }
    }
}

impl Contents {
    /// `None` for [`Content::None`]. `max_bytes`: limit on the size of the reel, if any.
    pub(crate) fn of(content: Content, max_bytes: Option<i64>) -> Option<Self> {
        /// With a size limit, segments are at most this fraction of the limit.
        const SEGMENTS: i64 = 16;
        let segment = max_bytes.map_or(SEGMENT_BYTES, |max| SEGMENT_BYTES.min((max / SEGMENTS) as usize));
        (content != Content::None).then(|| Self {
            full: content == Content::Full,
            coming: FxHashMap::default(),
            zstd: Compressor(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok()),
            stored: HashSet::new(),
            waiting: 0,
            segment,
            came: 0,
            written: 0,
            sifted: 0,
            without: Without::default(),
        })
    }

    fn take(&mut self, rec: &rec_content, data: &[u8]) {
        let key = (rec.task_id, rec.of);
        if self.coming.len() >= MOST_COMING && !self.coming.contains_key(&key) {
            // The last parts of all these were lost, or their operations were.
            self.coming.clear();
        }
        let coming = self.coming.entry(key).or_insert_with(Coming::new);
        if coming.whole {
            *coming = Coming::new();
        }
        coming.take(data, &mut self.zstd, self.full);
        if rec.last != 0 {
            coming.whole = true;
            self.came += 1;
        }
    }

    /// Takes the content of an operation of a task. `of`: the start of a call, or the address of a request.
    pub(crate) fn of_op(&mut self, task_id: u32, of: u64) -> Option<Told> {
        let coming = self.coming.remove(&(task_id, of))?;
        coming.whole.then(|| coming.told(&mut self.zstd))
    }

    /// Some stored contents were deleted by rotation; they may have to be stored again.
    pub(crate) fn rotated(&mut self) {
        self.stored.clear();
    }

    /// Drops the incomplete contents of a task that has ended.
    pub(crate) fn ended(&mut self, task_id: u32) {
        self.coming.retain(|(task, _), _| *task != task_id);
    }
}

impl Told {
    /// The hash in hexadecimal, for the column of `ops`.
    pub(crate) fn hash(&self) -> Text {
        self.hash.iter().map(|b| format!("{b:02x}")).collect::<String>().into()
    }

    /// Size reduction by zstd, in thousandths.
    pub(crate) fn permille(&self) -> i32 {
        self.permille
    }
}

impl Assembler {
    /// Writes an operation with its content, if it has one. `of`: the key of the content. `other` and `io`: see
    /// [`Assembler::write`].
    pub(crate) fn write_with_content(
        &mut self,
        mut op: Op,
        of: Option<(u32, u64)>,
        other: bool,
        io: bool,
    ) -> Result<bool> {
        let contents = self.contents.as_mut();
        let told = contents.zip(of).and_then(|(c, (task_id, of))| c.of_op(task_id, of));
        if let Some(told) = &told {
            op.content_hash = Some(told.hash());
            op.compressibility_permille = Some(told.permille());
        }
        let start_ns = op.start_ns;
        let written = self.write(op, other, io)?;
        told.map_or(Ok(()), |told| self.content_of(told, start_ns, written)).map(|()| written)
    }

    /// Counts a row that changed a file without bytes from user memory.
    pub(crate) fn without_content(&mut self, op: &Op) {
        if let Some(contents) = &mut self.contents {
            contents.without.note(op);
        }
    }

    pub(crate) fn content(&mut self, rec: &rec_content, data: &[u8]) {
        if let Some(contents) = &mut self.contents {
            contents.take(rec, data);
        }
    }

    /// An operation with content was written, or (`written` false) filtered out.
    pub(crate) fn content_of(&mut self, told: Told, start_ns: i64, written: bool) -> Result<()> {
        let Some(contents) = &mut self.contents else { return Ok(()) };
        if !written {
            contents.sifted += 1;
            return Ok(());
        }
        contents.written += 1;
        if !contents.full {
            return Ok(());
        }
        if contents.stored.len() >= REMEMBERED {
            contents.stored.clear();
        }
        if !contents.stored.insert(told.hash) {
            return Ok(());
        }
        contents.waiting += told.bytes.len();
        let row = rows::Content { first_ns: start_ns, content_hash: told.hash(), data: told.bytes.into() };
        self.writer.contents.push(row)?;
        if contents.waiting >= contents.segment {
            contents.waiting = 0;
            self.writer.contents.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pieces: &[&[u8]]) -> Told {
        let mut zstd = Compressor(zstd::bulk::Compressor::new(ZSTD_LEVEL).ok());
        let mut coming = Coming::new();
        for piece in pieces {
            coming.take(piece, &mut zstd, true);
        }
        coming.told(&mut zstd)
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let whole = told(&[&bytes]);
        let (left, right) = bytes.split_at(12_345);
        let parts = told(&[left, right]);
        assert_eq!((whole.hash, whole.permille), (parts.hash, parts.permille));
        assert_eq!(whole.hash, blake3::hash(&bytes).as_bytes()[..HASH_BYTES]);
        assert_eq!(parts.bytes, bytes);
    }

    #[test]
    fn what_changes_files_without_bytes_of_a_caller_is_counted() {
        let mut w = Without::default();
        let op = |name: &str, source: &str, state: &str, ret| Op {
            op: name.into(),
            source: source.into(),
            state: state.into(),
            ret,
            offset_bytes: Some(0),
            ..Op::default()
        };
        let to_file = |op: Op| Op { offset2_bytes: Some(0), ..op };
        for counted in [
            to_file(op("splice", "syscall", "complete", Some(1))),
            to_file(op("copy_file_range", "syscall", "complete", Some(1))),
            Op { name: Some("FICLONE".into()), ..op("ioctl", "syscall", "complete", Some(0)) },
            op("dirty", "fault", "complete", Some(0)),
            op("write", "io_uring", "unreported", Some(4096)),
            op("pwrite64", "aio", "unknown", None),
        ] {
            w.note(&counted);
        }
        let all = Without { elsewhere: 3, mapped: 1, unseen: 2 };
        assert_eq!(w, all);
        for other in [
            op("splice", "syscall", "complete", Some(1)),
            to_file(op("sendfile", "syscall", "complete", Some(-5))),
            op("write", "syscall", "complete", Some(1)),
            op("write", "io_uring", "unreported", Some(-5)),
            op("map_pages", "fault", "complete", Some(0)),
        ] {
            w.note(&other);
        }
        assert_eq!(w, all);
    }

    #[test]
    fn what_repeats_can_be_compressed() {
        let mut state = 1_u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(1 << 20)
        .collect();
        let text = "so much depends upon a red wheel barrow glazed with rain water ".repeat(3000);
        for len in [4096, 100_000] {
            assert!(told(&[&random[..len]]).permille < 10);
            assert!((500..=1000).contains(&told(&[&text.as_bytes()[..len]]).permille));
            assert!(told(&[&vec![0; len]]).permille > 980);
        }
        assert_eq!(told(&[b"x"]).permille, 0);
    }
}
