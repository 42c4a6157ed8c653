//! Record, replay onto an empty file system, and find the same tree there.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use ioreel_traces::{Manifest, Reel, rows::Block};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold},
    one_line, record, replays_alike, succeed, temp_dir, text, tree,
};

/// Replays `reel` at full pace to an empty file system and expects no result to differ; the tree that
/// `original` holds must be the same in the target.
pub(crate) fn replays_to(fs: Fs, reel: &Path, original: &Path) {
    let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let out = temp_dir();
    let result = out.path().join("result.reel");
    let words = ["replay", text(reel), "--target", text(target.path()), "--pace", "max", "-o", text(&result)];
    // How busy this machine is is not asked.
    succeed(ioreel(words).args(["--max-own-lateness", "1h"]));
    let replayed = target.path().join(original.strip_prefix("/").unwrap());
    let (expected, found) = (tree(original), tree(&replayed));
    let differing: Vec<String> = expected
        .iter()
        .filter(|l| !found.contains(l))
        .map(|l| format!("- {l}"))
        .chain(found.iter().filter(|l| !expected.contains(l)).map(|l| format!("+ {l}")))
        .collect();
    assert!(
        differing.is_empty(),
        "{} names differ:\n{}",
        differing.len(),
        differing[..differing.len().min(30)].join("\n")
    );
    let result = assert_valid(&result);
    let manifest: &Manifest = &result.manifest;
    assert_eq!(manifest.replay.as_ref().unwrap().differing, 0);
    if let Some(disk) = target.device_number() {
        // The disk saw what the tree holds written, and no other disk is in the result.
        let requests: Vec<Block> = result.read().unwrap();
        assert!(requests.iter().all(|r| r.dev == disk), "{requests:?}");
        let written: i64 = requests.iter().filter(|r| r.op == "write").map(|r| r.len_bytes).sum();
        assert!(written > 0, "nothing reached the disk");
    }
}

/// A tree with all kinds of names, packed.
fn archive(dir: &Path) -> std::path::PathBuf {
    let source = dir.join("source");
    for d in 0..12 {
        let folder = source.join(format!("folder-{d}/inner"));
        fs::create_dir_all(&folder).unwrap();
        for f in 0..40 {
            let name = folder.join(format!("file-{f}"));
            fs::write(&name, vec![b'x'; (d * 7919 + f * 613) % 70_000]).unwrap();
            if f % 5 == 0 {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600 + f as u32);
                fs::set_permissions(&name, mode).unwrap();
                fs::hard_link(&name, folder.join(format!("hard-{f}"))).unwrap();
            }
            if f % 7 == 0 {
                symlink(format!("../inner/file-{f}"), folder.join(format!("soft-{f}"))).unwrap();
            }
        }
    }
    symlink("no/where", source.join("dangling")).unwrap();
    let packed = dir.join("source.tar");
    succeed(Command::new("tar").args(["cf", text(&packed), "-C", text(dir), "source"]));
    packed
}

pub(crate) fn an_unpacked_archive(fs: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let packed = archive(out.path());
    let reel = out.path().join("tar.reel");
    succeed(record(&reel, &[], &["tar", "xf", text(&packed)]).current_dir(origin.path()));
    assert_valid(&reel);
    assert_eq!(tree(&origin.path().join("source")), tree(&out.path().join("source")), "tar's own work");
    replays_to(fs, &reel, origin.path());
}

/// Truncates, renames over and removes files that were there before the recording.
const REWORK: &str = "set -e
    echo fresh >truncated
    printf tail >>appended
    mv new over
    rm removed gone/inside
    rmdir gone
    mv folder moved
    echo more >moved/inner/added
    ln -f over hard
    ln -sf over soft
    chmod 640 kept
    dd if=sparse of=holes conv=sparse bs=64k status=none
    truncate -s 12345 kept
    sort <unsorted >sorted
    cat moved/inner/deep moved/inner/added >joined
    cp --preserve=timestamps kept copied";

