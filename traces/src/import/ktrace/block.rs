//! Block records from `block:*` events.

use crate::{
    blktrace::{Record, act, category},
    import::{
        records::rwbs,
        words::{Words, bytes, device, number},
    },
};

/// Whether this is an event of the block layer.
pub(super) fn is_block(event: &[u8]) -> bool {
    event.starts_with(b"block_")
}

/// The letters that blkparse prints for an event.
fn letters(event: &[u8]) -> Option<&'static [u8]> {
    Some(match event {
        b"block_bio_queue" => b"Q",
        b"block_bio_backmerge" => b"M",
        b"block_bio_frontmerge" => b"F",
        b"block_bio_bounce" => b"B",
        b"block_bio_complete" | b"block_rq_complete" => b"C",
        b"block_bio_remap" => b"A",
        b"block_split" => b"X",
        b"block_getrq" => b"G",
        b"block_sleeprq" => b"S",
        b"block_rq_insert" => b"I",
        b"block_rq_issue" => b"D",
        b"block_rq_requeue" => b"R",
        _ => return None,
    })
}

/// A record and its payload, without its thread, CPU and time.
pub(super) type Parsed = (Record, Vec<u8>);

/// The record of an event. `Ok(None)`: the event is no record of a device. `Err`: it cannot be read.
pub(super) fn record(event: &[u8], rest: &[u8]) -> Result<Option<Parsed>, ()> {
    match letters(event) {
        Some(letters) => fields(letters, rest).map(Some).ok_or(()),
        None => Ok(None),
    }
}

/// The record of a line of the tracer `blk`, which has letters instead of the name of an event.
pub(super) fn of_tracer(rest: &[u8]) -> Option<Parsed> {
    let mut words = Words(rest);
    let dev = words.next();
    device(dev)?;
    let letters = words.next();
    rwbs::action(letters)?;
    let text = [dev, b" ", words.0].concat();
    fields(letters, &text)
}

/// Reads `DEV RWBS [BYTES] [(COMMAND)] SECTOR + SECTORS … [NAME or ERROR]`.
fn fields(letters: &[u8], rest: &[u8]) -> Option<Parsed> {
    let mut words = Words(rest);
    let dev = device(words.next())?;
    let kind = words.next();
    let mut r = Record { dev, action: rwbs::action(letters)? | rwbs::categories(kind)?, ..Record::default() };
    let event = r.action & 0xffff;
    // Requests have their length in bytes and a driver's command before the sector.
    let mut len: Option<u32> = None;
    let text = words.0.trim_ascii_start();
    let open = text.iter().position(|b| *b == b'(');
    let plus = text.iter().position(|b| matches!(b, b'+' | b'/'))?;
    if let Some(open) = open.filter(|open| *open < plus) {
        let before = text[..open].trim_ascii();
        if !before.is_empty() {
            len = Some(number(before)?);
        }
        let close = open + text[open..].iter().position(|b| *b == b')')?;
        words = Words(&text[close + 1..]);
    }
    r.sector = number(words.next())?;
    let sign = words.next();
    let count: u64 = number(words.next())?;
    let payload = match (sign, event) {
        (b"/", act::SPLIT) => count.to_be_bytes().to_vec(),
        (b"+", _) => {
            r.bytes = match len {
                Some(len) => len,
                None => bytes(count)?,
            };
            Vec::new()
        }
        _ => return None,
    };
    // Commands of drivers have neither direction nor sectors.
    if kind.starts_with(b"N") && matches!(event, act::ISSUE | act::COMPLETE | act::INSERT | act::REQUEUE) {
        r.action |= category::PC;
    }
    if event == act::REMAP {
        let arrow = words.0.windows(2).position(|w| w == b"<-")?;
        let mut words = Words(&words.0[arrow + 2..]);
        let from = device(words.next().strip_prefix(b"(")?.strip_suffix(b")")?)?;
        let sector: u64 = number(words.next())?;
        let [from, to] = [from, dev].map(u32::to_be_bytes);
        return Some((r, [&from[..], &to, &sector.to_be_bytes()].concat()));
    }
    if matches!(event, act::COMPLETE | act::REQUEUE) {
        let open = words.0.iter().rposition(|b| *b == b'[')?;
        let error = words.0[open + 1..].strip_suffix(b"]")?;
        r.error = number::<i32>(error)? as u16;
    }
    Some((r, payload))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn events_of_old_and_new_kernels() {
        let of = |event: &str, rest: &str| record(event.as_bytes(), rest.as_bytes()).unwrap().unwrap();
        let (r, _) = of("block_rq_issue", "8,0 WS 4096 () 12345 + 8 [fio]");
        assert_eq!((r.dev, r.sector, r.bytes, r.event()), (8 << 20, 12_345, 4096, "D"));
        let (r, _) = of("block_rq_issue", "259,0 RA 8192 () 12345 + 16 none,0,0 [a b]");
        assert_eq!((r.sector, r.bytes), (12_345, 8192));
        let (r, _) = of("block_rq_complete", "8,0 WS () 12345 + 8 be,0,4 [-5]");
        assert_eq!((r.bytes, r.error as i16, r.event()), (4096, -5, "C"));
        let (r, _) = of("block_rq_complete", "8,0 FF () 18446744073709551615 + 0 [0]");
        assert!(r.bytes == 0 && r.is(category::FLUSH) && !r.is(category::WRITE));
        let (r, _) = of("block_rq_issue", "8,0 N 36 (12 00 00 00 24 00) 0 + 0 [hald]");
        assert!(r.is(category::PC) && r.bytes == 36);
        let (r, payload) = of("block_split", "8,0 WS 100 / 108 [dd]");
        assert_eq!((r.sector, payload), (100, 108_u64.to_be_bytes().to_vec()));
        let (_, payload) = of("block_bio_remap", "8,0 W 2056 + 8 <- (8,1) 8");
        assert_eq!(payload.len(), 16);
        assert_eq!(record(b"block_plug", b"[dd]"), Ok(None));
        for bad in ["8,0 WS 12345 + x [0]", "8 WS 1 + 8 [0]", "8,0 ?? 1 + 8 [0]", "8,0 WS () 1 + 8 []", ""] {
            assert_eq!(record(b"block_rq_complete", bad.as_bytes()), Err(()), "{bad}");
        }
        let (r, _) = of_tracer(b"  8,0    Q   R 1024 + 8 [fio]").unwrap();
        assert_eq!((r.event(), r.sector, r.bytes), ("Q", 1024, 4096));
    }
}
