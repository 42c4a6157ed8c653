//! What an operation waits for: dependency edges.
//!
//! Operations are processed in one global order in which the recorded results can recur. Each registers the resources
//! it uses and how; two uses of a resource keep their order unless their classes commute. All edges lead from earlier
//! to later in that order, so there are no cycles and no deadlocks. An edge is dropped if it is implied: by the order
//! within a thread, or because the thread already waited for that step.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ioreel_traces::shared_map::SharedMap;

use crate::model::names::{Names, NodeId, ROOT};

pub use crate::plan::edge::{Edge, EdgeKind, Kinds, OrderMode};

/// A step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Index of the thread.
    pub task: u32,
    /// Index in its program; [`FINISH`] for its end.
    pub step: u32,
}

/// The end of a thread, after its descriptors are closed.
pub const FINISH: u32 = u32::MAX - 1;

/// A thread has had no step.
const NO_STEP: u32 = u32::MAX;

/// How a use relates to other uses of the same resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Class {
    /// Commutes with other reads.
    #[default]
    Read,
    /// Commutes with other `Add`s: writes at a position that extend one file, entries created in one directory.
    Add,
    /// Commutes with other `Append`s: writes at the end of a file.
    Append,
    /// Commutes with nothing.
    Alone,
}

/// Uses of a resource in groups. Uses of one group commute; each group waits for the one before.
#[derive(Clone, Debug, Default)]
struct Uses {
    class: Class,
    now: Vec<Use>,
    before: Vec<Use>,
}

/// One use of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    by: Stamp,
    kind: EdgeKind,
}

#[derive(Clone, Debug, Default)]
struct Name {
    uses: Uses,
    entries: Uses,
    /// The last operation that changed what the name stands for. Operations on names below also wait for it.
    changed: Option<Stamp>,
}

/// Collects the edges of one step after another.
#[derive(Debug)]
pub struct Order {
    mode: OrderMode,
    kinds: Kinds,
    me: Stamp,
    /// Edges of the current step.
    pub edges: Vec<Edge>,
    /// By thread: its latest step.
    latest: Vec<u32>,
    /// The last step that waited for all before it, and that all after it wait for.
    barrier: Option<Stamp>,
    /// By thread: the latest step of each other thread that it has waited for. A child starts with its parent's.
    seen: Vec<SharedMap<u32>>,
    /// Uses compared and edges made so far.
    pub(crate) work: u64,
    names: Vec<Name>,
    files: HashMap<i64, Uses>,
    ofds: Vec<Option<Stamp>>,
    slots: HashMap<u32, Uses>,
    places: HashMap<usize, Uses>,
    locks: HashMap<i64, Uses>,
    /// By file, or by a negative number for a name whose file was never opened.
    attributes: HashMap<i64, Uses>,
    /// Directories whose permissions were changed, and the last step that did.
    permitted: HashMap<NodeId, Stamp>,
    /// The last change of permissions of any directory, and the last lookup since then by each thread that permissions
    /// apply to.
    permission: Option<Stamp>,
    bound: BTreeMap<u32, u32>,
    /// The last calls that took effect, in order, and how many earlier ones were dropped. For the global order.
    ended: VecDeque<Stamp>,
    forgotten: u32,
    /// By thread: the last of the dropped ones.
    last: HashMap<u32, u32>,
}

/// As many comparisons are one unit of work.
const COMPARED_PER_WORK: u64 = 64;

/// Number of ended calls kept. A call that was entered before the oldest of these waits for more than it must.
const ENDED: usize = 512;

impl Order {
    /// No edges yet. Keeps the kinds of `mode` that are not in `without`.
    pub fn new(mode: OrderMode, without: Kinds) -> Self {
        Self {
            mode,
            kinds: mode.kinds().without(without),
            me: Stamp { task: 0, step: 0 },
            edges: Vec::new(),
            latest: Vec::new(),
            barrier: None,
            seen: Vec::new(),
            work: 0,
            names: Vec::new(),
            files: HashMap::new(),
            ofds: Vec::new(),
            slots: HashMap::new(),
            places: HashMap::new(),
            locks: HashMap::new(),
            attributes: HashMap::new(),
            permitted: HashMap::new(),
            permission: None,
            bound: BTreeMap::new(),
            ended: VecDeque::new(),
            forgotten: 0,
            last: HashMap::new(),
        }
    }

