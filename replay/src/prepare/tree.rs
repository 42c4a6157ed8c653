//! Creates the initial tree: first lists what to create, then creates it.

use std::{collections::HashMap, io, os::fd::AsRawFd, path::PathBuf, sync::Arc};

use ioreel_traces::rows::Tree;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmod, chownat,
        linkat, lsetxattr, mkdir, mknodat, open, symlink, unlink, utimensat,
    },
    io::Errno,
};

use crate::{
    ReplayError,
    base::{ids::system_call, privileges, subvolumes},
    contents::fill::Filler,
    model::{
        access_lists,
        attributes::Attributes,
        device_nodes::{device_of_row, is_made},
        names::{Device, InitialState, Kind, NodeId},
        sizes::BLOCK_BYTES,
    },
    plan::program::Plan,
    prepare::layout::Layout,
};

/// An object to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Absolute path inside the target.
    pub path: Vec<u8>,
    /// Its kind.
    pub what: ItemKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group, if they are to be set.
    pub owner: Option<(u32, u32)>,
    /// Modification time, ns since 1970.
    pub mtime_ns: Option<i64>,
    /// Extended attributes.
    pub attributes: Attributes,
    /// Key of its generated data.
    pub key: u64,
    /// A directory that is a subvolume of btrfs, if the target can have such.
    pub subvolume: bool,
    /// On-disk layout, with `--layout` and if recorded.
    pub layout: Option<Arc<Layout>>,
}

impl Item {
    /// Space needed, bytes: data in whole blocks, and one block for inode and name.
    pub fn bytes(&self) -> i64 {
        match self.what {
            ItemKind::Regular { data_bytes, .. } => {
                let bytes = self.layout.as_ref().map_or(data_bytes, |l| l.room_bytes().max(data_bytes));
                bytes.saturating_add(2 * BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES
            }
            _ => BLOCK_BYTES,
        }
    }
}

/// Kinds of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A directory.
    Directory,
    /// A regular file. Data comes first, then a hole.
    Regular {
        /// Length, bytes.
        size_bytes: i64,
        /// Length of the data, bytes.
        data_bytes: i64,
    },
    /// A FIFO, socket, or character or block device.
    Node {
        /// Its kind.
        kind: Kind,
        /// Its device.
        device: Option<Device>,
    },
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
    /// A hard link to the file at this path.
    Link(Vec<u8>),
}

/// The tree to create.
#[derive(Clone, Debug, Default)]
pub struct Preparation {
    /// Objects, directories before their entries.
    pub items: Vec<Item>,
    /// Space needed, bytes. Directories and links count as one block each.
    pub bytes: i64,
    /// Number of device nodes that existed and are not created.
    pub device_nodes_left_out: i64,
    /// Number of objects created without the set-ID bits of their mode, or without privileged attributes.
    pub set_ids_left_out: i64,
}

