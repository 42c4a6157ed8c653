//! Every panel of lines and charts against counting out: the heights drawn are turned back into values.

use crate::{
    brute::{Frame, frames, steps},
    common::{Lcg, MS, S, block, manifest, op, reel},
};
use ioreel_analyze::meters::bins::{Bins, nice_width_ns};
use ioreel_traces::{
    Reel,
    rows::{Block, Op},
};
use ioreel_visualize::{
    PlotOptions,
    canvas::theme::{Ink, LIGHT},
    plot,
};

const T: i64 = S;
const MIB: f64 = 1024.0 * 1024.0;

fn blocks() -> Vec<Block> {
    let mut rng = Lcg(15);
    let mut rows: Vec<Block> = (0..3000)
        .map(|_| {
            let class = ["read", "write", "discard", "flush", "write"][rng.below(5) as usize];
            block(
                class,
                rng.below(T - 20 * MS),
                1 + rng.below(15 * MS),
                (1 << 40) + rng.below(1 << 24),
                1 + rng.below(2000),
            )
        })
        .collect();
    rows.iter_mut().filter(|b| b.op == *"flush").for_each(|b| (b.sector, b.len_bytes) = (-1, 0));
    rows.iter_mut().step_by(19).for_each(|b| b.error = 5);
    rows.iter_mut().step_by(41).for_each(|b| b.complete_ns = None);
    rows.sort_by_key(|b| b.issue_ns);
    // Moments of issue are distinct, so that the order of dispatch is known.
    (1..rows.len()).for_each(|i| rows[i].issue_ns = rows[i].issue_ns.max(rows[i - 1].issue_ns + 1));
    rows
}

fn calls() -> Vec<Op> {
    let mut rng = Lcg(16);
    let name = |i: i64| ["read", "write", "fsync", "openat", "lseek"][i as usize];
    (0..2000)
        .map(|i| op(name(i % 5), rng.below(T - 20 * MS), 1 + rng.below(15 * MS), Some(1), rng.below(1 << 20)))
        .collect()
}

/// The bins of a picture 500 pixels wide: of about 3.2 pixels, over the time axis with its margin.
fn bins(width: u32) -> Bins {
    let cells = (f64::from(width) - 78.0 - 28.0) as u32 / 3;
    Bins::new(0, T, nice_width_ns(T + T / 64, (f64::from(cells * 3) / 3.2) as usize, 1))
}

pub(crate) struct Drawn {
    pub(crate) svg: String,
    frame: Frame,
    bins: Bins,
}

pub(crate) fn draw(reel: &Reel, panel: &str) -> Drawn {
    let options = PlotOptions { panels: vec![panel.into()], width: Some(500), ..PlotOptions::default() };
    let svg = plot(std::slice::from_ref(reel), &options).unwrap().svg();
    let frame = frames(&svg, &LIGHT)[0];
    Drawn { svg, frame, bins: bins(500) }
}

impl Drawn {
    /// The value at the top of the axis: its greatest label.
    fn top(&self) -> f64 {
        let label = |l: &&str| l.contains("text-anchor=\"end\"");
        let number = |l: &str| {
            let text = l.split('>').nth(1)?.split('<').next()?;
            let (digits, factor) = match text.strip_suffix(['k', 'M']) {
                Some(digits) => (digits, if text.ends_with('k') { 1e3 } else { 1e6 }),
                None => (text, 1.0),
            };
            digits.parse::<f64>().ok().map(|v| v * factor)
        };
        self.svg.lines().filter(label).filter_map(number).fold(0.0, f64::max)
    }

