//! Follows calls that make, move and remove mounts, and change the root of a mount namespace (fs/namespace.c).
//!
//! The replay makes no mounts. It uses, for a path through a mount point, the path to what is mounted there.

use crate::{
    Call, Skip,
    model::{
        machine::Machine,
        names::{NO_NODE, NodeId, mounts::UNKNOWN},
        operands::{Last, Operands},
        path_resolution::{Link, link_of_proc},
    },
    reel::input::{NO_FD, NONE, Rec},
};

/// Calls of mount(2) with these flags change properties of mounts that exist.
const CHANGES: u64 = libc::MS_REMOUNT | libc::MS_SHARED | libc::MS_PRIVATE | libc::MS_SLAVE | libc::MS_UNBINDABLE;

/// Number of mounts that are not followed and are named.
const MOST_NOTED: usize = 10;

/// What a mount call does to the descriptors of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewDescriptor {
    None,
    /// It opens a mount that shows this node.
    Of(NodeId),
}

/// Where a path leads: its node, and the mount point at which it ends.
#[derive(Clone, Copy)]
struct Place {
    node: NodeId,
    point: Option<NodeId>,
}

impl Place {
    /// The mount point that a mount over this place has.
    fn over(self) -> NodeId {
        self.point.unwrap_or(self.node)
    }
}

impl Machine {
    /// Applies a successful call on mounts.
    pub(crate) fn mounts_change(&mut self, r: &Rec) -> NewDescriptor {
        match r.call {
            Call::Mount => self.mount_called(r),
            Call::MoveMount => self.mount_attached(r),
            Call::Umount2 => self.unmounted(r),
            Call::PivotRoot => self.root_changed(r),
            Call::Setns => self.namespace_entered(r),
            Call::Fsopen => return NewDescriptor::Of(self.other(r.name)),
            // Its descriptor stands for what fsopen has made.
            Call::Fsmount => {
                return self
                    .of_descriptor(r, if r.fd == NO_FD { r.dirfd } else { r.fd })
                    .map_or_else(|| NewDescriptor::Of(self.other(NONE)), |p| NewDescriptor::Of(p.node));
            }
            Call::OpenTree => {
                let place = self.place(r, r.dirfd, r.path);
                return place.map_or(NewDescriptor::None, |p| NewDescriptor::Of(p.node));
            }
            _ => {}
        }
        NewDescriptor::None
    }

    /// The mount namespace of a thread.
    pub(crate) fn mount_space(&self, task: usize) -> u32 {
        self.processes.places[self.processes.of(task).place].value.mounts
    }

    /// A thread gets a copy of its mount namespace (`CLONE_NEWNS`).
    pub(crate) fn own_mount_space(&mut self, task: usize) {
        let space = self.names.new_mount_space(self.mount_space(task));
        let place = self.processes.of(task).place;
        self.processes.places[place].value.mounts = space;
    }

    fn mount_called(&mut self, r: &Rec) {
        let flags = r.flags as u64;
        if flags & CHANGES != 0 {
            return;
        }
        let space = self.mount_space(r.task as usize);
        let root = if flags & libc::MS_BIND != 0 {
            let Some(from) = self.place(r, libc::AT_FDCWD, r.path) else { return self.unfollowed(r) };
            from.node
        } else if flags & libc::MS_MOVE != 0 {
            let Some(from) = self.place(r, libc::AT_FDCWD, r.path) else { return self.unfollowed(r) };
            self.taken_off(space, from)
        } else {
            self.other(r.name)
        };
        self.mounted(r, libc::AT_FDCWD, r.path2, root);
    }

    /// `move_mount`: attaches what a descriptor stands for, or moves a mount.
    fn mount_attached(&mut self, r: &Rec) {
        let space = self.mount_space(r.task as usize);
        let by_descriptor = self.is_empty_path(r.path);
        let from = if by_descriptor { self.of_descriptor(r, r.dirfd) } else { self.place(r, r.dirfd, r.path) };
        let Some(from) = from else { return self.unfollowed(r) };
        let root = if by_descriptor { from.node } else { self.taken_off(space, from) };
        self.mounted(r, r.dirfd2, r.path2, root);
    }

    /// The root of the mount at this place, which is no longer there.
    fn taken_off(&mut self, space: u32, from: Place) -> NodeId {
        from.point.and_then(|point| self.names.unmount(space, point)).unwrap_or(from.node)
    }

