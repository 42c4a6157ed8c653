//! Collects the values of a segment column by column, and returns them ordered by time.
//!
//! Up to a million rows a second arrive and wait here until their segment closes. Stored as columns, a column without
//! values costs nothing and a row some 100 bytes. Sorting moves 4-byte row numbers instead of rows. Texts are compared
//! by address, because rows share them.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, BuildHasherDefault, Hasher},
    ops::Range,
    sync::Arc,
};

use arrow_array::{
    ArrayRef, ArrowPrimitiveType, DictionaryArray, PrimitiveArray, StringArray,
    types::{Int32Type, Int64Type},
};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};

use rustc_hash::FxBuildHasher;

use crate::Text;

/// Row numbers in output order. `None` means order of arrival.
pub type Order<'a> = Option<&'a [u32]>;

/// Builds one column.
pub trait Builder {
    /// The single value of the first `rows` rows, if they all have the same one and this is cheap to know.
    fn constant(&self, rows: usize) -> Option<Constant>;
    /// The values at these positions of the order, as an Arrow column.
    fn take(&mut self, places: Range<usize>, order: Order<'_>) -> ArrayRef;
    /// The values of these rows, as an Arrow column. Changes nothing, unlike [`Builder::take`].
    fn copy(&self, rows: Range<usize>) -> ArrayRef;
    /// Removes the values and keeps the memory.
    fn clear(&mut self);
    /// The pattern of the values, which determines their encoding.
    fn shape(&self, order: Order<'_>) -> Shape;
    /// The pattern of a column of ids, which may arrive in bursts.
    fn shape_of_ids(&self, order: Order<'_>) -> Shape {
        self.shape(order)
    }
}

/// The single value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// None.
    Null,
    /// An integer.
    Integer(i64),
    /// A text.
    Text(Text),
}

/// The pattern of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Long runs of one value: delta encoding takes no space, and is faster than a dictionary.
    Runs,
    /// Many values, each in bursts: a dictionary would take more space than the values.
    Bursts,
    /// Many values, few of which recur: a dictionary would take more space than the values.
    Many,
    /// Anything else.
    Mixed,
}

/// Builds a column of integers, nullable or not.
#[derive(Debug)]
pub struct Integers<T: ArrowPrimitiveType> {
    /// The value of the first `repeated` rows, while they are all equal; it is then stored only once. In most segments,
    /// this holds for half of the columns.
    first: T::Native,
    repeated: usize,
    /// Values up to the last non-null one. Nulls after it are not stored and cost nothing.
    values: Vec<T::Native>,
    /// Whether each value is non-null. Empty if all are.
    valid: Vec<bool>,
    /// A column of nulls, created on first use.
    absent: Option<PrimitiveArray<T>>,
}

impl<T: ArrowPrimitiveType> Default for Integers<T> {
    fn default() -> Self {
        Self { first: T::Native::default(), repeated: 0, values: Vec::new(), valid: Vec::new(), absent: None }
    }
}

impl<T: ArrowPrimitiveType> Integers<T> {
    /// Sets the value of this row. Rows before it without a value are null.
    #[inline]
    pub fn put(&mut self, row: usize, value: T::Native) {
        if self.values.is_empty() {
            if row == self.repeated && (row == 0 || value == self.first) {
                self.first = value;
                self.repeated += 1;
                return;
            }
            self.spread();
        }
        if self.values.len() < row {
            self.pad(row);
        }
        if !self.valid.is_empty() {
            self.valid.push(true);
        }
        self.values.push(value);
    }

    fn copied(&self, rows: Range<usize>) -> PrimitiveArray<T> {
        rows.map(|row| match self.values.is_empty() {
            true => (row < self.repeated).then_some(self.first),
            false => self.values.get(row).copied().filter(|_| self.valid.get(row) != Some(&false)),
        })
        .collect()
    }

    /// Stores each of the repeated values.
    #[cold]
    fn spread(&mut self) {
        self.values.extend(std::iter::repeat_n(self.first, self.repeated));
        self.repeated = 0;
    }

