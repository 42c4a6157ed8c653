//! Lets an operation take effect in the model, and adds it to its thread's program.

use crate::{
    Call, Skip,
    model::{
        names::{Kind, NO_NODE},
        processes::{Entry, Mapped, clone},
    },
    plan::{
        dependencies::Class,
        operands::{View, through_descriptor},
        overlap::moves_position,
        planner::Planner,
        program::{Act, Range},
        races::only_looks,
        requests::is_of_table,
    },
    reel::{
        input::{NO_ID, NONE, Rec},
        submission::{Phase, Via},
    },
};

/// Mappings end with their last page.
const PAGE_BYTES: i64 = 4096;

impl Planner {
    /// The record in the plan learns what only planning can tell.
    pub(crate) fn commit(&mut self, r: &Rec) {
        let task = r.task as usize;
        let u = self.procs.of(task);
        if u.ended {
            return self.skip(Skip::AfterExit);
        }
        if !u.alive {
            // Its birth was not seen: it begins like a thread that the recording began with.
            self.start_root(task);
        }
        self.flowed(r);
        self.names.crossed.clear();
        self.names.passed.clear();
        let mut kept = r.clone();
        let kept = &mut kept;
        let submitted = if r.phase == Phase::Ended { self.ended(r) } else { None };
        let was_submitted = submitted.is_some();
        let alone = !was_submitted && r.via != Via::Call;
        if alone && !self.silent {
            self.outside_table(kept);
        }
        if submitted.is_none() && !(alone && self.silent) {
            (kept.via, kept.phase) = (Via::Call, Phase::Whole);
        }
        let mut v = match submitted {
            Some(v) => v,
            None if alone && (self.silent || !is_of_table(r)) => self.view_of_request(&mut r.clone()),
            None => self.view(kept),
        };
        // What cancelled it is not in the plan.
        if alone && r.ret == -i64::from(libc::ECANCELED) {
            v.skip = v.skip.or(Some(Skip::ForeignCause));
        }
        if v.skip == Some(Skip::NoValue) && self.proves_attribute(r, &v) {
            v = self.view(r);
        }
        self.misses_attribute(r, &v);
        if v.skip.is_none() && self.lost_race(r, &v) {
            kept.raced = true;
            // What it would do here nobody did. A request is on its way already.
            v.skip = (!was_submitted && !only_looks(r)).then_some(Skip::ForeignCause);
        }
        kept.file = self.file_of_request(r, &v);
        let about = kept.clone();
        let r = &about;
        let mut call = Act::Call { rec: 0, fd: v.fd, fd2: v.fd2, slot: NONE, list: Range::default() };
        let mut skip = v.skip;
        let unlocks = self.unlocks(r);
        if skip != Some(Skip::MappedUser) {
            self.users_change(r, kept);
        }
        let untouched = matches!(skip, Some(Skip::InFlight | Skip::Unsupported | Skip::ForeignCause));
        if !untouched && let Err(why) = self.descriptors(r, &v, &mut call, kept) {
            skip = skip.or(Some(why));
        }
        if let Some(why) = skip {
            match why {
                Skip::OutOfSight => self.foreign_names_change(r, &v),
                Skip::Outside => self.outside_names_change(r, &v),
                _ => {}
            }
            if matches!(r.call, Call::Chdir | Call::Fchdir) && r.ret >= 0 && !untouched {
                // The stand-in stays where it was: what follows by relative paths is not for there.
                let place = self.procs.of(task).place;
                let place = &mut self.procs.places[place].value;
                (place.cwd, place.away) = (Err(why), v.node);
                self.names.shape += 1;
            }
            self.flags_left_out |= r.call.sets_flags() && why == Skip::NeedsRoot;
            // What was not closed here has let go all the same.
            self.locks_dropped(&unlocks);
            return self.skip(why);
        }
        if r.call == Call::OpenByHandleAt {
            let path = self.names.path(v.node);
            (kept.call, kept.path, kept.dirfd) = (Call::Openat, self.input.texts.paths.push(&path), libc::AT_FDCWD);
        }
        self.go_rooted(kept, &v);
        if let Some(same) = through_descriptor(r.call).filter(|_| v.magic) {
            kept.call = same;
            kept.path = self.input.texts.intern(&"".into());
            kept.flags = match same {
                Call::Linkat => libc::AT_EMPTY_PATH.into(),
                _ => r.flags | i64::from(libc::AT_EMPTY_PATH),
            };
        }
        kept.regular = self.is_regular(r, &v);
        kept.cut_short(self.sizes.size(r.file));
        kept.direct = self.is_direct(&v);
        if kept.file == NO_ID {
            kept.file = v.entry.map_or(NO_ID, |e| self.procs.ofds[e.ofd as usize].file);
        }
        if r.call == Call::Truncate {
            kept.file2 = self.held.get(v.node).unwrap_or(NO_ID);
        }
        // The order is taken before names change: the old meaning of a name is what it waits for.
        self.push_call(call, kept.clone(), |p, call| {
            p.uses(r, &v, call);
            p.uses_of_locks(r, &v, &unlocks);
        });
        self.locks_dropped(&unlocks);
        self.locks_change(r, &v);
        self.attributes_change(r, &v);
        self.modes_told(r, &v);
        self.names_change(r, &v);
        self.masks_change(r);
        self.traits_change(r, &v);
        self.sizes_change(r, &v);
    }

