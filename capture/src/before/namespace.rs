//! A model of the name space while a recording is gone through: which names were there before, which
//! the workload made, moved or removed, and where symbolic links lead.

pub(crate) mod magic_links;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fs,
    path::Path,
    sync::PoisonError,
};

use ioreel_traces::{host::os_path, rows::Tree, text, writer::Names as MappedNames};
use libc::PROC_SUPER_MAGIC;
use rustix::fs::statfs;

/// Names that were made and are gone again are remembered as such until so many others have gone: calls that overlap
/// may be told of in another order than they took effect.
const REMEMBERED_GONE: usize = 1 << 16;

/// Names known to be no links are forgotten, all at once, when there are so many.
const REMEMBERED_NO_LINKS: usize = 1 << 17;

/// Moves beyond which it is not asked whether a name has to do with one.
const FEW_MOVES: usize = 256;

/// Links followed in one path (the kernel's MAXSYMLINKS).
const MAX_LINKS: usize = 40;

/// Stands for the target of a link that is not known. No link has this one.
const UNKNOWN_TARGET: &str = "";

/// Where a link on the disk leads. Where proc is mounted anywhere else the recorder would read its own (see [`magic`]).
fn read_link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    if path.parent().is_some_and(|dir| statfs(dir).is_ok_and(|s| s.f_type == PROC_SUPER_MAGIC)) {
        return Some(UNKNOWN_TARGET.to_owned());
    }
    Some(text::from_bytes(target.as_os_str().as_encoded_bytes()).to_string())
}

/// Where a path starts, and whose it is.
pub(crate) struct Start<'a> {
    /// The root of that task; empty: that of all.
    pub(crate) top: &'a str,
    /// The folder of a relative path.
    pub(crate) base: &'a str,
    pub(crate) pid: i32,
    /// What is behind that task's links in proc, if that is known; and whether the path ends there.
    pub(crate) own: &'a dyn Fn(magic_links::Link, bool) -> Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There since before the recording.
    Before,
    /// Made, or moved here, by the workload.
    Made,
    /// Removed or moved away by the workload.
    Gone,
}

/// Something that was there before got another name.
#[derive(Debug)]
struct Move {
    new: String,
    old: String,
    /// It was removed or replaced under its new name.
    ended: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Names {
    snapshot: HashMap<String, Tree>,
    /// Folders in which the snapshot saw all that was there.
    listed: HashSet<String>,
    states: BTreeMap<String, State>,
    /// Names outside the snapshot that were there before.
    before: BTreeSet<String>,
    /// Targets of links, as found now, in the snapshot or made.
    links: HashMap<String, String>,
    /// Names found to be none.
    no_links: HashSet<String>,
    /// Made and gone, oldest first.
    gone: VecDeque<String>,
    /// What was there before and was moved, in order.
    moved: Vec<Move>,
    /// The disk is not asked: it may not be the one that was recorded.
    unseen: bool,
    /// See [`Self::missed`].
    missed: bool,
    /// What names are on the disk, where they are hashes here.
    mapped: Option<MappedNames>,
}

impl Names {
    /// A name space of which `snapshot` is known, and that nothing else was in the folders `listed`.
    pub(crate) fn new(snapshot: HashMap<String, Tree>, listed: HashSet<String>) -> Self {
        let states = snapshot.keys().map(|p| (p.clone(), State::Before)).collect();
        let links =
            snapshot.values().filter_map(|t| Some((t.path.to_string(), t.target.as_deref()?.to_owned()))).collect();
        Self { snapshot, listed, states, links, ..Self::default() }
    }