    /// Stores the nulls before this row.
    #[cold]
    fn pad(&mut self, row: usize) {
        self.valid.resize(self.values.len(), true);
        self.valid.resize(row, false);
        self.values.resize(row, T::Native::default());
    }

    fn collect(&mut self, places: Range<usize>, order: Order<'_>) -> PrimitiveArray<T> {
        let rows = order.map_or(places.end, <[u32]>::len);
        if self.values.is_empty() {
            let wanted = places.len();
            match self.repeated {
                0 => {
                    return match &self.absent {
                        Some(null) if null.len() >= wanted => null.slice(0, wanted),
                        _ => self.absent.insert(PrimitiveArray::new_null(wanted)).clone(),
                    };
                }
                repeated if repeated >= rows => return PrimitiveArray::from_value(self.first, wanted),
                _ => self.spread(),
            }
        }
        if self.values.len() < rows {
            self.pad(rows);
        }
        let (values, nulls) = match order {
            None => {
                let nulls = self.valid.get(places.clone()).map(BooleanBuffer::from);
                (self.values[places].to_vec(), nulls)
            }
            Some(order) => {
                let rows = &order[places];
                let nulls = (!self.valid.is_empty())
                    .then(|| BooleanBuffer::collect_bool(rows.len(), |i| self.valid[rows[i] as usize]));
                (rows.iter().map(|row| self.values[*row as usize]).collect(), nulls)
            }
        };
        PrimitiveArray::new(ScalarBuffer::from(values), nulls.map(NullBuffer::new))
    }
}

impl<T: ArrowPrimitiveType> Integers<T>
where
    T::Native: Into<i64>,
{
    /// Whether a value nearly always equals the previous one.
    fn in_runs(&self, order: Order<'_>) -> bool {
        /// Minimum average length of a run.
        const LONG: usize = 64;
        let most = self.values.len() / LONG;
        let mut changes = 0;
        let mut last = None;
        let mut changed = |value: T::Native| {
            changes += usize::from(last != Some(value));
            last = Some(value);
            changes > most
        };
        let beyond = match order {
            None => self.values.iter().any(|v| changed(*v)),
            // Nulls after the last value are not stored.
            Some(order) => order.iter().any(|row| self.values.get(*row as usize).is_some_and(|v| changed(*v))),
        };
        !beyond
    }

    /// Whether a sample contains many distinct values, few of which recur.
    fn many(&self) -> bool {
        /// Size of the sample.
        const SAMPLE: usize = 8192;
        /// Up to this number, keys take one byte, which is better than any other encoding.
        const FEW: usize = 256;
        /// A value that recurs more often is better encoded as a key.
        const RETURNS: usize = 16;
        let mut distinct = HashSet::<i64, BuildHasherDefault<AddressHasher>>::default();
        let (mut last, mut changes) = (None, 0);
        for value in self.values.iter().take(SAMPLE) {
            if last != Some(*value) {
                changes += 1;
                distinct.insert((*value).into());
                last = Some(*value);
            }
        }
        distinct.len() > FEW && distinct.len() * RETURNS > changes
    }
}

impl Integers<Int64Type> {
    /// The value of row `row`, if it is not null.
    pub fn value(&self, row: u32) -> Option<i64> {
        let row = row as usize;
        if row < self.repeated { Some(self.first) } else { self.values.get(row).copied() }
    }

    /// Replaces all values.
    pub fn replace(&mut self, values: impl Iterator<Item = Option<i64>>) {
        self.clear();
        for (row, value) in values.enumerate() {
            if let Some(value) = value {
                self.put(row, value);
            }
        }
    }

    /// Assigns the next ids to rows whose id is negative, in order.
    pub fn assign_ids(&mut self, order: Order<'_>, next: &mut i64) {
        self.spread();
        for place in 0..self.values.len() {
            let id = &mut self.values[order.map_or(place, |o| o[place] as usize)];
            if *id < 0 {
                *id = *next;
                *next += 1;
            }
        }
    }
}

