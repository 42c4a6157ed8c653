//! Names of files over time: which file had which name from when until when, how it got the name, and how it lost it.
//!
//! The probes see the file behind a descriptor, not behind a name. So a name is recorded with the file last opened
//! under it, or without a file if no recorded call had it open.

use std::collections::BTreeMap;

use ioreel_traces::rows::{Name, Op};

use crate::before::derive::seen_files::Met;

/// A name that exists.
#[derive(Clone, Debug)]
struct Held {
    file: Option<i64>,
    from_ns: i64,
    from_op: Option<i64>,
    how: &'static str,
}

/// Current names with their files, and names that have ended.
#[derive(Debug, Default)]
pub(super) struct History {
    at: BTreeMap<String, Held>,
    gone: Vec<Name>,
    /// Files whose name changed, with the current name if they still have one.
    moved: Vec<(i64, Option<String>)>,
}

/// Time and operation of a change.
#[derive(Clone, Copy)]
struct Change {
    at_ns: i64,
    op: i64,
}

impl History {
    /// Starts with the files that were open or mapped at the start.
    pub(super) fn there(files: impl Iterator<Item = Met>) -> Self {
        let mut h = Self::default();
        let mut files: Vec<_> = files.filter(|f| !f.unlinked && f.whole_path).collect();
        files.sort_by_key(|f| (f.first_ns, f.file));
        for f in files {
            if let Some(path) = f.path.as_deref().filter(|p| p.starts_with('/')) {
                let held = Held { file: Some(f.file), from_ns: 0, from_op: None, how: "there" };
                h.at.entry(path.to_owned()).or_insert(held);
            }
        }
        h
    }

