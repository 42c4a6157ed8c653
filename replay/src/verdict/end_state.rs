//! End state: the tree that the replay left, against the one that the recording left.
//!
//! What is expected does not depend on what was issued: operations that the replay leaves out have their effect in the
//! expected tree. [`super::entry`] says what is compared of each name.

use std::{
    collections::{BTreeMap, HashMap},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

use ioreel_traces::host::attributes;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Statx, StatxFlags, makedev, openat, readlinkat, statx};
use serde::Serialize;

pub use crate::verdict::entry::Compared;
use crate::{
    model::{
        attributes::Attributes,
        names::{Kind, NO_NODE, NodeId, ROOT, State},
    },
    plan::program::Plan,
    prepare::{
        directory::Directory,
        path_map::{Place, hidden},
        tree::attributes_by_link,
    },
    verdict::{
        entry::{self, Entry, Values},
        recorded_tree::{MOST_ATTRIBUTE_BYTES, RecordedTree},
    },
};

/// Number of differing names kept as examples.
const EXAMPLES: usize = 10;
/// Hexadecimal digits kept of a digest: 128 bits.
const DIGITS: usize = 32;

/// Comparison of the final tree with the one that the recording left: names, types, lengths, link targets, hard links,
/// link counts, modes, owners, extended attributes and device numbers. Properties that the recording does not determine
/// are left out of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TreeCheck {
    /// BLAKE3 digest of the expected tree.
    pub expected_digest: String,
    /// The same of the tree found.
    pub digest: String,
    /// BLAKE3 digest of everything found. Serves to compare two replays.
    pub full_digest: String,
    /// Number of names expected.
    pub expected: i64,
    /// Number of names found.
    pub found: i64,
    /// Number of names that differ, are missing, or are not expected.
    pub differing: i64,
    /// The first of these.
    pub examples: Vec<String>,
    /// How much the recording determines.
    pub compared: Compared,
    /// Number of names that were compared with what the recorder saw when the recording ended. For others, the
    /// operations tell what is expected.
    pub observed: i64,
    /// Number of names that the recorder did not look at, since something else was mounted there or the look failed.
    pub unseen: i64,
    /// Names that the workload did not use are missing, since the snapshot of the tree was cut.
    pub lacks_unused: bool,
    /// Number of names of files with further names that the reel lacks. Without `--root`, these do not count in link
    /// counts.
    pub links_elsewhere: i64,
    /// Number of names whose owner differs because the replay does not run as root. They do not count as differing.
    pub owners_not_set: i64,
    /// The first of these.
    pub owner_examples: Vec<String>,
}

/// An open directory of the walk.
struct Level {
    fd: OwnedFd,
    node: NodeId,
    path_len: usize,
    /// Names still to visit, the next one last.
    todo: Vec<Vec<u8>>,
    /// The plan's nodes in this directory, by name.
    known: BTreeMap<Vec<u8>, NodeId>,
}

/// Compares the tree below `target`, and the directories that `maps` moves elsewhere. `exclusive`: the target was empty
/// before the replay, so a name that the plan does not know counts as a difference.
pub fn check(
    plan: &Plan,
    recorded: &RecordedTree,
    target: &Directory,
    maps: &[Place],
    exclusive: bool,
) -> std::io::Result<TreeCheck> {
    let mut walk = Walk::new(plan, recorded, maps, exclusive);
    walk.hidden = hidden(maps, &target.path);
    let root = target.open(OFlags::RDONLY)?;
    let mut path = Vec::new();
    let mut levels = vec![walk.level(root, ROOT, b"")?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.todo.pop() else {
            path.truncate(level.path_len);
            levels.pop();
            continue;
        };
        path.truncate(level.path_len);
        path.push(b'/');
        path.extend_from_slice(&name);
        if walk.hidden.contains(&path) && !maps.iter().any(|(from, _)| *from == path) {
            continue;
        }
        let node = level.known.get(&name).copied();
        if let Some(below) = walk.look(level, &path, &name, node) {
            let next = walk.level(below, node.unwrap_or(NO_NODE), &path)?;
            levels.push(next);
        }
    }
    let hex = |h: &blake3::Hasher| h.finalize().to_hex()[..DIGITS].to_owned();
    let mut out = walk.out;
    (out.expected_digest, out.digest, out.full_digest) =
        (hex(&walk.hashes[0]), hex(&walk.hashes[1]), hex(&walk.hashes[2]));
    Ok(out)
}