pub(crate) fn a_reworked_tree(fs: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir_all(work.join("folder/inner")).unwrap();
    fs::create_dir_all(work.join("gone")).unwrap();
    let sizes = [
        ("truncated", 9000),
        ("appended", 777),
        ("new", 5000),
        ("over", 60_000),
        ("removed", 300_000),
        ("kept", 20_000),
    ];
    for (name, len) in sizes {
        fs::write(work.join(name), vec![b'k'; len]).unwrap();
    }
    fs::write(work.join("gone/inside"), "x").unwrap();
    fs::write(work.join("hard"), "hard").unwrap();
    symlink("kept", work.join("soft")).unwrap();
    fs::write(work.join("folder/inner/deep"), "deep\n".repeat(1000)).unwrap();
    fs::write(work.join("unsorted"), (0..2000).rev().map(|n| format!("{n}\n")).collect::<String>()).unwrap();
    fs::File::create(work.join("sparse")).unwrap().set_len(1 << 20).unwrap();
    let reel = out.path().join("rework.reel");
    go_cold();
    succeed(record(&reel, &[], &["sh", "-c", REWORK]).current_dir(&work));
    assert_valid(&reel);
    replays_to(fs, &reel, &work);
}

/// What a replay asks for before it starts.
pub(crate) fn a_target_that_does_not_do() {
    let out = temp_dir();
    let (work, reel) = (out.path().join("work"), out.path().join("x.reel"));
    fs::create_dir(&work).unwrap();
    let script = "head -c 30000000 /dev/zero >big";
    succeed(record(&reel, &[], &["sh", "-c", script]).current_dir(&work));
    let full = out.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "precious").unwrap();
    let line = one_line(&mut ioreel(["replay", text(&reel), "--target", text(&full)]), 1);
    assert!(line.contains("--force"), "{line}");
    assert_eq!(fs::read_to_string(full.join("mine")).unwrap(), "precious");

    let small = Mounted::new(Fs::Tmpfs, 20 << 20);
    let output = crate::harness::run(&mut ioreel(["replay", text(&reel), "--target", text(small.path())]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let clear = stderr.lines().last().is_some_and(|l| l.contains("MiB") || l.contains("MB"));
    assert!(
        output.status.code() == Some(1) && clear && !stderr.contains("panicked"),
        "{}",
        crate::harness::describe(&output)
    );
    assert!(Reel::open(&reel).is_ok());
}

/// Moves, fills and removes what was there before, by absolute names, with no snapshot to tell what it was.
const MOVES: &str = "set -e
    mv $D/folder $D/moved; cat $D/moved/deep/file; mkdir $D/moved/new
    mv $D/link $D/renamed; readlink $D/renamed
    mv $D/file $D/appended; echo more >>$D/appended; cat $D/appended
    rmdir $D/full || rm $D/full/entry; rmdir $D/full; mkdir $D/full
    ln $D/shared $D/alias; echo more >>$D/alias; cat $D/shared
    mv $D/tree $D/gone; rm -r $D/gone; mkdir $D/tree";

pub(crate) fn moves_without_a_snapshot(fs: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    let files =
        [("folder/deep/file", "deep"), ("file", "some"), ("full/entry", ""), ("tree/leaf", "x"), ("shared", "one")];
    for (name, content) in files {
        fs::create_dir_all(work.join(name).parent().unwrap()).unwrap();
        fs::write(work.join(name), content).unwrap();
    }
    symlink("folder", work.join("link")).unwrap();
    let reel = out.path().join("moves.reel");
    succeed(record(&reel, &["--no-snapshot"], &["sh", "-c", MOVES]).current_dir("/").env("D", &work));
    assert_valid(&reel);
    replays_to(fs, &reel, &work);
}

/// Links that are made where a name was looked for and not found before, as scripts do.
const LINKS: &str = "set -e
    echo x >a; ln a h; [ -e l ] || ln -s a l; mv a b; echo y >a
    mkdir rel; echo 1 >rel/f; [ -e cur/f ] || ln -s rel cur; mv rel/f rel/g; echo 2 >rel/f
    mkdir d; echo x >d/a; [ -f m ] || ln -s d/a m; mv d/a n; rmdir d
    mkdir one; echo 1 >one/f; [ -d now ] || ln -s one now; cat now/f; mkdir two; echo 2 >two/f
    ln -s two tmp; mv -T tmp now; cat now/f; mv one three; mkdir one
    echo z >plain; cat plain; rm plain; ln -s a plain; cat plain
    cp -s $PWD/b copied
    mv pipe renamed";

pub(crate) fn links_made_where_nothing_was(on: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir(&work).unwrap();
    succeed(Command::new("mkfifo").arg(work.join("pipe")));
    let reel = out.path().join("links.reel");
    succeed(record(&reel, &[], &["sh", "-c", LINKS]).current_dir(&work));
    assert_valid(&reel);
    replays_to(on, &reel, &work);
}

/// Links lead where they do under any names, in whatever order hashes put them.
pub(crate) fn hashed_links() {
    let out = temp_dir();
    fs::write(out.path().join("a"), "1").unwrap();
    for n in 6..10 {
        let (key, reel) = (out.path().join("key"), out.path().join(format!("{n}.reel")));
        fs::write(&key, format!("key-number-{n:016}")).unwrap();
        let options = ["--anonymize", "--key-file", text(&key), "--ops-only", "--settle", "none"];
        succeed(record(&reel, &options, &["bash", "-c", "cat a"]).current_dir(out.path()));
        replays_alike(&format!("key {n}"), assert_valid(&reel).path(), temp_dir().path(), "max");
    }
}

/// Paths and names as few programs use them, and what follows for the names after them.
const RARE_NAMES: &str = "
import ctypes, os, resource, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
home = os.getcwd()
def refused(call, *a, **k):
    try: call(*a, **k)
    except OSError: return
    raise SystemExit(f'{call} {a}')
def touch(path, **k): os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644, **k))
def part(name):
    os.chdir(home); os.mkdir(name); os.chdir(name)

