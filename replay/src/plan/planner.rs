//! Walks a reel in an order in which its results can recur, and makes the plan.

use std::collections::HashMap;

use ioreel_traces::text::to_bytes;

use crate::{
    ReplayError, Skip,
    contents::{data::Told, data_keys::Keys},
    model::{
        locks::Locked,
        named_files::Held,
        names::{Kind, Names, NodeId, ROOT},
        processes::{Entry, Maps, Procs},
        sizes::Sizes,
    },
    plan::{
        attributes::Attributes,
        dependencies::{Order, OrderMode},
        draft::Draft,
        edge::Kinds,
        effects::AttributesOf,
        initial_descriptors::Begin,
        outside_roots::Outside,
        overlap::Look,
        pipes::Pipes,
        program::{Act, Plan, TaskPlan},
        races::Races,
        requests::Requests,
        slice::Slice,
        store::{DEFAULT_MEMORY_BYTES, Store},
    },
    prepare::page_cache::Residence,
    reel::{
        footprint::Scale,
        in_flight::Load,
        input::{Input, Rec},
        submission::Phase,
    },
};

/// What the plan depends on beside the reel.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Which constraints to keep.
    pub order: OrderMode,
    /// Of these, kinds to leave out.
    pub without: Kinds,
    /// Absolute prefixes that the replay is limited to; none for no limit.
    pub roots: Vec<Vec<u8>>,
    /// Whether owners can be set.
    pub privileged: bool,
    /// Of the plan, so much is kept in memory, the rest in an unnamed file.
    pub memory_bytes: usize,
    /// The part of the reel to replay.
    pub slice: Slice,
    /// How much smaller files are.
    pub scale: Scale,
    /// Data is to depend on files and positions.
    pub keep_keys: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            order: OrderMode::default(),
            without: Kinds::NONE,
            roots: Vec::new(),
            privileged: false,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            slice: Slice::default(),
            scale: Scale::NONE,
            keep_keys: false,
        }
    }
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

/// The planner at work.
pub(crate) struct Planner {
    pub(crate) options: PlanOptions,
    pub(crate) input: Input,
    pub(crate) names: Names,
    pub(crate) procs: Procs,
    pub(crate) order: Order,
    pub(crate) sizes: Sizes,
    pub(crate) locked: Locked,
    pub(crate) requests: Requests,
    /// Requests under way together.
    pub(crate) races: Races,
    pub(crate) pipes: Pipes,
    /// Extended attributes that the workload set, by file and name.
    pub(crate) named: HashMap<AttributesOf, Vec<Box<[u8]>>>,
    /// What handles were for: by their bytes, the place.
    pub(crate) handles: HashMap<Box<[u8]>, NodeId>,
    pub(crate) tasks: Vec<TaskPlan>,
    /// By thread: the piece of its program that is being made.
    pub(crate) drafts: Vec<Draft>,
    pub(crate) store: Store,
    pub(crate) skipped: std::collections::BTreeMap<Skip, i64>,
    /// File now behind a name, as far as an open or stat told.
    pub(crate) held: Held,
    /// Ended children whose parent has not acted since.
    pub(crate) joins: Vec<Vec<u32>>,
    /// By thread: the turn of its latest step.
    pub(crate) turns: Vec<i64>,
    pub(crate) calls: i64,
    pub(crate) longest_write_bytes: i64,
    last_end_ns: i64,
    /// Threads become others than root.
    pub(crate) users_change: bool,
    /// Where operations in flight lead, by number.
    pub(crate) looks: Vec<Option<Look>>,
    /// Flags of files were set, which may forbid things to root as well.
    pub(crate) flags_set: bool,
    /// Such flags are not set here, where root is wanted for that.
    pub(crate) flags_left_out: bool,
    /// What the data of files depends on.
    pub(crate) keys: Keys,
    /// What the reel tells of the data that was written.
    pub(crate) told: Told,
    /// Extended attributes before the start, by place.
    pub(crate) attributes: HashMap<NodeId, Attributes>,
    /// Attributes that files were found not to have.
    pub(crate) no_attributes: std::collections::HashSet<(NodeId, Box<[u8]>)>,
    /// What threads have open, and mapped, before their first step.
    pub(crate) begin: Begin,
    /// Files without a name among them, by file.
    pub(crate) unnamed: HashMap<i64, u32>,
    /// Before the slice: what happens is followed, and nothing is planned.
    pub(crate) silent: bool,
    /// Time 0 of the plan, ns of the reel.
    pub(crate) zero_ns: i64,
    /// What went to places outside the roots, or came from there.
    pub(crate) outside: Outside,
    /// Operations begin at the target's root in threads that have another.
    pub(crate) from_top: bool,
    /// A piece could not be kept.
    pub(crate) failed: Option<std::io::Error>,
}

