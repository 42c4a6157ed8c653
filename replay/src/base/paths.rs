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

#[cfg(test)]
mod tests {
    use super::seen_from;

    #[test]
    fn a_root_is_cut_off_at_a_component() {
        assert_eq!(seen_from(b"/a/b", b"/a"), b"/b");
        assert_eq!(seen_from(b"/a", b"/a"), b"/");
        assert_eq!(seen_from(b"/ab", b"/a"), b"/ab");
        assert_eq!(seen_from(b"/a", b""), b"/a");
    }
}
