//! What the recording implies of names: roots that were changed, mounts, subvolumes, threads that part company. The tree
//! before, and who had which name when.

use std::{collections::HashMap, fs, path::Path};

use ioreel_traces::{
    Reel,
    rows::{File, Name, Tree},
};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

fn recorded(reel: &Path, script: &str, args: &[&str]) -> Reel {
    let command = [&["unshare", "--mount", "python3", "-c", script], args].concat();
    succeed(&mut record(reel, &["--no-snapshot"], &command));
    assert_valid(reel)
}

struct Found {
    tree: HashMap<String, Tree>,
    names: Vec<Name>,
    files: HashMap<i64, File>,
}

impl Found {
    fn of(reel: &Reel) -> Self {
        Self {
            tree: reel.rows::<Tree>().map(|t| t.unwrap()).map(|t| (t.path.to_string(), t)).collect(),
            names: reel.read().unwrap(),
            files: reel.rows::<File>().map(|f| f.unwrap()).map(|f| (f.file, f)).collect(),
        }
    }

    #[track_caller]
    fn was_there(&self, path: &str, kind: &str) {
        assert_eq!(self.tree.get(path).map(|t| &*t.kind), Some(kind), "{path}");
    }

    #[track_caller]
    fn was_not_there(&self, path: &str) {
        assert!(!self.tree.contains_key(path), "{:?}", self.tree.get(path));
    }

    #[track_caller]
    fn named(&self, path: &str) -> &Name {
        let all: Vec<_> = self.names.iter().filter(|n| &*n.path == path).collect();
        assert_eq!(all.len(), 1, "{path}: {all:?}");
        all[0]
    }
}

/// A root of its own, and where a thread stands when it no longer shares that with the others.
pub(crate) fn roots_and_places() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let base = text(mount.path()).to_owned();
    for dir in ["root/inside", "place", "other"] {
        fs::create_dir_all(mount.path().join(dir)).unwrap();
    }
    fs::write(mount.path().join("root/inside/old"), "old").unwrap();
    fs::write(mount.path().join("other/old"), "older").unwrap();
    std::os::unix::fs::symlink("/inside", mount.path().join("root/link")).unwrap();
    let script = "
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
base = sys.argv[1]
os.chdir(base)
def apart():
    assert libc.unshare(0x200) == 0
    os.chdir('place')
    open('by-thread', 'w').close()
t = threading.Thread(target=apart); t.start(); t.join()
open('by-main', 'w').close()
pid = os.fork()
if pid == 0:
    os.chroot(base + '/root')
    os.chdir('/')
    open('/link/old').close()
    open('/inside/new', 'w').close()
    try: open('/../other/old')
    except OSError: pass
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
";
    let found = Found::of(&recorded(&out.path().join("x.reel"), script, &[&base]));
    found.was_there(&format!("{base}/root"), "directory");
    found.was_there(&format!("{base}/root/inside/old"), "regular");
    found.was_there(&format!("{base}/root/link"), "symlink");
    found.was_not_there("/inside/old");
    found.was_not_there(&format!("{base}/other/old"));
    for made in ["root/inside/new", "place/by-thread", "by-main"] {
        found.was_not_there(&format!("{base}/{made}"));
        let name = found.named(&format!("{base}/{made}"));
        assert_eq!((&*name.how, &name.ended), ("created", &None), "{name:?}");
        let file = &found.files[&name.file.unwrap()];
        assert_eq!(&*file.kind, "regular", "{file:?}");
    }
}

/// What is mounted where: the places must have been there, what lies behind them was not.
pub(crate) fn mounts() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let base = text(mount.path()).to_owned();
    for dir in ["empty", "from", "to"] {
        fs::create_dir_all(mount.path().join(dir)).unwrap();
    }
    fs::write(mount.path().join("from/file"), "data").unwrap();
    let script = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
base = sys.argv[1].encode()
assert libc.mount(b'nothing', base + b'/empty', b'tmpfs', 0, b'') == 0
open(base + b'/empty/new', 'w').close()
assert libc.mount(base + b'/from', base + b'/to', None, 4096, None) == 0
open(base + b'/to/file').close()
assert libc.umount2(base + b'/to', 2) == 0
assert libc.umount2(base + b'/empty', 2) == 0
";
    let found = Found::of(&recorded(&out.path().join("x.reel"), script, &[&base]));
    for dir in ["empty", "from", "to"] {
        found.was_there(&format!("{base}/{dir}"), "directory");
    }
    found.was_not_there(&format!("{base}/empty/new"));
    found.was_not_there(&format!("{base}/nothing"));
    assert!(!found.tree.contains_key("/nothing") && !found.tree.keys().any(|k| k.ends_with("/nothing")));
    assert_eq!(&*found.named(&format!("{base}/empty/new")).how, "created");
}

