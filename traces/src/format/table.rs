//! Converts rows to Arrow batches and back, generic over the table. Each table is a struct declared with the macro
//! `table!` of this module, so that a column is defined in exactly one place.

use std::{fmt::Debug, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Schema};
use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
    schema::types::ColumnPath,
};

use crate::{
    ReelError, Text,
    format::columns::{Builder, Integers, Order, Shape, Texts},
};

/// Parquet layout of a column. Chosen by measurements with ten million rows: see `docs/trace-format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Dictionary with run-length encoding: names, ids, small ranges. In a segment with long runs of one value,
    /// integers are written as [`Layout::Delta`]. With few recurring values, integers are written as [`Layout::Split`]
    /// and text as differences from the previous row.
    Dict,
    /// Bit-packed differences: increasing times and ids.
    Delta,
    /// Each byte of a value in a separate stream: offsets and durations.
    Split,
    /// Ids of files: [`Layout::Split`] in a segment with many values in bursts, otherwise [`Layout::Dict`].
    Ids,
    /// Plain: bytes, which rarely repeat.
    Plain,
}

/// A value of a column.
pub trait Cell: Sized {
    /// Builder of the column.
    type Builder: Builder + Default;
    /// The Arrow type of the column.
    fn data_type() -> DataType;
    /// Whether the column may contain nulls.
    const NULLABLE: bool;
    /// Appends this value as row `row` of the column. Earlier rows must already be there.
    fn append(&self, to: &mut Self::Builder, row: usize);
    /// The typed column, or why the array has the wrong type.
    fn column(array: &ArrayRef) -> Result<Column<'_>, String>;
    /// The value in row `i`.
    fn get(column: &Column<'_>, i: usize) -> Self;
    /// If the value is a text, replaces it by the result of `map` for the column's name and the text.
    fn map_text(&mut self, _column: &'static str, _map: &mut dyn FnMut(&'static str, &Text) -> Text) {}
}

/// A typed view of a column, independent of the writer's encoding.
#[derive(Debug)]
pub enum Column<'a> {
    /// 32-bit integers.
    I32(&'a Int32Array),
    /// 64-bit integers.
    I64(&'a Int64Array),
    /// Text: keys into a dictionary whose strings all rows of the batch share. Entries that the batch does not use are
    /// `None`.
    Text(&'a DictionaryArray<Int32Type>, Vec<Option<Text>>),
    /// Bytes.
    Bytes(&'a BinaryArray),
    /// The file has no such column, because an older version wrote it: all null.
    Absent,
}

macro_rules! integer_cell {
    ($t:ty, $arrow:ty, $data:expr, $view:ident) => {
        impl Cell for $t {
            type Builder = Integers<$arrow>;
            const NULLABLE: bool = false;
            fn data_type() -> DataType {
                $data
            }
            #[inline]
            fn append(&self, to: &mut Self::Builder, row: usize) {
                to.put(row, *self);
            }
            fn column(array: &ArrayRef) -> Result<Column<'_>, String> {
                let typed = array.as_primitive_opt::<$arrow>().ok_or_else(|| wrong_type::<Self>(array))?;
                Ok(Column::$view(typed))
            }
            #[inline]
            fn get(column: &Column<'_>, i: usize) -> Self {
                match column {
                    Column::$view(a) => a.value(i),
                    _ => 0,
                }
            }
        }
        impl Cell for Option<$t> {
            type Builder = Integers<$arrow>;
            const NULLABLE: bool = true;
            fn data_type() -> DataType {
                $data
            }
            #[inline]
            fn append(&self, to: &mut Self::Builder, row: usize) {
                if let Some(value) = *self {
                    to.put(row, value);
                }
            }
            fn column(array: &ArrayRef) -> Result<Column<'_>, String> {
                <$t as Cell>::column(array)
            }
            #[inline]
            fn get(column: &Column<'_>, i: usize) -> Self {
                match column {
                    Column::$view(a) if a.is_valid(i) => Some(a.value(i)),
                    _ => None,
                }
            }
        }
    };
}

integer_cell!(i32, Int32Type, DataType::Int32, I32);
integer_cell!(i64, Int64Type, DataType::Int64, I64);

fn wrong_type<C: Cell>(array: &ArrayRef) -> String {
    format!("expected type {}, found {}", C::data_type(), array.data_type())
}

/// Type of text columns in memory.
pub(crate) fn text_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

impl Cell for Text {
    type Builder = Texts;
    const NULLABLE: bool = false;
    fn data_type() -> DataType {
        text_type()
    }
    #[inline]
    fn append(&self, to: &mut Self::Builder, row: usize) {
        to.put(row, self);
    }
    fn column(array: &ArrayRef) -> Result<Column<'_>, String> {
        let dict = array.as_dictionary_opt::<Int32Type>().ok_or_else(|| wrong_type::<Self>(array))?;
        let values: &StringArray = dict.values().as_string_opt::<i32>().ok_or_else(|| wrong_type::<Self>(array))?;
        // The dictionary covers the whole row group and may be much longer than the batch.
        let mut used: Vec<Option<Text>> = vec![None; values.len()];
        for key in dict.keys().iter().flatten() {
            let key = usize::try_from(key).ok().filter(|k| *k < values.len());
            let key = key.ok_or_else(|| "a key points outside the dictionary".to_owned())?;
            if used[key].is_none() && values.is_valid(key) {
                used[key] = Some(values.value(key).into());
            }
        }
        Ok(Column::Text(dict, used))
    }
    fn get(column: &Column<'_>, i: usize) -> Self {
        <Option<Text>>::get(column, i).unwrap_or_default()
    }
    fn map_text(&mut self, column: &'static str, map: &mut dyn FnMut(&'static str, &Text) -> Text) {
        *self = map(column, self);
    }
}

