//! The table of recorded system calls: the role of each argument, and how arguments become columns.
//!
//! In: the arguments and the result of a call or of an io_uring request. Out: columns of `ops`, and the role of each
//! argument for the probes ([`Call::desc`]). The probes know no call by name: one line here defines each call.
//! `docs/calls.md` documents the calls for readers of reels. May use `host`.

mod compat;
mod files;
mod ioctl;
mod locks;
mod parts;
mod space;
#[cfg(test)]
mod tests;
pub(crate) mod uring;
mod users;

use std::ops::Range;

use ioreel_bpf::types::{call_desc, call_kind, op_flags};
use ioreel_traces::{Text, rows::Op, text};

pub use compat::{Compat, compat};
pub use files::{TIME_NOW, TIME_OMIT};
pub use ioctl::{REQUESTS, Request};
pub use locks::COMMANDS;

/// Values of `op` for file I/O of the kernel itself, which comes from no system call.
pub(crate) const KERNEL_IO: [&str; 4] = ["vfs_read", "vfs_write", "vfs_fsync", "vfs_fallocate"];

/// Whether the call treats its starting directory as the root (RESOLVE_IN_ROOT of openat2, linux/openat2.h).
pub(crate) fn is_in_root(op: &Op) -> bool {
    const RESOLVE_IN_ROOT: i64 = 0x10;
    op.op == "openat2" && op.aux2.is_some_and(|resolve| resolve & RESOLVE_IN_ROOT != 0)
}

/// The recorded values of a call that its columns are computed from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw<'a> {
    /// Arguments, as passed in registers.
    pub args: [i64; 6],
    /// What the probe read from user memory; its meaning depends on `Call::desc.user_kind`.
    pub extra: [i64; 4],
    /// Result, or the negative errno.
    pub ret: i64,
    /// `op_flags` of the wire format.
    pub flags: u16,
    /// Position of the first file at entry and at return.
    pub pos: (i64, i64),
    /// Position of the second file at entry and at return.
    pub pos2: (i64, i64),
    /// Ranges that earlier calls read or wrote at the same file position.
    pub moved: Moved<'a>,
    /// The same for the second file.
    pub moved2: Moved<'a>,
    /// A string argument that is not a path.
    pub name: &'a [u8],
    /// Input memory; may be shorter than what the call was given.
    pub input: &'a [u8],
    /// Memory that the call wrote.
    pub output: &'a [u8],
}

/// Ranges that other calls read or wrote through the same open file description since its last seek, if those calls had
/// not yet returned when this call was entered. This call cannot have used any of them. The oldest may be missing.
pub type Moved<'a> = &'a [Range<i64>];

impl Raw<'_> {
    /// An argument as a 32-bit integer, sign-extended.
    fn int(&self, i: usize) -> i32 {
        self.args[i] as i32
    }

    /// Made through the 32-bit entry, whose structs differ.
    fn is_compat(&self) -> bool {
        self.has(op_flags::OPF_COMPAT)
    }

    fn name_text(&self) -> Option<Text> {
        (!self.name.is_empty()).then(|| text::from_bytes(self.name))
    }

    /// The input memory, if all of its `len` bytes were recorded.
    fn value_of(&self, len: i64) -> Option<Text> {
        (i64::try_from(self.input.len()) == Ok(len)).then(|| text::from_bytes(self.input))
    }

    fn extra_known(&self) -> bool {
        !self.has(op_flags::OPF_USER_FAULT)
    }

    /// Offset of a call that uses the position of the open file description.
    ///
    /// Normally the position at return is the position at entry plus the result. If it is not, the call appended, or
    /// other calls moved the position too. A call that was served while this one waited for the position lock makes the
    /// position at entry stale. A call that was served before the probe saw this one return makes the position at
    /// return stale. So if the range that ends at the position at return is taken, and the range that starts at the
    /// position at entry is free, the call used the latter. In all other cases it used the former.
    fn current(pos: (i64, i64), ret: i64, taken: Moved<'_>) -> Option<i64> {
        let moved = ret.max(0);
        let at = pos.1 - moved;
        let free = |at: i64| !taken.iter().any(|t| t.start < at + moved && at < t.end);
        let at = if pos.0 + moved == pos.1 || moved == 0 || (!free(at) && free(pos.0)) { pos.0 } else { at };
        (at >= 0).then_some(at)
    }

    fn has(&self, flag: op_flags) -> bool {
        u32::from(self.flags) & flag.0 != 0
    }

    /// `None` if the descriptor was not open.
    fn position(&self) -> Option<i64> {
        Self::current(self.pos, self.ret, self.moved).filter(|_| self.has(op_flags::OPF_FILE))
    }

    fn position2(&self) -> Option<i64> {
        Self::current(self.pos2, self.ret, self.moved2).filter(|_| self.has(op_flags::OPF_FILE2))
    }
}

/// A recorded system call.
#[derive(Clone, Copy)]
pub struct Call {
    /// Numbers on x86-64, and on architectures with the generic table, such as arm64.
    numbers: [Option<u16>; 2],
    /// Name in the kernel.
    pub name: &'static str,
    /// Role of each argument; arguments are counted from 1.
    pub desc: call_desc,
    /// A successful call changes the file system, so settling must sync it.
    pub modifies: bool,
    /// Fills the columns that `desc` does not determine.
    pub fill: fn(&Raw<'_>, &mut Op),
}

/// All recorded calls of all architectures.
fn of_all() -> impl Iterator<Item = &'static Call> {
    [files::CALLS, locks::CALLS, space::CALLS, ioctl::CALLS, users::CALLS].into_iter().flatten()
}

