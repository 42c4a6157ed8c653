//! More threads than CPUs: whoever loses the CPU, also inside a probe, costs the others nothing, be it calls or their ends.

use std::{
    collections::BTreeMap,
    env, fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use ioreel_traces::rows::{File, Op, Task};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

/// First argument that makes the test program the recorded one.
pub(crate) const WORD: &str = "crowd-workload";
const THREADS: usize = 6;
/// Writes of each thread of the first generation, and of each of the others.
const CALLS: usize = 5000;
const FEW_CALLS: usize = 20;
const GENERATIONS: usize = 300;

/// What is recorded: each thread writes to a file of its own, as fast as it can; at last many come and go.
pub(crate) fn work(dir: &Path) {
    for generation in 0..=GENERATIONS {
        let calls = if generation == 0 { CALLS } else { FEW_CALLS };
        std::thread::scope(|threads| {
            for thread in 0..THREADS {
                threads.spawn(move || {
                    let file = fs::File::create(file_of(dir, thread)).unwrap();
                    for i in 0..calls {
                        file.write_all_at(b"x", (i % 4096) as u64).unwrap();
                    }
                });
            }
        });
    }
}

fn file_of(dir: &Path, thread: usize) -> PathBuf {
    dir.join(thread.to_string())
}

pub(crate) fn every_call_is_there() {
    let (mount, out) = (Mounted::new(Fs::Tmpfs, DEFAULT_SIZE_BYTES), temp_dir());
    let reel = out.path().join("x.reel");
    let program = env::current_exe().unwrap();
    succeed(&mut record(&reel, &[], &[text(&program), WORD, text(mount.path())]));
    let reel = assert_valid(&reel);
    let skipped: Vec<_> = reel.manifest.probes.iter().filter(|p| p.missed > 0).collect();
    assert!(skipped.is_empty(), "{skipped:?}");
    let files: BTreeMap<i64, String> = {
        let files = reel.read::<File>().unwrap();
        files.into_iter().filter_map(|f| Some((f.file, f.path?.to_string()))).collect()
    };
    let mut writes = BTreeMap::new();
    for op in reel.read::<Op>().unwrap().iter().filter(|o| &*o.op == "pwrite64" && o.ret == Some(1)) {
        *writes.entry(op.file.and_then(|f| files.get(&f)).cloned().unwrap_or_default()).or_insert(0) += 1;
    }
    let calls = CALLS + GENERATIONS * FEW_CALLS;
    let expected = (0..THREADS).map(|t| (text(&file_of(mount.path(), t)).to_owned(), calls)).collect();
    assert_eq!(writes, expected);
    let tasks = reel.read::<Task>().unwrap();
    assert_eq!(tasks.len(), 1 + THREADS * (1 + GENERATIONS));
    assert!(tasks.iter().all(|t| t.exit_ns.is_some()), "{tasks:?}");
}
