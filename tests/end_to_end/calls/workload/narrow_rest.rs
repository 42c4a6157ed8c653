//! The calls by the 32-bit entry that `narrow` does not make: each of the document's numbers is met.

use super::{
    caller::{Caller, Open, P},
    log::Entry,
    narrow::Low,
    ok,
};

/// A number that is never open here.
const CLOSED: i64 = 987;
const NOWHERE: &str = "/nowhere/32";

/// All of them, in folder `home`.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let mut low = Low::new();
    let f = c.open(format!("{home}/narrow-rest"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.write(&f, &vec![b'n'; 9_000 + c.thread as usize]));
    attributes(c, &mut low, home, &f);
    names(c, &mut low, home);
    descriptors(c, &mut low, &f);
    memory(c, &mut low, &f);
    mounts(c, &mut low);
    whole(c, &mut low, home, &f);
    ok(c.close(&f));
}

fn on(path: &str) -> Entry {
    Entry { path: Some(path.into()), ..Entry::default() }
}

/// Relative to the working directory, where it counts.
fn at(path: &str) -> Entry {
    Entry { dirfd: Some(libc::AT_FDCWD), ..on(path) }
}

fn attributes(c: &mut Caller, low: &mut Low, home: &str, f: &Open) {
    let t = i64::from(c.thread);
    let path = format!("{home}/narrow-rest");
    let p = low.path(&path);
    let word = "narrow rest";
    let (name, value, room) = (low.path("user.rest"), low.put(word.as_bytes()), low.put(&[0; 512]));
    let size = word.len() as i64;
    let given = |e: Entry| Entry {
        name: Some("user.rest".into()),
        value: Some(word.into()),
        len_bytes: Some(size),
        aux: Some(0),
        ..e
    };
    c.call32(227, "lsetxattr", [p, name, value, size, 0], given(on(&path)));
    c.call32(228, "fsetxattr", [f.fd.into(), name, value, size, 0], given(f.entry()));
    // struct xattr_args: 64 bits for the pointer, then size and flags.
    let args = low.words(&[value as u32, 0, size as u32, 0]);
    let e = Entry { flags: Some(0), ..given(at(&path)) };
    c.call32(463, "setxattrat", [-100, p, 0, name, args, 16], e);
    let asked = |e: Entry| Entry { name: Some("user.rest".into()), len_bytes: Some(300 + t), ..e };
    c.call32(229, "getxattr", [p, name, room, 300 + t], asked(on(&path)));
    c.call32(230, "lgetxattr", [p, name, room, 300 + t], asked(on(&path)));
    let args = low.words(&[room as u32, 0, 300 + t as u32, 0]);
    let e = Entry { flags: Some(0), aux: Some(0), ..asked(at(&path)) };
    c.call32(464, "getxattrat", [-100, p, 0, name, args, 16], e);
    let listed = |e: Entry| Entry { len_bytes: Some(400 + t), ..e };
    c.call32(232, "listxattr", [p, room, 400 + t], listed(on(&path)));
    c.call32(233, "llistxattr", [p, room, 400 + t], listed(on(&path)));
    c.call32(234, "flistxattr", [f.fd.into(), room, 400 + t], listed(f.entry()));
    c.call32(465, "listxattrat", [-100, p, 0, room, 400 + t], Entry { flags: Some(0), ..listed(at(&path)) });
    let named = |e: Entry| Entry { name: Some("user.rest".into()), ..e };
    c.call32(235, "removexattr", [p, name], named(on(&path)));
    c.call32(236, "lremovexattr", [p, name], named(on(&path)));
    c.call32(237, "fremovexattr", [f.fd.into(), name], named(f.entry()));
    c.call32(466, "removexattrat", [-100, p, 0, name], Entry { flags: Some(0), ..named(at(&path)) });
    let attr = low.put(&[0; 24]);
    if c.call32(468, "file_getattr", [-100, p, attr, 24, 0], Entry { flags: Some(0), ..at(&path) }) == 0 {
        let b = low.get(attr, 24);
        c.last().aux = Some(i64::from_le_bytes(b[..8].try_into().unwrap()));
    }
    let attr = low.words(&[0x80, 0, 0, 0, 0, 0]);
    c.call32(469, "file_setattr", [-100, p, attr, 24, 0], Entry { flags: Some(0), aux: Some(0x80), ..at(&path) });
    let e = Entry { mode: Some(4), flags: Some(0x100), ..at(&path) };
    ok(c.call32(439, "faccessat2", [-100, p, 4, 0x100], e));
    c.call32(452, "fchmodat2", [-100, p, 0o640, 0], Entry { mode: Some(0o640), flags: Some(0), ..at(&path) });
    let statfs = |c: &mut Caller, low: &mut Low, nr: i64, args: [i64; 3], wide: bool| {
        if c.call32(nr, "fstatfs", args, f.entry()) == 0 {
            let b = low.get(room, 96);
            let word = |i: usize| i64::from(u32::from_le_bytes(b[i..i + 4].try_into().unwrap()));
            let blocks = if wide { word(8) | word(12) << 32 } else { word(8) };
            (c.last().aux, c.last().len_bytes) = (Some(word(0)), Some(blocks * word(4)));
        }
    };
    statfs(c, low, 100, [f.fd.into(), room, 0], false);
    statfs(c, low, 269, [f.fd.into(), 84, room], true);
}

