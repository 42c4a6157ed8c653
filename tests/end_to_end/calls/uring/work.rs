//! The recorded program: issues requests of every kind and writes down what their rows should say.

use std::{
    ffi::CString,
    fmt::Write,
    fs,
    os::fd::AsRawFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::ring::{
    Cqe, DEFER_TASKRUN, Ring, SINGLE_ISSUER, SQPOLL, Sqe, sqe, with_buffer, with_file_index, with_flags,
};
use crate::harness::patience;

const FIXED: u8 = 1;
const DRAIN: u8 = 2;
const LINK: u8 = 4;
const HARDLINK: u8 = 8;
const ASYNC: u8 = 16;
const SELECT: u8 = 32;
const SKIP: u8 = 64;

const READV: u8 = 1;
const WRITEV: u8 = 2;
const FSYNC: u8 = 3;
const READ_FIXED: u8 = 4;
const WRITE_FIXED: u8 = 5;
const SYNC_RANGE: u8 = 8;
const FALLOCATE: u8 = 17;
const OPENAT: u8 = 18;
const CLOSE: u8 = 19;
const STATX: u8 = 21;
const READ: u8 = 22;
const WRITE: u8 = 23;
const FADVISE: u8 = 24;
const MADVISE: u8 = 25;
const OPENAT2: u8 = 28;
const SPLICE: u8 = 30;
const PROVIDE_BUFFERS: u8 = 31;
pub(crate) const READ_MULTISHOT: u8 = 49;
const RENAMEAT: u8 = 35;
const UNLINKAT: u8 = 36;
const MKDIRAT: u8 = 37;
const SYMLINKAT: u8 = 38;
const LINKAT: u8 = 39;
const FSETXATTR: u8 = 41;
const GETXATTR: u8 = 44;
const FTRUNCATE: u8 = 55;

/// What the rows should say: a line per request of `column=value` fields, separated by tabs.
#[derive(Default)]
struct Log {
    text: String,
    next: u64,
}

impl Log {
    /// A number for the next request.
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next << 32 | 0x8000_0000_0000_0000
    }

    /// `what`: further fields.
    fn expect(&mut self, user_data: u64, op: &str, ret: Option<i32>, what: &str) {
        let ret = ret.map_or("null".into(), |r| r.to_string());
        writeln!(self.text, "user_data={}\top={op}\tret={ret}\t{what}", user_data as i64).unwrap();
    }
}

fn result(done: &[Cqe], user_data: u64) -> i32 {
    done.iter().find(|c| c.0 == user_data).unwrap_or_else(|| panic!("no completion of {user_data:#x}: {done:?}")).1
}

struct Work {
    log: Log,
    ring: Ring,
    base: String,
    buffer: Vec<u8>,
}

impl Work {
    fn at(&self, from: usize) -> u64 {
        self.buffer[from..].as_ptr() as u64
    }

    /// One request alone; its result.
    fn one(&mut self, make: impl FnOnce(u64) -> Sqe, op: &str, what: &str) -> i32 {
        let ud = self.log.number();
        let ret = result(&self.ring.submit(&[make(ud)], 1), ud);
        self.log.expect(ud, op, Some(ret), what);
        ret
    }

