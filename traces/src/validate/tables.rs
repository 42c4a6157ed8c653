//! Reads every listed segment completely, and checks the rules that all tables share.

use std::{collections::HashSet, io};

use arrow_array::RecordBatch;

use super::{
    Check, TableReport,
    checks::{self, Known},
    columns::Ints,
    findings::Findings,
};
use crate::{
    Reel,
    format::{
        manifest::Segment,
        rows,
        table::Row,
        tables::{self, Visitor},
    },
    private::Folder,
    reader::{limits::Budget, next_batch, open_segment, plain_segment},
};

/// Sums to compare with the ledger.
#[derive(Debug, Default)]
pub(super) struct Sums {
    pub(super) tables: Vec<TableReport>,
    /// Rows of `ops` written by ioreel itself.
    pub(super) tool_ops: i64,
}

impl Sums {
    /// Number of rows of a table that events led to.
    pub(super) fn event_rows(&self, table: &str) -> i64 {
        let rows = self.tables.iter().find(|t| t.table == table).map_or(0, |t| t.rows);
        if table == <rows::Op as Row>::TABLE { rows - self.tool_ops } else { rows }
    }
}

/// Position of a check in a table.
pub(super) struct Place<'a> {
    pub(super) found: &'a mut Findings,
    file: &'a str,
    /// Number of the batch's first row in the file.
    first_row: i64,
}

impl Place<'_> {
    /// Row number in the file of row `i` of the batch.
    pub(super) fn row(&self, i: usize) -> i64 {
        self.first_row + i as i64
    }

    /// Adds a problem with row `i` of the batch.
    pub(super) fn bad(&mut self, check: Check, column: &'static str, i: usize, what: impl FnOnce() -> String) {
        self.found.add(check, self.file, column, Some(self.row(i)), what);
    }
}

/// Checks every table of the reel.
pub(super) fn check(reel: &Reel, folder: &Folder, found: &mut Findings) -> Sums {
    let mut pass = Pass { reel, folder, found, known: Known::new(&reel.manifest), sums: Sums::default() };
    let Ok(()) = tables::each(&mut pass);
    // A row may refer to a task of a later row, so parents are checked once all tasks are known.
    pass.known.parents_pass = true;
    pass.segments::<rows::Task>(false);
    for table in pass.known.spread() {
        pass.found.add(Check::Ids, table, "", None, || {
            "its ids are too far apart to check that each is unique; writers number rows consecutively".into()
        });
    }
    pass.sums.tool_ops = pass.known.tool_ops;
    pass.sums
}

struct Pass<'a> {
    reel: &'a Reel,
    folder: &'a Folder,
    found: &'a mut Findings,
    known: Known,
    sums: Sums,
}

impl Visitor for Pass<'_> {
    type Error = std::convert::Infallible;

    fn table<R: Row>(&mut self) -> Result<(), Self::Error> {
        let report = self.segments::<R>(true);
        if report != (TableReport { table: R::TABLE, ..TableReport::default() }) {
            self.sums.tables.push(report);
        }
        Ok(())
    }
}

