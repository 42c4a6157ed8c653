//! Linux AIO: requests given to io_submit wait here for the result that io_getevents takes.

use std::collections::HashMap;

use ioreel_bpf::types::{op_flags, rec_aio, rec_aio_end};
use ioreel_traces::{Result, rows::Op};

use crate::{
    assemble::Assembler,
    calls::{Raw, appends},
};

/// A context: an address in the memory of a process.
type Context = (i32, u64);

/// A request: its context, and the address of its control block.
type Key = (Context, u64);

/// Requests under way and what they belong to.
#[derive(Debug, Default)]
pub(crate) struct Aio {
    contexts: HashMap<Context, i64>,
    next: i64,
    /// By context and the address of the control block, which identifies a request until it has ended; with whether it
    /// is by a thread that was not asked for.
    waiting: HashMap<Key, (Op, bool)>,
    /// Control blocks of a task's io_submit that has not returned yet, in order, and when it was entered.
    submitting: HashMap<u32, Vec<(Key, i64)>>,
    /// Requests that were not taken.
    pub(crate) refused: i64,
    /// Results without a request.
    pub(crate) strange: i64,
}

impl Aio {
    fn id(&mut self, context: Context) -> i64 {
        *self.contexts.entry(context).or_insert_with(|| {
            self.next += 1;
            self.next
        })
    }

    /// A number for a ring of another kind: all are told apart by it.
    pub(crate) fn new_ring(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Requests whose result was never taken by a call: the program took it from the shared ring itself, or they
    /// had not ended.
    pub(crate) fn take_unknown(&mut self) -> Vec<(Op, bool)> {
        in_order(self.waiting.drain().map(|(_, request)| request).collect())
    }
}

fn in_order(mut requests: Vec<(Op, bool)>) -> Vec<(Op, bool)> {
    requests.sort_by_key(|(op, _)| op.start_ns);
    requests
}

/// The call that a request asks for, by its number in linux/aio_abi.h.
fn name(opcode: u16) -> &'static str {
    match opcode {
        0 => "pread64",
        1 => "pwrite64",
        2 => "fsync",
        3 => "fdatasync",
        5 => "poll",
        6 => "noop",
        7 => "preadv",
        8 => "pwritev",
        _ => "invalid",
    }
}

impl Assembler {
    pub(crate) fn aio_request(&mut self, rec: &rec_aio) -> Result<()> {
        let name = name(rec.opcode);
        let has = |bit: op_flags| u32::from(rec.flags) & bit.0 != 0;
        let mut op = self.row_of(rec.task_id, rec.hdr.cpu, name, "aio");
        op.start_ns = self.since(rec.hdr.end_ns);
        op.fd = Some(rec.fd);
        op.flags = Some(rec.rw_flags.into());
        let data = matches!(name, "pread64" | "pwrite64" | "preadv" | "pwritev");
        let vector = matches!(name, "preadv" | "pwritev");
        op.len_bytes = (data && !has(op_flags::OPF_USER_FAULT)).then_some(rec.len_bytes);
        op.aux = (vector || name == "poll").then_some(rec.count);
        if has(op_flags::OPF_FILE) {
            let file = self.file_of(rec.file);
            op.file = Some(file.id);
            op.ofd = Some(self.ofd_of(rec.ofd, rec.file, op.start_ns));
            // An append acts at an end that is not known here.
            let writes = matches!(name, "pwrite64" | "pwritev");
            let appends = writes && appends(has(op_flags::OPF_APPEND), rec.rw_flags.into());
            op.offset_bytes = (data && file.seekable && !appends).then_some(rec.offset_bytes);
        } else if data {
            op.offset_bytes = Some(rec.offset_bytes);
        }
        let context = (op.pid, rec.ctx);
        op.ring = Some(self.aio.id(context));
        let key = (context, rec.iocb);
        self.aio.submitting.entry(rec.task_id).or_default().push((key, op.start_ns));
        // The same control block again: what it asked for before has ended unseen.
        match self.aio.waiting.insert(key, (op, false)) {
            Some(before) => self.aio_unknown(before),
            None => Ok(()),
        }
    }

    /// A request of which no end was seen.
    pub(crate) fn aio_unknown(&mut self, (op, other): (Op, bool)) -> Result<()> {
        self.write(Op { state: "unknown".into(), ..op }, other, false).map(drop)
    }

    pub(crate) fn aio_result(&mut self, rec: &rec_aio_end) -> Result<()> {
        self.counts.aio_results += 1;
        let pid = self.row_of(rec.task_id, 0, "", "").pid;
        let key = ((pid, rec.ctx), rec.iocb);
        let Some((mut op, other)) = self.aio.waiting.remove(&key) else {
            self.aio.strange += 1;
            return Ok(());
        };
        op.dur_ns = self.since(rec.hdr.end_ns) - op.start_ns;
        op.cpu = i32::from(rec.hdr.cpu);
        op.ret = Some(rec.res);
        self.write_with_content(op, (rec.content != 0).then_some((rec.task_id, rec.iocb)), other, false)
    }

    /// One of the calls that work on contexts. `other`: by a thread that was not asked for.
    pub(crate) fn aio_call(&mut self, raw: &Raw<'_>, op: &mut Op, other: bool) -> Result<()> {
        let setup = op.op == "io_setup";
        let address = if setup {
            raw.output.get(..8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
        } else {
            Some(raw.args[0] as u64)
        };
        let Some(context) = address.map(|a| (op.pid, a)) else { return Ok(()) };
        if setup {
            // An address that was another context's before.
            self.aio.contexts.remove(&context);
        }
        op.ring = Some(self.aio.id(context));
        if op.op == "io_submit" {
            let given = self.aio.submitting.remove(&(op.task_id as u32)).unwrap_or_default();
            let taken = usize::try_from(raw.ret).unwrap_or(0);
            // Those of a call whose own record was lost may have been taken.
            let given = given.into_iter().filter(|(_, entered_ns)| *entered_ns == op.start_ns);
            for (i, (key, _)) in given.enumerate() {
                if i >= taken {
                    self.aio.refused += i64::from(self.aio.waiting.remove(&key).is_some());
                } else if let Some((_, others)) = self.aio.waiting.get_mut(&key) {
                    *others = other;
                }
            }
        }
        if op.op == "io_destroy" && raw.ret == 0 {
            // The address may be another context's by the time this call has returned: what was submitted since is its.
            let of_this = |(k, o): &(&(Context, u64), &(Op, bool))| k.0 == context && o.0.start_ns < op.start_ns;
            let gone: Vec<_> = self.aio.waiting.iter().filter(of_this).map(|(k, _)| *k).collect();
            let requests = gone.iter().filter_map(|k| self.aio.waiting.remove(k)).collect();
            in_order(requests).into_iter().try_for_each(|request| self.aio_unknown(request))?;
        }
        Ok(())
    }
}
