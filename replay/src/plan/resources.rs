//! Which resources an operation uses, and how. The order between steps is derived from this.

use crate::{
    Call,
    model::machine::Machine,
    model::{
        names::{Kind, NO_NODE},
        operands::{CWD, Operands},
    },
    plan::{
        dependencies::{Class, Order},
        program::Act,
    },
    reel::{
        input::{NO_ID, NONE, Rec},
        record_kind::moves_position,
    },
};

fn changes_place(call: Call) -> bool {
    matches!(call, Call::Chdir | Call::Fchdir | Call::Umask | Call::Chroot)
}

/// Registers the resources of a step.
pub(crate) struct Resources<'a> {
    pub(crate) machine: &'a mut Machine,
    pub(crate) order: &'a mut Order,
    /// The slot lists of the thread's current piece.
    pub(crate) lists: &'a [u32],
}

impl Resources<'_> {
    /// Registers the resources that a step uses.
    pub(crate) fn uses(&mut self, r: &Rec, v: &Operands, call: &Act) {
        self.order.interval(r.ended_before);
        let u = self.machine.processes.of(r.task as usize);
        let shared_table = self.machine.processes.tables[u.table].was_shared;
        let shared_place = self.machine.processes.places[u.place].users > 1;
        let ok = r.ret >= 0;
        if let Act::Call { fd, slot, .. } = *call
            && self.machine.processes.maps[u.maps].users > 1
        {
            // Slots of mappings share a map with those of descriptors; their numbers are complemented.
            match r.call {
                Call::Mmap if slot != NONE => self.order.slot(!slot, Class::Alone),
                Call::Munmap | Call::Mremap => self.order.slot(!(fd as u32), Class::Alone),
                c if c.on_mapping() || c.touches() => self.order.slot(!(fd as u32), Class::Read),
                _ => {}
            }
        }
        if let Act::Call { fd, fd2, slot, list, .. } = *call
            && shared_table
            && !r.call.on_mapping()
            && !r.call.touches()
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
            for s in list.of(self.lists) {
                self.order.slot(*s, Class::Alone);
            }
        }
        // The call is issued with a temporary working directory.
        let stands_elsewhere = v.fd != CWD && !v.magic && r.call.takes_no_directory();
        if shared_place && (v.relative || changes_place(r.call) || stands_elsewhere) {
            let class = if ok && changes_place(r.call) || stands_elsewhere { Class::Alone } else { Class::Read };
            self.order.place(u.place, class);
        }
        if let Some(e) = v.entry {
            // O_APPEND decides where the next write goes.
            let positional = moves_position(r)
                || matches!(r.call, Call::Lseek | Call::SetFl)
                || r.call.lists()
                // A copy in place of a clone seeks in the source.
                || r.call.clones()
                || (r.call.copies() && r.aux & 1 != 0);
            if positional {
                self.order.position(e.ofd);
            }
        }
        if let Some(dir) = self.machine.stands_in(r, v) {
            if r.call.lists() {
                self.order.read_entries(&self.machine.names, dir);
            } else {
                self.order.read_name(&self.machine.names, dir, ok);
            }
        }
        if let Some(e) = v.entry2.filter(|_| r.call.copies() && r.aux & 2 != 0) {
            self.order.position(e.ofd);
        }
        self.uses_of_names(r, v);
        self.uses_of_files(r, v);
        self.uses_of_attributes(r, v);
        if r.call.concerns_all_below() && ok {
            self.order.alone();
        }
    }

    fn uses_of_attributes(&mut self, r: &Rec, v: &Operands) {
        let changes = r.call.sets_attribute() || r.call.removes_attribute() || r.call.changes_access();
        let who = self.machine.processes.of(r.task as usize).who;
        let bound = who.user.files != 0 || who.over_files != 0;
        let asks = matches!(r.call, Call::Access | Call::Faccessat | Call::Faccessat2)
            || bound && (r.call.opens() || r.call == Call::Truncate || r.ret == -i64::from(libc::EPERM));
        if bound {
            let through = self.machine.names.passed.iter().chain(&self.machine.names.crossed).copied();
            for node in through.chain([v.node, v.node2]).filter(|n| *n != NO_NODE) {
                self.order.searches(&self.machine.names, node);
            }
        }
        if !changes && !asks && !r.call.gets_attribute() && !r.call.lists_attributes() {
            return;
        }
        let opened = v.entry.map(|e| &self.machine.processes.ofds[e.ofd as usize]).filter(|_| r.path == NONE);
        if changes && r.ret >= 0 && r.call.changes_access() {
            let node = opened.map_or(v.node, |o| o.node);
            if node != NO_NODE && matches!(self.machine.names.kind(node), Kind::Directory | Kind::Unknown) {
                self.order.permits(node);
            }
        }
        let named = if v.node == NO_NODE { None } else { self.machine.named_files.get(v.node) };
        let file = match opened.map(|o| o.file).or(named) {
            Some(file) if file != NO_ID => file,
            _ if v.node != NO_NODE => -2 - i64::from(v.node),
            _ => return,
        };
        self.order.attributes(file, if changes && r.ret >= 0 { Class::Alone } else { Class::Read });
    }

    fn uses_of_names(&mut self, r: &Rec, v: &Operands) {
        let ok = r.ret >= 0;
        let tmpfile = r.flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        let (mut writes, mut writes2) = (false, false);
        match r.call {
            c if c.opens() => writes = ok && !tmpfile && r.aux & 1 != 0,
            Call::Mkdir | Call::Mkdirat | Call::Mknod | Call::Mknodat => writes = ok,
            Call::Unlink | Call::Unlinkat | Call::Rmdir => writes = ok,
            Call::SnapDestroy => writes = ok,
            Call::SnapCreate => writes2 = ok,
            c if c.renames() => (writes, writes2) = (ok, ok),
            c if c.links() || c.symlinks() => writes2 = ok,
            _ => {}
        }
        // A failed lookup did not fail at the symbolic links that it passed.
        for link in &self.machine.names.passed {
            self.order.read_name(&self.machine.names, *link, true);
        }
        for dir in &self.machine.names.crossed {
            self.order.read_name(&self.machine.names, *dir, r.ret != -i64::from(libc::ENOENT));
        }
        let by_name = v.node != NO_NODE && (v.entry.is_none() || r.path != NONE);
        for (node, write) in [(v.node, writes), (v.node2, writes2)] {
            if node == NO_NODE || (node == v.node && !by_name) {
                continue;
            }
            if write {
                self.order.write_name(&self.machine.names, node);
            } else {
                self.order.read_name(&self.machine.names, node, r.ret != -i64::from(libc::ENOENT));
                if r.ret == -i64::from(libc::ENOTEMPTY) || r.ret == -i64::from(libc::EEXIST) && r.call.renames() {
                    self.order.read_entries(&self.machine.names, node);
                }
            }
        }
    }

    fn uses_of_files(&mut self, r: &Rec, v: &Operands) {
        let file = if r.file != NO_ID {
            r.file
        } else {
            v.entry.map_or(NO_ID, |e| self.machine.processes.ofds[e.ofd as usize].file)
        };
        // Any write may fill a hole.
        let of_holes = r.call == Call::Lseek && matches!(r.flags as i32, libc::SEEK_DATA | libc::SEEK_HOLE);
        if of_holes && file != NO_ID {
            return self.order.file(file, Class::Alone);
        }
        if r.ret < 0 {
            // It may have failed because of the size of the file.
            if r.call.clones() || r.call.dedupes() || r.call.copies() || matches!(r.call, Call::Fallocate | Call::Lseek)
            {
                for file in [file, r.file2].into_iter().filter(|f| *f != NO_ID) {
                    self.order.file(file, Class::Read);
                }
            }
            return;
        }
        let grows = |p: &Self, file: i64, offset: i64| {
            offset == NO_ID || p.machine.sizes.size(file).is_none_or(|s| s < offset.saturating_add(r.ret))
        };
        if file != NO_ID {
            let class = match r.call {
                c if c.reads() => Some(Class::Read),
                c if c.writes() => {
                    let append =
                        r.appends(v.entry.is_some_and(|e| self.machine.processes.ofds[e.ofd as usize].appends()));
                    // Checked data depends on its position, and so does what the description reads next.
                    let read_on = append
                        && moves_position(r)
                        && v.entry.is_some_and(|e| self.machine.processes.ofds[e.ofd as usize].reads());
                    if read_on || append && self.machine.keep_keys {
                        Some(Class::Alone)
                    } else if append {
                        Some(Class::Append)
                    } else if grows(self, file, r.offset_bytes) {
                        Some(Class::Add)
                    } else {
                        Some(Class::Read)
                    }
                }
                c if c.copies() || c.dedupes() || c.touches() => Some(Class::Read),
                // Everything written before is shared.
                c if c.clones() => Some(Class::Alone),
                c if c.opens() && (r.flags as i32 & libc::O_TRUNC != 0 || c == Call::Creat) => Some(Class::Alone),
                Call::Ftruncate | Call::Fallocate => Some(Class::Alone),
                Call::Truncate if v.magic => Some(Class::Alone),
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
        if r.call.clones() && r.file2 != NO_ID {
            self.order.file(r.file2, Class::Alone);
        }
        if r.call == Call::Truncate
            && let Some(file) = self.machine.named_files.get(v.node)
        {
            self.order.file(file, Class::Alone);
        }
    }
}
