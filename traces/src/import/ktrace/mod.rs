//! Imports the text of kernel tracepoints: trace_pipe and `trace`, `trace-cmd report`, `perf script`.
//!
//! `block:*` events become requests and bios, entries and exits of system calls become operations. Other events are counted.

mod block;
mod calls;
mod line;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::{Path, PathBuf},
};

use super::{
    Result,
    damage::Damage,
    input::{self, Source},
    lines::Lines,
    made,
    records::Converter,
    syscalls::{State, args::End},
};
use crate::{
    Manifest, Text,
    blktrace::{act, category},
    format::manifest::{Clock, Loss},
};
use calls::Call;
use line::Line;

/// Driver commands in flight of which the length is remembered.
const MOST_COMMANDS: usize = 4096;
/// Names of other events that are counted one by one.
const MOST_NAMES: usize = 100;
/// Losses listed in the manifest.
const MOST_LOSSES: usize = 10_000;
/// Threads whose names are remembered.
const MOST_THREADS: usize = 1 << 20;
const EXPECTED: &str =
    "expected `NAME-PID [CPU] TIME: EVENT: …`, as trace_pipe, `trace-cmd report` and `perf script` write it";

/// Imports text of kernel tracepoints as the reel `out`.
///
/// # Errors
/// If there is no event, or most lines are none; if an input cannot be read or the reel cannot be written.
pub fn import(inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    from(&input::open(inputs, &input::scratch(out))?, out)
}

/// Whether these first bytes of a file are events.
pub(super) fn looks_so(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').take(200).filter_map(line::parse).any(|l| !l.event.is_empty() || is_imported(&l))
}

/// Whether an event becomes a row.
fn is_imported(line: &Line<'_>) -> bool {
    block::is_block(line.event)
        || calls::is_call(line.event, line.rest)
        || line.event.is_empty() && block::of_tracer(line.rest).is_some()
}

/// [`import`] of open inputs.
pub(super) fn from(sources: &[Source], out: &Path) -> Result<Manifest> {
    let mut base_ns: Option<u64> = None;
    let mut lines = Lines::of(sources);
    while let Some(text) = lines.next()? {
        let imported = line::parse(text).filter(|l| is_imported(l));
        base_ns = base_ns.into_iter().chain(imported.map(|l| l.time_ns)).min();
    }
    let base_ns = base_ns.unwrap_or(0);
    let files: Vec<PathBuf> = sources.iter().map(|s| s.name.clone()).collect();
    let mut lines = Lines::of(sources);
    made::reel(out, made::manifest("ktrace", &files), |writer, manifest| {
        let mut converter = Converter::of(base_ns, &mut writer.block, &mut writer.bio, &mut writer.actions, None);
        converter.numbered = false;
        let base = i64::try_from(base_ns).unwrap_or(i64::MAX);
        let state = State::of(base, &mut writer.ops, &mut writer.tasks, &mut writer.execs, &mut writer.files);
        let mut reader = Reader {
            converter,
            state,
            threads: HashMap::new(),
            commands: HashMap::new(),
            other: BTreeMap::new(),
            losses: Vec::new(),
            lost: 0,
            last_ns: base_ns,
            trace: Text::default(),
            place: 0,
        };
        let mut damage = Damage::default();
        let mut begun = 0;
        while lines.next()?.is_some() {
            if std::mem::replace(&mut begun, lines.files) != lines.files {
                let name = sources.get(begun - 1).map(|s| s.name.to_string_lossy().into_owned());
                (reader.trace, reader.place) = (name.unwrap_or_default().into(), 0);
            }
            let text = lines.current();
            match line::parse(text) {
                Some(line) => {
                    if reader.event(&line)? {
                        damage.good += 1;
                    } else {
                        damage.line(&lines, "has an event that cannot be read", EXPECTED)?;
                    }
                }
                None if reader.is_loss(text) || line::is_noise(text) => {}
                None => damage.line(&lines, "is not an event of the kernel", EXPECTED)?,
            }
        }
        damage.check(&lines, "name the text of trace_pipe, `trace-cmd report` or `perf script`")?;
        reader.finish(manifest)?;
        damage.describe(&lines, manifest);
        manifest.clock = Clock { monotonic_ns: base, realtime_ns: 0 };
        if let Some(import) = &mut manifest.import {
            import.records = damage.good;
        }
        Ok(())
    })
}

/// Gives events to the tables.
struct Reader<'a> {
    converter: Converter<'a>,
    state: State<'a>,
    /// The last name and process of each thread, and its task.
    threads: HashMap<i32, (Vec<u8>, Option<i32>, i64)>,
    /// Lengths of driver commands in flight, by device: their completions have none.
    commands: HashMap<u32, VecDeque<u32>>,
    /// Number of other events, by name.
    other: BTreeMap<String, i64>,
    losses: Vec<Loss>,
    lost: i64,
    last_ns: u64,
    trace: Text,
    place: i64,
}

