//! Perfetto traces, taken apart again by a decoder of their own.

use std::{collections::BTreeMap, fs, path::Path};

use ioreel_traces::{
    Manifest, Reel, ReelWriter, WriterOptions,
    export::perfetto::{Exported, Options, export},
    manifest::{Device, Kind},
    rows::{Bio, Block, Op, Task},
};

/// The fields of a message: number, and integer or bytes.
#[derive(Debug, Clone)]
enum Field<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

fn decode(mut b: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(b: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = b[0];
            *b = &b[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut out = Vec::new();
    while !b.is_empty() {
        let key = varint(&mut b);
        let field = match key & 7 {
            0 => Field::Int(varint(&mut b)),
            1 => {
                let value = u64::from_le_bytes(b[..8].try_into().unwrap());
                b = &b[8..];
                Field::Int(value)
            }
            2 => {
                let len = varint(&mut b) as usize;
                let value = &b[..len];
                b = &b[len..];
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, field));
    }
    out
}

fn int(message: &[(u64, Field<'_>)], number: u64) -> Option<u64> {
    message.iter().find_map(|(n, f)| match f {
        Field::Int(v) if *n == number => Some(*v),
        _ => None,
    })
}

fn bytes<'a>(message: &[(u64, Field<'a>)], number: u64) -> Option<&'a [u8]> {
    message.iter().find_map(|(n, f)| match f {
        Field::Bytes(v) if *n == number => Some(*v),
        _ => None,
    })
}

/// Track, name, start, end, flows, ends of flows.
type Slice = (u64, String, u64, u64, Vec<u64>, Vec<u64>);

/// What a trace shows.
#[derive(Debug, Default)]
struct Shown {
    /// Name and parent by track.
    tracks: BTreeMap<u64, (String, Option<u64>)>,
    slices: Vec<Slice>,
    /// Points by track.
    counters: BTreeMap<u64, Vec<(u64, f64)>>,
}

fn shown(path: &Path) -> Shown {
    let raw = fs::read(path).unwrap();
    let mut out = Shown::default();
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut open: BTreeMap<u64, usize> = BTreeMap::new();
    for (i, (number, packet)) in decode(&raw).into_iter().enumerate() {
        let Field::Bytes(packet) = packet else { panic!("a packet is a message") };
        assert_eq!(number, 1);
        let packet = decode(packet);
        assert_eq!((int(&packet, 10), int(&packet, 13)), (Some(1), Some(if i == 0 { 3 } else { 2 })));
        if let Some(track) = bytes(&packet, 60) {
            let track = decode(track);
            let thread = bytes(&track, 4).map(decode);
            let name = thread.as_deref().and_then(|t| bytes(t, 5)).or(bytes(&track, 2)).unwrap_or_default();
            let name = String::from_utf8(name.to_vec()).unwrap();
            assert!(out.tracks.insert(int(&track, 1).unwrap(), (name, int(&track, 5))).is_none());
            continue;
        }
        for (number, field) in bytes(&packet, 12).map(decode).unwrap_or_default() {
            let Field::Bytes(entry) = field else { panic!("an entry is a message") };
            let entry = decode(entry);
            if number == 2 {
                names.insert(int(&entry, 1).unwrap(), String::from_utf8(bytes(&entry, 2).unwrap().to_vec()).unwrap());
            }
        }
        let at = int(&packet, 8).unwrap();
        let event = decode(bytes(&packet, 11).unwrap());
        let track = int(&event, 11).unwrap();
        assert!(out.tracks.contains_key(&track), "an event before its track");
        let all = |number: u64| {
            let of = event.iter().filter(|(n, _)| *n == number);
            of.map(|(_, f)| if let Field::Int(v) = f { *v } else { 0 }).collect::<Vec<_>>()
        };
        match int(&event, 9).unwrap() {
            1 => {
                let name = names[&int(&event, 10).unwrap()].clone();
                assert!(open.insert(track, out.slices.len()).is_none(), "slices of a track overlap");
                if let Some(before) = out.slices.iter().rev().find(|s| s.0 == track) {
                    assert!(before.3 <= at, "slices of a track overlap");
                }
                out.slices.push((track, name, at, 0, all(47), all(48)));
            }
            2 => {
                let slice = open.remove(&track).unwrap();
                out.slices[slice].3 = at;
            }
            4 => out.counters.entry(track).or_default().push((at, f64::from_bits(all(44)[0]))),
            other => panic!("event type {other}"),
        }
    }
    assert!(open.is_empty(), "a slice without an end");
    out
}

