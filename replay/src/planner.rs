//! Walks a reel in an order in which its results can recur, and makes the plan.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    mem,
};

use ioreel_traces::text::to_bytes;

use crate::{
    Skip,
    edge::{EdgeKind, Kinds},
    input::{Input, NO_ID, Rec},
    linear::Known,
    names::{Kind, Names, NodeId, ROOT},
    order::{FINISH, Order, OrderMode, Stamp},
    plan::{Act, OpenAtStart, Plan, Range, Root, Step, TaskPlan},
    procs::{Entry, Maps, Place, Procs},
    sizes::Sizes,
};

/// What the plan depends on beside the reel.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    /// Which constraints to keep.
    pub order: OrderMode,
    /// Of these, kinds to leave out.
    pub without: Kinds,
    /// Absolute prefixes that the replay is limited to; none for no limit.
    pub roots: Vec<Vec<u8>>,
    /// Whether owners can be set.
    pub privileged: bool,
}

/// Moments at which something other than an operation happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A thread ended: index in `tasks`.
    Exit(u32),
    /// A program started: index in `execs`.
    Exec(u32),
    /// A thread was born.
    Fork(u32),
}

/// How many operations are in flight.
#[derive(Debug, Default)]
struct Load(BinaryHeap<Reverse<i64>>);

impl Load {
    /// One is entered; entries come in order of time. How many are in flight then, itself included.
    fn enter(&mut self, start_ns: i64, end_ns: i64) -> u32 {
        while self.0.peek().is_some_and(|Reverse(end)| *end <= start_ns) {
            self.0.pop();
        }
        self.0.push(Reverse(end_ns));
        self.0.len() as u32
    }
}

/// The planner at work.
pub(crate) struct Planner {
    pub(crate) options: PlanOptions,
    pub(crate) input: Input,
    pub(crate) names: Names,
    pub(crate) procs: Procs,
    pub(crate) order: Order,
    pub(crate) sizes: Sizes,
    pub(crate) tasks: Vec<TaskPlan>,
    pub(crate) lists: Vec<u32>,
    pub(crate) pairs: Vec<(u32, u32)>,
    pub(crate) map_bytes: Vec<i64>,
    pub(crate) skipped: std::collections::BTreeMap<Skip, i64>,
    pub(crate) regular: Vec<bool>,
    /// File now behind a name, as far as an open or stat told.
    pub(crate) file_at: HashMap<NodeId, i64>,
    /// Names a file has beyond the first.
    pub(crate) more_names: HashMap<i64, i32>,
    /// Ended children whose parent has not acted since.
    joins: Vec<Vec<u32>>,
    /// By thread: the turn of its latest step.
    turns: Vec<i64>,
    calls: i64,
}

/// Makes the plan of a reel.
pub fn plan(mut input: Input, options: PlanOptions) -> Plan {
    let recs = mem::take(&mut input.recs);
    let n = input.tasks.len();
    let last_end_ns = recs.iter().map(|r| r.end_ns).max().unwrap_or(0);
    let mut p = Planner {
        names: Names::new(&options.roots),
        order: Order::new(options.order, options.without),
        procs: Procs::default(),
        sizes: Sizes::default(),
        tasks: vec![TaskPlan::default(); n],
        lists: Vec::new(),
        pairs: Vec::new(),
        map_bytes: Vec::new(),
        skipped: Default::default(),
        regular: vec![false; recs.len()],
        file_at: HashMap::new(),
        more_names: HashMap::new(),
        joins: vec![Vec::new(); n],
        turns: vec![i64::MIN; n],
        calls: 0,
        options,
        input,
    };
    if p.input.other_layers > 0 {
        p.skipped.insert(Skip::OtherLayer, p.input.other_layers);
    }
    p.load_tree();
    p.start_roots();
    let recs = p.walk(recs);
    p.names.unfold();
    let end_sizes = p.file_at.iter().filter_map(|(node, file)| Some((*node, p.sizes.exact(*file)?))).collect();
    let mut plan = Plan {
        recs,
        end_sizes,
        file_paths: p.input.files.into_iter().filter_map(|(id, f)| Some((id, f.path?.to_string()))).collect(),
        paths: p.input.paths,
        values: p.input.values,
        tasks: p.tasks,
        edges: p.order.edges,
        lists: p.lists,
        pairs: p.pairs,
        fd_slots: p.procs.slots as usize,
        map_bytes: p.map_bytes,
        tree: p.input.tree,
        calls: p.calls,
        skipped: p.skipped,
        names: p.names,
        sizes: p.sizes,
        regular: p.regular,
        last_end_ns,
    };
    plan.finish();
    plan
}

