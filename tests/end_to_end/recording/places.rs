//! What the manifest says of file systems, disks and control groups, against what their own tools say.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::manifest::{Device, Mount};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

fn told_by(command: &mut Command) -> String {
    String::from_utf8(succeed(command).stdout).unwrap()
}

/// Features of ext4 that come and go with the mount.
const PASSING: [&str; 2] = ["needs_recovery", "orphan_present"];

/// Size of the journal, and all features or some of them, as the file system's tools tell them.
fn ext4(device: &Path) -> (i64, BTreeSet<String>) {
    let told = told_by(Command::new("dumpe2fs").arg("-h").arg(device));
    let of = |key: &str| told.lines().find_map(|l| l.strip_prefix(key)).map(|l| l.trim().to_owned());
    let size = of("Total journal size:").or(of("Journal size:")).unwrap();
    let bytes = match size.strip_suffix('M') {
        Some(m) => m.parse::<i64>().unwrap() << 20,
        None => size.trim_end_matches('k').parse::<i64>().unwrap() << 10,
    };
    let features = of("Filesystem features:").unwrap();
    (bytes, features.split_whitespace().filter(|f| !PASSING.contains(f)).map(str::to_owned).collect())
}

fn xfs(at: &Path) -> (i64, BTreeSet<String>) {
    let told = told_by(Command::new("xfs_info").arg(at)).replace([',', '='], " ");
    let words: Vec<&str> = told.split_whitespace().collect();
    let after = |from: usize, key: &str| {
        let at = words[from..].iter().position(|w| *w == key).unwrap() + from + 1;
        words[at].parse::<i64>().unwrap()
    };
    let log = words.iter().position(|w| *w == "log").unwrap();
    let known = ["crc", "finobt", "sparse", "rmapbt", "reflink", "bigtime", "inobtcount", "nrext64"];
    let set = |f: &&&str| words.contains(*f) && after(0, f) == 1;
    (after(log, "bsize") * after(log, "blocks"), known.iter().filter(set).map(|f| (*f).to_owned()).collect())
}

