//! Follows calls that make, move and remove mounts, and change the root of a mount namespace (fs/namespace.c).
//!
//! The replay makes no mounts. It uses, for a path through a mount point, the path to what is mounted there.

use ioreel_traces::{mounting::Mounting, text::from_bytes};

use crate::{
    Call, Skip,
    model::{
        machine::Machine,
        names::{
            NO_NODE, NodeId,
            mounts::{MountId, Place},
        },
        operands::{Last, Operands},
        path_resolution::{Link, link_of_proc},
    },
    reel::input::{NO_FD, NONE, Rec},
};

/// Number of mounts that are not followed and are named.
const MOST_NOTED: usize = 10;

/// Types of file systems that never show files of another one.
const OTHER_TYPES: [&[u8]; 22] = [
    b"tmpfs",
    b"ramfs",
    b"proc",
    b"sysfs",
    b"devtmpfs",
    b"devpts",
    b"cgroup",
    b"cgroup2",
    b"mqueue",
    b"hugetlbfs",
    b"debugfs",
    b"tracefs",
    b"securityfs",
    b"selinuxfs",
    b"configfs",
    b"bpf",
    b"binfmt_misc",
    b"pstore",
    b"efivarfs",
    b"squashfs",
    b"erofs",
    b"iso9660",
];

/// Types of file systems on a device. They show the recorded tree only if that is on the same device.
const DISK_TYPES: [&[u8]; 11] =
    [b"ext2", b"ext3", b"ext4", b"xfs", b"btrfs", b"f2fs", b"vfat", b"exfat", b"ntfs3", b"nilfs2", b"bcachefs"];

/// open_tree: the descriptor gets a mount of its own (linux/mount.h).
const OPEN_TREE_CLONE: i64 = 1;
/// open_tree: with what is mounted below.
const AT_RECURSIVE: i64 = 0x8000;
/// move_mount: changes the peer group, or puts the mount under the topmost one.
const NOT_ON_TOP: i64 = 0x100 | 0x200;

impl Machine {
    /// Applies a successful call on mounts. Returns the place that its new descriptor stands for.
    pub(crate) fn mounts_change(&mut self, r: &Rec) -> Option<Place> {
        match r.call {
            Call::Mount => self.mount_called(r),
            Call::MoveMount => self.mount_moved(r, r.dirfd, (r.dirfd2, r.path2)),
            Call::Umount2 => self.unmounted(r),
            Call::PivotRoot => self.root_changed(r),
            Call::Setns => self.namespace_entered(r),
            Call::Fsopen => return self.new_place(r, None),
            Call::Fsmount => {
                // Its descriptor stands for what fsopen has made.
                let context = self.of_descriptor(r, if r.fd == NO_FD { r.dirfd } else { r.fd });
                return self.new_place(r, context.map(|place| place.node));
            }
            Call::OpenTree => return self.tree_opened(r),
            _ => {}
        }
        None
    }

    /// A thread gets a copy of its mount namespace (`CLONE_NEWNS`).
    pub(crate) fn own_mounts(&mut self, task: usize) {
        let place = self.processes.of(task).place;
        let here = self.processes.places[place].value;
        if here.mounts_unknown {
            return;
        }
        let Some(copies) = self.names.copy_namespace(here.root_mount) else { return self.mounts_lost(task) };
        let copy_of = |mount| copies.get(&mount).copied().unwrap_or(mount);
        let here = &mut self.processes.places[place].value;
        (here.cwd_mount, here.root_mount) = (copy_of(here.cwd_mount), copy_of(here.root_mount));
        if self.processes.of(task).maps_users {
            // In another user namespace, the copies of shared mounts are slaves.
            self.names.propagate_to_slaves(copies.into_values());
        }
    }

