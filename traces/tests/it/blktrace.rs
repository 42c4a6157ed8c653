//! Block traces: real ones of three kernels with blkparse's text beside them, and what may be wrong with one.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ioreel_traces::{
    Manifest, Reel,
    blktrace::Record,
    export::blktrace::export,
    import::{self, ImportError},
    rows::{Action, Bio, Block, Task, block_flags},
    validate::validate,
};

fn data() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("tests/data/blktrace")
}

fn samples() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(data()).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    assert!(all.len() >= 5);
    all
}

const FSYNC: &str = "6.1.0-56-amd64-ext4-fsync";

/// Imports and finds the reel valid.
fn imported(inputs: &[PathBuf], out: &Path) -> Reel {
    import::blktrace::import(inputs, out).unwrap();
    let report = validate(out, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    Reel::open(out).unwrap()
}

fn refused(inputs: &[PathBuf], out: &Path) -> String {
    let error: ImportError = import::blktrace::import(inputs, out).unwrap_err();
    assert!(!out.exists(), "a failed import leaves nothing");
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

/// A line of blkparse's text: CPU, number, ns, pid, event, sector, bytes.
type Line = (i64, i64, i64, i64, String, i64, i64);

fn lines(text: &str) -> Vec<Line> {
    let mut out = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(dev), true) = (words.first(), words.len() > 6) else { continue };
        if !dev.starts_with(|c: char| c.is_ascii_digit()) || !dev.contains(',') {
            continue;
        }
        let (seconds, ns) = words[3].split_once('.').unwrap();
        let at = seconds.parse::<i64>().unwrap() * 1_000_000_000 + ns.parse::<i64>().unwrap();
        let number = |i: usize| words.get(i).and_then(|w| w.parse::<i64>().ok());
        let sector = number(7).unwrap_or(0);
        let bytes = if words.get(8) == Some(&"+") { number(9).unwrap() * 512 } else { 0 };
        out.push((number(1).unwrap(), number(2).unwrap(), at, number(4).unwrap(), words[5].into(), sector, bytes));
    }
    out.sort();
    out
}

#[test]
fn every_record_is_what_blkparse_prints() {
    let dir = tempfile::tempdir().unwrap();
    for (i, sample) in samples().iter().enumerate() {
        let reel = imported(&[sample.join("vda")], &dir.path().join(format!("{i}.reel")));
        let printed = lines(&fs::read_to_string(sample.join("vda.blkparse.txt")).unwrap());
        let mut ours: Vec<Line> = Vec::new();
        for a in reel.read::<Action>().unwrap().into_iter().filter(|a| a.event.len() <= 2) {
            // Of these blkparse prints no length.
            let bare = ["X", "P", "U", "UT"].contains(&&*a.event);
            let bytes = if bare { 0 } else { a.len_bytes };
            let sector = if a.len_bytes == 0 && a.event != "C" { 0 } else { a.sector };
            ours.push((a.cpu, a.sequence, a.time_ns, a.pid, a.event.to_string(), sector, bytes));
        }
        ours.sort();
        assert_eq!(ours.len(), printed.len(), "{}", sample.display());
        for (ours, printed) in ours.iter().zip(&printed) {
            assert_eq!(ours, printed, "{}", sample.display());
        }
        check_rows(&reel, &printed);
    }
}

/// Requests are what was issued, bios what was queued, each carried by a request of its place.
fn check_rows(reel: &Reel, printed: &[Line]) {
    let times = |event: &str| printed.iter().filter(|l| l.4 == event).map(|l| (l.2, l.5, l.6)).collect::<Vec<_>>();
    let blocks = reel.read::<Block>().unwrap();
    let mut issued: Vec<_> = blocks.iter().map(|b| (b.issue_ns, b.sector.max(0), b.len_bytes)).collect();
    let mut expected = times("D");
    issued.sort();
    expected.sort();
    assert_eq!(issued, expected);
    let bios = reel.read::<Bio>().unwrap();
    assert_eq!(bios.len(), times("Q").len() + times("X").len());
    assert_eq!(bios.iter().map(|b| b.len_bytes).sum::<i64>(), times("Q").iter().map(|q| q.2).sum::<i64>());
    assert!(blocks.iter().all(|b| b.complete_ns.is_some()) && bios.iter().all(|b| b.complete_ns.is_some()));
    let by_id: BTreeMap<i64, &Block> = blocks.iter().map(|b| (b.rq_id, b)).collect();
    let tasks: BTreeMap<i64, String> =
        reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t.comm.to_string())).collect();
    for bio in bios.iter().filter(|b| b.len_bytes > 0) {
        let request = by_id[&bio.rq_id.unwrap()];
        let end = |sector: i64, len: i64| sector + len / 512;
        assert!(
            request.sector <= bio.sector && end(bio.sector, bio.len_bytes) <= end(request.sector, request.len_bytes)
        );
        assert!(request.queue_ns.unwrap() <= bio.queue_ns && request.complete_ns == bio.complete_ns);
        assert_eq!(tasks[&bio.task_id.unwrap()], *bio.comm);
    }
}

