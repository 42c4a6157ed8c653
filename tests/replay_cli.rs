//! `ioreel replay` as a user meets it: exit status, text, JSON, and what it does without root.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::Kind,
    rows::{File, Op, Task},
};

/// Makes a file of 5000 bytes; with `wrong`, also fails to remove it in a way it cannot.
fn reel(dir: &Path, wrong: bool) -> PathBuf {
    reel_with(dir, wrong, &[])
}

/// The same, followed by calls on these names that are said to have succeeded; of two, `from>to`.
fn reel_with(dir: &Path, wrong: bool, more: &[(&str, &str)]) -> PathBuf {
    let path = dir.join("hand.reel");
    let manifest = Manifest::new(Kind::Synthetic, "by hand");
    let mut w = ReelWriter::create(&path, &manifest, WriterOptions::default()).unwrap();
    w.tasks.push(Task { task_id: 1, pid: 1, tid: 1, cwd: Some("/w".into()), ..Task::default() }).unwrap();
    w.files.push(File { file: 1, kind: "regular".into(), ..File::default() }).unwrap();
    let base = |start_ns: i64, op: &str, ret: i64| Op {
        op_id: -1,
        start_ns,
        dur_ns: 100,
        task_id: 1,
        op: op.into(),
        source: "syscall".into(),
        state: "complete".into(),
        ret: Some(ret),
        ..Op::default()
    };
    let name = |o: Op, path: &str| Op { path: Some(path.into()), dirfd: Some(-100), ..o };
    let mut ops = vec![
        Op { flags: Some(0o102), mode: Some(0o644), aux: Some(1), file: Some(1), ..name(base(0, "openat", 3), "f") },
        Op { fd: Some(3), offset_bytes: Some(0), len_bytes: Some(5000), file: Some(1), ..base(1000, "write", 5000) },
        Op { fd: Some(3), file: Some(1), ..base(2000, "close", 0) },
    ];
    if wrong {
        ops.push(name(base(3000, "rmdir", -39), "f"));
    }
    for (i, (op, path)) in more.iter().enumerate() {
        let (path, path2) = path.split_once('>').map_or((*path, None), |(from, to)| (from, Some(to.into())));
        let call = name(base(4000 + 1000 * i as i64, op, 0), path);
        let mode = if *op == "stat" { 0o40_755 } else { 0o777 };
        ops.push(Op { len_bytes: Some(0), mode: Some(mode), path2, ..call });
    }
    ops.into_iter().for_each(|o| w.ops.push(o).unwrap());
    w.close(manifest).unwrap();
    path
}

fn replay(reel: &Path, target: &Path, more: &[&str]) -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_ioreel"));
    c.arg("replay").arg(reel).arg("--target").arg(target).args(more);
    c
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn one_line(out: &Output) -> String {
    let line = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    line
}

fn places() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    (dir, target)
}

#[test]
fn differing_results_decide_the_exit_status() {
    for (more, code) in [(&[][..], 4), (&["--max-mismatch", "1"][..], 0)] {
        let (dir, target) = places();
        let out = replay(&reel(dir.path(), true), &target, more).output().unwrap();
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
        let said = text(&out.stdout);
        assert!(said.contains("rmdir: ENOTEMPTY -> ENOTDIR"), "{said}");
    }
    let (dir, target) = places();
    let out = replay(&reel(dir.path(), false), &target, &[]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(fs::metadata(target.join("w/f")).unwrap().len(), 5000);
}

#[test]
fn a_dry_run_writes_nothing_and_json_is_json() {
    let (dir, target) = places();
    let reel = reel(dir.path(), false);
    let out = replay(&reel, &target, &["--dry-run", "--json"]).output().unwrap();
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), plan["summary"]["operations"].as_i64()), (Some(0), Some(3)));
    assert_eq!((plan["schema"].as_str(), plan["dry_run"].as_bool()), (Some("ioreel.replay/1"), Some(true)));
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    let out = replay(&reel, &target, &["--json", "--pace", "original"]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["done"].as_i64(), Some(3));
    let verdict = &report["verdict"];
    assert_eq!(verdict["results"]["classes"]["same"].as_i64(), Some(3));
    assert_eq!(verdict["timing"]["early"].as_i64(), Some(0));
    assert!(verdict["sentence"].as_str().unwrap().contains("faithful"), "{verdict}");
}

