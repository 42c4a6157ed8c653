//! The lines of one text or of several (`-ff`), in the order of their times.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{
    clock::{Clock, Kind},
    line,
};
use crate::import::{Result, damage::Damage, input::Source, lines::Lines};

/// Maximum length of a line that a message of strace cut in two.
const MOST_BYTES: usize = 2 << 20;

/// The thread number in a message such as `strace: Process 4322 attached`, and the text before that message.
pub(super) fn attached(text: &[u8]) -> Option<(&[u8], i32)> {
    let text = text.trim_ascii_end().strip_suffix(b" attached")?;
    let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (before, number) = text.split_at(text.len() - digits);
    let before = before.strip_suffix(b"Process ")?;
    let before = before.strip_suffix(b"strace: ").unwrap_or(before);
    Some((before, std::str::from_utf8(number).ok()?.parse().ok()?))
}

/// One file.
pub(super) struct Text {
    pub(super) lines: Lines,
    /// The thread of lines that do not name one.
    pub(super) tid: Option<i32>,
    /// The beginning of a line that a message of strace interrupted.
    held: Vec<u8>,
    /// The current line.
    line: Vec<u8>,
    /// A line that was read already.
    next: Option<Vec<u8>>,
    clock: Clock,
}

impl Text {
    fn new(source: &Source, clock: Clock) -> Self {
        let tid = source.file_name().rsplit('.').next().and_then(|n| n.parse().ok());
        let lines = Lines::of(std::slice::from_ref(source));
        Self { lines, tid, held: Vec::new(), line: Vec::new(), next: None, clock }
    }

    /// Reads the next line. False at the end.
    pub(super) fn advance(&mut self) -> Result<bool> {
        if let Some(line) = self.next.take() {
            self.line = line;
            return Ok(true);
        }
        loop {
            let Some(text) = self.lines.next()? else {
                self.line = std::mem::take(&mut self.held);
                return Ok(!self.line.is_empty());
            };
            if let Some((before, _)) = attached(text) {
                if before.trim_ascii().is_empty() || self.held.len() + before.len() > MOST_BYTES {
                    continue;
                }
                self.held.extend_from_slice(before);
                continue;
            }
            self.line.clear();
            if !self.held.is_empty() && text.starts_with(b"[pid ") {
                // The rest of the line never came.
                self.next = Some(text.to_vec());
                self.line.append(&mut self.held);
                self.line.extend_from_slice(b" <unfinished ...>");
                return Ok(true);
            }
            self.line.append(&mut self.held);
            self.line.extend_from_slice(text);
            return Ok(true);
        }
    }

    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }
}

/// All files.
pub(super) struct Texts {
    sources: Vec<Source>,
    kind: Kind,
    early: bool,
    /// Midnights before each file.
    days: Vec<i64>,
    /// Files that have begun and not ended, by their index.
    pub(super) open: Vec<Option<Text>>,
    /// The time of the next line of each file, and its index.
    next: BinaryHeap<Reverse<(i64, usize)>>,
    given: Option<usize>,
}

impl Texts {
    /// `starts`: the time of the first line of each file. `days`: the midnights before it. `early`: see [`Clock::new`].
    pub(super) fn new(sources: &[Source], kind: Kind, early: bool, starts: &[i64], days: Vec<i64>) -> Self {
        Self {
            sources: sources.to_vec(),
            kind,
            early,
            days,
            open: sources.iter().map(|_| None).collect(),
            next: starts.iter().enumerate().map(|(i, at)| Reverse((*at, i))).collect(),
            given: None,
        }
    }

    /// The index of the file with the next line. `done` gets each file at its end.
    pub(super) fn next(&mut self, mut done: impl FnMut(&Lines)) -> Result<Option<usize>> {
        loop {
            let i = match self.given.take() {
                Some(i) => i,
                None => match self.next.pop() {
                    Some(Reverse((_, i))) if self.open[i].is_some() => {
                        self.given = Some(i);
                        return Ok(Some(i));
                    }
                    Some(Reverse((_, i))) => {
                        self.open[i] =
                            Some(Text::new(&self.sources[i], Clock::new(self.kind, self.early, self.days[i])));
                        i
                    }
                    None => return Ok(None),
                },
            };
            let Some(text) = &mut self.open[i] else { continue };
            if !text.advance()? {
                done(&text.lines);
                self.open[i] = None;
                continue;
            }
            let mut at = i64::MIN;
            if self.sources.len() > 1 && self.kind.is_common() {
                // A line without a time stays behind the one before it.
                let mut clock = text.clock.clone();
                let parsed = line::parse(&text.line).ok();
                at = parsed.and_then(|line| clock.at(&line)).unwrap_or(i64::MIN);
            }
            match self.next.peek() {
                Some(Reverse(least)) if *least < (at, i) => self.next.push(Reverse((at, i))),
                _ => {
                    self.given = Some(i);
                    return Ok(Some(i));
                }
            }
        }
    }