#[test]
fn an_export_gives_back_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    for (i, sample) in samples().iter().enumerate() {
        let reel = imported(&[sample.join("vda.blktrace.1")], &dir.path().join(format!("{i}.reel")));
        let out = dir.path().join(format!("{i}"));
        let made = export(&reel, &out, false).unwrap();
        assert_eq!(made.files.len(), 2);
        for cpu in 0..2 {
            let original = fs::read(sample.join(format!("vda.blktrace.{cpu}"))).unwrap();
            assert!(fs::read(format!("{}.blktrace.{cpu}", out.display())).unwrap() == original, "{}", sample.display());
        }
        assert_eq!(printed(&out), printed(&sample.join("vda")), "{}", sample.display());
        let again = export(&reel, &out, false).unwrap_err().to_string();
        assert!(again.contains("already exists"), "{again}");
    }
}

/// What blkparse prints of a trace; the names of its files aside.
fn printed(base: &Path) -> String {
    let folder = base.parent().unwrap();
    let name = base.file_name().unwrap();
    let out = Command::new("blkparse").arg("-D").arg(folder).arg("-i").arg(name).output();
    let out = out.expect("blkparse: scripts/setup test installs it");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.lines().count() > 100, "{}: {}", base.display(), String::from_utf8_lossy(&out.stderr));
    let device = name.to_str().unwrap();
    text.lines()
        .filter(|l| !l.contains("Input file"))
        .map(|l| l.replace(&format!("({device})"), "(DEV)") + "\n")
        .collect()
}

#[test]
fn a_dump_is_the_same_trace_with_a_clock_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let sample = data().join(FSYNC);
    let whole = imported(&[sample.join("vda")], &dir.path().join("a.reel"));
    let dump = imported(&[sample.join("vda.bin")], &dir.path().join("b.reel"));
    assert_eq!(whole.read::<Block>().unwrap(), dump.read::<Block>().unwrap());
    let names =
        |reel: &Reel| reel.read::<Bio>().unwrap().into_iter().map(|b| Bio { task_id: None, ..b }).collect::<Vec<_>>();
    assert_eq!(names(&whole), names(&dump));
    assert!(whole.manifest.clock.realtime_ns > 1_700_000_000_000_000_000 && whole.manifest.clock.monotonic_ns > 0);
    assert_eq!((dump.manifest.clock.realtime_ns, dump.manifest.clock.monotonic_ns), (0, 0));
    assert_eq!((whole.manifest.devices[0].name.as_str(), dump.manifest.devices[0].name.as_str()), ("vda", ""));
    export(&dump, &dir.path().join("b.bin"), true).unwrap();
    assert!(fs::read(dir.path().join("b.bin")).unwrap() == fs::read(sample.join("vda.bin")).unwrap());
    // blkparse reads dumps from a pipe, which makes it count time anew now and then: the two dumps alike.
    export(&whole, &dir.path().join("a.bin"), true).unwrap();
    let piped = |path: &Path| {
        let input = Stdio::from(fs::File::open(path).unwrap());
        let out = Command::new("blkparse").args(["-i", "-"]).stdin(input).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(piped(&dir.path().join("a.bin")), piped(&sample.join("vda.bin")));
}

