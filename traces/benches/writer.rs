//! How fast operations become Parquet, and how small: `cargo bench -p ioreel-traces`.
//!
//! Two made-up but lifelike jobs: an unpacking (many short calls, a new path for every file) and a server (32 threads
//! reading and writing a few hundred files at random). CPU time is this thread's, so that a busy machine does not count.

use std::{error::Error, hint::black_box, time::Duration};

use ioreel_traces::{Manifest, Reel, ReelWriter, Text, WriterOptions, manifest::Kind, rows::Op, text::Interner};

/// Rows per job.
const ROWS: usize = 2_000_000;
/// Distinct paths the recorder's interner remembers.
const PATHS: usize = 64 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<8} {:>9} {:>12} {:>10} {:>14}", "job", "rows", "M rows/s/cpu", "bytes/row", "M rows/s read");
    for (name, rows) in [("unpack", unpack()), ("server", server())] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.reel");
        let manifest = Manifest::new(Kind::Synthetic, "bench");
        let count = rows.len() as f64;
        // The recorder makes each row as it decodes an event: here they are made beforehand and moved in.
        let began = cpu_time();
        let mut w = ReelWriter::create(&path, &manifest, WriterOptions::default())?;
        for row in rows {
            w.ops.push(row)?;
        }
        let closed = w.close(manifest)?;
        let wrote = cpu_time() - began;
        let began = cpu_time();
        for row in Reel::open(&path)?.rows::<Op>() {
            black_box(row?);
        }
        let read = cpu_time() - began;
        println!(
            "{name:<8} {count:>9} {:>12.2} {:>10.2} {:>14.2}",
            count / wrote.as_secs_f64() / 1e6,
            closed.cost.reel_bytes as f64 / count,
            count / read.as_secs_f64() / 1e6
        );
        if std::env::args().any(|a| a == "--columns") {
            columns(&path, count)?;
        }
    }
    Ok(())
}