    /// Takes the names that have ended since the last call.
    pub(super) fn take_gone(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.gone)
    }

    /// Takes the files renamed or removed since the last call.
    pub(super) fn take_moved(&mut self) -> Vec<(i64, Option<String>)> {
        std::mem::take(&mut self.moved)
    }

    /// The names that exist now.
    pub(super) fn into_held(self) -> impl Iterator<Item = Name> {
        self.at.into_iter().map(|(path, held)| row(path, held, None, None))
    }

    /// Whether this name is known to belong to this file.
    pub(super) fn is_at(&self, path: &str, file: i64) -> bool {
        self.at.get(path).is_some_and(|held| held.file == Some(file))
    }

    /// Processes an operation; `path` and `path2` are canonical. `file`: the file that it opened, or named through a
    /// descriptor.
    pub(super) fn take(&mut self, op: &Op, file: Option<&Met>, path: Option<&str>, path2: Option<&str>) {
        if op.ret.is_none_or(|ret| ret < 0) {
            return;
        }
        let change = Change { at_ns: op.start_ns + op.dur_ns, op: op.op_id };
        let flags = op.flags.unwrap_or(0);
        match (&*op.op, path, path2) {
            ("open" | "openat" | "openat2" | "creat", path, _) => {
                let Some(file) = file.filter(|_| flags as i32 & libc::O_TMPFILE != libc::O_TMPFILE) else { return };
                if let Some(path) = told_by_kernel(op, file).or(path) {
                    self.opened(file.file, path, op.aux == Some(1), op.start_ns, change);
                }
            }
            ("mkdir" | "mkdirat" | "mknod" | "mknodat" | "bind", Some(path), _)
            | ("symlink" | "symlinkat", _, Some(path)) => {
                self.begin(path, None, "created", change);
            }
            ("link" | "linkat", old, Some(new)) => {
                let file = file.map(|f| f.file).or_else(|| self.at.get(old?)?.file);
                if let Some(old) = old.filter(|old| file.is_none() && !self.at.contains_key(*old)) {
                    self.seen(old, op.start_ns, change);
                }
                self.begin(new, file, "linked", change);
            }
            ("unlink" | "unlinkat" | "rmdir", Some(path), _) => self.removed(path, op.start_ns, change),
            ("ioctl", _, Some(new)) if is(op, "SNAP_CREATE") => self.begin(new, None, "created", change),
            ("ioctl", Some(path), _) if is(op, "SUBVOL_CREATE") => self.begin(path, None, "created", change),
            ("ioctl", Some(path), _) if is(op, "SNAP_DESTROY") => self.removed(path, op.start_ns, change),
            ("rename" | "renameat" | "renameat2", Some(from), Some(to)) if from != to => {
                let exchange = flags & i64::from(libc::RENAME_EXCHANGE) != 0;
                self.renamed(from, to, exchange, op.start_ns, change);
            }
            _ => {}
        }
    }

    fn opened(&mut self, file: i64, path: &str, created: bool, start_ns: i64, change: Change) {
        match self.at.get_mut(path) {
            Some(held) if !created && held.file.is_none_or(|f| f == file) => held.file = Some(file),
            Some(held) if created && held.file == Some(file) => {}
            _ if created => self.begin(path, Some(file), "created", change),
            _ => {
                // It has existed for an unknown time; the start of the operation is when it was looked up.
                self.end(path, "lost", Change { at_ns: start_ns, ..change });
                let held = Held { file: Some(file), from_ns: start_ns, from_op: Some(change.op), how: "seen" };
                self.at.insert(path.to_owned(), held);
            }
        }
    }

    /// This name exists; nothing was known about it.
    fn seen(&mut self, path: &str, start_ns: i64, change: Change) {
        let held = Held { file: None, from_ns: start_ns, from_op: Some(change.op), how: "seen" };
        self.at.entry(path.to_owned()).or_insert(held);
    }

    fn begin(&mut self, path: &str, file: Option<i64>, how: &'static str, change: Change) {
        // What had this name before ended through something that is not recorded.
        self.end(path, "lost", change);
        self.at.insert(path.to_owned(), Held { file, from_ns: change.at_ns, from_op: Some(change.op), how });
    }

    fn end(&mut self, path: &str, ended: &'static str, change: Change) {
        if let Some(held) = self.at.remove(path) {
            self.gone.push(row(path.to_owned(), held, Some(ended), Some(change)));
        }
    }

    /// Likewise, and notes the file as removed unless it has other names.
    fn goes(&mut self, path: &str, ended: &'static str, change: Change) {
        if let Some(file) = self.at.get(path).and_then(|held| held.file) {
            self.moved.push((file, None));
        }
        self.end(path, ended, change);
    }

    fn removed(&mut self, path: &str, start_ns: i64, change: Change) {
        self.seen(path, start_ns, change);
        self.goes(path, "unlinked", change);
        for below in self.below(path) {
            self.end(&below, "lost", change);
        }
    }

    fn renamed(&mut self, from: &str, to: &str, exchange: bool, start_ns: i64, change: Change) {
        let file = |h: &Self, path: &str| h.at.get(path).and_then(|held| held.file);
        // If both are names of one file, rename(2) does nothing.
        if !exchange && file(self, from).is_some() && file(self, from) == file(self, to) {
            return;
        }
        self.seen(from, start_ns, change);
        if exchange {
            self.seen(to, start_ns, change);
        } else {
            self.goes(to, "replaced", change);
            for below in self.below(to) {
                self.end(&below, "lost", change);
            }
        }
        let (moved, other) = (self.take_out(from, change), self.take_out(to, change));
        self.put(to, moved, change);
        self.put(from, other, change);
    }

    /// The names below a directory.
    fn below(&self, path: &str) -> Vec<String> {
        let prefix = format!("{path}/");
        self.at.range(prefix.clone()..).take_while(|(p, _)| p.starts_with(&prefix)).map(|(p, _)| p.clone()).collect()
    }

    /// Ends a name and all below it. Returns their files by the rest of the name.
    fn take_out(&mut self, path: &str, change: Change) -> Vec<(String, Option<i64>)> {
        let mut names = self.below(path);
        names.push(path.to_owned());
        let mut taken = Vec::new();
        for name in names {
            if let Some(held) = self.at.get(&name) {
                taken.push((name[path.len()..].to_owned(), held.file));
                self.end(&name, "renamed", change);
            }
        }
        taken
    }

    fn put(&mut self, path: &str, names: Vec<(String, Option<i64>)>, change: Change) {
        for (rest, file) in names {
            let held = Held { file, from_ns: change.at_ns, from_op: Some(change.op), how: "renamed" };
            let name = format!("{path}{rest}");
            self.moved.extend(file.map(|file| (file, Some(name.clone()))));
            self.at.insert(name, held);
        }
    }
}

/// The path by which the kernel described the file, if this call was the first to use it. It is right for tasks with
/// another root too. For an unlinked file it would be its last name, so it is not used.
fn told_by_kernel<'a>(op: &Op, file: &'a Met) -> Option<&'a str> {
    let now = file.whole_path && !file.unlinked && (op.start_ns..=op.start_ns + op.dur_ns).contains(&file.first_ns);
    file.path.as_deref().filter(|p| now && p.starts_with('/'))
}

