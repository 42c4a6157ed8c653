//! Reads Rust source as far as the checks need it: which paths a file uses, where its functions begin and end.

use std::collections::BTreeMap;

/// A path that a file uses, as written, with `self` and `super` resolved: the segments below the crate's root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Line of the path, from 1.
    pub line: usize,
    /// Module in which the path stands.
    pub module: Vec<String>,
    /// Segments. With `from_root` they start at the crate's root, else at `module` or another crate.
    pub path: Vec<String>,
    pub from_root: bool,
    /// The name that a `use` brings into `module`; `*` for all names; none for a path in an expression.
    pub binds: Option<String>,
    /// Whether it is a `pub use` of any visibility.
    pub exported: bool,
}

/// A function with its body.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: String,
    /// First line, from 1.
    pub line: usize,
    /// Lines from `fn` to the closing brace.
    pub lines: usize,
    /// Whether a line of its doc comment begins with "Long because".
    pub reason: bool,
}

/// The text with comments, strings and character literals replaced by spaces; lines and offsets stay.
pub(crate) fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => find(bytes, at, b"\n"),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment(bytes, at),
            b'"' => string(bytes, at),
            b'r' if !is_word(bytes, at) => raw_string(bytes, at).unwrap_or(at),
            b'b' | b'c' if !is_word(bytes, at) && bytes.get(at + 1) == Some(&b'r') => {
                raw_string(bytes, at + 1).unwrap_or(at)
            }
            b'\'' => character(bytes, at).unwrap_or(at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    // Only whole comments and literals were replaced, so what remains is UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether the byte at `at` continues a word.
fn is_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// Offset of `what` from `at` on, or the end.
fn find(bytes: &[u8], at: usize, what: &[u8]) -> usize {
    bytes[at..].windows(what.len()).position(|w| w == what).map_or(bytes.len(), |i| at + i)
}

/// End of a block comment; they nest.
fn block_comment(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut at) = (0, at);
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    bytes.len().min(at + 1)
}

/// End of a raw string whose `r` is at `at`; none for a raw identifier or a plain word.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|b| **b == b'#').count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then(|| {
        let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
        bytes.len().min(find(bytes, at + 2 + hashes, &close) + close.len())
    })
}

/// End of a character literal; none for a lifetime.
fn character(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return Some(bytes.len().min(find(bytes, at + 3, b"'") + 1));
    }
    let width = match bytes.get(at + 1)? {
        0..0x80 => 1,
        0x80..0xe0 => 2,
        0xe0..0xf0 => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + 2 + width)
}

/// A word or a single other character, with its offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Token<'a> {
    at: usize,
    text: &'a str,
}

/// The tokens of blanked text. `::` is one token.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let mut end = at + c.len_utf8();
        if c.is_alphanumeric() || c == '_' {
            while let Some((i, c)) = rest.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
                end = i + c.len_utf8();
            }
        } else if c == ':' {
            if rest.next_if(|(_, c)| *c == ':').is_some() {
                end += 1;
            }
        } else if c.is_whitespace() {
            continue;
        }
        found.push(Token { at, text: &text[at..end] });
    }
    found
}

/// Words that begin an item.
const ITEMS: [&str; 15] = [
    "pub",
    "fn",
    "mod",
    "impl",
    "struct",
    "use",
    "const",
    "static",
    "enum",
    "trait",
    "type",
    "unsafe",
    "async",
    "extern",
    "macro_rules",
];

/// Removes the items under `#[cfg(test)]`; gives the tokens left and the names of the modules removed.
fn without_tests<'a>(all: &[Token<'a>]) -> (Vec<Token<'a>>, Vec<&'a str>) {
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < all.len() {
        let Some(after) = test_attribute(all, at) else {
            kept.push(all[at]);
            at += 1;
            continue;
        };
        let mut start = after;
        while all.get(start).is_some_and(|t| t.text == "#") {
            start = matching(all, start + 1) + 1;
        }
        at = item_end(all, start);
        let item = &all[start.min(at)..at];
        modules.extend(item.windows(2).find(|w| w[0].text == "mod").map(|w| w[1].text));
    }
    (kept, modules)
}

