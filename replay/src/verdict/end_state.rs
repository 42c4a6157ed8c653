//! End state: the tree that the replay left, against the tree that the recorded results imply.

use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use serde::Serialize;

use crate::{
    model::names::{Kind, NO_NODE, NodeId, ROOT, State},
    plan::program::Plan,
    prepare::{
        directory::Directory,
        path_map::{Place, hidden},
    },
};

/// Number of differing names kept as examples.
const EXAMPLES: usize = 10;
/// Hexadecimal digits kept of a digest: 128 bits.
const DIGITS: usize = 32;

/// Comparison of the final tree with the expected one. Of each name, both digests contain the path, type, length
/// (regular files), target (symbolic links), and which names share its file. Properties that the reel does not
/// determine are left out of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TreeCheck {
    /// BLAKE3 digest of the expected tree.
    pub expected_digest: String,
    /// The same of the tree found.
    pub digest: String,
    /// BLAKE3 digest of everything found, with modes and link counts. Serves to compare two replays.
    pub full_digest: String,
    /// Number of names expected.
    pub expected: i64,
    /// Number of names found.
    pub found: i64,
    /// Number of names that differ, are missing, or are not expected.
    pub differing: i64,
    /// The first of these.
    pub examples: Vec<String>,
}

/// The compared properties of a name. `None`: not determined by the reel, or not applicable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    kind: Option<Kind>,
    len: Option<i64>,
    text: Option<Vec<u8>>,
    /// Number of the first name of the same file: equal for hard links.
    first: Option<i64>,
}

impl Line {
    /// This line without the properties that `other` does not determine.
    fn told_by(self, other: &Self) -> Self {
        Self {
            kind: self.kind.filter(|_| other.kind.is_some()),
            len: self.len.filter(|_| other.len.is_some()),
            text: self.text.filter(|_| other.text.is_some()),
            first: self.first.filter(|_| other.first.is_some()),
        }
    }

