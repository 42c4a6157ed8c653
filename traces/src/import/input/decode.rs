//! Recognises and reads compressed data by its first bytes, whatever the file's name.

use std::io::{self, BufReader, Cursor, Read};

use super::Bytes;

/// Bytes that show the kind of a compression.
const MAGIC_BYTES: usize = 10;
/// Header of a member of a tar archive.
pub(super) const TAR_BLOCK: usize = 512;
/// Maximum number of compressions around each other.
const MOST_LAYERS: usize = 4;
/// Memory that the decoder of xz may use: that of its highest level, and some.
const MOST_XZ_KIB: u32 = 128 * 1024;
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

/// Fails once with this error, then ends.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The bytes without compression, and whether there was any.
pub(super) fn decoded(mut raw: Raw, buffer: usize) -> io::Result<(Bytes, bool)> {
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
    Ok((BufReader::with_capacity(buffer, raw), compressed))
}
