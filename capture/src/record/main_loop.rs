//! The main loop: from the start of a recording to whatever ends it.

use std::{
    fs,
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use ioreel_bpf::types::rec_class;
use ioreel_traces::private::Folder;

use super::{
    config::{Config, Observer, Progress, Target},
    copies::Copies,
    limits::{End, Watchman},
};
use crate::record::cpu_budget::Budget;
use crate::{
    CaptureError,
    host::signals,
    pipeline::{Message, Pipeline, settle::drain_for},
    probes::session::{SHORTEST_TICK, Session},
    record::command::Command,
};

/// Maximum time spent on draining per iteration, for programs that are faster than the writer.
const DRAIN: Duration = Duration::from_millis(4);
/// Interval while records remain in the rings, because of a CPU budget or a slow writer.
const SHORT_TICK: Duration = Duration::from_micros(200);
/// Interval of messages to the writer while nothing happens, so that it closes segments in time.
const QUIET_MESSAGE: Duration = Duration::from_millis(500);
/// Time that the command gets to end after a signal before the recording ends.
const GRACE: Duration = Duration::from_secs(3);

/// Interval of progress reports.
const TELL: Duration = Duration::from_millis(500);

struct Told<'a> {
    observer: &'a Observer,
    last: Instant,
}

impl Told<'_> {
    fn tell(&mut self, session: &Session<'_>, config: &Config, started: Instant) -> Result<(), CaptureError> {
        if self.last.elapsed() < TELL {
            return Ok(());
        }
        let ledgers = session.ledgers()?;
        let class = rec_class::CLASS_OPS.0 as usize;
        (self.observer.0)(&Progress {
            elapsed: started.elapsed(),
            ops: ledgers.iter().map(|l| l.seen[class] + l.left_out.iter().sum::<u64>()).sum(),
            lost: ledgers.iter().flat_map(|l| l.lost).sum(),
            ring_fill: session.take_fullest() as f64 / session.ring_bytes.max(1) as f64,
            reel_bytes: size_of_reel(&config.output),
        });
        self.last = Instant::now();
        Ok(())
    }
}

/// Total size of the files in the folders of the tables, in bytes.
fn size_of_reel(reel: &Path) -> u64 {
    let folders = fs::read_dir(reel).into_iter().flatten().flatten();
    let files = folders.filter_map(|f| fs::read_dir(f.path()).ok()).flatten().flatten();
    files.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

/// How the main loop ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub(super) why: End,
    /// The signal that requested the end, if the command was running.
    pub(super) signal: Option<i32>,
}

/// Drains the rings until the last recorded thread has ended, or something else ends the recording.
pub(super) fn follow(
    session: &Session<'_>,
    pipeline: &Pipeline,
    copies: &mut Copies<'_>,
    mut command: Option<&mut Command>,
    started: Instant,
    mut budget: Option<&mut Budget>,
    folder: &Folder,
) -> Result<Ended, CaptureError> {
    let config = copies.config;
    // Tasks may enter a cgroup at any time, so the recording does not end with the last task.
    let for_ever = matches!(config.target, Target::Cgroup(_) | Target::All);
    let mut joined = 0;
    let mut watchman = Watchman::new(config.limits, &config.output, started);
    let mut signal = None;
    let mut grace_ends = None;
    let mut told = started;
    let mut watcher = config.observer.as_ref().map(|o| Told { observer: o, last: started });
    loop {
        let now = session.joined();
        if now != joined {
            joined = now;
            pipeline.send(Message::Records { bytes: session.look()?, complete_to_ns: 0 });
        }
        // `None` while the budget is used up.
        let (complete_to_ns, more) = match &mut budget {
            Some(budget) => budget.drain(session, pipeline).map_or((None, false), |(ns, more)| (Some(ns), more)),
            None => {
                let (complete_to_ns, more) = drain_for(session, pipeline, DRAIN);
                (Some(complete_to_ns), more)
            }
        };
        if let Some(complete_to_ns) = complete_to_ns
            && told.elapsed() >= QUIET_MESSAGE
        {
            told = Instant::now();
            pipeline.send(Message::Records { bytes: Vec::new(), complete_to_ns });
        }
        if let Some(watcher) = &mut watcher {
            watcher.tell(session, config, started)?;
        }
        if pipeline.progress.failed.load(Ordering::Relaxed) || folder.is_removed() {
            return Ok(Ended { why: End::Failed, signal });
        }
        let reaped = command.as_deref_mut().is_none_or(|c| c.poll().is_some());
        if !for_ever && reaped && session.alive() <= 0 {
            let why = if signal.is_some() { End::Signal } else { End::Exit };
            return Ok(Ended { why, signal });
        }
        if watchman.rotates() {
            pipeline.progress.missing_bytes.fetch_max(watchman.missing_bytes(), Ordering::Relaxed);
        }
        if pipeline.progress.slow.swap(false, Ordering::Relaxed) {
            if !config.limits.copies {
                return Ok(Ended { why: End::Trigger, signal });
            }
            copies.ask_in_turn();
        }
        copies.look(session, pipeline)?;
        session.watch_disks();
        let mut arrived = signals::take();
        if arrived.take_if(|s| s.signal == libc::SIGUSR1).is_some() {
            copies.ask();
        }
        if let Some(s) = arrived {
            match &command {
                // On a second signal, or if there is no command to wait for, end at once.
                _ if signal.is_some() => return Ok(Ended { why: End::Signal, signal }),
                None => return Ok(Ended { why: End::Signal, signal: None }),
                Some(c) => {
                    if !s.reached_the_command() {
                        c.signal(s.signal);
                    }
                    signal = Some(s.signal);
                    grace_ends = Some(Instant::now() + GRACE);
                }
            }
        }
        if grace_ends.is_some_and(|t| Instant::now() >= t) {
            return Ok(Ended { why: End::Signal, signal });
        }
        if let Some(why) = watchman.reached(pipeline.progress.reel_bytes()) {
            return Ok(Ended { why, signal });
        }
        // With a budget, little is taken per pass, so passes must be frequent.
        let seldom = if budget.is_some() { SHORTEST_TICK } else { session.tick };
        let tick = if more { SHORT_TICK } else { watchman.at_most(seldom) };
        signals::sleep(tick);
    }
}
