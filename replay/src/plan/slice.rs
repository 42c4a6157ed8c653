//! Where a slice begins: what was followed up to there becomes the state that the replay starts from.

use std::collections::HashMap;

use ioreel_traces::{rows::Tree, text::from_bytes};
use serde::Serialize;

use crate::{
    model::{
        locks::Owner,
        names::{Before, Kind, NO_NODE, NodeId, ROOT, There},
        processes::{Entry, Place, clone},
        sizes::Bounds,
    },
    plan::{
        dependencies::Order,
        initial_locks::LockAtStart,
        initial_threads::Registered,
        planner::Planner,
        program::{Act, Root},
    },
};

/// A part of a reel: the operations that took effect in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// From then on, ns of the reel.
    pub from_ns: i64,
    /// Until before then; the greatest number for the reel's end.
    pub to_ns: i64,
}

impl Default for Slice {
    fn default() -> Self {
        Self { from_ns: 0, to_ns: i64::MAX }
    }
}

impl Slice {
    /// Whether it is all of the reel.
    pub fn is_whole(self) -> bool {
        self == Self::default()
    }
}

impl Planner {
    /// The slice begins: what is there now is to be prepared, and what follows is planned.
    pub(crate) fn border(&mut self, from_ns: i64) {
        self.names.unfold();
        let there = self.names.there();
        let tree = self.tree_now(&there);
        self.attributes = self.attributes_now(&there);
        self.no_attributes.clear();
        self.keys_anew(&there);
        let row_of: HashMap<NodeId, u32> = there.iter().enumerate().map(|(i, t)| (t.node, i as u32)).collect();
        self.sizes_anew(&there, &tree);
        self.names.rebase(|node| row_of.get(&node).copied());
        self.input.tree = tree;
        self.order = Order::new(self.options.order, self.options.without);
        self.silent = false;
        self.zero_ns = from_ns;
        self.turns.fill(i64::MIN);
        self.joins.iter_mut().for_each(Vec::clear);
        for task in &mut self.tasks {
            task.start_ns = task.start_ns.saturating_sub(from_ns).max(0);
            task.exit_ns = task.exit_ns.map(|t| t.saturating_sub(from_ns));
        }
        self.direct_at_border();
        self.tasks_anew();
    }

    /// The name space as it is now, a row for each name.
    fn tree_now(&mut self, there: &[There]) -> Vec<Tree> {
        let modes = self.sizes.take_modes();
        let mut rows = Vec::with_capacity(there.len());
        for (order, t) in there.iter().enumerate() {
            let old = match (t.pre != NO_NODE).then(|| self.names.before(t.pre)) {
                Some(Before::Present { row, .. }) => self.input.tree.get(*row as usize).cloned(),
                _ => None,
            };
            let set = self.names.set_of(t.node);
            let file = self.held.get(t.node);
            let modified = file.is_some_and(|f| self.sizes.is_modified(f)) || t.pre == NO_NODE;
            let listed = old.as_ref().and_then(|r| r.size_bytes);
            let size_bytes = match file.filter(|_| t.kind == Kind::Regular || t.kind == Kind::Unknown) {
                Some(file) if modified => self.sizes.size(file),
                _ => listed,
            };
            let alloc_bytes = match file.filter(|_| modified) {
                Some(file) => self.sizes.allocated(file),
                None => old.as_ref().and_then(|r| r.alloc_bytes),
            };
            let mode = set.mode.map(|m| m as i32).or(old.as_ref().and_then(|r| r.mode));
            if mode.is_none()
                && let Some(mode) = modes.0.get(&t.pre)
            {
                self.sizes.told_mode(t.node, *mode);
            }
            if modes.1.contains(&t.pre) {
                self.sizes.ran(t.node);
            }
            let old = old.unwrap_or_default();
            rows.push(Tree {
                order: order as i64,
                path: from_bytes(&self.names.path(t.node)),
                origin: if old.path.is_empty() { "slice".into() } else { old.origin },
                size_bytes,
                alloc_bytes,
                mode,
                uid: set.uid.map(|u| u as i32).or(old.uid),
                gid: set.gid.map(|g| g as i32).or(old.gid),
                mtime_ns: old.mtime_ns.filter(|_| !modified && t.kind != Kind::Directory),
                link_id: t.inode.map(i64::from),
                ..Tree::default()
            });
        }
        rows
    }

