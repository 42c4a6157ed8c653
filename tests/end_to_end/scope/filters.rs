//! Filters: exactly the rows asked for, and the context that is documented. The truth is the same workload recorded
//! whole; both recordings must have seen as much.

mod places;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::Path,
};

use ioreel_traces::{
    Reel,
    rows::{Exec, File, Op, Task},
};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    one_line, paths_of, record, succeed, temp_dir, text,
};

pub(crate) use places::{asynchronous_requests, through_folders, through_other_mounts, where_names_begin};

/// Kept although not asked for, where needed.
const CONTEXT: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "close",
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "fcntl",
    "chdir",
    "fchdir",
    "umask",
];

/// Two folders, several programs, descriptors that are copied and inherited, names relative to two folders.
const SCRIPT: &str = "\
set -e; umask 022; mkdir in out; \
dd if=/dev/zero of=in/a bs=4096 count=8 status=none; cat in/a >out/c; cat in/a >>out/c; \
cd in; mv a d; cat d >/dev/null; stat d >/dev/null; cd ..; \
exec 3>in/held; echo one >&3; (echo two >&3); cat out/c >&3; exec 3>&-; \
exec 4>out/other; echo three >&4; exec 4>&-; \
ln -s ../in/d out/link; cat out/link >/dev/null; chmod 600 in/d out/c; rm out/link";

struct Truth {
    mounted: Mounted,
    out: tempfile::TempDir,
    whole: Reel,
    base: String,
}

impl Truth {
    fn new() -> Self {
        let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
        let out = temp_dir();
        let base = text(mounted.path()).to_owned();
        let reel = out.path().join("whole.reel");
        Self::run(&reel, &base, &[]);
        Self { whole: assert_valid(&reel), mounted, out, base }
    }

    fn run(reel: &Path, base: &str, options: &[&str]) {
        for name in ["in", "out"] {
            let _ = fs::remove_dir_all(Path::new(base).join(name));
        }
        let script = format!("cd {base}; {SCRIPT}");
        succeed(&mut record(reel, options, &["sh", "-c", &script]));
    }

    /// The workload again, with filters.
    fn filtered(&self, options: &[&str]) -> Reel {
        let reel =
            self.out.path().join(format!("{}.reel", options.len() + fs::read_dir(self.out.path()).unwrap().count()));
        Self::run(&reel, &self.base, options);
        let reel = assert_valid(&reel);
        let some = reel.manifest.ledger["ops"];
        // Calls only: how often mapped files are touched depends on what is in memory.
        let calls = |r: &Reel| r.rows::<Op>().filter(|o| o.as_ref().unwrap().source == "syscall").count() as i64;
        assert_eq!(calls(&self.whole), calls(&reel) + left_out(&reel), "{:?}", reel.manifest.left_out);
        assert!(some.filtered > 0 && some.written == reel.count::<Op>() - tool_rows(&reel));
        reel
    }
}

fn tool_rows(reel: &Reel) -> i64 {
    reel.rows::<Op>().filter(|o| o.as_ref().unwrap().source == "tool").count() as i64
}

/// Calls left out by filters.
fn left_out(reel: &Reel) -> i64 {
    let ours = |why: &str| why.starts_with("calls left out by") || why.starts_with("openings, copies");
    reel.manifest.left_out.iter().filter(|(why, _)| ours(why)).map(|(_, n)| n).sum()
}

/// What of a row is the same in every run.
type Same = (String, Option<String>, Option<String>, Option<i64>, Option<i64>);

/// Rows of a reel by what is the same in every run, with the operand's path.
fn rows(reel: &Reel, wanted: impl Fn(&Op, Option<&str>) -> bool) -> BTreeMap<Same, usize> {
    let files = paths_of(reel);
    let mut out = BTreeMap::new();
    for op in reel.rows::<Op>() {
        let op = op.unwrap();
        let path = op.file.and_then(|f| files.get(&f)).map(String::as_str);
        if op.source == "syscall" && wanted(&op, path) {
            let ret = op.ret.filter(|_| op.op != "mmap");
            let path = path.map(|p| p.to_owned());
            *out.entry((op.op.to_string(), path, op.path.map(|p| p.to_string()), op.len_bytes, ret)).or_default() += 1;
        }
    }
    out
}

