//! Logs of fio, CSV, JSON lines and the text of strace: what comes in, what goes out, what is refused.

use std::{fs, path::Path, process::Command};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    export::{fio, table},
    import::{self, csv},
    manifest::Kind,
    rows::{Block, Exec, File, Op, Task},
    validate::validate,
};

fn open(path: &Path) -> Reel {
    let report = validate(path, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    Reel::open(path).unwrap()
}

fn strace(input: &Path, out: &Path) -> Result<Manifest, import::ImportError> {
    import::strace::import(&[input.to_path_buf()], out)
}

/// Writes `text` and imports it.
fn made<E: std::fmt::Display>(
    dir: &Path,
    name: &str,
    text: &str,
    import: impl FnOnce(&Path, &Path) -> Result<Manifest, E>,
) -> Result<Reel, String> {
    let (input, out) = (dir.join(format!("{name}.txt")), dir.join(format!("{name}.reel")));
    fs::write(&input, text).unwrap();
    match import(&input, &out) {
        Ok(_) => Ok(open(&out)),
        Err(e) => {
            assert!(!out.exists(), "a failed import leaves nothing");
            let e = e.to_string();
            assert!(!e.contains('\n'), "{e}");
            Err(e)
        }
    }
}

const FIO2: &str = "fio version 2 iolog\n/a add\n/a open\n/b add\n/b open\n/a write 0 4096\n/a wait 1500 0\n/b read 8192 512\n\
                    /a sync 0 0\n/b datasync 0 0\n/a trim 4096 4096\n/a close\n/b close\n";

/// Start, call, file, offset, length, result.
type Brief = (i64, String, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

fn brief(reel: &Reel) -> Vec<Brief> {
    let row = |o: Op| (o.start_ns, o.op.to_string(), o.file, o.offset_bytes, o.len_bytes, o.ret);
    reel.read::<Op>().unwrap().into_iter().map(row).collect()
}

fn version(version: u32) -> fio::Options {
    fio::Options { version, ..fio::Options::default() }
}

/// fio writes to what its log names: nothing of the recorded machine may be there, however the reel spells it.
#[test]
fn a_log_names_no_file_and_no_device_of_the_recorded_machine() {
    let dir = tempfile::tempdir().unwrap();
    let log = "fio version 2 iolog\n".to_owned()
        + &["/etc/passwd", "../../etc/passwd", "/a/../../etc/shadow", "etc//./motd"]
            .map(|f| format!("{f} add\n{f} open\n{f} write 0 4096\n"))
            .concat();
    let reel = made(dir.path(), "evil", &log, import::fio::import).unwrap();
    let disk =
        ["/dev/sda", "/dev/sdb"].map(|path| File { kind: "block".into(), path: Some(path.into()), ..File::default() });
    let path = dir.path().join("disks.reel");
    let manifest = Manifest::new(Kind::Synthetic, "synthetic");
    let mut writer = ReelWriter::create(&path, &manifest, WriterOptions::default()).unwrap();
    for (file, disk) in (0..).zip(disk) {
        writer.files.push(File { file, ..disk }).unwrap();
        let (offset_bytes, ret) = (Some(0), Some(512));
        writer.ops.push(Op { op: "pwrite64".into(), file: Some(file), offset_bytes, ret, ..Op::default() }).unwrap();
    }
    writer.close(manifest).unwrap();
    let names = |log: &Path| {
        let text = fs::read_to_string(log).unwrap();
        let lines = text.lines().filter(|l| l.ends_with(" add"));
        lines.map(|l| l.split(' ').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let at = |name: &str| dir.path().join(name);
    // Beside the log, unless a folder is named.
    let told = fio::export(&reel, &at("job.log"), &version(3)).unwrap();
    assert_eq!(
        names(&at("job.log")),
        ["etc/passwd", "etc/motd"].map(|f| format!("{}/job.files/{f}", dir.path().display()))
    );
    assert_eq!(told.left_out["a path that leads out of --root"], 2);
    let options = fio::Options { root: Some("/srv/x".into()), ..version(3) };
    fio::export(&reel, &at("other.log"), &options).unwrap();
    assert_eq!(names(&at("other.log")), ["/srv/x/etc/passwd", "/srv/x/etc/motd"]);
    // Devices by their names only.
    let disks = Reel::open(&path).unwrap();
    let told = fio::export(&disks, &at("none.log"), &version(3)).unwrap();
    assert!(names(&at("none.log")).is_empty());
    assert_eq!(told.left_out["a block device without --device-map"], 2);
    let devices = [("/dev/sda".to_owned(), "/dev/loop7".into())].into();
    fio::export(&disks, &at("one.log"), &fio::Options { devices, ..version(3) }).unwrap();
    assert_eq!(names(&at("one.log")), ["/dev/loop7"]);
    for root in ["/srv/a b", "/srv/a\nx"] {
        let options = fio::Options { root: Some(root.into()), ..version(3) };
        let refused = fio::export(&reel, &at("refused.log"), &options).unwrap_err().to_string();
        assert!(refused.contains("without blanks") && !at("refused.log").exists(), "{refused}");
    }
}

/// Several files had one name in turn: fio ends by an assertion when it is told to open a name that is open.
#[test]
fn a_name_is_opened_once_in_a_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    fio::export(&Reel::open("samples/mail.reel").unwrap(), &log, &version(3)).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let mut names: Vec<&str> = text.lines().filter(|l| l.ends_with(" open")).collect();
    let all = names.len();
    names.sort_by_key(|l| l.split(' ').nth(1));
    names.dedup_by_key(|l| l.split(' ').nth(1).map(str::to_owned));
    assert!(all > 10 && names.len() == all, "{} of {all}", names.len());
}

#[test]
fn a_log_of_fio_becomes_calls_and_a_log_again() {
    let dir = tempfile::tempdir().unwrap();
    let reel = made(dir.path(), "two", FIO2, import::fio::import).unwrap();
    let op =
        |at: i64, name: &str, file, offset, len, ret| (at * 1000, name.to_owned(), Some(file), offset, len, Some(ret));
    let expected = [
        op(0, "openat", 0, None, None, 3),
        op(0, "openat", 1, None, None, 4),
        op(0, "pwrite64", 0, Some(0), Some(4096), 4096),
        op(1500, "pread64", 1, Some(8192), Some(512), 512),
        op(1500, "fsync", 0, None, None, 0),
        op(1500, "fdatasync", 1, None, None, 0),
        op(1500, "fallocate", 0, Some(4096), Some(4096), 0),
        op(1500, "close", 0, None, None, 0),
        op(1500, "close", 1, None, None, 0),
    ];
    assert_eq!(brief(&reel), expected);
    for version in [2, 3] {
        let log = dir.path().join(format!("out.{version}"));
        let told = fio::export(&reel, &log, &self::version(version)).unwrap();
        assert_eq!((told.operations, told.left_out.values().sum::<i64>()), (5, 4));
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.starts_with(&format!("fio version {version} iolog\n")));
        let again = made(dir.path(), &format!("again{version}"), &text, import::fio::import).unwrap();
        let io = |reel: &Reel| {
            let mut rows = brief(reel);
            rows.retain(|r| !matches!(&*r.1, "openat" | "close"));
            rows
        };
        assert_eq!(io(&again), io(&reel), "{text}");
    }
    let refused = fio::export(&reel, &dir.path().join("out.2"), &version(2)).unwrap_err().to_string();
    assert!(refused.contains("already exists"), "{refused}");
}

#[test]
fn a_log_that_is_none_is_refused_by_line() {
    let dir = tempfile::tempdir().unwrap();
    for (i, (text, told)) in [
        ("", "line 1 does not start a fio I/O log: ''; expected `fio version 2 iolog`"),
        ("fio version 1 iolog\n", "line 1 does not start a fio I/O log: 'fio version 1 iolog'"),
        (
            "fio version 2 iolog\n/a read 0 1\n",
            "line 2 uses a file that is not open: '/a read 0 1'; expected `FILE open`",
        ),
        (
            "fio version 2 iolog\n/a add\n/a open\n/a read x 1\n",
            "line 4 has an offset or length that is not a number of bytes: '/a read x 1'; expected",
        ),
        ("fio version 2 iolog\n/a frobnicate 0 1\n", "line 2 has an unknown action: '"),
        (
            "fio version 3 iolog\n/a add\n",
            "line 2 does not start with a time: '/a add'; expected `MICROSECONDS FILE ACTION …`",
        ),
        ("fio version 3 iolog\n0 /a wait 1 2\n", "line 2 has an unknown action: '"),
    ]
    .into_iter()
    .enumerate()
    {
        let e = made(dir.path(), &i.to_string(), text, import::fio::import).unwrap_err();
        assert!(e.contains(told), "{e}");
    }
}

fn options(rows: csv::Rows, columns: &str) -> csv::Options {
    let columns = columns.split(',').filter(|c| !c.is_empty()).map(str::to_owned).collect();
    csv::Options { rows, columns, ..csv::Options::default() }
}

#[test]
fn csv_becomes_requests_in_exact_units() {
    let dir = tempfile::tempdir().unwrap();
    // The layout of a well-known collection of traces: Windows ticks of 100 ns.
    let text = "128166372003061629,hm,0,Read,383496192,32768,413\n128166372003061630,hm,1,Write,512,4096,\n";
    let o = options(csv::Rows::Block, "issue_100ns,-,dev,op,offset_bytes,len_bytes,d2c_100ns");
    let reel = made(dir.path(), "a", text, |i, r| csv::import(&[i.to_path_buf()], r, &o)).unwrap();
    let rows = reel.read::<Block>().unwrap();
    let of = |b: &Block| (b.issue_ns, b.complete_ns, b.dev, b.op.to_string(), b.sector, b.len_bytes);
    assert_eq!(of(&rows[0]), (0, Some(41_300), 0, "read".into(), 749_016, 32_768));
    assert_eq!(of(&rows[1]), (100, None, 1, "write".into(), 1, 4096));
    let text = "start_s,op,path,offset_bytes,len_bytes,dur_us,tid\n5.25,read,\"/a,\"\"b\"\"\",0,10,1.5,7\n5.000000001,fsync,,,,,\n";
    let reel = {
        let o = options(csv::Rows::Ops, "");
        made(dir.path(), "b", text, |i, r| csv::import(&[i.to_path_buf()], r, &o)).unwrap()
    };
    let ops = reel.read::<Op>().unwrap();
    assert_eq!((ops[0].start_ns, &*ops[0].op, ops[0].dur_ns), (0, "fsync", 0));
    assert_eq!((ops[1].start_ns, ops[1].dur_ns, ops[1].tid, ops[1].ret), (249_999_999, 1500, 7, Some(10)));
    assert_eq!(reel.read::<File>().unwrap()[0].path.as_deref(), Some("/a,\"b\""));
    for (i, (columns, text, told)) in [
        (
            "issue_s,op",
            "1,r\n",
            "column len_SIZE is missing; name the columns in order with --columns; there are: issue_UNIT",
        ),
        (
            "issue_s,op,len_bytes,colour",
            "1,r,1,x\n",
            "unknown column 'colour'; name the columns in order with --columns, `-` skips one; there are: issue_UNIT",
        ),
        ("issue_s,op,len_byte", "1,r,1\n", "unknown column 'len_byte' (did you mean 'len_bytes'?); name the"),
        ("issue_s,issue_ns,op,len_bytes", "1,1,r,1\n", "two columns are issue_ns"),
        ("issue_s,len_bytes", "1,1\n", "column op is missing; say what every line does with --op read"),
        (
            "issue_s,op,len_bytes",
            "1,0,1\n",
            "line 1: unknown request type '0'; say what the numbers mean with --op-map",
        ),
        ("issue_s,op,len_bytes", "1,r\n", "line 1: 2 fields, but there are 3 columns"),
        ("issue_s,op,len_bytes", "1,r,1\n1,q,1\n", "line 2: unknown request type 'q'; there are: read, write"),
        ("issue_s,op,len_bytes", "x,r,1\n", "line 1: 'x' is not a number"),
        ("issue_s,op,len_bytes,complete_s", "2,r,1,1\n", "line 1: request completes before it is issued"),
        ("issue_s,op,len_bytes,offset_bytes", "2,r,1,100\n", "line 1: offset 100 is not a multiple of 512 bytes"),
    ]
    .into_iter()
    .enumerate()
    {
        let o = options(csv::Rows::Block, columns);
        let e = made(dir.path(), &format!("bad{i}"), text, |i, r| csv::import(&[i.to_path_buf()], r, &o)).unwrap_err();
        assert!(e.contains(told), "{e}");
    }
}

#[test]
fn tables_go_out_as_csv_and_json_lines() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("samples/postmark.reel");
    let reel = Reel::open(sample).unwrap();
    let ops = reel.read::<Op>().unwrap();
    let path = dir.path().join("ops.jsonl");
    assert_eq!(table::export(&reel, "ops", table::Form::JsonLines, Some(&path)).unwrap(), ops.len() as i64);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), ops.len());
    for (line, op) in text.lines().zip(&ops) {
        let v: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(v["start_ns"].as_i64(), Some(op.start_ns));
        assert_eq!((v.get("path").and_then(|p| p.as_str()), v["ret"].as_i64()), (op.path.as_deref(), op.ret));
    }
    let path = dir.path().join("files.csv");
    table::export(&reel, "files", table::Form::Csv, Some(&path)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("file,dev,sb_dev,ino,generation,kind,first_ns,size_bytes,mode,path,path_cut"), "{text}");
    assert_eq!(text.lines().count(), reel.read::<File>().unwrap().len() + 1);
    let e = table::export(&reel, "colours", table::Form::Csv, None).unwrap_err().to_string();
    assert!(e.contains("unknown table 'colours'; there are: tasks, files"), "{e}");
}

