//! What detectors look at: one pass over each table, summed by file, thread, name and device.
//!
//! In: a reel. Out: [`Facts`]. May use: `events`, `meters`, `stats`.
//!
//! Times come twice: as sums of durations, and as *shares* of the elapsed time. A share is by how much the elapsed time
//! would be shorter without the operation ([`progress`](self) for operations, [`crate::meters::share`] for bios and
//! requests).
//!
//! * `calls` reads operations: `by_file`, `lookups`, `scans` are its topics; `progress` computes shares, `time` splits
//!   durations into parts, by `waits` where they are recorded; `commits` are those that syncs rode on;
//! * `traffic` reads bios: `blocks` are those touched again, `gaps` are those between new files, `log` is a journal, `own_io` are the bios of an operation;
//! * `disk` reads requests; `rate` are rates over time; `names` says what ids mean.
//!
//! Stories ([`crate::explain`]) use the same rules: what is CPU time ([`Split`]), which commit a sync rode on
//! ([`may_ride`], [`ended_in`]), and in which call a thread held or released a lock ([`WaitTimes`], [`was_in`]).

mod blocks;
mod by_file;
mod calls;
mod commits;
mod disk;
mod gaps;
mod log;
mod lookups;
mod names;
mod operation;
mod own_io;
mod progress;
mod rate;
mod scans;
mod tally;
mod time;
mod traffic;
mod waits;

use std::collections::BTreeMap;

use ioreel_traces::{Manifest, Reel, rows::Op};

pub use self::{
    blocks::REWRITE_NS,
    by_file::FileUse,
    calls::{Calls, Stall, TaskUse},
    commits::{LATE_NS, Riding, carries_syncs, ended_in, may_ride},
    disk::{Disk, Work},
    gaps::Gaps,
    log::Log,
    lookups::{Lookups, NameUse},
    names::{FileKind, FileName, Names, TaskName},
    operation::Named,
    rate::{Bin, Rates},
    scans::Scans,
    tally::Tally,
    time::{Parts, Split},
    traffic::{FileFlow, Flow, Group, Traffic},
    waits::{Held, HolderKey, Throttles, WaitTimes, was_in},
};
use crate::{Result, stats::FileStats};

/// A device holds up the workload from this share of the elapsed time on.
const OWN_SHARE: f64 = 0.01;

/// Everything that detectors look at.
#[derive(Debug)]
pub struct Facts {
    /// Facts about the recording.
    pub manifest: Manifest,
    /// Duration of the workload, without the time after it in which file systems were synced, ns.
    pub elapsed_ns: f64,
    /// Whether operations were recorded. If not, the devices' busy time counts as the elapsed time of the workload.
    pub has_operations: bool,
    /// Whether bios were recorded.
    pub has_bios: bool,
    /// What ids mean.
    pub names: Names,
    /// Operations.
    pub calls: Calls,
    /// Bios.
    pub traffic: Traffic,
    /// Devices, most busy time first.
    pub disks: Vec<Disk>,
    /// Statistics of files.
    pub stats: FileStats,
    /// Devices with bios or requests, by number.
    devices: BTreeMap<i64, DeviceTimes>,
}

/// What counts of a device for the workload.
#[derive(Clone, Copy, Debug, Default)]
struct DeviceTimes {
    /// Time in which a bio or request was in flight, ns.
    busy_ns: f64,
    /// By how much the elapsed time would be shorter without waits for this device, ns.
    waits_ns: f64,
}

impl Facts {
    /// Gathers the facts. Two threads: one for requests and statistics, one for bios and operations.
    ///
    /// # Errors
    /// When the reel cannot be read.
    pub fn of(reel: &Reel) -> Result<Self> {
        let (disks, own) = std::thread::scope(|scope| {
            let requests = scope.spawn(|| -> Result<_> {
                let disks = disk::disks(reel)?;
                Ok((disks, FileStats::of(reel)?))
            });
            let own = Self::operations_and_bios(reel);
            let disks = requests.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (disks, own)
        });
        let ((disks, stats), (names, calls, traffic)) = (disks?, own?);
        let has_operations = reel.count::<Op>() > 0;
        let stated_ns = reel.manifest.span.elapsed_ns;
        let last_ns = if has_operations { calls.last_ns } else { disks.iter().map(|d| d.last_ns).max().unwrap_or(0) };
        let elapsed_ns = if stated_ns > 0 { stated_ns } else { last_ns };
        let devices = device_times(&calls, &traffic, &disks);
        Ok(Self {
            manifest: reel.manifest.clone(),
            elapsed_ns: elapsed_ns.max(1) as f64,
            has_operations,
            has_bios: !traffic.groups.is_empty(),
            names,
            calls,
            traffic,
            disks,
            stats,
            devices,
        })
    }

    fn operations_and_bios(reel: &Reel) -> Result<(Names, Calls, Traffic)> {
        let names = Names::of(reel)?;
        let (traffic, io) = Traffic::of(reel)?;
        let calls = Calls::of(reel, &names, &io)?;
        Ok((names, calls, traffic))
    }

    /// Of a second in which the device is busy, the part that holds up the workload. Background write-back, for which
    /// nobody waits, costs nothing, and neither does a device that only others use.
    pub fn weight_of(&self, dev: i64) -> f64 {
        if !self.has_operations {
            return 1.0;
        }
        let busy_ns = self.busy_ns_of(dev);
        (self.waits_for(dev) / busy_ns.max(1.0)).min(1.0)
    }

    /// By how much the elapsed time would be shorter without waits for this device, ns.
    pub fn waits_for(&self, dev: i64) -> f64 {
        self.devices.get(&dev).map_or(0.0, |d| d.waits_ns)
    }

    /// Time in which a bio or request was in flight on the device, ns.
    pub fn busy_ns_of(&self, dev: i64) -> f64 {
        self.devices.get(&dev).map_or(0.0, |d| d.busy_ns)
    }

    /// The devices that hold up the workload for at least a hundredth of its time; without operations, all. In order.
    pub fn own_devices(&self) -> Vec<i64> {
        let least_ns = OWN_SHARE * self.elapsed_ns;
        let own = self.devices.iter().filter(|(_, d)| !self.has_operations || d.waits_ns >= least_ns);
        own.map(|(dev, _)| *dev).collect()
    }

    /// Busy time of the own devices, ns.
    pub fn own_busy_ns(&self) -> f64 {
        self.own_devices().into_iter().map(|dev| self.busy_ns_of(dev)).sum()
    }
}

/// The times of each device that has bios or requests. Busy times come from bios where they are recorded.
fn device_times(calls: &Calls, traffic: &Traffic, disks: &[Disk]) -> BTreeMap<i64, DeviceTimes> {
    let known_ns: f64 = calls.device_waits_ns.values().sum();
    // Waits for a device that is not known are divided as the rest.
    let scale = if known_ns > 0.0 { 1.0 + calls.other_waits_ns / known_ns } else { 1.0 };
    let busy = disks.iter().map(|d| (d.dev, d.busy_ns)).chain(traffic.busy_ns.iter().map(|(dev, ns)| (*dev, *ns)));
    busy.map(|(dev, busy_ns)| {
        let waits_ns = scale * calls.device_waits_ns.get(&dev).copied().unwrap_or(0.0);
        (dev, DeviceTimes { busy_ns, waits_ns })
    })
    .collect()
}
