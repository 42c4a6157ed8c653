//! Paths as bytes.

use std::{
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

/// `path` as a process with root directory `root` sees it; both are absolute. A path outside of `root` is returned
/// unchanged: the process cannot reach it.
pub(crate) fn seen_from<'a>(path: &'a [u8], root: &[u8]) -> &'a [u8] {
    match path.strip_prefix(root) {
        Some(b"") => b"/",
        Some(rest) if rest[0] == b'/' => rest,
        _ => path,
    }
}

/// An absolute path without dots and doubled slashes, as bytes.
pub(crate) fn normal(path: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => {
                out.push(b'/');
                out.extend_from_slice(name.as_bytes());
            }
            Component::ParentDir => {
                out.truncate(out.iter().rposition(|b| *b == b'/').unwrap_or(0));
            }
            _ => {}
        }
    }
    if out.is_empty() { b"/".to_vec() } else { out }
}

/// Whether a path is absolute and has no empty component, `.`, `..` or NUL. Others, in a damaged or hostile reel, could
/// lead out of the directory that they start in.
pub(crate) fn is_canonical(path: &[u8]) -> bool {
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    path == b"/" || path.strip_prefix(b"/").is_some_and(|rest| rest.split(|b| *b == b'/').all(is_name))
}

/// Whether `path` is `dir` or below it; both are absolute, without doubled slashes.
pub(crate) fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::{is_at_or_below, is_canonical, seen_from};

    #[test]
    fn a_root_is_cut_off_at_a_component() {
        assert_eq!(seen_from(b"/a/b", b"/a"), b"/b");
        assert_eq!(seen_from(b"/a", b"/a"), b"/");
        assert_eq!(seen_from(b"/ab", b"/a"), b"/ab");
        assert_eq!(seen_from(b"/a", b""), b"/a");
    }

    #[test]
    fn what_could_lead_elsewhere_is_not_canonical() {
        for path in ["/", "/a", "/a/b", "/...", "/a/.b"] {
            assert!(is_canonical(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "/..", "/a/../b", "/a/", "//a", "/a//b", "/.", "/a\0b"] {
            assert!(!is_canonical(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn below_is_meant_by_component() {
        assert!(is_at_or_below(b"/a/b", b"/a") && is_at_or_below(b"/a", b"/a") && is_at_or_below(b"/a", b"/"));
        assert!(!is_at_or_below(b"/ab", b"/a") && !is_at_or_below(b"/", b"/a"));
    }
}