#[test]
fn means_are_those_of_btt() {
    let dir = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for (i, sample) in samples().iter().enumerate() {
        let reel = imported(&[sample.join("vda")], &dir.path().join(format!("{i}.reel")));
        // btt loses the pieces of split bios.
        if reel.read::<Action>().unwrap().iter().any(|a| a.event == "X") {
            continue;
        }
        let dump = dir.path().join(format!("{i}.bin"));
        export(&reel, &dump, true).unwrap();
        let out = Command::new("btt").current_dir(dir.path()).arg("-i").arg(&dump).output();
        let text = String::from_utf8(out.expect("btt: scripts/setup test installs it").stdout).unwrap();
        let told = |name: &str| -> (f64, usize) {
            let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[2].parse().unwrap(), words[4].parse().unwrap())
        };
        let bios: Vec<Bio> = reel.read::<Bio>().unwrap().into_iter().filter(|b| b.len_bytes > 0).collect();
        let issued: BTreeMap<i64, i64> = reel.read::<Block>().unwrap().iter().map(|b| (b.rq_id, b.issue_ns)).collect();
        let mean = |from: &dyn Fn(&Bio) -> i64| {
            bios.iter().map(|b| (b.complete_ns.unwrap() - from(b)) as f64).sum::<f64>() / 1e9 / bios.len() as f64
        };
        let d2c = mean(&|b| issued[&b.rq_id.unwrap()]);
        let q2c = mean(&|b| b.queue_ns);
        for (name, ours) in [("D2C", d2c), ("Q2C", q2c)] {
            let (theirs, count) = told(name);
            assert_eq!(count, bios.len(), "{}", sample.display());
            assert!((ours - theirs).abs() <= 1.1e-9, "{}: {name} {ours} against {theirs}", sample.display());
        }
        compared += 1;
    }
    assert!(compared >= 2);
}

/// A recording of ours, written as a block trace and imported, has the same requests and bios.
#[test]
fn a_recording_survives_the_detour() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["untar", "compile", "postmark", "mail"] {
        let path = data().join(format!("../../../samples/{name}.reel"));
        let original = Reel::open(path).unwrap();
        let base = dir.path().join(name);
        assert!(export(&original, &base, false).unwrap().notes.is_empty());
        assert!(printed(&base).contains(&format!("[{}]", original.read::<Bio>().unwrap()[0].comm)));
        let reel = imported(&[base], &dir.path().join(format!("{name}.reel")));
        assert!(reel.manifest.warnings.is_empty(), "{:?}", reel.manifest.warnings);
        // A block trace has no sign for priority or background, and time begins with its first record.
        let flags = |f: i32| f & !(block_flags::PRIO | block_flags::BACKGROUND);
        let blocks = |reel: &Reel| {
            let mut rows = reel.read::<Block>().unwrap();
            let first = reel.read::<Bio>().unwrap().iter().map(|b| b.queue_ns).min().unwrap();
            for row in &mut rows {
                row.rq_id = 0;
                // What the samples are too old to tell.
                (row.bios, row.requeues) = (None, None);
                row.flags = flags(row.flags);
                row.queue_ns = row.queue_ns.map(|t| t - first);
                row.issue_ns -= first;
                row.complete_ns = row.complete_ns.map(|t| t - first);
            }
            rows.sort_by_key(|r| (r.issue_ns, r.sector));
            rows
        };
        let bios = |reel: &Reel| {
            let mut rows = reel.read::<Bio>().unwrap();
            let first = rows.iter().map(|b| b.queue_ns).min().unwrap();
            rows.iter_mut()
                .for_each(|b| (b.queue_ns, b.complete_ns) = (b.queue_ns - first, b.complete_ns.map(|t| t - first)));
            let mut rows: Vec<_> = rows
                .into_iter()
                .map(|b| {
                    (b.queue_ns, b.complete_ns, b.sector, b.len_bytes, b.op, flags(b.flags), b.comm, b.rq_id.is_some())
                })
                .collect();
            rows.sort();
            rows
        };
        assert_eq!(blocks(&original), blocks(&reel), "{name}");
        assert_eq!(bios(&original), bios(&reel), "{name}");
    }
}

#[test]
fn the_other_byte_order_is_read_right() {
    let dir = tempfile::tempdir().unwrap();
    let sample = data().join(FSYNC);
    for cpu in 0..2 {
        let mut bytes = fs::read(sample.join(format!("vda.blktrace.{cpu}"))).unwrap();
        let mut at = 0;
        while at < bytes.len() {
            let payload = usize::from(u16::from_le_bytes([bytes[at + 46], bytes[at + 47]]));
            let note = bytes[at + 31] & 4 != 0 && bytes[at + 28] == 1;
            for (from, width) in
                [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 4), (36, 4), (40, 4), (44, 2), (46, 2)]
            {
                bytes[at + from..at + from + width].reverse();
            }
            if note {
                bytes[at + 48..at + 52].reverse();
                bytes[at + 52..at + 56].reverse();
            }
            at += 48 + payload;
        }
        fs::write(dir.path().join(format!("vda.blktrace.{cpu}")), bytes).unwrap();
    }
    let swapped = imported(&[dir.path().join("vda")], &dir.path().join("swapped.reel"));
    let plain = imported(&[sample.join("vda")], &dir.path().join("plain.reel"));
    assert_eq!(swapped.read::<Action>().unwrap(), plain.read::<Action>().unwrap());
    assert_eq!(swapped.read::<Block>().unwrap(), plain.read::<Block>().unwrap());
    assert_eq!(swapped.manifest.clock, plain.manifest.clock);
}

