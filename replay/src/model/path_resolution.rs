//! Resolves the paths of an operation in the model, and finds a path by which the replay reaches the same place.

use ioreel_traces::text::from_bytes;

use crate::{
    Call, Skip,
    base::paths::seen_from,
    model::{
        machine::Machine,
        names::{Kind, NO_NODE, Names, NodeId, PATH_BYTES, mounts::Place},
        operands::{CWD, Last, Operands, TOP, through_descriptor},
        processes::Ofd,
    },
    reel::{
        input::{NO_FD, NO_ID, NONE, Rec},
        record_kind::failed_with,
        submission::Via,
    },
};

/// `RESOLVE_IN_ROOT` of openat2: the starting directory is the root.
const RESOLVE_IN_ROOT: i64 = 0x10;
/// This, `RESOLVE_BENEATH` and `RESOLVE_NO_XDEV` limit where a path may lead, relative to its start.
const RESOLVE_WITHIN: i64 = RESOLVE_IN_ROOT | 0x08 | 0x01;

/// A magic link of /proc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The link to an open descriptor.
    Fd(i32),
    /// The link to the working directory.
    Cwd,
    /// The link to the root directory.
    Root,
}

/// The magic link of process `pid` that a path starts with, and the rest of the path. GNU tar, for example, reaches
/// files that it unpacks this way. A replay has no /proc, but it has what the links lead to.
pub(crate) fn link_of_proc(path: &[u8], pid: i32) -> Option<(Link, Option<&[u8]>)> {
    fn first(path: &[u8]) -> (&[u8], Option<&[u8]>) {
        match path.iter().position(|b| *b == b'/') {
            Some(at) => (&path[..at], Some(&path[at + path[at..].iter().take_while(|b| **b == b'/').count()..])),
            None => (path, None),
        }
    }
    let number = |text: &[u8]| {
        let digits = std::str::from_utf8(text).ok().filter(|t| t.bytes().all(|b| b.is_ascii_digit()));
        digits?.parse::<i32>().ok()
    };
    let standard = [&b"/dev/stdin"[..], b"/dev/stdout", b"/dev/stderr"];
    if let Some(fd) = standard.iter().position(|name| *name == path) {
        return Some((Link::Fd(fd as i32), None));
    }
    if let Some(rest) = path.strip_prefix(b"/dev/fd/") {
        let (fd, rest) = first(rest);
        return Some((Link::Fd(number(fd)?), rest));
    }
    let (who, rest) = first(path.strip_prefix(b"/proc/")?);
    if who != b"self" && who != b"thread-self" && number(who) != Some(pid) {
        return None;
    }
    match first(rest?) {
        (b"cwd", rest) => Some((Link::Cwd, rest)),
        (b"root", rest) => Some((Link::Root, rest)),
        (b"fd", Some(rest)) => {
            let (fd, rest) = first(rest);
            Some((Link::Fd(number(fd)?), rest))
        }
        _ => None,
    }
}

/// Whether a path in /proc or /dev leads out of it by a magic link that [`link_of_proc`] does not follow.
fn leads_out(path: &[u8]) -> bool {
    if path.starts_with(b"/dev/fd/") || path.starts_with(b"/dev/std") {
        return true;
    }
    let mut names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
    let is_number = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    let is_process = |name: &[u8]| is_number(name) || name == b"self" || name == b"thread-self";
    if names.next() != Some(b"proc") || !names.next().is_some_and(is_process) {
        return false;
    }
    let mut name = names.next();
    if name == Some(b"task") {
        name = names.nth(1);
    }
    match name {
        Some(b"cwd" | b"root") => true,
        Some(b"fd" | b"map_files") => names.next().is_some(),
        _ => false,
    }
}

