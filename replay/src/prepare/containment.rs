//! Containment: keeps a replay inside its target by means of the kernel, not by checking paths.
//!
//! Replay threads live in a mount namespace whose root is the target, mounted nosuid and nodev. The old root is
//! detached, so no path, link, descriptor or `..` leads out, whatever the reel says. This takes `pivot_root`: after a
//! `chroot`, a second one (of a reel recorded in a chroot) would free descriptors from the first. Mounts below the
//! target are not visible.

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsFd, OwnedFd},
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
    prepare::{directory::Directory, path_map::Place},
};

fn refused(doing: &'static str) -> impl Fn(Errno) -> ReplayError {
    move |e| ReplayError::Contain { doing, source: e.into() }
}

/// What the user may do. Determined before any thread exists, because only a process with one thread can enter a user
/// namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// Owners can be set: root, and not through a user namespace made here.
    pub root: bool,
}

/// Acquires the right to mount. Root has it; other users enter a user namespace in which they keep their own ids. Must
/// be called while the process has a single thread.
pub fn acquire() -> Result<Privilege, ReplayError> {
    /// The user namespace is entered only once.
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
    // Before Linux 3.19 the file does not exist, and groups can be mapped without it.
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

/// Makes `target` the root directory of the calling thread, with the mapped directories mounted and nothing else
/// reachable. Threads that it creates are inside, too.
pub fn enter(target: &Directory, maps: &[Place]) -> Result<(), ReplayError> {
    // SAFETY: the thread gets its own descriptor table and fs context, and uses no descriptor of another thread
    // afterwards.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS | UnshareFlags::FILES) }
        .map_err(refused("making a mount namespace"))?;
    // Directories are held by descriptors from here on, because the root may change.
    let find = |directory: &Directory| {
        let source = |source| ReplayError::Contain { doing: "finding the target again", source };
        directory.open(OFlags::PATH).map_err(source)
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
            // The old root is now mounted over the new one. Unmounting it leaves only the target.
            unmount(".", UnmountFlags::DETACH).map_err(refused("detaching the old root"))?;
        }
        // The root is an initial ramdisk, which cannot be pivoted: move the target over it.
        Err(Errno::INVAL) => {
            mount_move(".", "/").map_err(refused("moving the target over the root"))?;
            chroot(".").map_err(refused("entering the target"))?;
        }
        Err(e) => return Err(refused("making the target the root")(e)),
    }
    // Modes are applied as recorded, without this thread's umask.
    umask(Mode::empty());
    chdir("/").map_err(refused("entering the target"))?;
    // From here on, every path resolves inside.
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

/// Hides mounts made from here on from other namespaces.
fn cut_off() -> Result<(), ReplayError> {
    let cut = || mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC);
    match cut() {
        // In a chroot, "/" is not a mount and cannot be replaced. Return to the root of the mount namespace.
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

/// Mounts without set-ID bits and devices.
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
    // SAFETY: the descriptor is open, the path is an empty NUL-terminated string, and the size is that of the
    // structure.
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

/// Gives the calling thread, and threads that it creates, recorded credentials. Without root, only drops the
/// capabilities of the user namespace, unless root was recorded.
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

/// Closes all descriptors in the calling thread's own table.
pub fn close_all() {
    // SAFETY: the table belongs to this thread alone since [`enter`], and no Rust value of this thread owns a
    // descriptor.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
}

/// If threads run as users other than root and the mode of the target directory denies them search permission, grants
/// it: as their root directory, it would deny them everything. Must be called inside the target. Returns a message if
/// it changed the mode.
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
    Some(
        "the target directory was made searchable for all users, because recorded users other than root need it".into(),
    )
}

/// Raises the limit on open descriptors as far as allowed, and ignores SIGXFSZ so that writes beyond the maximum file
/// size fail instead of ending the process.
pub fn lift_limits() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If refused, the replay differs where it runs out of descriptors, and reports that.
    let _ = setrlimit(Resource::Nofile, limit);
    // SAFETY: ignoring a signal runs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
