//! Calls that make a thread somebody else, and back.

use ioreel_traces::text;

use super::{caller::Caller, fails, log::Entry, narrow::Low, ok};

const KEEP: i64 = -1;

fn ids(of: &[i64]) -> Entry {
    let id = |i: usize| of.get(i).copied();
    Entry { aux: id(0), aux2: id(1), flags: id(2), ..Entry::default() }
}

fn groups(list: &[u32]) -> (Vec<u8>, Entry) {
    let bytes: Vec<u8> = list.iter().flat_map(|id| id.to_le_bytes()).collect();
    // More than 64 are not taken.
    let value = (1..=64).contains(&list.len()).then(|| text::from_bytes(&bytes).to_string());
    (bytes, Entry { aux: Some(list.len() as i64), value, ..Entry::default() })
}

/// The id before, where it could be changed at all.
#[track_caller]
fn tells(ret: i64, before: i64) {
    assert!(ok(ret) == before || super::LENIENT.load(std::sync::atomic::Ordering::SeqCst), "{ret}");
}

/// All of them, by both entries. The thread is root, and is so in the end.
pub(crate) fn run(c: &mut Caller) {
    let t = i64::from(c.thread);
    let (other, third) = (1000 + t, 3000 + t);
    tells(c.call(libc::SYS_setfsuid, "setfsuid", [other], ids(&[other])), 0);
    tells(c.call(libc::SYS_setfsuid, "setfsuid", [0], ids(&[0])), other);
    tells(c.call(libc::SYS_setfsgid, "setfsgid", [other], ids(&[other])), 0);
    tells(c.call(libc::SYS_setfsgid, "setfsgid", [0], ids(&[0])), other);
    ok(c.call(libc::SYS_setregid, "setregid", [other, third], ids(&[other, third])));
    ok(c.call(libc::SYS_setresgid, "setresgid", [third, KEEP, other], ids(&[third, KEEP, other])));
    ok(c.call(libc::SYS_setgid, "setgid", [0], ids(&[0])));
    ok(c.call(libc::SYS_setreuid, "setreuid", [KEEP, other], ids(&[KEEP, other])));
    fails(c.call(libc::SYS_setuid, "setuid", [third], ids(&[third])), libc::EPERM);
    ok(c.call(libc::SYS_setreuid, "setreuid", [KEEP, 0], ids(&[KEEP, 0])));
    ok(c.call(libc::SYS_setresuid, "setresuid", [0, other, 0], ids(&[0, other, 0])));
    ok(c.call(libc::SYS_setresuid, "setresuid", [KEEP, 0, KEEP], ids(&[KEEP, 0, KEEP])));
    ok(c.call(libc::SYS_setuid, "setuid", [0], ids(&[0])));
    let mut before = [0_u32; 1024];
    // SAFETY: the list has room for as many as it says.
    let n = ok(unsafe { libc::syscall(libc::SYS_getgroups, before.len(), before.as_mut_ptr()) });
    let (list, e) = groups(&[5000 + c.thread, 77]);
    ok(c.call(libc::SYS_setgroups, "setgroups", [2, list.as_ptr() as i64], e));
    by_the_32_bit_entry(c, other, third);
    let (list, e) = groups(&before[..n as usize]);
    ok(c.call(libc::SYS_setgroups, "setgroups", [n, list.as_ptr() as i64], e));
}

fn by_the_32_bit_entry(c: &mut Caller, other: i64, third: i64) {
    let mut low = Low::new();
    let list = low.words(&[6000 + c.thread, 88, 99]);
    ok(c.call32(206, "setgroups", [3, list], groups(&[6000 + c.thread, 88, 99]).1));
    // Words of two ids each.
    let list = low.words(&[(7000 + c.thread) | 89 << 16, 100]);
    ok(c.call32(81, "setgroups", [3, list], groups(&[7000 + c.thread, 89, 100]).1));
    // 32 bits, then 16.
    for [fsuid, fsgid, regid, resgid, gid, reuid, resuid, uid] in
        [[215, 216, 204, 210, 214, 203, 208, 213], [138, 139, 71, 170, 46, 70, 164, 23]]
    {
        tells(c.call32(fsuid, "setfsuid", [other], ids(&[other])), 0);
        tells(c.call32(fsuid, "setfsuid", [0], ids(&[0])), other);
        tells(c.call32(fsgid, "setfsgid", [other], ids(&[other])), 0);
        tells(c.call32(fsgid, "setfsgid", [0], ids(&[0])), other);
        ok(c.call32(regid, "setregid", [other, third], ids(&[other, third])));
        ok(c.call32(resgid, "setresgid", [third, KEEP, other], ids(&[third, KEEP, other])));
        ok(c.call32(gid, "setgid", [0], ids(&[0])));
        ok(c.call32(reuid, "setreuid", [KEEP, other], ids(&[KEEP, other])));
        ok(c.call32(reuid, "setreuid", [KEEP, 0], ids(&[KEEP, 0])));
        ok(c.call32(resuid, "setresuid", [0, other, 0], ids(&[0, other, 0])));
        ok(c.call32(resuid, "setresuid", [KEEP, 0, KEEP], ids(&[KEEP, 0, KEEP])));
        ok(c.call32(uid, "setuid", [0], ids(&[0])));
    }
}
