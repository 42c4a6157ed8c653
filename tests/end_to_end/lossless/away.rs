//! What a program brings elsewhere than at the end of its calls on the CPU they were made on: requests that other threads
//! and other CPUs carry out, and stores to memory.

use std::{
    collections::BTreeSet, env, fs, mem::size_of_val, os::fd::AsRawFd, path::Path, process::Stdio, time::Duration,
};

use ioreel_traces::{
    Reel,
    rows::{Op, Stop},
};

use super::{children, guardian, hinder, kill, state};
use crate::{
    harness::{describe, finish, record, succeed, temp_dir, text, wait_for},
    uring::ring::{Ring, SQPOLL, sqe, with_flags},
};

/// The argument that makes the test program the recorded one.
pub(crate) const WORD: &str = "lossless-workload";

const READ: u8 = 22;
const ASYNC: u8 = 16;
const REGISTER_WORKERS_CPUS: u32 = 17;
/// Requests, this many at a time.
const REQUESTS: usize = 32_768;
const AT_A_TIME: usize = 32;
/// Stores, each to a page of its own.
const PAGES: usize = 16_384;
const PAGE: usize = 4096;
/// In a file of this length.
pub(crate) const STORED_BYTES: usize = PAGE * PAGES;

/// The recorded program.
pub(crate) fn work(what: &str, file: &str) {
    fs::write(format!("{file}.begun"), "").unwrap();
    let go = format!("{file}.go");
    while !fs::exists(&go).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    match what {
        "workers" => {
            on_cpu(0);
            let ring = Ring::new(AT_A_TIME as u32, 0);
            let mask = 2u64;
            let len = size_of_val(&mask) as u32;
            assert_eq!(ring.register(REGISTER_WORKERS_CPUS, (&raw const mask).cast(), len), 0);
            read(&ring, file.as_raw_fd(), ASYNC);
        }
        "polled" => read(&Ring::new(AT_A_TIME as u32, SQPOLL), file.as_raw_fd(), 0),
        "stores" => {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping, inside which the stores are.
            unsafe {
                let map = libc::mmap(std::ptr::null_mut(), STORED_BYTES, prot, libc::MAP_SHARED, file.as_raw_fd(), 0);
                assert_ne!(map, libc::MAP_FAILED);
                // Nothing is read ahead, so that a fault brings one page.
                assert_eq!(libc::madvise(map, STORED_BYTES, libc::MADV_RANDOM), 0);
                for page in 0..PAGES {
                    map.cast::<u8>().add(page * PAGE).read_volatile();
                }
                for page in 0..PAGES {
                    map.cast::<u8>().add(page * PAGE).write_volatile(1);
                }
            }
        }
        _ => panic!("no work {what}"),
    }
}

fn read(ring: &Ring, fd: i32, flags: u8) {
    let mut bytes = [0u8; AT_A_TIME];
    for batch in 0..REQUESTS / AT_A_TIME {
        let entries: Vec<_> = (0..AT_A_TIME)
            .map(|i| {
                let number = batch * AT_A_TIME + i;
                let to = (&raw mut bytes[i]) as u64;
                with_flags(sqe(READ, fd, number as i64, to, 1, 0, number as u64), flags)
            })
            .collect();
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

fn recorded(what: &str) -> Vec<Op> {
    let out = temp_dir();
    let (path, file) = (out.path().join("x.reel"), out.path().join("file"));
    // One hole, of which no page is cached.
    fs::File::create(&file).unwrap().set_len(STORED_BYTES as u64).unwrap();
    let own = env::current_exe().unwrap();
    let options = ["--ring-mib", "1", "--no-snapshot", "--lossless"];
    let child = record(&path, &options, &[text(&own), WORD, what, text(&file)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the recording to begin", || path.join("manifest.json").exists().then_some(()));
    // Far from any end of a drain the rings fill, and only then the rest is watched.
    wait_for("the program to begin", || out.path().join("file.begun").exists().then_some(()));
    let pid = children(child.id()).into_iter().find(|p| !guardian(*p)).unwrap();
    kill(child.id(), libc::SIGSTOP);
    fs::write(out.path().join("file.go"), "").unwrap();
    wait_for("the program to be stopped", || matches!(state(pid), Some('T' | 'Z') | None).then_some(()));
    let stop_hindering = hinder(child.id());
    wait_for("the program's end", || matches!(state(pid), Some('Z') | None).then_some(()));
    stop_hindering();
    let output = finish(child);
    assert!(output.status.success(), "{}", describe(&output));
    assert_nothing_lost(&path)
}

fn assert_nothing_lost(path: &Path) -> Vec<Op> {
    succeed(&mut crate::harness::ioreel(["validate", text(path)]));
    let reel = Reel::open(path).unwrap();
    let m = &reel.manifest;
    assert_eq!(m.ledger["ops"].lost, 0, "{:?} {:?}", m.ledger, m.left_out);
    assert!(!reel.read::<Stop>().unwrap().is_empty(), "the rings never filled");
    reel.read::<Op>().unwrap()
}

fn assert_all_requests(what: &str) {
    let mut numbers: Vec<i64> = recorded(what)
        .iter()
        .filter(|o| o.source == "io_uring" && o.op == "read")
        .filter_map(|o| o.user_data)
        .collect();
    numbers.sort_unstable();
    assert!(numbers == (0..REQUESTS as i64).collect::<Vec<_>>(), "{} requests", numbers.len());
}

/// They end on another CPU than that of the calls, whose own ring stays nearly empty.
pub(crate) fn requests_in_workers() {
    assert_all_requests("workers");
}

/// The program makes no calls at all.
pub(crate) fn requests_of_a_polled_queue() {
    assert_all_requests("polled");
}

/// No more does this one.
pub(crate) fn stores_to_memory() {
    let ops = recorded("stores");
    let of = |op: &str| -> BTreeSet<i64> { ops.iter().filter(|o| o.op == op).filter_map(|o| o.offset_bytes).collect() };
    let all: BTreeSet<i64> = (0..PAGES).map(|page| (page * PAGE) as i64).collect();
    let (touched, dirty) = (of("fault"), of("dirty"));
    assert!(touched.is_superset(&all) && dirty == all, "{} touched, {} dirty", touched.len(), dirty.len());
}
