//! After the last task: file systems are synced and the block layer is recorded until quiet.

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

/// Settling ends after this, quiet or not, unless syncs alone have taken longer.
pub(crate) const DEFAULT_SETTLE: Duration = Duration::from_secs(30);
/// Quiet: no block event on the recorded disks for this long, and nothing in flight.
pub(crate) const QUIET: Duration = Duration::from_millis(250);

/// Moves what the rings hold to the writer; returns until when that is complete.
pub(crate) fn drain(session: &Session<'_>, pipeline: &Pipeline) -> i64 {
    drain_for(session, pipeline, Duration::MAX).0
}

/// The same as far as one gets in this time, and whether something is left.
pub(crate) fn drain_for(session: &Session<'_>, pipeline: &Pipeline, most: Duration) -> (i64, bool) {
    match &session.stops {
        Some(stops) => (drain_and_resume(session, stops, pipeline), false),
        None => pass_on(session, pipeline, i64::MAX, most),
    }
}

/// Passes over the rings until what they held is taken, for so long at most; until when that is complete, which is `to_ns` at the latest,
/// and whether something is left. What comes meanwhile is: a program that is faster than the writer would never let the recorder
/// go on to anything else.
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

/// `--lossless`: empties the rings, then resumes the stopped processes; returns until when records are complete. The
/// operations of stopped threads for which no ring had room come last.
fn drain_and_resume(session: &Session<'_>, stops: &Stops, pipeline: &Pipeline) -> i64 {
    let stopped = stops.list();
    let since = stopped.iter().map(|(_, s)| s.since_ns as i64).min().unwrap_or(i64::MAX);
    // A record that waits in a stopped thread is as old as the stop.
    let pass_on = || pass_on(session, pipeline, since, Duration::MAX);
    let (mut complete_to_ns, mut more) = pass_on();
    if stopped.is_empty() {
        return complete_to_ns;
    }
    // A resumed process needs room. Every process that could keep the rings full is stopped by now.
    while more {
        (complete_to_ns, more) = pass_on();
    }
    match session.held() {
        Ok(bytes) => pipeline.send(Message::Records { bytes, complete_to_ns }),
        Err(e) => log::warn!("{e}"),
    }
    let mut rows = Vec::with_capacity(stopped.len());
    for (pid, entry) in stopped {
        // Before resuming: the resumed process may take this thread's CPU.
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

/// What settling came to.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// One `ops` row per sync.
    pub(crate) rows: Vec<Op>,
    /// Why it was left before all was quiet, and what is missing.
    pub(crate) cut: Option<String>,
}

/// Syncs the file systems mounted at `mounts` and waits for quiet, unless recorded programs run on: then what was written before the
/// end is on disk after the sync, and for as long as they write there is no quiet. A signal ends it at once.
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
                "settling was cut short by a signal: what {} still had to write to its disk is not here",
                mount.mountpoint
            ));
            return settled;
        }
    }
    let disks: Vec<i64> = mounts.iter().flat_map(host::disks_of).collect();
    let begin = host::monotonic_ns();
    // The writer may be behind: of what it has not taken nobody knows which disk it is of.
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
                "settling ended after {} s, the disks still busy, be it for others: what the recorded programs had left to \
                 write may not be here",
                DEFAULT_SETTLE.as_secs()
            ));
            break;
        }
        if signals::take_end() {
            settled.cut =
                Some("settling was cut short by a signal: what the disks still had to do is not here".to_owned());
            break;
        }
        std::thread::sleep(SHORTEST_TICK);
    }
    settled
}

/// Syncs in a process of its own: what it makes the disk do is the workload's, while the recorder's own
/// I/O is left out by its process id. Result as of the call: 0 or -errno; -EINTR when `meanwhile` says that it is not to be waited for
/// any longer, and then it ends when the kernel lets it.
fn sync_in_child(mount: &Mount, mut meanwhile: impl FnMut() -> bool) -> i64 {
    let Some(path) = host::c_path(&mount.mountpoint) else { return -i64::from(libc::EINVAL) };
    // SAFETY: the child makes async-signal-safe calls on memory prepared before the fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe {
            let fd = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
            let mut failed = fd < 0;
            if !failed {
                // It may outlive the recorder, and keeps nothing of it: no probe, no ring, no pipe.
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
        // SAFETY: waits for the child just made.
        match unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } {
            0 if meanwhile() => {}
            0 => {
                // SAFETY: ends the child, which has not been waited for.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return -i64::from(libc::EINTR);
            }
            p if p == pid => return -i64::from(libc::WEXITSTATUS(status)),
            _ => return -i64::from(libc::ECHILD),
        }
    }
}
