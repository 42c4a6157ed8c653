//! Messages about an unknown name, with the most similar known name.

/// Longer names get no suggestion: the search takes the product of both lengths.
const MOST_CHARS: usize = 64;

/// A message such as `unknown panel 'ofsets'; did you mean 'offsets'? There are: offsets, files`.
pub fn unknown(what: &str, asked: &str, known: &[&str]) -> String {
    let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    match closest(asked, known) {
        Some(name) => format!("unknown {what} '{asked}'; did you mean '{name}'? There are: {list}"),
        None => format!("unknown {what} '{asked}'; there are: {list}"),
    }
}

/// ` (did you mean 'offsets'?)` for the middle of a message, or nothing if no known name is similar.
pub fn hint(asked: &str, known: &[&str]) -> String {
    closest(asked, known).map_or_else(String::new, |name| format!(" (did you mean '{name}'?)"))
}

/// The known name that is most similar to `asked`, if a typing error could explain the difference.
fn closest<'a>(asked: &str, known: &[&'a str]) -> Option<&'a str> {
    let asked: Vec<char> = asked.chars().take(MOST_CHARS + 1).map(|c| c.to_ascii_lowercase()).collect();
    let most = (asked.len() / 3).clamp(1, 3);
    if asked.len() < 2 || asked.len() > MOST_CHARS {
        return None;
    }
    let near = known.iter().filter(|name| name.chars().count().abs_diff(asked.len()) <= most);
    let (distance, name) = near.map(|name| (distance(&asked, name), *name)).min()?;
    (distance <= most).then_some(name)
}

/// Insertions, deletions, substitutions and swaps of neighbours that turn one into the other (optimal string alignment).
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let mut least = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        (before, last) = (last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["offsets", "files", "throughput", "iops", "depth"];

    #[test]
    fn distances() {
        let of = |a: &str, b| distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!([of("", ""), of("", "ab"), of("ab", ""), of("ab", "ab")], [0, 2, 2, 0]);
        assert_eq!([of("wirte", "write"), of("ofsets", "offsets"), of("kitten", "sitting")], [1, 1, 3]);
    }

    #[test]
    fn typing_errors_get_a_suggestion_and_other_words_do_not() {
        assert_eq!(
            unknown("panel", "ofsets", KNOWN),
            "unknown panel 'ofsets'; did you mean 'offsets'? There are: offsets, files, throughput, iops, depth"
        );
        assert_eq!(hint("IOPS", KNOWN), " (did you mean 'iops'?)");
        assert_eq!(hint("thruoghput", KNOWN), " (did you mean 'throughput'?)");
        for other in ["", "x", "nice", "latency", &"offsets".repeat(100)] {
            assert_eq!(hint(other, KNOWN), "", "{other}");
        }
        assert_eq!(unknown("device", "sda", &[]), "unknown device 'sda'; there are: none");
    }
}
