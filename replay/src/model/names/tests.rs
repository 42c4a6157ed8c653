//! Compares the model with what the kernel does.

use super::*;

fn names() -> Names {
    Names::new(&[])
}

#[test]
fn dots_and_links_lead_where_the_kernel_would_go() {
    let mut n = names();
    let link = n.literal(b"/a/l");
    n.set_before(link, Kind::Symlink, Some(Box::from(&b"../b/c"[..])), 0);
    let want = n.literal(b"/b/c/d");
    assert_eq!(n.resolve(ROOT, ROOT, b"/a/l/./d", true), Some(want));
    assert_eq!(n.resolve(ROOT, want, b"../../../../b/c/d", true), Some(want));
    assert_eq!(n.resolve(ROOT, ROOT, b"/a/l", false), Some(link));
    let own = n.literal(b"/x");
    n.set_before(own, Kind::Symlink, Some(Box::from(&b"x"[..])), 0);
    assert_eq!(n.resolve(ROOT, ROOT, b"/x", true), None);
}

#[test]
fn a_directory_takes_its_names_along() {
    let mut n = names();
    let old = n.literal(b"/d/f");
    n.prove_present(old, Kind::Regular, None);
    let (from, to) = (n.literal(b"/d"), n.literal(b"/e"));
    n.rename(from, to);
    let new = n.literal(b"/e/f");
    assert_eq!(n.exists(new), Some(true));
    assert_eq!(n.exists(old), Some(false));
    // A name not asked for before had its initial name below the old path.
    let other = n.literal(b"/e/g");
    let pre = n.pre(other);
    assert_eq!(n.path(pre), b"/d/g");
}

#[test]
fn nothing_is_unknown_in_a_new_directory() {
    let mut n = names();
    let d = n.literal(b"/d");
    n.make(d, Kind::Directory, None);
    let f = n.literal(b"/d/f");
    assert_eq!(n.exists(f), Some(false));
}

#[test]
fn results_decide_what_stood_there() {
    let mut n = names();
    let f = n.literal(b"/d/f");
    n.set_before(f, Kind::Regular, None, 3);
    n.prove_absent(f);
    assert_eq!(n.before(f), &InitialState::Absent);
    let g = n.literal(b"/d/g");
    n.prove_present(g, Kind::Regular, None);
    assert!(matches!(n.before(g), InitialState::Present { confirmed: true, .. }));
    let d = n.literal(b"/d");
    assert!(matches!(n.before(d), InitialState::Present { kind: Kind::Directory, .. }));
}

#[test]
fn roots_limit_what_is_replayed() {
    let mut n = Names::new(&[b"/w/s".to_vec()]);
    let (inside, outside) = (n.literal(b"/w/s/t"), n.literal(b"/w/x"));
    assert_eq!(n.area(inside), None);
    assert_eq!(n.area(outside), Some(Skip::Outside));
}

#[test]
fn renaming_one_hard_link_to_another_does_nothing() {
    let mut n = names();
    let (a, b, c) = (n.literal(b"/a"), n.literal(b"/b"), n.literal(b"/c"));
    for node in [a, b] {
        n.set_before(node, Kind::Regular, None, 0);
        n.set_link(node, 77);
    }
    n.rename(a, b);
    assert_eq!((n.exists(a), n.exists(b)), (Some(true), Some(true)));
    n.link(a, c);
    n.exchange(b, c);
    n.rename(b, c);
    assert_eq!((n.exists(b), n.exists(c)), (Some(true), Some(true)));
    // A new file under an old name is another file.
    n.clear(b);
    n.make(b, Kind::Regular, None);
    n.rename(b, c);
    assert_eq!((n.exists(a), n.exists(b), n.exists(c)), (Some(true), Some(false), Some(true)));
}

