//! Errors of recording. Each is one line: what failed, why, and what to do.

use std::{io, path::PathBuf};

use ioreel_traces::ReelError;

/// Why a recording cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Capabilities are missing.
    #[error("recording needs CAP_BPF and CAP_PERFMON ({why}); run as root; `ioreel doctor` shows what is missing")]
    NoPrivileges {
        /// The action that was refused.
        why: String,
    },
    /// The kernel has no BTF.
    #[error(
        "/sys/kernel/btf/vmlinux is missing: this kernel was built without CONFIG_DEBUG_INFO_BTF; use a kernel built with it"
    )]
    NoBtf,
    /// Lockdown forbids BPF programs to read kernel memory.
    #[error(
        "the kernel is in lockdown mode confidentiality, so probes may not read its memory; boot with lockdown=integrity or without lockdown"
    )]
    Confidential,
    /// A required program was refused.
    #[error(
        "the kernel refused the probe {program}: {why}; `ioreel doctor` shows what is missing, -vv the verifier's log"
    )]
    Refused {
        /// Name of the program.
        program: String,
        /// Last line of the verifier's log, or the system error.
        why: String,
    },
    /// A BPF program or map was refused.
    #[error(
        "the kernel refused the probes ({doing}): {why}; `ioreel doctor` shows what is missing, -vv the verifier's log"
    )]
    Bpf {
        /// Stage.
        doing: &'static str,
        /// Message of libbpf.
        why: String,
    },
    /// RLIMIT_NOFILE is too low.
    #[error(
        "too few file descriptors ({doing}): probes and their maps need some hundred; raise the hard limit (`ulimit -Hn 1024`)"
    )]
    FewDescriptors {
        /// Stage.
        doing: &'static str,
    },
    /// `--ring-mib` is too small for this many CPUs.
    #[error("--ring-mib {total_mib}: too small for {cpus} CPUs; use at least {least_mib}")]
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
        "--backend fentry: this kernel does not allow fentry programs ({why}); use --backend tracepoint or a stock \
         distribution kernel; `ioreel doctor` shows more"
    )]
    NoFentry {
        /// The kernel's reason.
        why: String,
    },
    /// `--lossless` outside the initial pid namespace.
    #[error(
        "--lossless: this is a PID namespace of a container, from which stopped processes could not be resumed; run ioreel on the host"
    )]
    OtherProcessIds,
    /// `--content full` with `--anonymize`.
    #[error("--content full stores file contents, which --anonymize must not reveal; use --content hash")]
    ContentOfNobody,
    /// `--lossless` for other users' processes without CAP_KILL.
    #[error(
        "--lossless: without CAP_KILL, stopped processes of other users could not be resumed; run as root, or record a command"
    )]
    NoKill,
    /// The first word of the command is empty.
    #[error("the command is empty; name a program after --")]
    EmptyCommand,
    /// The command cannot be executed.
    #[error("{program}: cannot start the command: {source}")]
    Command {
        /// The program as given.
        program: String,
        /// Error of execvp.
        source: io::Error,
    },
    /// A signal arrived before the recording started.
    #[error("ended by signal {signal} before the recording began; nothing was recorded and no reel was written")]
    Interrupted {
        /// Signal number.
        signal: i32,
    },
    /// No such process.
    #[error("--pid {pid}: no such process; `ps -e` lists the processes")]
    NoProcess {
        /// The id given.
        pid: u32,
    },
    /// `--pid` names a kernel thread, which makes no system calls.
    #[error("--pid {pid}: this is a kernel thread, which makes no system calls; --all records its I/O")]
    KernelThread {
        /// The id given.
        pid: u32,
    },
    /// `--pid` names a thread that is not its process's leader.
    #[error("--pid {pid}: this is a thread, not a process; record its whole process with --pid {tgid}")]
    ThreadOf {
        /// The id given.
        pid: u32,
        /// The process of the thread.
        tgid: u32,
    },
    /// More than the caller of a recorder with capabilities of its file may record.
    #[error(
        "{option}: this program has its capabilities from its file (setcap), and then records only the operations of its \
         caller's own processes; run it as root"
    )]
    NotCallers {
        /// The option that asks for more.
        option: String,
    },
    /// Less space is free at the start than `--min-free` requires.
    #[error(
        "--min-free: the file system of the reel has only {free_bytes} bytes free; use a smaller --min-free, or write the reel elsewhere"
    )]
    NothingFree {
        /// Free bytes on the file system of the reel.
        free_bytes: i64,
    },
    /// No such container.
    #[error("--container {name}: {why}; `ioreel doctor` lists the containers, and --cgroup takes any control group")]
    NoContainer {
        /// The name given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such unit of systemd.
    #[error("--unit {name}: {why}; `systemctl status UNIT` shows its control group, and --cgroup takes any")]
    NoUnit {
        /// The name given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such control group.
    #[error(
        "--cgroup {name}: {why}; use a path below the cgroup2 mount (see `mount -t cgroup2`), or the cgroup's inode number"
    )]
    NoCgroup {
        /// The name given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such device.
    #[error("--device {name}: {why}; use a block device as in /dev or MAJOR:MINOR (see lsblk)")]
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
