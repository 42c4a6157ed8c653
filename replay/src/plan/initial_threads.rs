//! The state in which threads start: those that existed when the recording started, or that run when a slice starts.

use std::collections::HashMap;

use ioreel_traces::{Text, text::to_bytes};

use crate::{
    Skip,
    model::{
        credentials::Credentials,
        names::{Kind, NO_NODE, NodeId, ROOT, mounts::INITIAL},
        processes::{Entry, FsContext, Mapping, Ofd, clone},
    },
    plan::{
        initial_descriptors::{InitialFile, MapAtStart, OpenAtStart, Unnamed, UnnamedKind},
        planner::Planner,
        program::Root,
    },
    reel::input::NO_ID,
};

/// Assumed umask if the reel has none.
const DEFAULT_UMASK: i32 = 0o022;

/// Index in [`crate::plan::initial_descriptors::Begin::opens`], by index of the open file description in the model.
pub(crate) type Registered = HashMap<u32, u32>;

impl Planner {
    pub(crate) fn start_roots(&mut self) {
        // By the reel's id of the open file description, which processes may share.
        let mut known = HashMap::new();
        for i in 0..self.machine.reel.tasks.len() {
            let t = &self.machine.reel.tasks[i];
            let parent = t.parent.and_then(|p| self.machine.reel.task_index.get(&p)).copied();
            self.programs.tasks[i].clone_flags = t.clone_flags;
            self.programs.tasks[i].start_ns = t.start_ns;
            self.programs.tasks[i].exit_ns = t.exit_ns;
            if parent.is_none_or(|p| p as usize == i) {
                let mut own = HashMap::new();
                let shares = t.start_ns == 0;
                self.begin_root(i, if shares { &mut known } else { &mut own });
            }
        }
        let mut registered = Registered::new();
        for i in 0..self.machine.reel.tasks.len() {
            if self.programs.tasks[i].root.is_some() && !self.programs.before_slice {
                let mut own = Registered::new();
                let shares = self.programs.tasks[i].start_ns == 0;
                self.register(i, if shares { &mut registered } else { &mut own });
                self.register_maps(&[i]);
            }
        }
    }

    /// Starts a thread whose start was not recorded.
    pub(crate) fn start_root(&mut self, task: usize) {
        self.begin_root(task, &mut HashMap::new());
        if !self.programs.before_slice {
            self.register(task, &mut Registered::new());
            self.register_maps(&[task]);
        }
    }

    /// Enters a thread's initial state into the model.
    fn begin_root(&mut self, i: usize, known: &mut HashMap<i64, u32>) {
        let t = self.machine.reel.tasks[i].clone();
        let bytes = |t: &Option<Text>| t.as_ref().map_or_else(|| b"/".to_vec(), |t| to_bytes(t));
        let (cwd, root) = (bytes(&t.cwd), bytes(&t.root));
        let umask = t.umask.unwrap_or(DEFAULT_UMASK);
        let here = self.fs_context(&cwd, &root, t.umask);
        self.machine.processes.start_root(i, here);
        let who = Credentials::plain(t.uid.unwrap_or(0) as u32, t.gid.unwrap_or(0) as u32).with(t.capabilities);
        let used = &mut self.machine.processes.uses[i];
        used.who = who;
        used.who_known = t.uid.is_some() && t.gid.is_some();
        used.maps_users = t.capabilities.is_some();
        let mine = self.machine.reel.fds_of(t.task_id);
        for f in mine {
            let info = f.file.and_then(|f| self.machine.reel.files.get(&f)).cloned();
            let kind = info.as_ref().map_or(Kind::Unknown, |i| i.kind);
            let gone = info.as_ref().is_some_and(|i| i.unlinked);
            let size_bytes = info.as_ref().and_then(|i| i.size_bytes);
            let mode = info.as_ref().and_then(|i| i.mode);
            let node = info.and_then(|i| i.path).map(|p| self.machine.names.literal(&to_bytes(&p)));
            let nowhere = if node.is_none() && !gone { Some(Skip::UnknownFd) } else { None };
            let skip = Skip::of_kind(kind).or(nowhere).or(node.and_then(|n| self.machine.names.area(n)));
            let ofd = match known.get(&f.ofd) {
                Some(ofd) => *ofd,
                None => {
                    let file = f.file.unwrap_or(NO_ID);
                    let place = node.filter(|_| !gone);
                    let ofd = self.new_ofd(place.unwrap_or(NO_NODE), file, kind, Some(f.offset_bytes), f.flags as i32);
                    match place {
                        Some(node) if skip.is_none() => {
                            self.machine.names.prove_present(node, kind, None);
                            let pre = self.machine.names.pre(node);
                            self.machine.file_opened(file, pre, false);
                            if let Some(size_bytes) = size_bytes.filter(|_| kind == Kind::Regular) {
                                self.machine.sizes.size_seen(pre, Some(file), size_bytes);
                            }
                            if let Some(mode) = mode {
                                self.machine.sizes.mode_seen(pre, mode);
                            }
                            self.machine.named_files.insert(node, file);
                        }
                        None if skip.is_none() => self.machine.sizes.nameless(file, size_bytes),
                        _ => {}
                    }
                    known.insert(f.ofd, ofd);
                    ofd
                }
            };
            let slot = match skip {
                Some(s) => Err(s),
                None => Ok(self.machine.processes.new_slot(i)),
            };
            let entry = Entry { slot, ofd, cloexec: f.cloexec != 0 };
            self.opened_for_others(i, f.ofd, entry);
            self.machine.processes.install(i, f.fd, entry);
        }
        self.begin_maps(i, t.task_id);
        self.programs.tasks[i].at_start = true;
        self.programs.tasks[i].root = Some(Root {
            cwd: if here.cwd.is_ok() { cwd } else { b"/".to_vec() },
            root: self.machine.names.path(here.own_root),
            root_of_starter: b"/".to_vec(),
            umask,
            who,
            cwd_open: None,
            fds: Vec::new(),
        });
    }

