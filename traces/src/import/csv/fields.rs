//! Column names, and the values of a line.

use super::Rows;
use crate::{import::lines::quoted, suggest};

/// A column, with the size of its unit in ns or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Time(i128),
    Queue(i128),
    End(i128),
    Duration(i128),
    Offset(i128),
    Len(i128),
    Op,
    Dev,
    Cpu,
    Error,
    Pid,
    Tid,
    Fd,
    Ret,
    Path,
    Comm,
}

const TIMES: [(&str, i128); 5] =
    [("_ns", 1), ("_100ns", 100), ("_us", 1_000), ("_ms", 1_000_000), ("_s", 1_000_000_000)];
const SIZES: [(&str, i128); 4] = [("_bytes", 1), ("_sectors", 512), ("_kib", 1 << 10), ("_mib", 1 << 20)];

/// The column of this name.
fn field(name: &str, rows: Rows) -> Option<Field> {
    let unit = |stem: &str, units: &[(&str, i128)]| {
        name.strip_prefix(stem).and_then(|suffix| units.iter().find(|(s, _)| *s == suffix)).map(|(_, n)| *n)
    };
    let block = rows == Rows::Block;
    let begin = if block { "issue" } else { "start" };
    let end = if block { "complete" } else { "end" };
    let duration = if block { "d2c" } else { "dur" };
    if let Some(n) = unit(begin, &TIMES) {
        return Some(Field::Time(n));
    }
    if let Some(n) = unit(end, &TIMES) {
        return Some(Field::End(n));
    }
    if let Some(n) = unit(duration, &TIMES) {
        return Some(Field::Duration(n));
    }
    if let Some(n) = unit("queue", &TIMES).filter(|_| block) {
        return Some(Field::Queue(n));
    }
    if let Some(n) = unit("offset", &SIZES) {
        return Some(Field::Offset(n));
    }
    if let Some(n) = unit("len", &SIZES) {
        return Some(Field::Len(n));
    }
    match name {
        "sector" if block => Some(Field::Offset(512)),
        "op" => Some(Field::Op),
        "cpu" => Some(Field::Cpu),
        "dev" if block => Some(Field::Dev),
        "error" if block => Some(Field::Error),
        "pid" if !block => Some(Field::Pid),
        "tid" if !block => Some(Field::Tid),
        "fd" if !block => Some(Field::Fd),
        "ret" if !block => Some(Field::Ret),
        "path" if !block => Some(Field::Path),
        "comm" if !block => Some(Field::Comm),
        _ => None,
    }
}

const BLOCK_COLUMNS: &[&str] = &[
    "issue_UNIT",
    "complete_UNIT",
    "d2c_UNIT",
    "queue_UNIT",
    "sector",
    "offset_SIZE",
    "len_SIZE",
    "op",
    "dev",
    "cpu",
    "error",
];
const OPS_COLUMNS: &[&str] = &[
    "start_UNIT",
    "end_UNIT",
    "dur_UNIT",
    "op",
    "path",
    "offset_SIZE",
    "len_SIZE",
    "ret",
    "fd",
    "pid",
    "tid",
    "comm",
    "cpu",
];

/// Every name a column may have: `issue_UNIT` once with each unit.
fn spelled(columns: &[&str]) -> Vec<String> {
    let with = |column: &str| -> Vec<String> {
        let ends = |stem: &str, ends: &[(&str, i128)]| ends.iter().map(|(end, _)| format!("{stem}{end}")).collect();
        match column.rsplit_once('_') {
            Some((stem, "UNIT")) => ends(stem, &TIMES),
            Some((stem, "SIZE")) => ends(stem, &SIZES),
            _ => vec![column.to_owned()],
        }
    };
    columns.iter().flat_map(|c| with(c)).collect()
}

