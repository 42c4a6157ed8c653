//! What a recorded operation refers to in the model: descriptors, names, and whether it is replayed.

use crate::{
    Call, Skip,
    base::{ids::Words, privileges::is_privileged_attribute},
    model::{
        attributes::AttributesOf,
        machine::Machine,
        names::{Kind, NO_NODE, NodeId, ROOT},
        path_resolution::MAX_PATH_BYTES,
        processes::{Entry, clone},
    },
    reel::input::{NO_FD, NO_ID, NONE, Rec},
    reel::record_kind::failed_with,
};

/// In place of a slot: no valid descriptor, the call is to fail with EBADF.
pub const BAD_FD: i32 = -1;
/// In place of a slot: the working directory.
pub const CWD: i32 = libc::AT_FDCWD;
/// In place of a slot: the target's root, for threads that have another one, which what they do is not below.
pub const TOP: i32 = -2;

/// An operation's references.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// Slot of `fd` or of `path`'s directory.
    pub(crate) fd: i32,
    /// Slot of `fd2` or of `path2`'s directory.
    pub(crate) fd2: i32,
    /// What `fd` stands for.
    pub(crate) entry: Option<Entry>,
    /// What `fd2` stands for.
    pub(crate) entry2: Option<Entry>,
    /// Where `path` leads (the new name of a symlink).
    pub(crate) node: NodeId,
    /// Where `path2` leads.
    pub(crate) node2: NodeId,
    /// Uses the working directory.
    pub(crate) relative: bool,
    /// `path` is a link of /proc to an open descriptor, whose slot is `fd`.
    pub(crate) magic: bool,
    /// What `path` and `path2` are to be in their place: they begin at, or go through, what is outside the roots, or a link of /proc's.
    /// Index in the input's texts, which holds until these are forgotten.
    pub(crate) rooted: [Option<u32>; 2],
    /// Why it is not replayed.
    pub(crate) skip: Option<Skip>,
}

/// What a call takes the last part of a path for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Last {
    /// A name to make, move or take away: a link is never followed, not even for a `/` behind it.
    Name,
    /// What is there: through a link where it is to be followed, or a `/` stands behind it.
    File { follow: bool },
}

/// The call that does the same to a descriptor, given an empty path, as /proc is not there to be used.
pub(crate) fn through_descriptor(call: Call) -> Option<Call> {
    match call {
        Call::Chmod | Call::Fchmodat | Call::Fchmodat2 => Some(Call::Fchmodat2),
        Call::Chown | Call::Lchown | Call::Fchownat => Some(Call::Fchownat),
        Call::Stat | Call::Newfstatat => Some(Call::Newfstatat),
        Call::Statx => Some(Call::Statx),
        Call::Access | Call::Faccessat | Call::Faccessat2 => Some(Call::Faccessat2),
        Call::Utime | Call::Utimes | Call::Futimesat | Call::Utimensat => Some(Call::Utimensat),
        Call::Truncate => Some(Call::Ftruncate),
        Call::Linkat => Some(Call::Linkat),
        _ => None,
    }
}

/// Whether the result says that `path` led to something.
fn needs_name(r: &Rec) -> bool {
    let makes = matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat);
    r.ret >= 0 && !makes && !(r.call.opens() && r.aux & 1 != 0)
}

/// Whether it changes what the user of the replay decides: whose the target is, and what may be done in it.
fn changes_target_directory(r: &Rec, v: &Operands) -> bool {
    let sets_attribute = r.call.sets_attribute() || r.call.removes_attribute();
    let changes = r.call.chmods() || r.call.chowns() || r.call.sets_flags() || sets_attribute;
    changes && v.node == ROOT && r.ret >= 0
}

/// An open that nobody waits in, whatever it opens.
fn is_path_only(r: &Rec) -> bool {
    r.flags as i32 & libc::O_PATH != 0
}

impl Operands {
    /// Of an operation that refers to nothing.
    pub(crate) fn none() -> Self {
        Self {
            fd: CWD,
            fd2: CWD,
            entry: None,
            entry2: None,
            node: NO_NODE,
            node2: NO_NODE,
            relative: false,
            magic: false,
            rooted: [None; 2],
            skip: None,
        }
    }
}