impl<T: ArrowPrimitiveType> Builder for Integers<T>
where
    T::Native: Into<i64>,
{
    fn constant(&self, rows: usize) -> Option<Constant> {
        match self.repeated {
            _ if !self.values.is_empty() => None,
            0 => Some(Constant::Null),
            repeated => (repeated >= rows).then(|| Constant::Integer(self.first.into())),
        }
    }

    fn take(&mut self, places: Range<usize>, order: Order<'_>) -> ArrayRef {
        Arc::new(self.collect(places, order))
    }

    fn copy(&self, rows: Range<usize>) -> ArrayRef {
        Arc::new(self.copied(rows))
    }

    fn clear(&mut self) {
        self.repeated = 0;
        self.values.clear();
        self.valid.clear();
    }

    fn shape(&self, order: Order<'_>) -> Shape {
        if self.in_runs(order) {
            Shape::Runs
        } else if self.many() {
            Shape::Many
        } else {
            Shape::Mixed
        }
    }

    fn shape_of_ids(&self, order: Order<'_>) -> Shape {
        if self.in_runs(order) {
            return Shape::Runs;
        }
        /// Rows looked back. Calls that alternate between two or three files still count as bursts.
        const NEAR: usize = 8;
        /// Below this number of values, keys take one byte, which is better than any other encoding.
        const FEW: usize = 256;
        let mut distinct = HashSet::<i64, BuildHasherDefault<AddressHasher>>::default();
        let mut near = [None; NEAR];
        let (mut rows, mut repeated) = (0, 0);
        for place in 0..order.map_or(self.values.len(), <[u32]>::len) {
            let row = order.map_or(place, |o| o[place] as usize);
            // Nulls after the last value are not stored.
            let Some(value) = self.values.get(row).filter(|_| self.valid.get(row) != Some(&false)) else { continue };
            let value: i64 = (*value).into();
            if near.contains(&Some(value)) {
                repeated += 1;
            } else {
                distinct.insert(value);
            }
            near[rows % NEAR] = Some(value);
            rows += 1;
        }
        if distinct.len() > FEW && repeated * 2 >= rows { Shape::Bursts } else { Shape::Mixed }
    }
}

/// Builds a column of text with a dictionary.
#[derive(Debug, Default)]
pub struct Texts {
    keys: Integers<Int32Type>,
    /// A text may occur several times. Parquet removes duplicates, and looking them up here would do that work twice.
    entries: Vec<Text>,
    /// Recently seen addresses with their entries, indexed by a hash of the address. Static words are found here.
    recent: Vec<(usize, i32)>,
    /// The entries as an Arrow array, created when the first values are taken.
    values: Option<ArrayRef>,
}

/// Size of [`Texts::recent`].
const RECENT: usize = 256;

impl Texts {
    /// Sets the text of this row. Rows before it without a value are null.
    #[inline]
    pub fn put(&mut self, row: usize, text: &Text) {
        let address = text.address();
        if self.recent.is_empty() {
            self.recent.resize(RECENT, (0, 0));
        }
        let place = (address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let recent = &mut self.recent[place as usize % RECENT];
        if recent.0 != address {
            *recent = (address, self.entries.len() as i32);
            // The entry keeps the text alive, so that its address stays unique.
            self.entries.push(text.clone());
        }
        self.keys.put(row, recent.1);
    }

    /// Estimate of the number of distinct entries by linear counting: hashes set bits, and the share of unset bits
    /// gives the estimate (Whang et al., A Linear-Time Probabilistic Counting Algorithm, 1990).
    fn distinct(&self) -> usize {
        let bits = (self.entries.len() * 2).next_multiple_of(64).max(64);
        let mut set = vec![0u64; bits / 64];
        for entry in &self.entries {
            let hash = FxBuildHasher.hash_one(&**entry);
            let bit = ((u128::from(hash) * bits as u128) >> 64) as usize;
            set[bit / 64] |= 1 << (bit % 64);
        }
        let left = bits - set.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        (bits as f64 * (bits as f64 / left.max(1) as f64).ln()) as usize
    }
}

impl Builder for Texts {
    fn constant(&self, rows: usize) -> Option<Constant> {
        match self.keys.constant(rows)? {
            Constant::Integer(key) => self.entries.get(usize::try_from(key).ok()?).cloned().map(Constant::Text),
            other => Some(other),
        }
    }

