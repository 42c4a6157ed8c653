#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

/// Resolves for process 7, whose working directory is `/stand`, also open as descriptor 4.
fn resolve(n: &mut Names, top: &str, base: &str, path: &str, follow: bool) -> Option<String> {
    let own = |link, _| match link {
        magic_links::Link::Cwd { .. } | magic_links::Link::Fd(4) => Some("/stand".to_owned()),
        magic_links::Link::Root { .. } => Some(top.to_owned()),
        magic_links::Link::Fd(_) => None,
    };
    n.resolve(&Start { top, base, pid: 7, own: &own, real: None }, path, follow)
}

fn before(mut n: Names) -> Vec<String> {
    n.take_before().1.into_iter().collect()
}

#[test]
fn what_is_used_and_was_not_made_was_there_with_all_above_it() {
    let mut n = Names::default();
    n.exists("/nowhere/a/b");
    n.make("/nowhere/a/new");
    n.exists("/nowhere/a/new");
    assert_eq!(before(n), ["/", "/nowhere", "/nowhere/a", "/nowhere/a/b"]);
}

#[test]
fn links_move_with_the_folder_that_they_are_in() {
    let row = |path: &str, target: Option<&str>| {
        (path.to_owned(), Tree { path: path.into(), target: target.map(Into::into), ..Tree::default() })
    };
    let seen = [("/w", None), ("/w/r", None), ("/w/r/1", None), ("/w/r/1/f", None), ("/w/r/cur", Some("1"))];
    let mut n = Names::new(seen.map(|(path, target)| row(path, target)).into(), HashSet::new()).unseen();
    n.rename("/w/r", "/w/rr");
    n.make_link("/w/r", "rr");
    n.make("/w/r");
    assert_eq!(resolve(&mut n, "", "/w", "r/cur/f", true).unwrap(), "/w/rr/1/f");
    assert_eq!(n.exists("/w/rr/1/f"), None, "moved, and known by its old name");
    assert_eq!(before(n), Vec::<String>::new());
}

#[test]
fn what_the_snapshot_did_not_see_in_a_folder_came_later() {
    let row = |path: &str| (path.to_owned(), Tree { path: path.into(), ..Tree::default() });
    let seen = ["/", "/w", "/w/d", "/w/d/f"].map(row).into();
    let mut n = Names::new(seen, ["/w", "/w/d"].map(str::to_owned).into());
    assert_eq!(n.exists("/w/d/f").as_deref(), Some("/w/d/f"));
    assert_eq!((n.exists("/w/socket"), n.exists("/w/made/f")), (None, None));
    n.remove("/w/socket");
    // The directory also contained nothing else under its new name.
    n.rename("/w/d", "/w/moved");
    assert_eq!(n.exists("/w/moved/core"), None);
    assert_eq!(n.exists("/elsewhere/f").as_deref(), Some("/elsewhere/f"));
    assert_eq!(before(n), ["/elsewhere", "/elsewhere/f"]);
}

#[test]
fn nothing_was_there_below_a_made_folder() {
    let mut n = Names::default();
    n.make("/nowhere/made");
    assert_eq!(n.exists("/nowhere/made/socket"), None);
    assert_eq!(before(n), ["/", "/nowhere"]);
}

#[test]
fn a_name_below_a_moved_folder_was_there_under_the_old_name() {
    let mut n = Names::default();
    n.exists("/nowhere/old");
    n.rename("/nowhere/old", "/nowhere/new");
    assert_eq!(n.exists("/nowhere/new/f").unwrap(), "/nowhere/old/f".to_owned());
    n.rename("/nowhere/new", "/nowhere/newer");
    assert_eq!(n.exists("/nowhere/newer/g"), Some("/nowhere/old/g".into()));
    assert_eq!(before(n), ["/", "/nowhere", "/nowhere/old", "/nowhere/old/f", "/nowhere/old/g"]);
}

#[test]
fn what_was_moved_is_found_where_it_went_unless_it_ended_there() {
    let mut n = Names::default();
    n.exists("/nowhere/a/f");
    n.rename("/nowhere/a", "/nowhere/b");
    n.rename("/nowhere/b", "/nowhere/c");
    n.make("/nowhere/b");
    assert_eq!(n.name_now("/nowhere/a/f").unwrap(), "/nowhere/c/f");
    assert_eq!(n.origin("/nowhere/c"), Some("/nowhere/a".into()));
    assert_eq!(n.origin("/nowhere/b"), None, "made anew");
    n.exists("/nowhere/x");
    n.rename("/nowhere/x", "/nowhere/y");
    n.remove("/nowhere/y");
    assert_eq!(n.name_now("/nowhere/x"), None);
}

#[test]
fn exchanged_names_are_found_where_they_went() {
    let mut n = Names::default();
    n.exists("/nowhere/a");
    n.exists("/nowhere/b/f");
    n.exchange("/nowhere/a", "/nowhere/b");
    assert_eq!(n.name_now("/nowhere/a").unwrap(), "/nowhere/b");
    assert_eq!(n.name_now("/nowhere/b/f").unwrap(), "/nowhere/a/f");
    assert_eq!(n.exists("/nowhere/a/g"), Some("/nowhere/b/g".into()));
}

