//! Number of recorded threads alive, also when no program saw one end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ioreel_bpf::types::living_task;

use super::Session;
use crate::CaptureError;

/// Minimum time between two counts.
const RECOUNT: Duration = Duration::from_millis(500);

/// Thread ends that no program saw. Where programs are preemptible, the kernel skips a program that another task was
/// preempted in.
#[derive(Debug, Default)]
pub(super) struct UnseenEnds {
    counted: Option<Instant>,
    /// Skips of the programs for thread ends at the last count.
    skipped: u64,
    /// Threads that are counted as alive and are not, and the count that they are part of.
    threads: i64,
    told: i64,
    /// Threads that were exiting at the last count.
    ending: BTreeSet<u32>,
}

impl Session<'_> {
    /// Number of recorded threads alive. A thread whose end no program saw is counted for about 500 ms longer.
    pub fn alive(&self) -> i64 {
        let told = self.told_alive().0;
        if told > 0
            && self.ends_may_be_unseen
            && let Err(e) = self.look_for_unseen_ends()
        {
            log::debug!("threads that ended unseen are taken to be alive: {e}");
        }
        let unseen = self.unseen_ends.borrow();
        // The end of a thread that was subtracted may still be seen; it must not be subtracted twice.
        if told == unseen.told { told - unseen.threads } else { told }
    }

    /// Threads alive as the programs counted them, and the number of threads ever recorded.
    fn told_alive(&self) -> (i64, u32) {
        self.skel.maps.bss_data.as_deref().map_or((0, 0), |bss| {
            // SAFETY: valid, aligned integers; the kernel changes them atomically.
            unsafe {
                (std::ptr::from_ref(&bss.alive).read_volatile(), std::ptr::from_ref(&bss.next_task_id).read_volatile())
            }
        })
    }

    fn look_for_unseen_ends(&self) -> Result<(), CaptureError> {
        let mut unseen = self.unseen_ends.borrow_mut();
        if unseen.counted.is_some_and(|at| at.elapsed() < RECOUNT) {
            return Ok(());
        }
        unseen.counted = Some(Instant::now());
        let skipped = self.skipped(&["task_exit", "task_exit_again"]);
        let before = self.told_alive();
        if skipped == unseen.skipped && (unseen.threads == 0 || unseen.told == before.0) {
            return Ok(());
        }
        let told = self.iterate(self.skel.links.living.as_ref(), "counting the recorded threads")?;
        let (listed, _) = told.as_chunks::<{ size_of::<living_task>() }>();
        let listed: Vec<(u32, bool)> = listed
            .iter()
            .map(|[a, b, c, d, ending @ ..]| (u32::from_ne_bytes([*a, *b, *c, *d]), *ending != [0; 4]))
            .collect();
        if self.told_alive() != before {
            // A thread came or went during the listing, so the counts cannot be compared.
            return Ok(());
        }
        let ending: BTreeSet<u32> = listed.iter().filter(|(_, ending)| *ending).map(|(id, _)| *id).collect();
        // The end of an exiting thread may be seen a moment later. One that is still exiting at the next count is a
        // zombie.
        let alive = listed.iter().filter(|(id, ending)| !ending || !unseen.ending.contains(id)).count();
        (unseen.threads, unseen.told) = (before.0 - alive as i64, before.0);
        if ending.iter().all(|id| unseen.ending.contains(id)) {
            unseen.skipped = skipped;
        }
        unseen.ending = ending;
        Ok(())
    }
}
