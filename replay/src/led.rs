//! Where an operation's paths lead in the model, and by what path that place is reached in the replay.

use ioreel_traces::text::from_bytes;

use crate::{
    Call, Skip,
    input::{NO_FD, NO_ID, NONE, Rec},
    names::{Kind, NO_NODE, Names, NodeId},
    plan::{CWD, TOP},
    planner::Planner,
    via::Via,
    view::{Last, View, failed_with, magic_link, through_descriptor},
    world::below,
};

/// Longer ones are recorded cut off.
pub(crate) const MAX_PATH_BYTES: usize = 4095;
/// `RESOLVE_IN_ROOT` of `openat2`: the directory it begins at is the root.
const RESOLVE_IN_ROOT: i64 = 0x10;
/// This, `RESOLVE_BENEATH` and `RESOLVE_NO_XDEV`: where a path may lead, seen from where it begins.
const RESOLVE_WITHIN: i64 = RESOLVE_IN_ROOT | 0x08 | 0x01;

impl Planner {
    /// Slot of the directory and the place a path leads to; [`NO_NODE`] for the directory descriptor itself. What the
    /// path has to be, see [`View::rooted`].
    pub(crate) fn name(
        &mut self,
        r: &Rec,
        dirfd: i32,
        path: u32,
        last: Last,
        v: &mut View,
    ) -> Result<(i32, NodeId, Option<u32>), Skip> {
        if path == NONE {
            return Err(Skip::NoPath);
        }
        let text = self.input.texts.paths.bytes(path).to_vec();
        if text.len() >= MAX_PATH_BYTES && failed_with(r, libc::ENAMETOOLONG) {
            return Err(Skip::NoPath);
        }
        let place = self.procs.places[self.procs.of(r.task as usize).place].value;
        if let Some(fd) = magic_link(&text).filter(|_| through_descriptor(r.call).is_some()) {
            let (slot, entry) = self.descriptor(r, fd, NO_ID)?;
            (v.entry, v.magic) = (entry, true);
            return Ok((slot, NO_NODE, None));
        }
        let follow = match last {
            Last::Name => false,
            Last::File { follow } => follow || text.last() == Some(&b'/'),
        };
        let in_root = r.call == Call::Openat2 && r.aux2 & RESOLVE_IN_ROOT != 0;
        let (slot, base, is_here) = if text.first() == Some(&b'/') && !in_root {
            (CWD, place.root, place.root == place.own_root)
        } else if dirfd == NO_FD || dirfd == libc::AT_FDCWD {
            let (cwd, is_here) = match place.cwd {
                Ok(cwd) => (cwd, true),
                Err(Skip::Outside) if place.away != NO_NODE => (place.away, false),
                Err(why) => return Err(why),
            };
            if text.is_empty() {
                // Refused, whatever the directory is.
                if failed_with(r, libc::ENOENT) {
                    return Ok((CWD, NO_NODE, None));
                }
                v.relative |= is_here;
                return if is_here { self.placed(CWD, Some(cwd), None) } else { Err(Skip::Outside) };
            }
            (CWD, cwd, is_here)
        } else {
            let outside = self.procs.entry(r.task as usize, dirfd).filter(|e| e.slot == Err(Skip::Outside));
            let (slot, entry) = match outside {
                Some(e) if !text.is_empty() => (CWD, Some(e)),
                _ => self.descriptor(r, dirfd, NO_ID)?,
            };
            let Some(entry) = entry else { return Ok((slot, NO_NODE, None)) };
            if text.is_empty() {
                return Ok((slot, NO_NODE, None));
            }
            let base = self.procs.ofds[entry.ofd as usize].node;
            if base == NO_NODE && outside.is_some() {
                return Err(Skip::Outside);
            }
            if base == NO_NODE {
                // A folder that was removed before the start: it is empty, and where it was nobody knows.
                return if r.ret < 0 { Ok((slot, NO_NODE, None)) } else { Err(Skip::OutOfSight) };
            }
            (slot, base, outside.is_none())
        };
        let root = if in_root { base } else { place.root };
        let noted = (self.names.crossed.len(), self.names.passed.len());
        let node = self.names.resolve(root, base, &text, follow);
        let names = &self.names;
        let is_outside = |n: &NodeId| names.area(*n) == Some(Skip::Outside);
        let strays = names.crossed[noted.0..].iter().chain(&names.passed[noted.1..]).any(is_outside);
        // From there it leads elsewhere here.
        let misled = names.by_root && !in_root && place.root != place.own_root;
        if is_here && !strays && !misled {
            v.relative |= slot == CWD && (text.first() != Some(&b'/') || in_root);
            return self.placed(slot, node, None);
        }
        // It can only be said by a path from a root: from where it came within the last time.
        if node.is_none() {
            return Err(Skip::Outside);
        }
        // What refused it may have been on the way there, which is not walked here.
        let is_known = |names: &mut Names, n: NodeId| names.exists(n) == Some(true) && names.kind(n) == Kind::Directory;
        let left: Vec<NodeId> = names.crossed[noted.0..].iter().copied().filter(is_outside).collect();
        let bound = r.call == Call::Openat2 && r.aux2 & RESOLVE_WITHIN != 0;
        if r.ret < 0 && (bound || !left.into_iter().all(|n| is_known(&mut self.names, n))) {
            return Err(Skip::Outside);
        }
        let (slot, rooted) = self.said(place.own_root, text.last() == Some(&b'/'));
        let placed = self.placed(slot, node, rooted)?;
        let unsaid = slot == TOP && r.via == Via::Uring && r.call.takes_no_directory();
        if unsaid && self.names.area(placed.1).is_none() { Err(Skip::OtherRoot) } else { Ok(placed) }
    }

    /// Where the path at hand came within the roots the last time, and on from there, as a thread says it that has this root. What is
    /// not below that it says from the target's.
    fn said(&mut self, own_root: NodeId, ends_in_slash: bool) -> (i32, Option<u32>) {
        let Some((entered, rest)) = self.names.entered.take() else { return (CWD, None) };
        let whole = self.names.path(entered);
        let (slot, begin) = match self.names.is_within(entered, own_root) {
            true => (CWD, below(&whole, &self.names.path(own_root))),
            false => (TOP, whole.strip_prefix(b"/").unwrap_or(&whole)),
        };
        let mut path = begin.to_vec();
        if !rest.is_empty() {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&rest);
        }
        if ends_in_slash {
            path.push(b'/');
        }
        (slot, Some(self.input.texts.intern(&from_bytes(&path))))
    }

    /// An operation goes by the paths that lead to its places from the target's root, where its own do not lead there.
    pub(crate) fn go_rooted(&mut self, r: &mut Rec, v: &View) {
        let [path, path2] = v.rooted;
        if let Some(path) = path {
            (r.path, r.dirfd) = (path, libc::AT_FDCWD);
            // It need not stay below where it no longer begins.
            r.aux2 &= if r.call == Call::Openat2 { !RESOLVE_WITHIN } else { !0 };
        }
        if let Some(path) = path2 {
            (r.path2, r.dirfd2) = (path, libc::AT_FDCWD);
        }
        self.from_top |= v.fd == TOP || v.fd2 == TOP;
    }

    fn placed(&self, slot: i32, node: Option<NodeId>, rooted: Option<u32>) -> Result<(i32, NodeId, Option<u32>), Skip> {
        match node {
            // A loop of links fails on the target as it did.
            None => Ok((slot, NO_NODE, None)),
            Some(node) => match self.names.area(node) {
                None | Some(Skip::Outside) => Ok((slot, node, rooted)),
                Some(why) => Err(why),
            },
        }
    }
}
