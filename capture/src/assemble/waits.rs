//! Waits of slow operations. They are held until their operation ends, then written or dropped.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use ioreel_bpf::types::rec_wait;
use ioreel_traces::{
    Text,
    rows::{Op, Wait},
    text::Interner,
};

use crate::{
    assemble::{block, wait_reasons},
    host::functions::{Functions, Modules},
};

/// Number of stacks kept for sharing between rows.
const INTERNED_STACKS: usize = 1 << 14;
/// Prefixes of functions between the probe and the function that gave up the CPU.
const PROBE_AND_SCHEDULER: &[&str] = &["bpf_", "__bpf_", "__traceiter_", "trace_", "__schedule", "___bpf"];

/// A wait whose operation has not ended.
#[derive(Debug)]
struct Held {
    op_start_ns: i64,
    row: Wait,
}

/// What is known of a wait beside its record.
#[derive(Clone, Debug)]
pub(crate) struct Of {
    /// Name of the call.
    pub(crate) op: Text,
    /// Process of the thread.
    pub(crate) pid: i32,
    /// Recorded thread that held the lock.
    pub(crate) owner: Option<u32>,
}

/// Word of the column `lock_kind` for flags of include/trace/events/lock.h.
fn lock_kind(flags: u32) -> &'static str {
    const READ: u32 = 1 << 1;
    const RT: u32 = 1 << 3;
    const PERCPU: u32 = 1 << 4;
    const MUTEX: u32 = 1 << 5;
    match flags {
        f if f & RT != 0 => "rt_mutex",
        f if f & MUTEX != 0 => "mutex",
        f if f & PERCPU != 0 => "percpu_rwsem",
        f if f & READ != 0 => "rwsem_read",
        _ => "rwsem_write",
    }
}

/// Waits of operations in progress.
#[derive(Debug)]
pub(crate) struct Waits {
    min_ns: i64,
    /// A wait that has no operation is kept from this duration on.
    alone_ns: i64,
    symbols: Functions,
    modules: Modules,
    stacks: Interner,
    /// Turns addresses of locks into numbers that do not tell where the kernel's memory is.
    numbers: RandomState,
    /// By task.
    held: HashMap<u32, Vec<Held>>,
    /// Waits of fast operations.
    pub(crate) dropped: i64,
}

impl Waits {
    /// Keeps waits of operations that last at least `min_ns`. Operations shorter than `op_min_ns` are not recorded, so
    /// that a shorter wait without an operation belongs to one of these.
    pub(crate) fn new(min_ns: i64, op_min_ns: i64, symbols: Functions) -> Self {
        Self {
            min_ns,
            alone_ns: min_ns.max(op_min_ns),
            symbols,
            modules: Modules::default(),
            stacks: Interner::new(INTERNED_STACKS),
            numbers: RandomState::new(),
            held: HashMap::new(),
            dropped: 0,
        }
    }

    /// A wait ended. `of`: what the assembler knows of it; times become relative to `t0_ns`.
    pub(crate) fn take(&mut self, rec: &rec_wait, kernel: &[u64], user: &[u64], of: Of, t0_ns: i64) {
        let Of { op, pid, owner } = of;
        let since = |ns: u64| ns as i64 - t0_ns;
        let names: Vec<&str> = kernel.iter().map(|a| self.symbols.name(*a).unwrap_or("?")).collect();
        let first = names.iter().take_while(|n| PROBE_AND_SCHEDULER.iter().any(|p| n.starts_with(p))).count();
        // The probe's own frames have no kernel symbol and precede the scheduler's.
        let first = names.iter().take(12).rposition(|n| *n == "__schedule").map_or(first, |i| i + 1);
        let names = &names[first.min(names.len())..];
        let runnable = rec.preempted != 0;
        let reason = wait_reasons::reason(names, runnable);
        let run_queue_ns = if rec.wake_ns == 0 { 0 } else { (rec.hdr.end_ns as i64 - rec.wake_ns as i64).max(0) };
        let folded: Vec<&str> = names.iter().rev().copied().collect();
        let user: Vec<String> = user.iter().rev().map(|a| self.modules.place(pid, *a)).collect();
        let by_thread = rec.maybe_interrupt == 0 || reason.is_ended_by_threads();
        let waker_comm = Some(block::comm(&rec.waker_comm)).filter(|comm| by_thread && !comm.is_empty());
        let lock = reason.is_lock() && rec.lock != 0;
        let owner_comm = Some(block::comm(&rec.owner_comm)).filter(|comm| lock && !comm.is_empty());
        let row = Wait {
            wait_id: -1,
            task_id: i64::from(rec.task_id),
            start_ns: since(rec.off_ns),
            dur_ns: (rec.hdr.end_ns as i64 - rec.off_ns as i64).max(0),
            run_queue_ns,
            op,
            op_start_ns: since(rec.op_start_ns),
            reason: reason.word().into(),
            waker_task_id: (by_thread && rec.waker_task_id != 0).then_some(i64::from(rec.waker_task_id)),
            waker_comm,
            lock_id: lock.then(|| (self.numbers.hash_one(rec.lock) >> 1) as i64),
            lock_kind: lock.then(|| lock_kind(rec.lock_flags).into()),
            owner_task_id: owner.filter(|_| lock).map(i64::from),
            owner_comm,
            stack: (!folded.is_empty()).then(|| self.stacks.get(folded.join(";").as_bytes())),
            user_stack: (!user.is_empty()).then(|| self.stacks.get(user.join(";").as_bytes())),
        };
        self.held.entry(rec.task_id).or_default().push(Held { op_start_ns: row.op_start_ns, row });
    }

    /// An operation ended, or (`ended` false) the recording ended before it. Returns the waits to keep.
    pub(crate) fn ended(&mut self, task: u32, op: &Op, ended: bool) -> Vec<Wait> {
        let Some(held) = self.held.get_mut(&task) else { return Vec::new() };
        let later = held.iter().position(|h| h.op_start_ns > op.start_ns).unwrap_or(held.len());
        let rows: Vec<Held> = held.drain(..later).collect();
        if held.is_empty() {
            self.held.remove(&task);
        }
        let (min_ns, alone_ns) = (self.min_ns, self.alone_ns);
        let keep = |h: &Held| {
            // The operation of this wait was lost, so the duration of the wait decides.
            let own = h.op_start_ns == op.start_ns;
            if own { !ended || op.dur_ns >= min_ns } else { h.row.dur_ns >= alone_ns }
        };
        let all = rows.len();
        let named = |mut h: Held| {
            if h.op_start_ns == op.start_ns {
                h.row.op = op.op.clone();
            }
            h.row
        };
        let kept: Vec<Wait> = rows.into_iter().filter(keep).map(named).collect();
        self.dropped += (all - kept.len()) as i64;
        kept
    }

    /// A process has ended or called execve.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.modules.forget(pid);
    }

    /// The recording has ended; the remaining waits have lost their operations.
    pub(crate) fn rest(&mut self) -> Vec<Wait> {
        let mut rows: Vec<Held> = self.held.drain().flat_map(|(_, held)| held).collect();
        let all = rows.len();
        rows.retain(|h| h.row.dur_ns >= self.alone_ns);
        self.dropped += (all - rows.len()) as i64;
        rows.sort_by_key(|h| h.row.start_ns);
        rows.into_iter().map(|h| h.row).collect()
    }
}
