//! Anonymized recordings: no name of the workload reaches the disk.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use ioreel_traces::{
    Reel, ReelError, Text,
    rows::{Op, Tree},
    table::Row,
    tables::{self, Visitor},
};

use crate::harness::{
    assert_valid, finish, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, run, succeed, temp_dir, text, wait_for,
};

/// In every name that the workload uses, and in nothing else.
const SECRET: &str = "zqsecret";

/// A program, folder, files, links, attributes, arguments and threads whose names are all secret.
fn script(at: &Path) -> PathBuf {
    let program = at.join(format!("{SECRET}-prog.sh"));
    let body = format!(
        "#!/bin/sh\ncd {at}\nmkdir {SECRET}-dir\ncd {SECRET}-dir\n\
         for i in 1 2 3; do echo {SECRET} > {SECRET}-$i.txt; done\n\
         mv {SECRET}-1.txt ../{SECRET}-moved.txt\nln -s ../{SECRET}-moved.txt {SECRET}-link\ncat {SECRET}-link\n\
         cat {SECRET}-missing 2>/dev/null\nrm {SECRET}-2.txt\nwc -c ../{SECRET}-before/* ../{SECRET}-gone\nexit 0\n",
        at = text(at)
    );
    fs::write(&program, body).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let before = at.join(format!("{SECRET}-before"));
    fs::create_dir(&before).unwrap();
    fs::write(before.join(format!("{SECRET}.conf")), "x").unwrap();
    std::os::unix::fs::symlink(format!("{SECRET}-nowhere"), at.join(format!("{SECRET}-gone"))).unwrap();
    program
}

/// Files below `dir` whose bytes hold the secret.
fn leaks(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(leaks(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes())
        {
            found.push(path);
        }
    }
    found
}

/// Every text of every table, decoded.
fn texts(reel: &Reel) -> Vec<String> {
    struct Collect<'a>(&'a Reel, Vec<String>);
    impl Visitor for Collect<'_> {
        type Error = ReelError;
        fn table<R: Row>(&mut self) -> Result<(), ReelError> {
            for row in self.0.rows::<R>() {
                row?.map_text(&mut |_, text: &Text| {
                    self.1.push(text.to_string());
                    text.clone()
                });
            }
            Ok(())
        }
    }
    let mut collect = Collect(reel, Vec::new());
    tables::each(&mut collect).unwrap();
    collect.1
}

#[track_caller]
fn assert_private(reel: &Path) {
    assert_eq!(leaks(reel), Vec::<PathBuf>::new());
    let told: Vec<_> = texts(&Reel::open(reel).unwrap()).into_iter().filter(|t| t.contains(SECRET)).collect();
    assert!(told.is_empty(), "{told:?}");
}

/// Looks at all files of a reel again and again until dropped.
struct Watch {
    thread: Option<std::thread::JoinHandle<Vec<PathBuf>>>,
    end: std::sync::Arc<AtomicBool>,
}

