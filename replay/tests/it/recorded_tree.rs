//! What the recorder saw when the recording ended is what the replay must leave, whatever the operations tell.

use std::fs;

use ioreel_replay::{Config, Replay, Report, Slice, session::watch::Unwatched, verdict::clauses::Clause};
use ioreel_traces::{
    rows::FinalName,
    xattrs::{self, Attributes},
};

use crate::reel::{Draft, config};

/// A directory with a file, a link, and a second name of the file.
fn draft() -> Draft {
    let mut d = Draft::new();
    let top = d.had("/w", "directory", 0);
    (top.uid, top.gid) = (Some(0), Some(0));
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 100, 100).file = Some(1);
    d.on(1, "symlink", "f", 0).path2 = Some("soft".into());
    d.on(1, "link", "f", 0).path2 = Some("hard".into());
    d.on(1, "mkdir", "d", 0).mode = Some(0o755);
    d.final_tree = seen();
    d
}

fn name(path: &str, kind: &str, mode: i32) -> FinalName {
    let directory = kind == "directory";
    FinalName {
        path: path.into(),
        kind: kind.into(),
        mode: Some(mode),
        uid: Some(0),
        gid: Some(0),
        links: (!directory).then_some(1),
        complete: directory.then_some(1),
        ..FinalName::default()
    }
}

/// The tree that the operations leave.
fn seen() -> Vec<FinalName> {
    let file =
        |path| FinalName { size_bytes: Some(100), links: Some(2), link_id: Some(7), ..name(path, "regular", 0o644) };
    vec![
        name("/w", "directory", 0o755),
        name("/w/d", "directory", 0o755),
        file("/w/f"),
        file("/w/hard"),
        FinalName { target: Some("f".into()), ..name("/w/soft", "symlink", 0o777) },
    ]
}

fn replayed(draft: Draft, change: impl FnOnce(&mut Config)) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("t");
    fs::create_dir(&target).unwrap();
    let mut config = config(draft.write(dir.path()), &target);
    change(&mut config);
    Replay::plan(config).unwrap().run(Unwatched, |_| ()).unwrap()
}

/// The differences of the final tree if the recorder saw something else than the operations tell.
fn planted(change: impl FnOnce(&mut Vec<FinalName>)) -> Vec<String> {
    let mut d = draft();
    change(&mut d.final_tree);
    let report = replayed(d, |_| ());
    let tree = report.verdict.tree.as_ref().unwrap();
    assert_eq!(report.verdict.status & Clause::Tree.bit() != 0, tree.differing > 0);
    assert_eq!(tree.digest == tree.expected_digest, tree.differing == 0);
    tree.examples.clone()
}

fn row<'a>(rows: &'a mut [FinalName], path: &str) -> &'a mut FinalName {
    rows.iter_mut().find(|row| *row.path == *path).unwrap()
}

#[test]
fn each_property_that_it_saw_counts() {
    assert_eq!(planted(|_| ()), Vec::<String>::new());
    assert_eq!(planted(|t| row(t, "/w/d").mode = Some(0o700)), ["/w/d: mode 700 expected, 755 found"]);
    assert_eq!(
        planted(|t| row(t, "/w/soft").target = Some("g".into())),
        ["/w/soft: symlink to \"g\" expected, symlink to \"f\" found"]
    );
    let resized = planted(|t| row(t, "/w/f").size_bytes = Some(90));
    assert_eq!(
        resized,
        ["/w/f: regular of 90 bytes with other names expected, regular of 100 bytes with other names found"]
    );
    let valued: Attributes = [(b"user.a".as_slice().into(), b"1".as_slice().into())].into();
    let attributed = planted(|t| row(t, "/w/d").xattrs = xattrs::to_text(&valued));
    assert_eq!(attributed, ["/w/d: extended attributes user.a=\"1\" expected, none found"]);
    let apart = planted(|t| {
        row(t, "/w/hard").link_id = None;
        t.iter_mut().filter(|r| r.kind == "regular").for_each(|r| r.links = Some(1));
    });
    assert_eq!(apart.len(), 2, "{apart:?}");
    let node = planted(|t| *row(t, "/w/d") = FinalName { rdev: Some(1 << 20 | 3), ..name("/w/d", "char", 0o755) });
    assert_eq!(node.len(), 1, "{node:?}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(planted(|t| row(t, "/w/d").gid = Some(5)), ["/w/d: gid 5 expected, 0 found"]);
    }
}

