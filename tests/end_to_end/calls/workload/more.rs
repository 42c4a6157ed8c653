//! The calls beyond data and names: attributes, locks, pipes, advice, handles, ioctls, mounts. What a file system
//! does not have fails there, and is recorded all the same.

use std::os::fd::{AsRawFd, OwnedFd};

use super::{
    caller::{Caller, Open, P},
    calls::Iov,
    ioctls,
    log::Entry,
    mounts, ok, results,
};

/// All of them, in folder `home` as [`super::catalogue`] leaves it.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let dir = c.open(home, libc::O_RDONLY | libc::O_DIRECTORY, 0, false);
    let f = c.open(format!("{home}/more"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.write(&f, &vec![b'm'; 50_000 + c.thread as usize]));
    attributes(c, home, &dir, &f);
    locks(c, &f);
    pipes(c, &f);
    advice(c, &f);
    whole(c, home, &f);
    handles(c, &dir, &f);
    ioctls::all(c, home, &f);
    memory(c, &f);
    mounts::all(c, home, &dir);
    for open in [&f, &dir] {
        ok(c.close(open));
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    Some(ioreel_traces::text::from_bytes(bytes).to_string())
}

/// What a setting call is given.
fn set(name: &P, value: &[u8], flags: i32) -> Entry {
    Entry {
        name: name.text.clone().filter(|n| !n.is_empty()),
        value: if value.len() <= 256 { text(value) } else { None },
        len_bytes: Some(value.len() as i64),
        aux: Some(flags.into()),
        ..Entry::default()
    }
}

const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;

/// `struct xattr_args`.
#[repr(C)]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

/// Each call on extended attributes.
///
/// Long because it makes each call once, with all that is expected of its row.
fn attributes(c: &mut Caller, home: &str, dir: &Open, f: &Open) {
    let t = c.thread as usize;
    let path = || P::from(format!("{home}/more"));
    let values: [Vec<u8>; 5] =
        [vec![], vec![b'x'; 1 + t], b"\0\xff\x80nul".to_vec(), vec![b'y'; 256], vec![b'z'; 257 + t]];
    for (i, value) in values.iter().enumerate() {
        let name = P::from(format!("user.name{i}"));
        let args = |on: i64| [on, name.raw(), value.as_ptr() as i64, value.len() as i64, 0];
        let p = path();
        c.call(libc::SYS_setxattr, "setxattr", args(p.raw()), Entry { path: p.text.clone(), ..set(&name, value, 0) });
        let p = path();
        c.call(libc::SYS_lsetxattr, "lsetxattr", args(p.raw()), Entry { path: p.text.clone(), ..set(&name, value, 0) });
        let e = Entry { name: name.text.clone(), ..f.entry() };
        c.call(
            libc::SYS_fsetxattr,
            "fsetxattr",
            args(f.fd.into()),
            Entry { fd: e.fd, ofd: e.ofd, file: e.file, ..set(&name, value, 0) },
        );
        let uargs = XattrArgs { value: value.as_ptr() as u64, size: value.len() as u32, flags: 1 };
        let p = P::from("more");
        let e = Entry {
            dirfd: Some(dir.fd),
            file: dir.file,
            path: p.text.clone(),
            flags: Some(libc::AT_SYMLINK_NOFOLLOW.into()),
            ..set(&name, value, 1)
        };
        let args =
            [dir.fd.into(), p.raw(), libc::AT_SYMLINK_NOFOLLOW.into(), name.raw(), (&raw const uargs) as i64, 16];
        c.call(SYS_SETXATTRAT, "setxattrat", args, e);
    }
    // Refused: no such name space, no name, a name without end, values and names that are not there.
    let value = [b'v'; 9];
    for (name, flags) in [("nowhere.x", 0), ("", 0), (&"n".repeat(255), 0), ("user.name1", libc::XATTR_CREATE)] {
        let (p, name) = (path(), P::from(name));
        let args = [p.raw(), name.raw(), value.as_ptr() as i64, 9, flags.into()];
        c.call(libc::SYS_setxattr, "setxattr", args, Entry { path: p.text.clone(), ..set(&name, &value, flags) });
    }
    let (p, name) = (path(), P::from("user.none"));
    let e = Entry { value: None, path: p.text.clone(), ..set(&name, &value, 0) };
    c.call(libc::SYS_setxattr, "setxattr", [p.raw(), name.raw(), 0x10, 9, 0], e);
    let mut room = vec![0_u8; 300 + t];
    let (at, len) = (room.as_mut_ptr() as i64, room.len() as i64);
    for name in ["user.name1", "user.missing"] {
        let name = P::from(name);
        let asked = || Entry { name: name.text.clone(), len_bytes: Some(len), ..Entry::default() };
        let p = path();
        c.call(
            libc::SYS_getxattr,
            "getxattr",
            [p.raw(), name.raw(), at, len],
            Entry { path: p.text.clone(), ..asked() },
        );
        let p = path();
        c.call(
            libc::SYS_lgetxattr,
            "lgetxattr",
            [p.raw(), name.raw(), at, len],
            Entry { path: p.text.clone(), ..asked() },
        );
        let e = Entry { name: name.text.clone(), len_bytes: Some(len), ..f.entry() };
        c.call(libc::SYS_fgetxattr, "fgetxattr", [f.fd.into(), name.raw(), at, len], e);
        let uargs = XattrArgs { value: at as u64, size: len as u32, flags: 0 };
        let p = P::from("more");
        let e = Entry {
            dirfd: Some(dir.fd),
            path: p.text.clone(),
            file: dir.file,
            flags: Some(0),
            aux: Some(0),
            ..asked()
        };
        c.call(SYS_GETXATTRAT, "getxattrat", [dir.fd.into(), p.raw(), 0, name.raw(), (&raw const uargs) as i64, 16], e);
    }
    let asked = || Entry { len_bytes: Some(len), ..Entry::default() };
    let p = path();
    c.call(libc::SYS_listxattr, "listxattr", [p.raw(), at, len], Entry { path: p.text.clone(), ..asked() });
    let p = path();
    c.call(libc::SYS_llistxattr, "llistxattr", [p.raw(), at, len], Entry { path: p.text.clone(), ..asked() });
    c.call(libc::SYS_flistxattr, "flistxattr", [f.fd.into(), at, len], Entry { len_bytes: Some(len), ..f.entry() });
    let p = P::from("more");
    let e = Entry { dirfd: Some(dir.fd), path: p.text.clone(), file: dir.file, flags: Some(0), ..asked() };
    c.call(SYS_LISTXATTRAT, "listxattrat", [dir.fd.into(), p.raw(), 0, at, len], e);
    let name = P::from("user.name0");
    let removed = || Entry { name: name.text.clone(), ..Entry::default() };
    let p = path();
    c.call(libc::SYS_removexattr, "removexattr", [p.raw(), name.raw()], Entry { path: p.text.clone(), ..removed() });
    let p = path();
    c.call(libc::SYS_lremovexattr, "lremovexattr", [p.raw(), name.raw()], Entry { path: p.text.clone(), ..removed() });
    let e = Entry { name: name.text.clone(), ..f.entry() };
    c.call(libc::SYS_fremovexattr, "fremovexattr", [f.fd.into(), name.raw()], e);
    let p = P::from("more");
    let e = Entry { dirfd: Some(dir.fd), path: p.text.clone(), file: dir.file, flags: Some(0), ..removed() };
    c.call(SYS_REMOVEXATTRAT, "removexattrat", [dir.fd.into(), p.raw(), 0, name.raw()], e);
    file_attributes(c, dir);
}

/// file_getattr and file_setattr of 6.17.
fn file_attributes(c: &mut Caller, dir: &Open) {
    let mut attr = [0_u64; 3];
    let at = attr.as_mut_ptr() as i64;
    let p = P::from("more");
    let e = || Entry { dirfd: Some(dir.fd), file: dir.file, path: p.text.clone(), flags: Some(0), ..Entry::default() };
    let ret = c.call(468, "file_getattr", [dir.fd.into(), p.raw(), at, 24, 0], e());
    if ret == 0 {
        c.last().aux = Some(attr[0] as i64);
        c.last().aux2 = Some((attr[2] & 0xffff_ffff) as i64);
    }
    attr[0] = 0x80;
    let at = attr.as_ptr() as i64;
    let e = Entry { aux: Some(0x80), ..e() };
    c.call(469, "file_setattr", [dir.fd.into(), p.raw(), at, 24, 0], e);
}

fn locks(c: &mut Caller, f: &Open) {
    let t = i64::from(c.thread);
    let bad = Open::bad(987);
    for (open, op) in
        [(f, libc::LOCK_SH), (f, libc::LOCK_EX | libc::LOCK_NB), (f, libc::LOCK_UN), (f, 99), (&bad, libc::LOCK_SH)]
    {
        c.call(libc::SYS_flock, "flock", [open.fd.into(), op.into()], Entry { flags: Some(op.into()), ..open.entry() });
    }
    let commands =
        [libc::F_SETLK, libc::F_SETLKW, libc::F_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW, libc::F_OFD_GETLK];
    for (i, command) in commands.into_iter().enumerate() {
        for (kind, whence) in [(libc::F_RDLCK, libc::SEEK_SET), (libc::F_UNLCK, libc::SEEK_CUR), (77, 0)] {
            let (start, len) = (100 * i as i64 + t, 7 + i as i64);
            // SAFETY: plain integers, of which zero is a value.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_whence, lock.l_start, lock.l_len) = (kind as i16, whence as i16, start, len);
            let e = Entry {
                flags: Some(command.into()),
                mode: Some(kind),
                aux2: Some(whence.into()),
                offset_bytes: Some(start),
                len_bytes: Some(len),
                ..f.entry()
            };
            let ret = c.call(libc::SYS_fcntl, "fcntl", [f.fd.into(), command.into(), (&raw mut lock) as i64], e);
            if ret == 0 && matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
                c.last().aux = Some(lock.l_type.into());
            }
        }
    }
    // What concerns files among the other commands; F_GETFL and F_GETFD are not file operations.
    let others =
        [(libc::F_SETFL, libc::O_APPEND), (libc::F_SETFL, 0), (libc::F_SETLEASE, libc::F_UNLCK), (libc::F_GETLEASE, 0)];
    for (command, argument) in
        others.into_iter().chain([(libc::F_SETFD, libc::FD_CLOEXEC), (libc::F_SETFD, 0), (9999, 3)])
    {
        let e = Entry { flags: Some(command.into()), aux: Some(argument.into()), ..f.entry() };
        c.call(libc::SYS_fcntl, "fcntl", [f.fd.into(), command.into(), argument.into()], e);
    }
    let e = Entry { flags: Some(libc::F_SETFD.into()), aux: Some(1), ..bad.entry() };
    c.call(libc::SYS_fcntl, "fcntl", [bad.fd.into(), libc::F_SETFD.into(), 1], e);
    // SAFETY: neither call writes anything.
    let _ = unsafe { (libc::fcntl(f.fd, libc::F_GETFD), libc::fcntl(f.fd, libc::F_GETFL)) };
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe().unwrap()
}