# A refused empty path says nothing of the working directory.
refused(os.stat, ''); os.rename('../data', 'data'); touch('data/more'); os.unlink('data/deep/leaf')

part('removed')
os.makedirs('x/y'); os.chdir('x/y'); os.rmdir('../y')
up = os.open('..', os.O_RDONLY); touch('viaup', dir_fd=up); touch('../h'); refused(touch, 'f')
os.mkdir('../y'); touch('../y/f'); refused(os.open, 'f', os.O_RDONLY)
os.rename('../y/f', '../y/g'); os.chdir('..'); touch('log'); os.rename('log', 'log.1')

part('replaced')
os.mkdir('a'); os.mkdir('b'); b = os.open('b', os.O_RDONLY); os.rename('a', 'b')
touch('b/f'); refused(os.stat, 'f', dir_fd=b); touch('../replaced/up'); touch('../side', dir_fd=b); os.rename('b/f', 'b/g')

part('links')
f = os.open('f', os.O_CREAT | os.O_RDWR, 0o644); os.write(f, b'0123456789')
assert libc.linkat(-100, b'/proc/self/fd/%d' % f, -100, b'g', 0x400) == 0
os.rename('g', 'f'); os.truncate('g', 50); os.rename('g', 'h')

part('slash')
os.symlink('nothing', 'dangling'); refused(os.mkdir, 'dangling/'); os.rename('dangling', 'moved')

part('short')
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
f = os.open('f', os.O_CREAT | os.O_RDWR, 0o644)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
assert os.write(f, b'x' * 4000) == 4000 and os.writev(f, [b'y' * 600, b'z' * 3400]) == 1000
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
assert os.write(f, b'end') == 3

part('root')
os.makedirs('jail/etc'); os.symlink('/etc/target', 'jail/link')
jail = os.open('jail', os.O_RDONLY)
def within(path):
    how = struct.pack('QQQ', os.O_CREAT | os.O_RDWR, 0o644, 0x10)
    fd = libc.syscall(437, jail, path, how, len(how))
    assert fd >= 0, ctypes.get_errno()
    os.write(fd, path); os.close(fd)
within(b'/b'); within(b'../c'); within(b'link')
os.rename('jail/b', 'jail/d'); os.unlink('jail/etc/target')

if os.geteuid() == 0 and WHITEOUTS:
    part('whiteout')
    touch('w'); assert libc.syscall(316, -100, b'w', -100, b'w2', 4) == 0
    os.stat('w'); os.rename('w', 'w3'); os.unlink('w3'); touch('w')
";

pub(crate) fn rare_names(fs: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir_all(work.join("data/deep")).unwrap();
    fs::create_dir(work.join("in")).unwrap();
    fs::write(work.join("data/deep/leaf"), "leaf").unwrap();
    let reel = out.path().join("names.reel");
    // Whiteouts are device nodes.
    let whiteouts = if matches!(fs, Fs::Ext4 | Fs::Xfs | Fs::Btrfs) { "True" } else { "False" };
    let program = RARE_NAMES.replace("WHITEOUTS", whiteouts);
    succeed(record(&reel, &[], &["python3", "-S", "-c", &program]).current_dir(work.join("in")));
    assert_valid(&reel);
    replays_to(fs, &reel, &work);
    let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    replays_alike(fs.name(), &reel, target.path(), "max");
}

