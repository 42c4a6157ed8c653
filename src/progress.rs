//! A line on the terminal while a command works, for commands that otherwise say nothing until they are done.

use std::{
    io::{IsTerminal, Write, stderr},
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::output::{is_quiet, one_line};

/// What is done sooner needs no line.
const PATIENCE: Duration = Duration::from_secs(1);

/// Draws `WHAT, 3 s` each second until it is dropped. Nothing if standard error is no terminal, or with -q.
#[derive(Debug)]
pub(crate) struct Progress {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins.
    pub(crate) fn start(what: &str) -> Self {
        if is_quiet() || !stderr().is_terminal() {
            return Self { running: None };
        }
        let what = one_line(what);
        let (end, ended) = channel();
        let begun = Instant::now();
        let thread = std::thread::spawn(move || {
            let mut shown = false;
            while ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // The terminal may be gone.
                let _ = write!(stderr(), "\r\x1b[K{what}, {} s", begun.elapsed().as_secs());
                shown = true;
            }
            if shown {
                let _ = write!(stderr(), "\r\x1b[K");
            }
        });
        Self { running: Some((end, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            // It cannot fail but by a panic, which has been told.
            let _ = thread.join();
        }
    }
}
