//! Attribution where file systems are made, mounted or used in less common ways.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::Path,
    process::Command,
};

use ioreel_traces::rows::{Bio, File as FileRow};
use rustix::fs::{FallocateFlags, fallocate};

use crate::{
    block::attribution::number,
    block::truth::{Extent, extents},
    harness::{
        assert_valid,
        device::Device,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
        record, succeed, temp_dir, text,
    },
};

/// The bios with bytes that a command's recording has of a device, and the names of their files.
fn recorded(device: &Path, command: &[&str]) -> Vec<(Bio, Option<String>)> {
    recorded_with(&[], device, command)
}

fn recorded_with(options: &[&str], device: &Path, command: &[&str]) -> Vec<(Bio, Option<String>)> {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    succeed(&mut record(&reel, &[&["--no-snapshot"], options].concat(), command));
    let reel = assert_valid(&reel);
    let files: Vec<FileRow> = reel.read().unwrap();
    let name = |b: &Bio| files.iter().find(|f| Some(f.file) == b.file)?.path.as_ref().map(ToString::to_string);
    let bios = reel.read::<Bio>().unwrap().into_iter();
    bios.filter(|b| b.dev == number(device) && b.len_bytes > 0).map(|b| (b.clone(), name(&b))).collect()
}

fn bytes<'a>(bios: &'a [(Bio, Option<String>)], op: &'a str, class: &'a str) -> i64 {
    bios.iter().filter(|(b, _)| b.op == op && b.class == class).map(|(b, _)| b.len_bytes).sum()
}

/// Folders of an ext4 are folders also where the recorder does not see it mounted: in another name space, and when it
/// is no longer, as soon as its last block is written.
pub(crate) fn mounted_out_of_sight() {
    let (at, device) = (temp_dir(), Device::looped(DEFAULT_SIZE_BYTES));
    succeed(
        Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(device.path()),
    );
    let place = text(at.path());
    for (folder, before, after) in [("a", "unshare -m ", ""), ("b", "", ""), ("c", "", "sync; sleep 0.5;")] {
        let inside = format!(
            "set -e; mount {} {place}; mkdir {place}/{folder}; cd {place}/{folder}; mkdir $(seq 400); cd /; {after} umount {place}",
            text(device.path())
        );
        let bios = recorded(device.path(), &["sh", "-c", &format!("{before} sh -c '{inside}'")]);
        assert!(bytes(&bios, "write", "directory") >= 400 * 1024, "{folder}: {bios:?}");
        assert_eq!(bytes(&bios, "write", "data"), 0, "{folder}: {bios:?}");
    }
}

/// What is encrypted goes out in pages of its own, which are of no file.
pub(crate) fn ciphertext() {
    let mount = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, &["-O", "encrypt"], "defaults");
    let folder = mount.path().join("secret");
    fs::create_dir(&folder).unwrap();
    let key = "k".repeat(64);
    let script = format!("printf {key} | xfs_io -c add_enckey {0} | sed 's/.* //'", text(mount.path()));
    let id = succeed(Command::new("sh").args(["-c", &script])).stdout;
    let policy = format!("set_encpolicy -v2 {}", String::from_utf8(id).unwrap().trim());
    succeed(Command::new("xfs_io").args(["-c", &policy]).arg(&folder));
    let file = folder.join("one");
    let cached = format!(
        "cd {}; dd if=/dev/urandom of=one bs=64k count=40 status=none; sync; \
         for i in 3 9 21; do dd if=/dev/urandom of=one bs=4k count=1 seek=$i conv=notrunc status=none; done; sync",
        text(&folder)
    );
    // Memory that lies in few pieces, which become many pages of ciphertext.
    let direct = |call: &str, flag: &str| {
        format!(
            "import mmap, os\nb = mmap.mmap(-1, 4 << 20)\nb.madvise(mmap.MADV_HUGEPAGE)\nb[:] = b'x' * len(b)\n\
             f = os.open({:?}, os.{flag} | os.O_DIRECT)\nos.{call}(f, [memoryview(b)[:640 * 4096]], 0)",
            text(&file)
        )
    };
    for (op, blocks, command) in [
        ("write", 643, ["sh", "-c", &cached]),
        ("write", 640, ["python3", "-c", &direct("pwritev", "O_WRONLY")]),
        ("read", 640, ["python3", "-c", &direct("preadv", "O_RDONLY")]),
        ("read", 640, ["cat", text(&file), text(&file)]),
    ] {
        go_cold_with(file.exists().then_some(&file).as_slice());
        let bios = recorded(mount.device().unwrap(), &command);
        let extents = extents(&file);
        let mut told = HashSet::new();
        for (b, name) in bios.iter().filter(|(b, _)| b.class == "data") {
            assert!(name.as_deref().is_some_and(|n| n.ends_with("/secret/one")), "{b:?} {name:?}");
            let at = b.file_offset_bytes.unwrap();
            let lies = |e: &Extent| b.sector * 512 - at == e.physical - e.at && at >= e.at && at < e.at + e.len;
            assert!(extents.iter().any(lies), "{command:?}: {b:?} {extents:?}");
            told.extend(at / 4096..(at + b.len_bytes) / 4096);
        }
        assert_eq!(told.len(), 640, "{command:?}: {bios:?}");
        assert_eq!(bytes(&bios, op, "data"), blocks * 4096, "{command:?}: {bios:?}");
        assert!(bios.iter().all(|(b, _)| b.class != "unknown"), "{bios:?}");
    }
}