    /// A thread that shares descriptors with another one when it is first seen can have its own working directory and
    /// credentials, as those of file servers do.
    pub(crate) fn begin_beside(&mut self, i: usize, leader: usize) {
        let t = self.machine.reel.tasks[i].clone();
        let led = self.machine.processes.of(leader);
        let who = match (t.uid, t.gid) {
            (Some(uid), Some(gid)) if (uid as u32, gid as u32) != (led.who.user.effective, led.who.group.effective) => {
                Credentials::plain(uid as u32, gid as u32)
            }
            _ => led.who,
        };
        let who = if t.uid.is_some() { who.with(t.capabilities) } else { who };
        self.machine.processes.uses[i].who = who;
        self.machine.processes.uses[i].maps_users |= t.capabilities.is_some();
        self.programs.tasks[i].begins_as = Some(who).filter(|who| *who != led.who);
        self.machine.users_change |= self.programs.tasks[i].begins_as.is_some();
        let Some(cwd) = t.cwd.filter(|_| t.clone_flags & clone::FS == 0) else { return };
        let cwd = to_bytes(&cwd);
        let root = t.root.as_ref().map_or_else(|| b"/".to_vec(), |r| to_bytes(r));
        let umask = t.umask.unwrap_or(DEFAULT_UMASK);
        let here = self.fs_context(&cwd, &root, t.umask);
        let place = self.machine.processes.of(i).place;
        self.machine.processes.places[place].value = here;
        let cwd = if here.cwd.is_ok() { cwd } else { b"/".to_vec() };
        let root = self.machine.names.path(here.own_root);
        let root_of_starter = self.machine.names.path(self.machine.processes.places[led.place].value.own_root);
        self.programs.tasks[i].root =
            Some(Root { cwd, root, root_of_starter, umask, who, cwd_open: None, fds: Vec::new() });
    }

    /// The fs context of a thread with this working directory and root directory at the start.
    fn fs_context(&mut self, cwd: &[u8], root: &[u8], umask: Option<i32>) -> FsContext {
        let (root, cwd) = (self.machine.names.literal(root), self.machine.names.literal(cwd));
        let area = self.machine.names.area(cwd).filter(|a| *a != Skip::Outside);
        if area.is_none() {
            self.machine.names.prove_present(cwd, Kind::Directory, None);
        }
        FsContext {
            cwd: area.map_or(Ok(cwd), Err),
            away: NO_NODE,
            root,
            own_root: self.machine.own_root(root),
            cwd_mount: INITIAL,
            root_mount: INITIAL,
            mounts_unknown: false,
            umask: umask.unwrap_or(DEFAULT_UMASK),
            umask_known: umask.is_some(),
        }
    }

    /// Mappings at the start. Private ones are programs and libraries, which a replay does not map.
    fn begin_maps(&mut self, task: usize, task_id: i64) {
        for m in self.machine.reel.maps_of(task_id) {
            if m.flags & 1 == 0 {
                continue;
            }
            let Some(info) = self.machine.reel.files.get(&m.file).cloned() else { continue };
            let Some(path) = info.path.filter(|_| Skip::of_kind(info.kind).is_none() && !info.unlinked) else {
                continue;
            };
            let node = self.machine.names.literal(&to_bytes(&path));
            if self.machine.names.area(node).is_some() {
                continue;
            }
            self.machine.names.prove_present(node, info.kind, None);
            let pre = self.machine.names.pre(node);
            self.machine.file_opened(m.file, pre, false);
            self.machine.sizes.read(m.file, m.offset_bytes, 1, 1);
            self.machine.named_files.insert(node, m.file);
            let slot = self.machine.processes.new_map(task);
            let maps = self.machine.processes.of(task).maps;
            let mapped = Mapping {
                len_bytes: m.len_bytes,
                slot,
                file: m.file,
                node,
                offset_bytes: m.offset_bytes,
                prot: m.prot,
                flags: m.flags,
            };
            self.machine.processes.maps[maps].value.insert(m.address, mapped);
        }
    }

