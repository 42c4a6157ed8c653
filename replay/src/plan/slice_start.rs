//! The start of a slice: the state of the recorded machine becomes the initial state of the replay.

use std::collections::HashMap;

use ioreel_traces::{rows::Tree, text::from_bytes};

use crate::{
    model::{
        device_nodes::device_of_row,
        locks::Owner,
        names::{InitialState, Kind, NO_NODE, NodeId, PresentName, ROOT},
        processes::{Entry, FsContext, clone},
        sizes::{BLOCK_BYTES, Bounds},
    },
    plan::{
        dependencies::Order,
        initial_locks::LockAtStart,
        initial_threads::Registered,
        planner::Planner,
        program::{Act, Root},
    },
    reel::input::NO_ID,
};

impl Planner {
    /// Starts the slice: what exists now is prepared, and what follows is planned.
    pub(crate) fn start_slice(&mut self, from_ns: i64) {
        self.machine.names.unfold();
        let there = self.machine.names.there();
        let tree = self.tree_now(&there);
        self.machine.attributes = self.machine.attributes_now(&there);
        self.machine.missing_attributes.clear();
        self.machine.keys_anew(&there);
        let row_of: HashMap<NodeId, u32> = there.iter().enumerate().map(|(i, t)| (t.node, i as u32)).collect();
        self.sizes_anew(&there, &tree);
        self.machine.subvolumes_anew(there.iter().map(|t| t.node));
        self.machine.names.rebase(|node| row_of.get(&node).copied());
        self.machine.reel.tree = tree;
        self.programs.dependencies = Order::new(self.options.order, self.options.without);
        self.programs.before_slice = false;
        self.machine.before_slice = false;
        self.programs.zero_ns = from_ns;
        self.programs.turns.fill(i64::MIN);
        self.programs.joins.iter_mut().for_each(Vec::clear);
        for task in &mut self.programs.tasks {
            task.start_ns = task.start_ns.saturating_sub(from_ns).max(0);
            task.exit_ns = task.exit_ns.map(|t| t.saturating_sub(from_ns));
        }
        self.direct_at_slice_start();
        self.tasks_anew();
        self.hand_in_anew();
    }

    /// The current name space as rows of `tree`.
    fn tree_now(&mut self, there: &[PresentName]) -> Vec<Tree> {
        let modes = self.machine.sizes.take_modes();
        let mut rows = Vec::with_capacity(there.len());
        for (order, t) in there.iter().enumerate() {
            let old = match (t.pre != NO_NODE).then(|| self.machine.names.before(t.pre)) {
                Some(InitialState::Present { row, .. }) => self.machine.reel.tree.get(*row as usize).cloned(),
                _ => None,
            };
            let set = self.machine.names.set_of(t.node);
            let file = self.machine.named_files.get(t.node);
            let modified = file.is_some_and(|f| self.machine.sizes.is_modified(f)) || t.pre == NO_NODE;
            let listed = old.as_ref().and_then(|r| r.size_bytes);
            let size_bytes = match file.filter(|_| t.kind == Kind::Regular || t.kind == Kind::Unknown) {
                Some(file) if modified => self.machine.sizes.size(file),
                _ => set.len_bytes.filter(|n| *n != NO_ID).or(listed),
            };
            let alloc_bytes = match file.filter(|_| modified) {
                Some(file) => self.machine.sizes.allocated(file),
                None => old.as_ref().and_then(|r| r.alloc_bytes),
            };
            let mode = set.mode.map(|m| m as i32).or(old.as_ref().and_then(|r| r.mode));
            if mode.is_none()
                && let Some(mode) = modes.0.get(&t.pre)
            {
                self.machine.sizes.mode_seen(t.node, *mode);
            }
            if modes.1.contains(&t.pre) {
                self.machine.sizes.ran(t.node);
            }
            let device = set.device.or(old.as_ref().and_then(device_of_row)).filter(|_| t.kind == Kind::Device);
            let old = old.unwrap_or_default();
            rows.push(Tree {
                order: order as i64,
                path: from_bytes(&self.machine.names.path(t.node)),
                origin: if old.path.is_empty() { "slice".into() } else { old.origin },
                size_bytes,
                alloc_bytes,
                mode,
                uid: set.uid.map(|u| u as i32).or(old.uid),
                gid: set.gid.map(|g| g as i32).or(old.gid),
                mtime_ns: old.mtime_ns.filter(|_| !modified && t.kind != Kind::Directory),
                link_id: t.inode.map(i64::from),
                kind: device.map_or(old.kind, |d| if d.block { "block".into() } else { "char".into() }),
                rdev: device
                    .map(|d| i64::from(libc::major(d.number.into())) << 20 | i64::from(libc::minor(d.number.into()))),
                ..Tree::default()
            });
        }
        rows
    }

