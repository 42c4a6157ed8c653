//! Calls on two files: copies and clones.

use std::{mem::MaybeUninit, ptr};

use super::{
    stamp::without_call,
    syscall::{call, ioctl},
};
use crate::{
    Call,
    contents::buffers::MAX_CALL_BYTES,
    reel::input::{NO_ID, Rec},
};

/// The ioctl requests.
pub(super) const FICLONE: i64 = 0x4004_9409;
pub(super) const FICLONERANGE: i64 = 0x4020_940d;

/// Length of an open file. `None` if the descriptor is not open.
pub(super) fn length_bytes(fd: i64) -> Option<i64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the structure if it returns 0.
    match unsafe { libc::fstat(fd as i32, stat.as_mut_ptr()) } {
        // SAFETY: filled.
        0 => Some(unsafe { stat.assume_init() }.st_size),
        _ => None,
    }
}

/// Replays FICLONE and FICLONERANGE. If the target cannot share data, the data is copied, because later operations need
/// it.
///
/// `may_take` asks for the disk space of a copy.
pub(super) fn clone(r: &Rec, fd: i64, fd2: i64, offset: i64, may_take: impl Fn(i64) -> bool) -> i64 {
    let to = if r.offset2_bytes == NO_ID { 0 } else { r.offset2_bytes };
    // `struct file_clone_range`
    let range = [fd, offset, r.len_bytes, to];
    let ret = match r.call {
        Call::Ficlone => ioctl(fd2, FICLONE, fd),
        _ => ioctl(fd2, FICLONERANGE, range.as_ptr() as i64),
    };
    let cannot = [libc::EOPNOTSUPP, libc::EXDEV, libc::EINVAL, libc::ENOTTY].map(|e| -i64::from(e)).contains(&ret);
    if r.ret < 0 || !cannot {
        return ret;
    }
    let mut left = length_bytes(fd).unwrap_or(0).saturating_sub(offset).max(0);
    if r.len_bytes > 0 {
        left = left.min(r.len_bytes);
    }
    match copy_data((fd, offset), (fd2, to), left, may_take) {
        Ok(()) => 0,
        Err(failed) => failed,
    }
}

/// Copies `len` bytes. Where the source has a hole, the destination gets one.
fn copy_data(
    (fd, from): (i64, i64),
    (fd2, to): (i64, i64),
    len: i64,
    may_take: impl Fn(i64) -> bool,
) -> Result<(), i64> {
    let end = from.saturating_add(len);
    let mut at = from;
    let position = sought(fd, 0, libc::SEEK_CUR);
    let mut copied = Ok(());
    while at < end && copied.is_ok() {
        // Without support for holes, all is data.
        let data = match sought(fd, at, libc::SEEK_DATA) {
            Err(e) if e == -i64::from(libc::ENXIO) => end,
            found => found.unwrap_or(at).clamp(at, end),
        };
        if data > at {
            copied = empty(fd2, to + (at - from), data - at);
            at = data;
            continue;
        }
        let hole = sought(fd, at, libc::SEEK_HOLE).unwrap_or(end).clamp(at + 1, end);
        copied = copy_all((fd, at), (fd2, to + (at - from)), hole - at, &may_take);
        at = hole;
    }
    // The recorded call does not move it. Other uses of the description are ordered against this one.
    if let Ok(position) = position {
        let _ = sought(fd, position, libc::SEEK_SET);
    }
    copied?;
    let to_end = to.saturating_add(len);
    if length_bytes(fd2).is_some_and(|size| size < to_end) {
        let ret = call(libc::SYS_ftruncate, [fd2, to_end, 0, 0, 0, 0]);
        return if ret < 0 { Err(ret) } else { Ok(()) };
    }
    Ok(())
}

/// A seek; -errno if it fails.
fn sought(fd: i64, offset: i64, whence: i32) -> Result<i64, i64> {
    match call(libc::SYS_lseek, [fd, offset, whence.into(), 0, 0, 0]) {
        at if at >= 0 => Ok(at),
        failed => Err(failed),
    }
}

