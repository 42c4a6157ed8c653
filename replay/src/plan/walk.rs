//! Visits operations, forks, execs and exits in the order in which they took effect, and commits each.

use ioreel_traces::{rows, text::to_bytes};

use crate::{
    ReplayError, Skip,
    model::{
        credentials::Credentials,
        machine::Consequence,
        names::{Kind, NodeId},
        processes::{Entry, Maps, clone},
    },
    plan::{
        dependencies::Class, lock_steps::drop_locks, overlap::Overlaps, planner::Planner, program::Act, programs::Draft,
    },
    reel::{in_flight::Load, input::Rec, slice::Slice, submission::Phase},
};

/// An event other than an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread ended: index in `tasks`.
    Exit(u32),
    /// A program started: index in `execs`.
    Exec(u32),
    /// A thread started: index in `tasks`.
    Fork(u32),
}

impl Planner {
    /// The operation in flight, if any, that took effect before `rec` because of names, sizes or positions.
    fn before(&mut self, rec: &mut Rec) -> Option<u32> {
        if self.pool.is_empty() {
            return None;
        }
        let Self { machine, looks, races, pool, compared, .. } = self;
        Overlaps { machine, looks, races, pool, compared }.before(rec)
    }

    /// Refuses a reel that costs far more than others of its size.
    fn check_budget(&mut self) -> Result<(), ReplayError> {
        let (names, processes) = (self.machine.names.work, self.machine.processes.work);
        self.machine.reel.budget.worked(&[
            ("long paths and moved directories", names),
            ("what forks inherit, and moved working directories", processes),
            ("locks on one file", self.machine.locks.work),
            ("the order of operations on one thing", self.programs.dependencies.work),
            ("operations in flight together", self.compared),
            ("pages of files", self.machine.reel.residence.as_ref().map_or(0, |r| r.work)),
        ])
    }

    /// Passes effects of the last operation to the parts outside the model.
    pub(crate) fn take_consequences(&mut self) {
        let order = &mut self.programs.dependencies;
        for consequence in self.machine.consequences.drain(..) {
            match consequence {
                Consequence::NameChanged { end_ns, node } => self.races.changed(end_ns, node),
                Consequence::DirectoryUnnamed { node } => order.takes_name(node),
                Consequence::FileForgotten { file } => order.forget_file(file),
            }
        }
    }

    /// The last descriptor of the file `last` was closed.
    pub(crate) fn closed(&mut self, last: Option<i64>) {
        self.machine.closed(last);
        self.take_consequences();
    }

    /// Visits operations and events in the order in which they took effect.
    pub(crate) fn walk(&mut self) -> Result<(), ReplayError> {
        let mut events: Vec<(i64, Event)> = Vec::new();
        for (i, t) in self.machine.reel.tasks.iter().enumerate() {
            if self.programs.tasks[i].root.is_none() {
                events.push((t.start_ns, Event::Fork(i as u32)));
            }
            if let Some(exit) = t.exit_ns {
                events.push((exit, Event::Exit(i as u32)));
            }
        }
        events.extend(self.machine.reel.execs.iter().enumerate().map(|(i, e)| (e.exec_ns, Event::Exec(i as u32))));
        events.sort_unstable();
        let mut events = events.into_iter().peekable();
        let mut load = Load::default();
        let Slice { from_ns, to_ns } = self.options.slice;
        while let Some((id, end)) = self.machine.reel.next()? {
            self.programs.grow(self.machine.reel.tasks.len());
            if self.programs.before_slice && end >= from_ns {
                while let Some((_, event)) = events.next_if(|(t, _)| *t < from_ns) {
                    self.event(event)?;
                }
                self.start_slice(from_ns);
            }
            if end >= to_ns {
                while let Some((_, event)) = events.next_if(|(t, _)| *t < to_ns) {
                    self.event(event)?;
                }
                self.locks_outlast();
                return Ok(());
            }
            self.last_end_ns = end - self.programs.zero_ns;
            while let Some((_, event)) = events.next_if(|(t, _)| *t < end) {
                self.event(event)?;
            }
            while let Some((s, _)) = self.machine.reel.entered(end) {
                let ended = self.programs.dependencies.ended();
                let Some(r) = &mut self.machine.reel.recs[s as usize] else { continue };
                r.ended_before = ended;
                let skip = self.machine.reel.files.get(&r.file).and_then(|f| Skip::of_kind(f.kind));
                if r.call != crate::Call::Other && !r.call.receives() && skip.is_none() && r.phase == Phase::Whole {
                    r.together = load.enter(r.start_ns, r.end_ns);
                }
                self.pool.enter(s, r);
                self.flow_entered(s);
            }
            self.check_budget()?;
            if let Some(mut rec) = self.take(id) {
                if rec.phase == Phase::Submitted {
                    rec.together = load.enter(rec.start_ns, rec.turn_ns);
                }
                self.take_effect(*rec);
            }
            self.machine.reel.free(id);
            if self.machine.reel.forget_texts() {
                self.programs.drafts.iter_mut().for_each(|d| d.texts.clear());
            }
        }
        for (_, event) in events {
            self.event(event)?;
        }
        self.locks_outlast();
        Ok(())
    }

