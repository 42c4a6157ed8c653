//! ioctl requests that read file system metadata of a file, deduplication, file handles, cachestat and sync.

use std::ptr;

use super::{
    arguments::Arguments,
    copies::FICLONERANGE,
    stamp::without_call,
    syscall::{call, close, ioctl},
};
use crate::{Call, contents::buffers::Sink, reel::input::NO_ID};

pub(super) const FIBMAP: i64 = 1;
pub(super) const FIGETBSZ: i64 = 2;
pub(super) const FIDEDUPERANGE: i64 = 0xc018_9436;
pub(super) const FS_IOC_GETVERSION: i64 = 0x8008_7601;
pub(super) const FS_IOC_SETVERSION: i64 = 0x4008_7602;
pub(super) const FS_IOC_FIEMAP: i64 = 0xc020_660b;
pub(super) const FS_IOC_GETFSLABEL: i64 = 0x8100_9431;

pub(super) const SYS_CACHESTAT: i64 = 451;
pub(super) const TCGETS: i64 = 0x5401;

/// Extents requested, at most; 56 bytes each.
const MOST_EXTENTS: i64 = 1 << 16;
/// `MAX_HANDLE_SZ`.
const HANDLE_BYTES: u32 = 128;

/// `struct fiemap` without its extents.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
}

/// `struct file_dedupe_range` with one destination.
#[repr(C)]
struct Dedupe {
    from: u64,
    len: u64,
    count: u16,
    reserved: [u16; 3],
    to_fd: i64,
    to: u64,
    deduped: u64,
    status: i32,
    reserved2: u32,
}

/// `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES as usize],
}

/// Issues an ioctl request.
pub(super) fn request(a: Arguments<'_>, sink: &mut Sink) -> i64 {
    let r = a.rec;
    let mut word = r.aux;
    let at = ptr::from_mut(&mut word) as i64;
    match r.call {
        Call::Fibmap => ioctl(a.fd, FIBMAP, at),
        Call::Tcgets => ioctl(a.fd, TCGETS, sink.at(64) as i64),
        Call::Figetbsz => ioctl(a.fd, FIGETBSZ, at),
        Call::GetVersion => ioctl(a.fd, FS_IOC_GETVERSION, at),
        Call::SetVersion => ioctl(a.fd, FS_IOC_SETVERSION, at),
        Call::GetLabel => ioctl(a.fd, FS_IOC_GETFSLABEL, sink.at(256) as i64),
        Call::Fiemap => {
            let room = r.aux.clamp(0, MOST_EXTENTS);
            let buffer = sink.at(size_of::<Fiemap>() + 56 * room as usize).cast::<Fiemap>();
            if buffer.is_null() {
                return without_call(-i64::from(libc::ENOMEM));
            }
            let start = if r.offset_bytes == NO_ID { 0 } else { r.offset_bytes } as u64;
            let head = Fiemap {
                start,
                length: r.len_bytes as u64,
                flags: r.mode as u32,
                mapped: 0,
                room: room as u32,
                reserved: 0,
            };
            // SAFETY: the buffer begins on a page and has room for the head and as many extents as it says.
            unsafe { buffer.write(head) };
            ioctl(a.fd, FS_IOC_FIEMAP, buffer as i64)
        }
        _ => dedupe(a),
    }
}

/// Replays a deduplication. The replay generates its own data, so data that was equal in the original is not equal
/// here. If the original shared it, the replay shares it with a clone, which has the same effect on the file system.
fn dedupe(a: Arguments<'_>) -> i64 {
    let r = a.rec;
    let start = |offset: i64| if offset == NO_ID { 0 } else { offset };
    let (from, to) = (start(r.offset_bytes), start(r.offset2_bytes));
    if r.shares_equal() {
        // `struct file_clone_range`
        let range = [a.fd, from, r.aux2, to];
        let clone = |fd: i64| ioctl(fd, FICLONERANGE, range.as_ptr() as i64);
        return match clone(a.fd2) {
            // Deduplication works through any descriptor, a clone only through one opened for writing.
            ret if ret == -i64::from(libc::EBADF) => through_own(a.fd2, clone),
            ret => ret,
        };
    }
    let mut d = Dedupe {
        from: from as u64,
        len: r.len_bytes as u64,
        count: 1,
        reserved: [0; 3],
        to_fd: a.fd2,
        to: to as u64,
        deduped: 0,
        status: 0,
        reserved2: 0,
    };
    ioctl(a.fd, FIDEDUPERANGE, ptr::from_mut(&mut d) as i64)
}