/// Bytes per row of each column.
fn columns(reel: &std::path::Path, rows: f64) -> Result<(), Box<dyn Error>> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let mut sizes = std::collections::BTreeMap::new();
    for path in Reel::open(reel)?.segments::<Op>() {
        let file = SerializedFileReader::new(std::fs::File::open(path)?)?;
        for group in file.metadata().row_groups() {
            for c in group.columns() {
                *sizes.entry(c.column_path().string()).or_insert(0) += c.compressed_size();
            }
        }
    }
    let mut sizes: Vec<(String, i64)> = sizes.into_iter().collect();
    sizes.sort_by_key(|(_, n)| -n);
    for (name, bytes) in sizes {
        println!("    {name:<16} {:>8.3}", bytes as f64 / rows);
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Numbers that look random and are the same every time (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> i64 {
        (self.roll() % n) as i64
    }

    /// A duration with a long tail: most near `typical`, one in sixteen far above.
    fn duration(&mut self, typical: u64) -> i64 {
        let spread = self.below(typical) + (typical / 2) as i64;
        if self.below(16) == 0 { spread * (1 + self.below(40)) } else { spread }
    }
}

/// Shared names of calls and words.
struct Words {
    syscall: Text,
    complete: Text,
}

fn op(words: &Words, name: &Text, start_ns: i64, dur_ns: i64) -> Op {
    Op {
        op_id: -1,
        start_ns,
        dur_ns,
        op: name.clone(),
        source: words.syscall.clone(),
        state: words.complete.clone(),
        ..Op::default()
    }
}

fn unpack() -> Vec<Op> {
    let words = Words { syscall: "syscall".into(), complete: "complete".into() };
    let name = |n: &str| Text::from(n);
    let (openat, write, close) = (name("openat"), name("write"), name("close"));
    let (utimensat, fchmod, read) = (name("utimensat"), name("fchmod"), name("read"));
    let mut paths = Interner::new(PATHS);
    let mut dice = Dice(1);
    let mut rows = Vec::with_capacity(ROWS);
    let mut now = 0;
    let mut archive = 0;
    for file in 0i64.. {
        let path = format!("linux-6.1/drivers/net/part{:03}/source_{:05}.c", file / 60, file * 7919 % 100_000);
        let path = paths.get(path.as_bytes());
        let size = 512 + dice.below(40_000);
        let before = rows.len();
        rows.push(Op {
            path: Some(path.clone()),
            dirfd: Some(-100),
            flags: Some(0x8_80c1),
            mode: Some(0o644),
            ret: Some(4),
            aux: Some(1),
            ..op(&words, &openat, 0, dice.duration(9_000))
        });
        let mut at = 0;
        while at < size {
            if archive % 20 == 0 {
                let offset = archive / 20 * 10_240;
                rows.push(Op {
                    fd: Some(3),
                    ofd: Some(1),
                    file: Some(1),
                    offset_bytes: Some(offset),
                    len_bytes: Some(10_240),
                    ret: Some(10_240),
                    ..op(&words, &read, 0, dice.duration(2_000))
                });
            }
            archive += 1;
            let len = (size - at).min(10_240);
            rows.push(Op {
                offset_bytes: Some(at),
                len_bytes: Some(len),
                ret: Some(len),
                ..op(&words, &write, 0, dice.duration(3_000))
            });
            at += len;
        }
        rows.push(Op {
            dirfd: Some(4),
            aux: Some(i64::MIN + 1),
            aux2: Some(1_700_000_000_000_000_000 + file * 1_000_000_000),
            ret: Some(0),
            flags: Some(0),
            ..op(&words, &utimensat, 0, dice.duration(800))
        });
        rows.push(Op { mode: Some(0o644), ret: Some(0), ..op(&words, &fchmod, 0, dice.duration(700)) });
        rows.push(Op { ret: Some(0), ..op(&words, &close, 0, dice.duration(400)) });
        for row in &mut rows[before..] {
            now += 200 + dice.below(900);
            row.start_ns = now;
            now += row.dur_ns;
            (row.task_id, row.pid, row.tid, row.cpu) = (1, 4000, 4000, i32::from(file % 512 > 300));
            if row.fd.is_none() && row.op != *"utimensat" {
                (row.fd, row.ofd, row.file) = (Some(4), Some(file + 2), Some(file + 2));
            }
        }
        if rows.len() >= ROWS {
            break;
        }
    }
    rows
}

fn server() -> Vec<Op> {
    let words = Words { syscall: "syscall".into(), complete: "complete".into() };
    let (pread, pwrite, fsync) = (Text::from("pread64"), Text::from("pwrite64"), Text::from("fdatasync"));
    let mut dice = Dice(2);
    let mut rows = Vec::with_capacity(ROWS);
    let mut now = 0;
    // Where each thread reads on: seven in ten reads follow the one before.
    let mut next = [0i64; 32];
    while rows.len() < ROWS {
        now += dice.below(2_000);
        let thread = dice.below(32);
        let file = dice.below(20) * dice.below(20);
        let follows = dice.below(10) < 7;
        let offset = if follows { next[thread as usize] } else { dice.below(1 << 18) * 4096 };
        next[thread as usize] = offset + 8192;
        let (name, typical, len) = match dice.below(100) {
            0..70 => (&pread, 2_500, Some(8192)),
            70..97 => (&pwrite, 6_000, Some(8192)),
            _ => (&fsync, 800_000, None),
        };
        rows.push(Op {
            task_id: thread,
            pid: 900,
            tid: 901 + thread as i32,
            cpu: (dice.below(8)) as i32,
            fd: Some(10 + file as i32),
            ofd: Some(100 + file),
            file: Some(file),
            offset_bytes: len.is_some().then_some(offset),
            len_bytes: len,
            ret: Some(len.unwrap_or(0)),
            ..op(&words, name, now, dice.duration(typical))
        });
    }
    rows
}
