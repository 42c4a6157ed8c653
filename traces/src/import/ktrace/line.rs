//! Parses the part that lines of trace_pipe, `trace-cmd report` and `perf script` have in common: thread, CPU, time, event.

use crate::import::words::{Words, number, seconds};

/// An event.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// Name of the thread. Empty if the kernel did not know it.
    pub(super) comm: &'a [u8],
    pub(super) tid: i32,
    /// Process, if the line tells.
    pub(super) pid: Option<i32>,
    pub(super) cpu: u32,
    pub(super) time_ns: u64,
    /// Name of the event without its system. Empty if the text has none.
    pub(super) event: &'a [u8],
    /// What follows the name.
    pub(super) rest: &'a [u8],
}

/// Parses a line. `None` if it is no event.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let (time_at, time_end, time_ns) = time(line)?;
    let head = line[..time_at].trim_ascii();
    let (head, cpu) = match bracket(head) {
        Some((open, cpu)) => (head[..open].trim_ascii_end(), cpu),
        None => (head, 0),
    };
    let (head, process) = match head.strip_suffix(b")") {
        // A dash stands for an unknown process.
        Some(inner) => {
            let open = inner.iter().rposition(|b| *b == b'(')?;
            (head[..open].trim_ascii_end(), number::<i32>(inner[open + 1..].trim_ascii()))
        }
        None => (head, None),
    };
    let digits = head.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let (before, tid) = head.split_at(head.len() - digits);
    let tid: i32 = number(tid)?;
    let (comm, process) = match before.split_last()? {
        (b'-' | b' ' | b'\t', comm) => (comm, process),
        // perf can show process and thread.
        (b'/', comm) => {
            let digits = comm.iter().rev().take_while(|b| b.is_ascii_digit()).count();
            let (comm, pid) = comm.split_at(comm.len() - digits);
            (comm, number(pid))
        }
        _ => return None,
    };
    let comm = comm.trim_ascii();
    let comm = if comm == b"<...>" { b"" } else { comm };
    let (event, rest) = event(line[time_end..].trim_ascii());
    Some(Line { comm, tid, pid: process, cpu, time_ns, event, rest })
}

/// Start and end of the time, with its colon, and the time in ns.
fn time(line: &[u8]) -> Option<(usize, usize, u64)> {
    let mut from = 0;
    while let Some(colon) = line[from..].iter().position(|b| *b == b':') {
        let end = from + colon;
        let number = line[..end].iter().rev().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let at = end - number;
        let blank =
            at > 0 && line[at - 1].is_ascii_whitespace() && line.get(end + 1).is_none_or(u8::is_ascii_whitespace);
        if blank && let Some(ns) = seconds(&line[at..end]) {
            return Some((at, end + 1, ns));
        }
        from = end + 1;
    }
    None
}

/// Place and number of the CPU: the last `[001]` of a head.
fn bracket(head: &[u8]) -> Option<(usize, u32)> {
    let close = head.iter().rposition(|b| *b == b']')?;
    let open = head[..close].iter().rposition(|b| *b == b'[')?;
    Some((open, number(&head[open + 1..close])?))
}

/// The name of the event and what follows.
fn event(text: &[u8]) -> (&[u8], &[u8]) {
    let mut words = Words(text);
    let mut word = words.next();
    // perf can show the number of events since the last one.
    if !word.is_empty() && word.iter().all(u8::is_ascii_digit) {
        let mut after = Words(words.0);
        let next = after.next();
        if next.ends_with(b":") {
            (word, words) = (next, after);
        }
    }
    match word.strip_suffix(b":") {
        Some(name) if name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'-' | b'.')) => {
            let name = name.rsplit(|b| *b == b':').next().unwrap_or_default();
            (name, words.0.trim_ascii())
        }
        _ => (b"", text),
    }
}

/// The number of events that a message says were lost, and their CPU.
pub(super) fn lost(line: &[u8]) -> Option<(i32, i64)> {
    let text = std::str::from_utf8(line).ok()?.trim();
    if let Some((_, rest)) = text.split_once("PERF_RECORD_LOST lost ") {
        return Some((-1, rest.split_whitespace().next()?.parse().ok()?));
    }
    let (cpu, rest) = text.strip_prefix("CPU:")?.split_once(" [")?;
    let count = rest.split(|c: char| !c.is_ascii_digit()).find(|w| !w.is_empty());
    let told = rest.contains("LOST") || rest.contains("DROPPED");
    let count = count.map_or(Some(1), |n| n.parse().ok())?;
    told.then_some((cpu.trim().parse().ok()?, count))
}