#[test]
fn names_that_came_and_went_out_of_sight_count() {
    let extra = planted(|t| t.push(name("/w/d/core", "fifo", 0o600)));
    assert_eq!(extra, ["/w/d/core: fifo expected, nothing found"]);
    let gone = planted(|t| t.retain(|row| row.path != *"/w/d"));
    assert_eq!(gone, ["/w/d: nothing expected, directory found"]);
    // The same, where the recorder did not look at all names.
    let unlisted = planted(|t| {
        t.retain(|row| row.path != *"/w/d");
        row(t, "/w").complete = None;
    });
    assert_eq!(unlisted, Vec::<String>::new());
    let absent = planted(|t| {
        row(t, "/w").complete = None;
        *row(t, "/w/d") = FinalName { path: "/w/d".into(), kind: "absent".into(), ..FinalName::default() };
    });
    assert_eq!(absent, ["/w/d: nothing expected, directory found"]);
}

#[test]
fn the_root_directory_is_no_name_in_itself() {
    assert_eq!(planted(|t| t.insert(0, name("/", "directory", 0o755))), Vec::<String>::new());
}

/// A file that the recorder wrote messages to has no size.
#[test]
fn what_it_did_not_see_is_not_compared() {
    let mut d = draft();
    d.ops.retain(|op| op.op != *"write");
    d.final_tree.iter_mut().for_each(|row| row.size_bytes = None);
    let tree = replayed(d, |_| ()).verdict.tree.unwrap();
    assert_eq!((tree.differing, tree.compared.sizes), (0, 0), "{tree:#?}");
    let report = replayed(draft(), |_| ());
    assert_eq!(report.verdict.tree.unwrap().observed, 5);
}

#[test]
fn names_elsewhere_count_as_links_inside_roots_only() {
    let linked = || {
        let mut d = draft();
        d.final_tree.iter_mut().filter(|r| r.kind == "regular").for_each(|r| r.links = Some(3));
        d
    };
    let tree = replayed(linked(), |_| ()).verdict.tree.unwrap();
    assert_eq!((tree.differing, tree.links_elsewhere), (0, 2), "{tree:#?}");
    let tree = replayed(linked(), |c| c.roots = vec!["/w".into()]).verdict.tree.unwrap();
    assert_eq!((tree.differing, tree.links_elsewhere), (2, 2), "{tree:#?}");
}

/// Not all names of a file are in the table.
#[test]
fn a_file_with_names_that_were_not_looked_at_has_the_links_that_operations_tell() {
    let mut d = draft();
    d.on(1, "link", "f", 0).path2 = Some("a".into());
    d.final_tree.iter_mut().filter(|r| r.kind == "regular").for_each(|r| r.links = Some(3));
    d.final_tree.push(FinalName { path: "/w/a".into(), kind: "unseen".into(), ..FinalName::default() });
    let tree = replayed(d, |_| ()).verdict.tree.unwrap();
    assert_eq!((tree.differing, tree.observed), (0, 5), "{tree:#?}");
}

#[test]
fn a_part_of_the_recording_is_not_held_against_its_end() {
    let changed = || {
        let mut d = draft();
        row(&mut d.final_tree, "/w/d").mode = Some(0o700);
        row(&mut d.final_tree, "/w").mode = Some(0o711);
        d
    };
    let whole = replayed(changed(), |_| ()).verdict.tree.unwrap();
    assert_eq!((whole.differing, whole.observed), (2, 5));
    // It is not known what is at the end of a part.
    let part = replayed(changed(), |c| c.slice = Slice { to_ns: 1, ..Slice::default() }).verdict.tree.unwrap();
    assert_eq!((part.differing, part.observed), (0, 0));
    let outside = replayed(changed(), |c| c.roots = vec!["/w/d".into()]).verdict.tree.unwrap();
    assert_eq!((outside.differing, outside.observed), (1, 1), "{outside:#?}");
}