    fn words(&self) -> String {
        let mut out = self.kind.map_or("anything".to_owned(), |k| format!("{k:?}").to_lowercase());
        if let Some(len) = self.len {
            out += &format!(" of {len} bytes");
        }
        if let Some(text) = &self.text {
            out += &format!(" to {:?}", String::from_utf8_lossy(text));
        }
        if self.first.is_some() {
            out += " with other names";
        }
        out
    }
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
pub fn check(plan: &Plan, target: &Directory, maps: &[Place], exclusive: bool) -> std::io::Result<TreeCheck> {
    let mut walk = Walk::new(plan, maps, exclusive);
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

struct Walk<'a> {
    plan: &'a Plan,
    maps: &'a [Place],
    /// Paths of the mapped directories' places that lie inside the target. They are not part of the tree.
    hidden: Vec<Vec<u8>>,
    exclusive: bool,
    out: TreeCheck,
    /// Digests of: the tree expected; the tree found, as far as expected lines determine it; everything found.
    hashes: [blake3::Hasher; 3],
    /// Number of the first name of each file with several names: by inode of the plan, and by inode number found.
    firsts: (HashMap<u32, i64>, HashMap<u64, i64>),
    /// The same for the third digest. Names are numbered as found, since another plan may know other names.
    found_firsts: HashMap<u64, i64>,
    names: i64,
}

impl<'a> Walk<'a> {
    fn new(plan: &'a Plan, maps: &'a [Place], exclusive: bool) -> Self {
        Self {
            plan,
            maps,
            hidden: Vec::new(),
            exclusive,
            out: TreeCheck::default(),
            hashes: [blake3::Hasher::new(), blake3::Hasher::new(), blake3::Hasher::new()],
            firsts: Default::default(),
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
        todo.sort_unstable_by(|a, b| b.cmp(a));
        todo.dedup();
        Ok(Level { fd, node, path_len: path.len(), todo, known })
    }

    /// What the recorded results say of a name: `None` if nothing, `Some(None)` if it does not exist.
    fn told(&mut self, node: NodeId) -> Option<Option<Line>> {
        let names = &self.plan.names;
        if names.area(node).is_some() || names.name_of(node).starts_with(b".unseen-entry") {
            return None;
        }
        match names.now(node) {
            State::Absent => Some(None),
            State::Present { kind: Kind::Foreign | Kind::Socket | Kind::Device | Kind::Other, .. } => None,
            State::Present { kind, target, .. } => {
                let links = names.inode_of(node);
                let number = self.names;
                Some(Some(Line {
                    kind: Some(*kind).filter(|k| *k != Kind::Unknown),
                    len: self.plan.end_sizes.get(&node).copied(),
                    text: target.as_ref().filter(|_| *kind == Kind::Symlink).map(|t| t.to_vec()),
                    first: links.map(|l| *self.firsts.0.entry(l).or_insert(number)),
                }))
            }
            _ => None,
        }
    }

    /// Compares one name. Returns an open descriptor if it is a directory.
    fn look(&mut self, level: &Level, path: &[u8], name: &[u8], node: Option<NodeId>) -> Option<OwnedFd> {
        self.names += 1;
        let mapped = self.maps.iter().find(|(from, _)| from == path).map(|(_, to)| to);
        let stat = match mapped {
            Some(to) => to.open(OFlags::PATH).ok().and_then(|dir| fstat(dir).ok()),
            None => statat(&level.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok(),
        };
        let found = stat.as_ref().map(|s| self.found(level, name, s));
        if let Some(found) = &found {
            self.out.found += 1;
            let stat = stat.as_ref().map_or((0, 0, 0), |s| (s.st_mode, s.st_nlink, s.st_ino));
            let links = if found.kind == Some(Kind::Directory) { 0 } else { stat.1 };
            let first = found.first.map(|_| *self.found_firsts.entry(stat.2).or_insert(self.out.found));
            self.hash(2, path, Some(&Line { first, ..found.clone() }), &format!("{:o} {links}", stat.0));
        }
        let known_above = level.node != NO_NODE;
        let told = match node {
            Some(node) => self.told(node),
            // As far as the plan knows, nobody created this name.
            None if self.exclusive && known_above && !self.leads_to_maps(path) => Some(None),
            None => None,
        };
        if let Some(expected) = told {
            let masked = match (found.clone(), &expected) {
                (Some(f), Some(e)) => Some(f.told_by(e)),
                (f, _) => f,
            };
            self.out.expected += i64::from(expected.is_some());
            self.hash(0, path, expected.as_ref(), "");
            self.hash(1, path, masked.as_ref(), "");
            if expected != masked {
                self.out.differing += 1;
                if self.out.examples.len() < EXAMPLES {
                    let words = |l: &Option<Line>| l.as_ref().map_or("nothing".to_owned(), Line::words);
                    let path = String::from_utf8_lossy(path);
                    self.out.examples.push(format!("{path}: {} expected, {} found", words(&expected), words(&masked)));
                }
            }
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

    fn found(&mut self, level: &Level, name: &[u8], stat: &Stat) -> Line {
        let number = self.names;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::Regular,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
            FileType::Unknown => Kind::Unknown,
        };
        Line {
            kind: Some(kind),
            len: (kind == Kind::Regular).then_some(stat.st_size),
            text: (kind == Kind::Symlink)
                .then(|| readlinkat(&level.fd, name, Vec::new()).map(|t| t.into_bytes()).unwrap_or_default()),
            first: (kind != Kind::Directory).then(|| *self.firsts.1.entry(stat.st_ino).or_insert(number)),
        }
    }

    /// Whether this directory is above a mapped one, and may exist only for that reason.
    fn leads_to_maps(&self, path: &[u8]) -> bool {
        self.maps.iter().map(|(from, _)| from).chain(&self.hidden).any(|p| p.starts_with(path))
    }

    fn hash(&mut self, which: usize, path: &[u8], line: Option<&Line>, more: &str) {
        let Some(line) = line else { return };
        let hasher = &mut self.hashes[which];
        hasher.update(path);
        hasher.update(b"\0");
        hasher.update(line.words().as_bytes());
        let first = line.first.map(|f| f.to_string()).unwrap_or_default();
        hasher.update(format!("\0{first}\0{more}\n").as_bytes());
    }
}