    fn mount_called(&mut self, r: &Rec) {
        let new = match Mounting::of(r.flags) {
            Mounting::Reconfigure => return,
            Mounting::Propagate { how, recursive } => {
                if let Some(place) = self.place(r, libc::AT_FDCWD, r.path2) {
                    self.names.propagate(place.mount, how, recursive);
                }
                return;
            }
            Mounting::Move => return self.mount_moved(r, libc::AT_FDCWD, (libc::AT_FDCWD, r.path2)),
            Mounting::Bind { recursive } => {
                self.place(r, libc::AT_FDCWD, r.path).and_then(|from| self.shown_again(from, recursive))
            }
            Mounting::New => self.new_place(r, None).map(|place| place.mount),
        };
        self.mounted(r, new, (libc::AT_FDCWD, r.path2));
    }

    /// A mount that shows a place; `recursive`: with what is mounted below it.
    fn shown_again(&mut self, from: Place, recursive: bool) -> Option<MountId> {
        if recursive { self.names.copy_from(from) } else { self.names.new_bind(from) }
    }

    /// `move_mount`, or mount(2) with `MS_MOVE`. What a descriptor stands for may be attached nowhere yet.
    fn mount_moved(&mut self, r: &Rec, dirfd: i32, to: (i32, u32)) {
        if r.call == Call::MoveMount && r.flags & NOT_ON_TOP != 0 {
            return self.unfollowed(r);
        }
        let from = self.place(r, dirfd, r.path);
        let mount = from.and_then(|from| self.names.mounts.topped_by(from));
        self.mounted(r, mount, to);
    }

    fn mounted(&mut self, r: &Rec, mount: Option<MountId>, (dirfd, path): (i32, u32)) {
        let to = self.place(r, dirfd, path);
        let (Some(mount), Some(to)) = (mount, to) else { return self.unfollowed(r) };
        let shown = self.names.mounts.shown_by(mount);
        if self.names.area(shown) == Some(Skip::UnfollowedMount) && self.names.area(to.node).is_none() {
            let kind = if r.name == NONE { &b"mount"[..] } else { self.reel.texts.paths.bytes(r.name) };
            let words = [kind, b" on ", &self.names.path(to.node)].concat();
            self.note_unfollowed(String::from_utf8_lossy(&words).into_owned());
        }
        if !self.names.attach(mount, to) {
            self.unfollowed(r);
        }
    }

    fn note_unfollowed(&mut self, words: String) {
        if self.unfollowed_mounts.len() < MOST_NOTED && !self.unfollowed_mounts.contains(&words) {
            self.unfollowed_mounts.push(words);
        }
    }

    fn unmounted(&mut self, r: &Rec) {
        let Some(at) = self.place(r, libc::AT_FDCWD, r.path) else { return self.unfollowed(r) };
        // Also `.` stands for what is mounted on it.
        let at = self.names.topmost(at);
        if let Some(mount) = self.names.mounts.topped_by(at) {
            return self.names.unmount(mount, r.flags & i64::from(libc::MNT_DETACH) != 0);
        }
        // What was under a mount that had been there before is unknown.
        if self.names.area(at.node).is_none() {
            let under = self.names.other_file_system(Skip::UnfollowedMount);
            let followed = self.names.new_mount(under).is_some_and(|mount| self.names.attach(mount, at));
            let words = format!("umount2 {}", from_bytes(&self.names.path(at.node)));
            self.note_unfollowed(words);
            self.mounts_left_out += 1;
            if !followed {
                self.unfollowed(r);
            }
        }
    }

    /// `pivot_root`: the threads whose root was the old one get the new one.
    fn root_changed(&mut self, r: &Rec) {
        let (new, put) = (self.place(r, libc::AT_FDCWD, r.path), self.place(r, libc::AT_FDCWD, r.path2));
        let here = self.processes.places[self.processes.of(r.task as usize).place].value;
        let old = Place { node: here.root, mount: here.root_mount };
        let (Some(new), Some(put)) = (new, put) else { return self.unfollowed(r) };
        let Some(mount) = self.names.mounts.topped_by(new) else { return self.unfollowed(r) };
        if !self.names.pivot(mount, old.mount, put) {
            return self.unfollowed(r);
        }
        self.processes.pivot(old, new);
        self.names.shape += 1;
    }

