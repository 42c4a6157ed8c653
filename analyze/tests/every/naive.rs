//! The statistics a second time, from rows alone, with plain loops over all pairs: what `docs/statistics.md` says, and nothing of
//! the program's counting. The result has the shape of the JSON.

use std::collections::{BTreeMap, BTreeSet};

use ioreel_traces::rows::{Bio, Block, Op, block_flags};
use serde_json::{Value, json};

const S: i64 = 1_000_000_000;
const CLASSES: [&str; 9] =
    ["read", "write", "flush", "discard", "secure_erase", "write_zeroes", "zone_append", "zone_mgmt", "other"];
const INDEX: [&str; 7] = ["metadata", "inode_table", "directory", "bitmap", "tree", "extent_map", "superblock"];

/// Rows, and what the manifest says.
#[derive(Clone, Default)]
pub(crate) struct World {
    pub(crate) blocks: Vec<Block>,
    pub(crate) bios: Vec<Bio>,
    pub(crate) ops: Vec<Op>,
    /// From where on, and how long it was.
    pub(crate) from_ns: i64,
    pub(crate) span_ns: i64,
    /// Of a part: the whole. What happened while a call ran, and whether a page was read later, is asked of that.
    pub(crate) every: Option<Box<World>>,
}

impl World {
    fn whole(&self) -> &Self {
        self.every.as_deref().unwrap_or(self)
    }
}

pub(crate) fn latency(durations: impl IntoIterator<Item = i64>) -> Value {
    let mut all: Vec<i64> = durations.into_iter().map(|d| d.max(0)).collect();
    all.sort_unstable();
    let n = all.len();
    let at = |q: f64| if n == 0 { 0 } else { all[((q * n as f64).ceil() as usize).max(1) - 1] };
    let total: i64 = all.iter().sum();
    json!({
        "count": n, "min_ns": at(0.0), "mean_ns": total / (n as i64).max(1), "p50_ns": at(0.5), "p90_ns": at(0.9),
        "p99_ns": at(0.99), "p999_ns": at(0.999), "max_ns": at(1.0), "total_ns": total,
    })
}

fn data(op: &str) -> bool {
    op == "read" || op == "write"
}

fn end(sector: i64, len_bytes: i64) -> i64 {
    sector + (len_bytes + 511) / 512
}

fn share(n: f64, of: f64, none: f64) -> f64 {
    if of == 0.0 { none } else { n / of }
}

/// Time with anything in flight, and with exactly one thing.
fn busy(flights: &[(i64, i64)]) -> (i64, i64) {
    let mut edges: Vec<i64> = flights.iter().flat_map(|(a, b)| [*a, *b]).collect();
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).fold((0, 0), |(some, one), w| {
        let n = flights.iter().filter(|(a, b)| *a <= w[0] && w[1] <= *b).count();
        let t = w[1] - w[0];
        (some + if n > 0 { t } else { 0 }, one + if n == 1 { t } else { 0 })
    })
}

fn seeks(rows: &[&Block]) -> Value {
    let places: Vec<(i64, i64)> = rows.iter().map(|b| (b.sector, end(b.sector, b.len_bytes))).collect();
    let (mut exact, mut sw64k, mut btt, mut win16, mut win32, mut hdd_ms) = (0, 0, 0, 0, 0, 0.0);
    let mut distances: Vec<i64> = Vec::new();
    for i in 1..places.len() {
        let ((start, stop), (last_start, last_end)) = (places[i], places[i - 1]);
        let jump = (start - last_end).abs();
        exact += i32::from(jump != 0);
        sw64k += i32::from(jump > 128);
        hdd_ms += if jump == 0 { 0.0 } else { 1.0 + 14.0 * (jump as f64 / 2f64.powi(32)).sqrt() };
        let distance = if start > last_end {
            start - last_end
        } else if stop < last_start {
            stop - last_start
        } else {
            0
        };
        btt += i32::from(distance != 0);
        distances.push(distance);
        win16 += i32::from(places[i.saturating_sub(16)..i].iter().all(|(_, e)| *e != start));
        win32 += i32::from(places[i.saturating_sub(32)..i].iter().all(|(_, e)| (start - e).abs() > 256));
    }
    let n = distances.len();
    let mean = share(distances.iter().map(|d| *d as f64).sum(), n as f64, 0.0);
    distances.sort_unstable();
    let times = |d: i64| distances.iter().filter(|other| **other == d).count();
    let mode = distances.iter().copied().max_by_key(|d| (times(*d), -d.abs())).unwrap_or(0);
    json!({
        "candidates": n, "exact": exact, "sw64k": sw64k, "btt": btt, "btt_mean_sectors": mean,
        "btt_median_sectors": if n == 0 { 0 } else { distances[(n - 1) / 2] }, "btt_mode_sectors": mode, "win16": win16,
        "win32_128k": win32, "seq_ratio": 1.0 - share(f64::from(exact), n as f64, 0.0), "hdd_ms": hdd_ms, "sampled": 1,
    })
}

