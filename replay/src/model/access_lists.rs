//! POSIX access control lists in extended attributes (include/uapi/linux/posix_acl_xattr.h): how they follow from a
//! mode, and a mode from them.

/// Access list of a file: contains its permission bits.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// List that new entries of a directory inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Owner of the file.
const USER_OBJ: u16 = 1;
/// A named user.
const USER: u16 = 2;
/// Group of the file.
const GROUP_OBJ: u16 = 4;
/// A named group.
const GROUP: u16 = 8;
/// Upper limit of all but owner and others.
const MASK: u16 = 0x10;
/// Everybody else.
const OTHER: u16 = 0x20;

/// Bytes of the version number.
const HEAD_BYTES: usize = 4;
/// Bytes of an entry: tag, permissions, id.
const ENTRY_BYTES: usize = 8;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u16,
    /// User or group; 0 where the tag has none.
    id: u32,
    perm: u16,
}

fn entries(value: &[u8]) -> Option<Vec<Entry>> {
    let chunks = value.get(HEAD_BYTES..)?.chunks_exact(ENTRY_BYTES);
    let entry = |e: &[u8]| {
        let tag = u16::from_le_bytes([e[0], e[1]]);
        let id = if matches!(tag, USER | GROUP) { u32::from_le_bytes([e[4], e[5], e[6], e[7]]) } else { 0 };
        Entry { tag, id, perm: u16::from_le_bytes([e[2], e[3]]) & 7 }
    };
    Some(chunks.map(entry).collect())
}

fn value(entries: &[Entry]) -> Box<[u8]> {
    let mut out = vec![2, 0, 0, 0];
    for e in entries {
        let id = if matches!(e.tag, USER | GROUP) { e.id } else { u32::MAX };
        out.extend(e.tag.to_le_bytes());
        out.extend(e.perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out.into()
}

/// The entry that holds the group's permission bits of a mode.
fn group_entry(entries: &[Entry]) -> Option<usize> {
    let of = |tag| entries.iter().position(|e| e.tag == tag);
    of(MASK).or_else(|| of(GROUP_OBJ))
}

/// Whether an extended attribute is such a list.
pub(crate) fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Permission bits in an access list, and whether it contains nothing else: such a list is not stored.
pub(crate) fn mode_of(value: &[u8]) -> Option<(u32, bool)> {
    let entries = entries(value)?;
    let of = |tag| entries.iter().find(|e| e.tag == tag).map(|e| u32::from(e.perm));
    let group = u32::from(entries[group_entry(&entries)?].perm);
    Some((of(USER_OBJ)? << 6 | group << 3 | of(OTHER)?, entries.len() <= 3))
}

/// Whether it has entries for users or groups other than the file's own.
pub(crate) fn names_any(value: &[u8]) -> bool {
    entries(value).is_some_and(|all| all.iter().any(|e| matches!(e.tag, USER | GROUP)))
}

/// Whether it has no entries: setting such a list removes the one there is.
pub(crate) fn is_empty(value: &[u8]) -> bool {
    value.len() < HEAD_BYTES + ENTRY_BYTES
}

/// An access list after a change of the mode.
pub(crate) fn with_mode(list: &[u8], mode: u32) -> Option<Box<[u8]>> {
    let mut entries = entries(list)?;
    let group = group_entry(&entries)?;
    for (i, e) in entries.iter_mut().enumerate() {
        match e.tag {
            USER_OBJ => e.perm = (mode >> 6 & 7) as u16,
            OTHER => e.perm = (mode & 7) as u16,
            _ if i == group => e.perm = (mode >> 3 & 7) as u16,
            _ => {}
        }
    }
    Some(value(&entries))
}

/// What a new entry of a directory with this default list gets if it is created with `mode`: permission bits, and an
/// access list unless the bits say everything. The umask does not apply.
pub(crate) fn inherited(default: &[u8], mode: u32) -> Option<(u32, Option<Box<[u8]>>)> {
    let mut entries = entries(default)?;
    let group = group_entry(&entries)?;
    for (i, e) in entries.iter_mut().enumerate() {
        match e.tag {
            USER_OBJ => e.perm &= (mode >> 6 & 7) as u16,
            OTHER => e.perm &= (mode & 7) as u16,
            _ if i == group => e.perm &= (mode >> 3 & 7) as u16,
            _ => {}
        }
    }
    let list = value(&entries);
    let (bits, minimal) = mode_of(&list)?;
    Some((bits, (!minimal).then_some(list)))
}

/// Whether two lists say the same. The kernel sorts entries, and ignores ids of entries that have none.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    let sorted = |list| {
        entries(list).map(|mut all| {
            all.sort_unstable();
            all
        })
    };
    sorted(a) == sorted(b)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0];
        for (tag, perm) in entries {
            out.extend(tag.to_le_bytes());
            out.extend(perm.to_le_bytes());
            out.extend(if matches!(*tag, USER | GROUP) { 1000_u32.to_le_bytes() } else { [0xff; 4] });
        }
        out
    }

    #[test]
    fn an_access_list_tells_the_mode() {
        assert_eq!(mode_of(&list(&[(1, 6), (4, 4), (0x20, 0)])), Some((0o640, true)));
        assert_eq!(mode_of(&list(&[(1, 7), (2, 7), (4, 4), (0x10, 5), (0x20, 1)])), Some((0o751, false)));
        assert_eq!(mode_of(&[2, 0]), None);
        assert!(is_empty(&list(&[])) && !is_empty(&list(&[(1, 7)])));
    }

    #[test]
    fn a_mode_changes_the_access_list() {
        let before = list(&[(1, 6), (2, 7), (4, 4), (0x10, 7), (0x20, 4)]);
        let after = with_mode(&before, 0o710).unwrap();
        assert_eq!(*after, *list(&[(1, 7), (2, 7), (4, 4), (0x10, 1), (0x20, 0)]));
        assert_eq!(mode_of(&after), Some((0o710, false)));
    }

    #[test]
    fn new_entries_inherit_what_their_mode_allows() {
        let default = list(&[(1, 7), (2, 7), (4, 5), (0x10, 7), (0x20, 5)]);
        let (mode, access) = inherited(&default, 0o640).unwrap();
        assert_eq!(mode, 0o640);
        assert_eq!(*access.unwrap(), *list(&[(1, 6), (2, 7), (4, 5), (0x10, 4), (0x20, 0)]));
        let plain = list(&[(1, 7), (4, 5), (0x20, 5)]);
        assert_eq!(inherited(&plain, 0o666), Some((0o644, None)));
    }

    #[test]
    fn order_and_unused_ids_make_no_difference() {
        let mut odd = list(&[(1, 7), (4, 5), (0x20, 5)]);
        odd[8..12].copy_from_slice(&[0; 4]);
        assert!(equal(&odd, &list(&[(0x20, 5), (4, 5), (1, 7)])));
        assert!(!equal(&odd, &list(&[(1, 7), (4, 4), (0x20, 5)])));
    }
}