impl Machine {
    /// Finds an operation's references as the model stands now.
    pub(crate) fn operands(&mut self, r: &Rec) -> Operands {
        let mut v = Operands::none();
        let skip =
            self.look(r, &mut v).err().or_else(|| changes_target_directory(r, &v).then_some(Skip::TargetDirectory));
        v.skip = if r.in_flight {
            Some(Skip::InFlight)
        } else if r.call == Call::Other {
            Some(Skip::Unsupported)
        } else {
            // Where it happened says more than how it failed: EAGAIN is a pipe's everyday answer.
            let refused = r.call.locks() && failed_with(r, libc::EAGAIN) && self.is_refused(r, &v);
            let foreign = Skip::foreign_cause(r.ret) && !refused
                // What the original's file system could not do, another one may.
                || failed_with(r, libc::EOPNOTSUPP) || failed_with(r, libc::ENOTTY) && r.call != Call::Tcgets
                || r.call.locks() && failed_with(r, libc::EDEADLK)
                // Scaled files are never appended to, which some calls refuse.
                || (r.call.copies() || r.call.clones()) && !self.footprint.is_none()
                    && (failed_with(r, libc::EBADF) || failed_with(r, libc::EINVAL) && self.appends_to(&v))
                || (r.call.reads() || r.call.writes()) && failed_with(r, libc::EINVAL) && self.is_direct(&v)
                // A 32-bit program that had not asked for large files.
                || r.call == Call::Ftruncate && failed_with(r, libc::EINVAL) && r.len_bytes > i32::MAX.into();
            let foreign = foreign.then_some(Skip::ForeignCause);
            skip.or(foreign).or(self.refused_to_other(r, &v).then_some(Skip::OtherUser))
        };
        v
    }

    /// Whether it is through a descriptor for direct I/O.
    pub(crate) fn is_direct(&self, v: &Operands) -> bool {
        v.entry.is_some_and(|e| self.processes.ofds[e.ofd as usize].flags & libc::O_DIRECT != 0)
    }

    /// Whether what is copied would be appended.
    fn appends_to(&self, v: &Operands) -> bool {
        v.entry2.is_some_and(|e| self.processes.ofds[e.ofd as usize].appends())
    }

    /// Root is refused nothing but to execute what nobody may, and what flags forbid all: whoever was, had become another user, or
    /// laid down capabilities, in a reel that does not tell of that.
    fn refused_to_other(&mut self, r: &Rec, v: &Operands) -> bool {
        let is_root = self.processes.of(r.task as usize).who.words() == Words::default();
        // Without root nobody becomes anybody.
        let privileged = self.privileged;
        let root = if privileged { is_root } else { self.users_change && !is_root || self.flags_left_out };
        let asks_to_execute = matches!(r.call, Call::Access | Call::Faccessat | Call::Faccessat2)
            && r.mode & libc::X_OK != 0
            && (v.node == NO_NODE || self.names.exists(v.node) == Some(true));
        let of_owners = r.call.chowns() || r.call.changes_access() && !self.flags_set;
        // Without root nobody is refused what is another's, or what nobody may change: all here is one's own.
        let forbidden = failed_with(r, libc::EPERM) && (of_owners || !privileged);
        root && (failed_with(r, libc::EACCES) && !asks_to_execute || forbidden)
    }

    /// Whether the operation sets an attribute that gives privileges, or shows by its result that there was one.
    fn depends_on_privileged_attribute(&self, r: &Rec) -> bool {
        let one = r.call.sets_attribute() || r.call.gets_attribute() || r.call.removes_attribute();
        let there = r.call.sets_attribute() || r.ret >= 0 || failed_with(r, libc::ERANGE);
        one && there && r.name != NONE && is_privileged_attribute(self.reel.texts.paths.bytes(r.name))
    }

