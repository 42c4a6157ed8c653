//! Imports block traces of blktrace(8): its files per CPU, dumps of `blkparse -d`, and the text of blkparse.

mod sources;
mod stream;

use std::path::{Path, PathBuf};

use crate::{
    Manifest, Text,
    format::manifest::{Clock, ClockJump},
};

use super::{ImportError, Result, blkparse, input, made, records::Converter};
use stream::{Merge, Stream};

/// Tolerance for clocks of the same boot. Their offset from the time of day is equal, except for corrections of the
/// time of day.
const SAME_CLOCK_NS: i64 = 1_000_000_000;

/// Imports the named traces as the reel `out`: base names (`sda` for `sda.blktrace.0` …), single files, folders, dumps, text
/// of blkparse.
///
/// # Errors
/// If an input is missing, contains no record, or has a clock that does not match the others; if the reel cannot be
/// written. A file that ends in a record or contains garbage is read up to there, with a warning.
pub fn import(inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    let sources = sources::find(inputs, &input::scratch(out))?;
    let all: Vec<input::Source> = sources.iter().flat_map(|s| s.files.iter().cloned()).collect();
    if let Some(first) = all.first()
        && blkparse::looks_so(&first.head(input::HEAD_BYTES)?)
    {
        return blkparse::from(&all, out, None);
    }
    from(sources, inputs, out)
}

/// Whether these names can only be those of binary traces: base names, folders, files per CPU.
pub(super) fn are_names(inputs: &[PathBuf]) -> bool {
    inputs.first().is_some_and(|first| sources::is_name(first))
}

/// [`import`] of open inputs.
pub(super) fn of(files: Vec<input::Source>, inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    from(sources::distinct(sources::grouped(files, Path::new("")))?, inputs, out)
}

fn from(sources: Vec<sources::Source>, inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    let files: Vec<PathBuf> = sources.iter().flat_map(|s| s.files.iter().map(|f| f.name.clone())).collect();
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
            let stream = &merge.streams[i];
            converter.record(&stream.record, &stream.payload, &traces[i], stream.place, key)?;
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
                return Err(ImportError::input(&source.files[0].name, why));
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
            return Err(ImportError::input(&other.files[0].name, why));
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