impl Machine {
    /// Slot of the starting directory, node that the path leads to ([`NO_NODE`]: the directory descriptor itself), and
    /// the path to use instead ([`Operands::rooted`]).
    pub(crate) fn name(
        &mut self,
        r: &Rec,
        dirfd: i32,
        path: u32,
        last: Last,
        v: &mut Operands,
    ) -> Result<(i32, NodeId, Option<u32>), Skip> {
        if path == NONE {
            return Err(Skip::NoPath);
        }
        let text = self.reel.texts.paths.bytes(path);
        self.whole_path(r, text)?;
        let text = text.to_vec();
        let pid = self.reel.tasks[r.task as usize].pid;
        let follows = matches!(last, Last::File { follow: true });
        let (dirfd, text) = match link_of_proc(&text, pid) {
            // openat2 may forbid such links, or leaving the starting directory.
            Some(_) if r.call == Call::Openat2 && r.aux2 != 0 => (dirfd, text),
            // An io_uring request can neither be given another path here nor become another call.
            Some(_) if r.via == Via::Uring && !r.call.opens() => (dirfd, text),
            Some((Link::Fd(fd), None)) => match self.through_link(r, fd, (follows, path != r.path), v)? {
                Some(led) => return Ok(led),
                None => (dirfd, text),
            },
            Some((link, rest)) if rest.is_some() || follows => {
                let rest = rest.filter(|rest| !rest.is_empty()).unwrap_or(b".");
                let (dirfd, text) = match link {
                    Link::Fd(fd) => (fd, rest.to_vec()),
                    Link::Cwd => (libc::AT_FDCWD, rest.to_vec()),
                    Link::Root => (libc::AT_FDCWD, [b"/", rest].concat()),
                };
                let (slot, node, rooted) = self.resolve_path(r, dirfd, &text, last, v)?;
                return Ok((slot, node, rooted.or_else(|| Some(self.reel.texts.intern(&from_bytes(&text))))));
            }
            _ => (dirfd, text),
        };
        self.resolve_path(r, dirfd, &text, last, v)
    }

    /// Refuses a path that the recorder cut off, as it does with longer ones, or that no kernel takes.
    pub(crate) fn whole_path(&self, r: &Rec, text: &[u8]) -> Result<(), Skip> {
        if text.len() >= PATH_BYTES && failed_with(r, libc::ENAMETOOLONG) {
            return Err(Skip::NoPath);
        }
        if text.len() > PATH_BYTES { Err(Skip::LongPath) } else { Ok(()) }
    }

    /// Resolves a link of /proc to a descriptor: by the descriptor if the call can take one, otherwise by the name of
    /// its file. `None` if the link itself is meant, or the file has no name.
    fn through_link(
        &mut self,
        r: &Rec,
        fd: i32,
        (follows, is_new): (bool, bool),
        v: &mut Operands,
    ) -> Result<Option<(i32, NodeId, Option<u32>)>, Skip> {
        // A new name is never followed; an old one only with AT_SYMLINK_FOLLOW.
        let follows = follows || r.call == Call::Linkat && r.flags as i32 & libc::AT_SYMLINK_FOLLOW != 0 && !is_new;
        if !follows {
            return Ok(None);
        }
        let found = self.descriptor(r, fd, NO_ID);
        let ofd = found.as_ref().ok().and_then(|(_, entry)| *entry).map(|e| &self.processes.ofds[e.ofd as usize]);
        // truncate needs a descriptor open for writing.
        let writes = ofd.is_none_or(|o| o.flags & libc::O_ACCMODE != libc::O_RDONLY && o.flags & libc::O_PATH == 0);
        if through_descriptor(r.call).is_some() && (writes || r.call != Call::Truncate) {
            let (slot, entry) = found?;
            (v.entry, v.magic) = (entry, true);
            return Ok(Some((slot, NO_NODE, None)));
        }
        let Some(&Ofd { node, file, mount, .. }) = ofd else { return Ok(None) };
        let node = if file == NO_ID { node } else { self.named_files.name_of(file).unwrap_or(node) };
        let is_anothers = self.named_files.get(node).is_some_and(|other| file != NO_ID && other != file);
        let is_link = node != NO_NODE && self.names.kind(node) == Kind::Symlink;
        if node == NO_NODE || is_anothers || is_link || self.names.exists(node) != Some(true) {
            return Ok(None);
        }
        let own_root = self.processes.places[self.processes.of(r.task as usize).place].value.own_root;
        let (slot, path) = self.path_for(node, own_root);
        let path = if path.is_empty() { &b"."[..] } else { &path };
        let rooted = self.reel.texts.intern(&from_bytes(path));
        self.names.mounts.led = Some(Place { node, mount });
        self.placed(slot, Some(node), Some(rooted)).map(Some)
    }

