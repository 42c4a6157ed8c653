//! Parses lines that blkparse wrote with a format of the user's (`-f`).

use super::line::Parsed;
use crate::{
    blktrace::{category, note},
    host::dev_t,
    import::{
        records::rwbs,
        words::{Words, bytes, device, number, seconds},
    },
};

/// A part of a format.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// This text, without blanks.
    Text(Vec<u8>),
    /// A field: the letter after `%`.
    Field(u8),
}

/// A format of `blkparse -f`.
#[derive(Clone, Debug, PartialEq)]
pub struct Format(Vec<Part>);

/// Words of a line by which a format is recognised.
const MOST_WORDS: usize = 32;
/// The letters of fields.
const FIELDS: &[u8] = b"acCdDegmMnNpPsStTuUz";

impl std::str::FromStr for Format {
    type Err = String;

    /// Parses a format such as `%D %T.%t %a %d %S + %n\n`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = text.as_bytes();
        let mut separate = true;
        while let [first, more @ ..] = rest {
            rest = more;
            match (first, more) {
                (b'%', _) => {
                    let width = more.iter().position(|b| !(b.is_ascii_digit() || *b == b'-')).unwrap_or(more.len());
                    let letter = more.get(width).copied().filter(|b| FIELDS.contains(b));
                    let letter =
                        letter.ok_or("a % is not followed by a letter of blkparse's fields; see blkparse(1)")?;
                    if !std::mem::replace(&mut separate, false) {
                        return Err("two fields follow each other; their border is unknown".into());
                    }
                    parts.push(Part::Field(letter));
                    rest = &more[width + 1..];
                }
                (b'\\', [b'n' | b't' | b'r', after @ ..]) => {
                    rest = after;
                    separate = true;
                }
                (b' ' | b'\t' | b'\n', _) => separate = true,
                _ => {
                    match parts.last_mut().filter(|_| separate) {
                        Some(Part::Text(text)) => text.push(*first),
                        _ => parts.push(Part::Text(vec![*first])),
                    }
                    separate = true;
                }
            }
        }
        let has = |letters: &[u8]| parts.iter().any(|p| matches!(p, Part::Field(l) if letters.contains(l)));
        for (letters, what) in [
            (&b"a"[..], "%a (action)"),
            (b"d", "%d (kind)"),
            (b"T", "%T.%t (time)"),
            (b"t", "%T.%t (time)"),
            (b"S", "%S (sector)"),
            (b"nN", "%n or %N (length)"),
        ] {
            if !has(letters) {
                return Err(format!("{what} is missing; requests cannot be found without it"));
            }
        }
        Ok(Self(parts))
    }
}

/// Whether a line may be written by blkparse in some format: it has a time in ns, an action and a kind.
pub(super) fn looks_so(line: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'.';
    let words = || line.split(|b| !is_part(b)).filter(|w| !w.is_empty()).take(MOST_WORDS);
    let is_time = |word: &[u8]| {
        let ns = word.iter().position(|b| *b == b'.').map_or(&b""[..], |at| &word[at + 1..]);
        ns.len() == 9 && seconds(word).is_some()
    };
    // `R` and `D` are both an action and a kind.
    let is_event = |of: usize| {
        let is_kind = |(i, w): (usize, &[u8])| i != of && rwbs::categories(w).is_some();
        words().enumerate().any(is_kind)
    };
    words().any(is_time) && words().enumerate().any(|(i, w)| rwbs::action(w).is_some() && is_event(i))
}

