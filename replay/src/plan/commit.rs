//! Applies an operation to the model and adds it to its thread's program.

use crate::{
    Call, Skip,
    model::{
        lock_effects::Unlocks,
        names::{Kind, NO_NODE},
        operands::{Operands, through_descriptor},
        processes::{Entry, clone},
    },
    plan::{
        dependencies::Class,
        planner::Planner,
        program::{Act, Range},
        requests::is_of_table,
    },
    plan::{lock_steps::lock_uses, resources::Resources},
    reel::{
        input::{NO_ID, NONE, Rec},
        record_kind::{moves_position, only_looks, shifts_data},
        submission::{Phase, Via},
    },
};

impl Planner {
    /// Commits an operation: plans it or skips it, and applies its result to the model.
    pub(crate) fn commit(&mut self, r: &Rec) {
        let task = r.task as usize;
        let u = self.machine.processes.of(task);
        if u.ended {
            return self.programs.leave_out(&self.machine, r, &Operands::none(), Skip::AfterExit);
        }
        if !u.alive {
            // Its start was not recorded. It starts like the threads that existed at the beginning.
            self.start_root(task);
        }
        self.hand_in();
        if r.call.receives() {
            return self.received(r);
        }
        if r.call.mounts() {
            return self.mounts_followed(r);
        }
        self.flowed(r);
        self.machine.names.crossed.clear();
        self.machine.names.passed.clear();
        let mut kept = r.clone();
        let kept = &mut kept;
        let submitted = if r.phase == Phase::Ended { self.ended(r) } else { None };
        let was_submitted = submitted.is_some();
        let alone = !was_submitted && r.via != Via::Call;
        if alone && !self.programs.before_slice {
            self.outside_table(kept);
        }
        if submitted.is_none() && !(alone && self.programs.before_slice) {
            (kept.via, kept.phase) = (Via::Call, Phase::Whole);
        }
        let mut v = match submitted {
            Some(v) => v,
            None if alone && (self.programs.before_slice || !is_of_table(r)) => {
                self.operands_of_request(&mut r.clone())
            }
            None => self.machine.operands(kept),
        };
        // The request that cancelled it is not in the plan.
        if alone && r.ret == -i64::from(libc::ECANCELED) {
            v.skip = v.skip.or(Some(Skip::ForeignCause));
        }
        if v.skip == Some(Skip::NoValue) && self.machine.proves_attribute(r, &v) {
            v = self.machine.operands(r);
        }
        self.machine.misses_attribute(r, &v);
        if v.skip.is_none() && self.races.lost_race(&mut self.machine, r, &v) {
            kept.raced = true;
            // Issued here, it might succeed and change what the original did not change. A request has been submitted
            // already.
            v.skip = (!was_submitted && !only_looks(r)).then_some(Skip::ForeignCause);
        }
        kept.file = self.machine.file_of_request(r, &v);
        let about = kept.clone();
        let r = &about;
        let mut call = Act::Call { rec: 0, fd: v.fd, fd2: v.fd2, slot: NONE, list: Range::default() };
        let mut skip = v.skip;
        let unlocks = self.machine.unlocks(r);
        match skip {
            Some(Skip::MappedUser) => self.machine.user_lost(r),
            _ => self.machine.users_change(r, kept),
        }
        let untouched =
            matches!(skip, Some(Skip::InFlight | Skip::Unsupported | Skip::ForeignCause | Skip::PartlyReserved));
        if !untouched && let Err(why) = self.descriptors(r, &v, &mut call, kept) {
            skip = skip.or(Some(why));
        }
        if let Some(why) = skip {
            return self.leave_out(r, &v, (why, untouched), &unlocks);
        }
        self.fit_to_target(r, &v, kept);
        // Dependencies come before the names change: the step waits for what the name stood for.
        self.programs.push_call(&mut self.machine, call, kept.clone(), |machine, order, lists, call| {
            Resources { machine, order, lists }.uses(r, &v, call);
            lock_uses(machine, order, r, &v, &unlocks);
        });
        self.machine.locks_dropped(&unlocks);
        self.follow_effects(r, &v);
        self.hand_in();
    }

