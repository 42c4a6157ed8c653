//! Kernel trace text and tables of bcc give the rows that they were made from.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use ioreel_traces::{
    Manifest, Reel, import,
    rows::{Bio, Block, File, Op, Task},
    validate::validate,
};

fn imported<E: std::fmt::Display>(
    dir: &Path,
    name: &str,
    text: &str,
    import: impl FnOnce(&[PathBuf], &Path) -> Result<Manifest, E>,
) -> Reel {
    let (input, out) = (dir.join(format!("{name}.txt")), dir.join(format!("{name}.reel")));
    fs::write(&input, text).unwrap();
    if let Err(e) = import(&[input], &out) {
        panic!("{name}: {e}");
    }
    let report = validate(&out, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    Reel::open(&out).unwrap()
}

/// A line of blkparse as each of the three programs prints the event.
fn as_events(line: &str, program: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (dev, cpu, time, pid, action, kind) = match words[..] {
        [dev, cpu, _, time, pid, action, kind, ..] if dev.contains(',') => (dev, cpu, time, pid, action, kind),
        _ => return None,
    };
    let rest = &words[7..];
    let event = match action {
        "Q" => "block_bio_queue",
        "G" => "block_getrq",
        "M" => "block_bio_backmerge",
        "F" => "block_bio_frontmerge",
        "I" => "block_rq_insert",
        "D" => "block_rq_issue",
        "C" => "block_rq_complete",
        "X" => "block_split",
        "A" => "block_bio_remap",
        _ => return None,
    };
    // A request without data has no sector in blkparse's text, and is the flush of the device here.
    let kind = if kind == "FN" { "FF" } else { kind };
    let number = |i: usize| rest.get(i).and_then(|w| w.parse::<u64>().ok());
    let (sector, count) = match rest.get(1) {
        Some(&"+" | &"/") => (number(0)?, number(2)?),
        _ => (number(0).unwrap_or(0), 0),
    };
    let name = line.split_once('[').map_or("", |(_, n)| n.trim_end_matches(']'));
    let fields = match action {
        "D" | "I" => format!("{dev} {kind} {} () {sector} + {count} none,0,0 [{name}]", count * 512),
        "C" => format!("{dev} {kind} () {sector} + {count} none,0,0 [{name}]"),
        "X" => format!("{dev} {kind} {sector} / {count} [{name}]"),
        "A" => format!("{dev} {kind} {sector} + {count} {}", rest[3..].join(" ")),
        _ => format!("{dev} {kind} {sector} + {count} [{name}]"),
    };
    // Where the line has an error instead, the name of the thread is not known here either.
    let comm = if matches!(action, "C" | "A") { "<...>" } else { name };
    Some(match program {
        "trace_pipe" => format!("{comm:>16}-{pid:<7} [{cpu:0>3}] d..1. {time}: {event}: {fields}\n"),
        "trace-cmd" => format!("{comm:>16}-{pid:<5} [{cpu:0>3}] {time}: {event}:      {fields}\n"),
        _ => {
            let comm = if comm == "<...>" { "swapper" } else { comm };
            format!("{comm} {pid:>5} [{cpu:0>3}] {time}: block:{event}: {fields}\n")
        }
    })
}

fn rows(reel: &Reel) -> (Vec<Block>, Vec<(Bio, Option<i32>)>) {
    let tasks: HashMap<i64, i32> = reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, t.tid)).collect();
    let bio = |b: Bio| {
        let task = b.task_id.map(|t| tasks[&t]);
        (Bio { task_id: None, ..b }, task)
    };
    (reel.read().unwrap(), reel.read::<Bio>().unwrap().into_iter().map(bio).collect())
}

