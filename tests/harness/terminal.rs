//! A program on a terminal of its own, and what is to be seen there.

use std::{
    cell::RefCell,
    fs::File,
    io::{Read, Write},
    num::NonZeroU16,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitStatus},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{patience, wait_for};

/// Until all that a program wrote before its end is on the screen.
const UNREAD: Duration = Duration::from_secs(5);

/// The terminal, and the program that runs on it.
pub(crate) struct Terminal {
    keyboard: File,
    /// The program's end, kept to look at its modes.
    line: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

fn size(rows: u16, columns: u16) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn some(n: u16) -> NonZeroU16 {
    NonZeroU16::new(n).unwrap()
}

/// Modes of a terminal: what it does with input, output and lines.
pub(crate) type Modes = [libc::tcflag_t; 4];

impl Terminal {
    /// Starts `command` on a new terminal of this size.
    pub(crate) fn run(command: &mut Command, rows: u16, columns: u16) -> Self {
        let (mut master, mut slave) = (0, 0);
        let winsize = size(rows, columns);
        // SAFETY: fills both numbers; a name and modes are not asked for.
        let made = unsafe {
            libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), std::ptr::from_ref(&winsize))
        };
        assert_eq!(made, 0, "openpty: {}", std::io::Error::last_os_error());
        // SAFETY: both were just opened and are nobody else's.
        let (master, line) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let end = || std::process::Stdio::from(line.try_clone().unwrap());
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: both calls may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(some(rows), some(columns), 0)));
        let (mut from, to) = (master.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().process(&bytes[..n]);
            }
        });
        Self { keyboard: master, line, screen, child }
    }

    /// What is to be seen, line by line, without room at their ends.
    pub(crate) fn text(&self) -> String {
        let all = self.screen.lock().unwrap().screen().contents();
        all.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    }

    /// Whether a program has taken the whole screen, or hides the cursor.
    pub(crate) fn is_taken(&self) -> bool {
        let parser = self.screen.lock().unwrap();
        parser.screen().alternate_screen() || parser.screen().hide_cursor()
    }

    /// How the terminal treats what goes through it.
    pub(crate) fn modes(&self) -> Modes {
        // SAFETY: zeroed modes are valid, and this call only fills them.
        let t = unsafe {
            let mut t: libc::termios = std::mem::zeroed();
            libc::tcgetattr(self.line.as_raw_fd(), &mut t);
            t
        };
        [t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag]
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Makes it larger or smaller.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(some(rows), some(columns));
        let size = size(rows, columns);
        // SAFETY: the kernel reads the size.
        let done = unsafe { libc::ioctl(self.keyboard.as_raw_fd(), libc::TIOCSWINSZ, std::ptr::from_ref(&size)) };
        assert_eq!(done, 0);
    }

    /// The screen once `holds` of it.
    #[track_caller]
    pub(crate) fn shows(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let last = RefCell::new(String::new());
        let waited_for = std::fmt::from_fn(|f| write!(f, "{what}; there is:\n{}", last.borrow()));
        let mut ended_since = None;
        wait_for(waited_for, || {
            // In this order: what it drew before it ended counts, and is read a moment later.
            if let Some(status) = self.child.try_wait().unwrap() {
                ended_since.get_or_insert((Instant::now(), status));
            }
            let text = self.text();
            last.replace(text.clone());
            let holds = holds(&text);
            if let Some((since, status)) = ended_since {
                assert!(
                    holds || since.elapsed() < UNREAD || since.elapsed() < patience(UNREAD),
                    "ended ({status}) before {what}:\n{text}"
                );
            }
            holds.then_some(text)
        })
    }

    /// Number of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether the program runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The program's end.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> ExitStatus {
        wait_for("the program on the terminal to end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
