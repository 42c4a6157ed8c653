//! Settling: after the last task, the changed file systems are synced, and the block layer is recorded until what the
//! workload did has reached the disks. The I/O of other programs is not waited for.

use std::{
    io,
    time::{Duration, Instant},
};

use ioreel_traces::{
    manifest::Mount,
    rows::{Op, Stop},
};

use crate::{
    host::{self, signals},
    pipeline::{Message, Pipeline},
    probes::{
        lossless::Stops,
        session::{SHORTEST_TICK, Session},
    },
};

/// Maximum time to wait after the syncs for the workload's own requests.
const DEFAULT_SETTLE: Duration = Duration::from_secs(30);
/// Idle: no block event on the recorded disks for this long, and no request in flight.
pub(crate) const QUIET: Duration = Duration::from_millis(250);
/// Maximum time to wait after the syncs for idle disks. A file system may queue more requests after a sync, such as
/// discards; on a disk that others use, they cannot be told from those of others.
pub(crate) const FOR_IDLE: Duration = Duration::from_millis(500);
/// The user is told what a longer wait is for.
const UNTOLD: Duration = Duration::from_secs(1);

/// Moves the content of the rings to the writer. Returns the time up to which records are complete.
pub(crate) fn drain(session: &Session<'_>, pipeline: &Pipeline) -> i64 {
    drain_for(session, pipeline, Duration::MAX).0
}

/// Likewise, for at most this long. Also returns whether records remain.
pub(crate) fn drain_for(session: &Session<'_>, pipeline: &Pipeline, most: Duration) -> (i64, bool) {
    match &session.stops {
        Some(stops) => (drain_and_resume(session, stops, pipeline), false),
        None => pass_on(session, pipeline, i64::MAX, most),
    }
}

/// Makes passes over the rings until everything present at the start was taken, for at most `most`. Returns the time up
/// to which records are complete, at most `to_ns`, and whether records remain. Newer records are left: with a program
/// faster than the writer, this would never end.
fn pass_on(session: &Session<'_>, pipeline: &Pipeline, to_ns: i64, most: Duration) -> (i64, bool) {
    let (begun, begun_ns) = (Instant::now(), host::monotonic_ns());
    loop {
        let pass = session.drain(pipeline.spare());
        let complete_to_ns = pass.complete_to_ns.min(to_ns);
        if !pass.bytes.is_empty() {
            pipeline.send(Message::Records { bytes: pass.bytes, complete_to_ns });
        }
        if !pass.more || pass.complete_to_ns >= begun_ns || begun.elapsed() >= most {
            return (complete_to_ns, pass.more);
        }
    }
}

/// `--lossless`: empties the rings, then resumes the stopped processes. Returns the time up to which records are
/// complete. Operations of stopped threads that did not fit in a ring are sent last.
fn drain_and_resume(session: &Session<'_>, stops: &Stops, pipeline: &Pipeline) -> i64 {
    let stopped = stops.list();
    let since = stopped.iter().map(|(_, s)| s.since_ns as i64).min().unwrap_or(i64::MAX);
    // A record that waits in a stopped thread is at least as old as the stop.
    let pass_on = || pass_on(session, pipeline, since, Duration::MAX);
    let (mut complete_to_ns, mut more) = pass_on();
    if stopped.is_empty() {
        return complete_to_ns;
    }
    // A resumed process needs space in the rings. All processes that could fill them are stopped now.
    while more {
        (complete_to_ns, more) = pass_on();
    }
    match session.held() {
        Ok(bytes) => pipeline.send(Message::Records { bytes, complete_to_ns }),
        Err(e) => log::warn!("{e}"),
    }
    let mut rows = Vec::with_capacity(stopped.len());
    for (pid, entry) in stopped {
        // Before resuming, because the resumed process may take this thread's CPU.
        let dur_ns = host::monotonic_ns() - entry.since_ns as i64;
        stops.resume(pid, &entry);
        rows.push(Stop {
            start_ns: entry.since_ns as i64,
            dur_ns,
            task_id: i64::from(entry.task_id),
            pid: pid as i32,
            cpu: entry.cpu as i32,
        });
    }
    pipeline.send(Message::Stops(rows));
    complete_to_ns
}

/// Result of settling.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// One row of `ops` per sync.
    pub(crate) rows: Vec<Op>,
    /// Why settling ended early, and what is missing.
    pub(crate) cut: Option<String>,
}

/// Tells the user once what a wait is for, when it has lasted [`UNTOLD`].
struct Patience<'a> {
    tell: &'a dyn Fn(String),
    begun: Instant,
    is_told: bool,
}

impl<'a> Patience<'a> {
    fn new(tell: &'a dyn Fn(String)) -> Self {
        Self { tell, begun: Instant::now(), is_told: false }
    }

    fn look(&mut self, what: impl FnOnce() -> String) {
        if !self.is_told && self.begun.elapsed() >= UNTOLD {
            self.is_told = true;
            (self.tell)(what());
        }
    }
}