/// The columns of these names. `None` for a skipped column.
pub(super) fn columns(names: &[String], rows: Rows) -> Result<Vec<Option<Field>>, String> {
    let known = match rows {
        Rows::Block => BLOCK_COLUMNS,
        Rows::Ops => OPS_COLUMNS,
    };
    let list = format!("{}; UNIT is s, ms, us, ns or 100ns; SIZE is bytes, sectors, kib or mib", known.join(", "));
    let mut out: Vec<Option<Field>> = Vec::new();
    for name in names {
        let found = if name == "-" { None } else { Some(field(name, rows).ok_or(name)) };
        match found.transpose() {
            Ok(found) => {
                let twice =
                    |f: &Field| out.iter().flatten().any(|o| std::mem::discriminant(o) == std::mem::discriminant(f));
                if found.as_ref().is_some_and(twice) {
                    return Err(format!("two columns are {name}; name the one to skip `-` in --columns"));
                }
                out.push(found);
            }
            Err(name) => {
                let spelled = spelled(known);
                let hint = suggest::hint(name, &spelled.iter().map(String::as_str).collect::<Vec<_>>());
                let name = quoted(name.as_bytes());
                return Err(format!(
                    "unknown column {name}{hint}; name the columns in order with --columns, `-` skips one; there are: {list}"
                ));
            }
        }
    }
    let has = |f: fn(&Field) -> bool| out.iter().flatten().any(f);
    let missing = [
        (!has(|f| matches!(f, Field::Time(_)))).then_some(if rows == Rows::Block {
            "issue_UNIT"
        } else {
            "start_UNIT"
        }),
        (!has(|f| matches!(f, Field::Op))).then_some("op"),
        (rows == Rows::Block && !has(|f| matches!(f, Field::Len(_)))).then_some("len_SIZE"),
    ];
    match missing.into_iter().flatten().next() {
        Some(missing) => {
            Err(format!("column {missing} is missing; name the columns in order with --columns; there are: {list}"))
        }
        None => Ok(out),
    }
}

/// The request type of a word, as used by various tools.
pub(super) fn request(word: &[u8]) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_slice() {
        b"r" | b"read" | b"rs" | b"ra" | b"rm" | b"rsm" => "read",
        b"w" | b"write" | b"ws" | b"wm" | b"wsm" => "write",
        b"d" | b"discard" | b"t" | b"trim" | b"unmap" => "discard",
        b"f" | b"fn" | b"flush" => "flush",
        b"secure_erase" => "secure_erase",
        b"write_zeroes" => "write_zeroes",
        b"zone_append" => "zone_append",
        b"zone_mgmt" => "zone_mgmt",
        b"other" => "other",
        _ => return None,
    })
}

/// The message for a word that [`request`] does not know.
pub(super) fn unknown_request(word: &[u8]) -> String {
    const KNOWN: [&str; 9] =
        ["read", "write", "discard", "flush", "secure_erase", "write_zeroes", "zone_append", "zone_mgmt", "other"];
    suggest::unknown("request type", &String::from_utf8_lossy(word), &KNOWN)
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
    pub(super) op: Option<Vec<u8>>,
    pub(super) dev: Option<Vec<u8>>,
    pub(super) path: Option<Vec<u8>>,
    pub(super) comm: Option<Vec<u8>>,
    pub(super) cpu: Option<i64>,
    pub(super) error: Option<i64>,
    pub(super) pid: Option<i64>,
    pub(super) tid: Option<i64>,
    pub(super) fd: Option<i64>,
    pub(super) ret: Option<i64>,
}

/// A decimal number times `unit`, truncated to an integer.
fn scaled(word: &[u8], unit: i128) -> Option<i128> {
    let text = std::str::from_utf8(word).ok()?.trim();
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !digits(whole) || !digits(fraction) || whole.len() > 20 {
        return None;
    }
    let mut value = if whole.is_empty() { 0 } else { whole.parse::<i128>().ok()? }.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.bytes().take(18) {
        place /= 10;
        value += i128::from(digit - b'0') * place;
    }
    Some(if negative { -value } else { value })
}

