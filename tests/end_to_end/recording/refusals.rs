//! What cannot be done is said in one clear line, and what was recorded before it stays a reel.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command, sync::mpsc::channel, thread::spawn};

use ioreel_traces::{
    Reel,
    manifest::State,
    rows::{File, Op, Task},
};

use crate::harness::{assert_valid, describe, ioreel, one_line, record, run, succeed, temp_dir, text, wait_for};

pub(crate) fn no_privileges() {
    // The build folder may be out of reach for nobody.
    let dir = temp_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = dir.path().join("ioreel");
    // By another process: a descriptor open for writing here could be inherited by a child of another test.
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_ioreel")).arg(&program));
    let reel = dir.path().join("x.reel");
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let mut command = Command::new("setpriv");
    command.args(nobody).arg(&program).args(["record", "-o", text(&reel), "--", "true"]);
    let line = one_line(command.current_dir("/"), 1);
    assert!(line.contains("root") || line.contains("CAP_"), "{line}");
    assert!(!reel.exists(), "an empty reel stayed behind");
}

/// Who could not be resumed is not stopped; a command's own processes can be.
pub(crate) fn lossless_without_the_right_to_resume() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let program = env!("CARGO_BIN_EXE_ioreel");
    let record = |rest: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-kill", "--inh-caps=-kill", program, "record", "--lossless", "-o", text(&reel)]);
        command.args(rest);
        command
    };
    for who in [&["--all"][..], &["--pid", "1"]] {
        let line = one_line(&mut record(who), 1);
        assert!(line.contains("--lossless") && line.contains("CAP_KILL") && !reel.exists(), "{line}");
    }
    succeed(&mut record(&["--", "true"]));
}

/// A kernel that refuses these programs, as the recorder meets it: in the place of libc's function.
const REFUSING: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
long syscall(long nr, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list args;
    va_start(args, nr);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (!real)
        real = dlsym(RTLD_NEXT, "syscall");
    /* BPF_PROG_LOAD; the name is at 48 in union bpf_attr. */
    if (nr == SYS_bpf && a[0] == 5 && a[2] > 64 && strncmp((char *)a[1] + 48, REFUSED, strlen(REFUSED)) == 0) {
        errno = EACCES;
        return -1;
    }
    return real(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"#;

/// What is recorded without a probe that the kernel refuses, and that the reel and `doctor` tell of it.
pub(crate) fn a_probe() {
    let out = temp_dir();
    let library = |program: &str| {
        let (source, path) = (out.path().join("refusing.c"), out.path().join(format!("{program}.so")));
        fs::write(&source, REFUSING).unwrap();
        let define = format!("-DREFUSED=\"{program}\"");
        let mut gcc = Command::new("gcc");
        succeed(gcc.args(["-shared", "-fPIC", "-O1", &define, "-o", text(&path), text(&source), "-ldl"]));
        path
    };
    let file = out.path().join("file");
    let script = format!("echo hello >{0}; sync {0}", text(&file));
    for (program, said) in [("bio_split", "block_split"), ("uring_create", "io_uring"), ("rq_complete", "bios")] {
        let reel = out.path().join(format!("{program}.reel"));
        let mut command = record(&reel, &[], &["sh", "-c", &script]);
        succeed(command.env("LD_PRELOAD", library(program)));
        let reel = assert_valid(&reel);
        let told = |w: &&String| w.contains("refuses") && w.contains(said);
        assert_eq!(reel.manifest.warnings.iter().filter(told).count(), 1, "{:?}", reel.manifest.warnings);
        let ops: Vec<Op> = reel.read().unwrap();
        assert!(ops.iter().any(|o| &*o.op == "write" && o.ret == Some(6)), "the rest is recorded");
    }
    let mut doctor = ioreel(["doctor"]);
    let said = run(doctor.env("LD_PRELOAD", library("cache_fill")));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("limited") && said.contains("mm_filemap_add_to_page_cache"), "{said}");
    // Without this there is no recording.
    let reel = out.path().join("none.reel");
    let mut command = record(&reel, &[], &["true"]);
    let line = one_line(command.env("LD_PRELOAD", library("op_exit")), 1);
    assert!(line.contains("op_exit") && line.contains("doctor") && !reel.exists(), "{line}");
}

/// What `record` and `doctor` say where nothing can be recorded, `by` whose command line they run: one line with this
/// word, and no reel.
fn nothing_is_recorded(by: &[&str], word: &str) {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let program = env!("CARGO_BIN_EXE_ioreel");
    let here = |rest: &[&str]| {
        let words: Vec<&str> = by.iter().copied().chain([program]).chain(rest.iter().copied()).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    let line = one_line(&mut here(&["record", "-o", text(&reel), "--", "true"]), 1);
    assert!(line.contains(word) && !reel.exists(), "{line}");
    let line = one_line(&mut here(&["doctor", "--programs"]), 1);
    assert!(line.contains(word), "{line}");
    let doctor = run(&mut here(&["doctor"]));
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let about = said.lines().filter(|l| l.starts_with("MISSING") && l.contains("probes") && l.contains(word));
    assert_eq!((doctor.status.code(), about.count()), (Some(3), 1), "{}", describe(&doctor));
    assert!(doctor.stderr.is_empty(), "{}", describe(&doctor));
}

pub(crate) fn without_type_information() {
    // Of that process alone: other tests need it.
    let hidden = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    nothing_is_recorded(&["unshare", "--mount", "sh", "-c", hidden, "sh"], "BTF");
}

/// Where the kernel's lockdown may be raised for good, as in a guest that ends after this test.
pub(crate) fn may_lock_down() -> bool {
    std::env::var_os("IOREEL_TEST_LOCKDOWN").is_some()
}

pub(crate) fn under_lockdown() {
    fs::write("/sys/kernel/security/lockdown", "confidentiality").unwrap();
    nothing_is_recorded(&["env"], "lockdown=integrity");
}

/// No program is near what the kernel's verifier goes through at most.
pub(crate) fn no_program_is_large() {
    let told = succeed(&mut ioreel(["doctor", "--programs", "--json"]));
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let programs = told["programs"].as_array().unwrap();
    assert!(programs.len() > 30, "{told}");
    for p in programs {
        assert!((1..750_000).contains(&p["verified"].as_u64().unwrap()), "of a million at most: {p}");
        assert!(p["instructions"].as_u64().unwrap() > 0 && p["native_bytes"].as_u64().unwrap() > 0, "{p}");
    }
}

pub(crate) fn an_unknown_device() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    for device in ["/dev/no-such-disk", "/etc/passwd", "4095:1048575"] {
        let line = one_line(&mut record(&reel, &["--device", device], &["true"]), 1);
        assert!(line.contains(device), "{line}");
    }
}

pub(crate) fn an_unknown_process() {
    let out = temp_dir();
    let line = one_line(&mut ioreel(["record", "-o", text(&out.path().join("x.reel")), "--pid", "4194303"]), 1);
    assert!(line.contains("4194303"), "{line}");
    let reel = out.path().join("x.reel");
    let refused = |pid: u32| {
        let pid = pid.to_string();
        let top = one_line(&mut ioreel(["top", "--once", "--pid", &pid]), 1);
        assert_eq!(one_line(&mut ioreel(["record", "-o", text(&reel), "--pid", &pid]), 1), top);
        top
    };
    // One of its threads.
    let (told, told_by) = channel();
    let (ends, ended) = channel::<()>();
    let thread = spawn(move || {
        told.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
        let _ = ended.recv();
    });
    let line = refused(told_by.recv().unwrap());
    assert!(line.contains(&format!("record its whole process with --pid {}", std::process::id())), "{line}");
    drop(ends);
    thread.join().unwrap();
    // kthreadd, which guests and most machines have; a container may show another process by that number, or none.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let line = refused(2);
        assert!(line.contains("kernel thread"), "{line}");
    }
    // One that has ended, and that nobody has waited for.
    let mut zombie = Command::new("true").spawn().unwrap();
    let is_zombie = || fs::read_to_string(format!("/proc/{}/stat", zombie.id())).unwrap().contains(") Z").then_some(());
    wait_for("the end of true", is_zombie);
    let line = refused(zombie.id());
    zombie.wait().unwrap();
    assert!(line.contains("no such process"), "{line}");
}

