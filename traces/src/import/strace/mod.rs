//! Imports the output of strace, with any of its options for times and threads.
//!
//! The output contains less than a recording. There are no inodes, so files are identified by the path that `-y` shows.
//! Offsets are derived from the opens in the output. Memory mappings and io_uring requests are missing.

mod clock;
mod line;
mod texts;

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use super::{
    ImportError, Result,
    damage::Damage,
    input::{self, Source},
    lines::Lines,
    made,
    syscalls::State,
};
use crate::{
    Manifest,
    format::manifest::{self, ClockJump},
};
use clock::Kind;
use line::{Event, Line};
use texts::{Survey, Texts};

/// Maximum number of clock jumps listed.
const MOST_JUMPS: usize = 1000;
const EXPECTED: &str = "name a file written by `strace -f -ttt -T -y -o FILE`";

/// Imports strace output as the reel `out`: files, folders and base names of files of `strace -ff`.
///
/// # Errors
/// If no line is strace output, or most lines are not; if the reel cannot be written. Single unreadable lines are ignored and
/// counted.
pub fn import(inputs: &[PathBuf], out: &Path) -> Result<Manifest> {
    from(&input::open(&found(inputs)?, &input::scratch(out))?, out)
}

/// Whether these first bytes of a file are strace output.
pub(super) fn looks_so(head: &[u8]) -> bool {
    // A summary alone: the importer says what is missing.
    if head.starts_with(b"% time ") {
        return true;
    }
    let complete =
        |l: &&[u8]| matches!(line::parse(l), Ok(Line { event: Event::Call { .. } | Event::Begun { .. }, .. }));
    head.split(|b| *b == b'\n').take(200).filter(complete).count() > 0
}

/// The files of these names: those in a folder, and `calls.12`, `calls.13` for `calls`.
pub(super) fn found(inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for input in inputs {
        let named = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (base, number) = input::without_compression(&name).rsplit_once('.')?;
            number.parse::<u32>().ok().map(|number| (base.to_owned(), number))
        };
        let (folder, base) = match fs::metadata(input) {
            Ok(meta) if meta.is_dir() => (input.clone(), None),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && input.as_os_str() != input::STDIN => {
                (input::folder(input), input.file_name().map(|n| n.to_string_lossy().into_owned()))
            }
            _ => {
                out.push(input.clone());
                continue;
            }
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).map_err(ImportError::reading(input))? {
            let path = entry.map_err(ImportError::reading(&folder))?.path();
            if let Some((of, number)) = named(&path)
                && base.as_ref().is_none_or(|base| *base == of)
            {
                files.push((of, number, path));
            }
        }
        if files.is_empty() {
            let why = match base {
                Some(base) => format!("no such file, and no {base}.PID of `strace -ff`; {EXPECTED}"),
                None => format!("no files NAME.PID of `strace -ff` in this folder; {EXPECTED}"),
            };
            return Err(ImportError::input(input, why));
        }
        files.sort();
        out.extend(files.into_iter().map(|(_, _, path)| path));
    }
    Ok(out)
}

/// [`import`] of open inputs.
pub(super) fn from(sources: &[Source], out: &Path) -> Result<Manifest> {
    let mut damage = Damage::default();
    let mut surveys = Vec::new();
    for source in sources {
        let (survey, lines) = Survey::of(source, &mut damage)?;
        if survey.summary && damage.good == 0 {
            return Err(lines.error("this is only the summary of `strace -c`; run strace without -c, or with -C"));
        }
        // A file of -ff may be empty; a text that is alone may not.
        if sources.len() == 1 {
            damage.check(&lines, EXPECTED)?;
        }
        surveys.push(survey);
    }
    let first = surveys.iter().map(|s| s.kind).find(|k| *k != Kind::Order).unwrap_or_default();
    let (starts, days) = begins(&surveys, first);
    let base_ns = starts.iter().copied().filter(|at| *at != NO_START).min().unwrap_or(0);
    let files: Vec<PathBuf> = sources.iter().map(|s| s.name.clone()).collect();
    made::reel(out, made::manifest("strace", &files), |writer, manifest| {
        let mut state = State::new(base_ns, writer);
        if first == Kind::Order {
            state.order_only();
        }
        let mut reader = Reader {
            state,
            damage: Damage::default(),
            base_ns,
            jumps: 0,
            heard: HashMap::new(),
            alive: HashSet::new(),
            summary: false,
        };
        let early = surveys.iter().any(|s| s.early);
        let mut texts = Texts::new(sources, first, early, &starts, days);
        let mut ended = Vec::new();
        while let Some(i) = texts.next(|lines| ended.push((lines.read, lines.too_long, lines.broken.clone())))? {
            reader.line(&mut texts, i, surveys[i].main, manifest)?;
        }
        let Reader { mut state, damage, jumps, .. } = reader;
        state.finish()?;
        manifest.clock =
            manifest::Clock { monotonic_ns: 0, realtime_ns: if first == Kind::Epoch { base_ns } else { 0 } };
        describe(manifest, &state, first, jumps, sources.len());
        let mut all = Lines::of(&[]);
        for (read, too_long, broken) in ended {
            all.read += read;
            all.too_long += too_long;
            all.broken.extend(broken);
        }
        if damage.good == 0 {
            damage.check(&all, EXPECTED)?;
        }
        damage.describe(&all, manifest);
        if let Some(import) = &mut manifest.import {
            import.records = all.read;
        }
        Ok(())
    })
}

/// The start of a text without times, or whose times cannot be compared with those of the others.
const NO_START: i64 = i64::MIN;