/// splice, tee and vmsplice. Pipes are no files of the file system: nothing is said of their identity.
fn pipes(c: &mut Caller, f: &Open) {
    let t = i64::from(c.thread);
    let ((r1, w1), (r2, w2)) = (pipe(), pipe());
    let [r1n, w1n, w2n] = [&r1, &w1, &w2].map(AsRawFd::as_raw_fd);
    let mut at = 1000 + t;
    let e = Entry {
        fd2: Some(w1n),
        offset_bytes: Some(at),
        len_bytes: Some(600 + t),
        flags: Some(1),
        aux: Some(2),
        ..f.entry()
    };
    let args = [f.fd.into(), (&raw mut at) as i64, w1n.into(), 0, 600 + t, 1];
    results(c.call(libc::SYS_splice, "splice", args, e), 600 + t);
    let e = Entry { fd: Some(r1n), fd2: Some(w2n), len_bytes: Some(300 + t), flags: Some(2), ..Entry::default() };
    results(c.call(libc::SYS_tee, "tee", [r1n.into(), w2n.into(), 300 + t, 2], e), 300 + t);
    // Back into the file, at its own position.
    let e = Entry {
        fd: Some(r1n),
        fd2: Some(f.fd),
        ofd2: f.ofd,
        file2: f.file,
        offset2_bytes: f.pos(),
        len_bytes: Some(600 + t),
        flags: Some(0),
        aux: Some(3),
        ..Entry::default()
    };
    let moved = c.call(libc::SYS_splice, "splice", [r1n.into(), 0, f.fd.into(), 0, 600 + t, 0], e);
    f.set_pos(f.pos().unwrap() + moved.max(0));
    let iov = Iov::new(&[40, 50 + t as usize]);
    let e = Entry { fd: Some(w2n), len_bytes: Some(90 + t), flags: Some(2), aux: Some(2), ..Entry::default() };
    results(c.call(libc::SYS_vmsplice, "vmsplice", [w2n.into(), iov.raw(), 2, 2], e), 90 + t);
    let e = Entry { fd2: Some(f.fd), file2: f.file, ofd2: f.ofd, len_bytes: Some(9), flags: Some(0), ..f.entry() };
    c.call(libc::SYS_splice, "splice", [f.fd.into(), 0, f.fd.into(), 0, 9, 0], e);
    for end in [r1, w1, r2, w2] {
        c.close_other(end);
    }
}

