//! Derives the tree from calls.

use ioreel_traces::rows::Task;

use super::*;
use seen_files::Met;

/// A successful call of the first task, whose working directory is `/w`.
fn call(op: &str) -> Op {
    Op { op: op.into(), pid: 10, tid: 10, ret: Some(0), source: "syscall".into(), ..Op::default() }
}

fn named(op: &str, path: &str) -> Op {
    Op { path: Some(path.into()), ..call(op) }
}

fn renamed(from: &str, to: &str) -> Op {
    Op { path2: Some(to.into()), ..named("rename", from) }
}

/// An open that returns descriptor `fd` of `file`.
fn opened(path: &str, fd: i64, file: i64) -> Op {
    Op { ret: Some(fd), file: Some(file), aux: Some(0), ..named("openat", path) }
}

fn made(path: &str, fd: i64, file: i64) -> Op {
    Op { aux: Some(1), flags: Some(libc::O_CREAT.into()), ..opened(path, fd, file) }
}

fn file(file: i64, path: &str, kind: &str) -> Met {
    let first_ns = -1;
    Met { file, path: Some(path.into()), whole_path: true, kind: kind.into(), first_ns, ..Met::default() }
}

fn start(files: Vec<Met>) -> Deriver {
    let mut met = MetFiles::default();
    assert!(files.into_iter().all(|f| met.add(&f)));
    let task = Task { pid: 10, tid: 10, cwd: Some("/w".into()), root: Some("/".into()), ..Task::default() };
    let mut d = Deriver::at_start(Snapshot::default(), met, &HashSet::new(), Places::new(vec![task], &[]));
    d.names = std::mem::take(&mut d.names).unseen();
    d
}

/// Processes the calls; the nth one lasts from 10 n to 10 n + 5.
fn after(mut d: Deriver, calls: Vec<Op>) -> Deriver {
    for (i, op) in calls.into_iter().enumerate() {
        let op = Op { op_id: i as i64, start_ns: 10 * i as i64, dur_ns: 5, ..op };
        d.places.follow_forks(op.start_ns);
        d.take(&op);
        d.places.descriptors.take(&op);
    }
    d
}

/// The names over time of files, and of directories below `/w`.
fn names(d: &mut Deriver) -> Vec<String> {
    let mut rows = d.history.take_gone();
    rows.extend(std::mem::take(&mut d.history).into_held());
    rows.sort_by_key(|r| (r.from_ns, r.until_ns, r.path.clone()));
    let end = |r: &Name| r.ended.as_deref().unwrap_or("-").to_owned();
    let file = |r: &Name| r.file.map_or("?".into(), |f| f.to_string());
    rows.iter().map(|r| format!("{} {} {}>{}", file(r), r.path, r.how, end(r))).collect()
}

/// What existed before, except the directories that lead to `/w`.
fn before(d: &mut Deriver) -> Vec<String> {
    d.names.take_before().1.into_iter().filter(|p| p.starts_with("/w/") || p.starts_with("/proc")).collect()
}

#[test]
fn a_working_directory_moves_with_its_folder() {
    let mut d = after(
        start(vec![file(1, "/w/q/f", "regular")]),
        vec![
            named("mkdir", "q"),
            named("chdir", "q"),
            made("f", 3, 1),
            renamed("../q", "../r"),
            named("unlink", "f"),
            named("rmdir", "../r"),
            named("mkdir", "g"),
        ],
    );
    assert_eq!(
        names(&mut d),
        ["? /w/q created>renamed", "1 /w/q/f created>renamed", "1 /w/r/f renamed>unlinked", "? /w/r renamed>unlinked"]
    );
    assert_eq!(before(&mut d), Vec::<String>::new());
}