/// Makes the plan of a reel.
///
/// # Errors
/// When the reel cannot be read, or the plan not be kept.
pub fn plan(input: Input, options: PlanOptions) -> Result<Plan, ReplayError> {
    let silent = options.slice.from_ns > 0;
    let mut p = Planner {
        names: Names::new(&options.roots),
        // What is only followed waits for nothing.
        order: if silent {
            Order::new(OrderMode::None, Kinds::NONE)
        } else {
            Order::new(options.order, options.without)
        },
        procs: Procs::default(),
        sizes: Sizes::new(options.scale),
        locked: Locked::default(),
        requests: Requests::default(),
        races: Races::default(),
        pipes: Pipes::default(),
        named: HashMap::new(),
        handles: HashMap::new(),
        store: Store::new(options.memory_bytes),
        tasks: Vec::new(),
        drafts: Vec::new(),
        skipped: Default::default(),
        held: Held::default(),
        joins: Vec::new(),
        turns: Vec::new(),
        calls: 0,
        longest_write_bytes: 0,
        last_end_ns: 0,
        keys: Keys::default(),
        told: Told::default(),
        attributes: HashMap::new(),
        no_attributes: Default::default(),
        users_change: false,
        looks: Vec::new(),
        flags_set: false,
        flags_left_out: false,
        begin: Begin::default(),
        unnamed: HashMap::new(),
        silent,
        zero_ns: 0,
        outside: Outside::default(),
        from_top: false,
        failed: None,
        options,
        input,
    };
    p.grow();
    p.load_tree();
    p.start_roots();
    p.walk()?;
    if p.silent {
        return Err(ReplayError::NothingAfter { from_ns: p.options.slice.from_ns, last_ns: p.last_end_ns });
    }
    for task in 0..p.tasks.len() {
        p.seal(task);
    }
    if let Some(source) = p.failed {
        return Err(ReplayError::Io { doing: "keeping the plan in the folder for temporary files", source });
    }
    for (why, n) in std::mem::take(&mut p.input.other_layers) {
        *p.skipped.entry(why).or_default() += n;
    }
    let strayed = p.strayed();
    p.names.unfold();
    let end_sizes = p.held.iter().filter_map(|(node, file)| Some((node, p.sizes.exact_scaled(file)?))).collect();
    let mut plan = Plan {
        end_sizes,
        tasks: p.tasks,
        task_index: p.input.task_index,
        store: p.store,
        fd_slots: p.procs.slots as usize,
        map_slots: p.procs.map_slots as usize,
        tree: p.input.tree,
        calls: p.calls,
        skipped: p.skipped,
        unknown: p.input.unknown,
        strayed,
        implied: p.requests.implied,
        ring_flags: p.input.ring_flags,
        names: p.names,
        sizes: p.sizes,
        longest_write_bytes: p.longest_write_bytes,
        last_end_ns: p.last_end_ns,
        begin: p.begin,
        users_change: p.users_change,
        resident: p.input.residence.map(Residence::take).unwrap_or_default(),
        keys: p.keys,
        told: p.told,
        attributes: p.attributes,
        slice: p.options.slice,
        recorder: p.input.recorder,
        from_top: p.from_top,
    };
    plan.finish();
    plan.finish_begin();
    Ok(plan)
}

impl Planner {
    fn load_tree(&mut self) {
        for row in 0..self.input.tree.len() {
            let t = &self.input.tree[row];
            let node = self.names.literal(&to_bytes(&t.path));
            // What the recorder knew nothing of it calls a regular file.
            let guessed = t.origin == "derived" && t.kind == "regular" && t.size_bytes.is_none();
            let kind = if guessed { Kind::Unknown } else { Kind::from_name(&t.kind) };
            let target = t.target.as_ref().map(|t| to_bytes(t).into_boxed_slice());
            if node != ROOT {
                self.names.set_before(node, kind, target, row as u32);
                if let (Kind::Regular | Kind::Symlink | Kind::Fifo, Some(link)) = (kind, t.link_id) {
                    self.names.set_link(node, link);
                }
            }
            if let (Kind::Regular, Some(size)) = (kind, t.size_bytes) {
                self.sizes.listed.insert(node, size);
            }
        }
    }

