//! Linux AIO: requests from io_submit wait here until io_getevents returns their result.

use std::collections::HashMap;

use ioreel_bpf::types::{op_flags, rec_aio, rec_aio_end};
use ioreel_traces::{Result, rows::Op};

use crate::{
    assemble::Assembler,
    calls::{Raw, appends},
};

/// A context: process id and address.
type ContextAt = (i32, u64);

/// A request: its context and the address of its control block.
type Key = (ContextAt, u64);

/// Maximum number of requests per context without a result. No more can be in flight (the default of `fs.aio-max-nr` is
/// 65536 for all processes), so beyond it the program must be taking results from the shared ring without a call.
const MOST_WAITING: usize = 1 << 17;

/// A context and its requests.
#[derive(Debug, Default)]
struct Context {
    id: i64,
    /// When it was created; 0: not seen.
    since_ns: i64,
    /// By the address of the control block, which identifies a request until it ends. The flag: submitted by a thread
    /// that the filter excludes.
    waiting: HashMap<u64, (Op, bool)>,
}

/// Contexts and requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Aio {
    /// By process, then by address.
    contexts: HashMap<i32, HashMap<u64, Context>>,
    next: i64,
    /// Control blocks of each task's io_submit that has not returned, in order, with its time of entry.
    submitting: HashMap<u32, Vec<(Key, i64)>>,
    /// Requests that io_submit did not accept.
    pub(crate) refused: i64,
    /// Results without a known request.
    pub(crate) strange: i64,
}

impl Aio {
    fn context(&mut self, (pid, address): ContextAt) -> &mut Context {
        let Self { contexts, next, .. } = self;
        contexts.entry(pid).or_default().entry(address).or_insert_with(|| {
            *next += 1;
            Context { id: *next, ..Context::default() }
        })
    }

    fn waiting(&mut self, (pid, address): ContextAt) -> Option<&mut HashMap<u64, (Op, bool)>> {
        Some(&mut self.contexts.get_mut(&pid)?.get_mut(&address)?.waiting)
    }

