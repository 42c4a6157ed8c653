//! Arguments of a call, with the descriptors and addresses of the replay.

use crate::{
    contents::buffers::MAX_CALL_BYTES,
    plan::chunk::Chunk,
    reel::input::{NO_ID, NONE, Rec},
};

/// Longest name of an extended attribute (`XATTR_NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;
/// A name that the kernel refuses as too long (ERANGE).
const TOO_LONG: &[u8; MAX_NAME_BYTES + 7] = &{
    let mut name = [b'x'; MAX_NAME_BYTES + 7];
    (name[0], name[1], name[2], name[3], name[4]) = (b'u', b's', b'e', b'r', b'.');
    name[MAX_NAME_BYTES + 6] = 0;
    name
};

/// The arguments that most calls take.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) rec: &'a Rec,
    pub(super) fd: i64,
    pub(super) fd2: i64,
    /// Addresses of NUL-terminated strings. 0: none.
    pub(super) path: i64,
    pub(super) path2: i64,
    pub(super) name: i64,
    /// Bytes to read, write or list, at most [`MAX_CALL_BYTES`].
    pub(super) len: i64,
    /// 0 if none was recorded.
    pub(super) offset: i64,
}

impl<'a> Arguments<'a> {
    /// The arguments of an operation of this piece, with these descriptors.
    pub(super) fn of(chunk: &Chunk, rec: &'a Rec, fd: i64, fd2: i64) -> Self {
        let text = |i: u32| if i == NONE { 0 } else { chunk.paths.c_str(i).as_ptr() as i64 };
        let name = match rec.ret == -i64::from(libc::ERANGE) {
            true if rec.name == NONE => c"".as_ptr() as i64,
            // The recorder stored only the beginning of the name.
            true if chunk.paths.bytes(rec.name).len() >= MAX_NAME_BYTES => TOO_LONG.as_ptr() as i64,
            _ => text(rec.name),
        };
        Self {
            rec,
            fd,
            fd2,
            path: text(rec.path),
            path2: text(rec.path2),
            name,
            len: rec.len_bytes.clamp(0, MAX_CALL_BYTES as i64),
            offset: if rec.offset_bytes == NO_ID { 0 } else { rec.offset_bytes },
        }
    }
}
