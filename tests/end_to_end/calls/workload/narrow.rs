//! Calls by the 32-bit entry: `int 0x80` from this 64-bit program, with everything pointed to below 4 GiB. The reel
//! must not show the difference.

use std::arch::asm;

use super::{
    caller::{Caller, Open},
    log::Entry,
    ok,
};

/// Memory below 4 GiB, given out piece by piece.
pub(super) struct Low {
    base: *mut u8,
    used: usize,
}

const LOW_BYTES: usize = 1 << 20;

impl Low {
    pub(super) fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        // SAFETY: a fresh mapping.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), LOW_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self { base: base.cast(), used: 0 }
    }

    /// A copy of `bytes` and its address.
    pub(super) fn put(&mut self, bytes: &[u8]) -> i64 {
        assert!(self.used + bytes.len() + 16 < LOW_BYTES);
        // SAFETY: inside the mapping, as just checked; nobody else has this piece.
        let at = unsafe { self.base.add(self.used) };
        // SAFETY: as above.
        unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.used += bytes.len().next_multiple_of(16).max(16);
        at as i64
    }

    pub(super) fn path(&mut self, path: &str) -> i64 {
        self.put(format!("{path}\0").as_bytes())
    }

    pub(super) fn words(&mut self, words: &[u32]) -> i64 {
        self.put(&words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>())
    }

    /// The bytes at an address that was put.
    pub(super) fn get(&self, at: i64, len: usize) -> &[u8] {
        // SAFETY: a piece of the mapping.
        unsafe { std::slice::from_raw_parts(at as *const u8, len) }
    }
}

impl Drop for Low {
    fn drop(&mut self) {
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(self.base.cast(), LOW_BYTES) };
    }
}

/// A system call by i386's number and registers.
pub(crate) fn int80(nr: i64, args: [i64; 6]) -> i64 {
    let args = args.map(|a| a as u32);
    let mut ret = nr;
    // SAFETY: arguments are numbers or point into memory below 4 GiB; rbx and rbp, which the compiler keeps for
    // itself, are put back.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov ebx, [r12]",
            "mov ecx, [r12 + 4]",
            "mov edx, [r12 + 8]",
            "mov esi, [r12 + 12]",
            "mov edi, [r12 + 16]",
            "mov ebp, [r12 + 20]",
            "int 0x80",
            "pop rbp",
            "pop rbx",
            in("r12") args.as_ptr(),
            inout("rax") ret,
            out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    i64::from(ret as i32)
}

/// Low and high half.
fn halves(v: i64) -> [i64; 2] {
    [v & 0xffff_ffff, (v >> 32) & 0xffff_ffff]
}

/// All of them, in folder `home`.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let mut low = Low::new();
    let f = data(c, &mut low, home);
    sizes(c, &mut low, home, &f);
    names(c, &mut low, home);
    owners_and_times(c, &mut low, home, &f);
    locks(c, &mut low, &f);
    rest(c, &mut low, home, &f);
    ok(c.call32(6, "close", [f.fd.into()], f.entry()));
}

