//! What happened around an operation: waits, bios of its own, of the journal and of others.

use std::collections::{BTreeMap, HashMap};

use ioreel_traces::{
    Reel, Text,
    manifest::dev_name,
    rows::{Bio, Op, Wait},
    table::Row,
};

use super::{
    Afterwards, BioOf, MOST_MOMENTS, Moment, Others, Reason, Story, What,
    commits::{self, Rode},
    holders::{self, Wanted},
};
use crate::{
    Result,
    events::calls::Kind,
    facts::{Names, Split, WaitTimes},
};

/// How long after an operation write-back of its file is looked for: the kernel writes dirty pages after 30 s.
pub(super) const AFTER_NS: i64 = 35_000_000_000;
/// Functions of a stack that are shown.
const MOST_FUNCTIONS: usize = 6;
/// Files named for each kind of bios of others.
pub(super) const MOST_FILES: usize = 3;
/// Maximum number of kinds of bios of others.
const MOST_KINDS: usize = 10_000;
/// Maximum number of files of which the bios of others are counted. Those of further ones are in the sums only.
const MOST_COUNTED: usize = 1 << 16;

/// Bios of one kind: their number and bytes, and the bytes of each file.
#[derive(Default)]
struct Sum {
    count: u64,
    bytes: u64,
    files: HashMap<i64, i64>,
}

/// An operation, and what was found so far.
pub(super) struct Draft {
    pub(super) op: Op,
    /// The commit that it rode on.
    pub(super) rode: Option<Rode>,
    moments: Vec<Moment>,
    left_out: u64,
    pub(super) waited_ns: BTreeMap<String, i64>,
    /// Files of which `others` counts the bytes.
    counted: usize,
    /// By thread name, device, operation and class.
    others: BTreeMap<(Text, i64, Text, Text), Sum>,
    afterwards: Afterwards,
}

impl Draft {
    pub(super) fn end_ns(&self) -> i64 {
        self.op.start_ns.saturating_add(self.op.dur_ns)
    }

    fn add(&mut self, at_ns: i64, dur_ns: Option<i64>, what: What) {
        if self.moments.len() >= MOST_MOMENTS {
            self.left_out += 1;
            return;
        }
        self.moments.push(Moment { at_ns: at_ns.saturating_sub(self.op.start_ns), dur_ns, what });
    }
}

/// The stories of these operations, in their order.
pub(super) fn stories(reel: &Reel, operations: Vec<Op>, names: &Names) -> Result<Vec<Story>> {
    let mut drafts: Vec<Draft> = operations
        .into_iter()
        .map(|op| Draft {
            op,
            rode: None,
            moments: Vec::new(),
            left_out: 0,
            waited_ns: BTreeMap::new(),
            counted: 0,
            others: BTreeMap::new(),
            afterwards: Afterwards::default(),
        })
        .collect();
    waits(reel, &mut drafts, names)?;
    commits::find(reel, &mut drafts, names)?;
    bios(reel, &mut drafts, names)?;
    let recorded = reel.count::<Wait>() > 0 || reel.manifest.waits_min_ns.is_some();
    Ok(drafts.into_iter().map(|draft| finish(draft, names, reel, recorded)).collect())
}

/// Indices of the segments of a table with rows in one of these windows.
pub(super) fn segments<R: Row>(reel: &Reel, windows: &[(i64, i64)]) -> Vec<usize> {
    let listed = reel.manifest.segments.get(R::TABLE).map(Vec::as_slice).unwrap_or_default();
    let windows = joined(windows);
    let meets = |from: i64, to: i64| {
        let first = windows.partition_point(|(_, b)| *b < from);
        windows.get(first).is_some_and(|(a, _)| *a <= to)
    };
    listed.iter().enumerate().filter(|(_, s)| meets(s.from_ns, s.to_ns)).map(|(i, _)| i).collect()
}

/// The same times in windows that do not overlap, in order.
fn joined(windows: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut sorted: Vec<(i64, i64)> = windows.iter().copied().filter(|(a, b)| a <= b).collect();
    sorted.sort_unstable();
    sorted.dedup_by(|next, last| {
        let meets = next.0 <= last.1;
        last.1 = if meets { last.1.max(next.1) } else { last.1 };
        meets
    });
    sorted
}

