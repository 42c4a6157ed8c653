//! How fast rows become Parquet, and how small: `cargo bench -p ioreel-traces`, with names of jobs for those alone.
//!
//! Three made-up but lifelike jobs: an unpacking (many short calls, a new path for every file), a server (32 threads
//! reading and writing a few hundred files at random) and a disk as fast as it can be (random reads, a request and a bio
//! each). CPU time is this thread's, so that a busy machine does not count.

use std::{cmp::Reverse, collections::BinaryHeap, error::Error, hint::black_box, time::Duration};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, Text, WriterOptions,
    manifest::Kind,
    rows::{Bio, Block, Op},
    text::Interner,
};

/// A row of any of the large tables.
#[expect(clippy::large_enum_variant, reason = "the recorder's rows are not boxed either")]
enum Any {
    Op(Op),
    Block(Block),
    Bio(Bio),
}

/// Makes rows, some at a time.
type Job = Box<dyn Iterator<Item = Vec<Any>>>;

/// Rows per job.
const ROWS: usize = 2_000_000;
/// Distinct paths the recorder's interner remembers.
const PATHS: usize = 64 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<8} {:>9} {:>12} {:>10} {:>14}", "job", "rows", "M rows/s/cpu", "bytes/row", "M rows/s read");
    let jobs: [(&str, Job); 3] = [
        ("unpack", Box::new(Unpack::new().map(|rows| rows.into_iter().map(Any::Op).collect()))),
        ("server", Box::new(Server::new().map(|rows| rows.into_iter().map(Any::Op).collect()))),
        ("disk", Box::new(Disk::new())),
    ];
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, chunks) in jobs {
        if !asked.is_empty() && asked.iter().all(|a| a != name) {
            continue;
        }
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("x.reel");
        let manifest = Manifest::new(Kind::Synthetic, "bench");
        let mut w = ReelWriter::create(&path, &manifest, WriterOptions::default())?;
        let mut wrote = Duration::ZERO;
        let mut count = 0;
        // The recorder makes a row as it decodes an event and pushes it while it is in the cache: so here, some at
        // a time, and the making is not counted.
        for rows in chunks {
            count += rows.len();
            let began = cpu_time();
            for row in rows {
                match row {
                    Any::Op(row) => w.ops.push(row)?,
                    Any::Block(row) => w.block.push(row)?,
                    Any::Bio(row) => w.push_bio(row, None)?,
                }
            }
            wrote += cpu_time() - began;
            if count >= ROWS {
                break;
            }
        }
        let count = count as f64;
        let began = cpu_time();
        let closed = w.close(manifest)?;
        wrote += cpu_time() - began;
        let began = cpu_time();
        let reel = Reel::open(&path)?;
        reel.rows::<Op>().try_for_each(|row| row.map(|row| drop(black_box(row))))?;
        reel.rows::<Block>().try_for_each(|row| row.map(|row| drop(black_box(row))))?;
        reel.rows::<Bio>().try_for_each(|row| row.map(|row| drop(black_box(row))))?;
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

impl Words {
    fn new() -> Self {
        Self { syscall: "syscall".into(), complete: "complete".into() }
    }
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

/// The calls of unpacking an archive, a few files at a time.
struct Unpack {
    words: Words,
    calls: [Text; 6],
    paths: Interner,
    dice: Dice,
    file: i64,
    /// Blocks written, of which twenty come with one read of the archive.
    blocks: i64,
    now: i64,
}

impl Unpack {
    fn new() -> Self {
        Self {
            words: Words::new(),
            calls: ["openat", "read", "write", "utimensat", "fchmod", "close"].map(Text::from),
            paths: Interner::new(PATHS),
            dice: Dice(1),
            file: 0,
            blocks: 0,
            now: 0,
        }
    }

    fn file(&mut self, rows: &mut Vec<Op>) {
        let Self { words, calls: [openat, read, write, utimensat, fchmod, close], dice, file, .. } = self;
        *file += 1;
        let path = format!("linux-6.1/drivers/net/part{:03}/source_{:05}.c", *file / 60, *file * 7919 % 100_000);
        let path = self.paths.get(path.as_bytes());
        let size = 512 + dice.below(40_000);
        let before = rows.len();
        let (fd, id) = (Some(4), Some(*file + 2));
        let of_file = |row: Op| Op { fd, ofd: id, file: id, ..row };
        rows.push(of_file(Op {
            path: Some(path),
            dirfd: Some(-100),
            flags: Some(0x8_80c1),
            mode: Some(0o644),
            ret: Some(4),
            aux: Some(1),
            ..op(words, openat, 0, dice.duration(9_000))
        }));
        let mut at = 0;
        while at < size {
            if self.blocks % 20 == 0 {
                rows.push(Op {
                    fd: Some(3),
                    ofd: Some(1),
                    file: Some(1),
                    offset_bytes: Some(self.blocks / 20 * 10_240),
                    len_bytes: Some(10_240),
                    ret: Some(10_240),
                    ..op(words, read, 0, dice.duration(2_000))
                });
            }
            self.blocks += 1;
            let len = (size - at).min(10_240);
            rows.push(of_file(Op {
                offset_bytes: Some(at),
                len_bytes: Some(len),
                ret: Some(len),
                ..op(words, write, 0, dice.duration(3_000))
            }));
            at += len;
        }
        rows.push(Op {
            fd,
            dirfd: fd,
            aux: Some(i64::MIN + 1),
            // A release has one time for all of its files.
            aux2: Some(1_700_000_000_000_000_000),
            ret: Some(0),
            flags: Some(0),
            ..op(words, utimensat, 0, dice.duration(800))
        });
        rows.push(of_file(Op { mode: Some(0o644), ret: Some(0), ..op(words, fchmod, 0, dice.duration(700)) }));
        rows.push(of_file(Op { ret: Some(0), ..op(words, close, 0, dice.duration(400)) }));
        for row in &mut rows[before..] {
            self.now += 200 + self.dice.below(900);
            row.start_ns = self.now;
            self.now += row.dur_ns;
            (row.task_id, row.pid, row.tid, row.cpu) = (1, 4000, 4000, i32::from(self.file % 512 > 300));
        }
    }
}

impl Iterator for Unpack {
    type Item = Vec<Op>;
    fn next(&mut self) -> Option<Vec<Op>> {
        let mut rows = Vec::new();
        for _ in 0..16 {
            self.file(&mut rows);
        }
        Some(rows)
    }
}

/// The calls of a server with 32 threads, as they end.
struct Server {
    words: Words,
    calls: [Text; 3],
    dice: Dice,
    now: i64,
    /// Where each thread reads on: seven in ten calls follow the one before.
    next: [i64; 32],
}

impl Server {
    fn new() -> Self {
        let calls = ["pread64", "pwrite64", "fdatasync"].map(Text::from);
        Self { words: Words::new(), calls, dice: Dice(2), now: 10_000_000, next: [0; 32] }
    }

    fn call(&mut self) -> Op {
        let Self { words, calls: [pread, pwrite, fdatasync], dice, .. } = self;
        self.now += dice.below(2_000);
        let thread = dice.below(32);
        let file = dice.below(20) * dice.below(20);
        let offset = match dice.below(10) {
            0..7 => self.next[thread as usize],
            _ => dice.below(1 << 18) * 4096,
        };
        self.next[thread as usize] = offset + 8192;
        let (name, typical, len) = match dice.below(100) {
            0..70 => (&*pread, 2_500, Some(8192)),
            70..97 => (&*pwrite, 6_000, Some(8192)),
            _ => (&*fdatasync, 800_000, None),
        };
        let dur_ns = dice.duration(typical);
        Op {
            task_id: thread,
            pid: 900,
            tid: 901 + thread as i32,
            cpu: dice.below(8) as i32,
            fd: Some(10 + file as i32),
            ofd: Some(100 + file),
            file: Some(file),
            offset_bytes: len.is_some().then_some(offset),
            len_bytes: len,
            ret: Some(len.unwrap_or(0)),
            // Rows come when calls end; the writer sorts them by their starts.
            ..op(words, name, (self.now - dur_ns).max(0), dur_ns)
        }
    }
}

impl Iterator for Server {
    type Item = Vec<Op>;
    fn next(&mut self) -> Option<Vec<Op>> {
        Some((0..128).map(|_| self.call()).collect())
    }
}

/// What ends on a disk that has all the random reads of two jobs that it can take: for each a request and its bio.
struct Disk {
    read: Text,
    comm: Text,
    dice: Dice,
    now: i64,
    requests: i64,
    under_way: BinaryHeap<Reverse<UnderWay>>,
}

/// A request on its way; the first to end comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    end_ns: i64,
    queue_ns: i64,
    rq_id: i64,
    sector: i64,
    job: i64,
}

impl Disk {
    fn new() -> Self {
        let (read, comm) = (Text::word("read"), Text::from("fio"));
        Self { read, comm, dice: Dice(3), now: 0, requests: 0, under_way: BinaryHeap::new() }
    }
}

impl Iterator for Disk {
    type Item = Vec<Any>;
    fn next(&mut self) -> Option<Vec<Any>> {
        /// Requests that a job hands to the kernel at a time.
        const BATCH: usize = 32;
        let job = self.dice.below(2);
        for _ in 0..BATCH {
            self.now += 1_500 + self.dice.below(1_000);
            self.requests += 1;
            let (sector, end_ns) = (self.dice.below(1 << 18) * 8, self.now + 100_000 + self.dice.below(200_000));
            let (queue_ns, rq_id) = (self.now, self.requests);
            self.under_way.push(Reverse(UnderWay { end_ns, queue_ns, rq_id, sector, job }));
        }
        let mut rows = Vec::with_capacity(2 * BATCH);
        while self.under_way.peek().is_some_and(|Reverse(next)| next.end_ns < self.now)
            && let Some(Reverse(UnderWay { end_ns, queue_ns, rq_id, sector, job })) = self.under_way.pop()
        {
            rows.push(Any::Bio(Bio {
                bio_id: -1,
                rq_id: Some(rq_id),
                queue_ns,
                complete_ns: Some(end_ns),
                dev: 7 << 20,
                sector,
                len_bytes: 4096,
                op: self.read.clone(),
                flags: 1,
                task_id: Some(2 + job),
                comm: self.comm.clone(),
                file: Some(4),
                file_offset_bytes: Some(sector * 512),
                class: Text::word("data"),
                confidence: 100,
                how: Some(Text::word("request")),
                error: Some(0),
                ..Bio::default()
            }));
            rows.push(Any::Block(Block {
                rq_id,
                queue_ns: Some(queue_ns),
                issue_ns: queue_ns + 900,
                complete_ns: Some(end_ns + 150),
                dev: 7 << 20,
                sector,
                len_bytes: 4096,
                op: self.read.clone(),
                flags: 1,
                cpu: job as i32,
                error: 0,
                requeues: Some(0),
                bios: Some(1),
            }));
        }
        Some(rows)
    }
}
