//! From the start to whatever ends a recording.

use std::{
    fs,
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use ioreel_bpf::types::rec_class;

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

/// How long rings are emptied at a time, at most: programs that are faster than the writer are.
const DRAIN: Duration = Duration::from_millis(4);
/// How soon the rings are looked at again while something is left in them, by a budget or a writer that is behind.
const SHORT_TICK: Duration = Duration::from_micros(200);
/// The writer hears of a quiet program this often, so that its segments close in time.
const QUIET_MESSAGE: Duration = Duration::from_millis(500);
/// After a signal the command has this long to end before the recording does.
const GRACE: Duration = Duration::from_secs(3);

/// How often an observer is told.
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

/// Bytes of the files in the tables' folders.
fn size_of_reel(reel: &Path) -> u64 {
    let folders = fs::read_dir(reel).into_iter().flatten().flatten();
    let files = folders.filter_map(|f| fs::read_dir(f.path()).ok()).flatten().flatten();
    files.filter_map(|f| f.metadata().ok()).map(|m| m.len()).sum()
}

/// How the following ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    pub(super) why: End,
    /// The signal that asked for the end, if one was passed on to the command.
    pub(super) signal: Option<i32>,
}

/// Drains until the last recorded thread has ended, or something else ends the recording.
pub(super) fn follow(
    session: &Session<'_>,
    pipeline: &Pipeline,
    copies: &mut Copies<'_>,
    mut command: Option<&mut Command>,
    started: Instant,
    mut budget: Option<&mut Budget>,
) -> Result<Ended, CaptureError> {
    let config = copies.config;
    // Tasks may enter a control group as long as there is one.
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
        // Nothing while the budget is used up.
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
        if pipeline.progress.failed.load(Ordering::Relaxed) {
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
                // A second signal, or a process that is not ours to end: stop at once.
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
        // A budget lets little be taken at a time.
        let seldom = if budget.is_some() { SHORTEST_TICK } else { session.tick };
        let tick = if more { SHORT_TICK } else { watchman.at_most(seldom) };
        signals::sleep(tick);
    }
}