/// Device and inode number: on btrfs, a snapshot has the inode numbers of its source.
type Number = (u64, u64);

struct Walk<'a> {
    plan: &'a Plan,
    recorded: &'a RecordedTree,
    maps: &'a [Place],
    /// Paths of the mapped directories' places that lie inside the target. They are not part of the tree.
    hidden: Vec<Vec<u8>>,
    exclusive: bool,
    out: TreeCheck,
    /// Digests of: the tree expected; the tree found, as far as expected lines determine it; everything found.
    hashes: [blake3::Hasher; 3],
    /// Number of the first name of each file with several names: by inode of the plan, and as found.
    firsts: (HashMap<u32, i64>, HashMap<Number, i64>),
    /// The same by link id of the names that the recorder saw.
    recorded_firsts: HashMap<i64, i64>,
    /// How much text of extended attributes may still be decoded, bytes.
    attribute_room: usize,
    /// Number of names that each file with several names has at the end, by inode of the plan.
    links: HashMap<u32, i64>,
    /// Initial extended attributes of files with several names, by link id.
    by_link: HashMap<i64, Attributes>,
    /// The same for the third digest. Names are numbered as found, since another plan may know other names.
    found_firsts: HashMap<Number, i64>,
    names: i64,
}

impl<'a> Walk<'a> {
    fn new(plan: &'a Plan, recorded: &'a RecordedTree, maps: &'a [Place], exclusive: bool) -> Self {
        let mut links = HashMap::new();
        for node in 1..plan.names.len() as NodeId {
            let is_there = plan.names.area(node).is_none() && matches!(plan.names.now(node), State::Present { .. });
            if let Some(inode) = plan.names.inode_of(node).filter(|_| is_there) {
                *links.entry(inode).or_default() += 1;
            }
        }
        Self {
            plan,
            recorded,
            maps,
            links,
            by_link: attributes_by_link(plan),
            hidden: Vec::new(),
            exclusive,
            out: TreeCheck { unseen: recorded.unseen, lacks_unused: recorded.lacks_unused, ..TreeCheck::default() },
            hashes: [blake3::Hasher::new(), blake3::Hasher::new(), blake3::Hasher::new()],
            firsts: Default::default(),
            recorded_firsts: HashMap::new(),
            attribute_room: MOST_ATTRIBUTE_BYTES,
            found_firsts: HashMap::new(),
            names: 0,
        }
    }

    fn level(&self, fd: OwnedFd, node: NodeId, path: &[u8]) -> std::io::Result<Level> {
        let mut todo: Vec<Vec<u8>> = Vec::new();
        let top = node == ROOT || self.maps.iter().any(|(from, _)| from == path);
        for entry in Dir::read_from(&fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            // mkfs creates `lost+found` in the root of a file system; the workload did not.
            if name != b"." && name != b".." && !(top && name == b"lost+found") {
                todo.push(name);
            }
        }
        let mut known = BTreeMap::new();
        if node != NO_NODE {
            for child in self.plan.names.children_of(node) {
                known.insert(self.plan.names.name_of(child).to_vec(), child);
            }
        }
        todo.extend(known.keys().cloned());
        todo.extend(self.recorded.children_of(path));
        todo.sort_unstable_by(|a, b| b.cmp(a));
        todo.dedup();
        Ok(Level { fd, node, path_len: path.len(), todo, known })
    }

    /// Whether a node is none of the compared tree: what stands for an unknown entry, or is elsewhere.
    fn is_no_name(&self, node: NodeId) -> bool {
        self.plan.names.area(node).is_some() || self.plan.names.name_of(node).starts_with(b".unseen-entry")
    }

    /// What the recording says of a name: `None` if nothing, `Some(None)` if it does not exist.
    fn told(&mut self, node: NodeId) -> Option<Option<Entry>> {
        if self.is_no_name(node) {
            return None;
        }
        let names = &self.plan.names;
        match names.now(node) {
            State::Absent => Some(None),
            State::Present { .. } => {
                let inode = names.inode_of(node);
                let links = inode.and_then(|i| self.links.get(&i)).copied().unwrap_or(1);
                let number = self.names;
                let first = inode.map(|l| *self.firsts.0.entry(l).or_insert(number));
                Some(Some(Entry { first, ..entry::told(self.plan, node, links, &self.by_link) }))
            }
            _ => None,
        }
    }

