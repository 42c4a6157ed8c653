//! Resolves the operands of a recorded operation (descriptors, paths) in the model, and decides whether it is replayed.

use crate::{
    Call, Skip,
    base::{ids::Words, privileges::is_privileged_attribute},
    model::{
        access_lists,
        attributes::AttributesOf,
        machine::Machine,
        names::{
            Kind, NO_NODE, NodeId, ROOT,
            mounts::{INITIAL, MountId},
        },
        processes::{Entry, clone},
    },
    reel::input::{NO_FD, NO_ID, NONE, Rec},
    reel::record_kind::{failed_with, may_have_lengthened},
};

/// Instead of a slot: no valid descriptor, the call must fail with EBADF.
pub const BAD_FD: i32 = -1;
/// Instead of a slot: the working directory.
pub const CWD: i32 = libc::AT_FDCWD;
/// Instead of a slot: the root of the target, used by a thread with another root directory for a place that is not
/// below that.
pub const TOP: i32 = -2;

/// Operands of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// Slot of `fd`, or of the directory that `path` starts from.
    pub(crate) fd: i32,
    /// Slot of `fd2`, or of the directory that `path2` starts from.
    pub(crate) fd2: i32,
    /// The descriptor table entry of `fd`.
    pub(crate) entry: Option<Entry>,
    /// The descriptor table entry of `fd2`.
    pub(crate) entry2: Option<Entry>,
    /// Where `path` leads (for a symlink: its name).
    pub(crate) node: NodeId,
    /// The mount that `path` leads into, or `fd` was opened in.
    pub(crate) mount: MountId,
    /// Where `path2` leads.
    pub(crate) node2: NodeId,
    /// Depends on the working directory.
    pub(crate) relative: bool,
    /// `path` is a link of /proc to an open descriptor, whose slot is `fd`.
    pub(crate) magic: bool,
    /// Substitutes for `path` and `path2`, which start at or pass through something outside the roots, or a link of
    /// /proc. Index in the input's texts, valid until these are dropped.
    pub(crate) rooted: [Option<u32>; 2],
    /// Why it is not replayed.
    pub(crate) skip: Option<Skip>,
}

/// How a call uses the last component of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Last {
    /// As a name to create, move or remove: a symbolic link is never followed, even with a trailing `/`.
    Name,
    /// As the file with that name: a link is followed if `follow` is set, or with a trailing `/`.
    File { follow: bool },
}

/// The call that has the same effect on a descriptor with an empty path. It replaces paths through /proc, which the
/// replay does not have.
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

/// Whether the result proves that `path` led to something existing.
fn needs_name(r: &Rec) -> bool {
    let makes = matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat);
    r.ret >= 0 && !makes && !(r.call.opens() && r.aux & 1 != 0)
}

/// Whether it changes attributes of the target directory, which belong to the user of the replay.
fn changes_target_directory(r: &Rec, v: &Operands) -> bool {
    let sets_attribute = r.call.sets_attribute() || r.call.removes_attribute();
    let changes = r.call.chmods() || r.call.chowns() || r.call.sets_flags() || sets_attribute;
    changes && v.node == ROOT && r.ret >= 0
}

/// An open with O_PATH: it blocks on nothing.
fn is_path_only(r: &Rec) -> bool {
    r.flags as i32 & libc::O_PATH != 0
}

impl Operands {
    /// Operands of an operation that refers to nothing.
    pub(crate) fn none() -> Self {
        Self {
            fd: CWD,
            fd2: CWD,
            entry: None,
            entry2: None,
            node: NO_NODE,
            mount: INITIAL,
            node2: NO_NODE,
            relative: false,
            magic: false,
            rooted: [None; 2],
            skip: None,
        }
    }
}

