//! Programs that become other users: owners and refusals recur.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use ioreel_traces::rows::{Exec, Op};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, replays_alike, succeed, temp_dir, text,
};

/// Drops to users and comes back between creates, by every call there is for it, in threads and processes, and by a program that runs as its
/// owner.
const WORK: &str = r#"
import ctypes, errno, os, subprocess, threading
libc = ctypes.CDLL(None, use_errno=True)
def make(name):
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
def refused(name):
    try: os.close(os.open(name, os.O_RDONLY))
    except PermissionError: return True
    return False
for i in range(20):
    make(f'root-{i}')
    os.setegid(100); os.seteuid(1000)
    make(f'user-{i}'); assert refused('secret') and os.access('secret', os.R_OK)
    os.seteuid(0); os.setegid(0)
libc.setfsuid(1001); make('served'); assert refused('secret'); libc.setfsuid(0)
def serve(uid):
    # By the call itself: one thread alone.
    libc.syscall(117, -1, uid, -1); make(f'thread-{uid}'); libc.syscall(117, -1, 0, -1)
threads = [threading.Thread(target=serve, args=(2000 + i,)) for i in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
if os.fork() == 0:
    os.setgroups([50, 51]); os.setgid(1002); os.setuid(1002)
    make('for-good'); assert refused('secret') and not os.access('secret', os.R_OK)
    assert not refused('shared')
    try: os.setuid(0); os._exit(1)
    except PermissionError: pass
    subprocess.run(['./as-owner', 'made-as-owner'], check=True)
    os._exit(0)
assert os.wait()[1] == 0
make('end')
"#;

fn owners(dir: &Path) -> BTreeMap<String, (u32, u32, u32)> {
    let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap());
    entries
        .map(|e| {
            let meta = e.metadata().unwrap();
            (e.file_name().into_string().unwrap(), (meta.uid(), meta.gid(), meta.mode() & 0o1777))
        })
        .collect()
}

pub(crate) fn owners_and_refusals() {
    let (origin, target, out) =
        (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES), temp_dir());
    let (work, reel) = (origin.path().join("work"), out.path().join("users.reel"));
    fs::create_dir(&work).unwrap();
    for (name, owner, mode) in [("secret", "0:0", "600"), ("shared", "0:50", "640"), ("as-owner", "1003:1003", "4755")]
    {
        let path = work.join(name);
        if name == "as-owner" {
            fs::copy("/usr/bin/touch", &path).unwrap();
        } else {
            fs::write(&path, "text").unwrap();
        }
        succeed(Command::new("chown").arg(owner).arg(&path));
        succeed(Command::new("chmod").arg(mode).arg(&path));
    }
    succeed(Command::new("chmod").arg("777").arg(&work));
    succeed(record(&reel, &["--settle", "none"], &["python3", "-S", "-c", WORK]).current_dir(&work));
    let recorded = assert_valid(&reel);
    let calls = |name: &str| recorded.rows::<Op>().filter(|op| &*op.as_ref().unwrap().op == name).count();
    assert!(calls("setfsuid") == 2 && calls("setgroups") == 1 && calls("setresuid") >= 48, "setresuid and its kin");
    let execs: Vec<Exec> = recorded.read().unwrap();
    assert!(execs.iter().any(|e| (e.uid, e.gid) == (Some(1003), Some(1002))), "{execs:?}");

    let report = replays_alike("users", &reel, target.path(), "max");
    let skipped = report["summary"]["skipped"].as_object().unwrap();
    assert!(!skipped.keys().any(|why| why.contains("user") || why.contains("value")), "{skipped:?}");
    let replayed = target.path().join(text(&work).trim_start_matches('/'));
    assert_eq!(owners(&replayed), owners(&work));
}
