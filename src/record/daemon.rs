//! `--daemon`: a recording in the background, or under systemd; one for each folder.

use std::{
    env,
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::{Path, PathBuf},
    process::exit,
    sync::{
        Mutex,
        atomic::{AtomicI32, Ordering},
    },
};

use anyhow::{Context, bail};
use ioreel_capture::{
    CaptureError,
    host::utc_stamp,
    record::{Moment, unused},
};

use crate::output::tell;

/// Held locked for as long as the recorder lives, with its process id.
const PID_FILE: &str = "ioreel.pid";
/// What would go to the terminal.
const LOG_FILE: &str = "ioreel.log";

/// The recorder's way to those who started it.
#[derive(Debug)]
pub(super) struct Daemon {
    pid_file: File,
    dir: PathBuf,
    /// Where systemd waits for word.
    notify: Option<OsString>,
    /// Where the one who started it waits, until the recording has begun, and where what is told goes then.
    ready: Mutex<Option<(PipeWriter, File)>>,
}

impl Daemon {
    /// Takes the folder `dir` for this recorder and leaves the terminal; returns in the recorder alone. Who started it
    /// gets status 0 once the recording has begun, or the recorder's; signals to it are the recorder's until then. Where
    /// `NOTIFY_SOCKET` names a socket, systemd (or the like) keeps the recorder: it stays in the foreground and tells
    /// there. To be called while the process has one thread.
    pub(super) fn start(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("{}: creating the folder for reels", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let path = dir.join(PID_FILE);
        let mut pid_file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        match pid_file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Told as far as it can be.
                let _ = pid_file.read_to_string(&mut pid);
                bail!(
                    "{}: process {} records into this folder already; end it (SIGTERM) or name another folder",
                    dir.display(),
                    pid.trim()
                );
            }
            Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("{}: locking", path.display())),
        }
        let notify = env::var_os("NOTIFY_SOCKET").filter(|s| !s.is_empty());
        let ready = if notify.is_none() {
            let path = dir.join(LOG_FILE);
            let log = File::options().append(true).create(true).open(&path);
            let log = log.with_context(|| format!("{}: opening the log", path.display()))?;
            Some((detach().context("going into the background")?, log))
        } else {
            None
        };
        pid_file
            .set_len(0)
            .and_then(|()| writeln!(pid_file, "{}", std::process::id()))
            .with_context(|| path.display().to_string())?;
        Ok(Self { pid_file, dir, notify, ready: Mutex::new(ready) })
    }

    /// A name for a new reel: the present time.
    pub(super) fn reel(&self) -> PathBuf {
        unused(&self.dir, &utc_stamp())
    }

    /// To be told how the recording into `reel` goes.
    pub(super) fn hear(&self, moment: &Moment, reel: &Path) {
        match moment {
            Moment::Begun => {
                if let Err(e) = self.leave_the_terminal() {
                    tell!("ioreel: {}: {e}", self.dir.join(LOG_FILE).display());
                }
                tell!("ioreel: {}: process {} records into {}", utc_stamp(), std::process::id(), reel.display());
                self.notify(&format!("READY=1\nSTATUS=Recording into {}", reel.display()));
            }
            Moment::Ending => {
                tell!("ioreel: {}: ending {}", utc_stamp(), reel.display());
                self.notify("STOPPING=1");
            }
            Moment::Copied(_) | Moment::NotCopied(_) => {}
        }
    }

    /// From now on what is told goes into the log, and whoever waits is told that the recording has begun.
    fn leave_the_terminal(&self) -> io::Result<()> {
        let Some((mut ready, log)) = self.ready.lock().ok().and_then(|mut r| r.take()) else { return Ok(()) };
        let null = File::open("/dev/null")?;
        for (from, to) in [(&null, libc::STDIN_FILENO), (&log, libc::STDOUT_FILENO), (&log, libc::STDERR_FILENO)] {
            // SAFETY: both are this process's own open descriptors.
            if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // A folder that it stands in could not be unmounted. All paths in use are absolute or open by now.
        env::set_current_dir("/")?;
        // Whoever waited may have gone.
        let _ = ready.write_all(&[0]);
        Ok(())
    }

    /// One message of the protocol of sd_notify(3).
    fn notify(&self, state: &str) {
        let Some(name) = &self.notify else { return };
        let sent = UnixDatagram::unbound().and_then(|socket| {
            let address = match name.as_bytes() {
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
                _ => SocketAddr::from_pathname(name)?,
            };
            socket.send_to_addr(state.as_bytes(), &address)
        });
        if let Err(e) = sent {
            tell!("ioreel: NOTIFY_SOCKET {}: {e}", name.display());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Not removed: whoever has just opened it would lock a file that nobody else finds.
        let _ = self.pid_file.set_len(0);
    }
}

/// Who gets the signals of the one that waits for it.
static RECORDER: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: allowed in a handler; to the recorder that this process has started.
    unsafe { libc::kill(RECORDER.load(Ordering::Relaxed), signal) };
}

/// What ends a program; of these, those that are not ignored are the recorder's.
const ENDS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Waits for the recorder to begin, or to end, and ends as that does. Signals are blocked until they can be passed on.
fn await_word(mut begun: PipeReader, unblocked: &libc::sigset_t) -> ! {
    let mut pid = [0; 4];
    if begun.read_exact(&mut pid).is_err() {
        exit(1)
    }
    let pid = i32::from_ne_bytes(pid);
    RECORDER.store(pid, Ordering::Relaxed);
    for signal in ENDS {
        // SAFETY: the handler does what handlers may.
        unsafe {
            if libc::signal(signal, pass_on as extern "C" fn(libc::c_int) as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
    set_mask(unblocked);
    if begun.read_exact(&mut [0]).is_ok() {
        exit(0)
    }
    let mut status = 0;
    // SAFETY: waits for the recorder, which is this process's child by now. Signals to it come between.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            exit(1)
        }
    }
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        tell!("ioreel: {}", CaptureError::Interrupted { signal });
        exit(128 + signal)
    }
    // It has said why.
    exit(libc::WEXITSTATUS(status))
}

/// Blocks the signals of [`ENDS`]; what was blocked before.
fn block_ends() -> libc::sigset_t {
    // SAFETY: sets of signals on this stack, which the calls fill.
    unsafe {
        let (mut ends, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut ends);
        for signal in ENDS {
            libc::sigaddset(&mut ends, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &ends, &mut before);
        before
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: a set that `block_ends` has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Becomes a process of its own, without a terminal; returns in that one. The one that called waits for its word.
fn detach() -> io::Result<PipeWriter> {
    let (begun, mut ready) = io::pipe()?;
    let unblocked = block_ends();
    // The recorder, whose parent ends, becomes this process's child then: how it ends can be told.
    // SAFETY: numbers alone.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    // SAFETY: the process has one thread, so that the child may run any code.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => drop(begun),
        child => {
            drop(ready);
            // SAFETY: waits for the child just made, which ends at once.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            await_word(begun, &unblocked)
        }
    }
    set_mask(&unblocked);
    // SAFETY: a session of its own; then, as a child that leads no session, it can never get a terminal.
    match unsafe {
        libc::setsid();
        libc::fork()
    } {
        -1 => Err(io::Error::last_os_error()),
        // Nobody has been told anything where whoever waited has gone.
        0 => ready.write_all(&std::process::id().to_ne_bytes()).map(|()| ready),
        // SAFETY: ends this process alone, with nothing to flush.
        _ => unsafe { libc::_exit(0) },
    }
}