    fn look(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        if r.call.sets_attribute() && r.value == NONE {
            return Err(Skip::NoValue);
        }
        if (r.call.chowns() || r.call.sets_user()) && self.processes.of(r.task as usize).maps_users {
            return Err(Skip::MappedUser);
        }
        if !self.privileged && self.needs_root(r) {
            return Err(Skip::NeedsRoot);
        }
        if !self.set_ids && self.depends_on_privileged_attribute(r) {
            return Err(Skip::PrivilegedAttribute);
        }
        // How many nanoseconds there were too many is not recorded.
        if r.call.sets_times() && failed_with(r, libc::EINVAL) {
            return Err(Skip::NoValue);
        }
        if r.call == Call::OpenByHandleAt {
            return self.look_at_handle(r, v);
        }
        let path_call = match r.call {
            Call::Close | Call::CloseRange | Call::Umask => false,
            c if c.on_mapping() || c.touches() => false,
            Call::Utimensat | Call::Futimesat | Call::Statx if r.path == NONE => false,
            c => self.takes_path(c),
        };
        if path_call { self.look_at_paths(r, v) } else { self.look_at_fds(r, v) }?;
        let gets = r.call.gets_attribute() || r.call.removes_attribute();
        let must_be_there = gets || r.call.sets_attribute() && r.aux & i64::from(libc::XATTR_REPLACE) != 0;
        let shows = r.ret >= 0 && must_be_there || failed_with(r, libc::ERANGE) || failed_with(r, libc::EEXIST);
        if r.name != NONE && shows && !r.call.is_request() && !self.has_attribute(r, v) {
            return Err(Skip::NoValue);
        }
        Ok(())
    }

    /// Attributes and flags that only root may set.
    fn needs_root(&self, r: &Rec) -> bool {
        const FORBID: i64 = 0x10 | 0x20;
        const FORBID_X: i64 = 0x08 | 0x10;
        let name = if r.name == NONE { &[][..] } else { self.reel.texts.paths.bytes(r.name) };
        match r.call {
            Call::SetFlags => r.aux & FORBID != 0,
            Call::SetXflags | Call::FileSetattr => r.aux & FORBID_X != 0,
            c if c.sets_attribute() || c.removes_attribute() => {
                name.starts_with(b"trusted.") || name.starts_with(b"security.")
            }
            _ => false,
        }
    }

    /// A handle stands for the place that it was asked for by; what is opened by one is opened by name.
    fn look_at_handle(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        if r.ret < 0 {
            return Err(Skip::ForeignCause);
        }
        let value = if r.value == NONE { &[][..] } else { self.reel.texts.paths.bytes(r.value) };
        let node = self.handles.get(value).copied().ok_or(Skip::OutOfSight)?;
        // It may have been renamed since.
        let here = r.file == NO_ID || self.named_files.get(node) == Some(r.file);
        let node = if here { node } else { self.named_files.name_of(r.file).unwrap_or(node) };
        let root = self.processes.places[self.processes.of(r.task as usize).place].value.own_root;
        if root != ROOT || self.names.exists(node) != Some(true) {
            return Err(Skip::OutOfSight);
        }
        v.node = node;
        self.names.area(node).map_or(Ok(()), Err)
    }

    /// Whose attributes a call is about.
    pub(crate) fn attributes_of(&self, r: &Rec, v: &Operands) -> AttributesOf {
        let by_fd = v.entry.filter(|_| v.node == NO_NODE || r.path == NONE);
        match by_fd.map(|e| self.processes.ofds[e.ofd as usize].file).filter(|f| *f != NO_ID) {
            Some(file) => AttributesOf::File(file),
            None => self.named_files.get(v.node).map_or(AttributesOf::Place(v.node), AttributesOf::File),
        }
    }

    fn has_attribute(&mut self, r: &Rec, v: &Operands) -> bool {
        let by_fd = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
        let node = if v.node == NO_NODE { by_fd } else { v.node };
        let pre = if node == NO_NODE { NO_NODE } else { self.names.pre(node) };
        let name = self.reel.texts.paths.bytes(r.name);
        if self.attributes.get(&pre).is_some_and(|all| all.contains_key(name)) {
            return true;
        }
        self.set_attributes.get(&self.attributes_of(r, v)).is_some_and(|all| all.iter().any(|n| **n == *name))
    }

