//! The system calls of a confined replay: those that replaying threads issue, and those by which they live. Whatever else
//! a reel might make them do, the kernel refuses (seccomp).

use ioreel_traces::confine::{Argument, Permit};
use libc::c_long;

use crate::base::subvolumes::{SNAP_CREATE, SNAP_DESTROY, SUBVOL_CREATE};

use super::{
    attributes::{
        FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, SYS_FILE_GETATTR, SYS_FILE_SETATTR,
        SYS_GETXATTRAT, SYS_LISTXATTRAT, SYS_REMOVEXATTRAT, SYS_SETXATTRAT,
    },
    copies::{FICLONE, FICLONERANGE},
    requests::{
        FIBMAP, FIDEDUPERANGE, FIGETBSZ, FS_IOC_FIEMAP, FS_IOC_GETFSLABEL, FS_IOC_GETVERSION, FS_IOC_SETVERSION,
        SYS_CACHESTAT, TCGETS,
    },
};

/// Calls on files that are replayed, or that prepare a target.
const ON_FILES: &[c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_ftruncate,
    libc::SYS_truncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_chroot,
    libc::SYS_umask,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_GETXATTRAT,
    SYS_LISTXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_GETATTR,
    SYS_FILE_SETATTR,
    SYS_CACHESTAT,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
];

/// Older forms of some of these, which libraries take where there are such.
#[cfg(target_arch = "x86_64")]
const OLD_FORMS: &[c_long] = &[libc::SYS_open, libc::SYS_access, libc::SYS_chown, libc::SYS_stat, libc::SYS_lstat];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FORMS: &[c_long] = &[];

/// Ids that recorded threads have.
const OF_USERS: &[c_long] = &[
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capget,
    libc::SYS_capset,
];

/// Requests to io_uring and to contexts of Linux AIO. Requests pass no filter, so they are permitted only to a plan that has
/// some.
const OF_RINGS: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
    libc::SYS_io_getevents,
    libc::SYS_io_destroy,
];

/// Handing descriptors over. Threads have no other sockets, and can make none that reach anybody else.
const OF_HANDOVERS: &[c_long] = &[libc::SYS_sendmsg, libc::SYS_recvmsg];

/// What a thread of a C library and of Rust's standard library needs to start, wait, allocate and end.
const OF_THREADS: &[c_long] = &[
    libc::SYS_futex,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_brk,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcpu,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_prlimit64,
    libc::SYS_getrandom,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
];

/// Requests of ioctl. `FIOCLEX` and `FIONCLEX` are the last two.
const IOCTLS: [i64; 19] = [
    FICLONE,
    FICLONERANGE,
    FIDEDUPERANGE,
    FIBMAP,
    FIGETBSZ,
    TCGETS,
    FS_IOC_GETFLAGS,
    FS_IOC_SETFLAGS,
    FS_IOC_FSGETXATTR,
    FS_IOC_FSSETXATTR,
    FS_IOC_GETVERSION,
    FS_IOC_SETVERSION,
    FS_IOC_GETFSLABEL,
    FS_IOC_FIEMAP,
    SUBVOL_CREATE,
    SNAP_CREATE,
    SNAP_DESTROY,
    0x5451,
    0x5450,
];

/// `PR_SET_VMA`, by which a C library names its memory.
const PR_SET_VMA: i32 = 0x5356_4d41;

/// The permitted calls. `rings`: also requests; `handovers`: also those that hand descriptors over.
pub(crate) fn calls(rings: bool, handovers: bool) -> Vec<Permit> {
    let if_any = |has: bool, list: &'static [c_long]| if has { list } else { &[] };
    let lists = [ON_FILES, OLD_FORMS, OF_USERS, OF_THREADS, if_any(rings, OF_RINGS), if_any(handovers, OF_HANDOVERS)];
    let mut all: Vec<Permit> = lists.concat().into_iter().map(Permit::from).collect();
    let only = |number, index, mask, value| Permit { number, only: Some(Argument { index, mask, value }) };
    if handovers {
        all.push(only(libc::SYS_socketpair, 0, u32::MAX, libc::AF_UNIX as u32));
    }
    all.extend(IOCTLS.map(|request| only(libc::SYS_ioctl, 1, u32::MAX, request as u32)));
    all.extend(
        [libc::PR_SET_TIMERSLACK, libc::PR_SET_NAME, PR_SET_VMA]
            .map(|option| only(libc::SYS_prctl, 0, u32::MAX, option as u32)),
    );
    // No memory becomes a program.
    all.extend([libc::SYS_mmap, libc::SYS_mprotect].map(|number| only(number, 2, libc::PROT_EXEC as u32, 0)));
    // New threads, but no processes and no namespaces.
    all.push(only(libc::SYS_clone, 0, libc::CLONE_THREAD as u32, libc::CLONE_THREAD as u32));
    all.push(only(libc::SYS_unshare, 0, !(libc::CLONE_FS | libc::CLONE_FILES) as u32, 0));
    all
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Names of system calls in the code of these files, without that of this test.
    fn names(path: &Path, found: &mut BTreeSet<String>) {
        if path.is_dir() {
            fs::read_dir(path).unwrap().for_each(|entry| names(&entry.unwrap().path(), found));
            return;
        }
        let text = fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        found.extend(words.filter(|w| w.starts_with("SYS_")).map(str::to_owned));
    }

    /// A call that is added to `issue` without a permit would fail in confined replays alone.
    #[test]
    fn every_call_that_is_issued_is_permitted() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut issued, mut permitted) = (BTreeSet::new(), BTreeSet::new());
        names(&src.join("run"), &mut issued);
        names(&src.join("base/ids.rs"), &mut issued);
        names(&src.join("run/issue/permitted.rs"), &mut permitted);
        let missing: Vec<_> = issued.difference(&permitted).collect();
        assert!(missing.is_empty() && issued.len() > 50, "add to permitted.rs: {missing:?}");
    }

    #[test]
    fn requests_are_permitted_only_where_there_are_some() {
        let has = |some, number: c_long| calls(some, some).iter().any(|p| p.number == number);
        assert!(!has(false, libc::SYS_io_uring_setup) && has(true, libc::SYS_io_uring_setup));
        assert!(!has(false, libc::SYS_socketpair) && has(true, libc::SYS_recvmsg));
        let never = [
            libc::SYS_execve,
            libc::SYS_socket,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_pivot_root,
            libc::SYS_bpf,
        ];
        assert!(never.iter().all(|number| !has(true, *number)));
    }
}
