//! The final tree is held against what the recording left: every property that the recording determines, also of what
//! the replay leaves out.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

use ioreel_replay::{
    PlanOptions, Replay, Report, plan,
    plan::program::Plan,
    prepare::directory::Directory,
    reel::input::Input,
    session::watch::Unwatched,
    verdict::{
        clauses::Clause,
        end_state::{TreeCheck, check},
        recorded_tree::RecordedTree,
    },
};
use ioreel_traces::{Reel, rows::Op, text::from_bytes};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lremovexattr, lsetxattr, makedev, mknodat};

use crate::reel::{Draft, config};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A replay of this draft, and what is needed to look at its tree again.
struct Done {
    dir: tempfile::TempDir,
    report: Report,
    plan: Plan,
}

impl Done {
    fn of(draft: Draft, change: impl FnOnce(&mut PlanOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        let reel = draft.write(dir.path());
        let report = Replay::plan(config(reel.clone(), &target)).unwrap().run(Unwatched, |_| ()).unwrap();
        let mut options = PlanOptions { privileged: is_root(), ..Default::default() };
        change(&mut options);
        let plan = plan(Input::read(&Reel::open(&reel).unwrap()).unwrap(), options).unwrap();
        Self { dir, report, plan }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join("t/w").join(name)
    }

    fn look(&self) -> TreeCheck {
        let target = self.dir.path().join("t");
        let directory = Directory::of(target.clone(), File::open(&target).unwrap()).unwrap();
        let reel = Reel::open(self.dir.path().join("hand.reel")).unwrap();
        let recorded = RecordedTree::read(&reel, &self.plan, false).unwrap();
        check(&self.plan, &recorded, &directory, &[], true).unwrap()
    }

    /// The only difference that there is now.
    fn only(&self) -> String {
        let seen = self.look();
        assert!(seen.differing == 1 && seen.digest != seen.expected_digest, "{seen:#?}");
        seen.examples[0].clone()
    }
}

fn set_attribute<'a>(o: &'a mut Op, name: &str, value: &[u8]) -> &'a mut Op {
    (o.name, o.value, o.len_bytes) = (Some(name.into()), Some(from_bytes(value)), Some(value.len() as i64));
    o
}

/// Files of many kinds, with properties of many kinds.
fn varied() -> Draft {
    let mut d = Draft::new();
    let top = d.had("/w", "directory", 0);
    (top.uid, top.gid) = (Some(0), Some(0));
    let old = d.had("/w/old", "regular", 10);
    (old.uid, old.gid) = (Some(0), Some(0));
    d.create(1, "f", 1, 3);
    d.io(1, "write", 3, 0, 100, 100).file = Some(1);
    d.on(1, "chmod", "f", 0).mode = Some(0o640);
    set_attribute(d.on(1, "setxattr", "f", 0), "user.a", b"one").dirfd = None;
    d.on(1, "mkdir", "d", 0).mode = Some(0o777);
    d.on(1, "link", "f", 0).path2 = Some("d/hard".into());
    d.on(1, "symlink", "f", 0).path2 = Some("d/soft".into());
    d.on(1, "mknod", "fifo", 0).mode = Some((libc::S_IFIFO | 0o666) as i32);
    d
}

