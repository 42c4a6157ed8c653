//! What the page holds of a reel, in one blob: an index line in JSON, then each column deflated by itself, so that the
//! page inflates them side by side.

use std::io::Write;

use flate2::{Compression, write::DeflateEncoder};
use serde_json::json;

use super::columns::{Column, Kind};
use crate::canvas::raster::Counts;

/// Below the default: time is shorter than room, since what does not fit is made coarser.
const LEVEL: u32 = 4;

/// A raster of counts, which may be made coarser in time when the page gets too large.
#[derive(Clone, Debug)]
pub(super) struct Raster {
    /// Name of its column.
    pub(super) name: String,
    /// The counts.
    pub(super) counts: Counts,
}

/// Something in the container.
#[derive(Debug)]
pub(super) enum Part {
    /// As it is.
    Column(Column),
    /// A raster.
    Raster(Raster),
    /// Columns of single events, of which every second can be left out: how to make them with one of so many.
    Singles(Box<dyn Thin>),
}

/// Columns that can be made of fewer events.
pub(super) trait Thin: std::fmt::Debug + Send {
    /// The columns now.
    fn columns(&self) -> Vec<Column>;
    /// Leaves out half of the sampled events.
    fn halve(&mut self);
    /// Events held now.
    fn held(&self) -> usize;
}

/// One part and what it takes.
struct Packed {
    part: Part,
    columns: Vec<(String, Kind, usize, Vec<u8>)>,
    /// Columns of a raster.
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

    /// Makes it smaller; false when it cannot be.
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

/// A count as one byte: 0, or 1 and eight steps per doubling; a step is 9 %.
fn level(n: u32) -> u8 {
    if n == 0 { 0 } else { (1.0 + (8.0 * f64::from(n).log2()).round()).min(255.0) as u8 }
}

fn halved(c: &Counts) -> Counts {
    let width = c.width.div_ceil(2);
    let mut cells = Vec::with_capacity(width * c.height);
    for row in c.cells.chunks(c.width.max(1)) {
        // Events that cover both columns count twice: the shade is what is wanted, and it is a logarithm.
        cells.extend(row.chunks(2).map(|pair| pair.iter().fold(0u32, |a, b| a.saturating_add(*b))));
    }
    Counts { width, height: c.height, cells }
}

/// The blob, at most `most` bytes unless what cannot be made smaller takes more.
pub(super) fn pack(parts: Vec<Part>, most: usize) -> Vec<u8> {
    // Two halves, for two cores; deflating is all the time that this takes.
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
