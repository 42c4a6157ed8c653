//! Names and files that an operation depends on besides its operands: missing names, directories crossed by `..`, the
//! file of a request.

use crate::{
    Call,
    model::{
        machine::Machine,
        names::{Kind, NO_NODE, NodeId},
        operands::Operands,
        processes::Entry,
    },
    reel::{
        input::{NO_FD, NO_ID, NONE, Rec},
        submission::Via,
    },
};

impl Machine {
    /// Whether all directories that the current path enters and leaves by `..` are known to exist.
    pub(crate) fn parents_exist(&mut self) -> bool {
        let names = &mut self.names;
        let crossed = std::mem::take(&mut names.crossed);
        let led = crossed.iter().all(|dir| names.exists(*dir) == Some(true));
        names.crossed = crossed;
        led
    }

    /// The directory that a call lists, or whose name it asks for (getcwd). A removed directory has no entries and no
    /// name.
    pub(crate) fn stands_in(&self, r: &Rec, v: &Operands) -> Option<NodeId> {
        let node = match r.call {
            c if c.lists() => self.processes.ofds[v.entry?.ofd as usize].node,
            Call::Getcwd => self.processes.places[self.processes.of(r.task as usize).place].value.cwd.ok()?,
            _ => return None,
        };
        (node != NO_NODE).then_some(node)
    }

    /// For a call that failed with ENOENT: names of which at least one did not exist. Empty if not known.
    pub(crate) fn lacks(&self, r: &Rec, v: &Operands) -> Vec<NodeId> {
        let above = |n: NodeId| if n == NO_NODE { n } else { self.names.parent(n) };
        let lacks = match r.call {
            _ if r.ret != -i64::from(libc::ENOENT) || v.entry.is_some() && r.path == NONE => vec![],
            c if c.opens() && r.flags as i32 & libc::O_CREAT != 0 => vec![above(v.node)],
            Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat => vec![above(v.node)],
            c if c.symlinks() => vec![above(v.node2)],
            c if c.renames() && r.flags & i64::from(libc::RENAME_EXCHANGE) != 0 => vec![v.node, v.node2],
            c if c.renames() || c.links() => vec![v.node, above(v.node2)],
            _ => vec![v.node],
        };
        if lacks.contains(&NO_NODE) { vec![] } else { lacks }
    }

    pub(crate) fn is_regular(&mut self, r: &Rec, v: &Operands) -> bool {
        if matches!(r.call, Call::Readlink | Call::Readlinkat) {
            return true;
        }
        // For a copy the source decides: what can be read is what can be written.
        let entry = if r.call.copies() { v.entry.or(v.entry2) } else { v.entry };
        if entry.is_none() && r.via == Via::Uring {
            return self.reel.files.get(&r.file).is_some_and(|f| f.kind == Kind::Regular);
        }
        entry.is_some_and(|e| matches!(self.processes.ofds[e.ofd as usize].kind, Kind::Regular | Kind::Unknown))
    }

    /// The file of a request according to its descriptor. On overlayfs the reel has the file of the lower layer
    /// instead.
    pub(crate) fn file_of_request(&self, r: &Rec, v: &Operands) -> i64 {
        let behind = v.entry.map(|e| self.processes.ofds[e.ofd as usize].file).filter(|f| *f != NO_ID);
        if r.via == Via::Call || r.fd == NO_FD { r.file } else { behind.unwrap_or(r.file) }
    }

    /// A descriptor for a request on a registered file: one of the same open file description, or if that is unknown,
    /// of the same file.
    pub(crate) fn registered(&self, r: &Rec) -> Option<i32> {
        let table = &self.processes.tables.get(self.processes.of(r.task as usize).table)?.value;
        // If the description is known, another one of the same file does not qualify.
        let same = |e: &Entry| {
            let ofd = &self.processes.ofds[e.ofd as usize];
            match (ofd.recorded, r.ofd) {
                (NO_ID, _) | (_, NO_ID) => r.file != NO_ID && ofd.file == r.file,
                (ours, theirs) => ours == theirs,
            }
        };
        table.iter().find(|(_, e)| same(e)).map(|(fd, _)| *fd)
    }
}
