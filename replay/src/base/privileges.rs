//! What gives a file's user more than their own rights: set-ID bits of programs, and attributes that only root may set.
//!
//! A reel comes with names, modes and data of its author's choosing. A replay by root that repeated these as well would leave
//! a program behind which makes any local user root. They are left out unless the user of the replay asks for them.

use std::collections::BTreeMap;

/// `S_ISUID` and `S_ISGID`.
pub const SET_ID_BITS: u32 = libc::S_ISUID | libc::S_ISGID;

/// Takes out of a mode and of attributes what gives privileges. The set-group-ID bit of a directory gives none. Whether there
/// was something.
pub(crate) fn leave_out<V>(directory: bool, mode: &mut u32, attributes: &mut BTreeMap<Box<[u8]>, V>) -> bool {
    let before = (*mode, attributes.len());
    if !directory {
        *mode &= !SET_ID_BITS;
    }
    attributes.retain(|name, _| !is_privileged_attribute(name));
    before != (*mode, attributes.len())
}

/// Whether the kernel or a program like it trusts what this extended attribute says: file capabilities, security labels,
/// redirections of overlays.
pub fn is_privileged_attribute(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}