#[test]
fn exchanged_directories_take_along_what_is_only_claimed() {
    let mut n = names();
    let (d1, d2) = (n.literal(b"/d1"), n.literal(b"/d2"));
    n.set_before(d1, Kind::Directory, None, 0);
    n.set_before(d2, Kind::Directory, None, 1);
    let (x1, x2, y1) = (n.literal(b"/d1/x"), n.literal(b"/d2/x"), n.literal(b"/d1/y"));
    n.set_before(x1, Kind::Regular, None, 2);
    // Found absent at this path before the exchange: says nothing about the path afterwards.
    n.prove_absent(x2);
    n.prove_absent(y1);
    n.exchange(d1, d2);
    let y2 = n.literal(b"/d2/y");
    assert_eq!((n.exists(x1), n.exists(x2)), (Some(false), Some(true)));
    assert_eq!((n.exists(y1), n.exists(y2)), (None, Some(false)));
    assert_eq!(n.pre(x2), x1);
}

#[test]
fn a_directory_renamed_over_another_takes_along_what_is_only_claimed() {
    let mut n = names();
    let (from, to) = (n.literal(b"/d"), n.literal(b"/e"));
    let (x, there) = (n.literal(b"/d/x"), n.literal(b"/e/x"));
    n.set_before(x, Kind::Regular, None, 0);
    n.prove_present(from, Kind::Directory, None);
    n.prove_absent(there);
    n.rename(from, to);
    assert_eq!((n.exists(there), n.exists(x)), (Some(true), Some(false)));
}

#[test]
fn a_copy_has_what_its_source_has_now_and_goes_its_own_way() {
    let mut n = names();
    let (from, to) = (n.literal(b"/a"), n.literal(b"/b"));
    n.set_before(from, Kind::Directory, None, 0);
    let listed = n.literal(b"/a/listed");
    n.set_before(listed, Kind::Regular, None, 1);
    let (made, gone) = (n.literal(b"/a/d/made"), n.literal(b"/a/gone"));
    let dir = n.literal(b"/a/d");
    n.make(dir, Kind::Directory, None);
    n.make(made, Kind::Regular, None);
    n.set_attribute(made, b"user.x".to_vec().into(), Attribute::Removed);
    let link = n.literal(b"/a/link");
    n.link(made, link);
    n.prove_present(gone, Kind::Regular, None);
    n.clear(gone);
    let inner = n.literal(b"/a/inner");
    n.make(inner, Kind::Directory, None);
    n.set(inner, |t| t.subvolume = true);
    let hidden = n.literal(b"/a/inner/hidden");
    n.make(hidden, Kind::Regular, None);

    assert_eq!(n.known_below(from, 3), None);
    let known = n.known_below(from, 100).expect("known");
    n.copy(from, to, &known);
    let mut is = |path: &[u8]| {
        let node = n.literal(path);
        n.exists(node)
    };
    let there =
        [&b"/b/listed"[..], b"/b/d/made", b"/b/link", b"/b/gone", b"/b/inner", b"/b/inner/hidden", b"/b/unknown"];
    let all = there.map(&mut is);
    assert_eq!(all, [Some(true), Some(true), Some(true), Some(false), Some(true), Some(false), None]);
    let (a, b) = (n.literal(b"/b/d/made"), n.literal(b"/b/link"));
    assert!(n.same_file(a, b) && !n.same_file(a, made));
    n.set_attribute(a, b"user.y".to_vec().into(), Attribute::Removed);
    n.set(b, |t| t.mode = Some(0o600));
    assert_eq!(n.set_of(made).mode, None);
    assert_eq!((n.attributes_set(made).expect("some").len(), n.attributes_set(b).expect("some").len()), (1, 2));
    n.clear(a);
    assert_eq!(n.exists(made), Some(true));
    // What a look at the copy finds was there at the start.
    let unknown = n.literal(b"/b/unknown");
    n.prove_present(unknown, Kind::Regular, None);
    let pre = n.pre(unknown);
    assert_eq!(n.path(pre), b"/a/unknown");
}
