//! The arguments of a call, with descriptors and addresses of the replay.

use crate::{
    contents::buffers::MAX_CALL_BYTES,
    plan::chunk::Chunk,
    reel::input::{NO_ID, NONE, Rec},
};

/// An attribute's name is no longer.
const MAX_NAME_BYTES: usize = 255;
/// No name of an attribute.
const TOO_LONG: &[u8; MAX_NAME_BYTES + 7] = &{
    let mut name = [b'x'; MAX_NAME_BYTES + 7];
    (name[0], name[1], name[2], name[3], name[4]) = (b'u', b's', b'e', b'r', b'.');
    name[MAX_NAME_BYTES + 6] = 0;
    name
};

/// What most calls are made of.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) rec: &'a Rec,
    pub(super) fd: i64,
    pub(super) fd2: i64,
    /// Addresses of NUL-terminated texts; 0 for none.
    pub(super) path: i64,
    pub(super) path2: i64,
    pub(super) name: i64,
    /// Bytes to read, write or list, at most what one call takes.
    pub(super) len: i64,
    /// 0 where none was recorded.
    pub(super) offset: i64,
}

impl<'a> Arguments<'a> {
    /// Of an operation of this piece, on these descriptors.
    pub(super) fn of(chunk: &Chunk, rec: &'a Rec, fd: i64, fd2: i64) -> Self {
        let text = |i: u32| if i == NONE { 0 } else { chunk.paths.c_str(i).as_ptr() as i64 };
        let name = match rec.ret == -i64::from(libc::ERANGE) {
            true if rec.name == NONE => c"".as_ptr() as i64,
            // Recorded cut off.
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