#[test]
fn names_that_come_and_go_are_forgotten_and_those_from_before_are_not() {
    let mut n = Names::default();
    n.exists("/nowhere/old");
    n.remove("/nowhere/old");
    for i in 0..REMEMBERED_GONE + 1000 {
        let name = format!("/nowhere/new{i}");
        assert_eq!(n.link(&name), None);
        n.make(&name);
        assert!(n.is_new(&name));
        n.remove(&name);
    }
    assert!(n.states.len() < REMEMBERED_GONE + 10 && n.links.is_empty());
    assert_eq!(n.exists(&format!("/nowhere/new{REMEMBERED_GONE}")), None, "not long ago");
    assert_eq!(before(n), ["/", "/nowhere", "/nowhere/old"]);
}

#[test]
fn dots_and_links_are_resolved() {
    let mut n = Names::default();
    n.make("/nowhere/dir");
    n.make_link("/nowhere/link", "dir/sub");
    n.make("/nowhere/link");
    assert_eq!(resolve(&mut n, "", "/nowhere", "./link/../x", true).unwrap(), "/nowhere/dir/x");
    assert_eq!(resolve(&mut n, "", "/nowhere", "link", false).unwrap(), "/nowhere/link");
    assert_eq!(resolve(&mut n, "", "/nowhere", "../../..", true).unwrap(), "/");
    n.make_link("/nowhere/dir/up", "/sub/../../x");
    assert_eq!(
        resolve(&mut n, "/nowhere/dir", "/nowhere/dir/sub", "../../up", true).unwrap(),
        "/nowhere/dir/x",
        "a root"
    );
    n.make_link("/nowhere/loop", "loop");
    assert_eq!(resolve(&mut n, "", "/", "nowhere/loop/x", true), None);
}

#[test]
fn links_of_proc_lead_to_what_they_are_to_the_task() {
    let mut n = Names::default();
    for (path, name) in [
        ("/proc/self/cwd/x", "/stand/x"),
        ("/proc/7/cwd/../x", "/x"),
        ("/proc/self/fd/4/x", "/stand/x"),
        ("/dev/fd/4/x", "/stand/x"),
        ("/proc/self/root/proc/thread-self/cwd/x", "/stand/x"),
        ("/proc/meminfo", "/proc/meminfo"),
    ] {
        assert_eq!(resolve(&mut n, "", "/", path, true).as_deref(), Some(name), "{path}");
    }
    let own = std::process::id();
    for path in [
        "/proc/self/fd/5",
        "/dev/stdin",
        "/proc/self",
        "/proc/self/stat",
        "/proc/mounts",
        &format!("/proc/{own}/cwd/x"),
    ] {
        assert_eq!(resolve(&mut n, "", "/", path, true), None, "{path}");
    }
    assert_eq!(
        resolve(&mut n, "", "/", "/proc/self/cwd", false),
        None,
        "the link itself, by a name that is the task's own"
    );
    assert_eq!(resolve(&mut n, "/cage", "/", "/proc/self/cwd/x", true).unwrap(), "/stand/x");
    assert_eq!(resolve(&mut n, "/cage", "/", "/proc/self/root/x", true).unwrap(), "/cage/x");
}

#[test]
fn names_are_followed_through_moves_of_made_folders() {
    let mut n = Names::default();
    n.exists("/b");
    n.make("/deep");
    n.rename("/b", "/deep/b");
    n.rename("/deep", "/deeper");
    assert_eq!(n.origin("/deeper/b").as_deref(), Some("/b"));
    assert_eq!((n.origin("/deeper"), n.exists("/deeper/found")), (None, None));
    assert_eq!(n.exists("/deeper/b/x").as_deref(), Some("/b/x"));
    assert_eq!(before(n), ["/", "/b", "/b/x"]);
}

#[test]
fn an_exchanged_folder_keeps_what_was_in_it() {
    let mut n = Names::default();
    n.exists("/x");
    n.exists("/y");
    n.exchange("/x", "/y");
    assert_eq!((n.origin("/x").as_deref(), n.origin("/y").as_deref()), (Some("/y"), Some("/x")));
    assert_eq!(n.exists("/y/8").as_deref(), Some("/x/8"));
    n.remove("/y/8");
    assert_eq!(n.exists("/x/8").as_deref(), Some("/y/8"));
    assert_eq!(before(n), ["/", "/x", "/x/8", "/y", "/y/8"]);
}

#[test]
fn what_moves_on_from_a_moved_folder_is_followed() {
    let mut n = Names::default();
    n.exists("/d");
    n.rename("/d", "/w/d");
    assert_eq!(n.exists("/w/d/sub").as_deref(), Some("/d/sub"));
    n.rename("/w/d/sub", "/w/s");
    assert_eq!(n.origin("/w/s").as_deref(), Some("/d/sub"));
    n.make("/w/d/new");
    n.rename("/w/d/new", "/w/n");
    assert_eq!(n.origin("/w/n"), None);
}