impl Preparation {
    /// What must exist before `plan` runs. `privileged`: owners can be set.
    pub fn of(plan: &Plan, privileged: bool) -> Self {
        let mut out = Self::default();
        let first = plan.tasks.iter().find_map(|t| t.root.as_ref());
        let default_owner = first.map_or((0, 0), |r| (r.who.user.effective, r.who.group.effective));
        let mut nodes: Vec<(Vec<u8>, NodeId)> = (1..plan.names.len() as NodeId)
            .filter(|n| matches!(plan.names.before(*n), InitialState::Present { .. }))
            .map(|n| (plan.names.path(n), n))
            .collect();
        nodes.sort_unstable();
        let mut wanted: HashMap<Vec<u8>, ()> = HashMap::new();
        let mut linked: HashMap<i64, Vec<u8>> = HashMap::new();
        let by_link = attributes_by_link(plan);
        for (i, (path, node)) in nodes.iter().enumerate() {
            let InitialState::Present { kind, target, row, .. } = plan.names.before(*node) else { continue };
            let row = plan.tree.get(*row as usize);
            let mut prefix = path.clone();
            prefix.push(b'/');
            let holds = nodes.get(i + 1).is_some_and(|(next, _)| next.starts_with(&prefix));
            if planted(plan, *node, row) {
                continue;
            }
            // Outside the roots, only what working directories need is created: see [`Self::roots`].
            if plan.names.area(*node).is_some() {
                continue;
            }
            let single = match kind {
                Kind::Directory => ItemKind::Directory,
                Kind::Unknown if holds => ItemKind::Directory,
                Kind::Regular | Kind::Unknown => regular(plan, *node, row),
                Kind::Fifo | Kind::Socket => ItemKind::Node { kind: *kind, device: None },
                Kind::Device => {
                    let device = row.and_then(device_of_row);
                    if !is_made(*kind, device, plan.makes_devices) {
                        out.device_nodes_left_out += 1;
                        continue;
                    }
                    ItemKind::Node { kind: *kind, device }
                }
                Kind::Symlink => ItemKind::Symlink(target.as_deref().unwrap_or(b"?").to_vec()),
                // Nothing else has a name in a file system.
                Kind::Other | Kind::Foreign => continue,
            };
            let link = row.and_then(|r| r.link_id).filter(|_| single != ItemKind::Directory);
            let what = match link.and_then(|l| linked.get(&l)) {
                Some(first) => ItemKind::Link(first.clone()),
                None => {
                    linked.extend(link.map(|l| (l, path.clone())));
                    single
                }
            };
            out.parents(path, &mut wanted, privileged.then_some(default_owner));
            let directory = what == ItemKind::Directory;
            let attributes = link.and_then(|l| by_link.get(&l)).or_else(|| plan.attributes.get(node));
            let owners = (privileged, default_owner);
            let mut item =
                item_of(plan, (path.clone(), *node), row, what, owners, attributes.cloned().unwrap_or_default());
            if !plan.set_ids {
                out.set_ids_left_out +=
                    i64::from(privileges::leave_out(directory, &mut item.mode, &mut item.attributes));
            }
            out.bytes = out.bytes.saturating_add(item.bytes());
            out.items.push(item);
            if directory {
                wanted.insert(path.clone(), ());
            }
        }
        out.bytes = out.bytes.saturating_add(plan.begin.bytes());
        out.roots(plan, &mut wanted, privileged.then_some(default_owner));
        out
    }

    /// Adds the directories above roots and working directories, which must have existed.
    fn roots(&mut self, plan: &Plan, wanted: &mut HashMap<Vec<u8>, ()>, owner: Option<(u32, u32)>) {
        let mut roots: Vec<&Vec<u8>> = plan.names.roots().collect();
        roots.sort_unstable();
        for root in roots {
            self.parents(root, wanted, owner);
        }
        for root in plan.tasks.iter().filter_map(|t| t.root.as_ref()) {
            for dir in [&root.cwd, &root.root] {
                let mut inside = dir.clone();
                inside.extend_from_slice(b"/.");
                self.parents(&inside, wanted, owner);
            }
        }
    }

    /// Adds the directories above `path` that are missing.
    fn parents(&mut self, path: &[u8], made: &mut HashMap<Vec<u8>, ()>, owner: Option<(u32, u32)>) {
        let ends = path.iter().enumerate().skip(1).rev().filter(|(i, b)| **b == b'/' && path[i - 1] != b'/');
        // Where one is, so are those above it.
        let missing: Vec<usize> = ends.map(|(i, _)| i).take_while(|i| !made.contains_key(&path[..*i])).collect();
        for i in missing.into_iter().rev() {
            made.insert(path[..i].to_vec(), ());
            self.bytes = self.bytes.saturating_add(BLOCK_BYTES);
            self.items.push(Item {
                path: path[..i].to_vec(),
                what: ItemKind::Directory,
                mode: 0o755,
                owner,
                mtime_ns: None,
                attributes: Attributes::new(),
                key: 0,
                subvolume: false,
                layout: None,
            });
        }
    }

    /// Length of the data of regular files, by key, bytes.
    pub fn data(&self) -> HashMap<u64, i64> {
        let data = self.items.iter().filter_map(|i| match i.what {
            ItemKind::Regular { data_bytes, .. } => {
                Some((i.key, i.layout.as_ref().map_or(data_bytes, |l| l.data_bytes().min(data_bytes))))
            }
            _ => None,
        });
        data.collect()
    }

