//! Filters: which calls, of which programs and users, on which files, of which duration. Parsed once from the command
//! line, then applied by the probes ([`Filter::tell`]) and by [`crate::assemble::context_filter`].

use std::{
    collections::BTreeSet,
    ffi::CString,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf, absolute},
    time::Duration,
};

use glob::{MatchOptions, Pattern};
use ioreel_bpf::types::rodata;
use ioreel_traces::{calls::SET_IDS, host::mount_of_device, manifest::Mount, suggest, text};

use crate::{CaptureError, calls, host};

/// Maximum number of names and of users to filter by. The probes compare them one by one.
pub const MAX_WORDS: usize = 8;
/// Maximum length of a thread name (TASK_COMM_LEN minus the NUL).
const COMM_BYTES: usize = 15;

/// Classes of calls that `--op` accepts besides names.
const CLASSES: &[(&str, &[&str])] = &[
    ("read", &["read", "pread64", "readv", "preadv", "preadv2", "vfs_read"]),
    ("write", &["write", "pwrite64", "writev", "pwritev", "pwritev2", "vfs_write"]),
    ("copy", &["copy_file_range", "sendfile", "splice", "tee", "vmsplice"]),
    ("sync", &["fsync", "fdatasync", "sync_file_range", "msync", "sync", "syncfs", "vfs_fsync"]),
    ("map", &["mmap", "munmap", "mremap", "madvise", "process_madvise"]),
];
/// The class of all calls that are in no other class.
const META: &str = "meta";

/// Calls that create, duplicate and close descriptors. They are always kept for kept files, because other calls refer
/// to these descriptors.
const DESCRIPTORS: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "open_by_handle_at",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "pidfd_getfd",
    "scm_rights",
];
/// Calls that change working directory, root or umask. They are always kept, and so are those that change credentials.
const PLACES: &[&str] = &["chdir", "fchdir", "chroot", "umask"];

/// Whether the call creates, duplicates or closes descriptors.
pub(crate) fn is_descriptor_call(name: &str) -> bool {
    DESCRIPTORS.contains(&name)
}

/// Whether the call changes working directory, root, umask or credentials.
pub(crate) fn is_place_call(name: &str) -> bool {
    PLACES.contains(&name) || SET_IDS.contains(&name)
}

/// Calls needed to interpret Linux AIO requests, which are separate rows.
const REQUESTS: &[&str] = &["io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_destroy"];

/// Whether user space needs this call even if `--op` does not select it.
fn is_context(name: &str) -> bool {
    is_descriptor_call(name) || is_place_call(name) || REQUESTS.contains(&name)
}

/// One `--path`.
#[derive(Clone, Debug)]
enum PathRule {
    /// This path and everything below it.
    Below(String),
    /// Whole paths that match.
    Whole(Pattern),
    /// Names that match, in any folder.
    Name(Pattern),
}

impl PathRule {
    fn holds(&self, path: &str) -> bool {
        let options =
            MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };
        match self {
            Self::Below(dir) => {
                path.strip_prefix(&**dir).is_some_and(|r| r.is_empty() || r.starts_with('/') || dir == "/")
            }
            Self::Whole(pattern) => pattern.matches_with(path, options),
            Self::Name(pattern) => path.rsplit('/').next().is_some_and(|name| pattern.matches_with(name, options)),
        }
    }
}

/// Which operations of recorded tasks are kept. The default keeps all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    paths: Vec<PathRule>,
    comms: Vec<[u8; COMM_BYTES + 1]>,
    uids: Vec<u32>,
    ops: Option<BTreeSet<&'static str>>,
    min_latency_ns: u64,
    /// `--device`: only files on these disks.
    disks: Vec<i64>,
}

