//! Names of columns, and words for kinds of requests.

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
    /// The machine of the device, as part of its name.
    Host,
    Major,
    Minor,
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
        "host" if block => Some(Field::Host),
        "major" if block => Some(Field::Major),
        "minor" if block => Some(Field::Minor),
        "error" if block => Some(Field::Error),
        "pid" => Some(Field::Pid),
        "tid" => Some(Field::Tid),
        "comm" => Some(Field::Comm),
        "fd" if !block => Some(Field::Fd),
        "ret" if !block => Some(Field::Ret),
        "path" if !block => Some(Field::Path),
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
    "host",
    "major",
    "minor",
    "cpu",
    "error",
    "pid",
    "tid",
    "comm",
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

/// The columns of these names. `None` for a skipped column. `has_op`: the caller says what every line does.
pub(super) fn columns(names: &[String], rows: Rows, has_op: bool) -> Result<Vec<Option<Field>>, String> {
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
        (!has_op && !has(|f| matches!(f, Field::Op))).then_some("op"),
        (rows == Rows::Block && !has(|f| matches!(f, Field::Len(_)))).then_some("len_SIZE"),
    ];
    match missing.into_iter().flatten().next() {
        Some("op") => Err(format!(
            "column op is missing; say what every line does with --op read, or name the columns in order with --columns; there are: {list}"
        )),
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
