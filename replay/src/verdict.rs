//! Holds a replay against the original: results that differ, and how late operations were issued.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    engine::Outcome,
    order::FINISH,
    pace::Pace,
    plan::{Act, Plan, Step},
};

/// Examples kept of each kind of difference.
const EXAMPLES: usize = 3;

/// A kind of differing result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
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
    /// Its recorded result.
    pub recorded: i64,
    /// Its result in the replay.
    pub replayed: i64,
}

/// Percentiles of a lateness, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: i64,
    /// 99th percentile.
    pub p99: i64,
    /// Greatest.
    pub max: i64,
}

impl Spread {
    /// Of these values, which are reordered.
    pub fn of(values: &mut [i64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable();
        let at = |share: f64| values[((values.len() as f64 * share).ceil() as usize).clamp(1, values.len()) - 1];
        Self { p50: at(0.5), p99: at(0.99), max: values[values.len() - 1] }
    }
}

/// Timing of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lateness {
    /// Issue against schedule: what the target was too slow for is in it.
    pub schedule_ns: Spread,
    /// Issue against the moment it could have been issued (schedule, own thread and order allowing): the
    /// replayer's own fault.
    pub own_ns: Spread,
    /// Operations issued before their time: always 0.
    pub early: i64,
    /// Operations issued before one they had to wait for had returned: always 0.
    pub order_violations: i64,
}

/// Whether a result counts as different: success against failure, another errno, another byte count on
/// a regular file or link. Descriptors, addresses and how a directory is cut up differ by nature.
pub fn differs(plan: &Plan, rec: u32, ret: i64) -> bool {
    let r = &plan.recs[rec as usize];
    if r.ret < 0 || ret < 0 {
        return r.ret != ret;
    }
    r.call.counts_bytes() && plan.regular[rec as usize] && r.ret != ret
}

fn outcome_name(ret: i64) -> String {
    if ret < 0 { errno_name(-ret) } else { "ok".into() }
}

/// The differing results, most frequent first, and their number.
pub fn differences(plan: &Plan, outcomes: &[Outcome]) -> (i64, Vec<Difference>) {
    let mut groups: BTreeMap<(String, String, String), Difference> = BTreeMap::new();
    let mut count = 0;
    for o in outcomes.iter().filter(|o| differs(plan, o.rec, o.ret)) {
        count += 1;
        let r = &plan.recs[o.rec as usize];
        let counts = r.ret >= 0 && o.ret >= 0;
        // Counts differ in endless ways: they are one group.
        let (recorded, replayed) = if counts {
            ("a byte count".to_owned(), if o.ret < r.ret { "fewer bytes" } else { "more bytes" }.to_owned())
        } else {
            (outcome_name(r.ret), outcome_name(o.ret))
        };
        let key = (r.call.name().to_owned(), recorded.clone(), replayed.clone());
        let group = groups.entry(key).or_insert_with(|| Difference {
            op: r.call.name().into(),
            recorded,
            replayed,
            count: 0,
            examples: Vec::new(),
        });
        group.count += 1;
        if group.examples.len() < EXAMPLES {
            let path =
                |i: u32| (i != crate::input::NONE).then(|| String::from_utf8_lossy(plan.paths.bytes(i)).into_owned());
            let of_file = || plan.file_paths.get(&r.file).cloned();
            group.examples.push(Example {
                start_ns: o.start_ns,
                path: path(r.path).or_else(of_file),
                recorded: r.ret,
                replayed: o.ret,
            });
        }
    }
    let mut groups: Vec<Difference> = groups.into_values().collect();
    groups.sort_by_key(|g| -g.count);
    (count, groups)
}

/// How late operations were issued. At pace max nothing has a time: what could be issued was due, and the
/// outcomes are told so.
pub fn lateness(plan: &Plan, pace: Pace, outcomes: &mut [Outcome]) -> Lateness {
    const NEVER: u32 = u32::MAX;
    let mut by_rec = vec![NEVER; plan.recs.len()];
    for (i, o) in outcomes.iter().enumerate() {
        by_rec[o.rec as usize] = i as u32;
    }
    let is_call = |step: &&Step| matches!(step.act, Act::Call { .. });
    let mut late = Lateness::default();
    let mut schedule = Vec::with_capacity(outcomes.len());
    let mut own = Vec::with_capacity(outcomes.len());
    // When each thread could begin; parents come before their children.
    let mut free_at = vec![i64::MIN; plan.tasks.len()];
    for (i, task) in plan.tasks.iter().enumerate() {
        let mut free = free_at[i];
        for step in &task.program {
            for s in step.after.of(&plan.edges) {
                let program = &plan.tasks[s.task as usize].program;
                let before = if s.step == FINISH {
                    program.iter().rev().find(is_call)
                } else {
                    program.get(s.step as usize).filter(is_call)
                };
                let Some(Act::Call { rec, .. }) = before.map(|s| s.act) else { continue };
                let Some(o) = outcomes.get(by_rec[rec as usize] as usize) else { continue };
                free = free.max(o.end_ns);
            }
            match step.act {
                Act::Spawn { task } => free_at[task as usize] = free,
                Act::Call { rec, .. } => {
                    let Some(o) = outcomes.get_mut(by_rec[rec as usize] as usize) else { continue };
                    if pace == Pace::Max {
                        o.due_ns = free.max(0);
                    }
                    late.order_violations += i64::from(o.start_ns < free);
                    late.early += i64::from(o.start_ns < o.due_ns);
                    schedule.push(o.start_ns - o.due_ns);
                    own.push(o.start_ns - free.max(o.due_ns));
                    free = o.end_ns;
                }
                _ => {}
            }
        }
    }
    late.schedule_ns = Spread::of(&mut schedule);
    late.own_ns = Spread::of(&mut own);
    late
}

/// An errno's name, or its number where it is a rare one.
pub fn errno_name(errno: i64) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::EINTR, "EINTR"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENFILE, "ENFILE"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::EROFS, "EROFS"),
        (libc::EMLINK, "EMLINK"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENODATA, "ENODATA"),
        (libc::EOVERFLOW, "EOVERFLOW"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::ESTALE, "ESTALE"),
        (libc::EDQUOT, "EDQUOT"),
    ];
    NAMES.iter().find(|(n, _)| i64::from(*n) == errno).map_or_else(|| format!("errno {errno}"), |(_, n)| (*n).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut v: Vec<i64> = (1..=100).rev().collect();
        assert_eq!(Spread::of(&mut v), Spread { p50: 50, p99: 99, max: 100 });
        assert_eq!(Spread::of(&mut []), Spread::default());
    }

    #[test]
    fn errnos_have_names() {
        assert_eq!(errno_name(2), "ENOENT");
        assert_eq!(errno_name(200), "errno 200");
    }
}