impl Filter {
    /// Parses the values of the options.
    ///
    /// # Errors
    /// An invalid value; the message names the option, the value and what is allowed.
    pub fn new(
        paths: &[PathBuf],
        comms: &[String],
        users: &[String],
        ops: &[String],
        min_latency: Duration,
    ) -> Result<Self, CaptureError> {
        let many = |option: &str, n: usize| {
            let words = format!("{n} times");
            if n > MAX_WORDS { Err(bad(option, &words, &format!("at most {MAX_WORDS} are possible"))) } else { Ok(()) }
        };
        many("--comm", comms.len())?;
        many("--uid", users.len())?;
        Ok(Self {
            paths: paths.iter().map(|p| path_rules(p)).collect::<Result<Vec<_>, _>>()?.concat(),
            comms: comms.iter().map(|c| comm(c)).collect::<Result<_, _>>()?,
            uids: users.iter().map(|u| uid(u)).collect::<Result<_, _>>()?,
            ops: if ops.is_empty() { None } else { Some(calls_named(ops)?) },
            min_latency_ns: min_latency.as_nanos().min(u128::from(u64::MAX)) as u64,
            disks: Vec::new(),
        })
    }

    /// Whether anything is filtered out.
    pub(crate) fn is_any(&self) -> bool {
        self.has_files()
            || !self.comms.is_empty()
            || !self.uids.is_empty()
            || self.ops.is_some()
            || self.min_latency_ns > 0
    }

    /// Restricts the filter to files on these disks; an empty list means any disk.
    pub(crate) fn on_disks(self, disks: Vec<i64>) -> Self {
        Self { disks, ..self }
    }

    /// Adds the paths under which other mounts show a folder of `--path`, as bind mounts do, also if they show only
    /// part of it.
    pub(crate) fn also_where_mounted(mut self, mounts: &[Mount]) -> Self {
        let mut others = Vec::new();
        for rule in &self.paths {
            let PathRule::Below(dir) = rule else { continue };
            let Some(mount) = host::mount_of_path(mounts, dir) else { continue };
            let inside = dir.strip_prefix(mount.mountpoint.trim_end_matches('/')).unwrap_or_default();
            let fs_path = format!("{}{inside}", mount.root.trim_end_matches('/'));
            for m in mounts.iter().filter(|m| m.sb_dev == mount.sb_dev) {
                let shown = mount_of_device(std::slice::from_ref(m), m.sb_dev, &fs_path);
                let part = || PathRule::Below(fs_path.clone()).holds(&m.root).then(|| m.mountpoint.clone());
                // Not if another mount hides it.
                let seen = |path: &String| host::mount_of_path(mounts, path).is_some_and(|at| std::ptr::eq(at, m));
                others.extend(shown.or_else(part).filter(seen));
            }
        }
        self.paths.extend(others.into_iter().map(PathRule::Below));
        self
    }

    /// Whether the filter depends on the file of an operation.
    pub(crate) fn has_files(&self) -> bool {
        !self.paths.is_empty() || !self.disks.is_empty()
    }

    /// Disks that the filter is restricted to; empty for any disk.
    pub(crate) fn disks(&self) -> &[i64] {
        &self.disks
    }

    pub(crate) fn wants_path(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|rule| rule.holds(path))
    }

    pub(crate) fn wants_call(&self, name: &str) -> bool {
        self.ops.as_ref().is_none_or(|ops| ops.contains(name))
    }

    pub(crate) fn min_latency_ns(&self) -> u64 {
        self.min_latency_ns
    }

    /// Writes the filter to the constants of the probes. The call table must be filled already.
    pub(crate) fn tell(&self, rodata: &mut rodata) {
        for (nr, call) in calls::numbered() {
            let desc = &mut rodata.calls[nr];
            desc.unwanted = u8::from(!self.wants_call(call.name));
            desc.context = u8::from(is_context(call.name));
        }
        for compat in calls::compat() {
            let Some(call) = compat.call else { continue };
            let desc = &mut rodata.calls32[compat.nr];
            desc.unwanted = u8::from(!self.wants_call(call.name));
            desc.context = u8::from(is_context(call.name));
        }
        rodata.filter_calls = self.ops.is_some();
        rodata.filter_comms = self.comms.len() as u32;
        for (to, from) in rodata.filter_comm.iter_mut().zip(&self.comms) {
            *to = from.map(|b| b as _);
        }
        rodata.filter_uids = self.uids.len() as u32;
        for (to, from) in rodata.filter_uid.iter_mut().zip(&self.uids) {
            *to = *from;
        }
        rodata.filter_files = self.has_files();
        rodata.filter_least_ns = self.min_latency_ns;
    }
}

