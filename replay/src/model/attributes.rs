//! Follows mode, owner, umask and extended attributes of files: what the replay prepares at the start of a slice, and
//! which extended attributes must have existed before the recording.

use std::collections::{BTreeMap, HashMap};

use crate::{
    Call,
    model::{
        machine::Machine,
        names::{InitialState, InodeAttributes, Kind, NO_NODE, NodeId, PresentName},
        operands::Operands,
        processes::Ofd,
    },
    reel::{
        input::{NO_ID, NONE, Rec},
        submission::Phase,
    },
};

/// Extended attributes of a file: name to value.
pub type Attributes = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The file that extended attributes belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AttributesOf {
    /// A file that was opened.
    File(i64),
    /// A name whose file was never opened.
    Place(NodeId),
}

/// The file that a call changes.
enum Subject {
    /// The file with this name.
    Name(NodeId),
    /// A file without a name.
    Unnamed(i64),
    /// A file that is not followed.
    Nothing,
}

/// Longest value of an extended attribute, bytes.
const MAX_VALUE_BYTES: i64 = 64 << 10;
/// POSIX access ACL: contains the permission bits.
const ACL: &[u8] = b"system.posix_acl_access";

impl Machine {
    /// Applies umask(2). Done for all operations, not only those before a slice.
    pub(crate) fn masks_change(&mut self, r: &Rec) {
        if r.call == Call::Umask && r.ret >= 0 {
            let place = self.processes.of(r.task as usize).place;
            self.processes.places[place].value.umask = r.mode & 0o777;
        }
    }

    /// Clears the set-ID bits in the mode that an operation gives to `node`, unless `--set-ids` is on, and counts
    /// operations that lose bits.
    pub(crate) fn leave_out_set_ids(&mut self, rec: &mut Rec, node: NodeId) {
        if self.set_ids {
            return;
        }
        let directory = node != NO_NODE && self.names.kind(node) == Kind::Directory;
        // The end of a request is a second record of the same operation.
        if rec.leave_out_set_ids(directory) && rec.phase != Phase::Ended {
            self.set_ids_left_out += 1;
        }
    }

    /// Applies an operation to the attributes of its file, after names changed. Only needed before a slice.
    pub(crate) fn traits_change(&mut self, r: &Rec, v: &Operands) {
        if !self.before_slice || r.ret < 0 {
            return;
        }
        let at = self.subject(v);
        if self.clears_special_bits(r) {
            self.special_bits_cleared(&at);
        }
        let temporary = r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        match r.call {
            // `node` is the directory in which the unnamed file was created.
            c if c.opens() && temporary && v.node != NO_NODE && r.file != NO_ID => {
                self.born(r, v.node, &Subject::Unnamed(r.file), r.mode, false);
            }
            c if c.opens() && r.aux & 1 != 0 => self.named(r, v.node, r.mode, false),
            Call::Mkdir | Call::Mkdirat => self.named(r, v.node, r.mode, true),
            Call::Mknod | Call::Mknodat => self.named(r, v.node, r.mode, false),
            c if c.symlinks() => self.named(r, v.node2, 0o777, false),
            c if c.links() && v.node == NO_NODE && v.node2 != NO_NODE => {
                if let Some(e) = v.entry {
                    self.names.give_name(self.processes.ofds[e.ofd as usize].file, v.node2);
                }
            }
            Call::Chmod | Call::Fchmod | Call::Fchmodat | Call::Fchmodat2 => {
                self.set(&at, |t| t.mode = Some(r.mode as u32 & 0o7777));
            }
            c if c.chowns() => {
                let id = |n: i64| (n as u32 != u32::MAX).then_some(n as u32);
                self.set(&at, |t| {
                    t.uid = id(r.aux).or(t.uid);
                    t.gid = id(r.aux2).or(t.gid);
                });
            }
            c if c.sets_attribute() && r.name != NONE => {
                let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
                let value: Box<[u8]> = self.reel.texts.paths.bytes(r.value).into();
                self.set(&at, |t| set_attribute(t, name, value));
            }
            c if c.removes_attribute() && r.name != NONE => {
                let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
                self.set(&at, |t| {
                    t.attributes.insert(name, None);
                });
            }
            _ => {}
        }
    }

    /// Whether the kernel clears the set-user-ID and set-group-ID bits (fs/attr.c, `setattr_should_drop_suidgid`):
    /// always for a change of owner, and for a change of data unless by root.
    fn clears_special_bits(&self, r: &Rec) -> bool {
        let is_root = self.privileged && self.processes.of(r.task as usize).who.user.effective == 0;
        r.call.chowns()
            || !is_root
                && match r.call {
                    c if c.writes() => r.ret > 0,
                    c if c.opens() => r.flags as i32 & libc::O_TRUNC != 0,
                    c => matches!(c, Call::Truncate | Call::Ftruncate | Call::Fallocate),
                }
    }

