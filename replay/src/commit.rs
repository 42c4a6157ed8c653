//! Lets an operation take effect in the model, and adds it to its thread's program.

use crate::{
    Call, Skip,
    input::{NO_FD, NO_ID, NONE, Rec},
    linear::moves_position,
    names::{Kind, NO_NODE, NodeId},
    order::Class,
    plan::{Act, Range},
    planner::Planner,
    procs::Entry,
    view::View,
};

impl Planner {
    /// `kept` is the record in the plan, which learns what only planning can tell.
    pub(crate) fn commit(&mut self, index: u32, r: &Rec, kept: &mut Rec) {
        let task = r.task as usize;
        let u = self.procs.of(task);
        if u.ended {
            return self.skip(Skip::AfterExit);
        }
        if !u.alive {
            self.start_late(task);
        }
        let v = self.view(r);
        let mut call = Act::Call { rec: index, fd: v.fd, fd2: v.fd2, slot: NONE, list: Range::default() };
        let mut skip = v.skip;
        let untouched = matches!(skip, Some(Skip::InFlight | Skip::Unsupported | Skip::ForeignCause));
        if !untouched && let Err(why) = self.descriptors(r, &v, &mut call, kept) {
            skip = skip.or(Some(why));
        }
        if let Some(why) = skip {
            return self.skip(why);
        }
        self.regular[index as usize] = self.is_regular(r, &v);
        // The order is taken before names change: the old meaning of a name is what it waits for.
        self.push(task, call, r.start_ns, |p| p.uses(r, &v, &call));
        self.modes_told(r, &v);
        self.names_change(r, &v);
        self.sizes_change(r, &v);
    }

    fn is_regular(&mut self, r: &Rec, v: &View) -> bool {
        if matches!(r.call, Call::Readlink | Call::Readlinkat) {
            return true;
        }
        // Of a two-file call the source decides: what is read is what there is to write.
        v.entry.is_some_and(|e| matches!(self.procs.ofds[e.ofd as usize].kind, Kind::Regular | Kind::Unknown))
    }