/// Whether the operation is this btrfs ioctl, in either version.
pub(super) fn is(op: &Op, request: &str) -> bool {
    let name = op.name.as_deref().and_then(|n| n.strip_prefix("BTRFS_IOC_"));
    name.is_some_and(|n| n.strip_suffix("_V2").unwrap_or(n) == request)
}

fn row(path: String, held: Held, ended: Option<&'static str>, change: Option<Change>) -> Name {
    Name {
        file: held.file,
        path: path.into(),
        from_ns: held.from_ns,
        // Overlapping calls may return in another order than they took effect.
        until_ns: change.map(|c| c.at_ns.max(held.from_ns)),
        how: held.how.into(),
        ended: ended.map(Into::into),
        from_op: held.from_op,
        until_op: change.map(|c| c.op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Call<'a> = (&'a str, Option<i64>, i64, i64, Option<&'a str>, Option<&'a str>);

    fn history(calls: &[Call<'_>]) -> Vec<String> {
        let mut h = History::default();
        for (i, (name, file, aux, flags, a, b)) in calls.iter().enumerate() {
            let op = Op {
                op_id: i as i64,
                start_ns: 10 * i as i64,
                dur_ns: 5,
                op: (*name).into(),
                ret: Some(0),
                aux: Some(*aux),
                flags: Some(*flags),
                path: a.map(Into::into),
                ..Op::default()
            };
            let file = file.map(|f| Met { file: f, first_ns: -1, ..Met::default() });
            h.take(&op, file.as_ref(), *a, *b);
        }
        let mut rows = h.take_gone();
        rows.extend(h.into_held());
        rows.sort_by_key(|r| (r.from_ns, r.until_ns, r.path.clone()));
        let end = |r: &Name| r.until_ns.map_or("-".into(), |at| at.to_string());
        rows.iter()
            .map(|r| {
                let file = r.file.map_or("?".into(), |f| f.to_string());
                format!("{file} {} {}..{} {}>{}", r.path, r.from_ns, end(r), r.how, r.ended.as_deref().unwrap_or("-"))
            })
            .collect()
    }

    #[test]
    fn names_follow_their_files() {
        let told = history(&[
            ("mkdir", None, 0, 0, Some("/d"), None),
            ("openat", Some(7), 1, 0, Some("/d/a"), None),
            ("openat", Some(7), 0, 0, Some("/d/a"), None),
            ("rename", None, 0, 0, Some("/d"), Some("/e")),
            ("link", None, 0, 0, Some("/e/a"), Some("/b")),
            ("openat", Some(8), 0, 0, Some("/c"), None),
            ("rename", None, 0, 0, Some("/b"), Some("/c")),
            ("unlink", None, 0, 0, Some("/e/a"), None),
            ("openat", Some(9), 1, 0, Some("/e/a"), None),
            ("renameat2", None, 0, 2, Some("/e/a"), Some("/c")),
            ("unlink", None, 0, 0, Some("/unknown"), None),
        ]);
        assert_eq!(
            told,
            [
                "? /d 5..35 created>renamed",
                "7 /d/a 15..35 created>renamed",
                "? /e 35..- renamed>-",
                "7 /e/a 35..75 renamed>unlinked",
                "7 /b 45..65 linked>renamed",
                "8 /c 50..65 seen>replaced",
                "7 /c 65..95 renamed>renamed",
                "9 /e/a 85..95 created>renamed",
                "9 /c 95..- renamed>-",
                "7 /e/a 95..- renamed>-",
                "? /unknown 100..105 seen>unlinked",
            ]
        );
    }

    #[test]
    fn two_names_of_one_file_are_not_renamed() {
        let told = history(&[
            ("openat", Some(1), 1, 0, Some("/a"), None),
            ("link", None, 0, 0, Some("/a"), Some("/b")),
            ("rename", None, 0, 0, Some("/a"), Some("/b")),
        ]);
        assert_eq!(told, ["1 /a 5..- created>-", "1 /b 15..- linked>-"]);
    }

    #[test]
    fn what_others_changed_is_told_as_lost() {
        let told = history(&[
            ("openat", Some(1), 0, 0, Some("/a"), None),
            ("openat", Some(2), 0, 0, Some("/a"), None),
            ("mkdir", None, 0, 0, Some("/dir"), None),
            ("openat", Some(3), 0, 0, Some("/dir"), None),
        ]);
        assert_eq!(told, ["1 /a 0..10 seen>lost", "2 /a 10..- seen>-", "3 /dir 25..- created>-"]);
    }
}