/// All recorded calls of this architecture, with their numbers.
pub fn numbered() -> impl Iterator<Item = (usize, &'static Call)> {
    let here = usize::from(!cfg!(target_arch = "x86_64"));
    of_all().filter_map(move |c| Some((c.numbers[here]?.into(), c)))
}

/// All recorded calls of this architecture.
pub fn all() -> impl Iterator<Item = &'static Call> {
    numbered().map(|(_, c)| c)
}

/// Calls that may dirty pages of files: one bit per call number, for the 64-bit entry and the 32-bit entry.
pub(crate) fn dirtying() -> [[u64; 8]; 2] {
    let dirties = |c: &Call| c.modifies || c.name.starts_with("io_uring");
    let mut sets = [[0u64; 8]; 2];
    let here = numbered().filter(|(_, c)| dirties(c)).map(|(nr, _)| (0, nr));
    let compat = compat().iter().filter(|c| c.call.is_some_and(dirties)).map(|c| (1, c.nr));
    for (set, nr) in here.chain(compat) {
        if let Some(word) = sets[set].get_mut(nr / 64) {
            *word |= 1 << (nr % 64);
        }
    }
    sets
}

/// Whether a write goes to the end of the file whatever offset it names: `RWF_APPEND`, or a descriptor that is
/// `append_only` without `RWF_NOAPPEND` (Linux 6.9).
pub(crate) fn appends(append_only: bool, rw_flags: i64) -> bool {
    const RWF_NOAPPEND: i64 = 0x20;
    rw_flags & RWF_NOAPPEND == 0 && (append_only || rw_flags & i64::from(libc::RWF_APPEND) != 0)
}

/// Whether a successful result of the operation is a new descriptor.
pub(crate) fn makes_descriptor(call: &Call, op: &Op) -> bool {
    let kind = call_kind(u32::from(call.desc.kind));
    match kind {
        call_kind::CALL_OPEN | call_kind::CALL_FD | call_kind::CALL_HANDLE_OPEN => true,
        call_kind::CALL_FCNTL => {
            op.flags.is_some_and(|f| f == i64::from(libc::F_DUPFD) || f == i64::from(libc::F_DUPFD_CLOEXEC))
        }
        _ => matches!(&*op.op, "dup" | "dup2" | "dup3"),
    }
}

/// Fills the probes' call tables, by number: 64-bit entry and 32-bit entry.
pub(crate) fn tell(calls: &mut [call_desc], calls32: &mut [call_desc]) {
    for (nr, call) in numbered() {
        calls[nr] = summed_up(call.desc);
    }
    for call in compat() {
        calls32[call.nr] = summed_up(call.desc);
    }
}

/// Computes the summary flags, which save the probes several checks.
fn summed_up(d: call_desc) -> call_desc {
    const IN_USER_NAME_SPACE: u8 = 2;
    let kind = call_kind(d.kind.into());
    let is_special = kind.0 > call_kind::CALL_FCNTL.0 && kind != call_kind::CALL_URING;
    let memory = is_special || [d.name, d.r#in, d.out].iter().any(|arg| *arg != 0);
    let tail = memory || [d.path, d.path2, d.fd2, d.user_kind].iter().any(|part| *part != 0);
    let names_users = matches!(kind, call_kind::CALL_OWNER | call_kind::CALL_IDS);
    let memory = if names_users { IN_USER_NAME_SPACE } else { memory.into() };
    call_desc { memory, tail: tail.into(), ..d }
}

/// Columns that a call fills, including those that depend on its result, for the documentation. Found by running `fill`
/// on sample arguments. `command`: the second argument of fcntl and ioctl.
pub fn columns(call: &Call, command: Option<i64>) -> Vec<&'static str> {
    let d = &call.desc;
    let mut found = Vec::new();
    let mut note = |name: &'static str, is: bool| {
        if is && !found.contains(&name) {
            found.push(name);
        }
    };
    // A length of 1, then zeros.
    let mut bytes = [0_u8; 200];
    bytes[0] = 1;
    let mut merged: Vec<Op> = Vec::new();
    let flags = (op_flags::OPF_FILE.0 | op_flags::OPF_FILE2.0) as u16;
    for mut args in [[1, 1, 1, 1, 1, 1], [1, 5, 1, 24, 1, 1], [1, 1, 0, 1, -1, 0]] {
        args[1] = command.unwrap_or(args[1]);
        for input in [&bytes[..1], &bytes[..]] {
            let raw =
                Raw { args, flags, pos: (1, 1), pos2: (1, 1), name: b"name", input, output: &bytes, ..Raw::default() };
            let mut op = Op::default();
            (call.fill)(&raw, &mut op);
            merged.push(op);
        }
    }
    let any = |f: fn(&Op) -> bool| merged.iter().any(f);
    note("fd", d.fd != 0 || any(|o| o.fd.is_some()));
    note("fd2", d.fd2 != 0 || any(|o| o.fd2.is_some()));
    note("dirfd", d.dirfd != 0 || any(|o| o.dirfd.is_some()));
    note("dirfd2", d.dirfd2 != 0 || any(|o| o.dirfd2.is_some()));
    note("path", d.path != 0 || any(|o| o.path.is_some()));
    note("path2", d.path2 != 0 || any(|o| o.path2.is_some()));
    note("name", any(|o| o.name.is_some()));
    note("value", any(|o| o.value.is_some()));
    note("offset_bytes", any(|o| o.offset_bytes.is_some()));
    note("offset2_bytes", any(|o| o.offset2_bytes.is_some()));
    note("len_bytes", any(|o| o.len_bytes.is_some()));
    note("flags", any(|o| o.flags.is_some()));
    note("mode", any(|o| o.mode.is_some()));
    note("aux", any(|o| o.aux.is_some()));
    note("aux2", any(|o| o.aux2.is_some()));
    note("ring", call.name.starts_with("io_"));
    found
}