fn is_context(op: &str) -> bool {
    CONTEXT.contains(&op)
}

/// Every descriptor call that was not asked for belongs to a description that something asked for uses.
fn assert_needed(reel: &Reel, asked: impl Fn(&Op) -> bool) {
    let ops: Vec<Op> = reel.read().unwrap();
    let used: HashSet<i64> = ops.iter().filter(|o| asked(o)).flat_map(|o| [o.ofd, o.ofd2]).flatten().collect();
    for op in ops.iter().filter(|o| o.source == "syscall" && !asked(o)) {
        let place = ["chdir", "fchdir", "umask", "close_range"].contains(&&*op.op);
        assert!(is_context(&op.op), "{op:?} was not asked for");
        assert!(place || op.ofd.is_some_and(|o| used.contains(&o)), "{op:?} is nobody's context");
    }
    // And none is missing: what is used was opened here, or before.
    let opened: HashSet<i64> = ops
        .iter()
        .filter(|o| o.op.starts_with("open"))
        .filter_map(|o| o.ofd)
        .chain(reel.rows::<ioreel_traces::rows::Fd>().map(|f| f.unwrap().ofd))
        .collect();
    for op in ops.iter().filter(|o| asked(o) && o.ofd.is_some() && o.op != "mmap") {
        let file = op.file;
        let pipe = file.is_some_and(|id| {
            reel.rows::<File>().any(|f| f.as_ref().unwrap().file == id && f.as_ref().unwrap().path.is_none())
        });
        assert!(pipe || opened.contains(&op.ofd.unwrap()), "{op:?}: its opening is missing");
    }
}

/// Operations on the file systems of one disk, by descriptor and by name; and on the disk itself.
pub(crate) fn by_device() {
    let truth = Truth::new();
    let device = text(truth.mounted.device().unwrap()).to_owned();
    let reel = truth.filtered(&["--device", &device]);
    let here = |p: Option<&str>| p.is_some_and(|p| p == truth.base || p.starts_with(&format!("{}/", truth.base)));
    let operand = |op: &Op| op.ofd.is_some() && op.path.is_none() && op.ofd2.is_none();
    let expected = rows(&truth.whole, |op, path| operand(op) && here(path));
    assert_eq!(rows(&reel, |op, path| operand(op) && here(path)), expected);
    let strangers = rows(&reel, |op, path| operand(op) && !here(path) && !is_context(&op.op));
    assert!(strangers.is_empty(), "{strangers:?}");
    let names = |reel: &Reel| rows(reel, |op, _| op.ofd.is_none() && op.path.is_some());
    let of =
        |reel: &Reel, call: &str| names(reel).into_iter().filter(|(k, _)| k.0.starts_with(call)).collect::<Vec<_>>();
    for call in ["mkdir", "rename", "symlink", "fchmodat", "unlink"] {
        assert_eq!(of(&reel, call), of(&truth.whole, call), "{call}");
    }
    assert!(of(&reel, "access").is_empty() && !of(&truth.whole, "access").is_empty(), "the dynamic linker's");
    // Nothing lies on that one but what is read of it.
    let bare = truth.out.path().join("bare.reel");
    let script = format!("cat {}/in/d >/dev/null; dd if={device} of=/dev/null bs=4096 count=3 status=none", truth.base);
    succeed(&mut record(&bare, &["--device", &device], &["sh", "-c", &script]));
    let reads = rows(&assert_valid(&bare), |op, path| op.op == "read" && path == Some(&device));
    assert_eq!(reads.values().sum::<usize>(), 3, "{reads:?}");
}