    /// Number of a new io_uring. It shares its numbers with AIO contexts, so that the column `ring` is unambiguous.
    pub(crate) fn new_ring(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Takes the requests whose result no call returned: the program took it from the shared ring, or they had not
    /// completed.
    pub(crate) fn take_unknown(&mut self) -> Vec<(Op, bool)> {
        let contexts = self.contexts.drain().flat_map(|(_, of_process)| of_process.into_values());
        in_order(contexts.flat_map(|c| c.waiting.into_values()).collect())
    }

    /// Whether the process has contexts.
    pub(crate) fn has(&self, pid: i32) -> bool {
        self.contexts.contains_key(&pid)
    }

    /// A thread has ended.
    pub(crate) fn submitter_ended(&mut self, task_id: u32) {
        self.submitting.remove(&task_id);
    }
}

fn in_order(mut requests: Vec<(Op, bool)>) -> Vec<(Op, bool)> {
    requests.sort_by_key(|(op, _)| op.start_ns);
    requests
}

/// The equivalent call of a request, by its opcode in linux/aio_abi.h.
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
            // The offset of an append, the end of the file, is not known here.
            let writes = matches!(name, "pwrite64" | "pwritev");
            let appends = writes && appends(has(op_flags::OPF_APPEND), rec.rw_flags.into());
            op.offset_bytes = (data && file.seekable && !appends).then_some(rec.offset_bytes);
        } else if data {
            op.offset_bytes = Some(rec.offset_bytes);
        }
        let context = (op.pid, rec.ctx);
        self.aio.submitting.entry(rec.task_id).or_default().push(((context, rec.iocb), op.start_ns));
        let of = self.aio.context(context);
        op.ring = Some(of.id);
        // The same control block again: its earlier request has completed unseen.
        let mut ended: Vec<_> = of.waiting.insert(rec.iocb, (op, false)).into_iter().collect();
        if of.waiting.len() >= MOST_WAITING {
            let mut starts: Vec<i64> = of.waiting.values().map(|(o, _)| o.start_ns).collect();
            let (_, &mut middle, _) = starts.select_nth_unstable(MOST_WAITING / 2);
            ended.extend(of.waiting.extract_if(|_, (o, _)| o.start_ns < middle).map(|(_, request)| request));
        }
        in_order(ended).into_iter().try_for_each(|request| self.aio_unknown(request))
    }

    /// A process has ended or called execve: its contexts are gone, so no call can return their results.
    pub(crate) fn aio_process_ended(&mut self, pid: i32) -> Result<()> {
        let contexts = self.aio.contexts.remove(&pid).into_iter().flat_map(HashMap::into_values);
        let requests = contexts.flat_map(|c| c.waiting.into_values()).collect();
        in_order(requests).into_iter().try_for_each(|request| self.aio_unknown(request))
    }

    /// Writes a request whose completion was not seen.
    pub(crate) fn aio_unknown(&mut self, (op, other): (Op, bool)) -> Result<()> {
        self.write(Op { state: "unknown".into(), ..op }, other, false).map(drop)
    }

    pub(crate) fn aio_result(&mut self, rec: &rec_aio_end) -> Result<()> {
        self.counts.aio_results += 1;
        let pid = self.row_of(rec.task_id, 0, "", "").pid;
        let ended = self.aio.waiting((pid, rec.ctx)).and_then(|w| w.remove(&rec.iocb));
        let Some((mut op, other)) = ended else {
            self.aio.strange += 1;
            return Ok(());
        };
        op.dur_ns = self.since(rec.hdr.end_ns) - op.start_ns;
        op.cpu = i32::from(rec.hdr.cpu);
        op.ret = Some(rec.res);
        self.write_with_content(op, (rec.content != 0).then_some((rec.task_id, rec.iocb)), other, false).map(drop)
    }

    /// A call on a context. `other`: by a thread that the filter excludes.
    pub(crate) fn aio_call(&mut self, raw: &Raw<'_>, op: &mut Op, other: bool) -> Result<()> {
        let setup = op.op == "io_setup";
        let address = if setup {
            raw.output.get(..8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes)
        } else {
            Some(raw.args[0] as u64)
        };
        let Some(context) = address.map(|a| (op.pid, a)) else { return Ok(()) };
        let mut gone = Vec::new();
        if setup {
            // The address belonged to another context before.
            let before = self.aio.contexts.get_mut(&context.0).and_then(|c| c.remove(&context.1));
            gone.extend(before.into_iter().flat_map(|c| c.waiting.into_values()));
            self.aio.context(context).since_ns = op.start_ns;
        }
        op.ring = Some(self.aio.context(context).id);
        if op.op == "io_submit" {
            let given = self.aio.submitting.remove(&(op.task_id as u32)).unwrap_or_default();
            let taken = usize::try_from(raw.ret).unwrap_or(0);
            // Requests of an io_submit whose record was lost may have been accepted.
            let given = given.into_iter().filter(|(_, entered_ns)| *entered_ns == op.start_ns);
            for (i, ((context, iocb), _)) in given.enumerate() {
                let Some(waiting) = self.aio.waiting(context) else { continue };
                if i >= taken {
                    let refused = waiting.remove(&iocb).is_some();
                    self.aio.refused += i64::from(refused);
                } else if let Some((_, others)) = waiting.get_mut(&iocb) {
                    *others = other;
                }
            }
        }
        if op.op == "io_destroy" && raw.ret == 0 {
            // The address may belong to a new context before this call returns; later submissions belong to that one.
            let of = self.aio.context(context);
            gone.extend(of.waiting.extract_if(|_, (o, _)| o.start_ns < op.start_ns).map(|(_, request)| request));
            if of.waiting.is_empty() && of.since_ns < op.start_ns {
                self.aio.contexts.get_mut(&context.0).map(|c| c.remove(&context.1));
            }
        }
        in_order(gone).into_iter().try_for_each(|request| self.aio_unknown(request))
    }
}
