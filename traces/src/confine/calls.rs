//! Filters of system calls (seccomp). A call that a filter does not let through fails with EPERM: a C library that tries
//! something new at the start of a thread can go on without it.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, Error, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter,
};

use super::Needs;

/// A condition on an argument of a call: `argument & mask == value`. Only the low 32 bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Which one, from 0.
    pub index: u8,
    /// Bits that count.
    pub mask: u32,
    /// What they must be.
    pub value: u32,
}

/// A system call that is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Its number.
    pub number: c_long,
    /// Only with this argument, if given. Several permits of a call with conditions add up.
    pub only: Option<Argument>,
}

impl From<c_long> for Permit {
    fn from(number: c_long) -> Self {
        Self { number, only: None }
    }
}

/// What no reader needs: the network, other processes, mounts, and settings of the machine.
const NOT_FOR_READERS: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// What only a reader that starts programs needs.
const PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// What only a reader that uses io_uring needs.
const RINGS: &[c_long] = &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

fn arch() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, otherwise: SeccompAction, then: SeccompAction) -> Result<(), Error> {
    let program: seccompiler::BpfProgram = SeccompFilter::new(rules, otherwise, then, arch()?)?.try_into()?;
    apply_filter(&program)
}

fn refusal(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno as u32)
}

/// The calling thread makes none of the calls from now on that no reader needs.
pub(super) fn refuse_to_reader(needs: &Needs) -> Result<(), Error> {
    let programs = if needs.runs_programs { &[] } else { PROGRAMS };
    let rings = if needs.io_uring { &[] } else { RINGS };
    let rules = NOT_FOR_READERS.iter().chain(programs).chain(rings).map(|number| (*number, Vec::new())).collect();
    apply(rules, SeccompAction::Allow, refusal(libc::EPERM))
}

/// The calling thread makes only these calls from now on.
pub(super) fn permit_only(permitted: &[Permit]) -> Result<(), Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for Permit { number, only } in permitted {
        let of_call = rules.entry(*number).or_default();
        if let Some(Argument { index, mask, value }) = *only {
            let condition = SeccompCondition::new(index, Dword, MaskedEq(mask.into()), value.into())?;
            of_call.push(SeccompRule::new(vec![condition])?);
        }
    }
    // Without it, C libraries take clone, whose flags are an argument that a filter sees. The other filter lets it through,
    // because of two refusals the later filter's counts.
    rules.insert(libc::SYS_clone3, Vec::new());
    let newer_clone = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    apply(newer_clone, SeccompAction::Allow, refusal(libc::ENOSYS))?;
    apply(rules, refusal(libc::EPERM), SeccompAction::Allow)
}