    /// The same, with what the recorder saw at the end.
    fn expected(&mut self, path: &[u8], node: Option<NodeId>) -> Option<Option<Entry>> {
        let derived = node.and_then(|node| self.told(node));
        if node.is_some_and(|node| self.plan.names.area(node).is_some()) {
            return derived;
        }
        let Some(row) = self.recorded.row(path) else {
            let is_absent = self.recorded.is_complete_above(path) && (self.exclusive || node.is_some());
            return if is_absent && !self.leads_to_maps(path) { Some(None) } else { derived };
        };
        if matches!(&*row.kind, "unseen" | "reel") {
            return derived;
        }
        self.out.observed += 1;
        if row.kind == "absent" {
            return Some(None);
        }
        self.out.links_elsewhere += i64::from(self.recorded.has_links_elsewhere(row));
        let derived = derived.flatten().unwrap_or_default();
        let mut entry = self.recorded.entry(self.plan, row, derived, &mut self.attribute_room);
        let number = self.names;
        let shared = row.link_id.filter(|link| self.recorded.knows_first(row) && self.recorded.names_of(*link) > 1);
        entry.first = shared.map(|link| *self.recorded_firsts.entry(link).or_insert(number));
        Some(Some(entry))
    }

    /// Compares one name. Returns an open descriptor if it is a directory.
    fn look(&mut self, level: &Level, path: &[u8], name: &[u8], node: Option<NodeId>) -> Option<OwnedFd> {
        self.names += 1;
        let mapped = self.maps.iter().find(|(from, _)| from == path).map(|(_, to)| to);
        // The cached status of a name may be older than a change through another name (FUSE), or on a server (NFS).
        let status = |fd: BorrowedFd<'_>, name: &[u8], flags: AtFlags| {
            statx(fd, name, flags | AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).ok()
        };
        let stat = match mapped {
            Some(to) => to.open(OFlags::PATH).ok().and_then(|dir| status(dir.as_fd(), b"", AtFlags::EMPTY_PATH)),
            None => status(level.fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW),
        };
        let found = stat.as_ref().map(|s| self.found(level, name, s, mapped.is_some()));
        if let Some(found) = &found {
            self.out.found += 1;
            let inode = stat.as_ref().map_or((0, 0), identity);
            let first = found.first.map(|_| *self.found_firsts.entry(inode).or_insert(self.out.found));
            self.hash(2, path, Some(&Entry { first, ..found.clone() }));
        }
        let known_above = level.node != NO_NODE;
        let told = match self.expected(path, node) {
            Some(told) => Some(told),
            // As far as the plan knows, nobody created this name.
            None if node.is_none() && self.exclusive && known_above && !self.leads_to_maps(path) => Some(None),
            None => None,
        };
        if let Some(mut expected) = told {
            // A mapped directory itself is the user's.
            if let Some(e) = expected.as_mut().filter(|_| mapped.is_some()) {
                e.forget_access();
            }
            self.compare((path, node), expected, found.clone());
        }
        if found?.kind != Some(Kind::Directory) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match mapped {
            Some(to) => to.open(flags).ok(),
            None => openat(&level.fd, name, flags, Mode::empty()).ok(),
        }
    }

    /// Compares what is expected and found at `path`; `None` is nothing.
    fn compare(&mut self, (path, node): (&[u8], Option<NodeId>), mut expected: Option<Entry>, found: Option<Entry>) {
        if let (Some(e), Some(f)) = (&mut expected, &found) {
            self.owner_is_settable(path, e, f);
            if !self.exclusive {
                let prepared = node.and_then(|node| match self.plan.names.now(node) {
                    State::Present { pre, .. } => self.plan.attributes.get(pre),
                    _ => None,
                });
                ignore_attributes_of_others(e, f, prepared);
            }
        }
        let masked = match (found, &expected) {
            (Some(f), Some(e)) => Some(f.told_by(e)),
            (f, _) => f,
        };
        if let (Some(e), Some(_)) = (&expected, &masked) {
            e.count(&mut self.out.compared);
        }
        self.out.expected += i64::from(expected.is_some());
        self.hash(0, path, expected.as_ref());
        self.hash(1, path, masked.as_ref());
        if expected == masked {
            return;
        }
        self.out.differing += 1;
        if self.out.examples.len() < EXAMPLES {
            let words = |l: &Option<Entry>| l.as_ref().map_or("nothing".to_owned(), Entry::main_words);
            let how = match (&expected, &masked) {
                (Some(e), Some(f)) => e.difference(f),
                _ => format!("{} expected, {} found", words(&expected), words(&masked)),
            };
            self.out.examples.push(format!("{}: {how}", String::from_utf8_lossy(path)));
        }
    }

    /// Only root can give a file to another user. Without root, such owners are counted and not compared.
    fn owner_is_settable(&mut self, path: &[u8], expected: &mut Entry, found: &Entry) {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let differs = |e: Option<u32>, f: Option<u32>, own: u32| e.is_some_and(|e| e != own && f != Some(e));
        let (uid, gid) = (differs(expected.uid, found.uid, own.0), differs(expected.gid, found.gid, own.1));
        if self.plan.privileged || !uid && !gid {
            return;
        }
        self.out.owners_not_set += 1;
        if self.out.owner_examples.len() < EXAMPLES {
            let owner = |e: &Entry| {
                let word = |n: Option<u32>| n.map_or("?".to_owned(), |n| n.to_string());
                format!("{}:{}", word(e.uid), word(e.gid))
            };
            let path = String::from_utf8_lossy(path);
            self.out.owner_examples.push(format!("{path}: {} expected, {} found", owner(expected), owner(found)));
        }
        (expected.uid, expected.gid) = (expected.uid.filter(|_| !uid), expected.gid.filter(|_| !gid));
    }

    fn found(&mut self, level: &Level, name: &[u8], stat: &Statx, mapped: bool) -> Entry {
        let number = self.names;
        let mut found = entry::found(self.plan, stat);
        if found.kind == Some(Kind::Symlink) {
            found.text = Some(readlinkat(&level.fd, name, Vec::new()).map(|t| t.into_bytes()).unwrap_or_default());
        }
        if found.kind != Some(Kind::Directory) {
            found.first = Some(*self.firsts.1.entry(identity(stat)).or_insert(number));
        }
        let attributes = if mapped { Values::new() } else { attributes_of(level, name, self.plan.set_ids) };
        found.attributes = Some(attributes);
        found
    }

    /// Whether this directory is above a mapped one, and may exist only for that reason.
    fn leads_to_maps(&self, path: &[u8]) -> bool {
        self.maps.iter().map(|(from, _)| from).chain(&self.hidden).any(|p| p.starts_with(path))
    }

    fn hash(&mut self, which: usize, path: &[u8], entry: Option<&Entry>) {
        let Some(entry) = entry else { return };
        let hasher = &mut self.hashes[which];
        hasher.update(path);
        hasher.update(b"\0");
        hasher.update(entry.words().as_bytes());
        let first = entry.first.map(|f| f.to_string()).unwrap_or_default();
        hasher.update(format!("\0{first}\n").as_bytes());
    }
}

/// Device and inode number of a file. Subvolumes have devices of their own.
fn identity(stat: &Statx) -> (u64, u64) {
    (makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino)
}

/// In a target that was not empty, files may have attributes of which the recording knows nothing.
/// Those that were `prepared` are none of them.
fn ignore_attributes_of_others(expected: &mut Entry, found: &Entry, prepared: Option<&Attributes>) {
    let (Some(told), Some(there)) = (&mut expected.attributes, &found.attributes) else { return };
    for (name, value) in there.iter().filter(|(name, _)| prepared.is_none_or(|all| !all.contains_key(*name))) {
        told.entry(name.clone()).or_insert_with(|| value.clone());
    }
}

/// The extended attributes of a name that a workload can have set. `security`: including `security.*`.
fn attributes_of(level: &Level, name: &[u8], security: bool) -> Values {
    // No other call takes a directory and a name without following it.
    let mut path = PathBuf::from(format!("/proc/thread-self/fd/{}", level.fd.as_raw_fd()));
    path.push(std::ffi::OsStr::from_bytes(name));
    let counts = |name: &[u8]| entry::counts_unmentioned(name) || security && name.starts_with(b"security.");
    attributes::attributes(&path, counts).into_iter().collect()
}
