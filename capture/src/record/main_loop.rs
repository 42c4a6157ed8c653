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
    marks::News,
};
use crate::record::cpu_budget::Budget;
use crate::{
    CaptureError,
    host::signals::{self, Arrived},
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

/// Moves records from the rings to the pipeline.
struct Drain<'a> {
    session: &'a Session<'a>,
    pipeline: &'a Pipeline,
    budget: Option<&'a mut Budget>,
    /// Tasks that had joined when their descriptors and mappings were listed last.
    joined: u64,
    /// When the pipeline last heard how far it is complete.
    told: Instant,
}

impl Drain<'_> {
    /// Lists what tasks have open that joined since.
    fn look_at_joined(&mut self) -> Result<(), CaptureError> {
        let now = self.session.joined();
        if now != self.joined {
            self.joined = now;
            self.pipeline.send(Message::Records { bytes: self.session.look()?, complete_to_ns: 0 });
        }
        Ok(())
    }

    /// Empties the rings for a while, or not at all while the budget is used up. Whether something is left in them.
    fn drain(&mut self) -> bool {
        let drained = match &mut self.budget {
            Some(budget) => budget.drain(self.session, self.pipeline),
            None => Some(drain_for(self.session, self.pipeline, DRAIN)),
        };
        let Some((complete_to_ns, more)) = drained else { return false };
        // A program may be quiet.
        if self.told.elapsed() >= QUIET_MESSAGE {
            self.told = Instant::now();
            self.pipeline.send(Message::Records { bytes: Vec::new(), complete_to_ns });
        }
        more
    }
}

/// A signal that asked for the end, and how long the command has to end by itself.
#[derive(Default)]
struct Asked {
    signal: Option<i32>,
    grace_ends: Option<Instant>,
}

impl Asked {
    /// Takes a signal that arrived. How the recording ends, if it does at once.
    fn take(&mut self, arrived: Arrived, command: Option<&Command>) -> Option<Ended> {
        match command {
            // On a second signal, or if there is no command to wait for, end at once.
            _ if self.signal.is_some() => return Some(Ended { why: End::Signal, signal: self.signal }),
            None => return Some(Ended { why: End::Signal, signal: None }),
            Some(c) => {
                if !arrived.reached_the_command() {
                    c.signal(arrived.signal);
                }
                self.signal = Some(arrived.signal);
                self.grace_ends = Some(Instant::now() + GRACE);
            }
        }
        None
    }

    fn grace_is_over(&self) -> bool {
        self.grace_ends.is_some_and(|t| Instant::now() >= t)
    }
}

/// Drains the rings until the last recorded thread has ended, or something else ends the recording.
pub(super) fn follow(
    session: &Session<'_>,
    pipeline: &Pipeline,
    copies: &mut Copies<'_>,
    mut command: Option<&mut Command>,
    started: Instant,
    budget: Option<&mut Budget>,
    folder: &Folder,
) -> Result<Ended, CaptureError> {
    let config = copies.config;
    // Tasks may enter a cgroup at any time, so the recording does not end with the last task.
    let for_ever = matches!(config.target, Target::Cgroup(_) | Target::All);
    let mut watchman = Watchman::new(config.limits, &config.output, started);
    let mut asked = Asked::default();
    let mut news = News::default();
    let mut watcher = config.observer.as_ref().map(|o| Told { observer: o, last: started });
    // With a budget, little is taken per pass, so passes must be frequent.
    let seldom = if budget.is_some() { SHORTEST_TICK } else { session.tick };
    let mut drain = Drain { session, pipeline, budget, joined: 0, told: started };
    loop {
        drain.look_at_joined()?;
        let more = drain.drain();
        if let Some(watcher) = &mut watcher {
            watcher.tell(session, config, started)?;
        }
        let ended = |why| Ok(Ended { why, signal: asked.signal });
        if pipeline.progress.failed.load(Ordering::Relaxed) || folder.is_removed() {
            return ended(End::Failed);
        }
        let reaped = command.as_deref_mut().is_none_or(|c| c.poll().is_some());
        if !for_ever && reaped && session.alive() <= 0 {
            return ended(if asked.signal.is_some() { End::Signal } else { End::Exit });
        }
        if watchman.rotates() {
            pipeline.progress.missing_bytes.fetch_max(watchman.missing_bytes(), Ordering::Relaxed);
        }
        if pipeline.progress.slow.swap(false, Ordering::Relaxed) {
            if !config.limits.copies {
                return ended(End::Trigger);
            }
            copies.ask_in_turn();
        }
        copies.look(session, pipeline)?;
        if let Some(marks) = copies.marks.and_then(|m| news.of(m, copies.manifest.clock.monotonic_ns)) {
            pipeline.send(Message::Marks(marks));
        }
        session.watch_disks();
        let mut arrived = signals::take();
        if arrived.take_if(|s| s.signal == libc::SIGUSR1).is_some() {
            copies.ask();
        }
        if let Some(ended) = arrived.and_then(|s| asked.take(s, command.as_deref())) {
            return Ok(ended);
        }
        if asked.grace_is_over() {
            return Ok(Ended { why: End::Signal, signal: asked.signal });
        }
        if let Some(why) = watchman.reached(pipeline.progress.reel_bytes()) {
            return Ok(Ended { why, signal: asked.signal });
        }
        signals::sleep(if more { SHORT_TICK } else { watchman.at_most(seldom) });
    }
}