impl Planner {
    fn load_tree(&mut self) {
        for row in 0..self.input.tree.len() {
            let t = &self.input.tree[row];
            let node = self.names.literal(&to_bytes(&t.path));
            // What the recorder knew nothing of it calls a regular file.
            let guessed = t.origin == "derived" && t.kind == "regular" && t.size_bytes.is_none() && t.mode.is_none();
            let kind = if guessed { Kind::Unknown } else { Kind::from_name(&t.kind) };
            let target = t.target.as_ref().map(|t| to_bytes(t).into_boxed_slice());
            if node != ROOT {
                self.names.set_before(node, kind, target, row as u32);
                if let (Kind::Regular, Some(link)) = (kind, t.link_id) {
                    self.names.set_link(node, link);
                }
            }
            if let (Kind::Regular, Some(size)) = (kind, t.size_bytes) {
                self.sizes.listed.insert(node, size);
            }
        }
    }

    fn start_roots(&mut self) {
        for i in 0..self.input.tasks.len() {
            let t = &self.input.tasks[i];
            let parent = t.parent.and_then(|p| self.input.task_index.get(&p)).copied();
            self.tasks[i].clone_flags = t.clone_flags;
            self.tasks[i].start_ns = t.start_ns;
            self.tasks[i].exit_ns = t.exit_ns;
            if parent.is_none_or(|p| p as usize == i) {
                self.start_root(i);
            }
        }
    }

