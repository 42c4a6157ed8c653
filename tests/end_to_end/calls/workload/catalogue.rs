//! Every call that ioreel records, succeeding. All sizes, offsets and names differ between threads, and
//! within one wherever a mix-up could hide.

use super::{
    caller::{Caller, Open, P},
    fails, home,
    log::Entry,
    names::{NOW, OMIT},
    ok,
};

const CWD: i32 = libc::AT_FDCWD;

/// What concerns a whole process: working directory and umask. Runs while it has one thread.
pub(crate) fn process_wide(c: &mut Caller, base: &str) {
    let here = home(base, c.thread);
    ok(c.on_path(libc::SYS_chdir, "chdir", here.as_str()));
    let t = c.thread;
    ok(c.with_mode(libc::SYS_mkdir, "mkdir", format!("relative{t}"), 0o751));
    let f = c.open(format!("./relative{t}/../relative{t}/file{t}"), libc::O_RDWR | libc::O_CREAT, 0o604, true);
    ok(c.write(&f, &vec![b'c'; 301 + t as usize]));
    let dir = c.open(format!("relative{t}"), libc::O_RDONLY | libc::O_DIRECTORY, 0, false);
    ok(c.on_fd(libc::SYS_fchdir, "fchdir", &dir));
    ok(c.stat(libc::SYS_stat, "stat", format!("file{t}")));
    ok(c.stat(libc::SYS_stat, "stat", ".."));
    ok(c.newfstatat(CWD, format!("../relative{t}/file{t}"), 0));
    ok(c.close(&f));
    ok(c.close(&dir));
    let old = ok(c.umask(0o027));
    let masked = c.creat(format!("masked{t}"), 0o666, true);
    ok(i64::from(c.fstat(&masked).is_some()));
    ok(c.close(&masked));
    assert_eq!(c.umask(old as u32), 0o027);
    let e = Entry { mode: Some(old as i32), ..Entry::default() };
    assert_eq!(c.call32(60, "umask", [old], e), old);
    ok(c.on_path(libc::SYS_chdir, "chdir", base));
}

/// All of it, in folder `home`.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let dir = c.open(home, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0, false);
    opens(c, home, &dir);
    positions(c, home);
    vectors(c, home);
    lengths(c, home, &dir);
    names(c, home, &dir);
    attributes(c, home, &dir);
    copies(c, home);
    maps(c, home);
    not_resident(c, home);
    random_io(c, home);
    ok(c.getdents(libc::SYS_getdents64, "getdents64", &dir, 4096 + c.thread as usize));
    ok(c.lseek(&dir, 0, libc::SEEK_SET));
    // What a directory's position is after reading is the file system's own affair.
    c.last().offset_bytes = None;
    ok(c.getdents(libc::SYS_getdents, "getdents", &dir, 8192 + c.thread as usize));
    ok(c.close(&dir));
}

