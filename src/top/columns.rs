//! Columns of the live view that fit into the terminal, and names shortened at the front.

use ratatui::text::Span;

use super::{HEADS, Sort};

/// Widths of the number columns, in the order of [`HEADS`].
const WIDTHS: [u16; 7] = [9, 8, 11, 11, 9, 9, 8];
/// Columns to drop in a narrow terminal, first one first.
const DISPENSABLE: [usize; 7] = [1, 4, 5, 0, 6, 2, 3];
/// Minimum width of the name; number columns are dropped first.
const LEAST_NAME: u16 = 24;

/// The number columns shown, as indices into [`HEADS`], and the width left for the name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Indices, ascending.
    pub(super) numbers: Vec<usize>,
    /// Width of the name.
    pub(super) name: u16,
}

/// The columns that belong to `sort`.
pub(super) fn sorted_by(sort: Sort) -> &'static [usize] {
    match sort {
        Sort::Bytes => &[2, 3],
        Sort::Ops => &[0],
        Sort::Time => &[6],
        Sort::Max => &[5],
    }
}

/// The columns that fit into `width`. The columns of `sort` are dropped last.
pub(super) fn fitting(width: u16, sort: Sort) -> Shown {
    let mut numbers: Vec<usize> = (0..HEADS.len()).collect();
    let taken = |numbers: &[usize]| numbers.iter().map(|c| WIDTHS[*c] + 1).sum::<u16>();
    let kept = sorted_by(sort);
    let order = DISPENSABLE.iter().filter(|c| !kept.contains(c)).chain(kept);
    for column in order {
        if taken(&numbers) + LEAST_NAME <= width {
            break;
        }
        numbers.retain(|c| c != column);
    }
    let name = width.saturating_sub(taken(&numbers));
    Shown { numbers, name }
}

/// Width of a number column.
pub(super) fn width_of(column: usize) -> u16 {
    WIDTHS[column]
}

/// `name` in at most `width` cells. A longer name is cut at the front, since the end distinguishes files of a directory.
pub(super) fn ending(name: &str, width: u16) -> String {
    let wide = |c: &str| Span::raw(c).width();
    let width = usize::from(width);
    if wide(name) <= width {
        return name.into();
    }
    let (mut at, mut taken) = (name.len(), 1);
    for (i, c) in name.char_indices().rev() {
        taken += wide(c.encode_utf8(&mut [0; 4]));
        if taken > width {
            break;
        }
        at = i;
    }
    if width == 0 { String::new() } else { format!("…{}", &name[at..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sorted_column_stays_longest() {
        assert_eq!(fitting(110, Sort::Bytes).numbers, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(fitting(110, Sort::Bytes).name, 38);
        assert_eq!(fitting(80, Sort::Bytes).numbers, [0, 2, 3, 5, 6]);
        assert_eq!(fitting(50, Sort::Bytes).numbers, [2, 3]);
        assert_eq!(fitting(36, Sort::Max).numbers, [5]);
        assert_eq!(fitting(36, Sort::Time).numbers, [6]);
        assert_eq!(fitting(3, Sort::Ops), Shown { numbers: vec![], name: 3 });
        for width in 0..200 {
            for sort in [Sort::Bytes, Sort::Ops, Sort::Time, Sort::Max] {
                let Shown { numbers, name } = fitting(width, sort);
                assert_eq!(numbers.iter().map(|c| width_of(*c) + 1).sum::<u16>() + name, width);
            }
        }
    }

    #[test]
    fn names_keep_their_ends() {
        assert_eq!(ending("/a/name", 7), "/a/name");
        assert_eq!(ending("/a/name", 6), "…/name");
        assert_eq!(ending("/中文", 4), "…文");
        assert_eq!(ending("/a/name", 1), "…");
        assert_eq!(ending("/a/name", 0), "");
    }
}
