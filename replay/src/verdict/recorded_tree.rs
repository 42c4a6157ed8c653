//! The final tree that the recorder saw when the recording ended (table `final_tree`).
//!
//! What it says of a name replaces what the model derives from the operations: it includes effects that the operations
//! do not show.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound::{Excluded, Included, Unbounded},
};

use ioreel_traces::{Reel, rows::FinalName, text::to_bytes, xattrs};

use crate::{
    ReplayError,
    base::{budget::Budget, file_kind::Kind, paths::is_canonical, privileges::is_privileged_attribute},
    model::{device_nodes::device_listed, names::PATH_BYTES},
    plan::program::Plan,
    reel::roots::Roots,
    verdict::entry::{Entry, Values, without_set_ids},
};

/// Text of extended attributes that is decoded at most, bytes. A recorder writes less.
pub(super) const MOST_ATTRIBUTE_BYTES: usize = 256 << 20;

/// The names of the final tree inside the roots.
#[derive(Clone, Debug, Default)]
pub struct RecordedTree {
    /// By path; the column `path` is empty.
    rows: BTreeMap<Vec<u8>, FinalName>,
    /// Number of names of files with several, by link id.
    links: HashMap<i64, i64>,
    /// The user chose the roots.
    has_roots: bool,
    /// Sizes on the target are those of the recording.
    has_sizes: bool,
    /// Number of names that the recorder did not look at.
    pub(super) unseen: i64,
    /// The snapshot was cut: names that the workload did not use are missing in the replay.
    pub(super) lacks_unused: bool,
    /// The recorder's look ended at a limit, so names of a file may be missing.
    is_partial: bool,
}

impl RecordedTree {
    /// Reads it, unless it is of no use: the replay ends before the recording does. `scaled`: sizes on the target are not
    /// those of the recording.
    ///
    /// # Errors
    /// A damaged reel, or one that takes too much memory.
    pub fn read(reel: &Reel, plan: &Plan, scaled: bool) -> Result<Self, ReplayError> {
        let is_partial = reel.manifest.final_tree.is_some_and(|look| look.partial);
        let mut out = Self { has_sizes: !scaled, is_partial, ..Self::default() };
        if plan.slice.to_ns <= reel.manifest.span.elapsed_ns {
            return Ok(out);
        }
        let roots: Vec<Vec<u8>> = plan.names.roots().cloned().collect();
        out.has_roots = !roots.is_empty();
        let roots = Roots::new(&roots);
        let cwd = reel.manifest.command.as_ref().map(|c| to_bytes(&c.cwd)).unwrap_or_default();
        out.lacks_unused = reel.manifest.snapshot.is_some_and(|s| s.partial) && roots.overlap(&cwd);
        let mut budget = Budget::new(reel.path().into(), 0);
        for row in reel.rows::<FinalName>() {
            let mut row = row?;
            budget.row()?;
            let path = to_bytes(&std::mem::take(&mut row.path));
            if !roots.contain(&path) || !is_canonical(&path) {
                continue;
            }
            out.unseen += i64::from(row.kind == "unseen");
            if path.len() > PATH_BYTES {
                out.not_complete_above(&path);
                continue;
            }
            if let Some(link) = row.link_id {
                *out.links.entry(link).or_default() += 1;
            }
            out.rows.insert(path, row);
        }
        Ok(out)
    }

    /// Names longer than the kernel takes are not replayed.
    fn not_complete_above(&mut self, path: &[u8]) {
        if let Some(row) = self.rows.get_mut(above(path)) {
            row.complete = None;
        }
    }

    /// Names of what exists in a directory, `b""` for the root.
    pub(super) fn children_of(&self, dir: &[u8]) -> Vec<Vec<u8>> {
        let prefix = [dir, b"/"].concat();
        let mut names = Vec::new();
        let mut from = Excluded(prefix.clone());
        while let Some((path, row)) = self.rows.range((from, Unbounded)).next() {
            let Some(name) = path.strip_prefix(&*prefix) else { break };
            match name.iter().position(|b| *b == b'/') {
                // Goes on behind all that is in this directory. '0' is the character after '/'.
                Some(end) => from = Included([&*prefix, &name[..end], b"0"].concat()),
                None => {
                    if row.kind != "absent" {
                        names.push(name.to_vec());
                    }
                    from = Excluded(path.clone());
                }
            }
        }
        names
    }

