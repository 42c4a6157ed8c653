//! One program under strace with every option that people use gives the same calls.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ioreel_traces::{
    Reel, import,
    rows::{File, Op, Task},
    validate::validate,
};

/// Files with odd names, a fork whose parent waits, a descriptor of a deleted file, and a failure.
const SCRIPT: &str =
    "echo hello > 'a>b'; dd if='a>b' of='q\"x' bs=6 2>/dev/null; exec 5<'a>b'; rm 'a>b'; cat <&5 >/dev/null
echo x > 'new\nline'; mv 'q\"x' 'd (x)'; cat 'd (x)' > /dev/null; sh -c 'cat nope' 2>/dev/null & wait; rm 'new\nline'";

fn imported(inputs: &[PathBuf], out: &Path) -> Reel {
    import::strace::import(inputs, out).unwrap();
    let report = validate(out, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    Reel::open(out).unwrap()
}

fn of_text(dir: &Path, name: &str, text: &str) -> Reel {
    let (input, out) = (dir.join(format!("{name}.txt")), dir.join(format!("{name}.reel")));
    fs::write(&input, text).unwrap();
    imported(&[input], &out)
}

/// Runs the script under strace and imports what it wrote: to `calls.txt`, to files beside it, or to the terminal.
fn traced(options: &str) -> Reel {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let mut strace = Command::new("strace");
    strace.args(options.split(' ')).current_dir(&work).stdin(Stdio::null());
    let terminal = options.contains("terminal");
    if terminal {
        strace = Command::new("strace");
        strace.args(options.split(' ').filter(|o| *o != "terminal")).current_dir(&work).stdin(Stdio::null());
        strace.stderr(fs::File::create(dir.path().join("calls.txt")).unwrap());
    } else {
        strace.arg("-o").arg(dir.path().join("calls.txt"));
    }
    let status = strace.args(["sh", "-c", SCRIPT]).stdout(Stdio::null()).status();
    assert!(status.expect("strace: scripts/setup test installs it").success());
    let reel = imported(&[dir.path().join("calls.txt")], &dir.path().join("a.reel"));
    reel_in_memory(reel, dir)
}

/// Keeps the folder of a reel until the end of the tests.
fn reel_in_memory(reel: Reel, dir: tempfile::TempDir) -> Reel {
    std::mem::forget(dir);
    reel
}

/// What each thread did on the files of the script, in order, without numbers that differ between runs: name of the call, end
/// of its path, end of its file's path, position, length, result.
type Brief = (String, Option<String>, Option<String>, Option<i64>, Option<i64>, i64);

fn brief(reel: &Reel) -> Vec<Vec<Brief>> {
    let files: HashMap<i64, File> = reel.read::<File>().unwrap().into_iter().map(|f| (f.file, f)).collect();
    let end = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mut threads: Vec<(i32, Vec<Brief>)> = Vec::new();
    let mut ops = reel.read::<Op>().unwrap();
    ops.sort_by_key(|o| o.start_ns);
    for o in ops {
        let file = o.file.and_then(|f| files[&f].path.as_deref().filter(|p| p.starts_with('/')).map(end));
        let path = o.path.as_deref().map(end);
        let own = |name: &Option<String>| {
            name.as_deref().is_some_and(|n| ["a>b", "q\"x", "d (x)", "new\nline", "nope"].contains(&n))
        };
        if !own(&file) && !own(&path) {
            continue;
        }
        let i = threads.iter().position(|(tid, _)| *tid == o.tid).unwrap_or_else(|| {
            threads.push((o.tid, Vec::new()));
            threads.len() - 1
        });
        let ret = o.ret.unwrap_or(-4095);
        threads[i].1.push((o.op.to_string(), path, file, o.offset_bytes, o.len_bytes, ret));
    }
    threads.into_iter().map(|(_, calls)| calls).collect()
}

#[test]
fn every_option_gives_the_same_calls() {
    let truth_reel = traced("-f -ttt -T -y");
    let truth = brief(&truth_reel);
    assert!(truth.len() >= 6 && truth.iter().map(Vec::len).sum::<usize>() > 25, "{truth:?}");
    for options in [
        "-f -tt -T -y",
        "-f -t -y",
        "-f -r -y",
        "-f -r -tt -yy",
        "-f -y",
        "-f -ttt -T -y -C",
        "-f -tt -k -y",
        "-f -tt -i -n -Y -y",
        "-ff -ttt -T -y",
        "-ff -tt -y",
        "-f -y terminal",
        "-f -tt -T -y terminal",
        "-f -r -Y -y terminal",
    ] {
        let reel = traced(options);
        let calls = brief(&reel);
        assert_eq!(calls.len(), truth.len(), "{options}: {calls:#?}");
        for (i, (got, want)) in calls.iter().zip(&truth).enumerate() {
            assert_eq!(got, want, "{options}, thread {i}");
        }
        let warnings = &reel.manifest.warnings;
        assert!(warnings.iter().all(|w| !w.contains("could not be read")), "{options}: {warnings:?}");
        let timed = options.contains("-t") || options.contains("-r");
        assert_eq!(warnings.iter().any(|w| w.contains("only the order of the calls is known")), !timed, "{options}");
    }
}

/// Calls with their start, duration and thread.
fn calls(reel: &Reel) -> Vec<(i32, String, i64, i64, Option<i64>)> {
    let ops = reel.read::<Op>().unwrap();
    ops.iter().map(|o| (o.tid, o.op.to_string(), o.start_ns, o.dur_ns, o.ret)).collect()
}

#[test]
fn terminal_output_is_put_together() {
    let dir = tempfile::tempdir().unwrap();
    let text = "23:59:59.999000 openat(AT_FDCWD, \"a\", O_RDONLY) = 3\nvfork(strace: Process 11 attached\n <unfinished ...>\n\
                [pid    11] 00:00:00.001000 write(3, \"x\", 1 <unfinished ...>\n\
                [pid    10] 00:00:00.001500 <... vfork resumed>) = 11\n\
                [pid    11] 00:00:00.002000 <... write resumed>) = 1\n\
                output of the program\n\
                [pid    10] 00:00:00.003000 pread64(3,  <unfinished ...>\n\
                [pid    11] 00:00:00.003500 fsync(3)   = ? <unavailable>\n\
                [pid    11] 00:00:00.004000 +++ exited with 0 +++\n\
                00:00:00.005000 <... pread resumed>\"\", 10, 0) = 0\n\
                00:00:00.006000 close(3) = 0\n00:00:00.006500 +++ exited with 0 +++\n";
    // strace writes the time before a call that a message interrupts, too.
    let text = text.replace("\nvfork(", "\n23:59:59.999500 vfork(");
    let reel = of_text(dir.path(), "terminal", &text);
    let call = |tid, name: &str, us: i64, dur_us: i64, ret| (tid, name.to_owned(), us * 1000, dur_us * 1000, Some(ret));
    assert_eq!(
        calls(&reel),
        [
            call(10, "openat", 0, 0, 3),
            call(11, "write", 2000, 1000, 1),
            call(10, "pread64", 4000, 2000, 0),
            call(10, "close", 7000, 0, 0),
        ]
    );
    let mut tasks = reel.read::<Task>().unwrap();
    tasks.sort_by_key(|t| t.tid);
    assert_eq!(tasks.iter().map(|t| (t.tid, t.parent)).collect::<Vec<_>>(), [(10, None), (11, Some(0))]);
    assert!(reel.manifest.warnings.iter().any(|w| w.starts_with("1 lines could not be read")));
}

/// Sockets and pipes that the text does not show take the number of a file that was closed without a line.
#[test]
fn a_descriptor_with_another_path_is_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = "openat(AT_FDCWD, \"/a\", O_RDONLY) = 3</a>\nread(3</a>, \"x\", 1) = 1\nread(3<pipe:[7]>, \"x\", 1) = 1\n\
                read(3</a>, \"x\", 1) = 1\nopenat(AT_FDCWD, \"/b\", O_RDONLY) = 3</b>\nread(3</b>, \"x\", 1) = 1\n";
    let reel = of_text(dir.path(), "reused", text);
    let ops = reel.read::<Op>().unwrap();
    assert_eq!(ops.iter().map(|o| o.offset_bytes).collect::<Vec<_>>(), [None, Some(0), None, None, None, Some(0)]);
    let mut ofds: Vec<i64> = ops.iter().filter_map(|o| o.ofd).collect();
    ofds.dedup();
    assert_eq!(ofds, [0, 1, 2, 3]);
}

