//! Printing that never panics: a full disk behind standard output is an error of its own, told in one line,
//! and what cannot be told on standard error is not told.

use std::{
    fmt::Arguments,
    io::{Write, stderr, stdout},
    process::exit,
};

/// Prints a line on standard output; ends the program with status 1 when that is not possible.
pub(crate) fn to_stdout(text: Arguments<'_>) {
    if let Err(e) = writeln!(stdout().lock(), "{text}") {
        to_stderr(format_args!("ioreel: writing to standard output: {e}"));
        exit(1);
    }
}

/// Prints a line on standard error, if that can be.
pub(crate) fn to_stderr(text: Arguments<'_>) {
    let _ = writeln!(stderr().lock(), "{text}");
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

pub(crate) use {out, tell};
