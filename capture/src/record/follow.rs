//! From the start to whatever ends a recording.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::config::{Config, Target};
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
/// After a signal the command has this long to end before the recording does.
const GRACE: Duration = Duration::from_secs(3);

/// Drains until the last recorded thread has ended, or something else ends the recording. Returns the
/// signal that asked for the end, if one was passed on to the command.
pub(super) fn follow(
    session: &Session<'_>,
    pipeline: &Pipeline,
    config: &Config,
    mut command: Option<&mut Command>,
    started: Instant,
) -> Result<Option<i32>, CaptureError> {
    // Tasks may enter a control group as long as there is one.
    let for_ever = matches!(config.target, Target::Cgroup(_) | Target::All);
    let mut joined = 0;
    let mut stop_at = config.duration.map(|d| started + d);
    let mut signal = None;
    loop {
        let now = session.joined();
        if now != joined {
            joined = now;
            pipeline.send(Message::Records { bytes: session.look()?, complete_to_ns: 0 });
        }
        drain(session, pipeline);
        let reaped = command.as_deref_mut().is_none_or(|c| c.poll().is_some());
        if session.alive() <= 0 && reaped && !for_ever || pipeline.progress.failed.load(Ordering::Relaxed) {
            return Ok(signal);
        }
        if let Some(s) = signals::take() {
            match &command {
                // A second signal, or a process that is not ours to end: stop at once.
                _ if signal.is_some() => return Ok(signal),
                None => return Ok(None),
                Some(c) => {
                    if !s.from_kernel {
                        c.signal(s.signal);
                    }
                    signal = Some(s.signal);
                    let grace = Instant::now() + GRACE;
                    stop_at = Some(stop_at.map_or(grace, |t| t.min(grace)));
                }
            }
        }
        if stop_at.is_some_and(|t| Instant::now() >= t) {
            return Ok(signal);
        }
        std::thread::sleep(TICK);
    }
}