fn watch(reel: &Path) -> Watch {
    let end = std::sync::Arc::new(AtomicBool::new(false));
    let (reel, ended) = (reel.to_owned(), end.clone());
    let thread = std::thread::spawn(move || {
        let mut found = Vec::new();
        while !ended.load(Ordering::Relaxed) && found.is_empty() {
            found = leaks(&reel);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        found
    });
    Watch { thread: Some(thread), end }
}

impl Watch {
    fn found(mut self) -> Vec<PathBuf> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

pub(crate) fn no_name_reaches_the_disk() {
    let fs = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let program = script(fs.path());
    let work = temp_dir();
    let reel = work.path().join("r.reel");
    let watch = watch(&reel);
    let secret_word = format!("--for={SECRET}");
    succeed(
        record(&reel, &["--anonymize", "--snapshot", text(fs.path())], &[text(&program), &secret_word])
            .env(SECRET, "1"),
    );
    assert_eq!(watch.found(), Vec::<PathBuf>::new());
    let opened = assert_valid(&reel);
    assert_private(&reel);
    // What a replay needs is there: the tree before, with links that lead where they led.
    let tree: Vec<Tree> = opened.read().unwrap();
    let there = |kind: &str| tree.iter().filter(|t| t.kind == kind && t.origin == "snapshot").count();
    assert!(there("regular") >= 2 && there("symlink") >= 1);
    assert!(tree.iter().any(|t| t.path.ends_with(".conf")), "extensions stay");
    let ops: Vec<Op> = opened.read().unwrap();
    assert!(ops.iter().any(|o| o.op.starts_with("rename") && o.path.as_ref().is_some_and(|p| p.ends_with(".txt"))));
}

/// Names, values and words of every kind that a call can be given, right or wrong; a thread's name, a mark, filters.
pub(crate) fn whatever_a_call_is_given() {
    let fs = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
    let program = "
import ctypes, os, sys, subprocess
secret, at, ioreel, reel = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
b = secret.encode()
os.chdir(at)
open('x', 'w').write('x')
def each(*names):
    for name in names:
        try: os.setxattr('x', name, b + b'-value')
        except OSError: pass
        try: os.getxattr('x', name)
        except OSError: pass
        try: os.removexattr('x', name)
        except OSError: pass
each('user.' + secret, secret, 'system.' + secret, 'system.posix_acl_access', 'system.posix_acl_' + secret, 'security.capability')
os.symlink(secret + '-target', secret + '-link')
for kind in (b, b'fuse.' + b, b'ext4'):
    libc.mount(b + b'-source', b'/nowhere/' + b, kind, 0, b'opt=' + b)
    libc.syscall(430, kind, 0)
fd = libc.syscall(430, b'tmpfs', 0)
for key in (b, b'source', b'size'): libc.syscall(431, fd, 1, key, b, 0)
libc.syscall(319, b, 0)
libc.prctl(15, b[:15], 0, 0, 0)
label = ctypes.create_string_buffer(b, 256)
f = os.open('x', os.O_RDWR)
libc.ioctl(f, 0x41009432, label)
libc.swapon(b'/' + b, 0)
libc.syscall(179, 0x80000701, b'/dev/' + b, 0, 0)
libc.umount2(b'/' + b, 0)
libc.chroot(b'/' + b)
subprocess.run([ioreel, 'mark', '--reel', reel, secret])
subprocess.run(['/bin/true', secret, '--' + secret + '=1'])
try: os.execv('/nowhere/' + secret, [secret])
except OSError: pass
";
    let work = temp_dir();
    let reel = work.path().join("r.reel");
    let watch = watch(&reel);
    let args = ["python3", "-c", program, SECRET, text(fs.path()), env!("CARGO_BIN_EXE_ioreel"), text(&reel)];
    succeed(&mut record(&reel, &["--anonymize"], &args));
    assert_eq!(watch.found(), Vec::<PathBuf>::new());
    let opened = assert_valid(&reel);
    assert_private(&reel);
    assert_eq!(opened.manifest.marks.len(), 1);
    // Words of the kernel stay.
    let ops: Vec<Op> = opened.read().unwrap();
    let named = |call: &str, name: &str| ops.iter().any(|o| o.op == call && o.name.as_deref() == Some(name));
    for (call, name) in [("mount", "ext4"), ("fsopen", "tmpfs"), ("fsconfig", "size"), ("ioctl", "FS_IOC_SETFSLABEL")] {
        assert!(named(call, name), "{call} {name}");
    }
    assert!(named("setxattr", "security.capability"));
}

pub(crate) fn a_killed_recorder_leaves_no_name() {
    let fs = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let program = script(fs.path());
    let body =
        fs::read_to_string(&program).unwrap().replace("exit 0", &format!("touch {SECRET}-done; exec sleep 1000"));
    fs::write(&program, body).unwrap();
    let work = temp_dir();
    let reel = work.path().join("r.reel");
    let child: Child =
        record(&reel, &["--anonymize"], &[text(&program)]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let done = fs.path().join(format!("{SECRET}-dir/{SECRET}-done"));
    wait_for("the workload", || done.exists().then_some(()));
    let recorder = child.id() as libc::pid_t;
    let children = fs::read_to_string(format!("/proc/{recorder}/task/{recorder}/children")).unwrap();
    // SAFETY: the recorder has not been waited for.
    unsafe { libc::kill(recorder, libc::SIGKILL) };
    finish(child);
    for pid in children.split_whitespace() {
        // SAFETY: a child of the recorder, which this test started: the sleep.
        unsafe { libc::kill(pid.parse().unwrap(), libc::SIGKILL) };
    }
    assert_eq!(leaks(&reel), Vec::<PathBuf>::new());
    run(&mut ioreel(["validate", "--repair", text(&reel)]));
    assert_private(&reel);
}

pub(crate) fn one_key_makes_reels_comparable_and_afterwards_is_the_same() {
    let fs = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let program = script(fs.path());
    let work = temp_dir();
    let key = work.path().join("key");
    fs::write(&key, "a key of sixteen bytes and more\n").unwrap();
    let (clear, late) = (work.path().join("clear.reel"), work.path().join("late.reel"));
    succeed(&mut record(&clear, &[], &[text(&program)]));
    succeed(&mut ioreel(["anonymize", text(&clear), "-o", text(&late), "--key-file", text(&key)]));
    assert_valid(&late);
    assert_private(&late);
    let paths = |reel: &Path| {
        let mut all: Vec<_> = Reel::open(reel).unwrap().rows::<Op>().filter_map(|o| o.unwrap().path).collect();
        all.sort();
        all.dedup();
        all
    };
    let again = work.path().join("again.reel");
    fs::remove_dir_all(fs.path().join(format!("{SECRET}-dir"))).unwrap();
    fs::remove_file(fs.path().join(format!("{SECRET}-moved.txt"))).unwrap();
    succeed(&mut record(&again, &["--anonymize", "--key-file", text(&key)], &[text(&program)]));
    assert_valid(&again);
    let (late, again) = (paths(&late), paths(&again));
    let shared = late.iter().filter(|p| again.contains(p)).count();
    assert!(shared * 10 >= late.len() * 9, "{shared} of {} paths are the same: {late:?} {again:?}", late.len());
}
