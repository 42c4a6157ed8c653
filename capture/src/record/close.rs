//! Closes a recording: what is known only at the end, and the manifest.

use std::collections::BTreeSet;

use ioreel_traces::{
    Manifest, ReelError,
    manifest::{Mount, State},
    private::Folder,
    rows::Op,
};

use super::{
    config::{Config, Layers, Target},
    name_of,
};
use crate::{
    CaptureError,
    assemble::Assembler,
    before::{
        derive::{self, final_tree::AtEnd},
        snapshot::Snapshot,
    },
    host,
    pipeline::{Assembled, ledger},
    probes::{
        features::Missing,
        session::{Session, Unended},
    },
};

/// One mount of each of these file systems that is on a disk.
pub(super) fn on_disk(file_systems: &BTreeSet<i64>) -> Vec<Mount> {
    let mut seen = BTreeSet::new();
    let mounts = host::mounts().into_iter();
    mounts
        .filter(|m| file_systems.contains(&m.sb_dev) && !host::disks_of(m).is_empty() && seen.insert(m.sb_dev))
        .collect()
}

/// One mount of each file system on these disks.
pub(super) fn on_disks(disks: &BTreeSet<i64>) -> Vec<Mount> {
    let mut seen = BTreeSet::new();
    let mounts = host::mounts().into_iter();
    mounts.filter(|m| host::disks_of(m).iter().any(|d| disks.contains(d)) && seen.insert(m.sb_dev)).collect()
}

/// Remaining input for the end of the reel.
pub(super) struct Closing {
    pub(super) settled: Vec<Op>,
    pub(super) snapshot: Snapshot,
    pub(super) mounts: Vec<Mount>,
    /// End of operations, monotonic ns.
    pub(super) end_ns: i64,
    /// Recorded programs were still running then.
    pub(super) goes_on: bool,
}

/// Writes what is known only at the end, and the manifest.
pub(super) fn close(
    config: &Config,
    folder: &Folder,
    mut manifest: Manifest,
    session: &Session<'_>,
    mut assembled: Assembled,
    closing: Closing,
) -> Result<(Manifest, Option<CaptureError>), CaptureError> {
    let ledgers = session.ledgers()?;
    let numbered = session.numbered()?;
    manifest.losses = assembled.losses(&numbered);
    let Assembled { mut assembler, mut error, in_flight, .. } = assembled;
    let unended = session.unended().unwrap_or_else(|e| {
        manifest
            .warnings
            .push(format!("cannot list the I/O in flight at the end of the recording, so it is missing: {e}"));
        Unended::default()
    });
    let mut settled = closing.settled;
    let mut last_words = |a: &mut Assembler| {
        a.tool_rows = settled.len() as i64;
        settled.drain(..).try_for_each(|op| a.writer.ops.push(op))?;
        unended.requests.iter().try_for_each(|rq| a.rq(rq))?;
        unended.bios.iter().try_for_each(|bio| a.bio(bio))?;
        a.finish()?;
        a.writer.flush_all_tasks()
    };
    assembler.writer.use_reserve();
    // Also after a write error: these tables are small, and a reel without tasks cannot be replayed.
    let last = last_words(&mut assembler).err();
    error = error.or(last);
    let until_end_ns = closing.end_ns - manifest.clock.monotonic_ns;
    manifest.span.elapsed_ns = match assembler.last_ns {
        // If programs continue to run, idle time at the end belongs to the recording.
        0.. if closing.goes_on => assembler.last_ns.max(until_end_ns),
        0 => until_end_ns,
        last_ns => last_ns,
    };
    ledger::places(&mut manifest, &assembler, &closing.mounts);
    manifest.probes = session.probes();
    manifest.warnings.extend(session.warnings.iter().cloned());
    warn_of_unread_devices(&mut manifest, &assembler);
    if assembler.stood_together > 0 {
        manifest.warnings.push(format!(
            "{} tasks shared their working directory and umask, but not their descriptors, when the recording began (clone with CLONE_FS); a later change is recorded for only one of them; record them from their start",
            assembler.stood_together
        ));
    }
    manifest.resolution = crate::assemble::fault::resolution();
    manifest.warnings.extend(session.missing.iter().map(Missing::tell));
    if error.is_none() {
        let at_end = leaves_final_tree(config, closing.goes_on).then_some(AtEnd {
            mounts: &closing.mounts,
            output: &config.output,
            elapsed_ns: manifest.span.elapsed_ns,
        });
        error = derive::write_tree(&mut assembler.writer, &mut manifest, closing.snapshot, at_end).err();
    }
    warn_of_cut_snapshot(&mut manifest);
    if error.is_some() {
        manifest.state = State::Truncated;
    }
    warn_of_own_device(config, &mut manifest, &assembler);
    ledger::fill(&mut manifest, &ledgers, &mut assembler, in_flight, &unended);
    manifest.cost.ring_bytes = session.ring_bytes as i64;
    ledger::own_cost(&mut manifest.cost, &ledgers);
    let manifest = match assembler.writer.close(manifest.clone()) {
        Ok(m) => m,
        Err(e) => {
            error.get_or_insert(e);
            // Uses what the writer could still store; if the folder is gone, the manifest that would have been written.
            Manifest::read_in(folder).unwrap_or(manifest)
        }
    };
    if error.is_none() && !folder.is_in_place() {
        error = Some(ReelError::Moved { path: folder.path().into() });
    }
    Ok((manifest, error.map(CaptureError::Reel)))
}

/// Whether the tree is as the recorded programs left it. Programs that go on, or that wait for a recorded process, may
/// change it.
fn leaves_final_tree(config: &Config, goes_on: bool) -> bool {
    matches!(config.target, Target::Command(_)) && !goes_on && config.layers != Layers::Block
}

fn warn_of_cut_snapshot(manifest: &mut Manifest) {
    if let Some(snapshot) = manifest.snapshot.filter(|snapshot| snapshot.partial) {
        manifest.warnings.push(format!(
            "the snapshot of the tree ended at {} names; names that the recorded calls use are added, others are \
             unknown; --snapshot-limit sets the limit",
            snapshot.names
        ));
    }
}

fn warn_of_unread_devices(manifest: &mut Manifest, assembler: &Assembler) {
    for (dev, why) in &assembler.blocks.layouts.unreadable {
        let remedy = match why.kind() {
            std::io::ErrorKind::TimedOut => "record again when it answers",
            std::io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
                "run as root or as a member of group disk"
            }
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::NotFound => "give this container the device",
            _ => "see the kernel log (dmesg)",
        };
        manifest.warnings.push(format!(
            "{}: cannot read the device ({why}), so journal, tables and bitmaps are classified less exactly; {remedy}",
            host::device(*dev).name
        ));
    }
}

fn warn_of_own_device(config: &Config, manifest: &mut Manifest, assembler: &Assembler) {
    let Ok(path) = config.output.canonicalize() else { return };
    let all = host::mounts();
    let Some(mount) = host::mount_of_path(&all, &name_of(path.as_os_str())) else { return };
    if let Some(disk) = host::disks_of(mount).into_iter().find(|d| assembler.disks.contains(d)) {
        let name = host::device(disk).name;
        manifest.warnings.push(format!(
            "the reel is on the recorded device {name}; its data is excluded, but file system metadata written for it is not; for exact block tables, write the reel to tmpfs or another disk"
        ));
    }
}