    fn mounted(&mut self, r: &Rec, dirfd: i32, path: u32, root: NodeId) {
        let space = self.mount_space(r.task as usize);
        let to = if self.is_empty_path(path) { self.of_descriptor(r, dirfd) } else { self.place(r, dirfd, path) };
        let Some(to) = to else { return self.unfollowed(r) };
        if self.names.area(root) == Some(Skip::UnfollowedMount) && self.names.area(to.node).is_none() {
            let kind = if r.name == NONE { &b"mount"[..] } else { self.reel.texts.paths.bytes(r.name) };
            let words = [kind, b" on ", &self.names.path(to.node)].concat();
            self.note_unfollowed(String::from_utf8_lossy(&words).into_owned());
        }
        if !self.names.mount(space, to.over(), root) {
            self.unfollowed(r);
        }
    }

    fn note_unfollowed(&mut self, words: String) {
        if self.unfollowed_mounts.len() < MOST_NOTED && !self.unfollowed_mounts.contains(&words) {
            self.unfollowed_mounts.push(words);
        }
    }

    fn unmounted(&mut self, r: &Rec) {
        let space = self.mount_space(r.task as usize);
        let Some(at) = self.place(r, libc::AT_FDCWD, r.path) else { return };
        if let Some(point) = at.point.or_else(|| self.names.mount_point_of(space, at.node)) {
            self.names.unmount(space, point);
        }
    }

    /// `pivot_root`: the threads of the mount namespace whose root was the old one get the new one.
    fn root_changed(&mut self, r: &Rec) {
        let space = self.mount_space(r.task as usize);
        let (Some(new), Some(put)) = (self.place(r, libc::AT_FDCWD, r.path), self.place(r, libc::AT_FDCWD, r.path2))
        else {
            return self.unfollowed(r);
        };
        let old = self.processes.places[self.processes.of(r.task as usize).place].value.root;
        self.processes.pivot(space, old, new.node);
        // The new root is no longer mounted where it was.
        if let Some(point) = new.point.or_else(|| self.names.mount_point_of(space, new.node)) {
            self.names.unmount(space, point);
        }
        // pivot_root(".", ".") leaves the old root above the new one, to be unmounted.
        if put.node != new.node && !self.names.mount(space, put.over(), old) {
            self.unfollowed(r);
        }
        self.names.mounts.any = true;
        self.names.shape += 1;
    }

    /// `setns`: which mounts the thread sees now is unknown.
    fn namespace_entered(&mut self, r: &Rec) {
        const NEWNS: i64 = libc::CLONE_NEWNS as i64;
        if r.flags == 0 || r.flags & NEWNS != 0 {
            self.unfollowed(r);
        }
    }

    /// From now on, the mounts of this thread's namespace are unknown to it.
    fn unfollowed(&mut self, r: &Rec) {
        let path = if r.path2 == NONE { r.path } else { r.path2 };
        let path = if path == NONE { &b""[..] } else { self.reel.texts.paths.bytes(path) };
        let words = format!("{} {}", r.call.name(), String::from_utf8_lossy(path));
        self.note_unfollowed(words.trim_end().to_owned());
        let place = self.processes.of(r.task as usize).place;
        self.processes.places[place].value.mounts = UNKNOWN;
        self.names.mounts.any = true;
        self.names.shape += 1;
    }

    /// The root of a mounted file system of this type. An overlay may show files of the tree.
    fn other(&mut self, name: u32) -> NodeId {
        let name = if name == NONE { &b""[..] } else { self.reel.texts.paths.bytes(name) };
        let follows = !matches!(name, b"overlay" | b"" | b"fuse" | b"nfs" | b"nfs4");
        self.names.other_file_system(if follows { Skip::OtherMount } else { Skip::UnfollowedMount })
    }

    fn is_empty_path(&self, path: u32) -> bool {
        path == NONE || self.reel.texts.paths.bytes(path).is_empty()
    }

    fn of_descriptor(&mut self, r: &Rec, fd: i32) -> Option<Place> {
        let entry = self.processes.entry(r.task as usize, fd)?;
        let node = self.processes.ofds[entry.ofd as usize].node;
        if node == NO_NODE {
            return None;
        }
        let space = self.mount_space(r.task as usize);
        Some(Place { node, point: self.names.mount_point_of(space, node) })
    }

    fn place(&mut self, r: &Rec, dirfd: i32, path: u32) -> Option<Place> {
        if self.is_empty_path(path) {
            return self.of_descriptor(r, dirfd);
        }
        // Sandboxes name mount points by descriptors.
        let pid = self.reel.tasks[r.task as usize].pid;
        if let Some((Link::Fd(fd), None)) = link_of_proc(self.reel.texts.paths.bytes(path), pid) {
            return self.of_descriptor(r, fd);
        }
        // /proc and /dev are mounted elsewhere, too, and no operation there is replayed.
        self.names.mounts.led = None;
        let led = self.name(r, dirfd, path, Last::File { follow: true }, &mut Operands::none());
        let node = led.map_or(self.names.mounts.led, |(_, node, _)| Some(node)).filter(|node| *node != NO_NODE)?;
        Some(Place { node, point: self.names.mounts.end })
    }
}
