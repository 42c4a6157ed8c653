//! Which file is which: subvolumes, overlays, containers, bind mounts, reused inode numbers, names over time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
};

use ioreel_traces::{
    Reel,
    rows::{Bio, Fd, File, Name, Op},
};

use tempfile::TempDir;

use crate::calls::uring::ring::{Ring, sqe};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, succeed, temp_dir, text,
};

/// The argument that makes the test program make and remove files through an io_uring instead.
pub(crate) const WORD: &str = "io-uring-files";

/// Makes and removes three files.
pub(crate) fn work(dir: &Path) {
    const OPENAT: u8 = 18;
    let ring = Ring::new(4, 0);
    for i in 0..3 {
        let path = dir.join(format!("u{i}"));
        let name = std::ffi::CString::new(text(&path)).unwrap();
        let flags = (libc::O_CREAT | libc::O_RDWR) as u32;
        let done = ring.submit(&[sqe(OPENAT, libc::AT_FDCWD, 0, name.as_ptr() as u64, 0o600, flags, 1)], 1);
        // SAFETY: the descriptor was just made, and nobody else has it.
        drop(unsafe { <fs::File as std::os::fd::FromRawFd>::from_raw_fd(done[0].1) });
        fs::remove_file(path).unwrap();
    }
}

fn recorded(script: &str) -> (TempDir, Reel) {
    recorded_command(&["sh", "-ec", script])
}

fn recorded_command(command: &[&str]) -> (TempDir, Reel) {
    let out = temp_dir();
    let reel = out.path().join("identity.reel");
    succeed(&mut record(&reel, &["--no-snapshot"], command));
    let reel = assert_valid(&reel);
    (out, reel)
}

/// Both ends of a connected unix socket tell each other's number; one that is not connected, and a pipe, tell none.
pub(crate) fn ends_of_a_socket() {
    let script = "
import os, socket
(a, b), alone, (r, w) = socket.socketpair(), socket.socket(socket.AF_UNIX), os.pipe()
os.write(a.fileno(), b'there'); os.read(b.fileno(), 5)
os.write(w, b'there'); os.read(r, 5)
print(*(os.fstat(fd).st_ino for fd in (a.fileno(), b.fileno(), alone.fileno(), r)), flush=True)
for s in (a, b, alone): s.close()
";
    let out = temp_dir();
    let reel = out.path().join("sockets.reel");
    let told = succeed(&mut record(&reel, &["--no-snapshot"], &["python3", "-c", script])).stdout;
    let numbers: Vec<i64> =
        String::from_utf8(told).unwrap().split_whitespace().map(|word| word.parse().unwrap()).collect();
    let files = assert_valid(&reel).read::<File>().unwrap();
    let peer = |ino: i64| files.iter().find(|f| f.ino == ino && f.kind != *"regular").unwrap().peer_ino;
    let [a, b, alone, pipe] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!([a, b, alone, pipe].map(peer), [Some(b), Some(a), None, None]);
}

fn file_at(reel: &Reel, path: &str) -> File {
    let files = reel.read::<File>().unwrap();
    let found: Vec<&File> = files.iter().filter(|f| f.path.as_deref() == Some(path)).collect();
    assert!(!found.is_empty(), "no {path} in {files:#?}");
    found[0].clone()
}

/// Two subvolumes whose files have the same inode number.
pub(crate) fn subvolumes() {
    let mounted = Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    for name in ["a", "b"] {
        succeed(Command::new("btrfs").args(["subvolume", "create", &format!("{dir}/{name}")]));
    }
    let (_out, reel) = recorded(&format!("cd {dir}; echo 1 >a/f; echo 22 >b/f; mv a/f a/g; echo 333 >>b/f; sync -f a"));
    let (a, b) = (file_at(&reel, &format!("{dir}/a/f")), file_at(&reel, &format!("{dir}/b/f")));
    assert_eq!((a.ino, a.sb_dev), (b.ino, b.sb_dev), "the case that is to be tested");
    assert_ne!(a.file, b.file);
    let id = |name: &str| {
        let out = succeed(Command::new("btrfs").args(["subvolume", "show", &format!("{dir}/{name}")])).stdout;
        let out = String::from_utf8(out).unwrap();
        let line = out.lines().find(|l| l.contains("Subvolume ID:")).unwrap();
        line.rsplit('\t').next().unwrap().trim().parse::<i64>().unwrap()
    };
    assert_eq!((a.subvolume, b.subvolume), (Some(id("a")), Some(id("b"))));
    let written = |file: i64| -> i64 {
        let ops = reel.read::<Op>().unwrap();
        ops.iter().filter(|o| o.op == "write" && o.file == Some(file)).filter_map(|o| o.ret).sum()
    };
    assert_eq!((written(a.file), written(b.file)), (2, 7));
}