#[test]
fn preparing_and_replaying_can_be_two_steps() {
    let (dir, target) = places();
    let reel = reel(dir.path(), false);
    let out = replay(&reel, &target, &["--prepare-only"]).output().unwrap();
    assert!(out.status.success() && target.join("w").is_dir() && !target.join("w/f").exists(), "{}", text(&out.stderr));
    let out = replay(&reel, &target, &["--skip-prepare"]).output().unwrap();
    assert!(out.status.success() && target.join("w/f").exists(), "{}", text(&out.stderr));
    let out = replay(&reel, &target, &["--prepare-only", "--skip-prepare"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}

/// Whoever made the reel cannot know the bytes that its writes leave, and so cannot compose a file of their choice.
#[test]
fn written_data_differs_from_run_to_run_unless_a_seed_is_given() {
    let written = |more: &[&str]| {
        let (dir, target) = places();
        let out = replay(&reel(dir.path(), false), &target, more).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        (fs::read(target.join("w/f")).unwrap(), text(&out.stdout))
    };
    for options in [&[][..], &["--compressibility", "0.5"], &["--verify"]] {
        let ((first, said), (second, _)) = (written(options), written(options));
        assert!(first.len() == 5000 && first != second, "{options:?}");
        let seed = said.lines().find_map(|l| l.strip_prefix("seed ")).unwrap().split_whitespace().next().unwrap();
        let (again, _) = written(&[options, &["--seed", seed]].concat());
        assert!(again == first, "{options:?} --seed {seed}");
    }
    let (dir, target) = places();
    let out = replay(&reel(dir.path(), false), &target, &["--skip-prepare", "--verify"]).output().unwrap();
    assert!(one_line(&out).contains("--seed"));
}

#[test]
fn bad_input_gets_one_clear_line() {
    let (dir, target) = places();
    let good = reel(dir.path(), false);
    assert!(one_line(&replay(&dir.path().join("none.reel"), &target, &[]).output().unwrap()).contains("none.reel"));
    assert!(one_line(&replay(&good, &dir.path().join("none"), &[]).output().unwrap()).contains("none"));
    fs::write(target.join("mine"), "precious").unwrap();
    assert!(one_line(&replay(&good, &target, &[]).output().unwrap()).contains("--force"));
    let result = dir.path().join("there.reel");
    fs::create_dir(&result).unwrap();
    let words = ["--force", "-o", result.to_str().unwrap()];
    let out = replay(&good, &target, &words).output().unwrap();
    assert!(text(&out.stderr).contains("already exists"), "{}", text(&out.stderr));
    assert!(!target.join("w").exists(), "nothing is prepared before the result has a place");
}

/// Lets everybody read a reel.
fn for_all(reel: &Path) -> PathBuf {
    let status = Command::new("chmod").args(["-R", "a+rX"]).arg(reel).status().unwrap();
    assert!(status.success());
    reel.to_owned()
}

/// The program as nobody, on a target of its own.
fn as_nobody(dir: &Path, reel: &Path, target: &Path) -> Output {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    // Copied, since nobody may be able to reach the build folder; by another process, since a descriptor
    // open for writing here could be inherited by another test's child, and then the copy is busy.
    let program = dir.join("ioreel");
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program).status().unwrap().success());
    let root = fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let mut c = Command::new(&program);
    c.arg("replay").arg(reel).arg("--target").arg(target);
    if root {
        std::os::unix::fs::chown(target, Some(65534), Some(65534)).unwrap();
        c.uid(65534).gid(65534);
    }
    c.output().unwrap()
}

#[test]
fn without_root_a_hostile_reel_touches_nothing_outside() {
    let (dir, target) = places();
    let bait = dir.path().join("bait");
    fs::write(&bait, "untouched").unwrap();
    fs::set_permissions(&bait, fs::Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let up = format!("{}{}", "../".repeat(30), bait.to_str().unwrap());
    let proc = format!("/proc/self/root{}", bait.to_str().unwrap());
    let absolute = bait.to_str().unwrap();
    let attacks: Vec<(&str, &str)> = [up.as_str(), &proc, absolute]
        .into_iter()
        .flat_map(|path| ["truncate", "unlink", "chmod", "mount", "umount2", "chroot", "mknod"].map(|op| (op, path)))
        .collect();
    let out = as_nobody(dir.path(), &for_all(&reel_with(dir.path(), false, &attacks)), &target);
    assert_eq!(fs::read_to_string(&bait).unwrap(), "untouched", "{}", text(&out.stderr));
    assert_eq!(fs::metadata(&bait).unwrap().permissions().mode() & 0o777, 0o666);
}

#[test]
fn without_root_it_runs_in_a_user_namespace_or_says_why_not() {
    let (dir, target) = places();
    let out = as_nobody(dir.path(), &for_all(&reel(dir.path(), false)), &target);
    if out.status.success() {
        assert_eq!(fs::metadata(target.join("w/f")).unwrap().len(), 5000);
        // The reel is root's.
        let root = fs::metadata(dir.path()).is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
        assert_eq!(text(&out.stderr).contains("belongs to user 0, so its replay is confined"), root);
    } else {
        assert!(text(&out.stderr).contains("user namespace"), "{}", text(&out.stderr));
    }
}

/// Put between the program and the kernel: what stands in place of a call, of `issue` or of what surrounds it.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

static const char *fault(void) { const char *f = getenv("FAULT"); return f ? f : ""; }
static int at_work(void) { return !strncmp(fault(), "delay", 5); }

int sched_getcpu(void) {
    struct timespec t = { 0, 3000000 };
    if (at_work()) nanosleep(&t, 0);
    return 0;
}

long syscall(long n, long a, long b, long c, long d, long e, long f) {
    static long (*real)(long, ...);
    static long held[5];
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (n == SYS_unlinkat && !strcmp(fault(), "drop")) return 0;
    if (n == SYS_unlinkat && !strcmp(fault(), "escape")) {
        /* What code that a reel has smuggled in would try. */
        char *none[] = { 0 };
        int got_out = real(SYS_socket, AF_INET, SOCK_DGRAM, 0) >= 0
            || real(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0) >= 0
            || real(SYS_unshare, CLONE_NEWNET) >= 0
            || mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED
            || real(SYS_execve, "/w/f", none, none) >= 0 || errno != EPERM;
        real(SYS_openat, AT_FDCWD, got_out ? "/escaped" : "/held", O_CREAT | O_WRONLY, 0600);
    }
    if (n == SYS_write && c == 5000 && !strcmp(fault(), "lose")) return c;
    if (n == SYS_fchmodat && !strcmp(fault(), "change")) { errno = EPERM; return -1; }
    if (n == SYS_renameat2 && !strcmp(fault(), "swap")) {
        if (!held[1]) { held[0] = a; held[1] = b; held[2] = c; held[3] = d; return 0; }
        long r = real(n, a, b, c, d, e, f);
        real(n, held[0], held[1], held[2], held[3], 0, 0);
        return r;
    }
    return real(n, a, b, c, d, e, f);
}
"#;

/// A library that is put between the program and the kernel.
fn shim(dir: &Path) -> PathBuf {
    let (source, shim) = (dir.join("shim.c"), dir.join("shim.so"));
    fs::write(&source, SHIM).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &source]).arg("-ldl").status();
    assert!(made.unwrap().success(), "the linker of Rust programs makes libraries too");
    shim
}