fn opens(c: &mut Caller, home: &str, dir: &Open) {
    let t = c.thread as i32;
    let a = c.open(format!("{home}/a"), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o641, true);
    let again = c.openat(dir.fd, "a", libc::O_RDONLY | libc::O_CREAT, 0o777, false);
    let b = c.openat(dir.fd, "b", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o642, true);
    let c1 = c.openat2(dir.fd, "c", (libc::O_RDWR | libc::O_CREAT, 0o643), libc::RESOLVE_BENEATH, true);
    let c2 = c.openat2(CWD, format!("{home}/c"), (libc::O_RDONLY, 0), 0, false);
    let d = c.creat(format!("{home}/d"), 0o644, true);
    let path = c.openat(dir.fd, "a", libc::O_PATH | libc::O_NOFOLLOW, 0, false);
    let unnamed = c.open(home, libc::O_TMPFILE | libc::O_RDWR, 0o640, true);
    c.last().opened = None;
    ok(c.write(&unnamed, &vec![b'u'; 77 + t as usize]));
    // Descriptor numbers of this thread's own.
    let own = 300 + 20 * t;
    let duplicates = [
        c.dup(&a),
        c.dup2(&a, own),
        c.dup2(&b, own),
        c.dup3(&c1, own + 1, libc::O_CLOEXEC),
        c.fcntl_dup(&c1, libc::F_DUPFD, own + 3),
        c.fcntl_dup(&d, libc::F_DUPFD_CLOEXEC, own + 5),
    ];
    assert_eq!(duplicates[1].fd, own);
    assert_eq!(duplicates[4].fd, own + 3);
    ok(c.write(&duplicates[0], &vec![b'1'; 111 + t as usize]));
    ok(c.write(&a, &vec![b'2'; 222 + t as usize]));
    ok(c.write(&duplicates[2], &vec![b'3'; 333 + t as usize]));
    ok(c.write(&duplicates[4], &vec![b'4'; 444 + t as usize]));
    ok(c.lseek(&duplicates[3], 5, libc::SEEK_SET));
    ok(c.read(&c1, 100));
    assert_eq!(c.dup2(&a, a.fd).fd, a.fd);
    ok(c.close(&duplicates[0]));
    ok(c.close_range(own as u32, own as u32 + 9, 0));
    ok(c.close_range(own as u32 + 10, own as u32 + 12, libc::CLOSE_RANGE_CLOEXEC as i32));
    for open in [&a, &again, &b, &c1, &c2, &d, &path, &unnamed] {
        ok(c.close(open));
    }
}

