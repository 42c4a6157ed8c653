//! Locks in the plan: the order of steps that use locks, and steps that release locks when threads end.

use std::collections::{HashMap, HashSet};

use crate::{
    model::{lock_effects::Unlocks, locks::Owner, machine::Machine, operands::Operands, processes::Entry},
    plan::{
        dependencies::{Class, FINISH, Order},
        planner::Planner,
        program::{Act, Range},
    },
    reel::input::Rec,
};

/// Registers the lock that a step takes, asks for or releases.
pub(crate) fn lock_uses(machine: &Machine, order: &mut Order, r: &Rec, v: &Operands, unlocks: &Unlocks) {
    if r.call.locks() || r.call.asks_for_lock() {
        let changes = r.call.locks() && r.ret >= 0;
        if let Some((file, _)) = machine.lock_of(r, v) {
            order.lock(file, if changes { Class::Alone } else { Class::Read });
        }
    }
    drop_locks(order, unlocks);
}

/// Registers the locks affected by closing descriptors.
pub(crate) fn drop_locks(order: &mut Order, unlocks: &Unlocks) {
    unlocks.shared.iter().for_each(|file| order.lock(*file, Class::Add));
    unlocks.gone.iter().for_each(|(file, _)| order.lock(*file, Class::Alone));
}

impl Planner {
    /// The last thread of a descriptor table is about to end, which releases the locks of the table.
    pub(crate) fn exit_drops_locks(&mut self, task: usize) {
        let table = self.machine.processes.of(task).table;
        if self.machine.locks.is_empty() || self.machine.processes.tables[table].users > 1 {
            return;
        }
        let entries: Vec<Entry> = self.machine.processes.tables[table].value.values().copied().collect();
        let unlocks = self.machine.unlocks_of(task, &entries);
        self.ends_with(task, unlocks);
    }

    /// For threads alive at the end of the reel or slice. In the replay they end after their last call, but their locks
    /// must stay until the calls that were refused because of them have been issued.
    pub(crate) fn locks_outlast(&mut self) {
        let held: Vec<(i64, Owner)> = self.machine.locks.all().into_iter().map(|(file, h)| (file, h.owner)).collect();
        let mut by_owner: HashMap<Owner, Vec<usize>> = HashMap::new();
        for (i, (_, owner)) in held.iter().enumerate() {
            by_owner.entry(*owner).or_default().push(i);
        }
        let mut done = HashSet::new();
        for task in 0..self.programs.tasks.len() {
            let table = self.machine.processes.of(task).table;
            if held.is_empty() || !self.machine.processes.of(task).alive || !done.insert(table) {
                continue;
            }
            let ofds: HashSet<u32> = self.machine.processes.tables[table].value.values().map(|e| e.ofd).collect();
            let owners = ofds.iter().flat_map(|ofd| [Owner::Ofd(*ofd), Owner::Flock(*ofd)]);
            let mut own: Vec<usize> =
                owners.chain([Owner::Table(table)]).filter_map(|o| by_owner.get(&o)).flatten().copied().collect();
            own.sort_unstable();
            let gone = own.into_iter().map(|i| held[i]).collect();
            self.ends_with(task, Unlocks { gone, shared: Vec::new() });
        }
    }

    /// All threads of this descriptor table end, and these locks are released.
    fn ends_with(&mut self, task: usize, unlocks: Unlocks) {
        let table = self.machine.processes.of(task).table;
        if unlocks.gone.is_empty() && unlocks.shared.is_empty() {
            return;
        }
        // A step without effect: the end must wait for calls that were refused because of these locks.
        self.programs.push(task, Act::Close(Range::default()), i64::MAX, |order| drop_locks(order, &unlocks));
        let files = || unlocks.gone.iter().map(|(file, _)| file).chain(&unlocks.shared);
        // A task that left the table uses another one.
        let (all, uses) = (&self.machine.processes.tables[table].tasks, &self.machine.processes.uses);
        let threads: Vec<usize> = all.iter().copied().filter(|t| uses[*t].table == table).collect();
        for thread in threads {
            self.programs.dependencies.begin(thread, FINISH as usize);
            for file in files() {
                // Of one class: the next locker waits for all of these threads.
                self.programs.dependencies.lock(*file, Class::Add);
            }
        }
        self.programs.dependencies.edges.clear();
        self.machine.locks_dropped(&unlocks);
        // The thread is started even without calls, because it holds locks.
        self.programs.tasks[task].holds_locks = !self.programs.before_slice;
    }
}