    /// Makes current sizes the initial ones.
    fn sizes_anew(&mut self, there: &[PresentName], tree: &[Tree]) {
        let old = std::mem::take(&mut self.machine.sizes.bounds);
        self.machine.sizes.listed.clear();
        self.machine.sizes.sparse.clear();
        for (t, row) in there.iter().zip(tree) {
            let modified = self.machine.named_files.get(t.node).is_some_and(|f| self.machine.sizes.is_modified(f));
            if let Some(size) = row.size_bytes {
                self.machine.sizes.listed.insert(t.node, size);
                if let Some(alloc) = row.alloc_bytes.filter(|alloc| *alloc <= size - BLOCK_BYTES) {
                    self.machine.sizes.sparse.insert(t.node, alloc.max(0));
                }
            }
            if let Some(bounds) = old.get(&t.pre).filter(|_| !modified) {
                self.machine.sizes.bounds.insert(t.node, *bounds);
            } else if let Some(least) = row.size_bytes.filter(|_| modified) {
                self.machine.sizes.bounds.insert(t.node, Bounds { least, most: i64::MAX });
            }
        }
        for file in self.machine.sizes.files() {
            let place = self.machine.named_files.name_of(file);
            self.machine.sizes.begin_anew(file, place);
        }
        self.machine.sizes.begin_counting();
    }

    /// Starts the threads that run now, with their state.
    fn tasks_anew(&mut self) {
        let alive: Vec<usize> =
            (0..self.programs.tasks.len()).filter(|t| self.machine.processes.of(*t).alive).collect();
        let mut registered = Registered::new();
        let mut leaders: HashMap<usize, usize> = HashMap::new();
        let mut memory: HashMap<usize, Vec<usize>> = HashMap::new();
        for task in alive {
            let u = self.machine.processes.of(task);
            memory.entry(u.maps).or_default().push(task);
            let place = self.machine.processes.places[u.place].value;
            let leader = *leaders.entry(u.table).or_insert(task);
            self.programs.tasks[task].at_start = leader == task;
            if leader == task {
                self.programs.tasks[task].root = Some(self.root_now(task, place, ROOT));
                self.register(task, &mut registered);
                continue;
            }
            let shares_place = u.place == self.machine.processes.of(leader).place;
            self.programs.tasks[task].clone_flags = clone::FILES | clone::VM | if shares_place { clone::FS } else { 0 };
            let root_of_leader = self.machine.processes.places[self.machine.processes.of(leader).place].value.own_root;
            self.programs.tasks[task].root = (!shares_place).then(|| self.root_now(task, place, root_of_leader));
            let who = self.machine.processes.of(task).who;
            self.programs.tasks[task].begins_as = Some(who).filter(|who| *who != self.machine.processes.of(leader).who);
            let at = self.programs.push(leader, Act::Spawn { task: task as u32 }, i64::MAX, |_| ());
            self.programs.dependencies.fork(at, task);
        }
        let mut memory: Vec<Vec<usize>> = memory.into_values().collect();
        memory.sort_unstable();
        for tasks in memory {
            self.register_maps(&tasks);
        }
        self.locks_now(&leaders, &registered);
    }

    /// Registers held locks. Those on files that are open in the replay are taken again; the others are dropped.
    fn locks_now(&mut self, leaders: &HashMap<usize, usize>, registered: &Registered) {
        for (file, held) in self.machine.locks.all() {
            let place = match held.owner {
                Owner::Flock(ofd) | Owner::Ofd(ofd) => registered.get(&ofd).map(|open| (*open, None)),
                Owner::Table(table) => {
                    let serves = |e: &&Entry| {
                        let ofd = &self.machine.processes.ofds[e.ofd as usize];
                        let access = ofd.flags & libc::O_ACCMODE;
                        let only = if held.exclusive { libc::O_RDONLY } else { libc::O_WRONLY };
                        ofd.file == file && access != only && registered.contains_key(&e.ofd)
                    };
                    let entry = self.machine.processes.tables[table].value.values().find(serves);
                    let leader = leaders.get(&table).map(|task| *task as u32);
                    entry.and_then(|e| registered.get(&e.ofd)).map(|open| (*open, leader))
                }
            };
            match place {
                Some((open, table_of)) => self.begin.locks.push(LockAtStart { open, table_of, held }),
                None => self.machine.locks.release(file, held.owner),
            }
        }
    }

    fn root_now(&mut self, task: usize, place: FsContext, root_of_starter: NodeId) -> Root {
        let cwd = place.cwd.unwrap_or(ROOT);
        let (mut path, mut cwd_open) = (self.machine.names.path(cwd), None);
        if self.machine.names.exists(cwd) == Some(false) {
            (path, cwd_open) = (b"/".to_vec(), Some(self.open_removed_directory(cwd)));
        }
        Root {
            cwd: path,
            root: self.machine.names.path(place.own_root),
            root_of_starter: self.machine.names.path(root_of_starter),
            umask: place.umask,
            who: self.machine.processes.of(task).who,
            cwd_open,
            fds: Vec::new(),
        }
    }
}