fn bad(option: &str, word: &str, why: &str) -> CaptureError {
    CaptureError::Filter { option: format!("{option} {word}"), why: why.into() }
}

/// A pattern is used as it is. A plain path gives two rules: made absolute as given, and with symbolic links resolved.
fn path_rules(path: &Path) -> Result<Vec<PathRule>, CaptureError> {
    let shown = text::from_bytes(path.as_os_str().as_bytes());
    let refuse = |why: String| bad("--path", &shown, &why);
    if !shown.contains(['*', '?', '[']) {
        let given = absolute(path).map_err(|e| refuse(e.to_string()))?;
        let mut rules = Vec::new();
        for p in [Some(given.clone()), path.canonicalize().ok()].into_iter().flatten() {
            let p = text::from_bytes(p.as_os_str().as_bytes());
            let plain = normal("/", &p);
            rules.push(PathRule::Below(plain));
        }
        return Ok(rules);
    }
    let pattern = |p: &str| Pattern::new(p).map_err(|e| refuse(format!("{}; write a literal [ as [[]", e.msg)));
    if !shown.contains('/') {
        return Ok(vec![PathRule::Name(pattern(&shown)?)]);
    }
    // The current directory is no pattern, so it is escaped.
    let cwd = std::env::current_dir().map_err(|e| refuse(e.to_string()))?;
    let base = Pattern::escape(&text::from_bytes(cwd.as_os_str().as_bytes()));
    Ok(vec![PathRule::Whole(pattern(&normal(&base, &shown))?)])
}

/// Resolves `path` relative to the folder `base` and removes `.`, `..` and double slashes. Does not follow symbolic
/// links.
pub(crate) fn normal(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let all = if path.starts_with('/') { "" } else { base };
    for part in all.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn comm(name: &str) -> Result<[u8; COMM_BYTES + 1], CaptureError> {
    if name.is_empty() {
        return Err(bad("--comm", name, "empty name; use a thread name as `ps -o comm` shows it"));
    }
    let mut out = [0; COMM_BYTES + 1];
    // The kernel truncates thread names, so a longer name matches by its first 15 bytes.
    let cut = &name.as_bytes()[..name.len().min(COMM_BYTES)];
    out[..cut.len()].copy_from_slice(cut);
    Ok(out)
}

fn uid(user: &str) -> Result<u32, CaptureError> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let refuse = |why: &str| bad("--uid", user, why);
    let name = CString::new(user).map_err(|_| refuse("a user name cannot contain a NUL byte"))?;
    let mut buffer = vec![0; 16 * 1024];
    let mut entry = MaybeUninit::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to live memory of the given sizes; `entry` is read only if the call succeeds.
    let failed =
        unsafe { libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &mut found) };
    if failed != 0 || found.is_null() {
        return Err(refuse("no such user; use a name from `getent passwd`, or a number"));
    }
    // SAFETY: `found` points to the filled `entry`.
    Ok(unsafe { (*found).pw_uid })
}

/// All values of `op`: system calls, and I/O by the kernel itself.
fn all_names() -> impl Iterator<Item = &'static str> {
    calls::all().map(|c| c.name).chain(calls::KERNEL_IO)
}

