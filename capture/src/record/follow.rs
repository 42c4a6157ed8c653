//! From the start to whatever ends a recording.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::{
    config::{Config, Target},
    limits::{End, Watchman},
};
use crate::{
    CaptureError,
    command::Command,
    pipeline::{Message, Pipeline},
    session::Session,
    settle::drain,
    signals,
};

/// How often the rings are looked at: at the fastest writer measured they fill in some hundred ms.
pub(super) const TICK: Duration = Duration::from_millis(4);
/// The writer hears of a quiet program this often, so that its segments close in time.
const QUIET_MESSAGE: Duration = Duration::from_millis(500);
/// After a signal the command has this long to end before the recording does.
const GRACE: Duration = Duration::from_secs(3);

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
    config: &Config,
    mut command: Option<&mut Command>,
    started: Instant,
) -> Result<Ended, CaptureError> {
    // Tasks may enter a control group as long as there is one.
    let for_ever = matches!(config.target, Target::Cgroup(_) | Target::All);
    let mut joined = 0;
    let mut watchman = Watchman::new(config.limits, &config.output, started);
    let mut signal = None;
    let mut grace_ends = None;
    let mut told = started;
    loop {
        let now = session.joined();
        if now != joined {
            joined = now;
            pipeline.send(Message::Records { bytes: session.look()?, complete_to_ns: 0 });
        }
        let complete_to_ns = drain(session, pipeline);
        if told.elapsed() >= QUIET_MESSAGE {
            told = Instant::now();
            pipeline.send(Message::Records { bytes: Vec::new(), complete_to_ns });
        }
        if pipeline.progress.failed.load(Ordering::Relaxed) {
            return Ok(Ended { why: End::Failed, signal });
        }
        let reaped = command.as_deref_mut().is_none_or(|c| c.poll().is_some());
        if session.alive() <= 0 && reaped && !for_ever {
            let why = if signal.is_some() { End::Signal } else { End::Exit };
            return Ok(Ended { why, signal });
        }
        if watchman.rotates() && watchman.too_little_free() {
            pipeline.progress.make_room.store(true, Ordering::Relaxed);
        }
        if pipeline.progress.slow.load(Ordering::Relaxed) {
            return Ok(Ended { why: End::Trigger, signal: None });
        }
        let arrived = signals::take();
        if config.limits.end_on_signal && arrived.is_some_and(|s| s.signal == libc::SIGUSR1) {
            return Ok(Ended { why: End::Trigger, signal: None });
        }
        if let Some(s) = arrived {
            match &command {
                // A second signal, or a process that is not ours to end: stop at once.
                _ if signal.is_some() => return Ok(Ended { why: End::Signal, signal }),
                None => return Ok(Ended { why: End::Signal, signal: None }),
                Some(c) => {
                    if !s.from_kernel {
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
        std::thread::sleep(TICK);
    }
}