fn sizes(rows: &[&Block], phys_bytes: i64) -> Value {
    let (mut log2, mut exact) = (BTreeMap::new(), BTreeMap::new());
    for b in rows {
        let mut low = 1i64;
        while low * 2 <= b.len_bytes {
            low *= 2;
        }
        *log2.entry(low).or_insert(0) += 1;
        *exact.entry(b.len_bytes).or_insert(0) += 1;
    }
    let mut top: Vec<(i64, i32)> = exact.into_iter().collect();
    top.sort_by_key(|(size, n)| (-n, *size));
    top.truncate(16);
    let off = |unit: i64| {
        let n = rows.iter().filter(|b| (b.sector * 512) % unit != 0 || b.len_bytes % unit != 0).count();
        share(n as f64, rows.len() as f64, 0.0)
    };
    let log2: Vec<(i64, i32)> = log2.into_iter().collect();
    json!({ "log2": log2, "top": top, "align4k": off(4096), "align_phys": off(phys_bytes), "align_erase": off(4 << 20) })
}

/// What happened to a block of 4 KiB: when, and whether it was written.
fn blocks(rows: &[&Block]) -> Value {
    let mut history: BTreeMap<i64, Vec<(i64, bool)>> = BTreeMap::new();
    for b in rows.iter().filter(|b| b.sector >= 0 && b.len_bytes > 0) {
        for block in b.sector / 8..=(end(b.sector, b.len_bytes) - 1) / 8 {
            history.entry(block).or_default().push((b.issue_ns, b.op == *"write"));
        }
    }
    let windows = [5 * S, 30 * S, i64::MAX];
    let (mut written, mut rmw) = (0, 0);
    let (mut different, mut again, mut reread) = ([0; 3], [0; 3], [0; 3]);
    for events in history.values() {
        for (i, (t, write)) in events.iter().enumerate() {
            let before = &events[..i];
            let last_write = before.iter().rposition(|(_, w)| *w);
            let last_read = before.iter().rposition(|(_, w)| !*w).filter(|r| last_write.is_none_or(|w| *r > w));
            let since = |at: Option<usize>| at.map(|at| t - before[at].0);
            if *write {
                written += 1;
                rmw += i32::from(since(last_read).is_some_and(|d| d <= 100_000_000));
                for (k, window) in windows.iter().enumerate() {
                    again[k] += i32::from(since(last_write).is_some_and(|d| d <= *window));
                    different[k] += i32::from(!before.iter().any(|(u, w)| *w && u / window == t / window));
                }
            } else {
                (0..3).for_each(|k| reread[k] += i64::from(since(last_read).is_some_and(|d| d <= windows[k])));
            }
        }
    }
    json!({
        "waf_window": different.map(|d| share(f64::from(written), f64::from(d), 1.0)),
        "rewrite_le": again.map(|n| share(f64::from(n), f64::from(written), 0.0)),
        "dup_read_bytes": reread.map(|n| n * 4096), "written_blocks": written,
        "rmw": share(f64::from(rmw), f64::from(written), 0.0), "sampled": 1,
    })
}

