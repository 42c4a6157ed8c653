//! Which file systems the workload changed, so that settling syncs these and no others.

use std::collections::BTreeSet;

use ioreel_traces::{manifest::Mount, rows::Op};

use crate::host;

/// File systems changed, by `sb_dev`; may hold too many (a working directory that another task had),
/// never too few.
#[derive(Debug)]
pub(crate) struct Changed {
    mounts: Vec<Mount>,
    /// File systems that some task had its working directory on.
    cwds: BTreeSet<i64>,
    /// The answer.
    pub(crate) file_systems: BTreeSet<i64>,
}

impl Changed {
    /// Nothing changed yet.
    pub(crate) fn new(mounts: Vec<Mount>) -> Self {
        Self { mounts, cwds: BTreeSet::new(), file_systems: BTreeSet::new() }
    }

    /// A task was adopted that stands here.
    pub(crate) fn stands(&mut self, cwd: &str) {
        let fs = self.of_absolute(cwd);
        self.cwds.extend(fs);
    }

    /// Takes note of a successful operation. `modifies`: its kind may change something; `files`: file
    /// systems of the descriptors it was given.
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

/// Whether an operation of a kind that may change something does.
fn changes(op: &Op) -> bool {
    let flags = op.flags.map_or(0, |f| f as i32);
    match &*op.op {
        // It creates or truncates.
        "open" | "openat" | "openat2" | "open_by_handle_at" | "creat" => {
            op.aux == Some(1) || flags & libc::O_TRUNC != 0
        }
        // Stores to it are the file's. Programs and their libraries are mapped otherwise.
        "mmap" => {
            matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
                && op.mode.is_some_and(|m| m & libc::PROT_WRITE != 0)
        }
        _ => true,
    }
}