    /// The time of the current line of file `i`; see [`Clock::at`].
    pub(super) fn at(&mut self, i: usize, line: &line::Line<'_>) -> Option<i64> {
        self.open.get_mut(i)?.as_mut()?.clock.at(line)
    }
}

/// What the lines of a file say about the file as a whole.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) kind: Kind,
    /// Whether its times are those of a clock that was never set, which are as small as times between lines.
    pub(super) early: bool,
    /// Time of the first line.
    pub(super) start_ns: i64,
    /// The thread of lines that do not name one.
    pub(super) main: Option<i32>,
    /// Whether there is a summary of `-c`.
    pub(super) summary: bool,
}

/// The least time of a first line that is a time of day on a clock that was never set, and not the time since another line.
/// From then on, such times never decrease.
const LEAST_START_NS: i64 = 1_000_000_000;
/// Lines by which the kind of times is found.
const SURVEYED: i64 = 1000;

impl Survey {
    /// Reads as much of a file as needed. `damage` counts its lines.
    pub(super) fn of(source: &Source, damage: &mut Damage) -> Result<(Self, Lines)> {
        let mut text = Text::new(source, Clock::default());
        let mut kinds: std::collections::HashMap<Kind, (i64, line::Time)> = std::collections::HashMap::new();
        let mut this = Self::default();
        let mut announced = std::collections::HashSet::new();
        let (mut bare, mut numbered, mut read) = (None, false, 0);
        let mut begun: Vec<u8> = Vec::new();
        let (mut last_ns, mut decreases) = (i64::MIN, false);
        while let Some(raw) = text.lines.next()? {
            if let Some((_, tid)) = attached(raw) {
                // A process that was traced from the beginning.
                if damage.good == 0 && announced.is_empty() {
                    bare = Some(tid);
                } else if announced.len() < 1 << 20 {
                    announced.insert(tid);
                }
            }
            this.summary |= raw.starts_with(b"% time ");
            let bracketed = raw.starts_with(b"[pid ");
            if read > SURVEYED && (numbered || this.main.is_some()) {
                break;
            }
            if read > SURVEYED && !bracketed {
                if let Some(open) = raw.iter().position(|b| *b == b'(') {
                    begun.clear();
                    begun.extend_from_slice(&raw[..open.min(64)]);
                }
                continue;
            }
            let Ok(line) = line::parse(raw) else {
                if damage.good == 0 && !super::noise(raw) {
                    let why = line::parse(raw).err();
                    if let Some(why) = why {
                        damage.line(&text.lines, why.what, why.remedy)?;
                    }
                }
                continue;
            };
            read += 1;
            damage.good += 1;
            let entry = kinds.entry(Kind::of(line.time)).or_insert((0, line.time));
            entry.0 += 1;
            if let line::Time::Relative(ns) = line.time {
                decreases |= ns < last_ns;
                last_ns = ns;
            }
            match (bracketed, line.tid) {
                _ if this.main.is_some() => {}
                (true, Some(tid)) => {
                    let resumes = matches!(line.event, line::Event::Resumed { name, .. } if begun.ends_with(name));
                    if !announced.contains(&tid) && (!announced.is_empty() || resumes) {
                        this.main = Some(tid);
                    }
                }
                (false, Some(_)) => numbered = true,
                _ => {
                    if let line::Event::Begun { name, .. } = line.event {
                        begun = name.to_vec();
                    }
                }
            }
        }
        this.main = this.main.or(bare);
        if let Some((kind, (_, time))) = kinds.into_iter().max_by_key(|(kind, (n, _))| (*n, *kind != Kind::Order)) {
            (this.kind, this.start_ns) = match time {
                line::Time::Epoch(ns) | line::Time::Day(ns) => (kind, ns),
                // The first line of `-r` has time 0. An excerpt may start with any time, but shorter ones follow.
                line::Time::Relative(ns) if ns >= LEAST_START_NS && !decreases => {
                    this.early = true;
                    (Kind::Epoch, ns)
                }
                line::Time::Relative(_) | line::Time::None => (kind, 0),
            };
        }
        Ok((this, text.lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_strace_end_a_line() {
        assert_eq!(attached(b"strace: Process 12 attached"), Some((&b""[..], 12)));
        assert_eq!(attached(b"Process 12 attached"), Some((&b""[..], 12)));
        assert_eq!(attached(b"vfork(strace: Process 8116 attached"), Some((&b"vfork("[..], 8116)));
        assert_eq!(attached(b"strace: Process x attached"), None);
        assert_eq!(attached(b"write(1, \"Process 1 attached\") = 1"), None);
    }
}