#[test]
fn what_is_cut_or_garbage_is_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let sample = data().join(FSYNC);
    let whole: Vec<Vec<u8>> = (0..2).map(|cpu| fs::read(sample.join(format!("vda.blktrace.{cpu}"))).unwrap()).collect();
    let garbage = [0x5a; 100];
    let with_garbage = [&whole[1][..48 + 16 + 48], &garbage[..]].concat();
    let cases: [(&str, &[u8], &str); 5] = [
        (
            "header",
            &whole[1][..48 + 16 + 48 + 7],
            "the file ends in the middle of a record; its last 7 bytes were ignored",
        ),
        ("payload", &whole[1][..48 + 5], "the file ends in the middle of a record, which was ignored"),
        ("garbage", &with_garbage, "not a blktrace record (wrong magic number); the file was ignored from byte 112 on"),
        ("all", &garbage, "the file was ignored from byte 0 on"),
        ("empty", &[], ""),
    ];
    for (name, second, told) in cases {
        let folder = dir.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("vda.blktrace.0"), &whole[0]).unwrap();
        fs::write(folder.join("vda.blktrace.1"), second).unwrap();
        let reel = imported(&[folder.join("vda")], &folder.join("x.reel"));
        assert!(reel.count::<Action>() >= 476, "{name}");
        let warned = reel.manifest.warnings.iter().any(|w| w.contains("vda.blktrace.1") && w.contains(told));
        assert_eq!(warned, !told.is_empty(), "{name}: {:?}", reel.manifest.warnings);
    }
    fs::write(dir.path().join("x.blktrace.0"), garbage).unwrap();
    fs::write(dir.path().join("y.blktrace.0"), "").unwrap();
    // blkparse knows version 7 alone, too.
    for (name, version) in [("older", 6), ("z", 8)] {
        let mut other = whole[0].clone();
        other[0] = version;
        fs::write(dir.path().join(format!("{name}.blktrace.0")), other).unwrap();
        let said = Command::new("blkparse").current_dir(dir.path()).args(["-i", name]).output().unwrap().stderr;
        assert!(String::from_utf8_lossy(&said).contains(&format!("unsupported trace version {version}")));
    }
    let out = dir.path().join("no.reel");
    for (name, told) in [
        ("x", "not a block trace"),
        ("y", "the trace is empty"),
        ("z", "blktrace format 8 is not supported, only 7"),
        ("older", "blktrace format 6 is not supported, only 7"),
        ("nothing", "no such file, and no nothing.blktrace.N"),
    ] {
        let text = refused(&[dir.path().join(name)], &out);
        assert!(text.contains(told), "{name}: {text}");
    }
}

#[test]
fn where_a_clock_goes_back_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = |ns: u64, sequence: u32| {
        let record = Record {
            sequence,
            time_ns: 1_000_000 + ns,
            sector: 8,
            bytes: 4096,
            action: 1 << 16 | 1,
            dev: 8 << 20,
            ..Record::default()
        };
        record.to_bytes()
    };
    let bytes = [at(0, 1), at(5_000, 2), at(2_000, 3), at(9_000, 4), at(8_999, 5)].concat();
    fs::write(dir.path().join("x.blktrace.0"), bytes).unwrap();
    let m = imported(&[dir.path().join("x")], &dir.path().join("x.reel")).manifest;
    let told: Vec<(i64, i64)> = m.clock_jumps.iter().map(|j| (j.at_ns, j.back_ns)).collect();
    assert_eq!(told, [(5_000, 3_000), (9_000, 1)]);
    assert!(m.warnings.iter().any(|w| w.contains("2 records are earlier")), "{:?}", m.warnings);
}