    /// Skips an operation. The model follows its effects all the same, unless it left everything `untouched`: the final
    /// tree is compared with the one that the recording left.
    fn leave_out(&mut self, r: &Rec, v: &Operands, (why, untouched): (Skip, bool), unlocks: &Unlocks) {
        // Before the names change, since these locate it.
        self.programs.leave_out(&self.machine, r, v, why);
        let leaves_node_out = matches!(why, Skip::DeviceNode | Skip::NeedsRoot) && self.machine.leaves_node_out(r);
        self.machine.device_nodes_left_out += i64::from(leaves_node_out && r.ret >= 0 && !self.programs.before_slice);
        match why {
            why if why.is_elsewhere() => self.machine.outside_names_change(r, v, why),
            Skip::PartlyReserved => self.machine.sizes_change(r, v),
            _ if !untouched => self.machine.left_out_changes(r, v, why),
            _ => {}
        }
        self.take_consequences();
        if matches!(r.call, Call::Chdir | Call::Fchdir) && r.ret >= 0 && !untouched {
            // The replay thread stays in its old directory, so operations relative to the new one must not be issued.
            let place = self.machine.processes.of(r.task as usize).place;
            let place = &mut self.machine.processes.places[place].value;
            (place.cwd, place.away, place.cwd_mount) = (Err(why), v.node, v.mount);
            self.machine.names.shape += 1;
        }
        self.machine.flags_left_out |= r.call.sets_flags() && why == Skip::NeedsRoot;
        // The recorded call released its locks in any case.
        self.machine.locks_dropped(unlocks);
    }

    /// Applies a call on mounts, which the replay does not make.
    fn mounts_followed(&mut self, r: &Rec) {
        if r.ret < 0 || r.in_flight {
            return self.programs.leave_out(&self.machine, r, &Operands::none(), Skip::NameSpace);
        }
        self.machine.names.crossed.clear();
        self.machine.names.passed.clear();
        let before = self.machine.mounts_left_out;
        let opened = self.machine.mounts_change(r);
        let why = if self.machine.mounts_left_out > before { Skip::UnfollowedMount } else { Skip::NameSpace };
        self.programs.leave_out(&self.machine, r, &Operands::none(), why);
        if let Some(place) = opened {
            let ofd = self.new_ofd(place.node, r.file, Kind::Directory, None, libc::O_PATH);
            self.machine.processes.ofds[ofd as usize].mount = place.mount;
            // What it is used for is not replayed.
            let why = self.machine.names.area(place.node).unwrap_or(Skip::UnfollowedMount);
            self.put(r, r.ret as i32, Entry { slot: Err(why), ofd, cloexec: true }, false);
        }
    }

    /// Adapts the record to what the target can do, and sets the fields that only planning can determine.
    fn fit_to_target(&mut self, r: &Rec, v: &Operands, kept: &mut Rec) {
        if r.call == Call::OpenByHandleAt {
            let path = self.machine.names.path(v.node);
            (kept.call, kept.path, kept.dirfd) =
                (Call::Openat, self.machine.reel.texts.paths.push(&path), libc::AT_FDCWD);
        }
        self.from_top |= v.substitute_paths(kept);
        if let Some(same) = through_descriptor(r.call).filter(|_| v.magic) {
            kept.call = same;
            kept.path = self.machine.reel.texts.intern(&"".into());
            kept.flags = match same {
                Call::Linkat => libc::AT_EMPTY_PATH.into(),
                _ => r.flags | i64::from(libc::AT_EMPTY_PATH),
            };
        }
        self.machine.leave_out_set_ids(kept, v.node);
        if r.call == Call::Fallocate && r.ret >= 0 && shifts_data(kept) && !self.machine.footprint.is_none() {
            let file = v.entry.map_or(r.file, |e| self.machine.processes.ofds[e.ofd as usize].file);
            self.machine.footprint.apply_to_shift(kept, self.machine.sizes.exact(file));
        }
        kept.regular = self.machine.is_regular(r, v);
        kept.cut_short(self.machine.sizes.size(r.file));
        kept.direct = self.machine.is_direct(v);
        if kept.file == NO_ID {
            kept.file = v.entry.map_or(NO_ID, |e| self.machine.processes.ofds[e.ofd as usize].file);
        }
        if r.call == Call::Truncate {
            kept.file2 = self.machine.named_files.get(v.node).unwrap_or(NO_ID);
        }
    }