fn names(c: &mut Caller, low: &mut Low, home: &str) {
    let (first, second) = (format!("{home}/narrow-rest"), format!("{home}/nr-second"));
    let (p, q) = (low.path(&first), low.path(&second));
    let pair = |from: &str, to: &str| Entry { path2: Some(to.into()), dirfd2: Some(libc::AT_FDCWD), ..at(from) };
    c.call32(303, "linkat", [-100, p, -100, q, 0], Entry { flags: Some(0), ..pair(&first, &second) });
    let third = format!("{home}/nr-third");
    let r = low.path(&third);
    c.call32(302, "renameat", [-100, q, -100, r], pair(&second, &third));
    let e = Entry { flags: Some(1), ..pair(&third, &second) };
    c.call32(353, "renameat2", [-100, r, -100, q, 1], e);
    let target = low.path("some-target");
    let e = Entry { path2: Some(third.clone()), dirfd2: Some(libc::AT_FDCWD), ..on("some-target") };
    c.call32(304, "symlinkat", [target, -100, r], e);
    let room = low.put(&[0; 128]);
    c.call32(305, "readlinkat", [-100, r, room, 70], Entry { len_bytes: Some(70), ..at(&third) });
    let fifo = format!("{home}/nr-fifo");
    let n = low.path(&fifo);
    let e = Entry { mode: Some(0o010_600), aux: Some(0), ..on(&fifo) };
    c.call32(14, "mknod", [n, 0o010_600, 0], e);
    // SAFETY: takes numbers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let name = format!("{home}/nr-socket");
    let address = low.put(&[&(libc::AF_UNIX as u16).to_ne_bytes()[..], name.as_bytes()].concat());
    let e = Entry { fd: Some(socket), ..on(&name) };
    c.call32(361, "bind", [socket.into(), address, 2 + name.len() as i64], e);
    // SAFETY: opened above.
    c.close_other(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(socket) });
    let none = low.path(NOWHERE);
    for (nr, op) in [(12, "chdir"), (61, "chroot"), (115, "swapoff")] {
        assert!(c.call32(nr, op, [none], on(NOWHERE)) < 0);
    }
    c.call32(87, "swapon", [none, 0x8000], Entry { flags: Some(0x8000), ..on(NOWHERE) });
    c.call32(52, "umount2", [none, 2], Entry { flags: Some(2), ..on(NOWHERE) });
    let other = low.path("/nowhere/put");
    c.call32(217, "pivot_root", [none, other], Entry { path2: Some("/nowhere/put".into()), ..on(NOWHERE) });
    // A handle without room, and one that is nobody's.
    let (handle, mount) = (low.words(&[0; 40]), low.words(&[0]));
    c.call32(341, "name_to_handle_at", [-100, p, handle, mount, 0], Entry { flags: Some(0), ..at(&first) });
    let handle = low.words(&[8, 0xbad, 0, 0]);
    let e = Entry {
        dirfd: Some(libc::AT_FDCWD),
        flags: Some(0),
        value: Some(ioreel_traces::text::from_bytes(&[0; 8]).to_string()),
        len_bytes: Some(8),
        aux: Some(0xbad),
        ..Entry::default()
    };
    assert!(c.call32(342, "open_by_handle_at", [-100, handle, 0], e) < 0);
    let flags = u64::from(libc::O_RDWR as u32 | libc::O_CREAT as u32);
    let how = low.put(&[flags, 0o640, 0].iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    let made = format!("{home}/nr-made");
    let m = low.path(&made);
    let e = Entry { flags: Some(flags as i64), mode: Some(0o640), aux: Some(1), aux2: Some(0), ..at(&made) };
    let open = c.opening32(437, "openat2", [-100, m, how, 24], e);
    ok(c.close(&open));
}

