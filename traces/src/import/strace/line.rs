//! Parses a line of strace output.

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

/// End of a call.
#[derive(Debug, PartialEq, Default)]
pub(super) struct End<'a> {
    /// The result, or -errno. `None` if strace shows `?`.
    pub(super) ret: Option<i64>,
    /// The path that `-y` shows after a descriptor.
    pub(super) path: Option<&'a [u8]>,
    /// Duration, with `-T`.
    pub(super) dur_ns: Option<i64>,
}

/// A line: thread, time and event.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    pub(super) tid: Option<i32>,
    pub(super) at_ns: i64,
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
const NO_TIME: Unreadable =
    Unreadable { what: "has no time in seconds since 1970", remedy: "run strace with -f -ttt -T -y" };
const NO_RESULT: Unreadable = Unreadable { what: "has a call without a result", remedy: "expected `call(…) = N`" };
const NOT_RESUMED: Unreadable =
    Unreadable { what: "resumes a call without `resumed>`", remedy: "expected `<... call resumed>…) = N`" };

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, Unreadable> {
    let (tid, rest) = thread(line);
    let end = rest.iter().position(|b| *b == b' ').ok_or(NOT_STRACE)?;
    let at_ns = seconds(&rest[..end]).ok_or(if rest.contains(&b'(') { NO_TIME } else { NOT_STRACE })?;
    Ok(Line { tid, at_ns, event: event(trim(&rest[end..]))? })
}

/// Parses `1234 ` as written with `-o`, or `[pid  1234] ` as shown on the terminal.
fn thread(line: &[u8]) -> (Option<i32>, &[u8]) {
    let digits = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|t| t.trim().parse::<i32>().ok());
    if let Some(rest) = line.strip_prefix(b"[pid ")
        && let Some(end) = rest.iter().position(|b| *b == b']')
        && let Some(tid) = digits(&rest[..end])
    {
        return (Some(tid), trim(&rest[end + 1..]));
    }
    let end = line.iter().position(|b| !b.is_ascii_digit()).unwrap_or(line.len());
    match digits(&line[..end]) {
        Some(tid) if line.get(end) == Some(&b' ') => (Some(tid), trim(&line[end..])),
        _ => (None, line),
    }
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// Parses seconds with a fraction, to ns.
fn seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.')?;
    let plain = |t: &str| !t.is_empty() && t.len() <= 10 && t.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || fraction.len() > 9 {
        return None;
    }
    let ns = fraction.parse::<i64>().ok()? * 10_i64.pow(9 - fraction.len() as u32);
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
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
        let at = find(rest, b" resumed>").ok_or(NOT_RESUMED)?;
        let (name, tail) = (&rest[..at], &rest[at + b" resumed>".len()..]);
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
            return Ok(Event::Begun { name, args: trim(args) });
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

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// A decimal number.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// End of the token at `at`: quoted text, a path shown by `-y`, or a comment; otherwise the next byte.
fn skip(text: &[u8], at: usize) -> usize {
    match text[at] {
        b'"' => {
            let mut i = at + 1;
            while i < text.len() && text[i] != b'"' {
                i += if text[i] == b'\\' { 2 } else { 1 };
            }
            i + 1
        }
        // A descriptor's path. Characters that could end it early are escaped, except in address pairs of sockets.
        b'<' if at > 0 && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => {
            let (mut i, mut depth) = (at + 1, 1);
            while i < text.len() && depth > 0 {
                depth += match text[i] {
                    b'<' => 1,
                    b'>' if text[i - 1] != b'-' => -1,
                    _ => 0,
                };
                i += 1;
            }
            i
        }
        b'/' if text.get(at + 1) == Some(&b'*') => find(&text[at..], b"*/").map_or(text.len(), |n| at + n + 2),
        _ => at + 1,
    }
}

/// The arguments up to the closing parenthesis, and the text after ` = `.
fn arguments(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut i, mut depth) = (0, 0);
    while i < text.len() {
        match text[i] {
            b'(' | b'{' | b'[' => depth += 1,
            b')' if depth == 0 => {
                let end = trim(&text[i + 1..]).strip_prefix(b"=")?;
                return Some((trim(&text[..i]), trim(end)));
            }
            b')' | b'}' | b']' => depth -= 1,
            _ => {}
        }
        i = skip(text, i);
    }
    None
}