/// Subvolumes and snapshots come and go like directories.
pub(crate) fn subvolumes() {
    let (mount, out) = (Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES), temp_dir());
    let base = text(mount.path()).to_owned();
    succeed(std::process::Command::new("btrfs").args(["-q", "subvolume", "create", &format!("{base}/old")]));
    fs::write(mount.path().join("old/file"), "data").unwrap();
    let script = "
import os, subprocess, sys
base = sys.argv[1]
def btrfs(*words): subprocess.run(['btrfs', '-q', 'subvolume', *words], check=True)
os.chdir(base)
btrfs('create', 'new')
open('new/file', 'w').close()
btrfs('snapshot', 'old', 'snap')
open('snap/file').close()
btrfs('delete', 'old')
btrfs('delete', 'new')
";
    let found = Found::of(&recorded(&out.path().join("x.reel"), script, &[&base]));
    found.was_there(&format!("{base}/old"), "directory");
    found.was_not_there(&format!("{base}/new"));
    found.was_not_there(&format!("{base}/snap"));
    found.was_not_there(&format!("{base}/new/file"));
    let of = |name: &str| {
        let n = found.named(&format!("{base}/{name}"));
        (n.how.to_string(), n.ended.as_deref().map(str::to_owned))
    };
    let ended = |how: &str, ended: Option<&str>| (how.to_owned(), ended.map(str::to_owned));
    assert_eq!(of("snap"), ended("created", None));
    assert_eq!(of("new"), ended("created", Some("unlinked")));
    assert_eq!(of("old").1.as_deref(), Some("unlinked"));
    // It went with its folder: no call named it.
    assert_eq!(of("new/file"), ended("created", Some("lost")));
}

/// What the snapshot saw in full holds no more than that, though calls that are not recorded (a socket's bind) or whose names
/// lead through /proc made more; and folders that are taken for the root of all.
pub(crate) fn out_of_sight() {
    let out = temp_dir();
    let base = out.path().join("base");
    fs::create_dir_all(base.join("before")).unwrap();
    let script = "
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket(socket.AF_UNIX); s.bind('socket'); s.close()
os.rename('socket', 'before/socket'); os.unlink('before/socket')
d = os.open('before', os.O_RDONLY)
os.mkdir('/proc/self/fd/%d/made' % d); os.rmdir('before/made')
os.mkdir('cage'); os.mkdir('cage/a'); cage = os.open('cage', os.O_PATH)
how = (ctypes.c_ulonglong * 3)(os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644, 0x10)
for path in b'/a/in-root', b'../../in-root':
    assert libc.syscall(437, cage, path, how, 24) >= 0
how[0] = os.O_RDONLY
for path in b'/missing', b'/../../missing':
    assert libc.syscall(437, cage, path, how, 24) < 0
";
    let (reel, filtered) = (out.path().join("x.reel"), out.path().join("y.reel"));
    succeed(record(&reel, &[], &["python3", "-c", script]).current_dir(&base));
    let found = Found::of(&assert_valid(&reel));
    let base_name = text(&base);
    let below: Vec<_> = found.tree.keys().filter(|p| p.starts_with(base_name)).map(String::as_str).collect();
    assert_eq!(below.len(), 2, "the folder and what was in it: {below:?}");
    found.was_there(&format!("{base_name}/before"), "directory");
    found.was_not_there("/a");
    for made in ["cage/a/in-root", "cage/in-root"] {
        assert_eq!(&*found.named(&format!("{base_name}/{made}")).how, "created");
    }
    fs::remove_dir_all(base.join("cage")).unwrap();
    let cage = base.join("cage");
    succeed(
        record(&filtered, &["--path", text(&cage), "--op", "openat2"], &["python3", "-c", script]).current_dir(&base),
    );
    let ops = assert_valid(&filtered).read::<ioreel_traces::rows::Op>().unwrap();
    assert_eq!(ops.iter().filter(|o| o.op == *"openat2").count(), 4, "all are in there");
}

