//! System calls from `syscalls:*` and `raw_syscalls:*` events.

use crate::import::syscalls::{Arg, arguments};

/// An event of a system call.
#[derive(Debug, PartialEq)]
pub(super) enum Call<'a> {
    /// Entry: name, and arguments as strace prints them.
    Enter(&'a [u8], Vec<u8>),
    /// Exit: name and result.
    Exit(&'a [u8], i64),
}

/// Numbers on x86-64 of the calls that become rows or that make threads.
const NUMBERS: &[(u32, &str)] = &[
    (0, "read"),
    (1, "write"),
    (2, "open"),
    (3, "close"),
    (4, "stat"),
    (5, "fstat"),
    (6, "lstat"),
    (8, "lseek"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (21, "access"),
    (32, "dup"),
    (33, "dup2"),
    (40, "sendfile"),
    (56, "clone"),
    (57, "fork"),
    (58, "vfork"),
    (59, "execve"),
    (72, "fcntl"),
    (74, "fsync"),
    (75, "fdatasync"),
    (76, "truncate"),
    (77, "ftruncate"),
    (78, "getdents"),
    (80, "chdir"),
    (81, "fchdir"),
    (82, "rename"),
    (83, "mkdir"),
    (84, "rmdir"),
    (85, "creat"),
    (86, "link"),
    (87, "unlink"),
    (88, "symlink"),
    (89, "readlink"),
    (90, "chmod"),
    (91, "fchmod"),
    (92, "chown"),
    (93, "fchown"),
    (94, "lchown"),
    (95, "umask"),
    (162, "sync"),
    (217, "getdents64"),
    (257, "openat"),
    (258, "mkdirat"),
    (260, "fchownat"),
    (262, "newfstatat"),
    (263, "unlinkat"),
    (264, "renameat"),
    (265, "linkat"),
    (266, "symlinkat"),
    (267, "readlinkat"),
    (268, "fchmodat"),
    (269, "faccessat"),
    (277, "sync_file_range"),
    (285, "fallocate"),
    (292, "dup3"),
    (295, "preadv"),
    (296, "pwritev"),
    (306, "syncfs"),
    (316, "renameat2"),
    (326, "copy_file_range"),
    (327, "preadv2"),
    (328, "pwritev2"),
    (332, "statx"),
    (435, "clone3"),
    (437, "openat2"),
    (439, "faccessat2"),
];

/// Flags of clone(2) that say what is shared, as strace names them.
const CLONE: [(u64, &str); 6] = [
    (0x100, "CLONE_VM"),
    (0x200, "CLONE_FS"),
    (0x400, "CLONE_FILES"),
    (0x800, "CLONE_SIGHAND"),
    (0x4000, "CLONE_VFORK"),
    (0x1_0000, "CLONE_THREAD"),
];

/// The name of the call in a tracepoint, which is that of the function in the kernel.
fn renamed(name: &[u8]) -> &[u8] {
    match name {
        b"newstat" => b"stat",
        b"newlstat" => b"lstat",
        b"newfstat" => b"fstat",
        b"sendfile64" => b"sendfile",
        _ => name,
    }
}

/// A number in hexadecimal, with or without `0x`.
fn hex(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// The result of a call: decimal, or hexadecimal after `0x`.
fn result(text: &[u8]) -> Option<i64> {
    let text = text.trim_ascii();
    if text.starts_with(b"0x") {
        return hex(text).map(|v| v as i64);
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Whether an event is one of system calls.
pub(super) fn is_call(event: &[u8], rest: &[u8]) -> bool {
    event.starts_with(b"sys_enter") || event.starts_with(b"sys_exit") || event.is_empty() && rest.starts_with(b"sys_")
}

/// Parses an event of a system call. `None` if it cannot be read.
pub(super) fn parse<'a>(event: &'a [u8], rest: &'a [u8]) -> Option<Call<'a>> {
    // Raw events: `NR 0 (3, 7ffd, 340, 0, 0, 0)` and `NR 0 = 832`.
    if matches!(event, b"sys_enter" | b"sys_exit") {
        let rest = rest.strip_prefix(b"NR ")?;
        let end = rest.iter().position(|b| *b == b' ')?;
        let number: i64 = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        let known = NUMBERS.iter().find(|(n, _)| i64::from(*n) == number).map_or("?", |(_, name)| name);
        let (name, rest) = (known.as_bytes(), rest[end..].trim_ascii());
        if event == b"sys_exit" {
            return Some(Call::Exit(name, result(rest.strip_prefix(b"=")?)?));
        }
        let inner = rest.strip_prefix(b"(")?.strip_suffix(b")")?;
        let values: Vec<&[u8]> = inner.split(|b| *b == b',').map(<[u8]>::trim_ascii).collect();
        return Some(Call::Enter(name, as_strace(name, &values)?));
    }
    if let Some(name) = event.strip_prefix(b"sys_exit_") {
        return Some(Call::Exit(renamed(name), result(rest)?));
    }
    if let Some(name) = event.strip_prefix(b"sys_enter_") {
        let name = renamed(name);
        return Some(Call::Enter(name, as_strace(name, &values(rest))?));
    }
    // trace_pipe: `sys_read(fd: 3, buf: 7ffd, count: 340)` and `sys_read -> 0x340`.
    let text = rest.strip_prefix(b"sys_")?;
    let end = text.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    let (name, rest) = (renamed(&text[..end]), text[end..].trim_ascii());
    if let Some(value) = rest.strip_prefix(b"->") {
        return Some(Call::Exit(name, result(value)?));
    }
    let inner = rest.strip_prefix(b"(")?.strip_suffix(b")")?;
    Some(Call::Enter(name, as_strace(name, &values(inner))?))
}

/// The values in `name: value, name: value`. A value may contain quoted text.
fn values(text: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (i, b) in text.iter().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                out.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&text[start..]);
    let value = |part: &&'_ [u8]| part.iter().position(|b| *b == b':');
    out.into_iter()
        .map(|part| value(&part).map_or(part, |at| &part[at + 1..]).trim_ascii())
        .filter(|v| !v.is_empty())
        .collect()
}

/// Arguments as strace prints them.
fn as_strace(name: &[u8], values: &[&[u8]]) -> Option<Vec<u8>> {
    const FCNTL: &[Arg] = &[Arg::Fd, Arg::Flags, Arg::Aux];
    let roles = match name {
        b"fcntl" => FCNTL,
        _ => arguments(name).map_or(&[][..], |(_, roles)| roles),
    };
    let mut out: Vec<u8> = Vec::new();
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        // Newer kernels show the text that a pointer leads to.
        if let Some(open) = value.iter().position(|b| *b == b'"')
            && let Some(close) = value.iter().rposition(|b| *b == b'"').filter(|close| *close > open)
        {
            out.extend_from_slice(&value[open..=close]);
            continue;
        }
        // A name of the kernel's, such as that of a flag, is not a number.
        let Some(number) = hex(value.split(u8::is_ascii_whitespace).next().unwrap_or_default()) else {
            out.push(b'?');
            continue;
        };
        let text = match (name, roles.get(i)) {
            (b"clone", None) if i == 0 => {
                let set = CLONE.iter().filter(|(bit, _)| number & bit != 0).map(|(_, name)| *name);
                format!("flags={}", set.collect::<Vec<_>>().join("|"))
            }
            (b"fcntl", Some(Arg::Flags)) if number == 0 => "F_DUPFD".into(),
            (b"fcntl", Some(Arg::Flags)) if number == 1030 => "F_DUPFD_CLOEXEC".into(),
            (_, Some(Arg::Fd | Arg::Fd2 | Arg::Dirfd | Arg::Dirfd2)) => (number as u32 as i32).to_string(),
            (_, Some(Arg::Path | Arg::Path2 | Arg::Stat | Arg::Vector | Arg::How | Arg::Skip)) => {
                format!("{number:#x}")
            }
            (_, Some(Arg::Flags | Arg::Mode)) => (number & 0xffff_ffff).to_string(),
            _ => (number as i64).to_string(),
        };
        out.extend_from_slice(text.as_bytes());
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_every_form() {
        let enter = |name: &'static str, args: &str| Some(Call::Enter(name.as_bytes(), args.as_bytes().to_vec()));
        let exit = |name: &'static str, ret| Some(Call::Exit(name.as_bytes(), ret));
        let of = |event: &'static str, rest: &'static str| parse(event.as_bytes(), rest.as_bytes());
        assert_eq!(of("sys_enter", "NR 0 (3, 7ffd12, 1000, 0, 0, 0)"), enter("read", "3, 0x7ffd12, 4096, 0, 0, 0"));
        assert_eq!(of("sys_exit", "NR 0 = -11"), exit("read", -11));
        assert_eq!(
            of("sys_enter_pread64", "fd: 0x00000003, buf: 0x7ff, count: 0x10, pos: 0x200"),
            enter("pread64", "3, 0x7ff, 16, 512")
        );
        assert_eq!(of("sys_exit_newfstat", "0xfffffffffffffffe"), exit("fstat", -2));
        assert_eq!(
            of("", "sys_openat(dfd: ffffff9c, filename: 7f1b \"/a, b\", flags: 80241, mode: 1b6)"),
            enter("openat", "-100, \"/a, b\", 524865, 438")
        );
        assert_eq!(of("", "sys_openat -> 0x3"), exit("openat", 3));
        assert_eq!(of("sys_enter", "NR 72 (3, 406, 0, 0, 0, 0)"), enter("fcntl", "3, F_DUPFD_CLOEXEC, 0, 0, 0, 0"));
        assert_eq!(
            of("sys_enter", "NR 56 (10f00, 0, 0, 0, 0, 0)"),
            enter("clone", "flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD, 0, 0, 0, 0, 0")
        );
        for bad in ["NR x (1)", "NR 0 (1", "0", "NR 0"] {
            assert_eq!(of("sys_enter", bad), None, "{bad}");
        }
    }
}
