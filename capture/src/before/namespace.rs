//! A model of the namespace that follows the operations of a recording: which names existed before, which the workload
//! created, moved or removed, and where symbolic links lead.

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

/// Number of removed names, created by the workload, that are remembered as removed: overlapping calls may be recorded
/// in another order than they took effect.
const REMEMBERED_GONE: usize = 1 << 16;

/// Number of names known not to be links that are remembered; beyond it all are forgotten.
const REMEMBERED_NO_LINKS: usize = 1 << 17;

/// With more moves than this, every name counts as possibly moved.
const FEW_MOVES: usize = 256;

/// Maximum number of links followed in one path (MAXSYMLINKS of the kernel).
const MAX_LINKS: usize = 40;

/// Marks a link whose target is unknown. No link has an empty target.
const UNKNOWN_TARGET: &str = "";

/// The target of a link on disk. Unknown on any mount of proc, where the recorder would read its own links (see
/// `Names::magic`).
fn read_link(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    if path.parent().is_some_and(|dir| statfs(dir).is_ok_and(|s| s.f_type == PROC_SUPER_MAGIC)) {
        return Some(UNKNOWN_TARGET.to_owned());
    }
    Some(text::from_bytes(target.as_os_str().as_encoded_bytes()).to_string())
}

/// The path in the model of a path that a task sees; `None` if it is not in the model.
pub(crate) type RealPath<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where the lookup of a path starts, and for which task.
pub(crate) struct Start<'a> {
    /// Root directory of the task; empty: the real root.
    pub(crate) top: &'a str,
    /// Directory that a relative path starts at.
    pub(crate) base: &'a str,
    pub(crate) pid: i32,
    /// Target of one of the task's own links in proc, if known. The flag: the path ends there.
    pub(crate) own: &'a dyn Fn(magic_links::Link, bool) -> Option<String>,
    /// For a task with other mounts than the model.
    pub(crate) real: Option<RealPath<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Existed before the recording.
    Before,
    /// Created by the workload, or moved here.
    Made,
    /// Removed by the workload, or moved away.
    Gone,
}

/// A rename of something that existed before.
#[derive(Debug)]
struct Move {
    new: String,
    old: String,
    /// It was removed or replaced under its new name.
    ended: bool,
}

/// The model; see the module.
#[derive(Debug, Default)]
pub(crate) struct Names {
    snapshot: HashMap<String, Tree>,
    /// Directories whose content the snapshot has seen completely.
    listed: HashSet<String>,
    states: BTreeMap<String, State>,
    /// Names outside the snapshot that existed before.
    before: BTreeSet<String>,
    /// Targets of links: found on disk now, seen in the snapshot, or created by the workload.
    links: HashMap<String, String>,
    /// Names known not to be links.
    no_links: HashSet<String>,
    /// Created and removed by the workload, the oldest first.
    gone: VecDeque<String>,
    /// Renames of what existed before, in order.
    moved: Vec<Move>,
    /// The disk is not read, because it may not be the recorded one.
    unseen: bool,
    /// See [`Self::missed`].
    missed: bool,
    /// Converts hashed names to names on disk, if names are hashed.
    mapped: Option<MappedNames>,
}

impl Names {
    /// Creates the model from a snapshot; directories in `listed` contained nothing else.
    pub(crate) fn new(snapshot: HashMap<String, Tree>, listed: HashSet<String>) -> Self {
        let states = snapshot.keys().map(|p| (p.clone(), State::Before)).collect();
        let links =
            snapshot.values().filter_map(|t| Some((t.path.to_string(), t.target.as_deref()?.to_owned()))).collect();
        Self { snapshot, listed, states, links, ..Self::default() }
    }

