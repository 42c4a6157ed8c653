//! `--lossless`: the probes stop processes when a ring is nearly full (`ops/lossless.bpf.h`). The recorder resumes them
//! once the rings are empty. If the recorder dies, a guardian process resumes them.

use std::{
    io::{self, Write},
    mem::size_of,
    os::fd::{AsFd, AsRawFd, RawFd},
    ptr::{null, null_mut},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use ioreel_bpf::types::{stop_entry, stop_mark, stop_sent};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustix::{
    mm::{self, ProtFlags, mmap_anonymous},
    pipe::{PipeFlags, pipe_with},
};

use crate::{CaptureError, host};

/// Maximum number of processes stopped at the same time. Further ones are not stopped, and are counted. Few machines
/// have this many.
pub(crate) const MAX_STOPS: u32 = 16 * 1024;

/// The stopped processes by process id, in a map shared with the probes.
#[derive(Debug)]
pub(crate) struct Stops {
    map: MapHandle,
    /// Process (low half) and signal (high half) that [`Stops::resume`] still has to send while the map does not show
    /// it: the recorder may be killed at that moment. Shared with the guardian. 0: none.
    resuming: &'static AtomicU64,
}

impl Stops {
    /// Wraps the map of the probes. Call it once: it leaks a page of memory.
    pub(crate) fn new(map: MapHandle) -> Result<Self, CaptureError> {
        // SAFETY: a new zeroed mapping that is never unmapped.
        let page = unsafe {
            mmap_anonymous(null_mut(), size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE, mm::MapFlags::SHARED)
        };
        let page =
            page.map_err(io::Error::from).map_err(CaptureError::os("making memory to share with the guardian"))?;
        // SAFETY: the page is aligned, zeroed and never unmapped.
        Ok(Self { map, resuming: unsafe { &*page.cast() } })
    }

    /// The entry of a process.
    fn of(&self, pid: u32) -> Option<stop_entry> {
        read(self.map.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??)
    }

    /// The processes that received the stop signal.
    pub(crate) fn list(&self) -> Vec<(u32, stop_entry)> {
        let found = self.map.keys().filter_map(|key| {
            let pid = u32::from_ne_bytes(key.as_slice().try_into().ok()?);
            Some((pid, self.of(pid)?))
        });
        found.filter(|(_, entry)| entry.sent == stop_sent::STOP_SENT.0).collect()
    }

    /// Resumes all stopped processes.
    pub(crate) fn resume_all(&self) {
        for (pid, entry) in self.list() {
            self.resume(pid, &entry);
        }
    }

    /// Resumes a process. If somebody else also stopped it and did not resume it, sends that stop signal again. The
    /// probes note both signals when they are delivered.
    pub(crate) fn resume(&self, pid: u32, entry: &stop_entry) {
        let note = |signal: i32| self.resuming.store(u64::from(pid) | u64::from(signal as u32) << 32, Ordering::SeqCst);
        note(entry.user_signal);
        let goes_on = send(pid, libc::SIGCONT);
        let now = self.of(pid);
        if let Some(user_signal) = now.map(|now| now.user_signal).filter(|signal| goes_on && *signal != 0) {
            // The entry stays until somebody resumes the process.
            note(user_signal);
            send(pid, user_signal);
        } else if now.is_some_and(|now| now.sent == stop_sent::STOP_NOT_SENT.0 || !goes_on) {
            self.forget(pid);
        }
        self.resuming.store(0, Ordering::SeqCst);
    }

    /// Deletes the entry, unless it has changed meanwhile.
    fn forget(&self, pid: u32) {
        let key = pid.to_ne_bytes();
        let Some(last) = self.map.lookup_and_delete(&key).ok().flatten().and_then(read) else { return };
        if last.user_signal == 0 && last.sent == stop_sent::STOP_NOT_SENT.0 {
            return;
        }
        // SAFETY: the struct consists of integers without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const last).cast::<u8>(), size_of::<stop_entry>()) };
        // If the probes have already made a newer entry, that one is kept.
        if host::expect_process(pid).is_ok()
            && let Err(e) = self.map.update(&key, bytes, MapFlags::NO_EXIST)
        {
            log::debug!("{e}");
        }
    }
}

fn read(value: Vec<u8>) -> Option<stop_entry> {
    (value.len() >= size_of::<stop_entry>()).then(|| {
        // SAFETY: long enough, integers only, read unaligned.
        unsafe { value.as_ptr().cast::<stop_entry>().read_unaligned() }
    })
}

/// Sends SIGCONT, then the stop signal that somebody else sent, unless that is 0.
fn go_on(pid: u32, user_signal: i32) {
    send(pid, libc::SIGCONT);
    send(pid, user_signal);
}

/// Sends a signal with the mark of a recorder; 0: none. Returns false if the process has ended.
fn send(pid: u32, signal: i32) -> bool {
    let mark = libc::sigval { sival_ptr: stop_mark::STOP_MARK.0 as usize as *mut libc::c_void };
    // SAFETY: sends a signal.
    signal == 0 || unsafe { libc::sigqueue(pid as libc::pid_t, signal, mark) } == 0
}

/// Whether process ids are those of the initial pid namespace. In a container the recorder would resume wrong
/// processes.
pub(crate) fn sees_all_processes() -> bool {
    host::own_pid_namespace() == 0
}

/// How long the guardian keeps checking after the recorder died. Once it has started, probes that are still attached
/// stop no process, except one that is just doing so.
const VIGIL: Duration = Duration::from_secs(1);
/// Interval of its checks.
const LOOK: Duration = Duration::from_millis(20);

/// A process that waits for the death of the recorder, also by SIGKILL, which closes a pipe.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: libc::pid_t,
    life: std::fs::File,
}

