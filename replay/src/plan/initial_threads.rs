//! What threads begin with: those that the recording began with, and those that are at work when a slice begins.

use std::collections::HashMap;

use ioreel_traces::{Text, text::to_bytes};

use crate::{
    Skip,
    model::{
        names::{Kind, NO_NODE, NodeId, ROOT},
        processes::{Entry, Mapped, Ofd, Place, clone},
    },
    plan::{
        credentials::Who,
        initial_descriptors::{MapAtStart, OpenAtStart, Unnamed, UnnamedKind, Where},
        planner::Planner,
        program::Root,
    },
    reel::input::NO_ID,
};

/// File creation mask of tasks of which the reel tells none.
const DEFAULT_UMASK: i32 = 0o022;

/// Numbers of open file descriptions in [`crate::plan::initial_descriptors::Begin::opens`], by number in the model.
pub(crate) type Registered = HashMap<u32, u32>;

impl Planner {
    pub(crate) fn start_roots(&mut self) {
        // By the reel's number of the open file description: processes may share one.
        let mut known = HashMap::new();
        for i in 0..self.input.tasks.len() {
            let t = &self.input.tasks[i];
            let parent = t.parent.and_then(|p| self.input.task_index.get(&p)).copied();
            self.tasks[i].clone_flags = t.clone_flags;
            self.tasks[i].start_ns = t.start_ns;
            self.tasks[i].exit_ns = t.exit_ns;
            if parent.is_none_or(|p| p as usize == i) {
                let mut own = HashMap::new();
                let shares = t.start_ns == 0;
                self.begin_root(i, if shares { &mut known } else { &mut own });
            }
        }
        let mut registered = Registered::new();
        for i in 0..self.input.tasks.len() {
            if self.tasks[i].root.is_some() && !self.silent {
                let mut own = Registered::new();
                let shares = self.tasks[i].start_ns == 0;
                self.register(i, if shares { &mut registered } else { &mut own });
                self.register_maps(&[i]);
            }
        }
    }

    /// A thread whose beginning was not seen.
    pub(crate) fn start_root(&mut self, task: usize) {
        self.begin_root(task, &mut HashMap::new());
        if !self.silent {
            self.register(task, &mut Registered::new());
            self.register_maps(&[task]);
        }
    }

    /// Puts into the model what a thread has that the reel tells of at its start.
    fn begin_root(&mut self, i: usize, known: &mut HashMap<i64, u32>) {
        let t = self.input.tasks[i].clone();
        let bytes = |t: &Option<Text>| t.as_ref().map_or_else(|| b"/".to_vec(), |t| to_bytes(t));
        let (cwd, root) = (bytes(&t.cwd), bytes(&t.root));
        let umask = t.umask.unwrap_or(DEFAULT_UMASK);
        let here = self.stands(&cwd, &root, umask);
        self.procs.start_root(i, here);
        let who = Who::plain(t.uid.unwrap_or(0) as u32, t.gid.unwrap_or(0) as u32);
        self.procs.uses[i].who = who;
        let mine: Vec<_> = self.input.fds.iter().filter(|f| f.task_id == t.task_id).cloned().collect();
        for f in mine {
            let info = f.file.and_then(|f| self.input.files.get(&f)).cloned();
            let kind = info.as_ref().map_or(Kind::Unknown, |i| i.kind);
            let gone = info.as_ref().is_some_and(|i| i.unlinked);
            let size_bytes = info.as_ref().and_then(|i| i.size_bytes);
            let mode = info.as_ref().and_then(|i| i.mode);
            let node = info.and_then(|i| i.path).map(|p| self.names.literal(&to_bytes(&p)));
            let nowhere = if node.is_none() && !gone { Some(Skip::UnknownFd) } else { None };
            let skip = kind.skip().or(nowhere).or(node.and_then(|n| self.names.area(n)));
            let ofd = match known.get(&f.ofd) {
                Some(ofd) => *ofd,
                None => {
                    let file = f.file.unwrap_or(NO_ID);
                    let place = node.filter(|_| !gone);
                    let ofd = self.new_ofd(place.unwrap_or(NO_NODE), file, kind, Some(f.offset_bytes), f.flags as i32);
                    match place {
                        Some(node) if skip.is_none() => {
                            self.names.prove_present(node, kind, None);
                            let pre = self.names.pre(node);
                            self.file_opened(file, pre, false);
                            if let Some(size_bytes) = size_bytes.filter(|_| kind == Kind::Regular) {
                                self.sizes.told(pre, Some(file), size_bytes);
                            }
                            if let Some(mode) = mode {
                                self.sizes.told_mode(pre, mode);
                            }
                            self.held.insert(node, file);
                        }
                        None if skip.is_none() => self.sizes.nameless(file, size_bytes),
                        _ => {}
                    }
                    known.insert(f.ofd, ofd);
                    ofd
                }
            };
            let slot = match skip {
                Some(s) => Err(s),
                None => Ok(self.procs.new_slot(i)),
            };
            self.procs.install(i, f.fd, Entry { slot, ofd, cloexec: f.cloexec != 0 });
        }
        self.begin_maps(i, t.task_id);
        self.tasks[i].at_start = true;
        self.tasks[i].root = Some(Root {
            cwd: if here.cwd.is_ok() { cwd } else { b"/".to_vec() },
            root: self.names.path(here.own_root),
            root_of_starter: b"/".to_vec(),
            umask,
            who,
            cwd_open: None,
            fds: Vec::new(),
        });
    }

