//! `docs/calls.md` lists every call with what is captured of it and whether a replay issues it, as the code has it.
#![cfg(feature = "capture")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's failure is a panic")]

use std::{fmt::Write, fs, path::PathBuf};

use ioreel_capture::calls::{self, Call};

/// How to bring the document up to date, as told when it is not.
const UPDATE: &str = "IOREEL_UPDATE_DOCS=1 cargo test --test calls_doc";

const BEGIN: &str = "<!-- calls -->\n";
const END: &str = "<!-- end -->\n";

fn line(out: &mut String, title: &str, call: &Call, command: Option<i64>, replayed: bool) {
    let columns: Vec<String> = calls::columns(call, command).iter().map(|c| format!("`{c}`")).collect();
    let columns = if columns.is_empty() { "-".into() } else { columns.join(", ") };
    let numbers: Vec<String> = calls::compat()
        .iter()
        .filter(|c| c.call.is_some_and(|x| x.name == call.name))
        .map(|c| c.nr.to_string())
        .collect();
    let numbers = if numbers.is_empty() { "-".into() } else { numbers.join(", ") };
    let replayed = match replayed {
        true => "yes",
        false if ioreel_replay::reel::submission::is_about_rings(title) => "by its requests",
        false => "",
    };
    writeln!(out, "| {title} | {columns} | {numbers} | {replayed} |").unwrap();
}

fn table() -> String {
    let mut out = String::from("| call | columns | i386 numbers | replayed |\n|---|---|---|---|\n");
    let known = |op: &str, flags: i64, name: Option<&str>| {
        ioreel_replay::Call::of(op, flags, name) != ioreel_replay::Call::Other
    };
    let mut all: Vec<&Call> = calls::all().collect();
    all.sort_by_key(|c| c.name);
    for call in all {
        match call.name {
            "fcntl" => {
                for (name, command) in calls::COMMANDS {
                    let title = format!("fcntl {name}");
                    line(&mut out, &title, call, Some(command.into()), known("fcntl", command.into(), None));
                }
            }
            "ioctl" => {
                let mut told = Vec::new();
                for request in calls::REQUESTS {
                    if told.contains(&request.name) {
                        continue;
                    }
                    told.push(request.name);
                    let title = format!("ioctl {}", request.name);
                    let number = i64::from(request.number);
                    line(&mut out, &title, call, Some(number), known("ioctl", number, Some(request.name)));
                }
                line(&mut out, "ioctl, any other", call, Some(0x7f7f), false);
            }
            name => line(&mut out, name, call, None, known(name, 0, None)),
        }
    }
    out
}

#[test]
fn the_document_lists_every_call() {
    let path = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("docs/calls.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let right = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("IOREEL_UPDATE_DOCS").is_some() {
        fs::write(&path, &right).unwrap();
    } else if text != right {
        let line = text.lines().zip(right.lines()).find(|(a, b)| a != b);
        panic!("docs/calls.md differs from the code, first here: {line:#?}\nto update it: {UPDATE}");
    }
}
