//! Keeps a replay inside its target, by the kernel rather than by looking at paths.
//!
//! The replaying threads live in a mount namespace whose root is the target, mounted nosuid and nodev and
//! without anything else: the old root is detached, so that no path, link, descriptor or `..` leads out
//! of it, whatever a reel says. A pivot rather than a chroot, since a second chroot (a reel recorded in one)
//! would undo the first for descriptors outside it. Mounts below the target do not come along.

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::OnceLock,
};

use rustix::{
    fs::{CWD, Mode, OFlags, chmod, mkdir, open, stat},
    io::Errno,
    mount::{
        MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, mount_move, move_mount,
        open_tree, unmount,
    },
    process::{chdir, chroot, fchdir, getegid, geteuid, pivot_root, umask},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe},
};

use crate::{
    ReplayError,
    base::ids::{Words, system_call, take_on},
    model::credentials::Credentials,
    plan::program::Plan,
    prepare::path_map::Place,
};

fn refused(doing: &'static str) -> impl Fn(Errno) -> ReplayError {
    move |e| ReplayError::Contain { doing, source: e.into() }
}

/// What the user may do: decided before any thread exists, since a user namespace must be entered alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// Owners can be set: root outside any user namespace made here.
    pub root: bool,
}

/// Gets the right to mount: root has it, others enter a user namespace in which they keep their own ids.
/// Must be called while the process has a single thread.
pub fn acquire() -> Result<Privilege, ReplayError> {
    /// A user namespace is entered once.
    static ENTERED: OnceLock<()> = OnceLock::new();
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    if uid == 0 {
        return Ok(Privilege { root: true });
    }
    if ENTERED.get().is_some() {
        return Ok(Privilege { root: false });
    }
    // SAFETY: changes no descriptor table and no memory; the process has one thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(refused("entering a user namespace"))?;
    let write = |file: &str, text: String| {
        fs::write(file, text).map_err(|source| ReplayError::Contain { doing: "mapping the user", source })
    };
    // Where it is missing (before Linux 3.19) groups may be mapped without it.
    match fs::write("/proc/self/setgroups", "deny") {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(ReplayError::Contain { doing: "mapping the user", source: e });
        }
        _ => {}
    }
    write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    let _ = ENTERED.set(());
    Ok(Privilege { root: false })
}

/// Makes the calling thread's root `target`, with the mapped directories in their places, and nothing else reachable.
/// Threads it makes are inside too.
pub fn enter(target: &Path, maps: &[Place]) -> Result<(), ReplayError> {
    // SAFETY: this thread gets a descriptor table and directories of its own; no descriptor of another
    // thread is used by it afterwards.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS | UnshareFlags::FILES) }
        .map_err(refused("making a mount namespace"))?;
    // What lies where is known by descriptors from here on: the root may change.
    let find = |path: &Path| {
        open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(refused("finding the target"))
    };
    let at = find(target)?;
    let mut others = Vec::new();
    for (from, to) in maps {
        others.push((from, find(to)?));
    }
    cut_off()?;
    let bind = |place: &OwnedFd, doing: &'static str| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(place, "", flags).map_err(refused(doing))?;
        restrict(&tree)?;
        Ok::<_, ReplayError>(tree)
    };
    let tree = bind(&at, "binding the target")?;
    let mut mapped = Vec::new();
    for (from, place) in &others {
        mapped.push((from, bind(place, "binding a mapped directory")?));
    }
    let by_descriptors = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&tree, "", &at, "", by_descriptors).map_err(refused("mounting the target"))?;
    fchdir(&tree).map_err(refused("entering the target"))?;
    match pivot_root(".", ".") {
        Ok(()) => {
            // The old root now lies over the new one: taking it away leaves the target alone.
            unmount(".", UnmountFlags::DETACH).map_err(refused("detaching the old root"))?;
        }
        // On an initial ramdisk's root, which cannot be pivoted away: the target is moved over it.
        Err(Errno::INVAL) => {
            mount_move(".", "/").map_err(refused("moving the target over the root"))?;
            chroot(".").map_err(refused("entering the target"))?;
        }
        Err(e) => return Err(refused("making the target the root")(e)),
    }
    // Modes are the reel's: this thread's mask is its own.
    umask(Mode::empty());
    chdir("/").map_err(refused("entering the target"))?;
    // From here on every path leads to something inside.
    for (from, other) in mapped {
        for end in (1..=from.len()).filter(|end| *end == from.len() || from[*end] == b'/') {
            match mkdir(&from[..end], Mode::from_bits_truncate(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(refused("making the place of a mapped directory")(e)),
            }
        }
        move_mount(&other, "", CWD, from.as_slice(), MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(refused("mounting a mapped directory"))?;
    }
    Ok(())
}

/// Mounts made from here on are seen by nobody else.
fn cut_off() -> Result<(), ReplayError> {
    let cut = || mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC);
    match cut() {
        // In a chroot the root is no mount, and no new one can take its place: the name space's own root can.
        Err(Errno::INVAL) => {
            let own = open("/proc/thread-self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(refused("leaving the chroot for the replay, by /proc"))?;
            move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Mount))
                .map_err(refused("leaving the chroot for the replay"))?;
            cut()
        }
        other => other,
    }
    .map_err(refused("cutting the mount namespace off"))
}

