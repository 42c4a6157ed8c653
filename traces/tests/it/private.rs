//! What others do to the folders that a reel is written to and read from.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::Kind,
    private::{Folder, Output},
    rows::Op,
    validate::validate,
};

fn writer(path: &Path) -> ReelWriter {
    ReelWriter::create(path, &Manifest::new(Kind::Synthetic, "synthetic"), WriterOptions::default()).unwrap()
}

fn op(n: i64) -> Op {
    Op { op: "read".into(), start_ns: n, dur_ns: 1, ..Op::default() }
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// Somebody moves the reel away while it is written, and lays a link to another folder in its place.
#[test]
fn a_writer_keeps_to_the_folder_that_it_made() {
    let dir = tempfile::tempdir().unwrap();
    let [path, moved, other] = ["x.reel", "moved.reel", "other"].map(|name| dir.path().join(name));
    fs::create_dir(&other).unwrap();
    let mut w = writer(&path);
    w.ops.push(op(1)).unwrap();
    w.ops.flush().unwrap();
    assert!(w.folder().unwrap().is_in_place());
    fs::rename(&path, &moved).unwrap();
    symlink(&other, &path).unwrap();
    w.ops.push(op(2)).unwrap();
    w.ops.flush().unwrap();
    w.scratch().unwrap();
    assert_eq!(w.ops.values_of("start_ns").unwrap(), 2);
    let folder = w.folder().unwrap().clone();
    assert!(!folder.is_in_place() && !folder.is_removed());
    w.close(Manifest::new(Kind::Synthetic, "synthetic")).unwrap();
    assert!(is_empty(&other));
    assert_eq!(Reel::open(&moved).unwrap().read::<Op>().unwrap().len(), 2);
    // Nor does it remove what is there now.
    fs::write(other.join("precious"), "").unwrap();
    folder.remove_this_reel().unwrap();
    assert!(other.join("precious").exists() && path.is_symlink() && is_empty(&moved));
}

#[test]
fn a_writer_follows_no_link_in_its_reel() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["x.reel", "other"].map(|name| dir.path().join(name));
    fs::create_dir(&other).unwrap();
    let mut w = writer(&path);
    symlink(&other, path.join("ops")).unwrap();
    w.ops.push(op(1)).unwrap();
    let refused = w.ops.flush().unwrap_err().to_string();
    assert!(refused.contains("ops: creating the table's folder") && refused.contains("symbolic link"), "{refused}");
    assert!(is_empty(&other));
    // Its table's folder exchanged in the middle.
    let path = dir.path().join("y.reel");
    let mut w = writer(&path);
    w.ops.push(op(1)).unwrap();
    w.ops.flush().unwrap();
    fs::rename(path.join("ops"), path.join("away")).unwrap();
    symlink(&other, path.join("ops")).unwrap();
    w.ops.push(op(2)).unwrap();
    w.ops.flush().unwrap_err();
    assert!(is_empty(&other));
}

/// A reel that is gone is told at once.
#[test]
fn a_removed_reel_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.reel");
    let mut w = writer(&path);
    assert!(!w.folder().unwrap().is_removed());
    fs::remove_dir_all(&path).unwrap();
    assert!(w.folder().unwrap().is_removed());
    fs::create_dir(&path).unwrap();
    w.ops.push(op(1)).unwrap();
    w.ops.flush().unwrap_err();
    assert!(is_empty(&path), "what was put in its place gets nothing");
}

/// What a link leads to is no part of a reel: a device has no end, and other users' files are not to be shown.
#[test]
fn a_reader_follows_no_link_in_a_reel() {
    let dir = tempfile::tempdir().unwrap();
    for target in ["/dev/zero", "/proc/self/environ", "/proc/self/fd/0", "manifest.real"] {
        let reel = dir.path().join(target.replace('/', "_"));
        writer(&reel).close(Manifest::new(Kind::Synthetic, "synthetic")).unwrap();
        fs::rename(reel.join("manifest.json"), reel.join("manifest.real")).unwrap();
        symlink(target, reel.join("manifest.json")).unwrap();
        for refused in [Reel::open(&reel).unwrap_err().to_string(), validate(&reel, true).unwrap_err().to_string()] {
            assert!(refused.contains("manifest.json: a symbolic link"), "{target}: {refused}");
        }
    }
    let reel = dir.path().join("fifo");
    fs::create_dir(&reel).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        reel.join("manifest.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let refused = Reel::open(&reel).unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
    // Tables and segments.
    let [one, other] = ["one.reel", "other.reel"].map(|name| dir.path().join(name));
    for path in [&one, &other] {
        let mut w = writer(path);
        w.ops.push(op(1)).unwrap();
        w.close(Manifest::new(Kind::Synthetic, "synthetic")).unwrap();
    }
    let refused = |what: &str| {
        let refused = Reel::open(&one).unwrap().read::<Op>().unwrap_err().to_string();
        assert!(refused.contains("symbolic link"), "{what}: {refused}");
    };
    let segment = fs::read_dir(one.join("ops")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&segment).unwrap();
    symlink(other.join("ops").join(segment.file_name().unwrap()), &segment).unwrap();
    refused("a segment");
    fs::remove_dir_all(one.join("ops")).unwrap();
    symlink(other.join("ops"), one.join("ops")).unwrap();
    refused("a table");
}

#[test]
fn a_manifest_without_end_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("manifest.json")).unwrap();
    file.set_len(1 << 40).unwrap();
    let refused = Reel::open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("larger than 64 MiB"), "{refused}");
}

#[test]
fn an_output_is_whole_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |output: &mut Output| std::io::Write::write_all(output, b"new").unwrap();
    fs::write(at("old"), "old").unwrap();
    fs::set_permissions(at("old"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut output = Output::replace(&at("old")).unwrap();
    write(&mut output);
    assert_eq!(fs::read_to_string(at("old")).unwrap(), "old");
    output.keep().unwrap();
    assert_eq!(fs::read_to_string(at("old")).unwrap(), "new");
    assert_eq!(fs::metadata(at("old")).unwrap().permissions().mode() & 0o777, 0o600);
    drop(Output::replace(&at("old")).unwrap());
    drop(Output::create(&at("fresh")).unwrap());
    Output::create(&at("old")).unwrap_err();
    symlink("elsewhere", at("link")).unwrap();
    for refused in [Output::replace(&at("link")).unwrap_err(), Output::create(&at("link")).unwrap_err()] {
        assert!(refused.to_string().contains("link") || refused.kind() == std::io::ErrorKind::AlreadyExists);
    }
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["link", "old"]);
}

#[test]
fn names_lead_out_of_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    for name in ["..", ".", "", "/etc", "a/b", "../x"] {
        folder.create_file(name).unwrap_err();
        folder.create_folder(name).unwrap_err();
        folder.file(name).unwrap_err();
    }
}
