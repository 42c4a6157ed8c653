//! The recorded command: it is forked, released when the probes are active, and waited for.

use std::{
    ffi::{CString, OsString},
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{DumpableBehavior, Pid, WaitOptions, set_dumpable_behavior},
    thread::{CapabilitySet, CapabilitySets, set_capabilities},
};

use crate::{
    CaptureError,
    host::{self, signals},
};

/// A child that waits before its exec.
#[derive(Debug)]
pub(crate) struct Command {
    pid: Pid,
    release: Option<std::fs::File>,
    refusal: std::fs::File,
    program: String,
    status: Option<i32>,
}

impl Command {
    /// Forks the child, which waits for [`Command::release`]. Call this before any thread exists. `stripped`: the child
    /// gives up all capabilities at once, and its user may inspect it like any other process.
    pub(crate) fn start(argv: &[OsString], stripped: bool) -> Result<Self, CaptureError> {
        let os = CaptureError::os;
        if argv.first().is_none_or(|program| program.is_empty()) {
            return Err(CaptureError::EmptyCommand);
        }
        let words: Vec<CString> =
            argv.iter().map(|w| CString::new(w.as_bytes())).collect::<Result<_, _>>().map_err(|_| {
                CaptureError::Os { doing: "reading the command", source: io::Error::other("a word holds a NUL") }
            })?;
        let mut pointers: Vec<*const libc::c_char> = words.iter().map(|w| w.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let (go_read, go_write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from).map_err(os("making a pipe"))?;
        let (no_read, no_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(io::Error::from)
            .map_err(os("making a pipe"))?;
        // The kernel hides a process whose file has capabilities from its user, and a child inherits that.
        let hidden = stripped.then_some(DumpableBehavior::NotDumpable);
        if stripped {
            show(DumpableBehavior::Dumpable)?;
        }
        // SAFETY: this process has a single thread; the child calls only async-signal-safe functions until exec.
        match unsafe { libc::fork() } {
            -1 => Err(os("forking the command")(io::Error::last_os_error())),
            0 => {
                drop(go_write);
                if stripped {
                    give_up_everything();
                }
                // SAFETY: the function is called in the new child, with a null-terminated argv.
                unsafe { wait_and_exec(&go_read, &no_write, &pointers) }
            }
            pid => {
                let pid = Pid::from_raw(pid).ok_or_else(|| os("forking the command")(io::Error::other("no pid")))?;
                drop((go_read, no_write));
                hidden.map_or(Ok(()), show)?;
                Ok(Self {
                    pid,
                    release: Some(go_write.into()),
                    refusal: no_read.into(),
                    program: argv[0].to_string_lossy().into_owned(),
                    status: None,
                })
            }
        }
    }

    /// Process id of the child.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Lets the child exec, without waiting for it: the child may be stopped before the exec, for example by
    /// `--lossless`, and reading the program file may take long.
    pub(crate) fn release(&mut self) -> Result<(), CaptureError> {
        match self.release.take() {
            Some(mut go) => go.write_all(&[1]).map_err(CaptureError::os("releasing the command")),
            None => Ok(()),
        }
    }

    /// Why exec failed, once the child has ended because of that.
    pub(crate) fn refusal(&mut self) -> Option<CaptureError> {
        let mut errno = [0u8; 4];
        // The pipe is closed by a successful exec, and empty before it.
        self.refusal.read_exact(&mut errno).ok()?;
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
        Some(CaptureError::Command { program: self.program.clone(), source })
    }

    /// The wait status if the child has ended; does not block.
    pub(crate) fn poll(&mut self) -> Option<i32> {
        if self.status.is_none() {
            self.status = match rustix::process::waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => Some(status.as_raw()),
                // Already reaped by the kernel, because SIGCHLD is ignored: the status is unknown.
                Err(rustix::io::Errno::CHILD) => Some(0),
                Ok(None) | Err(_) => None,
            };
        }
        self.status
    }

    /// Sends a signal to the command.
    pub(crate) fn signal(&self, signal: i32) {
        if self.status.is_none() {
            // SAFETY: sends a signal to a child that has not been reaped.
            unsafe { libc::kill(self.pid.as_raw_nonzero().get(), signal) };
        }
    }
}

/// Drops the capabilities that the recorder was given for recording: a program that may read every file behaves
/// differently than unrecorded. Root's capabilities come with its user id and stay.
fn give_up_capabilities() {
    const OURS: [libc::c_ulong; 3] = [host::CAP_BPF as _, host::CAP_PERFMON as _, host::CAP_DAC_READ_SEARCH as _];
    for capability in OURS {
        // SAFETY: lowers a capability in this process's ambient set; async-signal-safe.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_LOWER, capability, 0, 0) };
    }
}

fn show(how: DumpableBehavior) -> Result<(), CaptureError> {
    set_dumpable_behavior(how)
        .map_err(io::Error::from)
        .map_err(CaptureError::os("setting who may look into the recorder"))
}

/// All capabilities of the child. The program that it becomes gets none either: the recorder has set no_new_privs.
fn give_up_everything() {
    let none = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
    if set_capabilities(None, nothing).is_err() {
        // SAFETY: ends this process alone.
        unsafe { libc::_exit(127) }
    }
}

/// The code of the child.
///
/// # Safety
/// Call it only in a new child; `argv` is null-terminated and its strings outlive the call.
unsafe fn wait_and_exec(go: &OwnedFd, no: &OwnedFd, argv: &[*const libc::c_char]) -> ! {
    let mut byte = [0u8; 1];
    // Rust ignores SIGPIPE; the command gets the disposition that the recorder inherited.
    if !signals::sigpipe_was_ignored() {
        // SAFETY: async-signal-safe calls with valid arguments.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    give_up_capabilities();
    if !matches!(rustix::io::read(go, &mut byte), Ok(1)) {
        // SAFETY: ends only this process.
        unsafe { libc::_exit(127) }
    }
    for fd in signals::closed_at_first() {
        // SAFETY: the descriptor was opened at the start of the recorder and is not used in the child.
        unsafe { libc::close(fd) };
    }
    // SAFETY: argv is null-terminated and valid.
    unsafe { libc::execvp(argv[0], argv.as_ptr()) };
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let _ = rustix::io::write(no, &errno.to_ne_bytes());
    // SAFETY: ends only this process.
    unsafe { libc::_exit(127) }
}
