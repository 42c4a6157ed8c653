//! Comparison of results with the recorded ones.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    Call,
    base::errno::errno_name,
    plan::{
        chunk::Chunk,
        program::{Act, Plan},
    },
    reel::input::{NO_ID, NONE, Rec},
    run::{engine::Outcome, outcomes::Outcomes},
};

/// Examples kept of each kind of difference.
const EXAMPLES: usize = 3;

/// How a result compares with the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Equal, or not comparable by nature.
    Same,
    /// Different, but the operation raced with the one that decided its result: the original could have had this
    /// result.
    Benign,
    /// Different, because one of the two file systems does not support the operation.
    Unsupported,
    /// Different otherwise.
    Wrong,
}

/// Number of results in each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Classes {
    /// [`Class::Same`].
    pub same: i64,
    /// [`Class::Benign`].
    pub benign: i64,
    /// [`Class::Unsupported`].
    pub unsupported: i64,
    /// [`Class::Wrong`].
    pub wrong: i64,
}

/// One kind of difference: call, recorded outcome and replayed outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its class.
    pub class: Class,
    /// The call.
    pub op: String,
    /// Outcome in the recording: `ok`, an errno's name, or `a byte count`.
    pub recorded: String,
    /// Outcome in the replay: likewise, or `fewer bytes`, `more bytes`.
    pub replayed: String,
    /// Number of operations.
    pub count: i64,
    /// The first ones.
    pub examples: Vec<Example>,
}

/// One differing operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Time of issue, ns of the replay.
    pub start_ns: i64,
    /// The operation's path, or that of its file.
    pub path: Option<String>,
    /// Its file: key into the reel's `files`.
    pub file: Option<i64>,
    /// Its recorded result.
    pub recorded: i64,
    /// Its result in the replay.
    pub replayed: i64,
}

/// Bytes that calls moved, from their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Read.
    pub read: i64,
    /// Written.
    pub written: i64,
    /// Copied from file to file.
    pub copied: i64,
}

/// Comparison of all results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// Number of results in each class.
    pub classes: Classes,
    /// Operations that were planned but not issued, or for which another was issued. Always 0.
    #[serde(skip)]
    pub missing: i64,
    /// Operations that were issued more than once, or out of their thread's order. Always 0.
    pub strayed: i64,
    /// Differences by kind: worst class first, then most frequent first.
    pub differences: Vec<Difference>,
    /// Bytes that the replayed operations moved in the original.
    pub original_bytes: Bytes,
    /// Bytes moved in the replay.
    pub replay_bytes: Bytes,
}

/// Errnos by which a file system or kernel says that it does not support a call.
const CANNOT: [i32; 3] = [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTTY];

/// Compares a result with the recorded one. They differ if success or failure, errno, or the byte count on a regular
/// file or link differs. Descriptors, addresses and the bytes returned per directory listing are not comparable.
pub fn class(r: &Rec, ret: i64) -> Class {
    // POSIX allows either errno for a directory that is not empty.
    let not_empty = |ret: i64| [libc::EEXIST, libc::ENOTEMPTY].map(|e| -i64::from(e)).contains(&ret);
    let removes = r.call.renames() || matches!(r.call, Call::Rmdir | Call::Unlinkat);
    if removes && not_empty(r.ret) && not_empty(ret) {
        return Class::Same;
    }
    if by_nature(r, r.ret) && by_nature(r, ret) {
        return Class::Same;
    }
    let differs =
        if r.ret < 0 || ret < 0 { r.ret != ret } else { r.call.counts_bytes() && r.regular && counts_differ(r, ret) };
    // A file system without FIBMAP returns EINVAL.
    let bmap = |ret: i64| r.call == Call::Fibmap && ret == -i64::from(libc::EINVAL);
    // Direct I/O fails with EINVAL if it is unaligned on this device, for example because its blocks are larger.
    let misaligned = |ret: i64| r.direct && (r.call.reads() || r.call.writes()) && ret == -i64::from(libc::EINVAL);
    // How long a value may be: a block on ext4, 64 KiB on XFS.
    let too_long =
        |ret: i64| r.call.sets_attribute() && [libc::ENOSPC, libc::E2BIG].iter().any(|e| ret == -i64::from(*e));
    let cannot =
        |ret: i64| CANNOT.iter().any(|e| ret == -i64::from(*e)) || bmap(ret) || misaligned(ret) || too_long(ret);
    match differs {
        false => Class::Same,
        true if r.raced => Class::Benign,
        // If the original's file system could not do it and the replay fails with a third result, that is wrong.
        true if cannot(ret) || cannot(r.ret) && ret >= 0 => Class::Unsupported,
        true => Class::Wrong,
    }
}