    fn resolve_path(
        &mut self,
        r: &Rec,
        dirfd: i32,
        text: &[u8],
        last: Last,
        v: &mut Operands,
    ) -> Result<(i32, NodeId, Option<u32>), Skip> {
        let place = self.processes.places[self.processes.of(r.task as usize).place].value;
        let follow = match last {
            Last::Name => false,
            Last::File { follow } => follow || text.last() == Some(&b'/'),
        };
        let in_root = r.call == Call::Openat2 && r.aux2 & RESOLVE_IN_ROOT != 0;
        let (slot, base, base_mount, is_here) = if text.first() == Some(&b'/') && !in_root {
            (CWD, place.root, place.root_mount, place.root == place.own_root)
        } else if dirfd == NO_FD || dirfd == libc::AT_FDCWD {
            let (cwd, is_here) = match place.cwd {
                Ok(cwd) => (cwd, true),
                Err(why) if why.is_elsewhere() && place.away != NO_NODE => (place.away, false),
                Err(why) => return Err(why),
            };
            if text.is_empty() {
                // Fails with ENOENT in any directory.
                if failed_with(r, libc::ENOENT) {
                    return Ok((CWD, NO_NODE, None));
                }
                v.relative |= is_here;
                return if is_here { self.placed(CWD, Some(cwd), None) } else { Err(Skip::Outside) };
            }
            (CWD, cwd, place.cwd_mount, is_here)
        } else {
            let outside =
                self.processes.entry(r.task as usize, dirfd).filter(|e| e.slot.is_err_and(Skip::is_elsewhere));
            let (slot, entry) = match outside {
                Some(e) if !text.is_empty() => (CWD, Some(e)),
                _ => self.descriptor(r, dirfd, NO_ID)?,
            };
            let Some(entry) = entry else { return Ok((slot, NO_NODE, None)) };
            if text.is_empty() {
                return Ok((slot, NO_NODE, None));
            }
            let Ofd { node: base, mount, .. } = self.processes.ofds[entry.ofd as usize];
            if base == NO_NODE && outside.is_some() {
                return Err(Skip::Outside);
            }
            if base == NO_NODE {
                // A directory that was removed before the start. It is empty, and its former place is unknown.
                return if r.ret < 0 { Ok((slot, NO_NODE, None)) } else { Err(Skip::OutOfSight) };
            }
            (slot, base, mount, outside.is_none())
        };
        if place.mounts_unknown {
            return Err(Skip::UnfollowedMount);
        }
        let (root, root_mount) = if in_root { (base, base_mount) } else { (place.root, place.root_mount) };
        self.names.mounts.start = (base_mount, root_mount);
        let noted = (self.names.crossed.len(), self.names.passed.len());
        let node = self.names.resolve(root, base, text, follow);
        let names = &self.names;
        let is_outside = |n: &NodeId| names.area(*n).is_some_and(Skip::is_elsewhere);
        let strays = names.crossed[noted.0..].iter().chain(&names.passed[noted.1..]).any(is_outside);
        // The replay thread has another root directory, so the path leads elsewhere.
        let misled = names.by_root && !in_root && place.root != place.own_root;
        if is_here && !strays && !misled && !names.mounts.crossed {
            v.relative |= slot == CWD && (text.first() != Some(&b'/') || in_root);
            return self.placed(slot, node, None);
        }
        self.stated_anew(r, (text, noted.0), node, place.own_root, v)
    }

    /// Where a path leads that the replay cannot use as it is: it starts, or passes, outside the roots, or crosses a mount.
    /// `text` comes with the number of directories crossed before.
    fn stated_anew(
        &mut self,
        r: &Rec,
        (text, noted): (&[u8], usize),
        node: Option<NodeId>,
        own_root: NodeId,
        v: &mut Operands,
    ) -> Result<(i32, NodeId, Option<u32>), Skip> {
        let is_outside = |names: &Names, n: NodeId| names.area(n).is_some_and(Skip::is_elsewhere);
        // The path must start from a root: from the last point at which it entered the roots.
        if node.is_none() {
            return Err(Skip::Outside);
        }
        // It may have failed on the way there, on the part that the replay leaves out.
        let is_known = |names: &mut Names, n: NodeId| names.exists(n) == Some(true) && names.kind(n) == Kind::Directory;
        let left: Vec<NodeId> =
            self.names.crossed[noted..].iter().copied().filter(|n| is_outside(&self.names, *n)).collect();
        let bound = r.call == Call::Openat2 && r.aux2 & RESOLVE_WITHIN != 0;
        if r.ret < 0 && (bound || !left.into_iter().all(|n| is_known(&mut self.names, n))) {
            return Err(Skip::Outside);
        }
        let (slot, rooted) = self.said(own_root, text.last() == Some(&b'/'));
        let placed = self.placed(slot, node, rooted)?;
        let unsaid = slot == TOP && r.via == Via::Uring && r.call.takes_no_directory();
        if unsaid && self.names.area(placed.1).is_none() { Err(v.out_of_reach(placed.1)) } else { Ok(placed) }
    }

