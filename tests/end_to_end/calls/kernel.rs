//! What the kernel does to files by itself: told where it allows programs on its functions, as in the guests of
//! `make test-kernels`; refused in one line elsewhere.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use ioreel_traces::{
    Reel,
    rows::{self, Bio, Op, Task},
};

use crate::{
    attribution::number,
    harness::{
        assert_valid,
        device::Device,
        ioreel,
        mount::{DEFAULT_SIZE_BYTES, Fs, Mounted, go_cold},
        one_line, paths_of, record, succeed, temp_dir, text, wait_for,
    },
    midway::{interrupt, recording},
};

/// Whether this is a machine for these tests alone, with a kernel that allows what they need.
pub(crate) fn is_guest() -> bool {
    std::env::var_os("IOREEL_TEST_DISKS").is_some()
}

/// Whether there is an NFS server too: it is the whole machine's.
pub(crate) fn has_nfs_server() -> bool {
    is_guest() && fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("nfsd"))
}

/// Whether `doctor` says that this kernel allows programs on its functions.
pub(crate) fn allows_functions() -> bool {
    let told = succeed(&mut ioreel(["doctor", "--json"]));
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let check = told["checks"].as_array().unwrap().iter().find(|c| c["what"] == "kernel functions (fentry)").unwrap();
    check["verdict"] == "ok"
}

/// A disk's interrupt ends requests while a probe is at work on the end of another's, which the kernel skips the probe for.
pub(crate) fn ends_in_interrupts() {
    let disks = std::env::var("IOREEL_TEST_DISKS").unwrap();
    let disk = PathBuf::from(disks.split_whitespace().next().unwrap());
    let looped = Device::looped(DEFAULT_SIZE_BYTES);
    let out = temp_dir();
    let path = out.path().join("r.reel");
    let reads =
        "--ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=64 --time_based --runtime=15 --size=400m";
    let jobs = [looped.whole(), &*disk].map(|d| format!("--name={} --filename={}", number(d), text(d)));
    let fio: Vec<&str> =
        ["fio"].into_iter().chain(reads.split(' ')).chain(jobs.iter().flat_map(|j| j.split(' '))).collect();
    succeed(&mut record(&path, &["--no-snapshot", "--block-only", "--ring-mib", "64"], &fio));
    all_have_ended(&path, [looped.whole(), &*disk]);
}

/// Of very many bios of each device none is without an end.
pub(crate) fn all_have_ended(reel: &Path, devices: [&Path; 2]) {
    let bios: Vec<Bio> = assert_valid(reel).read().unwrap();
    for device in devices {
        let of =
            |ended: bool| bios.iter().filter(|b| b.dev == number(device) && b.complete_ns.is_some() == ended).count();
        assert!(of(true) > 1000 && of(false) == 0, "{}: {} ended, {} did not", text(device), of(true), of(false));
    }
}

/// What is asked for is had, or refused with cause and remedy; nothing else changes.
pub(crate) fn backends() {
    let out = temp_dir();
    for backend in ["auto", "tracepoint"] {
        let reel = out.path().join(backend);
        succeed(&mut record(&reel, &["--backend", backend], &["true"]));
        assert_eq!(assert_valid(&reel).manifest.backend, "tracepoint");
    }
    let reel = out.path().join("fentry");
    let mut command = record(&reel, &["--backend", "fentry"], &["true"]);
    if !allows_functions() {
        let line = one_line(&mut command, 1);
        assert!(line.contains("--backend fentry") && line.contains("--backend tracepoint"), "{line}");
        assert!(!reel.exists());
        return;
    }
    succeed(&mut command);
    let reel = assert_valid(&reel);
    assert_eq!(reel.manifest.backend, "fentry");
    let found = rows_of(&reel, "vfs");
    assert!(found.iter().any(|o| o.op == "vfs_read"), "the program was read: {found:?}");
}

fn rows_of(reel: &Reel, source: &str) -> Vec<Op> {
    reel.read::<Op>().unwrap().into_iter().filter(|o| o.source == *source).collect()
}

/// Rows of threads of this name.
fn by_threads(reel: &Reel, rows: Vec<Op>, comm: &str) -> Vec<Op> {
    let tasks: HashMap<i64, Task> = reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t)).collect();
    rows.into_iter().filter(|o| tasks[&o.task_id].comm.starts_with(comm)).collect()
}

