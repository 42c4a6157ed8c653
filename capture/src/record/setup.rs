//! Preparations before the first event.

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use ioreel_bpf::types::hide;
use ioreel_traces::{
    Manifest, ReelWriter,
    manifest::{Mount, TreeSnapshot},
    writer::OnCreate,
};
use rustix::process::{Resource, getrlimit, setrlimit};

use super::{config::Config, name_of};
use crate::{
    CaptureError,
    before::{
        extents::Extents,
        snapshot::{Bound, Snapshot},
    },
    host,
    probes::session::{Session, Tables, Targets},
};

/// Tells the probes which files belong to the recorder.
pub(super) fn leave_own_output_out(
    writer: &mut ReelWriter,
    session: &Session<'_>,
    output: &Path,
    mounts: &[Mount],
) -> Result<(), CaptureError> {
    let Some(mount) =
        output.canonicalize().ok().and_then(|p| host::mount_of_path(mounts, &name_of(p.as_os_str())).cloned())
    else {
        return Ok(());
    };
    let tables = Arc::new(session.tables()?);
    writer.on_create(OnCreate(Arc::new(move |file| {
        let hidden =
            file.metadata().ok().map(|m| Hidden { tables: tables.clone(), ino: m.ino(), sb_dev: mount.sb_dev as u32 });
        if let Some(Err(e)) = hidden.as_ref().map(Hidden::begin) {
            log::warn!("{e}");
        }
        Box::new(hidden)
    })));
    Ok(())
}

/// A file that the recorder is writing. It is hidden only meanwhile, because its inode number may be reused later.
struct Hidden {
    tables: Arc<Tables>,
    ino: u64,
    sb_dev: u32,
}

impl Hidden {
    fn begin(&self) -> Result<(), CaptureError> {
        self.tables.hide_file(self.ino, self.sb_dev, hide::HIDE_OWN.0)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Err(e) = self.tables.show_file(self.ino, self.sb_dev) {
            log::warn!("{e}");
        }
    }
}

/// A loop device passes each request to its backing file, so the I/O of that file is hidden: recording it on the loop
/// device is enough. If only `devices` are recorded, this applies only to loop devices among them.
pub(crate) fn hide_backing_files(tables: &Tables, mounts: &[Mount], devices: &[i64]) -> Result<(), CaptureError> {
    let recorded = |d: &i64| devices.is_empty() || devices.contains(d);
    let loops: BTreeSet<i64> = mounts.iter().flat_map(host::disks_of).filter(recorded).collect();
    for file in loops.iter().filter_map(|d| host::device(*d).backing_file) {
        if let (Ok(meta), Some(mount)) = (fs::metadata(&file), host::mount_of_path(mounts, &file)) {
            tables.hide_file(meta.ino(), mount.sb_dev as u32, hide::HIDE_BACKING.0)?;
        }
    }
    Ok(())
}

pub(super) fn take_snapshot(
    config: &Config,
    target: &Targets,
    manifest: &mut Manifest,
    mounts: &[Mount],
) -> Result<Snapshot, CaptureError> {
    let mut snapshot = Snapshot { extents: config.extents.then(Extents::default), ..Snapshot::default() };
    let closed = host::not_walked(mounts);
    for dir in &config.snapshot {
        snapshot
            .add(dir, Bound::ASKED, &closed)
            .map_err(|source| CaptureError::Snapshot { path: dir.clone(), source })?;
    }
    for (pid, bound) in target.pids().iter().filter_map(|pid| Some((pid, config.snapshot_cwd?))) {
        if let Ok(cwd) = fs::read_link(format!("/proc/{pid}/cwd")) {
            // If the working directory was deleted, there is no tree.
            let _ = snapshot.add(&cwd, bound, &closed);
        }
    }
    if let Ok(output) = config.output.canonicalize() {
        snapshot.forget(&output);
    }
    if !matches!(target, Targets::Command(_)) {
        snapshot.of_what_runs();
    }
    if !snapshot.entries.is_empty() {
        manifest.snapshot =
            Some(TreeSnapshot { names: snapshot.entries.len() as i64, partial: !snapshot.cut.is_empty() });
    }
    Ok(snapshot)
}

/// Raises the limit of open descriptors to the hard limit: about a hundred probes and maps exceed the default of some
/// shells. If it is still too low, loading reports it.
pub(super) fn take_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(e) = setrlimit(Resource::Nofile, limit) {
            log::debug!("RLIMIT_NOFILE: {e}");
        }
    }
}