#[test]
fn two_devices_share_a_clock_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (data().join(FSYNC), data().join("7.2.12+deb13-amd64-ext4-seqwrite"));
    for cpu in 0..2 {
        fs::copy(a.join(format!("vda.blktrace.{cpu}")), dir.path().join(format!("one.blktrace.{cpu}"))).unwrap();
        fs::copy(b.join(format!("vda.blktrace.{cpu}")), dir.path().join(format!("two.blktrace.{cpu}"))).unwrap();
        // The same clock, another device.
        let mut other = fs::read(a.join(format!("vda.blktrace.{cpu}"))).unwrap();
        let mut at = 0;
        while at < other.len() {
            other[at + 36] = 16;
            at += 48 + usize::from(u16::from_le_bytes([other[at + 46], other[at + 47]]));
        }
        fs::write(dir.path().join(format!("three.blktrace.{cpu}")), other).unwrap();
    }
    let at = |name: &str| dir.path().join(name);
    let text = refused(&[at("one"), at("two")], &at("no.reel"));
    assert!(text.contains("from different boots; import them one by one"), "{text}");
    let text = refused(&[at("one"), a.join("vda.bin")], &at("no.reel"));
    assert!(text.contains("import the dump alone"), "{text}");
    let both = imported(&[at("three"), at("one.blktrace.1")], &at("both.reel"));
    let alone = imported(&[at("one")], &at("alone.reel"));
    assert_eq!(both.count::<Block>(), 2 * alone.count::<Block>());
    let names: Vec<&str> = both.manifest.devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["one", "three"]);
    let text = export(&both, &at("base"), false).unwrap_err().to_string();
    assert!(text.contains("name a folder") && !at("base.blktrace.0").exists(), "{text}");
    export(&both, &at("folder/"), false).unwrap();
    for name in ["one.blktrace.0", "one.blktrace.1", "three.blktrace.0", "three.blktrace.1"] {
        assert!(fs::read(at("folder").join(name)).unwrap() == fs::read(at(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_reel_without_requests_has_no_block_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.reel");
    let m = Manifest::new(ioreel_traces::manifest::Kind::Synthetic, "synthetic");
    ioreel_traces::ReelWriter::create(&path, &m, ioreel_traces::WriterOptions::default()).unwrap().close(m).unwrap();
    let text = export(&Reel::open(&path).unwrap(), &dir.path().join("x"), false).unwrap_err().to_string();
    assert!(text.contains("no requests and no bios in this reel"), "{text}");
}

#[test]
fn an_anonymized_trace_is_a_trace_without_names() {
    use ioreel_traces::{anonymize::Key, anonymized::anonymize};
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let clear = imported(&[data().join(FSYNC).join("vda")], &at("clear.reel"));
    anonymize(&clear, &at("hidden.reel"), &Key::random().unwrap()).unwrap();
    assert!(validate(&at("hidden.reel"), false).unwrap().valid);
    export(&Reel::open(at("hidden.reel")).unwrap(), &at("x"), false).unwrap();
    let (before, after) = (printed(&data().join(FSYNC).join("vda")), printed(&at("x")));
    assert!(before.contains("[ext4lazyinit]") && !after.contains("ext4lazyinit"), "{after}");
    assert_eq!(lines(&before), lines(&after));
}

/// Folders in an archive may have files of the same names, and notes beside them.
#[test]
fn traces_in_an_archive_are_told_apart_by_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for folder in ["one", "two"] {
        fs::create_dir(at(folder)).unwrap();
        fs::copy(data().join(FSYNC).join("vda.blktrace.0"), at(folder).join("vda.blktrace.0")).unwrap();
    }
    fs::copy(data().join(FSYNC).join("vda.blktrace.1"), at("one/vda.blktrace.1")).unwrap();
    fs::write(at("one/README"), "A trace of fsync.\n").unwrap();
    let pack = |archive: &str, members: &[&str]| {
        let done = Command::new("tar").arg("-cf").arg(archive).args(members).current_dir(dir.path()).status();
        assert!(done.unwrap().success());
    };
    pack("one.tar", &["one"]);
    let told = std::cell::Cell::new(None);
    import::detect::import(&[at("one.tar")], &at("one.reel"), |format| told.set(Some(format))).unwrap();
    assert_eq!(told.get(), Some(import::detect::Format::Blktrace));
    let (packed, plain) = (Reel::open(at("one.reel")).unwrap(), imported(&[at("one")], &at("plain.reel")));
    assert_eq!(packed.read::<Block>().unwrap(), plain.read::<Block>().unwrap());
    assert!(packed.manifest.warnings.iter().any(|w| w.contains("README")), "{:?}", packed.manifest.warnings);
    pack("both.tar", &["one/vda.blktrace.0", "one/vda.blktrace.1", "two"]);
    assert!(refused(&[at("both.tar")], &at("both.reel")).contains("is another trace named vda"));
}
