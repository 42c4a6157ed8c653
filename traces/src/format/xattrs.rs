//! Extended attributes of a file as one text of a column: a JSON object.

use std::collections::BTreeMap;

use crate::format::text::{self, Text};

/// Extended attributes: name to value.
pub type Attributes = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// Longest text, bytes. File systems that store attributes with the inode allow less; longer ones count as unknown.
const MOST_BYTES: usize = 1 << 20;

/// The text of a column; `None` without attributes. Bytes that are no UTF-8 are encoded as in names (see
/// [`text::from_bytes`]).
pub fn to_text(attributes: &Attributes) -> Option<Text> {
    if attributes.is_empty() {
        return None;
    }
    let words: BTreeMap<String, String> = attributes
        .iter()
        .map(|(name, value)| (text::from_bytes(name).to_string(), text::from_bytes(value).to_string()))
        .collect();
    serde_json::to_string(&words).ok().filter(|text| text.len() <= MOST_BYTES).map(Text::from)
}

/// The attributes of such a text. A text of another form or longer, from a damaged reel, has none.
pub fn from_text(text: &str) -> Attributes {
    if text.is_empty() || text.len() > MOST_BYTES {
        return Attributes::new();
    }
    let words: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    words.into_iter().map(|(name, value)| (text::to_bytes(&name).into(), text::to_bytes(&value).into())).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives() {
        let all: Box<[u8]> = (0..=255).collect();
        let attributes: Attributes =
            [(b"user.a\xff\"".as_slice().into(), all), (b"user.empty".as_slice().into(), [].into())].into();
        let text = to_text(&attributes).unwrap();
        assert_eq!(from_text(&text), attributes);
        assert_eq!(to_text(&Attributes::new()), None);
    }

    #[test]
    fn a_damaged_text_has_no_attributes() {
        for text in ["", "{", "[]", "{\"a\":1}", "null"] {
            assert!(from_text(text).is_empty(), "{text}");
        }
    }
}
