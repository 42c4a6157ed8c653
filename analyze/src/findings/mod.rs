//! What is wrong, for `ioreel diagnose`: one detector a file.
//!
//! In: [`Facts`]. Out: [`Finding`]s, most costly first. May use: `facts`, `stats`.
//!
//! A detector is a pure function over the facts. It returns a draft when its pattern is there. Its cost decides whether it
//! is reported: see [`LEAST_SHARE`]. `support` has what they share.

mod against;
mod diagnosis;
mod finding;
mod support;

mod allocation_gaps;
mod atime_writes;
mod cache_thrash;
mod copy_up;
mod device_cap;
mod device_outliers;
mod discard_stall;
mod double_write;
mod entangled_sync;
mod fault_storm;
mod flush_cost;
mod full_or_aged;
mod idle_gaps;
mod index_churn;
mod inode_lock;
mod interleaved_streams;
mod lookup_storm;
mod noisy_neighbour;
mod periodic_stall;
mod read_modify_write;
mod readahead_missing;
mod readahead_waste;
mod rewrites;
mod scattered_scan;
mod seek_storm;
mod single_depth;
mod slow_delete;
mod small_journal;
mod sync_storm;
mod throttled_writes;
mod tiny_buffers;
mod unmerged_writes;
mod uring_punt;

pub use self::against::{Comparison, Difference};
pub use self::diagnosis::{BusyTime, Diagnosis, TimeInCalls, TimeOf};
pub use self::finding::{Confidence, Evidence, Figure, Finding, Part};
use self::support::Draft;
pub use self::support::LockHolder;
use crate::facts::Facts;

/// A finding that costs less than this share of the elapsed time is not reported unless all are asked for.
pub const LEAST_SHARE: f64 = 0.05;

/// What a detector needs of a reel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// System calls.
    Operations,
    /// Bios.
    Bios,
    /// Requests, or bios on devices without requests.
    Requests,
    /// System calls and bios.
    OperationsAndBios,
}

/// A detector.
#[derive(Clone, Copy, Debug)]
pub struct Detector {
    /// Its id: the contract in JSON, docs and `--fail-on`.
    pub id: &'static str,
    /// The pattern that it looks for.
    pub pattern: &'static str,
    /// Tables without which it cannot look.
    pub needs: Needs,
    detect: fn(&Facts) -> Option<Draft>,
}

macro_rules! detectors {
    ($($id:literal, $module:ident, $needs:ident, $pattern:literal;)*) => {
        /// All detectors, by worth to people who run servers.
        pub const DETECTORS: &[Detector] =
            &[$(Detector { id: $id, pattern: $pattern, needs: Needs::$needs, detect: $module::detect }),*];
    };
}

detectors! {
    "sync-storm", sync_storm, Operations, "many small synchronous commits";
    "entangled-sync", entangled_sync, OperationsAndBios, "an fsync that waits while the commit writes data of other files";
    "device-cap", device_cap, Requests, "a provisioned limit: the rate is flat while requests wait";
    "single-depth", single_depth, Requests, "one request in flight on a device that could do many";
    "readahead-missing", readahead_missing, OperationsAndBios, "sequential small reads that wait for the device one by one";
    "readahead-waste", readahead_waste, OperationsAndBios, "pages read ahead and never used";
    "throttled-writes", throttled_writes, Operations, "writes held back by limits on dirty pages";
    "noisy-neighbour", noisy_neighbour, OperationsAndBios, "own requests behind those of other programs";
    "lookup-storm", lookup_storm, Operations, "failed look-ups, repeated stat and open of the same names";
    "inode-lock", inode_lock, Operations, "threads of one file serialised";
    "cache-thrash", cache_thrash, Bios, "blocks read again after eviction";
    "read-modify-write", read_modify_write, OperationsAndBios, "reads forced by partial overwrites";
    "periodic-stall", periodic_stall, Operations, "commits or flushes that stall operations at intervals";
    "small-journal", small_journal, OperationsAndBios, "log wraps and checkpoints that stall writers";
    "copy-up", copy_up, Operations, "a whole file copied by an overlay because a part changed";
    "index-churn", index_churn, Operations, "index blocks written out of proportion to what changes";
    "unmerged-writes", unmerged_writes, Requests, "contiguous writes dispatched one by one";
    "rewrites", rewrites, Bios, "the same blocks written again and again";
    "seek-storm", seek_storm, Requests, "requests in no order on a device that seeks";
    "tiny-buffers", tiny_buffers, Operations, "sequential system calls of few bytes";
    "double-write", double_write, Bios, "data written twice: a journal of all data";
    "scattered-scan", scattered_scan, OperationsAndBios, "traversal in an order unlike that of the disk";
    "slow-delete", slow_delete, Operations, "removals, renames and truncations that take long";
    "full-or-aged", full_or_aged, Bios, "a nearly full or fragmented file system";
    "allocation-gaps", allocation_gaps, Bios, "gaps between files made in sequence";
    "interleaved-streams", interleaved_streams, Bios, "files written at the same time that scatter each other";
    "device-outliers", device_outliers, Requests, "latencies that no queue explains";
    "discard-stall", discard_stall, Requests, "discards in the way of reads and writes";
    "flush-cost", flush_cost, Requests, "cache flushes in the way of reads and writes";
    "atime-writes", atime_writes, OperationsAndBios, "metadata written because files were read";
    "fault-storm", fault_storm, Operations, "mapped files touched page by page";
    "uring-punt", uring_punt, Operations, "requests to io_uring carried out by worker threads";
    "idle-gaps", idle_gaps, Operations, "a thread that computes and waits for the device in turn";
}

impl Detector {
    /// Whether the reel has the tables that it needs.
    pub fn can_look(&self, facts: &Facts) -> bool {
        match self.needs {
            Needs::Operations => facts.has_operations,
            Needs::Bios => facts.has_bios,
            Needs::Requests => !facts.disks.is_empty(),
            Needs::OperationsAndBios => facts.has_operations && facts.has_bios,
        }
    }

    /// The finding, whatever it costs. `None` if the pattern is not there.
    pub fn find(&self, facts: &Facts) -> Option<Finding> {
        if !self.can_look(facts) {
            return None;
        }
        (self.detect)(facts).map(|draft| draft.finish(self.id, facts))
    }
}

/// All findings, most costly first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found: Vec<Finding> = DETECTORS.iter().filter_map(|d| d.find(facts)).collect();
    found.sort_by(|a, b| b.cost_s.total_cmp(&a.cost_s).then(a.id.cmp(b.id)));
    found
}

/// The ids of detectors that could not look, because the reel lacks their tables.
pub fn not_looked_for(facts: &Facts) -> Vec<&'static str> {
    DETECTORS.iter().filter(|d| !d.can_look(facts)).map(|d| d.id).collect()
}
