//! Signals that end a recording. The handler only notes them; the main loop acts on them.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use rustix::thread::{Timespec, nanosleep};

/// A signal that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Signal number.
    pub(crate) signal: i32,
    /// The kernel sent it: Ctrl-C or hang-up of a terminal.
    pub(crate) from_kernel: bool,
}

impl Arrived {
    /// Whether the recorded command received it too. A terminal signals its whole foreground process group. On hang-up
    /// the kernel signals only the session leader; the rest of the session receives SIGHUP when the leader exits.
    pub(crate) fn reached_the_command(self) -> bool {
        let leads = || rustix::process::getsid(None) == Ok(rustix::process::getpid());
        self.from_kernel && !(self.signal == libc::SIGHUP && leads())
    }
}

/// Signals that were received and not yet taken: the low 32 bits, one per signal. The high 32 bits mark those sent by
/// the kernel.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
const FROM_KERNEL: u32 = 32;

extern "C" fn remember(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let from_kernel = !info.is_null() && unsafe { (*info).si_code } == libc::SI_KERNEL;
    let bit = 1u64 << (signal & 31);
    SIGNALS.fetch_or(bit | if from_kernel { bit << FROM_KERNEL } else { 0 }, Ordering::Relaxed);
}

/// Makes writes beyond RLIMIT_FSIZE fail with EFBIG, handled like a full disk, instead of killing the recorder.
pub(crate) fn ignore_file_size_limits() {
    // SAFETY: ignores a signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

extern "C" fn wake(_: libc::c_int) {}

/// Installs the handlers of SIGINT, SIGTERM, SIGQUIT and SIGHUP. SIGHUP stays ignored if it was ignored (nohup). The
/// others are handled even if ignored, as shells do for background jobs: whoever sends one wants the recording to end.
pub(crate) fn install() {
    // SIGUSR1 requests a copy in recordings that keep copies. In others it must not kill the recorder and leave an
    // unfinished reel.
    // SAFETY: ignores a signal.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    // SAFETY: a zeroed sigaction is valid; the handler does nothing. It is installed so that the exit of a child
    // interrupts `sleep`.
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

/// Sleeps for `most`, or until a signal arrives. Waiting for the child with poll(2) and a pidfd disturbs recorded
/// programs more: fio reads of zram reached 0.56 of their unrecorded speed, against 0.74 this way.
pub(crate) fn sleep(most: Duration) {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    // The caller checks what to do next, whether or not the sleep was interrupted.
    let _ = nanosleep(&most);
}

/// Also catches SIGUSR1. It interrupts `sleep` and no other system call (SA_RESTART).
pub(crate) fn install_trigger() {
    // SAFETY: a zeroed sigaction is valid; the handler only stores to an atomic.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = remember as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &new, std::ptr::null_mut());
    }
}

/// Takes one pending signal; those that end a recording come first.
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

/// A pending signal that ends the recording; it stays pending.
pub(crate) fn waiting_end() -> Option<i32> {
    let ending = SIGNALS.load(Ordering::Relaxed) as u32 & !(1 << libc::SIGUSR1);
    (ending != 0).then(|| ending.trailing_zeros() as i32)
}

/// Whether a signal that ends the recording is pending; takes all such signals.
pub(crate) fn take_end() -> bool {
    let ends = !(1u32 << libc::SIGUSR1);
    SIGNALS.fetch_and(1 << libc::SIGUSR1, Ordering::Relaxed) as u32 & ends != 0
}

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether SIGPIPE was ignored when this program started.
pub(crate) fn sigpipe_was_ignored() -> bool {
    SIGPIPE_IGNORED.load(Ordering::Relaxed)
}

static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Which of the descriptors 0 to 2 were closed when this program started.
pub(crate) fn closed_at_first() -> impl Iterator<Item = i32> {
    (0..).zip(&CLOSED).filter(|(_, closed)| closed.load(Ordering::Relaxed)).map(|(fd, _)| fd)
}

/// Before `main`, Rust ignores SIGPIPE and opens those of the descriptors 0 to 2 that are closed. The inherited state
/// must be read earlier, hence `.init_array`.
// SAFETY: the loader calls every function pointer of this section once, before `main`.
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK_AT_INHERITED: extern "C" fn() = look_at_inherited;

extern "C" fn look_at_inherited() {
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: fcntl(F_GETFD) has no effect and may fail.
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