impl Machine {
    /// Resolves the operands of an operation against the current model.
    pub(crate) fn operands(&mut self, r: &Rec) -> Operands {
        let mut v = Operands::none();
        let skip =
            self.look(r, &mut v).err().or_else(|| changes_target_directory(r, &v).then_some(Skip::TargetDirectory));
        v.skip = if r.in_flight {
            Some(Skip::InFlight)
        } else if r.call == Call::Other {
            Some(Skip::Unsupported)
        } else {
            // Where an operation happened is the better reason: EAGAIN is normal on a pipe, for example.
            let refused = r.call.locks() && failed_with(r, libc::EAGAIN) && self.is_refused(r, &v);
            let foreign = Skip::foreign_cause(r.ret) && !refused
                // The target may support what the original file system did not.
                || failed_with(r, libc::EOPNOTSUPP) || failed_with(r, libc::ENOTTY) && r.call != Call::Tcgets
                || r.call.locks() && failed_with(r, libc::EDEADLK)
                // Scaled files are never opened for appending, which some calls refuse.
                || (r.call.copies() || r.call.clones()) && !self.footprint.is_none()
                    && (failed_with(r, libc::EBADF) || failed_with(r, libc::EINVAL) && self.appends_to(&v))
                || (r.call.reads() || r.call.writes()) && failed_with(r, libc::EINVAL) && self.is_direct(&v)
                // A 32-bit program without large-file support.
                || r.call == Call::Ftruncate && failed_with(r, libc::EINVAL) && r.len_bytes > i32::MAX.into();
            let foreign = foreign.then_some(match may_have_lengthened(r) {
                true => Skip::PartlyReserved,
                false => Skip::ForeignCause,
            });
            skip.or(foreign).or(self.refused_to_other(r, &v).then_some(Skip::OtherUser))
        };
        v
    }

    /// Whether its descriptor is open for direct I/O.
    pub(crate) fn is_direct(&self, v: &Operands) -> bool {
        v.entry.is_some_and(|e| self.processes.ofds[e.ofd as usize].flags & libc::O_DIRECT != 0)
    }

    /// Whether the destination of a copy is open for appending.
    fn appends_to(&self, v: &Operands) -> bool {
        v.entry2.is_some_and(|e| self.processes.ofds[e.ofd as usize].appends())
    }

    /// Whether a failure was due to credentials that the reel does not contain. Root is only denied executing files
    /// without execute bits, and changes that inode flags forbid. So a task that the reel has as root, and that was
    /// denied something else, had changed its user or dropped capabilities.
    fn refused_to_other(&mut self, r: &Rec, v: &Operands) -> bool {
        let is_root = self.processes.of(r.task as usize).who.words() == Words::default();
        // Without root, the replay does not change users.
        let privileged = self.privileged;
        let root = if privileged { is_root } else { self.users_change && !is_root || self.flags_left_out };
        let asks_to_execute = matches!(r.call, Call::Access | Call::Faccessat | Call::Faccessat2)
            && r.mode & libc::X_OK != 0
            && (v.node == NO_NODE || self.names.exists(v.node) == Some(true));
        let of_owners = r.call.chowns() || r.call.changes_access() && !self.flags_set;
        // Without root, all files belong to the user of the replay and have no such flags.
        let forbidden = failed_with(r, libc::EPERM) && (of_owners || !privileged);
        root && (failed_with(r, libc::EACCES) && !asks_to_execute || forbidden)
    }

    /// Whether it sets an attribute that gives privileges, or its result shows that one existed.
    fn depends_on_privileged_attribute(&self, r: &Rec) -> bool {
        let one = r.call.sets_attribute() || r.call.gets_attribute() || r.call.removes_attribute();
        let there = r.call.sets_attribute() || r.ret >= 0 || failed_with(r, libc::ERANGE);
        one && there && r.name != NONE && is_privileged_attribute(self.reel.texts.paths.bytes(r.name))
    }

    /// Why a call is not replayed, whatever its operands are.
    fn refused(&self, r: &Rec) -> Option<Skip> {
        if r.call.sets_attribute() && r.value == NONE {
            return Some(Skip::NoValue);
        }
        if self.names_unknown_users(r) {
            return Some(Skip::MappedUser);
        }
        if !self.privileged && (r.call.chowns() || r.call.sets_user() || self.needs_root(r)) {
            return Some(Skip::NeedsRoot);
        }
        if r.call == Call::SnapDestroy && (r.ret < 0 || !self.privileged) {
            return Some(if r.ret < 0 { Skip::ForeignCause } else { Skip::NeedsRoot });
        }
        if !self.set_ids && self.depends_on_privileged_attribute(r) {
            return Some(Skip::PrivilegedAttribute);
        }
        // The invalid number of nanoseconds was not recorded.
        if r.call.sets_times() && failed_with(r, libc::EINVAL) {
            return Some(Skip::NoValue);
        }
        let why = if self.privileged { Skip::DeviceNode } else { Skip::NeedsRoot };
        self.leaves_node_out(r).then_some(why)
    }