fn data(c: &mut Caller, low: &mut Low, home: &str) -> Open {
    let t = i64::from(c.thread);
    let path = format!("{home}/narrow");
    let p = low.path(&path);
    let flags = libc::O_RDWR | libc::O_CREAT;
    let e = Entry {
        path: Some(path.clone()),
        flags: Some(flags.into()),
        mode: Some(0o640),
        aux: Some(1),
        opened: Some(path),
        ..Entry::default()
    };
    let f = c.opening32(5, "open", [p, flags.into(), 0o640], e);
    let room = low.put(&[b'n'; 4096]);
    let sized = |len: i64, at: Option<i64>| Entry { len_bytes: Some(len), offset_bytes: at, ..f.entry() };
    assert_eq!(c.call32(4, "write", [f.fd.into(), room, 3000 + t], sized(3000 + t, Some(0))), 3000 + t);
    let e = Entry { aux: Some(100 + t), flags: Some(0), ..sized(0, Some(3000 + t)) };
    assert_eq!(c.call32(19, "lseek", [f.fd.into(), 100 + t, 0], Entry { len_bytes: None, ..e }), 100 + t);
    assert_eq!(c.call32(3, "read", [f.fd.into(), room, 200 + t], sized(200 + t, Some(100 + t))), 200 + t);
    let far = 5_000_000_000 + t;
    let found = low.put(&[0; 8]);
    let [l, h] = halves(far);
    let e = Entry { aux: Some(far), flags: Some(0), len_bytes: None, ..sized(0, Some(300 + 2 * t)) };
    c.call32(140, "lseek", [f.fd.into(), h, l, found, 0], e);
    c.last().ret = far;
    let e = Entry { aux: Some(-1), flags: Some(1), len_bytes: None, ..sized(0, Some(far)) };
    c.call32(19, "lseek", [f.fd.into(), -1, 1], e);
    // The caller sees the low half of the result, the reel all of it.
    c.last().ret = far - 1;
    let [l, h] = halves(50);
    let e = Entry { aux: Some(50), flags: Some(0), len_bytes: None, ..sized(0, None) };
    c.call32(140, "lseek", [f.fd.into(), h, l, found, 0], e);
    c.last().ret = 50;
    let [l, h] = halves(far);
    c.call32(181, "pwrite64", [f.fd.into(), room, 70 + t, l, h], sized(70 + t, Some(far)));
    c.call32(180, "pread64", [f.fd.into(), room, 80 + t, l, h], sized(80 + t, Some(far)));
    let iov = low.words(&[room as u32, 30, room as u32, 40 + t as u32]);
    let vector = |at: Option<i64>| Entry { aux: Some(2), ..sized(70 + t, at) };
    c.call32(145, "readv", [f.fd.into(), iov, 2], vector(Some(50)));
    c.call32(146, "writev", [f.fd.into(), iov, 2], vector(Some(120 + t)));
    c.call32(333, "preadv", [f.fd.into(), iov, 2, l, h], vector(Some(far)));
    c.call32(334, "pwritev", [f.fd.into(), iov, 2, l, h], vector(Some(far)));
    let e = Entry { flags: Some(0), ..vector(Some(far)) };
    c.call32(379, "pwritev2", [f.fd.into(), iov, 2, l, h, 0], e);
    let e = Entry { flags: Some(0), aux2: Some(1), ..vector(Some(190 + 2 * t)) };
    c.call32(378, "preadv2", [f.fd.into(), iov, 2, -1, -1, 0], e);
    f.set_pos(260 + 3 * t);
    f
}

