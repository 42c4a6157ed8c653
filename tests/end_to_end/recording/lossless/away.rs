//! What a program brings elsewhere than at the end of its calls on the CPU they were made on: requests that other threads
//! and other CPUs carry out, and stores to memory.

use std::{
    collections::BTreeSet,
    env, fs,
    mem::size_of_val,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use ioreel_traces::{
    Reel,
    rows::{Op, Stop, Task},
};

use tempfile::TempDir;

use super::{children, guardian, hinder, kill, state};
use crate::{
    harness::{
        describe, finish, ioreel,
        mount::{Fs, Mounted, go_cold_with},
        record, succeed, temp_dir, text, wait_for,
    },
    uring::ring::{Ring, SQPOLL, Sqe, sqe, with_flags},
};

/// The argument that makes the test program the recorded one.
pub(crate) const WORD: &str = "lossless-workload";

const READ: u8 = 22;
const FSYNC: u8 = 3;
const LINK: u8 = 4;
const ASYNC: u8 = 16;
const REGISTER_WORKERS_CPUS: u32 = 17;
/// Requests, this many at a time.
const REQUESTS: usize = 32_768;
const AT_A_TIME: usize = 32;
/// Stores, each to a page of its own.
const PAGES: usize = 16_384;
const PAGE: usize = 4096;
/// Loads from pages that have to be read from a disk.
const LOADED_PAGES: usize = 4096;
/// In a file of this length.
pub(crate) const STORED_BYTES: usize = PAGE * PAGES;

/// The recorded program.
pub(crate) fn work(what: &str, name: &str) {
    if what == "behind bios" {
        scatter(name);
    }
    fs::write(format!("{name}.begun"), "").unwrap();
    let go = format!("{name}.go");
    while !fs::exists(&go).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let file = fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    match what {
        "workers" => read(&with_workers(), file.as_raw_fd(), ASYNC),
        "behind bios" => {
            // One after the other: the reads find the rings as the bios have left them.
            let mut bytes = [0u8; AT_A_TIME];
            let mut chain = vec![with_flags(sqe(FSYNC, file.as_raw_fd(), 0, 0, 0, 0, u64::MAX), LINK)];
            chain.extend((1..AT_A_TIME).map(|i| with_flags(read_one(file.as_raw_fd(), i, &mut bytes[i]), LINK)));
            let ring = with_workers();
            ring.submit(&chain, AT_A_TIME);
        }
        "polled" => read(&Ring::new(AT_A_TIME as u32, SQPOLL), file.as_raw_fd(), 0),
        "stores" => {
            let map = load(&file, PAGES);
            for page in 0..PAGES {
                // SAFETY: inside the mapping.
                unsafe { map.add(page * PAGE).write_volatile(1) };
            }
        }
        "loads" => {
            let memory = fs::File::options().create_new(true).read(true).write(true).open(format!("{name}2")).unwrap();
            memory.set_len(STORED_BYTES as u64).unwrap();
            // What is in memory comes so fast that it fills the rings while the other thread waits for the disk.
            let cold = std::thread::spawn(move || {
                load(&file, LOADED_PAGES);
            });
            load(&memory, PAGES);
            cold.join().unwrap();
        }
        _ => panic!("no work {what}"),
    }
}

/// Loads from the file's first pages, through a mapping of it. Nothing is read ahead, so that a fault brings one page.
fn load(file: &fs::File, pages: usize) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, inside which the loads are.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), STORED_BYTES, prot, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(libc::madvise(map, STORED_BYTES, libc::MADV_RANDOM), 0);
        for page in 0..pages {
            map.cast::<u8>().add(page * PAGE).read_volatile();
        }
        map.cast()
    }
}

/// Of which every other page is dirty.
fn scatter(file: &str) {
    let file = fs::OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&vec![1; STORED_BYTES], 0).unwrap();
    file.sync_all().unwrap();
    for page in (0..PAGES).step_by(2) {
        file.write_all_at(&[2], (page * PAGE) as u64).unwrap();
    }
}

/// A ring whose requests are made on one CPU and carried out on another.
fn with_workers() -> Ring {
    on_cpu(0);
    let ring = Ring::new(AT_A_TIME as u32, 0);
    let mask = 2u64;
    let len = size_of_val(&mask) as u32;
    assert_eq!(ring.register(REGISTER_WORKERS_CPUS, (&raw const mask).cast(), len), 0);
    ring
}

fn read_one(fd: i32, number: usize, to: &mut u8) -> Sqe {
    sqe(READ, fd, number as i64, (&raw mut *to) as u64, 1, 0, number as u64)
}

fn read(ring: &Ring, fd: i32, flags: u8) {
    let mut bytes = [0u8; AT_A_TIME];
    for batch in 0..REQUESTS / AT_A_TIME {
        let entries: Vec<_> =
            (0..AT_A_TIME).map(|i| with_flags(read_one(fd, batch * AT_A_TIME + i, &mut bytes[i]), flags)).collect();
        let mut done = ring.submit(&entries, AT_A_TIME);
        while done.len() < AT_A_TIME {
            done.extend(ring.reap());
        }
        assert!(done.iter().all(|c| c.1 == 1), "{done:?}");
    }
}