/// No set-id bits, no devices.
fn restrict(tree: &impl std::os::fd::AsRawFd) -> Result<(), ReplayError> {
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        userns_fd: u64,
    }
    let attr =
        MountAttr { set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV, clear: 0, propagation: 0, userns_fd: 0 };
    let empty = CString::default();
    // SAFETY: the descriptor is open, the path a NUL-terminated empty string, the structure of the size named.
    let r = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(&attr),
            size_of::<MountAttr>(),
        )
    };
    if r < 0 {
        let source = io::Error::last_os_error();
        return Err(ReplayError::Contain { doing: "forbidding devices and set-id bits in the target", source });
    }
    Ok(())
}

/// Gives the calling thread, and those it makes, the credentials of a recorded user; without root, only
/// takes away what a user namespace added, unless root was recorded.
pub fn become_user(privilege: Privilege, who: &Credentials) -> io::Result<()> {
    if privilege.root && who.words() != Words::default() {
        let ret = take_on(system_call, who.words(), Some(&[]));
        if ret < 0 {
            return Err(io::Error::from_raw_os_error(-ret as i32));
        }
    }
    if !privilege.root && who.user.effective != 0 {
        #[repr(C)]
        struct Header {
            version: u32,
            pid: i32,
        }
        const VERSION_3: u32 = 0x2008_0522;
        let (header, none) = (Header { version: VERSION_3, pid: 0 }, [0u32; 6]);
        // SAFETY: version 3 takes two sets of three words.
        if unsafe { libc::syscall(libc::SYS_capset, std::ptr::from_ref(&header), none.as_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Closes every descriptor of the calling thread's own table.
pub fn close_all() {
    // SAFETY: the table is this thread's alone since [`enter`], and no Rust value of this thread owns any.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
}

/// Lets recorded users other than root search the target's own directory, where its mode forbids that: as a root
/// directory it would keep them from everything. The calling thread is inside. Says so when it did.
pub fn let_users_in(plan: &Plan, privilege: Privilege) -> Option<String> {
    let others =
        plan.tasks.iter().filter_map(|t| t.root.as_ref()).any(|r| r.who.user.effective != 0) || plan.users_change;
    if !privilege.root || !others {
        return None;
    }
    let mode = Mode::from_raw_mode(stat("/").ok()?.st_mode);
    let search = Mode::XUSR | Mode::XGRP | Mode::XOTH;
    if mode.contains(search) {
        return None;
    }
    chmod("/", mode | search).ok()?;
    Some("the target's directory was made searchable for all, since the recorded user is not root".into())
}

/// Lifts the limit on open descriptors as far as the user may, and lets writes beyond the greatest file
/// size fail rather than end the process.
pub fn lift_limits() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused, it stays as it is: the replay then differs where it runs out, and says so.
    let _ = setrlimit(Resource::Nofile, limit);
    // SAFETY: ignoring a signal runs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