    pub(crate) fn start_root(&mut self, i: usize) {
        let t = self.input.tasks[i].clone();
        let bytes = |t: &Option<ioreel_traces::Text>| t.as_ref().map_or_else(|| b"/".to_vec(), |t| to_bytes(t));
        let (cwd, root) = (bytes(&t.cwd), bytes(&t.root));
        let root_node = self.names.literal(&root);
        let cwd_node = self.names.literal(&cwd);
        let place = self.names.area(cwd_node).filter(|a| *a != Skip::Outside);
        self.procs.start_root(i, Place { cwd: place.map_or(Ok(cwd_node), Err), root: root_node });
        if place.is_none() {
            self.names.prove_present(cwd_node, Kind::Directory, None);
        }
        let mut fds: Vec<OpenAtStart> = Vec::new();
        let mut known: HashMap<i64, (u32, usize)> = HashMap::new();
        let mine: Vec<_> = self.input.fds.iter().filter(|f| f.task_id == t.task_id).cloned().collect();
        for f in mine {
            let info = f.file.and_then(|f| self.input.files.get(&f)).cloned();
            let kind = info.as_ref().map_or(Kind::Unknown, |i| Kind::from_name(&i.kind));
            let path = info.and_then(|i| i.path);
            let node = path.as_ref().map(|p| self.names.literal(&to_bytes(p)));
            let skip = kind
                .skip()
                .or(if node.is_none() { Some(Skip::UnknownFd) } else { None })
                .or(node.and_then(|n| self.names.area(n)));
            let (ofd, at) = match known.get(&f.ofd) {
                Some(k) => *k,
                None => {
                    let node = node.unwrap_or(ROOT);
                    let append = f.flags as i32 & libc::O_APPEND != 0;
                    let file = f.file.unwrap_or(NO_ID);
                    let ofd = self.procs.new_ofd(node, file, kind, Some(f.offset_bytes), append);
                    if skip.is_none() {
                        self.names.prove_present(node, kind, None);
                        let pre = self.names.pre(node);
                        self.sizes.opened(file, pre, false);
                        self.file_at.insert(node, file);
                        fds.push(OpenAtStart {
                            path: path.map(|p| to_bytes(&p)).unwrap_or_default(),
                            flags: f.flags as i32 & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC),
                            offset_bytes: f.offset_bytes,
                            slots: Vec::new(),
                        });
                    }
                    known.insert(f.ofd, (ofd, fds.len().saturating_sub(1)));
                    (ofd, fds.len().saturating_sub(1))
                }
            };
            let slot = match skip {
                Some(s) => Err(s),
                None => {
                    let slot = self.procs.new_slot(i);
                    if let Some(o) = fds.get_mut(at) {
                        o.slots.push(slot);
                    }
                    Ok(slot)
                }
            };
            self.procs.install(i, f.fd, Entry { slot, ofd, cloexec: f.cloexec != 0 });
        }
        self.tasks[i].root = Some(Root {
            cwd: if place.is_some() { b"/".to_vec() } else { cwd },
            root,
            umask: t.umask.unwrap_or(0o022),
            uid: t.uid.unwrap_or(0) as u32,
            gid: t.gid.unwrap_or(0) as u32,
            fds,
        });
    }

    /// Goes through operations and events in the order in which they took effect.
    fn walk(&mut self, mut recs: Vec<Rec>) -> Vec<Rec> {
        let mut events: Vec<(i64, Event)> = Vec::new();
        for (i, t) in self.input.tasks.iter().enumerate() {
            if self.tasks[i].root.is_none() {
                events.push((t.start_ns, Event::Fork(i as u32)));
            }
            if let Some(exit) = t.exit_ns {
                events.push((exit, Event::Exit(i as u32)));
            }
        }
        events.extend(self.input.execs.iter().enumerate().map(|(i, e)| (e.exec_ns, Event::Exec(i as u32))));
        events.sort_unstable();
        let mut events = events.into_iter().peekable();
        let mut by_start: Vec<u32> = (0..recs.len() as u32).collect();
        by_start.sort_by_key(|i| recs[*i as usize].start_ns);
        let mut starts = by_start.into_iter().peekable();
        let mut done = vec![false; recs.len()];
        // Entered and not yet taken effect; no more than there are threads.
        let mut pool: Vec<u32> = Vec::new();
        let mut load = Load::default();
        for i in 0..recs.len() {
            let end = recs[i].end_ns;
            while let Some((_, event)) = events.next_if(|(t, _)| *t < end) {
                self.event(event);
            }
            while let Some(s) = starts.next_if(|s| recs[*s as usize].start_ns < end) {
                let file = self.input.files.get(&recs[s as usize].file);
                let r = &mut recs[s as usize];
                r.ended_before = self.order.ended();
                if r.call != crate::Call::Other && file.is_none_or(|f| Kind::from_name(&f.kind).skip().is_none()) {
                    r.together = load.enter(r.start_ns, r.end_ns);
                }
                pool.push(s);
            }
            pool.retain(|p| !done[*p as usize]);
            if !done[i] {
                self.take_effect(&mut recs, i as u32, &pool, &mut done);
            }
        }
        for (_, event) in events {
            self.event(event);
        }
        recs
    }

    /// Commits operation `i`, and before it those among the ones in flight that must have come first.
    fn take_effect(&mut self, recs: &mut [Rec], i: u32, pool: &[u32], done: &mut [bool]) {
        done[i as usize] = true;
        let rivals: Vec<u32> = pool
            .iter()
            .copied()
            .filter(|p| !done[*p as usize] && recs[*p as usize].task != recs[i as usize].task)
            .collect();
        if !rivals.is_empty() {
            let mine = self.touches(&recs[i as usize]);
            for p in rivals {
                if done[p as usize] {
                    continue;
                }
                let theirs = self.touches(&recs[p as usize]);
                match self.order_of(&theirs, &mine) {
                    Known::First => self.take_effect(recs, p, pool, done),
                    Known::Second | Known::Unrelated => {}
                    // Results fit either way: which was first nobody can tell, so another result is as good.
                    Known::Unknown => {
                        recs[i as usize].raced = true;
                        recs[p as usize].raced = true;
                    }
                }
            }
        }
        let rec = recs[i as usize].clone();
        self.commit(i, &rec, &mut recs[i as usize]);
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Fork(child) => self.fork(child),
            Event::Exec(i) => self.exec(i),
            Event::Exit(task) => self.exit(task as usize),
        }
    }

    fn fork(&mut self, child: u32) {
        let c = child as usize;
        let parent = self.input.tasks[c].parent.and_then(|p| self.input.task_index.get(&p)).copied();
        let Some(parent) = parent.filter(|p| self.procs.of(*p as usize).alive) else {
            self.start_root(c);
            return;
        };
        let flags = self.tasks[c].clone_flags;
        let parent_table = self.procs.of(parent as usize).table;
        let at = self.push(parent as usize, Act::Spawn { task: child }, i64::MAX, |p| {
            // Descriptors that other threads of the parent open or close around the fork.
            if p.procs.tables[parent_table].users > 1 {
                let slots: Vec<_> = p.procs.tables[parent_table].value.values().filter_map(|e| e.slot.ok()).collect();
                for slot in slots {
                    p.order.slot(slot, crate::order::Class::Read);
                }
            }
        });
        self.order.fork(at, c);
        let copies = self.procs.fork(parent as usize, c, flags);
        self.tasks[c].copies = self.pair_list(&copies);
    }

    pub(crate) fn pair_list(&mut self, pairs: &[(u32, u32)]) -> Range {
        let from = self.pairs.len() as u32;
        self.pairs.extend_from_slice(pairs);
        Range { from, len: pairs.len() as u32 }
    }

    pub(crate) fn slot_list(&mut self, slots: impl IntoIterator<Item = u32>) -> Range {
        let from = self.lists.len() as u32;
        self.lists.extend(slots);
        Range { from, len: self.lists.len() as u32 - from }
    }

    fn exec(&mut self, i: u32) {
        let id = self.input.execs[i as usize].task_id;
        let Some(task) = self.input.task_index.get(&id).map(|t| *t as usize) else { return };
        if !self.procs.of(task).alive {
            return;
        }
        let place = self.procs.places[self.procs.of(task).place].value;
        let path = to_bytes(&self.input.execs[i as usize].path);
        if let Ok(cwd) = place.cwd
            && let Some(node) = self.names.resolve(place.root, cwd, &path, true)
        {
            let pre = self.names.pre(node);
            self.sizes.ran(pre);
        }
        let copies = self.procs.unshare_table(task);
        if !copies.is_empty() {
            let range = self.pair_list(&copies);
            self.push(task, Act::Unshare(range), i64::MAX, |_| ());
        }
        let table = self.procs.of(task).table;
        let gone: Vec<i32> =
            self.procs.tables[table].value.iter().filter(|(_, e)| e.cloexec).map(|(fd, _)| *fd).collect();
        let mut slots = Vec::new();
        for fd in gone {
            let (old, last) = self.procs.remove(task, fd);
            slots.extend(old.and_then(|e| e.slot.ok()));
            if let Some(file) = last {
                self.sizes.closed(file);
            }
        }
        if !slots.is_empty() {
            let range = self.slot_list(slots);
            self.push(task, Act::Close(range), i64::MAX, |_| ());
        }
        let maps = self.procs.drop_maps(task);
        self.unmap(task, maps);
        self.procs.new_maps(task);
    }

    fn unmap(&mut self, task: usize, maps: Maps) {
        if !maps.is_empty() {
            let range = self.slot_list(maps.into_values().map(|(_, slot)| slot));
            self.push(task, Act::Unmap(range), i64::MAX, |_| ());
        }
    }

    fn exit(&mut self, task: usize) {
        if !self.procs.of(task).alive {
            return;
        }
        let (last, maps) = self.procs.exit(task);
        self.unmap(task, maps);
        for file in last {
            self.sizes.closed(file);
        }
        let parent = self.input.tasks[task].parent.and_then(|p| self.input.task_index.get(&p)).copied();
        if let Some(parent) = parent
            && self.procs.of(parent as usize).alive
        {
            self.order.exit(task, parent as usize);
            self.joins[parent as usize].push(task as u32);
        }
    }

    /// Adds a step to a thread's program; `uses` names its resources.
    pub(crate) fn push(&mut self, task: usize, act: Act, start_ns: i64, uses: impl FnOnce(&mut Self)) -> Stamp {
        let step = self.tasks[task].program.len();
        self.order.begin(task, step);
        // What began before the child's end cannot have waited for it.
        let (ended, still): (Vec<u32>, Vec<u32>) = mem::take(&mut self.joins[task])
            .into_iter()
            .partition(|c| self.tasks[*c as usize].exit_ns.is_none_or(|e| e <= start_ns));
        self.joins[task] = still;
        for child in ended {
            self.order.after(Stamp { task: child, step: FINISH }, EdgeKind::Life);
        }
        uses(self);
        let (from, len) = self.order.end();
        self.take_turn(task, from, len);
        self.tasks[task].program.push(Step { act, after: Range { from, len }, awaited: false });
        if matches!(act, Act::Call { .. }) {
            self.calls += 1;
        }
        Stamp { task: task as u32, step: step as u32 }
    }

    /// Gives the step a turn: by recorded start, and later than all it waits for. What keeps the recorded
    /// number in flight issues by turns, and cannot wait for one that waits for it.
    fn take_turn(&mut self, task: usize, from: u32, len: u32) {
        let after = self.order.edges[from as usize..(from + len) as usize].iter();
        let last = after.map(|e| self.turns[e.on.task as usize].saturating_add(1)).max().unwrap_or(i64::MIN);
        self.turns[task] = self.turns[task].max(last);
    }

    /// The turn of the call that `task` is about to be given.
    pub(crate) fn turn(&mut self, task: usize, start_ns: i64) -> i64 {
        self.turns[task] = self.turns[task].max(start_ns);
        self.turns[task]
    }

    pub(crate) fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }

    pub(crate) fn forget_file(&mut self, node: NodeId) {
        if let Some(file) = self.file_at.remove(&node) {
            let more = self.more_names.entry(file).or_default();
            if *more > 0 {
                *more -= 1;
            } else {
                let open = self.procs.opens.get(&file).is_some_and(|n| *n > 0);
                self.sizes.unlinked(file, open);
            }
        }
    }
}