impl Reader<'_> {
    /// Takes an event. False if it cannot be read.
    fn event(&mut self, line: &Line<'_>) -> Result<bool> {
        self.last_ns = line.time_ns;
        if block::is_block(line.event) {
            return match block::record(line.event, line.rest) {
                Ok(Some(parsed)) => self.record(line, parsed).map(|()| true),
                Ok(None) => Ok(self.leave_out(line.event)),
                Err(()) => Ok(false),
            };
        }
        if calls::is_call(line.event, line.rest) {
            let Some(call) = calls::parse(line.event, line.rest) else { return Ok(false) };
            self.thread(line);
            let at_ns = i64::try_from(line.time_ns).unwrap_or(i64::MAX);
            match call {
                Call::Enter(name, args) => self.state.begun(line.tid, at_ns, name, &args)?,
                Call::Exit(name, ret) => {
                    let end = End { ret: Some(ret), ..End::default() };
                    self.state.resumed(line.tid, at_ns, name, b"", &end)?;
                }
            }
            return Ok(true);
        }
        if line.event.is_empty()
            && let Some(parsed) = block::of_tracer(line.rest)
        {
            return self.record(line, parsed).map(|()| true);
        }
        Ok(self.leave_out(line.event))
    }

    fn record(&mut self, line: &Line<'_>, (mut record, payload): block::Parsed) -> Result<()> {
        (record.time_ns, record.cpu, record.pid) = (line.time_ns, line.cpu, line.tid as u32);
        record.payload_bytes = payload.len() as u16;
        if record.is(category::PC) {
            let commands = self.commands.entry(record.dev).or_default();
            match record.act() {
                act::ISSUE if commands.len() < MOST_COMMANDS => commands.push_back(record.bytes),
                act::COMPLETE if record.bytes == 0 => record.bytes = commands.pop_front().unwrap_or(0),
                _ => {}
            }
        }
        if record.act() == act::QUEUE && line.tid != 0 {
            let task_id = self.thread(line);
            self.converter.known(record.pid, task_id, line.comm);
        }
        self.converter.record(&record, &payload, &self.trace, self.place, line.time_ns)?;
        self.place += 1;
        Ok(())
    }

    /// The task of the thread, whose name may have changed.
    fn thread(&mut self, line: &Line<'_>) -> i64 {
        if let Some((comm, pid, task_id)) = self.threads.get(&line.tid)
            && comm == line.comm
            && *pid == line.pid
        {
            return *task_id;
        }
        let task_id = self.state.named(line.tid, line.pid, line.comm);
        if self.threads.len() < MOST_THREADS {
            self.threads.insert(line.tid, (line.comm.to_vec(), line.pid, task_id));
        }
        task_id
    }

    fn leave_out(&mut self, event: &[u8]) -> bool {
        let name = String::from_utf8_lossy(event).into_owned();
        let name = if name.is_empty() { "events without a name".into() } else { format!("events {name}") };
        let known = self.other.len() < MOST_NAMES || self.other.contains_key(&name);
        *self.other.entry(if known { name } else { "other events".into() }).or_default() += 1;
        true
    }

    fn is_loss(&mut self, text: &[u8]) -> bool {
        let Some((cpu, events)) = line::lost(text) else { return false };
        self.lost = self.lost.saturating_add(events);
        if self.losses.len() < MOST_LOSSES {
            let at_ns = self.converter.since_start(self.last_ns);
            self.losses.push(Loss { cpu, from_ns: at_ns, to_ns: at_ns, events });
        }
        true
    }

    fn finish(self, manifest: &mut Manifest) -> Result<()> {
        let Self { converter, mut state, other, losses, lost, .. } = self;
        let records = converter.records;
        converter.finish(manifest)?;
        state.finish()?;
        state.told.describe(manifest, false);
        let mut table = "actions";
        if records == 0 {
            for table in ["block", "bio", "actions"] {
                manifest.ledger.remove(table);
            }
            table = "ops";
        }
        if let Some(ledger) = manifest.ledger.get_mut(table) {
            (ledger.seen, ledger.lost) = (ledger.seen.saturating_add(lost), lost);
        }
        if lost > 0 {
            manifest.warnings.push(format!("the kernel lost {lost} events; the manifest's `losses` lists when"));
        }
        manifest.losses.extend(losses);
        manifest.left_out.extend(other);
        if manifest.ledger.get("ops").is_some_and(|l| l.written > 0) {
            manifest.warnings.push(
                "numbers of system calls are taken as those of x86-64; paths and files are unknown where the events have only pointers".into(),
            );
        }
        Ok(())
    }
}