/// With clusters of small blocks the superblock is not where groups begin.
pub(crate) fn clusters_of_small_blocks() {
    let made = ["-b", "1024", "-O", "bigalloc", "-C", "16384"];
    let mount = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, &made, "defaults");
    let write = format!("cd {}; mkdir d; for i in $(seq 60); do echo $i >d/$i; done; sync", text(mount.path()));
    let bios = recorded(mount.device().unwrap(), &["sh", "-c", &write]);
    for class in ["journal", "inode_table", "directory", "bitmap"] {
        assert!(bytes(&bios, "write", class) > 0, "{class}: {bios:?}");
    }
    assert_eq!(bytes(&bios, "write", "metadata"), 0, "{bios:?}");
    assert!(bios.iter().filter(|(b, _)| b.comm.starts_with("jbd2")).all(|(b, _)| b.class == "journal"), "{bios:?}");
}

/// Of a direct write that fills no block the rest is zeroed, before and behind it.
pub(crate) fn parts_of_blocks() {
    const BLOCKS: usize = 64;
    let mount = Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES);
    let path = mount.path().join("parts");
    let file = File::create(&path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, (BLOCKS * 4096) as u64).unwrap();
    file.sync_all().unwrap();
    let program = format!(
        "import mmap, os\nb = mmap.mmap(-1, 4096)\nf = os.open({:?}, os.O_WRONLY | os.O_DIRECT)\n\
         for i in range({BLOCKS}): os.pwrite(f, memoryview(b)[:1024], i * 4096 + 1024)",
        text(&path)
    );
    let bios = recorded(mount.device().unwrap(), &["python3", "-c", &program]);
    let of_file: Vec<&Bio> = bios.iter().filter(|(b, _)| b.class == "data").map(|(b, _)| b).collect();
    assert_eq!(of_file.iter().map(|b| b.len_bytes).sum::<i64>(), (BLOCKS * 4096) as i64);
    // It was given one piece.
    let begins: HashSet<i64> = of_file.iter().map(|b| b.sector * 512 - b.file_offset_bytes.unwrap()).collect();
    assert_eq!(begins.len(), 1, "{of_file:?}");
    assert_eq!(of_file.iter().map(|b| b.file_offset_bytes.unwrap()).min(), Some(0));
}

/// Whoever reads a device while a file system lives there reads the device.
pub(crate) fn a_device_read_by_itself() {
    let mount = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let device = mount.device().unwrap();
    fs::write(mount.path().join("file"), vec![7; 1 << 20]).unwrap();
    go_cold_with(&[mount.path().join("file")]);
    let from = format!("if={}", text(device));
    let bios = recorded(device, &["dd", &from, "of=/dev/null", "bs=1M", "skip=20", "count=30", "status=none"]);
    let read: Vec<_> = bios.iter().filter(|(b, _)| b.op == "read").collect();
    assert!(bytes(&bios, "read", "data") >= 30 << 20, "{read:?}");
    for (b, name) in read {
        assert_eq!((&*b.class, name.as_deref()), ("data", Some(text(device))), "{b:?}");
        assert_eq!(b.file_offset_bytes, Some(b.sector * 512), "{b:?}");
    }
    // Also where it is not known who does, and the file system's tables are read with the rest.
    let options = ["--block-only", "--device", text(device)];
    for size in ["4k", "1M"] {
        let blocks = format!("bs={size}");
        let read = ["dd", &from, "of=/dev/null", &blocks, "count=40", "iflag=direct", "status=none"];
        let bios = recorded_with(&options, device, &read);
        assert_eq!(bytes(&bios, "read", "data"), if size == "4k" { 40 << 12 } else { 40 << 20 }, "{bios:?}");
        assert!(bios.iter().all(|(b, _)| b.op != "read" || b.class == "data"), "{bios:?}");
    }
}

/// What a loop device does to its image is seen on the loop device; what others do to it, and the loop device's doing
/// where that is not recorded, is seen where the image lies.
pub(crate) fn a_mounted_image_read_by_itself() {
    const BYTES: usize = 20 << 20;
    let outer = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let device = outer.device().unwrap();
    let image = Device::looped_in(outer.path(), 64 << 20);
    let inner = Mounted::over(&[&image], &["mkfs.ext4", "-q", "-F"], "defaults");
    let file = inner.path().join("file");
    fs::write(&file, vec![7; BYTES]).unwrap();
    go_cold_with(&[&file]);
    let from = format!("if={}", text(&outer.path().join("image")));
    let bios = recorded(device, &["dd", &from, "of=/dev/null", "bs=1M", "status=none"]);
    assert!(bytes(&bios, "read", "data") >= BYTES as i64, "{bios:?}");
    for (b, name) in bios.iter().filter(|(b, _)| b.op == "read" && b.class == "data") {
        assert!(name.as_deref().is_some_and(|n| n.ends_with("/image")), "{b:?} {name:?}");
    }
    go_cold_with(&[&file]);
    let from = format!("if={}", text(&file));
    let bios = recorded(device, &["dd", &from, "of=/dev/null", "bs=1M", "status=none"]);
    assert_eq!(bytes(&bios, "read", "data"), 0, "{bios:?}");
    go_cold_with(&[&file]);
    let read = ["dd", &from, "of=/dev/null", "bs=1M", "status=none"];
    let bios = recorded_with(&["--device", text(device)], device, &read);
    assert!(bytes(&bios, "read", "data") >= BYTES as i64, "{bios:?}");
}