pub(crate) fn by_path() {
    let truth = Truth::new();
    let inside = format!("{}/in", truth.base);
    let below = |p: Option<&str>| p.is_some_and(|p| p == inside || p.starts_with(&format!("{inside}/")));
    let reel = truth.filtered(&["--path", &inside]);
    // Operations on a descriptor or mapping of a file below: all of them, and of no other but where a copy goes there.
    let operand = |op: &Op| op.ofd.is_some() && op.path.is_none();
    let expected = rows(&truth.whole, |op, path| operand(op) && below(path) && op.ofd2.is_none());
    let found = rows(&reel, |op, path| operand(op) && below(path) && op.ofd2.is_none());
    assert_eq!(found, expected);
    let strangers = rows(&reel, |op, path| operand(op) && !below(path) && op.ofd2.is_none() && !is_context(&op.op));
    assert!(strangers.is_empty(), "{strangers:?}");
    // Names, relative to two folders.
    let names = rows(&reel, |op, _| op.ofd.is_none() && op.path.is_some());
    let has = |call: &str, name: &str| names.keys().any(|k| k.0.starts_with(call) && k.2.as_deref() == Some(name));
    assert!(has("mkdir", "in") && has("rename", "a"), "{names:?}");
    assert!(!has("mkdir", "out") && !has("unlink", "out/link") && !has("symlink", "../in/d"), "{names:?}");
    assert!(has("fchmodat", "in/d") && !has("fchmodat", "out/c"), "{names:?}");
    // Through a link from outside, by what the link leads to: the file first met as in/a.
    assert!(
        rows(&reel, |op, path| op.op == "openat" && path.is_some_and(|p| p.ends_with("in/a")))
            .keys()
            .any(|k| k.2.as_deref() == Some("out/link"))
    );
    // A pattern for names.
    let reel = truth.filtered(&["--path", "hel*"]);
    let writes = rows(&reel, |op, path| op.op == "write" && path.is_some_and(|p| p.ends_with("/in/held")));
    assert_eq!(
        writes.values().sum::<usize>(),
        rows(&truth.whole, |op, path| op.op == "write" && path.is_some_and(|p| p.ends_with("/in/held")))
            .values()
            .sum::<usize>()
    );
    assert!(rows(&reel, |op, path| op.op == "write" && !path.is_some_and(|p| p.ends_with("/in/held"))).is_empty());
    // It replays.
    let target = temp_dir();
    let result = truth.out.path().join("result.reel");
    let path = reel.path().to_owned();
    succeed(&mut ioreel([
        "replay",
        text(&path),
        "--target",
        text(target.path()),
        "--root",
        &inside,
        "-o",
        text(&result),
        "--max-own-lateness",
        "1h",
    ]));
}

pub(crate) fn by_call() {
    let truth = Truth::new();
    let reel = truth.filtered(&["--op", "write,fchmodat,rename*"]);
    let asked = |op: &Op| {
        op.source == "syscall"
            && (["write", "pwrite64", "writev", "fchmodat"].contains(&&*op.op) || op.op.starts_with("rename"))
    };
    assert_eq!(rows(&reel, |op, _| asked(op)), rows(&truth.whole, |op, _| asked(op)));
    assert_needed(&reel, asked);
    assert!(reel.manifest.left_out.keys().any(|k| k == "calls left out by --op, in the kernel"));
}

/// Operations of threads after they became this program.
fn by_program<'a>(reel: &Reel, name: &'a str) -> impl Fn(&Op) -> bool + use<'a> {
    let execs: Vec<Exec> = reel.read().unwrap();
    let begun: HashMap<i64, i64> = execs.iter().filter(|e| e.comm == name).map(|e| (e.task_id, e.exec_ns)).collect();
    move |op| op.source == "syscall" && begun.get(&op.task_id).is_some_and(|t| op.start_ns >= *t)
}

pub(crate) fn by_thread_name() {
    let truth = Truth::new();
    let reel = truth.filtered(&["--comm", "cat"]);
    let (in_whole, asked) = (by_program(&truth.whole, "cat"), by_program(&reel, "cat"));
    assert_eq!(rows(&reel, |op, _| asked(op)), rows(&truth.whole, |op, _| in_whole(op)));
    assert_needed(&reel, asked);
    let tasks: Vec<Task> = reel.read().unwrap();
    assert_eq!(tasks.len(), truth.whole.read::<Task>().unwrap().len(), "forks are kept");
}

