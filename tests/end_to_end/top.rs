//! The live view, looked at once.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{ioreel, one_line, succeed, temp_dir, text};

/// A program that writes to one file and reads another, without end.
pub(crate) fn files_processes_and_totals() {
    let dir = temp_dir();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7; 1 << 16]).unwrap();
    let script = format!("while :; do dd if={} of={} bs=4096 conv=notrunc 2>/dev/null; done", text(&from), text(&to));
    let mut busy = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    let pid = busy.id().to_string();
    let look = |more: &[&str]| {
        let mut words = vec!["top", "--pid", &pid, "--once", "--json", "--interval", "3"];
        words.extend(more);
        serde_json::from_slice::<Value>(&succeed(&mut ioreel(words)).stdout).unwrap()
    };
    let seen = look(&[]);
    let all = succeed(&mut ioreel(["top", "--once", "--interval", "2", "--lines", "1000"]));
    busy.kill().unwrap();
    busy.wait().unwrap();
    assert_eq!(seen["schema"], "ioreel.top/1");
    let file = |name: &std::path::Path| {
        let files = seen["files"].as_array().unwrap();
        files.iter().find(|f| f["name"] == text(name)).unwrap_or_else(|| panic!("{name:?} is not in {seen:#}")).clone()
    };
    let number = |v: &Value, key: &str| v[key].as_u64().unwrap();
    let (read, written) = (file(&from), file(&to));
    assert!(number(&read, "read_bytes") > 0 && number(&read, "write_bytes") == 0);
    assert!(number(&written, "write_bytes") > 0 && number(&written, "read_bytes") == 0);
    // Each run of dd copies the whole, in blocks.
    let blocks = number(&written, "write_bytes") / 4096;
    assert!(blocks >= 16 && number(&written, "count") >= blocks, "{written}");
    assert!(number(&read, "max_ns") >= number(&read, "mean_ns"));
    assert!(number(&seen["calls"], "count") >= number(&read, "count") + number(&written, "count"));
    assert!(!seen["processes"].as_array().unwrap().is_empty());
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("Files") && all.contains("Processes") && all.contains("Devices"), "{all}");
    assert!(all.contains(" dd") || all.contains(" sh"), "the whole machine: {all}");
}

pub(crate) fn refusals() {
    let line = one_line(&mut ioreel(["top", "--pid", "4194304", "--once"]), 1);
    assert!(line.contains("no such process"), "{line}");
}