    fn transfers(&mut self, fd: i32, path: &str) {
        let (a, b) = (self.at(0), self.at(65536));
        let of = |rest: &str| format!("fd={fd}\tfile={path}\t{rest}");
        let wrote =
            self.one(|u| sqe(WRITE, fd, 0, a, 8192, 0, u), "write", &of("offset_bytes=0\tlen_bytes=8192\taux2=null"));
        assert_eq!(wrote, 8192);
        self.one(|u| sqe(READ, fd, 4096, b, 9000, 0, u), "read", &of("offset_bytes=4096\tlen_bytes=9000"));
        self.one(|u| sqe(WRITE, fd, -1, a, 100, 0, u), "write", &of("offset_bytes=0\tlen_bytes=100\taux2=1"));
        self.one(|u| sqe(WRITE, fd, -1, a, 50, 0, u), "write", &of("offset_bytes=100\tlen_bytes=50\taux2=1"));
        let vector: [u64; 6] = [a, 10, a + 64, 20, a + 128, 30];
        let v = vector.as_ptr() as u64;
        self.one(|u| sqe(WRITEV, fd, 16384, v, 3, 0, u), "writev", &of("offset_bytes=16384\tlen_bytes=60\taux=3"));
        self.one(|u| sqe(READV, fd, 16384, v, 2, 0, u), "readv", &of("offset_bytes=16384\tlen_bytes=30\taux=2"));
        self.one(|u| with_flags(sqe(READ, fd, 1, b, 77, 0, u), ASYNC), "read", &of("offset_bytes=1\thas=272"));
        self.one(|u| with_flags(sqe(WRITE, fd, 3, a, 78, 0, u), DRAIN), "write", &of("offset_bytes=3\thas=2"));
        let append = format!("{path}.append");
        fs::write(&append, vec![1; 1000]).unwrap();
        let file = fs::OpenOptions::new().append(true).open(&append).unwrap();
        let n = file.as_raw_fd();
        self.one(
            |u| sqe(WRITE, n, 0, a, 11, 0, u),
            "write",
            &format!("fd={n}\tfile={append}\toffset_bytes=1000\tlen_bytes=11"),
        );
        self.one(
            |u| sqe(WRITE, n, -1, a, 12, 0, u),
            "write",
            &format!("fd={n}\toffset_bytes=1011\tlen_bytes=12\taux2=1"),
        );
    }

    fn fixed(&mut self, fd: i32, path: &str) {
        let (a, b) = (self.at(0), self.at(65536));
        let buffers: [u64; 4] = [a, 8192, b, 8192];
        assert_eq!(self.ring.register(0, buffers.as_ptr().cast(), 2), 0);
        self.one(
            |u| with_buffer(sqe(WRITE_FIXED, fd, 32768, a, 4096, 0, u), 0),
            "write",
            &format!("fd={fd}\tfile={path}\tbuf_index=0\toffset_bytes=32768\thas=65536"),
        );
        self.one(
            |u| with_buffer(sqe(READ_FIXED, fd, 32768, b, 5000, 0, u), 1),
            "read",
            &format!("fd={fd}\tfile={path}\tbuf_index=1\tlen_bytes=5000"),
        );
        let files: [i32; 6] = [-1, fd, -1, -1, -1, -1];
        assert_eq!(self.ring.register(2, files.as_ptr().cast(), 6), 0);
        self.one(
            |u| with_flags(sqe(READ, 1, 0, b, 500, 0, u), FIXED),
            "read",
            &format!("fd=1\tfile={path}\tlen_bytes=500\thas=1"),
        );
        self.one(|u| with_flags(sqe(READ, 5, 0, b, 500, 0, u), FIXED), "read", "fd=5\tfile=null\tofd=null\thas=1");
        // Opened into a slot, written and read through it, closed, in one chain.
        let direct = CString::new(format!("{}/direct", self.base)).unwrap();
        let name = direct.to_str().unwrap();
        let u: Vec<u64> = (0..4).map(|_| self.log.number()).collect();
        let chain = [
            with_flags(
                with_file_index(
                    sqe(
                        OPENAT,
                        libc::AT_FDCWD,
                        0,
                        direct.as_ptr() as u64,
                        0o640,
                        (libc::O_RDWR | libc::O_CREAT) as u32,
                        u[0],
                    ),
                    5,
                ),
                LINK,
            ),
            with_flags(sqe(WRITE, 4, 0, a, 300, 0, u[1]), LINK | FIXED),
            with_flags(sqe(READ, 4, 100, b, 200, 0, u[2]), LINK | FIXED),
            with_file_index(sqe(CLOSE, 0, 0, 0, 0, 0, u[3]), 5),
        ];
        let done = self.ring.submit(&chain, 4);
        let ret: Vec<i32> = u.iter().map(|u| result(&done, *u)).collect();
        assert_eq!(ret, [0, 300, 200, 0]);
        self.log.expect(
            u[0],
            "openat",
            Some(0),
            &format!("path={name}\tdirfd=-100\tfile={name}\tfd2=4\tflags=66\tmode=416\taux=1\thas=32772"),
        );
        self.log.expect(u[1], "write", Some(300), &format!("fd=4\tfile={name}\toffset_bytes=0\thas=16389"));
        self.log.expect(
            u[2],
            "read",
            Some(200),
            &format!("fd=4\tfile={name}\toffset_bytes=100\tlen_bytes=200\thas=16389"),
        );
        self.log.expect(u[3], "close", Some(0), "fd=4\thas=49152");
    }

