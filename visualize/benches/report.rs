//! How long a page takes: `cargo bench -p ioreel-visualize --bench report [-- MILLIONS]`. Ten million requests, of four kinds of
//! access that take turns, with bios of none of them; then as many operations.
#![expect(clippy::unwrap_used, reason = "a benchmark's failure is a panic")]

use std::{path::Path, time::Instant};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    manifest::{Device, Kind, State},
    rows::{Block, Op},
};
use ioreel_visualize::{ReportOptions, report};

fn main() {
    let millions = std::env::args().filter_map(|a| a.parse::<i64>().ok()).next().unwrap_or(10);
    let dir = tempfile::tempdir().unwrap();
    for (name, make) in [("requests", requests as fn(&Path, i64)), ("operations", operations)] {
        let path = dir.path().join(name);
        make(&path, millions * 1_000_000);
        let reel = Reel::open(&path).unwrap();
        let (begun, before) = (Instant::now(), cpu_s());
        let page = report(&reel, &ReportOptions::default()).unwrap();
        println!(
            "{millions} million {name}: a page of {:.1} MB in {:.2} s, {:.2} s of CPU",
            page.len() as f64 / 1e6,
            begun.elapsed().as_secs_f64(),
            cpu_s() - before
        );
    }
}

/// CPU time of this process so far: what a busy machine does not distort.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime and stime, in hundredths on every Linux.
    [11, 12].iter().map(|i| fields[*i].parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> i64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 20) % n) as i64
    }
}

fn writer(path: &Path) -> (ReelWriter, Manifest) {
    let m = Manifest {
        state: State::Complete,
        devices: vec![Device { dev: 8 << 20, name: "sda".into(), ..Device::default() }],
        ..Manifest::new(Kind::Synthetic, "bench")
    };
    (ReelWriter::create(path, &m, WriterOptions::default()).unwrap(), m)
}

fn requests(path: &Path, n: i64) {
    let (mut w, m) = writer(path);
    let mut random = Random(1);
    for i in 0..n {
        let sector = match i % 4 {
            0 => i * 4,
            1 => (1 << 31) + i * 4,
            2 => random.below(1 << 32),
            _ => (1 << 30) + random.below(1 << 24),
        };
        let issue_ns = i * 10_000;
        w.block
            .push(Block {
                rq_id: -1,
                queue_ns: Some(issue_ns - random.below(4000)),
                issue_ns,
                complete_ns: Some(issue_ns + 20_000 + random.below(300_000)),
                dev: 8 << 20,
                sector,
                len_bytes: 8192,
                op: if i % 3 == 0 { "read" } else { "write" }.into(),
                ..Block::default()
            })
            .unwrap();
    }
    w.close(m).unwrap();
}

fn operations(path: &Path, n: i64) {
    let (mut w, m) = writer(path);
    let mut random = Random(2);
    for i in 0..n {
        w.ops
            .push(Op {
                op_id: -1,
                start_ns: i * 5_000,
                dur_ns: 1_000 + random.below(50_000),
                task_id: i % 16,
                op: if i % 3 == 0 { "pread64" } else { "pwrite64" }.into(),
                source: "syscall".into(),
                state: "complete".into(),
                file: Some(random.below(1000)),
                offset_bytes: Some(random.below(1 << 20) * 4096),
                len_bytes: Some(4096),
                ret: Some(4096),
                ..Op::default()
            })
            .unwrap();
    }
    w.close(m).unwrap();
}