    /// Starts a step: the following uses belong to it.
    pub fn begin(&mut self, task: usize, step: usize) {
        self.me = Stamp { task: task as u32, step: step as u32 };
        self.edges.clear();
        if self.seen.len() <= task {
            self.seen.resize_with(task + 1, SharedMap::default);
        }
        if self.latest.len() <= task {
            self.latest.resize(task + 1, NO_STEP);
        }
        self.latest[task] = step as u32;
        if let Some(barrier) = self.barrier {
            self.after(barrier, EdgeKind::Tree);
        }
    }

    /// The step waits for all steps so far, and all later steps wait for it.
    pub(crate) fn alone(&mut self) {
        for task in 0..self.latest.len() {
            let step = self.latest[task];
            if step != NO_STEP {
                self.after(Stamp { task: task as u32, step }, EdgeKind::Tree);
            }
        }
        self.barrier = Some(self.me);
    }

    /// Whether edges of this kind are kept.
    pub fn keeps(&self, kind: EdgeKind) -> bool {
        self.kinds.has(kind)
    }

    /// The step waits for `other`, unless that is implied.
    pub fn after(&mut self, other: Stamp, kind: EdgeKind) {
        if other.task == self.me.task || !self.keeps(kind) {
            return;
        }
        let seen = &mut self.seen[self.me.task as usize];
        // A wait for a step stands for those before it.
        if seen.get(other.task).is_some_and(|known| *known >= other.step) {
            return;
        }
        seen.insert(other.task, other.step);
        self.work += 1;
        self.edges.push(Edge { on: other, kind });
    }

    /// A child starts at its parent's step: what the parent waited for is implied.
    pub fn fork(&mut self, parent: Stamp, child: usize) {
        let size = self.seen.len().max(child + 1).max(parent.task as usize + 1);
        self.seen.resize_with(size, SharedMap::default);
        let mut seen = self.seen[parent.task as usize].clone();
        seen.insert(parent.task, parent.step);
        self.seen[child] = seen;
    }

    /// A thread ended: its knowledge is no longer needed.
    pub fn exit(&mut self, task: usize) {
        if let Some(seen) = self.seen.get_mut(task) {
            *seen = SharedMap::default();
        }
    }

    fn use_of(&mut self, take: impl Fn(&mut Self) -> &mut Uses, class: Class, kind: EdgeKind) {
        if !self.keeps(kind) {
            return;
        }
        let me = Use { by: self.me, kind };
        let uses = take(self);
        let compared = uses.now.len() as u64 / COMPARED_PER_WORK;
        let join = uses.class == class && class != Class::Alone && !uses.now.is_empty();
        if join {
            match uses.now.iter_mut().find(|s| s.by.task == me.by.task && s.kind == kind) {
                Some(mine) => {
                    mine.by.step = me.by.step;
                    self.work += compared;
                    // Earlier groups were waited for at the thread's first use.
                    return;
                }
                None => uses.now.push(me),
            }
        } else {
            uses.before = std::mem::replace(&mut uses.now, vec![me]);
            uses.class = class;
        }
        let before = std::mem::take(&mut uses.before);
        self.work += compared + before.len() as u64 / COMPARED_PER_WORK;
        for b in &before {
            self.after(b.by, between(b.kind, kind));
        }
        take(self).before = before;
    }

    fn name_mut(&mut self, node: NodeId) -> &mut Name {
        if self.names.len() <= node as usize {
            self.names.resize_with(node as usize + 1, Name::default);
        }
        &mut self.names[node as usize]
    }

    /// The step waits for the last changes of `node` and of all directories above it.
    fn lineage(&mut self, names: &Names, node: NodeId, found: bool) {
        let mut at = node;
        loop {
            if let Some(changed) = self.names.get(at as usize).and_then(|n| n.changed) {
                let kind = if at == node { EdgeKind::Name } else { EdgeKind::Tree };
                self.after(changed, if found { kind } else { EdgeKind::Absent });
            }
            if names.is_nameless(at) {
                self.use_of(|o| &mut o.name_mut(at).uses, Class::Read, EdgeKind::Absent);
            }
            if at == ROOT {
                return;
            }
            at = names.parent(at);
        }
    }

