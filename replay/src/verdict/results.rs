//! Results held against the original's.

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

/// How a result compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The same, or of a kind that differs by nature.
    Same,
    /// Another, of an operation that raced with one that decided its result: the original could have had it, too.
    Benign,
    /// One of the two file systems cannot do this at all.
    Unsupported,
    /// Another.
    Wrong,
}

/// How many results are of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Classes {
    /// Of [`Class::Same`].
    pub same: i64,
    /// Of [`Class::Benign`].
    pub benign: i64,
    /// Of [`Class::Unsupported`].
    pub unsupported: i64,
    /// Of [`Class::Wrong`].
    pub wrong: i64,
}

/// A kind of differing result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its class.
    pub class: Class,
    /// The call.
    pub op: String,
    /// How it ended in the recording: `ok`, an errno's name, or `a byte count`.
    pub recorded: String,
    /// How it ended in the replay.
    pub replayed: String,
    /// How often.
    pub count: i64,
    /// The first ones.
    pub examples: Vec<Example>,
}

/// One differing operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// When it was issued, ns of the replay.
    pub start_ns: i64,
    /// Its path, or that of its file.
    pub path: Option<String>,
    /// Its file: key into the reel's `files`.
    pub file: Option<i64>,
    /// Its recorded result.
    pub recorded: i64,
    /// Its result in the replay.
    pub replayed: i64,
}

/// Bytes that calls moved, by their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Read.
    pub read: i64,
    /// Written.
    pub written: i64,
    /// Moved from file to file.
    pub copied: i64,
}

/// All results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Results {
    /// How many are of each class.
    pub classes: Classes,
    /// Operations that were to be issued and were not, or another in their place: always 0.
    #[serde(skip)]
    pub missing: i64,
    /// Operations that were issued more than once, or out of their thread's order: always 0.
    pub strayed: i64,
    /// Those that are not the same, by kind, most frequent first.
    pub differences: Vec<Difference>,
    /// Bytes of the replayed operations in the original.
    pub original_bytes: Bytes,
    /// Bytes of the replay.
    pub replay_bytes: Bytes,
}

/// What says that a file system or kernel cannot do a call at all.
const CANNOT: [i32; 3] = [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTTY];

/// How a result compares. Different is success against failure, another errno, another byte count on a regular file or
/// link; descriptors, addresses and how a directory is cut up differ by nature.
pub fn class(r: &Rec, ret: i64) -> Class {
    // Of a directory that is not empty POSIX lets a file system say either.
    let not_empty = |ret: i64| [libc::EEXIST, libc::ENOTEMPTY].map(|e| -i64::from(e)).contains(&ret);
    let removes = r.call.renames() || matches!(r.call, Call::Rmdir | Call::Unlinkat);
    if removes && not_empty(r.ret) && not_empty(ret) {
        return Class::Same;
    }
    let differs =
        if r.ret < 0 || ret < 0 { r.ret != ret } else { r.call.counts_bytes() && r.regular && counts_differ(r, ret) };
    // A file system without FIBMAP says EINVAL.
    let bmap = |ret: i64| r.call == Call::Fibmap && ret == -i64::from(libc::EINVAL);
    // Larger blocks here than there.
    let misaligned = |ret: i64| r.direct && (r.call.reads() || r.call.writes()) && ret == -i64::from(libc::EINVAL);
    let cannot = |ret: i64| CANNOT.iter().any(|e| ret == -i64::from(*e)) || bmap(ret) || misaligned(ret);
    match differs {
        false => Class::Same,
        true if r.raced => Class::Benign,
        // What could not be done there, and fails here for something else, is another failure.
        true if cannot(ret) || cannot(r.ret) && ret >= 0 => Class::Unsupported,
        true => Class::Wrong,
    }
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

/// Tells each operation that was replayed, thread after thread.
pub(crate) fn each_call(plan: &Plan, outcomes: &Outcomes, mut each: impl FnMut(&Rec, &Outcome, &Chunk)) {
    for task in 0..plan.tasks.len() as u32 {
        let mut next = outcomes.of_task(task).peekable();
        plan.each_step(task, |number, step, chunk| {
            // One that came out of turn must not hide those behind it.
            while next.next_if(|o| o.step < number).is_some() {}
            if let Act::Call { rec, .. } = step.act
                && let Some(o) = next.next_if(|o| o.step == number)
            {
                each(&chunk.recs[rec as usize], &o, chunk);
            }
        });
    }
}

/// Holds every result against the original's.
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
        // Counts differ in endless ways: they are one group.
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
    fn a_directory_that_is_not_empty_may_be_refused_either_way() {
        let [exist, not_empty] = [libc::EEXIST, libc::ENOTEMPTY].map(|e| -i64::from(e));
        let failed = |call, ret| Rec { call, ret, ..Rec::none() };
        assert_eq!(class(&failed(Call::Rename, not_empty), exist), Class::Same);
        assert_eq!(class(&failed(Call::Rmdir, exist), not_empty), Class::Same);
        assert_eq!(class(&failed(Call::Rename, not_empty), 0), Class::Wrong);
        assert_eq!(class(&failed(Call::Mkdir, exist), not_empty), Class::Wrong);
    }
}
