//! A model of the name space while a recording is gone through: which names were there before, which
//! the workload made, moved or removed, and where symbolic links lead.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    fs,
    path::Path,
    sync::PoisonError,
};

use ioreel_traces::{host::os_path, rows::Tree, text, writer::Names as MappedNames};

/// Names that were made and are gone again are remembered as such until so many others have gone: calls that overlap
/// may be told of in another order than they took effect.
const REMEMBERED_GONE: usize = 1 << 16;

/// Names known to be no links are forgotten, all at once, when there are so many.
const REMEMBERED_NO_LINKS: usize = 1 << 17;

/// Moves beyond which it is not asked whether a name has to do with one.
const FEW_MOVES: usize = 256;

/// Links followed in one path (the kernel's MAXSYMLINKS).
const MAX_LINKS: usize = 40;

/// Where a link on the disk leads.
fn read_link(path: &Path) -> Option<String> {
    fs::read_link(path).ok().map(|t| text::from_bytes(t.as_os_str().as_encoded_bytes()).to_string())
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

    /// The canonical absolute name of `path` seen from the folder `base` by whoever's root is `top` (empty: that of
    /// all): no dots, no links (the last component's only if `follow`). Links met on the way are noted as having been
    /// there. `None` for a loop.
    pub(crate) fn resolve(&mut self, top: &str, base: &str, path: &str, follow: bool) -> Option<String> {
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
            if let Some(target) = self.link(&at) {
                followed += 1;
                if followed > MAX_LINKS {
                    return None;
                }
                self.exists(&at.clone());
                if target.starts_with('/') {
                    top.clone_into(&mut at);
                } else {
                    at.truncate(parent);
                }
                waiting.extend(components(&target));
            }
        }
        Some(if at.is_empty() { "/".into() } else { at })
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

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
        assert_eq!(n.resolve("", "/w", "r/cur/f", true).unwrap(), "/w/rr/1/f");
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
        // Under its new name, too, the folder held no more.
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
        assert_eq!(n.resolve("", "/nowhere", "./link/../x", true).unwrap(), "/nowhere/dir/x");
        assert_eq!(n.resolve("", "/nowhere", "link", false).unwrap(), "/nowhere/link");
        assert_eq!(n.resolve("", "/nowhere", "../../..", true).unwrap(), "/");
        n.make_link("/nowhere/dir/up", "/sub/../../x");
        assert_eq!(
            n.resolve("/nowhere/dir", "/nowhere/dir/sub", "../../up", true).unwrap(),
            "/nowhere/dir/x",
            "a root"
        );
        n.make_link("/nowhere/loop", "loop");
        assert_eq!(n.resolve("", "/", "nowhere/loop/x", true), None);
    }
}
