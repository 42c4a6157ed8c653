//! Who of the recorded threads is alive, also where the kernel has told no program of an end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ioreel_bpf::types::living_task;

use super::Session;
use crate::CaptureError;

/// How soon after a count the threads are counted anew, if there is reason to.
const RECOUNT: Duration = Duration::from_millis(500);

/// Ends that no program was told of: where tasks can lose the CPU in one, the kernel skips it for others meanwhile.
#[derive(Debug, Default)]
pub(super) struct UnseenEnds {
    counted: Option<Instant>,
    /// How often the kernel had skipped the programs on ends by then.
    skipped: u64,
    /// Of the threads told to be alive, no more are; and how many those were.
    threads: i64,
    told: i64,
    /// Those that were on their way out then.
    ending: BTreeSet<u32>,
}

impl Session<'_> {
    /// Recorded threads alive. One whose end no program was told of counts for some 500 ms more.
    pub fn alive(&self) -> i64 {
        let told = self.told_alive().0;
        if told > 0
            && self.ends_may_be_unseen
            && let Err(e) = self.look_for_unseen_ends()
        {
            log::debug!("threads that ended unseen are taken to be alive: {e}");
        }
        let unseen = self.unseen_ends.borrow();
        // Of one that was counted out the end may be told after all: it is not to be taken off twice.
        if told == unseen.told { told - unseen.threads } else { told }
    }

    /// As the programs have counted them, and how many there have been.
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
            // Somebody came or went meanwhile, who may have been listed or not.
            return Ok(());
        }
        let ending: BTreeSet<u32> = listed.iter().filter(|(_, ending)| *ending).map(|(id, _)| *id).collect();
        // Of one on its way out a program may yet be told, a moment later; what stays so is a zombie.
        let alive = listed.iter().filter(|(id, ending)| !ending || !unseen.ending.contains(id)).count();
        (unseen.threads, unseen.told) = (before.0 - alive as i64, before.0);
        if ending.iter().all(|id| unseen.ending.contains(id)) {
            unseen.skipped = skipped;
        }
        unseen.ending = ending;
        Ok(())
    }
}