fn descriptors(c: &mut Caller, low: &mut Low, f: &Open) {
    let t = i64::from(c.thread);
    let fd = i64::from(f.fd);
    ok(c.call32(310, "unshare", [0], Entry { flags: Some(0), ..Entry::default() }));
    let e = Entry { flags: Some(libc::CLONE_NEWNS.into()), ..f.entry() };
    assert!(c.call32(346, "setns", [fd, libc::CLONE_NEWNS.into()], e) < 0);
    c.call32(133, "fchdir", [fd], f.entry());
    let room = low.put(&[0; 2048]);
    for (nr, op) in [(141, "getdents"), (220, "getdents64")] {
        c.call32(nr, op, [fd, room, 1000 + t], Entry { len_bytes: Some(1000 + t), ..f.entry() });
    }
    let closed = || Open::bad(CLOSED as i32).entry();
    let e = Entry { fd2: Some(CLOSED as i32), len_bytes: Some(70 + t), flags: Some(0), aux: Some(3), ..f.entry() };
    assert!(c.call32(313, "splice", [fd, 0, CLOSED, 0, 70 + t, 0], e) < 0);
    let e = Entry { fd2: Some(CLOSED as i32 + 1), len_bytes: Some(71 + t), flags: Some(0), ..closed() };
    c.call32(315, "tee", [CLOSED, CLOSED + 1, 71 + t, 0], e);
    let iov = low.words(&[room as u32, 30, room as u32, 40 + t as u32]);
    let e = Entry { len_bytes: Some(70 + t), aux: Some(2), flags: Some(0), ..closed() };
    c.call32(316, "vmsplice", [CLOSED, iov, 2, 0], e.clone());
    let e = Entry { flags: Some(libc::MADV_COLD.into()), aux2: Some(0), ..e };
    c.call32(440, "process_madvise", [CLOSED, iov, 2, libc::MADV_COLD.into(), 0], e);
    let e = Entry { fd: Some(CLOSED as i32), fd2: Some(3), flags: Some(0), ..Entry::default() };
    c.call32(438, "pidfd_getfd", [CLOSED, 3, 0], e);
    let range = low.put(&[t * 4096, 4096].iter().flat_map(|w: &i64| w.to_le_bytes()).collect::<Vec<_>>());
    let e = Entry { offset_bytes: Some(t * 4096), len_bytes: Some(4096), flags: Some(0), ..f.entry() };
    c.call32(451, "cachestat", [fd, range, room, 0], e);
}

fn memory(c: &mut Caller, low: &mut Low, f: &Open) {
    let e = Entry {
        len_bytes: Some(8192),
        mode: Some(libc::PROT_READ),
        flags: Some(libc::MAP_SHARED.into()),
        offset_bytes: Some(0),
        aux: Some(0),
        ..f.entry()
    };
    let args = [0, 8192, libc::PROT_READ.into(), libc::MAP_SHARED.into(), f.fd.into(), 0];
    let map = i64::from(c.call32(192, "mmap", args, e) as u32);
    c.last().ret = map;
    let there = || Entry { file: f.file, aux: Some(map), len_bytes: Some(8192), ..Entry::default() };
    let resident = low.put(&[0; 16]);
    c.call32(218, "mincore", [map, 8192, resident], there());
    let e = Entry { aux2: Some(8192), flags: Some(0), ..there() };
    c.call32(163, "mremap", [map, 8192, 8192, 0, 0], e);
    c.last().ret = map;
    let e = Entry { offset_bytes: Some(4096), flags: Some(0), len_bytes: Some(4096), ..there() };
    c.call32(257, "remap_file_pages", [map, 4096, 0, 1, 0], e);
    ok(c.call32(91, "munmap", [map, 8192], there()));
    let text = format!("narrow{}", c.thread);
    let name = low.path(&text);
    let e = Entry { name: Some(text), flags: Some(0), ..Entry::default() };
    let open = c.opening32(356, "memfd_create", [name, 0], e);
    ok(c.close(&open));
    c.call32(447, "memfd_secret", [0x77], Entry { flags: Some(0x77), ..Entry::default() });
}

