//! The HTML document: markup, style and scripts from `page/`, and the data as base64. Names in a reel are never part of
//! the markup; scripts insert them as text only.

use std::hash::{DefaultHasher, Hasher};

use base64::{Engine, engine::general_purpose::STANDARD};

const MARKUP: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// Scripts in the order of use.
const SCRIPTS: &[&str] = &[
    include_str!("page/format.js"),
    include_str!("page/bundle.js"),
    include_str!("page/dataset.js"),
    include_str!("page/color.js"),
    include_str!("page/view.js"),
    include_str!("page/rates.js"),
    include_str!("page/density.js"),
    include_str!("page/panel.js"),
    include_str!("page/maps.js"),
    include_str!("page/heat.js"),
    include_str!("page/lines.js"),
    include_str!("page/overview.js"),
    include_str!("page/tip.js"),
    include_str!("page/mouse.js"),
    include_str!("page/head.js"),
    include_str!("page/tables.js"),
    include_str!("page/selection.js"),
    include_str!("page/served.js"),
    include_str!("page/main.js"),
];

/// Creates the document. If `served`, the page may request more data from its server.
pub(crate) fn html(bundle: &[u8], title: Option<&str>, served: bool) -> String {
    let data = STANDARD.encode(bundle);
    // The content security policy allows only these scripts, in case hostile markup gets into the page.
    let mut hasher = DefaultHasher::new();
    hasher.write(bundle);
    let nonce = format!("{:016x}", hasher.finish());
    let script = SCRIPTS.concat();
    let title = STANDARD.encode(title.unwrap_or_default());
    let connect = if served { "'self'" } else { "'none'" };
    let slots = [
        ("{{nonce}}", nonce.as_str()),
        ("{{connect}}", connect),
        ("{{served}}", if served { "yes" } else { "no" }),
        ("{{title}}", &title),
        ("{{style}}", STYLE),
        ("{{script}}", &script),
        ("{{data}}", &data),
    ];
    let mut out = String::with_capacity(data.len() + script.len() + STYLE.len() + 2 * MARKUP.len());
    let mut rest = MARKUP;
    // A single pass, so that inserted text is never searched for placeholders.
    while let Some(at) = rest.find("{{") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match slots.iter().find(|(slot, _)| rest.starts_with(slot)) {
            Some((slot, value)) => {
                out.push_str(value);
                rest = &rest[slot.len()..];
            }
            None => {
                out.push_str("{{");
                rest = &rest[2..];
            }
        }
    }
    out.push_str(rest);
    out
}
