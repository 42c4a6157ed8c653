//! Plots with an x axis of their own - sizes, distances, hot places, reuse - against counting out: every bar and every step at its
//! place in the SVG, and what is inside and outside of bars in the PNG, pixel by pixel.

use std::collections::{BTreeMap, BTreeSet};

use ioreel_traces::{Reel, rows::Block};
use ioreel_visualize::{
    Picture, PlotOptions,
    canvas::{
        color::{Rgb, rgb},
        theme::{Ink, LIGHT},
    },
    plot,
};
use resvg::tiny_skia::Pixmap;

use crate::{
    brute::{Frame, attribute, bins, cell, frames, steps},
    common::{Lcg, MS, S, block, manifest, reel},
};

const T: i64 = S;
const LOW: i64 = (1 << 40) - (1 << 22);
const HIGH: i64 = LOW + (1 << 20);

/// Requests of many sizes in few places, and some far from all others; the moments of issue are distinct.
fn blocks() -> Vec<Block> {
    let mut rng = Lcg(21);
    let mut rows = vec![block("read", 0, MS, LOW, 8), block("write", T - MS, MS, HIGH - 8, 8)];
    for i in 1..1800 {
        let class = ["read", "write", "discard", "flush", "write"][rng.below(5) as usize];
        let near = rng.below(3) > 0;
        let sector = LOW + if near { rng.below(40) * 64 } else { rng.below((1 << 20) - 4096) };
        let sectors = [8, 8, 8, 16, 64, 1 + rng.below(60), 8 * (1 + rng.below(300))][rng.below(7) as usize];
        rows.push(block(class, i * (T - 20 * MS) / 1800, 1 + rng.below(5 * MS), sector, sectors));
    }
    // One goes on where the one before ended, one returns to its place.
    for i in (10..rows.len() - 2).step_by(9) {
        rows[i + 1].sector = rows[i].sector + rows[i].len_bytes / 512;
        rows[i + 2].sector = rows[i].sector;
    }
    rows.iter_mut().for_each(|b| b.sector = b.sector.min(HIGH - b.len_bytes / 512));
    rows.iter_mut().filter(|b| b.op == *"flush").for_each(|b| (b.sector, b.len_bytes) = (-1, 0));
    rows.iter_mut().step_by(41).for_each(|b| b.complete_ns = None);
    rows
}

fn setup() -> (tempfile::TempDir, Reel, Vec<Block>) {
    let dir = tempfile::tempdir().unwrap();
    let rows = blocks();
    let r = reel(dir.path(), "r", manifest("ext4", T, 0), rows.clone(), Vec::new());
    let mut data: Vec<Block> = rows.into_iter().filter(|b| b.op == *"read" || b.op == *"write").collect();
    data.sort_by_key(|b| b.issue_ns);
    (dir, r, data)
}

fn end(b: &Block) -> i64 {
    b.sector + b.len_bytes / 512
}

/// A picture of one panel, and the frames of its charts with what is at their tops.
struct Drawn {
    picture: Picture,
    svg: String,
    charts: Vec<(Frame, f64)>,
}

fn draw(reel: &Reel, panel: &str, width: u32) -> Drawn {
    let options = PlotOptions { panels: vec![panel.into()], width: Some(width), ..PlotOptions::default() };
    let picture = plot(std::slice::from_ref(reel), &options).unwrap();
    let svg = picture.svg();
    let charts = frames(&svg, &LIGHT).into_iter().map(|f| (f, top(&svg, f))).collect();
    Drawn { picture, svg, charts }
}

/// The value at a frame's top: the greatest label of its axis.
fn top(svg: &str, frame: Frame) -> f64 {
    let of = |l: &str| {
        let text = l.split('>').nth(1)?.split('<').next()?;
        let (digits, factor) = text.strip_suffix('k').map_or((text, 1.0), |digits| (digits, 1e3));
        digits.parse::<f64>().ok().map(|v| v * factor)
    };
    let beside = |l: &&str| {
        let x = attribute(l, "x").parse::<f64>().unwrap();
        (x - (frame.x - 8.0)).abs() < 0.1
    };
    svg.lines().filter(|l| l.contains("text-anchor=\"end\"")).filter(beside).filter_map(of).fold(0.0, f64::max)
}

