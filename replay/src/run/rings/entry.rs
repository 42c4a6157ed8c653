//! Builds the io_uring submission queue entry of a recorded request.

use std::mem::MaybeUninit;

use io_uring::{
    opcode,
    squeue::{Entry, Flags},
    types::{DestinationSlot, Fd, Fixed, FsyncFlags, OpenHow},
};

use super::{Buffers, Keep, bytes};
use crate::{
    Call,
    contents::buffers::WINDOW_BYTES,
    plan::chunk::Chunk,
    reel::{
        input::{NO_ID, NONE, Rec},
        submission::sqe,
    },
    run::issue::syscall::open_flags,
};

/// The descriptors of a request in the replay.
#[derive(Clone, Copy)]
pub(super) struct Files {
    /// The file, or the directory that the path is relative to.
    pub(super) fd: i32,
    /// The second file.
    pub(super) fd2: i32,
    /// Slot of the file in the ring's table of registered files.
    pub(super) by_slot: Option<u32>,
    /// Slot of that table that the request opens into or closes.
    pub(super) direct: Option<u32>,
}

/// The entry without its user data, and memory that must stay in place.
pub(super) fn of(chunk: &Chunk, r: &Rec, files: Files, buffers: &mut Buffers<'_>) -> (Entry, Keep) {
    let path = |i: u32| if i == NONE { std::ptr::null() } else { chunk.paths.c_str(i).as_ptr() };
    let (p, p2) = (path(r.path), path(r.path2));
    let (dir, dir2) = (Fd(files.fd), Fd(files.fd2));
    let fd = Fd(files.by_slot.map_or(files.fd, |s| s as i32));
    let len = bytes(r);
    let offset = if r.offset_bytes == NO_ID { 0 } else { r.offset_bytes } as u64;
    // Offset that stands for the file's own position.
    const HERE: u64 = u64::MAX;
    let at = if matches!(r.call, Call::Read | Call::Write | Call::Readv | Call::Writev) { HERE } else { offset };
    let mut keep = Keep::Nothing;
    let rw_flags = r.flags as i32;
    let entry = match r.call {
        Call::Read | Call::Pread64 if len <= WINDOW_BYTES => {
            opcode::Read::new(fd, buffers.data(r, len), len as u32).offset(at).rw_flags(rw_flags).build()
        }
        Call::Write | Call::Pwrite64 if len <= WINDOW_BYTES => {
            opcode::Write::new(fd, buffers.data(r, len), len as u32).offset(at).rw_flags(rw_flags).build()
        }
        call if call.reads() || call.writes() => {
            let vector = buffers.vector(r);
            let (first, count) = (vector.as_ptr(), vector.len() as u32);
            keep = Keep::Vector(vector);
            match r.call.writes() {
                true => opcode::Writev::new(fd, first, count).offset(at).rw_flags(rw_flags).build(),
                false => opcode::Readv::new(fd, first, count).offset(at).rw_flags(rw_flags).build(),
            }
        }
        Call::Fsync | Call::Fdatasync => {
            let flags = if r.call == Call::Fdatasync { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            opcode::Fsync::new(fd).offset(offset).len(len as u32).flags(flags).build()
        }
        Call::SyncFileRange => opcode::SyncFileRange::new(fd, len as u32).offset(offset).flags(r.flags as u32).build(),
        Call::Fallocate => opcode::Fallocate::new(fd, r.len_bytes as u64).offset(offset).mode(r.mode).build(),
        Call::Ftruncate => opcode::Ftruncate::new(fd, r.len_bytes as u64).build(),
        Call::Fadvise64 => opcode::Fadvise::new(fd, r.len_bytes, r.flags as i32).offset(offset).build(),
        Call::Openat => {
            let slot = files.direct.and_then(|s| DestinationSlot::try_from_slot_target(s).ok());
            opcode::OpenAt::new(dir, p).flags(open_flags(r.flags) as i32).mode(r.mode as u32).file_index(slot).build()
        }
        Call::Openat2 => {
            let slot = files.direct.and_then(|s| DestinationSlot::try_from_slot_target(s).ok());
            let how =
                OpenHow::new().flags(open_flags(r.flags) as u64).mode(u64::from(r.mode as u32)).resolve(r.aux2 as u64);
            let how = Box::new(how);
            let at: *const OpenHow = &raw const *how;
            keep = Keep::How(how);
            opcode::OpenAt2::new(dir, p, at).file_index(slot).build()
        }
        Call::Close => match files.direct {
            Some(slot) => opcode::Close::new(Fixed(slot)).build(),
            None => opcode::Close::new(fd).build(),
        },
        Call::Statx => {
            // SAFETY: a struct of numbers.
            let mut told: Box<libc::statx> = Box::new(unsafe { MaybeUninit::zeroed().assume_init() });
            let at: *mut libc::statx = &raw mut *told;
            keep = Keep::Stat(told);
            opcode::Statx::new(dir, p, at.cast()).flags(r.flags as i32).mask(r.aux as u32).build()
        }
        Call::Renameat2 => opcode::RenameAt::new(dir, p, dir2, p2).flags(r.flags as u32).build(),
        Call::Unlinkat => opcode::UnlinkAt::new(dir, p).flags(r.flags as i32).build(),
        Call::Mkdirat => opcode::MkDirAt::new(dir, p).mode(r.mode as u32).build(),
        Call::Symlinkat => opcode::SymlinkAt::new(dir2, p, p2).build(),
        Call::Linkat => opcode::LinkAt::new(dir, p, dir2, p2).flags(r.flags as i32).build(),
        Call::Setxattr | Call::Fsetxattr | Call::Getxattr | Call::Fgetxattr => attribute(chunk, r, fd, p, buffers),
        // The plan contains no other request.
        _ => opcode::Nop::new().build(),
    };
    (entry.flags(flags_of(r, files)), keep)
}

/// The entry of a request on an extended attribute.
fn attribute(chunk: &Chunk, r: &Rec, fd: Fd, p: *const libc::c_char, buffers: &mut Buffers<'_>) -> Entry {
    let name = if r.name == NONE { std::ptr::null() } else { chunk.paths.c_str(r.name).as_ptr() };
    let len = bytes(r);
    if r.call.sets_attribute() {
        let value = if r.value == NONE { &[][..] } else { chunk.paths.bytes(r.value) };
        let (value, len) = (value.as_ptr().cast_mut().cast(), value.len() as u32);
        match r.call {
            Call::Setxattr => opcode::SetXattr::new(name, value, p, len).flags(r.aux as i32).build(),
            _ => opcode::FSetXattr::new(fd, name, value, len).flags(r.aux as i32).build(),
        }
    } else {
        let to = if len == 0 { std::ptr::null_mut() } else { buffers.data(r, len).cast() };
        match r.call {
            Call::Getxattr => opcode::GetXattr::new(name, to, p, len as u32).build(),
            _ => opcode::FGetXattr::new(fd, name, to, len as u32).build(),
        }
    }
}

fn flags_of(r: &Rec, files: Files) -> Flags {
    let mut flags = Flags::empty();
    let bits = [
        (sqe::DRAIN, Flags::IO_DRAIN),
        (sqe::LINK, Flags::IO_LINK),
        (sqe::HARDLINK, Flags::IO_HARDLINK),
        (sqe::ASYNC, Flags::ASYNC),
    ];
    for (bit, flag) in bits {
        flags.set(flag, r.sqe_flags & bit != 0);
    }
    flags.set(Flags::FIXED_FILE, files.by_slot.is_some() && r.call != Call::Close);
    flags
}