    fn takes_path(&self, call: Call) -> bool {
        call.opens()
            || call.renames()
            || call.links()
            || call.symlinks()
            || matches!(
                call,
                Call::Truncate
                    | Call::Stat
                    | Call::Lstat
                    | Call::Newfstatat
                    | Call::Statx
                    | Call::Access
                    | Call::Faccessat
                    | Call::Faccessat2
                    | Call::Readlink
                    | Call::Readlinkat
                    | Call::Mkdir
                    | Call::Mkdirat
                    | Call::Rmdir
                    | Call::Unlink
                    | Call::Unlinkat
                    | Call::Mknod
                    | Call::Mknodat
                    | Call::Chmod
                    | Call::Fchmodat
                    | Call::Fchmodat2
                    | Call::Chown
                    | Call::Lchown
                    | Call::Fchownat
                    | Call::Utime
                    | Call::Utimes
                    | Call::Futimesat
                    | Call::Utimensat
                    | Call::Chdir
                    | Call::Setxattr
                    | Call::Lsetxattr
                    | Call::Removexattr
                    | Call::Lremovexattr
                    | Call::Statfs
                    | Call::Getxattr
                    | Call::Lgetxattr
                    | Call::Getxattrat
                    | Call::Listxattr
                    | Call::Llistxattr
                    | Call::Listxattrat
                    | Call::Setxattrat
                    | Call::Removexattrat
                    | Call::FileGetattr
                    | Call::FileSetattr
                    | Call::NameToHandleAt
                    | Call::Chroot
            )
    }

    /// The slot behind a descriptor number: a call that failed for a bad descriptor gets a bad one again.
    pub(crate) fn descriptor(&self, r: &Rec, fd: i32, file: i64) -> Result<(i32, Option<Entry>), Skip> {
        match self.processes.entry(r.task as usize, fd) {
            Some(e) => e.slot.map(|s| (s as i32, Some(e))),
            None if failed_with(r, libc::EBADF) => Ok((BAD_FD, None)),
            None => Err(self.reel.files.get(&file).and_then(|f| Skip::of_kind(f.kind)).unwrap_or(Skip::UnknownFd)),
        }
    }

    /// Whether a call's number was given to another file by then. A close that is still in flight has let go of it
    /// already, and what opened it again may be a call that is not replayed.
    fn is_anothers(&self, r: &Rec, e: Entry) -> bool {
        r.call != Call::Close && self.is_other_file(e, r.file)
    }

    /// Whether a descriptor is known to stand for another file than this.
    fn is_other_file(&self, e: Entry, file: i64) -> bool {
        let opened = self.processes.ofds[e.ofd as usize].file;
        opened != NO_ID && file != NO_ID && opened != file
    }