    fn whole_files(&mut self, fd: i32, path: &str) {
        let a = self.at(0);
        let of = |rest: &str| format!("fd={fd}\tfile={path}\t{rest}");
        self.one(|u| sqe(FSYNC, fd, 0, 0, 0, 0, u), "fsync", &of("offset_bytes=null\tlen_bytes=null"));
        self.one(|u| sqe(FSYNC, fd, 0, 0, 0, 1, u), "fdatasync", &of("flags=1"));
        self.one(
            |u| sqe(SYNC_RANGE, fd, 4096, 0, 8192, 2, u),
            "sync_file_range",
            &of("offset_bytes=4096\tlen_bytes=8192\tflags=2"),
        );
        self.one(
            |u| sqe(FALLOCATE, fd, 8192, 70000, 1, 0, u),
            "fallocate",
            &of("offset_bytes=8192\tlen_bytes=70000\tmode=1"),
        );
        self.one(|u| sqe(FADVISE, fd, 0, 0, 4096, 3, u), "fadvise64", &of("offset_bytes=0\tlen_bytes=4096\tflags=3"));
        let page = (a + 4095) & !4095;
        self.one(|u| sqe(MADVISE, -1, 0, page, 4096, 3, u), "madvise", &format!("aux={page}\tlen_bytes=4096\tflags=3"));
        // Linux 6.9; of a request that it does not know, a kernel tells no more than that there was one.
        if self.ring.knows(FTRUNCATE) {
            self.one(|u| sqe(FTRUNCATE, fd, 50000, 0, 0, 0, u), "ftruncate", &of("len_bytes=50000"));
        }
        let (name, value) = (c"user.ioreel", c"some value");
        self.one(
            |u| sqe(FSETXATTR, fd, value.as_ptr() as i64, name.as_ptr() as u64, 10, 1, u),
            "fsetxattr",
            &of("name=user.ioreel\tlen_bytes=10\tflags=1"),
        );
        let c_path = CString::new(path).unwrap();
        self.one(
            |u| {
                let mut e = sqe(GETXATTR, 0, a as i64, name.as_ptr() as u64, 64, 0, u);
                e[6] = c_path.as_ptr() as u64;
                e
            },
            "getxattr",
            &format!("path={path}\tname=user.ioreel\tlen_bytes=64"),
        );
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let [from, to] = pipe;
        self.one(
            |u| {
                let mut e = with_file_index(sqe(SPLICE, to, -1, 4096, 1000, 0, u), fd as u32);
                e[2] = 4096;
                e
            },
            "splice",
            &format!("fd={fd}\tfile={path}\tfd2={to}\toffset_bytes=4096\toffset2_bytes=null\tlen_bytes=1000\taux=2"),
        );
        self.one(
            |u| with_file_index(sqe(SPLICE, fd, 20000, u64::MAX, 1000, 0, u), from as u32),
            "splice",
            &format!("fd={from}\tfile2={path}\tfd2={fd}\toffset_bytes=null\toffset2_bytes=20000\taux=1"),
        );
        // A read that has to wait: nothing is in the pipe yet.
        let ud = self.log.number();
        self.ring.put(&[sqe(READ, from, -1, a, 64, 0, ud)]);
        assert_eq!(self.ring.enter(1, 0, 0), 1);
        // SAFETY: five bytes of a literal.
        assert_eq!(unsafe { libc::write(to, c"hello".as_ptr().cast(), 5) }, 5);
        self.ring.enter(0, 1, 0);
        let ret = result(&self.ring.reap(), ud);
        self.log.expect(ud, "read", Some(ret), &format!("fd={from}\toffset_bytes=null\thas=512"));
        // A buffer of a group, provided before: that request is none on a file.
        let ud = self.log.number();
        self.ring.submit(&[with_buffer(sqe(PROVIDE_BUFFERS, 2, 0, a, 4096, 0, ud), 7)], 1);
        self.one(
            |u| with_buffer(with_flags(sqe(READ, fd, 0, 0, 600, 0, u), SELECT), 7),
            "read",
            &of("buf_index=7\tlen_bytes=600\thas=32"),
        );
        // Linux 6.7.
        if self.ring.knows(READ_MULTISHOT) {
            self.many_times(from, to, a);
        }
    }

