//! What pairing makes of records whose truth is known.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;

#[derive(Default)]
struct Kept {
    blocks: Vec<Block>,
    bios: Vec<Bio>,
}

impl Rows for Kept {
    fn block(&mut self, row: Block) -> Result<()> {
        self.blocks.push(row);
        Ok(())
    }
    fn bio(&mut self, row: Bio) -> Result<()> {
        self.bios.push(row);
        Ok(())
    }
}

/// Rows of these records, each `(time, act and categories, sector, sectors, payload or error)`.
fn rows(records: &[(i64, u32, u64, u32, u64)]) -> (Kept, i64) {
    let (mut pairing, mut out) = (Pairing::new(), Kept::default());
    for (at, action, sector, len, extra) in records {
        let error = if action & 0xff == act::COMPLETE { *extra as u16 } else { 0 };
        let record = Record { sector: *sector, bytes: len * 512, action: *action, error, ..Record::default() };
        let nobody = || Queuer { task_id: None, comm: Text::default() };
        pairing.record(&record, &extra.to_be_bytes(), *at, nobody, &mut out).unwrap();
    }
    pairing.finish(&mut out).unwrap();
    out.blocks.sort_by_key(|b| (b.issue_ns, b.sector));
    out.bios.sort_by_key(|b| (b.queue_ns, b.sector));
    (out, pairing.unmatched)
}

const W: u32 = category::WRITE;
const R: u32 = category::READ;

/// Queueing, issue, completion, sector, sectors, error.
type Brief = (Option<i64>, i64, Option<i64>, i64, i64, i32);

/// The requests in short.
fn brief(out: &Kept) -> Vec<Brief> {
    out.blocks.iter().map(|b| (b.queue_ns, b.issue_ns, b.complete_ns, b.sector, b.len_bytes / 512, b.error)).collect()
}

#[test]
fn merges_at_both_ends_and_of_requests_make_one_request() {
    let base = 1 << 40;
    let (out, unmatched) = rows(&[
        (1, act::QUEUE | W, base + 8, 8, 0),
        (1, act::GET_RQ | W, base + 8, 8, 0),
        (2, act::QUEUE | W, base + 16, 8, 0),
        (2, act::BACK_MERGE | W, base + 16, 8, 0),
        (3, act::QUEUE | W, base, 8, 0),
        (3, act::FRONT_MERGE | W, base, 8, 0),
        (4, act::QUEUE | W, base + 24, 8, 0),
        (4, act::GET_RQ | W, base + 24, 8, 0),
        // A read of the same place is another matter.
        (5, act::QUEUE | R, base, 8, 0),
        (6, act::ISSUE | W, base, 32, 0),
        (7, act::ISSUE | R, base, 8, 0),
        (8, act::COMPLETE | R, base, 8, 0),
        (9, act::COMPLETE | W, base, 32, 0),
    ]);
    let at = base as i64;
    assert_eq!(brief(&out), [(Some(1), 6, Some(9), at, 32, 0), (Some(5), 7, Some(8), at, 8, 0)]);
    assert_eq!(out.bios.iter().filter(|b| b.rq_id == Some(out.blocks[0].rq_id)).count(), 4);
    assert_eq!(unmatched, 0);
}

#[test]
fn splits_parts_requeues_and_errors() {
    let (out, unmatched) = rows(&[
        (1, act::QUEUE | W, 0, 100, 0),
        (1, act::SPLIT | W, 0, 100, 60),
        (2, act::ISSUE | W, 0, 60, 0),
        (3, act::REQUEUE | W, 0, 60, 0),
        (4, act::ISSUE | W, 60, 40, 0),
        (5, act::ISSUE | W, 0, 60, 0),
        (6, act::COMPLETE | W, 0, 20, 0),
        (7, act::COMPLETE | W, 20, 40, 0),
        (8, act::COMPLETE | W, 60, 40, 0x1_0000 - 5),
    ]);
    let expected =
        [(Some(1), 4, Some(8), 60, 40, 5), (Some(1), 5, Some(6), 0, 20, 0), (Some(1), 5, Some(7), 20, 40, 0)];
    assert_eq!(brief(&out), expected);
    let counts: Vec<_> = out.blocks.iter().map(|b| (b.requeues, b.bios)).collect();
    assert_eq!(counts, [(Some(0), Some(1)), (Some(1), None), (Some(1), Some(1))]);
    let ends: Vec<_> = out.bios.iter().map(|b| (b.sector, b.len_bytes / 512, b.complete_ns)).collect();
    assert_eq!(ends, [(0, 60, Some(7)), (60, 40, Some(8))]);
    assert_eq!(unmatched, 0);
}

#[test]
fn flushes_discards_and_bios_without_requests() {
    let flush = category::FLUSH;
    let (out, unmatched) = rows(&[
        // A write with a flush before and after it: three requests, one bio.
        (1, act::QUEUE | W | flush | category::FUA, 8, 8, 0),
        (2, act::ISSUE | flush, 0, 0, 0),
        (3, act::COMPLETE | flush, 0, 0, 0),
        (4, act::ISSUE | W, 8, 8, 0),
        (5, act::COMPLETE | W, 8, 8, 0),
        (6, act::ISSUE | flush, 0, 0, 0),
        (7, act::COMPLETE | flush, 0, 0, 0),
        (8, act::COMPLETE | W | flush, 8, 0, 0),
        // A flush alone.
        (10, act::QUEUE | W | flush, 0, 0, 0),
        (11, act::COMPLETE | W | flush, 0, 0, 0),
        // A discard.
        (20, act::QUEUE | W | category::DISCARD, 64, 64, 0),
        (21, act::ISSUE | W | category::DISCARD, 64, 64, 0),
        // A device without requests.
        (30, act::QUEUE | R, 5, 1, 0),
        (31, act::COMPLETE | R, 5, 1, 0),
        // Of something before the trace.
        (40, act::COMPLETE | R, 99, 1, 0),
    ]);
    let ops: Vec<_> = out.blocks.iter().map(|b| (b.op.to_string(), b.sector, b.complete_ns)).collect();
    let expected = [("flush", -1, Some(3)), ("write", 8, Some(5)), ("flush", -1, Some(7)), ("discard", 64, None)];
    assert_eq!(ops, expected.map(|(op, sector, end)| (op.to_owned(), sector, end)));
    let bios: Vec<_> = out.bios.iter().map(|b| (&*b.class, b.rq_id.is_some(), b.complete_ns)).collect();
    assert_eq!(
        bios,
        [("unknown", true, Some(5)), ("flush", false, Some(11)), ("unknown", true, None), ("unknown", false, Some(31))]
    );
    assert_eq!(unmatched, 1);
}

#[test]
fn a_trace_without_completions_stays_bounded() {
    let (mut pairing, mut out) = (Pairing::new(), Kept::default());
    let nobody = || Queuer { task_id: None, comm: Text::default() };
    let n = MOST_OPEN as u64 * 5 / 4;
    for i in 0..n {
        for action in [act::QUEUE | R, act::ISSUE | R] {
            let record = Record { sector: i * 8, bytes: 4096, action, ..Record::default() };
            pairing.record(&record, &[], i as i64, nobody, &mut out).unwrap();
        }
        assert!(pairing.queues[&0].issued_count <= MOST_OPEN);
    }
    pairing.finish(&mut out).unwrap();
    assert_eq!((out.blocks.len() as u64, out.bios.len() as u64), (n, n));
    assert!(out.bios.iter().all(|b| b.rq_id.is_some()));
}
