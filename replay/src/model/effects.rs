//! Applies results to the model of names, attributes and sizes, and derives what they prove about the initial state.

use crate::{
    Call,
    model::{
        device_nodes::made_by_mknod,
        machine::{Consequence, Machine},
        names::{Kind, NO_NODE, Names, NodeId, ROOT, mounts::Place},
        operands::Operands,
    },
    reel::{
        input::{NO_FD, NO_ID, NONE, Rec},
        record_kind::{changes_names, may_have_lengthened},
    },
};

impl Machine {
    pub(crate) fn names_change(&mut self, r: &Rec, v: &Operands) {
        let (ok, node, node2) = (r.ret >= 0, v.node, v.node2);
        let by_name = node != NO_NODE && (v.entry.is_none() || r.path != NONE);
        if !ok {
            self.names_failed(r, node, node2);
            return;
        }
        if changes_names(r) && !(r.call.opens() && r.aux & 1 == 0) {
            for node in [node, node2].into_iter().filter(|n| *n != NO_NODE) {
                self.consequences.push(Consequence::NameChanged { end_ns: r.end_ns, node });
            }
        }
        for dir in std::mem::take(&mut self.names.crossed) {
            self.names.prove_present(dir, Kind::Directory, None);
        }
        match r.call {
            c if c.opens() && node != NO_NODE => self.opened(r, node),
            Call::Mkdir | Call::Mkdirat => self.made(node, Kind::Directory, None),
            Call::Mknod | Call::Mknodat => {
                self.made(node, made_by_mknod(r), None);
            }
            c if c.symlinks() => {
                let text = self.reel.texts.paths.bytes(r.path).into();
                self.made(node2, Kind::Symlink, Some(text));
            }
            // The new name leads nowhere.
            c if c.links() && node2 == NO_NODE => {}
            c if c.links() => self.linked(v),
            c if c.renames() && node != NO_NODE && node2 != NO_NODE => self.renamed(r, node, node2),
            Call::Unlink | Call::Unlinkat | Call::Rmdir if node != NO_NODE => self.removed(r, node),
            Call::SnapCreate => self.snapshot_taken(v),
            Call::SnapDestroy if node != NO_NODE => self.subvolume_removed(node),
            Call::Chdir | Call::Fchdir if node != NO_NODE => {
                self.names.prove_present(node, Kind::Directory, None);
                let place = self.processes.of(r.task as usize).place;
                let place = &mut self.processes.places[place].value;
                (place.cwd, place.cwd_mount) = (Ok(node), v.mount);
                self.names.shape += 1;
            }
            Call::Chroot if node != NO_NODE => {
                self.names.prove_present(node, Kind::Directory, None);
                self.enters_root(r.task as usize, Place { node, mount: v.mount });
            }
            // A directory that was removed while open lists nothing, which proves nothing about the name.
            c if c.lists() && node != NO_NODE && self.names.exists(node) != Some(false) => {
                self.names.prove_present(node, Kind::Directory, None);
            }
            Call::Readlink | Call::Readlinkat if by_name => {
                // The target of the link was not recorded. Any target of the same length gives the same result.
                let text = vec![b'x'; r.ret.clamp(1, 4095) as usize].into_boxed_slice();
                self.names.prove_present(node, Kind::Symlink, Some(text));
            }
            c if c.stats() && by_name => self.names.prove_present(node, Kind::from_mode(r.mode), None),
            Call::Truncate if by_name => self.names.prove_present(node, Kind::Regular, None),
            _ if by_name => self.names.prove_present(node, Kind::Unknown, None),
            _ => {}
        }
    }

