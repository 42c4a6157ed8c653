//! In which order overlapping operations took effect.
//!
//! An operation took effect somewhere between its entry and its return. It is taken to be at its return,
//! unless results say otherwise: an open that found a file must come after the create that made it, one
//! that did not, before. Positions of shared descriptors and sizes seen by reads tell in the same way.

use crate::{
    Call, Skip,
    input::{NO_ID, NONE, Rec},
    names::{NO_NODE, NodeId},
    planner::Planner,
};

/// Something whose value results reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name(NodeId),
    Position(u32),
    Size(i64),
    /// A number in a descriptor table: 1 once it is given out, 0 once it is closed.
    Number(usize, i32),
}

/// What a result says of the value before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Anything,
    Exactly(i64),
    /// A read at .0 of .1 bytes that returned .2.
    ReadOf(i64, i64, i64),
}

/// One value that an operation saw and perhaps changed. A name's value is 1 when it exists, 0 when not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    key: Key,
    needs: Needs,
    becomes: Option<i64>,
}

impl Needs {
    fn fits(self, value: i64) -> bool {
        match self {
            Self::Anything => true,
            Self::Exactly(v) => v == value,
            Self::ReadOf(offset, len, ret) => ret == value.saturating_sub(offset).clamp(0, len.max(0)),
        }
    }
}

impl Planner {
    fn value(&mut self, key: Key) -> Option<i64> {
        match key {
            Key::Name(node) => self.names.exists(node).map(i64::from),
            Key::Position(ofd) => self.procs.ofds[ofd as usize].pos,
            Key::Size(file) => self.sizes.size(file),
            Key::Number(..) => None,
        }
    }

    /// What an operation saw and changed.
    pub(crate) fn touches(&mut self, r: &Rec) -> Vec<Touch> {
        let v = self.view(r);
        let mut out = Vec::new();
        if let Some((fd, becomes)) = number(r) {
            let key = Key::Number(self.procs.of(r.task as usize).table, fd);
            out.push(Touch { key, needs: Needs::Anything, becomes: Some(becomes) });
        }
        let table = self.procs.of(r.task as usize).table;
        if r.ret == -i64::from(libc::EBADF) {
            let named = [r.fd, r.fd2, r.dirfd, r.dirfd2].into_iter().filter(|fd| *fd >= 0);
            out.extend(named.map(|fd| Touch { key: Key::Number(table, fd), needs: Needs::Anything, becomes: None }));
        }
        // A name that is not there yet may be what another call in flight makes.
        if v.skip.is_some_and(|why| why != Skip::OutOfSight) {
            return out;
        }
        // Renamed to another name of the same file, it stays.
        let moves_name = r.call.renames()
            && v.node != NO_NODE
            && v.node2 != NO_NODE
            && r.flags & i64::from(libc::RENAME_EXCHANGE) == 0
            && !self.names.same_file(v.node, v.node2);
        // Through a descriptor it does not matter whether the file still has its name.
        let by_name = v.entry.is_none() || r.path != NONE;
        let mut name = |node: NodeId, needs: Needs, becomes: Option<i64>| {
            if node != NO_NODE && (by_name || node != v.node) {
                out.push(Touch { key: Key::Name(node), needs, becomes });
            }
        };
        let there = match r.ret {
            x if x >= 0 => Needs::Exactly(1),
            x if x == -i64::from(libc::ENOENT) => Needs::Exactly(0),
            _ => Needs::Anything,
        };
        let ok = r.ret >= 0;
        match r.call {
            c if c.opens() => {
                let created = ok && r.aux & 1 != 0;
                name(v.node, if created { Needs::Exactly(0) } else { there }, created.then_some(1));
            }
            Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat => {
                name(v.node, makes(r), ok.then_some(1));
            }
            c if c.symlinks() => name(v.node2, makes(r), ok.then_some(1)),
            c if c.links() => {
                name(v.node, if ok { Needs::Exactly(1) } else { Needs::Anything }, None);
                name(v.node2, makes(r), ok.then_some(1));
            }
            c if c.renames() => {
                name(v.node, there, (ok && moves_name).then_some(0));
                name(v.node2, Needs::Anything, ok.then_some(1));
            }
            Call::Unlink | Call::Unlinkat | Call::Rmdir => name(v.node, there, ok.then_some(0)),
            _ => name(v.node, there, None),
        }
        if let Some(entry) = v.entry.filter(|_| ok) {
            let ofd = &self.procs.ofds[entry.ofd as usize];
            let (append, file) = (ofd.appends(), ofd.file);
            let moves = moves_position(r) && r.offset_bytes != NO_ID;
            if moves && !append {
                let to = r.offset_bytes.saturating_add(r.ret);
                out.push(Touch {
                    key: Key::Position(entry.ofd),
                    needs: Needs::Exactly(r.offset_bytes),
                    becomes: Some(to),
                });
            }
            if file != NO_ID && r.offset_bytes != NO_ID {
                if r.call.reads() {
                    let needs = Needs::ReadOf(r.offset_bytes, r.len_bytes, r.ret);
                    out.push(Touch { key: Key::Size(file), needs, becomes: None });
                } else if r.call.writes() {
                    let end = r.offset_bytes.saturating_add(r.ret);
                    let grown = self.sizes.size(file).is_none_or(|s| s < end).then_some(end);
                    let needs = if append { Needs::Exactly(r.offset_bytes) } else { Needs::Anything };
                    out.push(Touch { key: Key::Size(file), needs, becomes: grown });
                } else if r.call == Call::Ftruncate {
                    out.push(Touch { key: Key::Size(file), needs: Needs::Anything, becomes: Some(r.len_bytes) });
                }
            }
        }
        out
    }

