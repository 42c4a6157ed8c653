//! Counts by call, held against an observer that shares nothing with the recorder: `bpf/syscalls.bt`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_capture::calls;
use ioreel_traces::rows::{Exec, Op, Task};

use crate::harness::{assert_valid, record, succeed, temp_dir, text};

/// Where the scripts are.
fn script(name: &str) -> PathBuf {
    let root = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    root.join("bpf").join(name)
}

/// What is done: many programs, many calls, in a folder of its own.
const JOB: &str = r#"
cd "$(dirname "$0")/work" || exit 1
mkdir -p a/b
i=0
while [ $i -lt 40 ]; do
    echo "line $i" >a/f$i
    cat a/f$i >>a/all
    i=$((i + 1))
done
cp -a a c
tar cf x.tar a
tar xf x.tar -C c
ls -lR . >list
find . -type f -name 'f*' | xargs stat >stats
mv a/f1 a/b/moved
ln -s a link
ln a/f2 hard
chmod 600 a/f3
touch -d @1000 a/f4
dd if=a/all of=copy bs=13 count=20 conv=fsync 2>/dev/null
dd if=a/all of=b.bin bs=7 seek=3 conv=notrunc 2>/dev/null
truncate -s 100000 big
cmp copy a/all >/dev/null
rm -r c
sync copy
df . >/dev/null
(cd a && ls >/dev/null) &
wait
"#;

/// Calls that are recorded only under conditions that the observer does not know.
const CONDITIONAL: [&str; 13] = [
    "fcntl",
    "ioctl",
    "mmap",
    "munmap",
    "msync",
    "mremap",
    "madvise",
    "mincore",
    "remap_file_pages",
    "sendmsg",
    "recvmsg",
    "sendmmsg",
    "recvmmsg",
];

pub(crate) fn counts_are_those_of_bpftrace() {
    let out = temp_dir();
    fs::create_dir(out.path().join("work")).unwrap();
    let job = out.path().join("job.sh");
    fs::write(&job, JOB).unwrap();
    let reel = out.path().join("observed.reel");
    let program = format!("/bin/sh {}", text(&job));
    let observer = ["bpftrace", "-c", &program, text(&script("syscalls.bt"))].map(str::to_owned);
    let observer: Vec<&str> = observer.iter().map(String::as_str).collect();
    let output = succeed(&mut record(&reel, &[], &observer));
    let told = counts(&String::from_utf8_lossy(&output.stdout));
    let recorded = recorded(&reel);
    let mut compared = 0;
    let mut wrong = Vec::new();
    for (nr, call) in calls::numbered().filter(|(_, c)| !CONDITIONAL.contains(&c.name)) {
        let seen = told.get(&(nr as i64)).copied().unwrap_or(0);
        let ours = recorded.get(call.name).copied().unwrap_or(0);
        compared += seen;
        if seen != ours {
            wrong.push(format!("{}: bpftrace {seen}, reel {ours}", call.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 2000, "only {compared} calls compared");
    println!("{compared} calls compared");
}

/// The observer's counts by number.
fn counts(printed: &str) -> BTreeMap<i64, i64> {
    let line = |l: &str| {
        let (number, times) = l.strip_prefix("@calls[")?.split_once("]: ")?;
        Some((number.parse().ok()?, times.trim().parse().ok()?))
    };
    printed.lines().filter_map(line).collect()
}

/// The reel's counts by name, of the job and its descendants.
fn recorded(path: &Path) -> BTreeMap<String, i64> {
    let reel = assert_valid(path);
    let tasks: Vec<Task> = reel.read().unwrap();
    let execs: Vec<Exec> = reel.read().unwrap();
    // The observer runs shells of its own before.
    let began = execs.iter().filter(|e| &*e.path == "/bin/sh").max_by_key(|e| e.exec_ns).unwrap();
    let mut tree = BTreeSet::from([began.task_id]);
    // Parents come before their children.
    for task in &tasks {
        if task.parent.is_some_and(|p| tree.contains(&p)) {
            tree.insert(task.task_id);
        }
    }
    let mut out = BTreeMap::new();
    for op in reel.read::<Op>().unwrap() {
        if tree.contains(&op.task_id) && op.source == "syscall" && op.start_ns >= began.exec_ns {
            *out.entry(op.op.to_string()).or_default() += 1;
        }
    }
    out
}

/// The scripts for users work on this kernel.
pub(crate) fn shipped_scripts_run() {
    for name in ["syscalls.bt", "latency.bt", "blockio.bt", "pagecache.bt"] {
        let output = succeed(Command::new("bpftrace").args(["-c", "/bin/ls /"]).arg(script(name)));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Attaching") && !text.contains("ERROR"), "{name}: {text}");
    }
}
