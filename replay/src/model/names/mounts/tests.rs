#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

fn names() -> Names {
    Names::new(&[])
}

/// Mounts what is at `from` over `to`, in the namespace with the root mount `space`.
fn bind(n: &mut Names, space: MountId, from: &str, to: &str) -> MountId {
    let [from, to] = [from, to].map(|path| place(n, space, path));
    let new = n.new_bind(from).unwrap();
    assert!(n.attach(new, to));
    new
}

fn place(n: &mut Names, space: MountId, path: &str) -> Place {
    n.mounts.start = (space, space);
    n.resolve(ROOT, ROOT, path.as_bytes(), true).expect("no loop");
    n.mounts.led.unwrap()
}

fn led(n: &mut Names, space: MountId, path: &str) -> String {
    let place = place(n, space, path);
    String::from_utf8(n.path(place.node)).unwrap()
}

fn new_space(n: &mut Names, of: MountId) -> MountId {
    let copy = n.copy_namespace(of).unwrap()[&of];
    n.propagate(copy, Propagation::Private, true);
    copy
}

#[test]
fn paths_continue_behind_a_bind_mount_in_its_namespace_alone() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    bind(&mut n, space, "/from", "/to");
    assert_eq!(led(&mut n, space, "/to/a/b"), "/from/a/b");
    let from = n.literal(b"/from");
    assert_eq!(n.entered.take(), Some((from, b"a/b".to_vec())), "where a replay starts its path");
    assert_eq!(led(&mut n, INITIAL, "/to/a/b"), "/to/a/b");
    assert_eq!(led(&mut n, space, "/to/../x"), "/x", "a mount's parent is that of its mount point");
    let deeper = new_space(&mut n, space);
    let top = place(&mut n, deeper, "/to").mount;
    n.unmount(top, false);
    assert_eq!(led(&mut n, deeper, "/to/a"), "/to/a");
    assert_eq!(led(&mut n, space, "/to/a"), "/from/a");
}

#[test]
fn a_directory_in_a_mount_has_the_parent_of_the_mount_point() {
    let mut n = names();
    bind(&mut n, INITIAL, "/a/from", "/b/c/to");
    let cwd = place(&mut n, INITIAL, "/b/c/to/s");
    n.mounts.start = (cwd.mount, INITIAL);
    let node = n.resolve(ROOT, cwd.node, b"../../x", true).expect("no loop");
    assert_eq!(n.path(node), b"/b/c/x");
    let here = n.resolve(ROOT, cwd.node, b"../x", true).expect("no loop");
    assert_eq!(n.path(here), b"/a/from/x");
}

#[test]
fn the_topmost_mount_counts_and_a_directory_may_be_mounted_on_itself() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    let mounts = ["/to", "/a", "/b"].map(|from| bind(&mut n, space, from, "/to"));
    for (top, shown) in mounts.into_iter().rev().zip(["/b/x", "/a/x", "/to/x"]) {
        assert_eq!(led(&mut n, space, "/to/x"), shown);
        assert_eq!(led(&mut n, space, "/to/../x"), "/x");
        let place = place(&mut n, space, "/to");
        assert_eq!(n.mounts.topped_by(place), Some(top));
        n.unmount(top, false);
    }
    assert_eq!(led(&mut n, space, "/to/x"), "/to/x");
}

#[test]
fn a_mount_in_a_mount_is_seen_there_alone() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    bind(&mut n, space, "/a", "/b");
    bind(&mut n, space, "/c", "/b/s");
    assert_eq!(led(&mut n, space, "/b/s/x"), "/c/x");
    assert_eq!(led(&mut n, space, "/a/s/x"), "/a/s/x");
    // A bind mount shows its directory alone, a recursive one what is mounted there, too.
    bind(&mut n, space, "/b", "/plain");
    assert_eq!(led(&mut n, space, "/plain/s/x"), "/a/s/x");
    let from = place(&mut n, space, "/b");
    let (copy, over) = (n.copy_from(from).unwrap(), place(&mut n, space, "/all"));
    assert!(n.attach(copy, over));
    assert_eq!(led(&mut n, space, "/all/s/x"), "/c/x");
}

#[test]
fn where_a_mount_may_propagate_paths_lead_to_an_unfollowed_one() {
    let mut n = names();
    bind(&mut n, INITIAL, "/a", "/b");
    bind(&mut n, INITIAL, "/c", "/b/s");
    assert_eq!(led(&mut n, INITIAL, "/b/s/x"), "/c/x");
    let seen = place(&mut n, INITIAL, "/a/s/x");
    assert_eq!(n.area(seen.node), Some(Skip::UnfollowedMount));
    assert_eq!(led(&mut n, INITIAL, "/a/t"), "/a/t");
}

#[test]
fn a_moved_mount_takes_along_what_is_mounted_on_it() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    let moved = bind(&mut n, space, "/a", "/b");
    let cwd = place(&mut n, space, "/b");
    bind(&mut n, space, "/c", "/b/s");
    let to = place(&mut n, space, "/d/e");
    assert!(n.attach(moved, to));
    assert_eq!(led(&mut n, space, "/d/e/s/x"), "/c/x");
    assert_eq!(led(&mut n, space, "/b/s"), "/b/s");
    n.mounts.start = (cwd.mount, space);
    let node = n.resolve(ROOT, cwd.node, b"../x", true).expect("no loop");
    assert_eq!(n.path(node), b"/d/x");
    let inside = place(&mut n, space, "/d/e/s");
    assert!(!n.attach(moved, inside), "a mount in itself");
}

