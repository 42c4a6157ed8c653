//! What is compared of a name in the final tree: what the recording determines, and what is found.

use std::collections::{BTreeMap, HashMap};

use ioreel_traces::host::attributes;
use rustix::fs::{FileType, Statx, makedev};
use serde::Serialize;

use crate::{
    base::privileges::{SET_ID_BITS, is_privileged_attribute},
    model::{
        access_lists,
        attributes::Attributes,
        device_nodes::device_of_row,
        names::{Attribute, InitialState, Kind, NO_NODE, NodeId, State},
    },
    plan::program::Plan,
};

/// Extended attributes: the value, or `None` if it is not known.
pub(super) type Values = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// A device node: whether it is a block device, and its number.
type DeviceNode = (bool, Option<u32>);

/// Number of names of which each property was compared. The others are not determined by the recording, or have no such
/// property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Types.
    pub types: i64,
    /// Lengths of regular files.
    pub sizes: i64,
    /// Targets of symbolic links.
    pub targets: i64,
    /// Which names are hard links of one file.
    pub links: i64,
    /// Link counts of all but directories.
    pub link_counts: i64,
    /// Permission bits, all but those of symbolic links.
    pub modes: i64,
    /// Owners.
    pub uids: i64,
    /// Groups.
    pub gids: i64,
    /// Extended attributes: names, and values where recorded.
    pub attributes: i64,
    /// Types and numbers of device nodes.
    pub devices: i64,
}

/// The compared properties of a name. `None`: not determined by the recording, or not applicable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: Option<Kind>,
    pub(super) len: Option<i64>,
    pub(super) text: Option<Vec<u8>>,
    /// Number of the first name of the same file: equal for hard links.
    pub(super) first: Option<i64>,
    pub(super) links: Option<i64>,
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) device: Option<DeviceNode>,
    pub(super) attributes: Option<Values>,
}

/// The name of a kind, for users.
fn kind_name(kind: Option<Kind>) -> String {
    kind.map_or("anything".to_owned(), |k| format!("{k:?}").to_lowercase())
}

fn attribute_words(attributes: &Values) -> String {
    let one = |name: &[u8], value: Option<&[u8]>| {
        let name = String::from_utf8_lossy(name).into_owned();
        match value {
            Some(value) => format!("{name}={:?}", String::from_utf8_lossy(value)),
            None => name,
        }
    };
    let all: Vec<String> = attributes.iter().map(|(name, value)| one(name, value.as_deref())).collect();
    if all.is_empty() { "none".into() } else { all.join(" ") }
}

impl Entry {
    /// This entry, found, without the properties that `told` does not determine.
    pub(super) fn told_by(self, told: &Self) -> Self {
        let attributes = self.attributes.zip(told.attributes.as_ref()).map(|(found, told)| told_values(found, told));
        let device = self.device.zip(told.device).map(|((block, n), (_, told))| (block, n.filter(|_| told.is_some())));
        Self {
            kind: self.kind.filter(|_| told.kind.is_some()),
            len: self.len.filter(|_| told.len.is_some()),
            text: self.text.filter(|_| told.text.is_some()),
            first: self.first.filter(|_| told.first.is_some()),
            links: self.links.filter(|_| told.links.is_some()),
            mode: self.mode.filter(|_| told.mode.is_some()),
            uid: self.uid.filter(|_| told.uid.is_some()),
            gid: self.gid.filter(|_| told.gid.is_some()),
            device,
            attributes,
        }
    }

    /// Without mode, owner and extended attributes.
    pub(super) fn forget_access(&mut self) {
        (self.mode, self.uid, self.gid, self.attributes) = (None, None, None, None);
    }

    /// All that identifies the entry, for digests.
    pub(super) fn words(&self) -> String {
        let mut out = self.main_words();
        let mut add = |what: &str, value: Option<String>| {
            if let Some(value) = value {
                out += &format!(", {what} {value}");
            }
        };
        add("links", self.links.map(|n| n.to_string()));
        add("mode", self.mode.map(|m| format!("{m:o}")));
        add("uid", self.uid.map(|n| n.to_string()));
        add("gid", self.gid.map(|n| n.to_string()));
        add("device", self.device.map(device_words));
        add("attributes", self.attributes.as_ref().map(attribute_words));
        out
    }

