//! Follows mode, owner, umask and extended attributes of files: what the replay prepares at the start of a slice, what
//! the final tree must have, and which extended attributes must have existed before the recording.

use std::collections::HashMap;

use ioreel_traces::rows::Tree;
pub use ioreel_traces::xattrs::Attributes;

use crate::{
    Call,
    model::{
        access_lists,
        device_nodes::{device_of, made_by_mknod},
        machine::Machine,
        names::{Attribute, Device, Guessed, InitialState, InodeAttributes, Kind, NO_NODE, NodeId, PresentName},
        operands::Operands,
        processes::Ofd,
    },
    reel::{
        equivalents::makes_subvolume,
        input::{NO_ID, NONE, Rec},
        submission::Phase,
    },
};

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
/// Capabilities of a program file.
const CAPABILITY: &[u8] = b"security.capability";

impl Machine {
    /// Applies umask(2). Done for all operations, not only those before a slice.
    pub(crate) fn masks_change(&mut self, r: &Rec) {
        if r.call == Call::Umask && r.ret >= 0 {
            let place = self.processes.of(r.task as usize).place;
            let place = &mut self.processes.places[place].value;
            (place.umask, place.umask_known) = (r.mode & 0o777, true);
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

    /// Applies an operation to the attributes of its file, after names changed.
    pub(crate) fn traits_change(&mut self, r: &Rec, v: &Operands) {
        if r.ret < 0 {
            return;
        }
        let temporary = r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        // Without `set_ids`, no file of the replay has such bits.
        if self.set_ids {
            self.privileges_cleared(r, v);
        }
        match r.call {
            // `node` is the directory in which the unnamed file was created.
            c if c.opens() && temporary && v.node != NO_NODE && r.file != NO_ID => {
                self.born(r, v.node, &Subject::Unnamed(r.file), r.mode, false);
            }
            c if c.opens() && r.aux & 1 != 0 => {
                self.named(r, v.node, r.mode, false);
                self.mode_at_birth(r, v.node);
            }
            Call::Mkdir | Call::Mkdirat => {
                self.named(r, v.node, r.mode, true);
                if makes_subvolume(r) && v.node != NO_NODE {
                    self.names.set(v.node, |t| t.subvolume = true);
                }
            }
            Call::Mknod | Call::Mknodat => {
                self.named(r, v.node, r.mode, false);
                self.numbered(r, v.node);
            }
            c if c.symlinks() => self.named(r, v.node2, 0o777, false),
            c if c.links() && v.node == NO_NODE && v.node2 != NO_NODE => {
                if let Some(e) = v.entry {
                    self.names.give_name(self.processes.ofds[e.ofd as usize].file, v.node2);
                }
            }
            c if c.renames() && r.flags & i64::from(libc::RENAME_WHITEOUT) != 0 && v.node != NO_NODE => {
                self.names.set(v.node, |t| t.device = Some(Device { block: false, number: 0 }));
            }
            c if c.chmods() => {
                let at = self.subject(v);
                self.mode_changes(r, &at);
            }
            c if c.chowns() => self.owner_changes(r, v),
            c if c.sets_attribute() && r.name != NONE => {
                let at = self.subject(v);
                self.attribute_set(r, &at);
            }
            c if c.removes_attribute() && r.name != NONE => {
                let at = self.subject(v);
                let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
                self.set_attribute(&at, name, Attribute::Removed);
            }
            // A guess is replaced by what is seen.
            c if c.stats() => {
                let at = self.subject(v);
                if self.set_of(&at).guessed.mode {
                    self.set(&at, |t| (t.mode, t.guessed.mode) = (Some(r.mode as u32 & 0o7777), false));
                }
            }
            Call::Truncate if v.node != NO_NODE && self.named_files.get(v.node).is_none() => {
                self.names.set(v.node, |t| t.len_bytes = Some(r.len_bytes));
            }
            _ => {}
        }
    }

    /// A mode was set. With an access list, it is part of that.
    fn mode_changes(&mut self, r: &Rec, at: &Subject) {
        let mode = r.mode as u32 & 0o7777;
        let user = self.processes.of(r.task as usize).who;
        // The kernel clears the set-group-ID bit unless the thread is in the file's group; supplementary groups are not
        // followed.
        let in_group = self.set_of(at).gid == Some(user.group.files) || user.keeps_group_bit();
        let guessed = mode & libc::S_ISGID != 0 && !in_group;
        self.set(at, |t| (t.mode, t.guessed.mode) = (Some(mode), guessed));
        if let Some(list) = self.attribute_now(at, access_lists::ACCESS)
            && let Some(list) = access_lists::with_mode(&list, mode)
        {
            self.set_attribute(at, access_lists::ACCESS.into(), Attribute::Value(list));
        }
    }

    /// An owner was set.
    fn owner_changes(&mut self, r: &Rec, v: &Operands) {
        let at = self.subject(v);
        let maps = self.names_unknown_users(r);
        let id = |n: i64| (n as u32 != u32::MAX).then_some(n as u32);
        let (uid, gid) = (id(r.aux), id(r.aux2));
        self.set(&at, |t| {
            if uid.is_some() {
                (t.uid, t.guessed.uid) = (uid, maps);
            }
            if gid.is_some() {
                (t.gid, t.guessed.gid) = (gid, maps);
            }
        });
    }

    /// An extended attribute was set. An access list also sets the permission bits.
    fn attribute_set(&mut self, r: &Rec, at: &Subject) {
        let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
        if r.value == NONE {
            return self.set_attribute(at, name, Attribute::Unknown);
        }
        let named = self.names_unknown_users(r);
        let value: Box<[u8]> = self.reel.texts.paths.bytes(r.value).into();
        let is_list = access_lists::is_list(&name);
        let mut stored = !(is_list && access_lists::is_empty(&value));
        if *name == *access_lists::ACCESS
            && let Some((mode, minimal)) = access_lists::mode_of(&value)
        {
            let special = self.mode_now(at).unwrap_or(0) & 0o7000;
            self.set(at, |t| (t.mode, t.guessed.mode) = (Some(special | mode), false));
            stored = !minimal;
        }
        let value = if named { Attribute::Unknown } else { Attribute::Value(value) };
        self.set_attribute(at, name, if stored { value } else { Attribute::Removed });
    }

    /// A result that cannot recur shows that an extended attribute exists. Its value was not recorded.
    pub(crate) fn attribute_shown(&mut self, r: &Rec, v: &Operands) {
        if !r.call.gets_attribute() || r.name == NONE {
            return;
        }
        let at = self.subject(v);
        let name: Box<[u8]> = self.reel.texts.paths.bytes(r.name).into();
        if self.attribute_now(&at, &name).is_none() {
            self.set_attribute(&at, name, Attribute::Unknown);
        }
    }

    /// Takes the mode that the recorder saw right after the creation of a file. It includes what the reel does not
    /// contain, such as access lists of directories that existed before.
    fn mode_at_birth(&mut self, r: &Rec, node: NodeId) {
        let Some(info) = self.reel.files.get(&r.file).filter(|_| node != NO_NODE) else { return };
        let fresh = (r.start_ns..=r.end_ns).contains(&info.first_ns) && info.kind == Kind::Regular;
        if let Some(mode) = info.mode.filter(|_| fresh) {
            self.names.set(node, |t| (t.mode, t.guessed.mode) = (Some(mode as u32 & 0o7777), false));
        }
    }

    /// A node was created that may be that of a device.
    fn numbered(&mut self, r: &Rec, node: NodeId) {
        match made_by_mknod(r) {
            _ if node == NO_NODE => {}
            Kind::Regular => self.names.set(node, |t| t.len_bytes = Some(0)),
            Kind::Device => self.names.set(node, |t| t.device = device_of(r)),
            _ => {}
        }
    }

    /// Applies what the kernel takes away when an owner or data changes.
    fn privileges_cleared(&mut self, r: &Rec, v: &Operands) {
        let changes_data = match r.call {
            c if c.writes() => r.ret > 0,
            c if c.opens() => r.flags as i32 & libc::O_TRUNC != 0 && r.aux & 1 == 0,
            c => matches!(c, Call::Truncate | Call::Ftruncate | Call::Fallocate),
        };
        if !changes_data && !r.call.chowns() {
            return;
        }
        let at = self.subject(v);
        let who = self.processes.of(r.task as usize).who;
        let is_root = self.privileged && who.user.effective == 0 && who.over_files == 0;
        // fs/attr.c, `setattr_should_drop_suidgid`.
        if r.call.chowns() || !is_root {
            self.special_bits_cleared(&at);
        }
        // Capabilities of the file, also if root changes it (security/commoncap.c, `cap_inode_killpriv`).
        if self.attribute_now(&at, CAPABILITY).is_some() {
            self.set_attribute(&at, CAPABILITY.into(), Attribute::Removed);
        }
    }

    fn special_bits_cleared(&mut self, of: &Subject) {
        if let Subject::Name(node) = *of
            && self.names.kind(node) == Kind::Directory
        {
            return;
        }
        let Some(mode) = self.mode_now(of) else { return };
        // Without execute permission for the group, the set-group-ID bit has another meaning and stays.
        let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
        let kept = mode & !(libc::S_ISUID | group);
        if kept != mode {
            self.set(of, |t| t.mode = Some(kept));
        }
    }

    fn set(&mut self, of: &Subject, change: impl FnOnce(&mut InodeAttributes)) {
        match *of {
            Subject::Name(node) => self.names.set(node, change),
            Subject::Unnamed(file) => self.names.set_unnamed(file, change),
            Subject::Nothing => {}
        }
    }

    fn set_attribute(&mut self, of: &Subject, name: Box<[u8]>, to: Attribute) {
        match *of {
            Subject::Name(node) => self.names.set_attribute(node, name, to),
            Subject::Unnamed(file) => self.names.set_attribute_of_unnamed(file, name, to),
            Subject::Nothing => {}
        }
    }

    fn set_of(&self, of: &Subject) -> InodeAttributes {
        match *of {
            Subject::Name(node) => self.names.set_of(node),
            Subject::Unnamed(file) => self.names.set_of_unnamed(file),
            Subject::Nothing => InodeAttributes::default(),
        }
    }

    /// The permission bits, as far as known.
    fn mode_now(&mut self, of: &Subject) -> Option<u32> {
        let set = self.set_of(of).mode;
        let Subject::Name(node) = *of else { return set };
        let pre = self.names.pre(node);
        set.or_else(|| self.listed_mode(pre).0)
    }

    /// The value of an extended attribute, if known.
    fn attribute_now(&mut self, of: &Subject, name: &[u8]) -> Option<Box<[u8]>> {
        let changed = match *of {
            Subject::Name(node) => self.names.attributes_set(node),
            Subject::Unnamed(file) => self.names.attributes_set_of_unnamed(file),
            Subject::Nothing => None,
        };
        match changed.and_then(|all| all.get(name)) {
            Some(Attribute::Value(value)) => Some(value.clone()),
            Some(_) => None,
            None => {
                let Subject::Name(node) = *of else { return None };
                let pre = self.names.pre(node);
                self.attributes.get(&pre)?.get(name).cloned()
            }
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
        let place = self.processes.places[self.processes.of(r.task as usize).place].value;
        let above = self.names.set_of(parent);
        let above_pre = self.names.pre(parent);
        let (listed_mode, listed_gid) = self.listed_mode(above_pre);
        let above_mode = above.mode.or(listed_mode);
        let above_gid = above.gid.or(listed_gid);
        let (uid, gid) = self.owner_of(r.task as usize);
        let known = self.knows_owner_of(r.task as usize);
        // A new entry of a set-group-ID directory gets the directory's group; a new directory also inherits the bit.
        // A subvolume has neither.
        let apart = makes_subvolume(r);
        let inherits = above_mode.unwrap_or(0) & libc::S_ISGID != 0 && !apart;
        let special = if inherits && directory { libc::S_ISGID } else { 0 };
        // mkdir(2) takes only the sticky bit of the special ones.
        let wanted = mode as u32 & if directory { 0o1777 } else { 0o7777 };
        let parent = Subject::Name(parent);
        // Symbolic links have no access lists.
        let default = self.attribute_now(&parent, access_lists::DEFAULT).filter(|_| !r.call.symlinks());
        let list = default.as_ref().and_then(|list| access_lists::inherited(list, wanted));
        let mut guessed = Guessed { mode: false, uid: !known, gid: !known };
        if inherits {
            guessed.gid = above_gid.is_none() || above.guessed.gid;
        } else if (above_mode.is_none() || above.guessed.mode) && !apart {
            guessed.gid = true;
        }
        let bits = match &list {
            Some((bits, _)) => wanted & !0o777 | bits,
            None => {
                guessed.mode = !place.umask_known && wanted & 0o777 != 0;
                wanted & !(place.umask as u32)
            }
        };
        self.set(of, |t| {
            t.mode = Some(bits | special);
            t.uid = Some(uid);
            t.gid = if inherits { above_gid } else { Some(gid) };
            t.guessed = guessed;
        });
        if let Some((_, Some(access))) = list {
            self.set_attribute(of, access_lists::ACCESS.into(), Attribute::Value(access));
        }
        if let Some(default) = default.filter(|_| directory) {
            self.set_attribute(of, access_lists::DEFAULT.into(), Attribute::Value(default));
        }
    }

    /// Mode and group of a file at the start, as far as known.
    fn listed_mode(&self, pre: NodeId) -> (Option<u32>, Option<u32>) {
        if pre == NO_NODE {
            return (None, None);
        }
        let row = self.row_before(pre);
        let mode = row.and_then(|r| r.mode).or_else(|| self.sizes.mode_proven(pre));
        (mode.map(|m| m as u32 & 0o7777), row.and_then(|r| r.gid).map(|g| g as u32))
    }

    /// Permission bits of a file at the start, as far as known.
    pub(crate) fn initial_mode(&self, pre: NodeId) -> Option<u32> {
        self.listed_mode(pre).0
    }

    /// The row of the reel's `tree` about what had this name at the start.
    pub(crate) fn row_before(&self, pre: NodeId) -> Option<&Tree> {
        let before = (pre != NO_NODE).then(|| self.names.before(pre));
        let Some(InitialState::Present { row, .. }) = before else { return None };
        self.reel.tree.get(*row as usize)
    }

    /// Whether the ids of the files that a thread creates are recorded.
    fn knows_owner_of(&self, task: usize) -> bool {
        let u = self.processes.of(task);
        u.alive && u.who_known
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

    /// Attributes that a file can have at the start, with the value that the reel lists.
    pub(crate) fn may_prepare(&self, name: &[u8]) -> bool {
        self.may_make(name) || access_lists::is_list(name) || self.privileged && name == CAPABILITY
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

    /// Extended attributes that a replay can give to a file without a name.
    pub(crate) fn attributes_of_unnamed(&self, file: i64) -> Attributes {
        let changed = self.names.attributes_set_of_unnamed(file).into_iter().flatten();
        let valued = changed.filter_map(|(name, value)| match value {
            Attribute::Value(value) if self.may_make(name) => Some((name.clone(), value.clone())),
            _ => None,
        });
        valued.collect()
    }

    /// Extended attributes of all files in `there`, by current name: the initial ones as changed by the workload.
    pub(crate) fn attributes_now(&self, there: &[PresentName]) -> HashMap<NodeId, Attributes> {
        let mut out = HashMap::new();
        for t in there {
            let mut all = self.attributes.get(&t.pre).cloned().unwrap_or_default();
            for (name, value) in self.names.attributes_set(t.node).into_iter().flatten() {
                match value {
                    Attribute::Value(value) => all.insert(name.clone(), value.clone()),
                    // It cannot be prepared.
                    Attribute::Removed | Attribute::Unknown => all.remove(name),
                };
            }
            if !all.is_empty() {
                out.insert(t.node, all);
            }
        }
        out
    }
}