    /// The canonical absolute name of `path`: no dots, no links (the last component's only if `follow`). Links met on the
    /// way are noted as having been there. `None` for a loop, and where it goes through a link whose target is not known.
    pub(crate) fn resolve(&mut self, start: &Start<'_>, path: &str, follow: bool) -> Option<String> {
        let Start { top, base, .. } = *start;
        let mut at = if base == "/" { String::new() } else { base.to_owned() };
        let mut waiting: Vec<String> = components(path);
        let mut followed = 0;
        while let Some(name) = waiting.pop() {
            if name == ".." && at == top {
                continue;
            }
            if name == ".." {
                at.truncate(at.rfind('/').unwrap_or(0));
                continue;
            }
            let parent = at.len();
            at.push('/');
            at.push_str(&name);
            if waiting.is_empty() && !follow {
                break;
            }
            let own = match self.magic(&at, start) {
                magic_links::End::Plain => None,
                magic_links::End::Link(link) => Some((start.own)(link, waiting.is_empty())?),
                magic_links::End::Unknown => return None,
            };
            // Neither itself nor what is in it is read.
            let is_unread = own.is_some() || magic_links::is_relative(within(&at, top));
            let target = if is_unread { None } else { self.link(&at) };
            followed += usize::from(own.is_some() || target.is_some());
            if followed > MAX_LINKS || target.as_deref() == Some(UNKNOWN_TARGET) {
                return None;
            }
            if let Some(own) = own {
                at = if own == "/" { String::new() } else { own };
            } else if let Some(target) = target {
                self.exists(&at.clone());
                if target.starts_with('/') {
                    top.clone_into(&mut at);
                } else {
                    at.truncate(parent);
                }
                waiting.extend(components(&target));
            }
        }
        let is_known = !magic_links::is_relative(within(&at, top));
        is_known.then(|| if at.is_empty() { "/".into() } else { at })
    }

    /// See [`magic_links::end`].
    fn magic(&self, at: &str, start: &Start<'_>) -> magic_links::End {
        let path = within(at, start.top);
        if !["/proc/", "/dev/"].iter().any(|dir| path.starts_with(dir)) {
            return magic_links::End::Plain;
        }
        // Numbers of descriptors are no hashes.
        match (magic_links::end(path, start.pid), &self.mapped) {
            (magic_links::End::Plain | magic_links::End::Unknown, Some(names)) => {
                let clear = names.lock().unwrap_or_else(PoisonError::into_inner).original(path);
                clear
                    .as_deref()
                    .and_then(Path::to_str)
                    .map_or(magic_links::End::Unknown, |path| magic_links::end(path, start.pid))
            }
            (end, _) => end,
        }
    }

    /// The same, without looking at the disk.
    pub(crate) fn unseen(self) -> Self {
        Self { unseen: true, ..self }
    }

    /// The same of a reel whose names are hashes.
    pub(crate) fn mapped(self, mapped: Option<MappedNames>) -> Self {
        Self { mapped, ..self }
    }

    /// Whether the operation at hand did not find its name: a link that is there on the disk, which is as the workload has
    /// left it, was made later then, or led nowhere.
    pub(crate) fn missed(&mut self, missed: bool) {
        self.missed = missed;
    }

    fn link(&mut self, path: &str) -> Option<String> {
        if let Some(target) = self.links.get(path) {
            return Some(target.clone());
        }
        if self.unseen || self.missed {
            return None;
        }
        // A link that was made has been noted; what the snapshot saw, too.
        let known =
            matches!(self.states.get(path), Some(State::Made | State::Gone)) || self.snapshot.contains_key(path);
        if known || self.no_links.contains(path) {
            return None;
        }
        let target = match &self.mapped {
            Some(names) => {
                let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                names.original(path).and_then(|clear| read_link(&clear)).map(|target| {
                    let mut row =
                        Tree { kind: "symlink".into(), target: Some(target.as_str().into()), ..Tree::default() };
                    names.row(&mut row);
                    row.target.map_or(target, |t| t.to_string())
                })
            }
            None => read_link(&os_path(path)),
        };
        if let Some(target) = &target {
            self.links.insert(path.to_owned(), target.clone());
        } else {
            if self.no_links.len() >= REMEMBERED_NO_LINKS {
                self.no_links.clear();
            }
            self.no_links.insert(path.to_owned());
        }
        target
    }

    /// The workload made a symbolic link, of which [`Self::make`] is told next.
    pub(crate) fn make_link(&mut self, path: &str, target: &str) {
        self.links.insert(path.to_owned(), target.to_owned());
    }

    /// Whether anything is known of this name.
    pub(crate) fn is_known(&self, path: &str) -> bool {
        self.states.contains_key(path)
    }