impl Cell for Option<Text> {
    type Builder = Texts;
    const NULLABLE: bool = true;
    fn data_type() -> DataType {
        text_type()
    }
    #[inline]
    fn append(&self, to: &mut Self::Builder, row: usize) {
        if let Some(text) = self {
            to.put(row, text);
        }
    }
    fn column(array: &ArrayRef) -> Result<Column<'_>, String> {
        Text::column(array)
    }
    fn get(column: &Column<'_>, i: usize) -> Self {
        match column {
            Column::Text(dict, values) => dict.key(i).and_then(|k| values.get(k).cloned().flatten()),
            _ => None,
        }
    }
    fn map_text(&mut self, column: &'static str, map: &mut dyn FnMut(&'static str, &Text) -> Text) {
        if let Some(text) = self {
            *text = map(column, text);
        }
    }
}

/// A table. The row type knows its columns.
pub trait Row: Clone + Send + Sync + 'static {
    /// Folder of the table inside the reel.
    const TABLE: &'static str;
    /// Column that segments are sorted by; [`Row::time_ns`] returns it.
    const TIME: &'static str;
    /// Column with the duration of the row, if there is one.
    const DURATION: Option<&'static str> = None;
    /// Column that [`Row::assign_id`] fills, if there is one.
    const ID: Option<&'static str> = None;
    /// Column builders.
    type Columns: Default + Debug + Send;

    /// Column names, types, layouts and descriptions, in order.
    fn fields() -> Vec<ColumnInfo>;
    /// Sort key within a segment: time since the start of the reel, ns.
    fn time_ns(&self) -> i64;
    /// End of the row's time span; equals [`Row::time_ns`] without a duration.
    fn end_ns(&self) -> i64 {
        self.time_ns()
    }
    /// Whether an event led to this row. False for ioreel's own actions, which no ledger counts.
    fn is_event(&self) -> bool {
        true
    }
    /// Replaces every text of the row by the result of `map` for the column's name and value, in column order.
    fn map_text(&mut self, map: &mut dyn FnMut(&'static str, &Text) -> Text);
    /// Adds the row to the builders as row number `row`.
    fn append(&self, to: &mut Self::Columns, row: usize);
    /// Assigns ids to rows with a negative id, in order.
    fn assign_ids(_columns: &mut Self::Columns, _order: Order<'_>, _next: &mut i64) {}
    /// The id of row `row`, once assigned.
    fn id_of(_columns: &Self::Columns, _row: u32) -> Option<i64> {
        None
    }
    /// Fills the column of references that are known only when the segment closes, if there is one.
    fn refer(_columns: &mut Self::Columns, _to: Vec<Option<i64>>) {}
    /// The builder of each column, in the order of [`Row::fields`].
    fn builders(columns: &mut Self::Columns) -> Vec<&mut dyn Builder>;
    /// Appends all rows of a batch to `out`. Unknown columns are ignored, missing ones are null.
    fn read(batch: &RecordBatch, out: &mut Vec<Self>) -> Result<(), String>;
}

/// Description of a column.
#[derive(Clone, Debug)]
pub struct ColumnInfo {
    /// Its name.
    pub name: &'static str,
    /// Its Arrow type.
    pub data_type: DataType,
    /// Whether it may be null.
    pub nullable: bool,
    /// Its Parquet layout.
    pub layout: Layout,
    /// Its meaning, with its unit.
    pub doc: &'static str,
}

/// The Arrow schema of a table.
pub fn schema<R: Row>() -> Arc<Schema> {
    Arc::new(Schema::new(
        R::fields().into_iter().map(|c| Field::new(c.name, c.data_type, c.nullable)).collect::<Vec<_>>(),
    ))
}

/// zstd level 1. Level 3 saves 2 % for 8 % more time, measured with ten million rows.
pub const DEFAULT_ZSTD_LEVEL: i32 = 1;
/// Rows per row group. A window of a large reel is read by row groups. Pages are cut at 1 MiB, for the same reason;
/// seven per group would take 7 % more space.
pub const DEFAULT_ROW_GROUP_ROWS: usize = 128 * 1024;
/// Values encoded at a time. They stay in the CPU cache from row to page.
pub const BATCH_ROWS: usize = 16 * 1024;
/// Limit of a dictionary. Paths should stay in a dictionary, however many a row group has.
const DICTIONARY_LIMIT_BYTES: usize = 8 << 20;

/// Parquet properties of a segment with these rows in this order. The pattern of each column's values determines its
/// encoding.
pub fn properties<R: Row>(columns: &mut R::Columns, order: Order<'_>) -> Result<WriterProperties, ReelError> {
    let level = ZstdLevel::try_new(DEFAULT_ZSTD_LEVEL)
        .map_err(|e| ReelError::Write { path: R::TABLE.into(), why: e.to_string() })?;
    let mut p: WriterPropertiesBuilder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_write_batch_size(BATCH_ROWS)
        .set_data_page_row_count_limit(DEFAULT_ROW_GROUP_ROWS)
        .set_max_row_group_row_count(Some(DEFAULT_ROW_GROUP_ROWS))
        .set_dictionary_page_size_limit(DICTIONARY_LIMIT_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for (c, builder) in R::fields().into_iter().zip(R::builders(columns)) {
        let path = ColumnPath::from(c.name);
        if matches!(c.data_type, DataType::Dictionary(_, _) | DataType::Binary) {
            // No statistics for names: computing them costs more than they save, because nobody selects a range of
            // names.
            p = p.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
        }
        let text = matches!(c.data_type, DataType::Dictionary(_, _));
        let shape = match c.layout {
            Layout::Ids => builder.shape_of_ids(order),
            Layout::Dict => builder.shape(order),
            Layout::Delta | Layout::Split | Layout::Plain => Shape::Mixed,
        };
        let encoding = match (c.layout, shape) {
            (Layout::Delta, _) | (Layout::Ids | Layout::Dict, Shape::Runs) => Encoding::DELTA_BINARY_PACKED,
            (Layout::Dict, Shape::Many) if text => Encoding::DELTA_BYTE_ARRAY,
            (Layout::Split, _) | (Layout::Ids, Shape::Bursts) | (Layout::Dict, Shape::Many) => {
                Encoding::BYTE_STREAM_SPLIT
            }
            (Layout::Plain, _) => Encoding::PLAIN,
            (Layout::Ids | Layout::Dict, _) => continue,
        };
        p = p.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
    }
    Ok(p.build())
}

/// The column of this name; [`Column::Absent`] if an older version wrote the file without it.
pub fn column<'a, C: Cell>(batch: &'a RecordBatch, name: &str) -> Result<Column<'a>, String> {
    match batch.column_by_name(name) {
        Some(array) => C::column(array).map_err(|e| format!("column {name}: {e}")),
        None if C::NULLABLE => Ok(Column::Absent),
        None => Err(format!("column {name} is missing")),
    }
}

/// Declares a table: its row struct, its columns, and the conversion between them.
macro_rules! table {
    (
        $(#[doc = $table_doc:literal])*
        pub struct $Row:ident in $table:literal, sorted by $time:ident $(, id $id:ident)? $(, lasting $dur:ident)?
            $(, own where $own:ident is $word:literal)? $(, late $late:ident)? {
            $( $(#[doc = $doc:literal])+ $name:ident : $ty:ty as $layout:ident, )+
        }
    ) => {
        $(#[doc = $table_doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $Row { $( $(#[doc = $doc])+ pub $name: $ty, )+ }

        const _: () = {
            #[derive(Debug, Default)]
            pub struct Columns { $( $name: <$ty as $crate::format::table::Cell>::Builder, )+ }

            impl $crate::format::table::Row for $Row {
                const TABLE: &'static str = $table;
                const TIME: &'static str = stringify!($time);
                $( const DURATION: Option<&'static str> = Some(stringify!($dur)); )?
                $( const ID: Option<&'static str> = Some(stringify!($id)); )?
                type Columns = Columns;

                fn fields() -> Vec<$crate::format::table::ColumnInfo> {
                    use $crate::format::table::{Cell, ColumnInfo, Layout};
                    vec![$( ColumnInfo {
                        name: stringify!($name),
                        data_type: <$ty as Cell>::data_type(),
                        nullable: <$ty as Cell>::NULLABLE,
                        layout: Layout::$layout,
                        doc: concat!($($doc),+),
                    }, )+]
                }
                fn time_ns(&self) -> i64 { self.$time }
                $( fn end_ns(&self) -> i64 { self.$time.saturating_add(self.$dur) } )?
                $( fn is_event(&self) -> bool { self.$own != *$word } )?
                fn map_text(&mut self, map: &mut dyn FnMut(&'static str, &$crate::Text) -> $crate::Text) {
                    $( $crate::format::table::Cell::map_text(&mut self.$name, stringify!($name), map); )+
                }
                fn append(&self, to: &mut Columns, row: usize) {
                    $( $crate::format::table::Cell::append(&self.$name, &mut to.$name, row); )+
                }
                $( fn assign_ids(columns: &mut Columns, order: $crate::format::columns::Order<'_>, next: &mut i64) {
                    columns.$id.assign_ids(order, next);
                }
                fn id_of(columns: &Columns, row: u32) -> Option<i64> {
                    columns.$id.value(row)
                } )?
                $( fn refer(columns: &mut Columns, to: Vec<Option<i64>>) {
                    columns.$late.replace(to.into_iter());
                } )?
                fn builders(columns: &mut Columns) -> Vec<&mut dyn $crate::format::columns::Builder> {
                    vec![$( &mut columns.$name, )+]
                }
                fn read(batch: &arrow_array::RecordBatch, out: &mut Vec<Self>) -> Result<(), String> {
                    use $crate::format::table::{Cell, column};
                    $( let $name = column::<$ty>(batch, stringify!($name))?; )+
                    out.reserve(batch.num_rows());
                    for i in 0..batch.num_rows() {
                        out.push(Self { $( $name: <$ty as Cell>::get(&$name, i), )+ });
                    }
                    Ok(())
                }
            }
        };
    };
}
pub(crate) use table;
