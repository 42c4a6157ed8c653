//! Imports the text of blkparse(1): its default format, also with `-t`, and formats of the user's (`-f`).

mod format;
mod line;

use std::{
    collections::{HashMap, VecDeque},
    path::{Path, PathBuf},
};

use super::{
    Result,
    damage::Damage,
    input::{self, Source},
    lines::Lines,
    made,
    records::Converter,
};
use crate::{
    Manifest, Text,
    blktrace::{Record, act, category},
    format::manifest::Clock,
};
pub use format::Format;
use line::Parsed;

/// Driver commands in flight of which the length is remembered.
const MOST_COMMANDS: usize = 4096;
const EXPECTED: &str = "expected `DEV CPU NUMBER TIME PID ACTION KIND SECTOR + SECTORS [NAME]`, as blkparse writes it";
/// The remedy for text of another format than blkparse's own.
pub(super) const NAME_FORMAT: &str =
    "name the format that was given to `blkparse -f`: `ioreel import blkparse --format …`";
/// Formats of `blkparse -f` that are recognised: the default one without its end.
const BEGINNINGS: [&str; 1] = ["%D %c %s %T.%t %p %a %d %S + %n"];
/// Lines by which the format is recognised.
const LOOKED_AT: usize = 200;

/// Imports text of blkparse as the reel `out`. `format`: that of `blkparse -f`; without it, the default one.
///
/// # Errors
/// If no line is blkparse's, or most are not; if an input cannot be read or the reel cannot be written.
pub fn import(inputs: &[PathBuf], out: &Path, format: Option<&Format>) -> Result<Manifest> {
    from(&input::open(inputs, &input::scratch(out))?, out, format)
}

/// Whether these first bytes of a file are text of blkparse.
pub(super) fn looks_so(head: &[u8]) -> bool {
    let mut lines = head.split(|b| *b == b'\n').take(LOOKED_AT);
    lines.any(|l| line::parse(l).is_some()) || known(head).is_some()
}

/// Whether these first bytes of a file are text of blkparse in a format that is not known: lines with a time in ns, an
/// action and a kind.
pub(super) fn looks_formatted(head: &[u8]) -> bool {
    head.split(|b| *b == b'\n').take(LOOKED_AT).filter(|l| format::looks_so(l)).take(2).count() > 0
}

/// The format of these first bytes, if it is none of blkparse's own and recognised.
fn known(head: &[u8]) -> Option<Format> {
    let lines = || head.split(|b| *b == b'\n').take(LOOKED_AT);
    if lines().any(|l| line::parse(l).is_some()) {
        return None;
    }
    let mut formats = BEGINNINGS.iter().filter_map(|text| text.parse::<Format>().ok());
    formats.find(|format| lines().any(|l| format.parse_all(l).is_some()))
}

fn parse<'l>(format: Option<&Format>, text: &'l [u8]) -> Option<Parsed<'l>> {
    format.map_or_else(|| line::parse(text), |format| format.parse(text))
}

/// [`import`] of open inputs.
pub(super) fn from(sources: &[Source], out: &Path, format: Option<&Format>) -> Result<Manifest> {
    let found = match (format, sources.first()) {
        (None, Some(first)) => known(&first.head(input::HEAD_BYTES)?),
        _ => None,
    };
    let (given, format) = (format.is_some(), format.or(found.as_ref()));
    let mut base_ns: Option<u64> = None;
    let mut lines = Lines::of(sources);
    while let Some(text) = lines.next()? {
        base_ns = base_ns.into_iter().chain(parse(format, text).map(|p| p.record.time_ns)).min();
    }
    let base_ns = base_ns.unwrap_or(0);
    let files: Vec<PathBuf> = sources.iter().map(|s| s.name.clone()).collect();
    let mut lines = Lines::of(sources);
    made::reel(out, made::manifest("blkparse", &files), |writer, manifest| {
        let mut reader = Reader::new(Converter::new(base_ns, writer));
        let mut damage = Damage::default();
        let mut place = 0;
        let mut trace = Text::default();
        let mut begun = 0;
        while lines.next()?.is_some() {
            if std::mem::replace(&mut begun, lines.files) != lines.files {
                trace = sources.get(begun - 1).map(|s| s.name.to_string_lossy().as_ref().into()).unwrap_or_default();
                (place, reader.last_ns) = (0, 0);
            }
            match parse(format, lines.current()) {
                Some(parsed) => {
                    damage.good += 1;
                    reader.record(parsed, &trace, place)?;
                    place += 1;
                }
                None if reader.is_summary(lines.current()) => {}
                None if given => damage.line(&lines, "does not have the format given with --format", NAME_FORMAT)?,
                None if damage.good == 0 && format::looks_so(lines.current()) => {
                    damage.line(&lines, "is not in the default format of blkparse", NAME_FORMAT)?;
                }
                None => damage.line(&lines, "is not blkparse output", EXPECTED)?,
            }
        }
        damage.check(&lines, "name a file that blkparse wrote")?;
        reader.finish(manifest)?;
        damage.describe(&lines, manifest);
        manifest.clock = Clock { monotonic_ns: base_ns as i64, realtime_ns: 0 };
        Ok(())
    })
}