#[test]
fn an_open_folder_moves_with_the_one_it_is_in() {
    let by = |op: Op| Op { dirfd: Some(3), file: Some(1), ..op };
    let mut d = after(
        start(vec![file(1, "/w/p/d", "directory"), file(2, "/w/p2/d/a", "regular")]),
        vec![
            named("mkdir", "p"),
            named("mkdir", "p/d"),
            opened("p/d", 3, 1),
            renamed("p", "p2"),
            Op { dirfd: Some(3), file2: Some(1), ..made("a", 4, 2) },
            Op { op: "renameat".into(), dirfd2: Some(3), file2: Some(1), ..by(renamed("a", "b")) },
            by(named("unlinkat", "b")),
            Op { flags: Some(libc::AT_REMOVEDIR.into()), ..named("unlinkat", "p2/d") },
            by(named("mkdirat", "never")),
            Op { fd: Some(3), file: Some(1), ..call("fchdir") },
            named("mkdir", "never"),
        ],
    );
    assert_eq!(
        names(&mut d),
        [
            "? /w/p created>renamed",
            "1 /w/p/d created>renamed",
            "? /w/p2 renamed>-",
            "1 /w/p2/d renamed>unlinked",
            "2 /w/p2/d/a created>renamed",
            "2 /w/p2/d/b renamed>unlinked",
        ]
    );
    assert_eq!(before(&mut d), Vec::<String>::new());
}

#[test]
fn a_removed_folder_has_no_name() {
    let met_later = Met { unlinked: true, first_ns: 31, ..file(1, "/w/gone", "directory") };
    let mut d = after(
        start(vec![met_later]),
        vec![named("mkdir", "gone"), named("chdir", "gone"), named("rmdir", "../gone"), opened(".", 3, 1)],
    );
    assert_eq!(names(&mut d), ["? /w/gone created>unlinked"]);
    assert_eq!(before(&mut d), Vec::<String>::new());
}

#[test]
fn names_in_proc_are_what_they_are_to_the_task() {
    let by_name = |path: &str, file| Op { file: Some(file), ..named("truncate", path) };
    let mut d = after(
        start(vec![file(1, "/w/d", "directory"), file(2, "/w/d/f", "regular"), file(3, "pipe:[9]", "fifo")]),
        vec![
            opened("d", 3, 1),
            named("mkdir", "/proc/self/fd/3/a"),
            Op { path2: Some("/dev/fd/3/l".into()), ..named("symlink", "tgt") },
            named("chdir", "/proc/self/fd/3"),
            renamed("/proc/self/cwd/a", "/proc/10/cwd/b"),
            made("f", 4, 2),
            opened("/proc/thread-self/fd/4", 5, 2),
            by_name("/proc/self/fd/4", 2),
            opened("/dev/stdin", 6, 3),
            // Descriptor 3 becomes a pipe by a call that is not recorded.
            opened("/dev/fd/3", 6, 3),
            // Of another process, or unknown.
            named("mkdir", "/proc/11/cwd/x"),
            named("mkdir", "/proc/self/fd/9/x"),
            named("rmdir", "/proc/self/fd/9/x"),
            named("chdir", "/proc/11/cwd"),
            named("mkdir", "x"),
        ],
    );
    assert_eq!(
        names(&mut d),
        ["1 /w/d seen>-", "? /w/d/a created>renamed", "? /w/d/l created>-", "? /w/d/b renamed>-", "2 /w/d/f created>-",]
    );
    assert_eq!(before(&mut d), ["/w/d"]);
}

#[test]
fn a_file_without_a_name_gets_one_by_its_descriptor() {
    let follow = Some(libc::AT_SYMLINK_FOLLOW.into());
    let unnamed = Op { flags: Some(libc::O_TMPFILE.into()), ..made(".", 12, 2) };
    let linked = |from: &str, to: &str| Op { flags: follow, op: "linkat".into(), ..renamed(from, to) };
    let mut d = after(
        start(vec![file(1, "/w/f", "regular"), Met { unlinked: true, ..file(2, "/w/#7", "regular") }]),
        vec![
            // The number may be in use in the recorder too, for another file.
            made("f", 3, 1),
            unnamed,
            linked("/proc/self/fd/12", "tmpl"),
            linked("/dev/fd/3", "g"),
            renamed("f", "h"),
            linked("/dev/fd/3", "i"),
            linked("/proc/self/fd/13", "j"),
        ],
    );
    assert_eq!(
        names(&mut d),
        [
            "1 /w/f created>renamed",
            "2 /w/tmpl linked>-",
            "1 /w/g linked>-",
            "1 /w/h renamed>-",
            "1 /w/i linked>-",
            "? /w/j linked>-",
        ]
    );
    assert_eq!(before(&mut d), Vec::<String>::new());
}