    /// Type, length, target, and whether it has other names.
    pub(super) fn main_words(&self) -> String {
        let mut out = kind_name(self.kind);
        if let Some(len) = self.len {
            out += &format!(" of {len} bytes");
        }
        if let Some(text) = &self.text {
            out += &format!(" to {:?}", String::from_utf8_lossy(text));
        }
        if self.first.is_some() {
            out += " with other names";
        }
        out
    }

    /// How `found`, reduced to what this entry determines, differs from it.
    pub(super) fn difference(&self, found: &Self) -> String {
        let mut out = Vec::new();
        let main = |e: &Self| (e.kind, e.len, e.text.clone(), e.first);
        if main(self) != main(found) {
            out.push(format!("{} expected, {} found", self.main_words(), found.main_words()));
        }
        let mut pair = |what: &str, expected: Option<String>, there: Option<String>| {
            if expected != there {
                let word = |w: Option<String>| w.unwrap_or_else(|| "none".into());
                out.push(format!("{what} {} expected, {} found", word(expected), word(there)));
            }
        };
        let octal = |mode: Option<u32>| mode.map(|m| format!("{m:o}"));
        let number = |n: Option<u32>| n.map(|n| n.to_string());
        pair("mode", octal(self.mode), octal(found.mode));
        pair("uid", number(self.uid), number(found.uid));
        pair("gid", number(self.gid), number(found.gid));
        pair("link count", self.links.map(|n| n.to_string()), found.links.map(|n| n.to_string()));
        pair("device", self.device.map(device_words), found.device.map(device_words));
        let attributes = |e: &Self| e.attributes.as_ref().map(attribute_words);
        pair("extended attributes", attributes(self), attributes(found));
        out.join("; ")
    }

    /// Counts the properties that this entry determines.
    pub(super) fn count(&self, compared: &mut Compared) {
        let c = compared;
        c.types += i64::from(self.kind.is_some());
        c.sizes += i64::from(self.len.is_some());
        c.targets += i64::from(self.text.is_some());
        c.links += i64::from(self.first.is_some());
        c.link_counts += i64::from(self.links.is_some());
        c.modes += i64::from(self.mode.is_some());
        c.uids += i64::from(self.uid.is_some());
        c.gids += i64::from(self.gid.is_some());
        c.attributes += i64::from(self.attributes.is_some());
        c.devices += i64::from(self.device.is_some());
    }
}

fn device_words((block, number): DeviceNode) -> String {
    let kind = if block { "block" } else { "char" };
    match number {
        Some(n) => format!("{kind} {}:{}", rustix::fs::major(n.into()), rustix::fs::minor(n.into())),
        None => kind.into(),
    }
}

/// The found attributes in the form of the expected ones: values that are not recorded are left out, and equal access
/// lists have the same bytes.
fn told_values(found: Values, told: &Values) -> Values {
    let as_told = |(name, value): (Box<[u8]>, Option<Box<[u8]>>)| {
        let value = match told.get(&name) {
            Some(None) => None,
            Some(Some(list))
                if access_lists::is_list(&name) && value.as_ref().is_some_and(|v| access_lists::equal(v, list)) =>
            {
                Some(list.clone())
            }
            _ => value,
        };
        (name, value)
    };
    let counts = |name: &[u8]| counts_unmentioned(name) || name == b"security.capability" || told.contains_key(name);
    found.into_iter().filter(|(name, _)| counts(name)).map(as_told).collect()
}

/// Whether a found attribute counts although nothing in the recording mentions it. Others, such as security labels, come
/// from the target itself.
pub(super) fn counts_unmentioned(name: &[u8]) -> bool {
    attributes::is_of_workload(name) && !name.starts_with(b"security.")
}

