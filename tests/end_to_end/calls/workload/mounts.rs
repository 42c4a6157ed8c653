//! Mounts and what else changes a system's file systems, by the old calls and the new.

use super::{
    caller::{Caller, Open, P},
    log::Entry,
    ok,
};

/// All of it, in folder `home`.
pub(crate) fn all(c: &mut Caller, home: &str, dir: &Open) {
    let t = c.thread;
    let at = format!("{home}/mnt");
    ok(c.with_mode(libc::SYS_mkdir, "mkdir", at.as_str(), 0o755));
    let (source, target, kind, data) =
        (P::from(format!("source{t}")), P::from(at.as_str()), P::from("tmpfs"), P::from(format!("size={}k", 64 + t)));
    let e = || Entry {
        path: source.text.clone(),
        path2: target.text.clone(),
        name: kind.text.clone(),
        value: data.text.clone(),
        flags: Some(libc::MS_NOSUID as i64),
        ..Entry::default()
    };
    let args = [source.raw(), target.raw(), kind.raw(), libc::MS_NOSUID as i64, data.raw()];
    ok(c.call(libc::SYS_mount, "mount", args, e()));
    let p = P::from(at.as_str());
    let flags = i64::from(libc::MNT_DETACH);
    ok(c.call(
        libc::SYS_umount2,
        "umount2",
        [p.raw(), flags],
        Entry { path: p.text.clone(), flags: Some(flags), ..Entry::default() },
    ));
    c.call(
        libc::SYS_umount2,
        "umount2",
        [p.raw(), 0],
        Entry { path: p.text.clone(), flags: Some(0), ..Entry::default() },
    );
    let nothing = P::from("nosuchfs");
    let args = [source.raw(), target.raw(), nothing.raw(), 0, 0];
    let e = Entry { name: nothing.text.clone(), value: None, flags: Some(0), ..e() };
    c.call(libc::SYS_mount, "mount", args, e);
    new_mounts(c, home, dir);
    let (p, q) = (P::from("/nowhere/a"), P::from("/nowhere/b"));
    c.on_path(libc::SYS_chroot, "chroot", "/nowhere/at/all");
    c.call(
        libc::SYS_pivot_root,
        "pivot_root",
        [p.raw(), q.raw()],
        Entry { path: p.text.clone(), path2: q.text.clone(), ..Entry::default() },
    );
    let e = Entry { path: p.text.clone(), flags: Some(0x8000), ..Entry::default() };
    c.call(libc::SYS_swapon, "swapon", [p.raw(), 0x8000], e);
    c.on_path(libc::SYS_swapoff, "swapoff", "/nowhere/swap");
    let mut ids = [0_u64; 4];
    let request = [24_u64, 0xffff_ffff_ffff_ffff, 0];
    let e = || Entry { aux: Some(-1), aux2: Some(0), flags: Some(0), ..Entry::default() };
    let at = ids.as_mut_ptr() as i64;
    c.call(458, "listmount", [request.as_ptr() as i64, at, 4, 0], Entry { len_bytes: Some(4), ..e() });
    let request = [24_u64, 1, 3];
    let e = Entry { aux: Some(1), aux2: Some(3), len_bytes: Some(32), ..e() };
    c.call(457, "statmount", [request.as_ptr() as i64, at, 32, 0], e);
}

/// The calls that replace mount.
fn new_mounts(c: &mut Caller, home: &str, dir: &Open) {
    let t = c.thread;
    let raw = |fd: i32| i64::from(fd);
    let kind = P::from("tmpfs");
    // Descriptors of mounts and contexts are of no file system that has an identity to compare.
    let made = |c: &mut Caller, ret: i64| {
        c.last().ofd = None;
        c.last().file = None;
        ret as i32
    };
    let ret = c.call(
        libc::SYS_fsopen,
        "fsopen",
        [kind.raw(), 1],
        Entry { name: kind.text.clone(), flags: Some(1), ..Entry::default() },
    );
    let context = made(c, ret);
    let (key, value) = (P::from("size"), P::from(format!("{}k", 128 + t)));
    let e = Entry {
        fd: Some(context),
        name: key.text.clone(),
        value: value.text.clone(),
        flags: Some(1),
        aux: Some(0),
        ..Entry::default()
    };
    c.call(libc::SYS_fsconfig, "fsconfig", [raw(context), 1, key.raw(), value.raw(), 0], e);
    let e = Entry { fd: Some(context), flags: Some(6), aux: Some(0), ..Entry::default() };
    c.call(libc::SYS_fsconfig, "fsconfig", [raw(context), 6, 0, 0, 0], e);
    let e = Entry { dirfd: Some(context), flags: Some(1), aux: Some(2), ..Entry::default() };
    let ret = c.call(libc::SYS_fsmount, "fsmount", [raw(context), 1, 2], e);
    let mount = made(c, ret);
    let (empty, to) = (P::from(""), P::from("mnt"));
    let e = Entry {
        dirfd: Some(mount),
        path: empty.text.clone(),
        dirfd2: Some(dir.fd),
        path2: to.text.clone(),
        file2: dir.file,
        flags: Some(4),
        ..Entry::default()
    };
    c.call(libc::SYS_move_mount, "move_mount", [raw(mount), empty.raw(), raw(dir.fd), to.raw(), 4], e);
    let attributes = [1_u64, 0, 0, 0];
    let e = Entry {
        dirfd: Some(dir.fd),
        path: to.text.clone(),
        file: dir.file,
        flags: Some(0),
        aux: Some(1),
        aux2: Some(0),
        ..Entry::default()
    };
    c.call(libc::SYS_mount_setattr, "mount_setattr", [raw(dir.fd), to.raw(), 0, attributes.as_ptr() as i64, 32], e);
    let below = || Entry { dirfd: Some(dir.fd), path: to.text.clone(), file2: dir.file, ..Entry::default() };
    let ret = c.call(
        libc::SYS_open_tree,
        "open_tree",
        [raw(dir.fd), to.raw(), 0x8_0000],
        Entry { flags: Some(0x8_0000), ..below() },
    );
    let tree = made(c, ret);
    let e = Entry { flags: Some(1), aux: Some(1), aux2: Some(0), ..below() };
    let ret = c.call(467, "open_tree_attr", [raw(dir.fd), to.raw(), 1, attributes.as_ptr() as i64, 32], e);
    let detached = made(c, ret);
    let ret = c.call(libc::SYS_fspick, "fspick", [raw(dir.fd), to.raw(), 1], Entry { flags: Some(1), ..below() });
    let picked = made(c, ret);
    // Whatever was made goes.
    for fd in [context, mount, tree, detached, picked] {
        c.call(libc::SYS_close, "close", [raw(fd)], Entry { fd: Some(fd), ..Entry::default() });
    }
    let full = P::from(format!("{home}/mnt"));
    let flags = i64::from(libc::MNT_DETACH);
    c.call(
        libc::SYS_umount2,
        "umount2",
        [full.raw(), flags],
        Entry { path: full.text.clone(), flags: Some(flags), ..Entry::default() },
    );
}