fn device(w: &World, dev: i64, name: &str, phys_bytes: i64) -> Value {
    let mut rows: Vec<Block> = w.blocks.iter().filter(|b| b.dev == dev).cloned().collect();
    let mut bios: Vec<&Bio> = w.bios.iter().filter(|b| b.dev == dev).collect();
    bios.sort_by_key(|b| b.queue_ns);
    if rows.is_empty() {
        let of = |b: &&Bio| Block {
            queue_ns: Some(b.queue_ns),
            issue_ns: b.queue_ns,
            complete_ns: b.complete_ns,
            sector: b.sector,
            len_bytes: b.len_bytes,
            op: b.op.clone(),
            ..Block::default()
        };
        rows = bios.iter().map(of).collect();
    }
    rows.sort_by_key(|b| b.issue_ns);
    let span = w.span_ns.max(1) as f64;
    let of = |op: &str| rows.iter().filter(|b| *b.op == *op).collect::<Vec<_>>();
    let all: Vec<&Block> = rows.iter().collect();
    let moving: Vec<&Block> = rows.iter().filter(|b| data(&b.op)).collect();
    let well = |rows: &[&Block]| {
        rows.iter().filter(|b| b.complete_ns.is_some() && b.error == 0).map(|b| b.len_bytes).sum::<i64>()
    };
    let d2c = |rows: &[&Block]| latency(rows.iter().filter_map(|b| Some(b.complete_ns? - b.issue_ns)));
    let flights: Vec<(i64, i64)> =
        rows.iter().filter_map(|b| Some((b.issue_ns, b.complete_ns?.max(b.issue_ns)))).collect();
    let (busy_ns, alone_ns) = busy(&flights);
    let end_ns = w.from_ns + w.span_ns;
    let inside: Vec<_> = flights.iter().map(|(a, b)| (*a, (*b).min(end_ns))).collect();
    let deep = (0..flights.len())
        .map(|i| 1 + flights[..i].iter().filter(|(_, e)| *e > flights[i].0).count())
        .max()
        .unwrap_or(0);
    let mut adjacent = 0;
    for (i, b) in moving.iter().enumerate().filter(|(_, b)| b.len_bytes > 0) {
        let touches = |a: &&&Block| {
            a.op == b.op
                && a.len_bytes > 0
                && b.issue_ns - a.issue_ns <= 10_000_000
                && (end(a.sector, a.len_bytes) == b.sector || end(b.sector, b.len_bytes) == a.sector)
        };
        adjacent += i32::from(moving[..i].iter().any(|a| touches(&a)));
    }
    let some = |count: &dyn Fn(&[&Block]) -> i64| -> Vec<(&str, i64)> {
        CLASSES.iter().map(|c| (*c, count(&of(c)))).filter(|(_, n)| *n > 0).collect()
    };
    let done = rows.iter().filter(|b| b.complete_ns.is_some()).count();
    let mut queued: Vec<i64> = bios.iter().map(|b| b.queue_ns).collect();
    if queued.is_empty() {
        queued = rows.iter().filter_map(|b| b.queue_ns).collect();
        queued.sort_unstable();
    }
    let carrying = bios.iter().filter(|b| data(&b.op) && b.len_bytes > 0).count() as f64;
    let mbps = |op: &str| well(&of(op)) as f64 * 1e3 / span;
    json!({
        "dev": dev, "number": format!("{}:{}", dev >> 20, dev & 0xf_ffff), "name": name,
        "dispatched": some(&|rows| rows.len() as i64), "bytes": some(&|rows| well(rows)),
        "errors": rows.iter().filter(|b| b.complete_ns.is_some() && b.error != 0).count(),
        "incomplete": rows.len() - done, "iops": done as f64 * 1e9 / span, "mbps": mbps("read") + mbps("write"),
        "read_mbps": mbps("read"), "write_mbps": mbps("write"),
        "qd_mean": flights.iter().map(|(a, b)| b - a).sum::<i64>() as f64 / span, "qd_max": deep,
        "util": busy(&inside).0 as f64 / span, "sync_qd1": share(alone_ns as f64, busy_ns as f64, 0.0),
        "d2c": d2c(&moving), "d2c_read": d2c(&of("read")), "d2c_write": d2c(&of("write")), "d2c_flush": d2c(&of("flush")),
        "q2c": latency(all.iter().filter_map(|b| Some(b.complete_ns? - b.queue_ns?))),
        "q2d": latency(all.iter().filter_map(|b| Some(b.issue_ns - b.queue_ns?))),
        "q2g": latency([]), "g2i": latency([]), "i2d": latency([]),
        "q2q": latency(queued.windows(2).map(|w| w[1] - w[0])),
        "queued": if bios.is_empty() { Value::Null } else { json!(bios.len()) },
        "merge_ratio": if bios.is_empty() || moving.is_empty() { Value::Null } else { json!(carrying / moving.len() as f64) },
        "unmerged_adjacent": adjacent, "seeks": seeks(&moving), "sizes": sizes(&moving, phys_bytes),
        "blocks": blocks(&moving), "period": Value::Null,
    })
}