/// Ids of the file at a path, as it is now.
fn files_at(reel: &Reel, path: &Path) -> Vec<i64> {
    let there = fs::metadata(path).unwrap();
    let files = reel.read::<rows::File>().unwrap();
    let same = |f: &&rows::File| f.ino == there.ino() as i64 && f.path.as_deref() == Some(text(path));
    files.iter().filter(same).map(|f| f.file).collect()
}

/// Ranges, joined where they touch.
fn cover(ranges: impl IntoIterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut all: Vec<(i64, i64)> = ranges.into_iter().filter(|(from, to)| from < to).collect();
    all.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (from, to) in all {
        match out.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

/// Where the rows of this operation on these files moved bytes.
fn moved(rows: &[Op], op: &str, files: &[i64]) -> Vec<(i64, i64)> {
    let on = |o: &&Op| o.op == op && o.file.is_some_and(|f| files.contains(&f));
    let mut moved: Vec<(i64, i64)> =
        rows.iter().filter(on).map(|o| (o.offset_bytes.unwrap(), o.ret.unwrap())).collect();
    moved.sort_unstable();
    moved
}

/// An NFS server for one folder, and a client on the same machine.
struct Nfs {
    client: PathBuf,
    exported: String,
    helpers: Vec<Child>,
}

impl Nfs {
    fn new(folder: &Path, client: &Path) -> Self {
        let sh = |script: &str| succeed(Command::new("sh").args(["-ec", script]));
        // State of its own: this program's mounts are nobody else's.
        sh("mount -t tmpfs ioreel-test /var/lib/nfs; cd /var/lib/nfs; mkdir -p sm rpc_pipefs v4recovery nfsdcltrack; \
            touch etab rmtab xtab state; grep -q ' /proc/fs/nfsd ' /proc/mounts || mount -t nfsd nfsd /proc/fs/nfsd; \
            echo 10 >/proc/fs/nfsd/nfsv4leasetime; echo 10 >/proc/fs/nfsd/nfsv4gracetime");
        let helper = |words: &[&str]| Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).spawn().unwrap();
        let mut helpers = vec![helper(&["rpcbind", "-f"])];
        wait_for("rpcbind", || {
            Command::new("rpcinfo").stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?.success().then_some(())
        });
        helpers.push(helper(&["rpc.mountd", "-F"]));
        let exported = format!("127.0.0.1:{}", text(folder));
        let options = "rw,no_root_squash,insecure,fsid=0,no_subtree_check";
        succeed(Command::new("exportfs").args(["-o", options, &exported]));
        sh("rpc.nfsd -N 3 4; echo Y >/proc/fs/nfsd/v4_end_grace 2>/dev/null || true");
        let mounted = ["-t", "nfs4", "-o", "vers=4.2", "127.0.0.1:/", text(client)];
        wait_for("the NFS server", || Command::new("mount").args(mounted).status().unwrap().success().then_some(()));
        Self { client: client.into(), exported, helpers }
    }
}

impl Drop for Nfs {
    fn drop(&mut self) {
        let quietly = |words: &[&str]| {
            let _ = Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        };
        quietly(&["umount", "-f", text(&self.client)]);
        quietly(&["exportfs", "-u", &self.exported]);
        quietly(&["rpc.nfsd", "0"]);
        for helper in &mut self.helpers {
            let _ = helper.kill();
            let _ = helper.wait();
        }
        quietly(&["umount", "/var/lib/nfs"]);
    }
}

/// Numbers that look like chance, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

const BUFFERED_BYTES: usize = 700_001;
const DIRECT: usize = 40;

/// Transfers that the reel says it cannot have: a thread that loses the CPU in the few instructions around a program on a
/// function makes the kernel skip that program for all others there.
struct Skipped(i64);

impl Skipped {
    fn of(reel: &Reel) -> Self {
        let on_functions = reel.manifest.probes.iter().filter(|p| p.name.starts_with("vfs_"));
        Self(on_functions.map(|p| p.missed).sum())
    }

    /// Nothing is there that was not done, and what is missing was said to be.
    fn excuses(&mut self, found: &[(i64, i64)], done: &[(i64, i64)], what: &str) {
        let odd: Vec<_> = found.iter().filter(|f| !done.contains(f)).collect();
        assert!(odd.is_empty(), "{what}: {odd:?}");
        let missing: Vec<_> = done.iter().filter(|d| !found.contains(d)).collect();
        self.0 -= missing.len() as i64;
        assert!(self.0 >= 0 && found.len() + missing.len() == done.len(), "{what}: {missing:?} of {done:?}");
    }
}

/// What clients write and read directly, the server writes and reads, each in one operation; what goes through the
/// client's cache comes to the same ranges. No operation of the server's is told twice. What is missing is counted.
pub(crate) fn the_nfs_server(fs: Fs) {
    let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let client = out.path().join("client");
    fs::create_dir(&client).unwrap();
    let nfs = Nfs::new(mount.path(), &client);
    let reel = out.path().join("nfs.reel");
    let recorder = recording(&reel, &["--all", "--backend", "fentry"]);
    let names: Vec<String> = (0..3).flat_map(|i| [format!("buffered{i}"), format!("direct{i}")]).collect();
    std::thread::scope(|scope| {
        for (i, name) in names.iter().enumerate() {
            let path = client.join(name);
            scope.spawn(move || {
                if name.starts_with("direct") { write_directly(&path, i as u64) } else { write_through(&path) }
            });
        }
    });
    go_cold();
    std::thread::scope(|scope| {
        for (i, name) in names.iter().enumerate() {
            let path = client.join(name);
            scope.spawn(
                move || if name.starts_with("direct") { read_directly(&path, i as u64) } else { read_through(&path) },
            );
        }
    });
    interrupt(recorder);
    let reel = assert_valid(&reel);
    let own = rows_of(&reel, "vfs");
    let server = by_threads(&reel, own.clone(), "nfsd");
    assert!(own.iter().all(|o| o.op_id >= 0 && o.parent_op.is_none() && o.fd.is_none()));
    let mut skipped = Skipped::of(&reel);
    let some_skipped = skipped.0 > 0;
    for (i, name) in names.iter().enumerate() {
        let files = files_at(&reel, &mount.path().join(name));
        let (written, read) = (moved(&server, "vfs_write", &files), moved(&server, "vfs_read", &files));
        if name.starts_with("direct") {
            let mut expected = places(i as u64);
            expected.sort_unstable();
            skipped.excuses(&written, &expected, &format!("{name} was written"));
            // A read of bytes that nobody wrote, or beyond the end, ends there.
            let size = fs::metadata(mount.path().join(name)).unwrap().len() as i64;
            assert!(expected.iter().all(|(at, n)| at + n <= size));
            skipped.excuses(&read, &expected, &format!("{name} was read"));
        } else {
            for (what, moved) in [("written", &written), ("read", &read)] {
                // A skipped one leaves one gap.
                let ranges = cover(moved.iter().map(|(at, n)| (*at, at + n)));
                let (first, last) = (ranges.first().map_or(0, |r| r.0), ranges.last().map_or(0, |r| r.1));
                let outside = i64::from(first != 0) + i64::from(last != BUFFERED_BYTES as i64);
                skipped.0 -= ranges.len().saturating_sub(1) as i64 + outside;
                assert!(skipped.0 >= 0, "{name} was {what}: {ranges:?}");
            }
            // A direct write is asked for as a safe one instead.
            let synced = server.iter().filter(|o| o.op == "vfs_fsync" && o.file.is_some_and(|f| files.contains(&f)));
            skipped.0 -= i64::from(synced.count() == 0);
            assert!(skipped.0 >= 0, "{name} was made safe");
        }
        // The client's own calls are on the client's file.
        let ops = reel.read::<Op>().unwrap();
        assert!(
            !ops.iter().any(|o| o.source == *"syscall"
                && o.file.is_some_and(|f| files.contains(&f))
                && o.op.contains("write"))
        );
    }
    reads_cause_bios(&reel, &server, mount.device_number().unwrap(), some_skipped);
    drop(nfs);
}

/// What the server's threads have a device read for a file is caused by their reading of it.
fn reads_cause_bios(reel: &Reel, server: &[Op], dev: i64, some_skipped: bool) {
    let tasks: HashMap<i64, Task> = reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t)).collect();
    let mut caused = 0;
    for bio in reel.read::<Bio>().unwrap() {
        let Some(op) = server.iter().find(|o| Some(o.op_id) == bio.cause) else {
            let data = bio.op == "read" && bio.class == "data" && bio.dev == dev;
            assert!(!data || some_skipped || !bio.comm.starts_with("nfsd"), "{bio:?}");
            continue;
        };
        assert_eq!(Some(op.task_id), bio.task_id, "{op:?} {bio:?}");
        assert!(tasks[&op.task_id].comm.starts_with("nfsd"));
        assert!((op.start_ns..=op.start_ns + op.dur_ns).contains(&bio.queue_ns), "{op:?} {bio:?}");
        if bio.op == "read" && bio.class == "data" {
            assert_eq!((op.op.as_ref(), op.file), ("vfs_read", bio.file), "{op:?} {bio:?}");
            caused += 1;
        }
    }
    assert!(caused > 0, "no bio was caused by a read of the server's");
}