    /// One request that reads whenever there is something, with a completion for each: one row, of the last.
    fn many_times(&mut self, from: i32, to: i32, a: u64) {
        const MORE: u32 = 2;
        let ud = self.log.number();
        self.ring.submit(&[with_buffer(sqe(PROVIDE_BUFFERS, 8, 0, a, 64, 0, ud), 8)], 1);
        let ud = self.log.number();
        self.ring.put(&[with_buffer(with_flags(sqe(READ_MULTISHOT, from, 0, 0, 0, 0, ud), SELECT), 8)]);
        assert_eq!(self.ring.enter(1, 0, 0), 1);
        for word in [c"one", c"three", c"fifteen"] {
            let len = word.count_bytes();
            // SAFETY: as many bytes of a literal.
            assert_eq!(unsafe { libc::write(to, word.as_ptr().cast(), len) }, len as isize);
            self.ring.enter(0, 1, 0);
            let done = self.ring.reap();
            assert!(done.iter().any(|d| d.1 == len as i32 && d.2 & MORE != 0), "{done:?}");
        }
        // SAFETY: the descriptor is this test's own.
        unsafe { libc::close(to) };
        self.ring.enter(0, 1, 0);
        let done = self.ring.reap();
        assert!(done.iter().all(|d| d.2 & MORE == 0), "{done:?}");
        let ret = result(&done, ud);
        self.log.expect(ud, "read", Some(ret), &format!("fd={from}\tbuf_index=8\thas=131104"));
    }

    fn names(&mut self) {
        let dir = fs::File::open(&self.base).unwrap();
        let d = dir.as_raw_fd();
        let base = self.base.clone();
        let p = |s: &'static std::ffi::CStr| s.as_ptr() as u64;
        let dirs = |rest: &str| format!("dirfd={d}\tfile={base}\t{rest}");
        self.one(|u| sqe(MKDIRAT, d, 0, p(c"made"), 0o750, 0, u), "mkdirat", &dirs("path=made\tmode=488"));
        let flags = (libc::O_CREAT | libc::O_WRONLY) as u32;
        let open = format!("dirfd={d}\tfile={base}/made/f\tfile2={base}\tpath=made/f\tmode=384\tflags=65\taux=1");
        let fd = self.one(|u| sqe(OPENAT, d, 0, p(c"made/f"), 0o600, flags, u), "openat", &open);
        assert!(fd >= 0);
        self.one(|u| sqe(CLOSE, fd, 0, 0, 0, 0, u), "close", &format!("fd={fd}\tfile={base}/made/f"));
        let how: [u64; 3] = [libc::O_RDONLY as u64, 0, 8];
        let open2 = format!("dirfd={d}\tfile={base}/made/f\tfile2={base}\tpath=made/f\tflags=0\taux=0\taux2=8");
        let fd = self.one(|u| sqe(OPENAT2, d, how.as_ptr() as i64, p(c"made/f"), 24, 0, u), "openat2", &open2);
        self.one(|u| sqe(CLOSE, fd, 0, 0, 0, 0, u), "close", &format!("fd={fd}"));
        self.one(
            |u| sqe(OPENAT, d, 0, p(c"absent"), 0, 0, u),
            "openat",
            &format!("dirfd={d}\tfile=null\tfile2={base}\tpath=absent\tmode=null"),
        );
        let buffer = self.at(0);
        self.one(
            |u| sqe(STATX, d, buffer as i64, p(c"made/f"), 0x7ff, 0, u),
            "statx",
            &dirs("path=made/f\taux=2047\tmode=33152\tlen_bytes=0"),
        );
        self.one(
            |u| sqe(SYMLINKAT, d, p(c"link") as i64, p(c"made/f"), 0, 0, u),
            "symlinkat",
            &format!("dirfd=null\tdirfd2={d}\tfile2={base}\tpath=made/f\tpath2=link"),
        );
        self.one(
            |u| sqe(LINKAT, d, p(c"hard") as i64, p(c"made/f"), d as u32, 0, u),
            "linkat",
            &dirs(&format!("dirfd2={d}\tfile2={base}\tpath=made/f\tpath2=hard")),
        );
        self.one(
            |u| sqe(RENAMEAT, d, p(c"soft") as i64, p(c"hard"), d as u32, 1, u),
            "renameat",
            &dirs(&format!("dirfd2={d}\tpath=hard\tpath2=soft\tflags=1")),
        );
        self.one(|u| sqe(UNLINKAT, d, 0, p(c"soft"), 0, 0, u), "unlinkat", &dirs("path=soft\tflags=0"));
        self.one(|u| sqe(UNLINKAT, d, 0, p(c"soft"), 0, 0, u), "unlinkat", &dirs("path=soft"));
    }

