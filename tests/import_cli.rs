//! `ioreel import` and `ioreel export` as a user meets them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    io::Write,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn ioreel(dir: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ioreel")).args(line.split(' ')).current_dir(dir).output().unwrap()
}

/// Runs with `input` in a pipe.
fn piped(dir: &Path, line: &str, input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ioreel"))
        .args(line.split(' '))
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that refuses its output may end before it has read its input.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn sample() -> PathBuf {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
    root.join("traces/tests/data/blktrace/6.1.0-56-amd64-ext4-fsync")
}

#[test]
fn a_trace_goes_in_is_summarised_drawn_and_comes_out() {
    let dir = tempfile::tempdir().unwrap();
    for cpu in 0..2 {
        let name = format!("vda.blktrace.{cpu}");
        fs::copy(sample().join(&name), dir.path().join(&name)).unwrap();
    }
    for (line, told) in [
        ("import blktrace vda -o a.reel", "a.reel: 212 requests, 186 bios over 7.966 s, from 969 records"),
        ("validate a.reel", "valid"),
        ("info a.reel", "Reel       a (import, format"),
        ("plot a.reel -o a.png", ""),
        ("export a.reel blktrace -o b", "b.blktrace.0 … (2 files): 969 records"),
        ("export a.reel csv --table block -o block.csv", "block.csv: 212 rows of table block"),
        ("export a.reel jsonl --table actions", "\"event\":\"timestamp\""),
        ("export a.reel perfetto -o a.pftrace", "a.pftrace: 212 slices"),
    ] {
        let done = ioreel(dir.path(), line);
        let out = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success() && out.contains(told), "{line}: {out} {}", String::from_utf8_lossy(&done.stderr));
    }
    // A trace of more records than are looked at says that these stages are not computed; by its manifest this is one.
    let path = dir.path().join("a.reel/manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let stats = |more: &str| String::from_utf8(ioreel(dir.path(), &format!("stats a.reel{more}")).stdout).unwrap();
    assert!(!stats("").contains("not computed") && stats(" --json").contains("\"stages_not_told\": null"));
    manifest["segments"]["actions"][0]["rows"] = 8_000_001.into();
    fs::write(&path, manifest.to_string()).unwrap();
    let line = "a: Q2G, G2I and I2D not computed: the trace has 8,000,001 records, the limit is 8,000,000";
    assert!(stats("").lines().any(|l| l.trim() == line), "{}", stats(""));
    assert!(stats(" --json").contains("\"stages_not_told\": 8000001"));
    for cpu in 0..2 {
        let bytes = |name: &str| fs::read(dir.path().join(format!("{name}.blktrace.{cpu}"))).unwrap();
        assert!(bytes("vda") == bytes("b"));
    }
}

/// Names of files, arguments and data of other programs are nobody else's business, whatever the umask; what root makes for
/// the caller of sudo is the caller's.
#[test]
fn what_is_written_is_for_its_owner_alone() {
    // Where recordings are often kept, and everybody may look.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for cpu in 0..2 {
        let name = format!("vda.blktrace.{cpu}");
        fs::copy(sample().join(&name), dir.path().join(&name)).unwrap();
    }
    fs::write(dir.path().join("log"), "fio version 2 iolog\n/a add\n/a open\n/a write 0 4096\n").unwrap();
    // Pictures take the place of older ones, which others may have been allowed to read.
    fs::write(dir.path().join("a.png"), "").unwrap();
    fs::set_permissions(dir.path().join("a.png"), fs::Permissions::from_mode(0o666)).unwrap();
    let given: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let script = "umask 0; set -e
        $0 import blktrace vda -o a.reel
        $0 import fio log -o f.reel
        $0 anonymize a.reel -o b.reel
        $0 plot a.reel -o a.png
        $0 plot a.reel -o a.svg
        $0 plot a.reel -o a.apng --seconds 1
        $0 report a.reel -o a.html
        $0 export a.reel blktrace -o sub/folder/
        $0 export a.reel blktrace --dump -o dump
        $0 export a.reel perfetto -o perfetto
        $0 export a.reel csv --table block -o csv
        $0 export f.reel fio -o f.log";
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_ioreel")]).current_dir(dir.path());
    if root {
        command.env("SUDO_UID", "12345").env("SUDO_GID", "12346");
    } else {
        command.env_remove("SUDO_UID");
    }
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut found = 0;
    let mut waiting = vec![dir.path().to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if given.contains(&entry.file_name()) && entry.file_name() != "a.png" {
                continue;
            }
            found += 1;
            let meta = entry.metadata().unwrap();
            let mode = if meta.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(meta.mode() & 0o7777, mode, "{:?}: {:o}", entry.path(), meta.mode());
            if root {
                assert_eq!((meta.uid(), meta.gid()), (12345, 12346), "{:?}", entry.path());
            }
            if meta.is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    assert!(found > 25, "{found}");
}

/// No command writes where a link leads.
#[test]
fn outputs_follow_no_link() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("log"), "fio version 2 iolog\n/a add\n/a open\n/a write 0 4096\n").unwrap();
    assert!(ioreel(dir.path(), "import fio log -o f.reel").status.success());
    fs::write(dir.path().join("other"), "untouched").unwrap();
    for (line, name) in [
        ("plot f.reel -o x.png", "x.png"),
        ("plot f.reel -o x.svg", "x.svg"),
        ("report f.reel -o x.html", "x.html"),
        ("export f.reel fio -o x.log", "x.log"),
        ("export f.reel csv -o x.csv", "x.csv"),
        ("export f.reel perfetto -o x.trace", "x.trace"),
    ] {
        std::os::unix::fs::symlink("other", dir.path().join(name)).unwrap();
        let done = ioreel(dir.path(), line);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{line}: {said}");
        assert!(
            said.lines().count() == 1 && (said.contains("symbolic link") || said.contains("already exists")),
            "{said}"
        );
        assert_eq!(fs::read_to_string(dir.path().join("other")).unwrap(), "untouched");
    }
}

