//! Extended attributes, and the flags of a file (`chattr`).

use std::ptr;

use super::{
    arguments::Arguments,
    syscall::{call, ioctl},
};
use crate::{Call, reel::input::Rec};

pub(super) const SYS_SETXATTRAT: i64 = 463;
pub(super) const SYS_GETXATTRAT: i64 = 464;
pub(super) const SYS_LISTXATTRAT: i64 = 465;
pub(super) const SYS_REMOVEXATTRAT: i64 = 466;
pub(super) const SYS_FILE_GETATTR: i64 = 468;
pub(super) const SYS_FILE_SETATTR: i64 = 469;

pub(super) const FS_IOC_GETFLAGS: i64 = 0x8008_6601;
pub(super) const FS_IOC_SETFLAGS: i64 = 0x4008_6602;
pub(super) const FS_IOC_FSGETXATTR: i64 = 0x801c_581f;
pub(super) const FS_IOC_FSSETXATTR: i64 = 0x401c_5820;

/// The `FS_*_FL` flags that a user chooses. The others say how the file system stores the file (extents, inline data).
/// They are the target's own, and the kernel refuses to change them.
const WANTED: i64 = 0x0000_0001 // secrm
    | 0x02 // unrm
    | 0x04 // compr
    | 0x08 // sync
    | 0x10 // immutable
    | 0x20 // append
    | 0x40 // nodump
    | 0x80 // noatime
    | 0x400 // nocompress
    | 0x4000 // journal_data
    | 0x1_0000 // dirsync
    | 0x2_0000 // topdir
    | 0x80_0000 // nocow
    | 0x200_0000 // dax
    | 0x2000_0000 // projinherit
    | 0x4000_0000; // casefold

/// `FS_XFLAG_PREALLOC` and `FS_XFLAG_HASATTR`, which are the file system's own, too.
const OWN_XFLAGS: u32 = 0x8000_0002;

/// `struct xattr_args` of the `*xattrat` calls.
#[repr(C)]
struct AttributeArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct Extended {
    xflags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct file_attr`.
#[repr(C)]
#[derive(Default)]
struct FileAttr {
    xflags: u64,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
}

/// Sets an extended attribute to the recorded value.
pub(super) fn set(a: Arguments<'_>, value: &[u8]) -> i64 {
    let r = a.rec;
    let (at, len) = (value.as_ptr() as i64, value.len() as i64);
    match r.call {
        Call::Setxattr => call(libc::SYS_setxattr, [a.path, a.name, at, len, r.aux, 0]),
        Call::Lsetxattr => call(libc::SYS_lsetxattr, [a.path, a.name, at, len, r.aux, 0]),
        Call::Fsetxattr => call(libc::SYS_fsetxattr, [a.fd, a.name, at, len, r.aux, 0]),
        _ => {
            let args = AttributeArgs { value: at as u64, size: len as u32, flags: r.aux as u32 };
            let at = ptr::from_ref(&args) as i64;
            call(SYS_SETXATTRAT, [a.fd, a.path, r.flags, a.name, at, size_of::<AttributeArgs>() as i64])
        }
    }
}

/// Reads or removes an extended attribute, or lists all. `buffer` has room for `len` bytes.
pub(super) fn other(a: Arguments<'_>, buffer: i64, len: i64) -> i64 {
    let r = a.rec;
    match r.call {
        Call::Getxattr => call(libc::SYS_getxattr, [a.path, a.name, buffer, len, 0, 0]),
        Call::Lgetxattr => call(libc::SYS_lgetxattr, [a.path, a.name, buffer, len, 0, 0]),
        Call::Fgetxattr => call(libc::SYS_fgetxattr, [a.fd, a.name, buffer, len, 0, 0]),
        Call::Getxattrat => {
            let args = AttributeArgs { value: buffer as u64, size: len as u32, flags: 0 };
            let at = ptr::from_ref(&args) as i64;
            call(SYS_GETXATTRAT, [a.fd, a.path, r.flags, a.name, at, size_of::<AttributeArgs>() as i64])
        }
        Call::Listxattr => call(libc::SYS_listxattr, [a.path, buffer, len, 0, 0, 0]),
        Call::Llistxattr => call(libc::SYS_llistxattr, [a.path, buffer, len, 0, 0, 0]),
        Call::Flistxattr => call(libc::SYS_flistxattr, [a.fd, buffer, len, 0, 0, 0]),
        Call::Listxattrat => call(SYS_LISTXATTRAT, [a.fd, a.path, r.flags, buffer, len, 0]),
        Call::Removexattr => call(libc::SYS_removexattr, [a.path, a.name, 0, 0, 0, 0]),
        Call::Lremovexattr => call(libc::SYS_lremovexattr, [a.path, a.name, 0, 0, 0, 0]),
        Call::Fremovexattr => call(libc::SYS_fremovexattr, [a.fd, a.name, 0, 0, 0, 0]),
        _ => call(SYS_REMOVEXATTRAT, [a.fd, a.path, r.flags, a.name, 0, 0]),
    }
}

/// Reads or sets the flags of a file, by ioctl (`FS_IOC_GETFLAGS`, `FS_IOC_FSGETXATTR`) or `file_getattr`.
pub(super) fn flags(a: Arguments<'_>) -> i64 {
    let r = a.rec;
    match r.call {
        Call::GetFlags | Call::SetFlags => {
            let mut now = 0_i64;
            let got = ioctl(a.fd, FS_IOC_GETFLAGS, ptr::from_mut(&mut now) as i64);
            if got < 0 || r.call == Call::GetFlags {
                return got;
            }
            let new = now & 0xffff_ffff & !WANTED | r.aux & WANTED;
            ioctl(a.fd, FS_IOC_SETFLAGS, ptr::from_ref(&new) as i64)
        }
        Call::GetXflags | Call::SetXflags => {
            let mut x = Extended::default();
            let got = ioctl(a.fd, FS_IOC_FSGETXATTR, ptr::from_mut(&mut x) as i64);
            if got < 0 || r.call == Call::GetXflags {
                return got;
            }
            x.xflags = x.xflags & OWN_XFLAGS | r.aux as u32 & !OWN_XFLAGS;
            (x.extent_size, x.project) = (r.len_bytes as u32, r.aux2 as u32);
            ioctl(a.fd, FS_IOC_FSSETXATTR, ptr::from_ref(&x) as i64)
        }
        Call::FileGetattr => {
            let mut x = FileAttr::default();
            let size = size_of::<FileAttr>() as i64;
            call(SYS_FILE_GETATTR, [a.fd, a.path, ptr::from_mut(&mut x) as i64, size, r.flags, 0])
        }
        _ => {
            let x = FileAttr {
                xflags: u64::from(r.aux as u32 & !OWN_XFLAGS),
                extent_size: r.len_bytes as u32,
                project: r.aux2 as u32,
                ..FileAttr::default()
            };
            let size = size_of::<FileAttr>() as i64;
            call(SYS_FILE_SETATTR, [a.fd, a.path, ptr::from_ref(&x) as i64, size, r.flags, 0])
        }
    }
}

/// Whether [`flags`] handles this call.
pub(super) fn has_flags(r: &Rec) -> bool {
    matches!(
        r.call,
        Call::GetFlags | Call::SetFlags | Call::GetXflags | Call::SetXflags | Call::FileGetattr | Call::FileSetattr
    )
}