    /// Which of two overlapping operations took effect first: one that touches `theirs`, or one that touches `mine`
    /// and is about to. Theirs, when it fits as things stand, and either mine does not until theirs has
    /// happened, or theirs would not any more once mine has.
    pub(crate) fn order_of(&mut self, theirs: &[Touch], mine: &[Touch]) -> Known {
        let (mut first, mut second, mut related) = (false, false, false);
        for t in theirs {
            if matches!(t.key, Key::Number(..)) {
                // A number is free before it is given out again, and nobody closes what he has not been given yet.
                let Some(other) = mine.iter().find(|m| m.key == t.key && m.becomes != t.becomes) else { continue };
                // Nor is it refused (it becomes nothing) before it is free, or once it has been given out.
                first |= t.becomes == Some(0) || t.becomes.is_none() && other.becomes == Some(1);
                second |= t.becomes == Some(1) || t.becomes.is_none() && other.becomes == Some(0);
                continue;
            }
            let now = self.value(t.key);
            if now.is_some_and(|v| !t.needs.fits(v)) {
                return Known::Second;
            }
            for m in mine.iter().filter(|m| m.key == t.key) {
                let fits = now.is_none_or(|v| m.needs.fits(v));
                if let Some(after) = t.becomes {
                    first |= !fits && m.needs.fits(after);
                    // Once theirs has happened, mine would not fit any more.
                    second |= fits && !m.needs.fits(after);
                }
                first |= m.becomes.is_some_and(|after| fits && !t.needs.fits(after));
                related |= m.becomes != t.becomes && (m.becomes.is_some() || t.becomes.is_some());
            }
        }
        match (first, second, related) {
            (true, ..) => Known::First,
            (_, true, _) => Known::Second,
            (_, _, true) => Known::Unknown,
            _ => Known::Unrelated,
        }
    }
}

/// What results tell of the order of two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The other was first.
    First,
    /// The one at hand was first.
    Second,
    /// They touch the same, and either order fits.
    Unknown,
    /// They have nothing to do with each other.
    Unrelated,
}

/// The descriptor that a call was given or has closed, and what becomes of its number.
fn number(r: &Rec) -> Option<(i32, i64)> {
    match r.call {
        _ if r.ret < 0 => None,
        Call::Close => Some((r.fd, 0)),
        // A descriptor that replaces another needs no free number.
        Call::Dup2 | Call::Dup3 => None,
        c if c.opens() || c.duplicates() => Some((r.ret as i32, 1)),
        _ => None,
    }
}

fn makes(r: &Rec) -> Needs {
    match r.ret {
        x if x >= 0 => Needs::Exactly(0),
        x if x == -i64::from(libc::EEXIST) => Needs::Exactly(1),
        _ => Needs::Anything,
    }
}

/// Whether the call reads or writes at the description's own position and moves it.
pub(crate) fn moves_position(r: &Rec) -> bool {
    match r.call {
        Call::Read | Call::Readv | Call::Write | Call::Writev => true,
        Call::Preadv2 | Call::Pwritev2 => r.aux2 == 1,
        _ => false,
    }
}