    /// The step looks `node` up and finds something or nothing.
    pub fn read_name(&mut self, names: &Names, node: NodeId, found: bool) {
        self.lineage(names, node, found);
        if self.mode != OrderMode::Thread {
            let kind = if found { EdgeKind::Name } else { EdgeKind::Absent };
            self.use_of(|o| &mut o.name_mut(node).uses, Class::Read, kind);
        }
    }

    /// The step changes what `node` stands for, which affects all names below.
    pub fn write_name(&mut self, names: &Names, node: NodeId) {
        self.lineage(names, node, true);
        if self.mode != OrderMode::Thread {
            let below = names.subtree(node);
            self.work += below.len() as u64 / 2;
            for below in below.into_iter().skip(1) {
                let uses = std::mem::take(&mut self.name_mut(below).uses);
                for s in &uses.now {
                    self.after(s.by, between(s.kind, EdgeKind::Tree));
                }
                // Later users of it find this step through `changed` of `node`.
            }
            self.use_of(|o| &mut o.name_mut(node).entries, Class::Alone, EdgeKind::Entries);
            self.use_of(|o| &mut o.name_mut(node).uses, Class::Alone, EdgeKind::Name);
        }
        self.use_of(|o| &mut o.name_mut(names.parent(node)).entries, Class::Add, EdgeKind::Entries);
        let me = self.me;
        self.name_mut(node).changed = Some(me);
    }

    /// The current step removed the name of a directory that is in use; the node `nameless` ([`Names::nameless`])
    /// stands for it from now on. Adds no edge to the step, whose edges are complete.
    pub fn takes_name(&mut self, nameless: NodeId) {
        if !self.keeps(EdgeKind::Name) {
            return;
        }
        let me = Use { by: self.me, kind: EdgeKind::Name };
        let uses = &mut self.name_mut(nameless).uses;
        if uses.class != Class::Add {
            uses.before = std::mem::take(&mut uses.now);
            uses.class = Class::Add;
        }
        uses.now.retain(|u| u.by.task != me.by.task);
        uses.now.push(me);
    }

    /// The step's result depends on the entries of directory `node`.
    pub fn read_entries(&mut self, names: &Names, node: NodeId) {
        self.lineage(names, node, true);
        self.use_of(|o| &mut o.name_mut(node).entries, Class::Read, EdgeKind::Entries);
    }

    /// Number of calls that have taken effect so far.
    pub fn ended(&self) -> u32 {
        self.forgotten.wrapping_add(self.ended.len() as u32)
    }

    /// The current step is a call and has taken effect.
    pub fn returned(&mut self) {
        if !self.keeps(EdgeKind::Global) {
            return;
        }
        self.ended.push_back(self.me);
        if self.ended.len() > ENDED
            && let Some(old) = self.ended.pop_front()
        {
            self.last.insert(old.task, old.step);
            self.forgotten = self.forgotten.wrapping_add(1);
        }
    }

    /// The step waits for the calls that had ended when it was entered: the first `before`.
    pub fn interval(&mut self, before: u32) {
        if !self.keeps(EdgeKind::Global) {
            return;
        }
        let recent = before.wrapping_sub(self.forgotten) as i32;
        let mut waits: BTreeMap<u32, u32> = BTreeMap::new();
        // The latest call of a thread stands for its earlier ones.
        for s in self.ended.iter().take(usize::try_from(recent).unwrap_or(0)).rev() {
            waits.entry(s.task).or_insert(s.step);
        }
        self.work += self.last.len() as u64 / 4;
        for (task, step) in &self.last {
            waits.entry(*task).or_insert(*step);
        }
        for (task, step) in waits {
            self.after(Stamp { task, step }, EdgeKind::Global);
        }
    }

    /// The step uses the size of a file.
    pub fn file(&mut self, file: i64, class: Class) {
        self.use_of(|o| o.files.entry(file).or_default(), class, EdgeKind::Size);
    }

    /// The step depends on the locks on a file (`Read`) or changes them.
    pub fn lock(&mut self, file: i64, class: Class) {
        self.use_of(|o| o.locks.entry(file).or_default(), class, EdgeKind::Lock);
    }

    /// The step depends on the attributes of a file (`Read`) or changes them. `file`: its id, or a negative number for
    /// a name whose file was never opened.
    pub fn attributes(&mut self, file: i64, class: Class) {
        self.use_of(|o| o.attributes.entry(file).or_default(), class, EdgeKind::Attribute);
    }

