//! Changes to a reel, as a stranger could make them: each keeps it a reel that readers begin to read.

use std::path::Path;

use serde_json::Value;

use crate::tables::{Cell, Kind, Table, Tables};

/// xorshift64*: the same numbers in every run, so that a failure comes again.
pub(crate) struct Random(u64);

impl Random {
    /// Of the mutant with this number.
    pub(crate) fn of(number: u64) -> Self {
        let mut random = Self(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| _ = random.next());
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

const NUMBERS: [i64; 17] = [
    0,
    1,
    -1,
    2,
    511,
    4097,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    1 << 32,
    1 << 40,
    1 << 52,
    i64::MAX - 4096,
    i64::MAX - 1,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
];

/// Calls that samples have seldom or never.
const CALLS: [&str; 30] = [
    "openat",
    "rename",
    "renameat2",
    "unlink",
    "rmdir",
    "mkdir",
    "symlink",
    "link",
    "ftruncate",
    "truncate",
    "fallocate",
    "copy_file_range",
    "sendfile",
    "splice",
    "mmap",
    "madvise",
    "msync",
    "fork",
    "clone",
    "exit",
    "pwritev2",
    "preadv",
    "io_uring_enter",
    "io_submit",
    "fsetxattr",
    "fchmod",
    "chown",
    "utimensat",
    "dup3",
    "getdents64",
];

fn hostile_name(random: &mut Random, outside: &Path) -> String {
    let outside = outside.to_str().unwrap();
    match random.below(16) {
        0 => String::new(),
        1 => "/".into(),
        2 => "..".into(),
        3 => format!("{outside}/file"),
        4 => format!("{outside}/folder"),
        5 => format!("../../../../../../../../../..{outside}/file"),
        6 => format!("{outside}/link"),
        7 => "/proc/self/fd/1".into(),
        8 => "/proc/self/root/etc/passwd".into(),
        9 => "/dev/zero".into(),
        10 => "d/".repeat(1 + random.below(4000)),
        11 => "n".repeat(300),
        12 => "a\nop 1 faithful\u{1b}[31m\u{202e}".into(),
        13 => "%00/%2e%2e/%ff".into(),
        14 => "\u{0}".into(),
        _ => format!("/x/../..{outside}/./file/"),
    }
}

/// A value of the column's kind that is not there by chance.
fn strange(kind: Kind, old: &Cell, random: &mut Random, outside: &Path) -> Cell {
    match kind {
        Kind::Int32 | Kind::Int64 => match (random.below(4), old) {
            (0, Cell::Number(n)) => Cell::Number(n.wrapping_add(1)),
            (1, Cell::Number(n)) => Cell::Number(n.wrapping_neg()),
            (2, Cell::Number(n)) => Cell::Number(n ^ (1 << random.below(63))),
            _ => Cell::Number(NUMBERS[random.below(NUMBERS.len())]),
        },
        Kind::Text if random.one_in(3) => Cell::Text(CALLS[random.below(CALLS.len())].into()),
        Kind::Text => Cell::Text(hostile_name(random, outside)),
        Kind::Bytes => Cell::Bytes(vec![random.next() as u8; random.below(5000)]),
    }
}

/// Rows to change: one, a few, a stretch, or all.
fn some_rows(table: &Table, random: &mut Random) -> Vec<usize> {
    let n = table.rows.len();
    match random.below(8) {
        0 => (0..n).collect(),
        1 | 2 => {
            let from = random.below(n);
            (from..n.min(from + 1 + random.below(50))).collect()
        }
        3 | 4 => (0..1 + random.below(10)).map(|_| random.below(n)).collect(),
        _ => vec![random.below(n)],
    }
}

fn change_cells(table: &mut Table, random: &mut Random, outside: &Path) -> String {
    let column = random.below(table.columns.len());
    let kind = table.columns[column].kind;
    let rows = some_rows(table, random);
    let how = random.below(8);
    let value = strange(kind, &table.rows[rows[0]][column], random, outside);
    for row in &rows {
        let from = random.below(table.rows.len());
        let new = match how {
            0 => Cell::Null,
            // Another row's: wrong ids, times out of order.
            1 | 2 => table.rows[from][column].clone(),
            3 => strange(kind, &table.rows[*row][column], random, outside),
            _ => value.clone(),
        };
        table.rows[*row][column] = new;
    }
    format!("{} of {} rows, first {}", table.columns[column].name, rows.len(), rows[0])
}

/// One column gets the values of another of its kind.
fn copy_column(table: &mut Table, random: &mut Random) -> String {
    let (from, to) = (random.below(table.columns.len()), random.below(table.columns.len()));
    if table.columns[from].kind == table.columns[to].kind {
        for row in &mut table.rows {
            row[to] = row[from].clone();
        }
    }
    format!("{} copied to {}", table.columns[from].name, table.columns[to].name)
}

fn change_rows(table: &mut Table, random: &mut Random) -> String {
    let n = table.rows.len();
    match random.below(5) {
        0 => {
            let keep = random.below(n + 1);
            table.rows.truncate(keep);
            format!("cut to {keep} rows")
        }
        1 => {
            let every = 2 + random.below(5);
            let mut i = 0;
            table.rows.retain(|_| {
                i += 1;
                i % every != 0
            });
            format!("without every {every}th row")
        }
        2 => {
            let (row, times) = (random.below(n), 1 + random.below(3000));
            let copies = vec![table.rows[row].clone(); times];
            table.rows.splice(row..row, copies);
            format!("row {row} {times} times more")
        }
        3 => {
            table.rows.extend(table.rows.clone());
            "all rows twice".into()
        }
        _ => {
            for i in (1..n).rev() {
                table.rows.swap(i, random.below(i + 1));
            }
            "rows in any order".into()
        }
    }
}

/// Changes one value somewhere in the manifest.
fn change_manifest(value: &mut Value, random: &mut Random, outside: &Path) -> String {
    match value {
        Value::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(random.below(map.len())).unwrap().clone();
            if random.one_in(12) {
                map.remove(&key);
                return format!("{key} removed");
            }
            format!("{key}.{}", change_manifest(&mut map[&key], random, outside))
        }
        Value::Array(all) if !all.is_empty() => {
            let i = random.below(all.len());
            if random.one_in(8) {
                let copies = vec![all[i].clone(); 1 + random.below(200)];
                all.extend(copies);
                return format!("{i} many times");
            }
            format!("{i}.{}", change_manifest(&mut all[i], random, outside))
        }
        leaf => {
            *leaf = match random.below(6) {
                0 => Value::Null,
                1 | 2 => hostile_name(random, outside).into(),
                _ => NUMBERS[random.below(NUMBERS.len())].into(),
            };
            format!("= {}", leaf.to_string().chars().take(40).collect::<String>())
        }
    }
}

/// Writes a mutant of these tables as `reel`; says what was changed.
pub(crate) fn mutant(tables: &Tables, random: &mut Random, reel: &Path, outside: &Path) -> Vec<String> {
    let mut tables = tables.clone();
    let mut told = Vec::new();
    for _ in 0..1 + random.below(4) {
        // Half of all changes are to operations: most code reads them.
        let names: Vec<String> = tables.tables.keys().cloned().collect();
        let name = if random.one_in(2) { "ops".into() } else { names[random.below(names.len())].clone() };
        let table = tables.tables.get_mut(&name).unwrap();
        if table.rows.is_empty() {
            continue;
        }
        let what = match random.below(10) {
            0 => copy_column(table, random),
            1 | 2 => change_rows(table, random),
            _ => change_cells(table, random, outside),
        };
        told.push(format!("{name}: {what}"));
    }
    tables.write(reel);
    if random.one_in(4) {
        told.push(format!("manifest: {}", change_manifest(&mut tables.manifest, random, outside)));
        tables.write_manifest(reel);
    }
    told
}