/// A process may end while the probes are loaded, which takes as long as it takes.
pub(crate) fn a_process_that_ends_meanwhile() {
    let told = (1..30).any(|n| {
        let out = temp_dir();
        let reel = out.path().join("x.reel");
        let mut process = Command::new("sleep").arg(format!("{}", 0.05 * f64::from(n))).spawn().unwrap();
        let pid = process.id();
        let waiting = spawn(move || process.wait().unwrap());
        let output = run(&mut ioreel(["record", "-o", text(&reel), "--pid", &pid.to_string()]));
        waiting.join().unwrap();
        let line = String::from_utf8_lossy(&output.stderr);
        line.contains(&format!("process {pid} ended while its recording began"))
    });
    assert!(told);
}

/// Shells' limits are not the recorder's, and stay the command's.
pub(crate) fn small_limits() {
    let out = temp_dir();
    let limited = |limit: &str, script: &str| {
        let reel = out.path().join(format!("{}.reel", limit.replace(' ', "")));
        let words = format!(
            "ulimit {limit}; exec {} record --settle none -o {} -- sh -c '{script}'",
            env!("CARGO_BIN_EXE_ioreel"),
            text(&reel)
        );
        run(Command::new("sh").args(["-c", &words]))
    };
    let few = limited("-Sn 40", "ulimit -n");
    assert!(few.status.success(), "{}", describe(&few));
    assert_eq!(String::from_utf8_lossy(&few.stdout), "40\n");
    for limit in ["-n 40", "-n 64", "-n 100"] {
        let line = String::from_utf8(limited(limit, "true").stderr).unwrap();
        assert!(line.contains("ulimit -Hn"), "{limit}: {line}");
    }
    let none = limited("-f 0", "echo x >/dev/null");
    let line = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(1) && line.contains("File too large"), "{line}");
    // Its overflow would end the program without a word.
    let narrow = limited("-s 256", "true");
    let line = String::from_utf8(narrow.stderr).unwrap();
    assert!(narrow.status.code() == Some(1) && line.contains("256 KiB") && line.contains("ulimit -s"), "{line}");
    // Of the room that is to be left there is none.
    let reel = out.path().join("room.reel");
    let line = one_line(&mut record(&reel, &["--min-free", "100%"], &["true"]), 1);
    assert!(line.contains("--min-free") && !reel.exists(), "{line}");
}

