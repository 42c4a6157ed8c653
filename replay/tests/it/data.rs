//! Generated data: compressibility and repetition as asked for, and checks of data read (`--verify`).

use std::{
    collections::HashSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use ioreel_replay::{Config, Replay, Report, Slice, contents::data::DataOptions, session::watch::Unwatched};

use crate::reel::{Draft, THREAD, config};

fn run(config: Config) -> Report {
    Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap()
}

fn place(dir: &Path, name: &str) -> PathBuf {
    let target = dir.join(name);
    fs::create_dir(&target).unwrap();
    target
}

/// Share that compression saves, from 0 to 1.
fn saved(path: &Path) -> f64 {
    let data = fs::read(path).unwrap();
    let mut e = zstd::Encoder::new(Vec::new(), 3).unwrap();
    e.write_all(&data).unwrap();
    1.0 - e.finish().unwrap().len() as f64 / data.len() as f64
}

/// One megabyte by long writes, one by short ones, and one in a file that existed.
fn megabytes() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/old", "regular", 1 << 20);
    d.create(1, "long", 1, 3);
    for i in 0..8 {
        d.io(1, "write", 3, i << 17, 1 << 17, 1 << 17);
    }
    d.create(1, "short", 2, 4);
    for i in 0..256 {
        let o = d.io(1, "pwritev", 4, i * 4096, 4096, 4096);
        o.aux = Some(2);
    }
    d
}

#[test]
fn as_compressible_as_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let reel = megabytes().write(dir.path());
    for (permille, verify) in [(0, false), (300, false), (750, false), (500, true), (1000, true)] {
        let target = place(dir.path(), &format!("{permille}-{verify}"));
        let data = DataOptions { saved_permille: Some(permille), verify, ..DataOptions::default() };
        let report = run(Config { data, ..config(reel.clone(), &target) });
        assert!(report.verdict.faithful, "{}", report.verdict.sentence);
        for name in ["long", "short", "old"] {
            let found = saved(&target.join("w").join(name));
            assert!((found - f64::from(permille) / 1000.0).abs() < 0.02, "{permille} wanted, {name} {found}");
            assert!(!fs::read(target.join("w").join(name)).unwrap().contains(&0));
        }
    }
}

#[test]
fn as_often_repeated_as_wanted() {
    let dir = tempfile::tempdir().unwrap();
    let reel = megabytes().write(dir.path());
    let blocks = |target: &Path| {
        let all: Vec<Vec<u8>> = ["long", "short"]
            .iter()
            .flat_map(|n| {
                fs::read(target.join("w").join(n)).unwrap().chunks(4096).map(<[u8]>::to_vec).collect::<Vec<_>>()
            })
            .collect();
        1.0 - all.iter().collect::<HashSet<_>>().len() as f64 / all.len() as f64
    };
    for (permille, wanted) in [(0, 0.0), (500, 0.5), (900, 0.9)] {
        let target = place(dir.path(), &permille.to_string());
        let data = DataOptions { repeated_permille: Some(permille), ..DataOptions::default() };
        run(Config { data, ..config(reel.clone(), &target) });
        let found = blocks(&target);
        assert!((found - wanted).abs() < 0.08, "{wanted} wanted, {found} found");
    }
    let seeds = [7, 7, 8].map(|seed| {
        let target = tempfile::tempdir_in(dir.path()).unwrap();
        let data = DataOptions { seed, repeated_permille: Some(0), ..DataOptions::default() };
        run(Config { data, ..config(reel.clone(), target.path()) });
        fs::read(target.path().join("w/long")).unwrap()
    });
    assert!(seeds[0] == seeds[1] && seeds[0] != seeds[2]);
}

#[test]
fn as_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    for (i, (name, hash, saved)) in
        [("a", "00112233445566778899", 600), ("b", "00112233445566778899", 600), ("c", "aa112233445566778899", 0)]
            .into_iter()
            .enumerate()
    {
        let fd = 3 + i as i64;
        d.create(1, name, 1 + i as i64, fd);
        let o = d.io(1, "write", fd as i32, 0, 200_000, 200_000);
        (o.content_hash, o.compressibility_permille) = (Some(hash.into()), Some(saved));
    }
    let target = place(dir.path(), "t");
    run(config(d.write(dir.path()), &target));
    let read = |name: &str| fs::read(target.join("w").join(name)).unwrap();
    assert!(read("a") == read("b") && read("a") != read("c"), "what was equal is equal");
    assert!((saved(&target.join("w/a")) - 0.6).abs() < 0.02 && saved(&target.join("w/c")) < 0.02);
}