    /// A thread that shares descriptors with another when it is met may stand elsewhere, and act as another user: file servers' do.
    pub(crate) fn begin_beside(&mut self, i: usize, leader: usize) {
        let t = self.input.tasks[i].clone();
        let led = self.procs.of(leader);
        let who = match (t.uid, t.gid) {
            (Some(uid), Some(gid)) if (uid as u32, gid as u32) != (led.who.user.effective, led.who.group.effective) => {
                Who::plain(uid as u32, gid as u32)
            }
            _ => led.who,
        };
        self.procs.uses[i].who = who;
        self.tasks[i].begins_as = Some(who).filter(|who| *who != led.who);
        self.users_change |= self.tasks[i].begins_as.is_some();
        let Some(cwd) = t.cwd.filter(|_| t.clone_flags & clone::FS == 0) else { return };
        let cwd = to_bytes(&cwd);
        let root = t.root.as_ref().map_or_else(|| b"/".to_vec(), |r| to_bytes(r));
        let umask = t.umask.unwrap_or(DEFAULT_UMASK);
        let here = self.stands(&cwd, &root, umask);
        let place = self.procs.of(i).place;
        self.procs.places[place].value = here;
        let cwd = if here.cwd.is_ok() { cwd } else { b"/".to_vec() };
        let root = self.names.path(here.own_root);
        let root_of_starter = self.names.path(self.procs.places[led.place].value.own_root);
        self.tasks[i].root = Some(Root { cwd, root, root_of_starter, umask, who, cwd_open: None, fds: Vec::new() });
    }

    /// Where a thread stands that has this working directory and root at the start.
    fn stands(&mut self, cwd: &[u8], root: &[u8], umask: i32) -> Place {
        let (root, cwd) = (self.names.literal(root), self.names.literal(cwd));
        let area = self.names.area(cwd).filter(|a| *a != Skip::Outside);
        if area.is_none() {
            self.names.prove_present(cwd, Kind::Directory, None);
        }
        Place { cwd: area.map_or(Ok(cwd), Err), away: NO_NODE, root, own_root: self.own_root(root), umask }
    }

    /// Mappings it began with. Private ones are programs and libraries, which nobody maps here.
    fn begin_maps(&mut self, task: usize, task_id: i64) {
        let mine: Vec<_> =
            self.input.maps.iter().filter(|m| m.task_id == task_id && m.flags & 1 != 0).cloned().collect();
        for m in mine {
            let Some(info) = self.input.files.get(&m.file).cloned() else { continue };
            let Some(path) = info.path.filter(|_| info.kind.skip().is_none() && !info.unlinked) else { continue };
            let node = self.names.literal(&to_bytes(&path));
            if self.names.area(node).is_some() {
                continue;
            }
            self.names.prove_present(node, info.kind, None);
            let pre = self.names.pre(node);
            self.file_opened(m.file, pre, false);
            self.sizes.read(m.file, m.offset_bytes, 1, 1);
            self.held.insert(node, m.file);
            let slot = self.procs.new_map(task);
            let maps = self.procs.of(task).maps;
            let mapped = Mapped {
                len_bytes: m.len_bytes,
                slot,
                file: m.file,
                node,
                offset_bytes: m.offset_bytes,
                prot: m.prot,
                flags: m.flags,
            };
            self.procs.maps[maps].value.insert(m.address, mapped);
        }
    }