    /// Holds the line of a colour against a value for each bin.
    pub(crate) fn check(&self, name: &str, ink: Ink, want: &dyn Fn(i64, i64) -> f64) {
        let top = self.top();
        let lines = steps(&self.svg, LIGHT.color(ink), self.frame, top);
        assert_eq!(lines.len(), 1, "{name}: one line");
        let time_px = self.frame.w / (T + T / 64) as f64;
        // A hundredth of a pixel is what the picture's numbers hold.
        let precision = top / self.frame.h * 0.006;
        for i in 0..self.bins.count() {
            let (from, to) = self.bins.edges_ns(i);
            let x = self.frame.x + (from as f64 + (to - from) as f64 / 2.0) * time_px;
            let got = lines[0].iter().rfind(|(left, _)| *left <= x).unwrap().1;
            let want = want(from, if i + 1 == self.bins.count() { to + 1 } else { to });
            assert!((got - want).abs() <= precision + want * 1e-9, "{name}: bin {i}: {got} for {want}");
        }
    }
}

fn setup() -> (tempfile::TempDir, Reel, Vec<Block>, Vec<Op>) {
    let dir = tempfile::tempdir().unwrap();
    let (b, o) = (blocks(), calls());
    let r = reel(dir.path(), "r", manifest("ext4", T, 0), b.clone(), o.clone());
    (dir, r, b, o)
}

impl Drawn {
    /// Of stacked areas, which are drawn tinted alone: the upper edge of one, as if it were a line.
    pub(crate) fn edge_of(&self, ink: Ink) -> Self {
        let tinted = format!("fill=\"{}\" fill-opacity=\"0.75\" stroke=\"none\"", LIGHT.color(ink));
        let line = format!("fill=\"none\" fill-opacity=\"0\" stroke=\"{}\"", LIGHT.color(ink));
        let areas = self.svg.lines().filter(|l| l.starts_with("<path") && l.contains(&tinted));
        let edges = areas.map(|l| cut_back(l).replace(&tinted, &line) + "\n");
        // The axis' labels are asked for, too.
        let labels = self.svg.lines().filter(|l| l.starts_with("<text")).map(|l| format!("{l}\n"));
        Self { svg: edges.chain(labels).collect(), ..*self }
    }
}

/// Rate per second of what `count` says of each row in a bin.
fn rate<R>(rows: &[R], count: impl Fn(&R, i64, i64) -> f64) -> impl Fn(i64, i64) -> f64 {
    move |from, to| {
        // The last bin includes its end, and is no wider for it.
        let width = if to > T { to - 1 - from } else { to - from };
        rows.iter().map(|r| count(r, from, to)).sum::<f64>() * 1e9 / width as f64
    }
}

fn within(t: Option<i64>, from: i64, to: i64) -> bool {
    t.is_some_and(|t| (from..to).contains(&t))
}

#[test]
fn rates_of_requests() {
    let (_dir, r, blocks, _) = setup();
    let done = |b: &Block, from, to| within(b.complete_ns, from, to);
    let bytes = |op: &'static str| {
        move |b: &Block, from, to| {
            if b.op == *op && b.error == 0 && done(b, from, to) { b.len_bytes as f64 / MIB } else { 0.0 }
        }
    };
    let d = draw(&r, "throughput");
    d.check("read", Ink::Read, &rate(&blocks, bytes("read")));
    d.check("written: no discard, no failure", Ink::Write, &rate(&blocks, bytes("write")));
    let number = |op: &'static str| move |b: &Block, from, to| f64::from(u8::from(b.op == *op && done(b, from, to)));
    let d = draw(&r, "iops");
    for (op, ink) in [("read", Ink::Read), ("write", Ink::Write), ("flush", Ink::Flush), ("discard", Ink::Other)] {
        d.check(op, ink, &rate(&blocks, number(op)));
    }
    // A seek is a read or write that does not begin where the one before ended.
    let data: Vec<&Block> = blocks.iter().filter(|b| ["read", "write"].contains(&&*b.op)).collect();
    let seeks: Vec<i64> =
        data.windows(2).filter(|w| w[0].sector + w[0].len_bytes / 512 != w[1].sector).map(|w| w[1].issue_ns).collect();
    draw(&r, "seeks").check(
        "seeks",
        Ink::Text,
        &rate(&seeks, |t, from, to| f64::from(u8::from((from..to).contains(t)))),
    );
}