/// One word is enough, from files and from a pipe.
#[test]
fn the_format_is_found_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let row = "128166372003061629,hm,1,Read,383496192,32768,413\n";
    for (name, text, told) in [
        ("a", row, "ioreel: a is CSV of the data set msr"),
        ("b", "close(3) = 0\n", "ioreel: b is output of strace"),
        ("c", "8,0 3 11 0.009507758 697 D W 223490 + 56 [kjournald]\n", "ioreel: c is text of blkparse"),
        ("d", "fio version 2 iolog\n/a add\n/a open\n", "ioreel: d is an I/O log of fio"),
        (
            "e",
            "fio 1 [006] 2.409875: block:block_rq_issue: 8,16 R 4096 () 39 + 8 [x]\n",
            "ioreel: e is kernel trace text",
        ),
        ("f", "PID    COMM               FD ERR PATH\n1 a 3 0 /a\n", "ioreel: f is a table of bcc"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
        let done = ioreel(dir.path(), &format!("import {name} -o {name}.reel"));
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success() && said.contains(told), "{said}");
        assert!(ioreel(dir.path(), &format!("validate {name}.reel")).status.success(), "{name}");
    }
    for cpu in 0..2 {
        let name = format!("vda.blktrace.{cpu}");
        fs::copy(sample().join(&name), dir.path().join(&name)).unwrap();
    }
    let members = ["-czf", "all.tgz", "vda.blktrace.0", "vda.blktrace.1"];
    assert!(Command::new("tar").args(members).current_dir(dir.path()).status().unwrap().success());
    for (input, output) in [("vda", "g"), ("vda.blktrace.1", "h"), (".", "i"), ("all.tgz", "j")] {
        let done = ioreel(dir.path(), &format!("import {input} -o {output}.reel"));
        let (out, said) = (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
        assert!(said.contains("is a block trace of blktrace"), "{said}");
        assert!(out.contains("212 requests, 186 bios over 7.966 s, from 969 records"), "{input}: {out}");
    }
    // A pipe can be read only once.
    for line in ["import csv --preset msr - -o k.reel", "import - -o l.reel"] {
        let done = piped(dir.path(), line, &row.repeat(1000));
        let out = String::from_utf8(done.stdout).unwrap();
        assert!(out.contains("1,000 requests"), "{line}: {out}");
    }
}

