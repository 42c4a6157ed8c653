//! Parses a line of blkparse's default output, also with the columns of `-t`.

use crate::{
    blktrace::{Record, act, category, note},
    import::{
        records::rwbs,
        words::{Words, bytes, device, number, seconds},
    },
};

/// A record and what its line says beside it.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parsed<'a> {
    pub(super) record: Record,
    /// Name of the thread.
    pub(super) comm: Option<&'a [u8]>,
    /// First sector of the second part of a split bio.
    pub(super) second: Option<u64>,
    /// Device and sector before a remap.
    pub(super) from: Option<(u32, u64)>,
    /// Text of a message.
    pub(super) message: Option<&'a [u8]>,
    /// Whether the line gives a number of bytes or sectors. Completions of driver commands do not.
    pub(super) sized: bool,
}

/// Parses a line. `None` if it is none of blkparse's.
pub(super) fn parse(line: &[u8]) -> Option<Parsed<'_>> {
    // Mail quotes with `> `, and answers to answers with `> > ` or `>>`.
    let quotes = line.iter().take_while(|b| matches!(b, b'>' | b' ' | b'\t')).count();
    let line = &line[quotes..];
    let mut words = Words(line);
    let dev = device(words.next())?;
    let cpu = number(words.next())?;
    let sequence = number(words.next())?;
    let time_ns = seconds(words.next())?;
    let pid = number(words.next())?;
    let action = words.next();
    let mut parsed =
        Parsed { record: Record { sequence, time_ns, pid, dev, cpu, ..Record::default() }, ..Parsed::default() };
    if action == b"m" {
        parsed.record.action = category::NOTIFY | note::MESSAGE;
        // The kind of a message is `N`.
        words.next();
        parsed.message = Some(words.0.strip_prefix(b" ").unwrap_or(words.0));
        return Some(parsed);
    }
    parsed.record.action = rwbs::action(action)? | rwbs::categories(words.next())?;
    rest(&mut parsed, words)?;
    Some(parsed)
}

/// What follows the kind of a request depends on the action.
fn rest<'a>(parsed: &mut Parsed<'a>, mut words: Words<'a>) -> Option<()> {
    let r = &mut parsed.record;
    let event = r.action & 0xffff;
    let text = words.0.trim_ascii();
    let first: Option<u64> = number(words.peek());
    if let Some(sector) = first {
        words.next();
        r.sector = sector;
        match words.peek() {
            b"+" => {
                words.next();
                r.bytes = bytes(number(words.next())?)?;
                parsed.sized = true;
            }
            b"/" if event == act::SPLIT => {
                words.next();
                parsed.second = Some(number(words.next())?);
                // blkparse does not print the length of a bio that is split.
            }
            packet if is_packet(words.0, packet) && event != act::COMPLETE && event != act::REQUEUE => {
                (r.sector, r.bytes) = (0, u32::try_from(sector).ok()?);
                r.action |= category::PC;
                parsed.sized = true;
            }
            _ => parsed.sized = true,
        }
    } else if event == act::COMPLETE && is_packet(text, words.peek()) {
        r.action |= category::PC;
    } else {
        parsed.sized = true;
    }
    if event == act::REMAP {
        let arrow = words.0.windows(2).position(|w| w == b"<-")?;
        let mut words = Words(&words.0[arrow + 2..]);
        let dev = words.next().strip_prefix(b"(").and_then(|w| w.strip_suffix(b")"))?;
        parsed.from = Some((device(dev)?, number(words.next())?));
        return Some(());
    }
    let open = words.0.iter().position(|b| *b == b'[')?;
    let close = words.0.iter().rposition(|b| *b == b']').filter(|close| *close > open)?;
    let inner = &words.0[open + 1..close];
    match number::<i32>(inner) {
        Some(error) if event == act::COMPLETE || event == act::REQUEUE => r.error = error as u16,
        // A requeue by some kernels, and a format of the user's, name the thread at the end of a request too.
        _ => parsed.comm = Some(inner),
    }
    Some(())
}

/// Whether the text starts with a driver command, `(12 00 …`, and not with a duration, `(  123)`. `word`: its first word.
fn is_packet(text: &[u8], word: &[u8]) -> bool {
    let hex = |t: &[u8]| t.len() >= 2 && t[..2].iter().all(u8::is_ascii_hexdigit);
    word.first() == Some(&b'(')
        && hex(&word[1..])
        && (word.len() == 3 || word.len() == 4 && word.ends_with(b")"))
        && text.contains(&b')')
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_action() {
        let p = parse(b"  8,0    3       11     0.009507758   697  D   W 223490 + 56 [kjournald]").unwrap();
        let record = Record {
            sequence: 11,
            time_ns: 9_507_758,
            sector: 223_490,
            bytes: 56 * 512,
            action: act::ISSUE | category::ISSUE | category::WRITE,
            pid: 697,
            dev: 8 << 20,
            cpu: 3,
            ..Record::default()
        };
        assert_eq!((p.record, p.comm), (record, Some(&b"kjournald"[..])));
        let p = parse(b">>  > 254,0 1 11 0.004559130 0 C RAM 1064 + 8 ( 4344620) [65531]").unwrap();
        assert_eq!((p.record.bytes, p.record.error as i16, p.comm), (4096, -5, None));
        let p = parse(b"254,0 0 448 7.9 343 Q FWS [a b]]").unwrap();
        assert_eq!((p.record.bytes, p.record.sector, p.comm), (0, 0, Some(&b"a b]"[..])));
        let p = parse(b"254,0 0 452 7.965946140 0 C WS 0 (  33) [0]").unwrap();
        assert_eq!((p.record.bytes, p.record.error), (0, 0));
        let p = parse(b"8,0 1 2 0.5 9 X WS 285440 / 287960 [dd]").unwrap();
        assert_eq!((p.record.sector, p.second), (285_440, Some(287_960)));
        let p = parse(b"8,0 1 2 0.5 9 A RM 35976 + 8 <- (8,1) 33928").unwrap();
        assert_eq!(p.from, Some((8 << 20 | 1, 33928)));
        assert_eq!(parse(b"8,0 1 2 0.5 9 m N cfq12 insert").unwrap().message, Some(&b"cfq12 insert"[..]));
        let p = parse(b"8,0 1 2 0.5 9 D R 36 (12 00 00 00 24 00) [hald]").unwrap();
        assert!(p.record.is(category::PC) && p.record.bytes == 36 && p.sized);
        let p = parse(b"8,0 1 2 0.5 9 C R (12 00 00 00 24 00) [0]").unwrap();
        assert!(p.record.is(category::PC) && !p.sized);
        assert!(parse(b"8,0 1 2 0.5 9 UT N [kblockd] 3").is_some() && parse(b"8,0 1 2 0.5 9 P N [dd]").is_some());
        let p = parse(b"8,0 1 2 0.5 9 C W 1 + 8 [x] 4096").unwrap();
        assert_eq!((p.record.error, p.comm), (0, Some(&b"x"[..])));
        for bad in [
            "",
            "CPU0 (sda):",
            "8,0 1 2 0.5 9 D W 1 + 8",
            "8,0 1 2 0.5 9 D W 1 + 99999999999 [x]",
            "8,0 1 2 5 9 D W 1 + 8 [x]",
            "8,0 1 2 0.5 9 y W 1 + 8 [x]",
            "9999,0 1 2 0.5 9 D W 1 + 8 [x]",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
