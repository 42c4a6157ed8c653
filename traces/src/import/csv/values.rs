//! The values of a line.

use std::ops::Range;

use super::fields::Field;
use crate::import::lines::quoted;

/// What is between two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// This character, once.
    Byte(u8),
    /// Any number of blanks and tabs. There are no quotes.
    Blanks,
}

/// How many fields a line may have beside one per column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extra {
    /// Further fields are ignored.
    pub(super) more: bool,
    /// Number of fields at the end that may be missing.
    pub(super) fewer: usize,
}

/// The values of one line, in ns and bytes.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) time: Option<i128>,
    pub(super) queue: Option<i128>,
    pub(super) end: Option<i128>,
    pub(super) duration: Option<i128>,
    pub(super) offset: Option<i64>,
    pub(super) len: Option<i64>,
    pub(super) cpu: Option<i32>,
    pub(super) error: Option<i32>,
    pub(super) major: Option<i32>,
    pub(super) minor: Option<i32>,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    pub(super) fd: Option<i32>,
    pub(super) ret: Option<i64>,
    pub(super) op: Vec<u8>,
    pub(super) dev: Vec<u8>,
    pub(super) host: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) comm: Vec<u8>,
}

/// Fields of a line: places in the line, or in `unquoted` for fields with quotes inside.
#[derive(Debug, Default)]
pub(super) struct Words {
    places: Vec<(bool, Range<usize>)>,
    unquoted: Vec<u8>,
}

/// A decimal number times `unit`, truncated to an integer.
pub(in crate::import) fn scaled(word: &[u8], unit: i128) -> Option<i128> {
    let word = word.trim_ascii();
    let (negative, text) = match word {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, word),
    };
    let digits = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(digits);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => rest.split_at(rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len())),
        _ => (&rest[..0], rest),
    };
    if whole.is_empty() && fraction.is_empty() || whole.len() > 20 {
        return None;
    }
    let digit = |b: &u8| i128::from(*b - b'0');
    let value = match rest {
        [] => {
            let whole = if whole.len() <= 18 {
                i128::from(whole.iter().fold(0_u64, |n, b| n * 10 + u64::from(*b - b'0')))
            } else {
                whole.iter().fold(0, |n, b| n * 10 + digit(b))
            };
            let mut value = whole.checked_mul(unit)?;
            let mut place = unit;
            for b in fraction {
                if place == 0 {
                    break;
                }
                place /= 10;
                value += digit(b) * place;
            }
            value
        }
        [b'e' | b'E', exponent @ ..] => {
            let exponent: i32 = std::str::from_utf8(exponent).ok()?.parse().ok().filter(|e| (-40..=20).contains(e))?;
            let fraction = &fraction[..fraction.len().min(18 - whole.len().min(18))];
            let mantissa = whole.iter().chain(fraction).fold(0_i128, |n, b| n * 10 + digit(b)).checked_mul(unit)?;
            let shift = exponent - fraction.len() as i32;
            let power = 10_i128.checked_pow(shift.unsigned_abs());
            if shift < 0 { power.map_or(0, |p| mantissa / p) } else { mantissa.checked_mul(power?)? }
        }
        _ => return None,
    };
    Some(if negative { -value } else { value })
}