    /// Descriptor tables, positions, mappings. Also done for operations that are not replayed, since what
    /// they open must be known as such.
    fn descriptors(&mut self, r: &Rec, v: &View, call: &mut Act, kept: &mut Rec) -> Result<(), Skip> {
        let task = r.task as usize;
        let Act::Call { slot, list, .. } = call else { return Ok(()) };
        if r.ret < 0 {
            return self.mappings(r, v, call, kept);
        }
        match r.call {
            c if c.opens() => {
                let flags =
                    if c == Call::Creat { libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY } else { r.flags as i32 };
                let mut kind = self.input.files.get(&r.file).map_or(Kind::Unknown, |f| Kind::from_name(&f.kind));
                if kind == Kind::Unknown && flags & libc::O_DIRECTORY != 0 && flags & libc::O_TMPFILE != libc::O_TMPFILE
                {
                    kind = Kind::Directory;
                }
                if kind == Kind::Unknown && v.node != NO_NODE {
                    kind = self.names.kind(v.node);
                }
                let node = if v.node == NO_NODE { crate::names::ROOT } else { v.node };
                let ofd = self.procs.new_ofd(node, r.file, kind, Some(0), flags & libc::O_APPEND != 0);
                let new = match v.skip {
                    None => {
                        *slot = self.procs.new_slot();
                        Ok(*slot)
                    }
                    Some(why) => Err(why),
                };
                self.install(r, r.ret as i32, Entry { slot: new, ofd, cloexec: flags & libc::O_CLOEXEC != 0 });
            }
            Call::Close => {
                let (_, last) = self.procs.remove(task, r.fd);
                self.closed(last);
            }
            Call::CloseRange => {
                if r.flags as u32 & libc::CLOSE_RANGE_UNSHARE != 0 {
                    let copies = self.procs.unshare_table(task);
                    if !copies.is_empty() {
                        let range = self.pair_list(&copies);
                        self.push(task, Act::Unshare(range), i64::MAX, |_| ());
                    }
                }
                let table = self.procs.of(task).table;
                // The numbers are unsigned: -1 as last means all.
                let (from, to) = (r.fd as u32, r.fd2 as u32);
                let hit: Vec<i32> = self.procs.tables[table]
                    .value
                    .keys()
                    .copied()
                    .filter(|f| (from..=to).contains(&(*f as u32)))
                    .collect();
                let mut slots = Vec::new();
                for fd in hit {
                    if r.flags as u32 & libc::CLOSE_RANGE_CLOEXEC != 0 {
                        if let Some(e) = self.procs.tables[table].value.get_mut(&fd) {
                            e.cloexec = true;
                        }
                        continue;
                    }
                    let (old, last) = self.procs.remove(task, fd);
                    slots.extend(old.and_then(|e| e.slot.ok()));
                    self.closed(last);
                }
                *list = self.slot_list(slots);
            }
            c if c.duplicates() => {
                let Some(entry) = v.entry else { return Ok(()) };
                if c != Call::Dup && c != Call::Fcntl && r.fd == r.fd2 {
                    // dup2 of a descriptor onto itself does nothing.
                    *slot = entry.slot.unwrap_or(NONE);
                    return Ok(());
                }
                let cloexec = (c == Call::Fcntl && r.flags == i64::from(libc::F_DUPFD_CLOEXEC))
                    || (c == Call::Dup3 && r.flags as i32 & libc::O_CLOEXEC != 0);
                let new = entry.slot.map(|_| self.procs.new_slot());
                *slot = new.unwrap_or(NONE);
                // A replayed dup2 closes what was there itself.
                let replaces = v.skip.is_none() && matches!(c, Call::Dup2 | Call::Dup3);
                self.put(r, r.ret as i32, Entry { slot: new, ofd: entry.ofd, cloexec }, replaces);
            }
            Call::Lseek => {
                if let Some(e) = v.entry {
                    self.procs.ofds[e.ofd as usize].pos = Some(r.ret);
                }
            }
            _ => {
                if let Some(e) = v.entry.filter(|_| moves_position(r) && r.offset_bytes != NO_ID) {
                    self.procs.ofds[e.ofd as usize].pos = Some(r.offset_bytes.saturating_add(r.ret));
                }
                return self.mappings(r, v, call, kept);
            }
        }
        Ok(())
    }

    fn closed(&mut self, last: Option<i64>) {
        if let Some(file) = last {
            self.sizes.closed(file);
        }
    }

    fn install(&mut self, r: &Rec, fd: i32, entry: Entry) {
        self.put(r, fd, entry, false);
    }

    /// Puts a descriptor into the table. What the model still had there closed out of sight (a close-on-exec
    /// flag set later, a descriptor passed away), so it is closed here too, unless the call does it itself.
    fn put(&mut self, r: &Rec, fd: i32, entry: Entry, replaced_by_call: bool) {
        let (old, last) = self.procs.install(r.task as usize, fd, entry);
        self.closed(last);
        if !replaced_by_call && let Some(Ok(slot)) = old.map(|e| e.slot) {
            let list = self.slot_list([slot]);
            self.push(r.task as usize, Act::Close(list), i64::MAX, |p| p.order.slot(slot, Class::Alone));
        }
    }