impl Guardian {
    /// Forks the guardian. Call it while this process has a single thread.
    pub(crate) fn start(stops: &Stops) -> Result<Self, CaptureError> {
        let (read, write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(CaptureError::os("making a pipe"))?;
        // SAFETY: this process has a single thread, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => Err(CaptureError::os("forking the guardian")(io::Error::last_os_error())),
            0 => guard(read.as_raw_fd(), stops.map.as_fd().as_raw_fd(), stops.resuming),
            pid => Ok(Self { pid, life: write.into() }),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Ends the guardian; call it when no process can be stopped any more.
    pub(crate) fn dismiss(mut self) {
        // The guardian may have been killed already.
        let _ = self.life.write_all(&[1]);
        let mut status = 0;
        // SAFETY: waits for the child forked by `start`.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}

/// Main loop of the guardian. It keeps two descriptors of the recorder and closes the rest: probes, rings, outputs.
fn guard(life: RawFd, stops: RawFd, resuming: &AtomicU64) -> ! {
    const STOPS: RawFd = 3;
    const LIFE: RawFd = 4;
    // SAFETY: system calls on own descriptors. Both are first moved out of the way of the numbers they get.
    unsafe {
        // Leaves the terminal's process group, so that terminal signals do not reach it.
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"ioreel-guardian".as_ptr());
        let (life, stops) = (libc::fcntl(life, libc::F_DUPFD, 16), libc::fcntl(stops, libc::F_DUPFD, 16));
        if life < 0 || stops < 0 || libc::dup2(stops, STOPS) < 0 || libc::dup2(life, LIFE) < 0 {
            libc::_exit(1);
        }
        libc::close(0);
        libc::close(1);
        libc::close(2);
        libc::syscall(libc::SYS_close_range, LIFE + 1, libc::c_uint::MAX, 0);
        // Its working directory would keep a file system busy.
        libc::chdir(c"/".as_ptr());
        let mut byte = 0u8;
        loop {
            match libc::read(LIFE, (&raw mut byte).cast(), 1) {
                0 => break,
                n if n > 0 => libc::_exit(0),
                _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
    }
    let half_done = resuming.load(Ordering::SeqCst);
    if half_done != 0 {
        go_on(half_done as u32, (half_done >> 32) as i32);
    }
    let end = std::time::Instant::now() + VIGIL;
    while std::time::Instant::now() < end {
        resume_all(STOPS);
        std::thread::sleep(LOOK);
    }
    // SAFETY: ends only this process.
    unsafe { libc::_exit(0) }
}

/// Tells the probes to stop no more processes (`hold` in `ops/lossless.bpf.h`) and resumes all in the map. Uses the
/// descriptor, because the guardian has no skeleton.
fn resume_all(stops: RawFd) {
    use libbpf_rs::libbpf_sys::{bpf_map_get_next_key, bpf_map_lookup_and_delete_elem, bpf_map_update_elem};
    static NOBODY: u32 = 0;
    let mut key = NOBODY;
    // SAFETY: key and value are as large as the map's.
    unsafe {
        let mut entry: stop_entry = std::mem::zeroed();
        // If the map is full, a later check inserts it.
        bpf_map_update_elem(stops, (&raw const NOBODY).cast(), (&raw const entry).cast(), 0);
        let mut after = null();
        while bpf_map_get_next_key(stops, after, (&raw mut key).cast()) == 0 {
            if key == NOBODY {
                after = (&raw const NOBODY).cast();
                continue;
            }
            // Look up and delete in one step, because a probe may send its signal right now.
            if bpf_map_lookup_and_delete_elem(stops, (&raw const key).cast(), (&raw mut entry).cast()) != 0 {
                return;
            }
            // Otherwise only somebody else stopped it.
            if entry.sent != 0 {
                go_on(key, entry.user_signal);
            }
        }
    }
}
