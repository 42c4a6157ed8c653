//! `docs/trace-format.md` lists the columns of the code.

use std::{fmt::Write, fs, path::PathBuf};

use arrow_schema::DataType;
use ioreel_traces::{
    manifest::FORMAT,
    table::Layout,
    tables::{TableInfo, all},
};

/// The command that updates the document, printed when it is out of date.
const UPDATE: &str = "IOREEL_UPDATE_DOCS=1 cargo test -p ioreel-traces --test it doc";

fn document(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../docs").join(name)
}

/// The columns of a table as Markdown.
fn columns(table: &TableInfo) -> String {
    let mut out = format!("Sorted by `{}` within a segment.", table.sorted_by);
    if let Some(id) = table.id {
        write!(out, " Id: `{id}`.").unwrap();
    }
    out.push_str("\n\n| column | type | null | layout | meaning |\n|---|---|---|---|---|\n");
    for c in &table.columns {
        let kind = match &c.data_type {
            DataType::Int32 => "int32",
            DataType::Int64 => "int64",
            DataType::Dictionary(_, _) => "string",
            DataType::Binary => "binary",
            other => panic!("name the type {other} for people"),
        };
        let layout = match c.layout {
            Layout::Dict => "dictionary",
            Layout::Delta => "delta",
            Layout::Split => "split",
            Layout::Ids => "ids",
            Layout::Plain => "plain",
        };
        let null = if c.nullable { "yes" } else { "" };
        // Links into the source become links within the document; a bar would end the cell.
        let doc = c
            .doc
            .trim()
            .replace("see `docs/trace-format.md`", "see above")
            .replace("[`block_flags`]", "[`flags`](#bits-of-flags)")
            .replace("[`sqe_flags`]", "[`sqe_flags`](#bits-of-sqe_flags)")
            .replace('|', "\\|");
        writeln!(out, "| `{}` | {kind} | {null} | {layout} | {doc} |", c.name).unwrap();
    }
    out
}

/// The document with the columns of every table between its markers.
fn with_columns(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    for table in all() {
        let begin = format!("<!-- columns of {} -->\n", table.name);
        let end = "<!-- end -->\n";
        let at = rest.find(&begin).unwrap_or_else(|| panic!("trace-format.md has no {begin:?} after the table before"));
        let body = at + begin.len();
        let stop = rest[body..].find(end).unwrap_or_else(|| panic!("{begin:?} has no {end:?}"));
        out.push_str(&rest[..body]);
        out.push_str(&columns(&table));
        rest = &rest[body + stop..];
    }
    out + rest
}

#[test]
fn the_document_lists_the_columns_of_the_code() {
    let path = document("trace-format.md");
    let text = fs::read_to_string(&path).unwrap();
    let right = with_columns(&text);
    if std::env::var_os("IOREEL_UPDATE_DOCS").is_some() {
        fs::write(&path, &right).unwrap();
    } else if text != right {
        let line = text.lines().zip(right.lines()).find(|(a, b)| a != b);
        panic!(
            "docs/trace-format.md differs from traces/src/format/rows.rs, first here: {line:#?}\nto update it: {UPDATE}"
        );
    }
}

#[test]
fn the_history_ends_at_the_version_of_the_code() {
    let text = fs::read_to_string(document("schema-changes.md")).unwrap();
    let newest = text.lines().find_map(|l| l.strip_prefix("## ")).unwrap();
    assert_eq!(newest.split_whitespace().next().unwrap(), format!("{}.{}", FORMAT.0, FORMAT.1));
}
