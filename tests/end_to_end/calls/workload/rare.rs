//! What few programs do: subvolumes, freezing, leases, device ioctls, name spaces. What a file system does not have
//! fails there, and is recorded all the same.

use std::env;

use super::{
    DEVICE,
    caller::{Caller, Open, P},
    log::Entry,
    ok,
};

/// All of it, in folder `home` as [`super::catalogue`] leaves it.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let dir = c.open(home, libc::O_RDONLY | libc::O_DIRECTORY, 0, false);
    let f = c.open(format!("{home}/rare"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.write(&f, &vec![b'r'; 9_000 + c.thread as usize]));
    modes(c, &dir);
    commands(c, home, &dir, &f);
    requests(c, &f);
    subvolumes(c, home, &dir);
    spaces(c, &f);
    if c.thread == 0 {
        device(c);
        frozen(c, &dir);
    }
    for open in [&f, &dir] {
        ok(c.close(open));
    }
}

fn modes(c: &mut Caller, dir: &Open) {
    let p = P::from("rare");
    let e = Entry {
        dirfd: Some(dir.fd),
        file: dir.file,
        path: p.text.clone(),
        mode: Some(0o640),
        flags: Some(0),
        ..Entry::default()
    };
    c.call(452, "fchmodat2", [dir.fd.into(), p.raw(), 0o640, 0], e);
}

/// Leases, notification, hints.
fn commands(c: &mut Caller, home: &str, dir: &Open, f: &Open) {
    const F_SET_RW_HINT: i32 = 1036;
    let on = |open: &Open, command: i32, argument: i64| Entry {
        flags: Some(command.into()),
        aux: Some(argument),
        ..open.entry()
    };
    let leased = c.open(format!("{home}/rare-lease"), libc::O_RDONLY | libc::O_CREAT, 0o600, true);
    for kind in [libc::F_RDLCK, libc::F_UNLCK] {
        let (command, kind) = (libc::F_SETLEASE, i64::from(kind));
        c.call(libc::SYS_fcntl, "fcntl", [leased.fd.into(), command.into(), kind], on(&leased, command, kind));
    }
    ok(c.close(&leased));
    // Nothing: what there is to be told would come as a signal.
    let args = [dir.fd.into(), libc::F_NOTIFY.into(), 0];
    c.call(libc::SYS_fcntl, "fcntl", args, on(dir, libc::F_NOTIFY, 0));
    let hint = 2_u64;
    let at = (&raw const hint) as i64;
    c.call(libc::SYS_fcntl, "fcntl", [f.fd.into(), F_SET_RW_HINT.into(), at], on(f, F_SET_RW_HINT, at));
}

fn request(open: &Open, number: i64, name: &str) -> Entry {
    Entry { flags: Some(number), name: Some(name.into()), ..open.entry() }
}

fn requests(c: &mut Caller, f: &Open) {
    let t = i64::from(c.thread);
    let mut block = 1_u32;
    let e = Entry { aux: Some(1), ..request(f, 1, "FIBMAP") };
    if c.call(libc::SYS_ioctl, "ioctl", [f.fd.into(), 1, (&raw mut block) as i64], e) == 0 {
        c.last().aux2 = Some(block.into());
    }
    // Not on a file: a generation tells files apart.
    let version = 70 + t as u64;
    let bad = Open::bad(987);
    let e = Entry { aux: Some(70 + t), ..request(&bad, 0x4008_7602, "FS_IOC_SETVERSION") };
    c.call(libc::SYS_ioctl, "ioctl", [987, 0x4008_7602, (&raw const version) as i64], e);
    let mut label = [0_u8; 256];
    let text = format!("ioreel{t}");
    label[..text.len()].copy_from_slice(text.as_bytes());
    let e = Entry { value: Some(text), ..request(f, 0x4100_9432, "FS_IOC_SETFSLABEL") };
    c.call(libc::SYS_ioctl, "ioctl", [f.fd.into(), 0x4100_9432, label.as_ptr() as i64], e);
    // Of version 0, which there is not.
    let verity = [0_u64; 16];
    let e = request(f, 0x4080_6685, "FS_IOC_ENABLE_VERITY");
    assert!(c.call(libc::SYS_ioctl, "ioctl", [f.fd.into(), 0x4080_6685, verity.as_ptr() as i64], e) < 0);
}