/// Writes of all kinds, some by another thread, and reads of their data.
fn mixed() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/old", "regular", 20_000).link_id = Some(1);
    d.had("/w/twin", "regular", 20_000).link_id = Some(1);
    d.open(1, "twin", libc::O_RDWR | libc::O_APPEND, 1, 3);
    d.io(1, "pread64", 3, 100, 30_000, 19_900);
    d.io(1, "write", 3, 20_000, 333, 333);
    d.create(1, "new", 2, 4);
    d.io(1, "write", 4, 0, 10_001, 10_001);
    d.fork(1, 2, THREAD);
    d.io(2, "write", 4, 10_001, 777, 777);
    d.io(1, "pwrite64", 4, 50_000, 5000, 5000);
    d.on(1, "rename", "new", 0).path2 = Some("moved".into());
    let o = d.io(2, "preadv", 4, 5000, 60_000, 50_000);
    o.aux = Some(3);
    d.fd(1, "ftruncate", 4, 0).len_bytes = Some(7000);
    d.fd(1, "ftruncate", 4, 0).len_bytes = Some(9000);
    d.io(2, "pread64", 4, 0, 60_000, 9000);
    d.open(2, "old", libc::O_RDONLY, 1, 5);
    d.io(2, "read", 5, 0, 65_536, 20_333);
    let o = d.op(1, "copy_file_range", 3000);
    (o.fd, o.fd2, o.offset_bytes, o.offset2_bytes) = (Some(5), Some(4), Some(0), Some(9000));
    (o.len_bytes, o.file, o.file2, o.aux) = (Some(3000), Some(1), Some(2), Some(0));
    d.io(2, "pread64", 4, 0, 60_000, 12_000);
    d
}

#[test]
fn what_is_read_is_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let reel = mixed().write(dir.path());
    let data = DataOptions { verify: true, ..DataOptions::default() };
    let report = run(Config { data, ..config(reel.clone(), &place(dir.path(), "all")) });
    let found = report.data.unwrap();
    assert!(report.verdict.faithful, "{} {found:#?}", report.verdict.sentence);
    assert_eq!((found.bad_bytes, found.unchecked_bytes), (0, 12_000), "{found:?}");
    assert_eq!(found.good_bytes, 19_900 + 50_000 + 9000 + 20_333);
    // Holes: from 10,778 to 50,000, and a range that was cut off and extended again.
    assert_eq!(found.hole_bytes, 50_000 - 10_778 + 2000);

    // In two slices, the second in the target of the first: the data matches, and damage in between is found.
    let border = 95_000;
    let (first, second) = (Slice { from_ns: 0, to_ns: border }, Slice { from_ns: border, to_ns: i64::MAX });
    for damage in [None, Some("w/moved"), Some("w/old")] {
        let target = place(dir.path(), &format!("parts-{}", damage.unwrap_or("").replace('/', "-")));
        let part = |slice, skip_prepare| {
            let report = run(Config { data, slice, skip_prepare, ..config(reel.clone(), &target) });
            (report.data.clone().unwrap(), report)
        };
        let (before, _) = part(first, false);
        assert_eq!(before.bad_bytes, 0);
        if let Some(name) = damage {
            let path = target.join(name);
            let mut content = fs::read(&path).unwrap();
            content[6000] ^= 0x10;
            fs::write(&path, content).unwrap();
        }
        let (after, report) = part(second, true);
        assert_eq!(after.bad_reads > 0, damage.is_some(), "{damage:?}: {after:#?}");
        assert_eq!(report.verdict.faithful, damage.is_none(), "{}", report.verdict.sentence);
        if damage.is_some() {
            assert_eq!(after.examples[0].offset_bytes, 6000);
            assert!(report.verdict.sentence.contains("wrong data"), "{}", report.verdict.sentence);
        }
    }
    // The second slice alone.
    let report = run(Config { data, slice: second, ..config(reel, &place(dir.path(), "alone")) });
    assert_eq!(report.data.unwrap().bad_bytes, 0);
}

#[test]
fn positions_at_the_end_of_all_numbers_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = Draft::new();
    d.create(1, "f", 1, 3);
    for at in [i64::MAX, i64::MAX - 1, i64::MAX - 4096, i64::MIN + 1, -1] {
        d.io(1, "pwrite64", 3, at, 0, 0);
        d.io(1, "pread64", 3, at, 0, 0);
        d.fd(1, "ftruncate", 3, -22).len_bytes = Some(at);
        d.io(1, "pread64", 3, at, i64::MAX, i64::MAX);
        d.io(1, "pwrite64", 3, at, i64::MAX, -27);
    }
    let reel = d.write(dir.path());
    for scale in [1.0, 0.001] {
        let data = DataOptions { verify: true, saved_permille: Some(500), ..DataOptions::default() };
        let scale = ioreel_replay::reel::footprint::Scale::new(scale).unwrap();
        let cache = ioreel_replay::prepare::page_cache::CacheStart::Recorded;
        let target = tempfile::tempdir_in(dir.path()).unwrap();
        // It may be refused for its size or have other results, but must neither panic nor hang.
        let config = Config { data, scale, cache, ..config(reel.clone(), target.path()) };
        if let Ok(replay) = Replay::plan(config) {
            let report = replay.run(Unwatched, |_| ()).unwrap();
            assert_eq!(report.data.unwrap().bad_bytes, 0);
        }
    }
}