const STRACE: &str = "\
10  100.000000 execve(\"/usr/bin/tool\", [\"tool\", \"x, y\"], 0x7ffd /* 3 vars */) = 0 <0.000500>\n\
10  100.001000 openat(AT_FDCWD</home/u>, \"caf\\303\\251 \\\"q\\\"\", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3</home/u/caf\\303\\251 \\\"q\\\"> <0.000010>\n\
10  100.002000 write(3</home/u/caf\\303\\251 \\\"q\\\">, \"abc) = 7\"..., 4096) = 4096 <0.000020>\n\
10  100.003000 read(3</home/u/caf\\303\\251 \\\"q\\\">,  <unfinished ...>\n\
11  100.003100 fsync(3</home/u/caf\\303\\251 \\\"q\\\"> <unfinished ...>\n\
10  100.003200 <... read resumed>\"\", 100) = 0 <0.000200>\n\
10  100.004000 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, child_tidptr=0x7f) = 12 <0.000100>\n\
12  100.005000 lseek(3</home/u/caf\\303\\251 \\\"q\\\">, 10, SEEK_SET) = 10 <0.000001>\n\
10  100.006000 write(3</home/u/caf\\303\\251 \\\"q\\\">, \"x\", 1) = 1 <0.000001>\n\
12  100.007000 writev(3</home/u/caf\\303\\251 \\\"q\\\">, [{iov_base=\"ab\", iov_len=2}, {iov_base=\"c\", iov_len=1}], 2) = 3 <0.000001>\n\
12  100.008000 unlink(\"/nope\") = -1 ENOENT (No such file or directory) <0.000003>\n\
12  100.008500 newfstatat(AT_FDCWD</home/u>, \"d\", {st_mode=S_IFDIR|0755, st_size=4096, ...}, AT_SYMLINK_NOFOLLOW) = 0 <0.000001>\n\
12  100.009000 --- SIGTERM {si_signo=SIGTERM, si_code=SI_USER, si_pid=10, si_uid=0} ---\n\
12  100.009100 futex(0x7f, FUTEX_WAIT_PRIVATE, 2, NULL) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.1>\n\
12  100.009200 +++ killed by SIGTERM +++\n\
this line is damaged\n\
10  100.010000 exit_group(3) = ?\n\
10  100.010100 +++ exited with 3 +++\n";

