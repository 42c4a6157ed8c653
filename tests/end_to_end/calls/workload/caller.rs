//! Issues system calls and logs each with everything the reel should say of it.

use std::{
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

use super::log::{Entry, Identity, ThreadLog, begin_mark, end_mark};
use super::narrow::int80;

/// A path argument: the bytes and the text the reel should show.
pub(crate) struct P {
    pointer: *const libc::c_char,
    pub(crate) text: Option<String>,
    /// Keeps what `pointer` points at.
    _owned: Option<CString>,
}

impl P {
    pub(crate) fn null() -> Self {
        Self { pointer: std::ptr::null(), text: None, _owned: None }
    }

    /// A string that lies in memory already, perhaps in a page that is not resident.
    pub(crate) fn at(pointer: *const libc::c_char, text: &str) -> Self {
        Self { pointer, text: Some(text.into()), _owned: None }
    }

    pub(crate) fn bytes(bytes: &[u8]) -> Self {
        let owned = CString::new(bytes).unwrap();
        Self {
            pointer: owned.as_ptr(),
            text: Some(ioreel_traces::text::from_bytes(bytes).to_string()),
            _owned: Some(owned),
        }
    }

    pub(crate) fn raw(&self) -> i64 {
        self.pointer as i64
    }
}

impl<S: AsRef<str>> From<S> for P {
    fn from(s: S) -> Self {
        Self::bytes(s.as_ref().as_bytes())
    }
}

/// An open descriptor with what the reel should know of it.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The number, or -errno of the open that failed.
    pub(crate) fd: i32,
    pub(crate) ofd: Option<u64>,
    pub(crate) file: Option<Identity>,
    /// The position, shared by all descriptors of the description.
    pos: Arc<AtomicI64>,
}

impl Open {
    /// A descriptor number that is not open.
    pub(crate) fn bad(fd: i32) -> Self {
        Self { fd, ofd: None, file: None, pos: Arc::default() }
    }

    /// The position, where there is one.
    pub(crate) fn pos(&self) -> Option<i64> {
        self.ofd.map(|_| self.pos.load(Relaxed))
    }

    pub(crate) fn set_pos(&self, pos: i64) {
        self.pos.store(pos, Relaxed);
    }

    /// Another descriptor of the same description.
    pub(crate) fn alias(&self, fd: i64) -> Self {
        if fd < 0 { Self::bad(fd as i32) } else { Self { fd: fd as i32, ..self.clone() } }
    }

    pub(crate) fn ret(&self) -> i64 {
        i64::from(self.fd)
    }

    /// An entry for a call on this descriptor.
    pub(crate) fn entry(&self) -> Entry {
        Entry { fd: Some(self.fd), ofd: self.ofd, file: self.file, no_file: self.ofd.is_none(), ..Entry::default() }
    }
}

/// Which entry into the kernel.
#[derive(Clone, Copy)]
enum Way {
    Wide,
    Narrow,
}

/// One thread's caller and log.
pub(crate) struct Caller {
    pub(crate) thread: u32,
    log: ThreadLog,
    opened: u64,
}

impl Caller {
    /// A caller for the current thread; its calls count from here.
    pub(crate) fn begin(thread: u32) -> Self {
        // SAFETY: neither call has arguments.
        let (pid, tid) = unsafe { (libc::getpid(), libc::gettid()) };
        let mark = CString::new(begin_mark(thread)).unwrap();
        let log = ThreadLog { thread, pid, tid, entries: Vec::with_capacity(4096), beside: Vec::new() };
        // SAFETY: the path is a C string.
        unsafe { libc::syscall(libc::SYS_access, mark.as_ptr(), libc::F_OK) };
        Self { thread, log, opened: 0 }
    }

    /// Ends what counts and gives the log.
    pub(crate) fn end(self) -> ThreadLog {
        let mark = CString::new(end_mark(self.thread)).unwrap();
        // SAFETY: the path is a C string.
        unsafe { libc::syscall(libc::SYS_access, mark.as_ptr(), libc::F_OK) };
        self.log
    }

    /// Issues system call `nr` and logs `entry` with its result.
    pub(crate) fn call<const N: usize>(&mut self, nr: libc::c_long, op: &str, args: [i64; N], entry: Entry) -> i64 {
        self.by(Way::Wide, nr, op, args, entry)
    }

    /// The same by the 32-bit entry: `nr` is i386's number.
    pub(crate) fn call32<const N: usize>(&mut self, nr: i64, op: &str, args: [i64; N], entry: Entry) -> i64 {
        self.by(Way::Narrow, nr, op, args, entry)
    }