/// The time of the first line of each text, and the midnights before it. `kind`: the kind of times of the run.
fn begins(surveys: &[Survey], kind: Kind) -> (Vec<i64>, Vec<i64>) {
    let is_timed = |survey: &&Survey| kind.is_common() && survey.kind == kind;
    let mut days = match kind {
        Kind::Day => clock::days(&surveys.iter().filter(is_timed).map(|s| s.start_ns).collect::<Vec<_>>()),
        _ => Vec::new(),
    }
    .into_iter();
    let of = |survey: &Survey| {
        if !is_timed(&survey) {
            return (NO_START, 0);
        }
        let day = days.next().unwrap_or(0);
        (survey.start_ns.saturating_add(day.saturating_mul(clock::DAY_NS)), day)
    };
    surveys.iter().map(of).unzip()
}

/// Whether the line is empty, a message of strace, or part of a stack.
fn noise(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    text.is_empty()
        || text.starts_with(b"strace: ")
        || text.starts_with(b"> ")
        || text.starts_with(b"Process ")
        || text.starts_with(b"[ Process PID=")
}

/// Gives lines to the state.
struct Reader<'a> {
    state: State<'a>,
    damage: Damage,
    base_ns: i64,
    /// Number of times the clock went back.
    jumps: usize,
    /// Time of each thread's last line.
    heard: HashMap<i32, i64>,
    /// Threads that were heard of and did not exit.
    alive: HashSet<i32>,
    /// Whether the summary of `-C` began.
    summary: bool,
}

impl Reader<'_> {
    /// Takes the current line of file `i`. `main`: the thread of lines that do not name one, while it is alive.
    fn line(&mut self, texts: &mut Texts, i: usize, main: Option<i32>, manifest: &mut Manifest) -> Result<()> {
        let Some(text) = texts.open.get(i).and_then(Option::as_ref) else { return Ok(()) };
        let (own, bytes) = (text.tid, text.line().to_vec());
        if noise(&bytes) {
            return Ok(());
        }
        let parsed = line::parse(&bytes);
        let at = parsed.as_ref().ok().and_then(|line| texts.at(i, line));
        let (line, at_ns) = match (parsed, at) {
            (Ok(line), Some(at_ns)) => (line, at_ns),
            (parsed, _) => {
                self.summary |= bytes.starts_with(b"% time ");
                if self.summary {
                    return Ok(());
                }
                let why = parsed.err().unwrap_or(line::Unreadable {
                    what: "has a time of another kind than the lines before it",
                    remedy: "import each output of strace on its own",
                });
                if let Some(text) = texts.open.get(i).and_then(Option::as_ref) {
                    self.damage.line(&text.lines, why.what, why.remedy)?;
                }
                return Ok(());
            }
        };
        self.damage.good += 1;
        self.summary = false;
        let tid = line.tid.or(own.filter(|_| main.is_none())).unwrap_or_else(|| self.unnamed(main));
        let last_ns = self.heard.insert(tid, at_ns).unwrap_or(at_ns);
        if at_ns < last_ns {
            self.jumps += 1;
            if manifest.clock_jumps.len() < MOST_JUMPS {
                let (at_ns, back_ns) = (last_ns.saturating_sub(self.base_ns), last_ns.saturating_sub(at_ns));
                manifest.clock_jumps.push(ClockJump { at_ns, back_ns });
            }
        }
        if let Some(comm) = line.comm {
            self.state.named(tid, None, comm);
        }
        if matches!(line.event, Event::Exit(_)) {
            self.alive.remove(&tid);
        } else if line.tid.is_some() {
            self.alive.insert(tid);
        }
        self.take(tid, at_ns, &line)
    }

    /// The thread of a line that names none: strace leaves the number out while there is only one thread.
    fn unnamed(&self, main: Option<i32>) -> i32 {
        let Some(main) = main else { return 0 };
        match self.alive.iter().next() {
            Some(other) if self.alive.len() == 1 && !self.alive.contains(&main) => *other,
            _ => main,
        }
    }

    fn take(&mut self, tid: i32, at_ns: i64, line: &Line<'_>) -> Result<()> {
        match &line.event {
            Event::Call { name, args, end } => self.state.call(tid, at_ns, name, args, end),
            Event::Begun { name, args } => self.state.begun(tid, at_ns, name, args),
            Event::Resumed { name, args, end } => self.state.resumed(tid, at_ns, name, args, end),
            Event::Exit(status) => self.state.exited(tid, at_ns, *status),
            Event::Other => Ok(()),
        }
    }
}

fn describe(manifest: &mut Manifest, state: &State<'_>, kind: Kind, jumps: usize, files: usize) {
    if jumps > 0 {
        let first = if jumps > MOST_JUMPS { format!(", for the first {MOST_JUMPS}") } else { String::new() };
        let told = format!(
            "the clock went back {jumps} times within a thread; the manifest's `clock_jumps` lists when{first}"
        );
        manifest.warnings.push(told);
    }
    state.told.describe(manifest, true);
    let told = match kind {
        Kind::Epoch => None,
        Kind::Day => Some("the text has times of the day without a date; run strace with -ttt"),
        Kind::Relative if files > 1 => Some(
            "the text has times between lines of all processes, so they are wrong across files; run strace with -ttt",
        ),
        Kind::Relative => Some("the text has times between lines, without a start; run strace with -ttt"),
        Kind::Order if files > 1 => Some(
            "the text has no times: only the order of the calls within each file is known, and each starts 1 µs after the one before it; run strace with -ttt",
        ),
        Kind::Order => Some(
            "the text has no times: only the order of the calls is known, and each starts 1 µs after the one before it; run strace with -ttt",
        ),
    };
    manifest.warnings.extend(told.map(str::to_owned));
    manifest.warnings.push(
        "strace output contains no inodes, mappings, io_uring requests or devices; files are identified by path".into(),
    );
}
