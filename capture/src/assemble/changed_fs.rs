//! Which file systems the workload modified: settling syncs only these.

use std::collections::BTreeSet;

use ioreel_traces::{manifest::Mount, rows::Op};

use crate::host;

/// Modified file systems, by `sb_dev`. May contain too many, because the working directory of another task may have
/// been taken; never too few.
#[derive(Debug)]
pub(crate) struct Changed {
    mounts: Vec<Mount>,
    /// File systems that contained a task's working directory.
    cwds: BTreeSet<i64>,
    /// The result.
    pub(crate) file_systems: BTreeSet<i64>,
}

impl Changed {
    /// Starts empty.
    pub(crate) fn new(mounts: Vec<Mount>) -> Self {
        Self { mounts, cwds: BTreeSet::new(), file_systems: BTreeSet::new() }
    }

    /// A task with this working directory was adopted.
    pub(crate) fn stands(&mut self, cwd: &str) {
        let fs = self.of_absolute(cwd);
        self.cwds.extend(fs);
    }

    /// Processes a successful operation. `modifies`: its call may modify a file system; `files`: file systems of its
    /// descriptors.
    pub(crate) fn note(&mut self, op: &Op, modifies: bool, files: &[i64]) {
        if matches!(&*op.op, "chdir" | "fchdir") {
            self.cwds.extend(files);
            if let Some(fs) = op.path.as_deref().and_then(|p| self.of_absolute(p)) {
                self.cwds.insert(fs);
            }
            return;
        }
        if !modifies || !changes(op) {
            return;
        }
        self.file_systems.extend(files);
        for path in [&op.path, &op.path2].into_iter().flatten() {
            match self.of_absolute(path) {
                Some(fs) => {
                    self.file_systems.insert(fs);
                }
                None if files.is_empty() => self.file_systems.extend(&self.cwds),
                None => {}
            }
        }
    }

    fn of_absolute(&self, path: &str) -> Option<i64> {
        if !path.starts_with('/') {
            return None;
        }
        Some(host::mount_of_path(&self.mounts, path)?.sb_dev)
    }
}

/// Whether an operation of a call that may modify a file system does so.
fn changes(op: &Op) -> bool {
    let flags = op.flags.map_or(0, |f| f as i32);
    match &*op.op {
        // It created or truncated the file.
        "open" | "openat" | "openat2" | "open_by_handle_at" | "creat" => {
            op.aux == Some(1) || flags & libc::O_TRUNC != 0
        }
        // Only stores to a shared writable mapping reach the file. Programs and libraries are mapped private.
        "mmap" => {
            matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
                && op.mode.is_some_and(|m| m & libc::PROT_WRITE != 0)
        }
        _ => true,
    }
}
