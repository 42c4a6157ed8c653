//! Imports block traces of blktrace(8): its files per CPU, and dumps of `blkparse -d`.

mod pair;
mod sources;
mod stream;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    path::{Path, PathBuf},
};

use crate::{
    Manifest, ReelWriter, TableWriter, Text,
    blktrace::{Record, category, note, own_payload, padded},
    format::{
        manifest::{Clock, ClockJump, Device, Ledger, Loss, Span},
        rows::{Action, Bio, Block, Task},
        text,
    },
};

use super::{ImportError, Result, made};
use pair::{Pairing, Queuer};
use stream::{Merge, Stream};

/// Tolerance for clocks of the same boot. Their offset from the time of day is equal, except for corrections of the
/// time of day.
const SAME_CLOCK_NS: i64 = 1_000_000_000;
/// Cache size of distinct payloads.
const KNOWN_PAYLOADS: usize = 64 * 1024;
/// Maximum number of gaps listed in the manifest. The ledger counts all.
const MOST_LOSSES: usize = 10_000;

/// Imports the named traces as the reel `out`: base names (`sda` for `sda.blktrace.0` …), single files, folders, dumps.
///
/// # Errors
/// If an input is missing, contains no record, or has a clock that does not match the others; if the reel cannot be
/// written. A file that ends in a record or contains garbage is read up to there, with a warning.
pub fn import(inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    let sources = sources::find(inputs)?;
    let files: Vec<PathBuf> = sources.iter().flat_map(|s| s.files.iter().cloned()).collect();
    let mut streams = Vec::new();
    let mut traces: Vec<Text> = Vec::new();
    for source in &sources {
        for file in &source.files {
            streams.push(Stream::open(file, source.merged)?);
            traces.push(source.name.as_str().into());
        }
    }
    let start = Start::of(&sources, inputs)?;
    let mut merge = Merge::new(streams)?;
    let manifest = made::manifest("blktrace", &files);
    made::reel(out, manifest, |writer, manifest| {
        let mut converter = Converter::new(start.base_ns, writer);
        while let Some((i, key)) = merge.next()? {
            converter.record(&merge.streams[i], &traces[i], key)?;
        }
        converter.finish(manifest)?;
        manifest.clock = start.clock();
        describe(manifest, &merge, start.base_ns);
        Ok(())
    })
}

/// Adds warnings and clock jumps to the manifest.
fn describe(manifest: &mut Manifest, merge: &Merge, base_ns: u64) {
    for stream in &merge.streams {
        let jump = |(at, back): &(u64, u64)| {
            let ns = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            ClockJump { at_ns: ns(at.saturating_sub(base_ns)), back_ns: ns(*back) }
        };
        manifest.clock_jumps.extend(stream.jumps.iter().map(jump));
        manifest.warnings.extend(stream.left_out.clone());
        if stream.backwards > 0 {
            let (n, path) = (stream.backwards, stream.path.display());
            manifest
                .warnings
                .push(format!("{path}: {n} records are earlier than the record before them; imported in file order"));
        }
    }
    manifest.clock_jumps.sort_by_key(|j| j.at_ns);
}

/// Start of the traces.
#[derive(Debug)]
struct Start {
    /// Time 0 of the reel, on the clock of the records.
    base_ns: u64,
    /// Offset from that clock to the time of day.
    to_realtime_ns: Option<i64>,
}