fn overlay(dir: &str) -> String {
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(format!("{dir}/{name}")).unwrap();
    }
    format!("-o lowerdir={dir}/lower,upperdir={dir}/upper,workdir={dir}/work")
}

/// An overlay's files and those under them.
pub(crate) fn an_overlay() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let options = overlay(&dir);
    let old = format!("{dir}/lower/old");
    fs::write(&old, vec![1u8; 100_000]).unwrap();
    let words: Vec<&str> = options.split(' ').collect();
    let merged = format!("{dir}/merged");
    succeed(Command::new("mount").args(["-t", "overlay", "overlay"]).args(words).arg(&merged));
    go_cold_with(&[old]);
    let (_out, reel) = recorded(&format!(
        "cd {merged}; cat old >/dev/null; dd if=/dev/zero of=new bs=64k count=16 conv=fsync status=none"
    ));
    let files: BTreeMap<i64, File> = reel.read::<File>().unwrap().into_iter().map(|f| (f.file, f)).collect();
    for (name, under) in [("old", "lower/old"), ("new", "upper/new")] {
        let file = file_at(&reel, &format!("{merged}/{name}"));
        let real = &files[&file.real_file.unwrap()];
        let there = fs::metadata(format!("{dir}/{under}")).unwrap();
        assert_eq!(real.ino, there.ino() as i64);
        assert_ne!(real.sb_dev, file.sb_dev);
        assert_eq!(file.host_path.as_deref(), Some(&*format!("{dir}/{under}")));
        assert_eq!(real.path, file.host_path);
        let bytes: i64 =
            reel.read::<Bio>().unwrap().iter().filter(|b| b.file == Some(real.file)).map(|b| b.len_bytes).sum();
        assert!(bytes >= 100_000, "{bytes} bytes for {name} at the device");
    }
    succeed(Command::new("umount").arg(&merged));
}

/// A container: its own mounts, processes and root, on an overlay.
pub(crate) fn a_container() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let options = overlay(&dir);
    fs::create_dir(format!("{dir}/lower/srv")).unwrap();
    fs::create_dir(format!("{dir}/volume")).unwrap();
    let inside = format!(
        "mount --make-rprivate /; mount -t overlay overlay {options} {dir}/merged; cd {dir}/merged; \
         mkdir old volume; mount --bind {dir}/volume volume; pivot_root . old; cd /; \
         echo inside >/srv/made; echo shared >/volume/data; chroot_test=1; cd /srv; echo more >>made"
    );
    let (_out, reel) = recorded(&format!("unshare --mount --pid --fork sh -ec '{inside}'"));
    let made = file_at(&reel, "/srv/made");
    assert_eq!(made.host_path.as_deref(), Some(&*format!("{dir}/upper/srv/made")));
    let data = file_at(&reel, "/volume/data");
    assert_eq!(data.host_path.as_deref(), Some(&*format!("{dir}/volume/data")));
    let written: i64 = reel
        .read::<Op>()
        .unwrap()
        .iter()
        .filter(|o| o.op == "write" && o.file == Some(made.file))
        .filter_map(|o| o.ret)
        .sum();
    assert_eq!(written, 12);
}

/// Inode numbers that come back at once, on a file system without generations.
pub(crate) fn reused_numbers() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let options = overlay(&dir);
    let words: Vec<&str> = options.split(' ').collect();
    let merged = format!("{dir}/merged");
    succeed(Command::new("mount").args(["-t", "overlay", "overlay"]).args(words).arg(&merged));
    let own = std::env::current_exe().unwrap();
    let (_out, reel) = recorded(&format!(
        "cd {merged}; for i in 1 2 3 4 5 6; do echo $i$i$i >f$i; cat f$i >/dev/null; rm f$i; done; \
         for i in 1 2 3; do mkdir d$i; ls d$i; rmdir d$i; done; {} {WORD} {merged}",
        text(&own)
    ));
    let files = reel.read::<File>().unwrap();
    let ours: Vec<&File> =
        files.iter().filter(|f| f.path.as_deref().is_some_and(|p| p.starts_with(&*format!("{merged}/f")))).collect();
    let numbers: BTreeSet<i64> = ours.iter().map(|f| f.ino).collect();
    assert_eq!(ours.len(), 6, "{ours:#?}");
    assert!(numbers.len() < 6, "the case that is to be tested: {numbers:?}");
    let called = |name: &str| {
        let prefix = format!("{merged}/{name}");
        files.iter().filter(|f| f.path.as_deref().is_some_and(|p| p.starts_with(&*prefix))).collect::<Vec<_>>()
    };
    // Made by a call that does not open; made by a request.
    for (name, kind) in [("d", "directory"), ("u", "regular")] {
        let ours = called(name);
        assert!(ours.len() == 3 && ours.iter().all(|f| &*f.kind == kind), "{ours:#?}");
    }
    let ops = reel.read::<Op>().unwrap();
    for f in &ours {
        let on: Vec<&str> = ops.iter().filter(|o| o.file == Some(f.file)).map(|o| &*o.op).collect();
        assert!(on.contains(&"write") && on.contains(&"read"), "{on:?}");
        let writes = on.iter().filter(|o| **o == "write").count();
        assert_eq!(writes, 1, "the writes of one file");
    }
    succeed(Command::new("umount").arg(&merged));
}

