//! The final tree that the recorder saw when the recording ended (table `final_tree`).
//!
//! What it says of a name replaces what the model derives from the operations: it includes effects that the operations
//! do not show.

use std::collections::HashMap;

use ioreel_traces::{Reel, rows::FinalName, text::to_bytes, xattrs};

use crate::{
    ReplayError,
    base::{file_kind::Kind, privileges::is_privileged_attribute},
    model::{device_nodes::device_listed, names::PATH_BYTES},
    plan::program::Plan,
    reel::roots::Roots,
    verdict::entry::{Entry, without_set_ids},
};

/// The most names that are compared, more than a recorder writes.
const MOST_NAMES: usize = 4_000_000;

/// The names of the final tree inside the roots.
#[derive(Clone, Debug, Default)]
pub struct RecordedTree {
    rows: HashMap<Vec<u8>, FinalName>,
    /// Names of what exists, by directory.
    children: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Number of names of files with several, by link id.
    links: HashMap<i64, i64>,
    /// The user chose the roots.
    has_roots: bool,
    /// Sizes on the target are those of the recording.
    has_sizes: bool,
}

impl RecordedTree {
    /// Reads it, unless it is of no use: the replay ends before the recording does.
    pub fn read(reel: &Reel, plan: &Plan, scaled: bool) -> Result<Self, ReplayError> {
        let mut out = Self { has_sizes: !scaled, ..Self::default() };
        if plan.slice.to_ns <= reel.manifest.span.elapsed_ns {
            return Ok(out);
        }
        let roots: Vec<Vec<u8>> = plan.names.roots().cloned().collect();
        out.has_roots = !roots.is_empty();
        let roots = Roots::new(&roots);
        for row in reel.rows::<FinalName>().take(MOST_NAMES) {
            let row = row?;
            let path = to_bytes(&row.path);
            if path.len() <= PATH_BYTES && roots.contain(&path) {
                out.add(path, row);
            }
        }
        Ok(out)
    }

    fn add(&mut self, path: Vec<u8>, row: FinalName) {
        if let Some(at) = path.iter().rposition(|b| *b == b'/').filter(|_| row.kind != "absent") {
            self.children.entry(path[..at].to_vec()).or_default().push(path[at + 1..].to_vec());
        }
        if let Some(link) = row.link_id {
            *self.links.entry(link).or_default() += 1;
        }
        self.rows.insert(path, row);
    }

    /// What exists in a directory, `b""` for the root.
    pub(super) fn children_of(&self, dir: &[u8]) -> &[Vec<u8>] {
        self.children.get(dir).map_or(&[], Vec::as_slice)
    }

    /// The row of a name.
    pub(super) fn row(&self, path: &[u8]) -> Option<&FinalName> {
        self.rows.get(path)
    }

    /// Whether all names in the directory of `path` are known.
    pub(super) fn is_complete_above(&self, path: &[u8]) -> bool {
        let above = path.iter().rposition(|b| *b == b'/').map_or(path, |at| &path[..at]);
        let above = if above.is_empty() { b"/" } else { above };
        self.rows.get(above).is_some_and(|row| row.complete == Some(1))
    }

    /// Number of known names of the file with this link id.
    pub(super) fn names_of(&self, link: i64) -> i64 {
        self.links.get(&link).copied().unwrap_or(1)
    }

    /// Whether the file has names that the reel lacks.
    pub(super) fn has_links_elsewhere(&self, row: &FinalName) -> bool {
        row.links.zip(row.link_id).is_some_and(|(links, id)| links > self.names_of(id))
    }

    /// What is expected of a name that the recorder saw. `derived`: what the operations tell.
    pub(super) fn entry(&self, plan: &Plan, row: &FinalName, derived: Entry) -> Entry {
        let kind = Some(Kind::from_name(&row.kind)).filter(|k| *k != Kind::Other);
        let is_directory = kind == Some(Kind::Directory);
        let mode = row.mode.map(|m| without_set_ids(plan, m as u32 & 0o7777, is_directory));
        // Without `--root`, names elsewhere are those of files that the workload found, such as programs.
        let known = row.link_id.map_or(1, |id| self.names_of(id));
        let links = if self.has_roots { row.links } else { row.links.map(|n| n.min(known)) };
        let attributes = xattrs::from_text(row.xattrs.as_deref().unwrap_or_default());
        let kept = attributes.into_iter().filter(|(name, _)| plan.set_ids || !is_privileged_attribute(name));
        let len = if self.has_sizes { row.size_bytes } else { None };
        Entry {
            kind: kind.or(derived.kind),
            len: if kind == Some(Kind::Regular) { len.or(derived.len) } else { None },
            text: row.target.as_ref().filter(|_| kind == Some(Kind::Symlink)).map(|t| to_bytes(t)),
            first: None,
            links: links.filter(|_| !is_directory),
            mode: mode.filter(|_| kind != Some(Kind::Symlink)),
            uid: row.uid.map(|id| id as u32),
            gid: row.gid.map(|id| id as u32),
            device: device_listed(&row.kind, row.rdev).map(|d| (d.block, Some(d.number))),
            attributes: Some(kept.map(|(name, value)| (name, Some(value))).collect()),
        }
    }
}