pub(crate) fn by_user() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let out = temp_dir();
    let base = text(mounted.path());
    let script = format!(
        "cd {base}; echo x >f; setpriv --reuid 4321 --clear-groups cat f; cat f f; setpriv --reuid 4322 --clear-groups cat f f f"
    );
    let reel = out.path().join("user.reel");
    succeed(&mut record(&reel, &["--uid", "4321"], &["sh", "-c", &script]));
    let reel = assert_valid(&reel);
    let file = format!("{base}/f");
    let reads = rows(&reel, |op, path| op.op == "read" && path == Some(&*file));
    assert_eq!(reads.values().sum::<usize>(), 2, "one with data, one at the end: {reads:?}");
    let writes = rows(&reel, |op, path| op.op == "write" && path == Some(&*file));
    assert!(writes.is_empty(), "root wrote: {writes:?}");
}

pub(crate) fn by_latency() {
    let out = temp_dir();
    let base = text(out.path());
    let script = format!("cd {base}; mkfifo f; exec 5<>f; (sleep 0.2; echo done >&5) & read x <&5; wait");
    let reel = out.path().join("slow.reel");
    succeed(&mut record(&reel, &["--min-latency", "50ms"], &["sh", "-c", &script]));
    let reel = assert_valid(&reel);
    let slow = |op: &Op| op.source == "syscall" && op.dur_ns >= 50_000_000;
    let ops: Vec<Op> = reel.read().unwrap();
    let slow_ops: Vec<&Op> = ops.iter().filter(|o| slow(o)).collect();
    assert!(slow_ops.iter().any(|o| o.op == "read" && o.ret == Some(1)), "{slow_ops:?}");
    let quick: Vec<&Op> = ops.iter().filter(|o| o.source == "syscall" && !slow(o) && !is_context(&o.op)).collect();
    assert!(quick.is_empty(), "{quick:?}");
    assert!(reel.manifest.left_out["calls left out by --min-latency, in the kernel"] > 0);
}

pub(crate) fn by_layer() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let out = temp_dir();
    let write = format!("dd if=/dev/zero of={}/f bs=64k count=16 conv=fsync 2>/dev/null", text(mounted.path()));
    let disks = out.path().join("disks.reel");
    succeed(&mut record(&disks, &["--block-only"], &["sh", "-c", &write]));
    let disks = assert_valid(&disks);
    let rows = |reel: &Reel, table: &str| {
        reel.manifest.segments.get(table).map_or(0, |s| s.iter().map(|s| s.rows).sum::<i64>())
    };
    assert_eq!(rows(&disks, "ops"), tool_rows(&disks));
    let bytes: i64 = disks
        .rows::<ioreel_traces::rows::Block>()
        .map(|b| b.unwrap())
        .filter(|b| b.op == "write" && Some(b.dev) == mounted.device_number())
        .map(|b| b.len_bytes)
        .sum();
    assert!(bytes >= 1 << 20, "{bytes} bytes written");
    let calls = out.path().join("calls.reel");
    succeed(&mut record(&calls, &["--ops-only"], &["sh", "-c", &write]));
    let calls = assert_valid(&calls);
    assert_eq!((rows(&calls, "block"), rows(&calls, "bio")), (0, 0));
    assert!(rows(&calls, "ops") > 16);
}

