//! Named moments in a running recording.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

use crate::harness::{assert_valid, finish, ioreel, one_line, record, succeed, temp_dir, text, wait_for};

/// From inside the recorded command and from outside, by reel and to all, also out of another process id name space and
/// beside others' sockets with odd names.
pub(crate) fn reach_the_manifest() {
    let out = temp_dir();
    let (reel, go) = (out.path().join("marked.reel"), out.path().join("go"));
    let script = format!(
        "{ioreel} mark 'the beginning' --reel {reel}; until test -e {go}; do sleep 0.01; done; unshare -pf {ioreel} mark 'the end'",
        ioreel = env!("CARGO_BIN_EXE_ioreel"),
        reel = text(&reel),
        go = text(&go)
    );
    let odd = SocketAddr::from_abstract_name(b"odd\xff").unwrap();
    let _odd = UnixListener::bind_addr(&odd).unwrap();
    let child = record(&reel, &[], &["sh", "-c", &script]).spawn().unwrap();
    wait_for("the recording", || {
        let sent = ioreel(["mark", "from outside", "--reel", text(&reel)]).stderr(std::process::Stdio::null()).status();
        sent.unwrap().success().then_some(())
    });
    std::fs::write(&go, "").unwrap();
    let done = finish(child);
    assert!(done.status.success());
    let reel_read = assert_valid(&reel);
    let marks = &reel_read.manifest.marks;
    let mut names: Vec<&str> = marks.iter().map(|m| &*m.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["from outside", "the beginning", "the end"]);
    let at = |name: &str| marks.iter().find(|m| m.name == name).map(|m| m.ns).unwrap();
    assert!(0 < at("the beginning") && at("the beginning") < at("the end"));
    assert!(at("from outside") < at("the end") && at("the end") <= reel_read.manifest.span.elapsed_ns);
    // Drawn, with their names.
    let picture = out.path().join("marked.svg");
    succeed(&mut ioreel(["plot", text(&reel), "-o", text(&picture)]));
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.contains("the beginning") && svg.contains("the end"));
    let line = one_line(&mut ioreel(["mark", "too late", "--reel", text(&reel)]), 1);
    assert!(line.contains("is not being recorded"), "{line}");
    let line = one_line(&mut ioreel(["mark", "two\nlines"]), 1);
    assert!(line.contains("control characters"), "{line}");
}