fn places(seed: u64) -> Vec<(i64, i64)> {
    let mut chance = Chance(seed * 2 + 12345);
    (0..DIRECT).map(|i| (i as i64 * 65536 + chance.below(5000) as i64, 1 + chance.below(60_000) as i64)).collect()
}

fn write_directly(path: &Path, seed: u64) {
    let file = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let bytes = vec![7u8; 65536];
    for (at, n) in places(seed) {
        assert_eq!(file.write_at(&bytes[..n as usize], at as u64).unwrap() as i64, n);
    }
    file.sync_all().unwrap();
}

fn read_directly(path: &Path, seed: u64) {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let mut bytes = vec![0u8; 65536];
    for (at, n) in places(seed) {
        assert_eq!(file.read_at(&mut bytes[..n as usize], at as u64).unwrap() as i64, n);
    }
}

fn write_through(path: &Path) {
    let mut file = File::create(path).unwrap();
    for piece in vec![9u8; BUFFERED_BYTES].chunks(10_007) {
        file.write_all(piece).unwrap();
    }
    file.sync_all().unwrap();
}

fn read_through(path: &Path) {
    let mut bytes = Vec::new();
    File::open(path).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), BUFFERED_BYTES);
}

/// Each transfer and sync on an overlay's file leads to the same on the file under it, told below it; totals do not count that.
pub(crate) fn files_under_an_overlay(fs: Fs) {
    let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let dir = text(mount.path()).to_owned();
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(format!("{dir}/{name}")).unwrap();
    }
    for name in ["old", "grown"] {
        fs::write(format!("{dir}/lower/{name}"), vec![1u8; 100_000]).unwrap();
    }
    let merged = format!("{dir}/merged");
    let layers = format!("lowerdir={dir}/lower,upperdir={dir}/upper,workdir={dir}/work");
    succeed(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &layers, &merged]));
    let reel = out.path().join("overlay.reel");
    let script = format!(
        "cd {merged}; dd if=old of=/dev/null bs=7001 status=none; dd if=/dev/zero of=new bs=30011 count=9 conv=fsync status=none; \
         echo more >>grown"
    );
    succeed(&mut record(&reel, &["--backend", "fentry", "--no-snapshot"], &["sh", "-ec", &script]));
    succeed(Command::new("umount").arg(&merged));
    let reel = assert_valid(&reel);
    let ops = reel.read::<Op>().unwrap();
    let by_id: HashMap<i64, &Op> = ops.iter().map(|o| (o.op_id, o)).collect();
    let real: BTreeMap<i64, i64> =
        reel.read::<rows::File>().unwrap().iter().filter_map(|f| Some((f.file, f.real_file?))).collect();
    let path_of = paths_of(&reel);
    let under = format!("{merged}/");
    let mut checked = BTreeMap::new();
    for op in ops.iter().filter(|o| o.source == *"syscall") {
        let Some(file) = op.file.filter(|f| path_of.get(f).is_some_and(|p| p.starts_with(&under))) else { continue };
        let expected = match &*op.op {
            "read" if op.ret > Some(0) => "vfs_read",
            "write" => "vfs_write",
            "fsync" => "vfs_fsync",
            _ => continue,
        };
        let below: Vec<&Op> = ops.iter().filter(|o| o.parent_op == Some(op.op_id)).collect();
        let of_kind: Vec<&&Op> = below.iter().filter(|o| o.op == expected).collect();
        assert_eq!(of_kind.len(), 1, "{op:?}: {below:?}");
        let part = of_kind[0];
        assert_eq!((&*part.source, part.task_id, part.ret), ("lower", op.task_id, op.ret), "{op:?} {part:?}");
        if expected != "vfs_fsync" {
            assert_eq!(part.offset_bytes, op.offset_bytes, "{op:?} {part:?}");
        }
        // After the copy-up it is another than when first seen.
        if !path_of[&file].ends_with("grown") {
            assert_eq!(part.file, Some(real[&file]));
        }
        assert!(part.start_ns >= op.start_ns && part.start_ns + part.dur_ns <= op.start_ns + op.dur_ns);
        *checked.entry(expected).or_insert(0) += 1;
    }
    assert_eq!(checked, BTreeMap::from([("vfs_read", 15), ("vfs_write", 10), ("vfs_fsync", 1)]));
    let lower: Vec<&Op> = ops.iter().filter(|o| o.source == *"lower").collect();
    assert!(lower.iter().all(|o| o.parent_op.is_some_and(|p| by_id.contains_key(&p))));
    let summary = succeed(&mut ioreel(["stats", text(reel.path()), "--json"]));
    let summary: serde_json::Value = serde_json::from_slice(&summary.stdout).unwrap();
    let counted = ops.iter().filter(|o| o.source != *"lower" && o.source != *"tool").count();
    let found = format!("{summary}");
    assert!(found.contains(&format!("\"ops\":{counted}")), "{counted} operations: {found}");
}

