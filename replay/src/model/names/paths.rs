//! Path resolution.

use std::mem;

use super::{Kind, NO_NODE, Names, NodeId, ROOT, State, mounts::Place};
use crate::Skip;

/// The kernel follows as many symbolic links in one path.
const MAX_LINKS: u32 = 40;

impl Names {
    /// The node of an absolute path, without following links: for the reel's own tables.
    pub fn literal(&mut self, path: &[u8]) -> NodeId {
        self.work += path.len() as u64 / 16;
        // A hostile reel has others than canonical paths.
        let names = path.split(|b| *b == b'/').filter(|p| !matches!(*p, b"" | b"." | b".."));
        names.fold(ROOT, |at, p| self.child(at, p))
    }

    /// The node that `path` leads to from `base`, following the symbolic links that are known. `follow`: also follow
    /// the last component. `None` for a loop of links.
    pub fn resolve(&mut self, root: NodeId, base: NodeId, path: &[u8], follow: bool) -> Option<NodeId> {
        let (base_mount, root_mount) = self.mounts.start;
        let top = Place { node: root, mount: root_mount };
        let mut at = if path.first() == Some(&b'/') { top } else { Place { node: base, mount: base_mount } };
        // Components still to resolve, the next one last. Links push those of their target.
        let mut todo: Vec<Box<[u8]>> = Vec::new();
        let push = |todo: &mut Vec<Box<[u8]>>, path: &[u8]| {
            todo.extend(path.split(|b| *b == b'/').filter(|p| !p.is_empty()).rev().map(Box::from));
        };
        push(&mut todo, path);
        let mut links = 0;
        // The rest of the path leads to the same place if it starts here.
        let mut is_within = false;
        (self.entered, self.by_root) = (None, false);
        (self.mounts.led, self.mounts.crossed) = (None, false);
        loop {
            if !self.roots.is_empty() || self.mounts.any {
                let was_within = mem::replace(&mut is_within, !self.area(at.node).is_some_and(Skip::is_elsewhere));
                if is_within && !was_within {
                    let rest: Vec<&[u8]> = todo.iter().rev().map(|part| &**part).collect();
                    self.work += todo.len() as u64;
                    self.entered = Some((at.node, rest.join(&b'/')));
                }
            }
            let Some(part) = todo.pop() else { break };
            self.work += 1;
            match &*part {
                b"." => {}
                b".." => {
                    // A path that does not exist has no parent; a removed directory still has.
                    if *self.state(at.node) == State::Absent && !self.is_nameless(at.node) {
                        return Some(at.node);
                    }
                    let led = self.up(at, top);
                    is_within &= led != at && led.mount == at.mount;
                    at = led;
                }
                name => {
                    let next = self.child(at.node, name);
                    if (follow || !todo.is_empty())
                        && let State::Present { kind: Kind::Symlink, target: Some(target), .. } = self.state(next)
                    {
                        links += 1;
                        if links > MAX_LINKS {
                            return None;
                        }
                        let target = target.clone();
                        self.passed.push(next);
                        if target.first() == Some(&b'/') {
                            at = top;
                            self.by_root = true;
                            is_within = false;
                        }
                        push(&mut todo, &target);
                    } else {
                        at = self.through_mounts(Place { node: next, ..at });
                        is_within &= at.node == next;
                    }
                }
            }
        }
        self.mounts.led = Some(at);
        Some(at.node)
    }

    /// Where `..` leads from a directory. The root of a mount has the parent of its mount point.
    fn up(&mut self, from: Place, root: Place) -> Place {
        let mut at = from;
        while at != root
            && let Some(below) = self.mounts.below(at)
        {
            self.work += 1;
            self.mounts.crossed = true;
            at = below;
        }
        if at == root || at.node == root.node && at == from {
            self.by_root = true;
            return at;
        }
        if self.mounts.is_top(at) {
            self.mounts.crossed = true;
            return at;
        }
        if at == from && !self.is_nameless(at.node) {
            self.crossed.push(at.node);
        }
        let node = self.parent(at.node);
        self.through_mounts(Place { node, ..at })
    }

    /// The place that is seen at `at`.
    fn through_mounts(&mut self, at: Place) -> Place {
        let seen = self.topmost(at);
        self.mounts.crossed |= seen != at;
        seen
    }

    /// The node that a link at `link` with this target leads to; [`NO_NODE`] for a loop. [`Self::crossed`] and
    /// [`Self::passed`] stay unchanged.
    pub(crate) fn target_of_text(&mut self, root: NodeId, link: NodeId, text: &[u8]) -> NodeId {
        let noted = (self.crossed.len(), self.passed.len());
        let base = self.parent(link);
        let to = self.resolve(root, base, text, true).unwrap_or(NO_NODE);
        self.crossed.truncate(noted.0);
        self.passed.truncate(noted.1);
        to
    }

    /// The node that the link at this node leads to; [`NO_NODE`] if it is not a link or leads into a loop.
    pub(crate) fn link_target(&mut self, root: NodeId, link: NodeId) -> NodeId {
        let State::Present { kind: Kind::Symlink, target: Some(target), .. } = self.state(link) else { return NO_NODE };
        let target = target.clone();
        self.target_of_text(root, link, &target)
    }

    /// Whether `node` is `top` or below it.
    pub(crate) fn is_within(&self, node: NodeId, top: NodeId) -> bool {
        top != NO_NODE && (node == top || self.is_below(node, top))
    }
}
