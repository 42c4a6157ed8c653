//! Parses the arguments and results of calls as strace prints them.

use super::names;

/// The working directory, as a descriptor.
pub(super) const AT_FDCWD: i32 = -100;

/// End of a call.
#[derive(Debug, PartialEq, Default)]
pub(in crate::import) struct End<'a> {
    /// The result, or -errno. `None` if strace shows `?`.
    pub(in crate::import) ret: Option<i64>,
    /// The path that `-y` shows after a descriptor.
    pub(in crate::import) path: Option<&'a [u8]>,
    /// Duration, with `-T`.
    pub(in crate::import) dur_ns: Option<i64>,
}

/// Parses seconds with a fraction, to ns.
pub(in crate::import) fn seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.')?;
    let plain = |t: &str| !t.is_empty() && t.len() <= 10 && t.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(fraction) || fraction.len() > 9 {
        return None;
    }
    let ns = fraction.parse::<i64>().ok()? * 10_i64.pow(9 - fraction.len() as u32);
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(ns)
}

pub(in crate::import) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// A decimal number.
pub(in crate::import) fn integer(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// End of the path of a descriptor whose `<` is at `at`. Some versions of strace do not escape `<` and `>` in names, so only a
/// `>` before the next token ends it.
fn path_end(text: &[u8], at: usize) -> usize {
    let (mut i, mut inner) = (at + 1, false);
    while i < text.len() {
        match text[i] {
            // The device numbers that `-yy` adds.
            b'<' if text[i..].starts_with(b"<char ") || text[i..].starts_with(b"<block ") => inner = true,
            b'>' if inner => inner = false,
            b'>' if matches!(text.get(i + 1), None | Some(b',' | b')' | b' ' | b']' | b'}' | b'(' | b'|')) => {
                return i + 1;
            }
            _ => {}
        }
        i += 1;
    }
    // Not a path after all.
    at + 1
}

/// Finds the ends of tokens in a text.
struct Tokens<'t> {
    text: &'t [u8],
    /// Number of bytes that may still be searched in vain for the ends of paths. A line of strace needs few of them; one that
    /// begins a path everywhere and ends none would be searched as often as it is long.
    vain: usize,
}

impl<'t> Tokens<'t> {
    fn of(text: &'t [u8]) -> Self {
        Self { text, vain: 4 * text.len() }
    }

    /// [`skip`], with a limit on all searches in this text.
    fn skip(&mut self, at: usize) -> usize {
        if self.text[at] != b'<' {
            return skip(self.text, at);
        }
        let left = self.text.len() - at;
        if left > self.vain {
            return at + 1;
        }
        let end = skip(self.text, at);
        if end == at + 1 {
            self.vain -= left;
        }
        end
    }
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
        // A descriptor's path.
        b'<' if at > 0 && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => path_end(text, at),
        b'/' if text.get(at + 1) == Some(&b'*') => find(&text[at..], b"*/").map_or(text.len(), |n| at + n + 2),
        _ => at + 1,
    }
}

/// The arguments up to the closing parenthesis, and the text after ` = `.
pub(in crate::import) fn arguments(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut i, mut depth) = (0, 0);
    let mut tokens = Tokens::of(text);
    while i < text.len() {
        match text[i] {
            b'(' | b'{' | b'[' => depth += 1,
            b')' if depth == 0 => {
                let end = text[i + 1..].trim_ascii().strip_prefix(b"=")?;
                return Some((text[..i].trim_ascii(), end.trim_ascii()));
            }
            b')' | b'}' | b']' => depth -= 1,
            _ => {}
        }
        i = tokens.skip(i);
    }
    None
}

/// Splits the arguments.
pub(in crate::import) fn split(args: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut tokens = Tokens::of(args);
    let (mut i, mut depth, mut start) = (0, 0, 0);
    while i < args.len() {
        match args[i] {
            b'(' | b'{' | b'[' => depth += 1,
            b')' | b'}' | b']' => depth -= 1,
            b',' if depth == 0 => {
                out.push(args[start..i].trim_ascii());
                start = i + 1;
            }
            _ => {}
        }
        i = tokens.skip(i);
    }
    let last = args[start.min(args.len())..].trim_ascii();
    if !last.is_empty() {
        out.push(last);
    }
    out
}

