//! Printing that never panics, and that no name or word of a reel can disturb: each call prints one line, and characters
//! that would end the line, control the terminal or turn the direction of writing are replaced.
//! A failed write to standard output (a full disk) is reported on one line and ends the
//! program. If the reader of a pipe is gone (`| head`), the rest is not printed. A failed write to standard error is
//! ignored.

use std::{
    fmt::Arguments,
    io::{ErrorKind, IsTerminal, Write, stderr, stdout},
    path::Path,
    process::exit,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context;

use ioreel_traces::private::Output;
pub(crate) use ioreel_traces::text::is_harmful;
use serde::Serialize;

/// Escape codes that [`bold`](crate::columns::bold) and [`dim`](crate::columns::dim) use.
const STYLES: [&str; 3] = ["\x1b[1m", "\x1b[2m", "\x1b[0m"];

/// Whether -q was given.
static QUIET: AtomicBool = AtomicBool::new(false);

/// From now on only errors and warnings are printed on standard error.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only errors and warnings are printed on standard error.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints one line on standard output; ends the program with status 1 if that fails.
pub(crate) fn to_stdout(text: Arguments<'_>) {
    as_it_is(&styled_line(&text.to_string()));
}

/// Prints JSON on standard output, with control characters escaped.
pub(crate) fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(document).context("encoding the JSON")?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            c if is_harmful(c) => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    as_it_is(&out);
    Ok(())
}

/// Prints text unchanged, escape codes included; fails as [`to_stdout`] does.
pub(crate) fn as_it_is(text: &str) {
    // The command goes on without a reader: a replay still has a verdict to return.
    if let Err(e) = writeln!(stdout().lock(), "{text}")
        && e.kind() != ErrorKind::BrokenPipe
    {
        to_stderr(format_args!("ioreel: writing to standard output: {e}"));
        exit(1);
    }
}

/// Prints one line on standard error; failures are ignored.
pub(crate) fn to_stderr(text: Arguments<'_>) {
    let _ = writeln!(stderr().lock(), "{}", one_line(&text.to_string()));
}

/// Writes a file that only its owner may read, whole or not at all.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut output = Output::replace(path)?;
    output.write_all(bytes)?;
    output.keep()
}

/// Text on one line, with harmful characters replaced.
pub(crate) fn one_line(name: &str) -> String {
    name.replace(is_harmful, "\u{FFFD}")
}

/// The same, except our own styles on a terminal.
fn styled_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_harmful) {
        let (before, from) = rest.split_at(at);
        let own = STYLES.iter().find(|s| from.starts_with(**s)).filter(|_| stdout().is_terminal());
        let (shown, len) =
            own.map_or_else(|| ("\u{FFFD}", from.chars().next().map_or(0, char::len_utf8)), |s| (*s, s.len()));
        out.push_str(before);
        out.push_str(shown);
        rest = &from[len..];
    }
    out.push_str(rest);
    out
}

/// `println!` by [`to_stdout`].
macro_rules! out {
    () => { $crate::output::to_stdout(format_args!("")) };
    ($($t:tt)+) => { $crate::output::to_stdout(format_args!($($t)+)) };
}

/// `eprintln!` by [`to_stderr`].
macro_rules! tell {
    ($($t:tt)+) => { $crate::output::to_stderr(format_args!($($t)+)) };
}

/// `tell!` of what is neither an error nor a warning: nothing with -q.
macro_rules! say {
    ($($t:tt)+) => { if !$crate::output::is_quiet() { $crate::output::tell!($($t)+) } };
}

pub(crate) use {out, say, tell};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_nothing_to_a_terminal() {
        assert_eq!(one_line("a\x1b]0;x\x07\nb\u{9b}2Jé"), "a\u{FFFD}]0;x\u{FFFD}\u{FFFD}b\u{FFFD}2Jé");
        assert_eq!(styled_line("a line\nand \x1b[2Janother\x7f"), "a line\u{FFFD}and \u{FFFD}[2Janother\u{FFFD}");
        assert_eq!(one_line("invoice\u{202e}fdp.sh"), "invoice\u{FFFD}fdp.sh");
    }
}