/// Syncs the file systems mounted at `mounts`, and waits until the workload's requests have ended. If recorded programs
/// still run, it does not wait: after the sync, everything written before the end is on disk. A signal ends it at once.
/// `tell`: receives a sentence for the user if this takes long.
pub(crate) fn settle(
    session: &Session<'_>,
    pipeline: &Pipeline,
    mounts: &[Mount],
    t0_ns: i64,
    tell: &dyn Fn(String),
) -> Settled {
    let mut settled = Settled::default();
    for mount in mounts {
        let start = host::monotonic_ns();
        let mut cut = false;
        let mut patience = Patience::new(tell);
        let ret = sync_in_child(mount, || {
            drain(session, pipeline);
            patience.look(|| {
                format!(
                    "waiting until the data written below {} is on disk (syncfs); Ctrl-C ends this",
                    mount.mountpoint
                )
            });
            std::thread::sleep(SHORTEST_TICK);
            cut = signals::take_end();
            !cut
        });
        settled.rows.push(Op {
            op_id: -1,
            start_ns: start - t0_ns,
            dur_ns: host::monotonic_ns() - start,
            op: "syncfs".into(),
            source: "tool".into(),
            state: "complete".into(),
            path: Some(mount.mountpoint.as_str().into()),
            ret: Some(ret),
            ..Op::default()
        });
        if cut {
            settled.cut = Some(format!(
                "a signal ended settling early; write-back of {} after that is missing",
                mount.mountpoint
            ));
            return settled;
        }
    }
    let disks: Vec<i64> = mounts.iter().flat_map(host::disks_of).collect();
    if !disks.is_empty() {
        settled.cut = await_requests(session, pipeline, &disks, tell);
    }
    settled
}

/// Waits until the workload's own requests have ended, and a little for idle disks. Returns what is missing if that was
/// cut short.
fn await_requests(session: &Session<'_>, pipeline: &Pipeline, disks: &[i64], tell: &dyn Fn(String)) -> Option<String> {
    let mut patience = Patience::new(tell);
    let begin = host::monotonic_ns();
    // While the writer has queued records, their disks are unknown.
    let (mut drained, mut known_to) = (begin, begin);
    while session.alive() <= 0 {
        if !pipeline.progress.is_behind() {
            known_to = drained;
        }
        drained = host::monotonic_ns();
        drain(session, pipeline);
        let events = pipeline.progress.block_events.lock().map(|e| e.clone()).unwrap_or_default();
        let last = disks.iter().filter_map(|d| events.get(d)).fold(begin, |a, b| a.max(*b));
        let quiet = known_to - last > QUIET.as_nanos() as i64;
        if quiet && disks.iter().all(|d| host::in_flight(*d) == 0) {
            return None;
        }
        if patience.begun.elapsed() >= FOR_IDLE && !session.has_own_in_flight(disks) {
            return None;
        }
        patience.look(|| {
            "waiting until the recorded programs' last requests to the disk have ended; Ctrl-C ends this".into()
        });
        if patience.begun.elapsed() >= DEFAULT_SETTLE {
            return Some(format!(
                "requests of the recorded programs had not ended {} s after the last sync; they are listed without an end",
                DEFAULT_SETTLE.as_secs()
            ));
        }
        if signals::take_end() {
            return Some("a signal ended settling early; disk I/O after that is missing".to_owned());
        }
        std::thread::sleep(SHORTEST_TICK);
    }
    None
}

/// Runs syncfs in a child process, because the resulting I/O belongs to the workload, and I/O of the recorder's process
/// is excluded. Returns 0 or -errno. Returns -EINTR if `meanwhile` returns false; the child is then killed and ends
/// when the kernel allows.
fn sync_in_child(mount: &Mount, mut meanwhile: impl FnMut() -> bool) -> i64 {
    let Some(path) = host::c_path(&mount.mountpoint) else { return -i64::from(libc::EINVAL) };
    // SAFETY: the child makes only async-signal-safe calls on memory prepared before the fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
            let mut failed = fd < 0;
            if !failed {
                // The child may outlive the recorder, so it closes its copies of probes, rings and pipes.
                libc::dup2(fd, 0);
                libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
                failed = libc::syncfs(0) != 0;
            }
            libc::_exit(if failed { *libc::__errno_location() } else { 0 });
        }
    }
    if pid < 0 {
        return -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN));
    }
    loop {
        let mut status = 0;
        // SAFETY: waits for the child forked above.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 if meanwhile() => {}
            0 => {
                // SAFETY: kills the child, which has not been reaped.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return -i64::from(libc::EINTR);
            }
            p if p == pid => return -i64::from(libc::WEXITSTATUS(status)),
            _ => return -i64::from(libc::ECHILD),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_long_wait_is_told_once() {
        let told = Cell::new(0);
        let tell = |what: String| {
            assert_eq!(what, "waiting");
            told.set(told.get() + 1);
        };
        let mut patience = Patience::new(&tell);
        patience.look(|| "too early".into());
        patience.begun = Instant::now() - UNTOLD;
        (0..2).for_each(|_| patience.look(|| "waiting".into()));
        assert_eq!(told.get(), 1);
    }
}