pub(in crate::import) fn ended(text: &[u8]) -> End<'_> {
    let mut end = End::default();
    let mut text = text;
    if let Some(open) = text.iter().rposition(|b| *b == b'<')
        && let Some(inner) = text[open + 1..].strip_suffix(b">")
        && (open == 0 || text[open - 1] == b' ')
        && let Some(dur) = seconds(inner)
    {
        end.dur_ns = Some(dur);
        text = text[..open].trim_ascii();
    }
    let stop = text.iter().position(|b| matches!(b, b' ' | b'<')).unwrap_or(text.len());
    let word = &text[..stop];
    end.path = descriptor_path(text);
    end.ret = match word {
        b"-1" => text
            .get(stop..)
            .map(<[u8]>::trim_ascii)
            .and_then(|rest| rest.split(|b| *b == b' ').next())
            .and_then(names::errno)
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
pub(in crate::import) fn descriptor_path(arg: &[u8]) -> Option<&[u8]> {
    let open = arg.iter().position(|b| *b == b'<')?;
    if open == 0 || arg[..open].iter().any(u8::is_ascii_whitespace) {
        return None;
    }
    let close = skip(arg, open);
    arg.get(open + 1..close.checked_sub(1)?).filter(|_| arg.get(close - 1) == Some(&b'>'))
}

/// The path that strace shows, without what it adds to it, and whether it adds that this is a device (`b"char"`, `b"block"`).
pub(in crate::import) fn plain_path(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    for kind in [&b"char"[..], b"block"] {
        if let Some(inner) = path.strip_suffix(b">")
            && let Some(open) = inner.iter().rposition(|b| *b == b'<')
            && inner[open + 1..].strip_prefix(kind).is_some_and(|r| r.starts_with(b" "))
        {
            return (&path[..open], Some(kind));
        }
    }
    (path.strip_suffix(b" (deleted)").unwrap_or(path), None)
}

/// The bytes of a quoted string, unescaped, and whether it is complete. `None` if it is not a quoted string.
pub(in crate::import) fn string(arg: &[u8]) -> Option<(Vec<u8>, bool)> {
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
pub(in crate::import) fn unescaped(text: &[u8]) -> Vec<u8> {
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

/// Whether two spellings are of the same call: strace may show the rest of `pread64` as that of `pread`, or not say its name.
pub(super) fn is_same(begun: &[u8], resumed: &[u8]) -> bool {
    begun.starts_with(resumed) || resumed.starts_with(begun) || resumed.iter().all(|b| *b == b'?')
}

/// The descriptor of a directory.
pub(super) fn directory(text: &[u8]) -> Option<i32> {
    if text.starts_with(b"AT_FDCWD") {
        return Some(AT_FDCWD);
    }
    let digits = text.split(|b| !(b.is_ascii_digit() || *b == b'-')).next()?;
    integer(digits).and_then(|n| i32::try_from(n).ok())
}

/// The value of `name` in `{name=value, …}`.
pub(super) fn member<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    let at = text.windows(name.len()).position(|w| w == name)? + name.len();
    text[at..].split(|b| matches!(b, b',' | b'}' | b' ')).next()
}

/// The total length of a vector. `None` if strace cut it.
pub(super) fn vector(text: &[u8]) -> Option<i64> {
    let name = b"iov_len=";
    let (mut rest, mut sum) = (text, 0i64);
    if text.ends_with(b", ...]") || !text.starts_with(b"[") {
        return None;
    }
    while let Some(at) = rest.windows(name.len()).position(|w| w == name) {
        rest = &rest[at + name.len()..];
        let digits = rest.split(|b| !b.is_ascii_digit()).next().unwrap_or_default();
        sum = sum.checked_add(integer(digits)?)?;
    }
    Some(sum)
}
