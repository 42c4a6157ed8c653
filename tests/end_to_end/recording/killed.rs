//! The recorder is killed (kill -9) at any moment: what it had closed is a valid reel, the recorded program is
//! unharmed, and nothing of it stays in the kernel.

use std::{
    collections::HashSet,
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::Stdio,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ioreel_traces::{
    Reel,
    manifest::{KILLED, State},
    rows::{File, Name, Op, Tree},
};

use crate::harness::{bpf::left_behind, describe, ioreel, patience, record, run, succeed, temp_dir, text, wait_for};

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

/// A reel in which `validate` finds nothing.
fn assert_sound(reel: &Path) -> Reel {
    succeed(&mut ioreel(["validate", text(reel)]));
    Reel::open(reel).unwrap()
}

/// Whether any process of the group is left.
fn alive(group: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { libc::kill(-(group as i32), 0) == 0 }
}

/// After five seconds of a slow program nothing has filled a segment, and yet all but the last second is there: rows,
/// names, the time of day, where files lay, and markers.
pub(crate) fn after_five_seconds() {
    let out = temp_dir();
    let (reel, file) = (out.path().join("x.reel"), out.path().join("file"));
    let script =
        format!("i=0; while :; do echo $i >>{0}; cat {0} >/dev/null; sleep 0.02; i=$((i+1)); done", text(&file));
    let mut command = record(&reel, &["--no-snapshot"], &["sh", "-c", &script]);
    let mut recorder = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let group = recorder.id();
    wait_for("the program to begin", || file.exists().then_some(()));
    let (begun, since_begun) = (SystemTime::now(), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    succeed(&mut ioreel(["mark", "half", "--reel", text(&reel)]));
    std::thread::sleep(Duration::from_secs(3));
    let alive = since_begun.elapsed();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // SAFETY: ends what this test started.
    unsafe { libc::kill(-(group as i32), libc::SIGKILL) };
    let output = run(&mut ioreel(["validate", "--repair", text(&reel)]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("was killed"), "{}", describe(&output));
    let kept = assert_sound(&reel);
    let ops: Vec<Op> = kept.read().unwrap();
    let on_file: Vec<&Op> = ops.iter().filter(|o| o.op == "write").collect();
    let last = on_file.iter().map(|o| Duration::from_nanos((o.start_ns + o.dur_ns) as u64)).max().unwrap();
    assert!(last + patience(Duration::from_secs(2)) >= alive, "{last:?} of {alive:?}: {said}");
    let ids: HashSet<i64> = ops.iter().map(|o| o.op_id).collect();
    assert_eq!(ids.len(), ops.len(), "each operation has an id of its own");
    let m = &kept.manifest;
    assert_eq!((m.state, m.ended.as_str()), (State::Truncated, KILLED));
    let since = begun.duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64 - m.clock.realtime_ns;
    assert!((0..60_000_000_000).contains(&since), "{since}");
    assert_eq!(m.marks.iter().map(|mark| mark.name.as_str()).collect::<Vec<_>>(), ["half"]);
    let files: Vec<File> = kept.read().unwrap();
    let row = files.iter().find(|f| f.path.as_deref() == Some(text(&file))).expect("the file's row");
    assert!(m.mount_of(row.sb_dev).is_some_and(|mount| mount.total_bytes > 0), "{:?}", m.mounts);
    assert!(m.devices.iter().all(|d| !d.name.is_empty() && d.size_bytes > 0), "{:?}", m.devices);
    let names: Vec<Name> = kept.read().unwrap();
    assert!(names.iter().any(|n| &*n.path == text(&file) && n.file == Some(row.file)));
    for table in ["ops", "files", "tasks"] {
        let left: Vec<_> = fs::read_dir(reel.join(table)).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".parquet")), "{left:?}");
    }
    let told = String::from_utf8(succeed(&mut ioreel(["info", text(&reel)])).stdout).unwrap();
    assert!(told.contains("ENDED EARLY: the recorder was killed") && !told.contains("could not"), "{told}");
    let target = out.path().join("target");
    fs::create_dir(&target).unwrap();
    let output = run(&mut ioreel(["replay", text(&reel), "--pace", "max", "--target", text(&target)]));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("The recording ended early"), "{}", describe(&output));
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