/// Whether a line that is no event is part of the output all the same: heads, stacks, statistics.
pub(super) fn is_noise(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    // Addresses in a program may be short; perf indents stacks by a tab.
    let least = if line.starts_with(b"\t") { 1 } else { 8 };
    let hex = || {
        let word = Words(text).next();
        word.len() >= least && word.iter().all(u8::is_ascii_hexdigit)
    };
    text.is_empty()
        || text.starts_with(b"#")
        || text.starts_with(b"=>")
        || text.starts_with(b"cpus=")
        || text.starts_with(b"version = ")
        || text.starts_with(b"trace-cmd")
        || text.starts_with(b"CPU") && text.ends_with(b"is empty")
        || hex()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// A line, and its name, thread, process, CPU, ns, event and rest.
    type Head = (&'static str, &'static str, i32, Option<i32>, u32, u64, &'static str, &'static str);

    const HEADS: [Head; 7] = [
        (
            "     fio-1234    [001] d..1. 12345.678901: block_rq_issue: 8,0 W",
            "fio",
            1234,
            None,
            1,
            901_000,
            "block_rq_issue",
            "8,0 W",
        ),
        (
            "  kworker/u8:1-77  (     77) [000] .... 12345.678901: block_plug: [x]",
            "kworker/u8:1",
            77,
            Some(77),
            0,
            901_000,
            "block_plug",
            "[x]",
        ),
        (
            "   a-b c-12  (-------) [012] 12345.678901: sys_read(fd: 3)",
            "a-b c",
            12,
            None,
            12,
            901_000,
            "",
            "sys_read(fd: 3)",
        ),
        ("  <...>-9     [002] 12345.678901234: sys_exit: NR 0 = 5", "", 9, None, 2, 901_234, "sys_exit", "NR 0 = 5"),
        (
            "Web Content  4242 [003] 12345.678901:          1 block:block_rq_complete: 8,16 RM () 1",
            "Web Content",
            4242,
            None,
            3,
            901_000,
            "block_rq_complete",
            "8,16 RM () 1",
        ),
        (
            "swapper     0 [006] 12345.678901: block:block_rq_complete: 8,16 RM ()",
            "swapper",
            0,
            None,
            6,
            901_000,
            "block_rq_complete",
            "8,16 RM ()",
        ),
        (
            "fio  10/11 [006] 12345.678901:  syscalls:sys_enter_read: fd: 0x3",
            "fio",
            11,
            Some(10),
            6,
            901_000,
            "sys_enter_read",
            "fd: 0x3",
        ),
    ];

    #[test]
    fn heads_of_all_three_programs() {
        let of = |text: &'static str| parse(text.as_bytes()).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for (line, comm, tid, pid, cpu, ns, event, rest) in HEADS {
            let l = of(line);
            assert_eq!((&*text(l.comm), l.tid, l.pid, l.cpu), (comm, tid, pid, cpu), "{line}");
            assert_eq!((l.time_ns, &*text(l.event), &*text(l.rest)), (12_345_678_000_000 + ns, event, rest), "{line}");
        }
        for none in ["", "# tracer: nop", "cpus=4", "\tffffffff812 x+0x1 ([kernel.kallsyms])", "a 1.5: b", "12:00 x"] {
            assert_eq!(parse(none.as_bytes()), None, "{none}");
        }
        assert!(is_noise(b"\t           f8350 write+0x10 (/usr/lib/libc.so.6)") && is_noise(b"ffffffff81b056df x+0x1"));
        assert!(!is_noise(b"f8350 write") && !is_noise(b"\twrite"));
        assert_eq!(lost(b"CPU:1 [LOST 123 EVENTS]"), Some((1, 123)));
        assert_eq!(lost(b"CPU:3 [45 EVENTS DROPPED]"), Some((3, 45)));
        assert_eq!(lost(b"CPU:3 [x]"), None);
    }
}