    fn look_at_fds(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let fd = if r.fd == NO_FD { r.dirfd } else { r.fd };
        v.entry = self.processes.entry(r.task as usize, fd);
        v.entry2 = self.processes.entry(r.task as usize, r.fd2);
        match r.call {
            // Name spaces are the replay's own affair.
            Call::Unshare if r.flags & !(clone::FILES | clone::FS) != 0 => Err(Skip::NameSpace),
            Call::Unshare => Ok(()),
            Call::Umask | Call::Sync => Ok(()),
            Call::Getcwd => {
                v.relative = true;
                let place = self.processes.places[self.processes.of(r.task as usize).place].value;
                // From another root it has another name.
                if place.root != place.own_root { Err(Skip::Outside) } else { place.cwd.map(|_| ()) }
            }
            c if c.sets_user() && !self.privileged => Err(Skip::NeedsRoot),
            Call::Setgroups if r.aux > 0 && r.value == NONE => Err(Skip::NoValue),
            c if c.sets_user() => Ok(()),
            // Handled where the mappings are.
            c if c.on_mapping() || c.touches() => Ok(()),
            Call::CloseRange => Ok(()),
            Call::Mmap if r.flags as i32 & libc::MAP_ANONYMOUS != 0 || fd < 0 => Err(Skip::NoFile),
            c if c.copies() => self.look_at_both_ends(r, v),
            _ => {
                if let Some(e) = v.entry
                    && self.is_anothers(r, e)
                {
                    return Err(Skip::UnknownFd);
                }
                v.node = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
                let (slot, _) = self.descriptor(r, fd, r.file)?;
                v.fd = slot;
                let to = v.entry2.map(|e| &self.processes.ofds[e.ofd as usize]);
                if r.shares_equal() && to.is_some_and(|o| !o.takes_clones()) && !self.may_reopen(r.task as usize) {
                    return Err(Skip::NeedsRoot);
                }
                if r.call.clones() || r.call.dedupes() {
                    let (slot2, _) = self.descriptor(r, r.fd2, r.file2)?;
                    v.fd2 = slot2;
                } else if matches!(r.call, Call::Dup2 | Call::Dup3) {
                    v.fd2 = v.entry2.and_then(|e| e.slot.ok()).map_or(BAD_FD, |s| s as i32);
                }
                if r.call == Call::Lseek
                    && (r.aux != 0 || matches!(r.flags as i32, libc::SEEK_DATA | libc::SEEK_HOLE))
                    && v.entry.is_some_and(|e| self.processes.ofds[e.ofd as usize].kind == Kind::Directory)
                {
                    return Err(Skip::DirPosition);
                }
                if r.call.chowns() && !self.privileged {
                    return Err(Skip::NeedsRoot);
                }
                Ok(())
            }
        }
    }

    /// Of a copy between a file and what is not replayed (a pipe, a device, a file elsewhere) the file's side is.
    fn look_at_both_ends(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let end = |fd: i32, file: i64| match self.processes.entry(r.task as usize, fd) {
            // The number is a pipe's by now, say, while the close of what had it before is in flight.
            Some(e) if self.is_other_file(e, file) => {
                Err(self.reel.files.get(&file).and_then(|f| Skip::of_kind(f.kind)).unwrap_or(Skip::UnknownFd))
            }
            _ => self.descriptor(r, fd, file),
        };
        let (from, to) = (end(r.fd, r.file), end(r.fd2, r.file2));
        (v.fd, v.fd2) = match (from, to) {
            (Ok(from), Ok(to)) => (from.0, to.0),
            (Ok(from), Err(_)) if r.ret >= 0 => (from.0, BAD_FD),
            (Err(_), Ok(to)) if r.ret >= 0 => (BAD_FD, to.0),
            (Err(why), _) | (_, Err(why)) => return Err(why),
        };
        // What is not replayed has no place, and no position.
        v.entry = v.entry.filter(|_| v.fd != BAD_FD);
        v.entry2 = v.entry2.filter(|_| v.fd2 != BAD_FD);
        v.node = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
        Ok(())
    }

    fn look_at_paths(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        if r.call.chowns() && !self.privileged {
            return Err(Skip::NeedsRoot);
        }
        if matches!(r.call, Call::Mknod | Call::Mknodat) {
            let kind = r.mode as u32 & libc::S_IFMT;
            if !matches!(kind, 0 | libc::S_IFREG | libc::S_IFIFO) {
                return Err(Skip::DeviceNode);
            }
        }
        self.resolve_names(r, v)?;
        // From one within it goes to the target's root: the recorded one is not there.
        if r.call == Call::Chroot && r.ret >= 0 && self.leaves_root(r, v.node) {
            (v.fd, v.rooted[0]) = (TOP, Some(self.reel.texts.intern(&".".into())));
            return Ok(());
        }
        self.refuse_unreachable(r, v)
    }