/// This thread, and those it makes.
fn on_cpu(cpu: usize) {
    // SAFETY: a set of zeroes, of the length told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// A reel, and its folder.
struct Recorded(Reel, TempDir);

/// One hole, of which no page is cached.
fn hole(place: &Path) -> PathBuf {
    let file = place.join("file");
    fs::File::create(&file).unwrap().set_len(STORED_BYTES as u64).unwrap();
    file
}

/// A recording of the program, of which no operation is lost.
fn recorded(what: &str, file: &Path, options: &[&str]) -> Recorded {
    let out = temp_dir();
    let path = out.path().join("x.reel");
    let beside = |what: &str| file.with_extension(what);
    let own = env::current_exe().unwrap();
    let options = [&["--ring-mib", "1", "--no-snapshot", "--lossless"], options].concat();
    let child = record(&path, &options, &[text(&own), WORD, what, text(file)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the recording to begin", || path.join("manifest.json").exists().then_some(()));
    // Far from any end of a drain the rings fill, and only then the rest is watched.
    wait_for("the program to begin", || beside("begun").exists().then_some(()));
    let pid = children(child.id()).into_iter().find(|p| !guardian(*p)).unwrap();
    kill(child.id(), libc::SIGSTOP);
    fs::write(beside("go"), "").unwrap();
    wait_for("the program to be stopped", || matches!(state(pid), Some('T' | 'Z') | None).then_some(()));
    let stop_hindering = hinder(child.id());
    wait_for("the program's end", || matches!(state(pid), Some('Z') | None).then_some(()));
    stop_hindering();
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    succeed(&mut ioreel(["validate", text(&path)]));
    let reel = Reel::open(&path).unwrap();
    let m = &reel.manifest;
    assert_eq!(m.ledger["ops"].lost, 0, "{:?} {:?}", m.ledger, m.left_out);
    assert!(!reel.read::<Stop>().unwrap().is_empty(), "the rings never filled");
    Recorded(reel, out)
}

fn numbers_of_reads(recorded: &Recorded) -> Vec<i64> {
    let reads = recorded.0.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.source == "io_uring" && o.op == "read");
    let mut numbers: Vec<i64> = reads.filter_map(|o| o.user_data).collect();
    numbers.sort_unstable();
    numbers
}

fn assert_all_requests(what: &str, options: &[&str]) {
    let place = temp_dir();
    let numbers = numbers_of_reads(&recorded(what, &hole(place.path()), options));
    assert!(numbers == (0..REQUESTS as i64).collect::<Vec<_>>(), "{} requests", numbers.len());
}

/// They end on another CPU than that of the calls, whose own ring stays nearly empty.
pub(crate) fn requests_in_workers() {
    assert_all_requests("workers", &[]);
}

/// The calls that ask for them are not in the reel: all the same they are where the program can be stopped.
pub(crate) fn requests_by_calls_left_out() {
    assert_all_requests("workers", &["--op", "read"]);
}

/// The program makes no calls at all.
pub(crate) fn requests_of_a_polled_queue() {
    assert_all_requests("polled", &[]);
}

/// Bios, which cannot be stopped, leave room to what comes after them.
pub(crate) fn requests_behind_bios() {
    let disk = Mounted::new(Fs::Ext4, 256 << 20);
    let recorded = recorded("behind bios", &hole(disk.path()), &[]);
    let m = &recorded.0.manifest;
    assert!(m.ledger["bio"].lost > 0, "bios never filled the rings: {:?}", m.ledger);
    assert_eq!(numbers_of_reads(&recorded), (1..AT_A_TIME as i64).collect::<Vec<_>>());
}

/// The program makes no calls here, either. Its memory may become that of a huge page, which is dirty at once.
pub(crate) fn stores_to_memory() {
    let place = temp_dir();
    let Recorded(reel, _out) = recorded("stores", &hole(place.path()), &[]);
    let ops = reel.read::<Op>().unwrap();
    let of = |op: &str| -> BTreeSet<usize> {
        let pages = |o: &Op| Some(o.offset_bytes? as usize / PAGE..(o.offset_bytes? + o.len_bytes?) as usize / PAGE);
        ops.iter().filter(|o| o.op == op).filter_map(pages).flatten().collect()
    };
    let (touched, dirty) = (of("fault"), of("dirty"));
    let all: BTreeSet<usize> = (0..PAGES).collect();
    assert!(touched.is_superset(&all) && dirty == all, "{} touched, {} dirty", touched.len(), dirty.len());
}

/// A touch whose page has to be read ends when it is tried again, which a stop comes before.
pub(crate) fn loads_that_stand_still() {
    let disk = Mounted::new(Fs::Ext4, 256 << 20);
    let file = disk.path().join("file");
    fs::write(&file, vec![1; STORED_BYTES]).unwrap();
    go_cold_with(&[&file]);
    let Recorded(reel, _out) = recorded("loads", &file, &[]);
    let touches: Vec<Op> = reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.op == "fault").collect();
    assert!(touches.iter().filter(|o| o.dur_ns > 0).count() > LOADED_PAGES / 2, "nothing was read");
    let stops = reel.read::<Stop>().unwrap();
    let in_midst = |o: &Op, ns: i64| o.start_ns <= ns && ns < o.start_ns + o.dur_ns;
    let within = |o: &&Op| stops.iter().any(|s| in_midst(o, s.start_ns + s.dur_ns / 2));
    let stood_still = touches.iter().find(within);
    assert!(stood_still.is_none(), "its time is the recorder's: {stood_still:?}");
}

/// Who could be stopped could not resume the others.
pub(crate) fn a_guardian_is_not_recorded() {
    let out = temp_dir();
    let path = out.path().join("x.reel");
    let options = ["--all", "--lossless", "--no-snapshot", "--duration", "1s"];
    let child = record(&path, &options, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let own = wait_for("the guardian", || children(child.id()).into_iter().find(|p| guardian(*p)));
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    // Those of other recorders may be: who stops them is not who they guard against.
    let tasks = Reel::open(&path).unwrap().read::<Task>().unwrap();
    assert!(tasks.len() > 1 && !tasks.iter().any(|t| t.pid as u32 == own), "{tasks:?}");
}
