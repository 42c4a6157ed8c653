//! Extended attributes of a file on disk.

use std::path::Path;

use rustix::{
    fs::{lgetxattr, llistxattr},
    io::Errno,
};

/// The kernel's limits on the names, and on the value, of extended attributes, bytes (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const MAX_BYTES: usize = 64 << 10;
/// Room for the names of most files, bytes.
const USUAL_BYTES: usize = 256;

/// An extended attribute: its name and its value.
pub type Attribute = (Box<[u8]>, Option<Box<[u8]>>);

/// Extended attributes of what has this name; a symbolic link is not followed. `wanted`: names of those to read. A value
/// is `None` if it cannot be read. Where the file system has no attributes, there are none.
pub fn attributes(path: &Path, wanted: impl Fn(&[u8]) -> bool) -> Vec<Attribute> {
    let mut list = vec![0; USUAL_BYTES];
    let len = match llistxattr(path, &mut list) {
        Err(Errno::RANGE) => {
            list.resize(MAX_BYTES, 0);
            llistxattr(path, &mut list)
        }
        len => len,
    };
    list.truncate(len.unwrap_or(0));
    let names = list.split(|b| *b == 0).filter(|name| !name.is_empty() && wanted(name));
    let value = |name: &[u8]| {
        let mut value = vec![0; MAX_BYTES];
        lgetxattr(path, name, &mut value).ok().map(|len| value[..len].into())
    };
    names.map(|name| (name.into(), value(name))).collect()
}

/// Whether a workload can have set this attribute for its own use, rather than the file system or a security module:
/// `user.*`, `trusted.*`, access control lists, file capabilities.
pub fn is_of_workload(name: &[u8]) -> bool {
    // XFS lists an access list a second time, under a name of its own.
    if name.starts_with(b"trusted.SGI_ACL_") {
        return false;
    }
    let named = [b"system.posix_acl_access".as_slice(), b"system.posix_acl_default", b"security.capability"];
    name.starts_with(b"user.") || name.starts_with(b"trusted.") || named.contains(&name)
}