/// Makes a range read as zeros. Beyond the end of the file, nothing is to be done.
fn empty(fd: i64, at: i64, len: i64) -> Result<(), i64> {
    let len = len.min(length_bytes(fd).unwrap_or(0) - at);
    if len <= 0 {
        return Ok(());
    }
    for mode in [libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_ZERO_RANGE] {
        let ret = call(libc::SYS_fallocate, [fd, mode.into(), at, len, 0, 0]);
        if ret != -i64::from(libc::EOPNOTSUPP) {
            return if ret < 0 { Err(ret) } else { Ok(()) };
        }
    }
    let zeros = [0_u8; 16 << 10];
    let mut done = 0;
    while done < len {
        let most = (len - done).min(zeros.len() as i64);
        match call(libc::SYS_pwrite64, [fd, zeros.as_ptr() as i64, most, at + done, 0, 0]) {
            n if n > 0 => done += n,
            failed => return Err(failed),
        }
    }
    Ok(())
}

/// Copies a range that has data.
fn copy_all(
    (fd, mut from): (i64, i64),
    (fd2, mut to): (i64, i64),
    len: i64,
    may_take: impl Fn(i64) -> bool,
) -> Result<(), i64> {
    if !may_take(len) {
        return Err(without_call(-i64::from(libc::ENOSPC)));
    }
    let mut left = len;
    while left > 0 {
        let piece = left.min(MAX_CALL_BYTES as i64);
        let (a, b) = (ptr::from_mut(&mut from) as i64, ptr::from_mut(&mut to) as i64);
        match call(libc::SYS_copy_file_range, [fd, a, fd2, b, piece, 0]) {
            0 => break,
            n if n > 0 => left -= n,
            failed => return Err(failed),
        }
    }
    Ok(())
}

/// Copies with reads and writes. Without a position, uses the descriptor's own.
fn piecewise((fd, mut from): (i64, Option<i64>), (fd2, mut to): (i64, Option<i64>), len: i64) -> i64 {
    let mut piece = [0_u8; 16 << 10];
    let at = piece.as_mut_ptr() as i64;
    let mut done = 0;
    while done < len {
        let most = (len - done).min(piece.len() as i64);
        let got = match from {
            Some(from) => call(libc::SYS_pread64, [fd, at, most, from, 0, 0]),
            None => call(libc::SYS_read, [fd, at, most, 0, 0, 0]),
        };
        let put = match to {
            _ if got <= 0 => got,
            Some(to) => call(libc::SYS_pwrite64, [fd2, at, got, to, 0, 0]),
            None => call(libc::SYS_write, [fd2, at, got, 0, 0, 0]),
        };
        if put <= 0 {
            return if done > 0 { done } else { put };
        }
        done += put;
        (from, to) = (from.map(|f| f + put), to.map(|t| t + put));
    }
    done
}

/// Replays a copy between two files.
pub(super) fn copy(r: &Rec, fd: i64, fd2: i64, len: i64, offset: i64) -> i64 {
    let mut from = offset;
    let places = [(r.aux & 1, offset), (r.aux & 2, r.offset2_bytes.max(0))];
    let mut to = if r.offset2_bytes == NO_ID { 0 } else { r.offset2_bytes };
    let from = if r.aux & 1 != 0 { 0 } else { ptr::from_mut(&mut from) as i64 };
    if r.call == Call::Sendfile {
        return call(libc::SYS_sendfile, [fd2, fd, from, len, 0, 0]);
    }
    let to = if r.aux & 2 != 0 { 0 } else { ptr::from_mut(&mut to) as i64 };
    if r.call == Call::Splice {
        // A splice between two files, which the kernel refuses.
        return call(libc::SYS_splice, [fd, from, fd2, to, len, r.flags]);
    }
    let mut ret = call(libc::SYS_copy_file_range, [fd, from, fd2, to, len, r.flags]);
    // A file system that shares only whole blocks returns early at the last one. The rest takes another call.
    while 0 < ret && ret < r.ret && !r.loose {
        match call(libc::SYS_copy_file_range, [fd, from, fd2, to, r.ret - ret, 0]) {
            n if n > 0 => ret += n,
            _ => break,
        }
    }
    if ret == -i64::from(libc::EXDEV) && r.ret >= 0 {
        // A mapped directory may be on another file system.
        let [from, to] = places.map(|(moves, at)| (moves == 0).then_some(at));
        return piecewise((fd, from), (fd2, to), len);
    }
    ret
}
