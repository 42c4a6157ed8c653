//! Parts of a file that give its user privileges: set-ID bits of programs, and attributes that only root may set.
//!
//! The author of a reel chooses its names, modes and data. If a replay by root created these as well, it could leave a
//! program behind that makes any local user root. They are left out unless `--set-ids` is given.

use std::collections::BTreeMap;

/// `S_ISUID` and `S_ISGID`.
pub const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Removes from a mode and from extended attributes what gives privileges. The set-group-ID bit of a directory gives
/// none and stays. Returns whether anything was removed.
pub(crate) fn leave_out<V>(directory: bool, mode: &mut u32, attributes: &mut BTreeMap<Box<[u8]>, V>) -> bool {
    let before = (*mode, attributes.len());
    if !directory {
        *mode &= !SET_ID_BITS;
    }
    attributes.retain(|name, _| !is_privileged_attribute(name));
    before != (*mode, attributes.len())
}

/// Whether the kernel or a privileged program trusts the value of this extended attribute: file capabilities, security
/// labels, redirects of overlayfs.
pub fn is_privileged_attribute(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}