fn sizes(c: &mut Caller, low: &mut Low, home: &str, f: &Open) {
    let t = i64::from(c.thread);
    let path = format!("{home}/narrow");
    let p = low.path(&path);
    let far = (1 << 32) + 77 + t;
    let [l, h] = halves(far);
    let on_path = |len: i64| Entry { path: Some(path.clone()), len_bytes: Some(len), ..Entry::default() };
    let on_fd = |len: i64| Entry { len_bytes: Some(len), ..f.entry() };
    c.call32(193, "truncate", [p, l, h], on_path(far));
    c.call32(194, "ftruncate", [f.fd.into(), l, h], on_fd(far));
    c.call32(92, "truncate", [p, 9000 + t], on_path(9000 + t));
    c.call32(93, "ftruncate", [f.fd.into(), -3], on_fd(-3));
    let [ol, oh, ll, lh] = [4096, 0, 8192 + t, 0];
    let e = Entry { mode: Some(1), offset_bytes: Some(4096), ..on_fd(8192 + t) };
    c.call32(324, "fallocate", [f.fd.into(), 1, ol, oh, ll, lh], e);
    let e = Entry { offset_bytes: Some(far), flags: Some(2), ..on_fd(far) };
    c.call32(314, "sync_file_range", [f.fd.into(), l, h, l, h, 2], e);
    let e = Entry { offset_bytes: Some(far), ..on_fd(100 + t) };
    c.call32(225, "readahead", [f.fd.into(), l, h, 100 + t], e);
    let e = Entry { offset_bytes: Some(far), flags: Some(3), ..on_fd(200 + t) };
    c.call32(250, "fadvise64", [f.fd.into(), l, h, 200 + t, 3], e);
    let e = Entry { offset_bytes: Some(far), flags: Some(4), ..on_fd(far) };
    c.call32(272, "fadvise64", [f.fd.into(), l, h, l, h, 4], e);
    let seen = low.put(&[0; 256]);
    // Offsets of mode and size in i386's struct stat64 and struct stat.
    for (nr, op, wide) in [(195, "stat", true), (196, "lstat", true), (106, "stat", false), (107, "lstat", false)] {
        let e = Entry { path: Some(path.clone()), ..Entry::default() };
        let ret = c.call32(nr, op, [p, seen], e);
        stat_found(c, low, ret, seen, wide);
    }
    for (nr, wide) in [(197, true), (108, false)] {
        let ret = c.call32(nr, "fstat", [f.fd.into(), seen], f.entry());
        stat_found(c, low, ret, seen, wide);
    }
    let e = Entry { dirfd: Some(-100), path: Some(path.clone()), flags: Some(0x100), ..Entry::default() };
    let ret = c.call32(300, "newfstatat", [-100, p, seen, 0x100], e);
    stat_found(c, low, ret, seen, true);
    let q = low.path("/nowhere");
    let e = Entry { path: Some("/nowhere".into()), ..Entry::default() };
    assert_eq!(c.call32(195, "stat", [q, seen], e), -i64::from(libc::ENOENT));
    let e = Entry { dirfd: Some(-100), path: Some(path.clone()), flags: Some(0), aux: Some(0x7ff), ..Entry::default() };
    if c.call32(383, "statx", [-100, p, 0, 0x7ff, seen], e) == 0 {
        let bytes = low.get(seen, 256);
        let mode = u16::from_le_bytes(bytes[28..30].try_into().unwrap());
        let size = i64::from_le_bytes(bytes[40..48].try_into().unwrap());
        (c.last().mode, c.last().len_bytes) = (Some(mode.into()), Some(size));
    }
    c.call32(118, "fsync", [f.fd.into()], f.entry());
    c.call32(148, "fdatasync", [f.fd.into()], f.entry());
    c.call32(344, "syncfs", [f.fd.into()], f.entry());
}

fn stat_found(c: &mut Caller, low: &Low, ret: i64, at: i64, wide: bool) {
    if ret != 0 {
        return;
    }
    let b = low.get(at, 96);
    let word = |i: usize| u32::from_le_bytes(b[i..i + 4].try_into().unwrap());
    let e = c.last();
    if wide {
        e.mode = Some(word(16) as i32);
        e.len_bytes = Some(i64::from(word(44)) | i64::from(word(48)) << 32);
    } else {
        e.mode = Some(i32::from(u16::from_le_bytes([b[8], b[9]])));
        e.len_bytes = Some(word(20).into());
    }
}

