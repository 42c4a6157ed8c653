//! The recorder is killed (kill -9) at any moment: what it had closed is a valid reel, the recorded program is
//! unharmed, and nothing of it stays in the kernel.

use std::{fs, os::unix::process::CommandExt, path::Path, process::Stdio, time::Duration};

use ioreel_traces::{
    Reel,
    manifest::State,
    rows::{Name, Op, Tree},
};

use crate::harness::{bpf::left_behind, describe, ioreel, record, run, temp_dir, text, wait_for};

/// Instants tried in CI; `make test-kill` tries more.
const DEFAULT_INSTANTS: u32 = 8;
/// The latest instant: past the program's end.
const LATEST_MS: u32 = 2_500;

/// From when an instant counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    /// The recorder's start.
    Start,
    /// The reel's first sign of life: starting takes long on a busy machine.
    Reel,
}

/// Writes numbers, some by children, for a second and a half; the last line says that it is whole.
const PROGRAM: &str = "exec 2>/dev/null; i=0; while [ $i -lt 60 ]; do echo $i >>out; \
    (echo child $i >>children; cat out >copy); sleep 0.02; i=$((i+1)); done; echo whole >>out; mv out done";

/// An instant, anywhere from before the probes are loaded to after the end. Weyl's sequence: evenly spread.
fn instant(i: u32) -> Duration {
    let fraction = (f64::from(i) * 0.618_033_988_75).fract();
    Duration::from_secs_f64(fraction * f64::from(LATEST_MS) / 1000.0)
}

pub(crate) fn at_random_instants() {
    let instants = std::env::var("IOREEL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(DEFAULT_INSTANTS);
    let mut reels = 0;
    for i in 0..instants {
        let from = if i % 2 == 0 { From::Start } else { From::Reel };
        reels += u32::from(at(from, instant(i)));
    }
    assert!(reels * 2 >= instants, "of {instants} recordings only {reels} had begun: the instants are too early");
    wait_for("the kernel to drop the probes", || left_behind().is_empty().then_some(()));
}

/// Kills a recording after `delay`; whether it had begun to write a reel.
fn at(from: From, delay: Duration) -> bool {
    let out = temp_dir();
    let dir = out.path().join("work");
    fs::create_dir(&dir).unwrap();
    let reel = out.path().join("x.reel");
    let mut command = record(&reel, &[], &["sh", "-c", PROGRAM]);
    command.current_dir(&dir).process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut recorder = command.spawn().unwrap();
    let group = recorder.id();
    if from == From::Reel {
        wait_for("the recording to begin", || reel.join("manifest.json").exists().then_some(()));
    }
    std::thread::sleep(delay);
    recorder.kill().unwrap();
    recorder.wait().unwrap();

    wait_for("the recorded program to end", || (!alive(group)).then_some(()));
    let done = dir.join("done");
    if done.exists() {
        let lines = fs::read_to_string(&done).unwrap();
        let expected: String = (0..60).map(|i| format!("{i}\n")).chain(["whole\n".into()]).collect();
        assert_eq!(lines, expected, "killed after {delay:?}");
        assert_eq!(fs::read_to_string(dir.join("children")).unwrap().lines().count(), 60);
    } else {
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "killed after {delay:?}, the program ran half");
    }
    repaired(&reel)
}

/// Repairs what is there, which must then be valid; false when there was nothing yet.
fn repaired(reel: &Path) -> bool {
    if !reel.join("manifest.json").exists() {
        return false;
    }
    let output = run(&mut ioreel(["validate", "--repair", text(reel)]));
    assert!(output.status.success(), "{}", describe(&output));
    let output = run(&mut ioreel(["validate", text(reel)]));
    assert!(output.status.success(), "{}", describe(&output));
    let reel = Reel::open(reel).unwrap();
    assert_ne!(reel.manifest.state, State::Recording);
    assert_eq!(reel.read::<Op>().unwrap().len() as i64, reel.count::<Op>());
    true
}

/// Whether any process of the group is left.
fn alive(group: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(-(group as i32), 0) == 0 }
}

/// Segments that were closed before are in the repaired reel.
pub(crate) fn closed_segments_are_kept() {
    let out = temp_dir();
    let reel = out.path().join("x.reel");
    let file = out.path().join("file");
    // Small segments, by way of a size that is never reached.
    let script = format!("dd if=/dev/zero of={} bs=1 count=400000 2>/dev/null; sleep 60", text(&file));
    let mut command = record(&reel, &["--max-size", "1M", "--no-snapshot"], &["sh", "-c", &script]);
    let mut recorder = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let group = recorder.id();
    let segments = || fs::read_dir(reel.join("ops")).map_or(0, |d| d.count());
    wait_for("segments to be closed", || (segments() >= 10).then_some(()));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // SAFETY: ends what this test started.
    unsafe { libc::kill(-(group as i32), libc::SIGKILL) };
    assert!(repaired(&reel));
    let kept = Reel::open(&reel).unwrap();
    assert!(kept.count::<Op>() >= 40_000, "{} operations", kept.count::<Op>());
    assert!(kept.read::<ioreel_traces::rows::Task>().unwrap().iter().any(|t| t.parent.is_none()), "the command's task");
    // What the recorder writes at its end is derived of what it wrote before.
    let names = kept.read::<Name>().unwrap();
    let own = names.iter().find(|n| &*n.path == text(&file)).unwrap();
    assert_eq!((&*own.how, &own.ended, own.file.is_some()), ("created", &None, true), "{own:?}");
    let tree = kept.read::<Tree>().unwrap();
    assert!(tree.iter().any(|t| &*t.path == text(out.path())) && tree.iter().all(|t| &*t.path != text(&file)));
    assert!(tree.iter().all(|t| t.origin == "derived"), "the disk is not looked at");
    // Once.
    let rows = (names.len(), tree.len());
    assert!(repaired(&reel));
    let kept = Reel::open(&reel).unwrap();
    assert_eq!((kept.read::<Name>().unwrap().len(), kept.read::<Tree>().unwrap().len()), rows);
}
