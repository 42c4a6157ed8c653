//! Errors of recording. Each is one line: what failed, why, and what to do.

use std::{io, path::PathBuf};

use ioreel_traces::ReelError;

/// Why a recording cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Capabilities are missing.
    #[error("recording needs CAP_BPF and CAP_PERFMON ({why}); run it as root, see `ioreel doctor`")]
    NoPrivileges {
        /// The action that was refused.
        why: String,
    },
    /// The kernel has no BTF.
    #[error(
        "/sys/kernel/btf/vmlinux is missing: this kernel was built without CONFIG_DEBUG_INFO_BTF; use one that has it"
    )]
    NoBtf,
    /// Lockdown forbids BPF programs to read kernel memory.
    #[error(
        "the kernel is locked down to confidentiality: probes may not read its memory; boot with lockdown=integrity or without"
    )]
    Confidential,
    /// A required program was refused.
    #[error(
        "the kernel refused the probe {program}: {why}; `ioreel doctor` says what is missing, -vv shows the verifier's log"
    )]
    Refused {
        /// Name of the program.
        program: String,
        /// Last line of the verifier's log, or the system error.
        why: String,
    },
    /// A BPF program or map was refused.
    #[error(
        "the kernel refused the probes while {doing}: {why}; `ioreel doctor` says what is missing, -vv shows the verifier's log"
    )]
    Bpf {
        /// Stage.
        doing: &'static str,
        /// Message of libbpf.
        why: String,
    },
    /// RLIMIT_NOFILE is too low.
    #[error(
        "no descriptors are left while {doing}: probes and their tables take some hundred; raise the hard limit (`ulimit -Hn 1024`)"
    )]
    FewDescriptors {
        /// Stage.
        doing: &'static str,
    },
    /// `--ring-mib` is too small for this many CPUs.
    #[error("--ring-mib {total_mib}: {cpus} CPUs need at least {least_mib}")]
    RingsTooSmall {
        /// The value given.
        total_mib: usize,
        /// Possible CPUs.
        cpus: usize,
        /// Smallest value that works.
        least_mib: usize,
    },
    /// `--backend fentry` on a kernel that does not support it.
    #[error(
        "--backend fentry: the kernel refuses programs on its functions ({why}); record with --backend tracepoint, or on a \
         stock distribution kernel; `ioreel doctor` says more"
    )]
    NoFentry {
        /// The kernel's reason.
        why: String,
    },
    /// `--lossless` outside the initial pid namespace.
    #[error(
        "--lossless: process ids here are not the kernel's (a container's own name space), so stopped processes could not be resumed; run it on the host"
    )]
    OtherProcessIds,
    /// `--content full` with `--anonymize`.
    #[error("--content full: the bytes of files would tell what --anonymize hides; use --content hash")]
    ContentOfNobody,
    /// `--lossless` for other users' processes without CAP_KILL.
    #[error(
        "--lossless: without CAP_KILL processes of other users could not be resumed; run it as root, or record a command"
    )]
    NoKill,
    /// The first word of the command is empty.
    #[error("the command is an empty word; name a program behind --")]
    EmptyCommand,
    /// The command cannot be executed.
    #[error("{program}: cannot be started: {source}")]
    Command {
        /// The program as given.
        program: String,
        /// Error of execvp.
        source: io::Error,
    },
    /// A signal arrived before the recording started.
    #[error(
        "ended by signal {signal} before the recording had begun: nothing was recorded, and nothing is left behind"
    )]
    Interrupted {
        /// Signal number.
        signal: i32,
    },
    /// No such process.
    #[error("--pid {pid}: no such process")]
    NoProcess {
        /// The id given.
        pid: u32,
    },
    /// `--pid` names a kernel thread, which makes no system calls.
    #[error(
        "--pid {pid}: a thread of the kernel's, which makes no calls: --all records what such threads do to files and disks"
    )]
    KernelThread {
        /// The id given.
        pid: u32,
    },
    /// `--pid` names a thread that is not its process's leader.
    #[error("--pid {pid}: a thread of process {tgid}, all of which is recorded by --pid {tgid}")]
    ThreadOf {
        /// The id given.
        pid: u32,
        /// The process of the thread.
        tgid: u32,
    },
    /// Less space is free at the start than `--min-free` requires.
    #[error(
        "--min-free: less is free where the reel is to be written ({free_bytes} bytes); ask for less, or write it elsewhere"
    )]
    NothingFree {
        /// Free bytes on the file system of the reel.
        free_bytes: i64,
    },
    /// No such control group.
    #[error(
        "--cgroup {name}: {why}; name a folder of the cgroup2 hierarchy (see `mount -t cgroup2`), or its inode number"
    )]
    NoCgroup {
        /// The name given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such device.
    #[error("--device {name}: {why}; name a block device as in /dev or as MAJOR:MINOR (see lsblk)")]
    NoDevice {
        /// The name given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Invalid filter.
    #[error("{option}: {why}")]
    Filter {
        /// The option and its value.
        option: String,
        /// What is wrong with it, and what is allowed.
        why: String,
    },
    /// A mark that no running recording accepted.
    #[error("mark {name}: {why}")]
    Mark {
        /// Name of the mark.
        name: String,
        /// Why it was not accepted.
        why: String,
    },
    /// `--snapshot` does not name a readable folder.
    #[error("--snapshot {path}: {source}", path = path.display())]
    Snapshot {
        /// The path given.
        path: PathBuf,
        /// System error.
        source: io::Error,
    },
    /// A system call of the recorder itself failed.
    #[error("{doing}: {source}")]
    Os {
        /// The action that failed.
        doing: &'static str,
        /// System error.
        source: io::Error,
    },
    /// Writing the reel failed.
    #[error(transparent)]
    Reel(#[from] ReelError),
}

impl CaptureError {
    pub(crate) fn os(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Os { doing, source }
    }

    pub(crate) fn bpf(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |e| {
            if e.kind() == libbpf_rs::ErrorKind::PermissionDenied && !crate::host::may_use_bpf() {
                return Self::NoPrivileges { why: format!("refused while {doing}") };
            }
            let why = format!("{e:#}").replace('\n', " ");
            if is_out_of_descriptors(&why) {
                return Self::FewDescriptors { doing };
            }
            Self::Bpf { doing, why }
        }
    }
}

/// Recognises EMFILE by the message of the system or of libbpf.
pub(crate) fn is_out_of_descriptors(why: &str) -> bool {
    why.contains("EMFILE") || why.contains(&format!("os error {}", libc::EMFILE))
}