fn names(c: &mut Caller, low: &mut Low, home: &str) {
    let t = c.thread;
    let mut one = |c: &mut Caller, nr: i64, op: &str, name: &str, mode: Option<i32>| {
        let path = format!("{home}/{name}");
        let p = low.path(&path);
        c.call32(nr, op, [p, mode.unwrap_or(0).into()], Entry { path: Some(path), mode, ..Entry::default() })
    };
    ok(one(c, 39, "mkdir", "n-dir", Some(0o750)));
    ok(one(c, 33, "access", "n-dir", Some(4)));
    ok(one(c, 15, "chmod", "n-dir", Some(0o711)));
    assert!(one(c, 40, "rmdir", "n-none", None) < 0);
    let mut two = |c: &mut Caller, nr: i64, op: &str, from: String, to: String| {
        let (p, q) = (low.path(&from), low.path(&to));
        c.call32(nr, op, [p, q], Entry { path: Some(from), path2: Some(to), ..Entry::default() })
    };
    two(c, 9, "link", format!("{home}/narrow"), format!("{home}/n-link"));
    two(c, 83, "symlink", format!("target{t}"), format!("{home}/n-soft"));
    two(c, 38, "rename", format!("{home}/n-soft"), format!("{home}/n-moved"));
    let path = format!("{home}/n-moved");
    let (p, room) = (low.path(&path), low.put(&[0; 64]));
    let e = Entry { path: Some(path.clone()), len_bytes: Some(60), ..Entry::default() };
    c.call32(85, "readlink", [p, room, 60], e);
    c.call32(10, "unlink", [p], Entry { path: Some(path), ..Entry::default() });
    let at = |name: &str| Entry { dirfd: Some(-100), path: Some(format!("{home}/{name}")), ..Entry::default() };
    let mut relative = |name: &str| low.path(&format!("{home}/{name}"));
    let p = relative("n-at");
    c.call32(296, "mkdirat", [-100, p, 0o700], Entry { mode: Some(0o700), ..at("n-at") });
    c.call32(301, "unlinkat", [-100, p, 0x200], Entry { flags: Some(0x200), ..at("n-at") });
    let p = relative("n-fifo");
    c.call32(297, "mknodat", [-100, p, 0o010_600, 0], Entry { mode: Some(0o010_600), aux: Some(0), ..at("n-fifo") });
    c.call32(306, "fchmodat", [-100, p, 0o604], Entry { mode: Some(0o604), ..at("n-fifo") });
    c.call32(307, "faccessat", [-100, p, 2], Entry { mode: Some(2), ..at("n-fifo") });
}