    /// The step looks `node` up in a thread that permissions apply to. It waits for changes of the permissions of all
    /// directories on the way.
    pub fn searches(&mut self, names: &Names, node: NodeId) {
        if !self.keeps(EdgeKind::Attribute) {
            return;
        }
        self.bound.insert(self.me.task, self.me.step);
        let mut at = node;
        while !self.permitted.is_empty() {
            if let Some(changed) = self.permitted.get(&at).copied() {
                self.after(changed, EdgeKind::Attribute);
            }
            if at == ROOT {
                return;
            }
            at = names.parent(at);
        }
    }

    /// The step changes the permissions of directory `node`. It waits for all lookups since the last such change,
    /// wherever they were: tracking lookups by directory would cost more than the waits of these rare changes.
    pub fn permits(&mut self, node: NodeId) {
        if !self.keeps(EdgeKind::Attribute) {
            return;
        }
        let me = self.me;
        self.permitted.insert(node, me);
        // Without threads that permissions apply to, changes need no order.
        if self.bound.is_empty() && self.permission.is_none() {
            return;
        }
        for (task, step) in std::mem::take(&mut self.bound) {
            self.after(Stamp { task, step }, EdgeKind::Attribute);
        }
        if let Some(before) = self.permission.replace(me) {
            // That change waited for the lookups before it.
            self.after(before, EdgeKind::Attribute);
        }
    }

    /// No later operation uses the file.
    pub fn forget_file(&mut self, file: i64) {
        self.files.remove(&file);
        self.locks.remove(&file);
        self.attributes.remove(&file);
    }

    /// The index is reused for a new open file description.
    pub fn forget_position(&mut self, ofd: u32) {
        if let Some(last) = self.ofds.get_mut(ofd as usize) {
            *last = None;
        }
    }

    /// The step uses the position of an open file description.
    pub fn position(&mut self, ofd: u32) {
        if !self.keeps(EdgeKind::Position) {
            return;
        }
        if self.ofds.len() <= ofd as usize {
            self.ofds.resize(ofd as usize + 1, None);
        }
        let me = self.me;
        if let Some(last) = self.ofds[ofd as usize].replace(me) {
            self.after(last, EdgeKind::Position);
        }
    }

    /// The step uses (`Read`), or opens or closes (`Alone`), a descriptor of a shared table.
    pub fn slot(&mut self, slot: u32, class: Class) {
        self.use_of(|o| o.slots.entry(slot).or_default(), class, EdgeKind::Descriptor);
    }

    /// The step uses (`Read`) or changes (`Alone`) a shared working directory or umask.
    pub fn place(&mut self, place: usize, class: Class) {
        self.use_of(|o| o.places.entry(place).or_default(), class, EdgeKind::Directory);
    }
}