    /// Applies the operation to the recorded machine.
    fn follow_effects(&mut self, r: &Rec, v: &Operands) {
        self.machine.locks_change(r, v);
        self.machine.attributes_change(r, v);
        self.machine.modes_seen(r, v);
        self.machine.names_change(r, v);
        self.take_consequences();
        self.machine.masks_change(r);
        self.machine.traits_change(r, v);
        self.machine.sizes_change(r, v);
    }

    /// Applies the operation to descriptor tables, positions and mappings. Also done for skipped operations, because
    /// the descriptors that they open must be known.
    fn descriptors(&mut self, r: &Rec, v: &Operands, call: &mut Act, kept: &mut Rec) -> Result<(), Skip> {
        let task = r.task as usize;
        let Act::Call { slot, fd, list, .. } = call else { return Ok(()) };
        if r.ret < 0 {
            return self.machine.mappings(r, v, (slot, fd), kept);
        }
        if self.direct_change(r, v) {
            return Ok(());
        }
        match r.call {
            c if c.opens() => self.opened(r, v, slot),
            Call::Close => {
                let (old, last) = self.machine.processes.remove(task, r.fd);
                if let Some(Ok(slot)) = old.map(|e| e.slot).filter(|_| v.skip.is_none()) {
                    self.machine.processes.free_slot(task, slot);
                }
                self.closed(last);
            }
            Call::CloseRange => *list = self.range_closed(r),
            c if c.duplicates() => self.duplicated(r, v, slot),
            Call::Unshare => {
                if r.flags & clone::NEWUSER != 0 {
                    self.enters_user_ns(task);
                }
                if r.flags & clone::FILES != 0 {
                    self.own_table(task);
                }
                // A new mount namespace comes with an fs context of its own.
                if r.flags & (clone::FS | clone::NEWNS) != 0 {
                    self.machine.processes.unshare_place(task);
                }
                if r.flags & clone::NEWNS != 0 {
                    self.machine.own_mounts(task);
                }
            }
            Call::SetFd => {
                let table = self.machine.processes.of(task).table;
                if let Some(e) = self.machine.processes.tables[table].value.get_mut(&r.fd) {
                    e.cloexec = r.aux & i64::from(libc::FD_CLOEXEC) != 0;
                }
            }
            Call::SetFl => {
                if let Some(e) = v.entry {
                    let changeable = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;
                    let flags = &mut self.machine.processes.ofds[e.ofd as usize].flags;
                    *flags = (*flags & !changeable) | (r.aux as i32 & changeable);
                }
            }
            Call::Lseek => {
                if let Some(e) = v.entry {
                    let ofd = &mut self.machine.processes.ofds[e.ofd as usize];
                    ofd.pos = Some(r.ret);
                    // Other positions in a directory have meaning only to its file system.
                    if r.ret == 0 {
                        ofd.listed_bytes = 0;
                    }
                }
            }
            c if c.lists() => {
                if let Some(e) = v.entry {
                    let listed = &mut self.machine.processes.ofds[e.ofd as usize].listed_bytes;
                    *listed = if r.ret == 0 { i64::MAX } else { listed.saturating_add(r.ret.max(0)) };
                }
            }
            _ => {
                if let Some(e) = v.entry.filter(|_| moves_position(r) && r.offset_bytes != NO_ID) {
                    self.machine.processes.ofds[e.ofd as usize].pos = Some(r.offset_bytes.saturating_add(r.ret));
                }
                return self.machine.mappings(r, v, (slot, fd), kept);
            }
        }
        Ok(())
    }

    /// A file was opened.
    fn opened(&mut self, r: &Rec, v: &Operands, slot: &mut u32) {
        let task = r.task as usize;
        let flags = if r.call == Call::Creat { libc::O_CREAT | libc::O_TRUNC | libc::O_WRONLY } else { r.flags as i32 };
        let mut kind = self.machine.reel.files.get(&r.file).map_or(Kind::Unknown, |f| f.kind);
        if kind == Kind::Unknown && flags & libc::O_DIRECTORY != 0 && flags & libc::O_TMPFILE != libc::O_TMPFILE {
            kind = Kind::Directory;
        }
        if kind == Kind::Unknown && v.node != NO_NODE {
            kind = self.machine.names.kind(v.node);
        }
        let node = if v.node == NO_NODE && v.skip.is_none() { crate::model::names::ROOT } else { v.node };
        let ofd = self.new_ofd(node, r.file, kind, Some(0), flags);
        let opened = &mut self.machine.processes.ofds[ofd as usize];
        (opened.recorded, opened.mount) = (r.ofd, v.mount);
        let new = match v.skip {
            None => {
                *slot = self.machine.processes.new_slot(task);
                Ok(*slot)
            }
            Some(why) => Err(why),
        };
        let entry = Entry { slot: new, ofd, cloexec: flags & libc::O_CLOEXEC != 0 };
        self.opened_for_others(task, r.ofd, entry);
        self.install(r, r.ret as i32, entry);
    }

