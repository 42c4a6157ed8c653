//! blktrace as a witness: one workload recorded by both at once. Only where debugfs is open to blktrace, as in the guests of
//! `make test-kernels`.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use ioreel_traces::{
    Reel,
    rows::{Bio, Block},
};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text, wait_for,
};

/// Most that the two may be apart at the median, ns.
const APART_NS: i64 = 50_000;

/// Whether blktrace can run here.
pub(crate) fn is_here() -> bool {
    fs::read_dir("/sys/kernel/debug/block").is_ok()
}

/// The same requests - sector, size, direction - in the same order, their issue and completion within 50 us at the median.
pub(crate) fn blktrace_sees_the_same(fs: Fs) {
    let (mount, dir) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let device = mount.device_below();
    let name = device.file_name().unwrap().to_str().unwrap();
    let mut blktrace = Command::new("blktrace")
        .args(["-d", text(device), "-o", "seen", "-D", text(dir.path()), "-b", "2048", "-n", "8"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let running = format!("/sys/kernel/debug/block/{name}/trace0");
    wait_for("blktrace", || Path::new(&running).exists().then_some(()));
    let reel = dir.path().join("reel");
    let work = format!(
        "cd {}; mkdir d; for i in 1 2 3 4 5 6 7 8; do head -c 200000 /dev/urandom > d/$i; done; sync; \
         dd if=/dev/zero of=big bs=256k count=16 oflag=direct 2>&1; dd if=big of=/dev/null bs=4k count=500 iflag=direct 2>&1; rm -r d; sync",
        text(mount.path())
    );
    succeed(&mut record(&reel, &[], &["sh", "-c", &work]));
    // SAFETY: the child has not been waited for, so its number is its own.
    unsafe { libc::kill(blktrace.id() as i32, libc::SIGINT) };
    assert!(blktrace.wait().unwrap().success());
    let imported = dir.path().join("imported");
    succeed(&mut ioreel(["import", "blktrace", text(&dir.path().join("seen")), "-o", text(&imported)]));

    let dev = crate::block::attribution::number(device);
    let requests = |reel: &Reel| -> Vec<Block> {
        let mut all: Vec<Block> = reel.read::<Block>().unwrap().into_iter().filter(|b| b.dev == dev).collect();
        all.sort_by_key(|b| b.issue_ns);
        all
    };
    let (ours, theirs) = (assert_valid(&reel), Reel::open(&imported).unwrap());
    // The recorder looks at the file system's layout while it records, and leaves that out of its reel.
    let bios = theirs.read::<Bio>().unwrap();
    let own: HashSet<i64> = bios.iter().filter(|b| b.comm.starts_with("ioreel")).filter_map(|b| b.rq_id).collect();
    let (ours, mut theirs) = (requests(&ours), requests(&theirs));
    theirs.retain(|b| !own.contains(&b.rq_id));
    assert!(ours.len() > 500, "{} requests", ours.len());
    // blktrace began before and ended after: ours are a piece of theirs, without a gap.
    let what = |b: &Block| (b.op.to_string(), b.sector, b.len_bytes);
    let first = theirs
        .windows(ours.len())
        .position(|w| w.iter().zip(&ours).all(|(a, b)| what(a) == what(b)))
        .unwrap_or_else(|| panic!("{}", first_difference(&ours, &theirs)));
    let theirs = &theirs[first..first + ours.len()];
    let median = |mut all: Vec<i64>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    // Their clocks begin at different moments.
    let shift = median(ours.iter().zip(theirs).map(|(a, b)| a.issue_ns - b.issue_ns).collect());
    let apart = |of: fn(&Block) -> Option<i64>| {
        let pairs = ours.iter().zip(theirs).filter_map(|(a, b)| Some((of(a)? - of(b)? - shift).abs()));
        median(pairs.collect())
    };
    let (issue_ns, complete_ns) = (apart(|b| Some(b.issue_ns)), apart(|b| b.complete_ns));
    eprintln!("{}: {} requests alike; issue {issue_ns} ns, completion {complete_ns} ns apart", fs.name(), ours.len());
    assert!(issue_ns <= APART_NS && complete_ns <= APART_NS, "issue {issue_ns} ns, completion {complete_ns} ns apart");
}

/// Where the two part, for a message.
fn first_difference(ours: &[Block], theirs: &[Block]) -> String {
    let what = |b: &Block| (b.op.to_string(), b.sector, b.len_bytes);
    let Some(begin) = theirs.iter().position(|t| ours.first().is_some_and(|o| what(t) == what(o))) else {
        return format!("blktrace has no request like our first, {:?}", ours.first().map(what));
    };
    let alike = ours.iter().zip(&theirs[begin..]).take_while(|(a, b)| what(a) == what(b)).count();
    let around = |rows: &[Block]| rows.iter().take(4).map(what).collect::<Vec<_>>();
    let (a, b) = (around(&ours[alike..]), around(theirs.get(begin + alike..).unwrap_or_default()));
    format!("{} of ours, {} of theirs; the first {alike} are alike, then\n{a:?}\n{b:?}", ours.len(), theirs.len())
}