    fn look(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let refused = self.refused(r);
        if let Some(why) = refused.filter(|_| r.call.sets_user()) {
            return Err(why);
        }
        match r.call {
            Call::OpenByHandleAt => return self.look_at_handle(r, v),
            Call::SnapCreate => return self.look_at_snapshot(r, v),
            _ => {}
        }
        let path_call = match r.call {
            Call::Close | Call::CloseRange | Call::Umask => false,
            c if c.on_mapping() || c.touches() => false,
            Call::Utimensat | Call::Futimesat | Call::Statx if r.path == NONE => false,
            c => self.takes_path(c),
        };
        // What is refused has operands all the same: its effect on the recorded tree is followed.
        if path_call { self.look_at_paths(r, v) } else { self.look_at_fds(r, v) }?;
        refused.map_or(Ok(()), Err)?;
        // The kernel also removes an access list that is not there.
        let removes = r.call.removes_attribute() && !self.names_access_list(r);
        let gets = r.call.gets_attribute() || removes;
        let must_be_there = gets || r.call.sets_attribute() && r.aux & i64::from(libc::XATTR_REPLACE) != 0;
        let shows = r.ret >= 0 && must_be_there || failed_with(r, libc::ERANGE) || failed_with(r, libc::EEXIST);
        if r.name != NONE && shows && !r.call.is_request() && !self.has_attribute(r, v) {
            return Err(Skip::NoValue);
        }
        Ok(())
    }

    /// Whether it sets attributes or flags that only root may set.
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

    /// The file whose extended attributes a call uses.
    pub(crate) fn attributes_of(&self, r: &Rec, v: &Operands) -> AttributesOf {
        let by_fd = v.entry.filter(|_| v.node == NO_NODE || r.path == NONE);
        match by_fd.map(|e| self.processes.ofds[e.ofd as usize].file).filter(|f| *f != NO_ID) {
            Some(file) => AttributesOf::File(file),
            None => self.named_files.get(v.node).map_or(AttributesOf::Place(v.node), AttributesOf::File),
        }
    }

    fn names_access_list(&self, r: &Rec) -> bool {
        r.name != NONE && access_lists::is_list(self.reel.texts.paths.bytes(r.name))
    }