fn waits(reel: &Reel, drafts: &mut [Draft], names: &Names) -> Result<()> {
    let windows: Vec<(i64, i64)> = drafts.iter().map(|d| (d.op.start_ns, d.end_ns())).collect();
    let mut wanted: Vec<Wanted> = Vec::new();
    for segment in segments::<Wait>(reel, &windows) {
        for wait in reel.segment_rows::<Wait>(segment) {
            let wait = wait?;
            let of = |d: &Draft| d.op.task_id == wait.task_id && d.op.start_ns == wait.op_start_ns;
            let Some(at) = drafts.iter().position(of) else { continue };
            let draft = &mut drafts[at];
            let functions: Vec<&str> =
                wait.stack.as_deref().unwrap_or("").split(';').filter(|f| !f.is_empty()).collect();
            let stack = functions.iter().skip(functions.len().saturating_sub(MOST_FUNCTIONS));
            let WaitTimes { slept_ns, run_queue_ns, .. } = WaitTimes::of(wait.start_ns, wait.dur_ns, wait.run_queue_ns);
            for (reason, ns) in [(&*wait.reason, slept_ns), ("run_queue", run_queue_ns)] {
                let sum = draft.waited_ns.entry(reason.to_owned()).or_default();
                *sum = sum.saturating_add(ns);
            }
            let what = What::Wait {
                reason: wait.reason.to_string(),
                run_queue_ns,
                stack: stack.map(|f| (*f).to_owned()).collect(),
                waker: holders::waker(&wait, names),
                lock_kind: wait.lock_kind.as_ref().map(ToString::to_string),
                holder: holders::holder(&wait, names),
            };
            let moment = draft.moments.len();
            draft.add(wait.start_ns, Some(wait.dur_ns), what);
            if draft.moments.len() > moment {
                wanted.extend(holders::wanted(&wait, (at, moment)));
            }
        }
    }
    holders::find(reel, &mut wanted)?;
    for one in wanted {
        let (Some(op), (at, moment)) = (one.found, one.of) else { continue };
        let What::Wait { waker, holder, .. } = &mut drafts[at].moments[moment].what else { continue };
        if let Some(actor) = if one.is_holder { holder } else { waker } {
            holders::complete(actor, &op, names);
        }
    }
    Ok(())
}

fn bios(reel: &Reel, drafts: &mut [Draft], names: &Names) -> Result<()> {
    let from_ns = |d: &Draft| d.rode.as_ref().map_or(d.op.start_ns, |rode| rode.start_ns().min(d.op.start_ns));
    let windows: Vec<(i64, i64)> = drafts.iter().map(|d| (from_ns(d), d.end_ns().saturating_add(AFTER_NS))).collect();
    for segment in segments::<Bio>(reel, &windows) {
        for bio in reel.segment_rows::<Bio>(segment) {
            let bio = bio?;
            let end_ns = bio.complete_ns.unwrap_or(bio.queue_ns);
            for draft in drafts.iter_mut() {
                if let Some(rode) = &mut draft.rode {
                    rode.take(&bio, names);
                }
                let (start, end) = (draft.op.start_ns, draft.end_ns());
                if bio.queue_ns < end && end_ns > start {
                    during(draft, &bio, reel, names);
                } else if bio.queue_ns >= end
                    && bio.queue_ns <= end.saturating_add(AFTER_NS)
                    && &*bio.op == "write"
                    && bio.file.is_some()
                    && bio.file == draft.op.file
                {
                    let after = &mut draft.afterwards;
                    after.writes += 1;
                    after.write_bytes += bio.len_bytes.max(0).unsigned_abs();
                    after.last_ns = after.last_ns.max(Some(end_ns.saturating_sub(start)));
                }
            }
        }
    }
    Ok(())
}

