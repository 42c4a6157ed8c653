//! A recorded program replayed in parts: each operation in one of them, and the same tree in the end.

use std::{fs, path::Path};

use ioreel_traces::rows::Op;
use serde_json::Value;

use crate::harness::{
    assert_valid, describe, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, run, succeed, temp_dir, text,
};

/// git, a copy, threads that rename into place, files without a name, shared descriptors.
const WORK: &str = "
    export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    umask 027; mkdir source; for f in $(seq 12); do head -c $((f * 1337)) /dev/zero >source/$f; done
    git -C source init -q; git -C source add .; git -C source commit -qm one
    cp -a source copied; rm -r source
    (echo one; cat copied/3; echo two) >joined 2>&1
    python3 -c \"
import os, threading, tempfile
f = tempfile.TemporaryFile(dir='.'); f.write(b'x' * 50000); f.flush(); f.seek(10)
g = open('gone', 'w+b'); g.write(b'y' * 9000); g.flush(); os.unlink('gone'); g.seek(5)
def make():
    for i in range(40):
        with open(f'tmp-{i}', 'wb') as h: h.write(b'x' * (i * 37 + 1))
        os.rename(f'tmp-{i}', f'done-{i}')
def take():
    for i in range(40):
        while not os.path.exists(f'done-{i}'): pass
        os.read(f.fileno(), 100); os.unlink(f'done-{i}')
t = [threading.Thread(target=w) for w in (make, take)]
[x.start() for x in t]; [x.join() for x in t]
g.read(); g.write(b'z' * 100); g.close()\"";

/// What a replay into this directory says of itself; it must be faithful.
fn replay(reel: &Path, target: &Path, options: &[&str]) -> Value {
    let words = ["replay", text(reel), "--target", text(target), "--max-own-lateness", "1h", "--json"];
    let output = run(&mut ioreel(words.iter().chain(options)));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", describe(&output)));
    let verdict = &report["verdict"];
    assert_eq!(verdict["faithful"], true, "{options:?}: {verdict:#}");
    let edges = verdict["timing"]["edges"].as_object().unwrap();
    assert!(edges.values().all(|e| e["violations"] == 0), "{options:?}: {edges:?}");
    assert_eq!(report["warnings"], Value::Array(Vec::new()), "{options:?}");
    report
}

/// Before a border, after it in the same place, and after it alone.
pub(crate) fn parts_of_a_program() {
    let out = temp_dir();
    let (work, reel) = (out.path().join("work"), out.path().join("work.reel"));
    fs::create_dir(&work).unwrap();
    succeed(record(&reel, &["--settle", "none"], &["sh", "-ec", WORK]).current_dir(&work));
    let mut ends: Vec<i64> = assert_valid(&reel)
        .rows::<Op>()
        .map(|op| op.unwrap())
        .filter(|op| op.source == *"syscall")
        .map(|op| op.start_ns + op.dur_ns)
        .collect();
    ends.sort_unstable();
    let target = Mounted::new(Fs::Tmpfs, DEFAULT_SIZE_BYTES);
    let place = |name: &str| {
        let dir = target.path().join(name);
        fs::create_dir(&dir).unwrap();
        dir
    };
    let digest = |report: &Value| report["verdict"]["tree"]["full_digest"].clone();
    let whole = replay(&reel, &place("whole"), &[]);
    // The last in the midst of the threads.
    for share in [0.2, 0.5, 0.7, 0.97] {
        let at = ends[(ends.len() as f64 * share) as usize];
        let border = format!("{}.{:09}", at / 1_000_000_000, at % 1_000_000_000);
        let (split, alone) = (place(&format!("split-{share}")), place(&format!("alone-{share}")));
        let before = replay(&reel, &split, &["--to", &border]);
        let after = replay(&reel, &split, &["--from", &border, "--skip-prepare"]);
        let done = |r: &Value| r["done"].as_i64().unwrap();
        assert_eq!(done(&before) + done(&after), done(&whole), "each operation is in one part");
        assert_eq!(digest(&after), digest(&whole), "{border}: {:#}", after["verdict"]["tree"]);
        assert_eq!(digest(&replay(&reel, &alone, &["--from", &border])), digest(&whole), "{border}, alone");
    }
}