fn owners_and_times(c: &mut Caller, low: &mut Low, home: &str, f: &Open) {
    let t = i64::from(c.thread);
    let path = format!("{home}/narrow");
    let p = low.path(&path);
    let owned = |uid: i64, gid: i64| Entry { aux: Some(uid), aux2: Some(gid), ..Entry::default() };
    c.call32(182, "chown", [p, 0xffff, 3000 + t], Entry { path: Some(path.clone()), ..owned(-1, 3000 + t) });
    c.call32(212, "chown", [p, 70_000 + t, -1], Entry { path: Some(path.clone()), ..owned(70_000 + t, -1) });
    c.call32(16, "lchown", [p, 1 + t, 2], Entry { path: Some(path.clone()), ..owned(1 + t, 2) });
    c.call32(198, "lchown", [p, 3, 4 + t], Entry { path: Some(path.clone()), ..owned(3, 4 + t) });
    c.call32(
        95,
        "fchown",
        [f.fd.into(), 5, 0xffff],
        Entry { fd: f.entry().fd, ofd: f.ofd, file: f.file, ..owned(5, -1) },
    );
    c.call32(
        207,
        "fchown",
        [f.fd.into(), -1, -1],
        Entry { fd: f.entry().fd, ofd: f.ofd, file: f.file, ..owned(-1, -1) },
    );
    c.call32(
        298,
        "fchownat",
        [-100, p, 6, 7, 0x100],
        Entry { dirfd: Some(-100), path: Some(path.clone()), flags: Some(0x100), ..owned(6, 7) },
    );
    c.call32(94, "fchmod", [f.fd.into(), 0o604], Entry { mode: Some(0o604), ..f.entry() });
    let timed = |a: i64, m: i64| Entry { aux: Some(a), aux2: Some(m), path: Some(path.clone()), ..Entry::default() };
    let at = low.words(&[1_000_000 + t as u32, 2_000_000]);
    c.call32(30, "utime", [p, at], timed((1_000_000 + t) * 1_000_000_000, 2_000_000 * 1_000_000_000));
    let at = low.words(&[3_000_000, 5, 4_000_000, 6 + t as u32]);
    c.call32(271, "utimes", [p, at], timed(3_000_000_000_005_000, 4_000_000_000_006_000 + 1000 * t));
    let e = Entry { dirfd: Some(-100), ..timed(3_000_000_000_005_000, 4_000_000_000_006_000 + 1000 * t) };
    c.call32(299, "futimesat", [-100, p, at], e);
    let e = Entry { dirfd: Some(-100), flags: Some(0), ..timed(3_000_000_000_000_005, 4_000_000_000_000_006 + t) };
    c.call32(320, "utimensat", [-100, p, at, 0], e.clone());
    c.call32(
        320,
        "utimensat",
        [-100, p, 0, 0],
        Entry { aux: Some(super::names::NOW), aux2: Some(super::names::NOW), ..e },
    );
    let at = low
        .put(&[7_000_000_000_i64, 8, 9_000_000_000, 10 + t].iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    let e =
        Entry { dirfd: Some(-100), flags: Some(0), ..timed(7_000_000_000_000_000_008, 9_000_000_000_000_000_010 + t) };
    c.call32(412, "utimensat", [-100, p, at, 0], e);
}

fn locks(c: &mut Caller, low: &mut Low, f: &Open) {
    let t = i64::from(c.thread);
    let e = |command: i32, start: i64, len: i64| Entry {
        flags: Some(command.into()),
        mode: Some(0),
        aux2: Some(0),
        offset_bytes: Some(start),
        len_bytes: Some(len),
        ..f.entry()
    };
    // struct flock: kind and whence, start, length, process.
    let at = low.words(&[0, 40 + t as u32, 50, 0]);
    for nr in [55, 221] {
        c.call32(nr, "fcntl", [f.fd.into(), libc::F_SETLK.into(), at], e(libc::F_SETLK, 40 + t, 50));
    }
    // struct flock64.
    let [l, h] = halves((1 << 33) + t);
    let at = low.words(&[0, l as u32, h as u32, 60, 0, 0, 0]);
    c.call32(221, "fcntl", [f.fd.into(), 13, at], e(libc::F_SETLK, (1 << 33) + t, 60));
    c.call32(221, "fcntl", [f.fd.into(), libc::F_OFD_SETLK.into(), at], e(libc::F_OFD_SETLK, (1 << 33) + t, 60));
    c.call32(143, "flock", [f.fd.into(), 1], Entry { flags: Some(1), ..f.entry() });
}

/// The calls of 32-bit programs that are about neither data nor names.
///
/// Long because it makes each call once, with all that is expected of its row.
fn rest(c: &mut Caller, low: &mut Low, home: &str, f: &Open) {
    let t = i64::from(c.thread);
    let path = format!("{home}/narrow");
    let p = low.path(&path);
    // Descriptors.
    let fd = c.call32(41, "dup", [f.fd.into()], f.entry());
    ok(c.call32(6, "close", [fd], f.alias(fd).entry()));
    let own = 700 + 10 * t;
    c.call32(63, "dup2", [f.fd.into(), own], Entry { fd2: Some(own as i32), ..f.entry() });
    c.call32(330, "dup3", [f.fd.into(), own + 1, 0], Entry { fd2: Some(own as i32 + 1), flags: Some(0), ..f.entry() });
    let e = Entry { flags: Some(0), aux: Some(own + 2), ..f.entry() };
    c.call32(221, "fcntl", [f.fd.into(), 0, own + 2], e);
    let e = Entry { fd: Some(own as i32), fd2: Some(own as i32 + 5), flags: Some(0), ..Entry::default() };
    c.call32(436, "close_range", [own, own + 5, 0], e);
    // Memory: the offset of mmap2 is in pages.
    let e = Entry {
        len_bytes: Some(4096),
        mode: Some(1),
        flags: Some(1),
        offset_bytes: Some(4096),
        aux: Some(0),
        ..f.entry()
    };
    let map = c.call32(192, "mmap", [0, 4096, 1, 1, f.fd.into(), 1], e);
    let map = i64::from(map as u32);
    c.last().ret = map;
    let there = |e: Entry| Entry { aux: Some(map), len_bytes: Some(4096), file: f.file, ..e };
    c.call32(144, "msync", [map, 4096, 4], there(Entry { flags: Some(4), ..Entry::default() }));
    c.call32(219, "madvise", [map, 4096, 3], there(Entry { flags: Some(3), ..Entry::default() }));
    c.call32(91, "munmap", [map, 4096], there(Entry::default()));
    // Attributes.
    let (name, value) = (low.path("user.narrow"), low.put(b"narrow value"));
    let e = Entry {
        path: Some(path.clone()),
        name: Some("user.narrow".into()),
        value: Some("narrow value".into()),
        len_bytes: Some(12),
        aux: Some(0),
        ..Entry::default()
    };
    c.call32(226, "setxattr", [p, name, value, 12, 0], e);
    let e = Entry { name: Some("user.narrow".into()), len_bytes: Some(12), ..f.entry() };
    c.call32(231, "fgetxattr", [f.fd.into(), name, value, 12], e);
    // File systems: struct statfs and struct statfs64 of i386.
    let found = low.put(&[0; 96]);
    for (nr, wide) in [(99, false), (268, true)] {
        let args = if wide { [p, 84, found] } else { [p, found, 0] };
        let e = Entry { path: Some(path.clone()), ..Entry::default() };
        if c.call32(nr, "statfs", args, e) == 0 {
            let b = low.get(found, 96);
            let word = |i: usize| i64::from(u32::from_le_bytes(b[i..i + 4].try_into().unwrap()));
            let blocks = if wide { word(8) | word(12) << 32 } else { word(8) };
            (c.last().aux, c.last().len_bytes) = (Some(word(0)), Some(blocks * word(4)));
        }
    }
    // ioctl by i386's number, and one whose argument is a descriptor.
    let flags = low.words(&[0]);
    let e = Entry { flags: Some(0x8004_6601), name: Some("FS_IOC_GETFLAGS".into()), ..f.entry() };
    if c.call32(54, "ioctl", [f.fd.into(), 0x8004_6601, flags], e) == 0 {
        c.last().aux = Some(u32::from_le_bytes(low.get(flags, 4).try_into().unwrap()).into());
    }
    let to = low.path(&format!("{home}/n-copy"));
    let e = Entry {
        dirfd: Some(-100),
        path: Some(format!("{home}/n-copy")),
        flags: Some(0o102),
        mode: Some(0o600),
        aux: Some(1),
        ..Entry::default()
    };
    let to = c.opening32(295, "openat", [-100, to, 0o102, 0o600], e);
    let pair = |offset: i64, len: i64| Entry {
        fd2: Some(to.fd),
        ofd2: to.ofd,
        file2: to.file,
        offset_bytes: Some(offset),
        len_bytes: Some(len),
        ..f.entry()
    };
    let at = low.words(&[1000 + t as u32]);
    c.call32(187, "sendfile", [to.fd.into(), f.fd.into(), at, 300], Entry { aux: Some(2), ..pair(1000 + t, 300) });
    let at = low.words(&[1000 + t as u32, 0]);
    c.call32(239, "sendfile", [to.fd.into(), f.fd.into(), at, 301], Entry { aux: Some(2), ..pair(1000 + t, 301) });
    let (a, b) = (low.words(&[500, 0]), low.words(&[9000, 0]));
    let e = Entry { offset2_bytes: Some(9000), flags: Some(0), aux: Some(0), ..pair(500, 302) };
    c.call32(377, "copy_file_range", [f.fd.into(), a, to.fd.into(), b, 302, 0], e);
    let e = Entry { flags: Some(0x4004_9409), name: Some("FICLONE".into()), ..pair(0, 0) };
    c.call32(54, "ioctl", [to.fd.into(), 0x4004_9409, f.fd.into()], Entry { offset2_bytes: Some(0), ..e });
    ok(c.call32(6, "close", [to.fd.into()], to.entry()));
    // umount of old has no flags.
    let q = low.path("/nowhere");
    c.call32(22, "umount2", [q], Entry { path: Some("/nowhere".into()), flags: Some(0), ..Entry::default() });
    // Those that have no place in the table are counted.
    for nr in super::NOT_RECORDED_32 {
        // Fails: the pointer is null.
        assert!(int80(nr, [0; 6]) < 0);
    }
}
