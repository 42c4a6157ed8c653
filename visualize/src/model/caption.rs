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
