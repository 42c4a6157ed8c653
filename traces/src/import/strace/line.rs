//! Parses a line of strace output.

use crate::import::syscalls::args::{End, arguments, ended, find, integer, seconds};

/// Event of a line.
#[derive(Debug, PartialEq)]
pub(super) enum Event<'a> {
    /// A complete call.
    Call { name: &'a [u8], args: &'a [u8], end: End<'a> },
    /// Start of a call that a line of another thread interrupts.
    Begun { name: &'a [u8], args: &'a [u8] },
    /// Rest of such a call.
    Resumed { name: &'a [u8], args: &'a [u8], end: End<'a> },
    /// A thread exited, with its wait status as of wait(2).
    Exit(i32),
    /// A signal, or a message of strace.
    Other,
}

/// The time of a line, by the options of strace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// None: only the order is known.
    None,
    /// `-ttt`: ns since 1970.
    Epoch(i64),
    /// `-t`, `-tt`: ns since midnight.
    Day(i64),
    /// `-r`: ns since the line before. Or ns since 1970, on a clock that was never set.
    Relative(i64),
}

/// A line: thread, time and event.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    pub(super) tid: Option<i32>,
    /// Name of the thread, with `--decode-pids=comm`.
    pub(super) comm: Option<&'a [u8]>,
    pub(super) time: Time,
    pub(super) event: Event<'a>,
}

/// Why a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unreadable {
    /// What is wrong, after `line N`.
    pub(super) what: &'static str,
    /// What was expected, or what to do.
    pub(super) remedy: &'static str,
}

const NOT_STRACE: Unreadable = Unreadable {
    what: "is not strace output",
    remedy: "expected `PID TIME call(…) = N` from `strace -f -ttt -T -y`",
};
const NO_RESULT: Unreadable = Unreadable { what: "has a call without a result", remedy: "expected `call(…) = N`" };
const NOT_RESUMED: Unreadable =
    Unreadable { what: "resumes a call without `resumed>`", remedy: "expected `<... call resumed>…) = N`" };

/// The least number of seconds that is a time since 1970. Less is a time between two lines, or the number of a thread.
const LEAST_EPOCH_S: i64 = 100_000_000;

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, Unreadable> {
    let (tid, comm, rest) = thread(line.trim_ascii());
    let (time, rest) = time(rest);
    Ok(Line { tid, comm, time, event: event(without_numbers(rest))? })
}

/// Parses `1234 ` as written with `-o`, or `[pid  1234] ` as shown on the terminal, each with a name in angle brackets if
/// asked for.
fn thread(line: &[u8]) -> (Option<i32>, Option<&[u8]>, &[u8]) {
    let bracket = line.strip_prefix(b"[pid ");
    let text = bracket.unwrap_or(line).trim_ascii_start();
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let tid = integer(&text[..end]).filter(|tid| *tid < LEAST_EPOCH_S).and_then(|tid| i32::try_from(tid).ok());
    let mut rest = &text[end..];
    let mut comm = None;
    if let Some(named) = rest.strip_prefix(b"<") {
        let close = find(named, if bracket.is_some() { b">]" } else { b"> " });
        let Some(close) = close else { return (None, None, line) };
        (comm, rest) = (Some(&named[..close]), &named[close + 1..]);
    }
    let rest = match (bracket, rest.first()) {
        (Some(_), Some(b']')) => &rest[1..],
        (None, Some(b' ')) => rest,
        _ => return (None, None, line),
    };
    match tid {
        Some(tid) => (Some(tid), comm, rest.trim_ascii_start()),
        None => (None, None, line),
    }
}

/// Parses the time. The rest of the line is that after it.
fn time(text: &[u8]) -> (Time, &[u8]) {
    let end = text.iter().position(|b| *b == b' ').unwrap_or(text.len());
    let (word, rest) = (&text[..end], text[end..].trim_ascii_start());
    let time = match word {
        [b'0'..=b'9', ..] if word.contains(&b':') => of_day(word).map(Time::Day),
        _ if word.contains(&b'.') => seconds(word).map(|ns| match ns / 1_000_000_000 {
            s if s >= LEAST_EPOCH_S => Time::Epoch(ns),
            _ => Time::Relative(ns),
        }),
        _ => integer(word)
            .filter(|s| (LEAST_EPOCH_S..10_000_000_000).contains(s))
            .map(|s| Time::Epoch(s.saturating_mul(1_000_000_000))),
    };
    let Some(time) = time else { return (Time::None, text) };
    // With -r beside -t, both times are shown.
    match rest.strip_prefix(b"(+").and_then(|r| Some(&r[r.iter().position(|b| *b == b')')? + 1..])) {
        Some(after) => (time, after.trim_ascii_start()),
        None => (time, rest),
    }
}