#[test]
fn the_text_of_strace_becomes_calls() {
    let dir = tempfile::tempdir().unwrap();
    let reel = made(dir.path(), "a", STRACE, strace).unwrap();
    let ops = reel.read::<Op>().unwrap();
    let brief: Vec<_> = ops.iter().map(|o| (o.tid, &*o.op, o.offset_bytes, o.len_bytes, o.ret)).collect();
    assert_eq!(
        brief,
        [
            (10, "openat", None, None, Some(3)),
            (10, "write", Some(0), Some(4096), Some(4096)),
            (10, "read", Some(4096), Some(100), Some(0)),
            (11, "fsync", None, None, None),
            (12, "lseek", Some(4096), None, Some(10)),
            // The position is shared across the fork.
            (10, "write", Some(10), Some(1), Some(1)),
            (12, "writev", Some(11), Some(3), Some(3)),
            (12, "unlink", None, None, Some(-2)),
            (12, "newfstatat", None, Some(4096), Some(0)),
        ]
    );
    assert_eq!(
        (ops[0].path.as_deref(), ops[0].flags, ops[0].mode),
        (Some("café \"q\""), Some(0o2_000_102), Some(0o644))
    );
    assert_eq!((ops[0].dirfd, ops[0].start_ns, ops[0].dur_ns), (Some(-100), 1_000_000, 10_000));
    assert_eq!((&*ops[2].state, ops[2].start_ns, ops[2].dur_ns), ("complete", 3_000_000, 200_000));
    assert_eq!((&*ops[3].state, ops[3].dur_ns), ("in_flight_at_end", 0));
    assert_eq!((ops[8].mode, ops[8].flags), (Some(0o040_755), Some(0x100)));
    let files = reel.read::<File>().unwrap();
    assert_eq!(files.iter().filter_map(|f| f.path.as_deref()).collect::<Vec<_>>(), ["/home/u/café \"q\""]);
    assert!([1, 2, 5, 6].iter().all(|i| ops[*i].file == Some(files[0].file)));
    let mut tasks = reel.read::<Task>().unwrap();
    tasks.sort_by_key(|t| t.tid);
    let lives: Vec<_> = tasks.iter().map(|t| (t.tid, t.parent.is_some(), t.exit_code, &*t.comm)).collect();
    assert_eq!(lives, [(10, false, Some(3 << 8), "tool"), (11, false, None, ""), (12, true, Some(15), "tool")]);
    assert_eq!(reel.read::<Exec>().unwrap()[0].path, "/usr/bin/tool");
    let m = &reel.manifest;
    assert_eq!((m.ledger["ops"].written, m.ledger["ops"].filtered, m.clock.realtime_ns), (9, 4, 100_000_000_000));
    let damaged = m.warnings.iter().find(|w| w.contains("could not be read")).unwrap();
    assert!(damaged.contains("1 lines") && damaged.contains("line 16"), "{damaged}");
}