#[test]
fn a_new_root_stands_on_the_old_one() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    let new = bind(&mut n, space, "/jail", "/jail");
    let put = place(&mut n, space, "/jail/old");
    assert!(n.pivot(new, space, put));
    n.mounts.start = (new, new);
    let root = n.literal(b"/jail");
    let led = |n: &mut Names, path: &[u8]| {
        let node = n.resolve(root, root, path, true).expect("no loop");
        n.path(node)
    };
    assert_eq!(led(&mut n, b"/etc/x"), b"/jail/etc/x");
    assert_eq!(led(&mut n, b"/old/etc/x"), b"/etc/x");
    assert_eq!(led(&mut n, b"/old/../x"), b"/jail/x");
    assert_eq!(led(&mut n, b"/../../x"), b"/jail/x");
    n.unmount(space, true);
    assert_eq!(led(&mut n, b"/old/etc/x"), b"/jail/old/etc/x");
}

#[test]
fn an_old_root_on_the_new_one_is_the_topmost_there() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    let new = bind(&mut n, space, "/jail", "/jail");
    let cwd = Place { node: n.literal(b"/jail"), mount: new };
    assert!(n.pivot(new, space, cwd), "pivot_root . .");
    let top = n.topmost(cwd);
    assert_eq!(n.mounts.topped_by(top), Some(space));
    n.unmount(space, true);
    n.mounts.start = (new, new);
    let node = n.resolve(cwd.node, cwd.node, b"d/../x", true).expect("no loop");
    assert_eq!(n.path(node), b"/jail/x");
}

#[test]
fn the_root_of_a_detached_mount_is_its_own_parent() {
    let mut n = names();
    let mount = bind(&mut n, INITIAL, "/a", "/b");
    let cwd = place(&mut n, INITIAL, "/b");
    n.unmount(mount, true);
    n.mounts.start = (cwd.mount, INITIAL);
    let node = n.resolve(ROOT, cwd.node, b"../x", true).expect("no loop");
    assert_eq!(n.path(node), b"/a/x");
}

#[test]
fn names_that_go_take_mounts_along() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    bind(&mut n, space, "/a", "/b");
    let b = n.literal(b"/b");
    n.name_left_mounts(b);
    assert_eq!(led(&mut n, space, "/b/x"), "/b/x");
    bind(&mut n, space, "/f", "/g");
    let f = n.literal(b"/f");
    n.name_left_mounts(f);
    let seen = place(&mut n, space, "/g");
    assert_eq!(n.area(seen.node), Some(Skip::UnfollowedMount));
}

#[test]
fn what_may_have_been_unmounted_elsewhere_is_unfollowed() {
    let mut n = names();
    let mount = bind(&mut n, INITIAL, "/a", "/b");
    let shared = n.copy_namespace(INITIAL).unwrap()[&INITIAL];
    assert_eq!(led(&mut n, shared, "/b/x"), "/a/x");
    n.unmount(mount, false);
    let seen = place(&mut n, shared, "/b/x");
    assert_eq!(n.area(seen.node), Some(Skip::UnfollowedMount));
}

#[test]
fn what_is_unbindable_is_not_copied() {
    let mut n = names();
    let space = new_space(&mut n, INITIAL);
    bind(&mut n, space, "/a", "/a");
    let inner = bind(&mut n, space, "/e", "/a/s");
    n.propagate(inner, Propagation::Unbindable, false);
    let from = place(&mut n, space, "/a");
    let (copy, over) = (n.copy_from(from).unwrap(), place(&mut n, space, "/b"));
    assert!(n.attach(copy, over));
    assert_eq!(led(&mut n, space, "/a/s/f"), "/e/f");
    assert_eq!(led(&mut n, space, "/b/s/f"), "/a/s/f");
}

#[test]
fn exchanged_mount_points_keep_their_mounts() {
    let mut n = names();
    bind(&mut n, INITIAL, "/x", "/a");
    bind(&mut n, INITIAL, "/y", "/b");
    let (a, b) = (n.literal(b"/a"), n.literal(b"/b"));
    n.relocate_mounts(|_, node| {
        if node == a {
            b
        } else if node == b {
            a
        } else {
            node
        }
    });
    assert_eq!(led(&mut n, INITIAL, "/a"), "/y");
    assert_eq!(led(&mut n, INITIAL, "/b"), "/x");
}

#[test]
fn too_many_mounts_are_refused() {
    let mut n = names();
    for at in 0..1000 {
        bind(&mut n, INITIAL, "/a", &format!("/{at}"));
    }
    let copies = (0..2 * MOST_MOUNTS / 1000).map_while(|_| n.copy_namespace(INITIAL)).count();
    assert!((MOST_MOUNTS / 1100..MOST_MOUNTS / 900).contains(&copies), "{copies}");
}

#[test]
fn other_file_systems_are_skipped() {
    let mut n = names();
    let to = place(&mut n, INITIAL, "/to");
    let other = n.other_file_system(Skip::OtherMount);
    let mount = n.new_mount(other).unwrap();
    assert!(n.attach(mount, to));
    let seen = place(&mut n, INITIAL, "/to/x/y");
    assert_eq!(n.area(seen.node), Some(Skip::OtherMount));
    assert_eq!(n.area(to.node), None);
}
