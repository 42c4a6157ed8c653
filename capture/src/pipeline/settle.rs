//! Settling: after the last task, file systems are synced and the block layer is recorded until it is idle.

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

/// Maximum duration of settling, unless syncs alone take longer.
pub(crate) const DEFAULT_SETTLE: Duration = Duration::from_secs(30);
/// Idle: no block event on the recorded disks for this long, and no request in flight.
pub(crate) const QUIET: Duration = Duration::from_millis(250);

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
    /// Why settling ended before the disks were idle, and what is missing.
    pub(crate) cut: Option<String>,
}

/// Syncs the file systems mounted at `mounts` and waits until the disks are idle. If recorded programs still run, it
/// does not wait: after the sync everything written before the end is on disk, and the disks may never be idle. A
/// signal ends it at once.
pub(crate) fn settle(session: &Session<'_>, pipeline: &Pipeline, mounts: &[Mount], t0_ns: i64) -> Settled {
    let deadline = Instant::now() + DEFAULT_SETTLE;
    let mut settled = Settled::default();
    let rows = &mut settled.rows;
    for mount in mounts {
        let start = host::monotonic_ns();
        let mut cut = false;
        let ret = sync_in_child(mount, || {
            drain(session, pipeline);
            std::thread::sleep(SHORTEST_TICK);
            cut = signals::take_end();
            !cut
        });
        rows.push(Op {
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
    let begin = host::monotonic_ns();
    // While the writer has queued records, their disks are unknown.
    let (mut drained, mut known_to) = (begin, begin);
    while !disks.is_empty() && session.alive() <= 0 {
        if !pipeline.progress.is_behind() {
            known_to = drained;
        }
        drained = host::monotonic_ns();
        drain(session, pipeline);
        let events = pipeline.progress.block_events.lock().map(|e| e.clone()).unwrap_or_default();
        let last = disks.iter().filter_map(|d| events.get(d)).fold(begin, |a, b| a.max(*b));
        let quiet = known_to - last > QUIET.as_nanos() as i64;
        if quiet && disks.iter().all(|d| host::in_flight(*d) == 0) {
            break;
        }
        if Instant::now() >= deadline {
            settled.cut = Some(format!(
                "settling ended after {} s with the disks still busy, possibly for other programs; later write-back of the \
                 recorded programs is missing",
                DEFAULT_SETTLE.as_secs()
            ));
            break;
        }
        if signals::take_end() {
            settled.cut = Some("a signal ended settling early; disk I/O after that is missing".to_owned());
            break;
        }
        std::thread::sleep(SHORTEST_TICK);
    }
    settled
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