    fn special_bits_cleared(&mut self, of: &Subject) {
        let listed = match *of {
            Subject::Name(node) if self.names.kind(node) == Kind::Directory => return,
            Subject::Name(node) => {
                let pre = self.names.pre(node);
                Some(self.listed_mode(pre).0)
            }
            Subject::Unnamed(_) | Subject::Nothing => None,
        };
        self.set(of, |t| {
            let Some(mode) = t.mode.or(listed) else { return };
            // Without execute permission for the group, the set-group-ID bit has another meaning and stays.
            let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
            let kept = mode & 0o7777 & !(libc::S_ISUID | group);
            if kept != mode & 0o7777 {
                t.mode = Some(kept);
            }
        });
    }

    fn set(&mut self, of: &Subject, change: impl FnOnce(&mut InodeAttributes)) {
        match *of {
            Subject::Name(node) => self.names.set(node, change),
            Subject::Unnamed(file) => self.names.set_unnamed(file, change),
            Subject::Nothing => {}
        }
    }

    /// The file that an operation is on.
    fn subject(&mut self, v: &Operands) -> Subject {
        let name = |node| if node == NO_NODE { Subject::Nothing } else { Subject::Name(node) };
        let Some(e) = v.entry else { return name(v.node) };
        let Ofd { file, node, flags, .. } = self.processes.ofds[e.ofd as usize];
        if file == NO_ID {
            return name(node);
        }
        if let Some(node) = self.named_files.name_of(file) {
            return Subject::Name(node);
        }
        // The name it was opened by may have been removed or given to another file.
        let lost = node == NO_NODE
            || flags & libc::O_TMPFILE == libc::O_TMPFILE
            || self.named_files.get(node).is_some()
            || self.names.exists(node) == Some(false);
        if lost { Subject::Unnamed(file) } else { name(node) }
    }

    fn named(&mut self, r: &Rec, node: NodeId, mode: i32, directory: bool) {
        if node != NO_NODE {
            self.born(r, self.names.parent(node), &Subject::Name(node), mode, directory);
        }
    }

    fn born(&mut self, r: &Rec, parent: NodeId, of: &Subject, mode: i32, directory: bool) {
        let umask = self.processes.places[self.processes.of(r.task as usize).place].value.umask;
        let above = self.names.set_of(parent);
        let above_pre = self.names.pre(parent);
        let (above_mode, above_gid) = self.listed_mode(above_pre);
        let above_mode = above.mode.unwrap_or(above_mode);
        let (uid, gid) = self.owner_of(r.task as usize);
        // A new entry of a set-group-ID directory gets the directory's group; a new directory also inherits the bit.
        let inherits = above_mode & libc::S_ISGID != 0;
        let special = if inherits && directory { libc::S_ISGID } else { 0 };
        self.set(of, |t| {
            t.mode = Some(mode as u32 & 0o7777 & !(umask as u32) | special);
            t.uid = Some(uid);
            t.gid = if inherits { above.gid.or(above_gid) } else { Some(gid) };
        });
    }

    fn listed_mode(&self, pre: NodeId) -> (u32, Option<u32>) {
        if pre == NO_NODE {
            return (0, None);
        }
        let InitialState::Present { row, .. } = self.names.before(pre) else { return (0, None) };
        let row = self.reel.tree.get(*row as usize);
        (row.and_then(|r| r.mode).unwrap_or(0) as u32, row.and_then(|r| r.gid).map(|g| g as u32))
    }

    /// User and group of the files that a thread creates. Before the thread starts: those of its closest ancestor whose
    /// ids are recorded.
    pub(crate) fn owner_of(&self, task: usize) -> (u32, u32) {
        let (u, mut at) = (self.processes.of(task), task);
        if u.alive {
            return (u.who.user.files, u.who.group.files);
        }
        // A reel may claim that tasks are each other's parents.
        for _ in 0..self.reel.tasks.len() {
            let t = &self.reel.tasks[at];
            if let Some(uid) = t.uid {
                return (uid as u32, t.gid.unwrap_or(0) as u32);
            }
            match t.parent.and_then(|p| self.reel.task_index.get(&p)) {
                Some(parent) if *parent as usize != at => at = *parent as usize,
                _ => break,
            }
        }
        (0, 0)
    }