    /// Number of regular files, and their total size in bytes.
    pub fn files(&self) -> (i64, i64) {
        self.items.iter().fold((0, 0), |(n, bytes), i| match i.what {
            ItemKind::Regular { size_bytes, .. } => (n + 1, bytes.saturating_add(size_bytes)),
            _ => (n, bytes),
        })
    }
}

/// Extended attributes by link id: what is known about a file by any of its names.
pub(crate) fn attributes_by_link(plan: &Plan) -> HashMap<i64, Attributes> {
    let link_of = |node: NodeId| match plan.names.before(node) {
        InitialState::Present { row, .. } => plan.tree.get(*row as usize).and_then(|t| t.link_id),
        _ => None,
    };
    let mut by_link: HashMap<i64, Attributes> = HashMap::new();
    for (node, attributes) in &plan.attributes {
        if let Some(link) = link_of(*node) {
            by_link.entry(link).or_default().extend(attributes.clone());
        }
    }
    by_link
}

/// The object to create at `path`, which is `node` of the model. `owners`: whether they can be set, and the default.
fn item_of(
    plan: &Plan,
    (path, node): (Vec<u8>, NodeId),
    row: Option<&Tree>,
    what: ItemKind,
    (privileged, default_owner): (bool, (u32, u32)),
    attributes: Attributes,
) -> Item {
    let directory = what == ItemKind::Directory;
    let default_mode = if directory { 0o755 } else { 0o644 };
    let (uid, gid) = (row.and_then(|r| r.uid), row.and_then(|r| r.gid));
    let owner = (uid.map_or(default_owner.0, |u| u as u32), gid.map_or(default_owner.1, |g| g as u32));
    Item {
        path,
        what,
        mode: row.and_then(|r| r.mode).unwrap_or_else(|| plan.sizes.mode(node, default_mode)) as u32 & 0o7777,
        owner: privileged.then_some(owner),
        mtime_ns: row.and_then(|r| r.mtime_ns),
        attributes,
        key: plan.keys.of_place(&plan.names, node),
        subvolume: plan.subvolumes.contains(&node),
        layout: None,
    }
}

/// Whether `.unseen-entry`, which stands for an unknown entry that kept a directory from being removed, is unnecessary
/// because another entry is known.
fn planted(plan: &Plan, node: NodeId, row: Option<&Tree>) -> bool {
    let derived = row.is_some_and(|r| r.origin == "derived" && r.path.ends_with("/.unseen-entry"));
    derived
        && !matches!(plan.names.before(node), InitialState::Present { confirmed: true, .. })
        && plan
            .names
            .children_of(plan.names.parent(node))
            .into_iter()
            .any(|n| n != node && matches!(plan.names.before(n), InitialState::Present { .. }))
}

fn regular(plan: &Plan, node: NodeId, row: Option<&Tree>) -> ItemKind {
    let (size_bytes, data_bytes) = plan.sizes.prepared_lengths(node, row);
    ItemKind::Regular { size_bytes, data_bytes }
}

/// Creates the tree. Must be called inside the target. `progress` receives the number of items done. Objects that
/// cannot be created (a name below a file, a name too long) are returned as warnings; a full or failing disk is an
/// error.
pub fn make(items: &[Item], filler: &Filler, mut progress: impl FnMut(usize)) -> Result<Vec<String>, ReplayError> {
    let mut warnings = Vec::new();
    for (i, item) in items.iter().enumerate() {
        if let Err(source) = make_one(item, filler, i) {
            let path = PathBuf::from(String::from_utf8_lossy(&item.path).into_owned());
            if matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EIO | libc::EROFS)) {
                return Err(ReplayError::Prepare { path, source });
            }
            warnings.push(format!("{}: not prepared: {source}", path.display()));
        }
        progress(i + 1);
    }
    // Directories last, from the inside out: creating entries changes a directory's time, and its mode may forbid it.
    for item in items.iter().rev().filter(|i| i.what == ItemKind::Directory) {
        // Access lists may deny the creation of entries, which would inherit default lists. If the file system has
        // none, results will show that.
        for (name, list) in item.attributes.iter().filter(|(name, _)| access_lists::is_list(name)) {
            let _ = lsetxattr(item.path.as_slice(), &**name, list, XattrFlags::empty());
        }
        if item.mode != 0o755 || item.attributes.contains_key(access_lists::ACCESS) {
            // Refused only for another user's directory (`--force`).
            let _ = chmod(item.path.as_slice(), Mode::from_bits_truncate(item.mode));
        }
        set_mtime(item);
    }
    Ok(warnings)
}