/// Two calls, each behind one of two requests that overlap, and a read without a call.
fn reel(path: &Path) -> Reel {
    let dev = 8 << 20;
    let m = Manifest {
        devices: vec![Device { dev, name: "sda".into(), ..Device::default() }],
        ..Manifest::new(Kind::Synthetic, "synthetic")
    };
    let mut w = ReelWriter::create(path, &m, WriterOptions::default()).unwrap();
    w.tasks.push(Task { task_id: 5, pid: 10, tid: 11, comm: "writer".into(), ..Task::default() }).unwrap();
    for i in 0..2 {
        w.ops
            .push(Op {
                op_id: i,
                start_ns: 1_000_000 * i,
                dur_ns: 500_000,
                task_id: 5,
                pid: 10,
                tid: 11,
                op: "write".into(),
                source: "syscall".into(),
                state: "complete".into(),
                ret: Some(512),
                ..Op::default()
            })
            .unwrap();
    }
    for i in 0..3 {
        w.block
            .push(Block {
                rq_id: i,
                issue_ns: 2_000_000 + 100_000 * i,
                complete_ns: Some(4_000_000 + 100_000 * i),
                dev,
                sector: i * 100,
                len_bytes: 512,
                op: if i < 2 { "write" } else { "read" }.into(),
                ..Block::default()
            })
            .unwrap();
        w.bio
            .push(Bio {
                bio_id: i,
                rq_id: Some(i),
                queue_ns: 1_500_000,
                complete_ns: Some(4_000_000 + 100_000 * i),
                dev,
                op: "write".into(),
                class: "data".into(),
                cause: (i < 2).then_some(i),
                ..Bio::default()
            })
            .unwrap();
    }
    w.close(m).unwrap();
    Reel::open(path).unwrap()
}

#[test]
fn calls_requests_flows_and_rates_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("a.pftrace");
    let made: Exported = export(&reel(&dir.path().join("a.reel")), &out, &Options::default()).unwrap();
    assert_eq!((made.events, made.slices, made.flows), (5, 5, 2));
    let trace = shown(&out);
    let calls: Vec<_> = trace.slices.iter().filter(|s| trace.tracks[&s.0].0 == "writer").collect();
    assert_eq!(
        calls.iter().map(|s| (s.1.as_str(), s.2, s.3)).collect::<Vec<_>>(),
        [("write", 0, 500_000), ("write", 1_000_000, 1_500_000)]
    );
    let requests: Vec<_> = trace.slices.iter().filter(|s| trace.tracks[&s.0].0 == "requests").collect();
    let lanes: std::collections::BTreeSet<u64> = requests.iter().map(|s| s.0).collect();
    assert_eq!((requests.len(), lanes.len()), (3, 3), "each of three at once has a lane");
    for (call, request) in calls.iter().zip(&requests) {
        assert_eq!((call.4.len(), &call.4), (1, &request.5), "the flow leads from call to request");
    }
    assert!(requests[2].5.is_empty());
    let disk = trace.tracks[&requests[0].0].1.unwrap();
    assert_eq!(trace.tracks[&disk].0, "disk sda");
    let sum = |name: &str| {
        let (id, _) = trace.tracks.iter().find(|(_, t)| t.0 == name && t.1 == Some(disk)).unwrap();
        let points = &trace.counters[id];
        let areas = points.windows(2).map(|p| p[0].1 * (p[1].0 - p[0].0) as f64 / 1e9);
        areas.sum::<f64>().round()
    };
    assert_eq!((sum("read"), sum("written"), sum("requests done"), sum("seeks")), (512.0, 1024.0, 3.0, 2.0));
}

#[test]
fn a_window_and_a_cap_leave_slices_out_and_no_rates() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("samples/mail.reel");
    let reel = Reel::open(sample).unwrap();
    let at = |name: &str| dir.path().join(name);
    let all = export(&reel, &at("all"), &Options::default()).unwrap();
    assert_eq!(all.slices, all.events);
    let few = export(&reel, &at("few"), &Options { most_slices: 1000, ..Options::default() }).unwrap();
    assert!(few.events == all.events && few.slices <= 1000 && few.slices > 500, "{few:?}");
    let (all, few) = (shown(&at("all")), shown(&at("few")));
    let slowest = |s: &Shown| s.slices.iter().map(|s| s.3 - s.2).max();
    assert_eq!(slowest(&all), slowest(&few));
    let points = |s: &Shown| s.counters.values().cloned().collect::<Vec<_>>();
    assert_eq!(points(&all), points(&few), "rates are complete");
    let some = Options { from_ns: 1_000_000_000, to_ns: 2_000_000_000, ..Options::default() };
    export(&reel, &at("some"), &some).unwrap();
    assert!(shown(&at("some")).slices.iter().all(|s| s.3 >= 1_000_000_000 && s.2 < 2_000_000_000));
    let nothing = Options { from_ns: i64::MAX - 1, ..Options::default() };
    let e = export(&reel, &at("none"), &nothing).unwrap_err().to_string();
    assert!(e.contains("no calls and no requests in this window") && !at("none").exists(), "{e}");
}