/// CPU time of importing a chain of forks: each process opens a file and forks the next one.
fn chain_ns(dir: &Path, forks: u32) -> i64 {
    let line = |i: u32| {
        let (tid, fd) = (10 + i, 3 + i);
        format!(
            "{tid} 100.{i:06} openat(AT_FDCWD</>, \"a\", O_RDONLY) = {fd}</a> <0.000001>\n\
             {tid} 100.{i:06} fork() = {} <0.000001>\n",
            tid + 1
        )
    };
    let text: String = (0..forks).map(line).collect();
    let cpu_ns = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        t.tv_sec * 1_000_000_000 + t.tv_nsec
    };
    let before_ns = cpu_ns();
    made(dir, &forks.to_string(), &text, strace).unwrap();
    cpu_ns() - before_ns
}

#[test]
fn a_chain_of_forks_under_strace_costs_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let (short_ns, long_ns) = (chain_ns(dir.path(), 2000), chain_ns(dir.path(), 16_000));
    // The square would be 64 times as much.
    assert!(long_ns < 24 * short_ns, "8 times the forks take {} times as long", long_ns / short_ns);
}

#[test]
fn text_that_is_not_of_strace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (i, (text, told)) in [
        ("", "the file is empty"),
        ("hello world\n", "line 1 is not strace output: 'hello world'; expected `PID TIME call(…) = N`"),
        ("% time     seconds\n------ ------\n100.00    0.0 total\n", "only the summary of `strace -c`"),
    ]
    .into_iter()
    .enumerate()
    {
        let e = made(dir.path(), &i.to_string(), text, strace).unwrap_err();
        assert!(e.contains(told), "{e}");
    }
}