impl Start {
    /// Finds the first event and the time of day in each file.
    fn of(sources: &[sources::Source], inputs: &[PathBuf]) -> Result<Self> {
        let mut base_ns: Option<u64> = None;
        let mut notes_ns: Option<u64> = None;
        let mut clocks: Vec<(&sources::Source, i64)> = Vec::new();
        let mut damage = None;
        for source in sources {
            let mut first: Option<u64> = None;
            for file in &source.files {
                let mut stream = Stream::open(file, source.merged)?;
                while stream.advance()? {
                    if let Some(day) = stream.time_of_day()
                        && !clocks.iter().any(|(s, _)| s.name == source.name)
                    {
                        clocks.push((source, day - stream.record.time_ns as i64));
                    }
                    notes_ns = Some(notes_ns.map_or(stream.record.time_ns, |t| t.min(stream.record.time_ns)));
                    if !stream.record.is_silent_note() {
                        first = Some(first.map_or(stream.record.time_ns, |t| t.min(stream.record.time_ns)));
                        break;
                    }
                }
                damage = damage.or(stream.left_out);
            }
            if source.merged && sources.len() > 1 && first == Some(0) {
                let why = "the clock of a blkparse dump starts at 0 and matches no other trace; import the dump alone";
                return Err(ImportError::input(&source.files[0], why));
            }
            base_ns = match (base_ns, first) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        let Some(base_ns) = base_ns.or(notes_ns) else {
            let named = inputs.first().cloned().unwrap_or_default();
            let why = match damage {
                Some(d) => {
                    format!("not a block trace ({d}); name files written by blktrace, or a dump of `blkparse -d`")
                }
                None => "the trace is empty; check that the device was in use while blktrace ran".into(),
            };
            return Err(ImportError::input(named, why));
        };
        if let [(first, a), rest @ ..] = &clocks[..]
            && let Some((other, b)) = rest.iter().find(|(_, b)| a.abs_diff(*b) > SAME_CLOCK_NS as u64)
        {
            let apart = a.abs_diff(*b) / 1_000_000_000;
            let why = format!(
                "its clock and the clock of {} differ by {apart} s, so they are from different boots; import them one by one",
                first.name
            );
            return Err(ImportError::input(&other.files[0], why));
        }
        // In a dump, notes keep the original clock, but records do not.
        let to_realtime_ns = clocks.iter().find(|(s, _)| !(s.merged && base_ns == 0)).map(|(_, offset)| *offset);
        Ok(Self { base_ns, to_realtime_ns })
    }

    fn clock(&self) -> Clock {
        let base = self.base_ns as i64;
        Clock { monotonic_ns: base, realtime_ns: self.to_realtime_ns.map_or(0, |offset| offset.saturating_add(base)) }
    }
}

/// Converts records to rows.
struct Converter<'a> {
    base_ns: u64,
    out: Tables<'a>,
    actions: &'a mut TableWriter<Action>,
    tasks: &'a mut TableWriter<Task>,
    pairing: Pairing,
    events: BTreeMap<&'static str, Text>,
    /// Threads with their latest name.
    threads: HashMap<u32, Queuer>,
    next_task: i64,
    payloads: HashMap<Vec<u8>, Text>,
    names: text::Interner,
    numbering: Numbering,
    /// Devices, with the first trace that contains them.
    devices: BTreeMap<u32, Text>,
    last_dev: Option<u32>,
    records: i64,
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
    fn new(base_ns: u64, writer: &'a mut ReelWriter) -> Self {
        Self {
            base_ns,
            out: Tables { block: &mut writer.block, bio: &mut writer.bio, blocks: 0, bios: 0 },
            actions: &mut writer.actions,
            tasks: &mut writer.tasks,
            pairing: Pairing::new(),
            events: BTreeMap::new(),
            threads: HashMap::new(),
            next_task: 0,
            payloads: HashMap::new(),
            names: text::Interner::new(KNOWN_PAYLOADS),
            numbering: Numbering::default(),
            devices: BTreeMap::new(),
            last_dev: None,
            records: 0,
            last_ns: 0,
        }
    }

    fn record(&mut self, stream: &Stream, trace: &Text, key: u64) -> Result<()> {
        let r = &stream.record;
        let at_ns = key.saturating_sub(self.base_ns) as i64;
        self.records += 1;
        self.last_ns = self.last_ns.max(at_ns);
        if self.last_dev != Some(r.dev) {
            self.last_dev = Some(r.dev);
            self.devices.entry(r.dev).or_insert_with(|| trace.clone());
        }
        let event = self.events.entry(r.event()).or_insert_with_key(|k| (*k).into()).clone();
        let (comm, message, payload) = self.payload(r, &stream.payload);
        self.actions.push(Action {
            time_ns: at_ns,
            stamp_ns: (r.time_ns != self.base_ns.saturating_add(at_ns as u64)).then_some(r.time_ns as i64),
            trace: trace.clone(),
            place: stream.place,
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
            payload,
        })?;
        if r.is(category::NOTIFY) {
            if r.act() == note::PROCESS {
                self.name(r, own_payload(r, &stream.payload), at_ns)?;
            }
            return Ok(());
        }
        self.numbering.event(trace, r, at_ns);
        let threads = &self.threads;
        let queuer = || threads.get(&r.pid).cloned().unwrap_or(Queuer { task_id: None, comm: Text::default() });
        Ok(self.pairing.record(r, &stream.payload, at_ns, queuer, &mut self.out)?)
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

    /// Handles a new thread or a new name.
    fn name(&mut self, r: &Record, name: &[u8], at_ns: i64) -> Result<()> {
        let name = name.split(|b| *b == 0).next().unwrap_or_default();
        let comm = self.names.get(name);
        // All idle tasks have number 0 and are not recorded.
        if r.pid == 0 || self.threads.get(&r.pid).is_some_and(|known| known.comm == comm) {
            return Ok(());
        }
        let task_id = self.next_task;
        self.next_task += 1;
        let number = r.pid as i32;
        let row = Task { task_id, pid: number, tid: number, start_ns: at_ns, comm: comm.clone(), ..Task::default() };
        self.threads.insert(r.pid, Queuer { task_id: Some(task_id), comm });
        Ok(self.tasks.push(row)?)
    }

    fn finish(mut self, manifest: &mut Manifest) -> Result<()> {
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
