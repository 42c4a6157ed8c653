//! Typed views of a batch's columns for checks that run column by column.

use arrow_array::{Array, DictionaryArray, RecordBatch, cast::AsArray, types::Int32Type};

use crate::format::table::{Cell, Column, column};

/// A column of 32-bit or 64-bit integers. Null if an older version wrote the file without it.
pub(super) struct Ints<'a> {
    pub(super) name: &'static str,
    column: Column<'a>,
}

impl<'a> Ints<'a> {
    pub(super) fn of(batch: &'a RecordBatch, name: &'static str) -> Result<Self, String> {
        let column = column::<Option<i64>>(batch, name).or_else(|_| column::<Option<i32>>(batch, name))?;
        Ok(Self { name, column })
    }

    pub(super) fn get(&self, i: usize) -> Option<i64> {
        match &self.column {
            Column::I32(_) => <Option<i32>>::get(&self.column, i).map(i64::from),
            _ => <Option<i64>>::get(&self.column, i),
        }
    }
}

/// A column whose words are from a known list.
pub(super) struct Words<'a> {
    pub(super) name: &'static str,
    column: &'a DictionaryArray<Int32Type>,
    /// For each dictionary entry, its index in the known list.
    codes: Vec<Option<usize>>,
}

impl<'a> Words<'a> {
    pub(super) fn of(batch: &'a RecordBatch, name: &'static str, known: &[&str]) -> Result<Self, String> {
        let array = batch.column_by_name(name).ok_or_else(|| format!("column {name} is missing"))?;
        let wrong = || format!("column {name}: expected dictionary-encoded text, found {}", array.data_type());
        let column = array.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?;
        let values = column.values().as_string_opt::<i32>().ok_or_else(wrong)?;
        let codes = values.iter().map(|v| known.iter().position(|k| Some(*k) == v)).collect();
        Ok(Self { name, column, codes })
    }

    /// The word's index in the known list.
    pub(super) fn code(&self, i: usize) -> Option<usize> {
        self.column.key(i).and_then(|k| self.codes.get(k).copied().flatten())
    }

    /// Whether there is no word.
    pub(super) fn is_null(&self, i: usize) -> bool {
        self.column.key(i).is_none()
    }

    /// The word itself.
    pub(super) fn word(&self, i: usize) -> String {
        match (self.column.key(i), self.column.values().as_string_opt::<i32>()) {
            (Some(k), Some(values)) if k < values.len() => values.value(k).to_owned(),
            _ => "null".into(),
        }
    }
}