#[test]
fn rates_of_calls() {
    let (_dir, r, _, ops) = setup();
    let done = |o: &Op, from, to| within(Some(o.start_ns + o.dur_ns), from, to);
    let d = draw(&r, "calls");
    let inks = [Ink::Read, Ink::Write, Ink::Flush, Ink::Other, Ink::Grey];
    for (name, ink) in ["read", "write", "fsync", "openat", "lseek"].into_iter().zip(inks) {
        d.check(name, ink, &rate(&ops, |o, from, to| f64::from(u8::from(o.op == *name && done(o, from, to)))));
    }
    let d = draw(&r, "call-throughput");
    for (name, ink) in [("read", Ink::Read), ("write", Ink::Write)] {
        let bytes =
            |o: &Op, from, to| if o.op == *name && done(o, from, to) { o.ret.unwrap() as f64 / MIB } else { 0.0 };
        d.check(name, ink, &rate(&ops, bytes));
    }
}

/// Calls in progress: a call counts for as long as it runs, on top of the kinds before it.
#[test]
fn time_in_calls_is_stacked() {
    let (_dir, r, _, ops) = setup();
    let d = draw(&r, "call-time");
    let kinds = [
        ("read", Ink::Read),
        ("write", Ink::Write),
        ("fsync", Ink::Flush),
        ("openat", Ink::Other),
        ("lseek", Ink::Grey),
    ];
    for (n, (name, ink)) in kinds.iter().enumerate() {
        let below: Vec<&str> = kinds[..=n].iter().map(|k| k.0).collect();
        d.check(name, *ink, &|from, to| {
            let to = to.min(T);
            let within = |o: &Op| ((o.start_ns + o.dur_ns).min(to) - o.start_ns.max(from)).max(0);
            let held: i64 = ops.iter().filter(|o| below.contains(&&*o.op)).map(within).sum();
            held as f64 / (to - from) as f64
        });
    }
}

#[test]
fn depth_is_of_every_moment() {
    let (_dir, r, blocks, _) = setup();
    let d = draw(&r, "depth");
    let flights: Vec<(i64, i64)> = blocks.iter().filter_map(|b| Some((b.issue_ns, b.complete_ns?))).collect();
    d.check("mean", Ink::Text, &|from, to| {
        let to = to.min(T);
        let held: i64 = flights.iter().map(|(a, b)| ((*b).min(to) - (*a).max(from)).max(0)).sum();
        held as f64 / (to - from) as f64
    });
    d.check("most", Ink::Grey, &|from, to| {
        // The depth changes at beginnings only upwards: the most is at the bin's start or at one of those within.
        let starts = flights.iter().map(|f| f.0).filter(|t| (from..to.min(T)).contains(t));
        let at = |t: i64| flights.iter().filter(|(a, b)| *a <= t && t < *b).count();
        starts.chain([from]).map(at).max().unwrap_or(0) as f64
    });
}

#[test]
fn stages_are_shares() {
    let (_dir, r, blocks, _) = setup();
    let d = draw(&r, "stages");
    let d = d.edge_of(Ink::Other);
    d.check("Q2D", Ink::Other, &|from, to| {
        let done = || blocks.iter().filter(|b| within(b.complete_ns, from, to));
        let queued: i64 = done().map(|b| b.issue_ns - b.queue_ns.unwrap().min(b.issue_ns)).sum();
        let all: i64 = done().map(|b| b.complete_ns.unwrap() - b.queue_ns.unwrap().min(b.issue_ns)).sum();
        if all == 0 { 0.0 } else { queued as f64 * 100.0 / all as f64 }
    });
}

/// The way there of a closed area, without the way back along its base.
fn cut_back(path: &str) -> String {
    let d = crate::brute::attribute(path, "d");
    let xs: Vec<f64> = d.split('H').skip(1).map(|p| p.split(['V', 'Z']).next().unwrap().parse().unwrap()).collect();
    let end = xs.iter().copied().fold(0.0, f64::max);
    let until = d.find(&format!("H{end}")).unwrap_or(d.len());
    path.replace(&d, &d[..until])
}
