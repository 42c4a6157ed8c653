//! The program from end to end. Tests that record need root and a kernel that lets it load BPF programs: where
//! CI runs they must run; elsewhere they are ignored, and say why, when something is missing.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

#[path = "../harness/mod.rs"]
mod harness;

mod block;
mod calls;
mod list;
mod names;
mod recording;
mod reels;
mod replaying;
mod scope;

use std::{env, path::Path, process::ExitCode};

use block::{attribution, devices};
use calls::{mapped, uring, workload};
use harness::cannot_record;
use libtest_mimic::Arguments;
use list::{Test, Tests, print_longest};
use names::identity;
use recording::{crowd, lossless};
use scope::midway;

/// Runs a program that tests record, which is this one, with the words after its own.
type Program = fn(&[String]) -> ExitCode;

/// The first word of each, and what it runs.
const RECORDED_PROGRAMS: [(&str, Program); 9] = [
    (workload::WORD, |words| match words {
        [base, logs] => ExitCode::from(workload::run(base, Path::new(logs), false) as u8),
        [base, logs, _lenient] => ExitCode::from(workload::run(base, Path::new(logs), true) as u8),
        _ => ExitCode::from(2),
    }),
    (uring::WORD, |words| ExitCode::from(uring::run(&words[0], Path::new(&words[1])) as u8)),
    (midway::WORD, |words| midway::work(Path::new(&words[0]))),
    (crowd::WORD, |words| {
        crowd::work(Path::new(&words[0]));
        ExitCode::SUCCESS
    }),
    (attribution::WORD, |words| {
        attribution::run(&words[0], Path::new(&words[1]));
        ExitCode::SUCCESS
    }),
    (devices::WORD, |_| {
        devices::swap_out_and_in();
        ExitCode::SUCCESS
    }),
    (mapped::WORD, |words| {
        mapped::work(&words[0]);
        ExitCode::SUCCESS
    }),
    (identity::WORD, |words| {
        identity::work(Path::new(&words[0]));
        ExitCode::SUCCESS
    }),
    (lossless::WORD, |words| {
        lossless::work(&words[0], &words[1]);
        ExitCode::SUCCESS
    }),
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if let Some((word, rest)) = words.split_first()
        && let Some((_, run)) = RECORDED_PROGRAMS.iter().find(|(name, _)| name == word)
    {
        return run(rest);
    }
    heed_interrupts();
    python_without_a_wrapper();
    let mut arguments = Arguments::from_args();
    let missing = cannot_record();
    if missing.is_none() {
        own_mounts();
    }
    // The failure's text is told in the end; here, where it was.
    std::panic::set_hook(Box::new(|info| {
        if let Some(at) = info.location() {
            eprintln!("failed at {}:{}", at.file(), at.line());
        }
    }));
    let mut list = Tests::default();
    for add_to in [
        block::add_to,
        calls::add_to,
        names::add_to,
        reels::add_to,
        scope::add_to,
        replaying::add_to,
        recording::add_to,
    ] {
        add_to(&mut list);
    }
    let is_ci = env::var_os("CI").is_some_and(|v| v == "true" || v == "1");
    let (alone, together): (Vec<_>, Vec<_>) = list.0.into_iter().partition(|test| ALONE.contains(&&*test.name));
    let run = |arguments: &Arguments, tests: Vec<Test>| {
        let trials = tests.into_iter().map(|test| test.trial(missing.as_deref(), is_ci)).collect();
        libtest_mimic::run(arguments, trials)
    };
    let done = run(&arguments, together);
    arguments.test_threads = Some(1);
    let done_alone = run(&arguments, alone);
    end_what_is_left();
    print_longest(20);
    if done.has_failed() { done.exit_code() } else { done_alone.exit_code() }
}

/// What is about something that all tests share: what the page cache holds, who waits for a CPU, and which file is used
/// most.
const ALONE: [&str; 5] = [
    "cached::as_it_was",
    "devices::a_mount_in_the_place_of_another",
    "ends::beside_others_on_its_disk",
    "top::on_a_terminal",
    "waits::busy_cpus",
];

/// A shell lets what it starts in the background ignore interrupts, as nohup does hang-ups, which is inherited: tests send some.
fn heed_interrupts() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: restores a default disposition; no other thread runs yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Puts the folder of the real interpreter first in PATH. Where `python3` is a shell script that looks for one, its ten
/// thousand calls would be recorded before those of a test's program.
fn python_without_a_wrapper() {
    let asked = std::process::Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Ok(asked) = asked else { return };
    let interpreter = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let Some(folder) = Path::new(&interpreter).parent().filter(|f| f.join("python3").exists()) else { return };
    let before = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(env::split_paths(&before));
    let Ok(path) = env::join_paths(folders) else { return };
    // SAFETY: no other thread runs yet.
    unsafe { env::set_var("PATH", path) };
}

/// Ends what failed tests have started and left: a recorder that runs on, or stands still, costs the whole machine.
fn end_what_is_left() {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = tasks.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    for pid in children.flat_map(|c| c.split_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()) {
        // SAFETY: no test runs any more, so nobody waits for a child of this process and its number is its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// A mount name space of this program's own: whatever happens to it, its mounts end with it.
fn own_mounts() {
    use rustix::{
        mount::{MountPropagationFlags, mount_change},
        thread::{UnshareFlags, unshare_unsafe},
    };
    // SAFETY: one thread so far, and no descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
    // Not every machine has it mounted, and bpftrace finds tracepoints there. Where it may not be, tests say what is missing.
    if !Path::new("/sys/kernel/tracing/events").exists() {
        let mount = ["-t", "tracefs", "tracefs", "/sys/kernel/tracing"];
        let _ = std::process::Command::new("mount").args(mount).status();
    }
}
