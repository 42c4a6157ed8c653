//! Turns block trace records into rows. The importers of binary traces and of their text forms share this.

mod pair;
pub(super) mod rwbs;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    path::Path,
};

use super::{Result, made};
use crate::{
    Manifest, ReelWriter, TableWriter, Text,
    blktrace::{Record, category, note, own_payload, padded},
    format::{
        manifest::{Device, Ledger, Loss, Span},
        rows::{Action, Bio, Block, Task},
        text,
    },
};
use pair::{Pairing, Queuer};

/// Maximum number of gaps listed in the manifest. The ledger counts all.
const MOST_LOSSES: usize = 10_000;
/// Cache size of distinct payloads.
const KNOWN_PAYLOADS: usize = 64 * 1024;

/// The kind and flags of a request whose letters (RWBS) are `text`.
pub(super) fn kind(text: &[u8], len_bytes: i64) -> (&'static str, i32) {
    let action = rwbs::categories(text).unwrap_or(category::PC);
    let r = Record { action, bytes: u32::try_from(len_bytes).unwrap_or(u32::MAX), ..Record::default() };
    let word = match text {
        [b'D', b'E', ..] => "secure_erase",
        [b'W', b'Z', ..] => "write_zeroes",
        [b'Z', b'A', ..] => "zone_append",
        _ if r.is(category::PC) => "other",
        _ if r.is(category::DISCARD) => "discard",
        _ if r.is(category::WRITE) => "write",
        _ if r.is(category::FLUSH) => "flush",
        _ if r.is(category::READ) => "read",
        _ => "other",
    };
    (word, pair::flags(&r))
}

/// Converts records to rows.
pub(super) struct Converter<'a> {
    base_ns: u64,
    out: Tables<'a>,
    actions: &'a mut TableWriter<Action>,
    /// Absent if the caller writes the threads.
    tasks: Option<&'a mut TableWriter<Task>>,
    pairing: Pairing,
    events: BTreeMap<&'static str, Text>,
    /// Threads with their latest name.
    threads: HashMap<u32, Queuer>,
    next_task: i64,
    payloads: HashMap<Vec<u8>, Text>,
    names: text::Interner,
    numbering: Numbering,
    /// Whether a gap in the records' numbers means that records were lost. In text, lines may have been left out.
    pub(super) numbered: bool,
    /// Devices, with the first trace that contains them.
    devices: BTreeMap<u32, Text>,
    last_dev: Option<u32>,
    /// Number of records so far.
    pub(super) records: i64,
    last_ns: i64,
}

/// The output tables of pairing.
struct Tables<'a> {
    block: &'a mut TableWriter<Block>,
    bio: &'a mut TableWriter<Bio>,
    blocks: i64,
    bios: i64,
}

impl pair::Rows for Tables<'_> {
    fn block(&mut self, row: Block) -> crate::Result<()> {
        self.blocks += 1;
        self.block.push(row)
    }
    fn bio(&mut self, row: Bio) -> crate::Result<()> {
        self.bios += 1;
        self.bio.push(row)
    }
}

impl<'a> Converter<'a> {
    pub(super) fn new(base_ns: u64, writer: &'a mut ReelWriter) -> Self {
        Self::of(base_ns, &mut writer.block, &mut writer.bio, &mut writer.actions, Some(&mut writer.tasks))
    }

    /// With these tables. Without `tasks`, the caller writes the threads and names them by [`Self::known`].
    pub(super) fn of(
        base_ns: u64,
        block: &'a mut TableWriter<Block>,
        bio: &'a mut TableWriter<Bio>,
        actions: &'a mut TableWriter<Action>,
        tasks: Option<&'a mut TableWriter<Task>>,
    ) -> Self {
        Self {
            base_ns,
            out: Tables { block, bio, blocks: 0, bios: 0 },
            actions,
            tasks,
            pairing: Pairing::new(),
            events: BTreeMap::new(),
            threads: HashMap::new(),
            next_task: 0,
            payloads: HashMap::new(),
            names: text::Interner::new(KNOWN_PAYLOADS),
            numbering: Numbering::default(),
            numbered: true,
            devices: BTreeMap::new(),
            last_dev: None,
            records: 0,
            last_ns: 0,
        }
    }

    /// Takes a record. `trace`: the file it is from. `place`: its index in that file. `key`: its time, which notes take
    /// from the records before them.
    pub(super) fn record(&mut self, r: &Record, payload: &[u8], trace: &Text, place: i64, key: u64) -> Result<()> {
        let at_ns = self.since_start(key);
        self.records += 1;
        self.last_ns = self.last_ns.max(at_ns);
        if self.last_dev != Some(r.dev) {
            self.last_dev = Some(r.dev);
            self.devices.entry(r.dev).or_insert_with(|| trace.clone());
        }
        let event = self.events.entry(r.event()).or_insert_with_key(|k| (*k).into()).clone();
        let (comm, message, shown) = self.payload(r, payload);
        self.actions.push(Action {
            time_ns: at_ns,
            stamp_ns: (r.time_ns != self.base_ns.saturating_add(at_ns as u64)).then_some(r.time_ns as i64),
            trace: trace.clone(),
            place,
            sequence: i64::from(r.sequence),
            event,
            action: i64::from(r.action),
            sector: r.sector as i64,
            len_bytes: i64::from(r.bytes),
            pid: i64::from(r.pid),
            dev: i64::from(r.dev),
            cpu: i64::from(r.cpu),
            error: i32::from(r.error),
            comm,
            message,
            payload: shown,
        })?;
        if r.is(category::NOTIFY) {
            if r.act() == note::PROCESS {
                self.name(r.pid, own_payload(r, payload), at_ns)?;
            }
            return Ok(());
        }
        if self.numbered {
            self.numbering.event(trace, r, at_ns);
        }
        let threads = &self.threads;
        let queuer = || threads.get(&r.pid).cloned().unwrap_or(Queuer { task_id: None, comm: Text::default() });
        Ok(self.pairing.record(r, payload, at_ns, queuer, &mut self.out)?)
    }