#[test]
fn an_untrusted_replay_does_the_same_and_its_threads_can_do_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let shim = shim(dir.path());
    for (option, left) in [("--untrusted", "held"), ("--trusted", "escaped")] {
        let (dir, target) = places();
        let reel = reel_with(dir.path(), false, &[("mkdir", "a"), ("rename", "f>a/g"), ("unlink", "a/g")]);
        let result = dir.path().join("result.reel");
        let out = replay(&reel, &target, &[option, "-o", result.to_str().unwrap()]).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{option}: {}{}", text(&out.stdout), text(&out.stderr));
        assert_eq!(Manifest::read(&result).unwrap().kind, Kind::Replay);
        let (_dir, target) = places();
        let mut c = replay(&reel, &target, &[option]);
        let out = c.env("LD_PRELOAD", &shim).env("FAULT", "escape").output().unwrap();
        let names: Vec<_> = fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(names.iter().any(|n| n == left), "{option}: {names:?} {}", text(&out.stderr));
    }
}

#[test]
fn what_could_compose_a_program_needs_a_trusted_reel() {
    let (dir, target) = places();
    let reel = reel(dir.path(), false);
    for more in [&["--untrusted", "--seed", "1"][..], &["--untrusted", "--set-ids"], &["--untrusted", "--trusted"]] {
        let out = replay(&reel, &target, more).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{more:?}: {}", text(&out.stderr));
    }
    // A reel that everybody may change is nobody's.
    fs::set_permissions(&reel, fs::Permissions::from_mode(0o777)).unwrap();
    for more in [&["--seed", "1"][..], &["--set-ids"]] {
        let out = replay(&reel, &target, more).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.contains("everybody may change it") && said.contains("or give --trusted"), "{said}");
    }
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    let out = replay(&reel, &target, &["--seed", "1", "--trusted"]).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(!text(&out.stderr).contains("confined"));
}

/// What is done wrong below the replayer, where its own records say that all was well, turns the verdict and the exit status.
#[test]
fn faults_below_the_replayer_turn_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let shim = shim(dir.path());
    for (fault, status, why) in [
        ("none", 0, "is faithful"),
        ("delay", 32, "the replayer itself was late"),
        ("drop", 8, "names of the final tree differ"),
        ("lose", 8, "names of the final tree differ"),
        ("change", 12, "1 results are wrong"),
        ("swap", 12, "names of the final tree differ"),
    ] {
        let (dir, target) = places();
        let mut more = vec![("mkdir", "a"), ("mkdir", "b"), ("chmod", "a"), ("unlink", "x")];
        more.extend([("rename", "a>c"), ("rename", "b>a")]);
        more.extend([("stat", "a"); 200]);
        let reel = reel_with(dir.path(), false, &more);
        let mut c = replay(&reel, &target, &["--pace", "max"]);
        if fault != "delay" {
            c.args(["--max-own-lateness", "1h"]);
        }
        let out = c.env("LD_PRELOAD", &shim).env("FAULT", fault).output().unwrap();
        let said = text(&out.stdout);
        let last = said.lines().last().unwrap_or_default();
        assert_eq!(out.status.code(), Some(status), "{fault}: {said}{}", text(&out.stderr));
        assert!(last.contains(why), "{fault}: {said}");
    }
}