/// What the recording determines about the file at `node`, which exists at the end. `links`: number of its names.
/// `by_link`: initial extended attributes by link id.
pub(super) fn told(plan: &Plan, node: NodeId, links: i64, by_link: &HashMap<i64, Attributes>) -> Entry {
    let names = &plan.names;
    let State::Present { kind: state_kind, target, pre } = names.now(node) else { return Entry::default() };
    let set = names.set_of(node);
    let row = match (*pre != NO_NODE).then(|| names.before(*pre)) {
        Some(InitialState::Present { row, .. }) => plan.tree.get(*row as usize),
        _ => None,
    };
    let kind = match state_kind {
        Kind::Foreign => set.kind,
        kind => Some(*kind),
    };
    let kind = kind.filter(|k| !matches!(k, Kind::Unknown | Kind::Other | Kind::Foreign));
    let listed_mode = || {
        let mode = row.and_then(|r| r.mode).or_else(|| plan.sizes.mode_proven(*pre));
        mode.map(|m| m as u32 & 0o7777)
    };
    let listed_device = || match row.map(|r| &*r.kind) {
        _ if row.and_then(device_of_row).is_some() => row.and_then(device_of_row).map(|d| (d.block, Some(d.number))),
        Some("block") => Some((true, None)),
        Some("char") => Some((false, None)),
        _ => None,
    };
    let mode = set.mode.filter(|_| !set.guessed.mode).or_else(|| listed_mode().filter(|_| set.mode.is_none()));
    let uid = set.uid.or(row.and_then(|r| r.uid).map(|u| u as u32)).filter(|_| !set.guessed.uid);
    let gid = set.gid.or(row.and_then(|r| r.gid).map(|g| g as u32)).filter(|_| !set.guessed.gid);
    // Who made it, and how, is not recorded.
    let made_elsewhere = *state_kind == Kind::Foreign && set.mode.is_none();
    let is_directory = kind == Some(Kind::Directory);
    Entry {
        kind,
        len: plan.end_sizes.get(&node).copied().filter(|_| kind.is_none_or(|k| k == Kind::Regular)),
        text: target.as_ref().filter(|_| kind == Some(Kind::Symlink)).map(|t| t.to_vec()),
        first: None,
        links: (kind.is_some() && !is_directory && !made_elsewhere).then_some(links),
        mode: mode.filter(|_| kind != Some(Kind::Symlink)).map(|m| without_set_ids(plan, m, is_directory)),
        uid,
        gid,
        device: set.device.map(|d| (d.block, Some(d.number))).or_else(listed_device),
        attributes: (!made_elsewhere && kind.is_some()).then(|| {
            let shared = row.and_then(|r| r.link_id).and_then(|l| by_link.get(&l));
            attributes_told(plan, node, shared.or_else(|| plan.attributes.get(pre)))
        }),
    }
}

/// Without `--set-ids`, files get no set-ID bits. The set-user-ID bit of a directory means nothing.
pub(super) fn without_set_ids(plan: &Plan, mode: u32, is_directory: bool) -> u32 {
    match (plan.set_ids, is_directory) {
        (true, _) => mode,
        (false, true) => mode & !libc::S_ISUID,
        (false, false) => mode & !SET_ID_BITS,
    }
}

fn attributes_told(plan: &Plan, node: NodeId, initial: Option<&Attributes>) -> Values {
    let mut all = Values::new();
    for (name, value) in initial.into_iter().flatten() {
        all.insert(name.clone(), Some(value.clone()));
    }
    for (name, change) in plan.names.attributes_set(node).into_iter().flatten() {
        match change {
            Attribute::Removed => _ = all.remove(name),
            Attribute::Unknown => _ = all.insert(name.clone(), None),
            Attribute::Value(value) => _ = all.insert(name.clone(), Some(value.clone())),
        }
    }
    all.retain(|name, _| plan.set_ids || !is_privileged_attribute(name));
    all
}

/// What is found at a name, without what needs more than its status.
pub(super) fn found(plan: &Plan, stat: &Statx) -> Entry {
    let file_type = FileType::from_raw_mode(stat.stx_mode.into());
    let kind = match file_type {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
        FileType::Unknown => Kind::Unknown,
    };
    let is_directory = kind == Kind::Directory;
    let mode = u32::from(stat.stx_mode) & 0o7777;
    let number = makedev(stat.stx_rdev_major, stat.stx_rdev_minor) as u32;
    Entry {
        kind: Some(kind),
        len: (kind == Kind::Regular).then_some(stat.stx_size as i64),
        text: None,
        first: None,
        links: (!is_directory).then_some(stat.stx_nlink.into()),
        mode: Some(if is_directory { without_set_ids(plan, mode, true) } else { mode }),
        uid: Some(stat.stx_uid),
        gid: Some(stat.stx_gid),
        device: (kind == Kind::Device).then_some((file_type == FileType::BlockDevice, Some(number))),
        attributes: None,
    }
}