fn classes(bios: &[Bio]) -> Value {
    let mut out: BTreeMap<String, [i64; 5]> = BTreeMap::new();
    for b in bios.iter().filter(|b| data(&b.op)) {
        let n = out.entry(b.class.to_string()).or_default();
        let at = if b.op == *"read" { 0 } else { 2 };
        n[at] += 1;
        n[at + 1] += b.len_bytes;
        n[4] += b.complete_ns.map_or(0, |c| (c - b.queue_ns).max(0));
    }
    let mut out: Vec<(String, [i64; 5])> = out.into_iter().collect();
    out.sort_by_key(|(_, n)| -n[4]);
    let row = |(class, n): &(String, [i64; 5])| json!({ "class": class, "reads": n[0], "read_bytes": n[1], "writes": n[2], "write_bytes": n[3], "time_ns": n[4] });
    out.iter().map(row).collect()
}

/// Where each page of each file lies: the reel says it page by page, and each has one place.
fn layout(bios: &[Bio]) -> Value {
    let mut files: BTreeMap<i64, BTreeMap<i64, (i64, i64)>> = BTreeMap::new();
    for b in bios.iter().filter(|b| b.class == *"data" && data(&b.op)) {
        let (Some(file), Some(offset)) = (b.file, b.file_offset_bytes) else { continue };
        for page in 0..b.len_bytes / 4096 {
            files.entry(file).or_default().insert(offset / 4096 + page, (b.dev, b.sector + page * 8));
        }
    }
    let per_mib = |n: usize, pages: usize| share(n as f64 * 256.0, pages as f64, 0.0);
    let mut rows = Vec::new();
    for (file, pages) in &files {
        let list: Vec<(i64, (i64, i64))> = pages.iter().map(|(p, at)| (*p, *at)).collect();
        let follows = |w: &&[(i64, (i64, i64))]| w[0].0 + 1 == w[1].0;
        let behind = |w: &&[(i64, (i64, i64))]| follows(w) && w[1].1 == (w[0].1.0, w[0].1.1 + 8);
        let pairs = list.windows(2).filter(follows).count();
        let good = list.windows(2).filter(behind).count();
        rows.push((*file, list.len(), list.len() - good, good, pairs));
    }
    let (pages, extents) = rows.iter().fold((0, 0), |s, r| (s.0 + r.1, s.1 + r.2));
    let (good, pairs) = rows.iter().fold((0, 0), |s, r| (s.0 + r.3, s.1 + r.4));
    rows.sort_by_key(|r| (std::cmp::Reverse(r.2), r.0));
    rows.truncate(8);
    let worst: Vec<Value> = rows
        .iter()
        .map(|(file, pages, extents, good, pairs)| {
            json!({ "file": file, "bytes": pages * 4096, "extents": extents, "frag": per_mib(*extents, *pages),
                "dls": share(*good as f64, *pairs as f64, 1.0) })
        })
        .collect();
    let mut turns: Vec<(i64, i64, f64)> = Vec::new();
    for (i, a) in rows.iter().enumerate() {
        for b in &rows[i + 1..] {
            // Whose page each is, in order of place.
            let of = |file: i64, mark| files[&file].values().map(move |at| (*at, mark));
            let mut all: Vec<((i64, i64), bool)> = of(a.0, false).chain(of(b.0, true)).collect();
            all.sort_unstable();
            let switches = all.windows(2).filter(|w| w[0].1 != w[1].1 && w[0].0.0 == w[1].0.0).count();
            let begun =
                |mark| (0..all.len()).filter(|i| all[*i].1 == mark && (*i == 0 || all[i - 1].1 != mark)).count();
            if begun(false).min(begun(true)) >= 2 {
                let index = ((switches as f64 - 1.0) / (2.0 * a.2.min(b.2) as f64 - 1.0)).min(1.0);
                turns.push((a.0, b.0, index));
            }
        }
    }
    turns.sort_by(|a, b| b.2.total_cmp(&a.2).then((a.0, a.1).cmp(&(b.0, b.1))));
    let turns: Vec<Value> = turns.iter().map(|(a, b, i)| json!({ "files": [a, b], "index": i })).collect();
    json!({ "files": files.len(), "frag": per_mib(extents, pages), "dls": share(good as f64, pairs as f64, 1.0),
        "worst": worst, "interleaved": turns, "left_out": 0 })
}