    /// What is in a thread's table is open when it begins.
    pub(crate) fn register(&mut self, task: usize, registered: &mut Registered) {
        let table = self.procs.of(task).table;
        let entries: Vec<Entry> = self.procs.tables[table].value.values().copied().collect();
        let mut fds = Vec::new();
        for e in entries {
            let Ok(slot) = e.slot else { continue };
            let open = match registered.get(&e.ofd) {
                Some(open) => *open,
                None => {
                    let ofd = self.procs.ofds[e.ofd as usize].clone();
                    let open = self.open_at_start(&ofd);
                    registered.insert(e.ofd, open);
                    open
                }
            };
            fds.push((open, slot));
        }
        if let Some(root) = &mut self.tasks[task].root {
            root.fds = fds;
        }
    }

    /// An open file description is there at the start: its number.
    pub(crate) fn open_at_start(&mut self, ofd: &Ofd) -> u32 {
        let file = self.where_is(ofd.file, ofd.node, ofd.kind, ofd.flags);
        let temporary = ofd.flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mut flags = if temporary { ofd.flags & !libc::O_TMPFILE } else { ofd.flags };
        if !self.options.scale.is_none() {
            // Positions are given.
            flags &= !libc::O_APPEND;
        }
        self.begin.opens.push(OpenAtStart {
            file,
            flags,
            offset_bytes: ofd.pos.unwrap_or(0),
            listed_bytes: ofd.listed_bytes,
            needed: false,
        });
        self.begin.opens.len() as u32 - 1
    }

    /// What these threads, which share their memory, have mapped.
    pub(crate) fn register_maps(&mut self, tasks: &[usize]) {
        let Some(first) = tasks.first() else { return };
        let maps: Vec<Mapped> = self.procs.maps[self.procs.of(*first).maps].value.values().copied().collect();
        for m in maps {
            let file = self.where_is(m.file, m.node, Kind::Regular, 0);
            self.begin.maps.push(MapAtStart {
                file,
                offset_bytes: m.offset_bytes,
                len_bytes: m.len_bytes,
                prot: m.prot,
                flags: m.flags,
                slot: m.slot,
                tasks: tasks.iter().map(|t| *t as u32).collect(),
                needed: false,
            });
        }
    }

    /// Where an open file is now.
    fn where_is(&mut self, file: i64, node: NodeId, kind: Kind, flags: i32) -> Where {
        let temporary = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        if let Some(name) = self.held.name_of(file).filter(|_| file != NO_ID)
            && self.names.exists(name) != Some(false)
        {
            return Where::Path(self.names.path(name));
        }
        // The name that a directory was opened by moves with it, that of a file does not.
        let by_name = matches!(kind, Kind::Directory | Kind::Unknown) || file == NO_ID;
        if by_name && !temporary && node != NO_NODE && self.names.exists(node) == Some(true) {
            return Where::Path(self.names.path(node));
        }
        if let Some(u) = self.unnamed.get(&file).filter(|_| file != NO_ID) {
            return Where::Unnamed(*u);
        }
        let number = self.begin.unnamed.len() as u32;
        // Of a directory that was removed `..` leads to where it was.
        let above = if self.names.is_nameless(node) { self.names.parent(node) } else { ROOT };
        let home = if self.names.exists(above) == Some(true) { above } else { ROOT };
        let stand_in = self.names.child(home, format!(".ioreel-unnamed-{number}").as_bytes());
        let kind = match kind {
            Kind::Directory => UnnamedKind::Directory,
            _ if temporary => UnnamedKind::Temporary,
            _ => UnnamedKind::Removed,
        };
        self.sizes.rehome(file, stand_in);
        self.unnamed.insert(file, number);
        let key = self.keys.of_file(file);
        let mut set = self.names.set_of_unnamed(file);
        if !self.options.privileged {
            (set.uid, set.gid) = (None, None);
        }
        set.attributes.retain(|name, _| self.may_make(name));
        self.begin.unnamed.push(Unnamed { node: stand_in, kind, size_bytes: 0, key, set });
        Where::Unnamed(number)
    }
}
