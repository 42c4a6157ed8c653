//! The flight recorder: what is kept becomes a reel of its own whenever it is asked for, and the recording goes on.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, TryRecvError, sync_channel},
    time::{Duration, Instant},
};

use ioreel_traces::{Manifest, ReelError, manifest::Mount};

use super::{
    config::{Config, Moment},
    limits::End,
};
use crate::{
    CaptureError,
    host::{self, signals},
    pipeline::{Copy, Message, Pipeline, settle::drain},
    probes::session::Session,
    record::marks::Listener,
};

/// Records wait so long in the pipeline, until all that ended before them has come: what was asked for shall be in.
const SETTLED: Duration = Duration::from_millis(50);

/// Reels made of what a rotating one keeps.
pub(super) struct Copies<'a> {
    pub(super) config: &'a Config,
    /// As it was when the recording began.
    pub(super) manifest: &'a Manifest,
    pub(super) mounts: &'a [Mount],
    pub(super) marks: Option<&'a Listener>,
    due: Option<Instant>,
    running: Option<(PathBuf, Receiver<Result<(), ReelError>>)>,
    last: Option<Instant>,
}

impl<'a> Copies<'a> {
    pub(super) fn new(
        config: &'a Config,
        manifest: &'a Manifest,
        mounts: &'a [Mount],
        marks: Option<&'a Listener>,
    ) -> Self {
        Self { config, manifest, mounts, marks, due: None, running: None, last: None }
    }

    /// Somebody wants one now.
    pub(super) fn ask(&mut self) {
        self.due_at(Instant::now() + SETTLED);
    }

    /// An operation was slow. Soon after another copy this one waits until all that it could hold is newer: the
    /// operation is in it still.
    pub(super) fn ask_in_turn(&mut self) {
        let pause = self.config.limits.span.unwrap_or_default();
        let soon = Instant::now() + SETTLED;
        self.due_at(self.last.map_or(soon, |last| soon.max(last + pause)));
    }

    fn due_at(&mut self, moment: Instant) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Begins what is due, and tells what is done.
    pub(super) fn look(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Result<(), CaptureError> {
        let answer = self.running.as_ref().map(|(_, answer)| answer.try_recv());
        match answer {
            Some(Ok(done)) => self.tell(done),
            // The writer has failed, which is told elsewhere.
            Some(Err(TryRecvError::Disconnected)) => self.running = None,
            Some(Err(TryRecvError::Empty)) => return Ok(()),
            None => {}
        }
        if self.due.is_some_and(|t| Instant::now() >= t) {
            self.due = None;
            self.last = Some(Instant::now());
            self.begin(session, pipeline)?;
        }
        Ok(())
    }

    fn begin(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Result<(), CaptureError> {
        // What had ended when it was asked for lies in the rings, or waits for word that all before it is there.
        let complete_to_ns = drain(session, pipeline);
        pipeline.send(Message::Records { bytes: Vec::new(), complete_to_ns });
        // What came while it was taken may still be in a ring, and is no loss.
        let at_ns = complete_to_ns;
        let mut manifest = self.manifest.clone();
        manifest.ended = End::Trigger.word().into();
        manifest.marks = self.marks.map(|m| m.marks(manifest.clock.monotonic_ns)).unwrap_or_default();
        manifest.probes = session.probes();
        manifest.cost.ring_bytes = session.ring_bytes as i64;
        let output = &self.config.output;
        let stem = output.file_stem().unwrap_or_default().to_string_lossy();
        let path = unused(output.parent().unwrap_or(Path::new("")), &format!("{stem}-{}", host::utc_stamp()));
        let (reply, answer) = sync_channel(1);
        let ledgers = session.ledgers()?;
        let mounts = self.mounts.to_vec();
        let copy = Copy { path: path.clone(), manifest, mounts, ledgers, at_ns, reply };
        pipeline.send(Message::Copy(Box::new(copy)));
        self.running = Some((path, answer));
        Ok(())
    }

    fn tell(&mut self, done: Result<(), ReelError>) {
        let Some((path, _)) = self.running.take() else { return };
        self.config.tell(&match done {
            Ok(()) => Moment::Copied(path),
            Err(e) => Moment::NotCopied(e.to_string()),
        });
    }

    /// At the end of the recording: what somebody asked for is made yet.
    pub(super) fn finish(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Result<(), CaptureError> {
        // The last one may have ended right after it had asked.
        while let Some(arrived) = signals::take() {
            if arrived.signal == libc::SIGUSR1 {
                self.ask();
            }
        }
        // What waits for its turn is in the recording's own reel, which is whole now.
        let soon = Instant::now() + SETTLED;
        self.due = self.due.filter(|due| *due <= soon);
        loop {
            if let Some((_, answer)) = &self.running {
                match answer.recv() {
                    Ok(done) => self.tell(done),
                    Err(_) => self.running = None,
                }
            }
            let Some(due) = self.due.take() else { return Ok(()) };
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            self.begin(session, pipeline)?;
        }
    }
}

/// A path in `dir` that nothing has yet: `STEM.reel`, or with a number.
pub fn unused(dir: &Path, stem: &str) -> PathBuf {
    let first = dir.join(format!("{stem}.reel"));
    let more = (2..1000).map(|n| dir.join(format!("{stem}-{n}.reel")));
    std::iter::once(first.clone()).chain(more).find(|p| p.symlink_metadata().is_err()).unwrap_or(first)
}