fn node(path: &Path, kind: FileType, minor: u32) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), makedev(1, minor)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_planted_difference_of_each_kind_turns_it() {
    let done = Done::of(varied(), |_| ());
    let verdict = &done.report.verdict;
    assert!(verdict.faithful, "{}\n{:#?}", verdict.sentence, verdict.tree);
    let tree = done.look();
    assert_eq!((tree.differing, tree.expected, tree.found), (0, 7, 7), "{tree:#?}");
    let c = tree.compared;
    assert_eq!((c.types, c.sizes, c.targets, c.links), (7, 3, 1, 2), "{c:?}");
    assert_eq!((c.modes, c.uids, c.gids, c.link_counts, c.attributes), (6, 7, 7, 5, 7), "{c:?}");
    let (f, d, old) = (done.at("f"), done.at("d"), done.at("old"));
    // A file that nothing touched is looked at as well.
    File::options().write(true).open(&old).unwrap().set_len(11).unwrap();
    assert_eq!(done.only(), "/w/old: regular of 10 bytes expected, regular of 11 bytes found");
    File::options().write(true).open(&old).unwrap().set_len(10).unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    mode(&d, 0o750);
    assert_eq!(done.only(), "/w/d: mode 755 expected, 750 found");
    mode(&d, 0o755);
    mode(&old, 0o600);
    assert_eq!(done.only(), "/w/old: mode 644 expected, 600 found");
    mode(&old, 0o644);
    fs::hard_link(&old, done.dir.path().join("elsewhere")).unwrap();
    assert_eq!(done.only(), "/w/old: link count 1 expected, 2 found");
    fs::remove_file(done.dir.path().join("elsewhere")).unwrap();
    let empty = XattrFlags::empty();
    lsetxattr(&d, "user.b", b"two", empty).unwrap();
    assert_eq!(done.only(), "/w/d: extended attributes none expected, user.b=\"two\" found");
    lremovexattr(&d, "user.b").unwrap();
    // Two names of one file.
    lsetxattr(&f, "user.a", b"two", empty).unwrap();
    assert_eq!(done.look().differing, 2);
    assert!(done.look().examples[0].contains("user.a=\"one\" expected, user.a=\"two\" found"), "{:?}", done.look());
    lremovexattr(&f, "user.a").unwrap();
    assert_eq!(done.look().differing, 2);
    lsetxattr(&f, "user.a", b"one", empty).unwrap();
    fs::remove_file(d.join("soft")).unwrap();
    symlink("g", d.join("soft")).unwrap();
    assert!(done.only().contains("symlink to \"f\" expected, symlink to \"g\" found"));
    fs::remove_file(d.join("soft")).unwrap();
    symlink("f", d.join("soft")).unwrap();
    fs::remove_file(done.at("fifo")).unwrap();
    node(&done.at("fifo"), FileType::Socket, 0);
    assert_eq!(done.only(), "/w/fifo: fifo expected, socket found");
    fs::remove_file(done.at("fifo")).unwrap();
    node(&done.at("fifo"), FileType::Fifo, 0);
    if is_root() {
        chown(&old, Some(7), None).unwrap();
        assert_eq!(done.only(), "/w/old: uid 0 expected, 7 found");
        chown(&old, Some(0), Some(8)).unwrap();
        assert_eq!(done.only(), "/w/old: gid 0 expected, 8 found");
        chown(&old, Some(0), Some(0)).unwrap();
    }
    assert_eq!(done.look().differing, 0);
}

#[test]
fn a_device_node_has_its_type_and_number() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    let o = d.on(1, "mknod", "null", 0);
    (o.mode, o.aux) = (Some((libc::S_IFCHR | 0o666) as i32), Some(makedev(1, 3) as i64));
    let done = Done::of(d, |_| ());
    let verdict = &done.report.verdict;
    let tree = verdict.tree.as_ref().unwrap();
    // Replayed, or named: no third case.
    let named = verdict.left_out.operations == 1 && tree.differing == 1;
    let bits = Clause::Tree.bit() | Clause::LeftOut.bit();
    assert!(verdict.status == 0 && tree.differing == 0 || named && verdict.status == bits, "{}", verdict.sentence);
    if !is_root() {
        return;
    }
    let null = done.at("null");
    let renew = |kind, minor| {
        let _ = fs::remove_file(&null);
        node(&null, kind, minor);
    };
    renew(FileType::CharacterDevice, 3);
    assert_eq!(done.look().differing, 0, "{:#?}", done.look());
    assert_eq!(done.look().compared.devices, 1);
    renew(FileType::CharacterDevice, 5);
    assert_eq!(done.only(), "/w/null: device char 1:3 expected, char 1:5 found");
    renew(FileType::BlockDevice, 3);
    assert_eq!(done.only(), "/w/null: device char 1:3 expected, block 1:3 found");
    fs::remove_file(&null).unwrap();
    fs::write(&null, "").unwrap();
    fs::set_permissions(&null, Permissions::from_mode(0o644)).unwrap();
    assert!(
        done.only().starts_with("/w/null: device expected, regular found; device char 1:3 expected, none found"),
        "{}",
        done.only()
    );
    fs::remove_file(&null).unwrap();
    assert_eq!(done.only(), "/w/null: device expected, nothing found");
}