    /// Sizes count from here on.
    fn sizes_anew(&mut self, there: &[There], tree: &[Tree]) {
        let old = std::mem::take(&mut self.sizes.bounds);
        self.sizes.listed.clear();
        for (t, row) in there.iter().zip(tree) {
            let modified = self.held.get(t.node).is_some_and(|f| self.sizes.is_modified(f));
            if let Some(size) = row.size_bytes {
                self.sizes.listed.insert(t.node, size);
            }
            if let Some(bounds) = old.get(&t.pre).filter(|_| !modified) {
                self.sizes.bounds.insert(t.node, *bounds);
            } else if let Some(least) = row.size_bytes.filter(|_| modified) {
                self.sizes.bounds.insert(t.node, Bounds { least, most: i64::MAX });
            }
        }
        for file in self.sizes.files() {
            let place = self.held.name_of(file);
            self.sizes.begin_anew(file, place);
        }
        self.sizes.begin_counting();
    }

    /// Threads at work begin, with what they have.
    fn tasks_anew(&mut self) {
        let alive: Vec<usize> = (0..self.tasks.len()).filter(|t| self.procs.of(*t).alive).collect();
        let mut registered = Registered::new();
        let mut leaders: HashMap<usize, usize> = HashMap::new();
        let mut memory: HashMap<usize, Vec<usize>> = HashMap::new();
        for task in alive {
            let u = self.procs.of(task);
            memory.entry(u.maps).or_default().push(task);
            let place = self.procs.places[u.place].value;
            let leader = *leaders.entry(u.table).or_insert(task);
            self.tasks[task].at_start = leader == task;
            if leader == task {
                self.tasks[task].root = Some(self.root_now(task, place, ROOT));
                self.register(task, &mut registered);
                continue;
            }
            let shares_place = u.place == self.procs.of(leader).place;
            self.tasks[task].clone_flags = clone::FILES | clone::VM | if shares_place { clone::FS } else { 0 };
            let root_of_leader = self.procs.places[self.procs.of(leader).place].value.own_root;
            self.tasks[task].root = (!shares_place).then(|| self.root_now(task, place, root_of_leader));
            let who = self.procs.of(task).who;
            self.tasks[task].begins_as = Some(who).filter(|who| *who != self.procs.of(leader).who);
            let at = self.push(leader, Act::Spawn { task: task as u32 }, i64::MAX, |_| ());
            self.order.fork(at, task);
        }
        let mut memory: Vec<Vec<usize>> = memory.into_values().collect();
        memory.sort_unstable();
        for tasks in memory {
            self.register_maps(&tasks);
        }
        self.locks_now(&leaders, &registered);
    }

    /// Locks that are held: those on files that are open in the replay are taken again, the others are nobody's.
    fn locks_now(&mut self, leaders: &HashMap<usize, usize>, registered: &Registered) {
        for (file, held) in self.locked.all() {
            let place = match held.owner {
                Owner::Flock(ofd) | Owner::Ofd(ofd) => registered.get(&ofd).map(|open| (*open, None)),
                Owner::Table(table) => {
                    let serves = |e: &&Entry| {
                        let ofd = &self.procs.ofds[e.ofd as usize];
                        let access = ofd.flags & libc::O_ACCMODE;
                        let only = if held.exclusive { libc::O_RDONLY } else { libc::O_WRONLY };
                        ofd.file == file && access != only && registered.contains_key(&e.ofd)
                    };
                    let entry = self.procs.tables[table].value.values().find(serves);
                    let leader = leaders.get(&table).map(|task| *task as u32);
                    entry.and_then(|e| registered.get(&e.ofd)).map(|open| (*open, leader))
                }
            };
            match place {
                Some((open, table_of)) => self.begin.locks.push(LockAtStart { open, table_of, held }),
                None => self.locked.release(file, held.owner),
            }
        }
    }

    fn root_now(&mut self, task: usize, place: Place, root_of_starter: NodeId) -> Root {
        let cwd = place.cwd.unwrap_or(ROOT);
        let (mut path, mut cwd_open) = (self.names.path(cwd), None);
        if self.names.exists(cwd) == Some(false) {
            (path, cwd_open) = (b"/".to_vec(), Some(self.open_removed_directory(cwd)));
        }
        Root {
            cwd: path,
            root: self.names.path(place.own_root),
            root_of_starter: self.names.path(root_of_starter),
            umask: place.umask,
            who: self.procs.of(task).who,
            cwd_open,
            fds: Vec::new(),
        }
    }
}