/// Parses `HH:MM:SS` with or without a fraction.
fn of_day(word: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2, fraction @ ..] = word else { return None };
    let two = |a: &u8, b: &u8| {
        (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from(*a - b'0') * 10 + i64::from(*b - b'0'))
    };
    let (h, m, s) = (two(h1, h2)?, two(m1, m2)?, two(s1, s2)?);
    if h > 23 || m > 59 || s > 60 {
        return None;
    }
    let ns = if fraction.is_empty() { 0 } else { seconds(&[b"0", fraction].concat())? };
    Some(((h * 60 + m) * 60 + s) * 1_000_000_000 + ns)
}

/// Skips the number of the call (`-n`) and the instruction pointer (`-i`), each in square brackets.
fn without_numbers(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(inner) = rest.strip_prefix(b"[")
        && let Some(close) = inner.iter().position(|b| *b == b']')
        && inner[..close].iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b' ' | b'?'))
    {
        rest = inner[close + 1..].trim_ascii_start();
    }
    rest
}

fn event(text: &[u8]) -> Result<Event<'_>, Unreadable> {
    if let Some(rest) = text.strip_prefix(b"+++ exited with ") {
        let code = rest.split(|b| *b == b' ').next().and_then(integer).unwrap_or(0);
        return Ok(Event::Exit(((code & 0xff) << 8) as i32));
    }
    if text.starts_with(b"+++ killed by ") {
        // strace shows the name of the signal. 9 is the most frequent one.
        return Ok(Event::Exit(signal(&text[14..])));
    }
    if text.starts_with(b"+++ ") || text.starts_with(b"--- ") || text.starts_with(b"strace: ") {
        return Ok(Event::Other);
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let mark = b"resumed>";
        let at = find(rest, mark).ok_or(NOT_RESUMED)?;
        let (name, tail) = (rest[..at].trim_ascii(), &rest[at + mark.len()..]);
        // It was interrupted again, or left alone.
        if tail.ends_with(b"<unfinished ...>") || tail.ends_with(b"<detached ...>") {
            return Ok(Event::Other);
        }
        let (args, end) = arguments(tail).ok_or(NO_RESULT)?;
        return Ok(Event::Resumed { name, args, end: ended(end) });
    }
    let open = text.iter().position(|b| *b == b'(').ok_or(NOT_STRACE)?;
    let name = &text[..open];
    if name.is_empty() || !name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'?')) {
        return Err(NOT_STRACE);
    }
    let tail = &text[open + 1..];
    for mark in [&b"<unfinished ...>"[..], b"<detached ...>"] {
        if let Some(args) = tail.strip_suffix(mark) {
            return Ok(Event::Begun { name, args: args.trim_ascii() });
        }
    }
    let (args, end) = arguments(tail).ok_or(NO_RESULT)?;
    Ok(Event::Call { name, args, end: ended(end) })
}

