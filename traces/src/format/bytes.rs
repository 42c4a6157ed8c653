//! Columns of binary data.

use std::ops::Range;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, cast::AsArray};
use arrow_schema::DataType;

use crate::format::{
    columns::{Builder, Constant, Order, Shape},
    table::{Cell, Column},
};

/// Binary data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

/// Collects a column of bytes. A segment may contain at most 2 GiB of it, so the caller must close the segment before.
#[derive(Debug, Default)]
pub struct Blobs {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Blobs {
    fn value(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[row]]
    }
}

impl Builder for Blobs {
    fn constant(&self, _rows: usize) -> Option<Constant> {
        None
    }

    fn take(&mut self, places: Range<usize>, order: Order<'_>) -> ArrayRef {
        let rows = places.map(|place| order.map_or(place, |o| o[place] as usize));
        Arc::new(BinaryArray::from_iter_values(rows.map(|row| self.value(row))))
    }

    fn copy(&self, rows: Range<usize>) -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values(rows.map(|row| self.value(row))))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn shape(&self, _order: Order<'_>) -> Shape {
        Shape::Mixed
    }
}

impl Cell for Bytes {
    type Builder = Blobs;
    const NULLABLE: bool = false;
    fn data_type() -> DataType {
        DataType::Binary
    }
    fn append(&self, to: &mut Blobs, _row: usize) {
        to.bytes.extend_from_slice(&self.0);
        to.ends.push(to.bytes.len());
    }
    fn column(array: &ArrayRef) -> Result<Column<'_>, String> {
        let typed = array.as_binary_opt::<i32>();
        typed.map(Column::Bytes).ok_or_else(|| format!("expected bytes, found {}", array.data_type()))
    }
    fn get(column: &Column<'_>, i: usize) -> Self {
        match column {
            Column::Bytes(a) if a.is_valid(i) => Self(a.value(i).to_vec()),
            _ => Self::default(),
        }
    }
}
