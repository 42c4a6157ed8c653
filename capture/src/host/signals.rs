//! Signals that end a recording: remembered, never acted on in the handler.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use rustix::thread::{Timespec, nanosleep};

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Its number.
    pub(crate) signal: i32,
    /// The kernel sent it (a terminal's Ctrl-C, or its hang-up).
    pub(crate) from_kernel: bool,
}

impl Arrived {
    /// Whether the command got it as well: from a terminal all of a group do. Of a terminal that hangs up the kernel tells
    /// the session's leader alone; the others hear of it when that has ended.
    pub(crate) fn reached_the_command(self) -> bool {
        let leads = || rustix::process::getsid(None) == Ok(rustix::process::getpid());
        self.from_kernel && !(self.signal == libc::SIGHUP && leads())
    }
}

/// One bit for each signal that arrived, and above them one for each that the kernel sent: one may come while another is not
/// looked at yet.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
const FROM_KERNEL: u32 = 32;

extern "C" fn remember(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let from_kernel = !info.is_null() && unsafe { (*info).si_code } == libc::SI_KERNEL;
    let bit = 1u64 << (signal & 31);
    SIGNALS.fetch_or(bit | if from_kernel { bit << FROM_KERNEL } else { 0 }, Ordering::Relaxed);
}

/// A file size limit is then an error like a full disk, not the end.
pub(crate) fn ignore_file_size_limits() {
    // SAFETY: ignores a signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

extern "C" fn wake(_: libc::c_int) {}

/// Installs the handlers for SIGINT, SIGTERM, SIGQUIT and, unless it is ignored (nohup), SIGHUP. The others are handled
/// also where they are ignored, as shells do for background jobs: who sends one wants the recording to end.
pub(crate) fn install() {
    // Asks for a copy where one can be had; elsewhere it is no reason to leave a reel unfinished.
    // SAFETY: ignores a signal.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    // SAFETY: a zeroed sigaction is valid; the handler does nothing. The end of a child ends a `sleep`.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = wake as *const () as usize;
        new.sa_flags = libc::SA_NOCLDSTOP | libc::SA_RESTART;
        libc::sigaction(libc::SIGCHLD, &new, std::ptr::null_mut());
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP] {
        // SAFETY: a zeroed sigaction is valid; the handler only stores to an atomic.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = remember as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
}

/// Sleeps for so long, or until a signal arrives. Waiting for the child by poll(2) and its pidfd disturbs the recorded
/// programs more: fio's reads of zram came to 0.56 of unrecorded ones in place of 0.74.
pub(crate) fn sleep(most: Duration) {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    // Whatever ended it: who sleeps looks anew.
    let _ = nanosleep(&most);
}

/// Remembers SIGUSR1 as well. Nothing that is under way is interrupted by it but a `sleep`.
pub(crate) fn install_trigger() {
    // SAFETY: a zeroed sigaction is valid; the handler only stores to an atomic.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = remember as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &new, std::ptr::null_mut());
    }
}

/// A signal that arrived and was not taken yet, those that end a recording first.
pub(crate) fn take() -> Option<Arrived> {
    let arrived = SIGNALS.load(Ordering::Relaxed) as u32;
    let ending = arrived & !(1 << libc::SIGUSR1);
    let signal = if ending != 0 { ending } else { arrived }.trailing_zeros();
    if signal == 32 {
        return None;
    }
    let bits = 1u64 << signal | 1 << (signal + FROM_KERNEL);
    let taken = SIGNALS.fetch_and(!bits, Ordering::Relaxed) & bits;
    Some(Arrived { signal: signal as i32, from_kernel: taken >> FROM_KERNEL != 0 })
}

/// One that ends a recording and has arrived; it is not taken.
pub(crate) fn waiting_end() -> Option<i32> {
    let ending = SIGNALS.load(Ordering::Relaxed) as u32 & !(1 << libc::SIGUSR1);
    (ending != 0).then(|| ending.trailing_zeros() as i32)
}

/// Whether one that ends a recording has arrived; it is taken.
pub(crate) fn take_end() -> bool {
    let ends = !(1u32 << libc::SIGUSR1);
    SIGNALS.fetch_and(1 << libc::SIGUSR1, Ordering::Relaxed) as u32 & ends != 0
}

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether SIGPIPE was ignored when this program began.
pub(crate) fn sigpipe_was_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Those of standard input, output and error that were closed when this program began.
pub(crate) fn closed_at_first() -> impl Iterator<Item = i32> {
    (0..).zip(&CLOSED).filter(|(_, closed)| closed.load(Ordering::Relaxed)).map(|(fd, _)| fd)
}

/// Before `main` Rust ignores SIGPIPE and opens what is closed of the first three descriptors, so what was inherited has to be
/// looked at earlier.
// SAFETY: the loader calls every function pointer of this section once, before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK_AT_INHERITED: extern "C" fn() = look_at_inherited;

extern "C" fn look_at_inherited() {
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: asks for the flags of a descriptor that may not be there.
        closed.store(unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0, Ordering::Relaxed);
    }
    // SAFETY: a zeroed sigaction is valid, and this call only fills it.
    let old = unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut old);
        old
    };
    SIGPIPE_IGNORED.store(old.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_signal_does_not_hide_another() {
        for signal in [libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR1] {
            remember(signal, std::ptr::null_mut(), std::ptr::null_mut());
        }
        let next = || take().map(|s| (s.signal, s.from_kernel));
        assert_eq!([next(), next(), next()], [Some((libc::SIGTERM, false)), Some((libc::SIGUSR1, false)), None]);
        assert_eq!(waiting_end(), None);
        remember(libc::SIGINT, std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(waiting_end(), Some(libc::SIGINT));
        remember(libc::SIGUSR1, std::ptr::null_mut(), std::ptr::null_mut());
        assert!(take_end() && !take_end());
        assert_eq!(next(), Some((libc::SIGUSR1, false)));
    }
}