fn advice(c: &mut Caller, f: &Open) {
    let t = i64::from(c.thread);
    let bad = Open::bad(987);
    for open in [f, &bad] {
        let e = Entry { offset_bytes: open.ofd.map(|_| 4096 + t), len_bytes: Some(8192 + t), ..open.entry() };
        c.call(libc::SYS_readahead, "readahead", [open.fd.into(), 4096 + t, 8192 + t], e);
        for advice in [libc::POSIX_FADV_SEQUENTIAL, libc::POSIX_FADV_DONTNEED, 55] {
            let e = Entry { flags: Some(advice.into()), len_bytes: Some(77 + t), ..open.entry() };
            let e = Entry { offset_bytes: open.ofd.map(|_| 10 + t), ..e };
            c.call(libc::SYS_fadvise64, "fadvise64", [open.fd.into(), 10 + t, 77 + t, advice.into()], e);
        }
        let (range, mut found) = ([t * 4096, 5 * 4096_i64], [0_i64; 5]);
        let e = Entry {
            offset_bytes: open.ofd.map(|_| range[0]),
            len_bytes: Some(range[1]),
            flags: Some(0),
            ..open.entry()
        };
        let args = [open.fd.into(), range.as_ptr() as i64, found.as_mut_ptr() as i64, 0];
        if c.call(451, "cachestat", args, e) == 0 {
            (c.last().aux, c.last().aux2) = (Some(found[0]), Some(found[1]));
        }
    }
}