/// `struct btrfs_ioctl_vol_args`, or `_v2` with its flags.
fn volume(source: i32, flags: Option<u64>, name: &str) -> Vec<u64> {
    let mut bytes = vec![0_u8; 4096];
    bytes[..8].copy_from_slice(&i64::from(source).to_le_bytes());
    let at = if flags.is_some() { 56 } else { 8 };
    bytes[16..24].copy_from_slice(&flags.unwrap_or(0).to_le_bytes());
    bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
    bytes.chunks(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect()
}

/// Made, twice snapshotted and destroyed, by both kinds of struct.
fn subvolumes(c: &mut Caller, home: &str, dir: &Open) {
    const READ_ONLY: u64 = 2;
    let below = |name: &str, number: i64, request_name: &str| Entry {
        dirfd: Some(dir.fd),
        path: Some(name.into()),
        ..request(dir, number, request_name)
    };
    let d = i64::from(dir.fd);
    let args = volume(0, None, "sub1");
    let e = below("sub1", 0x5000_940e, "BTRFS_IOC_SUBVOL_CREATE");
    let made = c.call(libc::SYS_ioctl, "ioctl", [d, 0x5000_940e, args.as_ptr() as i64], e) == 0;
    let args = volume(0, Some(0), "sub2");
    let e = Entry { aux: Some(0), ..below("sub2", 0x5000_9418, "BTRFS_IOC_SUBVOL_CREATE_V2") };
    c.call(libc::SYS_ioctl, "ioctl", [d, 0x5000_9418, args.as_ptr() as i64], e);
    let source = if made {
        c.open(format!("{home}/sub1"), libc::O_RDONLY | libc::O_DIRECTORY, 0, false)
    } else {
        c.open(home, libc::O_RDONLY | libc::O_DIRECTORY, 0, false)
    };
    let snapshot = |name: &str, number: i64, request_name: &str| Entry {
        fd2: Some(dir.fd),
        dirfd2: Some(dir.fd),
        path2: Some(name.into()),
        ofd2: dir.ofd,
        file2: dir.file,
        ..request(&source, number, request_name)
    };
    let args = volume(source.fd, None, "snap1");
    let e = snapshot("snap1", 0x5000_9401, "BTRFS_IOC_SNAP_CREATE");
    c.call(libc::SYS_ioctl, "ioctl", [d, 0x5000_9401, args.as_ptr() as i64], e);
    let args = volume(source.fd, Some(READ_ONLY), "snap2");
    let e = Entry { aux: Some(READ_ONLY as i64), ..snapshot("snap2", 0x5000_9417, "BTRFS_IOC_SNAP_CREATE_V2") };
    c.call(libc::SYS_ioctl, "ioctl", [d, 0x5000_9417, args.as_ptr() as i64], e);
    ok(c.close(&source));
    for name in ["snap1", "sub1", "missing"] {
        let args = volume(0, None, name);
        let e = below(name, 0x5000_940f, "BTRFS_IOC_SNAP_DESTROY");
        let gone = c.call(libc::SYS_ioctl, "ioctl", [d, 0x5000_940f, args.as_ptr() as i64], e) == 0;
        assert_eq!(gone, made && name != "missing");
    }
    for name in ["snap2", "sub2"] {
        let args = volume(0, Some(0), name);
        let e = Entry { aux: Some(0), ..below(name, 0x5000_943f, "BTRFS_IOC_SNAP_DESTROY_V2") };
        c.call(libc::SYS_ioctl, "ioctl", [d, 0x5000_943f, args.as_ptr() as i64], e);
    }
}

/// What changes with whom a thread shares, and advice to a process.
fn spaces(c: &mut Caller, f: &Open) {
    const SYSVSEM: i64 = 0x4_0000;
    let e = Entry { flags: Some(SYSVSEM), ..Entry::default() };
    ok(c.call(libc::SYS_unshare, "unshare", [SYSVSEM], e));
    let e = Entry { flags: Some(libc::CLONE_NEWNS.into()), ..f.entry() };
    assert!(c.call(libc::SYS_setns, "setns", [f.fd.into(), libc::CLONE_NEWNS.into()], e) < 0);
    // SAFETY: takes numbers.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    let memory = vec![0_u8; 3 * 4096 + c.thread as usize];
    let iov = [memory.as_ptr() as u64, 4096, memory.as_ptr() as u64 + 4096, 4096 + u64::from(c.thread)];
    let e = Entry {
        fd: Some(own as i32),
        len_bytes: Some(8192 + i64::from(c.thread)),
        aux: Some(2),
        flags: Some(libc::MADV_COLD.into()),
        aux2: Some(0),
        ..Entry::default()
    };
    let args = [own, iov.as_ptr() as i64, 2, libc::MADV_COLD.into(), 0];
    c.call(libc::SYS_process_madvise, "process_madvise", args, e);
    ok(c.call(libc::SYS_close, "close", [own], Entry { fd: Some(own as i32), ..Entry::default() }));
}

/// A device of the test's own.
fn device(c: &mut Caller) {
    let f = c.open(env::var(DEVICE).unwrap(), libc::O_RDWR, 0, false);
    assert!(f.fd >= 0);
    let fd = i64::from(f.fd);
    let mut size = 0_u64;
    let e = request(&f, 0x8008_1272, "BLKGETSIZE64");
    ok(c.call(libc::SYS_ioctl, "ioctl", [fd, 0x8008_1272, (&raw mut size) as i64], e));
    c.last().aux = Some(size as i64);
    assert!(size > 0);
    let range = [1_u64 << 20, 1 << 20];
    for (number, name, argument) in [
        (0x1261, "BLKFLSBUF", 0),
        (0x1277, "BLKDISCARD", range.as_ptr() as i64),
        (0x127f, "BLKZEROOUT", range.as_ptr() as i64),
    ] {
        ok(c.call(libc::SYS_ioctl, "ioctl", [fd, number, argument], request(&f, number, name)));
    }
    ok(c.close(&f));
}

/// For a moment nobody writes; a second freeze and thaw are refused.
fn frozen(c: &mut Caller, dir: &Open) {
    for (number, name) in [(0xc004_5877, "FIFREEZE"), (0xc004_5878, "FITHAW"), (0xc004_5878, "FITHAW")] {
        c.call(libc::SYS_ioctl, "ioctl", [dir.fd.into(), number, 0], request(dir, number, name));
    }
}
