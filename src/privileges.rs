//! Capabilities of this process: dropped where a command needs none, and narrowed where everybody may start it.
//!
//! A process of a user other than root can have capabilities in two ways.
//!
//! * Root gave them to this process: an ambient set, as systemd's `AmbientCapabilities=` or setpriv(1) make it. `record`,
//!   `top` and `doctor` keep them and may record whatever they could before.
//! * The program's file has them (setcap(8)), or is set-user-ID: then everybody who may execute it has them. Such a caller
//!   records only what it could trace with ptrace(2), and opens every file with its own rights.
//!
//! The kernel empties the ambient set when it takes capabilities from a file, and otherwise permits nothing beyond it. So
//! permitted capabilities outside the ambient set come from the file. `AT_SECURE` does not tell the two apart: security
//! modules set it at changes of domain too.

use std::io;

#[cfg(feature = "capture")]
use ioreel_capture::probes::session::Caller;
use rustix::{
    process::{getegid, geteuid, getgid, getuid},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_ambient_set, clear_ambient_capability_set,
        remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
        set_thread_res_gid, set_thread_res_uid,
    },
};

/// What loading and reading the probes needs.
const FOR_PROBES: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// What this process was started with, and what is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Privileges {
    /// It has capabilities, and its user is not root.
    held: bool,
    /// They come from the program's file.
    from_file: bool,
}

fn single_capabilities() -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit))
}

/// The ambient set. Numbers that this kernel does not know are not in it.
fn ambient() -> CapabilitySet {
    single_capabilities().filter(|one| capability_is_in_ambient_set(*one).unwrap_or(false)).collect()
}

impl Privileges {
    /// Looks at this process. If its capabilities come from the program's file, it becomes its caller's in every other
    /// respect: only what the probes need stays permitted, and nothing is effective. Must be called first of all, while
    /// the process has one thread.
    pub(crate) fn at_start() -> io::Result<Self> {
        let (uid, gid) = (getuid(), getgid());
        let permitted = capabilities(None)?.permitted;
        let is_set_uid = geteuid() != uid;
        if uid.is_root() || permitted.is_empty() && !is_set_uid {
            return Ok(Self::default());
        }
        if !is_set_uid && ambient().contains(permitted) {
            return Ok(Self { held: true, from_file: false });
        }
        shed_all_ways_to_more()?;
        if is_set_uid || getegid() != gid {
            set_keep_capabilities(true)?;
            set_thread_res_gid(gid, gid, gid)?;
            set_thread_res_uid(uid, uid, uid)?;
            set_keep_capabilities(false)?;
        }
        hold(permitted.intersection(FOR_PROBES), CapabilitySet::empty())?;
        Ok(Self { held: true, from_file: true })
    }

    /// For a command that loads probes.
    pub(crate) fn use_for_probes(self) -> io::Result<()> {
        if !self.from_file {
            return Ok(());
        }
        let permitted = capabilities(None)?.permitted;
        hold(permitted, permitted)
    }

    /// For every other command.
    pub(crate) fn drop_all(self) -> io::Result<()> {
        if !self.held {
            return Ok(());
        }
        shed_all_ways_to_more()?;
        hold(CapabilitySet::empty(), CapabilitySet::empty())
    }

    /// Whose processes alone may be recorded; `None`: everybody's, as far as the kernel allows it.
    #[cfg(feature = "capture")]
    pub(crate) fn caller(self) -> Option<Caller> {
        self.from_file.then(|| Caller { uid: getuid().as_raw(), gid: getgid().as_raw() })
    }
}

/// From now on this process has these, and hands none on.
fn hold(permitted: CapabilitySet, effective: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?)
}

/// From now on no program started here has capabilities, whatever its file says.
fn shed_all_ways_to_more() -> io::Result<()> {
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for one in single_capabilities() {
        // Needs CAP_SETPCAP, which setcap seldom gives; no_new_privs does the same for files' capabilities.
        let _ = remove_capability_from_bounding_set(one);
    }
    Ok(())
}