pub(crate) fn make_one(item: &Item, filler: &Filler, salt: usize) -> io::Result<()> {
    let path = item.path.as_slice();
    let again = |e: Errno| match e {
        // Left by an earlier replay (`--force`): removed, unless it is a directory.
        Errno::EXIST | Errno::LOOP => unlink(path),
        e => Err(e),
    };
    match &item.what {
        ItemKind::Directory if item.subvolume && make_subvolume(path) => chmod(path, Mode::from_bits_truncate(0o755))?,
        ItemKind::Directory => match mkdir(path, Mode::from_bits_truncate(0o755)) {
            Err(Errno::EXIST) => {}
            other => other?,
        },
        ItemKind::Symlink(text) => {
            symlink(text.as_slice(), path).or_else(|e| again(e).and_then(|()| symlink(text.as_slice(), path)))?;
        }
        ItemKind::Link(first) => {
            let link = || linkat(CWD, first.as_slice(), CWD, path, AtFlags::empty());
            link().or_else(|e| again(e).and_then(|()| link()))?;
            return Ok(());
        }
        ItemKind::Regular { size_bytes, data_bytes } => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let make = || open(path, flags, Mode::from_bits_truncate(0o600));
            let fd = make().or_else(|e| again(e).and_then(|()| make()))?;
            match &item.layout {
                Some(layout) => layout.fill(&fd, path, *size_bytes, filler, (salt, item.key))?,
                None => filler.fill(&fd, *size_bytes, *data_bytes, (salt, item.key))?,
            }
        }
        ItemKind::Node { kind, device } => {
            let kind = match (kind, device) {
                (_, Some(Device { block: true, .. })) => FileType::BlockDevice,
                (_, Some(_)) => FileType::CharacterDevice,
                (Kind::Socket, _) => FileType::Socket,
                _ => FileType::Fifo,
            };
            let number = device.map_or(0, |d| d.number.into());
            let make = || mknodat(CWD, path, kind, Mode::from_bits_truncate(0o600), number);
            make().or_else(|e| again(e).and_then(|()| make()))?;
        }
    }
    if let Some((uid, gid)) = item.owner
        && (uid, gid) != (0, 0)
    {
        chownat(CWD, path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let mut refused = None;
    let is_directory = item.what == ItemKind::Directory;
    for (name, value) in item.attributes.iter().filter(|(name, _)| !(is_directory && access_lists::is_list(name))) {
        match lsetxattr(path, &**name, value, XattrFlags::empty()) {
            // If the file system has no extended attributes, results will show that.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            // Such as a value too large for this file system (ENOSPC): not fatal, and not a full disk.
            Err(e) => refused = Some(format!("its attribute {}: {e}", String::from_utf8_lossy(name))),
        }
    }
    if matches!(item.what, ItemKind::Regular { .. } | ItemKind::Node { .. }) {
        chmod(path, Mode::from_bits_truncate(item.mode))?;
    }
    if item.what != ItemKind::Directory {
        set_mtime(item);
    }
    refused.map_or(Ok(()), |why| Err(io::Error::other(why)))
}

/// Makes a subvolume of btrfs with this path; returns whether it did.
fn make_subvolume(path: &[u8]) -> bool {
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let above = if at == 0 { &b"."[..] } else { &path[..at] };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(above, flags, Mode::empty()).is_ok_and(|dir| {
        let dir = i64::from(dir.as_raw_fd());
        subvolumes::create(system_call, dir, &path[at..], None, false) == 0
    })
}

pub(crate) fn set_mtime(item: &Item) {
    if let Some(ns) = item.mtime_ns {
        let mtime = Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
        let times = Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: mtime };
        // A time outside the file system's range does not stop the replay.
        let _ = utimensat(CWD, item.path.as_slice(), &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}