fn readahead(w: &World) -> Value {
    let mut pages: BTreeMap<(i64, i64), i64> = BTreeMap::new();
    for b in w.bios.iter().filter(|b| b.op == *"read" && b.class == *"data" && b.flags & block_flags::READAHEAD != 0) {
        let (Some(file), Some(offset)) = (b.file, b.file_offset_bytes) else { continue };
        for page in 0..b.len_bytes / 4096 {
            let last = pages.entry((file, offset / 4096 + page)).or_insert(b.queue_ns);
            *last = (*last).max(b.queue_ns);
        }
    }
    let mapped: BTreeSet<i64> = w.whole().ops.iter().filter(|o| o.op == *"mmap").filter_map(|o| o.file).collect();
    let seen = |(file, page): &(i64, i64), t: i64| {
        w.whole().ops.iter().filter(|o| o.op == *"pread64" && o.file == Some(*file)).any(|o| {
            let (Some(from), Some(n)) = (o.offset_bytes, o.ret) else { return false };
            n > 0 && from / 4096 <= *page && (from + n - 1) / 4096 >= *page && o.start_ns + o.dur_ns >= t
        })
    };
    let read: BTreeSet<i64> =
        w.whole().ops.iter().filter(|o| o.op == *"pread64" && o.ret > Some(0)).filter_map(|o| o.file).collect();
    let told: Vec<_> = pages.iter().filter(|((file, _), _)| !mapped.contains(file) && read.contains(file)).collect();
    let unused = told.iter().filter(|(at, t)| !seen(at, **t)).count();
    json!({ "pages": told.len(), "unused": unused, "ra_waste": share(unused as f64, told.len() as f64, 0.0),
        "left_out": pages.len() - told.len() })
}

fn kind(op: &str) -> &str {
    match op {
        "pread64" => "read",
        "pwrite64" => "write",
        "fsync" => "sync",
        "mmap" | "lseek" => "other",
        _ => "metadata",
    }
}

/// Different blocks of metadata written.
fn index_blocks(w: &World) -> usize {
    let mut index: BTreeSet<(i64, i64)> = BTreeSet::new();
    for b in w.bios.iter().filter(|b| b.op == *"write" && INDEX.contains(&&*b.class)) {
        index.extend((b.sector / 8..=(end(b.sector, b.len_bytes) - 1) / 8).map(|block| (b.dev, block)));
    }
    index.len()
}

/// Bytes written to the files of these syncs, each since the file's sync before.
fn dirty_bytes(ops: &[&Op], syncs: &[&Op]) -> i64 {
    let mut dirty = 0;
    for s in syncs {
        let last = syncs.iter().filter(|p| p.file == s.file && p.start_ns < s.start_ns).map(|p| p.start_ns).max();
        let since = |o: &&&Op| {
            o.op == *"pwrite64" && o.file == s.file && o.start_ns < s.start_ns && last.is_none_or(|l| o.start_ns > l)
        };
        dirty += ops.iter().filter(since).map(|o| o.ret.unwrap_or(0).max(0)).sum::<i64>();
    }
    dirty
}

fn fsyncs(w: &World, ops: &[&Op]) -> Value {
    let syncs: Vec<&Op> = ops.iter().filter(|o| o.op == *"fsync" && o.state == *"complete").copied().collect();
    let during = |b: &&Block| syncs.iter().any(|s| (s.start_ns..=s.start_ns + s.dur_ns).contains(&b.issue_ns));
    let inside: Vec<&Block> = w.whole().blocks.iter().filter(during).collect();
    let flushes = inside.iter().filter(|b| b.op == *"flush").count();
    let devices = w.blocks.len() + w.bios.len() > 0;
    let per_sync = |n: usize| {
        if syncs.is_empty() || !devices { Value::Null } else { json!(n as f64 / syncs.len() as f64) }
    };
    let written = |class: &str| {
        let of = w.bios.iter().filter(|b| b.op == *"write" && b.class == *class);
        of.map(|b| b.len_bytes).sum::<i64>()
    };
    let journal = (written("journal"), written("data"));
    json!({
        "count": syncs.len(), "per_s": per_s(w, syncs.len() as f64),
        "latency": latency(syncs.iter().map(|s| s.dur_ns)),
        "dirty_bytes": share(dirty_bytes(ops, &syncs) as f64, syncs.len() as f64, 0.0),
        "requests": per_sync(inside.len()), "flushes": per_sync(flushes),
        "journal_per_data": if journal.0 == 0 || journal.1 == 0 { Value::Null } else { json!(journal.0 as f64 / journal.1 as f64) },
    })
}