    /// Goes through operations and events in the order in which they took effect.
    fn walk(&mut self) -> Result<(), ReplayError> {
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
        // Entered and not yet taken effect, by number and row; no more than there are threads, and requests in flight.
        let mut pool: Vec<(u32, u32)> = Vec::new();
        let mut load = Load::default();
        let Slice { from_ns, to_ns } = self.options.slice;
        while let Some((id, end)) = self.input.next()? {
            self.grow();
            if self.silent && end >= from_ns {
                while let Some((_, event)) = events.next_if(|(t, _)| *t < from_ns) {
                    self.event(event);
                }
                self.border(from_ns);
            }
            if end >= to_ns {
                while let Some((_, event)) = events.next_if(|(t, _)| *t < to_ns) {
                    self.event(event);
                }
                self.locks_outlast();
                return Ok(());
            }
            self.last_end_ns = end - self.zero_ns;
            while let Some((_, event)) = events.next_if(|(t, _)| *t < end) {
                self.event(event);
            }
            while let Some((s, row)) = self.input.entered(end) {
                let ended = self.order.ended();
                let Some(r) = &mut self.input.recs[s as usize] else { continue };
                r.ended_before = ended;
                let skip = self.input.files.get(&r.file).and_then(|f| f.kind.skip());
                if r.call != crate::Call::Other && skip.is_none() && r.phase == Phase::Whole {
                    r.together = load.enter(r.start_ns, r.end_ns);
                }
                pool.push((s, row));
                self.flow_entered(s);
            }
            pool.retain(|(id, row)| self.input.is_at_hand(*id, *row));
            if let Some(mut rec) = self.input.take(id) {
                if rec.phase == Phase::Submitted {
                    rec.together = load.enter(rec.start_ns, rec.turn_ns);
                }
                self.take_effect(*rec, &pool);
            }
            self.input.free(id);
            if self.input.forget_texts() {
                self.drafts.iter_mut().for_each(|d| d.texts.clear());
            }
        }
        for (_, event) in events {
            self.event(event);
        }
        self.locks_outlast();
        Ok(())
    }

    /// Makes room for threads that only operations tell of.
    fn grow(&mut self) {
        let n = self.input.tasks.len();
        if self.tasks.len() < n {
            self.tasks.resize_with(n, TaskPlan::default);
            self.drafts.resize_with(n, Draft::default);
            self.joins.resize_with(n, Vec::new);
            self.turns.resize(n, i64::MIN);
        }
    }