impl Words {
    /// Finds the fields of a line. A quoted field may contain separators and doubled quotes.
    pub(super) fn split(&mut self, line: &[u8], separator: Separator) -> Result<(), &'static str> {
        self.places.clear();
        self.unquoted.clear();
        match separator {
            Separator::Byte(byte) => self.split_at(line, byte),
            Separator::Blanks => {
                let blank = |b: &u8| matches!(b, b' ' | b'\t');
                let mut at = 0;
                while let Some(skip) = line[at..].iter().position(|b| !blank(b)) {
                    let from = at + skip;
                    at = line[from..].iter().position(blank).map_or(line.len(), |n| from + n);
                    self.places.push((false, from..at));
                }
                Ok(())
            }
        }
    }

    fn split_at(&mut self, line: &[u8], separator: u8) -> Result<(), &'static str> {
        let mut at = 0;
        loop {
            if line.get(at) == Some(&b'"') {
                let from = self.unquoted.len();
                at += 1;
                loop {
                    match &line[at..] {
                        [b'"', b'"', ..] => {
                            self.unquoted.push(b'"');
                            at += 2;
                        }
                        [b'"', ..] => {
                            at += 1;
                            break;
                        }
                        [b, ..] => {
                            self.unquoted.push(*b);
                            at += 1;
                        }
                        [] => {
                            return Err(
                                "a quoted field is not closed; add the closing quote, or set another --separator",
                            );
                        }
                    }
                }
                if line.get(at).is_some_and(|b| *b != separator) {
                    return Err("text follows a quoted field; expected the separator after the closing quote");
                }
                self.places.push((true, from..self.unquoted.len()));
            } else {
                let end = line[at..].iter().position(|b| *b == separator).map_or(line.len(), |n| at + n);
                self.places.push((false, at..end));
                at = end;
            }
            if at >= line.len() {
                return Ok(());
            }
            at += 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Field `i` of the line that was split.
    pub(super) fn get<'a>(&'a self, line: &'a [u8], i: usize) -> &'a [u8] {
        match self.places.get(i) {
            Some((true, place)) => &self.unquoted[place.clone()],
            Some((false, place)) => &line[place.clone()],
            None => &[],
        }
    }

    /// Fields `from..=to` of a line without quotes, with what is between them.
    fn joined<'a>(&'a self, line: &'a [u8], from: usize, to: usize) -> &'a [u8] {
        match (self.places.get(from), self.places.get(to)) {
            (Some((false, a)), Some((false, b))) => &line[a.start..b.end],
            _ => &[],
        }
    }
}

impl Values {
    /// Reads a line.
    pub(super) fn read(
        &mut self,
        line: &[u8],
        words: &mut Words,
        columns: &[Option<Field>],
        separator: Separator,
        extra: Extra,
    ) -> Result<(), String> {
        self.clear();
        words.split(line, separator)?;
        let (found, expected) = (words.len(), columns.len());
        // A name may contain blanks: all fields beyond one per column are part of it.
        let name = columns.iter().position(|c| matches!(c, Some(Field::Comm | Field::Path)));
        let within = if separator == Separator::Blanks && name.is_some() { found.saturating_sub(expected) } else { 0 };
        let beyond = found > expected && within == 0 && !extra.more;
        if beyond || found + extra.fewer < expected {
            return Err(format!("{found} fields, but there are {expected} columns; check --columns and --separator"));
        }
        let mut at = 0;
        for (i, field) in columns.iter().enumerate() {
            let (from, mut word) = (at, words.get(line, at));
            at += 1;
            if within > 0 && Some(i) == name {
                at += within;
                word = words.joined(line, from, from + within);
            }
            let Some(field) = field else { continue };
            // An empty field is an unknown value.
            if !word.is_empty() {
                self.take(*field, word)?;
            }
        }
        Ok(())
    }

    /// Forgets the values and keeps the buffers of texts.
    fn clear(&mut self) {
        let Self { time, queue, end, duration, offset, len, cpu, error, .. } = self;
        (*time, *queue, *end, *duration) = (None, None, None, None);
        (*offset, *len, *cpu, *error) = (None, None, None, None);
        let Self { major, minor, pid, tid, fd, ret, op, dev, host, path, comm, .. } = self;
        (*major, *minor, *pid, *tid, *fd, *ret) = (None, None, None, None, None, None);
        for text in [op, dev, host, path, comm] {
            text.clear();
        }
    }