fn mounts(c: &mut Caller, low: &mut Low) {
    let none = low.path(NOWHERE);
    let (source, kind, data) = (low.path("source"), low.path("nosuchfs"), low.path("a=b"));
    let e = Entry {
        path2: Some(NOWHERE.into()),
        name: Some("nosuchfs".into()),
        value: Some("a=b".into()),
        flags: Some(0),
        ..on("source")
    };
    c.call32(21, "mount", [source, none, kind, 0, data], e);
    let e = Entry { name: Some("nosuchfs".into()), flags: Some(0), ..Entry::default() };
    c.call32(430, "fsopen", [kind, 0], e);
    let closed = || Open::bad(CLOSED as i32).entry();
    let (key, value) = (low.path("size"), low.path("64k"));
    let e = Entry { name: Some("size".into()), value: Some("64k".into()), flags: Some(1), aux: Some(0), ..closed() };
    c.call32(431, "fsconfig", [CLOSED, 1, key, value, 0], e);
    let e = Entry { dirfd: Some(CLOSED as i32), flags: Some(1), aux: Some(2), ..Entry::default() };
    c.call32(432, "fsmount", [CLOSED, 1, 2], e);
    c.call32(433, "fspick", [-100, none, 1], Entry { flags: Some(1), ..at(NOWHERE) });
    c.call32(428, "open_tree", [-100, none, 0], Entry { flags: Some(0), ..at(NOWHERE) });
    let attributes = low.words(&[1, 0, 0, 0, 0, 0, 0, 0]);
    let changed = || Entry { flags: Some(0), aux: Some(1), aux2: Some(0), ..at(NOWHERE) };
    c.call32(467, "open_tree_attr", [-100, none, 0, attributes, 32], changed());
    c.call32(442, "mount_setattr", [-100, none, 0, attributes, 32], changed());
    let e = Entry { path2: Some(NOWHERE.into()), dirfd2: Some(libc::AT_FDCWD), flags: Some(0), ..at(NOWHERE) };
    c.call32(429, "move_mount", [-100, none, -100, none, 0], e);
    let request = |low: &mut Low, id: i64, parameter: i64| {
        low.put(&[24, id, parameter].iter().flat_map(|w: &i64| w.to_le_bytes()).collect::<Vec<_>>())
    };
    let room = low.put(&[0; 256]);
    let e = |aux: i64, aux2: i64, len: i64| Entry {
        aux: Some(aux),
        aux2: Some(aux2),
        len_bytes: Some(len),
        flags: Some(0),
        ..Entry::default()
    };
    let asked = request(low, 1, 3);
    c.call32(457, "statmount", [asked, room, 32, 0], e(1, 3, 32));
    let asked = request(low, -1, 0);
    c.call32(458, "listmount", [asked, room, 4, 0], e(-1, 0, 4));
}

fn whole(c: &mut Caller, low: &mut Low, home: &str, f: &Open) {
    if c.thread == 0 {
        c.call32(36, "sync", [], Entry::default());
    }
    let room = low.put(&[0; 4096]);
    c.call32(62, "ustat", [0x1234, room], Entry { aux: Some(0x1234), ..Entry::default() });
    c.call32(183, "getcwd", [room, 3000], Entry { len_bytes: Some(3000), ..Entry::default() });
    let p = low.path(home);
    let command = 0x8000_0701_u32;
    let e = Entry { flags: Some(command.into()), aux: Some(42), ..on(home) };
    c.call32(131, "quotactl", [command.into(), p, 42, 0], e);
    let e = Entry { flags: Some(command.into()), aux: Some(43), ..f.entry() };
    c.call32(443, "quotactl_fd", [f.fd.into(), command.into(), 43, 0], e);
    let path = format!("{home}/nr-creat");
    let q = low.path(&path);
    let e = Entry { mode: Some(0o604), aux: Some(1), ..on(&path) };
    let made = c.opening32(8, "creat", [q, 0o604], e);
    ok(c.close(&made));
    ok(c.on_path(libc::SYS_unlink, "unlink", P::from(path)));
}