fn positions(c: &mut Caller, home: &str) {
    let t = i64::from(c.thread);
    let f = c.open(format!("{home}/positions"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    let other = c.open(format!("{home}/positions"), libc::O_RDWR, 0, false);
    for i in 0..8 {
        ok(c.write(&f, &vec![b'a'; (1000 + 17 * i + t) as usize]));
    }
    ok(c.lseek(&f, 500 + t, libc::SEEK_SET));
    ok(c.read(&f, 123));
    ok(c.pread(&f, 321, 2000 + t));
    ok(c.read(&f, 77));
    ok(c.pwrite(&f, 99, 3000 + t));
    ok(c.lseek(&f, -20, libc::SEEK_CUR));
    ok(c.write(&f, &[b'b'; 31]));
    ok(c.lseek(&f, -100 - t, libc::SEEK_END));
    // Asks for more than there is, then at the end.
    assert_eq!(c.read(&f, 4096), 100 + t);
    assert_eq!(c.read(&f, 55), 0);
    assert_eq!(c.pread(&f, 66, 1 << 33), 0);
    ok(c.lseek(&f, 100, libc::SEEK_DATA));
    ok(c.lseek(&f, 200, libc::SEEK_HOLE));
    ok(c.read(&other, 10 + t as usize));
    ok(c.lseek(&f, (1 << 32) + t, libc::SEEK_SET));
    ok(c.write(&f, &[b'f'; 13]));
    assert_eq!(c.write(&f, &[]), 0);
    ok(c.close(&f));
    ok(c.close(&other));
    appends(c, home);
}

/// Where a write lands when the kernel chooses the end of the file.
fn appends(c: &mut Caller, home: &str) {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_APPEND;
    let f = c.open(format!("{home}/append"), flags, 0o600, true);
    let mut end = 0;
    for len in [500, 41 + i64::from(c.thread), 700] {
        f.set_pos(end);
        assert_eq!(c.write(&f, &vec![b'a'; len as usize]), len);
        end += len;
        // The end counts, wherever the position is.
        ok(c.lseek(&f, 7, libc::SEEK_SET));
    }
    f.set_pos(end);
    assert_eq!(c.writev(&f, &[3, 4, 5]), 12);
    end += 12;
    // pwrite on such a descriptor appends too, whatever offset it names.
    assert_eq!(c.pwrite(&f, 60, 1), 60);
    c.last().offset_bytes = Some(end);
    end += 60;
    // Cut since, it ends where was written before.
    end -= 70;
    ok(c.ftruncate(&f, end));
    f.set_pos(end);
    assert_eq!(c.write(&f, &[b'a'; 90]), 90);
    end += 90;
    ok(c.close(&f));
    let f = c.open(format!("{home}/append"), libc::O_RDWR, 0, false);
    assert_eq!(c.pwritev2(&f, &[8, 9], 2, RWF_APPEND), 17);
    c.last().offset_bytes = Some(end);
    ok(c.close(&f));
}

const RWF_APPEND: i32 = 0x10;

fn vectors(c: &mut Caller, home: &str) {
    let t = c.thread as usize;
    let f = c.open(format!("{home}/vectors"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.writev(&f, &[1000 + t]));
    ok(c.writev(&f, &[10, 20 + t, 30]));
    ok(c.writev(&f, &[t + 1; 40]));
    ok(c.pwritev(&f, &[5, 6 + t], 4000));
    ok(c.pwritev2(&f, &[7, 8 + t], 5000, 0));
    ok(c.pwritev2(&f, &[9, 10 + t], -1, 0));
    ok(c.pwritev2(&f, &[11, t + 2], 6000, libc::RWF_DSYNC));
    ok(c.lseek(&f, 12 + t as i64, libc::SEEK_SET));
    ok(c.readv(&f, &[100, 200 + t, 3]));
    ok(c.preadv(&f, &[40, 50 + t], 333));
    ok(c.preadv2(&f, &[60, 70 + t], 444, 0));
    ok(c.preadv2(&f, &[80, 90 + t, 0, 1], -1, 0));
    ok(c.read(&f, 5));
    assert_eq!(c.readv(&f, &[]), 0);
    ok(c.close(&f));
}

fn lengths(c: &mut Caller, home: &str, dir: &Open) {
    let t = i64::from(c.thread);
    let f = c.openat(dir.fd, "lengths", libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.ftruncate(&f, 100_000 + t));
    ok(c.truncate(format!("{home}/lengths"), 50_000 + t));
    ok(c.fallocate(&f, 0, 8192, 70_001 + t));
    ok(c.fallocate(&f, libc::FALLOC_FL_KEEP_SIZE, 1 << 20, 4096));
    ok(c.fallocate(&f, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 16_384, 4096 * (1 + t)));
    ok(c.pwrite(&f, 20_000, 30_000));
    ok(c.sync_file_range(&f, 4096, 12_288 + t, libc::SYNC_FILE_RANGE_WRITE as i32));
    ok(c.on_fd(libc::SYS_fdatasync, "fdatasync", &f));
    ok(c.on_fd(libc::SYS_fsync, "fsync", &f));
    let over = c.open(format!("{home}/lengths"), libc::O_WRONLY | libc::O_TRUNC, 0, false);
    ok(c.close(&over));
    ok(c.close(&f));
}

/// Binds a socket to a path, without a zero at the end of it, and then to nothing that is a name.
fn bind(c: &mut Caller, path: String) {
    // SAFETY: takes numbers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let address = [&(libc::AF_UNIX as u16).to_ne_bytes()[..], path.as_bytes(), b"beyond\0"].concat();
    let len = 2 + path.len() as i64;
    let e = || Entry { fd: Some(socket), path: Some(path.clone()), ..Entry::default() };
    ok(c.call(libc::SYS_bind, "bind", [socket.into(), address.as_ptr() as i64, len], e()));
    // SAFETY: as above.
    let other = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let e = Entry { fd: Some(other), ..e() };
    fails(c.call(libc::SYS_bind, "bind", [other.into(), address.as_ptr() as i64, len], e), libc::EADDRINUSE);
    // An abstract name is no file operation and leaves no row.
    let address = [&(libc::AF_UNIX as u16).to_ne_bytes()[..], b"\0ioreel-test", path.as_bytes()].concat();
    // SAFETY: the address is of this length.
    unsafe { libc::syscall(libc::SYS_bind, other, address.as_ptr(), address.len()) };
    for fd in [socket, other] {
        // SAFETY: opened above.
        c.close_other(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) });
    }
}

fn names(c: &mut Caller, home: &str, dir: &Open) {
    let d = dir.fd;
    ok(c.with_mode(libc::SYS_mkdir, "mkdir", format!("{home}/sub"), 0o710));
    ok(c.with_mode_at(libc::SYS_mkdirat, "mkdirat", d, "sub/at", 0o711));
    let sub = c.openat(d, "sub", libc::O_RDONLY | libc::O_DIRECTORY, 0, false);
    ok(c.mknod(format!("{home}/fifo"), libc::S_IFIFO | 0o620, 0));
    ok(c.mknod(format!("{home}/node"), libc::S_IFREG | 0o621, 0));
    ok(c.mknodat(sub.fd, "null", libc::S_IFCHR | 0o622, 0x103));
    bind(c, format!("{home}/socket"));
    ok(c.two_paths(libc::SYS_symlink, "symlink", format!("../target{}", c.thread), format!("{home}/soft")));
    ok(c.symlinkat("a", d, "soft2"));
    ok(c.two_paths(libc::SYS_link, "link", format!("{home}/a"), format!("{home}/hard")));
    ok(c.two_at_flags(libc::SYS_linkat, "linkat", (d, "b"), (sub.fd, "hard2"), 0));
    ok(c.two_at_flags(libc::SYS_linkat, "linkat", (d, "soft2"), (CWD, &format!("{home}/a3")), libc::AT_SYMLINK_FOLLOW));
    ok(c.readlink(format!("{home}/soft"), 200));
    ok(c.readlink(format!("{home}/soft"), 3));
    ok(c.readlinkat(d, "soft2", 100));
    ok(c.stat(libc::SYS_lstat, "lstat", format!("{home}/soft")));
    ok(c.stat(libc::SYS_stat, "stat", format!("{home}/soft2")));
    ok(c.stat(libc::SYS_stat, "stat", format!("{home}/fifo")));
    ok(c.newfstatat(d, "soft", libc::AT_SYMLINK_NOFOLLOW));
    ok(c.newfstatat(sub.fd, "", libc::AT_EMPTY_PATH));
    ok(c.newfstatat(sub.fd, "../hard", 0));
    ok(c.statx(d, "c", 0, libc::STATX_BASIC_STATS));
    ok(c.statx(sub.fd, "null", libc::AT_SYMLINK_NOFOLLOW | libc::AT_STATX_DONT_SYNC, libc::STATX_ALL));
    ok(c.access(format!("{home}/a"), libc::R_OK | libc::W_OK));
    ok(c.faccessat(d, "sub", libc::X_OK));
    ok(c.faccessat2(d, "soft", libc::F_OK, libc::AT_SYMLINK_NOFOLLOW));
    ok(c.two_paths(libc::SYS_rename, "rename", format!("{home}/hard"), format!("{home}/renamed")));
    ok(c.renameat((d, "renamed"), (sub.fd, "moved")));
    ok(c.two_at_flags(libc::SYS_renameat2, "renameat2", (sub.fd, "moved"), (d, "b"), libc::RENAME_EXCHANGE as i32));
    ok(c.two_at_flags(libc::SYS_renameat2, "renameat2", (d, "a3"), (d, "a4"), libc::RENAME_NOREPLACE as i32));
    // Over a name that is there.
    ok(c.two_paths(libc::SYS_rename, "rename", format!("{home}/a4"), format!("{home}/c")));
    ok(c.on_path(libc::SYS_unlink, "unlink", format!("{home}/soft")));
    ok(c.unlinkat(sub.fd, "null", 0));
    ok(c.unlinkat(d, "sub/at", libc::AT_REMOVEDIR));
    // A file that is in use after it lost its name.
    let gone = c.openat(sub.fd, "gone", libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.unlinkat(sub.fd, "gone", 0));
    ok(c.write(&gone, &vec![b'g'; 91 + c.thread as usize]));
    ok(c.close(&gone));
    ok(c.with_mode(libc::SYS_mkdir, "mkdir", format!("{home}/empty"), 0o700));
    ok(c.on_path(libc::SYS_rmdir, "rmdir", format!("{home}/empty")));
    ok(c.close(&sub));
    long_names(c, home);
}

/// Paths of up to the 4095 bytes that Linux takes, and names that are no UTF-8.
fn long_names(c: &mut Caller, home: &str) {
    let mut deep = home.to_owned();
    for i in 0..4 {
        deep = format!("{deep}/{}{i}", "d".repeat(150 + c.thread as usize));
        ok(c.with_mode(libc::SYS_mkdir, "mkdir", deep.as_str(), 0o755));
    }
    let f = c.open(format!("{deep}/{}", "f".repeat(255)), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.write(&f, b"deep"));
    ok(c.close(&f));
    let mut longest = format!("{home}/");
    while longest.len() < 4095 - 2 {
        longest += "./";
    }
    ok(c.stat(libc::SYS_stat, "stat", format!("{longest}a")));
    let strange = [home.as_bytes(), b"/caf\xe9!\x80"].concat();
    let f = c.open(P::bytes(&strange), libc::O_WRONLY | libc::O_CREAT, 0o600, true);
    ok(c.close(&f));
    ok(c.on_path(libc::SYS_unlink, "unlink", P::bytes(&strange)));
    ok(c.access(format!("{home}//sub/./../a"), libc::F_OK));
    let utf8 = format!("{home}/größe-{}", c.thread);
    let f = c.creat(utf8, 0o600, true);
    ok(c.close(&f));
}

fn attributes(c: &mut Caller, home: &str, dir: &Open) {
    let (t, d) = (c.thread as i32, dir.fd);
    let s = i64::from(t);
    let a = format!("{home}/a");
    let f = c.open(a.as_str(), libc::O_RDWR, 0, false);
    ok(c.with_mode(libc::SYS_chmod, "chmod", a.as_str(), 0o600 + t as u32));
    ok(c.fchmod(&f, 0o4710 + t as u32));
    ok(c.with_mode_at(libc::SYS_fchmodat, "fchmodat", d, "a", 0o610 + t as u32));
    ok(c.chown(libc::SYS_chown, "chown", a.as_str(), 1000 + t, 2000 + t));
    ok(c.chown(libc::SYS_lchown, "lchown", format!("{home}/soft2"), -1, 3000 + t));
    ok(c.fchown(&f, 4000 + t, -1));
    ok(c.fchownat(d, "soft2", (5000 + t, 6000 + t), libc::AT_SYMLINK_NOFOLLOW));
    ok(c.utime(a.as_str(), Some([1_000_000 + s, 2_000_000 + s])));
    ok(c.utime(a.as_str(), None));
    ok(c.utimes(a.as_str(), Some([3_000_000_000_001 + s, 4_000_000_000_002 + s])));
    ok(c.futimesat(d, "a", Some([5_000_000_000_003 + s, 6_000_000_000_004 + s])));
    ok(c.utimensat(d, "a", Some([7_000_000_000_000_005 + s, 8_000_000_000_000_006 + s]), 0));
    ok(c.utimensat(d, "soft2", Some([OMIT, 9_000_000_000_000_007 + s]), libc::AT_SYMLINK_NOFOLLOW));
    ok(c.utimensat(CWD, a.as_str(), Some([NOW, OMIT]), 0));
    ok(c.utimensat(d, "b", None, 0));
    ok(c.utimensat_fd(&f, [1_234_567_890 + s, -1_000_000_001 - s]));
    ok(c.close(&f));
}

fn copies(c: &mut Caller, home: &str) {
    let t = i64::from(c.thread);
    let from = c.open(format!("{home}/positions"), libc::O_RDONLY, 0, false);
    let to = c.open(format!("{home}/copy"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.lseek(&from, 10 + t, libc::SEEK_SET));
    ok(c.copy_file_range((&from, None), (&to, None), 1001 + t, 0));
    ok(c.copy_file_range((&from, Some(2000 + t)), (&to, None), 502 + t, 0));
    ok(c.copy_file_range((&from, None), (&to, Some(5000 + t)), 303 + t, 0));
    ok(c.copy_file_range((&from, Some(3000 + t)), (&to, Some(7000 + t)), 204 + t, 0));
    ok(c.sendfile((&from, None), &to, 105 + t));
    ok(c.sendfile((&from, Some(4000 + t)), &to, 206 + t));
    ok(c.close(&from));
    ok(c.close(&to));
}

fn maps(c: &mut Caller, home: &str) {
    let t = i64::from(c.thread);
    let f = c.open(format!("{home}/maps"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.ftruncate(&f, 65_536));
    let len = 20_000 + t;
    let shared = ok(c.mmap(&f, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, 8192));
    let private = ok(c.mmap(&f, 4096 + t, libc::PROT_READ, libc::MAP_PRIVATE, 4096));
    // SAFETY: the mapping is writable and as long; the compiler must not leave the store out.
    unsafe { (shared as *mut u8).add(5000).write_volatile(b'm') };
    ok(c.msync(&f, shared, len, libc::MS_SYNC));
    ok(c.close(&f));
    // The mapping outlives the descriptor.
    ok(c.msync(&f, shared, 4096, libc::MS_ASYNC));
    ok(c.munmap(&f, private, 4096 + t));
    ok(c.munmap(&f, shared, len));
}

/// Arguments in pages that no one has touched since they were mapped: a probe cannot read them when the call
/// is entered.
fn not_resident(c: &mut Caller, home: &str) {
    const PAGE: usize = 4096;
    let name = format!("{home}/arguments");
    let target = format!("{home}/a");
    let pieces: Vec<Vec<u8>> = [31, 32 + c.thread as usize].iter().map(|n| vec![b'n'; *n]).collect();
    // Page 0: a path; the end of page 1 and the start of page 2: another; page 3: a vector.
    let mut bytes = vec![0_u8; 4 * PAGE];
    let middle = 2 * PAGE - target.len() / 2;
    for at in [100, middle] {
        bytes[at..at + target.len()].copy_from_slice(target.as_bytes());
    }
    for (i, piece) in pieces.iter().enumerate() {
        let at = 3 * PAGE + 16 * i;
        bytes[at..at + 8].copy_from_slice(&(piece.as_ptr() as u64).to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&(piece.len() as u64).to_le_bytes());
    }
    let f = c.open(name, libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.write(&f, &bytes));
    for at in [100, middle] {
        let map = ok(c.mmap(&f, bytes.len() as i64, libc::PROT_READ, libc::MAP_PRIVATE, 0));
        let path = P::at((map as usize + at) as *const libc::c_char, &target);
        ok(c.access(path, libc::F_OK));
        ok(c.munmap(&f, map, bytes.len() as i64));
    }
    let map = ok(c.mmap(&f, bytes.len() as i64, libc::PROT_READ, libc::MAP_PRIVATE, 0));
    let total = pieces.iter().map(|p| p.len() as i64).sum();
    assert_eq!(c.writev_at(&f, (map as usize + 3 * PAGE) as *const u8, 2, Some(total)), total);
    ok(c.munmap(&f, map, bytes.len() as i64));
    ok(c.close(&f));
}

/// Bulk: reads and writes anywhere, a different length each time.
fn random_io(c: &mut Caller, home: &str) {
    const FILE_BYTES: i64 = 4 << 20;
    let f = c.open(format!("{home}/random"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.ftruncate(&f, FILE_BYTES));
    // Numerical Recipes' generator: the list is the same every time.
    let mut state = 12_345_u64 + u64::from(c.thread);
    for i in 0..160 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as i64 % FILE_BYTES;
        let len = 1 + 8 * i + c.thread as usize;
        match (state >> 20) % 5 {
            0 => c.read(&f, len),
            1 => c.write(&f, &vec![b'w'; len]),
            2 => c.pread(&f, len, at),
            3 => c.pwrite(&f, len, at),
            _ => c.lseek(&f, at, libc::SEEK_SET),
        };
        assert!(f.pos().is_some_and(|p| p >= 0));
    }
    ok(c.close(&f));
}