    /// Whether what is at this name is the workload's, and nothing that was there before has to do with it.
    pub(crate) fn is_new(&self, path: &str) -> bool {
        self.states.get(path) == Some(&State::Made) && self.is_unmoved(path)
    }

    /// Whether neither the name nor any above it took part in a move of what was there before.
    fn is_unmoved(&self, path: &str) -> bool {
        let within = |dir: &str| path.strip_prefix(dir).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        self.moved.len() <= FEW_MOVES && !self.moved.iter().any(|m| within(&m.new) || within(&m.old))
    }

    /// A name is there. Returns the name it had before the recording, if it was there then.
    pub(crate) fn exists(&mut self, path: &str) -> Option<String> {
        match self.states.get(path) {
            Some(State::Before) => return Some(path.to_owned()),
            Some(State::Made) => return None,
            // Back by means that were not recorded.
            Some(State::Gone) => return None,
            None => {}
        }
        // Below a folder that the workload made nothing was there before.
        let mut above = parent(path);
        while let Some(p) = above {
            match self.states.get(p) {
                Some(State::Made) => {
                    let old = self.name_before(path)?;
                    if self.came_later(&old) {
                        return None;
                    }
                    self.states.insert(path.to_owned(), State::Made);
                    let mut at = Some(old.as_str());
                    while let Some(p) = at.filter(|p| !self.states.contains_key(*p)) {
                        self.states.insert(p.to_owned(), State::Gone);
                        self.before.insert(p.to_owned());
                        at = parent(p);
                    }
                    return Some(old);
                }
                Some(State::Before) => break,
                Some(State::Gone) => return None,
                None => above = parent(p),
            }
        }
        if self.came_later(path) {
            return None;
        }
        let mut at = Some(path);
        while let Some(p) = at.filter(|p| !self.states.contains_key(*p)) {
            self.states.insert(p.to_owned(), State::Before);
            self.before.insert(p.to_owned());
            at = parent(p);
        }
        Some(path.to_owned())
    }

    /// Whether the snapshot saw the folder of a name that nothing is known of, or of one above it, without that: by means that are
    /// not recorded (a socket's bind, a core dump, somebody else) it came later.
    fn came_later(&self, path: &str) -> bool {
        let mut name = path;
        while let Some(above) = parent(name).filter(|_| !self.snapshot.contains_key(name)) {
            if self.listed.contains(above) {
                return true;
            }
            name = above;
        }
        false
    }

    /// The name a path below a moved folder had before the move.
    fn name_before(&self, path: &str) -> Option<String> {
        let mut name = path.to_owned();
        let mut was_moved = false;
        for Move { new, old, .. } in self.moved.iter().rev() {
            if let Some(rest) = name.strip_prefix(new.as_str()).filter(|r| r.starts_with('/')) {
                name = format!("{old}{rest}");
                was_moved = true;
            }
        }
        (was_moved && !self.states.contains_key(&name)).then_some(name)
    }

    /// The workload made this name.
    pub(crate) fn make(&mut self, path: &str) {
        self.end_moved(path);
        if let Some(above) = parent(path) {
            self.exists(above);
        }
        self.states.insert(path.to_owned(), State::Made);
    }

    /// What was moved to this name, and is still there, ends.
    fn end_moved(&mut self, path: &str) {
        let arrived = self.moved.iter().rposition(|m| m.new == path);
        if let Some(i) = arrived.filter(|i| !self.moved[*i..].iter().any(|m| m.old == path)) {
            self.moved[i].ended = true;
        }
    }

    /// The name that what is at `path` now had before the recording, if it was there and has been moved.
    pub(crate) fn origin(&self, path: &str) -> Option<String> {
        let mut name = path.to_owned();
        let below = |name: &str, dir: &str| {
            name.strip_prefix(dir).filter(|r| r.is_empty() || r.starts_with('/')).map(str::to_owned)
        };
        for m in self.moved.iter().rev().filter(|m| !m.ended) {
            if let Some(rest) = below(&name, &m.new) {
                name = format!("{}{rest}", m.old);
            } else if below(&name, &m.old).is_some() {
                // What was there then went away: this came later.
                return None;
            }
        }
        (name != path && self.before.contains(&name)).then_some(name)
    }