#[test]
fn block_events_give_the_rows_of_the_binary_trace() {
    let dir = tempfile::tempdir().unwrap();
    let data = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("tests/data/blktrace");
    for (i, sample) in fs::read_dir(data).unwrap().map(|e| e.unwrap().path()).enumerate() {
        let out = dir.path().join(format!("{i}.reel"));
        import::blktrace::import(&[sample.join("vda")], &out).unwrap();
        let binary = Reel::open(&out).unwrap();
        let (truth, warnings) = (rows(&binary), &binary.manifest.warnings);
        let text = fs::read_to_string(sample.join("vda.blkparse.txt")).unwrap();
        for program in ["trace_pipe", "trace-cmd", "perf"] {
            let events: String = text.lines().filter_map(|l| as_events(l, program)).collect();
            let head = "# tracer: nop\n#\ncpus=2\n";
            let reel =
                imported(dir.path(), &format!("{program}{i}"), &format!("{head}{events}"), import::ktrace::import);
            let found = rows(&reel);
            assert!(truth.0.len() > 20);
            for (got, want) in found.0.iter().zip(&truth.0) {
                assert_eq!(got, want, "{program} {}", sample.display());
            }
            for (got, want) in found.1.iter().zip(&truth.1) {
                assert_eq!(got, want, "{program} {}", sample.display());
            }
            assert_eq!((found.0.len(), found.1.len()), (truth.0.len(), truth.1.len()));
            assert_eq!(&reel.manifest.warnings, warnings);
        }
    }
}

#[test]
fn entries_and_exits_become_calls() {
    let dir = tempfile::tempdir().unwrap();
    let trace_pipe = "             cat-70  (     70) [001] .... 100.000000: sys_openat(dfd: ffffff9c, filename: 7f1b, flags: 80000, mode: 0)\n\
                      \x20            cat-70  (     70) [001] .... 100.000010: sys_openat -> 0x3\n\
                      \x20            cat-70  (     70) [001] .... 100.000020: sys_read(fd: 3, buf: 7f1b, count: 1000)\n\
                      CPU:1 [LOST 7 EVENTS]\n\
                      \x20            cat-71  (     70) [000] .... 100.000025: sys_read(fd: 3, buf: 7f1b, count: 1000)\n\
                      \x20            cat-70  (     70) [001] .... 100.000030: sys_read -> 0x200\n\
                      \x20            cat-71  (     70) [000] .... 100.000035: sys_read -> 0xfffffffffffffff5\n\
                      \x20            cat-70  (     70) [001] .... 100.000040: ext4_da_write_begin: dev 8,0 ino 12\n\
                      \x20            cat-70  (     70) [001] .... 100.000050: sys_close -> 0x0\n\
                      \x20            cat-70  (     70) [001] .... 100.000060: sys_enter_garbage\n";
    let raw = "cat  70/70 [001] 100.000000: raw_syscalls:sys_enter: NR 257 (ffffff9c, 7f1b, 80000, 0, 0, 0)\n\
               cat  70/70 [001] 100.000010: raw_syscalls:sys_exit: NR 257 = 3\n\
               cat  70/70 [001] 100.000020: raw_syscalls:sys_enter: NR 0 (3, 7f1b, 1000, 0, 0, 0)\n\
               cat  70/71 [000] 100.000025: syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7f1b, count: 0x00001000\n\
               cat  70/70 [001] 100.000030: raw_syscalls:sys_exit: NR 0 = 512\n\
               \tffffffff81234567 ksys_read+0x1 ([kernel.kallsyms])\n\n\
               cat  70/71 [000] 100.000035: syscalls:sys_exit_read: 0xfffffffffffffff5\n\
               cat  70/70 [001] 100.000036: sched:sched_switch: prev_comm=cat\n";
    for (name, text) in [("trace_pipe", trace_pipe), ("raw", raw)] {
        let reel = imported(dir.path(), name, text, import::ktrace::import);
        let ops = reel.read::<Op>().unwrap();
        let brief: Vec<_> = ops
            .iter()
            .map(|o| (o.tid, &*o.op, o.start_ns, o.dur_ns, o.fd, o.offset_bytes, o.len_bytes, o.ret))
            .collect();
        assert_eq!(
            brief,
            [
                (70, "openat", 0, 10_000, None, None, None, Some(3)),
                (70, "read", 20_000, 10_000, Some(3), Some(0), Some(4096), Some(512)),
                (71, "read", 25_000, 10_000, Some(3), None, Some(4096), Some(-11)),
            ],
            "{name}"
        );
        assert_eq!((ops[0].dirfd, ops[0].flags, ops[0].path.clone()), (Some(-100), Some(0o2_000_000), None));
        let tasks = reel.read::<Task>().unwrap();
        assert_eq!(
            tasks.iter().map(|t| (t.pid, t.tid, &*t.comm)).collect::<Vec<_>>(),
            [(70, 70, "cat"), (70, 71, "cat")]
        );
        let m = &reel.manifest;
        assert_eq!(
            m.losses.iter().map(|l| (l.cpu, l.events)).collect::<Vec<_>>(),
            if name == "raw" { vec![] } else { vec![(1, 7)] }
        );
        assert!(m.left_out.iter().any(|(why, n)| why.starts_with("events ") && *n == 1), "{:?}", m.left_out);
    }
}