/// Direct I/O of pieces that only the original takes: tmpfs asks for no alignment.
const UNALIGNED: &str = "
import mmap, os
m = mmap.mmap(-1, 4096)
fd = os.open('direct', os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
v = memoryview(m)
for i in range(20): os.pwrite(fd, v[:100], 100 * i)
for i in range(20): assert os.preadv(fd, [v[:100]], 100 * i) == 100
assert os.pwrite(fd, v, 4096) == 4096
";

/// Where the target asks for more, it is done through the page cache, and told.
pub(crate) fn direct_io_that_is_not_aligned_here(fs: Fs) {
    let (origin, target, out) =
        (Mounted::new(Fs::Tmpfs, DEFAULT_SIZE_BYTES), Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let reel = out.path().join("direct.reel");
    let command = ["python3", "-S", "-c", UNALIGNED];
    succeed(record(&reel, &["--settle", "none"], &command).current_dir(origin.path()));
    let report = replays_alike(fs.name(), &reel, target.path(), "max");
    let warnings = report["warnings"].as_array().unwrap();
    let told = |w: &serde_json::Value| w.as_str().unwrap().starts_with("40 direct reads and writes are not aligned");
    // tmpfs and btrfs take anything: btrfs falls back by itself.
    let strict = matches!(fs, Fs::Ext4 | Fs::Xfs);
    assert_eq!(warnings.iter().any(told), strict, "{warnings:?}");
}

/// GNU tar sets attributes by /proc/self/fd/N/name, and reads those of a file by any of its names; XFS and btrfs share the whole blocks of what
/// is copied, and leave the rest to another call.
const COPIES: &str = "
import os
fd = os.open('a', os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(300000))
to = os.open('b', os.O_RDWR | os.O_CREAT)
assert os.copy_file_range(fd, to, 200000, 0, 4096) == 200000
os.execvp('sh', ['sh', '-ec', 'tar --xattrs -cf t.tar s; mkdir o; tar --xattrs -xf t.tar -C o; cp -a s s2'])
";

pub(crate) fn copies_and_attributes(fs: Fs) {
    let (origin, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let work = origin.path().join("work");
    fs::create_dir_all(work.join("s")).unwrap();
    fs::write(work.join("s/one"), "1").unwrap();
    fs::hard_link(work.join("s/one"), work.join("s/two")).unwrap();
    rustix::fs::setxattr(work.join("s/one"), "user.q", &[b'z'; 40], rustix::fs::XattrFlags::empty()).unwrap();
    let reel = out.path().join("copies.reel");
    succeed(record(&reel, &[], &["python3", "-S", "-c", COPIES]).current_dir(&work));
    assert_valid(&reel);
    let target = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    replays_alike(fs.name(), &reel, target.path(), "max");
    let replayed = target.path().join(work.strip_prefix("/").unwrap());
    for name in ["s/two", "o/s/one", "o/s/two", "s2/one"] {
        let mut value = [0; 100];
        assert_eq!(rustix::fs::getxattr(replayed.join(name), "user.q", &mut value[..]), Ok(40), "{name}");
    }
}

/// A chroot's root is no mount that could be pivoted away.
pub(crate) fn inside_a_chroot() {
    let (dir, reel) = (temp_dir(), temp_dir());
    let reel = reel.path().join("r.reel");
    let work = temp_dir();
    let script = format!("cd {}; mkdir d; echo x > d/f; mv d/f d/g; rm d/g", text(work.path()));
    succeed(&mut record(&reel, &[], &["sh", "-c", &script]));
    let root = dir.path().join("root");
    for folder in ["usr", "proc", "target", "reel"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (from, to) in [("/usr", "usr"), ("/proc", "proc"), (text(&reel), "reel")] {
        succeed(Command::new("mount").args(["--bind", from]).arg(root.join(to)));
    }
    for link in ["lib", "lib64", "bin", "sbin"] {
        symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    fs::copy(ioreel(["replay"]).get_program(), root.join("ioreel")).unwrap();
    let mut replay = Command::new("chroot");
    replay.arg(&root).args(["/ioreel", "replay", "/reel", "--target", "/target", "--max-own-lateness", "1h"]);
    let said = String::from_utf8(succeed(&mut replay).stdout).unwrap();
    assert!(said.contains("is faithful"), "{said}");
    let made = succeed(Command::new("find").arg(root.join("target")).args(["-name", "d"])).stdout;
    assert!(!made.is_empty(), "what was made lies in the target");
    for mounted in ["usr", "proc", "reel"] {
        succeed(Command::new("umount").arg(root.join(mounted)));
    }
}