/// Files that several threads write, with the share of the time in which they wait for each other.
fn lock_serial(ops: &[&Op]) -> Vec<Value> {
    let mut locks = Vec::new();
    let files: BTreeSet<i64> = ops.iter().filter_map(|o| o.file).collect();
    for file in files {
        let writes: Vec<&&Op> =
            ops.iter().filter(|o| o.op == *"pwrite64" && o.file == Some(file) && o.state == *"complete").collect();
        let threads: BTreeSet<i64> = writes.iter().map(|o| o.task_id).collect();
        let flights: Vec<(i64, i64)> = writes.iter().map(|o| (o.start_ns, o.start_ns + o.dur_ns)).collect();
        let sum: i64 = writes.iter().map(|o| o.dur_ns).sum();
        let union = busy(&flights).0;
        if threads.len() > 1 && sum > union {
            locks.push((file, threads.len(), 1.0 - union as f64 / sum as f64, sum));
        }
    }
    locks.sort_by_key(|l| (-l.3, l.0));
    locks
        .into_iter()
        .take(8)
        .map(|(file, threads, serial, t)| json!({ "file": file, "threads": threads, "serial": serial, "time_ns": t }))
        .collect()
}

fn per_s(w: &World, n: f64) -> f64 {
    n * 1e9 / w.span_ns.max(1) as f64
}

fn operations(w: &World) -> Value {
    if w.ops.is_empty() {
        return Value::Null;
    }
    let mut ops: Vec<&Op> = w.ops.iter().filter(|o| o.source != *"tool").collect();
    ops.sort_by_key(|o| o.start_ns);
    let n = |f: &dyn Fn(&Op) -> bool| ops.iter().filter(|o| f(o)).count() as f64;
    let ended = |f: &dyn Fn(&Op) -> bool| -> Vec<i64> {
        ops.iter().filter(|o| o.state == *"complete" && f(o)).map(|o| o.dur_ns).collect()
    };
    let of = |k: &'static str| ended(&move |o: &Op| kind(&o.op) == k);
    let (all, metadata) = (ended(&|_| true), of("metadata"));
    let looks = |o: &Op| ["openat", "newfstatat"].contains(&&*o.op);
    let changes = |o: &Op| {
        o.ret.is_some_and(|r| r >= 0) && (o.op == *"unlink" || o.op == *"openat" && o.aux.is_some_and(|a| a & 1 != 0))
    };
    let names = n(&changes);
    let index = index_blocks(w) as f64;
    let time_ns: i64 = all.iter().sum();
    let opens = n(&|o| o.op == *"openat");
    json!({
        "ops": ops.len(), "ops_per_s": per_s(w, ops.len() as f64), "time_ns": time_ns, "latency": latency(all.clone()),
        "read": latency(of("read")), "write": latency(of("write")), "metadata": latency(metadata.clone()),
        "md_share": share(metadata.len() as f64, ops.len() as f64, 0.0),
        "md_time_share": share(metadata.iter().sum::<i64>() as f64, time_ns as f64, 0.0),
        "stat_per_open": if opens == 0.0 { Value::Null } else { json!(n(&|o| o.op == *"newfstatat") / opens) },
        "lookup_neg": share(n(&|o| looks(o) && o.ret == Some(-2)), n(&looks), 0.0), "names_changed": names as i64,
        "index_churn": if names == 0.0 || index == 0.0 { Value::Null } else { json!(index / names) },
        "fsync": fsyncs(w, &ops),
        "lock_serial": lock_serial(&ops),
    })
}

/// Everything, for these devices: number, name, physical block.
pub(crate) fn stats(w: &World, devices: &[(i64, &str, i64)]) -> Value {
    let mut all: Vec<Value> = devices
        .iter()
        .filter(|(dev, ..)| w.blocks.iter().any(|b| b.dev == *dev) || w.bios.iter().any(|b| b.dev == *dev))
        .map(|(dev, name, phys)| device(w, *dev, name, *phys))
        .collect();
    let moved = |d: &Value| {
        let rows = d["bytes"].as_array().unwrap();
        rows.iter().filter(|r| data(r[0].as_str().unwrap())).map(|r| r[1].as_i64().unwrap()).sum::<i64>()
    };
    all.sort_by_key(|d| (-moved(d), d["dev"].as_i64()));
    json!({
        "from_ns": w.from_ns, "span_ns": w.span_ns, "operations": operations(w), "devices": all,
        "classes": classes(&w.bios), "layout": layout(&w.bios), "readahead": readahead(w),
        "stages_not_told": null,
        "requests_not_told": 0,
    })
}