    pub(crate) fn is_regular(&mut self, r: &Rec, v: &View) -> bool {
        if matches!(r.call, Call::Readlink | Call::Readlinkat) {
            return true;
        }
        // Of a two-file call the source decides: what is read is what there is to write.
        let entry = if r.call.copies() { v.entry.or(v.entry2) } else { v.entry };
        if entry.is_none() && r.via == Via::Uring {
            return self.input.files.get(&r.file).is_some_and(|f| f.kind == Kind::Regular);
        }
        entry.is_some_and(|e| matches!(self.procs.ofds[e.ofd as usize].kind, Kind::Regular | Kind::Unknown))
    }

    /// Descriptor tables, positions, mappings. Also done for operations that are not replayed, since what
    /// they open must be known as such.
    fn descriptors(&mut self, r: &Rec, v: &View, call: &mut Act, kept: &mut Rec) -> Result<(), Skip> {
        let task = r.task as usize;
        let Act::Call { slot, list, .. } = call else { return Ok(()) };
        if r.ret < 0 {
            return self.mappings(r, v, call, kept);
        }
        if self.direct_change(r, v) {
            return Ok(());
        }
        match r.call {
            c if c.opens() => {
                let flags =
                    if c == Call::Creat { libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY } else { r.flags as i32 };
                let mut kind = self.input.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind);
                if kind == Kind::Unknown && flags & libc::O_DIRECTORY != 0 && flags & libc::O_TMPFILE != libc::O_TMPFILE
                {
                    kind = Kind::Directory;
                }
                if kind == Kind::Unknown && v.node != NO_NODE {
                    kind = self.names.kind(v.node);
                }
                let node = if v.node == NO_NODE && v.skip.is_none() { crate::model::names::ROOT } else { v.node };
                let ofd = self.new_ofd(node, r.file, kind, Some(0), flags);
                self.procs.ofds[ofd as usize].recorded = r.ofd;
                let new = match v.skip {
                    None => {
                        *slot = self.procs.new_slot(task);
                        Ok(*slot)
                    }
                    Some(why) => Err(why),
                };
                self.install(r, r.ret as i32, Entry { slot: new, ofd, cloexec: flags & libc::O_CLOEXEC != 0 });
            }
            Call::Close => {
                let (old, last) = self.procs.remove(task, r.fd);
                if let Some(Ok(slot)) = old.map(|e| e.slot).filter(|_| v.skip.is_none()) {
                    self.procs.free_slot(task, slot);
                }
                self.closed(last);
            }
            Call::CloseRange => {
                if r.flags as u32 & libc::CLOSE_RANGE_UNSHARE != 0 {
                    self.own_table(task);
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
                *list = self.slot_list(task, slots);
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
                let new = entry.slot.map(|_| self.procs.new_slot(task));
                *slot = new.unwrap_or(NONE);
                // A replayed dup2 closes what was there itself.
                let replaces = v.skip.is_none() && matches!(c, Call::Dup2 | Call::Dup3);
                self.put(r, r.ret as i32, Entry { slot: new, ofd: entry.ofd, cloexec }, replaces);
            }
            Call::Unshare => {
                self.procs.uses[task].maps_users |= r.flags & clone::NEWUSER != 0;
                if r.flags & clone::FILES != 0 {
                    self.own_table(task);
                }
                if r.flags & clone::FS != 0 {
                    self.procs.unshare_place(task);
                }
            }
            Call::SetFd => {
                let table = self.procs.of(task).table;
                if let Some(e) = self.procs.tables[table].value.get_mut(&r.fd) {
                    e.cloexec = r.aux & i64::from(libc::FD_CLOEXEC) != 0;
                }
            }
            Call::SetFl => {
                if let Some(e) = v.entry {
                    let changeable = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
                    let flags = &mut self.procs.ofds[e.ofd as usize].flags;
                    *flags = (*flags & !changeable) | (r.aux as i32 & changeable);
                }
            }
            Call::Lseek => {
                if let Some(e) = v.entry {
                    let ofd = &mut self.procs.ofds[e.ofd as usize];
                    ofd.pos = Some(r.ret);
                    // Other places of a directory are numbers of its file system's own.
                    if r.ret == 0 {
                        ofd.listed_bytes = 0;
                    }
                }
            }
            c if c.lists() => {
                if let Some(e) = v.entry {
                    let listed = &mut self.procs.ofds[e.ofd as usize].listed_bytes;
                    *listed = if r.ret == 0 { i64::MAX } else { listed.saturating_add(r.ret.max(0)) };
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

    /// The thread gets a descriptor table of its own, if it shares one.
    pub(crate) fn own_table(&mut self, task: usize) {
        let copies = self.procs.unshare_table(task);
        if !copies.is_empty() {
            let range = self.pair_list(task, &copies);
            // Descriptors that other threads open or close around it.
            self.push(task, Act::Unshare(range), i64::MAX, |p| {
                copies.iter().for_each(|(old, _)| p.order.slot(*old, Class::Read));
            });
        }
    }

    pub(crate) fn closed(&mut self, last: Option<i64>) {
        if let Some(file) = last
            && !self.may_be_mapped(file)
            && self.sizes.closed(file)
        {
            self.forget(file);
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
            let list = self.slot_list(r.task as usize, [slot]);
            self.push(r.task as usize, Act::Close(list), i64::MAX, |p| p.order.slot(slot, Class::Alone));
        }
    }

    fn mappings(&mut self, r: &Rec, v: &View, call: &mut Act, kept: &mut Rec) -> Result<(), Skip> {
        let Act::Call { slot, fd, .. } = call else { return Ok(()) };
        let maps = self.procs.of(r.task as usize).maps;
        match r.call {
            Call::Mmap if r.ret > 0 => {
                if v.skip.is_none() {
                    *slot = self.procs.new_map(r.task as usize);
                    let ofd = v.entry.map(|e| &self.procs.ofds[e.ofd as usize]);
                    let mapped = Mapped {
                        len_bytes: r.len_bytes,
                        slot: *slot,
                        file: ofd.map_or(NO_ID, |o| o.file),
                        node: ofd.map_or(NO_NODE, |o| o.node),
                        offset_bytes: r.offset_bytes.max(0),
                        prot: r.mode,
                        flags: r.flags as i32,
                    };
                    self.procs.mapped.insert(mapped.file);
                    self.procs.maps[maps].value.insert(r.ret, mapped);
                }
                Ok(())
            }
            c if c.on_mapping() => {
                let known = &mut self.procs.maps[maps].value;
                let hit = known.range(..=r.aux).next_back().filter(|(at, m)| r.aux < at.saturating_add(m.len_bytes));
                let Some((at, m)) = hit.map(|(at, m)| (*at, *m)) else {
                    return Err(Skip::NoMapping);
                };
                *fd = m.slot as i32;
                // Where in the mapping it begins.
                kept.offset2_bytes = r.aux - at;
                kept.len_bytes = r.len_bytes.min(at.saturating_add(m.len_bytes) - r.aux).max(0);
                let whole = r.aux == at && r.len_bytes.saturating_add(PAGE_BYTES - 1) >= m.len_bytes;
                if r.call == Call::Mremap {
                    if !whole || r.flags & !i64::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) != 0 {
                        return Err(Skip::NoMapping);
                    }
                    if r.ret > 0 {
                        known.remove(&at);
                        known.insert(r.ret, Mapped { len_bytes: r.aux2, ..m });
                    }
                }
                if r.call == Call::Munmap && r.ret == 0 && whole {
                    known.remove(&at);
                    self.procs.free_map(r.task as usize, m.slot);
                }
                Ok(())
            }
            c if c.touches() => {
                let known = &self.procs.maps[maps].value;
                let holds = |m: &&Mapped| {
                    m.file == r.file
                        && (c != Call::Dirty || m.stores())
                        && r.offset_bytes >= m.offset_bytes
                        && r.offset_bytes - m.offset_bytes < m.len_bytes
                };
                let m = known.values().filter(holds).max_by_key(|m| m.stores()).copied().ok_or(Skip::NoMapping)?;
                *fd = m.slot as i32;
                kept.offset2_bytes = r.offset_bytes - m.offset_bytes;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
