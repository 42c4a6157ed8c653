//! Picks operations: by id, or the slowest.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
};

use ioreel_traces::{
    Reel, Text,
    rows::Op,
    table::{Cell, Column, Row, column},
};

use crate::{Result, bad_column, facts::Names};

/// Which operations to explain.
#[derive(Debug, Default)]
pub struct Choice {
    /// These ids. If empty: the slowest.
    pub ids: Vec<i64>,
    /// Number of the slowest operations.
    pub slowest: usize,
    /// Only operations of this name.
    pub op: Option<String>,
    /// Only operations whose file or path argument matches.
    pub matches: Option<PathFilter>,
}

/// Whether a path is wanted.
pub struct PathFilter(pub Box<dyn Fn(&str) -> bool + Send + Sync>);

impl std::fmt::Debug for PathFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathFilter")
    }
}

/// Columns by which operations are picked.
const COLUMNS: [&str; 7] = ["op_id", "dur_ns", "op", "source", "state", "file", "path"];

/// The chosen operations, longest first.
pub(super) fn operations(reel: &Reel, choice: &Choice, names: &Names) -> Result<Vec<Op>> {
    let mut places = if choice.ids.is_empty() { slowest(reel, choice, names)? } else { by_id(reel, &choice.ids)? };
    places.sort_unstable();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((segment, _)) = places.get(at).copied() {
        let wanted: Vec<usize> = places[at..].iter().take_while(|p| p.0 == segment).map(|p| p.1).collect();
        at += wanted.len();
        for (row, op) in reel.segment_rows::<Op>(segment).enumerate() {
            let op = op?;
            if wanted.binary_search(&row).is_ok() {
                found.push(op);
            }
        }
    }
    found.sort_by_key(|op| (Reverse(op.dur_ns), op.op_id));
    Ok(found)
}

/// Segment and row of the first operation with each of these ids: `ioreel validate` tells ids that occur twice.
fn by_id(reel: &Reel, ids: &[i64]) -> Result<Vec<(usize, usize)>> {
    let mut places = Vec::new();
    let mut left: HashSet<i64> = ids.iter().copied().collect();
    for segment in 0..reel.segments::<Op>().len() {
        let mut first = 0;
        for batch in reel.segment_batches::<Op>(segment, &["op_id"]) {
            let batch = batch?;
            let id = column::<i64>(&batch, "op_id").map_err(bad_column(Op::TABLE))?;
            let rows = (0..batch.num_rows()).filter(|i| left.remove(&<i64 as Cell>::get(&id, *i)));
            places.extend(rows.map(|i| (segment, first + i)));
            if left.is_empty() {
                return Ok(places);
            }
            first += batch.num_rows();
        }
    }
    Ok(places)
}

/// Segment and row of the slowest operations.
fn slowest(reel: &Reel, choice: &Choice, names: &Names) -> Result<Vec<(usize, usize)>> {
    let mut heap: BinaryHeap<Reverse<(i64, usize, usize)>> = BinaryHeap::new();
    for segment in 0..reel.segments::<Op>().len() {
        let mut first = 0;
        for batch in reel.segment_batches::<Op>(segment, &COLUMNS) {
            let batch = batch?;
            let bad = |why| bad_column(Op::TABLE)(why);
            let dur_ns = column::<i64>(&batch, "dur_ns").map_err(bad)?;
            let file = column::<Option<i64>>(&batch, "file").map_err(bad)?;
            let text = |name| column::<Option<Text>>(&batch, name).map_err(bad);
            let (op, source, state, path) = (text("op")?, text("source")?, text("state")?, text("path")?);
            for i in 0..batch.num_rows() {
                let dur_ns = <i64 as Cell>::get(&dur_ns, i);
                let full = heap.len() >= choice.slowest;
                if full && heap.peek().is_none_or(|Reverse((least, ..))| dur_ns <= *least) {
                    continue;
                }
                if word(&state, i) != Some("complete")
                    || matches!(word(&source, i), Some("tool" | "lower"))
                    || choice.op.as_deref().is_some_and(|wanted| word(&op, i) != Some(wanted))
                {
                    continue;
                }
                let file = <Option<i64> as Cell>::get(&file, i);
                if let Some(PathFilter(matches)) = &choice.matches
                    && !file.is_some_and(|f| matches(&names.path(f)))
                    && !word(&path, i).is_some_and(matches)
                {
                    continue;
                }
                heap.push(Reverse((dur_ns, segment, first + i)));
                if heap.len() > choice.slowest {
                    heap.pop();
                }
            }
            first += batch.num_rows();
        }
    }
    Ok(heap.into_iter().map(|Reverse((_, segment, row))| (segment, row)).collect())
}

fn word<'a>(column: &'a Column<'a>, i: usize) -> Option<&'a str> {
    let Column::Text(keys, words) = column else { return None };
    words.get(keys.key(i)?)?.as_ref().map(|w| &**w)
}