/// Results among which a file system's kind decides, on the same file. Nothing of the tree depends on them.
fn by_nature(r: &Rec, ret: i64) -> bool {
    let is = |errno: i32| ret == -i64::from(errno);
    ret >= 0
        && (r.call.lists_attributes() || r.call == Call::NameToHandleAt || looks_for_data(r))
        // XFS lists an access list under two names, so that the list needs more room.
        || r.call.lists_attributes() && is(libc::ERANGE)
        // Handles of btrfs are longer than those of ext4.
        || r.call == Call::NameToHandleAt && is(libc::EOVERFLOW)
        // Which ranges are holes depends on allocation.
        || looks_for_data(r) && is(libc::ENXIO)
}

fn looks_for_data(r: &Rec) -> bool {
    r.call == Call::Lseek && matches!(r.flags as i32, libc::SEEK_DATA | libc::SEEK_HOLE)
}

fn counts_differ(r: &Rec, ret: i64) -> bool {
    if r.loose { (r.ret == 0) != (ret == 0) } else { r.ret != ret }
}

fn outcome_name(ret: i64) -> String {
    if ret < 0 { errno_name(-ret) } else { "ok".into() }
}

fn moved(bytes: &mut Bytes, call: Call, ret: i64) {
    let ret = ret.max(0);
    let to = match call {
        c if c.reads() => &mut bytes.read,
        c if c.writes() => &mut bytes.written,
        c if c.copies() => &mut bytes.copied,
        _ => return,
    };
    *to = to.saturating_add(ret);
}

/// Calls `each` for every replayed operation, thread by thread, in program order.
pub(crate) fn each_call(plan: &Plan, outcomes: &Outcomes, mut each: impl FnMut(&Rec, &Outcome, &Chunk)) {
    for task in 0..plan.tasks.len() as u32 {
        let mut next = outcomes.of_task(task).peekable();
        plan.each_step(task, |number, step, chunk| {
            // Skip an outcome that is out of order, so that those after it are found.
            while next.next_if(|o| o.step < number).is_some() {}
            if let Act::Call { rec, .. } = step.act
                && let Some(o) = next.next_if(|o| o.step == number)
            {
                each(&chunk.recs[rec as usize], &o, chunk);
            }
        });
    }
}