/// Descriptors that nothing in the reel opened: what was written through them is in the recorded tree.
#[test]
fn work_that_is_left_out_is_expected_and_named() {
    let draft = || {
        let mut d = Draft::new();
        d.had("/w", "directory", 0);
        d.create(1, "f", 1, 3);
        d.io(1, "write", 3, 0, 10, 10).file = Some(1);
        for i in 0..4 {
            d.io(1, "write", 77, 10 + i * 1000, 1000, 1000).file = Some(1);
        }
        d
    };
    let done = Done::of(draft(), |_| ());
    let v = &done.report.verdict;
    assert_eq!(v.left_out.operations, 4, "{:#?}", v.left_out);
    assert_eq!(v.left_out.by_reason["descriptor opened out of sight"], 4);
    assert_eq!(v.left_out.examples[0], "write /w/f: descriptor opened out of sight");
    assert!(v.sentence.contains("4 operations on replayed files are left out"), "{}", v.sentence);
    assert_eq!(v.status, Clause::Tree.bit() | Clause::LeftOut.bit(), "{}", v.sentence);
    let tree = v.tree.as_ref().unwrap();
    assert_eq!(tree.examples, ["/w/f: regular of 4010 bytes expected, regular of 10 bytes found"]);
    // Allowed: the tree differs nevertheless.
    for (left_out, status) in [(3, 24), (4, 8)] {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("t");
        fs::create_dir(&target).unwrap();
        let mut c = config(draft().write(dir.path()), &target);
        c.limits.left_out = left_out;
        let v = Replay::plan(c).unwrap().run(Unwatched, |_| ()).unwrap().verdict;
        assert_eq!((v.status, v.clauses.left_out.is_empty()), (status, status == 8), "{}", v.sentence);
    }
}

/// What is outside the roots, or on no file, is the user's choice or no work of a file system.
#[test]
fn what_is_not_chosen_is_no_gap() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "f", 1, 3);
    d.on(1, "stat", "/proc/self/status", 0).mode = Some(0o100_444);
    d.on(1, "mkdir", "/elsewhere", 0).mode = Some(0o755);
    d.on(1, "rename", "f", -i64::from(libc::EXDEV)).path2 = Some("/mnt/f".into());
    d.know(9, "socket");
    d.io(1, "write", 8, 0, 5, 5).file = Some(9);
    let done = Done::of(d, |_| ());
    let v = &done.report.verdict;
    assert!(v.faithful && v.left_out.total() == 0, "{} {:#?}", v.sentence, v.left_out);
    assert!(done.report.summary.skipped.values().sum::<i64>() >= 3);
}

