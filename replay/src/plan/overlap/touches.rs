//! What an operation saw and changed of names, descriptor numbers, positions and sizes.

use super::{GONE, Key, Needs, Overlaps, ResolvedNames, SOME, Touch, Touches};
use crate::{
    Call, Skip,
    model::{
        names::{NO_NODE, NodeId, ROOT},
        operands::Operands,
    },
    reel::input::{NO_ID, NONE, Rec},
    reel::record_kind::moves_position,
};

impl Overlaps<'_> {
    /// Resolves the operands of an operation in the current state.
    pub(super) fn look_along(&mut self, r: &Rec) -> ResolvedNames {
        self.machine.names.crossed.clear();
        self.machine.names.passed.clear();
        let view = self.machine.operands(r);
        let parents_exist = self.machine.parents_exist();
        let u = self.machine.processes.of(r.task as usize);
        let root = self.machine.processes.places.get(u.place).map_or(ROOT, |p| p.value.root);
        let passed = std::mem::take(&mut self.machine.names.passed);
        let links = passed.into_iter().map(|link| (link, self.machine.names.link_target(root, link))).collect();
        ResolvedNames { row: r.row, as_of: self.as_of(u.table), view, parents_exist, links }
    }

    /// Version of everything that the operands of tasks with this descriptor table depend on.
    pub(super) fn as_of(&self, table: usize) -> (u64, usize, u64) {
        (self.machine.names.shape, table, self.machine.processes.tables.get(table).map_or(0, |t| t.version))
    }

    /// What an operation saw and changed.
    pub(super) fn touches(&mut self, r: &Rec, look: &ResolvedNames) -> Touches {
        let (v, parents_exist, links) = (look.view, look.parents_exist, look.links.clone());
        let root = self
            .machine
            .processes
            .places
            .get(self.machine.processes.of(r.task as usize).place)
            .map_or(ROOT, |p| p.value.root);
        let mut out = Vec::new();
        let plain = |key, needs, becomes| Touch { key, needs, becomes, shows: NO_NODE };
        let table = self.machine.processes.of(r.task as usize).table;
        if let Some((fd, becomes)) = number(r) {
            out.push(plain(Key::Number(table, fd), Needs::Anything, Some(becomes)));
        }
        if r.ret == -i64::from(libc::EBADF) {
            let named = [r.fd, r.fd2, r.dirfd, r.dirfd2].into_iter().filter(|fd| *fd >= 0);
            out.extend(named.map(|fd| plain(Key::Number(table, fd), Needs::Anything, None)));
        }
        // A name that does not exist yet may be created by another call in flight. Names outside the roots can lead
        // inside.
        if v.skip.is_some_and(|why| why != Skip::OutOfSight && !why.is_elsewhere()) {
            return Touches { all: out, lacks: vec![], links };
        }
        let ok = r.ret >= 0;
        // Through a descriptor, it does not matter whether the file still has its name.
        let by_name = v.entry.is_none() || r.path != NONE;
        self.names_touched(r, &v, root, &mut out);
        if let Some(dir) = self.machine.stands_in(r, &v) {
            let gone = r.ret == -i64::from(libc::ENOENT);
            let needs = if ok {
                Needs::There
            } else if gone {
                Needs::Exactly(GONE)
            } else {
                Needs::Anything
            };
            out.push(plain(Key::Name(dir), needs, None));
        }
        let lacks = if parents_exist { self.machine.lacks(r, &v) } else { vec![] };
        out.extend(lacks.iter().map(|n| plain(Key::Name(*n), Needs::Anything, None)));
        for node in [v.node, v.node2].into_iter().filter(|n| ok && by_name && *n != NO_NODE && *n != ROOT) {
            let parent = self.machine.names.parent(node);
            out.push(plain(Key::Name(parent), Needs::There, None));
        }
        if let Some(entry) = v.entry.filter(|_| ok) {
            let ofd = &self.machine.processes.ofds[entry.ofd as usize];
            let append = ofd.appends();
            let moves = moves_position(r) && r.offset_bytes != NO_ID;
            if moves && !append {
                let to = r.offset_bytes.saturating_add(r.ret);
                out.push(plain(Key::Position(entry.ofd), Needs::Exactly(r.offset_bytes), Some(to)));
            }
        }
        out.extend(if ok { self.size_touched(r, &v) } else { None });
        Touches { all: out, lacks, links }
    }

    /// The values of its names that an operation saw, and those it left.
    fn names_touched(&mut self, r: &Rec, v: &Operands, root: NodeId, out: &mut Vec<Touch>) {
        // A rename to another name of the same file does nothing.
        let moves_name = r.call.renames()
            && v.node != NO_NODE
            && v.node2 != NO_NODE
            && r.flags & i64::from(libc::RENAME_EXCHANGE) == 0
            && !self.machine.names.same_file(v.node, v.node2);
        let file_of = |file: i64| if file >= 0 { file } else { SOME };
        let at = |p: &mut Self, node| if node == NO_NODE { SOME } else { p.file_at(node).map_or(SOME, file_of) };
        let by_name = v.entry.is_none() || r.path != NONE;
        let ok = r.ret >= 0;
        let mut name = |node: NodeId, needs: Needs, becomes: Option<i64>, shows: NodeId| {
            if node != NO_NODE && (by_name || node != v.node) {
                out.push(Touch { key: Key::Name(node), needs, becomes, shows });
            }
        };
        let there = match r.ret {
            x if x >= 0 => Needs::There,
            // The old name is looked up before the new one is found to exist.
            x if x == -i64::from(libc::EEXIST) || x == -i64::from(libc::ENOTEMPTY) => Needs::There,
            _ => Needs::Anything,
        };
        match r.call {
            c if c.opens() => {
                let tmpfile = r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
                let created = ok && !tmpfile && r.aux & 1 != 0;
                let found = if ok && !tmpfile && r.file >= 0 { Needs::File(r.file) } else { there };
                name(
                    v.node,
                    if created { Needs::Exactly(GONE) } else { found },
                    created.then_some(file_of(r.file)),
                    NO_NODE,
                );
            }
            Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat => {
                name(v.node, makes(r), ok.then_some(SOME), NO_NODE);
            }
            c if c.symlinks() => {
                let text = self.machine.reel.texts.paths.bytes(r.path).to_vec();
                let to =
                    if v.node2 == NO_NODE { NO_NODE } else { self.machine.names.target_of_text(root, v.node2, &text) };
                name(v.node2, makes(r), ok.then_some(SOME), to);
            }
            c if c.links() => {
                let file = at(self, v.node);
                name(v.node, there, None, NO_NODE);
                name(v.node2, makes(r), ok.then_some(file), NO_NODE);
            }
            c if c.renames() => {
                let (from, to) = (at(self, v.node), at(self, v.node2));
                let exchange = r.flags & i64::from(libc::RENAME_EXCHANGE) != 0;
                let left = if exchange { to } else { GONE };
                let needs2 = match there {
                    Needs::There if !ok || exchange => there,
                    Needs::There if r.flags & i64::from(libc::RENAME_NOREPLACE) != 0 => Needs::Exactly(GONE),
                    _ => Needs::Anything,
                };
                let mut shown = |node: NodeId| match node {
                    NO_NODE => NO_NODE,
                    _ => Some(self.machine.names.link_target(root, node)).filter(|to| *to != NO_NODE).unwrap_or(node),
                };
                let (shown, shown2) = (shown(v.node), shown(v.node2));
                name(v.node, there, (ok && (moves_name || exchange)).then_some(left), shown2);
                name(v.node2, needs2, ok.then_some(from), shown);
            }
            Call::Unlink | Call::Unlinkat | Call::Rmdir => name(v.node, there, ok.then_some(GONE), NO_NODE),
            _ => name(v.node, there, None, NO_NODE),
        }
    }

    /// The file size that an operation saw or set.
    fn size_touched(&self, r: &Rec, v: &Operands) -> Option<Touch> {
        let ofd = v.entry.map(|e| &self.machine.processes.ofds[e.ofd as usize]);
        let ofd2 = v.entry2.map(|e| &self.machine.processes.ofds[e.ofd as usize]);
        let opened = ofd.map_or(NO_ID, |o| o.file);
        let of = |file: i64, needs: Needs, becomes: Option<i64>| {
            (file != NO_ID).then_some(Touch { key: Key::Size(file), needs, becomes, shows: NO_NODE })
        };
        let grown = |file: i64, offset: i64, len: i64| {
            let end = offset.saturating_add(len);
            self.machine.sizes.size(file).is_none_or(|s| s < end).then_some(end)
        };
        let placed = r.offset_bytes != NO_ID;
        match r.call {
            // An empty append reports its position, not the end of the file.
            _ if r.moved_nothing() => None,
            c if c.reads() && placed => of(opened, Needs::ReadOf(r.offset_bytes, r.len_bytes, r.ret), None),
            c if c.writes() && placed => {
                let append = ofd.is_some_and(|o| r.appends(o.appends()));
                let needs = if append { Needs::Exactly(r.offset_bytes) } else { Needs::Anything };
                of(opened, needs, grown(opened, r.offset_bytes, r.ret))
            }
            c if c.copies() && r.offset2_bytes != NO_ID => {
                let to = ofd2.map_or(NO_ID, |o| o.file);
                of(to, Needs::Anything, grown(to, r.offset2_bytes, r.ret))
            }
            c if c.opens() && (r.flags as i32 & libc::O_TRUNC != 0 || c == Call::Creat) => {
                of(r.file, Needs::Anything, Some(0))
            }
            Call::Ftruncate => of(opened, Needs::Anything, Some(r.len_bytes)),
            Call::Truncate => {
                let file = if v.magic { opened } else { self.machine.named_files.get(v.node).unwrap_or(NO_ID) };
                of(file, Needs::Anything, Some(r.len_bytes))
            }
            Call::Fallocate if r.mode == 0 => of(opened, Needs::Anything, grown(opened, r.offset_bytes, r.len_bytes)),
            _ => None,
        }
    }
}

/// The descriptor number that a call was assigned (1) or closed (0).
fn number(r: &Rec) -> Option<(i32, i64)> {
    match r.call {
        _ if r.ret < 0 => None,
        Call::Close => Some((r.fd, 0)),
        // A descriptor that replaces another one needs no free number.
        Call::Dup2 | Call::Dup3 => None,
        c if c.opens() || c.duplicates() => Some((r.ret as i32, 1)),
        _ => None,
    }
}

fn makes(r: &Rec) -> Needs {
    match r.ret {
        x if x >= 0 => Needs::Exactly(GONE),
        x if x == -i64::from(libc::EEXIST) => Needs::There,
        _ => Needs::Anything,
    }
}