    fn take(&mut self, field: Field, word: &[u8]) -> Result<(), String> {
        match field {
            Field::Time(unit) => self.time = Some(number(word, unit)?),
            Field::Queue(unit) => self.queue = Some(number(word, unit)?),
            Field::End(unit) => self.end = Some(number(word, unit)?),
            Field::Duration(unit) => self.duration = Some(number(word, unit)?),
            Field::Offset(unit) => self.offset = Some(size(word, unit)?),
            Field::Len(unit) => self.len = Some(size(word, unit)?),
            Field::Cpu => self.cpu = Some(small(word)?),
            Field::Error => self.error = Some(small(word)?),
            Field::Major => self.major = Some(small(word)?),
            Field::Minor => self.minor = Some(small(word)?),
            Field::Pid => self.pid = Some(small(word)?),
            Field::Tid => self.tid = Some(small(word)?),
            Field::Fd => self.fd = Some(small(word)?),
            Field::Ret => self.ret = Some(whole(word)?),
            Field::Op => self.op.extend_from_slice(word.trim_ascii()),
            Field::Dev => self.dev.extend_from_slice(word.trim_ascii()),
            Field::Host => self.host.extend_from_slice(word.trim_ascii()),
            Field::Path => self.path.extend_from_slice(word),
            Field::Comm => self.comm.extend_from_slice(word),
        }
        Ok(())
    }

    /// The earliest time on the line.
    pub(super) fn earliest(&self) -> Option<i128> {
        [self.time, self.queue].into_iter().flatten().min()
    }
}

fn bad(word: &[u8], what: &str) -> String {
    format!("{} is not a {what}", quoted(word))
}

fn number(word: &[u8], unit: i128) -> Result<i128, String> {
    scaled(word, unit).ok_or_else(|| bad(word, "number"))
}

fn whole(word: &[u8]) -> Result<i64, String> {
    let value = scaled(word, 1).filter(|_| !word.contains(&b'.'));
    value.and_then(|v| i64::try_from(v).ok()).ok_or_else(|| bad(word, "whole number of 64 bits"))
}

fn small(word: &[u8]) -> Result<i32, String> {
    i32::try_from(whole(word)?).map_err(|_| bad(word, "number of 32 bits"))
}

fn size(word: &[u8], unit: i128) -> Result<i64, String> {
    let value = scaled(word, unit).and_then(|v| i64::try_from(v).ok()).filter(|v| *v >= 0);
    value.ok_or_else(|| bad(word, "size or offset"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_in_any_unit() {
        assert_eq!(scaled(b"1795274373.633304", 1_000_000_000), Some(1_795_274_373_633_304_000));
        assert_eq!(scaled(b"128166372003061629", 100), Some(12_816_637_200_306_162_900));
        assert_eq!(scaled(b"12816637200306162900", 1), Some(12_816_637_200_306_162_900));
        assert_eq!(scaled(b"-0.5", 1000), Some(-500));
        assert_eq!(scaled(b"0.999999999999", 1000), Some(999));
        assert_eq!(scaled(b"8.45e-05", 1_000_000_000), Some(84_500));
        assert_eq!(scaled(b"1.5E+3", 1), Some(1500));
        assert_eq!(scaled(b"1e-40", 1_000_000_000), Some(0));
        for bad in ["", ".", "0x10", "1.2.3", "--1", "999999999999999999999999", "1e", "1e99", "e3", "1 2"] {
            assert_eq!(scaled(bad.as_bytes(), 1), None, "{bad}");
        }
    }

    #[test]
    fn quoted_fields_hold_anything() {
        let fields = |line: &str, separator| {
            let mut words = Words::default();
            words.split(line.as_bytes(), separator)?;
            let all = (0..words.len()).map(|i| String::from_utf8_lossy(words.get(line.as_bytes(), i)).into_owned());
            Ok::<_, &str>(all.collect::<Vec<_>>())
        };
        let comma = Separator::Byte(b',');
        assert_eq!(fields("a,\"b,\"\"c\"\"\",,", comma), Ok(["a", "b,\"c\"", "", ""].map(str::to_owned).to_vec()));
        assert!(fields("\"a", comma).is_err() && fields("\"a\"b", comma).is_err());
        assert_eq!(fields("\t a  b\t", Separator::Blanks), Ok(["a", "b"].map(str::to_owned).to_vec()));
    }
}
