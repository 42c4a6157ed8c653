//! `--daemon`: records in the background or under systemd. One daemon per folder.

use std::{
    env,
    ffi::OsString,
    fs::{File, TryLockError},
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
use ioreel_traces::private::{Folder, is_trusted};

use crate::output::tell;

/// Holds the recorder's process id; locked while the recorder lives.
const PID_FILE: &str = "ioreel.pid";
/// Receives messages once the daemon has left the terminal.
const LOG_FILE: &str = "ioreel.log";

/// The daemon's folder, and its connections to the process that started it and to systemd.
#[derive(Debug)]
pub(super) struct Daemon {
    pid_file: File,
    dir: PathBuf,
    /// Socket of systemd (`NOTIFY_SOCKET`).
    notify: Option<OsString>,
    /// Pipe on which the starting process waits until the recording has begun, and the log that messages go to afterwards.
    ready: Mutex<Option<(PipeWriter, File)>>,
}

impl Daemon {
    /// Locks the folder `dir` for this recorder and goes into the background; returns only in the recorder. The starting
    /// process exits with status 0 once the recording has begun, or with the recorder's status; until then it forwards
    /// signals. If `NOTIFY_SOCKET` names a socket, the recorder stays in the foreground and reports there. Must be called
    /// while the process has one thread.
    pub(super) fn start(dir: &Path) -> anyhow::Result<Self> {
        let folder = Folder::open_or_create(dir).with_context(|| format!("{}: creating the folder", dir.display()))?;
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let path = dir.join(PID_FILE);
        refuse_folder_of_others(&folder)?;
        let opening = |name: &str| format!("{}: opening a regular file", dir.join(name).display());
        let mut pid_file = folder.file_or_create(PID_FILE, false).with_context(|| opening(PID_FILE))?;
        match pid_file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // An unreadable pid is left out of the message.
                let _ = pid_file.read_to_string(&mut pid);
                bail!(
                    "{}: process {} is already recording into this folder; stop it (SIGTERM) or use another folder",
                    dir.display(),
                    pid.trim()
                );
            }
            Err(TryLockError::Error(e)) => return Err(e).with_context(|| format!("{}: locking", path.display())),
        }
        let notify = env::var_os("NOTIFY_SOCKET").filter(|s| !s.is_empty());
        let ready = if notify.is_none() {
            let log = folder.file_or_create(LOG_FILE, true).with_context(|| opening(LOG_FILE))?;
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

    /// A path for a new reel, named by the current time in UTC.
    pub(super) fn reel(&self) -> PathBuf {
        unused(&self.dir, &utc_stamp())
    }

    /// Handles an event of the recording into `reel`.
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
            Moment::Settling(_) | Moment::Copied(_) | Moment::NotCopied(_) => {}
        }
    }

    /// Redirects messages to the log and releases the starting process.
    fn leave_the_terminal(&self) -> io::Result<()> {
        let Some((mut ready, log)) = self.ready.lock().ok().and_then(|mut r| r.take()) else { return Ok(()) };
        let null = File::open("/dev/null")?;
        for (from, to) in [(&null, libc::STDIN_FILENO), (&log, libc::STDOUT_FILENO), (&log, libc::STDERR_FILENO)] {
            // SAFETY: both are this process's own open descriptors.
            if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // A working directory would keep its file system from being unmounted. All paths in use are absolute or open.
        env::set_current_dir("/")?;
        // The starting process may be gone.
        let _ = ready.write_all(&[0]);
        Ok(())
    }

    /// Sends one sd_notify(3) message.
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
        // Not removed: a process that has just opened it would lock a file that no longer has a name.
        let _ = self.pid_file.set_len(0);
    }
}

/// Refuses a folder in which another user could put names before this process opens them.
fn refuse_folder_of_others(folder: &Folder) -> anyhow::Result<()> {
    let dir = folder.path().display();
    let (owner, mode) = folder.owner_and_mode().with_context(|| dir.to_string())?;
    if !is_trusted(owner) {
        bail!("{dir}: belongs to user {owner}, who could replace the recorder's files; use a folder of your own");
    }
    if mode & 0o002 != 0 {
        bail!("{dir}: any user may write here and could replace the recorder's files; run chmod o-w on it");
    }
    Ok(())
}

/// Process id of the recorder that signals are forwarded to.
static RECORDER: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: allowed in a handler; to the recorder that this process has started.
    unsafe { libc::kill(RECORDER.load(Ordering::Relaxed), signal) };
}

/// Signals forwarded to the recorder unless they are ignored.
const ENDS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Waits until the recorder has begun or ended, and exits with its status. Signals stay blocked until they can be
/// forwarded.
fn await_recorder(mut begun: PipeReader, unblocked: &libc::sigset_t) -> ! {
    let mut pid = [0; 4];
    if begun.read_exact(&mut pid).is_err() {
        exit(1)
    }
    let pid = i32::from_ne_bytes(pid);
    RECORDER.store(pid, Ordering::Relaxed);
    for signal in ENDS {
        // SAFETY: the handler is async-signal-safe.
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
    // SAFETY: waits for the recorder, which is a child of this process by now. Signals interrupt the wait.
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
    // The recorder has printed the reason.
    exit(libc::WEXITSTATUS(status))
}

/// Blocks the signals of [`ENDS`]; returns the previous mask.
fn block_ends() -> libc::sigset_t {
    // SAFETY: signal sets on this stack, filled by the calls.
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
    // SAFETY: a set filled by `block_ends`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Continues as a daemon without a terminal; returns only there. The calling process waits in [`await_recorder`].
fn detach() -> io::Result<PipeWriter> {
    let (begun, mut ready) = io::pipe()?;
    let unblocked = block_ends();
    // The recorder's parent exits; as a subreaper this process becomes its parent and can read its exit status.
    // SAFETY: takes only numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    // SAFETY: the process has one thread, so that the child may run any code.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => drop(begun),
        child => {
            drop(ready);
            // SAFETY: waits for the child just created, which exits at once.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            await_recorder(begun, &unblocked)
        }
    }
    set_mask(&unblocked);
    // SAFETY: starts a session; its child, which leads no session, can never acquire a terminal.
    match unsafe {
        libc::setsid();
        libc::fork()
    } {
        -1 => Err(io::Error::last_os_error()),
        // A starting process that is gone makes this an error, before anything was recorded.
        0 => ready.write_all(&std::process::id().to_ne_bytes()).map(|()| ready),
        // SAFETY: exits only this process; nothing is buffered.
        _ => unsafe { libc::_exit(0) },
    }
}
