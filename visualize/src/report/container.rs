//! The data of a page in one blob: a line of JSON as index, then each column compressed separately, so that the page
//! can decompress them in parallel.

use std::io::Write;

use flate2::{Compression, write::DeflateEncoder};
use serde_json::json;

use super::columns::{Column, Kind};
use crate::canvas::raster::Counts;

/// Below the default: speed matters more than size, since data that does not fit is made coarser.
const LEVEL: u32 = 4;

/// A raster of counts, which can be made coarser in time if the page is too large.
#[derive(Clone, Debug)]
pub(super) struct Raster {
    /// Name of its column.
    pub(super) name: String,
    /// The counts.
    pub(super) counts: Counts,
}

/// A part of the container.
#[derive(Debug)]
pub(super) enum Part {
    /// As it is.
    Column(Column),
    /// A raster.
    Raster(Raster),
    /// Columns of individual events, which can be thinned by half.
    Singles(Box<dyn Thin>),
}

/// Columns that can be built from fewer events.
pub(super) trait Thin: std::fmt::Debug + Send {
    /// The current columns.
    fn columns(&self) -> Vec<Column>;
    /// Drops half of the sampled events.
    fn halve(&mut self);
    /// Current number of events.
    fn held(&self) -> usize;
}

/// A part with its compressed size.
struct Packed {
    part: Part,
    columns: Vec<(String, Kind, usize, Vec<u8>)>,
    /// Number of columns of a raster.
    width: usize,
}

impl Packed {
    fn new(part: Part) -> Self {
        let mut packed = Self { part, columns: Vec::new(), width: 0 };
        packed.pack();
        packed
    }

    fn pack(&mut self) {
        let deflated = |c: &Column| (c.name.clone(), c.kind, c.bytes.len(), deflate(&c.bytes));
        self.columns = match &self.part {
            Part::Column(c) => vec![deflated(c)],
            Part::Raster(r) => {
                self.width = r.counts.width;
                vec![deflated(&Column::bytes(r.name.clone(), r.counts.cells.iter().map(|n| level(*n)).collect()))]
            }
            Part::Singles(s) => s.columns().iter().map(deflated).collect(),
        };
    }

    fn size(&self) -> usize {
        self.columns.iter().map(|c| c.3.len()).sum()
    }

    /// Makes it smaller. False if that is impossible.
    fn shrink(&mut self) -> bool {
        match &mut self.part {
            Part::Column(_) => return false,
            Part::Raster(r) if r.counts.width <= 64 => return false,
            Part::Raster(r) => r.counts = halved(&r.counts),
            Part::Singles(s) if s.held() <= 1024 => return false,
            Part::Singles(s) => s.halve(),
        }
        self.pack();
        true
    }
}

/// A count as one byte: 0, or 1 plus eight steps per doubling. A step is 9 %.
fn level(n: u32) -> u8 {
    if n == 0 { 0 } else { (1.0 + (8.0 * f64::from(n).log2()).round()).min(255.0) as u8 }
}

fn halved(c: &Counts) -> Counts {
    let width = c.width.div_ceil(2);
    let mut cells = Vec::with_capacity(width * c.height);
    for row in c.cells.chunks(c.width.max(1)) {
        // Events in both columns count twice. This is acceptable, because the shade is a logarithm.
        cells.extend(row.chunks(2).map(|pair| pair.iter().fold(0u32, |a, b| a.saturating_add(*b))));
    }
    Counts { width, height: c.height, cells }
}

/// The blob, at most `most` bytes, unless incompressible parts exceed that.
pub(super) fn pack(parts: Vec<Part>, most: usize) -> Vec<u8> {
    // Two halves in parallel, because compression takes all of the time.
    let mut packed: Vec<Packed> = std::thread::scope(|threads| {
        let (even, odd): (Vec<_>, Vec<_>) = parts.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
        let all = |parts: Vec<(usize, Part)>| parts.into_iter().map(|(_, p)| Packed::new(p)).collect::<Vec<_>>();
        let other = threads.spawn(move || all(odd));
        let mut packed = all(even);
        packed.extend(other.join().unwrap_or_default());
        packed
    });
    while packed.iter().map(Packed::size).sum::<usize>() > most {
        packed.sort_by_key(|p| std::cmp::Reverse(p.size()));
        if !packed.iter_mut().any(Packed::shrink) {
            break;
        }
    }
    let index: Vec<_> = packed
        .iter()
        .flat_map(|p| p.columns.iter().map(move |c| (p.width, c)))
        .map(|(width, (name, kind, raw, bytes))| {
            json!({ "name": name, "kind": kind.name(), "raw": raw, "size": bytes.len(), "columns": width })
        })
        .collect();
    let mut out = serde_json::Value::from(index).to_string().into_bytes();
    out.push(b'\n');
    packed.iter().flat_map(|p| &p.columns).for_each(|c| out.extend_from_slice(&c.3));
    out
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(LEVEL));
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_within_a_step() {
        assert_eq!((level(0), level(1), level(2), level(u32::MAX)), (0, 1, 9, 255));
        for n in 1..10_000u32 {
            let back = 2f64.powf((f64::from(level(n)) - 1.0) / 8.0);
            assert!((back / f64::from(n) - 1.0).abs() < 0.046, "{n} becomes {back}");
        }
    }

    #[test]
    fn what_is_too_large_becomes_coarser_until_it_fits() {
        let mut state = 1u64;
        let cells = (0..1024 * 256).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as u32
        });
        let counts = Counts { width: 1024, height: 256, cells: cells.collect() };
        let raster = |name: &str| Part::Raster(Raster { name: name.into(), counts: counts.clone() });
        let parts = vec![raster("a"), raster("b"), Part::Column(Column::text("c", "{}".into()))];
        let blob = pack(parts, 100_000);
        assert!(blob.len() < 101_000, "{}", blob.len());
        let line = blob.split(|b| *b == b'\n').next().unwrap_or_default();
        let index: serde_json::Value = serde_json::from_slice(line).expect("the index is JSON");
        assert_eq!(index.as_array().map(Vec::len), Some(3));
    }
}
