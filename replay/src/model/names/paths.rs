//! Path resolution.

use std::mem;

use super::{Kind, NO_NODE, Names, NodeId, ROOT, State};
use crate::Skip;

/// The kernel follows as many symbolic links in one path.
const MAX_LINKS: u32 = 40;

impl Names {
    /// The node of an absolute path, without following links: for the reel's own tables.
    pub fn literal(&mut self, path: &[u8]) -> NodeId {
        self.work += path.len() as u64 / 16;
        path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").fold(ROOT, |at, p| self.child(at, p))
    }

    /// The node that `path` leads to from `base`, following the symbolic links that are known. `follow`: also follow
    /// the last component. `None` for a loop of links.
    pub fn resolve(&mut self, root: NodeId, base: NodeId, path: &[u8], follow: bool) -> Option<NodeId> {
        let mut at = if path.first() == Some(&b'/') { root } else { base };
        // Components still to resolve, the next one last. Links push those of their target.
        let mut todo: Vec<Box<[u8]>> = Vec::new();
        let push = |todo: &mut Vec<Box<[u8]>>, path: &[u8]| {
            todo.extend(path.split(|b| *b == b'/').filter(|p| !p.is_empty()).rev().map(Box::from));
        };
        push(&mut todo, path);
        let mut links = 0;
        let mut is_within = false;
        // Roots of mounts that the path is inside, and their mount points.
        let mut inside: Vec<(NodeId, NodeId)> = Vec::new();
        (self.entered, self.by_root) = (None, false);
        (self.mounts.end, self.mounts.led, self.mounts.crossed) = (None, None, false);
        loop {
            if !self.roots.is_empty() || self.mounts.any {
                let was_within = mem::replace(&mut is_within, !self.area(at).is_some_and(Skip::is_elsewhere));
                let mounted = self.mounts.end.is_some();
                if is_within && (!was_within || mounted) {
                    let rest: Vec<&[u8]> = todo.iter().rev().map(|part| &**part).collect();
                    self.work += todo.len() as u64;
                    self.entered = Some((at, rest.join(&b'/')));
                }
            }
            let Some(part) = todo.pop() else { break };
            self.work += 1;
            match &*part {
                b"." => {}
                b".." => {
                    let nameless = self.is_nameless(at);
                    // A path that does not exist has no parent; a removed directory still has.
                    if *self.state(at) == State::Absent && !nameless {
                        return Some(at);
                    }
                    self.mounts.end = None;
                    if let Some((_, point)) = inside.pop_if(|(mounted, _)| *mounted == at) {
                        self.mounts.crossed = true;
                        at = self.parent(point);
                        // Written from here on, the path leads to the same place.
                        is_within = false;
                    } else if at == root {
                        self.by_root = true;
                    } else {
                        if !nameless {
                            self.crossed.push(at);
                        }
                        at = self.parent(at);
                    }
                }
                name => {
                    let next = self.child(at, name);
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
                            at = root;
                            self.by_root = true;
                        }
                        push(&mut todo, &target);
                    } else {
                        at = self.through_mount(next);
                        if self.mounts.end.is_some() {
                            inside.push((at, next));
                        }
                    }
                }
            }
        }
        self.mounts.led = Some(at);
        self.mounts.led
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
