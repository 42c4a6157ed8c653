//! Descriptors that change hands, and Linux AIO.

use std::os::fd::AsRawFd;

use super::{
    caller::{Caller, Open},
    calls::Iov,
    log::Entry,
    ok, results,
};

/// All of it, in folder `home`.
pub(crate) fn run(c: &mut Caller, home: &str) {
    let f = c.open(format!("{home}/passed"), libc::O_RDWR | libc::O_CREAT, 0o600, true);
    ok(c.write(&f, &vec![b'p'; 20_000 + c.thread as usize]));
    messages(c, &f);
    from_a_process(c, &f);
    asynchronous(c, &f);
    ok(c.close(&f));
}

/// A message with descriptors in its control part, laid out by hand: `struct msghdr` and one `struct cmsghdr`.
struct Message {
    header: [u64; 7],
    control: Vec<u64>,
    /// What the header points to.
    _byte: Box<[u8; 1]>,
    _iov: Box<[u64; 2]>,
}

impl Message {
    fn new(fds: &[i32], room: usize) -> Self {
        let byte = Box::new([7_u8]);
        let iov = Box::new([byte.as_ptr() as u64, 1]);
        let mut bytes = Vec::new();
        if !fds.is_empty() {
            bytes.extend((16 + 4 * fds.len() as u64).to_le_bytes());
            bytes.extend(libc::SOL_SOCKET.to_le_bytes());
            bytes.extend(libc::SCM_RIGHTS.to_le_bytes());
            fds.iter().for_each(|fd| bytes.extend(fd.to_le_bytes()));
        }
        bytes.resize(bytes.len().max(room).next_multiple_of(8), 0);
        let control: Vec<u64> = bytes.chunks(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        let at = if control.is_empty() { 0 } else { control.as_ptr() as u64 };
        Self {
            header: [0, 0, iov.as_ptr() as u64, 1, at, 8 * control.len() as u64, 0],
            control,
            _byte: byte,
            _iov: iov,
        }
    }

    /// The first descriptors that came.
    fn came(&self, n: usize) -> Vec<i32> {
        let bytes: Vec<u8> = self.control.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes[16..].chunks(4).take(n).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn at(&mut self) -> i64 {
        self.header.as_mut_ptr() as i64
    }
}

/// Descriptors in messages that this thread sends to itself.
fn messages(c: &mut Caller, f: &Open) {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let (an, bn) = (a.as_raw_fd(), b.as_raw_fd());
    let socket = |fd: i32, flags: i64, count: i64| Entry {
        fd: Some(fd),
        flags: Some(flags),
        aux: Some(count),
        ..Entry::default()
    };
    let arrived = |fd: i32, new: i32, flags: i32| Entry {
        op: "scm_rights".into(),
        source: Some("scm".into()),
        fd: Some(fd),
        ret: new.into(),
        flags: Some(flags.into()),
        ofd: f.ofd,
        file: f.file,
        ..Entry::default()
    };
    // Two of one description in one message.
    let mut m = Message::new(&[f.fd, f.fd], 0);
    results(c.call(libc::SYS_sendmsg, "sendmsg", [an.into(), m.at(), 0], socket(an, 0, 2)), 1);
    let mut m = Message::new(&[], 64);
    let flags = i64::from(libc::MSG_CMSG_CLOEXEC);
    results(c.call(libc::SYS_recvmsg, "recvmsg", [bn.into(), m.at(), flags], socket(bn, flags, 2)), 1);
    let came = m.came(2);
    for fd in &came {
        c.beside(arrived(bn, *fd, libc::O_CLOEXEC));
    }
    for fd in came {
        let new = f.alias(fd.into());
        ok(c.pread(&new, 100, 5));
        ok(c.close(&new));
    }
    // Several messages at once, of which the second has none.
    let mut sent = [Message::new(&[f.fd], 0), Message::new(&[], 0), Message::new(&[f.fd, f.fd, f.fd], 0)];
    let mut vector = [0_u64; 24];
    for (i, m) in sent.iter_mut().enumerate() {
        vector[8 * i..8 * i + 7].copy_from_slice(&m.header);
    }
    let e = Entry { aux2: Some(3), ..socket(an, 0, 4) };
    results(c.call(libc::SYS_sendmmsg, "sendmmsg", [an.into(), vector.as_mut_ptr() as i64, 3, 0], e), 3);
    let mut taken = [Message::new(&[], 64), Message::new(&[], 64), Message::new(&[], 64)];
    for (i, m) in taken.iter_mut().enumerate() {
        vector[8 * i..8 * i + 7].copy_from_slice(&m.header);
    }
    let e = Entry { aux2: Some(3), ..socket(bn, 0, 4) };
    let args = [bn.into(), vector.as_mut_ptr() as i64, 3, 0, 0];
    results(c.call(libc::SYS_recvmmsg, "recvmmsg", args, e), 3);
    let all: Vec<i32> = taken[0].came(1).into_iter().chain(taken[2].came(3)).collect();
    for fd in &all {
        c.beside(arrived(bn, *fd, 0));
    }
    for fd in all {
        ok(c.close(&f.alias(fd.into())));
    }
    // Without descriptors they are no file operations and leave no row.
    for (nr, fd) in [(libc::SYS_sendmsg, an), (libc::SYS_recvmsg, bn)] {
        let mut m = Message::new(&[], 0);
        // SAFETY: the header points to memory that lives as long.
        assert_eq!(unsafe { libc::syscall(nr, fd, m.at(), 0) }, 1);
    }
    for end in [a, b] {
        c.close_other(end);
    }
}

/// A descriptor taken out of a process: this one.
fn from_a_process(c: &mut Caller, f: &Open) {
    // SAFETY: takes numbers.
    let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    assert!(pidfd >= 0);
    let e = |target: i32| Entry { fd: Some(pidfd as i32), fd2: Some(target), flags: Some(0), ..Entry::default() };
    let fd = c.call(
        libc::SYS_pidfd_getfd,
        "pidfd_getfd",
        [pidfd, f.fd.into(), 0],
        Entry { ofd: f.ofd, file: f.file, ..e(f.fd) },
    );
    let new = f.alias(ok(fd));
    ok(c.pread(&new, 10, 1));
    ok(c.close(&new));
    c.call(libc::SYS_pidfd_getfd, "pidfd_getfd", [pidfd, 987, 0], Entry { no_file: true, ..e(987) });
    ok(c.call(libc::SYS_close, "close", [pidfd], Entry { fd: Some(pidfd as i32), ..Entry::default() }));
}

/// `struct iocb` as words: data, key and flags, opcode and priority and descriptor, buffer, bytes, offset, two more.
type Iocb = [u64; 8];

fn iocb(opcode: u16, fd: i32, buffer: i64, bytes: usize, offset: i64) -> Iocb {
    [0, 0, u64::from(opcode) | u64::from(fd as u32) << 32, buffer as u64, bytes as u64, offset as u64, 0, 0]
}

fn asynchronous(c: &mut Caller, f: &Open) {
    let t = c.thread as usize;
    let mut context = 0_i64;
    let e = Entry { aux: Some(64), ..Entry::default() };
    ok(c.call(libc::SYS_io_setup, "io_setup", [64, (&raw mut context) as i64], e));
    let mut room = vec![0_u8; 9000];
    let iov = Iov::new(&[70, 80 + t]);
    let buffer = room.as_mut_ptr() as i64;
    let closed = 987;
    let mut blocks: Vec<Iocb> = vec![
        iocb(0, f.fd, buffer, 1000 + t, 11),
        iocb(1, f.fd, buffer, 2000 + t, 30_000),
        iocb(7, f.fd, iov.raw(), 2, 777),
        iocb(8, f.fd, iov.raw(), 2, 40_000),
        iocb(2, f.fd, 0, 0, 0),
        iocb(3, f.fd, 0, 0, 0),
        // The submission stops at the first that is refused.
        iocb(0, closed, buffer, 5, 5),
        iocb(0, f.fd, buffer, 6, 6),
    ];
    let pointers: Vec<i64> = blocks.iter_mut().map(|b| b.as_mut_ptr() as i64).collect();
    let e = Entry { aux: Some(8), ..Entry::default() };
    let taken = c.call(libc::SYS_io_submit, "io_submit", [context, 8, pointers.as_ptr() as i64], e);
    let before_ns = c.last().before_ns;
    let taken = usize::try_from(ok(taken)).unwrap();
    assert!(taken == 6 || taken == 4, "fsync is taken or not: {taken}");
    let mut events = [[0_i64; 4]; 16];
    let e = Entry { aux: Some(taken as i64), aux2: Some(16), ..Entry::default() };
    let args = [context, taken as i64, 16, events.as_mut_ptr() as i64, 0];
    results(c.call(libc::SYS_io_getevents, "io_getevents", args, e), taken as i64);
    let after_ns = c.last().after_ns;
    let names = ["pread64", "pwrite64", "preadv", "pwritev", "fsync", "fdatasync"];
    for event in &events[..taken] {
        let i = pointers.iter().position(|p| *p == event[1]).unwrap();
        let data = i < 4;
        let vector = i == 2 || i == 3;
        let len = if vector { 150 + t as i64 } else { blocks[i][4] as i64 };
        c.beside(Entry {
            op: names[i].into(),
            source: Some("aio".into()),
            ret: event[2],
            offset_bytes: data.then(|| blocks[i][5] as i64),
            len_bytes: data.then_some(len),
            aux: vector.then_some(2),
            flags: Some(0),
            before_ns,
            after_ns,
            ..f.entry()
        });
    }
    // None of it: a context that is not there, no room, a request that nobody takes the result of.
    let e = Entry { aux: Some(1), ..Entry::default() };
    assert_eq!(
        c.call(libc::SYS_io_submit, "io_submit", [4096, 1, pointers.as_ptr() as i64], e.clone()),
        -i64::from(libc::EINVAL)
    );
    results(c.call(libc::SYS_io_submit, "io_submit", [context, 1, pointers.as_ptr() as i64], e), 1);
    let unseen = Entry {
        op: "pread64".into(),
        source: Some("aio".into()),
        state: Some("unknown".into()),
        offset_bytes: Some(11),
        len_bytes: Some(1000 + t as i64),
        before_ns: c.last().before_ns,
        after_ns: c.last().after_ns,
        ..f.entry()
    };
    c.beside(unseen);
    let e = Entry { aux: Some(pointers[0]), ..Entry::default() };
    c.call(libc::SYS_io_cancel, "io_cancel", [context, pointers[0], events.as_mut_ptr() as i64], e);
    let none = [0_i64; 2];
    let e = Entry { aux: Some(0), aux2: Some(0), ..Entry::default() };
    c.call(333, "io_pgetevents", [context, 0, 0, events.as_mut_ptr() as i64, none.as_ptr() as i64, 0], e);
    ok(c.call(libc::SYS_io_destroy, "io_destroy", [context], Entry::default()));
    // Not the same once more: another thread's context may have its number by now.
    assert_eq!(c.call(libc::SYS_io_destroy, "io_destroy", [4096], Entry::default()), -i64::from(libc::EINVAL));
}