/// Splits the arguments.
pub(super) fn split(args: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let (mut i, mut depth, mut start) = (0, 0, 0);
    while i < args.len() {
        match args[i] {
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth -= 1,
            b',' if depth == 0 => {
                out.push(trim(&args[start..i]));
                start = i + 1;
            }
            _ => {}
        }
        i = skip(args, i);
    }
    let last = trim(&args[start.min(args.len())..]);
    if !last.is_empty() {
        out.push(last);
    }
    out
}

fn ended(text: &[u8]) -> End<'_> {
    let mut end = End::default();
    let mut text = text;
    if let Some(open) = text.iter().rposition(|b| *b == b'<')
        && let Some(inner) = text[open + 1..].strip_suffix(b">")
        && (open == 0 || text[open - 1] == b' ')
        && let Some(dur) = seconds(inner)
    {
        end.dur_ns = Some(dur);
        text = trim(&text[..open]);
    }
    let stop = text.iter().position(|b| matches!(b, b' ' | b'<')).unwrap_or(text.len());
    let word = &text[..stop];
    end.path = descriptor_path(text);
    end.ret = match word {
        b"-1" => text
            .get(stop..)
            .map(trim)
            .and_then(|rest| rest.split(|b| *b == b' ').next())
            .and_then(super::names::errno)
            .map(|e| -e)
            .or(Some(-1)),
        w if w.starts_with(b"0x") => {
            std::str::from_utf8(&w[2..]).ok().and_then(|h| u64::from_str_radix(h, 16).ok()).map(|v| v as i64)
        }
        w if w.len() > 1 && w.starts_with(b"0") => {
            std::str::from_utf8(w).ok().and_then(|o| i64::from_str_radix(o, 8).ok())
        }
        w => integer(w),
    };
    end
}

/// The path after a descriptor: `3</tmp/x>`.
pub(super) fn descriptor_path(arg: &[u8]) -> Option<&[u8]> {
    let open = arg.iter().position(|b| *b == b'<')?;
    if open == 0 || arg[..open].iter().any(u8::is_ascii_whitespace) {
        return None;
    }
    let close = skip(arg, open);
    arg.get(open + 1..close.checked_sub(1)?).filter(|_| arg.get(close - 1) == Some(&b'>'))
}

/// The bytes of a quoted string, unescaped, and whether it is complete. `None` if it is not a quoted string.
pub(super) fn string(arg: &[u8]) -> Option<(Vec<u8>, bool)> {
    let inner = arg.strip_prefix(b"\"")?;
    let mut out = Vec::new();
    let mut i = 0;
    while i < inner.len() && inner[i] != b'"' {
        i += unescape(&inner[i..], &mut out);
    }
    let whole = !inner.get(i + 1..).unwrap_or_default().starts_with(b"...");
    (i < inner.len()).then_some((out, whole))
}

/// Unescapes text without quotes.
pub(super) fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut out, mut i) = (Vec::new(), 0);
    while i < text.len() {
        i += unescape(&text[i..], &mut out);
    }
    out
}

/// Unescapes one character. Returns the number of bytes read.
fn unescape(text: &[u8], out: &mut Vec<u8>) -> usize {
    let [b'\\', escape, ..] = text else {
        out.push(text[0]);
        return 1;
    };
    let plain = match escape {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'v' => 0x0b,
        b'f' => 0x0c,
        b'x' => {
            let hex =
                text.get(2..4).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
            out.push(hex.unwrap_or(b'x'));
            return if hex.is_some() { 4 } else { 2 };
        }
        b'0'..=b'7' => {
            let digits = text[1..].iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let value = text[1..=digits].iter().fold(0u32, |n, b| n * 8 + u32::from(b - b'0'));
            out.push(value as u8);
            return 1 + digits;
        }
        other => *other,
    };
    out.push(plain);
    2
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind() {
        let line = parse(b"17  1795274373.633304 openat(AT_FDCWD</tmp/a, b) \\76>, \"x\\\"),\\n\", O_RDONLY|O_CLOEXEC) = 3</tmp/x> <0.000014>").unwrap();
        assert_eq!((line.tid, line.at_ns), (Some(17), 1_795_274_373_633_304_000));
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
        for bad in
            ["", "x", "12:00:00 read(3) = 0", "read(3) = 0", "1 1.0 read(3", "1 1.0 what", "1 99999999999.0 a() = 0"]
        {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