#[test]
fn biosnoop_gives_requests_with_their_threads() {
    let dir = tempfile::tempdir().unwrap();
    let text = "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)\n\
                0.000004    supervise      1950    xvda1     W 13092560   4096      0.10    0.74\n\
                0.000178    Web Content    1951    xvda1     R 13092568   8192      0.00    0.01\n\
                0.001469    ?              0       sdb       F 0          0        -1.00    0.50\n\
                nonsense\n";
    let reel = imported(dir.path(), "biosnoop", text, import::bcc::import);
    let blocks = reel.read::<Block>().unwrap();
    let brief: Vec<_> =
        blocks.iter().map(|b| (b.queue_ns, b.issue_ns, b.complete_ns, b.dev, &*b.op, b.sector, b.len_bytes)).collect();
    assert_eq!(
        brief,
        [
            (Some(0), 100_000, Some(840_000), 1, "write", 13_092_560, 4096),
            (Some(1_004_000), 1_004_000, Some(1_014_000), 1, "read", 13_092_568, 8192),
            (None, 1_805_000, Some(2_305_000), 2, "flush", -1, 0),
        ]
    );
    let names: Vec<_> = reel.manifest.devices.iter().map(|d| (d.dev, &*d.name)).collect();
    assert_eq!(names, [(2, "sdb"), (1, "xvda1")]);
    let tasks: Vec<_> = reel.read::<Task>().unwrap().iter().map(|t| (t.pid, t.comm.to_string())).collect();
    assert!(tasks.contains(&(1951, "Web Content".into())));
    let bios = reel.read::<Bio>().unwrap();
    assert_eq!(
        bios.iter().map(|b| (b.rq_id, b.task_id.is_some())).collect::<Vec<_>>(),
        [(Some(0), true), (Some(1), true), (Some(2), false)]
    );
    assert!(reel.manifest.warnings.iter().any(|w| w.starts_with("1 lines could not be read")));
}

#[test]
fn opens_and_slow_calls_of_bcc_become_calls() {
    let dir = tempfile::tempdir().unwrap();
    let text = "PID    COMM               FD ERR PATH\n17326  a 7 b               -1   2 /etc/no file\n1576   snmpd              11   0 /proc/sys\n";
    let reel = imported(dir.path(), "opensnoop", text, import::bcc::import);
    let ops = reel.read::<Op>().unwrap();
    let brief: Vec<_> = ops.iter().map(|o| (o.pid, &*o.op, o.path.as_deref(), o.ret, o.file)).collect();
    assert_eq!(
        brief,
        [
            (17_326, "openat", Some("/etc/no file"), Some(-2), None),
            (1576, "openat", Some("/proc/sys"), Some(11), Some(0)),
        ]
    );
    assert!(reel.manifest.warnings.iter().any(|w| w.contains("only the order of the calls is known")));
    let text = "Tracing ext4 operations slower than 1 ms\n\
                TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME\n\
                23:59:59 cron           16464  R 1249    3          16.05 common-auth\n\
                00:00:01 my job         16465  S 0       0           2.50 data base\n\
                00:00:02 cron           16464  O 0       0           1.00 x\n";
    let reel = imported(dir.path(), "slower", text, import::bcc::import);
    let ops = reel.read::<Op>().unwrap();
    let brief: Vec<_> =
        ops.iter().map(|o| (&*o.op, o.start_ns, o.dur_ns, o.offset_bytes, o.len_bytes, o.ret)).collect();
    assert_eq!(
        brief,
        [
            ("read", 0, 16_050_000, Some(3072), Some(1249), Some(1249)),
            ("fsync", 2_013_550_000, 2_500_000, None, None, Some(0)),
            ("openat", 3_015_050_000, 1_000_000, None, None, Some(0)),
        ]
    );
    let files: Vec<_> =
        reel.read::<File>().unwrap().iter().map(|f| f.path.as_deref().unwrap_or("").to_owned()).collect();
    assert_eq!(files, ["common-auth", "data base", "x"]);
    let told = "the table has no results of 2 opens and syncs: they count as complete, with result 0";
    assert!(reel.manifest.warnings.iter().any(|w| w == told), "{:?}", reel.manifest.warnings);
}