    /// Commits an operation, after those in flight that must have taken effect before it.
    fn take_effect(&mut self, rec: Rec) {
        // The last one comes first; its names are `settled` if only locks are left to ask about.
        let mut waiting = vec![(rec, false)];
        while let Some((mut rec, settled)) = waiting.pop() {
            if !matches!(rec.phase, Phase::Whole | Phase::Ended) {
                self.request(&rec);
                continue;
            }
            if let Some(id) = if settled { None } else { self.before(&mut rec) }
                && let Some(other) = self.take(id)
            {
                waiting.extend([(rec, false), (*other, false)]);
                continue;
            }
            let first = self.machine.before_lock(&rec, || self.pool.first());
            if let Some(id) = first
                && let Some(other) = self.take(id)
            {
                waiting.extend([(rec, true), (*other, false)]);
                continue;
            }
            self.commit(&rec);
            if rec.phase == Phase::Ended {
                self.races.ended(rec.row);
                if self.came_back(&rec) {
                    self.exit(rec.task as usize);
                }
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), ReplayError> {
        self.machine.reel.budget.row()?;
        self.check_budget()?;
        match event {
            Event::Fork(child) => self.fork(child),
            Event::Exec(i) => self.exec(i),
            Event::Exit(task) if self.leaves_later(task as usize) => {}
            Event::Exit(task) => self.exit(task as usize),
        }
        Ok(())
    }

    fn fork(&mut self, child: u32) {
        let c = child as usize;
        let parent = self.machine.reel.tasks[c].parent.and_then(|p| self.machine.reel.task_index.get(&p)).copied();
        let Some(parent) = parent.filter(|p| self.machine.processes.of(*p as usize).alive) else {
            self.start_root(c);
            return;
        };
        let flags = self.programs.tasks[c].clone_flags;
        let parent_table = self.machine.processes.of(parent as usize).table;
        let at = self.programs.push(parent as usize, Act::Spawn { task: child }, i64::MAX, |order| {
            // Other threads of the parent may open or close these descriptors around the fork.
            let table = &self.machine.processes.tables[parent_table];
            if table.users > 1 {
                table.value.values().filter_map(|e| e.slot.ok()).for_each(|slot| order.slot(slot, Class::Read));
            }
        });
        self.programs.dependencies.fork(at, c);
        let copies = self.machine.processes.fork(parent as usize, c, flags);
        let who = self.machine.processes.of(c).who;
        if who != self.machine.processes.of(parent as usize).who {
            self.programs.tasks[c].begins_as = Some(who);
            self.machine.users_change = true;
        }
        self.programs.tasks[c].copies = copies.into();
        if flags & clone::NEWNS != 0 {
            self.machine.own_mounts(c);
        }
        // Has a recorded working directory: the task existed before it was recorded. Tasks forked while recorded
        // inherit everything.
        if self.machine.reel.tasks[c].cwd.is_some() {
            self.begin_beside(c, parent as usize);
        }
        // The child's steps come after everything that the fork waits for.
        self.programs.turns[c] = self.programs.turns[parent as usize];
    }

    /// Adds an open file description. Its index may be that of a closed one.
    pub(crate) fn new_ofd(&mut self, node: NodeId, file: i64, kind: Kind, pos: Option<i64>, flags: i32) -> u32 {
        let ofd = self.machine.processes.new_ofd(node, file, kind, pos, flags);
        self.programs.dependencies.forget_position(ofd);
        ofd
    }

    fn exec(&mut self, i: u32) {
        let id = self.machine.reel.execs[i as usize].task_id;
        let Some(task) = self.machine.reel.task_index.get(&id).map(|t| *t as usize) else { return };
        if !self.machine.processes.of(task).alive {
            return;
        }
        let place = self.machine.processes.places[self.machine.processes.of(task).place].value;
        let exec = self.machine.reel.execs[i as usize].clone();
        let path = to_bytes(&exec.path);
        self.machine.names.mounts.start = (place.cwd_mount, place.root_mount);
        if let Ok(cwd) = place.cwd
            && let Some(node) = self.machine.names.resolve(place.root, cwd, &path, true)
        {
            let pre = self.machine.names.pre(node);
            self.machine.sizes.ran(pre);
        }
        self.executes_as(task, &exec);
        self.own_table(task);
        let table = self.machine.processes.of(task).table;
        let gone: Vec<i32> =
            self.machine.processes.tables[table].value.iter().filter(|(_, e)| e.cloexec).map(|(fd, _)| *fd).collect();
        let entries: Vec<Entry> = gone.iter().filter_map(|fd| self.machine.processes.entry(task, *fd)).collect();
        let unlocks = self.machine.unlocks_of(task, &entries);
        let mut slots = Vec::new();
        for fd in gone {
            let (old, last) = self.machine.processes.remove(task, fd);
            slots.extend(old.and_then(|e| e.slot.ok()));
            self.closed(last);
        }
        if !slots.is_empty() {
            let range = self.programs.slot_list(task, slots);
            self.programs.push(task, Act::Close(range), i64::MAX, |order| drop_locks(order, &unlocks));
        }
        self.machine.locks_dropped(&unlocks);
        let maps = self.machine.processes.drop_maps(task);
        self.unmap(task, maps);
        self.machine.processes.new_maps(task);
    }

    fn unmap(&mut self, task: usize, maps: Maps) {
        if !maps.is_empty() {
            let range = self.programs.slot_list(task, maps.into_values().map(|m| m.slot));
            self.programs.push(task, Act::Unmap(range), i64::MAX, |_| ());
        }
    }

    fn exit(&mut self, task: usize) {
        if !self.machine.processes.of(task).alive {
            return;
        }
        if let Some(exit_ns) = self.machine.reel.tasks[task].exit_ns {
            self.flow_ends(task, exit_ns);
        }
        self.exit_drops_locks(task);
        let (last, maps) = self.machine.processes.exit(task);
        self.unmap(task, maps);
        for file in last {
            self.closed(Some(file));
        }
        if self.programs.drafts[task].chunk.steps.is_empty() {
            self.programs.drafts[task] = Draft::default();
        }
        self.programs.dependencies.exit(task);
        let parent = self.machine.reel.tasks[task].parent.and_then(|p| self.machine.reel.task_index.get(&p)).copied();
        if let Some(parent) = parent
            && self.machine.processes.of(parent as usize).alive
        {
            self.programs.joins[parent as usize].push(task as u32);
        }
    }

    /// A thread starts a program, which may run as another user (set-user-ID).
    fn executes_as(&mut self, task: usize, exec: &rows::Exec) {
        let (Some(uid), Some(gid)) = (exec.uid, exec.gid) else { return };
        let old = self.machine.processes.of(task).who;
        let who = old.executed(uid as u32, gid as u32).with(exec.capabilities);
        self.machine.processes.uses[task].maps_users |= exec.capabilities.is_some();
        self.becomes(task, who);
        self.machine.processes.uses[task].who_known = true;
    }

    /// A thread has got a user name space of its own.
    pub(crate) fn enters_user_ns(&mut self, task: usize) {
        self.machine.processes.uses[task].maps_users = true;
        let used = self.machine.processes.of(task);
        if used.who_known {
            self.becomes(task, used.who.in_new_user_ns());
        }
    }

    fn becomes(&mut self, task: usize, who: Credentials) {
        let old = std::mem::replace(&mut self.machine.processes.uses[task].who, who);
        if self.machine.privileged && who.words() != old.words() {
            self.machine.users_change = true;
            let list = self.programs.slot_list(task, who.words());
            self.programs.push(task, Act::Become(list), i64::MAX, |_| ());
        }
    }
}