/// A real text, and what the traced commands are known to have done.
#[test]
fn a_real_strace_of_known_commands() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("calls.txt");
    let script = "echo hello > one; dd if=one of=two bs=6; dd if=one of=two bs=6 seek=1 conv=notrunc; mv two 'th ree'; cat nope; rm one";
    let traced = Command::new("strace")
        .args(["-f", "-ttt", "-T", "-y", "-o"])
        .arg(&text)
        .args(["sh", "-c", script])
        .current_dir(dir.path())
        .output()
        .expect("strace: scripts/setup test installs it");
    assert!(traced.status.success(), "{traced:?}");
    let out = dir.path().join("a.reel");
    strace(&text, &out).unwrap();
    let reel = open(&out);
    assert!(reel.manifest.warnings.iter().all(|w| !w.contains("could not be read")), "{:?}", reel.manifest.warnings);
    let ops = reel.read::<Op>().unwrap();
    let file = |name: &str| {
        let files = reel.read::<File>().unwrap();
        files.into_iter().find(|f| f.path.as_deref().is_some_and(|p| p.ends_with(name))).unwrap().file
    };
    let moved = |call: &str, name: &str| {
        let file = Some(file(name));
        let of = ops.iter().filter(|o| o.op == call && o.file == file && o.ret.is_some_and(|r| r > 0));
        of.map(|o| (o.offset_bytes.unwrap(), o.ret.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(moved("write", "/one"), [(0, 6)]);
    assert_eq!(moved("read", "/one"), [(0, 6), (0, 6)]);
    assert_eq!(moved("write", "/two"), [(0, 6), (6, 6)]);
    assert!(ops.iter().any(|o| o.op.starts_with("rename") && o.path2.as_deref() == Some("th ree")));
    assert!(ops.iter().any(|o| o.op == "openat" && o.path.as_deref() == Some("nope") && o.ret == Some(-2)));
    assert!(ops.iter().any(|o| o.op.starts_with("unlink") && o.path.as_deref() == Some("one") && o.ret == Some(0)));
    assert!(reel.read::<Exec>().unwrap().iter().any(|e| e.comm == "cat"));
}

/// The clock of the day may be set back under strace: the calls stay where their text has them, and the jumps are told.
#[test]
fn a_clock_that_goes_back_under_strace_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let fsync = |tid: i64, at: &str| format!("{tid} {at} fsync(3</f>) = 0 <0.001000>\n");
    let text = [
        fsync(100, "1700001000.000000"),
        fsync(100, "1700001005.000000"),
        // Another thread's line is late, which is no jump.
        fsync(101, "1700001001.000000"),
        // Back by 2.5 s, and by 3.5 s to before the first line.
        fsync(100, "1700001002.500000"),
        fsync(100, "1700000999.000000"),
        fsync(101, "1700001000.500000"),
        // Between the beginning and the end of a call.
        "102 1700001006.000000 fsync(3</f> <unfinished ...>\n102 1700001004.000000 <... fsync resumed>) = 0\n".into(),
    ];
    let reel = made(dir.path(), "back", &text.concat(), strace).unwrap();
    let m = &reel.manifest;
    let jumps: Vec<(i64, i64)> = m.clock_jumps.iter().map(|j| (j.at_ns, j.back_ns)).collect();
    let ms = 1_000_000;
    assert_eq!(jumps, [(5000, 2500), (2500, 3500), (1000, 500), (6000, 2000)].map(|(at, by)| (at * ms, by * ms)));
    let told = |m: &Manifest, words: &str| m.warnings.iter().any(|w| w == words);
    assert!(
        told(m, "the clock went back 4 times within a thread; the manifest's `clock_jumps` lists when"),
        "{:?}",
        m.warnings
    );
    let mut calls: Vec<(i64, i64)> = reel.read::<Op>().unwrap().iter().map(|o| (o.start_ns, o.dur_ns)).collect();
    calls.sort_unstable();
    // What is before the first line is at the start; a call that ends before it begins took no time.
    let want = [(0, 1), (0, 1), (500, 1), (1000, 1), (2500, 1), (5000, 1), (6000, 0)].map(|(at, d)| (at * ms, d * ms));
    assert_eq!(calls, want);
    assert_eq!(m.span.elapsed_ns, 6000 * ms);

    // To and fro: the first thousand are listed, all of them counted.
    let text: String = (0..3001).map(|i| fsync(1, if i % 2 == 0 { "1700000007.5" } else { "1700000007.25" })).collect();
    let reel = made(dir.path(), "often", &text, strace).unwrap();
    let m = &reel.manifest;
    assert_eq!(m.clock_jumps.len(), 1000);
    assert!(m.clock_jumps.iter().all(|j| (j.at_ns, j.back_ns) == (0, 250 * ms)));
    let words =
        "the clock went back 1500 times within a thread; the manifest's `clock_jumps` lists when, for the first 1000";
    assert!(told(m, words), "{:?}", m.warnings);
}