    /// Chains that break, requests refused and requests that end in silence.
    fn odd(&mut self, fd: i32, path: &str) {
        let (a, b) = (self.at(0), self.at(65536));
        let u: Vec<u64> = (0..9).map(|_| self.log.number()).collect();
        let broken = [
            with_flags(sqe(READ, 999, 0, b, 10, 0, u[0]), LINK),
            with_flags(sqe(WRITE, fd, 0, a, 10, 0, u[1]), LINK),
            sqe(READ, fd, 0, b, 20, 0, u[2]),
        ];
        let done = self.ring.submit(&broken, 3);
        let ret: Vec<i32> = u[..3].iter().map(|u| result(&done, *u)).collect();
        assert_eq!(ret, [-libc::EBADF, -libc::ECANCELED, -libc::ECANCELED]);
        self.log.expect(u[0], "read", Some(ret[0]), "fd=999\tfile=null\thas=4");
        self.log.expect(u[1], "write", Some(ret[1]), &format!("file={path}\thas=16388"));
        self.log.expect(u[2], "read", Some(ret[2]), "has=16384");
        let hard = [with_flags(sqe(READ, 999, 0, b, 10, 0, u[3]), HARDLINK), sqe(READ, fd, 0, b, 20, 0, u[4])];
        let done = self.ring.submit(&hard, 2);
        self.log.expect(u[3], "read", Some(result(&done, u[3])), "has=8");
        self.log.expect(u[4], "read", Some(result(&done, u[4])), &format!("file={path}\tlen_bytes=20\thas=16384"));
        // A close with an offset makes no sense, which is found as it is submitted.
        self.one(|u| sqe(CLOSE, fd, 7, 0, 0, 0, u), "close", "has=4096");
        let silent = [
            with_flags(sqe(WRITE, fd, 0, a, 4000, 0, u[5]), LINK | SKIP),
            with_flags(sqe(WRITE, fd, 4000, a, 3000, 0, u[6]), LINK | SKIP),
            sqe(FSYNC, fd, 0, 0, 0, 0, u[7]),
        ];
        let done = self.ring.submit(&silent, 1);
        assert_eq!(done.len(), 1);
        self.log.expect(
            u[5],
            "write",
            Some(4000),
            &format!("file={path}\toffset_bytes=0\tlen_bytes=4000\tstate=unreported\tdur_ns=0\thas=68"),
        );
        self.log.expect(u[6], "write", Some(3000), "offset_bytes=4000\tstate=unreported\thas=68");
        self.log.expect(u[7], "fsync", Some(result(&done, u[7])), "has=16384");
        // Nothing after it tells of its end. Nor may the ring end before it: a worker that waits, for a FUSE server say,
        // would be interrupted, and that is told.
        let (len, far): (u64, i64) = (fs::metadata(path).unwrap().len(), 1 << 24);
        self.ring.submit(&[with_flags(sqe(WRITE, fd, far, a, 10, 0, u[8]), SKIP)], 0);
        self.log.expect(u[8], "write", None, "maybe=10\tstate=unreported");
        let (began, enough) = (Instant::now(), patience(Duration::from_secs(10)));
        while fs::metadata(path).unwrap().len() < far as u64 + 10 && began.elapsed() < enough {
            thread::sleep(Duration::from_millis(1));
        }
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
    }

    /// More completions than the queue holds.
    fn overflow(&mut self, fd: i32) {
        let small = Ring::new(4, 0);
        let b = self.at(65536);
        let mut done = Vec::new();
        let mut u: Vec<u64> = Vec::new();
        for _ in 0..6 {
            let four: Vec<u64> = (0..4).map(|_| self.log.number()).collect();
            let entries: Vec<Sqe> =
                four.iter().map(|u| sqe(READ, fd, 0, b, 10 + (*u >> 32 & 63) as u32, 0, *u)).collect();
            small.put(&entries);
            // Some kernels take nothing more while completions wait for room.
            if small.enter(4, 0, 0) != 4 {
                break;
            }
            u.extend(four);
        }
        assert!(u.len() > 8, "the queue of eight did not overflow");
        while done.len() < u.len() {
            done.extend(small.reap());
            small.enter(0, 0, 1);
        }
        for u in &u {
            self.log.expect(*u, "read", Some(result(&done, *u)), "state=complete\toffset_bytes=0\tring=2");
        }
        // SAFETY: the ring's own descriptor, used no more.
        unsafe { libc::close(small.fd) };
    }