/// Compares every result with the recorded one.
pub fn results(plan: &Plan, outcomes: &Outcomes) -> Results {
    let mut out = Results { missing: plan.calls, strayed: outcomes.len(), ..Results::default() };
    let mut groups: BTreeMap<(Class, &'static str, String, String), Difference> = BTreeMap::new();
    each_call(plan, outcomes, |r, o, chunk| {
        out.strayed -= 1;
        if o.row != r.row {
            return;
        }
        out.missing -= 1;
        moved(&mut out.original_bytes, r.call, r.ret);
        moved(&mut out.replay_bytes, r.call, o.ret);
        let class = class(r, o.ret);
        match class {
            Class::Same => out.classes.same += 1,
            Class::Benign => out.classes.benign += 1,
            Class::Unsupported => out.classes.unsupported += 1,
            Class::Wrong => out.classes.wrong += 1,
        }
        if class == Class::Same {
            return;
        }
        // All different byte counts form one group.
        let (recorded, replayed) = if r.ret >= 0 && o.ret >= 0 {
            ("a byte count".to_owned(), if o.ret < r.ret { "fewer bytes" } else { "more bytes" }.to_owned())
        } else {
            (outcome_name(r.ret), outcome_name(o.ret))
        };
        let key = (class, r.call.name(), recorded.clone(), replayed.clone());
        let group = groups.entry(key).or_insert_with(|| Difference {
            class,
            op: r.call.name().into(),
            recorded,
            replayed,
            count: 0,
            examples: Vec::new(),
        });
        group.count += 1;
        if group.examples.len() < EXAMPLES {
            let path = |i: u32| (i != NONE).then(|| String::from_utf8_lossy(chunk.paths.bytes(i)).into_owned());
            group.examples.push(Example {
                start_ns: o.start_ns,
                path: path(r.path),
                file: Some(r.file).filter(|f| *f != NO_ID),
                recorded: r.ret,
                replayed: o.ret,
            });
        }
    });
    out.differences = groups.into_values().collect();
    out.differences.sort_by_key(|g| (std::cmp::Reverse(g.class), -g.count));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_alignment_is_no_wrong_result() {
        let einval = -i64::from(libc::EINVAL);
        let read = |direct| Rec { call: Call::Pread64, regular: true, direct, ret: 100, ..Rec::none() };
        assert_eq!(class(&read(true), einval), Class::Unsupported);
        assert_eq!(class(&read(false), einval), Class::Wrong);
        assert_eq!(class(&read(true), 99), Class::Wrong);
    }

    #[test]
    fn a_refusal_of_another_kind_is_wrong_whatever_was_refused_there() {
        let [no_tty, bad] = [libc::ENOTTY, libc::EBADF].map(|e| -i64::from(e));
        let asks = Rec { call: Call::Tcgets, ret: no_tty, ..Rec::none() };
        assert_eq!(class(&asks, no_tty), Class::Same);
        assert_eq!(class(&asks, bad), Class::Wrong, "the file is not open");
        assert_eq!(class(&Rec { ret: 0, ..asks }, no_tty), Class::Unsupported);
    }

    #[test]
    fn what_a_kind_of_file_system_decides_is_not_wrong() {
        let errno = |e: i32| -i64::from(e);
        let of = |call, ret| Rec { call, ret, ..Rec::none() };
        assert_eq!(class(&of(Call::Flistxattr, 40), errno(libc::ERANGE)), Class::Same);
        assert_eq!(class(&of(Call::Listxattr, errno(libc::ERANGE)), 80), Class::Same);
        assert_eq!(class(&of(Call::Listxattr, 40), errno(libc::ENOENT)), Class::Wrong);
        assert_eq!(class(&of(Call::NameToHandleAt, 0), errno(libc::EOVERFLOW)), Class::Same);
        let seek = |flags: i32, ret| Rec { flags: flags.into(), ..of(Call::Lseek, ret) };
        assert_eq!(class(&seek(libc::SEEK_DATA, 4096), errno(libc::ENXIO)), Class::Same);
        assert_eq!(class(&seek(libc::SEEK_SET, 4096), errno(libc::ENXIO)), Class::Wrong);
        assert_eq!(class(&of(Call::Fsetxattr, 0), errno(libc::ENOSPC)), Class::Unsupported);
        assert_eq!(class(&of(Call::Write, 0), errno(libc::ENOSPC)), Class::Wrong);
    }

    #[test]
    fn a_directory_that_is_not_empty_may_be_refused_either_way() {
        let [exist, not_empty] = [libc::EEXIST, libc::ENOTEMPTY].map(|e| -i64::from(e));
        let failed = |call, ret| Rec { call, ret, ..Rec::none() };
        assert_eq!(class(&failed(Call::Rename, not_empty), exist), Class::Same);
        assert_eq!(class(&failed(Call::Rmdir, exist), not_empty), Class::Same);
        assert_eq!(class(&failed(Call::Rename, not_empty), 0), Class::Wrong);
        assert_eq!(class(&failed(Call::Mkdir, exist), not_empty), Class::Wrong);
    }
}