    /// A file got another name, or an unnamed file its first.
    fn linked(&mut self, v: &Operands) {
        let (node, node2) = (v.node, v.node2);
        if node != NO_NODE {
            self.names.prove_present(node, Kind::Regular, None);
        }
        if self.names.exists(node2) != Some(false) {
            self.names.prove_absent(node2);
        }
        let parent = self.names.parent(node2);
        self.names.prove_present(parent, Kind::Directory, None);
        let ofd = v.entry.filter(|_| node == NO_NODE).map(|e| &self.processes.ofds[e.ofd as usize]);
        let file = ofd.map_or_else(|| self.named_files.get(node), |o| Some(o.file).filter(|f| *f != NO_ID));
        let kind = ofd.map_or(Kind::Regular, |o| o.kind);
        let name = if node == NO_NODE { file.and_then(|f| self.named_files.name_of(f)) } else { Some(node) };
        match name {
            Some(name) => self.names.link(name, node2),
            // An unnamed file gets a name.
            None if kind == Kind::Unknown => self.names.make(node2, Kind::Regular, None),
            None => self.names.make(node2, kind, None),
        }
        if let Some(file) = file {
            self.named_files.insert(node2, file);
        }
    }

    /// A name was removed.
    fn removed(&mut self, r: &Rec, node: NodeId) {
        let dir = r.removes_directory();
        self.names.prove_present(node, if dir { Kind::Directory } else { Kind::Unknown }, None);
        self.names.name_left_mounts(node);
        self.forget_file(node);
        let small = !matches!(self.names.kind(node), Kind::Regular | Kind::Unknown);
        if small && self.names.pre(node) == NO_NODE {
            self.sizes.unmade();
        }
        if dir {
            self.left_nameless(node);
        }
        self.names.clear(node);
    }