/// The names that `--op` words select: names, patterns and classes, separated by commas.
fn calls_named(words: &[String]) -> Result<BTreeSet<&'static str>, CaptureError> {
    let mut out = BTreeSet::new();
    let classed = |name: &str| CLASSES.iter().any(|(_, names)| names.contains(&name));
    for word in words.iter().flat_map(|w| w.split(',')) {
        let pattern = Pattern::new(word).map_err(|e| bad("--op", word, &format!("not a valid pattern: {}", e.msg)))?;
        let class = CLASSES.iter().find(|(class, _)| *class == word).map(|(_, names)| *names);
        let before = out.len();
        out.extend(all_names().filter(|name| match class {
            Some(class) => class.contains(name),
            None if word == META => !classed(name),
            None => pattern.matches(name),
        }));
        let known = out.len() > before || out.iter().any(|n| pattern.matches(n));
        if !known && class.is_none() {
            let classes: Vec<&str> = CLASSES.iter().map(|(c, _)| *c).chain([META]).collect();
            let known: Vec<&str> = classes.iter().copied().chain(all_names()).collect();
            let why = format!(
                "unknown call{}; use a call of docs/calls.md, a pattern such as '*sync*', or a class: {}",
                suggest::hint(word, &known),
                classes.join(", ")
            );
            return Err(bad("--op", word, &why));
        }
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn ops(words: &str) -> Result<BTreeSet<&'static str>, CaptureError> {
        calls_named(&[words.to_owned()])
    }

    #[test]
    fn classes_names_and_patterns() {
        assert!(ops("write").unwrap().is_superset(&BTreeSet::from(["write", "pwrite64", "pwritev2"])));
        assert_eq!(ops("fsync,rmdir").unwrap(), BTreeSet::from(["fsync", "rmdir"]));
        assert!(ops("*stat*").unwrap().contains("newfstatat"));
        let meta = ops("meta").unwrap();
        assert!(
            meta.contains("rename") && meta.contains("openat") && !meta.contains("read") && !meta.contains("fsync")
        );
        let wrong = ops("wirte").unwrap_err().to_string();
        assert!(wrong.contains("--op wirte: unknown call (did you mean 'write'?)"), "{wrong}");
        assert!(wrong.ends_with("read, write, copy, sync, map, meta"), "{wrong}");
        assert!(ops("").is_err());
    }

    #[test]
    fn every_call_is_in_one_class() {
        let all: usize =
            CLASSES.iter().map(|(c, _)| *c).chain([META]).map(|c| ops(c).map_or(0, |names| names.len())).sum();
        let names: BTreeSet<_> = all_names().collect();
        assert_eq!(all, names.len());
    }

    #[test]
    fn paths_below_and_patterns() {
        let rule = |p: &str| Filter::new(&[p.into()], &[], &[], &[], Duration::ZERO).unwrap();
        let below = rule("/srv/a/../data/");
        assert!(below.wants_path("/srv/data") && below.wants_path("/srv/data/x/y"));
        assert!(!below.wants_path("/srv/database") && !below.wants_path("/srv"));
        assert!(rule("/").wants_path("/anything"));
        let name = rule("*.db");
        assert!(name.wants_path("/a/b/x.db") && name.wants_path("x.db") && !name.wants_path("/a.db/x"));
        let whole = rule("/a/*/c");
        assert!(whole.wants_path("/a/b/c") && !whole.wants_path("/a/b/b/c"));
        assert!(rule("/a/**/c").wants_path("/a/b/b/c"));
        assert!(Filter::new(&["/a/[".into()], &[], &[], &[], Duration::ZERO).is_err());
    }

    #[test]
    fn names_and_users() {
        assert_eq!(comm("a-name-of-twenty-bytes").unwrap(), *b"a-name-of-twent\0");
        assert_eq!(uid("root").unwrap(), 0);
        assert_eq!(uid("1234").unwrap(), 1234);
        assert!(uid("no-such-user-here").unwrap_err().to_string().contains("--uid no-such-user-here"));
        let many = vec!["x".to_owned(); MAX_WORDS + 1];
        assert!(Filter::new(&[], &many, &[], &[], Duration::ZERO).is_err());
    }
}