/// Nothing can be created in /proc, whose error is that of a folder that is not there.
pub(crate) fn a_reel_where_no_folder_can_be() {
    let line = one_line(&mut record(Path::new("/proc/x.reel"), &[], &["true"]), 1);
    assert!(line.contains("/proc/x.reel") && line.contains("another file system"), "{line}");
    assert!(!line.contains("does not exist"), "{line}");
    let out = temp_dir();
    let line = one_line(&mut record(&out.path().join("no/x.reel"), &[], &["true"]), 1);
    assert!(line.contains("parent folder does not exist"), "{line}");
}

pub(crate) fn a_reel_that_is_there() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    succeed(&mut record(&reel, &[], &["true"]));
    let before = fs::read(reel.join("manifest.json")).unwrap();
    let line = one_line(&mut record(&reel, &[], &["true"]), 1);
    assert!(line.contains("x.reel"), "{line}");
    assert_eq!(fs::read(reel.join("manifest.json")).unwrap(), before);
}

/// The disk fills up while the reel is written: the command runs on to its end, and the segments that were
/// closed before are a valid reel that says it is not whole.
pub(crate) fn a_full_disk() {
    let (small, out) = (temp_dir(), temp_dir());
    let mounted = ["-t", "tmpfs", "-o", "size=1m", "ioreel-test", text(small.path())];
    succeed(Command::new("mount").args(mounted));
    let reel = small.path().join("x.reel");
    let file = out.path().join("file");
    // A million and a half calls: more than fits.
    let script = format!("dd if=/dev/zero of={} bs=1 count=750000 2>/dev/null; exit 5", text(&file));
    let output = run(&mut record(&reel, &[], &["sh", "-c", &script]));
    let ended = (output.status.code(), fs::metadata(&file).unwrap().len());
    let checked = run(&mut ioreel(["validate", text(&reel)]));
    let read = Reel::open(&reel).map(|r| (r.manifest.state, r.count::<Op>(), r.read::<Op>().unwrap().len()));
    let _ = Command::new("umount").arg(small.path()).status();

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(ended, (Some(1), 750_000), "{}", describe(&output));
    assert!(!stderr.contains("panicked") && stderr.contains("No space left"), "{stderr}");
    assert!(checked.status.success(), "{}", describe(&checked));
    let (state, counted, found) = read.unwrap();
    assert_eq!(state, State::Truncated);
    assert_eq!(counted, found as i64);
    assert!(found > 100_000, "{found} operations were written");
}

/// Nothing is left where not even a manifest fits, or where nothing may be written.
pub(crate) fn no_room_at_all() {
    let small = temp_dir();
    // The folder, and the reel's: no file.
    for (option, told) in [("nr_inodes=2", "No space left"), ("ro", "mounted read-only; use another one")] {
        succeed(Command::new("mount").args(["-t", "tmpfs", "-o", option, "ioreel-test", text(small.path())]));
        let output = run(&mut record(&small.path().join("x.reel"), &[], &["true"]));
        let left = fs::read_dir(small.path()).unwrap().count();
        let _ = Command::new("umount").arg(small.path()).status();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), left), (Some(1), 0), "{}", describe(&output));
        assert!(stderr.contains(told), "{stderr}");
    }
}

/// As a script's unset variable makes it.
pub(crate) fn an_empty_command() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let line = one_line(&mut record(&reel, &[], &[""]), 1);
    assert!(line.contains("empty") && line.contains("--") && !reel.exists(), "{line}");
}

/// The recorded command itself fills it, before anything was written but the manifest: a short recording is whole nonetheless.
pub(crate) fn a_disk_that_the_command_fills() {
    let small = temp_dir();
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "ioreel-test", text(small.path())]));
    let reel = small.path().join("x.reel");
    let script = format!("dd if=/dev/zero of={}/fill bs=4k 2>/dev/null; sleep 0.3", small.path().display());
    let output = run(&mut record(&reel, &["--no-snapshot"], &["sh", "-c", &script]));
    let read = Reel::open(&reel).map(|r| (r.count::<File>(), r.count::<Task>(), r.count::<Op>()));
    let checked = run(&mut ioreel(["validate", text(&reel)]));
    let _ = Command::new("umount").arg(small.path()).status();

    assert!(checked.status.success(), "{} {}", describe(&output), describe(&checked));
    let (files, tasks, ops) = read.unwrap();
    assert!(
        files > 3 && tasks > 2 && ops > 900,
        "{files} files, {tasks} tasks, {ops} operations: {}",
        describe(&output)
    );
}