/// Calls `act` with a descriptor of the same file that is opened for writing, in a thread with a descriptor table of
/// its own. In the process's table, closing that descriptor would release the process's locks on the file.
fn through_own(fd: i64, act: impl FnOnce(i64) -> i64 + Send) -> i64 {
    let apart = || {
        let unshared = call(libc::SYS_unshare, [libc::CLONE_FILES.into(), 0, 0, 0, 0, 0]);
        if unshared < 0 { unshared } else { reopened(fd, act) }
    };
    std::thread::scope(|threads| match std::thread::Builder::new().spawn_scoped(threads, apart) {
        Ok(thread) => thread.join().unwrap_or(-i64::from(libc::EIO)),
        Err(e) => -i64::from(e.raw_os_error().unwrap_or(libc::EAGAIN)),
    })
}

/// Opens the file by its handle, because it may have no name any more.
fn reopened(fd: i64, act: impl FnOnce(i64) -> i64) -> i64 {
    let mut handle = Handle { bytes: HANDLE_BYTES, kind: 0, handle: [0; HANDLE_BYTES as usize] };
    let mut mount = 0_i32;
    let (handle, mount) = (ptr::from_mut(&mut handle) as i64, ptr::from_mut(&mut mount) as i64);
    let empty = c"".as_ptr() as i64;
    let named = call(libc::SYS_name_to_handle_at, [fd, empty, handle, mount, libc::AT_EMPTY_PATH.into(), 0]);
    if named < 0 {
        return named;
    }
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    let own = call(libc::SYS_open_by_handle_at, [fd, handle, flags.into(), 0, 0, 0]);
    if own < 0 {
        return own;
    }
    let ret = act(own);
    close(own);
    ret
}

/// Gets a file handle and discards it: opening by handle is replayed as opening the file by name.
pub(super) fn handle(a: Arguments<'_>) -> i64 {
    let r = a.rec;
    // EOVERFLOW: the caller passed a buffer that is too small, to learn the size.
    let bytes = if r.ret == -i64::from(libc::EOVERFLOW) { 0 } else { HANDLE_BYTES };
    let mut handle = Handle { bytes, kind: 0, handle: [0; HANDLE_BYTES as usize] };
    // An int, or 8 bytes with AT_HANDLE_MNT_ID_UNIQUE.
    let mut mount = 0_u64;
    let (handle, mount) = (ptr::from_mut(&mut handle) as i64, ptr::from_mut(&mut mount) as i64);
    call(libc::SYS_name_to_handle_at, [a.fd, a.path, handle, mount, r.flags, 0])
}

/// cachestat(2): how much of a file is in the page cache.
pub(super) fn cached(a: Arguments<'_>) -> i64 {
    let range = [a.offset, a.rec.len_bytes];
    let mut told = [0_u64; 5];
    call(SYS_CACHESTAT, [a.fd, range.as_ptr() as i64, told.as_mut_ptr() as i64, a.rec.flags, 0, 0])
}

/// sync(2), but only of the target.
pub(super) fn sync_all() -> i64 {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let root = call(libc::SYS_openat, [libc::AT_FDCWD.into(), c"/".as_ptr() as i64, flags.into(), 0, 0, 0]);
    if root < 0 {
        return root;
    }
    let ret = call(libc::SYS_syncfs, [root, 0, 0, 0, 0, 0]);
    call(libc::SYS_close, [root, 0, 0, 0, 0, 0]);
    ret
}