    /// If a result proves that a file had an extended attribute before the start, adds it to the initial state and
    /// returns true. The length of its value is recorded, the value is not.
    pub(crate) fn proves_attribute(&mut self, r: &Rec, v: &Operands) -> bool {
        let named = r.name != NONE && r.ret >= 0;
        let kept = r.call.gets_attribute() || r.call.removes_attribute() || r.call.sets_attribute() && r.value != NONE;
        let pre = self.attributed(v);
        if !named || !kept || pre == NO_NODE {
            return false;
        }
        let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
        if !self.may_make(&name) || self.missing_attributes.contains(&(pre, name.clone())) {
            return false;
        }
        let len = if r.call.gets_attribute() { r.ret.clamp(0, MAX_VALUE_BYTES) as usize } else { 1 };
        self.attributes.entry(pre).or_default().entry(name).or_insert_with(|| vec![b'x'; len].into());
        true
    }

    /// Attributes whose value is free. Values in other name spaces have a form that the kernel checks.
    pub(crate) fn may_make(&self, name: &[u8]) -> bool {
        name.starts_with(b"user.") || name.starts_with(b"trusted.") && self.privileged
    }

    /// Records that a file did not have an extended attribute (ENODATA).
    pub(crate) fn misses_attribute(&mut self, r: &Rec, v: &Operands) {
        if r.ret != -i64::from(libc::ENODATA) || r.name == NONE {
            return;
        }
        let pre = self.attributed(v);
        if pre != NO_NODE {
            let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
            if self.may_make(&name) {
                self.missing_attributes.insert((pre, name));
            }
        }
    }

    /// Initial name of the file whose attributes a call uses.
    fn attributed(&mut self, v: &Operands) -> NodeId {
        match self.subject(v) {
            Subject::Name(node) => self.names.pre(node),
            Subject::Unnamed(_) | Subject::Nothing => NO_NODE,
        }
    }

    /// Extended attributes of all files in `there`, by current name: the initial ones as changed by the workload.
    pub(crate) fn attributes_now(&self, there: &[PresentName]) -> HashMap<NodeId, Attributes> {
        let mut out = HashMap::new();
        for t in there {
            let mut all = self.attributes.get(&t.pre).cloned().unwrap_or_default();
            for (name, value) in self.names.set_of(t.node).attributes {
                match value {
                    Some(value) => all.insert(name, value),
                    None => all.remove(&name),
                };
            }
            if !all.is_empty() {
                out.insert(t.node, all);
            }
        }
        out
    }
}

/// Sets an extended attribute. An access ACL also sets the permission bits.
fn set_attribute(t: &mut InodeAttributes, name: Box<[u8]>, value: Box<[u8]>) {
    if *name == *ACL
        && let Some((mode, minimal)) = acl_mode(&value)
    {
        t.mode = Some(t.mode.unwrap_or(0) & 0o7000 | mode);
        if minimal {
            t.attributes.insert(name, None);
            return;
        }
    }
    t.attributes.insert(name, Some(value));
}

/// Permission bits in an access ACL (include/uapi/linux/posix_acl_xattr.h), and whether it contains nothing else.
fn acl_mode(value: &[u8]) -> Option<(u32, bool)> {
    const USER_OBJ: u16 = 1;
    const GROUP_OBJ: u16 = 4;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let entries = value.get(4..)?.chunks_exact(8);
    let entries: Vec<(u16, u32)> =
        entries.map(|e| (u16::from_le_bytes([e[0], e[1]]), u32::from(u16::from_le_bytes([e[2], e[3]])))).collect();
    let of = |tag: u16| entries.iter().find(|(t, _)| *t == tag).map(|(_, perm)| perm & 7);
    let group = of(MASK).or(of(GROUP_OBJ))?;
    Some((of(USER_OBJ)? << 6 | group << 3 | of(OTHER)?, entries.len() <= 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_list_tells_the_mode() {
        let list = |entries: &[(u16, u16)]| {
            let mut out = vec![2, 0, 0, 0];
            for (tag, perm) in entries {
                out.extend(tag.to_le_bytes());
                out.extend(perm.to_le_bytes());
                out.extend([0xff; 4]);
            }
            out
        };
        assert_eq!(acl_mode(&list(&[(1, 6), (4, 4), (0x20, 0)])), Some((0o640, true)));
        assert_eq!(acl_mode(&list(&[(1, 7), (2, 7), (4, 4), (0x10, 5), (0x20, 1)])), Some((0o751, false)));
        assert_eq!(acl_mode(&[2, 0]), None);
    }
}