/// Names over renames, links, exchanges and removals.
pub(crate) fn names_over_time(fs: Fs) {
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let (_out, reel) = recorded(&format!(
        "cd {dir}; mkdir d; echo 1 >d/a; mv d e; ln e/a b; echo 2 >c; mv -f b c; rm e/a; cat c >/dev/null; rm c; rmdir e"
    ));
    let files: BTreeMap<i64, String> =
        reel.read::<File>().unwrap().into_iter().filter_map(|f| Some((f.file, f.path?.to_string()))).collect();
    let ops: BTreeMap<i64, Op> = reel.read::<Op>().unwrap().into_iter().map(|o| (o.op_id, o)).collect();
    let short = |path: &str| path.strip_prefix(&dir).map(|p| p.trim_start_matches('/').to_owned());
    let mut names: Vec<Name> = reel.read::<Name>().unwrap();
    names.sort_by_key(|n| (n.until_ns, n.from_ns));
    let mut told = Vec::new();
    for n in names {
        let Some(path) = short(&n.path).filter(|p| !p.is_empty()) else { continue };
        let first = n.file.map_or("?".into(), |f| short(&files[&f]).unwrap());
        let call = |id: Option<i64>| id.map_or("-".into(), |id| ops[&id].op.trim_end_matches("at2").to_owned());
        assert_eq!(Some(n.from_ns), n.from_op.map(|id| ops[&id].start_ns + ops[&id].dur_ns), "{n:?}");
        assert_eq!(n.until_ns, n.until_op.map(|id| ops[&id].start_ns + ops[&id].dur_ns), "{n:?}");
        let (from, until) = (call(n.from_op), call(n.until_op));
        told.push(format!("{first} {path} {}({from}) {}({until})", n.how, n.ended.as_deref().unwrap_or("-")));
    }
    let mut expected = [
        "? d created(mkdir) renamed(rename)",
        "d/a d/a created(openat) renamed(rename)",
        "c c created(openat) replaced(rename)",
        "d/a b linked(linkat) renamed(rename)",
        "d/a e/a renamed(rename) unlinked(unlinkat)",
        "d/a c renamed(rename) unlinked(unlinkat)",
        "? e renamed(rename) unlinked(rmdir)",
    ];
    // Those that one call ended are in no order.
    expected[..2].sort_unstable();
    told.iter_mut().for_each(|t| *t = t.replace("(renameat)", "(rename)"));
    told[..2].sort_unstable();
    expected[2..4].sort_unstable();
    told[2..4].sort_unstable();
    assert_eq!(told, expected);
}