    /// The canonical absolute path: without dots and without links (a link as the last component is followed only if
    /// `follow`). Links on the way are noted as existing before. `None` for a loop, and if a link's target is unknown.
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
            // Neither the link nor a directory behind it is read.
            let is_unread = own.is_some() || magic_links::is_relative(within(&at, top));
            let real = start.real.map_or_else(|| Some(at.clone()), |real| real(&at));
            let target = real.as_deref().filter(|_| !is_unread).and_then(|real| self.link(real));
            followed += usize::from(own.is_some() || target.is_some());
            if followed > MAX_LINKS || target.as_deref() == Some(UNKNOWN_TARGET) {
                return None;
            }
            if let Some(own) = own {
                at = if own == "/" { String::new() } else { own };
            } else if let Some((target, real)) = target.zip(real) {
                self.exists(&real);
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
        // Descriptor numbers are not hashed.
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

    /// Never reads the disk.
    pub(crate) fn unseen(self) -> Self {
        Self { unseen: true, ..self }
    }

    /// Uses these hashed names.
    pub(crate) fn mapped(self, mapped: Option<MappedNames>) -> Self {
        Self { mapped, ..self }
    }

    /// Says whether the current operation failed with a missing name. Then a link that exists on disk now was created
    /// later, or led nowhere.
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
        // Links that the workload created or the snapshot saw are in `links` already.
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

    /// The workload created a symbolic link; [`Self::make`] is called next.
    pub(crate) fn make_link(&mut self, path: &str, target: &str) {
        self.links.insert(path.to_owned(), target.to_owned());
    }

    /// Whether anything is known about this name.
    pub(crate) fn is_known(&self, path: &str) -> bool {
        self.states.contains_key(path)
    }

    /// Names that exist now, sorted, and whether the workload created them or moved something there.
    pub(crate) fn present(&self) -> impl Iterator<Item = (&str, bool)> {
        self.states.iter().filter(|(_, s)| **s != State::Gone).map(|(path, s)| (path.as_str(), *s == State::Made))
    }

    /// Whether something had this name before the recording.
    pub(crate) fn was_there(&self, path: &str) -> bool {
        self.before.contains(path) || self.snapshot.contains_key(path)
    }

    /// Whether the snapshot has seen the whole content of this directory.
    pub(crate) fn is_listed(&self, path: &str) -> bool {
        self.listed.contains(path)
    }

    /// Names that something was moved to.
    pub(crate) fn moved_to(&self) -> HashSet<&str> {
        self.moved.iter().map(|m| m.new.as_str()).collect()
    }

    /// Whether this name exists now, as far as is known.
    pub(crate) fn is_there(&self, path: &str) -> bool {
        self.states.get(path).is_some_and(|s| *s != State::Gone)
    }

    /// Whether the workload created what has this name, and nothing that existed before was moved there.
    pub(crate) fn is_new(&self, path: &str) -> bool {
        self.states.get(path) == Some(&State::Made) && self.is_unmoved(path)
    }

    /// Whether neither this name nor a directory above it was part of a move of something that existed before.
    fn is_unmoved(&self, path: &str) -> bool {
        let within = |dir: &str| path.strip_prefix(dir).is_some_and(|r| r.is_empty() || r.starts_with('/'));
        self.moved.len() <= FEW_MOVES && !self.moved.iter().any(|m| within(&m.new) || within(&m.old))
    }

    /// This name exists now. Returns the name it had before the recording, if it existed then.
    pub(crate) fn exists(&mut self, path: &str) -> Option<String> {
        match self.states.get(path) {
            Some(State::Before) => return Some(path.to_owned()),
            Some(State::Made) => return None,
            // It was created again by something that is not recorded.
            Some(State::Gone) => return None,
            None => {}
        }
        // In a directory that the workload created, nothing existed before.
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
                    // By now, something else may have these names.
                    while let Some(p) = at.filter(|p| !self.was_there(p)) {
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

    /// Whether the snapshot saw the directory of an unknown name, or one above it, without that entry. Then it was
    /// created later by something that is not recorded: bind of a socket, a core dump, another program.
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

    /// The earlier name of a path below a moved directory.
    fn name_before(&self, path: &str) -> Option<String> {
        let mut name = path.to_owned();
        let mut was_moved = false;
        for Move { new, old, .. } in self.moved.iter().rev() {
            if let Some(rest) = name.strip_prefix(new.as_str()).filter(|r| r.starts_with('/')) {
                name = format!("{old}{rest}");
                was_moved = true;
            }
        }
        (was_moved && !self.was_there(&name) && self.is_in_old_directory(&name)).then_some(name)
    }

    /// Whether the lowest known directory above an unknown name was there before the recording.
    fn is_in_old_directory(&self, path: &str) -> bool {
        let mut above = parent(path);
        while let Some(p) = above.filter(|p| !self.was_there(p)) {
            if self.states.contains_key(p) {
                return false;
            }
            above = parent(p);
        }
        above.is_some()
    }

    /// The workload created this name.
    pub(crate) fn make(&mut self, path: &str) {
        self.end_moved(path);
        if let Some(above) = parent(path) {
            self.exists(above);
        }
        self.states.insert(path.to_owned(), State::Made);
    }

    /// Marks what was moved to this name and is still there as ended.
    fn end_moved(&mut self, path: &str) {
        let arrived = self.moved.iter().rposition(|m| m.new == path);
        if let Some(i) = arrived.filter(|i| !self.moved[*i..].iter().any(|m| m.old == path)) {
            self.moved[i].ended = true;
        }
    }

    /// The name that the file at `path` had before the recording, if it existed then and was moved.
    pub(crate) fn origin(&self, path: &str) -> Option<String> {
        let mut name = path.to_owned();
        let below = |name: &str, dir: &str| {
            name.strip_prefix(dir).filter(|r| r.is_empty() || r.starts_with('/')).map(str::to_owned)
        };
        for m in self.moved.iter().rev().filter(|m| !m.ended) {
            if let Some(rest) = below(&name, &m.new) {
                name = format!("{}{rest}", m.old);
            } else if below(&name, &m.old).is_some() {
                // What had this name before was moved away, so this came later.
                return None;
            }
        }
        (name != path && self.was_there(&name)).then_some(name)
    }

    /// The current name of something that was at `path` before; `None` if it was removed or replaced after a move.
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

    /// Queues a created and removed name to be forgotten later: a workload may create and remove millions.
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

    /// The workload renamed this, with everything below it.
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
        let arrived_with_above = self.origin(from).is_some();
        let was = self.states.insert(from.to_owned(), State::Gone);
        let was_before = was == Some(State::Before);
        self.states.insert(to.to_owned(), State::Made);
        // The content of a directory that the workload created is the workload's too.
        let was_arrived = |m: &Move| m.new == from || m.new.starts_with(&prefix);
        if was_before || arrived_with_above || self.moved.iter().any(was_arrived) {
            self.moved.push(Move { new: to.to_owned(), old: from.to_owned(), ended: false });
        } else if was == Some(State::Made) {
            self.forget_later(from);
        }
    }

    /// The workload exchanged two names, with everything below them.
    pub(crate) fn exchange(&mut self, a: &str, b: &str) {
        // A temporary name; no real name contains a NUL.
        let aside = format!("{a}\0");
        self.rename(a, &aside);
        self.rename(b, a);
        self.rename(&aside, b);
    }

    /// Whether any name below `path` is known to exist.
    pub(crate) fn has_children(&self, path: &str) -> bool {
        let prefix = format!("{path}/");
        self.states.range(prefix.clone()..).take_while(|(p, _)| p.starts_with(&prefix)).any(|(_, s)| *s != State::Gone)
    }

    /// Takes the snapshot, and the other names that existed before.
    pub(crate) fn take_before(&mut self) -> (HashMap<String, Tree>, BTreeSet<String>) {
        (std::mem::take(&mut self.snapshot), std::mem::take(&mut self.before))
    }
}

/// Components in reverse order, without dots.
fn components(path: &str) -> Vec<String> {
    path.rsplit('/').filter(|c| !c.is_empty() && *c != ".").map(str::to_owned).collect()
}

/// A canonical path relative to a root directory, if it is inside.
fn within<'a>(path: &'a str, top: &str) -> &'a str {
    path.strip_prefix(top).filter(|below| below.starts_with('/')).unwrap_or(path)
}

/// Parent of a canonical path; `None` for the root.
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