    /// The current path from the last point at which it entered the roots, as seen from a thread's root directory
    /// `own_root`. A place not below that is reached from the target's root.
    fn said(&mut self, own_root: NodeId, ends_in_slash: bool) -> (i32, Option<u32>) {
        let Some((entered, rest)) = self.names.entered.take() else { return (CWD, None) };
        let (slot, mut path) = self.path_for(entered, own_root);
        if !rest.is_empty() {
            if !matches!(path.last(), None | Some(b'/')) {
                path.push(b'/');
            }
            path.extend_from_slice(&rest);
        }
        if path.is_empty() {
            path.push(b'.');
        }
        if ends_in_slash {
            path.push(b'/');
        }
        (slot, Some(self.reel.texts.intern(&from_bytes(&path))))
    }

    /// Path of a node as seen from the root directory `own_root`, and where it starts.
    fn path_for(&self, node: NodeId, own_root: NodeId) -> (i32, Vec<u8>) {
        let whole = self.names.path(node);
        match self.names.is_within(node, own_root) {
            true => (CWD, seen_from(&whole, &self.names.path(own_root)).to_vec()),
            false => (TOP, whole.strip_prefix(b"/").unwrap_or(&whole).to_vec()),
        }
    }

    fn placed(&self, slot: i32, node: Option<NodeId>, rooted: Option<u32>) -> Result<(i32, NodeId, Option<u32>), Skip> {
        match node {
            // A loop of symbolic links fails on the target as well.
            None => Ok((slot, NO_NODE, None)),
            Some(node) => match self.names.area(node) {
                None => Ok((slot, node, rooted)),
                Some(why) if why.is_elsewhere() => Ok((slot, node, rooted)),
                Some(Skip::Proc | Skip::Dev) if leads_out(&self.names.path(node)) => Err(Skip::MagicLink),
                Some(why) => Err(why),
            },
        }
    }
}

impl Operands {
    /// The call cannot say this place. It is kept, since the effect of the call is followed.
    fn out_of_reach(&mut self, node: NodeId) -> Skip {
        self.node = node;
        Skip::OtherRoot
    }

    /// Replaces paths that would not lead to the same place in the replay. Returns whether one starts at the target's
    /// root in a thread with another root directory.
    pub(crate) fn substitute_paths(&self, r: &mut Rec) -> bool {
        let [path, path2] = self.rooted;
        if let Some(path) = path {
            (r.path, r.dirfd) = (path, libc::AT_FDCWD);
            // The path has another start, so limits relative to the start do not apply.
            r.aux2 &= if r.call == Call::Openat2 { !RESOLVE_WITHIN } else { !0 };
        }
        if let Some(path) = path2 {
            (r.path2, r.dirfd2) = (path, libc::AT_FDCWD);
        }
        self.fd == TOP || self.fd2 == TOP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_proc_are_what_they_lead_to() {
        let of = |path: &'static str| link_of_proc(path.as_bytes(), 77);
        assert_eq!(of("/proc/self/fd/4/s/a"), Some((Link::Fd(4), Some(&b"s/a"[..]))));
        assert_eq!(of("/dev/fd/4"), Some((Link::Fd(4), None)));
        assert_eq!(of("/proc/77/fd/4//"), Some((Link::Fd(4), Some(&b""[..]))));
        assert_eq!(of("/proc/thread-self/cwd"), Some((Link::Cwd, None)));
        assert_eq!(of("/proc/self/root/etc"), Some((Link::Root, Some(&b"etc"[..]))));
        assert_eq!(of("/dev/stdout"), Some((Link::Fd(1), None)));
        for out in
            ["/proc/78/cwd/a", "/proc/self/root", "/proc/self/task/9/fd/4", "/proc/self/map_files/1-2", "/dev/stdout"]
        {
            assert!(leads_out(out.as_bytes()), "{out}");
        }
        for stays in ["/proc/self/status", "/proc/78/fd", "/proc/cwd/a", "/dev/null", "/proc/self/task/9/comm"] {
            assert!(!leads_out(stays.as_bytes()), "{stays}");
        }
        for other in [
            "/proc/78/fd/4",
            "/proc/self/fd",
            "/proc/self/fdinfo/4",
            "/proc/self/fd/x",
            "/proc/selfish/fd/4",
            "/proc",
            "fd/4",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