#[test]
fn failures_are_one_line_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), "no trace\n").unwrap();
    fs::create_dir(dir.path().join("there.reel")).unwrap();
    for (line, told) in [
        ("import blktrace sdz -o a.reel", "name a trace (sda), one of its files, or a dump"),
        ("import blktrace text -o a.reel", "name files written by blktrace, or a dump of"),
        ("import fio text -o a.reel", "name a file written by fio's write_iolog"),
        ("import strace text -o a.reel", "expected `PID TIME call(…) = N` from `strace -f -ttt -T -y`"),
        ("import text -o a.reel", "cannot tell the format of this file; name it"),
        ("import tar text -o a.reel", "tar: no such file"),
        ("import ktrace text -o a.reel", "line 1 is not an event of the kernel: 'no trace'; expected `NAME-PID"),
        ("import blkparse text -o a.reel", "line 1 is not blkparse output: 'no trace'; expected `DEV CPU"),
        ("import bcc text -o a.reel", "there is no head line of a known table; name a file with"),
        ("import csv text --preset msr -o a.reel", "line 1 is not a row (1 fields, but there are 7 columns"),
        ("import csv text --table block -o a.reel", "name the columns in order with --columns"),
        ("export nowhere.reel blktrace -o x", "not a reel"),
    ] {
        let done = ioreel(dir.path(), line);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{line}: {said}");
        assert!(said.lines().count() == 1 && said.contains(told), "{line}: {said}");
        assert!(!dir.path().join("a.reel").exists(), "{line}");
    }
    for line in [
        "import blktrace -o a.reel",
        "import -o a.reel",
        "import text",
        "export there.reel",
        "import csv text -o a.reel",
        "import csv text --op-map 0 --table block -o a.reel",
    ] {
        assert_eq!(ioreel(dir.path(), line).status.code(), Some(2), "{line}");
    }
}

/// A reel's parent folder must be there, from a pipe too, and a refusal leaves nothing behind.
#[test]
fn a_pipe_into_a_missing_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let row = "128166372003061629,hm,1,Read,383496192,32768,413\n";
    for line in ["import csv --preset msr - -o new/folder/k.reel", "import - -o new/folder/m.reel"] {
        let done = piped(dir.path(), line, &row.repeat(1000));
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("its parent folder does not exist; create it first"), "{line}: {said}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{line}");
    }
}

/// A copy of the input that cannot be kept is no damage of the input.
#[test]
fn a_copy_that_does_not_fit_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String =
        (0..40_000_i64).map(|i| format!("{},hm,1,Read,{},32768,413\n", i * 7919, i * 104_729 % 999_983)).collect();
    fs::write(dir.path().join("rows"), rows).unwrap();
    // The limit of the size of a file, in blocks of 512 bytes.
    for read in ["cat rows", "gzip -c rows"] {
        let script = format!("trap '' XFSZ; {read} | (ulimit -f 100; exec $0 import csv --preset msr - -o a.reel)");
        let done = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_ioreel")])
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{read}: {said}");
        let told = "cannot keep a copy beside the reel: File too large (os error 27); write the reel elsewhere";
        assert!(said.lines().count() == 1 && said.contains(told) && !said.contains("damaged"), "{read}: {said}");
        assert!(!dir.path().join("a.reel").exists());
    }
}