/// A bio that was in flight during the operation.
fn during(draft: &mut Draft, bio: &Bio, reel: &Reel, names: &Names) {
    let waits_for_disk = Kind::of(&draft.op.op) == Kind::Sync;
    let is_commit = &*bio.class == "journal" || &*bio.op == "flush";
    let dur_ns = bio.complete_ns.map(|end| end.saturating_sub(bio.queue_ns));
    if bio.cause == Some(draft.op.op_id) {
        draft.add(bio.queue_ns, dur_ns, What::OwnBio(describe(bio, reel, names)));
    } else if waits_for_disk && is_commit {
        draft.add(bio.queue_ns, dur_ns, What::Commit(describe(bio, reel, names)));
    } else {
        let key = (bio.comm.clone(), bio.dev, bio.op.clone(), bio.class.clone());
        if draft.others.len() >= MOST_KINDS && !draft.others.contains_key(&key) {
            return;
        }
        let sum = draft.others.entry(key).or_default();
        sum.count += 1;
        sum.bytes = sum.bytes.saturating_add(bio.len_bytes.max(0).unsigned_abs());
        if let Some(file) = bio.file
            && (draft.counted < MOST_COUNTED || sum.files.contains_key(&file))
        {
            draft.counted += usize::from(!sum.files.contains_key(&file));
            let of_file = sum.files.entry(file).or_default();
            *of_file = of_file.saturating_add(bio.len_bytes);
        }
    }
}

fn device(reel: &Reel, dev: i64) -> String {
    let known = reel.manifest.devices.iter().find(|d| d.dev == dev);
    known.map_or_else(|| dev_name(dev), |d| d.name.clone())
}

fn describe(bio: &Bio, reel: &Reel, names: &Names) -> BioOf {
    BioOf {
        op: bio.op.to_string(),
        len_bytes: bio.len_bytes,
        sector: bio.sector,
        device: device(reel, bio.dev),
        class: bio.class.to_string(),
        file: bio.file.map(|f| names.path(f)),
        comm: bio.comm.to_string(),
    }
}

fn finish(mut draft: Draft, names: &Names, reel: &Reel, recorded: bool) -> Story {
    draft.moments.sort_by_key(|m| m.at_ns);
    let waited: f64 = draft.waited_ns.values().map(|ns| *ns as f64).sum();
    let Split { scale, cpu_ns, rest_ns } = Split::of(draft.op.dur_ns, waited, draft.op.off_cpu_ns);
    let mut reasons: Vec<Reason> = draft
        .waited_ns
        .into_iter()
        .map(|(reason, ns)| (reason, (ns as f64 * scale) as i64))
        .chain([("cpu".to_owned(), cpu_ns as i64), ("unknown".to_owned(), rest_ns as i64)])
        .map(|(reason, ns)| Reason { reason, ns })
        .filter(|r| r.ns > 0)
        .collect();
    reasons.sort_by_key(|r| std::cmp::Reverse(r.ns));
    let mut others: Vec<Others> = draft
        .others
        .into_iter()
        .map(|((comm, dev, op, class), Sum { count, bytes, files })| {
            let mut files: Vec<(i64, i64)> = files.into_iter().collect();
            files.sort_by_key(|(file, bytes)| (std::cmp::Reverse(*bytes), *file));
            Others {
                comm: comm.to_string(),
                device: device(reel, dev),
                op: op.to_string(),
                class: class.to_string(),
                count,
                bytes,
                files: files.into_iter().take(MOST_FILES).map(|(file, _)| names.path(file)).collect(),
            }
        })
        .collect();
    others.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.comm.cmp(&b.comm)));
    let op = draft.op;
    Story {
        op_id: op.op_id,
        start_ns: op.start_ns,
        dur_ns: op.dur_ns,
        ret: op.ret,
        path: op.path.as_ref().map(ToString::to_string).or_else(|| op.file.map(|f| names.path(f))),
        offset_bytes: op.offset_bytes,
        len_bytes: op.len_bytes,
        comm: names.task(op.task_id).comm.to_string(),
        pid: op.pid,
        op: op.op.to_string(),
        // By default, a shorter operation than a millisecond has no waits, but its time off the CPU is known.
        waited_ns: recorded.then_some(reasons),
        commit: draft.rode.map(|rode| rode.finish(op.start_ns, names)),
        moments: draft.moments,
        left_out: draft.left_out,
        others,
        afterwards: draft.afterwards,
    }
}
