//! Operations that are left out of the plan although they concern replayed files.

use std::collections::BTreeMap;

use crate::{
    Call, Skip,
    model::{
        machine::Machine,
        names::{NO_NODE, NodeId},
        operands::Operands,
    },
    reel::{
        input::{NO_FD, NO_ID, NONE, Rec},
        record_kind::{alters, changes_names, only_looks},
    },
};

/// Number of operations kept as examples.
const EXAMPLES: usize = 10;

/// Operations on replayed files that succeeded in the original and are not in the plan. The verdict names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Their number, by reason.
    pub by_reason: BTreeMap<Skip, i64>,
    /// The first of them: call, path and reason.
    pub examples: Vec<String>,
    /// The first mounts that are not followed.
    pub unfollowed_mounts: Vec<String>,
}

impl Gaps {
    /// Counts an operation that is left out because of `why`, if it is a gap.
    pub(crate) fn left_out(&mut self, machine: &Machine, r: &Rec, v: &Operands, why: Skip) {
        if !is_gap(machine, r, v, why) {
            return;
        }
        *self.by_reason.entry(why).or_default() += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{}: {}", said(machine, r, v), why.label()));
        }
    }
}

/// The operation in words.
fn said(machine: &Machine, r: &Rec, v: &Operands) -> String {
    let within = |node: NodeId| node != NO_NODE && machine.names.area(node).is_none();
    let node = [v.node, v.node2].into_iter().find(|n| within(*n));
    let named = machine.named_files.name_of(r.file).filter(|_| r.file != NO_ID);
    let path = match node.or(named) {
        Some(node) => machine.names.path(node),
        // A mount has its place second.
        None if r.call.mounts() && r.path2 != NONE => machine.reel.texts.paths.bytes(r.path2).to_vec(),
        None if r.path != NONE => machine.reel.texts.paths.bytes(r.path).to_vec(),
        None => Vec::new(),
    };
    let call = if r.call == Call::Other { "a call on" } else { r.call.name() };
    format!("{call} {}", String::from_utf8_lossy(&path)).trim_end().to_owned()
}

/// Whether an operation that is left out because of `why` belongs to the work on replayed files.
fn is_gap(machine: &Machine, r: &Rec, v: &Operands, why: Skip) -> bool {
    // What failed has left nothing behind.
    if r.ret < 0 && !r.in_flight && why != Skip::PartlyReserved {
        return false;
    }
    match why {
        // The place is elsewhere, the user decided, or the work is not on files.
        Skip::Proc | Skip::Sys | Skip::Dev | Skip::Outside | Skip::OtherMount | Skip::PrivilegedAttribute => false,
        // It may be on files of the tree.
        Skip::UnfollowedMount => !matches!(r.call, Call::Close | Call::CloseRange),
        // The file is known where the call opened one.
        Skip::MagicLink => {
            let changes = !only_looks(r) && !r.call.reads() && r.call != Call::Chdir;
            changes && (r.file == NO_ID && r.path != NONE || is_within(machine, r, v))
        }
        Skip::ForeignCause | Skip::OtherUser | Skip::Kernel | Skip::OtherLayer => false,
        Skip::Message => !r.call.receives() && is_within(machine, r, v),
        // What is in flight at the end is in no tree yet, unless it changes one.
        Skip::InFlight => r.call != Call::Other && !only_looks(r) && !r.call.reads() && is_within(machine, r, v),
        Skip::Unsupported => r.changes_unknown && (r.fd == NO_FD || is_within(machine, r, v)),
        // I/O on such an object is no work of a file system, its name and its attributes are.
        Skip::Pipe | Skip::Socket | Skip::Device | Skip::NoFile => {
            (changes_names(r) || alters(r)) && !r.call.opens() && is_within(machine, r, v)
        }
        // Whether it concerns replayed files is unknown.
        Skip::NoPath | Skip::LongPath => true,
        // It decides about the owners of all that follows.
        Skip::MappedUser if r.call.sets_user() => true,
        Skip::NeedsRoot if r.call.sets_user() => false,
        Skip::NameSpace => false,
        _ => is_within(machine, r, v),
    }
}

/// Whether it is on a file that is replayed.
fn is_within(machine: &Machine, r: &Rec, v: &Operands) -> bool {
    let mut nodes = [v.node, v.node2].into_iter().filter(|n| *n != NO_NODE).peekable();
    if nodes.peek().is_some() {
        return nodes.any(|n| machine.names.area(n).is_none());
    }
    // What a duplicate replaces is closed in any case.
    machine.file_is_within(r.file) || !r.call.duplicates() && machine.file_is_within(r.file2)
}