    /// The payload of a record: a thread name, a message, or hexadecimal bytes.
    fn payload(&mut self, r: &Record, bytes: &[u8]) -> (Option<Text>, Option<Text>, Option<Text>) {
        if bytes.is_empty() {
            return (None, None, None);
        }
        if r.action == category::NOTIFY | note::MESSAGE {
            return (None, Some(text::from_bytes(bytes)), None);
        }
        let name = bytes.split(|b| *b == 0).next().unwrap_or_default();
        // Only if an exporter can create the same payload from the name.
        if r.action == category::NOTIFY | note::PROCESS && bytes == padded(name) {
            return (Some(self.names.get(name)), None, None);
        }
        if self.payloads.len() >= KNOWN_PAYLOADS {
            self.payloads.clear();
        }
        if let Some(known) = self.payloads.get(bytes) {
            return (None, None, Some(known.clone()));
        }
        let mut hex = String::with_capacity(bytes.len() * 2);
        for b in bytes {
            // Writing into a string cannot fail.
            let _ = write!(hex, "{b:02x}");
        }
        let hex = Text::from(hex);
        self.payloads.insert(bytes.to_vec(), hex.clone());
        (None, None, Some(hex))
    }

    /// The time of a record since the start of the reel.
    pub(super) fn since_start(&self, time_ns: u64) -> i64 {
        time_ns.saturating_sub(self.base_ns) as i64
    }

    /// Handles a new thread or a new name.
    pub(super) fn name(&mut self, pid: u32, name: &[u8], at_ns: i64) -> Result<()> {
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let comm = self.names.get(name);
        // All idle tasks have number 0 and are not recorded.
        if pid == 0 || self.threads.get(&pid).is_some_and(|known| known.comm == comm) {
            return Ok(());
        }
        let task_id = self.next_task;
        self.next_task += 1;
        let number = pid as i32;
        let row = Task { task_id, pid: number, tid: number, start_ns: at_ns, comm: comm.clone(), ..Task::default() };
        self.threads.insert(pid, Queuer { task_id: Some(task_id), comm });
        match &mut self.tasks {
            Some(tasks) => Ok(tasks.push(row)?),
            None => Ok(()),
        }
    }

    /// Thread `pid` is this task, and has this name from now on.
    pub(super) fn known(&mut self, pid: u32, task_id: i64, name: &[u8]) {
        if self.threads.get(&pid).is_some_and(|known| known.task_id == Some(task_id) && known.comm.as_bytes() == name) {
            return;
        }
        let comm = self.names.get(name);
        self.threads.insert(pid, Queuer { task_id: Some(task_id), comm });
    }

    /// Writes what is still open, and completes the manifest.
    pub(super) fn finish(mut self, manifest: &mut Manifest) -> Result<()> {
        self.pairing.finish(&mut self.out)?;
        let lost = self.numbering.lost;
        manifest.ledger.insert("block".into(), made::all_written(self.out.blocks));
        manifest.ledger.insert("bio".into(), made::all_written(self.out.bios));
        manifest.ledger.insert(
            "actions".into(),
            Ledger { seen: self.records.saturating_add(lost), written: self.records, lost, filtered: 0 },
        );
        manifest.losses = self.numbering.losses;
        if self.pairing.unmatched > 0 {
            let n = self.pairing.unmatched;
            manifest.warnings.push(format!(
                "{n} completions match no request or bio of the trace (started before it, or records lost); they are only in table actions"
            ));
        }
        manifest.span = Span { elapsed_ns: self.last_ns, ..Span::default() };
        let mut named: BTreeMap<&str, u32> = BTreeMap::new();
        self.devices.values().for_each(|trace| *named.entry(trace).or_default() += 1);
        // A trace of one device has the device's name. The name of a dump has no meaning.
        let dump = |trace: &str| manifest.import.iter().flat_map(|i| &i.files).any(|f| Path::new(f).ends_with(trace));
        let name = |trace: &Text| {
            if named.get(&**trace) == Some(&1) && !dump(trace) { trace.to_string() } else { String::new() }
        };
        manifest.devices = self
            .devices
            .iter()
            .map(|(dev, trace)| Device { dev: i64::from(*dev), name: name(trace), ..Device::default() })
            .collect();
        if let Some(import) = &mut manifest.import {
            import.records = self.records;
        }
        Ok(())
    }
}

/// Finds gaps in the kernel's record numbers, per trace, device and CPU.
#[derive(Debug, Default)]
struct Numbering {
    last: HashMap<(usize, u32, u32), (u32, i64)>,
    lost: i64,
    losses: Vec<Loss>,
}

impl Numbering {
    fn event(&mut self, trace: &Text, r: &Record, at_ns: i64) {
        if r.sequence == 0 {
            return;
        }
        let key = (trace.address(), r.dev, r.cpu);
        if let Some((last, last_ns)) = self.last.insert(key, (r.sequence, at_ns))
            && r.sequence > last.saturating_add(1)
        {
            let events = i64::from(r.sequence - last - 1);
            self.lost = self.lost.saturating_add(events);
            if self.losses.len() < MOST_LOSSES {
                self.losses.push(Loss { cpu: r.cpu as i32, from_ns: last_ns.min(at_ns), to_ns: at_ns, events });
            }
        }
    }
}
