//! The live view: looked at once, and on a terminal.

use std::{
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::harness::{
    ioreel,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    one_line, succeed, temp_dir,
    terminal::Terminal,
    text, wait_for,
};

/// A program that writes to one file and reads another, without end.
pub(crate) fn files_processes_and_totals() {
    let dir = temp_dir();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, vec![7; 1 << 16]).unwrap();
    let script =
        format!("while :; do dd if={} of={} bs=4096 conv=notrunc,fsync 2>/dev/null; done", text(&from), text(&to));
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
    let file = |name: &Path| {
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
    let line = one_line(&mut ioreel(["top"]), 1);
    assert!(line.contains("not a terminal") && line.contains("--once"), "{line}");
}

/// Writes much to one file, by few calls that take long; reads little of another, by many; a child of another name does
/// next to nothing.
const WORKLOAD: &str = "
import os, sys, time
big = os.open(sys.argv[1] + '/big', os.O_WRONLY | os.O_CREAT)
often = os.open(sys.argv[1] + '/often', os.O_RDWR | os.O_CREAT)
os.write(often, b'x')
idler = os.fork()
if idler == 0:
    open('/proc/self/comm', 'w').write('idler')
    while True:
        os.pread(often, 1, 0)
        time.sleep(0.02)
open('/proc/self/comm', 'w').write('worker')
open(sys.argv[1] + '/new', 'w').write(str(idler))
os.rename(sys.argv[1] + '/new', sys.argv[1] + '/idler')
data = os.urandom(1 << 18)
while True:
    os.pwrite(big, data, 0)
    os.fsync(big)
    for _ in range(20): os.pread(often, 1, 0)
";

/// A process that ends with its owner, and its children with it.
struct Busy(Child, String);

impl Busy {
    fn on(dir: &Path) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("python3");
        let child = command.args(["-c", WORKLOAD, text(dir)]).process_group(0).spawn().unwrap();
        let idler = wait_for("the workload to work", || std::fs::read_to_string(dir.join("idler")).ok());
        Self(child, idler)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: its own process group, whose leader has not been waited for.
        unsafe { libc::kill(-(self.0.id() as i32), libc::SIGKILL) };
        let _ = self.0.wait();
    }
}

/// The first line of the list: below title, sums and heads.
fn first(screen: &str) -> &str {
    screen.lines().nth(3).unwrap_or("")
}

/// A known workload is on top of each list, by each order; keys, sizes and ends do what they should.
pub(crate) fn on_a_terminal() {
    let mount = Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES);
    let busy = Busy::on(mount.path());
    let (pid, idler) = (busy.0.id().to_string(), busy.1.clone());
    let device = mount.device().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let mut t = Terminal::run(&mut ioreel(["top", "--pid", &pid, "--pid", &idler, "--interval", "0.3"]), 24, 110);
    let modes = t.modes();
    t.shows("the file with most bytes", |s| {
        s.starts_with("Files by bytes, last interval") && first(s).ends_with("/big")
    });
    assert!(t.is_taken() && t.modes() != modes);
    t.keys("o");
    t.shows("the file most used", |s| s.starts_with("Files by operations") && first(s).ends_with("/often"));
    t.keys("t");
    t.shows("the file that took longest", |s| s.starts_with("Files by time") && first(s).ends_with("/big"));
    t.keys("m");
    t.shows("the longest", |s| s.starts_with("Files by the longest") && first(s).ends_with("/big"));
    t.keys("pb");
    let worker = format!("{pid} worker");
    t.shows("both processes", |s| {
        let second = s.lines().nth(4).is_some_and(|l| l.ends_with(&format!("{idler} idler")));
        s.starts_with("Processes by bytes") && first(s).ends_with(&worker) && second && s.contains(", 2 processes")
    });
    t.keys("\t");
    t.shows("the device", |s| s.starts_with("Devices by bytes") && first(s).ends_with(&format!(" {device}")));
    t.keys("fa");
    t.shows("all since the start", |s| s.starts_with("Files by bytes, since the start") && first(s).ends_with("/big"));

    // Standing still, nothing changes but the title; more than the interval later as well.
    t.keys(" ");
    let still = t.shows("the pause", |s| s.starts_with("PAUSED: Files"));
    std::thread::sleep(std::time::Duration::from_millis(900));
    assert_eq!(t.text(), still);
    t.keys(" ");
    t.shows("it to go on", |s| s.starts_with("Files") && s.lines().nth(1) != still.lines().nth(1));

    // Of a smaller terminal the list has most, and the columns that it is sorted by stay.
    t.resize(4, 40);
    t.shows("a small terminal", |s| {
        s.lines().count() == 4
            && s.contains("written/s")
            && !s.contains("busy")
            && s.contains("/big")
            && s.contains("q quit")
    });
    for (rows, columns) in [(1, 1), (2, 3), (3, 200), (200, 2), (1, 300)] {
        t.resize(rows, columns);
        std::thread::sleep(std::time::Duration::from_millis(350));
        assert!(t.runs(), "{rows} lines of {columns}");
    }
    t.resize(50, 200);
    t.shows("a large terminal", |s| first(s).ends_with("/big") && s.contains("q quit"));
    t.keys("q");
    assert_eq!(t.ends().code(), Some(0));
    assert_eq!(t.modes(), modes);
    wait_for("the terminal to be given back", || (!t.is_taken()).then_some(()));

    // However it ends.
    for (keys, signal, status) in [("\u{3}", 0, 0), ("", libc::SIGHUP, 129)] {
        let mut t = Terminal::run(&mut ioreel(["top", "--pid", &pid]), 24, 80);
        t.shows("the list", |s| s.starts_with("Files by bytes"));
        if signal == 0 {
            t.keys(keys);
        } else {
            // SAFETY: it has not been waited for.
            unsafe { libc::kill(t.pid() as i32, signal) };
        }
        let end = t.ends();
        assert_eq!((end.code(), end.signal()), (Some(status), None), "{keys:?} {signal}");
        assert_eq!(t.modes(), modes, "{keys:?} {signal}");
        wait_for("the terminal to be given back", || (!t.is_taken()).then_some(()));
    }
    let mut t = Terminal::run(&mut ioreel(["top", "--pid", &pid]), 24, 80);
    t.shows("the list", |s| s.starts_with("Files by bytes"));
    drop(busy);
    assert_eq!(t.ends().code(), Some(0));
    t.shows("why it ended", |s| s.contains("all watched processes have exited"));
    assert_eq!(t.modes(), modes);
}
