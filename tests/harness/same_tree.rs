//! Compares two directories by all that stays on a disk: names, types, modes, owners, sizes, hard links, link targets,
//! extended attributes, device numbers and, if wanted, contents. It shares nothing with the verdict of a replay.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// Longest list of names, and longest value, of extended attributes.
const MAX_ATTRIBUTE_BYTES: usize = 64 << 10;

/// What there is at a path, one property per line.
type Properties = BTreeMap<&'static str, String>;

/// Everything at and below a directory, by path relative to it.
fn properties(root: &Path, contents: bool) -> BTreeMap<PathBuf, Properties> {
    let mut all = BTreeMap::new();
    // The first name of each file, in path order.
    let mut first: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    let mut paths = Vec::new();
    while let Some(path) = todo.pop() {
        if path.symlink_metadata().unwrap().is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        paths.push(path);
    }
    paths.sort();
    for path in paths {
        let meta = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        if name == Path::new("lost+found") {
            continue;
        }
        let mut p = Properties::new();
        p.insert("type", format!("{:o}", meta.mode() & libc::S_IFMT));
        p.insert("mode", format!("{:o}", meta.mode() & 0o7777));
        p.insert("owner", format!("{}:{}", meta.uid(), meta.gid()));
        p.insert("attributes", attributes(&path));
        if meta.is_file() {
            p.insert("size", meta.len().to_string());
            if contents {
                p.insert("content", blake3::hash(&fs::read(&path).unwrap()).to_string());
            }
        }
        if meta.is_symlink() {
            p.insert("target", fs::read_link(&path).unwrap().display().to_string());
        }
        if matches!(meta.mode() & libc::S_IFMT, libc::S_IFCHR | libc::S_IFBLK) {
            p.insert("device", format!("{:x}", meta.rdev()));
        }
        if !meta.is_dir() {
            p.insert("link count", meta.nlink().to_string());
            let known = first.entry((meta.dev(), meta.ino())).or_insert_with(|| name.clone());
            p.insert("same file as", known.display().to_string());
        }
        all.insert(name, p);
    }
    all
}

/// The extended attributes that programs set; security labels come from the system.
fn attributes(path: &Path) -> String {
    let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let mut all = Vec::new();
    for name in names[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let counts = [&b"user."[..], b"trusted.", b"system.posix_acl_", b"security.capability"];
        // XFS lists access lists a second time.
        if counts.iter().any(|prefix| name.starts_with(prefix)) && !name.starts_with(b"trusted.SGI_ACL_") {
            let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
            let len = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value).unwrap();
            all.push(format!("{}={:02x?}", String::from_utf8_lossy(name), &value[..len]));
        }
    }
    all.sort();
    all.join(" ")
}

/// How `b` differs from `a`, one line for each differing property or name.
pub(crate) fn differences(a: &Path, b: &Path, contents: bool) -> Vec<String> {
    let (a, b) = (properties(a, contents), properties(b, contents));
    let mut out = Vec::new();
    for (name, one) in &a {
        let shown = name.display();
        let Some(other) = b.get(name) else {
            out.push(format!("{shown}: missing"));
            continue;
        };
        let what: std::collections::BTreeSet<&str> = one.keys().chain(other.keys()).copied().collect();
        for what in what {
            let of = |p: &Properties| p.get(what).cloned().unwrap_or_else(|| "none".into());
            if of(one) != of(other) {
                out.push(format!("{shown}: {what} {}, not {}", of(other), of(one)));
            }
        }
    }
    out.extend(
        b.keys().filter(|name| !a.contains_key(*name)).map(|name| format!("{}: not in the first", name.display())),
    );
    out
}