/// Index after `#[cfg(test)]` or `#[cfg(all(test, …))]` at `at`.
fn test_attribute(all: &[Token<'_>], at: usize) -> Option<usize> {
    let head: Vec<&str> = all[at..].iter().take(6).map(|t| t.text).collect();
    let is_test = matches!(head[..], ["#", "[", "cfg", "(", "test", ")"] | ["#", "[", "cfg", "(", "all", "("])
        && all[at..=matching(all, at + 1).min(all.len() - 1)].iter().any(|t| t.text == "test")
        && !all[at..=matching(all, at + 1).min(all.len() - 1)].iter().any(|t| t.text == "not");
    is_test.then(|| matching(all, at + 1) + 1)
}

/// Index of the bracket that closes the one at `open`, or the end.
fn matching(all: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in all.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    all.len()
}

/// Index after the item, field or match arm that begins at `start`.
fn item_end(all: &[Token<'_>], start: usize) -> usize {
    let first = all.get(start).map_or("", |t| t.text);
    let is_item = ITEMS.contains(&first);
    let is_use =
        all[start.min(all.len())..].iter().take_while(|t| t.text != ";" && t.text != "{").any(|t| t.text == "use");
    let mut at = start;
    while let Some(token) = all.get(at) {
        match token.text {
            ";" => return at + 1,
            "," if !is_item => return at + 1,
            ")" | "]" | "}" => return at,
            "(" | "[" => at = matching(all, at),
            "{" if is_use => at = matching(all, at),
            "{" => return (matching(all, at) + 1).min(all.len()),
            _ => {}
        }
        at += 1;
    }
    all.len()
}

/// What one file says: the paths it uses outside tests, and modules that exist in tests only.
pub(crate) struct Source {
    pub uses: Vec<Use>,
    pub test_modules: Vec<String>,
}

/// Reads the file of module `module`, given as segments below the crate's root.
pub(crate) fn read(text: &str, module: &[String]) -> Source {
    let blanked = blank(text);
    let all = tokens(&blanked);
    let whole_file = all.windows(7).any(|w| w.iter().map(|t| t.text).eq(["#", "!", "[", "cfg", "(", "test", ")"]));
    if whole_file {
        return Source { uses: Vec::new(), test_modules: Vec::new() };
    }
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
    let line = |at: usize| starts.partition_point(|s| *s <= at);
    let (kept, test_modules) = without_tests(&all);
    let mut uses = Vec::new();
    // The modules that are open, each with the depth of braces outside it.
    let (mut module, mut open, mut depth) = (module.to_vec(), Vec::new(), 0);
    let mut at = 0;
    while at < kept.len() {
        let follows = |n: usize| kept.get(at + n).map_or("", |t| t.text);
        match kept[at].text {
            "mod" if follows(2) == "{" => {
                open.push(depth);
                module.push(follows(1).to_owned());
                (depth, at) = (depth + 1, at + 3);
            }
            "{" => (depth, at) = (depth + 1, at + 1),
            "}" => {
                (depth, at) = (depth - 1, at + 1);
                if open.last() == Some(&depth) {
                    open.pop();
                    module.pop();
                }
            }
            "use" if follows(1) != "<" => {
                let exported = at > 0 && matches!(kept[at - 1].text, "pub" | ")");
                let end = kept[at..].iter().position(|t| t.text == ";").map_or(kept.len(), |n| at + n);
                for (place, path, binds) in tree(&kept[at + 1..end], &[]) {
                    uses.push(resolved(line(place), &module, path, Some(binds), exported));
                }
                at = end + 1;
            }
            word if is_name(word) && follows(1) == "::" && (at == 0 || kept[at - 1].text != "::") => {
                let mut path = vec![word];
                let start = at;
                at += 1;
                while at + 1 < kept.len() && kept[at].text == "::" && is_name(kept[at + 1].text) {
                    path.push(kept[at + 1].text);
                    at += 2;
                }
                // `pub(in crate::x)` is no use.
                if start == 0 || kept[start - 1].text != "in" || start < 2 || kept[start - 2].text != "(" {
                    uses.push(resolved(line(kept[start].at), &module, path, None, false));
                }
            }
            _ => at += 1,
        }
    }
    Source { uses, test_modules: test_modules.into_iter().map(str::to_owned).collect() }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The leaves of a use tree: offset, path and the name that it binds.
fn tree<'a>(tokens: &[Token<'a>], prefix: &[&'a str]) -> Vec<(usize, Vec<&'a str>, String)> {
    let mut leaves = Vec::new();
    for branch in branches(tokens) {
        let mut path = prefix.to_vec();
        let mut at = 0;
        while at < branch.len() {
            match branch[at].text {
                "::" => {}
                "{" => {
                    leaves.extend(tree(&branch[at + 1..matching(branch, at).min(branch.len())], &path));
                    break;
                }
                "as" => break,
                word => path.push(word),
            }
            at += 1;
        }
        if branch.get(at).is_some_and(|t| t.text == "{") {
            continue;
        }
        if path.last() == Some(&"self") && path.len() > 1 {
            path.pop();
        }
        let named = branch.get(at + 1).map_or_else(|| path.last().copied().unwrap_or(""), |alias| alias.text);
        if let Some(first) = branch.first() {
            leaves.push((first.at, path.clone(), named.to_owned()));
        }
    }
    leaves
}

/// Tokens between the commas that stand in no braces.
fn branches<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b [Token<'a>]> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0);
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[start..]);
    found
}

/// Resolves `crate`, `self` and `super` at the head of a path.
fn resolved(line: usize, module: &[String], path: Vec<&str>, binds: Option<String>, exported: bool) -> Use {
    let (mut base, mut from_root, mut at) = (module.to_vec(), false, 0);
    if path.first() == Some(&"crate") {
        (base, from_root, at) = (Vec::new(), true, 1);
    }
    while let Some(head) = path.get(at).filter(|s| matches!(**s, "self" | "super")) {
        if *head == "super" {
            base.pop();
        }
        (from_root, at) = (true, at + 1);
    }
    let rest = path[at..].iter().map(|s| (*s).to_owned());
    let path = if from_root { base.into_iter().chain(rest).collect() } else { rest.collect() };
    Use { line, module: module.to_vec(), path, from_root, binds, exported }
}

/// The functions of a file of Rust that have a body.
pub(crate) fn functions(text: &str) -> Vec<Function> {
    let blanked = blank(text);
    let all = tokens(&blanked);
    let lines: Vec<&str> = text.lines().collect();
    let line = |at: usize| text[..at].matches('\n').count() + 1;
    let mut found = Vec::new();
    for (i, pair) in all.windows(2).enumerate().filter(|(_, w)| w[0].text == "fn" && is_name(w[1].text)) {
        let mut at = i + 2;
        while at < all.len() && !matches!(all[at].text, "{" | ";") {
            at = if matches!(all[at].text, "(" | "[") { matching(&all, at) + 1 } else { at + 1 };
        }
        let close = matching(&all, at);
        if all.get(at).is_some_and(|t| t.text == "{") && close < all.len() {
            let (first, last) = (line(pair[0].at), line(all[close].at));
            let head = lines[..first - 1].iter().rev().map(|l| l.trim());
            let reason = head
                .take_while(|l| l.starts_with("//") || l.starts_with("#[") || l.ends_with(")]"))
                .any(|l| l.strip_prefix("/// ").is_some_and(|l| l.starts_with("Long because")));
            found.push(Function { name: pair[1].text.to_owned(), line: first, lines: last - first + 1, reason });
        }
    }
    found
}

/// The functions of a file of C: from the line at its margin that opens a body to the brace at the margin that ends it.
pub(crate) fn c_functions(text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let at_margin = |l: &str| l.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut found = Vec::new();
    let mut start = None;
    for (i, l) in lines.iter().enumerate() {
        if at_margin(l) && l.contains('(') && !["typedef", "struct {", "enum"].iter().any(|w| l.starts_with(w)) {
            start = Some(i);
        } else if l.trim_end() == "}" && !l.starts_with(char::is_whitespace) {
            if let Some(first) = start.take() {
                let head = lines[..first].iter().rev().take_while(|l| !l.is_empty() && **l != "}");
                let reason = head.map(|l| l.trim_start_matches(['/', '*', ' '])).any(|l| l.starts_with("Long because"));
                let name = lines[first].split('(').next().and_then(|n| n.split([' ', '*']).next_back()).unwrap_or("");
                found.push(Function { name: name.to_owned(), line: first + 1, lines: i - first + 1, reason });
            }
        } else if l.trim_end().ends_with(';') && at_margin(l) {
            start = None;
        }
    }
    found
}

/// Name and line of each `#include "…"`.
pub(crate) fn includes(text: &str) -> BTreeMap<String, usize> {
    let quoted =
        |l: &str| Some(l.trim().strip_prefix("#include")?.trim().strip_prefix('"')?.split('"').next()?.to_owned());
    text.lines().enumerate().filter_map(|(i, l)| Some((quoted(l)?, i + 1))).collect()
}