    fn has_attribute(&mut self, r: &Rec, v: &Operands) -> bool {
        let by_fd = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
        let node = if v.node == NO_NODE { by_fd } else { v.node };
        let pre = if node == NO_NODE { NO_NODE } else { self.names.pre(node) };
        let name = self.reel.texts.paths.bytes(r.name);
        if self.attributes.get(&pre).is_some_and(|all| all.contains_key(name)) {
            return true;
        }
        self.set_attributes.get(&self.attributes_of(r, v)).is_some_and(|all| all.contains(name))
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
                    | Call::SnapDestroy
            )
    }

    /// The slot of a descriptor. A call that failed with EBADF gets an invalid descriptor again.
    pub(crate) fn descriptor(&self, r: &Rec, fd: i32, file: i64) -> Result<(i32, Option<Entry>), Skip> {
        match self.processes.entry(r.task as usize, fd) {
            Some(e) => e.slot.map(|s| (s as i32, Some(e))),
            None if failed_with(r, libc::EBADF) => Ok((BAD_FD, None)),
            None => Err(self.reel.files.get(&file).and_then(|f| Skip::of_kind(f.kind)).unwrap_or(Skip::UnknownFd)),
        }
    }

    /// Whether the descriptor already belongs to another file. A close in flight may have freed the number, and the
    /// call that reused it may not be replayed.
    fn is_anothers(&self, r: &Rec, e: Entry) -> bool {
        r.call != Call::Close && self.is_other_file(e, r.file)
    }

    /// Whether a descriptor is known to belong to a file other than `file`.
    fn is_other_file(&self, e: Entry, file: i64) -> bool {
        let opened = self.processes.ofds[e.ofd as usize].file;
        opened != NO_ID && file != NO_ID && opened != file
    }

    fn look_at_fds(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let fd = if r.fd == NO_FD { r.dirfd } else { r.fd };
        v.entry = self.processes.entry(r.task as usize, fd);
        v.entry2 = self.processes.entry(r.task as usize, r.fd2);
        match r.call {
            // The replay manages namespaces itself.
            Call::Unshare if r.flags & !(clone::FILES | clone::FS) != 0 => Err(Skip::NameSpace),
            Call::Unshare => Ok(()),
            Call::Umask | Call::Sync => Ok(()),
            Call::Getcwd => {
                v.relative = true;
                let place = self.processes.places[self.processes.of(r.task as usize).place].value;
                // With another root directory, getcwd returns another path.
                if place.root != place.own_root { Err(Skip::Outside) } else { place.cwd.map(|_| ()) }
            }
            Call::Setgroups if r.aux > 0 && r.value == NONE => Err(Skip::NoValue),
            c if c.sets_user() => Ok(()),
            // Resolved in [`super::mappings`].
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
                if let Some(ofd) = v.entry.map(|e| &self.processes.ofds[e.ofd as usize]) {
                    (v.node, v.mount) = (ofd.node, ofd.mount);
                }
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
                Ok(())
            }
        }
    }

    /// For a copy between a file and something not replayed (pipe, device, file outside), only the file's side is
    /// replayed.
    fn look_at_both_ends(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let end = |fd: i32, file: i64| match self.processes.entry(r.task as usize, fd) {
            // The number may already belong to a pipe, for example, while the close of its former file is in flight.
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
        // The end that is not replayed has no name and no position.
        v.entry = v.entry.filter(|_| v.fd != BAD_FD);
        v.entry2 = v.entry2.filter(|_| v.fd2 != BAD_FD);
        v.node = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
        Ok(())
    }

    fn look_at_paths(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        self.resolve_names(r, v)?;
        // From a root directory inside the roots, the thread goes to the target's root: the recorded root does not
        // exist there.
        if r.call == Call::Chroot && r.ret >= 0 && self.leaves_root(r, v.node) {
            (v.fd, v.rooted[0]) = (TOP, Some(self.reel.texts.intern(&".".into())));
            return Ok(());
        }
        self.refuse_unreachable(r, v)
    }

    /// Resolves the paths of an operation.
    fn resolve_names(&mut self, r: &Rec, v: &mut Operands) -> Result<(), Skip> {
        let two = r.call.renames() || r.call.links();
        if r.call.symlinks() {
            if r.path == NONE {
                return Err(Skip::NoPath);
            }
            self.whole_path(r, self.reel.texts.paths.bytes(r.path))?;
        } else {
            let last = if r.call.names_last() { Last::Name } else { Last::File { follow: r.call.follows(r.flags) } };
            self.names.mounts.led = None;
            let led = self.name(r, r.dirfd, r.path, last, v);
            let by_descriptor = v.entry.map_or(INITIAL, |e| self.processes.ofds[e.ofd as usize].mount);
            v.mount = self.names.mounts.led.map_or(by_descriptor, |place| place.mount);
            match led {
                Ok(led) => (v.fd, v.node, v.rooted[0]) = led,
                // Resolve the new name of a file from outside, so that its existence is known.
                Err(why) if two && why.is_elsewhere() => {
                    v.node2 = self.name(r, r.dirfd2, r.path2, Last::Name, v)?.1;
                    return Err(why);
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

    /// Skips operations on names that the replay does not have, or not as recorded.
    pub(crate) fn refuse_unreachable(&mut self, r: &Rec, v: &Operands) -> Result<(), Skip> {
        // Operands outside stay resolved: descriptors, working directories and links there are followed.
        let areas = [v.node, v.node2].map(|n| if n == NO_NODE { None } else { self.names.area(n) });
        if let Some(why) = areas.into_iter().flatten().find(|why| why.is_elsewhere()) {
            return Err(why);
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
        // Something not recorded created an entry in it, a socket for example.
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

    /// Whether the workload created this directory and removed all it created in it. False for directories with many
    /// former entries, because each must be checked.
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