fn whole(c: &mut Caller, home: &str, f: &Open) {
    c.on_fd(libc::SYS_syncfs, "syncfs", f);
    c.on_fd(libc::SYS_syncfs, "syncfs", &Open::bad(987));
    if c.thread == 0 {
        // Writes out the whole machine, whatever else goes on there.
        c.call(libc::SYS_sync, "sync", [], Entry::default());
    }
    for path in [home, "/nowhere/at/all"] {
        let p = P::from(path);
        let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
        let e = Entry { path: p.text.clone(), ..Entry::default() };
        let ret = c.call(libc::SYS_statfs, "statfs", [p.raw(), found.as_mut_ptr() as i64], e);
        room_found(c, ret, &found);
    }
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    let ret = c.call(libc::SYS_fstatfs, "fstatfs", [f.fd.into(), found.as_mut_ptr() as i64], f.entry());
    room_found(c, ret, &found);
    let mut old = [0_u8; 64];
    let e = Entry { aux: Some(0x1234), ..Entry::default() };
    c.call(libc::SYS_ustat, "ustat", [0x1234, old.as_mut_ptr() as i64], e);
    let mut cwd = vec![0_u8; 4000 + c.thread as usize];
    for len in [cwd.len() as i64, 1] {
        let e = Entry { len_bytes: Some(len), ..Entry::default() };
        c.call(libc::SYS_getcwd, "getcwd", [cwd.as_mut_ptr() as i64, len], e);
    }
    let p = P::from("/nowhere");
    let e = Entry { path: p.text.clone(), flags: Some(0x8000_0701), aux: Some(42), ..Entry::default() };
    c.call(libc::SYS_quotactl, "quotactl", [0x8000_0701, p.raw(), 42, 0], e);
    let e = Entry { flags: Some(0x8000_0701), aux: Some(43), ..f.entry() };
    c.call(libc::SYS_quotactl_fd, "quotactl_fd", [f.fd.into(), 0x8000_0701, 43, 0], e);
}

fn room_found(c: &mut Caller, ret: i64, found: &std::mem::MaybeUninit<libc::statfs>) {
    if ret == 0 {
        // SAFETY: the kernel filled it in.
        let found = unsafe { found.assume_init() };
        let e = c.last();
        e.aux = Some(found.f_type);
        e.len_bytes = Some(found.f_blocks as i64 * found.f_bsize);
        // Room changes with what others do.
    }
}