/// The kind of an edge between two uses of a name: `Absent` if one of the two found nothing.
fn between(a: EdgeKind, b: EdgeKind) -> EdgeKind {
    if a == EdgeKind::Absent { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges_of(o: &mut Order, task: usize, step: usize, f: impl FnOnce(&mut Order)) -> Vec<(u32, u32)> {
        o.begin(task, step);
        f(o);
        o.edges.iter().map(|e| (e.on.task, e.on.step)).collect()
    }

    #[test]
    fn readers_commute_and_writers_do_not() {
        let mut names = Names::new(&[]);
        let f = names.literal(b"/d/f");
        let mut o = Order::new(OrderMode::Resource, Kinds::NONE);
        assert_eq!(edges_of(&mut o, 0, 0, |o| o.write_name(&names, f)), []);
        assert_eq!(edges_of(&mut o, 1, 0, |o| o.read_name(&names, f, true)), [(0, 0)]);
        assert_eq!(edges_of(&mut o, 2, 0, |o| o.read_name(&names, f, true)), [(0, 0)]);
        assert_eq!(edges_of(&mut o, 0, 1, |o| o.write_name(&names, f)), [(1, 0), (2, 0)]);
        // Thread 1 has waited for 0:0 before; now for 0:1, once.
        assert_eq!(edges_of(&mut o, 1, 1, |o| o.read_name(&names, f, true)), [(0, 1)]);
        assert_eq!(edges_of(&mut o, 1, 2, |o| o.read_name(&names, f, true)), []);
    }

    #[test]
    fn a_renamed_directory_waits_for_all_below_and_all_below_for_it() {
        let mut names = Names::new(&[]);
        let (d, f, g) = (names.literal(b"/d"), names.literal(b"/d/s/f"), names.literal(b"/d/s/g"));
        let mut o = Order::new(OrderMode::Resource, Kinds::NONE);
        edges_of(&mut o, 0, 0, |o| o.read_name(&names, f, true));
        assert_eq!(edges_of(&mut o, 1, 0, |o| o.write_name(&names, d)), [(0, 0)]);
        assert_eq!(edges_of(&mut o, 2, 0, |o| o.read_name(&names, g, true)), [(1, 0)]);
    }

    #[test]
    fn a_snapshot_waits_for_all_and_all_wait_for_it() {
        let mut o = Order::new(OrderMode::Resource, Kinds::NONE);
        edges_of(&mut o, 0, 3, |_| ());
        edges_of(&mut o, 2, 7, |_| ());
        assert_eq!(edges_of(&mut o, 1, 0, Order::alone), [(0, 3), (2, 7)]);
        assert_eq!(edges_of(&mut o, 0, 4, |_| ()), [(1, 0)]);
        assert_eq!(edges_of(&mut o, 0, 5, |_| ()), []);
        assert_eq!(edges_of(&mut o, 3, 0, |_| ()), [(1, 0)]);
    }

    #[test]
    fn taking_a_name_waits_for_nobody_and_who_stood_there_waits_for_it() {
        let mut names = Names::new(&[]);
        let (d, f) = (names.literal(b"/d"), names.literal(b"/f"));
        let gone = names.nameless(names.parent(d));
        let mut o = Order::new(OrderMode::Resource, Kinds::NONE);
        assert_eq!(edges_of(&mut o, 1, 8, |o| o.write_name(&names, f)), []);
        assert_eq!(edges_of(&mut o, 1, 9, |o| o.read_name(&names, gone, false)), []);
        assert_eq!(edges_of(&mut o, 0, 0, |o| o.takes_name(gone)), []);
        assert_eq!(
            edges_of(&mut o, 0, 1, |o| o.read_name(&names, f, true)),
            [(1, 8)],
            "it knows nothing of the reader"
        );
        assert_eq!(edges_of(&mut o, 2, 0, |o| o.takes_name(gone)), []);
        assert_eq!(edges_of(&mut o, 1, 10, |o| o.read_name(&names, gone, false)), [(0, 0), (2, 0)]);
    }

    #[test]
    fn listing_waits_for_entries_and_entries_commute() {
        let mut names = Names::new(&[]);
        let (d, f, g) = (names.literal(b"/d"), names.literal(b"/d/f"), names.literal(b"/d/g"));
        let mut o = Order::new(OrderMode::Resource, Kinds::NONE);
        assert_eq!(edges_of(&mut o, 0, 0, |o| o.write_name(&names, f)), []);
        assert_eq!(edges_of(&mut o, 1, 0, |o| o.write_name(&names, g)), []);
        assert_eq!(edges_of(&mut o, 2, 0, |o| o.read_entries(&names, d)), [(0, 0), (1, 0)]);
    }

    #[test]
    fn thread_order_keeps_only_creations() {
        let mut names = Names::new(&[]);
        let f = names.literal(b"/d/f");
        let mut o = Order::new(OrderMode::Thread, Kinds::NONE);
        edges_of(&mut o, 0, 0, |o| o.write_name(&names, f));
        assert_eq!(edges_of(&mut o, 1, 0, |o| o.read_name(&names, f, true)), [(0, 0)]);
        assert_eq!(edges_of(&mut o, 2, 0, |o| o.file(1, Class::Alone)), []);
    }

    #[test]
    fn a_child_knows_what_its_parent_knew() {
        let mut names = Names::new(&[]);
        let f = names.literal(b"/f");
        let mut o = Order::new(OrderMode::Resource, Kinds::NONE);
        edges_of(&mut o, 0, 0, |o| o.write_name(&names, f));
        edges_of(&mut o, 1, 0, |o| o.read_name(&names, f, true));
        edges_of(&mut o, 1, 1, |_| ());
        o.fork(Stamp { task: 1, step: 1 }, 2);
        assert_eq!(edges_of(&mut o, 2, 0, |o| o.read_name(&names, f, true)), []);
    }
}