/// Bars of the colours from bottom to top, as they must be: place and size.
fn stacked(frame: Frame, top: f64, series: &[(Ink, Vec<f64>)]) -> Vec<(Ink, [f64; 4])> {
    let slots = series[0].1.len();
    let wide = frame.w / slots as f64;
    let gap = if wide >= 6.0 { 1.5 } else { 0.0 };
    let mut out = Vec::new();
    for slot in 0..slots {
        let mut below = 0.0;
        for (ink, values) in series.iter().filter(|(_, values)| values[slot] > 0.0) {
            let high = (values[slot] / top * frame.h).max(1.0);
            let bottom = frame.y + frame.h;
            let y = (bottom - (below + values[slot]) / top * frame.h).min(bottom - high);
            out.push((*ink, [frame.x + wide * slot as f64 + gap / 2.0, y, wide - gap, high]));
            below += values[slot];
        }
    }
    out
}

impl Drawn {
    /// Holds the bars of chart number `n` against values by colour, in the SVG and in the PNG.
    fn bars(&self, name: &str, n: usize, series: &[(Ink, Vec<f64>)]) {
        let (frame, top) = self.charts[n];
        let most = (0..series[0].1.len()).map(|i| series.iter().map(|s| s.1[i]).sum::<f64>()).fold(0.0, f64::max);
        assert!(most > 0.0 && most <= top && most >= top / 3.0, "{name}: the axis goes to {top}, values to {most}");
        let mut want = stacked(frame, top, series);
        let inside =
            |x: f64, y: f64| x >= frame.x - 0.1 && x < frame.x + frame.w && y >= frame.y - 0.1 && y < frame.y + frame.h;
        let mut got = Vec::new();
        for (ink, _) in series {
            let fill = format!("fill=\"{}\"", LIGHT.color(*ink));
            for l in self.svg.lines().filter(|l| l.starts_with("<rect") && l.contains(&fill)) {
                let at = ["x", "y", "width", "height"].map(|a| attribute(l, a).parse::<f64>().unwrap());
                if inside(at[0], at[1]) {
                    got.push((*ink, at));
                }
            }
        }
        let order = |a: &(Ink, [f64; 4]), b: &(Ink, [f64; 4])| (a.1[0], a.1[1]).partial_cmp(&(b.1[0], b.1[1])).unwrap();
        want.sort_by(order);
        got.sort_by(order);
        assert_eq!(want.len(), got.len(), "{name}: bars");
        for (want, got) in want.iter().zip(&got) {
            let same = want.0 == got.0 && want.1.iter().zip(&got.1).all(|(a, b)| (a - b).abs() <= 0.011);
            assert!(same, "{name}: {got:?} for {want:?}");
        }
        self.pixels(name, frame, &want);
    }

    /// Every pixel that lies wholly within a bar has its colour, and none that touches no bar has it.
    fn pixels(&self, name: &str, frame: Frame, bars: &[(Ink, [f64; 4])]) {
        let png = Pixmap::decode_png(&self.picture.png().unwrap()).unwrap();
        // Notes lie on paper of their own.
        let notes: Vec<[f64; 4]> = self
            .svg
            .lines()
            .filter(|l| l.starts_with("<rect") && l.contains("fill-opacity=\"0.75\""))
            .map(|l| ["x", "y", "width", "height"].map(|a| attribute(l, a).parse().unwrap()))
            .collect();
        let touches =
            |[x, y, w, h]: [f64; 4], px: f64, py: f64| px + 1.0 > x && px < x + w && py + 1.0 > y && py < y + h;
        let holds =
            |[x, y, w, h]: [f64; 4], px: f64, py: f64| px >= x && px + 1.0 <= x + w && py >= y && py + 1.0 <= y + h;
        let colors: Vec<Rgb> = bars.iter().map(|(ink, _)| rgb(LIGHT.color(*ink))).collect();
        let mut seen = 0;
        for y in frame.y as u32 + 2..(frame.y + frame.h) as u32 - 2 {
            for x in frame.x as u32 + 2..(frame.x + frame.w) as u32 - 2 {
                let (px, py) = (f64::from(x), f64::from(y));
                if notes.iter().any(|n| touches(*n, px, py)) {
                    continue;
                }
                let p = png.pixel(x, y).unwrap();
                let got = [p.red(), p.green(), p.blue()];
                if let Some(i) = bars.iter().position(|(_, at)| holds(*at, px, py)) {
                    assert_eq!(got, colors[i], "{name}: {x},{y} is in a bar");
                    seen += 1;
                } else if !bars.iter().any(|(_, at)| touches(*at, px, py)) {
                    assert!(!colors.contains(&got), "{name}: {x},{y} is in no bar");
                }
            }
        }
        assert!(seen > 50, "{name}: {seen} pixels of bars");
    }