/// What reaches a loop device reaches the file behind it, whichever way the device takes; what the recorder reads of the
/// device is in neither table.
pub(crate) fn a_loop_device(fs: Fs) {
    for direct in ["off", "on"] {
        let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
        let (image, above) = (mount.path().join("image"), out.path().join("above"));
        fs::create_dir(&above).unwrap();
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let device = succeed(Command::new("losetup").args(["--find", "--show", text(&image)]));
        let device = PathBuf::from(String::from_utf8(device.stdout).unwrap().trim());
        // Not every file system can.
        let _ = Command::new("losetup").args([&format!("--direct-io={direct}"), text(&device)]).status();
        succeed(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", text(&device)]));
        succeed(Command::new("mount").args([text(&device), text(&above)]));
        let reel = out.path().join("loop.reel");
        // While it settles, only the disks are recorded.
        let recorder = recording(&reel, &["--all", "--backend", "fentry", "--settle", "none"]);
        let dir = text(&above);
        succeed(Command::new("sh").args([
            "-ec",
            &format!(
                "dd if=/dev/zero of={dir}/direct bs=64k count=16 oflag=direct status=none; \
                 head -c 1000000 /dev/urandom >{dir}/buffered; sync -f {dir}; echo 3 >/proc/sys/vm/drop_caches; \
                 cat {dir}/direct {dir}/buffered >/dev/null"
            ),
        ]));
        interrupt(recorder);
        let number = number(&device);
        succeed(Command::new("umount").arg(&above));
        succeed(Command::new("losetup").args(["-d", text(&device)]));
        let reel = assert_valid(&reel);
        let lower = by_threads(&reel, rows_of(&reel, "lower"), "kworker");
        let files = files_at(&reel, &image);
        let block = reel.read::<rows::Block>().unwrap();
        let requests = |op: &str| {
            let of_device = block.iter().filter(|b| b.dev == number && b.op == op);
            cover(of_device.map(|b| (b.sector * 512, b.sector * 512 + b.len_bytes)))
        };
        let below = |op: &str| cover(moved(&lower, op, &files).into_iter().map(|(at, n)| (at, at + n)));
        assert_eq!(below("vfs_write"), requests("write"), "direct I/O {direct}");
        assert_eq!(below("vfs_read"), requests("read"), "direct I/O {direct}");
        let synced = lower.iter().filter(|o| o.op == "vfs_fsync" && o.file.is_some_and(|f| files.contains(&f)));
        assert!(synced.count() > 0, "direct I/O {direct}");
    }
}