impl Format {
    /// Parses a line of a format that ends with a number. `None` if it does not have this format, or ends otherwise.
    pub(super) fn parse_all<'a>(&self, line: &'a [u8]) -> Option<Parsed<'a>> {
        let last = line.trim_ascii_end().rsplit(u8::is_ascii_whitespace).next()?;
        number::<u64>(last).and_then(|_| self.parse(line))
    }

    /// Parses a line. `None` if it does not have this format.
    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> Option<Parsed<'a>> {
        let mut parsed = Parsed { sized: true, ..Parsed::default() };
        let mut rest = line.trim_ascii_end();
        let (mut seconds, mut ns, mut action, mut kind) = (0_u64, 0_u64, &b""[..], &b""[..]);
        let (mut major, mut minor) = (None, None);
        for (i, part) in self.0.iter().enumerate() {
            rest = rest.trim_ascii_start();
            let letter = match part {
                Part::Text(text) => {
                    rest = rest.strip_prefix(&text[..])?;
                    continue;
                }
                Part::Field(letter) => *letter,
            };
            let word = match self.0.get(i + 1) {
                // A device may contain that text: a comma.
                _ if letter == b'D' => &rest[..device_len(rest)],
                // Up to the text that follows.
                Some(Part::Text(text)) => &rest[..rest.windows(text.len()).position(|w| w == &text[..])?],
                // A name at the end of the line may contain blanks.
                None if letter == b'C' => rest,
                _ => Words(rest).next(),
            };
            rest = &rest[word.len()..];
            let word = word.trim_ascii();
            match letter {
                b'a' => action = word,
                b'd' => kind = word,
                b'c' => parsed.record.cpu = number(word)?,
                b'C' => parsed.comm = Some(word).filter(|w| !w.is_empty()),
                b'D' => parsed.record.dev = device(word)?,
                b'M' => major = Some(number::<u32>(word).filter(|n| *n < 1 << 12)?),
                b'm' => minor = Some(number::<u32>(word).filter(|n| *n < 1 << 20)?),
                b'e' => parsed.record.error = number::<i32>(word)? as u16,
                b'n' => parsed.record.bytes = bytes(number(word)?)?,
                b'N' => parsed.record.bytes = number(word)?,
                b'p' => parsed.record.pid = number(word)?,
                b's' => parsed.record.sequence = number(word)?,
                b'S' => parsed.record.sector = number(word)?,
                b'T' => seconds = number(word)?,
                b't' => ns = number(word).filter(|n| *n < 1_000_000_000)?,
                b'U' => parsed.second = number(word),
                _ => {}
            }
        }
        if let (Some(major), Some(minor)) = (major, minor) {
            parsed.record.dev = dev_t(major, minor) as u32;
        }
        let time = seconds.checked_mul(1_000_000_000)?.checked_add(ns)?;
        parsed.record.time_ns = i64::try_from(time).ok()? as u64;
        if action == b"m" {
            parsed.record.action = category::NOTIFY | note::MESSAGE;
            parsed.message = Some(b"");
            return Some(parsed);
        }
        parsed.record.action = rwbs::action(action)? | rwbs::categories(kind)?;
        Some(parsed)
    }
}

/// Length of `8,16` at the start of a text.
fn device_len(text: &[u8]) -> usize {
    let digits = |from: usize| text[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let major = digits(0);
    match text.get(major) {
        Some(b',' | b':') => major + 1 + digits(major + 1),
        _ => major,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_what_is_between_them() {
        let format: Format = "%5T.%9t|%-12C|%M:%m %a%d? %S + %n (%N) %e\\n".parse().unwrap_or(Format(Vec::new()));
        assert_eq!(format.0.len(), 0, "two fields without a border");
        let format: Format = "%5T.%9t|%-12C|%M:%m %a %d? %S + %n (%N) %e\\n".parse().unwrap();
        let parsed = format.parse(b"    1.000000002|kworker/u4:5 x|8:16  D  WS? 123 + 8 (4096) -5").unwrap();
        let r = parsed.record;
        assert_eq!((r.time_ns, r.dev, r.sector, r.bytes, r.error as i16), (1_000_000_002, 8 << 20 | 16, 123, 4096, -5));
        assert_eq!(parsed.comm, Some(&b"kworker/u4:5 x"[..]));
        assert_eq!(format.parse(b"1.2|x|8:16 D WS 123 + 8 (4096) 0"), None);
        // As a spreadsheet wants it: blkparse pads the device.
        let format: Format = "%D,%a,%d,%T.%t,%S,%N,%p,%c\\n".parse().unwrap();
        let r = format.parse(b"254,0  ,Q,RM,0.000876580,1096,4096,255,1").unwrap().record;
        assert_eq!((r.dev, r.time_ns, r.sector, r.bytes, r.pid, r.cpu), (254 << 20, 876_580, 1096, 4096, 255, 1));
        for line in
            ["254,0  ,Q,RM,0.000876580,1096,4096,255,1", "    1.000000002|x|8:16  D  R? 123 + 8", "1.000000002 R R"]
        {
            assert!(looks_so(line.as_bytes()), "{line}");
        }
        for line in ["", "R W", "1.000000002 R", "1.5 D R 3", "cat 12 [001] 1.000000002: D: 8", "A.000000002 D R"] {
            assert!(!looks_so(line.as_bytes()), "{line}");
        }
        for (bad, why) in [
            ("%T.%t %a %d %S", "%n or %N"),
            ("%y", "blkparse's fields"),
            ("%", "blkparse's fields"),
            ("%T%t %a %d %S %n", "two fields"),
        ] {
            let e = bad.parse::<Format>().unwrap_err();
            assert!(e.contains(why), "{bad}: {e}");
        }
    }
}