    fn by<const N: usize>(&mut self, way: Way, nr: i64, op: &str, args: [i64; N], entry: Entry) -> i64 {
        let mut a = [0; 6];
        a[..N].copy_from_slice(&args);
        let before_ns = now_ns();
        let ret = match way {
            Way::Narrow => int80(nr, a),
            Way::Wide => {
                // SAFETY: the callers pass what the call expects, or pointers that make it fail with EFAULT.
                let ret = unsafe { libc::syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]) };
                if ret == -1 { -i64::from(errno()) } else { ret }
            }
        };
        let after_ns = now_ns();
        let nr32 = matches!(way, Way::Narrow).then_some(nr);
        self.log.entries.push(Entry { op: op.into(), ret, nr32, before_ns, after_ns, ..entry });
        ret
    }

    /// Closes what is no file of the workload's.
    pub(crate) fn close_other(&mut self, end: impl std::os::fd::IntoRawFd) {
        let fd = end.into_raw_fd();
        self.call(libc::SYS_close, "close", [fd.into()], Entry { fd: Some(fd), ..Entry::default() });
    }

    /// Changes the entry logged last.
    pub(crate) fn last(&mut self) -> &mut Entry {
        self.log.entries.last_mut().unwrap()
    }

    /// A row that the call logged last has beside its own.
    pub(crate) fn beside(&mut self, entry: Entry) {
        let last = self.last();
        let (before_ns, after_ns) = match entry.before_ns {
            0 => (last.before_ns, last.after_ns),
            _ => (entry.before_ns, entry.after_ns),
        };
        self.log.beside.push(Entry { before_ns, after_ns, ..entry });
    }

    /// Issues an open and learns the identity of what it opened by an fstat, which is logged too.
    pub(crate) fn opening<const N: usize>(&mut self, nr: libc::c_long, op: &str, args: [i64; N], entry: Entry) -> Open {
        self.opening_by(Way::Wide, nr, op, args, entry)
    }

    /// The same by the 32-bit entry.
    pub(crate) fn opening32<const N: usize>(&mut self, nr: i64, op: &str, args: [i64; N], entry: Entry) -> Open {
        self.opening_by(Way::Narrow, nr, op, args, entry)
    }

    fn opening_by<const N: usize>(&mut self, way: Way, nr: i64, op: &str, args: [i64; N], entry: Entry) -> Open {
        let ret = self.by(way, nr, op, args, entry);
        if ret < 0 {
            // What did not open did not create; the reel says nothing of it.
            if op != "open_by_handle_at" {
                self.last().aux = None;
            }
            return Open::bad(ret as i32);
        }
        let at = self.log.entries.len() - 1;
        self.opened += 1;
        let ofd = Some(u64::from(self.thread) << 32 | self.opened);
        let mut open = Open { fd: ret as i32, ofd, file: None, pos: Arc::default() };
        open.file = Some(self.identify(&open));
        // The calls that found it out are calls on that file as well.
        let last = self.log.entries.len() - 1;
        for found in &mut self.log.entries[at + 1..=last] {
            found.file = open.file;
        }
        self.log.entries[at].ofd = ofd;
        self.log.entries[at].file = open.file;
        open
    }

    fn identify(&mut self, open: &Open) -> Identity {
        let stat = self.fstat(open).unwrap();
        let mut version: libc::c_int = 0;
        let args = [open.fd.into(), FS_IOC_GETVERSION as i64, (&raw mut version) as i64];
        let asked = Entry {
            flags: Some(FS_IOC_GETVERSION as i64),
            name: Some("FS_IOC_GETVERSION".into()),
            // The fstat before has told the file's identity, this entry is told below.
            ..open.entry()
        };
        let known = self.call(libc::SYS_ioctl, "ioctl", args, asked) == 0;
        self.last().aux = known.then(|| i64::from(version as u32));
        Identity {
            dev: kernel_dev(stat.st_dev),
            ino: stat.st_ino as i64,
            generation: known.then(|| i64::from(version as u32)),
        }
    }
}

/// `FS_IOC_GETVERSION`, `_IOR('v', 1, long)`.
const FS_IOC_GETVERSION: libc::Ioctl = 0x8008_7601;

/// A device number as the kernel and the reel write it.
pub(crate) fn kernel_dev(dev: libc::dev_t) -> i64 {
    i64::from(libc::major(dev)) << 20 | i64::from(libc::minor(dev))
}

pub(crate) fn now_ns() -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}