    /// The name that something which was there before under `path` has now; `None` when it was removed or
    /// replaced after a move.
    pub(crate) fn name_now(&self, path: &str) -> Option<String> {
        let mut name = path.to_owned();
        for m in &self.moved {
            if let Some(rest) = name.strip_prefix(m.old.as_str()).filter(|r| r.is_empty() || r.starts_with('/')) {
                if m.ended {
                    return None;
                }
                name = format!("{}{rest}", m.new);
            }
        }
        Some(name)
    }

    /// The workload removed this name.
    pub(crate) fn remove(&mut self, path: &str) {
        self.end_moved(path);
        let was = self.states.insert(path.to_owned(), State::Gone);
        self.links.remove(path);
        if was == Some(State::Made) {
            self.forget_later(path);
        }
    }

    /// Lets a name that was made and is gone be forgotten in time: a workload may make and remove millions.
    fn forget_later(&mut self, path: &str) {
        self.gone.push_back(path.to_owned());
        if self.gone.len() > REMEMBERED_GONE
            && let Some(old) = self.gone.pop_front()
            && self.states.get(&old) == Some(&State::Gone)
            && !self.before.contains(&old)
            && !self.snapshot.contains_key(&old)
            && self.is_unmoved(&old)
        {
            self.states.remove(&old);
        }
    }

    /// The workload renamed, with all that is below.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(above) = parent(to) {
            self.exists(above);
        }
        self.end_moved(to);
        let prefix = format!("{from}/");
        let below: Vec<(String, State)> = self
            .states
            .range(prefix.clone()..)
            .take_while(|(p, _)| p.starts_with(&prefix))
            .map(|(p, s)| (p.clone(), *s))
            .collect();
        for (path, state) in below {
            let new = format!("{to}{}", &path[from.len()..]);
            if let Some(target) = self.links.remove(&path) {
                self.links.insert(new.clone(), target);
            }
            self.states.insert(new, if state == State::Gone { State::Gone } else { State::Made });
            self.states.insert(path, State::Gone);
        }
        match self.links.remove(from) {
            Some(target) => self.links.insert(to.to_owned(), target),
            None => self.links.remove(to),
        };
        let was = self.states.insert(from.to_owned(), State::Gone);
        let was_before = was == Some(State::Before);
        self.states.insert(to.to_owned(), State::Made);
        // What lies in a folder that the workload made is the workload's too.
        if was_before || self.moved.iter().any(|m| m.new == from) {
            self.moved.push(Move { new: to.to_owned(), old: from.to_owned(), ended: false });
        } else if was == Some(State::Made) {
            self.forget_later(from);
        }
    }

    /// The workload exchanged two names, with all that is below.
    pub(crate) fn exchange(&mut self, a: &str, b: &str) {
        // No name holds a NUL.
        let aside = format!("{a}\0");
        self.rename(a, &aside);
        self.rename(b, a);
        self.rename(&aside, b);
    }

    /// Whether any name below `path` is known to be there.
    pub(crate) fn has_children(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.states.range(prefix.clone()..).take_while(|(p, _)| p.starts_with(&prefix)).any(|(_, s)| *s != State::Gone)
    }

    /// Takes out the snapshot, and the other names that were there before.
    pub(crate) fn take_before(&mut self) -> (HashMap<String, Tree>, BTreeSet<String>) {
        (std::mem::take(&mut self.snapshot), std::mem::take(&mut self.before))
    }
}

/// Components in reverse, dots left out.
fn components(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|c| !c.is_empty() && *c != ".").map(str::to_owned).collect()
}

/// A canonical name as it is below a root, if it is there.
fn within<'a>(path: &'a str, top: &str) -> &'a str {
    path.strip_prefix(top).filter(|below| below.starts_with('/')).unwrap_or(path)
}

/// The folder a canonical name is in; `None` for the root.
fn parent(path: &str) -> Option<&str> {
    if path == "/" {
        return None;
    }
    match path.rfind('/') {
        Some(0) => Some("/"),
        Some(i) => Some(&path[..i]),
        None => None,
    }
}
