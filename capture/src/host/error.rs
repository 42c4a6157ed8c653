//! Errors of recording, each one line: the thing, the cause, the remedy.

use std::{io, path::PathBuf};

use ioreel_traces::ReelError;

/// What can keep a recording from starting or going on.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// No permission for BPF.
    #[error("recording needs CAP_BPF and CAP_PERFMON ({why}); run it as root, see `ioreel doctor`")]
    NoPrivileges {
        /// The refused action.
        why: String,
    },
    /// The kernel describes no types.
    #[error(
        "/sys/kernel/btf/vmlinux is missing: this kernel was built without CONFIG_DEBUG_INFO_BTF; use one that has it"
    )]
    NoBtf,
    /// Kernel memory may not be read.
    #[error(
        "the kernel is locked down to confidentiality: probes may not read its memory; boot with lockdown=integrity or without"
    )]
    Confidential,
    /// A program was refused without which there is no recording.
    #[error(
        "the kernel refused the probe {program}: {why}; `ioreel doctor` says what is missing, -vv shows the verifier's log"
    )]
    Refused {
        /// Its name.
        program: String,
        /// The verifier's last words, or the system's.
        why: String,
    },
    /// A BPF program or map was refused.
    #[error(
        "the kernel refused the probes while {doing}: {why}; `ioreel doctor` says what is missing, -vv shows the verifier's log"
    )]
    Bpf {
        /// Stage.
        doing: &'static str,
        /// libbpf's message.
        why: String,
    },
    /// The limit of open descriptors is too low.
    #[error(
        "no descriptors are left while {doing}: probes and their tables take some hundred; raise the hard limit (`ulimit -Hn 1024`)"
    )]
    FewDescriptors {
        /// Stage.
        doing: &'static str,
    },
    /// The rings of so many CPUs do not fit what they may take.
    #[error("--ring-mib {total_mib}: {cpus} CPUs need at least {least_mib}")]
    RingsTooSmall {
        /// As given.
        total_mib: usize,
        /// Possible CPUs.
        cpus: usize,
        /// What would do.
        least_mib: usize,
    },
    /// `--backend fentry` where it cannot be had.
    #[error(
        "--backend fentry: the kernel refuses programs on its functions ({why}); record with --backend tracepoint, or on a \
         stock distribution kernel; `ioreel doctor` says more"
    )]
    NoFentry {
        /// The kernel's reason.
        why: String,
    },
    /// `--lossless` in a container.
    #[error(
        "--lossless: process ids here are not the kernel's (a container's own name space), so stopped processes could not be resumed; run it on the host"
    )]
    OtherProcessIds,
    /// `--content full` with `--anonymize`.
    #[error("--content full: the bytes of files would tell what --anonymize hides; use --content hash")]
    ContentOfNobody,
    /// `--lossless` for processes of others, without the right to resume them.
    #[error(
        "--lossless: without CAP_KILL processes of other users could not be resumed; run it as root, or record a command"
    )]
    NoKill,
    /// The command's first word is empty.
    #[error("the command is an empty word; name a program behind --")]
    EmptyCommand,
    /// The command cannot be started.
    #[error("{program}: cannot be started: {source}")]
    Command {
        /// As given.
        program: String,
        /// The system's answer to execvp.
        source: io::Error,
    },
    /// A signal came before anything was recorded.
    #[error(
        "ended by signal {signal} before the recording had begun: nothing was recorded, and nothing is left behind"
    )]
    Interrupted {
        /// Its number.
        signal: i32,
    },
    /// No such process.
    #[error("--pid {pid}: no such process")]
    NoProcess {
        /// As given.
        pid: u32,
    },
    /// It makes no calls.
    #[error(
        "--pid {pid}: a thread of the kernel's, which makes no calls: --all records what such threads do to files and disks"
    )]
    KernelThread {
        /// As given.
        pid: u32,
    },
    /// Not a process, but one of its threads.
    #[error("--pid {pid}: a thread of process {tgid}, all of which is recorded by --pid {tgid}")]
    ThreadOf {
        /// As given.
        pid: u32,
        /// Its process.
        tgid: u32,
    },
    /// `--min-free` leaves no room from the start.
    #[error(
        "--min-free: less is free where the reel is to be written ({free_bytes} bytes); ask for less, or write it elsewhere"
    )]
    NothingFree {
        /// Free there.
        free_bytes: i64,
    },
    /// No such control group.
    #[error(
        "--cgroup {name}: {why}; name a folder of the cgroup2 hierarchy (see `mount -t cgroup2`), or its inode number"
    )]
    NoCgroup {
        /// As given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such device.
    #[error("--device {name}: {why}; name a block device as in /dev or as MAJOR:MINOR (see lsblk)")]
    NoDevice {
        /// As given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A filter that cannot be.
    #[error("{option}: {why}")]
    Filter {
        /// The option with its word.
        option: String,
        /// What is wrong with it, and what would do.
        why: String,
    },
    /// A mark that no recording took.
    #[error("mark {name}: {why}")]
    Mark {
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// `--snapshot` names no folder.
    #[error("--snapshot {path}: {source}", path = path.display())]
    Snapshot {
        /// As given.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A system call of the recorder itself failed.
    #[error("{doing}: {source}")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
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

/// By the words of the system, or of libbpf.
pub(crate) fn is_out_of_descriptors(why: &str) -> bool {
    why.contains("EMFILE") || why.contains(&format!("os error {}", libc::EMFILE))
}
