//! The flight recorder: on request, a copy of the reel kept so far is written while the recording continues.

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

/// Delay before a copy, in which records pass the pipeline's ordering, so that the event that triggered the copy is
/// included.
const SETTLED: Duration = Duration::from_millis(50);

/// Copies of a rotating reel.
pub(super) struct Copies<'a> {
    pub(super) config: &'a Config,
    /// The manifest at the start of the recording.
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

    /// Requests a copy now.
    pub(super) fn ask(&mut self) {
        self.due_at(Instant::now() + SETTLED);
    }

    /// Requests a copy because of a slow operation. Soon after another copy, it waits until a copy would contain only
    /// newer data; the operation is still in it then.
    pub(super) fn ask_in_turn(&mut self) {
        let pause = self.config.limits.span.unwrap_or_default();
        let soon = Instant::now() + SETTLED;
        self.due_at(self.last.map_or(soon, |last| soon.max(last + pause)));
    }

    fn due_at(&mut self, moment: Instant) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }

    /// Starts a copy that is due, and reports one that has ended.
    pub(super) fn look(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Result<(), CaptureError> {
        let answer = self.running.as_ref().map(|(_, answer)| answer.try_recv());
        match answer {
            Some(Ok(done)) => self.tell(done),
            // The writer has failed, which is reported elsewhere.
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
        // What had ended at the request is in the rings, or waits for earlier records to be complete.
        let complete_to_ns = drain(session, pipeline);
        pipeline.send(Message::Records { bytes: Vec::new(), complete_to_ns });
        // Records that arrived after this time may still be in a ring; they are not lost.
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

    /// At the end of the recording: writes the copies still requested.
    pub(super) fn finish(&mut self, session: &Session<'_>, pipeline: &Pipeline) -> Result<(), CaptureError> {
        // A program may have sent the signal and ended right after it.
        while let Some(arrived) = signals::take() {
            if arrived.signal == libc::SIGUSR1 {
                self.ask();
            }
        }
        // A copy that waits for its turn is not needed: its data is in the recording's own reel.
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

/// An unused path in `dir`: `STEM.reel`, or with a number.
pub fn unused(dir: &Path, stem: &str) -> PathBuf {
    let first = dir.join(format!("{stem}.reel"));
    let more = (2..1000).map(|n| dir.join(format!("{stem}-{n}.reel")));
    std::iter::once(first.clone()).chain(more).find(|p| p.symlink_metadata().is_err()).unwrap_or(first)
}
