//! Names that a thread had before its present one. A bio that was queued before a change is written after it.

use std::collections::VecDeque;

use ioreel_traces::Text;

/// Maximum number of earlier names. A request seldom takes longer than so many changes.
const MOST: usize = 8;

/// Earlier names, oldest first, each with the monotonic time until which it was valid.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    before: VecDeque<(u64, Text)>,
}

impl Names {
    /// Notes that `name` was replaced by another one at `at_ns`.
    pub(super) fn replaced(&mut self, name: Text, at_ns: u64) {
        if self.before.len() == MOST {
            self.before.pop_front();
        }
        self.before.push_back((at_ns, name));
    }

    /// The name at this time; `None` for the present one. For times before the oldest known name, that name.
    pub(super) fn at(&self, at_ns: u64) -> Option<&Text> {
        self.before.iter().find(|(until_ns, _)| at_ns < *until_ns).map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bio_has_the_name_that_was_valid_when_it_was_queued() {
        let mut names = Names::default();
        assert_eq!(names.at(5), None);
        names.replaced("python3".into(), 10);
        names.replaced("flush".into(), 20);
        let name = |ns| names.at(ns).map(|n| n.to_string());
        assert_eq!([9, 10, 19].map(name), [Some("python3".into()), Some("flush".into()), Some("flush".into())]);
        assert_eq!(name(20), None);
        (0..100).for_each(|i| names.replaced(format!("{i}").into(), 100 + i));
        assert!(names.before.len() <= MOST);
    }
}