/// Several at once: what all of them name, and what that needs.
pub(crate) fn combined() {
    let truth = Truth::new();
    let inside = format!("{}/in", truth.base);
    let options = ["--path", &inside, "--op", "write,read", "--comm", "dd", "--comm", "cat", "--uid", "0"];
    let reel = truth.filtered(&options);
    let asked = |reel: &Reel, wanted: bool| {
        let (dd, cat) = (by_program(reel, "dd"), by_program(reel, "cat"));
        rows(reel, |op, path| {
            let below = path.is_some_and(|p| p.starts_with(&format!("{inside}/")));
            let call = ["read", "write"].contains(&&*op.op);
            (call && below && (dd(op) || cat(op))) == wanted
        })
    };
    let expected = asked(&truth.whole, true);
    assert!(expected.keys().any(|k| k.0 == "write") && expected.keys().any(|k| k.0 == "read"), "{expected:?}");
    assert_eq!(asked(&reel, true), expected);
    let strangers: Vec<_> = asked(&reel, false).into_keys().filter(|k| !is_context(&k.0)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    // Nothing is that slow: what is left is where threads stand.
    let none = truth.filtered(&["--path", &inside, "--op", "write", "--min-latency", "10s"]);
    let left = rows(&none, |_, _| true);
    assert!(left.keys().all(|k| ["chdir", "fchdir", "umask", "close_range"].contains(&&*k.0)), "{left:?}");
}

/// What is no call is filtered like one: requests to io_uring and touches of mapped files.
pub(crate) fn of_what_is_no_call() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let (out, at) = (temp_dir(), text(mounted.path()));
    let map =
        "import mmap,sys\nfor p in sys.argv[1:]:\n with open(p,'r+b') as f:\n  m = mmap.mmap(f.fileno(), 0); m[5] = 7";
    let job = |name: &str| {
        format!(
            "fio --name={name} --filename={at}/{name} --ioengine=io_uring --iodepth=4 --rw=randrw --size=1m --bs=4k >&2"
        )
    };
    let script = format!("{}; {}; python3 -c \"{map}\" {at}/one {at}/two", job("one"), job("two"));
    let found = |name: &str, options: &[&str]| {
        let reel = out.path().join(format!("{name}.reel"));
        succeed(&mut record(&reel, options, &["sh", "-c", &script]));
        let reel = assert_valid(&reel);
        let files = paths_of(&reel);
        // By source, by operation and by the file's name.
        let mut rows: BTreeMap<(String, String, String), i64> = BTreeMap::new();
        for op in reel.rows::<Op>().map(|o| o.unwrap()).filter(|o| o.source == "io_uring" || o.source == "fault") {
            let path = op.file.and_then(|f| files.get(&f)).map_or("", String::as_str);
            let name = path.strip_prefix(at).unwrap_or("elsewhere").to_owned();
            *rows.entry((op.source.to_string(), op.op.to_string(), name)).or_default() += 1;
        }
        rows
    };
    let key = |source: &str, op: &str, name: &str| (source.to_owned(), op.to_owned(), name.to_owned());
    let whole = found("whole", &[]);
    for name in ["/one", "/two"] {
        assert!(whole[&key("io_uring", "write", name)] + whole[&key("io_uring", "read", name)] == 256, "{whole:?}");
        assert!(whole.contains_key(&key("fault", "dirty", name)), "{whole:?}");
    }
    let one = format!("{at}/one");
    let by_path = found("path", &["--path", &one]);
    assert!(by_path.keys().all(|k| k.2 == "/one"), "{by_path:?}");
    assert_eq!(by_path[&key("io_uring", "write", "/one")], whole[&key("io_uring", "write", "/one")]);
    assert!(by_path.contains_key(&key("fault", "dirty", "/one")));
    let by_call = found("call", &["--op", "read"]);
    let reads = |name: &str| (key("io_uring", "read", name), whole[&key("io_uring", "read", name)]);
    assert_eq!(by_call, BTreeMap::from([reads("/one"), reads("/two")]));
    let by_name = found("comm", &["--comm", "python3"]);
    assert!(by_name.keys().all(|k| k.0 == "fault"), "{by_name:?}");
    let slow = found("slow", &["--min-latency", "10s"]);
    assert!(slow.is_empty(), "{slow:?}");
}

pub(crate) fn that_cannot_be() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    for (options, word) in [
        (["--op", "wirte"], "read, write, copy"),
        (["--uid", "no-such-user-here"], "no such user"),
        (["--path", "/a/[x"], "--path /a/[x"),
        (["--comm", ""], "ps -o comm"),
    ] {
        let line = one_line(&mut record(&reel, &options, &["true"]), 1);
        assert!(line.contains(word), "{line}");
        assert!(!reel.exists());
    }
}