/// Files with all kinds of holes, and a copy. Each is read after all changes.
fn holes() -> Draft {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/old", "regular", 10_000);
    d.had("/w/sparse", "regular", 100_000).alloc_bytes = Some(8192);
    for (i, name) in ["longer", "again", "beyond", "gap", "reserved", "copy"].into_iter().enumerate() {
        d.create(1, name, 1 + i as i64, 3 + i as i64);
    }
    d.open(1, "old", libc::O_RDWR, 7, 9);
    d.open(1, "sparse", libc::O_RDWR, 8, 10);
    let set = |d: &mut Draft, file: i64, len| {
        let o = d.fd(1, "ftruncate", 2 + file as i32, 0);
        (o.len_bytes, o.file) = (Some(len), Some(file));
    };
    let write =
        |d: &mut Draft, file: i64, at, len| d.io(1, "pwrite64", 2 + file as i32, at, len, len).file = Some(file);
    write(&mut d, 1, 0, 7642);
    set(&mut d, 1, 12_000);
    write(&mut d, 2, 0, 12_000);
    set(&mut d, 2, 7642);
    set(&mut d, 2, 12_000);
    write(&mut d, 3, 20_000, 300);
    write(&mut d, 4, 0, 3000);
    write(&mut d, 4, 3500, 3000);
    let o = d.fd(1, "fallocate", 7, 0);
    (o.offset_bytes, o.len_bytes, o.mode, o.file) = (Some(0), Some(9000), Some(0), Some(5));
    let o = d.op(1, "copy_file_range", 3000);
    (o.fd, o.fd2, o.offset_bytes, o.offset2_bytes) = (Some(9), Some(8), Some(5000), Some(0));
    (o.len_bytes, o.file, o.file2, o.aux) = (Some(3000), Some(7), Some(6), Some(0));
    write(&mut d, 7, 30_000, 5000);
    write(&mut d, 8, 60_000, 8192);
    d.fd(1, "lseek", 9, 0).aux = Some(0);
    for (file, len) in
        [(1, 12_000), (2, 12_000), (3, 20_300), (4, 6500), (5, 9000), (6, 3000), (7, 35_000), (8, 100_000)]
    {
        d.io(1, "pread64", 2 + file as i32, 0, 200_000, len).file = Some(file);
    }
    // The file is removed in the slice, but its contents before the slice are still known.
    d.fd(1, "close", 8, 0);
    d.on(1, "unlink", "copy", 0);
    d
}

/// For every slice border, and whether the files come from an earlier slice or from a preparation.
#[test]
fn holes_that_an_earlier_slice_left_are_none_of_the_target_s_doing() {
    let dir = tempfile::tempdir().unwrap();
    let d = holes();
    let (borders, first_read): (Vec<i64>, i64) = (
        d.ops.iter().map(|o| o.start_ns + o.dur_ns + 5000).collect(),
        d.ops.iter().find(|o| o.op == *"pread64").unwrap().start_ns,
    );
    let reel = d.write(dir.path());
    let data = DataOptions { verify: true, ..DataOptions::default() };
    let part = |target: &Path, from_ns, to_ns, skip_prepare| {
        let slice = Slice { from_ns, to_ns };
        Replay::plan(Config { data, slice, skip_prepare, ..config(reel.clone(), target) }).unwrap()
    };
    let checked = |replay: Replay| {
        let report = replay.run(Unwatched, |_| ()).unwrap();
        let found = report.data.clone().unwrap();
        assert_eq!(report.verdict.faithful, found.bad_reads == 0, "{}", report.verdict.sentence);
        found
    };
    for border in &borders[..borders.len() - 1] {
        let target = place(dir.path(), &format!("left-{border}"));
        assert_eq!(checked(part(&target, 0, *border, false)).bad_bytes, 0, "{border}");
        let found = checked(part(&target, *border, i64::MAX, true));
        assert_eq!(found.bad_bytes, 0, "{border}: {found:?}");
        let target = place(dir.path(), &format!("made-{border}"));
        part(&target, *border, i64::MAX, false).prepare(|_| ()).unwrap();
        let found = checked(part(&target, *border, i64::MAX, true));
        assert_eq!(found.bad_bytes, 0, "{border}: {found:?}");
    }
    // Bytes that are neither data nor zero are found anywhere; zeros are found where data was written without a gap.
    let damages = [("longer", 11_000, 7), ("again", 9000, 7), ("beyond", 5, 7), ("gap", 3200, 7), ("reserved", 100, 7)];
    let zeroed = [("longer", 100, 0), ("again", 4000, 0), ("old", 5000, 0), ("sparse", 8000, 0)];
    for (name, at, byte) in damages.into_iter().chain(zeroed) {
        let target = place(dir.path(), &format!("{name}-{at}"));
        checked(part(&target, 0, first_read, false));
        let path = target.join("w").join(name);
        let mut content = fs::read(&path).unwrap();
        assert_eq!(content[at] == 0, byte != 0, "{name}");
        content[at] = byte;
        fs::write(&path, content).unwrap();
        let found = checked(part(&target, first_read, i64::MAX, true));
        assert_eq!((found.bad_reads, found.bad_bytes, found.examples[0].offset_bytes), (1, 1, at as i64), "{name}");
    }
}