    /// Registers the descriptors in a thread's table as open at its start.
    pub(crate) fn register(&mut self, task: usize, registered: &mut Registered) {
        let table = self.machine.processes.of(task).table;
        let entries: Vec<Entry> = self.machine.processes.tables[table].value.values().copied().collect();
        let mut fds = Vec::new();
        for e in entries {
            let Ok(slot) = e.slot else { continue };
            let open = match registered.get(&e.ofd) {
                Some(open) => *open,
                None => {
                    let ofd = self.machine.processes.ofds[e.ofd as usize].clone();
                    let open = self.open_at_start(&ofd);
                    registered.insert(e.ofd, open);
                    open
                }
            };
            fds.push((open, slot));
        }
        if let Some(root) = &mut self.programs.tasks[task].root {
            root.fds = fds;
        }
    }

    /// Registers an open file description as open at the start. Returns its index.
    pub(crate) fn open_at_start(&mut self, ofd: &Ofd) -> u32 {
        let file = self.where_is(ofd.file, ofd.node, ofd.kind, ofd.flags);
        let temporary = ofd.flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mut flags = if temporary { ofd.flags & !libc::O_TMPFILE } else { ofd.flags };
        if !self.machine.footprint.is_none() {
            // All positions are explicit.
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

    /// Registers the mappings of these threads, which share their memory.
    pub(crate) fn register_maps(&mut self, tasks: &[usize]) {
        let Some(first) = tasks.first() else { return };
        let maps: Vec<Mapping> =
            self.machine.processes.maps[self.machine.processes.of(*first).maps].value.values().copied().collect();
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

    /// The path of an open file, or its entry among files without a name.
    fn where_is(&mut self, file: i64, node: NodeId, kind: Kind, flags: i32) -> InitialFile {
        let temporary = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        if let Some(name) = self.machine.named_files.name_of(file).filter(|_| file != NO_ID)
            && self.machine.names.exists(name) != Some(false)
        {
            return InitialFile::Path(self.machine.names.path(name));
        }
        // The name by which a directory was opened moves with it; that of a file does not.
        let by_name = matches!(kind, Kind::Directory | Kind::Unknown) || file == NO_ID;
        if by_name && !temporary && node != NO_NODE && self.machine.names.exists(node) == Some(true) {
            return InitialFile::Path(self.machine.names.path(node));
        }
        if let Some(u) = self.unnamed.get(&file).filter(|_| file != NO_ID) {
            return InitialFile::Unnamed(*u);
        }
        let number = self.begin.unnamed.len() as u32;
        // `..` of a removed directory leads to its former parent.
        let above = if self.machine.names.is_nameless(node) { self.machine.names.parent(node) } else { ROOT };
        let home = if self.machine.names.exists(above) == Some(true) { above } else { ROOT };
        let stand_in = self.machine.names.child(home, format!(".ioreel-unnamed-{number}").as_bytes());
        let kind = match kind {
            Kind::Directory => UnnamedKind::Directory,
            _ if temporary => UnnamedKind::Temporary,
            _ => UnnamedKind::Removed,
        };
        self.machine.sizes.rehome(file, stand_in);
        self.unnamed.insert(file, number);
        let key = self.machine.keys.of_file(file);
        let mut set = self.machine.names.set_of_unnamed(file);
        if !self.machine.privileged {
            (set.uid, set.gid) = (None, None);
        }
        let attributes = self.machine.attributes_of_unnamed(file);
        self.begin.unnamed.push(Unnamed { node: stand_in, kind, size_bytes: 0, key, set, attributes });
        InitialFile::Unnamed(number)
    }

    /// Registers a removed working directory as open.
    pub(crate) fn open_removed_directory(&mut self, node: NodeId) -> u32 {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let ofd = Ofd {
            node,
            file: NO_ID,
            kind: Kind::Directory,
            pos: Some(0),
            listed_bytes: 0,
            flags,
            refs: 0,
            recorded: NO_ID,
            mount: INITIAL,
        };
        self.open_at_start(&ofd)
    }
}