    /// Holds the curve of chart number `n` against a value for each slot.
    fn curve(&self, name: &str, n: usize, ink: Ink, want: &[f64]) {
        let (frame, top) = self.charts[n];
        let lines: Vec<_> = steps(&self.svg, LIGHT.color(ink), frame, top)
            .into_iter()
            .filter(|l| l[0].0 >= frame.x - 0.1 && l[0].0 < frame.x + frame.w)
            .collect();
        assert_eq!(lines.len(), 1, "{name}: one curve");
        let slots = want.len();
        for (slot, want) in want.iter().enumerate() {
            let x = frame.x + frame.w * (slot as f64 + 0.5) / slots as f64;
            let got = lines[0].iter().rfind(|(left, _)| *left <= x).unwrap().1;
            assert!((got - want).abs() <= top / frame.h * 0.006 + want * 1e-9, "{name}: slot {slot}: {got} for {want}");
        }
    }
}

/// Reads and writes of each slot that `at` says.
fn counted<'a>(
    rows: impl Iterator<Item = &'a Block>,
    slots: usize,
    at: impl Fn(&Block) -> Option<usize>,
) -> [Vec<f64>; 2] {
    let mut out = [vec![0.0; slots], vec![0.0; slots]];
    for b in rows {
        if let Some(slot) = at(b) {
            out[usize::from(b.op == *"write")][slot] += 1.0;
        }
    }
    out
}

#[test]
fn sizes() {
    let (_dir, r, data) = setup();
    let d = draw(&r, "sizes", 900);
    // Powers of two from 512 bytes to a megabyte at least: the largest request here is smaller.
    let power = |b: &Block| (0..63).rfind(|p| 1i64 << p <= b.len_bytes);
    let [reads, writes] = counted(data.iter(), 12, |b| power(b).map(|p| p - 9));
    d.bars("by powers of two", 0, &[(Ink::Read, reads), (Ink::Write, writes)]);
    let mut sizes: BTreeMap<i64, i32> = BTreeMap::new();
    data.iter().for_each(|b| *sizes.entry(b.len_bytes).or_default() += 1);
    let mut top: Vec<(i64, i32)> = sizes.into_iter().collect();
    top.sort_by_key(|(size, n)| (-n, *size));
    assert!(top.len() > 16);
    let rest: i32 = top[16..].iter().map(|(_, n)| n).sum();
    assert!(d.svg.contains(&format!(">{} other sizes, {rest} requests</text>", top.len() - 16)));
    let [reads, writes] = counted(data.iter(), 16, |b| top[..16].iter().position(|(s, _)| *s == b.len_bytes));
    d.bars("the most frequent", 1, &[(Ink::Read, reads), (Ink::Write, writes)]);
}

