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
    rows::{Bio, Fd, File, Op},
};

use tempfile::TempDir;

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

fn recorded(script: &str) -> (TempDir, Reel) {
    let out = temp_dir();
    let reel = out.path().join("identity.reel");
    succeed(&mut record(&reel, &["--no-snapshot"], &["sh", "-ec", script]));
    let reel = assert_valid(&reel);
    (out, reel)
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
    fs::write(format!("{dir}/lower/old"), vec![1u8; 100_000]).unwrap();
    let words: Vec<&str> = options.split(' ').collect();
    let merged = format!("{dir}/merged");
    succeed(Command::new("mount").args(["-t", "overlay", "overlay"]).args(words).arg(&merged));
    mounted.go_cold();
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
    let (_out, reel) =
        recorded(&format!("cd {merged}; for i in 1 2 3 4 5 6; do echo $i$i$i >f$i; cat f$i >/dev/null; rm f$i; done"));
    let files = reel.read::<File>().unwrap();
    let ours: Vec<&File> =
        files.iter().filter(|f| f.path.as_deref().is_some_and(|p| p.starts_with(&*format!("{merged}/f")))).collect();
    let numbers: BTreeSet<i64> = ours.iter().map(|f| f.ino).collect();
    assert_eq!(ours.len(), 6, "{ours:#?}");
    eprintln!("6 files with {} inode numbers", numbers.len());
    let ops = reel.read::<Op>().unwrap();
    for f in &ours {
        let on: Vec<&str> = ops.iter().filter(|o| o.file == Some(f.file)).map(|o| &*o.op).collect();
        assert!(on.contains(&"write") && on.contains(&"read"), "{on:?}");
        let writes = on.iter().filter(|o| **o == "write").count();
        assert_eq!(writes, 1, "the writes of one file");
    }
    succeed(Command::new("umount").arg(&merged));
}

/// Files without a name: removed while open, and never named.
pub(crate) fn nameless() {
    let out = temp_dir();
    let dir = text(out.path()).to_owned();
    let script = format!("exec 5>{dir}/gone; rm {dir}/gone; echo >{dir}/ready; read -r line");
    let mut child = Command::new("sh").args(["-c", &script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    crate::harness::wait_for("the process", || Path::new(&format!("{dir}/ready")).exists().then_some(()));
    let reel = out.path().join("gone.reel");
    let pid = child.id().to_string();
    succeed(&mut ioreel(["record", "-o", text(&reel), "--pid", &pid, "--duration", "0.1", "--no-snapshot"]));
    child.kill().unwrap();
    child.wait().unwrap();
    let reel = assert_valid(&reel);
    let fd = reel.read::<Fd>().unwrap().into_iter().find(|f| f.fd == 5).unwrap();
    let file = reel.read::<File>().unwrap().into_iter().find(|f| Some(f.file) == fd.file).unwrap();
    assert_eq!((file.path.as_deref(), file.unlinked), (Some(&*format!("{dir}/gone")), Some(1)));
}

/// One file by two mounts; and one below another root.
pub(crate) fn bind_mounts() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dir = text(mounted.path()).to_owned();
    let (_out, reel) = recorded(&format!(
        "cd {dir}; mkdir sub bound jail; mount --bind sub bound; echo 1 >bound/f; echo 22 >>sub/f; umount bound; \
         for f in /bin/sh $(ldd /bin/sh | grep -o '/[^ ]*'); do mkdir -p jail${{f%/*}}; cp -L $f jail$f; done; \
         chroot jail /bin/sh -c 'cd /; echo 333 >made; echo 4 >/made2'"
    ));
    let bound = file_at(&reel, &format!("{dir}/bound/f"));
    assert_eq!(bound.host_path.as_deref(), Some(&*format!("{dir}/sub/f")));
    let jailed = file_at(&reel, &format!("{dir}/jail/made"));
    let jailed2 = file_at(&reel, &format!("{dir}/jail/made2"));
    assert_eq!((&jailed.host_path, jailed.unlinked), (&None, Some(0)));
    let ops = reel.read::<Op>().unwrap();
    let written = |file: &File| -> i64 {
        ops.iter().filter(|o| o.op == "write" && o.file == Some(file.file)).filter_map(|o| o.ret).sum()
    };
    assert_eq!((written(&bound), written(&jailed), written(&jailed2)), (5, 4, 2));
}
