//! What slow operations wait for, with planted causes.

use std::{collections::HashMap, fs};

use ioreel_traces::rows::{Op, Wait};

use crate::harness::{
    assert_valid, ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

/// Records a shell script with waits; every wait must lie inside a slow operation of its thread.
fn waits_of(script: &str, options: &[&str]) -> Vec<Wait> {
    let out = temp_dir();
    let reel = out.path().join("waits.reel");
    let mut words = vec!["--waits", "--no-snapshot"];
    words.extend(options);
    succeed(&mut record(&reel, &words, &["sh", "-c", script]));
    let reel = assert_valid(&reel);
    let waits = reel.read::<Wait>().unwrap();
    let ops: HashMap<(i64, i64), Op> =
        reel.read::<Op>().unwrap().into_iter().map(|o| ((o.task_id, o.start_ns), o)).collect();
    let mut sums: HashMap<(i64, i64), i64> = HashMap::new();
    for w in &waits {
        let op = ops.get(&(w.task_id, w.op_start_ns)).unwrap_or_else(|| panic!("no operation of {w:?}"));
        assert_eq!(op.op, w.op);
        let end = op.start_ns + op.dur_ns;
        assert!(op.dur_ns >= 1_000_000 && w.start_ns >= op.start_ns && w.start_ns + w.dur_ns <= end, "{w:?} in {op:?}");
        assert!((0..=w.dur_ns).contains(&w.run_queue_ns), "{w:?}");
        *sums.entry((w.task_id, w.op_start_ns)).or_default() += w.dur_ns;
    }
    assert!(sums.iter().all(|(op, sum)| *sum <= ops[op].dur_ns), "more waiting than time");
    let told = succeed(&mut ioreel(["info", text(reel.path())])).stdout;
    let told = String::from_utf8(told).unwrap();
    assert_eq!(told.contains("waited for"), !waits.is_empty(), "{told}");
    waits
}

/// Time by reason, ns.
fn by_reason(waits: &[Wait], op: &str) -> HashMap<String, i64> {
    let mut sums = HashMap::new();
    for w in waits.iter().filter(|w| w.op == *op) {
        *sums.entry(w.reason.to_string()).or_default() += w.dur_ns - w.run_queue_ns;
    }
    sums
}

#[track_caller]
fn assert_waits_for(waits: &[Wait], op: &str, reasons: &[&str]) {
    let sums = by_reason(waits, op);
    let stacks: Vec<_> = waits.iter().filter(|w| w.op == *op).filter_map(|w| w.stack.as_deref()).take(5).collect();
    for reason in reasons {
        assert!(sums.get(*reason).is_some_and(|ns| *ns > 0), "{op} does not wait for {reason}: {sums:?}\n{stacks:#?}");
    }
}

/// An fsync of much data waits for the device and, where there is one, for the journal's commit.
pub(crate) fn a_sync(fs: Fs) {
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let script = format!(
        "cd {}; for i in 1 2 3 4 5 6; do dd if=/dev/zero of=f$i bs=4M count=4 conv=fsync status=none; done",
        text(mounted.path())
    );
    let waits = waits_of(&script, &[]);
    if fs == Fs::Tmpfs {
        assert!(by_reason(&waits, "fsync").keys().all(|r| r != "device" && r != "journal"), "{waits:?}");
        return;
    }
    assert_waits_for(&waits, "fsync", &["device", "journal"]);
}

/// Several writers of one file wait for its lock.
pub(crate) fn one_file(fs: Fs) {
    let mounted = Mounted::new(fs, DEFAULT_SIZE_BYTES);
    let script = format!(
        "cd {}; for i in 1 2 3 4; do dd if=/dev/zero of=one bs=16M count=6 conv=notrunc status=none & done; wait",
        text(mounted.path())
    );
    let waits = waits_of(&script, &[]);
    assert_waits_for(&waits, "write", &["inode_lock"]);
}

/// A cold read waits for the device.
pub(crate) fn a_cold_read() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    fs::write(mounted.path().join("data"), vec![7u8; 64 << 20]).unwrap();
    mounted.go_cold();
    let script = format!("dd if={}/data of=/dev/null bs=8M status=none", text(mounted.path()));
    let waits = waits_of(&script, &["--user-stacks"]);
    assert_waits_for(&waits, "read", &["device"]);
    let stacks: Vec<&str> = waits.iter().filter_map(|w| w.user_stack.as_deref()).collect();
    assert!(stacks.iter().any(|s| s.contains("libc") && s.contains("+0x")), "{stacks:?}");
}

/// Programs that keep all CPUs busy make others wait for one.
pub(crate) fn busy_cpus() {
    let out = temp_dir();
    let file = out.path().join("cached");
    fs::write(&file, vec![7u8; 64 << 20]).unwrap();
    let script = format!(
        "for i in 1 2 3 4 5 6; do timeout 6 sh -c 'while :; do :; done' & done; \
         for i in $(seq 30); do dd if={} of=/dev/null bs=64M status=none; done",
        text(&file)
    );
    let waits = waits_of(&script, &[]);
    let sum: i64 = waits.iter().filter(|w| w.op == *"read").map(|w| w.run_queue_ns).sum();
    assert!(sum > 1_000_000, "{waits:?}");
    assert!(waits.iter().any(|w| w.reason == *"run_queue" && w.run_queue_ns == w.dur_ns));
}

/// A writer that is far ahead of the disk is held back.
pub(crate) fn a_writer_ahead_of_its_disk() {
    let mounted = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let dev = mounted.device_number().unwrap();
    let limits = format!("/sys/class/bdi/{}:{}", dev >> 20, dev & 0xf_ffff);
    fs::write(format!("{limits}/strict_limit"), "1").unwrap();
    fs::write(format!("{limits}/max_bytes"), "4194304").unwrap();
    let script = format!("dd if=/dev/zero of={}/big bs=4M count=48 status=none", text(mounted.path()));
    let waits = waits_of(&script, &[]);
    let _ = fs::write(format!("{limits}/strict_limit"), "0");
    assert_waits_for(&waits, "write", &["write_back_throttle"]);
}

/// Without the option there is no table, and no probe.
pub(crate) fn nothing_unless_asked() {
    let out = temp_dir();
    let reel = out.path().join("plain.reel");
    succeed(&mut record(&reel, &["--no-snapshot"], &["sh", "-c", "sleep 0.01; : >/dev/null"]));
    let reel = assert_valid(&reel);
    assert!(reel.read::<Wait>().unwrap().is_empty());
    assert!(reel.manifest.probes.iter().all(|p| !p.name.starts_with("wait_")), "{:?}", reel.manifest.probes);
}