    /// Finds the places that the paths of an operation lead to.
    fn resolve_names(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let two = r.call.renames() || r.call.links();
        if r.call.symlinks() {
            let is_cut = |text: &[u8]| text.len() >= MAX_PATH_BYTES && failed_with(r, libc::ENAMETOOLONG);
            if r.path == NONE || is_cut(self.reel.texts.paths.bytes(r.path)) {
                return Err(Skip::NoPath);
            }
        } else {
            let last = if r.call.names_last() { Last::Name } else { Last::File { follow: r.call.follows(r.flags) } };
            match self.name(r, r.dirfd, r.path, last, v) {
                Ok(led) => (v.fd, v.node, v.rooted[0]) = led,
                // The name that a file from outside gets is none that is unknown.
                Err(Skip::Outside) if two => {
                    v.node2 = self.name(r, r.dirfd2, r.path2, Last::Name, v)?.1;
                    return Err(Skip::Outside);
                }
                Err(why) => return Err(why),
            }
            if v.node == NO_NODE && v.entry.is_none() {
                v.entry = self.processes.entry(r.task as usize, r.dirfd);
            }
        }
        if two || r.call.symlinks() {
            (v.fd2, v.node2, v.rooted[1]) = self.name(r, r.dirfd2, r.path2, Last::Name, v)?;
        }
        Ok(())
    }

    /// Refuses places that a replay does not have, or not as they were.
    fn refuse_unreachable(&mut self, r: &Rec, v: &Operands) -> Result<(), Skip> {
        // A place is told nonetheless: where descriptors, working directories and links outside lead is followed.
        if [v.node, v.node2].iter().any(|n| *n != NO_NODE && self.names.area(*n) == Some(Skip::Outside)) {
            return Err(Skip::Outside);
        }
        if r.call.renames()
            && r.ret >= 0
            && v.node != NO_NODE
            && v.node2 != NO_NODE
            && (self.names.is_below(v.node, v.node2) || self.names.is_below(v.node2, v.node))
        {
            return Err(Skip::Impossible);
        }
        for node in [v.node, v.node2] {
            if node == NO_NODE {
                continue;
            }
            let kind = self.names.kind(node);
            let parent = self.names.parent(node);
            if kind == Kind::Foreign || self.names.kind(parent) == Kind::Foreign {
                return Err(Skip::OutOfSight);
            }
            let ours = self.is_ours(node);
            if let Some(why) = Skip::of_kind(kind)
                && (!ours || r.call.opens() && !is_path_only(r))
            {
                return Err(why);
            }
        }
        if v.node != NO_NODE && needs_name(r) && self.names.exists(v.node) == Some(false) && !r.follows {
            return Err(Skip::OutOfSight);
        }
        // What is in it, a socket say, nothing recorded made.
        if v.node != NO_NODE && failed_with(r, libc::ENOTEMPTY) && !r.call.renames() && self.was_left_empty(v.node) {
            return Err(Skip::OutOfSight);
        }
        if r.call.stats()
            && r.ret >= 0
            && let Some(why) = Skip::of_kind(Kind::from_mode(r.mode))
            && !(v.node != NO_NODE && self.names.exists(v.node) == Some(true) && self.is_ours(v.node))
        {
            return Err(why);
        }
        if r.call.opens()
            && r.ret >= 0
            && r.file != NO_ID
            && !(is_path_only(r) && v.node != NO_NODE && self.is_ours(v.node))
            && let Some(why) = self.reel.files.get(&r.file).and_then(|f| Skip::of_kind(f.kind))
        {
            return Err(why);
        }
        Ok(())
    }

    /// What a replay has where the original has it: what the workload made, and FIFOs.
    fn is_ours(&mut self, node: NodeId) -> bool {
        self.names.is_made(node) || self.names.kind(node) == Kind::Fifo
    }

    /// A directory that the workload made, and made nothing in that is still there. False where much had been in it: names that
    /// are gone are looked at one by one.
    fn was_left_empty(&mut self, dir: NodeId) -> bool {
        const FEW: usize = 64;
        let below: Vec<NodeId> = self.names.children_of(dir).take(FEW).collect();
        self.names.exists(dir) == Some(true)
            && self.names.kind(dir) == Kind::Directory
            && self.names.pre(dir) == NO_NODE
            && below.len() < FEW
            && !below.into_iter().any(|n| self.names.exists(n) == Some(true))
    }
}