/// umask, set-group-ID directories and access lists decide about modes and groups.
#[test]
fn modes_are_those_that_the_kernel_gives() {
    let list = |entries: &[(u16, u16, u32)]| {
        let mut out = vec![2, 0, 0, 0];
        for (tag, perm, id) in entries {
            out.extend(tag.to_le_bytes());
            out.extend(perm.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    };
    let none = u32::MAX;
    let default = list(&[(1, 7, none), (2, 7, 1000), (4, 5, none), (0x10, 7, none), (0x20, 0, none)]);
    let dir = tempfile::tempdir().unwrap();
    if lsetxattr(dir.path(), "system.posix_acl_default", &default, XattrFlags::empty()).is_err() {
        return;
    }
    let mut d = Draft::new();
    let top = d.had("/w", "directory", 0);
    (top.uid, top.gid) = (Some(0), Some(0));
    d.op(1, "umask", 0o022).mode = Some(0o027);
    d.on(1, "mkdir", "plain", 0).mode = Some(0o2777);
    d.on(1, "mkdir", "listed", 0).mode = Some(0o755);
    set_attribute(d.on(1, "setxattr", "listed", 0), "system.posix_acl_default", &default).dirfd = None;
    d.create(1, "listed/f", 1, 3);
    d.on(1, "mkdir", "listed/d", 0).mode = Some(0o700);
    d.create(1, "listed/d/g", 2, 4);
    d.fd(1, "fchmod", 4, 0).mode = Some(0o604);
    if is_root() {
        let o = d.on(1, "chown", "plain", 0);
        (o.aux, o.aux2) = (Some(-1), Some(50));
    }
    d.on(1, "chmod", "plain", 0).mode = Some(0o2775);
    d.create(1, "plain/h", 3, 5);
    d.on(1, "mkdir", "plain/i", 0).mode = Some(0o777);
    let done = Done::of(d, |_| ());
    let verdict = &done.report.verdict;
    assert!(verdict.faithful, "{}\n{:#?}", verdict.sentence, verdict.tree);
    let c = verdict.tree.as_ref().unwrap().compared;
    assert_eq!((c.modes, c.attributes), (8, 8), "{c:?}");
    let mode = |name: &str| fs::metadata(done.at(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("listed/f"), mode("plain/i")), (0o660, 0o2750));
    fs::set_permissions(done.at("listed/f"), Permissions::from_mode(0o640)).unwrap();
    assert!(done.only().starts_with("/w/listed/f: mode 660 expected, 640 found; extended attributes"));
}

/// Without root, owners stay those of the user: the verdict names them in a clause of their own.
#[test]
fn owners_that_cannot_be_set_are_named() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "f", 1, 3);
    let o = d.fd(1, "fchown", 3, 0);
    (o.aux, o.aux2) = (Some(1234), Some(-1));
    let done = Done::of(d, |options| options.privileged = false);
    let gaps = &done.plan.gaps;
    assert_eq!(gaps.examples, ["fchown /w/f: change that needs root"]);
    if is_root() {
        chown(done.at("f"), Some(0), Some(0)).unwrap();
    }
    let tree = done.look();
    assert_eq!((tree.owners_not_set, tree.differing), (1, 0), "{tree:#?}");
    assert!(tree.owner_examples[0].starts_with("/w/f: 1234:"), "{:?}", tree.owner_examples);
}

/// A thread in another user namespace names users that are others here.
#[test]
fn owners_from_another_user_namespace_are_named_and_not_guessed() {
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.create(1, "f", 1, 3);
    d.op(1, "unshare", 0).flags = Some(0x1000_0000);
    let o = d.fd(1, "fchown", 3, 0);
    (o.aux, o.aux2) = (Some(0), Some(0));
    let done = Done::of(d, |_| ());
    let v = &done.report.verdict;
    if v.left_out.operations == 0 {
        // Replayed under the recorded map of ids.
        return;
    }
    assert_eq!(v.left_out.examples, ["fchown /w/f: users of another user name space"]);
    assert_eq!(v.status, Clause::LeftOut.bit(), "{}", v.sentence);
}

/// A name that something else made is in the recorded tree, and not in the replay's.
#[test]
fn a_name_made_out_of_sight_is_missed() {
    let mut d = Draft::new();
    d.on(1, "mkdir", "d", 0).mode = Some(0o755);
    d.on(1, "stat", "d/theirs", 0).mode = Some((libc::S_IFREG | 0o600) as i32);
    d.on(1, "mkdir", "e", 0).mode = Some(0o755);
    d.on(1, "stat", "e/gone", 0).mode = Some((libc::S_IFREG | 0o600) as i32);
    d.on(1, "unlink", "e/gone", 0);
    let done = Done::of(d, |_| ());
    let tree = done.report.verdict.tree.as_ref().unwrap();
    assert_eq!(tree.examples, ["/w/d/theirs: regular expected, nothing found"]);
    assert_eq!(done.report.verdict.left_out.operations, 3);
}
