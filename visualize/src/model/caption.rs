//! The text above the column of a reel.

use crate::{
    canvas::scale::{count, duration},
    model::survey::Survey,
};

/// Description of a column in one line.
pub(crate) fn subtitle(s: &Survey) -> String {
    let mut parts = Vec::new();
    match (&s.device, s.fstype.is_empty()) {
        (Some(d), no_fs) => {
            let fs = if no_fs { String::new() } else { format!("{} on ", s.fstype) };
            let of = if d.devices > 1 { format!(", one of {} devices", d.devices) } else { String::new() };
            parts.push(format!("{fs}{}{of}", d.label));
        }
        (None, false) => parts.push(format!("{}, no block device below", s.fstype)),
        (None, true) => parts.push("no block device below, or none recorded".into()),
    }
    if s.elapsed_ns > 0 {
        let settle = if s.settle_ns > 0 { format!(" + {} settling", duration(s.settle_ns)) } else { String::new() };
        parts.push(format!("{}{settle}", duration(s.elapsed_ns)));
    }
    if s.kept_from_ns > 0 && s.kept_from_ns >= s.from_ns {
        parts.push(format!("events before {} were dropped", duration(s.kept_from_ns)));
    }
    if s.window != (false, false) {
        parts.push(format!("window from {} to {}", duration(s.from_ns), duration(s.to_ns)));
    }
    parts.join("  ·  ")
}

/// The title of a picture: the name of a single reel, the ratio of two.
pub(crate) fn title(surveys: &[Survey]) -> Option<String> {
    match surveys {
        [one] => Some(one.name.clone()),
        [a, b] => ratio(a, b),
        _ => None,
    }
}

/// The times of two reels and their ratio, in one sentence. `None` if a time is unknown, or only a part is drawn.
fn ratio(a: &Survey, b: &Survey) -> Option<String> {
    let whole = |s: &Survey| s.elapsed_ns > 0 && s.window == (false, false) && s.kept_from_ns == 0;
    if !whole(a) || !whole(b) {
        return None;
    }
    let (first, second) = (duration(a.elapsed_ns), duration(b.elapsed_ns));
    let (slow, fast) = if a.elapsed_ns >= b.elapsed_ns { (a, b) } else { (b, a) };
    let times = slow.elapsed_ns as f64 / fast.elapsed_ns as f64;
    Some(match times {
        t if t < LEAST_RATIO => format!("{first} against {second}: equally fast"),
        t if t < 9.95 => format!("{first} against {second}: {} is {t:.1} times as fast", fast.name),
        t => format!("{first} against {second}: {} is {} times as fast", fast.name, count(t.round() as u64)),
    })
}

/// Below this ratio, two reels are equally fast.
const LEAST_RATIO: f64 = 1.05;

/// Losses and incomplete ends. Empty if there are none.
pub(crate) fn notes(s: &Survey) -> String {
    let mut out = Vec::new();
    if s.lost > 0 {
        out.push(format!("{} events were lost (shaded red where known)", count(s.lost.unsigned_abs())));
    }
    if s.unfinished {
        out.push("the recording was not completed: its end is missing".into());
    } else if !s.cut_short.is_empty() {
        out.push(format!("the recording was ended {} before the recorded programs ended", s.cut_short));
    }
    if s.clock_jumps > 0 {
        let what = if s.clock_jumps == 1 { "request has" } else { "requests have" };
        out.push(format!("clock jumps: {} {what} times out of order (dotted)", count(s.clock_jumps)));
    }
    if s.clock_backs > 0 {
        let times = if s.clock_backs == 1 { "once" } else { "times" };
        let n = if s.clock_backs == 1 { String::new() } else { format!("{} ", count(s.clock_backs as u64)) };
        out.push(format!("the trace's clock went back {n}{times} (dotted)"));
    }
    out.join("; ")
}
