//! Paths as bytes.

/// `path` as a process with root directory `root` sees it; both are absolute. A path outside of `root` is returned
/// unchanged: the process cannot reach it.
pub(crate) fn seen_from<'a>(path: &'a [u8], root: &[u8]) -> &'a [u8] {
    match path.strip_prefix(root) {
        Some(b"") => b"/",
        Some(rest) if rest[0] == b'/' => rest,
        _ => path,
    }
}

/// Whether `path` is `dir` or below it; both are absolute, without doubled slashes.
pub(crate) fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::{is_at_or_below, seen_from};

    #[test]
    fn a_root_is_cut_off_at_a_component() {
        assert_eq!(seen_from(b"/a/b", b"/a"), b"/b");
        assert_eq!(seen_from(b"/a", b"/a"), b"/");
        assert_eq!(seen_from(b"/ab", b"/a"), b"/ab");
        assert_eq!(seen_from(b"/a", b""), b"/a");
    }

    #[test]
    fn below_is_meant_by_component() {
        assert!(is_at_or_below(b"/a/b", b"/a") && is_at_or_below(b"/a", b"/a") && is_at_or_below(b"/a", b"/"));
        assert!(!is_at_or_below(b"/ab", b"/a") && !is_at_or_below(b"/", b"/a"));
    }
}