impl Pass<'_> {
    /// Reads the table's segments. With `general`, also compares them with the manifest and checks their order.
    fn segments<R: Row>(&mut self, general: bool) -> TableReport {
        let mut report = TableReport { table: R::TABLE, ..TableReport::default() };
        let (mut met, mut budget) = (HashSet::new(), Budget::of(R::TABLE));
        for segment in self.reel.manifest.segments.get(R::TABLE).into_iter().flatten() {
            if !met.insert(&segment.file) {
                if general {
                    self.found.add(Check::Listed, &segment.file, "file", None, || {
                        "listed more than once; `ioreel validate --repair` lists it once".into()
                    });
                }
                continue;
            }
            match self.segment::<R>(segment, general) {
                Ok(rows) => {
                    report.segments += 1;
                    report.rows += rows;
                    // The size of the file counts, because the manifest may be wrong.
                    if let Err(why) = budget.add(rows, bytes_of(self.folder, &segment.file).unwrap_or(0)) {
                        if general {
                            self.found.add(Check::Segment, &segment.file, "", None, || {
                                format!("{}: {why}; the segments after it are not checked", R::TABLE)
                            });
                        }
                        break;
                    }
                }
                // The first pass has reported it.
                Err(_) if !general => {}
                Err(why) => self.found.add(Check::Segment, &segment.file, "", None, || {
                    format!("{why}; `ioreel validate --repair` moves it aside")
                }),
            }
        }
        report
    }

    fn segment<R: Row>(&mut self, segment: &Segment, general: bool) -> Result<i64, String> {
        if !plain_segment(R::TABLE, &segment.file) {
            return Err(format!("not a file of the form {}/NAME.parquet", R::TABLE));
        }
        let mut span = Span::default();
        for batch in read(self.folder, &segment.file)? {
            let batch = batch?;
            has_columns::<R>(&batch)?;
            let mut place = Place { found: &mut *self.found, file: &segment.file, first_row: span.rows };
            if general {
                span.follow::<R>(&batch, &mut place)?;
            } else {
                span.rows += batch.num_rows() as i64;
            }
            checks::rows(R::TABLE, &batch, &mut place, &mut self.known)?;
        }
        if general {
            self.listed(segment, &span);
        }
        Ok(span.rows)
    }

    fn listed(&mut self, segment: &Segment, span: &Span) {
        let bytes = bytes_of(self.folder, &segment.file).unwrap_or(0);
        let pairs = [
            ("rows", segment.rows, span.rows),
            ("bytes", segment.bytes, bytes),
            ("from_ns", segment.from_ns, span.from),
            ("to_ns", segment.to_ns, span.to.unwrap_or(0)),
        ];
        for (column, told, real) in pairs {
            if told != real {
                self.found.add(Check::Listed, &segment.file, column, None, || {
                    format!(
                        "the manifest says {column} {told}, the file says {real}; `ioreel validate --repair` corrects it"
                    )
                });
            }
        }
    }
}

/// The size of a segment.
pub(super) fn bytes_of(reel: &Folder, file: &str) -> io::Result<i64> {
    let (table, name) = file.split_once('/').unwrap_or(("", file));
    Ok(reel.folder(table)?.file(name)?.metadata()?.len() as i64)
}

/// The batches of a segment, with errors as text.
pub(super) fn read(
    reel: &Folder,
    file: &str,
) -> Result<impl Iterator<Item = Result<RecordBatch, String>> + use<>, String> {
    let mut reader = open_segment(reel, file, None, &[]).map_err(|e| match e {
        crate::ReelError::BadSegment { why, .. } => why,
        other => other.to_string(),
    })?;
    let mut failed = false;
    Ok(std::iter::from_fn(move || {
        let batch = if failed { None } else { next_batch(&mut reader) };
        failed |= matches!(batch, Some(Err(_)));
        batch
    }))
}

/// Whether the batch has the table's columns with their types. Nullable columns may be missing.
pub(super) fn has_columns<R: Row>(batch: &RecordBatch) -> Result<(), String> {
    for c in R::fields() {
        match batch.column_by_name(c.name) {
            Some(array) if *array.data_type() != c.data_type => {
                return Err(format!("column {}: expected type {}, found {}", c.name, c.data_type, array.data_type()));
            }
            Some(array) if !c.nullable && array.null_count() > 0 => {
                return Err(format!("column {}: contains nulls, but must not", c.name));
            }
            None if !c.nullable => return Err(format!("column {} is missing", c.name)),
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Time span and row count of a segment, as in [`Segment`].
#[derive(Debug, Default)]
struct Span {
    rows: i64,
    from: i64,
    to: Option<i64>,
    last: Option<i64>,
}

impl Span {
    /// Updates the span with the sort column of a batch.
    fn follow<R: Row>(&mut self, batch: &RecordBatch, place: &mut Place<'_>) -> Result<(), String> {
        let time = Ints::of(batch, R::TIME)?;
        let duration = R::DURATION.map(|name| Ints::of(batch, name)).transpose()?;
        for i in 0..batch.num_rows() {
            let at = time.get(i).unwrap_or(0);
            let lasting = duration.as_ref().and_then(|d| d.get(i)).unwrap_or(0);
            if lasting < 0 {
                place.bad(Check::Times, "duration", i, || format!("negative duration of {lasting} ns"));
            }
            match self.last {
                None => self.from = at,
                Some(last) if at < last => {
                    place.bad(Check::Order, R::TIME, i, || {
                        format!("{} {at} follows {last}: rows must be sorted", R::TIME)
                    });
                }
                Some(_) => {}
            }
            if at < 0 {
                place.bad(Check::Times, R::TIME, i, || format!("{} is {at}, before the reel's start", R::TIME));
            }
            self.last = Some(at);
            self.to = self.to.max(Some(at.saturating_add(lasting)));
        }
        self.rows += batch.num_rows() as i64;
        Ok(())
    }
}