/// A file of `-ff` that begins after midnight is not the first one; one without a line says nothing about the start.
#[test]
fn files_of_one_run_go_on_over_midnight() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str, lines: [[&str; 3]; 2]| {
        let run = dir.path().join(name);
        fs::create_dir(&run).unwrap();
        fs::write(run.join("calls.9"), "").unwrap();
        for (tid, [first, second, third]) in [10, 11].into_iter().zip(lines) {
            let text = format!("{first} fsync(3</f>) = 0\n{second} fsync(3</f>) = 0\n{third} +++ exited with 0 +++\n");
            fs::write(run.join(format!("calls.{tid}")), text).unwrap();
        }
        imported(&[run], &dir.path().join(format!("{name}.reel")))
    };
    let day = of("day", [["23:59:59.500000", "00:00:01", "00:00:02"], ["00:00:00.250000", "00:00:00.5", "00:00:01"]]);
    let epoch = of("epoch", [["1795844399.500000", "1795844401.0", "1795844402.0"]; 2]);
    let brief =
        |reel: &Reel| calls(reel).into_iter().map(|(tid, _, start, ..)| (tid, start / 1_000_000)).collect::<Vec<_>>();
    assert_eq!(brief(&day), [(10, 0), (11, 750), (11, 1000), (10, 1500)]);
    assert_eq!(day.manifest.span.elapsed_ns, 2_500_000_000);
    assert_eq!(
        (epoch.manifest.clock.realtime_ns, epoch.manifest.span.elapsed_ns),
        (1_795_844_399_500_000_000, 2_500_000_000)
    );
    assert!(day.manifest.clock_jumps.is_empty(), "{:?}", day.manifest.clock_jumps);
}

