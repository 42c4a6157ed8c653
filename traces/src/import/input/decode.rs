//! Recognises and reads compressed data by its first bytes, whatever the file's name.

use std::{
    io::{self, BufReader, Cursor, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Bytes, Stopped};

/// Bytes that show the kind of a compression.
const MAGIC_BYTES: usize = 10;
/// Header of a member of a tar archive.
pub(super) const TAR_BLOCK: usize = 512;
/// Maximum number of compressions around each other.
const MOST_LAYERS: usize = 4;
/// Memory that the decoder of xz may use: that of its highest level, and some.
const MOST_XZ_KIB: u32 = 128 * 1024;
/// What any compressed file may expand to.
const MOST_BYTES: u64 = 1 << 30;
/// A larger one may expand to this multiple of what was read. Traces are compressed to a thousandth at best.
const MOST_RATIO: u64 = 2000;
/// Suffixes of compressed files.
pub(super) const SUFFIXES: [&str; 4] = [".gz", ".zst", ".xz", ".bz2"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

fn kind(head: &[u8]) -> Option<Kind> {
    match head {
        [0x1f, 0x8b, 8, ..] => Some(Kind::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Kind::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Kind::Xz),
        // A block begins with the digits of pi, an empty file ends with those of its square root.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
        | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Some(Kind::Bzip2),
        _ => None,
    }
}

/// Whether these first bytes are a tar archive's.
pub(super) fn is_tar(head: &[u8]) -> bool {
    head.get(257..262) == Some(b"ustar")
}

/// Bytes from anywhere.
type Raw = Box<dyn Read + Send>;

/// The first bytes, without consuming them.
fn peek(mut raw: Raw) -> io::Result<(Vec<u8>, Raw)> {
    let mut head = Vec::with_capacity(MAGIC_BYTES);
    (&mut raw).take(MAGIC_BYTES as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Box::new(Cursor::new(head).chain(raw))))
}

/// Counts the bytes that are read.
struct Counted {
    from: Raw,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(buffer)?;
        self.bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// Decompressed bytes, which end where they are too many for what was read.
struct Bounded {
    from: Raw,
    bytes: u64,
    /// Compressed bytes read so far.
    packed: Arc<AtomicU64>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(buffer)?;
        self.bytes += got as u64;
        if self.bytes > MOST_BYTES && self.bytes / MOST_RATIO > self.packed.load(Ordering::Relaxed) {
            let why = format!(
                "the compressed data expands to more than 1 GiB and {MOST_RATIO} times its size; check what is in it, and import it unpacked"
            );
            return Err(io::Error::other(Stopped(why)));
        }
        Ok(got)
    }
}

/// Fails once with this error, then ends.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The bytes without compression, and whether there was any.
pub(super) fn decoded(raw: Raw, buffer: usize) -> io::Result<(Bytes, bool)> {
    let packed_bytes = Arc::new(AtomicU64::new(0));
    let mut raw: Raw = Box::new(Counted { from: raw, bytes: packed_bytes.clone() });
    let mut compressed = false;
    for _ in 0..MOST_LAYERS {
        let (head, rest) = match peek(raw) {
            Ok(peeked) => peeked,
            // Damaged compressed data is an end of the file, not a failure to read it.
            Err(e) if compressed => (Vec::new(), Box::new(Broken(Some(e))) as Raw),
            Err(e) => return Err(e),
        };
        raw = rest;
        let Some(kind) = kind(&head) else { break };
        compressed = true;
        let packed = BufReader::with_capacity(buffer, raw);
        raw = match kind {
            Kind::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Kind::Zstd => Box::new(zstd::Decoder::with_buffer(packed)?),
            Kind::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, MOST_XZ_KIB)),
            Kind::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(packed)),
        };
    }
    if compressed {
        raw = Box::new(Bounded { from: raw, bytes: 0, packed: packed_bytes });
    }
    Ok((BufReader::with_capacity(buffer, raw), compressed))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::import::input::stopped;

    /// Bytes that no compression makes shorter.
    fn noise(len: usize) -> Vec<u8> {
        let mut x = 1_u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    /// Nothing where the program is missing.
    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let done = std::process::Command::new("xz").args(["-0", "-c"]).arg(file.path()).output();
        done.map(|done| done.stdout).unwrap_or_default()
    }

    /// A failure below a decoder is not taken for damage of the data.
    #[test]
    fn decoders_pass_on_why_an_import_stops() {
        let bytes = noise(3 << 20);
        for (what, packed) in [
            ("bzip2", bzip2(&bytes)),
            ("gzip", gzip(&bytes)),
            ("xz", xz(&bytes)),
            ("zstd", zstd::encode_all(&bytes[..], 1).unwrap()),
        ] {
            if packed.is_empty() {
                continue;
            }
            let half = Cursor::new(packed[..packed.len() / 2].to_vec());
            let raw = Box::new(half.chain(Broken(Some(io::Error::other(Stopped("full".into()))))));
            let (mut reader, compressed) = decoded(raw, 4096).unwrap();
            let e = reader.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!((compressed, stopped(&e)), (true, Some("full")), "{what}");
        }
    }

    #[test]
    fn data_that_expands_without_bound_ends() {
        let zeros = vec![0; 16 << 20];
        // Frames follow each other.
        let packed = zstd::encode_all(&zeros[..], 1).unwrap().repeat(80);
        let all = packed.len() as u64;
        assert!((80 * zeros.len()) as u64 / MOST_RATIO > all, "{all}");
        let (mut reader, _) = decoded(Box::new(Cursor::new(packed)), 1 << 16).unwrap();
        let e = io::copy(&mut reader, &mut io::sink()).unwrap_err();
        assert!(stopped(&e).unwrap().contains("more than 1 GiB and 2000 times its size"), "{e}");
    }
}
