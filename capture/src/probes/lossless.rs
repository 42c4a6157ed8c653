//! `--lossless`: processes that the probes stopped because a ring was nearly full (`ops/lossless.bpf.h`) are resumed
//! once the rings are empty, and again by a guardian process should the recorder die.

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

/// Processes that can be stopped at a time: more are not stopped, which is counted. Few machines have so many.
pub(crate) const MAX_STOPS: u32 = 16 * 1024;

/// The processes that stand still for us, by process id, in memory shared with the probes.
#[derive(Debug)]
pub(crate) struct Stops {
    map: MapHandle,
    /// Shared with the guardian. Process and signal of [`Stops::resume`] while the map no longer says what is left to be done: the
    /// recorder may be killed just there. 0: none.
    resuming: &'static AtomicU64,
}

impl Stops {
    /// Of the probes' map. To be called once: a page of memory stays behind.
    pub(crate) fn new(map: MapHandle) -> Result<Self, CaptureError> {
        // SAFETY: fresh memory, zeroed, that is never unmapped.
        let page = unsafe {
            mmap_anonymous(null_mut(), size_of::<AtomicU64>(), ProtFlags::READ | ProtFlags::WRITE, mm::MapFlags::SHARED)
        };
        let page =
            page.map_err(io::Error::from).map_err(CaptureError::os("making memory to share with the guardian"))?;
        // SAFETY: a page is aligned for it, holds zeroes, and stays.
        Ok(Self { map, resuming: unsafe { &*page.cast() } })
    }

    /// What is known of a process.
    fn of(&self, pid: u32) -> Option<stop_entry> {
        read(self.map.lookup(&pid.to_ne_bytes(), MapFlags::ANY).ok()??)
    }

    /// The processes that have been sent the stop signal.
    pub(crate) fn list(&self) -> Vec<(u32, stop_entry)> {
        let found = self.map.keys().filter_map(|key| {
            let pid = u32::from_ne_bytes(key.as_slice().try_into().ok()?);
            Some((pid, self.of(pid)?))
        });
        found.filter(|(_, entry)| entry.sent == stop_sent::STOP_SENT.0).collect()
    }

    /// Lets all go on.
    pub(crate) fn resume_all(&self) {
        for (pid, entry) in self.list() {
            self.resume(pid, &entry);
        }
    }

    /// Lets a process go on; a stop that somebody else has asked for, and not taken back, is asked for once more. The probes take
    /// note of either as it happens.
    pub(crate) fn resume(&self, pid: u32, entry: &stop_entry) {
        let note = |signal: i32| self.resuming.store(u64::from(pid) | u64::from(signal as u32) << 32, Ordering::SeqCst);
        note(entry.user_signal);
        let goes_on = send(pid, libc::SIGCONT);
        let now = self.of(pid);
        if let Some(user_signal) = now.map(|now| now.user_signal).filter(|signal| goes_on && *signal != 0) {
            // It stays known until they resume.
            note(user_signal);
            send(pid, user_signal);
        } else if now.is_some_and(|now| now.sent == stop_sent::STOP_NOT_SENT.0 || !goes_on) {
            self.forget(pid);
        }
        self.resuming.store(0, Ordering::SeqCst);
    }

    /// Takes the entry away, unless there is something in it by now.
    fn forget(&self, pid: u32) {
        let key = pid.to_ne_bytes();
        let Some(last) = self.map.lookup_and_delete(&key).ok().flatten().and_then(read) else { return };
        if last.user_signal == 0 && last.sent == stop_sent::STOP_NOT_SENT.0 {
            return;
        }
        // SAFETY: plain integers without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const last).cast::<u8>(), size_of::<stop_entry>()) };
        // A newer one is as good.
        if host::expect_process(pid).is_ok()
            && let Err(e) = self.map.update(&key, bytes, MapFlags::NO_EXIST)
        {
            log::debug!("{e}");
        }
    }
}