struct Reader<'a> {
    converter: Converter<'a>,
    /// Time of the last record of this file.
    last_ns: u64,
    backwards: i64,
    /// Name of the device in the statistics.
    device: Option<String>,
    /// Lengths of driver commands in flight, by device: their completions have none.
    commands: HashMap<u32, VecDeque<u32>>,
}

impl<'a> Reader<'a> {
    fn new(mut converter: Converter<'a>) -> Self {
        // People cut lines out of the text.
        converter.numbered = false;
        let commands = HashMap::new();
        Self { converter, last_ns: 0, backwards: 0, device: None, commands }
    }

    fn record(&mut self, parsed: Parsed<'_>, trace: &Text, place: i64) -> Result<()> {
        let Parsed { mut record, comm, second, from, message, sized } = parsed;
        self.backwards += i64::from(record.time_ns < self.last_ns);
        self.last_ns = record.time_ns;
        if record.is(category::PC) && record.act() == act::ISSUE {
            let commands = self.commands.entry(record.dev).or_default();
            commands.push_back(record.bytes);
            if commands.len() > MOST_COMMANDS {
                commands.pop_front();
            }
        }
        if !sized {
            record.bytes = self.commands.get_mut(&record.dev).and_then(VecDeque::pop_front).unwrap_or(0);
        }
        let payload = payload(&record, second, from, message);
        record.payload_bytes = u16::try_from(payload.len()).unwrap_or(u16::MAX);
        if let Some(comm) = comm {
            let at_ns = self.converter.since_start(record.time_ns);
            self.converter.name(record.pid, comm, at_ns)?;
        }
        self.converter.record(&record, &payload, trace, place, record.time_ns)
    }

    /// Whether a line that is no record belongs to the statistics at the end, or is empty.
    fn is_summary(&mut self, text: &[u8]) -> bool {
        const LABELS: [&str; 19] = [
            "Reads Queued:",
            "Read Dispatches:",
            "Reads Requeued:",
            "Reads Completed:",
            "Read Merges:",
            "Read depth:",
            "PC Reads Queued:",
            "PC Read Disp.:",
            "PC Reads Req.:",
            "PC Reads Compl.:",
            "PC Writes Queued:",
            "IO unplugs:",
            "Allocation wait:",
            "Dispatch wait:",
            "Completion wait:",
            "Throughput (",
            "Skips: ",
            "Input file ",
            "Trace started at",
        ];
        let text = String::from_utf8_lossy(text.trim_ascii());
        let named = text.split_once(" (").filter(|(what, _)| {
            matches!(*what, "Total" | "Events") || what.strip_prefix("CPU").is_some_and(|n| n.parse::<u32>().is_ok())
        });
        if let Some((_, rest)) = named
            && let Some((device, _)) = rest.split_once(')')
        {
            self.device.get_or_insert_with(|| device.to_owned());
            return true;
        }
        text.is_empty() || LABELS.iter().any(|label| text.starts_with(label)) || is_program(&text)
    }

    fn finish(self, manifest: &mut Manifest) -> Result<()> {
        let (device, backwards) = (self.device, self.backwards);
        self.converter.finish(manifest)?;
        if let ([one], Some(name)) = (&mut manifest.devices[..], device) {
            // The statistics of a device without a name have its number.
            one.name = if name.contains(',') { String::new() } else { name };
        }
        if backwards > 0 {
            manifest.warnings.push(format!(
                "{backwards} records are earlier than the record before them; imported in the order of the text"
            ));
        }
        Ok(())
    }
}

/// Whether this is the title of a program's statistics (`-s`): `tar (255)`, or `tar (255, ...)` for all of its processes.
fn is_program(text: &str) -> bool {
    let number = text.strip_suffix(')').and_then(|t| t.rsplit_once(" (")).map(|(_, n)| n.trim_end_matches(", ..."));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The payload of a record, as the kernel writes it.
fn payload(record: &Record, second: Option<u64>, from: Option<(u32, u64)>, message: Option<&[u8]>) -> Vec<u8> {
    if let Some(message) = message {
        return message.to_vec();
    }
    match (record.act(), second, from) {
        (act::SPLIT, Some(second), _) => second.to_be_bytes().to_vec(),
        (act::REMAP, _, Some((dev, sector))) => {
            let [from, to] = [dev, record.dev].map(u32::to_be_bytes);
            [&from[..], &to, &sector.to_be_bytes()].concat()
        }
        _ => Vec::new(),
    }
}