/// Times of a clock that was never set never decrease; times between lines do, however long the first one is.
#[test]
fn an_excerpt_with_times_between_lines_is_told_from_an_early_clock() {
    let dir = tempfile::tempdir().unwrap();
    let starts = |name: &str, times: [&str; 4]| {
        let text: String = times.iter().map(|at| format!("7 {at} close(3) = 0\n")).collect();
        let reel = of_text(dir.path(), name, &text);
        let told = reel.manifest.warnings.iter().any(|w| w.contains("times between lines"));
        (calls(&reel).iter().map(|c| c.2 / 1_000_000).collect::<Vec<_>>(), told)
    };
    assert_eq!(
        starts("between", ["3.000000", "0.250000", "5.000000", "6.000000"]),
        (vec![3000, 3250, 8250, 14_250], true)
    );
    assert_eq!(starts("early", ["3.000000", "3.250000", "5.000000", "5.500000"]), (vec![0, 250, 2000, 2500], false));
}

#[test]
fn calls_with_a_structure_and_without_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let text = "openat2(AT_FDCWD, \"a\", {flags=O_RDWR|O_CREAT, mode=0640, resolve=RESOLVE_BENEATH|RESOLVE_NO_XDEV}, 24) = 3</w/a>\n\
                write(3</w/a>, \"x\", 1) = 1\nsync() = 0\nsyncfs(3</w/a>) = 0\n";
    let reel = of_text(dir.path(), "how", text);
    let ops = reel.read::<Op>().unwrap();
    let names: Vec<_> = ops.iter().map(|o| (&*o.op, o.fd, o.offset_bytes)).collect();
    assert_eq!(
        names,
        [("openat2", None, None), ("write", Some(3), Some(0)), ("sync", None, None), ("syncfs", Some(3), None)]
    );
    assert_eq!((ops[0].flags, ops[0].mode, ops[0].aux2), (Some(0o102), Some(0o640), Some(9)));
    assert!(reel.manifest.warnings.iter().all(|w| !w.contains("flag names")), "{:?}", reel.manifest.warnings);
}