    fn mappings(&mut self, r: &Rec, v: &View, call: &mut Act, kept: &mut Rec) -> Result<(), Skip> {
        let Act::Call { slot, fd, .. } = call else { return Ok(()) };
        let maps = self.procs.of(r.task as usize).maps;
        match r.call {
            Call::Mmap if r.ret > 0 => {
                if v.skip.is_none() {
                    *slot = self.map_bytes.len() as u32;
                    self.map_bytes.push(r.len_bytes);
                    self.procs.maps[maps].value.insert(r.ret, (r.len_bytes, *slot));
                }
                Ok(())
            }
            Call::Munmap | Call::Msync => {
                let known = &mut self.procs.maps[maps].value;
                let hit = known.range(..=r.aux).next_back().filter(|(at, (len, _))| r.aux < **at + *len);
                let Some((at, (len, s))) = hit.map(|(at, (len, s))| (*at, (*len, *s))) else {
                    return Err(Skip::NoMapping);
                };
                *fd = s as i32;
                // Where in the mapping it begins.
                kept.offset2_bytes = r.aux - at;
                kept.len_bytes = r.len_bytes.min(at + len - r.aux).max(0);
                if r.call == Call::Munmap && r.ret == 0 && r.aux == at && kept.len_bytes >= len {
                    known.remove(&at);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The resources a step uses.
    fn uses(&mut self, r: &Rec, v: &View, call: &Act) {
        let u = self.procs.of(r.task as usize);
        let shared_table = self.procs.tables[u.table].users > 1;
        let shared_place = self.procs.places[u.place].users > 1;
        let ok = r.ret >= 0;
        if let Act::Call { fd, slot, .. } = *call
            && self.procs.maps[u.maps].users > 1
        {
            // Mapping cells share the number space of descriptor cells from the other end.
            match r.call {
                Call::Mmap if slot != NONE => self.order.slot(!slot, Class::Alone),
                Call::Munmap => self.order.slot(!(fd as u32), Class::Alone),
                Call::Msync => self.order.slot(!(fd as u32), Class::Read),
                _ => {}
            }
        }
        if let Act::Call { fd, fd2, slot, list, .. } = *call
            && shared_table
            && !matches!(r.call, Call::Munmap | Call::Msync)
        {
            let closes = r.call == Call::Close && ok;
            if fd >= 0 {
                self.order.slot(fd as u32, if closes { Class::Alone } else { Class::Read });
            }
            if fd2 >= 0 {
                let replaced = matches!(r.call, Call::Dup2 | Call::Dup3) && ok;
                self.order.slot(fd2 as u32, if replaced { Class::Alone } else { Class::Read });
            }
            if slot != NONE && r.call != Call::Mmap {
                self.order.slot(slot, Class::Alone);
            }
            for s in list.of(&self.lists).to_vec() {
                self.order.slot(s, Class::Alone);
            }
        }
        if shared_place && (v.relative || matches!(r.call, Call::Chdir | Call::Fchdir | Call::Umask)) {
            let class = if ok && matches!(r.call, Call::Chdir | Call::Fchdir | Call::Umask) {
                Class::Alone
            } else {
                Class::Read
            };
            self.order.place(u.place, class);
        }
        if let Some(e) = v.entry {
            let positional =
                moves_position(r) || r.call == Call::Lseek || r.call.lists() || (r.call.copies() && r.aux & 1 != 0);
            if positional {
                self.order.position(e.ofd);
            }
            if r.call.lists() {
                self.order.read_entries(&self.names, self.procs.ofds[e.ofd as usize].node);
            }
        }
        if let Some(e) = v.entry2.filter(|_| r.call.copies() && r.aux & 2 != 0) {
            self.order.position(e.ofd);
        }
        self.uses_of_names(r, v);
        self.uses_of_files(r, v);
    }

    fn uses_of_names(&mut self, r: &Rec, v: &View) {
        let ok = r.ret >= 0;
        let tmpfile = r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        let (mut writes, mut writes2) = (false, false);
        match r.call {
            c if c.opens() => writes = ok && !tmpfile && (r.aux & 1 != 0 || c == Call::Creat && r.aux & 1 != 0),
            Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat => writes = ok,
            Call::Unlink | Call::Unlinkat | Call::Rmdir => writes = ok,
            c if c.renames() => (writes, writes2) = (ok, ok),
            c if c.links() || c.symlinks() => writes2 = ok,
            _ => {}
        }
        let by_name = v.node != NO_NODE && (v.entry.is_none() || r.path != NONE);
        for (node, write) in [(v.node, writes), (v.node2, writes2)] {
            if node == NO_NODE || (node == v.node && !by_name) {
                continue;
            }
            if write {
                self.order.write_name(&self.names, node);
            } else {
                self.order.read_name(&self.names, node);
                if r.ret == -i64::from(libc::ENOTEMPTY) || r.ret == -i64::from(libc::EEXIST) && r.call.renames() {
                    self.order.read_entries(&self.names, node);
                }
            }
        }
    }

    fn uses_of_files(&mut self, r: &Rec, v: &View) {
        let file =
            if r.file != NO_ID { r.file } else { v.entry.map_or(NO_ID, |e| self.procs.ofds[e.ofd as usize].file) };
        if r.ret < 0 {
            return;
        }
        let grows = |p: &Self, file: i64, offset: i64| {
            offset == NO_ID || p.sizes.size(file).is_none_or(|s| s < offset.saturating_add(r.ret))
        };
        if file != NO_ID {
            let class = match r.call {
                c if c.reads() => Some(Class::Read),
                c if c.writes() => {
                    let append = v.entry.is_some_and(|e| self.procs.ofds[e.ofd as usize].append);
                    if append || grows(self, file, r.offset_bytes) { Some(Class::Add) } else { Some(Class::Read) }
                }
                c if c.copies() => Some(Class::Read),
                c if c.opens() && (r.flags as i32 & libc::O_TRUNC != 0 || c == Call::Creat) => Some(Class::Alone),
                Call::Ftruncate | Call::Fallocate => Some(Class::Alone),
                Call::Lseek if r.flags == i64::from(libc::SEEK_END) => Some(Class::Read),
                _ => None,
            };
            if let Some(class) = class {
                self.order.file(file, class);
            }
        }
        if r.call.copies() && r.file2 != NO_ID {
            let class = if grows(self, r.file2, r.offset2_bytes) { Class::Add } else { Class::Read };
            self.order.file(r.file2, class);
        }
        if r.call == Call::Truncate
            && let Some(file) = self.file_at.get(&v.node).copied()
        {
            self.order.file(file, Class::Alone);
        }
    }

    fn names_change(&mut self, r: &Rec, v: &View) {
        let (ok, node, node2) = (r.ret >= 0, v.node, v.node2);
        let by_name = node != NO_NODE && (v.entry.is_none() || r.path != NONE);
        if !ok {
            self.names_failed(r, node, node2);
            return;
        }
        match r.call {
            c if c.opens() && node != NO_NODE => self.opened(r, node),
            Call::Mkdir | Call::Mkdirat => self.made(node, Kind::Directory, None),
            Call::Mknod | Call::Mknodat => {
                let kind = if r.mode as u32 & libc::S_IFMT == libc::S_IFIFO { Kind::Fifo } else { Kind::Regular };
                self.made(node, kind, None);
            }
            c if c.symlinks() => {
                let text = self.input.paths.bytes(r.path).into();
                self.made(node2, Kind::Symlink, Some(text));
            }
            c if c.links() => {
                if node != NO_NODE {
                    self.names.prove_present(node, Kind::Regular, None);
                }
                if self.names.exists(node2) != Some(false) {
                    self.names.prove_absent(node2);
                }
                if node != NO_NODE {
                    self.names.link(node, node2);
                    if let Some(file) = self.file_at.get(&node).copied() {
                        self.file_at.insert(node2, file);
                        *self.more_names.entry(file).or_default() += 1;
                    }
                } else {
                    self.names.make(node2, Kind::Regular, None);
                }
            }
            c if c.renames() && node != NO_NODE && node2 != NO_NODE => self.renamed(r, node, node2),
            Call::Unlink | Call::Unlinkat | Call::Rmdir if node != NO_NODE => {
                let dir = r.call == Call::Rmdir || r.flags as i32 & libc::AT_REMOVEDIR != 0;
                self.names.prove_present(node, if dir { Kind::Directory } else { Kind::Unknown }, None);
                self.forget_file(node);
                self.names.clear(node);
            }
            Call::Chdir | Call::Fchdir if node != NO_NODE => {
                self.names.prove_present(node, Kind::Directory, None);
                let place = self.procs.of(r.task as usize).place;
                self.procs.places[place].value.cwd = Ok(node);
            }
            Call::Readlink | Call::Readlinkat if by_name => {
                // Its text was not recorded: any of the same length reads alike.
                let text = vec![b'x'; r.ret.clamp(1, 4095) as usize].into_boxed_slice();
                self.names.prove_present(node, Kind::Symlink, Some(text));
            }
            c if c.stats() && by_name => self.names.prove_present(node, Kind::from_mode(r.mode), None),
            Call::Truncate if by_name => self.names.prove_present(node, Kind::Regular, None),
            _ if by_name => self.names.prove_present(node, Kind::Unknown, None),
            _ => {}
        }
    }

    fn names_failed(&mut self, r: &Rec, node: NodeId, node2: NodeId) {
        let is = |e: i32| r.ret == -i64::from(e);
        let makes = matches!(r.call, Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat);
        let exclusive = r.call.opens() && r.flags as i32 & libc::O_EXCL != 0;
        if is(libc::EEXIST) && node != NO_NODE && (makes || exclusive) {
            let kind = if matches!(r.call, Call::Mkdir | Call::Mkdirat) { Kind::Unknown } else { Kind::Unknown };
            self.names.prove_present(node, kind, None);
        }
        if is(libc::EEXIST) && node2 != NO_NODE && (r.call.links() || r.call.symlinks()) {
            self.names.prove_present(node2, Kind::Unknown, None);
        }
        if is(libc::ENOTEMPTY) && node != NO_NODE && !r.call.renames() {
            self.names.prove_present(node, Kind::Directory, None);
        }
        // Which component is missing is only certain when all but the last are there.
        if is(libc::ENOENT) && node != NO_NODE && !makes && !r.call.renames() && !r.call.links() {
            let parent = self.names.parent(node);
            if self.names.exists(parent) == Some(true) {
                self.names.prove_absent(node);
            }
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
            let kind = self.input.files.get(&r.file).map_or(Kind::Unknown, |f| Kind::from_name(&f.kind));
            let kind = if kind == Kind::Unknown && flags & libc::O_DIRECTORY != 0 { Kind::Directory } else { kind };
            self.names.prove_present(node, kind, None);
        }
        if r.file != NO_ID {
            let pre = self.names.pre(node);
            self.sizes.opened(r.file, pre, created);
            let seen = self.input.files.get(&r.file).and_then(|f| f.size_bytes);
            if let Some(size) = seen.filter(|_| !created && flags & libc::O_TRUNC == 0) {
                self.sizes.told(pre, Some(r.file), size);
            }
            self.file_at.insert(node, r.file);
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
        self.file_at.remove(&node);
        self.names.make(node, kind, target);
        if kind != Kind::Regular {
            self.sizes.made();
        }
    }

    fn renamed(&mut self, r: &Rec, from: NodeId, to: NodeId) {
        self.names.prove_present(from, Kind::Unknown, None);
        if r.flags & i64::from(libc::RENAME_EXCHANGE) != 0 {
            self.names.prove_present(to, Kind::Unknown, None);
            self.names.exchange(from, to);
            let (a, b) = (self.file_at.remove(&from), self.file_at.remove(&to));
            self.file_at.extend(a.map(|f| (to, f)).into_iter().chain(b.map(|f| (from, f))));
        } else {
            let parent = self.names.parent(to);
            self.names.prove_present(parent, Kind::Directory, None);
            if r.flags & i64::from(libc::RENAME_NOREPLACE) != 0 && self.names.exists(to) != Some(false) {
                self.names.prove_absent(to);
            }
            let file = self.file_at.remove(&from);
            self.forget_file(to);
            self.names.rename(from, to);
            self.file_at.extend(file.map(|f| (to, f)));
        }
        if !matches!(self.names.kind(to), Kind::Regular | Kind::Symlink) {
            let names = &mut self.names;
            self.procs.relocate(|n| names.moved(n, from, to));
        }
    }

    /// What results say of permission bits; before names change.
    fn modes_told(&mut self, r: &Rec, v: &View) {
        if r.ret < 0 || v.node == NO_NODE {
            return;
        }
        let pre = self.names.pre(v.node);
        match r.call {
            c if c.stats() => self.sizes.told_mode(pre, r.mode),
            c if c.opens() && r.aux & 1 == 0 => {
                if let Some(mode) = self.input.files.get(&r.file).and_then(|f| f.mode) {
                    self.sizes.told_mode(pre, mode);
                }
            }
            Call::Access | Call::Faccessat | Call::Faccessat2 if r.mode & libc::X_OK != 0 => self.sizes.ran(pre),
            // What it was before nobody asked: not this.
            Call::Chmod | Call::Fchmod | Call::Fchmodat | Call::Fchmodat2 => self.sizes.told_mode(pre, 0o644),
            _ => {}
        }
    }

    fn sizes_change(&mut self, r: &Rec, v: &View) {
        if r.ret < 0 {
            return;
        }
        let regular =
            v.entry.is_some_and(|e| matches!(self.procs.ofds[e.ofd as usize].kind, Kind::Regular | Kind::Unknown));
        let file =
            if r.file != NO_ID { r.file } else { v.entry.map_or(NO_ID, |e| self.procs.ofds[e.ofd as usize].file) };
        match r.call {
            c if c.reads() && regular && r.offset_bytes != NO_ID => {
                self.sizes.read(file, r.offset_bytes, r.len_bytes, r.ret);
            }
            c if c.writes() && r.offset_bytes != NO_ID => self.sizes.wrote(file, r.offset_bytes, r.ret),
            c if c.copies() => {
                if regular && r.offset_bytes != NO_ID {
                    // A short copy may have other causes than the end of the file.
                    self.sizes.read(file, r.offset_bytes, r.ret, r.ret);
                }
                if r.offset2_bytes != NO_ID && r.file2 != NO_ID {
                    self.sizes.wrote(r.file2, r.offset2_bytes, r.ret);
                }
            }
            Call::Mmap if regular && r.offset_bytes != NO_ID && r.len_bytes > 0 => {
                // A mapping reaches into the file's last page at least.
                self.sizes.read(file, r.offset_bytes, 1, 1);
            }
            Call::Ftruncate => self.sizes.truncated(file, r.len_bytes),
            Call::Truncate => {
                if let Some(file) = self.file_at.get(&v.node).copied() {
                    self.sizes.truncated(file, r.len_bytes);
                }
            }
            Call::Fallocate => {
                let punches = r.mode & !libc::FALLOC_FL_KEEP_SIZE != 0;
                if !punches {
                    self.sizes.reserved(file, r.offset_bytes.max(0), r.len_bytes, r.mode != 0);
                }
            }
            c if c.stats() && Kind::from_mode(r.mode) == Kind::Regular => {
                let node = if r.fd != NO_FD || v.node == NO_NODE {
                    v.entry.map_or(NO_NODE, |e| self.procs.ofds[e.ofd as usize].node)
                } else {
                    v.node
                };
                if node != NO_NODE {
                    let pre = self.names.pre(node);
                    let file = self.file_at.get(&node).copied();
                    self.sizes.told(pre, file, r.len_bytes);
                }
            }
            _ => {}
        }
    }

    fn start_late(&mut self, task: usize) {
        // Its birth was not seen: it begins like a thread that the recording began with.
        self.start_root(task);
    }
}
