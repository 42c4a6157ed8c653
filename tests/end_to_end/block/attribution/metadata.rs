//! Bios have the class that the file systems' own tools give their blocks, and as many requests and bytes are recorded
//! as the kernel counts.

use std::{
    collections::{HashMap, HashSet},
    env,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
};

use ioreel_traces::rows::{Bio, Block, File as FileRow};

use super::{BLOCK, FILES, WORD, stamps_are_found, written};
use crate::harness::{
    assert_valid,
    device::Device,
    finish,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold_with},
    record, succeed, temp_dir, text, wait_for,
};

/// Whoever reads a disk beside a recording (a backup, a look for file systems) reads no metadata, whatever lies there.
pub(crate) fn reads_of_the_disk_by_others() {
    for fs in [Fs::Ext4, Fs::Btrfs] {
        let (out, mounted) = (temp_dir(), Mounted::new(fs, DEFAULT_SIZE_BYTES));
        let (reel, begun, done) = (out.path().join("x.reel"), out.path().join("begun"), out.path().join("done"));
        fs::write(mounted.path().join("file"), vec![7; 8 << 20]).unwrap();
        let device = mounted.device().unwrap();
        let script = format!(": > {}; until [ -e {} ]; do sleep 0.1; done", text(&begun), text(&done));
        let options = ["--no-snapshot", "--settle", "none", "--device", text(device)];
        let recorder = record(&reel, &options, &["sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
        wait_for("the recording to begin", || begun.exists().then_some(()));
        let from = format!("if={}", text(device));
        succeed(Command::new("dd").args([&from, "of=/dev/null", "bs=1M", "count=64", "status=none"]));
        fs::write(&done, "").unwrap();
        assert!(finish(recorder).status.success());
        let bios: Vec<Bio> = assert_valid(&reel).read().unwrap();
        let read = |of: &dyn Fn(&Bio) -> bool| -> i64 {
            bios.iter().filter(|b| b.op == "read" && of(b)).map(|b| b.len_bytes).sum()
        };
        let (all, raw) = (read(&|_| true), read(&|b| b.class == "data" && b.detail.as_deref() == Some("device")));
        // What the file system may have read for itself meanwhile is little.
        assert!(all >= 60 << 20 && raw * 1000 >= all * 995, "{fs:?}: {raw} of {all} bytes");
    }
}

/// The same on kinds of ext4 that write in ways of their own, with the journal held against debugfs: its blocks may
/// have stamps too.
pub(crate) fn kinds_of_ext4() {
    for (made, mounted) in [
        (&["-b", "1024"][..], "data=journal"),
        (&["-O", "fast_commit,bigalloc,inline_data"][..], "discard"),
        (&["-O", "^has_journal,^extent,^64bit,meta_bg,^resize_inode"][..], "defaults"),
    ] {
        let mount = Mounted::with(Fs::Ext4, DEFAULT_SIZE_BYTES, made, mounted);
        let name = format!("ext4 {made:?} {mounted}");
        let written = stamps_are_found(&name, mount.path(), &[mount.device().unwrap()]);
        let journal = blocks_of(&mount, "<8>");
        if !journal.is_empty() {
            exactly(&written.bios, "journal", block_bytes(&mount), &journal);
        }
        assert!(written.bios.iter().all(|b| b.detail.as_deref() != Some("other")), "{made:?}");
    }
}

fn output(command: &mut Command) -> String {
    String::from_utf8_lossy(&succeed(command).stdout).into_owned()
}

/// Every number in the text.
fn numbers(text: &str) -> Vec<i64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect()
}

/// Each bio that lies in one of `blocks` is of this class, and no other is.
fn exactly(bios: &[Bio], class: &str, block_bytes: i64, blocks: &HashSet<i64>) {
    let mut met = 0;
    for b in bios.iter().filter(|b| b.len_bytes != 0 && b.op != "discard") {
        let inside = blocks.contains(&(b.sector * 512 / block_bytes));
        assert_eq!(inside, b.class == class, "{class}: {b:?}");
        met += usize::from(inside);
    }
    assert!(met > 0, "no bio of class {class}");
}

/// The blocks of a file of an ext4, by its path or number.
fn blocks_of(mount: &Mounted, what: &str) -> HashSet<i64> {
    let mut debugfs = Command::new("debugfs");
    debugfs.args(["-R", &format!("blocks {what}"), text(mount.device().unwrap())]);
    numbers(&output(&mut debugfs)).into_iter().collect()
}

fn block_bytes(mount: &Mounted) -> i64 {
    rustix::fs::statvfs(mount.path()).unwrap().f_bsize as i64
}

pub(crate) fn ext4_metadata_is_what_debugfs_says() {
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let device = text(mount.device().unwrap()).to_owned();
    let r = written(&mount, out.path());
    go_cold_with(&FILES.map(|f| mount.path().join(f)));
    let blocks = |what: &str| blocks_of(&mount, what);
    let bytes = BLOCK as i64;
    exactly(&r.bios, "journal", bytes, &blocks("<8>"));
    exactly(&r.bios, "directory", bytes, &blocks("/many").union(&blocks("/")).copied().collect());
    let (mut bitmaps, mut tables) = (HashSet::new(), HashSet::new());
    for line in output(Command::new("dumpe2fs").arg(&device)).lines() {
        for part in line.split(", ") {
            let at = part.split(" at ").nth(1).map(numbers).unwrap_or_default();
            match at.as_slice() {
                [block, ..] if part.contains("bitmap at") => drop(bitmaps.insert(*block)),
                [from, to, ..] if part.contains("Inode table at") => tables.extend(*from..=*to),
                _ => {}
            }
        }
    }
    exactly(&r.bios, "bitmap", bytes, &bitmaps);
    exactly(&r.bios, "inode_table", bytes, &tables);
}

pub(crate) fn xfs_log_is_where_xfs_db_says() {
    let (mount, out) = (Mounted::new(Fs::Xfs, DEFAULT_SIZE_BYTES), temp_dir());
    let r = written(&mount, out.path());
    let names = ["logstart", "logblocks", "blocksize", "agblocks", "agblklog"];
    let print = format!("print {}", names.join(" "));
    let told = output(Command::new("xfs_db").args(["-r", "-c", "sb 0", "-c", &print, text(mount.device().unwrap())]));
    let of = |name: &str| {
        let line = told.lines().find(|l| l.split(" = ").next() == Some(name)).unwrap();
        line.split(" = ").nth(1).unwrap().trim().parse::<i64>().unwrap()
    };
    let start = of("logstart");
    let first = (start >> of("agblklog")) * of("agblocks") + (start & ((1 << of("agblklog")) - 1));
    exactly(&r.bios, "journal", of("blocksize"), &(first..first + of("logblocks")).collect());
    assert!(r.bios.iter().all(|b| b.class != "unknown"), "{:?}", r.bios.iter().find(|b| b.class == "unknown"));
}

/// Data that goes by the journal is written where it belongs as metadata is, by whoever the journal is too full for.
pub(crate) fn journalled_data_goes_to_its_file() {
    const BYTES: i64 = 16 << 20;
    let looped = Device::looped(DEFAULT_SIZE_BYTES);
    let mount = Mounted::over(&[&looped], &["mkfs.ext4", "-q", "-F", "-J", "size=4"], "data=journal");
    let (out, file) = (temp_dir(), mount.path().join("f"));
    let reel = out.path().join("x.reel");
    let words = ["dd", "if=/dev/urandom", &format!("of={}", text(&file)), "bs=4k", "count=4096", "status=none"];
    succeed(&mut record(&reel, &["--no-snapshot"], &words));
    let reel = assert_valid(&reel);
    let files: HashMap<i64, FileRow> = reel.read::<FileRow>().unwrap().into_iter().map(|f| (f.file, f)).collect();
    let path_of = |b: &Bio| b.file.and_then(|f| files.get(&f)?.path.as_deref().map(str::to_owned));
    let mut bios: Vec<Bio> = reel.read().unwrap();
    bios.retain(|b| b.op == "write" && Some(b.dev) == mount.device_number());
    let written = bios.iter().filter(|b| b.class == "data");
    let its: i64 = written.filter(|b| path_of(b).as_deref() == Some(text(&file))).map(|b| b.len_bytes).sum();
    assert!(its >= BYTES, "{its} of {BYTES} bytes");
    let other: i64 = bios.iter().filter(|b| b.detail.as_deref() == Some("other")).map(|b| b.len_bytes).sum();
    assert!(other * 200 <= BYTES, "{other} bytes are of something else");
}

pub(crate) fn btrfs_trees_are_told_by_owner() {
    let (mount, out) = (Mounted::new(Fs::Btrfs, DEFAULT_SIZE_BYTES), temp_dir());
    let r = written(&mount, out.path());
    go_cold_with(&FILES.map(|f| mount.path().join(f)));
    let disk = File::open(mount.device().unwrap()).unwrap();
    let mut checked = 0;
    for b in r.bios.iter().filter(|b| b.class == "tree" && b.op == "write") {
        let mut header = [0; 96];
        disk.read_exact_at(&mut header, (b.sector * 512) as u64).unwrap();
        let owner = i64::from_le_bytes(header[88..96].try_into().unwrap());
        let names =
            [(1, "root"), (2, "extent"), (3, "chunk"), (4, "device"), (5, "fs"), (7, "checksum"), (10, "free_space")];
        if let Some((_, name)) = names.iter().find(|(id, _)| *id == owner)
            && b.detail.as_deref() != Some("node")
        {
            assert_eq!(b.detail.as_deref(), Some(*name), "{b:?}");
            checked += 1;
        }
    }
    assert!(checked > 0);
    assert!(r.bios.iter().any(|b| b.class == "superblock"));
}

/// The block table counts what the kernel counts: requests and bytes, by /sys/block/*/stat. No more than happened from
/// before the recording to after it, and no less than from its start to the command's end.
pub(crate) fn counts_are_the_kernels(fs: Fs) {
    let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let Some(device) = mount.device() else { return };
    rustix::fs::sync();
    let stat = Path::new("/sys/block").join(device.file_name().unwrap()).join("stat");
    let (first, last) = (out.path().join("first"), out.path().join("last"));
    let script = format!(
        "cat {stat} > {first}; {program} {WORD} write {dir} && sync -f {dir}; cat {stat} > {last}",
        stat = text(&stat),
        first = text(&first),
        last = text(&last),
        program = text(&env::current_exe().unwrap()),
        dir = text(mount.path()),
    );
    let path = out.path().join("counts.reel");
    let read = |from: &Path| numbers(&fs::read_to_string(from).unwrap());
    let before = read(&stat);
    succeed(&mut record(&path, &[], &["sh", "-c", &script]));
    let after = read(&stat);
    let (first, last) = (read(&first), read(&last));
    let reel = assert_valid(&path);
    let dev = mount.device_number().unwrap();
    let rows: Vec<Block> = reel.read::<Block>().unwrap().into_iter().filter(|b| b.dev == dev).collect();
    // The kernel counts a flush without data as a write; here it is a bio that no request carried.
    let bios = reel.read::<Bio>().unwrap();
    let empty = bios.iter().filter(|b| b.dev == dev && b.class == "flush" && b.rq_id.is_none()).count() as i64;
    for (op, requests, sectors) in [("read", 0, 2), ("write", 4, 6)] {
        let of: Vec<&Block> = rows.iter().filter(|b| b.op == op).collect();
        let (n, bytes) = (of.len() as i64, of.iter().map(|b| b.len_bytes).sum::<i64>());
        let delta = |from: &[i64], to: &[i64], field: usize| to[field] - from[field];
        let most = (delta(&before, &after, requests), delta(&before, &after, sectors) * 512);
        let told = format!("{op} on {}: {n} rows of {bytes} bytes", fs.name());
        assert!(n <= most.0 && bytes <= most.1, "{told}, the kernel at most {most:?}");
        // What the recorder reads itself, a superblock say, is left out.
        if op == "write" {
            let least = (delta(&first, &last, requests), delta(&first, &last, sectors) * 512);
            assert!(n + empty >= least.0 && bytes >= least.1, "{told}, the kernel at least {least:?}");
        }
        // Of those whose end no probe saw nobody knows.
        let bare = of.iter().find(|b| b.complete_ns.is_some() && b.bios < Some(1));
        assert!(bare.is_none(), "a request without bios: {bare:?}");
    }
}