fn btrfs(at: &Path) -> BTreeSet<String> {
    let told = told_by(Command::new("btrfs").args(["filesystem", "show"]).arg(at));
    let id = told.split("uuid: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let set = fs::read_dir(format!("/sys/fs/btrfs/{id}/features")).unwrap().flatten();
    set.map(|f| f.file_name().to_string_lossy().into_owned()).collect()
}

/// Journal, features, free space at both ends; the disk's queue as it was set.
pub(crate) fn a_file_system_and_its_disk(fs: Fs) {
    let made: &[&str] = match fs {
        Fs::Ext4 => &["-E", "stride=16,stripe_width=48"],
        Fs::Xfs => &["-d", "su=64k,sw=3"],
        _ => &[],
    };
    // With a stripe, XFS's log does not fit into a smaller file system.
    let mounted = Mounted::with(fs, 2 * DEFAULT_SIZE_BYTES, made, "defaults");
    let device = mounted.device().unwrap();
    let name = device.file_name().unwrap().to_str().unwrap();
    let queue = Path::new("/sys/class/block").join(name).join("queue");
    let (before, usual) = ("192", fs::read_to_string(queue.join("read_ahead_kb")).unwrap());
    fs::write(queue.join("read_ahead_kb"), before).unwrap();
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let script = format!("dd if=/dev/urandom of={}/f bs=1M count=40 status=none", text(mounted.path()));
    succeed(&mut record(&reel, &["--no-snapshot"], &["sh", "-c", &script]));
    let reel = assert_valid(&reel);
    let mount = reel.manifest.mounts.iter().find(|m| m.mountpoint == text(mounted.path())).unwrap();
    let free_end = mount.free_end_bytes.unwrap();
    let used = mount.free_bytes - free_end;
    assert!((39 << 20..60 << 20).contains(&used), "{used}: {mount:?}");
    told(fs, mount, device, mounted.path());
    let disk = reel.manifest.devices.iter().find(|d| d.name == name).unwrap();
    as_sysfs_says(disk, &queue);
    assert_eq!(disk.read_ahead_kb, Some(192));
    fs::write(queue.join("read_ahead_kb"), usual).unwrap();
}

fn told(fs: Fs, mount: &Mount, device: &Path, at: &Path) {
    let features: BTreeSet<String> = mount.features.clone().unwrap().into_iter().collect();
    assert_eq!(mount.block_bytes, Some(4096));
    match fs {
        Fs::Ext4 => {
            let (bytes, named) = ext4(device);
            assert_eq!(mount.journal_bytes, Some(bytes));
            let lasting = features.iter().filter(|f| !PASSING.contains(&f.as_str())).cloned();
            assert_eq!(lasting.collect::<BTreeSet<_>>(), named);
        }
        Fs::Xfs => {
            let (bytes, named) = xfs(at);
            assert_eq!(mount.journal_bytes, Some(bytes));
            assert!(named.is_subset(&features) && named.len() > 3, "{named:?}, {features:?}");
        }
        _ => {
            let named = btrfs(at);
            let unknown: Vec<_> = named.difference(&features).collect();
            assert!(unknown.is_empty() && named.contains("skinny_metadata"), "{named:?}, {features:?}");
            assert_eq!(mount.journal_bytes, None);
        }
    }
    if fs != Fs::Btrfs {
        assert_eq!((mount.stripe_unit_bytes, mount.stripe_width_bytes), (Some(64 << 10), Some(192 << 10)));
    }
}

fn as_sysfs_says(disk: &Device, queue: &Path) {
    let text = |file: &str| fs::read_to_string(queue.join(file)).ok().map(|t| t.trim().to_owned());
    let number = |file: &str| text(file).and_then(|t| t.parse::<i64>().ok());
    assert_eq!(disk.write_cache, text("write_cache"));
    for (member, file) in [
        (disk.read_ahead_kb, "read_ahead_kb"),
        (disk.wbt_lat_usec, "wbt_lat_usec"),
        (disk.max_hw_sectors_kb, "max_hw_sectors_kb"),
        (disk.min_io_bytes, "minimum_io_size"),
        (disk.optimal_io_bytes, "optimal_io_size"),
        (disk.discard_max_bytes, "discard_max_bytes"),
        (Some(disk.nr_requests), "nr_requests"),
        (Some(disk.max_sectors_kb), "max_sectors_kb"),
    ] {
        assert_eq!(member, number(file), "{file}");
    }
}

/// A folder of the hierarchy that has the memory controller, and the file of its limit.
fn memory_hierarchy() -> Option<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let at = PathBuf::from(words.get(1)?);
        let has = |file: &str, word: &str| {
            fs::read_to_string(at.join(file)).is_ok_and(|t| t.split_whitespace().any(|w| w == word))
        };
        match words.get(2) {
            Some(&"cgroup2") if has("cgroup.subtree_control", "memory") => Some((at, "memory.max")),
            Some(&"cgroup") if words.get(3)?.split(',').any(|o| o == "memory") => Some((at, "memory.limit_in_bytes")),
            _ => None,
        }
    })
}

/// Removes the folder of a control group.
struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The limits of the command's control group, also those of the group above.
pub(crate) fn limits_of_a_control_group() {
    let Some((root, file)) = memory_hierarchy() else {
        eprintln!("no hierarchy has the memory controller");
        return;
    };
    let outer = Group(root.join(format!("ioreel-test-{}", std::process::id())));
    fs::create_dir(&outer.0).unwrap();
    fs::write(outer.0.join(file), "1073741824").unwrap();
    let inner = Group(outer.0.join("inner"));
    fs::create_dir(&inner.0).unwrap();
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let recording = record(&reel, &["--no-snapshot", "--ops-only"], &["true"]);
    let enter = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
    let mut inside = Command::new("sh");
    inside.args(["-c", enter, text(&inner.0)]).arg(recording.get_program()).args(recording.get_args());
    succeed(&mut inside);
    let reel = assert_valid(&reel);
    let [group] = reel.manifest.cgroups.as_slice() else { panic!("{:?}", reel.manifest.cgroups) };
    let name = format!("/{}", inner.0.strip_prefix(&root).unwrap().display());
    assert!(group.memory_max_bytes == Some(1 << 30) && group.path == name, "{group:?}");
    drop((inner, outer));
}