/// Names of one file are told as such, though no snapshot saw them, and what was written by one was written by all.
pub(crate) fn hard_links() {
    let out = temp_dir();
    let at = |name: &str| out.path().join(name);
    for (file, link) in [("a", "b"), ("c", "d")] {
        fs::write(at(file), "abc\n").unwrap();
        fs::hard_link(at(file), at(link)).unwrap();
    }
    fs::write(at("other"), "abc\n").unwrap();
    let reel = at("x.reel");
    let script = "cat b other >out; echo k >>a; cat b c d >>out; rm a";
    succeed(record(&reel, &["--no-snapshot"], &["sh", "-c", script]).current_dir(out.path()));
    let found = Found::of(&assert_valid(&reel));
    let row = |name: &str| &found.tree[text(&at(name))];
    for (file, link) in [("a", "b"), ("c", "d")] {
        assert!(row(file).link_id.is_some() && row(file).link_id == row(link).link_id, "{file}: {:?}", row(file));
        assert_eq!((row(file).size_bytes, row(link).size_bytes), (Some(4), Some(4)));
    }
    assert_ne!(row("a").link_id, row("c").link_id);
    assert_eq!(row("other").link_id, None);
}

/// Folders that are renamed while they are in use, and names in /proc, which are others to the recorder.
pub(crate) fn moving_places() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (base, here) = (text(mount.path()).to_owned(), out.path().join("here"));
    fs::create_dir(&here).unwrap();
    let script = "
import os, subprocess, sys
os.chdir(sys.argv[1])
def sh(script): subprocess.run(['sh', '-c', script], check=True)
sh('mkdir Q; cd Q; echo a >f; mv ../Q ../R; rm f')
sh('mkdir d; cd d; echo hi >keep; mv /proc/self/cwd/keep /proc/self/cwd/keep2')
os.mkdir('P'); d = os.open('P', os.O_RDONLY); os.rename('P', 'P2')
os.close(os.open('rd', os.O_CREAT | os.O_WRONLY, dir_fd=d)); os.rename('rd', 'rd2', src_dir_fd=d, dst_dir_fd=d)
os.mkdir(f'/proc/self/fd/{d}/viafd'); os.symlink('tgt', f'/dev/fd/{d}/x')
t = os.open('.', os.O_TMPFILE | os.O_RDWR); os.link(f'/proc/self/fd/{t}', 'tmpl', src_dir_fd=d)
os.close(os.open(f'/proc/self/fd/{t}', os.O_RDONLY))
os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); os.close(os.open('.', os.O_RDONLY))
";
    let reel = out.path().join("x.reel");
    succeed(record(&reel, &["--no-snapshot"], &["python3", "-c", script, &base]).current_dir(&here));
    let found = Found::of(&assert_valid(&reel));
    let told: Vec<_> =
        found.names.iter().filter_map(|n| Some((n.path.strip_prefix(&format!("{base}/"))?, n))).collect();
    let mut told: Vec<_> =
        told.iter().map(|(path, n)| format!("{path} {}>{}", n.how, n.ended.as_deref().unwrap_or("-"))).collect();
    told.sort();
    assert_eq!(
        told,
        [
            "P created>renamed",
            "P2 renamed>-",
            "P2/rd created>renamed",
            "P2/rd2 renamed>-",
            "P2/viafd created>-",
            "P2/x created>-",
            "Q created>renamed",
            "Q/f created>renamed",
            "R renamed>-",
            "R/f renamed>unlinked",
            "d created>-",
            "d/keep created>renamed",
            "d/keep2 renamed>-",
            "gone created>unlinked",
            "tmpl linked>-",
        ]
    );
    let unnamed = found.files.values().find(|f| f.unlinked == Some(1) && f.kind == *"regular");
    assert_eq!(found.named(&format!("{base}/tmpl")).file, unnamed.map(|f| f.file), "{unnamed:?}");
    let strange = |path: &str| {
        let of_recorder = path.starts_with(text(&here)) && path != text(&here) || path.contains("x.reel");
        of_recorder || path.contains("/fd/") || path.strip_prefix(&base).is_some_and(|rest| !rest.is_empty())
    };
    let strange: Vec<_> = found.tree.keys().filter(|p| strange(p)).collect();
    assert!(strange.is_empty(), "{strange:?}");
}