    /// Applies close_range. Returns the slots of the closed descriptors.
    fn range_closed(&mut self, r: &Rec) -> Range {
        let task = r.task as usize;
        if r.flags as u32 & libc::CLOSE_RANGE_UNSHARE != 0 {
            self.own_table(task);
        }
        let table = self.machine.processes.of(task).table;
        // Descriptor numbers are unsigned: -1 as the last one means all.
        let (from, to) = (r.fd as u32, r.fd2 as u32);
        let hit: Vec<i32> = self.machine.processes.tables[table]
            .value
            .keys()
            .copied()
            .filter(|f| (from..=to).contains(&(*f as u32)))
            .collect();
        let mut slots = Vec::new();
        for fd in hit {
            if r.flags as u32 & libc::CLOSE_RANGE_CLOEXEC != 0 {
                if let Some(e) = self.machine.processes.tables[table].value.get_mut(&fd) {
                    e.cloexec = true;
                }
                continue;
            }
            let (old, last) = self.machine.processes.remove(task, fd);
            slots.extend(old.and_then(|e| e.slot.ok()));
            self.closed(last);
        }
        self.programs.slot_list(task, slots)
    }

    /// A descriptor was duplicated.
    fn duplicated(&mut self, r: &Rec, v: &Operands, slot: &mut u32) {
        let task = r.task as usize;
        let Some(entry) = v.entry else { return };
        if r.call != Call::Dup && r.call != Call::Fcntl && r.fd == r.fd2 {
            // dup2 of a descriptor onto itself does nothing.
            *slot = entry.slot.unwrap_or(NONE);
            return;
        }
        let cloexec = (r.call == Call::Fcntl && r.flags == i64::from(libc::F_DUPFD_CLOEXEC))
            || (r.call == Call::Dup3 && r.flags as i32 & libc::O_CLOEXEC != 0);
        let new = entry.slot.map(|_| self.machine.processes.new_slot(task));
        *slot = new.unwrap_or(NONE);
        // A replayed dup2 closes the replaced descriptor itself.
        let replaces = v.skip.is_none() && matches!(r.call, Call::Dup2 | Call::Dup3);
        self.put(r, r.ret as i32, Entry { slot: new, ofd: entry.ofd, cloexec }, replaces);
    }

    /// Gives the thread its own descriptor table if it shares one.
    pub(crate) fn own_table(&mut self, task: usize) {
        let copies = self.machine.processes.unshare_table(task);
        if !copies.is_empty() {
            let range = self.programs.pair_list(task, &copies);
            // Other threads may open or close these descriptors around this step.
            self.programs.push(task, Act::Unshare(range), i64::MAX, |order| {
                copies.iter().for_each(|(old, _)| order.slot(*old, Class::Read));
            });
        }
    }

    fn install(&mut self, r: &Rec, fd: i32, entry: Entry) {
        self.put(r, fd, entry, false);
    }

    /// Puts a descriptor into the table. If the model still has one with this number, its close was not recorded (a
    /// descriptor passed away, an unrecorded close-on-exec flag). It is closed here, unless the call does that.
    pub(crate) fn put(&mut self, r: &Rec, fd: i32, entry: Entry, replaced_by_call: bool) {
        let (old, last) = self.machine.processes.install(r.task as usize, fd, entry);
        self.closed(last);
        if !replaced_by_call && let Some(Ok(slot)) = old.map(|e| e.slot) {
            let list = self.programs.slot_list(r.task as usize, [slot]);
            self.programs.push(r.task as usize, Act::Close(list), i64::MAX, |order| order.slot(slot, Class::Alone));
        }
    }
}