fn handles(c: &mut Caller, dir: &Open, f: &Open) {
    let mut handle = [0_u32; 34];
    let mut mount_id = 0_i32;
    let p = P::from("more");
    for (room, flags) in [(128_u32, 0), (0, 0), (128, 1 << 30)] {
        handle[0] = room;
        let e =
            Entry { dirfd: Some(dir.fd), file: dir.file, path: p.text.clone(), flags: Some(flags), ..Entry::default() };
        let args = [dir.fd.into(), p.raw(), handle.as_mut_ptr() as i64, (&raw mut mount_id) as i64, flags];
        let ret = c.call(libc::SYS_name_to_handle_at, "name_to_handle_at", args, e);
        if ret < 0 {
            continue;
        }
        let bytes: Vec<u8> = handle[2..].iter().flat_map(|w| w.to_le_bytes()).take(handle[0] as usize).collect();
        let taken = |e: &mut Entry| {
            (e.value, e.len_bytes, e.aux) = (text(&bytes), Some(bytes.len() as i64), Some((handle[1] as i32).into()));
        };
        taken(c.last());
        let mut e =
            Entry { dirfd: Some(dir.fd), file2: dir.file, flags: Some(libc::O_RDONLY.into()), ..Entry::default() };
        taken(&mut e);
        let args = [dir.fd.into(), handle.as_ptr() as i64, libc::O_RDONLY.into()];
        let open = c.opening(libc::SYS_open_by_handle_at, "open_by_handle_at", args, e);
        if open.ret() >= 0 {
            assert_eq!(open.file.map(|i| i.ino), f.file.map(|i| i.ino));
            ok(c.close(&open));
        }
    }
    let mut e = Entry { dirfd: Some(dir.fd), file: dir.file, flags: Some(0), ..Entry::default() };
    handle = [0; 34];
    (handle[0], handle[1]) = (8, 0xbad);
    (e.value, e.len_bytes, e.aux) = (text(&[0; 8]), Some(8), Some(0xbad));
    let args = [dir.fd.into(), handle.as_ptr() as i64, 0];
    (e.file2, e.file) = (e.file, None);
    let bad = c.opening(libc::SYS_open_by_handle_at, "open_by_handle_at", args, Entry { aux: Some(0xbad), ..e });
    assert!(bad.ret() < 0);
}

fn memory(c: &mut Caller, f: &Open) {
    let t = i64::from(c.thread);
    let at = ok(c.mmap(f, 20_480, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, 4096));
    let there = |address: i64, len: i64, flags: Option<i32>| Entry {
        file: f.file,
        aux: Some(address),
        len_bytes: Some(len),
        flags: flags.map(Into::into),
        ..Entry::default()
    };
    for advice in [libc::MADV_WILLNEED, libc::MADV_DONTNEED, 77] {
        let e = there(at, 8000 + t, Some(advice));
        c.call(libc::SYS_madvise, "madvise", [at, 8000 + t, advice.into()], e);
    }
    let mut resident = [0_u8; 8];
    c.call(libc::SYS_mincore, "mincore", [at, 20_480, resident.as_mut_ptr() as i64], there(at, 20_480, None));
    let e = Entry { aux2: Some(40_960), ..there(at, 20_480, Some(libc::MREMAP_MAYMOVE)) };
    let new = ok(c.call(libc::SYS_mremap, "mremap", [at, 20_480, 40_960, libc::MREMAP_MAYMOVE.into(), 0], e));
    let e = Entry { offset_bytes: Some(8192), ..there(new, 4096, Some(0)) };
    c.call(libc::SYS_remap_file_pages, "remap_file_pages", [new, 4096, 0, 2, 0], e);
    ok(c.munmap(f, new, 40_960));
    // A file in memory alone.
    let name = P::from(format!("memory{t}"));
    let e = Entry { name: name.text.clone(), flags: Some(libc::MFD_ALLOW_SEALING.into()), ..Entry::default() };
    let m = c.opening(libc::SYS_memfd_create, "memfd_create", [name.raw(), libc::MFD_ALLOW_SEALING.into()], e);
    ok(c.ftruncate(&m, 10_000 + t));
    ok(c.pwrite(&m, 100, 200 + t));
    let e = Entry { flags: Some(libc::F_ADD_SEALS.into()), aux: Some(libc::F_SEAL_SHRINK.into()), ..m.entry() };
    results(
        c.call(libc::SYS_fcntl, "fcntl", [m.fd.into(), libc::F_ADD_SEALS.into(), libc::F_SEAL_SHRINK.into()], e),
        0,
    );
    assert_eq!(c.ftruncate(&m, 5), -i64::from(libc::EPERM));
    ok(c.close(&m));
    let e = Entry { flags: Some(0x77), ..Entry::default() };
    c.call(libc::SYS_memfd_secret, "memfd_secret", [0x77], e);
}