fn signal(text: &[u8]) -> i32 {
    const NAMES: [(&[u8], i32); 12] = [
        (b"SIGHUP", 1),
        (b"SIGINT", 2),
        (b"SIGQUIT", 3),
        (b"SIGILL", 4),
        (b"SIGABRT", 6),
        (b"SIGBUS", 7),
        (b"SIGFPE", 8),
        (b"SIGKILL", 9),
        (b"SIGSEGV", 11),
        (b"SIGPIPE", 13),
        (b"SIGALRM", 14),
        (b"SIGTERM", 15),
    ];
    let name = text.split(|b| !b.is_ascii_alphanumeric()).next().unwrap_or_default();
    NAMES.iter().find(|(n, _)| *n == name).map_or(0, |(_, number)| *number)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::import::syscalls::args::{descriptor_path, plain_path, split, string, unescaped};

    #[test]
    fn lines_of_every_kind() {
        let line = parse(b"17  1795274373.633304 openat(AT_FDCWD</tmp/a, b) \\76>, \"x\\\"),\\n\", O_RDONLY|O_CLOEXEC) = 3</tmp/x> <0.000014>").unwrap();
        assert_eq!((line.tid, line.time), (Some(17), Time::Epoch(1_795_274_373_633_304_000)));
        let Event::Call { name, args, end } = line.event else { unreachable!() };
        assert_eq!((name, split(args).len()), (&b"openat"[..], 3));
        assert_eq!(string(split(args)[1]), Some((b"x\"),\n".to_vec(), true)));
        assert_eq!(descriptor_path(split(args)[0]).map(unescaped), Some(b"/tmp/a, b) >".to_vec()));
        assert_eq!((end.ret, end.path, end.dur_ns), (Some(3), Some(&b"/tmp/x"[..]), Some(14_000)));
        let line =
            parse(b"[pid    9] 1.5 read(3<TCP:[1.2.3.4:1->5.6.7.8:2]>, \"ab\"..., 4096) = -1 EAGAIN (Resource) <0.1>")
                .unwrap();
        let Event::Call { args, end, .. } = line.event else { unreachable!() };
        assert_eq!((line.tid, end.ret, end.dur_ns), (Some(9), Some(-11), Some(100_000_000)));
        assert_eq!(string(split(args)[1]), Some((b"ab".to_vec(), false)));
        assert!(matches!(parse(b"1 1.0 read(3, <unfinished ...>").unwrap().event, Event::Begun { args: b"3,", .. }));
        assert!(matches!(
            parse(b"1 1.0 <... read resumed>\"x\", 1) = 1 <0.2>").unwrap().event,
            Event::Resumed { name: b"read", .. }
        ));
        assert_eq!(parse(b"1.0 +++ exited with 3 +++").unwrap().event, Event::Exit(3 << 8));
        assert_eq!(parse(b"1.0 +++ killed by SIGKILL (core dumped) +++").unwrap().event, Event::Exit(9));
        assert_eq!(parse(b"1.0 --- SIGCHLD {si_signo=SIGCHLD} ---").unwrap().event, Event::Other);
        assert!(matches!(
            parse(b"1 1.0 exit_group(0) = ?").unwrap().event,
            Event::Call { end: End { ret: None, .. }, .. }
        ));
        for bad in [
            "",
            "x",
            "25:00:00 read(3) = 0",
            "1 1.0 read(3",
            "1 1.0 what",
            "1 99999999999.0 a() = 0",
            "[pid 1 read() = 0",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_and_threads_of_every_option() {
        let of = |text: &str| {
            let line = parse(text.as_bytes()).unwrap();
            (line.tid, line.comm.map(|c| String::from_utf8_lossy(c).into_owned()), line.time)
        };
        let noon = 12 * 3600 * 1_000_000_000;
        for (text, tid, comm, time) in [
            ("read(3, \"\", 1) = 0", None, None, Time::None),
            ("8134 read(3, \"\", 1) = 0", Some(8134), None, Time::None),
            ("8134  12:00:00 close(3) = 0", Some(8134), None, Time::Day(noon)),
            ("12:00:00.000001 close(3) = 0", None, None, Time::Day(noon + 1000)),
            ("8134  12:00:00.5 (+     0.000390) close(3) = 0", Some(8134), None, Time::Day(noon + 500_000_000)),
            ("     0.000178 close(3) = 0", None, None, Time::Relative(178_000)),
            ("8038       0.000178 close(3) = 0", Some(8038), None, Time::Relative(178_000)),
            ("1795844534 close(3) = 0", None, None, Time::Epoch(1_795_844_534_000_000_000)),
            ("9049  1795844534.123456789 close(3) = 0", Some(9049), None, Time::Epoch(1_795_844_534_123_456_789)),
            ("[pid  9045<cat>] close(3) = 0", Some(9045), Some("cat"), Time::None),
            ("9008<a b> 12:00:00 [  59] [00007f916275aad7] close(3) = 0", Some(9008), Some("a b"), Time::Day(noon)),
        ] {
            assert_eq!(of(text), (tid, comm.map(str::to_owned), time), "{text}");
        }
    }

    #[test]
    fn paths_of_descriptors_end_where_the_token_ends() {
        for (text, path, kind) in [
            ("3</tmp/a\\76b>", "/tmp/a>b", None),
            ("3</tmp/a>b>", "/tmp/a>b", None),
            ("3</tmp/a<b>", "/tmp/a<b", None),
            ("3</tmp/a->", "/tmp/a-", None),
            ("3</tmp/a>(deleted)", "/tmp/a", None),
            ("3</tmp/a (deleted)>", "/tmp/a", None),
            ("3</dev/null<char 1:3>>", "/dev/null", Some(&b"char"[..])),
            ("3</dev/sda<block 8:0>>(deleted)", "/dev/sda", Some(&b"block"[..])),
            ("3<UNIX-STREAM:[1->2, \"/x\"]>", "UNIX-STREAM:[1->2, \"/x\"]", None),
        ] {
            let line = format!("1 1.0 fsync({text}, 7) = 0");
            let Event::Call { args, .. } = parse(line.as_bytes()).unwrap().event else { unreachable!() };
            let args = split(args);
            let (found, told) = plain_path(descriptor_path(args[0]).unwrap());
            assert_eq!((String::from_utf8(unescaped(found)).unwrap(), told, args.len()), (path.to_owned(), kind, 2));
        }
    }

    #[test]
    fn paths_without_an_end_cost_little() {
        let text = [&b"read("[..], &b"1<".repeat(400_000), b") = 0"].concat();
        let start = std::time::Instant::now();
        let Event::Call { args, .. } = parse(&text).unwrap().event else { unreachable!() };
        assert_eq!(split(args).len(), 1);
        // The square would take minutes.
        assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn calls_end_in_many_ways() {
        for text in [
            "1 <... read resumed> <unfinished ...>) = ?",
            "1 <... read resumed> <unavailable>) = ?",
            "1 <... resumed>) = 0",
            "1 exit_group(0) = ?",
            "1 close(3) = ? <unavailable>",
            "1 restart_syscall(<... resuming interrupted read ...>) = 0",
            "1 read(3, 0x7ff, 5) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)",
        ] {
            assert!(
                matches!(parse(text.as_bytes()).unwrap().event, Event::Call { .. } | Event::Resumed { .. }),
                "{text}"
            );
        }
    }
}