#[test]
fn distances() {
    let (_dir, r, data) = setup();
    let d = draw(&r, "distances", 900);
    let slot = |sectors: i64| -> i64 {
        let mut far = 0;
        while sectors.abs() >> far > 0 {
            far += 1;
        }
        far * sectors.signum()
    };
    let (mut plain, mut windowed): (BTreeMap<i64, f64>, BTreeMap<i64, f64>) = Default::default();
    for i in 1..data.len() {
        *plain.entry(slot(data[i].sector - end(&data[i - 1]))).or_default() += 1.0;
        let before = &data[i.saturating_sub(32)..i];
        // Of equally near ends the one in front of which it begins, not the one behind.
        let nearest = before.iter().map(|b| data[i].sector - end(b)).min_by_key(|d| (d.abs(), -d)).unwrap();
        *windowed.entry(slot(nearest)).or_default() += 1.0;
    }
    let far = plain.keys().chain(windowed.keys()).map(|s| s.abs()).max().unwrap().max(12);
    let all = |of: &BTreeMap<i64, f64>| (-far..=far).map(|s| of.get(&s).copied().unwrap_or(0.0)).collect();
    d.bars("from the one before", 0, &[(Ink::Text, all(&plain))]);
    d.bars("from the nearest of 32", 1, &[(Ink::Other, all(&windowed))]);
}

#[test]
fn hot_places() {
    let (_dir, r, data) = setup();
    let d = draw(&r, "hot", 3000);
    // By address: a band with a margin of 2 % each way, in as many slots as there are cells of time, 200 at most.
    let (from, to) = (LOW - (HIGH - LOW) / 50, HIGH + (HIGH - LOW) / 50);
    let mut profile = vec![0.0; 200];
    for b in &data {
        let (first, last) = (cell(b.sector, from, to, 200), cell(end(b) - 1, from, to, 200));
        (first..=last).for_each(|slot| profile[slot as usize] += 1.0);
    }
    d.bars("by address", 0, &[(Ink::Text, profile)]);
    // The share of requests in the hottest places of a megabyte.
    let places = |b: &Block| b.sector / 2048..=(end(b) - 1) / 2048;
    let mut uses: BTreeMap<i64, u64> = BTreeMap::new();
    data.iter().flat_map(places).for_each(|place| *uses.entry(place).or_default() += 1);
    let mut counts: Vec<u64> = uses.into_values().collect();
    counts.sort_by_key(|n| std::cmp::Reverse(*n));
    let all: u64 = counts.iter().sum();
    let share = |i: usize| counts[..counts.len() * i / 100].iter().sum::<u64>() as f64 * 100.0 / all as f64;
    d.curve("the hottest", 1, Ink::Hue(0), &(1..=100).map(share).collect::<Vec<_>>());
    assert!(d.svg.contains(&format!(">{} places of 1.00 MiB", counts.len())), "{}", counts.len());
    // Places in use over time, in bins four times as wide as those of rates.
    let cells = (3000 - 78 - 28) / 3;
    let in_use = |(from, to): &(i64, i64)| {
        let inside = data.iter().filter(|b| (*from..*to).contains(&b.issue_ns));
        inside.flat_map(places).collect::<BTreeSet<_>>().len() as f64
    };
    d.curve("in use", 2, Ink::Other, &bins(T, cells * 3, 4).iter().map(in_use).collect::<Vec<_>>());
}

#[test]
fn reuse() {
    let (_dir, r, data) = setup();
    let d = draw(&r, "reuse", 900);
    // A cache as a list, the block used last in front: how far back each use finds its block.
    let (mut cache, mut depths, mut all): (Vec<i64>, Vec<usize>, usize) = Default::default();
    for block in data.iter().flat_map(|b| b.sector / 8..=(end(b) - 1) / 8) {
        all += 1;
        if let Some(at) = cache.iter().position(|b| *b == block) {
            cache.remove(at);
            depths.push(at + 1);
        }
        cache.insert(0, block);
    }
    let miss = |size: usize| (all - depths.iter().filter(|d| **d <= size).count()) as f64 * 100.0 / all as f64;
    let misses: Vec<f64> = (0..40).map(|i| miss(1 << i)).collect();
    // Two sizes further than where more no longer helps.
    let shown = (misses.iter().position(|m| *m == misses[39]).unwrap() + 2).max(12);
    d.curve("misses", 0, Ink::Hue(3), &misses[..shown]);
    assert!(d.svg.contains(&format!(">{:.1} % are first uses</text>", misses[39])));
}