/// The fields of a line. A quoted field may contain separators and doubled quotes.
pub(super) fn split(line: &[u8], separator: u8) -> Result<Vec<Vec<u8>>, String> {
    let mut out = Vec::new();
    let mut rest = line;
    loop {
        let mut field = Vec::new();
        if let [b'"', quoted @ ..] = rest {
            rest = quoted;
            loop {
                match rest {
                    [b'"', b'"', more @ ..] => {
                        field.push(b'"');
                        rest = more;
                    }
                    [b'"', more @ ..] => {
                        rest = more;
                        break;
                    }
                    [b, more @ ..] => {
                        field.push(*b);
                        rest = more;
                    }
                    [] => {
                        return Err(
                            "a quoted field is not closed; add the closing quote, or set another --separator".into()
                        );
                    }
                }
            }
            if rest.first().is_some_and(|b| *b != separator) {
                return Err("text follows a quoted field; expected the separator after the closing quote".into());
            }
        } else {
            let end = rest.iter().position(|b| *b == separator).unwrap_or(rest.len());
            field.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        out.push(field);
        match rest {
            [_, more @ ..] => rest = more,
            [] => return Ok(out),
        }
    }
}

impl Values {
    /// Reads a line.
    pub(super) fn read(&mut self, line: &[u8], columns: &[Option<Field>], separator: u8) -> Result<(), String> {
        *self = Self::default();
        let words = split(line, separator)?;
        if words.len() != columns.len() {
            return Err(format!(
                "{} fields, but there are {} columns; check --columns and --separator",
                words.len(),
                columns.len()
            ));
        }
        for (word, field) in words.into_iter().zip(columns) {
            let Some(field) = field else { continue };
            let bad = |what: &str| format!("{} is not a {what}", quoted(&word));
            // An empty field is an unknown value.
            if word.is_empty() {
                continue;
            }
            let number = |unit: i128| scaled(&word, unit).ok_or_else(|| bad("number"));
            let small = || {
                let value = scaled(&word, 1).filter(|_| !word.contains(&b'.'));
                value.and_then(|v| i64::try_from(v).ok()).ok_or_else(|| bad("whole number of 64 bits"))
            };
            let size = |unit: i128| {
                let value = scaled(&word, unit).and_then(|v| i64::try_from(v).ok()).filter(|v| *v >= 0);
                value.ok_or_else(|| bad("size or offset"))
            };
            let thirty_two =
                || small().and_then(|v| i32::try_from(v).map(i64::from).map_err(|_| bad("number of 32 bits")));
            match field {
                Field::Time(unit) => self.time = Some(number(*unit)?),
                Field::Queue(unit) => self.queue = Some(number(*unit)?),
                Field::End(unit) => self.end = Some(number(*unit)?),
                Field::Duration(unit) => self.duration = Some(number(*unit)?),
                Field::Offset(unit) => self.offset = Some(size(*unit)?),
                Field::Len(unit) => self.len = Some(size(*unit)?),
                Field::Cpu => self.cpu = Some(thirty_two()?),
                Field::Error => self.error = Some(thirty_two()?),
                Field::Pid => self.pid = Some(thirty_two()?),
                Field::Tid => self.tid = Some(thirty_two()?),
                Field::Fd => self.fd = Some(thirty_two()?),
                Field::Ret => self.ret = Some(small()?),
                Field::Op => self.op = Some(word),
                Field::Dev => self.dev = Some(word),
                Field::Path => self.path = Some(word),
                Field::Comm => self.comm = Some(word),
            }
        }
        Ok(())
    }

    /// The earliest time on the line.
    pub(super) fn earliest(&self) -> Option<i128> {
        [self.time, self.queue].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_in_any_unit() {
        assert_eq!(scaled(b"1795274373.633304", 1_000_000_000), Some(1_795_274_373_633_304_000));
        assert_eq!(scaled(b"128166372003061629", 100), Some(12_816_637_200_306_162_900));
        assert_eq!(scaled(b"-0.5", 1000), Some(-500));
        for bad in ["", ".", "1e3", "0x10", "1.2.3", "--1", "999999999999999999999999"] {
            assert_eq!(scaled(bad.as_bytes(), 1), None, "{bad}");
        }
    }

    #[test]
    fn quoted_fields_hold_anything() {
        let fields = |line: &str| split(line.as_bytes(), b',').map(|f| f.concat());
        assert_eq!(split(b"a,\"b,\"\"c\"\"\",,", b','), Ok(vec![b"a".to_vec(), b"b,\"c\"".to_vec(), vec![], vec![]]));
        assert!(fields("\"a").is_err() && fields("\"a\"b").is_err());
    }
}
