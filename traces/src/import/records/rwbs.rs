//! The letters with which tools print the kind of a request (RWBS), and the letters of actions.

use crate::blktrace::{act, category};

/// The category bits of an RWBS field such as `WS`, `FWFSM` or `N`. `None` if it is none.
pub(in crate::import) fn categories(text: &[u8]) -> Option<u32> {
    let mut bits = 0;
    let mut rest = text;
    // A flush comes before the kind of the request: it is one that precedes a write, or the request itself.
    while let [b'F', more @ ..] = rest {
        bits |= category::FLUSH;
        rest = more;
    }
    let (kind, flags) = match rest {
        [b'R', more @ ..] => (category::READ, more),
        [b'W', b'Z', more @ ..] | [b'W', more @ ..] | [b'Z', b'A', more @ ..] => (category::WRITE, more),
        [b'D', b'E', more @ ..] | [b'D', more @ ..] => (category::WRITE | category::DISCARD, more),
        [b'N', more @ ..] => (0, more),
        // A bare flush, with the flags of the request.
        _ if bits != 0 => (0, rest),
        _ => return None,
    };
    bits |= kind;
    for letter in flags {
        bits |= match letter {
            b'F' => category::FUA,
            b'A' => category::AHEAD,
            b'S' => category::SYNC,
            b'M' => category::META,
            // Atomic writes and older barriers have no category.
            b'U' | b'B' | b'E' | b'H' => 0,
            _ => return None,
        };
    }
    Some(bits)
}

/// The event of an action's letters, with its category. `None` if there is no such action.
pub(in crate::import) fn action(text: &[u8]) -> Option<u32> {
    Some(match text {
        b"Q" => act::QUEUE | category::QUEUE,
        b"M" => act::BACK_MERGE | category::QUEUE,
        b"F" => act::FRONT_MERGE | category::QUEUE,
        b"G" => act::GET_RQ | category::QUEUE,
        b"S" => act::SLEEP_RQ | category::QUEUE,
        b"R" => act::REQUEUE | category::REQUEUE,
        b"D" => act::ISSUE | category::ISSUE,
        b"C" => act::COMPLETE | category::COMPLETE,
        b"P" => act::PLUG | category::QUEUE,
        b"U" => act::UNPLUG | category::QUEUE,
        b"UT" | b"T" => act::UNPLUG_TIMER | category::QUEUE,
        b"I" => act::INSERT | category::QUEUE,
        b"X" => act::SPLIT | category::QUEUE,
        b"B" => act::BOUNCE,
        b"A" => act::REMAP | category::QUEUE,
        _ => return None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn letters_of_requests() {
        use category::{AHEAD, DISCARD, FLUSH, FUA, META, READ, SYNC, WRITE};
        for (text, bits) in [
            ("R", READ),
            ("RAM", READ | AHEAD | META),
            ("WSM", WRITE | SYNC | META),
            ("FWFSM", FLUSH | WRITE | FUA | SYNC | META),
            ("FWS", FLUSH | WRITE | SYNC),
            ("WFSM", WRITE | FUA | SYNC | META),
            ("FN", FLUSH),
            ("FF", FLUSH),
            ("FFS", FLUSH | SYNC),
            ("D", WRITE | DISCARD),
            ("DS", WRITE | DISCARD | SYNC),
            ("N", 0),
        ] {
            assert_eq!(categories(text.as_bytes()).unwrap(), bits, "{text}");
        }
        for bad in ["", "X", "RX", "8", "S", "read"] {
            assert_eq!(categories(bad.as_bytes()), None, "{bad}");
        }
    }
}