    fn take(&mut self, places: Range<usize>, order: Order<'_>) -> ArrayRef {
        let entries = &self.entries;
        let values = self
            .values
            .get_or_insert_with(|| Arc::new(StringArray::from_iter_values(entries.iter().map(|t| &**t))))
            .clone();
        Arc::new(DictionaryArray::new(self.keys.collect(places, order), values))
    }

    fn copy(&self, rows: Range<usize>) -> ArrayRef {
        // Only the texts of these rows: a segment may have a hundred thousand others.
        let mut used = HashMap::<i32, i32, FxBuildHasher>::default();
        let mut words = Vec::new();
        let keys: PrimitiveArray<Int32Type> = (self.keys.copied(rows).iter())
            .map(|key| {
                key.map(|key| {
                    *used.entry(key).or_insert_with(|| {
                        words.push(&*self.entries[key as usize]);
                        words.len() as i32 - 1
                    })
                })
            })
            .collect();
        Arc::new(DictionaryArray::new(keys, Arc::new(StringArray::from_iter_values(words))))
    }

    fn shape(&self, _order: Order<'_>) -> Shape {
        /// Below this number, the estimate is not needed.
        const FEW: usize = 256;
        let rows = self.keys.values.len() - self.keys.valid.iter().filter(|valid| !**valid).count();
        let many = self.entries.len() > FEW && self.entries.len() * 2 > rows && self.distinct() * 2 > rows;
        if many { Shape::Many } else { Shape::Mixed }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.recent.clear();
        self.values = None;
    }
}

/// Hash for addresses, ids and times, which differ in few bits. Not for keys that an attacker chooses.
#[derive(Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        // A constant of the golden ratio. The upper half of the product is the well mixed one; hash tables use the
        // lower half.
        let mixed = u128::from(self.0 ^ n) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_i64(&mut self, n: i64) {
        self.write_u64(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, cast::AsArray};

    use super::*;

    fn integers(values: &[Option<i64>]) -> Integers<Int64Type> {
        let mut b = Integers::default();
        b.replace(values.iter().copied());
        b
    }

    #[test]
    fn nulls_anywhere_come_back() {
        let cases: [&[Option<i64>]; 6] = [
            &[None, None, None],
            &[Some(1), Some(2), Some(3)],
            &[None, Some(2), Some(3)],
            &[Some(1), None, Some(3)],
            &[Some(1), Some(2), None],
            &[None, Some(2), None],
        ];
        for values in cases {
            let mut b = integers(values);
            for order in [None, Some(&[2u32, 0, 1][..])] {
                let expected: Vec<_> = (0..3).map(|i| values[order.map_or(i, |o| o[i] as usize)]).collect();
                let taken: Vec<_> = [0..2, 2..3]
                    .into_iter()
                    .flat_map(|places| b.take(places, order).as_primitive::<Int64Type>().iter().collect::<Vec<_>>())
                    .collect();
                assert_eq!(taken, expected);
            }
            for rows in [0..3, 1..3, 0..1] {
                let copied: Vec<_> = integers(values).copy(rows.clone()).as_primitive::<Int64Type>().iter().collect();
                assert_eq!(copied, values[rows]);
            }
            b.clear();
            b.put(0, 9);
            assert_eq!(b.take(0..1, None).as_primitive::<Int64Type>().value(0), 9);
        }
    }

    #[test]
    fn one_value_is_told_as_that() {
        let constant = |values: &[Option<i64>]| integers(values).constant(values.len());
        assert_eq!(constant(&[]), Some(Constant::Null));
        assert_eq!(constant(&[None, None]), Some(Constant::Null));
        assert_eq!(constant(&[Some(5), Some(5)]), Some(Constant::Integer(5)));
        assert_eq!(constant(&[Some(5), Some(6)]), None);
        assert_eq!(constant(&[Some(5), Some(5), None]), None);
        assert_eq!(constant(&[None, Some(5), Some(5)]), None);
        assert_eq!(constant(&[Some(5), None, Some(5)]), None);
        let mut t = Texts::default();
        t.put(0, &Text::from("a"));
        assert_eq!((t.constant(1), t.constant(2)), (Some(Constant::Text("a".into())), None));
    }

    #[test]
    fn ids_are_given_in_order_and_kept_when_given() {
        let mut b = integers(&[Some(-1), Some(70), Some(-1)]);
        let mut next = 5;
        b.assign_ids(Some(&[2, 1, 0]), &mut next);
        assert_eq!(b.take(0..3, None).as_primitive::<Int64Type>().values(), &[6, 70, 5]);
        assert_eq!(next, 7);
    }

    #[test]
    fn text_is_shared_by_address() {
        let (a, b) = (Text::from("a"), Text::from("b"));
        let mut t = Texts::default();
        [(0, &a), (1, &b), (3, &a)].into_iter().for_each(|(row, x)| t.put(row, x));
        let copied = t.copy(2..4);
        let copied = copied.as_dictionary::<Int32Type>();
        let words: Vec<_> = copied.downcast_dict::<StringArray>().map(|d| d.into_iter().collect()).unwrap_or_default();
        assert_eq!((copied.values().len(), words), (1, vec![None, Some("a")]));
        let taken = t.take(0..4, Some(&[3, 2, 1, 0]));
        let taken = taken.as_dictionary::<Int32Type>();
        assert_eq!(taken.values().len(), 2);
        let words: Vec<_> = taken.downcast_dict::<StringArray>().map(|d| d.into_iter().collect()).unwrap_or_default();
        assert_eq!(words, [Some("a"), None, Some("b"), Some("a")]);
    }

    #[test]
    fn names_that_return_are_told_from_many() {
        let shape = |of: &dyn Fn(usize) -> usize| {
            let mut t = Texts::default();
            (0..20_000).for_each(|row| t.put(row, &Text::from(format!("/some/folder/{}", of(row)))));
            t.shape(None)
        };
        assert_eq!(shape(&|row| row), Shape::Many);
        assert_eq!(shape(&|row| row / 3), Shape::Mixed);
        assert_eq!(shape(&|row| row * 7919 % 9000), Shape::Mixed);
        assert_eq!(shape(&|row| row * 7919 % 11_000), Shape::Many);
    }

    #[test]
    fn bursts_are_told_from_returning_values() {
        // The pattern of unpacking an archive: a few operations on each file, alternating with the archive.
        let unpacking: Vec<_> = (0..10_000).map(|i| Some(if i % 5 == 2 { 1 } else { 100 + i / 5 })).collect();
        assert_eq!(integers(&unpacking).shape_of_ids(None), Shape::Bursts);
        let returning: Vec<_> = (0..10_000).map(|i| Some(i * 7919 % 400)).collect();
        assert_eq!(integers(&returning).shape_of_ids(None), Shape::Mixed);
        // Trailing nulls, met before values in time order. The order covers all rows.
        let cut = integers(&unpacking);
        let backwards: Vec<u32> = (0..=10_000).rev().collect();
        assert_eq!(cut.shape_of_ids(Some(&backwards)), Shape::Bursts);
        let few: Vec<_> = (0..10_000).map(|i| Some(i / 50)).collect();
        assert_eq!(integers(&few).shape_of_ids(None), Shape::Mixed);
        let runs: Vec<_> = (0..10_000).map(|i| Some(i / 100 % 3)).collect();
        assert_eq!(integers(&runs).shape(None), Shape::Runs);
        let sizes: Vec<_> = (0..10_000).map(|i| Some(if i % 2 == 0 { 0 } else { i * 7919 % 5003 })).collect();
        assert_eq!(integers(&sizes).shape(None), Shape::Many);
    }
}