    /// Commits an operation, and before it those among the ones in flight that must have come first.
    fn take_effect(&mut self, mut rec: Rec, pool: &[(u32, u32)]) {
        if !matches!(rec.phase, Phase::Whole | Phase::Ended) {
            return self.request(&rec);
        }
        while let Some(id) = if pool.is_empty() { None } else { self.before(&mut rec, pool) } {
            let Some(other) = self.input.take(id) else { break };
            self.take_effect(*other, pool);
        }
        while let Some(id) = self.before_lock(&rec, pool) {
            let Some(other) = self.input.take(id) else { break };
            self.take_effect(*other, pool);
        }
        self.commit(&rec);
        if rec.phase == Phase::Ended {
            self.races.ended(rec.row);
            if self.came_back(&rec) {
                self.exit(rec.task as usize);
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Fork(child) => self.fork(child),
            Event::Exec(i) => self.exec(i),
            Event::Exit(task) if self.leaves_later(task as usize) => {}
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
                    p.order.slot(slot, crate::plan::dependencies::Class::Read);
                }
            }
        });
        self.order.fork(at, c);
        let copies = self.procs.fork(parent as usize, c, flags);
        self.tasks[c].copies = copies.into();
        // What is forked while it is recorded has what its parent had.
        if self.input.tasks[c].cwd.is_some() {
            self.begin_beside(c, parent as usize);
        }
        // Nothing the child does goes before what its making waits for.
        self.turns[c] = self.turns[parent as usize];
    }

    /// A new open file description; numbers of those that are closed are used again.
    pub(crate) fn new_ofd(&mut self, node: NodeId, file: i64, kind: Kind, pos: Option<i64>, flags: i32) -> u32 {
        let ofd = self.procs.new_ofd(node, file, kind, pos, flags);
        self.order.forget_position(ofd);
        ofd
    }

    fn exec(&mut self, i: u32) {
        let id = self.input.execs[i as usize].task_id;
        let Some(task) = self.input.task_index.get(&id).map(|t| *t as usize) else { return };
        if !self.procs.of(task).alive {
            return;
        }
        let place = self.procs.places[self.procs.of(task).place].value;
        let (uid, gid) = (self.input.execs[i as usize].uid, self.input.execs[i as usize].gid);
        let path = to_bytes(&self.input.execs[i as usize].path);
        if let Ok(cwd) = place.cwd
            && let Some(node) = self.names.resolve(place.root, cwd, &path, true)
        {
            let pre = self.names.pre(node);
            self.sizes.ran(pre);
        }
        self.executes_as(task, uid, gid);
        self.own_table(task);
        let table = self.procs.of(task).table;
        let gone: Vec<i32> =
            self.procs.tables[table].value.iter().filter(|(_, e)| e.cloexec).map(|(fd, _)| *fd).collect();
        let entries: Vec<Entry> = gone.iter().filter_map(|fd| self.procs.entry(task, *fd)).collect();
        let unlocks = self.unlocks_of(task, &entries);
        let mut slots = Vec::new();
        for fd in gone {
            let (old, last) = self.procs.remove(task, fd);
            slots.extend(old.and_then(|e| e.slot.ok()));
            self.closed(last);
        }
        if !slots.is_empty() {
            let range = self.slot_list(task, slots);
            self.push(task, Act::Close(range), i64::MAX, |p| p.drop_locks(&unlocks));
        }
        self.locks_dropped(&unlocks);
        let maps = self.procs.drop_maps(task);
        self.unmap(task, maps);
        self.procs.new_maps(task);
    }

    fn unmap(&mut self, task: usize, maps: Maps) {
        if !maps.is_empty() {
            let range = self.slot_list(task, maps.into_values().map(|m| m.slot));
            self.push(task, Act::Unmap(range), i64::MAX, |_| ());
        }
    }

    fn exit(&mut self, task: usize) {
        if !self.procs.of(task).alive {
            return;
        }
        if let Some(exit_ns) = self.input.tasks[task].exit_ns {
            self.flow_ends(task, exit_ns);
        }
        self.exit_drops_locks(task);
        let (last, maps) = self.procs.exit(task);
        self.unmap(task, maps);
        for file in last {
            self.closed(Some(file));
        }
        if self.drafts[task].chunk.steps.is_empty() {
            self.drafts[task] = Draft::default();
        }
        let parent = self.input.tasks[task].parent.and_then(|p| self.input.task_index.get(&p)).copied();
        if let Some(parent) = parent
            && self.procs.of(parent as usize).alive
        {
            self.order.exit(task, parent as usize);
            self.joins[parent as usize].push(task as u32);
        }
    }

    pub(crate) fn skip(&mut self, why: Skip) {
        if self.silent {
            return;
        }
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Nothing can be heard of a file any more.
    pub(crate) fn forget(&mut self, file: i64) {
        self.input.files.remove(&file);
        self.procs.mapped.remove(&file);
        // Whoever reads it in the slice, before it goes, asks when the plan is whole.
        if self.silent {
            self.keys.written.forget(file);
        }
        self.named.remove(&AttributesOf::File(file));
        self.names.forget_unnamed(file);
        self.order.forget_file(file);
    }

    /// Whether a slice may begin with mappings of a file: which of those that were made are left, is not looked for.
    pub(crate) fn may_be_mapped(&self, file: i64) -> bool {
        self.silent && self.procs.mapped.contains(&file)
    }

    pub(crate) fn forget_file(&mut self, node: NodeId) {
        let Some(file) = self.held.remove(node).filter(|f| !self.held.is_named(*f)) else { return };
        // A name that the reel lists, and nobody opened it by.
        if let Some(other) = self.names.other_name(node) {
            return self.held.insert(other, file);
        }
        let open = self.procs.opens.get(&file).is_some_and(|n| *n > 0) || self.may_be_mapped(file);
        if open {
            self.names.unname(node, file);
        }
        if self.sizes.unlinked(file, open) {
            self.forget(file);
        }
    }
}
