//! Bounds that a program must keep, and a look at what it may not touch.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        fs::MetadataExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// What a command may take.
const MAX_TIME: Duration = Duration::from_secs(60);
const MAX_KIB: i64 = 1536 << 10;
/// So that a command which takes more does not harm the machine: address space holds much that is never used.
const MAX_ADDRESSES: u64 = 16 << 30;
/// Room of the target.
const TARGET: &str = "size=256m,nr_inodes=200k";

/// Whether this process may mount: then it does so in a name space of its own.
fn may_mount() -> bool {
    // SAFETY: only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// A file system of its own for the target, so that no replay fills the disk.
pub(crate) fn mount_small(dir: &Path) {
    if !may_mount() {
        return;
    }
    // SAFETY: this process has one thread; from here on its mounts are its own.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    for words in [&["--make-rprivate", "/"][..], &["-t", "tmpfs", "-o", TARGET, "mutants", dir.to_str().unwrap()]] {
        assert!(Command::new("mount").args(words).status().unwrap().success(), "mount {words:?}");
    }
}

pub(crate) fn unmount_small(dir: &Path) {
    if may_mount() {
        assert!(Command::new("umount").arg(dir).status().unwrap().success());
    }
}

/// Removes what is in a folder, not the folder.
pub(crate) fn empty(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        // Names too deep for a recursion by path.
        assert!(Command::new("rm").arg("-rf").arg(&path).status().unwrap().success());
    }
}

/// Whether the program under test checks its memory with a sanitizer, which takes much more of it.
fn is_sanitized() -> bool {
    std::env::var_os("IOREEL_SANITIZED").is_some()
}

fn limit(resource: u32, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: async-signal-safe, on a valid structure.
    unsafe { libc::setrlimit(resource as _, &limit) };
}

/// Waits for a child until the deadline; its status and its largest resident size, KiB.
fn wait(pid: i32, started: Instant) -> Option<(ExitStatus, i64)> {
    loop {
        let mut status = 0;
        // SAFETY: all zeroes are a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: waits for a child of this process, which nobody else waits for.
        let ended = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
        assert!(ended >= 0, "{}", std::io::Error::last_os_error());
        if ended == pid {
            return Some((ExitStatus::from_raw(status), usage.ru_maxrss));
        }
        if started.elapsed() > MAX_TIME {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command to its end, with what it prints in the file `said`. An error says which bound it broke.
pub(crate) fn run(command: &mut Command, said: &Path) -> Result<(), String> {
    let file = fs::File::create(said).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
    let sanitized = is_sanitized();
    // SAFETY: the child makes system calls alone.
    unsafe {
        command.pre_exec(move || {
            if !sanitized {
                limit(libc::RLIMIT_AS, MAX_ADDRESSES);
            }
            limit(libc::RLIMIT_CORE, 0);
            Ok(())
        })
    };
    let most_kib = if sanitized { 4 * MAX_KIB } else { MAX_KIB };
    let started = Instant::now();
    #[expect(clippy::zombie_processes, reason = "it is reaped by number, with its resource usage")]
    let child = command.spawn().unwrap();
    let pid = child.id() as i32;
    let ended = wait(pid, started);
    // What it has started and left, or it itself.
    // SAFETY: its own process group.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
    let Some((status, kib)) = ended else {
        // SAFETY: reaps the child that was just ended.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        return Err(format!("did not end within {} s", MAX_TIME.as_secs()));
    };
    let last = || {
        let text = String::from_utf8_lossy(&fs::read(said).unwrap()).into_owned();
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().map(|l| l.chars().take(300).collect::<String>()).collect::<Vec<_>>().join(" | ")
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => Err(format!("ended by signal {signal}: {}", last())),
        (_, Some(101)) => Err(format!("panicked: {}", last())),
        (_, Some(code)) if is_documented(code) && kib <= most_kib => Ok(()),
        (_, Some(code)) if is_documented(code) => Err(format!("took {} MiB", kib >> 10)),
        (_, code) => Err(format!("ended with status {code:?}: {}", last())),
    }
}

/// Exit statuses that the program documents: 0 to 3, and the bits of a verdict (4, 8, 16, 32).
fn is_documented(status: i32) -> bool {
    matches!(status, 0..=3) || status & !(4 | 8 | 16 | 32) == 0
}

/// All that is below some folders.
#[derive(Default)]
pub(crate) struct Walk(BTreeMap<PathBuf, String>);

/// Looks at each name below these: its type, owner, mode, links, times and content.
pub(crate) fn walk(folders: &[&Path]) -> Walk {
    let mut found = Walk::default();
    let mut open: Vec<PathBuf> = folders.iter().map(|p| p.to_path_buf()).collect();
    while let Some(path) = open.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let content = if meta.is_file() {
            format!("{:?}", fs::read(&path).ok())
        } else if meta.is_symlink() {
            format!("{:?}", fs::read_link(&path).ok())
        } else {
            String::new()
        };
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
        let owner = (meta.uid(), meta.gid());
        let facts = format!("{:o} {owner:?} {} {}.{}", meta.mode(), meta.nlink(), meta.mtime(), meta.mtime_nsec());
        found.0.insert(path, format!("{facts} {:?} {content}", meta.len()));
    }
    found
}

impl Walk {
    /// Names that are not the same in both.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let names = self.0.keys().chain(other.0.keys().filter(|k| !self.0.contains_key(*k)));
        names.filter(|name| self.0.get(*name) != other.0.get(*name)).map(|name| name.display().to_string()).collect()
    }
}