    /// `setns`: which mounts the thread sees now is unknown.
    fn namespace_entered(&mut self, r: &Rec) {
        const NEWNS: i64 = libc::CLONE_NEWNS as i64;
        if r.flags == 0 || r.flags & NEWNS != 0 {
            self.note_call(r);
            self.mounts_lost(r.task as usize);
        }
    }

    /// From now on, the mounts of this thread are unknown. Others may see what the call did.
    fn unfollowed(&mut self, r: &Rec) {
        self.note_call(r);
        self.mounts_left_out += 1;
        self.mounts_lost(r.task as usize);
    }

    fn note_call(&mut self, r: &Rec) {
        let path = if r.path2 == NONE { r.path } else { r.path2 };
        let path = if path == NONE { &b""[..] } else { self.reel.texts.paths.bytes(path) };
        let words = format!("{} {}", r.call.name(), from_bytes(path));
        self.note_unfollowed(words.trim_end().to_owned());
    }

    fn mounts_lost(&mut self, task: usize) {
        let place = self.processes.of(task).place;
        self.processes.places[place].value.mounts_unknown = true;
        self.names.mounts.any = true;
        self.names.shape += 1;
    }

    fn tree_opened(&mut self, r: &Rec) -> Option<Place> {
        let place = self.place(r, r.dirfd, r.path)?;
        if r.flags & OPEN_TREE_CLONE == 0 {
            return Some(place);
        }
        let mount = self.shown_again(place, r.flags & AT_RECURSIVE != 0)?;
        Some(Place { mount, ..place })
    }

    /// A new mount, attached nowhere, that shows `root` or the file system that this call names.
    fn new_place(&mut self, r: &Rec, root: Option<NodeId>) -> Option<Place> {
        let root = root.unwrap_or_else(|| {
            let why = self.why_skipped(r);
            self.names.other_file_system(why)
        });
        let mount = self.names.new_mount(root)?;
        Some(Place { node: root, mount })
    }

    /// Why operations on a file system that this call makes available are skipped. An overlay, for example, may show files
    /// of the tree, and so does the device that the tree is on.
    fn why_skipped(&self, r: &Rec) -> Skip {
        let text = |path: u32| if path == NONE { &b""[..] } else { self.reel.texts.paths.bytes(path) };
        let (kind, source) = (text(r.name), text(r.path));
        // fsopen names a type alone. Only plain names of devices say that devices differ.
        let is_plain = |name: &[u8]| name.strip_prefix(b"/dev/").is_some_and(|n| !n.contains(&b'/') && n != b"root");
        let is_there = |(fstype, from): &(String, String)| {
            let differs =
                is_plain(source) && is_plain(from.as_bytes()) && source != from.as_bytes() && kind != b"btrfs";
            fstype.as_bytes() == kind && !differs
        };
        let other =
            OTHER_TYPES.contains(&kind) || DISK_TYPES.contains(&kind) && !self.reel.mounted.iter().any(is_there);
        if other { Skip::OtherMount } else { Skip::UnfollowedMount }
    }

    fn of_descriptor(&self, r: &Rec, fd: i32) -> Option<Place> {
        let entry = self.processes.entry(r.task as usize, fd)?;
        let ofd = &self.processes.ofds[entry.ofd as usize];
        (ofd.node != NO_NODE).then_some(Place { node: ofd.node, mount: ofd.mount })
    }

    fn place(&mut self, r: &Rec, dirfd: i32, path: u32) -> Option<Place> {
        if path == NONE || self.reel.texts.paths.bytes(path).is_empty() {
            return self.of_descriptor(r, dirfd);
        }
        // Sandboxes name mount points by descriptors.
        let pid = self.reel.tasks[r.task as usize].pid;
        if let Some((Link::Fd(fd), None)) = link_of_proc(self.reel.texts.paths.bytes(path), pid) {
            return self.of_descriptor(r, fd);
        }
        // Also a place where nothing is replayed, which is an error here, is known.
        self.names.mounts.led = None;
        let _ = self.name(r, dirfd, path, Last::File { follow: true }, &mut Operands::none());
        self.names.mounts.led
    }
}
