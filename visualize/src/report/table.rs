//! Individual events as columns.

use ioreel_analyze::events::{calls::Kind, requests::Class};

use super::{calls::SingleCall, carried::Carriage, columns::Column, container::Thin, requests::Single, sample::Held};

/// A request with facts from its bios.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestRow {
    /// The request.
    pub(super) single: Single,
    /// Lane of the file, or -1.
    pub(super) file: i64,
    /// Index of the thread, or -1.
    pub(super) task: i64,
    /// Index of the thread's name, or -1.
    pub(super) comm: i64,
    /// Index of its class, or -1.
    pub(super) class: i64,
}

/// Requests of one device.
#[derive(Debug)]
pub(super) struct RequestTable {
    /// Prefix of the column names.
    pub(super) prefix: String,
    /// The rows.
    pub(super) rows: Held<RequestRow>,
}

/// Bits of column `flags`.
pub(super) mod bits {
    pub(in crate::report) const SEEK: u8 = 1;
    pub(in crate::report) const SEEK_64K: u8 = 2;
    pub(in crate::report) const SLOW: u8 = 4;
    pub(in crate::report) const QUEUED: u8 = 8;
    pub(in crate::report) const COMPLETE: u8 = 16;
}

impl RequestTable {
    /// Adds the facts from bios to each request.
    pub(super) fn new(
        prefix: String,
        held: Held<Single>,
        known: &Carriage,
        file: impl Fn(i64) -> i64,
        task: impl Fn(i64) -> i64,
    ) -> Self {
        let row = |single: Single| {
            let told = known.requests.get(&single.request.rq_id);
            RequestRow {
                single,
                file: told.and_then(|t| t.file).map_or(-1, &file),
                task: told.and_then(|t| t.task).map_or(-1, &task),
                comm: told.map_or(-1, |t| t.comm as i64),
                class: told.map_or(-1, |t| t.class as i64),
            }
        };
        let Held { events, slow, total, one_in } = held;
        Self { prefix, rows: Held { events: events.into_iter().map(row).collect(), slow, total, one_in } }
    }
}

impl Thin for RequestTable {
    fn columns(&self) -> Vec<Column> {
        let rows = &self.rows.events;
        let name = |n: &str| format!("{}.{n}", self.prefix);
        let request = || rows.iter().map(|r| r.single.request);
        let flags = rows.iter().zip(&self.rows.slow).map(|(r, slow)| {
            let q = &r.single;
            let bit = |is: bool, bit: u8| if is { bit } else { 0 };
            bit(q.seek.exact, bits::SEEK)
                | bit(q.seek.sw64k, bits::SEEK_64K)
                | bit(*slow, bits::SLOW)
                | bit(q.request.queue_ns.is_some(), bits::QUEUED)
                | bit(q.request.complete_ns.is_some(), bits::COMPLETE)
        });
        vec![
            Column::integers(name("total"), [self.rows.total as i64, self.rows.one_in as i64].into_iter()),
            Column::differences(name("at"), request().map(|r| r.issue_ns)),
            Column::integers(name("took"), request().map(|r| r.last_ns().saturating_sub(r.issue_ns).max(0))),
            Column::integers(
                name("waited"),
                request().map(|r| r.queue_ns.map_or(0, |q| r.issue_ns.saturating_sub(q).max(0))),
            ),
            Column::differences(name("sector"), request().map(|r| r.sector)),
            Column::integers(name("bytes"), request().map(|r| r.len_bytes)),
            Column::bytes(name("class"), request().map(|r| r.class as u8).collect()),
            Column::bytes(name("flags"), flags.collect()),
            Column::integers(name("error"), request().map(|r| i64::from(r.error))),
            Column::integers(name("file"), rows.iter().map(|r| r.file)),
            Column::integers(name("task"), rows.iter().map(|r| r.task)),
            Column::integers(name("comm"), rows.iter().map(|r| r.comm)),
            Column::integers(name("what"), rows.iter().map(|r| r.class)),
        ]
    }

    fn halve(&mut self) {
        self.rows.halve();
    }

    fn held(&self) -> usize {
        self.rows.events.len()
    }
}

/// Names of the classes, indexed by column `class`.
pub(super) fn class_names() -> Vec<&'static str> {
    Class::ALL.iter().map(|c| c.name()).collect()
}

/// Names of the kinds of calls, likewise.
pub(super) const KIND_NAMES: [&str; 6] = ["read", "write", "copy", "sync", "metadata", "other"];

fn kind_place(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 0,
        Kind::Write => 1,
        Kind::Copy => 2,
        Kind::Sync => 3,
        Kind::Metadata => 4,
        Kind::Other => 5,
    }
}

/// Individual calls.
#[derive(Debug)]
pub(super) struct CallTable {
    /// The calls, each with lane and thread index, or -1.
    pub(super) rows: Held<(SingleCall, i64, i64)>,
}

impl CallTable {
    /// Looks up files and threads.
    pub(super) fn new(held: Held<SingleCall>, file: impl Fn(i64) -> i64, task: impl Fn(i64) -> i64) -> Self {
        let Held { events, slow, total, one_in } = held;
        let events = events.into_iter().map(|c| (c, c.file.map_or(-1, &file), task(c.task))).collect();
        Self { rows: Held { events, slow, total, one_in } }
    }
}

impl Thin for CallTable {
    fn columns(&self) -> Vec<Column> {
        let rows = &self.rows.events;
        let calls = || rows.iter().map(|(c, ..)| c);
        let flags = rows.iter().zip(&self.rows.slow).map(|((c, ..), slow)| {
            let bit = |is: bool, bit: u8| if is { bit } else { 0 };
            bit(*slow, bits::SLOW)
                | bit(c.dur_ns.is_some(), bits::COMPLETE)
                | bit(c.offset_bytes.is_some(), bits::QUEUED)
        });
        vec![
            Column::integers("calls.total", [self.rows.total as i64, self.rows.one_in as i64].into_iter()),
            Column::differences("calls.at", calls().map(|c| c.start_ns)),
            Column::integers("calls.took", calls().map(|c| c.dur_ns.unwrap_or(0).max(0))),
            Column::bytes("calls.kind", calls().map(|c| kind_place(c.kind)).collect()),
            Column::bytes("calls.from", calls().map(|c| c.targets.0 as u8).collect()),
            Column::bytes("calls.to", calls().map(|c| c.targets.1 as u8).collect()),
            Column::integers("calls.op", calls().map(|c| c.op as i64)),
            Column::bytes("calls.flags", flags.collect()),
            Column::integers("calls.file", rows.iter().map(|(_, f, _)| *f)),
            Column::differences("calls.offset", calls().map(|c| c.offset_bytes.unwrap_or(0))),
            Column::integers("calls.ret", calls().map(|c| c.ret.unwrap_or(0))),
            Column::integers("calls.task", rows.iter().map(|(.., t)| *t)),
        ]
    }

    fn halve(&mut self) {
        self.rows.halve();
    }

    fn held(&self) -> usize {
        self.rows.events.len()
    }
}
