//! Locks held across the border of a slice.

use super::cut_everywhere;
use crate::reel::Draft;

#[test]
fn locks_are_held() {
    const EAGAIN: i64 = -(libc::EAGAIN as i64);
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/data", "regular", 5000);
    let lock = |d: &mut Draft, task: i64, command: i32, kind: i32, (from, len): (i64, i64), ret: i64| {
        let o = d.fd(task, "fcntl", 3, ret);
        (o.flags, o.mode, o.aux2) = (Some(command.into()), Some(kind), Some(libc::SEEK_SET.into()));
        (o.offset_bytes, o.len_bytes) = (Some(from), Some(len));
    };
    let flock = |d: &mut Draft, task: i64, how: i32, ret: i64| d.fd(task, "flock", 3, ret).flags = Some(how.into());
    // Four processes, three of which open the file. The first one makes no call after it took its lock.
    for child in [2, 3, 4] {
        d.fork(1, child, 0);
    }
    for task in [1, 2, 3] {
        d.open(task, "data", libc::O_RDWR, 1, 3);
    }
    flock(&mut d, 2, libc::LOCK_EX, 0);
    lock(&mut d, 2, libc::F_SETLK, libc::F_WRLCK, (0, 100), 0);
    lock(&mut d, 2, libc::F_SETLK, libc::F_UNLCK, (40, 20), 0);
    lock(&mut d, 3, libc::F_OFD_SETLK, libc::F_RDLCK, (200, 0), 0);
    lock(&mut d, 1, libc::F_SETLK, libc::F_WRLCK, (120, 10), 0);
    flock(&mut d, 3, libc::LOCK_SH | libc::LOCK_NB, EAGAIN);
    lock(&mut d, 3, libc::F_SETLK, libc::F_RDLCK, (0, 10), EAGAIN);
    lock(&mut d, 3, libc::F_SETLK, libc::F_WRLCK, (40, 20), 0);
    lock(&mut d, 2, libc::F_SETLK, libc::F_WRLCK, (300, 1), EAGAIN);
    flock(&mut d, 2, libc::LOCK_UN, 0);
    flock(&mut d, 3, libc::LOCK_EX | libc::LOCK_NB, 0);
    // Held until the end by a process without further calls.
    lock(&mut d, 3, libc::F_SETLK, libc::F_WRLCK, (120, 5), EAGAIN);
    lock(&mut d, 2, libc::F_SETLK, libc::F_WRLCK, (125, 5), EAGAIN);
    d.fd(2, "close", 3, 0);
    lock(&mut d, 3, libc::F_SETLK, libc::F_WRLCK, (0, 100), 0);
    d.fd(3, "close", 3, 0);
    cut_everywhere(d);
}

#[test]
fn locks_that_were_dropped_are_nobodys() {
    const EAGAIN: i64 = -(libc::EAGAIN as i64);
    let mut d = Draft::new();
    d.had("/w", "directory", 0);
    d.had("/w/data", "regular", 5000);
    d.fork(1, 2, 0);
    let flock =
        |d: &mut Draft, task: i64, fd: i32, how: i32, ret: i64| d.fd(task, "flock", fd, ret).flags = Some(how.into());
    let lock = |d: &mut Draft, task: i64, fd: i32, ret: i64| {
        let o = d.fd(task, "fcntl", fd, ret);
        (o.flags, o.mode, o.aux2) = (Some(libc::F_SETLK.into()), Some(libc::F_WRLCK), Some(libc::SEEK_SET.into()));
        (o.offset_bytes, o.len_bytes) = (Some(0), Some(100));
    };
    d.open(1, "data", libc::O_RDWR, 1, 3);
    d.open(1, "data", libc::O_RDWR, 1, 4);
    lock(&mut d, 1, 3, 0);
    // Closing any descriptor of the file releases the lock; another descriptor stays open.
    d.fd(1, "close", 4, 0);
    d.open(2, "data", libc::O_RDWR, 1, 3);
    lock(&mut d, 2, 3, 0);
    d.fd(2, "close", 3, 0);
    lock(&mut d, 1, 3, 0);
    // A shared flock lock stays when one of the sharing processes closes the file, because another, idle one has it
    // open.
    flock(&mut d, 1, 3, libc::LOCK_EX, 0);
    d.fork(1, 3, 0);
    d.fork(1, 4, 0);
    d.fd(3, "close", 3, 0);
    d.open(3, "data", libc::O_RDWR, 1, 5);
    flock(&mut d, 3, 5, libc::LOCK_SH | libc::LOCK_NB, EAGAIN);
    d.fd(1, "close", 3, 0);
    flock(&mut d, 3, 5, libc::LOCK_SH | libc::LOCK_NB, EAGAIN);
    d.exit(4);
    flock(&mut d, 3, 5, libc::LOCK_EX | libc::LOCK_NB, 0);
    cut_everywhere(d);
}
