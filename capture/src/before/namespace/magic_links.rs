//! Links in proc that lead to a task's working directory, root and open files. Reading them would give the recorder's
//! own. So their targets come from the recording, or are unknown.

/// What such a link of the task itself leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The working directory of the task; with `of_process`, that of its process's first thread.
    Cwd { of_process: bool },
    /// The root directory, likewise.
    Root { of_process: bool },
    /// The open file with this descriptor number.
    Fd(i32),
}

/// What the last component of a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Not such a link.
    Plain,
    Link(Link),
    /// A link of another task, or one that is not modelled.
    Unknown,
}

/// What `path`, absolute within a root, ends in for a task of process `pid`. /dev/stdin, /dev/fd and so on are links to
/// proc on every system.
pub(crate) fn end(path: &str, pid: i32) -> End {
    let fd = |n: &str| number(n).map_or(End::Unknown, |n| End::Link(Link::Fd(n)));
    match path.strip_prefix("/dev/") {
        Some("stdin") => return fd("0"),
        Some("stdout") => return fd("1"),
        Some("stderr") => return fd("2"),
        Some(rest) => return rest.strip_prefix("fd/").map_or(End::Plain, fd),
        None => {}
    }
    let mut parts = path.strip_prefix("/proc/").unwrap_or_default().split('/');
    let (is_own, of_process) = match parts.next() {
        Some("self") => (true, true),
        Some("thread-self") => (true, false),
        Some(who) => match number(who) {
            Some(n) => (n == pid, true),
            None => return End::Plain,
        },
        None => return End::Plain,
    };
    let end = match (parts.next(), parts.next()) {
        (Some("cwd"), None) => End::Link(Link::Cwd { of_process }),
        (Some("root"), None) => End::Link(Link::Root { of_process }),
        (Some("fd"), Some(n)) => fd(n),
        (Some("exe"), None) | (Some("ns" | "map_files" | "task"), Some(_)) => End::Unknown,
        _ => return End::Plain,
    };
    if is_own { end } else { End::Unknown }
}

/// Whether a path leads through /proc/self or /proc/thread-self.
pub(crate) fn is_relative(path: &str) -> bool {
    matches!(path.strip_prefix("/proc/").and_then(|p| p.split('/').next()), Some("self" | "thread-self"))
}

fn number(text: &str) -> Option<i32> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_told_from_other_names() {
        for (path, link) in [
            ("/proc/self/cwd", Link::Cwd { of_process: true }),
            ("/proc/thread-self/cwd", Link::Cwd { of_process: false }),
            ("/proc/77/root", Link::Root { of_process: true }),
            ("/proc/77/fd/12", Link::Fd(12)),
            ("/proc/thread-self/fd/0", Link::Fd(0)),
            ("/dev/fd/5", Link::Fd(5)),
            ("/dev/stderr", Link::Fd(2)),
        ] {
            assert_eq!(end(path, 77), End::Link(link), "{path}");
        }
        for path in ["/proc/78/cwd", "/proc/78/fd/1", "/proc/self/exe", "/proc/77/task/78", "/proc/self/fd/x"] {
            assert_eq!(end(path, 77), End::Unknown, "{path}");
        }
        for path in
            ["", "/", "/proc", "/proc/self", "/proc/77/fd", "/proc/78/stat", "/proc/selfish/cwd", "/a/proc/77/cwd"]
        {
            assert_eq!(end(path, 77), End::Plain, "{path}");
        }
    }
}