    fn kinds_of_rings(&mut self, fd: i32, path: &str) {
        let b = self.at(65536);
        for (number, flags, bits) in [(3, SQPOLL, 2048), (4, SINGLE_ISSUER | DEFER_TASKRUN, 0)] {
            let ring = Ring::new(8, flags);
            for round in 0..5 {
                let u: Vec<u64> = (0..4).map(|_| self.log.number()).collect();
                let entries: Vec<Sqe> =
                    u.iter().enumerate().map(|(i, u)| sqe(READ, fd, round * 64 + i as i64, b, 32, 0, *u)).collect();
                let done = ring.submit(&entries, 4);
                for (i, u) in u.iter().enumerate() {
                    let what = format!(
                        "fd={fd}\tfile={path}\toffset_bytes={}\tring={number}\thas={bits}\ttid={}",
                        round * 64 + i as i64,
                        std::process::id()
                    );
                    self.log.expect(*u, "read", Some(result(&done, *u)), &what);
                }
            }
            // SAFETY: as above.
            unsafe { libc::close(ring.fd) };
        }
    }

    /// Others use the ring too: a thread, and a child that inherited it.
    fn others(&mut self, fd: i32, path: &str) {
        let b = self.at(65536);
        let (of_thread, of_child) = (self.log.number(), self.log.number());
        struct Share<'a>(&'a Ring);
        // SAFETY: the threads take turns.
        unsafe impl Send for Share<'_> {}
        let share = Share(&self.ring);
        let (tid, ret) = thread::scope(|s| {
            let thread = s.spawn(move || {
                let share = share;
                let done = share.0.submit(&[sqe(READ, fd, 0, b, 21, 0, of_thread)], 1);
                // SAFETY: asks for a number.
                (unsafe { libc::gettid() }, result(&done, of_thread))
            });
            thread.join().unwrap()
        });
        self.log.expect(of_thread, "read", Some(ret), &format!("file={path}\ttid={tid}\tring=1"));
        // SAFETY: the child makes system calls only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            self.ring.put(&[sqe(READ, fd, 0, b, 22, 0, of_child)]);
            let ok = self.ring.enter(1, 1, 0) == 1;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!ok)) };
        }
        let mut status = 0;
        // SAFETY: the status is writable.
        assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
        let ret = result(&self.ring.reap(), of_child);
        self.log.expect(of_child, "read", Some(ret), &format!("file={path}\ttid={child}\tring=1"));
        // Through the ring's number among those this thread registered.
        let mut update: [u64; 2] = [0xffff_ffff, self.ring.fd as u64];
        assert_eq!(self.ring.register(20, update.as_mut_ptr().cast::<libc::c_void>(), 1), 1);
        let ud = self.log.number();
        self.ring.put(&[sqe(READ, fd, 0, b, 23, 0, ud)]);
        assert_eq!(self.ring.enter_registered(update[0] as u32, 1, 1), 1);
        let ret = result(&self.ring.reap(), ud);
        self.log.expect(ud, "read", Some(ret), "len_bytes=23\tring=1");
        // In flight when the program ends.
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let ud = self.log.number();
        self.ring.put(&[sqe(READ, pipe[0], -1, b, 24, 0, ud)]);
        assert_eq!(self.ring.enter(1, 0, 0), 1);
        self.log.expect(ud, "read", None, "maybe=-125\tlen_bytes=24");
    }
}

/// Works in the folder `base`; the expectations go to the file `log`.
pub(crate) fn run(base: &str, log: &Path) -> i32 {
    let path = format!("{base}/data");
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    let fd = file.as_raw_fd();
    let mut work = Work { log: Log::default(), ring: Ring::new(32, 0), base: base.into(), buffer: vec![7; 1 << 17] };
    work.transfers(fd, &path);
    work.fixed(fd, &path);
    work.whole_files(fd, &path);
    work.names();
    work.odd(fd, &path);
    work.overflow(fd);
    work.kinds_of_rings(fd, &path);
    work.others(fd, &path);
    fs::write(log, &work.log.text).unwrap();
    0
}