    fn names_failed(&mut self, r: &Rec, node: NodeId, node2: NodeId) {
        let is = |e: i32| r.ret == -i64::from(e);
        let makes = matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat);
        let exclusive = r.call.opens() && r.flags as i32 & libc::O_EXCL != 0;
        if is(libc::EEXIST) && node != NO_NODE && (makes || exclusive) {
            self.names.prove_present(node, Kind::Unknown, None);
        }
        if is(libc::EEXIST) && node2 != NO_NODE && (r.call.links() || r.call.symlinks()) {
            self.names.prove_present(node2, Kind::Unknown, None);
        }
        if is(libc::ENOTEMPTY) && node != NO_NODE && !r.call.renames() {
            self.names.prove_present(node, Kind::Directory, None);
        }
        if node != NO_NODE && self.names.exists(node).is_none() {
            self.refusal_proves(r, node);
        }
        if is(libc::EACCES) && r.call.stats() && node != NO_NODE && self.privileged {
            self.closed_to_others(node);
        }
        // ENOENT and not ENOTDIR: the deepest ancestor known to exist is a directory. Ancestors of unknown existence
        // may be what was missing.
        if is(libc::ENOENT) && node != NO_NODE && !r.call.renames() && !r.call.links() && self.parents_exist() {
            let mut at = self.names.parent(node);
            while at != ROOT && self.names.exists(at).is_none() {
                at = self.names.parent(at);
            }
            if self.names.exists(at) == Some(true) && self.names.kind(at) == Kind::Unknown {
                self.names.prove_present(at, Kind::Directory, None);
            }
        }
        // Which component is missing is certain only if all but the last exist.
        if is(libc::ENOENT) && node != NO_NODE && !makes && !r.call.renames() && !r.call.links() {
            let parent = self.names.parent(node);
            if self.names.exists(parent) == Some(true) && self.parents_exist() {
                self.names.prove_absent(node);
            }
        }
    }

    /// A failure because of the kind of a file proves that the file exists.
    fn refusal_proves(&mut self, r: &Rec, node: NodeId) {
        let parent = self.names.parent(node);
        let parent_is_there = self.names.exists(parent) == Some(true);
        let above = self.names.parent(parent);
        if r.ret == -i64::from(libc::ENOTDIR)
            && self.names.exists(parent).is_none()
            && self.names.exists(above) == Some(true)
        {
            // A component of the path is not a directory, so it exists.
            return self.names.prove_present(parent, Kind::Regular, None);
        }
        let wants_directory = matches!(r.call, Call::Rmdir | Call::Chdir)
            || r.call.opens() && r.flags as i32 & libc::O_DIRECTORY != 0
            || r.call == Call::Unlinkat && r.flags as i32 & libc::AT_REMOVEDIR != 0;
        let kind = match -r.ret as i32 {
            libc::EINVAL if matches!(r.call, Call::Readlink | Call::Readlinkat) && r.len_bytes > 0 => Kind::Unknown,
            // A path that ends in a slash is refused whether or not the file exists.
            libc::EISDIR if r.call.opens() && r.flags as i32 & libc::O_CREAT != 0 && self.ends_in_slash(r, node) => {
                return;
            }
            libc::EISDIR if r.call.opens() || matches!(r.call, Call::Unlink | Call::Unlinkat | Call::Truncate) => {
                Kind::Directory
            }
            libc::ENODATA | libc::ERANGE if r.call.gets_attribute() => Kind::Unknown,
            libc::ENODATA if r.call.removes_attribute() => Kind::Unknown,
            // ENOTDIR can refer to an earlier component, unless the parent is known to be a directory.
            libc::ENOTDIR if wants_directory && parent_is_there => Kind::Regular,
            _ => return,
        };
        self.names.prove_present(node, kind, None);
    }

    /// Whether the path ends in a slash, or may lead through a symbolic link whose target does.
    fn ends_in_slash(&self, r: &Rec, node: NodeId) -> bool {
        let path = self.reel.texts.paths.bytes(r.path);
        path.rsplit(|b| *b == b'/').next().is_none_or(|last| last.is_empty() || last != self.names.name_of(node))
    }

    /// A user other than root was denied search permission in a directory above `node`. If all of these are unknown,
    /// the topmost unknown one gets mode 0700.
    fn closed_to_others(&mut self, node: NodeId) {
        let mut first = None;
        let mut at = self.names.parent(node);
        while at != ROOT {
            if self.names.exists(at).is_none() {
                first = Some(at);
            }
            at = self.names.parent(at);
        }
        if let Some(first) = first {
            self.names.prove_present(first, Kind::Directory, None);
            let pre = self.names.pre(first);
            self.sizes.mode_seen(pre, 0o700);
        }
    }

    fn opened(&mut self, r: &Rec, node: NodeId) {
        let created = r.aux & 1 != 0;
        let flags = r.flags as i32;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            self.names.prove_present(node, Kind::Directory, None);
            self.sizes.opened(r.file, NO_NODE, true);
            return;
        }
        if created {
            self.made(node, Kind::Regular, None);
        } else {
            let kind = self.reel.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind);
            let kind = if kind == Kind::Unknown && flags & libc::O_DIRECTORY != 0 { Kind::Directory } else { kind };
            self.names.prove_present(node, kind, None);
        }
        if r.file == NO_ID && flags & libc::O_ACCMODE != libc::O_RDONLY {
            // What is written cannot be followed.
            self.names.set(node, |t| t.len_bytes = Some(NO_ID));
        }
        if r.file != NO_ID {
            let pre = self.names.pre(node);
            self.file_opened(r.file, pre, created);
            if self.keep_keys && self.names.set_of(node).content_copied && self.named_files.get(node).is_none() {
                self.keys.copied.insert(r.file);
            }
            if let Some(len_bytes) = self.names.set_of(node).len_bytes.filter(|n| !created && *n != NO_ID) {
                // Nothing had it open when its length was set.
                self.sizes.truncated(r.file, len_bytes);
                self.names.set(node, |t| t.len_bytes = None);
            }
            let seen = self.reel.files.get(&r.file).and_then(|f| f.size_bytes);
            if let Some(size) = seen.filter(|_| !created && flags & libc::O_TRUNC == 0) {
                self.sizes.size_seen(pre, Some(r.file), size);
            }
            self.named_files.insert(node, r.file);
            if flags & libc::O_TRUNC != 0 || r.call == Call::Creat {
                self.sizes.truncated(r.file, 0);
            }
        }
    }

    fn made(&mut self, node: NodeId, kind: Kind, target: Option<Box<[u8]>>) {
        if node == NO_NODE {
            return;
        }
        if self.names.exists(node) != Some(false) {
            self.names.prove_absent(node);
        }
        let parent = self.names.parent(node);
        self.names.prove_present(parent, Kind::Directory, None);
        self.named_files.remove(node);
        self.names.make(node, kind, target);
        if kind != Kind::Regular {
            self.sizes.made();
        }
    }

    pub(crate) fn renamed(&mut self, r: &Rec, from: NodeId, to: NodeId) {
        self.names.prove_present(from, Kind::Unknown, None);
        if self.names.same_file(from, to) {
            // POSIX: renaming one hard link to another of the same file does nothing.
            return self.names.prove_present(to, Kind::Unknown, None);
        }
        if r.flags & i64::from(libc::RENAME_EXCHANGE) != 0 {
            self.names.prove_present(to, Kind::Unknown, None);
            let (a, b) = (self.named_files.lift(&self.names, from), self.named_files.lift(&self.names, to));
            self.names.exchange(from, to);
            self.lower(a, from, to);
            self.lower(b, to, from);
        } else {
            let parent = self.names.parent(to);
            self.names.prove_present(parent, Kind::Directory, None);
            if r.flags & i64::from(libc::RENAME_NOREPLACE) != 0 && self.names.exists(to) != Some(false) {
                self.names.prove_absent(to);
            }
            let files = self.named_files.lift(&self.names, from);
            self.names.name_left_mounts(to);
            self.forget_file(to);
            if self.names.kind(from) == Kind::Directory {
                self.left_nameless(to);
            }
            self.names.rename(from, to);
            self.lower(files, from, to);
            if r.flags & i64::from(libc::RENAME_WHITEOUT) != 0 {
                self.names.make(from, Kind::Device, None);
            }
        }
        let exchange = r.flags & i64::from(libc::RENAME_EXCHANGE) != 0;
        let mounted = self.names.mounts.use_node(from) || self.names.mounts.use_node(to);
        let names = &mut self.names;
        let mut may_hold = |n: NodeId| !matches!(names.kind(n), Kind::Regular | Kind::Symlink);
        if may_hold(to) || (exchange && may_hold(from)) || mounted {
            let place_now = |names: &mut Names, n: NodeId| match names.moved(n, from, to) {
                there if there == n && exchange => names.moved(n, to, from),
                there => there,
            };
            self.processes.relocate(|n| place_now(names, n));
            names.relocate_mounts(place_now);
        }
    }

    /// A directory loses its name. Threads whose working directory it is, and descriptors of it, refer to a nameless
    /// directory from now on. A call that fails because the directory is gone must be ordered after this step.
    pub(crate) fn left_nameless(&mut self, node: NodeId) {
        let (names, consequences) = (&mut self.names, &mut self.consequences);
        self.processes.relocate(|n| {
            if n != node && !names.is_below(n, node) {
                return n;
            }
            let gone = names.nameless(names.parent(node));
            consequences.push(Consequence::DirectoryUnnamed { node: gone });
            // What was removed in it earlier has no name there, either.
            if n == node { gone } else { names.nameless(gone) }
        });
    }

    /// Files below `from` are now below `to`.
    fn lower(&mut self, files: Vec<(NodeId, i64)>, from: NodeId, to: NodeId) {
        for (node, file) in files {
            let there = self.names.moved(node, from, to);
            self.named_files.insert(there, file);
        }
    }

    /// Applies changes of extended attributes, and records which name a new file handle stands for.
    pub(crate) fn attributes_change(&mut self, r: &Rec, v: &Operands) {
        if r.ret < 0 {
            return;
        }
        if r.call == Call::NameToHandleAt && r.value != NONE {
            let by_fd = v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node);
            let node = if v.node == NO_NODE { by_fd } else { v.node };
            if node != NO_NODE {
                self.names.shape += 1;
                self.handles.insert(self.reel.texts.paths.bytes(r.value).into(), node);
            }
        }
        self.flags_set |= r.call.sets_flags();
        let (sets, removes) = (r.call.sets_attribute(), r.call.removes_attribute());
        if r.name == NONE || !(sets || removes) {
            return;
        }
        let name = self.reel.texts.paths.bytes(r.name);
        let all = self.set_attributes.entry(self.attributes_of(r, v)).or_default();
        if sets {
            all.insert(name.into());
        } else {
            all.remove(name);
        }
    }

    /// Records what results prove about permission bits. Must run before names change.
    pub(crate) fn modes_seen(&mut self, r: &Rec, v: &Operands) {
        if r.ret < 0 || v.node == NO_NODE {
            return;
        }
        let pre = self.names.pre(v.node);
        match r.call {
            c if c.stats() => self.sizes.mode_seen(pre, r.mode),
            c if c.opens() && r.aux & 1 == 0 => {
                if let Some(mode) = self.reel.files.get(&r.file).and_then(|f| f.mode) {
                    self.sizes.mode_seen(pre, mode);
                }
            }
            Call::Access | Call::Faccessat | Call::Faccessat2 if r.mode & libc::X_OK != 0 => self.sizes.ran(pre),
            // The mode before this change is unknown. Assume 0644, so that a later stat of the new mode does not count.
            Call::Chmod | Call::Fchmod | Call::Fchmodat | Call::Fchmodat2 => self.sizes.mode_seen(pre, 0o644),
            _ => {}
        }
    }

    pub(crate) fn sizes_change(&mut self, r: &Rec, v: &Operands) {
        let ofd = v.entry.map(|e| &self.processes.ofds[e.ofd as usize]);
        if r.ret < 0 {
            if may_have_lengthened(r) {
                let file = if r.file != NO_ID { r.file } else { ofd.map_or(NO_ID, |o| o.file) };
                if file != NO_ID {
                    self.sizes.written_somewhere(file);
                }
            }
            return;
        }
        let regular = ofd.is_some_and(|o| matches!(o.kind, Kind::Regular | Kind::Unknown));
        let appends = regular && ofd.is_some_and(|o| r.appends(o.appends()));
        let file = if r.file != NO_ID { r.file } else { ofd.map_or(NO_ID, |o| o.file) };
        let behind2 = || v.entry2.map_or(NO_ID, |e| self.processes.ofds[e.ofd as usize].file);
        let file2 = if r.file2 != NO_ID { r.file2 } else { behind2() };
        match r.call {
            _ if r.moved_nothing() => {}
            c if c.reads() && regular && r.offset_bytes != NO_ID => {
                self.sizes.read(file, r.offset_bytes, r.len_bytes, r.ret);
            }
            c if c.writes() && appends && r.offset_bytes != NO_ID => {
                self.sizes.appended(file, r.offset_bytes.max(0), r.ret);
            }
            c if c.writes() && r.offset_bytes != NO_ID => self.sizes.wrote(file, r.offset_bytes, r.ret),
            c if c.writes() => self.sizes.written_somewhere(file),
            c if c.copies() => self.copied(r, regular, file, file2),
            c if c.touches() => self.sizes.read(r.file, r.offset_bytes.max(0), 1, 1),
            Call::Mmap if regular && r.offset_bytes != NO_ID && r.len_bytes > 0 => {
                // A mapping reaches at least into the last page of the file.
                self.sizes.read(file, r.offset_bytes, 1, 1);
            }
            c if c.clones() && r.file2 != NO_ID => self.cloned(r, file),
            Call::Ftruncate => self.sizes.truncated(file, r.len_bytes),
            Call::Truncate => {
                let named = if v.magic { Some(file).filter(|f| *f != NO_ID) } else { self.named_files.get(v.node) };
                if let Some(file) = named {
                    self.sizes.truncated(file, r.len_bytes);
                }
            }
            Call::Fallocate => self.allocated(r, file),
            c if c.stats() && Kind::from_mode(r.mode) == Kind::Regular => {
                let node = if r.fd != NO_FD || v.node == NO_NODE {
                    v.entry.map_or(NO_NODE, |e| self.processes.ofds[e.ofd as usize].node)
                } else {
                    v.node
                };
                if node != NO_NODE {
                    let pre = self.names.pre(node);
                    let file = self.named_files.get(node);
                    self.sizes.size_seen(pre, file, r.len_bytes);
                }
            }
            _ => {}
        }
    }

    /// Data was copied from a file (`regular` or not) to another.
    fn copied(&mut self, r: &Rec, regular: bool, file: i64, file2: i64) {
        if regular && r.offset_bytes != NO_ID {
            // A short copy may have other causes than the end of the file.
            self.sizes.read(file, r.offset_bytes, r.ret, r.ret);
        }
        const BLOCK: i64 = crate::model::sizes::BLOCK_BYTES;
        // Where the target shares data between files, this call shares whole blocks (fs/read_write.c).
        let whole = (r.offset_bytes | r.offset2_bytes) & (BLOCK - 1) == 0 && r.offset_bytes >= 0 && r.ret > 0;
        if r.call == Call::CopyFileRange && whole && file2 != NO_ID && self.sizes.shares_data() && file != file2 {
            self.sizes.cloned((file, r.offset_bytes), file2, r.offset2_bytes.max(0), r.ret);
        } else if r.offset2_bytes != NO_ID && file2 != NO_ID {
            self.sizes.copied((file, r.offset_bytes.max(0)), file2, r.offset2_bytes, r.ret);
        } else if file2 != NO_ID {
            self.sizes.written_somewhere(file2);
        }
    }

    /// A file shares data with another (reflink).
    fn cloned(&mut self, r: &Rec, file: i64) {
        let whole = if r.len_bytes == 0 { self.sizes.size(file) } else { None };
        let len = whole.map_or(r.len_bytes, |size| size.saturating_sub(r.offset_bytes));
        self.sizes.read(file, r.offset_bytes, len, len);
        if len > 0 {
            self.sizes.cloned((file, r.offset_bytes.max(0)), r.file2, r.offset2_bytes.max(0), len);
        }
        if r.len_bytes == 0 && self.sizes.exact(file).is_none() {
            self.sizes.written_somewhere(r.file2);
        }
    }

    /// fallocate: space was reserved, or a range was removed or inserted.
    fn allocated(&mut self, r: &Rec, file: i64) {
        let punches = r.mode & !libc::FALLOC_FL_KEEP_SIZE != 0;
        let by = match r.mode {
            libc::FALLOC_FL_COLLAPSE_RANGE => -r.len_bytes,
            libc::FALLOC_FL_INSERT_RANGE => r.len_bytes,
            _ => 0,
        };
        if r.mode & libc::FALLOC_FL_PUNCH_HOLE != 0 {
            self.sizes.punched(file, r.offset_bytes.max(0), r.len_bytes);
        } else if let Some(size) = self.sizes.exact(file).filter(|_| by != 0) {
            self.sizes.truncated(file, size.saturating_add(by).max(0));
        } else if r.mode & libc::FALLOC_FL_ZERO_RANGE != 0 {
            self.sizes.reserved(file, r.offset_bytes.max(0), r.len_bytes, r.mode & 1 != 0);
        } else if !punches {
            self.sizes.reserved(file, r.offset_bytes.max(0), r.len_bytes, r.mode != 0);
        }
    }
}