fn read(value: Vec<u8>) -> Option<stop_entry> {
    (value.len() >= size_of::<stop_entry>()).then(|| {
        // SAFETY: long enough, plain integers throughout, read unaligned.
        unsafe { value.as_ptr().cast::<stop_entry>().read_unaligned() }
    })
}

/// Sends SIGCONT and, unless it is 0, the signal of a stop that somebody else asked for.
fn go_on(pid: u32, user_signal: i32) {
    send(pid, libc::SIGCONT);
    send(pid, user_signal);
}

/// Sends a signal, marked as a recorder's; 0: none. False when the process has ended meanwhile.
fn send(pid: u32, signal: i32) -> bool {
    let mark = libc::sigval { sival_ptr: stop_mark::STOP_MARK.0 as usize as *mut libc::c_void };
    // SAFETY: sends a signal.
    signal == 0 || unsafe { libc::sigqueue(pid as libc::pid_t, signal, mark) } == 0
}

/// Whether process ids mean the same here and in the kernel: in a container's own process id name space the
/// recorder would resume the wrong processes.
pub(crate) fn sees_all_processes() -> bool {
    host::own_pid_namespace() == 0
}

/// How long the guardian looks for stopped processes after the recorder's death. Probes that are still attached stop
/// nobody once it has begun, but for one that is in the middle of it.
const VIGIL: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// A process that does nothing but wait for the recorder's death, which closes a pipe, kill -9 included.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: libc::pid_t,
    life: std::fs::File,
}

impl Guardian {
    /// Forks it. To be called while this process has one thread.
    pub(crate) fn start(stops: &Stops) -> Result<Self, CaptureError> {
        let (read, write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(CaptureError::os("making a pipe"))?;
        // SAFETY: the process has one thread, so the child may run any code.
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

    /// Ends it: nobody is stopped any more.
    pub(crate) fn dismiss(mut self) {
        // It may have been killed; then there is nothing to dismiss.
        let _ = self.life.write_all(&[1]);
        let mut status = 0;
        // SAFETY: waits for the child made by `start`.
        unsafe { libc::waitpid(self.pid, &mut status, 0) };
    }
}

/// The guardian's life. It keeps two descriptors and nothing else of the recorder's: no probe, no ring, no output.
fn guard(life: RawFd, stops: RawFd, resuming: &AtomicU64) -> ! {
    const STOPS: RawFd = 3;
    const LIFE: RawFd = 4;
    // SAFETY: system calls on own descriptors; the map's and the pipe's are moved out of the way of the low numbers.
    unsafe {
        // Away from the terminal's process group, whose signals are not for it.
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
        // A folder that it stands in could not be unmounted.
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
    // SAFETY: ends this process alone.
    unsafe { libc::_exit(0) }
}

/// Tells the probes to stop nobody any more (`hold` in `ops/lossless.bpf.h`) and resumes every process in the map, by
/// descriptor: the guardian has no skeleton.
fn resume_all(stops: RawFd) {
    use libbpf_rs::libbpf_sys::{bpf_map_get_next_key, bpf_map_lookup_and_delete_elem, bpf_map_update_elem};
    static NOBODY: u32 = 0;
    let mut key = NOBODY;
    // SAFETY: key and value are as large as the map's.
    unsafe {
        let mut entry: stop_entry = std::mem::zeroed();
        // Where the map is full it goes in at the next look.
        bpf_map_update_elem(stops, (&raw const NOBODY).cast(), (&raw const entry).cast(), 0);
        let mut after = null();
        while bpf_map_get_next_key(stops, after, (&raw mut key).cast()) == 0 {
            if key == NOBODY {
                after = (&raw const NOBODY).cast();
                continue;
            }
            // In one step: the signal may go out at this moment.
            if bpf_map_lookup_and_delete_elem(stops, (&raw const key).cast(), (&raw mut entry).cast()) != 0 {
                return;
            }
            // Else stopped by somebody else alone.
            if entry.sent != 0 {
                go_on(key, entry.user_signal);
            }
        }
    }
}
