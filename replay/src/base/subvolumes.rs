//! Requests to btrfs (linux/btrfs.h) that make and remove subvolumes.

use std::ptr;

use crate::base::ids::SystemCall;

/// `BTRFS_IOC_SNAP_DESTROY`, with a [`Named`].
pub(crate) const SNAP_DESTROY: i64 = 0x5000_940f;
/// `BTRFS_IOC_SNAP_CREATE_V2`, with a [`Wanted`].
pub(crate) const SNAP_CREATE: i64 = 0x5000_9417;
/// `BTRFS_IOC_SUBVOL_CREATE_V2`, with a [`Wanted`].
pub(crate) const SUBVOL_CREATE: i64 = 0x5000_9418;

/// Longest name, with its NUL.
const NAME_BYTES: usize = 256;

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct Wanted {
    fd: i64,
    generation: u64,
    flags: u64,
    unused: [u64; 4],
    name: [u8; 4040],
}

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct Named {
    fd: i64,
    name: [u8; 4088],
}

/// Puts a name into a field; false if it is too long.
fn put(field: &mut [u8], name: &[u8]) -> bool {
    let fits = name.len() < NAME_BYTES;
    if fits {
        field[..name.len()].copy_from_slice(name);
    }
    fits
}

/// Makes the subvolume `name` in directory `dir`: empty, or a snapshot of the subvolume that is open as `source`. Returns 0 or
/// -errno: -ENOTTY on another file system.
pub(crate) fn create(call: SystemCall, dir: i64, name: &[u8], source: Option<i64>, read_only: bool) -> i64 {
    const READ_ONLY: u64 = 2;
    let mut wanted = Wanted {
        fd: source.unwrap_or(0),
        generation: 0,
        flags: if read_only { READ_ONLY } else { 0 },
        unused: [0; 4],
        name: [0; 4040],
    };
    if !put(&mut wanted.name, name) {
        return -i64::from(libc::ENAMETOOLONG);
    }
    let request = if source.is_some() { SNAP_CREATE } else { SUBVOL_CREATE };
    call(libc::SYS_ioctl, [dir, request, ptr::from_ref(&wanted) as i64, 0, 0, 0]).min(0)
}

/// Removes the subvolume `name` in directory `dir`. Returns 0 or -errno: -ENOTTY on another file system, -EINVAL for a plain
/// directory.
pub(crate) fn destroy(call: SystemCall, dir: i64, name: &[u8]) -> i64 {
    let mut named = Named { fd: 0, name: [0; 4088] };
    if !put(&mut named.name, name) {
        return -i64::from(libc::ENAMETOOLONG);
    }
    call(libc::SYS_ioctl, [dir, SNAP_DESTROY, ptr::from_ref(&named) as i64, 0, 0, 0]).min(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_the_kernel_has_them() {
        assert_eq!((size_of::<Wanted>(), size_of::<Named>()), (4096, 4096));
        assert_eq!(SNAP_CREATE >> 16 & 0x3fff, 4096);
    }

    #[test]
    fn other_file_systems_have_none() {
        let dir = std::fs::File::open("/proc").map(|f| (std::os::fd::AsRawFd::as_raw_fd(&f), f));
        let Ok((fd, _kept)) = dir else { return };
        let made = create(crate::base::ids::system_call, fd.into(), b"x", None, false);
        assert_eq!(made, -i64::from(libc::ENOTTY));
        assert_eq!(create(crate::base::ids::system_call, fd.into(), &[b'x'; 300], None, false), -36);
    }
}