/// Folders below each other further than any path that the kernel takes.
pub(crate) fn deep() {
    let mounted = Mounted::new(Fs::Tmpfs, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let name = "n".repeat(200);
    let (_out, reel) = recorded(&format!(
        "cd {dir}; for i in $(seq 60); do mkdir {name}; cd -P {name}; done 2>/dev/null; echo deep >file; rm file"
    ));
    let path = format!("{dir}{}/file", format!("/{name}").repeat(60));
    assert_eq!(file_at(&reel, &path).path_cut, 0);
    let names = reel.read::<Name>().unwrap();
    let told = names.iter().find(|n| *n.path == *path).unwrap();
    assert_eq!((&*told.how, told.ended.as_deref()), ("created", Some("unlinked")));
    let (_out, reel) = recorded(&format!(
        "cd {dir}; for i in $(seq 60); do cd -P {name}; done 2>/dev/null; \
         for i in $(seq 60); do mkdir {name}; cd -P {name}; done 2>/dev/null; echo deeper >file"
    ));
    let files = reel.read::<File>().unwrap();
    let file =
        files.iter().find(|f| f.size_bytes == Some(0) && f.path.as_deref().is_some_and(|p| p.ends_with("/file")));
    let file = file.unwrap_or_else(|| panic!("{files:#?}"));
    assert_eq!(file.path_cut, 1, "told to be cut where it is");
}

/// A container that was there before the recording.
pub(crate) fn an_adopted_container() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let options = overlay(&dir);
    fs::create_dir(format!("{dir}/lower/srv")).unwrap();
    let inside = format!(
        "mount --make-rprivate /; mount -t overlay overlay {options} {dir}/merged; cd {dir}/merged; mkdir old; \
         exec 6>ready; pivot_root . old; exec 5>/srv/made; echo 1 >&6; read -r line"
    );
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-ec", &inside])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ready = format!("{dir}/upper/ready");
    crate::harness::wait_for("the container", || fs::metadata(&ready).is_ok_and(|m| m.len() > 0).then_some(()));
    let out = temp_dir();
    let reel = out.path().join("adopted.reel");
    let pid = child.id().to_string();
    succeed(&mut ioreel(["record", "-o", text(&reel), "--pid", &pid, "--duration", "0.1", "--no-snapshot"]));
    child.kill().unwrap();
    child.wait().unwrap();
    let reel = assert_valid(&reel);
    let made = file_at(&reel, "/srv/made");
    assert_eq!(made.host_path.as_deref(), Some(&*format!("{dir}/upper/srv/made")));
    let names = reel.read::<Name>().unwrap();
    let name = names.iter().find(|n| n.file == Some(made.file)).unwrap();
    assert_eq!((&*name.path, &*name.how, name.from_ns, &name.ended), ("/srv/made", "there", 0, &None));
}

/// Files without a name, or without the one they were opened by: removed while open.
pub(crate) fn nameless() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let script = format!(
        "exec 5>{dir}/gone 6>{dir}/first; ln {dir}/first {dir}/second; rm {dir}/gone {dir}/first; echo >{dir}/ready; \
         read -r line"
    );
    let mut child = Command::new("sh").args(["-c", &script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    crate::harness::wait_for("the process", || Path::new(&format!("{dir}/ready")).exists().then_some(()));
    let reel = out.path().join("gone.reel");
    let pid = child.id().to_string();
    succeed(&mut ioreel(["record", "-o", text(&reel), "--pid", &pid, "--duration", "0.1", "--no-snapshot"]));
    child.kill().unwrap();
    child.wait().unwrap();
    let reel = assert_valid(&reel);
    let names: Vec<Name> = reel.read().unwrap();
    for (number, path, unlinked) in [(5, "gone", 1), (6, "first", 2)] {
        let path = format!("{dir}/{path}");
        let fd = reel.read::<Fd>().unwrap().into_iter().find(|f| f.fd == number).unwrap();
        let file = reel.read::<File>().unwrap().into_iter().find(|f| Some(f.file) == fd.file).unwrap();
        assert_eq!((file.path.as_deref(), file.unlinked), (Some(&*path), Some(unlinked)));
        assert!(names.iter().all(|n| n.path != *path), "{path} has a name");
    }
}

/// One file by two mounts; and one below another root.
pub(crate) fn bind_mounts() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let (_out, reel) = recorded(&format!(
        "cd {dir}; mkdir sub bound jail; mount --bind sub bound; echo 1 >bound/f; echo 22 >>sub/f; \
         echo 55555 >bound/$(printf 'odd\\377'); umount bound; \
         for f in /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*'); do mkdir -p jail${{f%/*}}; cp -L $f jail$f; done; \
         chroot jail /bin/sh -c 'cd /; echo 333 >made; echo 4 >/made2'"
    ));
    let bound = file_at(&reel, &format!("{dir}/bound/f"));
    assert_eq!(bound.host_path.as_deref(), Some(&*format!("{dir}/sub/f")));
    let name = ioreel_traces::text::from_bytes(b"odd\xff");
    let odd = file_at(&reel, &format!("{dir}/bound/{name}"));
    assert_eq!(odd.host_path.as_deref(), Some(&*format!("{dir}/sub/{name}")));
    let jailed = file_at(&reel, &format!("{dir}/jail/made"));
    let jailed2 = file_at(&reel, &format!("{dir}/jail/made2"));
    assert_eq!((&jailed.host_path, jailed.unlinked), (&None, Some(0)));
    let ops = reel.read::<Op>().unwrap();
    let written = |file: &File| -> i64 {
        ops.iter().filter(|o| o.op == "write" && o.file == Some(file.file)).filter_map(|o| o.ret).sum()
    };
    assert_eq!((written(&bound), written(&jailed), written(&jailed2)), (5, 4, 2));
}