    /// The row of a name that the recorder looked at.
    pub(super) fn row(&self, path: &[u8]) -> Option<&FinalName> {
        self.rows.get(path)
    }

    /// Whether all names in the directory of `path` are known.
    pub(super) fn is_complete_above(&self, path: &[u8]) -> bool {
        self.rows.get(above(path)).is_some_and(|row| row.complete == Some(1))
    }

    /// Number of known names of the file with this link id.
    pub(super) fn names_of(&self, link: i64) -> i64 {
        self.links.get(&link).copied().unwrap_or(1)
    }

    /// Whether the file has names that this table lacks.
    pub(super) fn has_links_elsewhere(&self, row: &FinalName) -> bool {
        row.links.zip(row.link_id).is_some_and(|(links, id)| links > self.names_of(id))
    }

    /// Whether the first name of the file is known.
    pub(super) fn knows_first(&self, row: &FinalName) -> bool {
        !self.is_partial && !self.has_links_elsewhere(row)
    }

    /// What is expected of a name that the recorder saw, but for its first name. `derived`: what the operations tell.
    /// `attribute_room`: how much text of extended attributes may still be decoded, bytes.
    pub(super) fn entry(&self, plan: &Plan, row: &FinalName, derived: Entry, attribute_room: &mut usize) -> Entry {
        let kind = Some(Kind::from_name(&row.kind)).filter(|k| *k != Kind::Other);
        let is_directory = kind == Some(Kind::Directory);
        let mode = row.mode.map(|m| without_set_ids(plan, m as u32 & 0o7777, is_directory));
        // Without `--root`, other names are those of files that the workload found, such as programs.
        let links = if self.has_roots || self.knows_first(row) { row.links } else { derived.links };
        let len = if self.has_sizes { row.size_bytes } else { derived.len };
        Entry {
            kind: kind.or(derived.kind),
            len: len.filter(|_| kind == Some(Kind::Regular)),
            text: row.target.as_ref().filter(|_| kind == Some(Kind::Symlink)).map(|t| to_bytes(t)),
            first: None,
            links: links.filter(|_| !is_directory),
            mode: mode.filter(|_| kind != Some(Kind::Symlink)),
            uid: row.uid.map(|id| id as u32),
            gid: row.gid.map(|id| id as u32),
            device: device_listed(&row.kind, row.rdev).map(|d| (d.block, Some(d.number))),
            attributes: attributes(plan, row.xattrs.as_deref().unwrap_or_default(), attribute_room),
        }
    }
}

fn attributes(plan: &Plan, text: &str, room: &mut usize) -> Option<Values> {
    *room = room.checked_sub(text.len())?;
    let may_set = |name: &[u8]| plan.set_ids && plan.privileged || !is_privileged_attribute(name);
    let kept = xattrs::from_text(text).into_iter().filter(|(name, _)| may_set(name));
    Some(kept.map(|(name, value)| (name, Some(value))).collect())
}

/// The directory of a canonical path.
fn above(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|b| *b == b'/') {
        Some(0) | None => b"/",
        Some(at) => &path[..at],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> RecordedTree {
        let row =
            |path: &&str| (path.as_bytes().to_vec(), FinalName { kind: "regular".into(), ..FinalName::default() });
        RecordedTree { rows: paths.iter().map(row).collect(), ..RecordedTree::default() }
    }

    #[test]
    fn children_are_found_between_what_is_below_them() {
        let t = tree(&["/", "/a", "/a-b", "/a.b", "/a/x", "/a/x/y", "/a0", "/b", "/b/c/d", "/e/f"]);
        let names = |dir: &str| -> Vec<String> {
            t.children_of(dir.as_bytes()).into_iter().map(|n| String::from_utf8_lossy(&n).into_owned()).collect()
        };
        assert_eq!(names(""), ["a", "a-b", "a.b", "a0", "b"]);
        assert_eq!(
            (names("/a"), names("/a/x"), names("/b/c"), names("/z")),
            (vec!["x".into()], vec!["y".into()], vec!["d".into()], vec![])
        );
    }
}
