//! Encodes a segment column by column.

use std::{io::Write, ops::Range, sync::Arc};

use arrow_schema::{FieldRef, Schema};
use bytes::Bytes;
use parquet::{
    arrow::{
        ArrowWriter,
        arrow_writer::{ArrowColumnChunk, ArrowColumnWriter, ArrowWriterOptions, compute_leaves},
    },
    column::writer::ColumnCloseResult,
    errors::{ParquetError, Result},
    file::properties::WriterProperties,
};

use crate::format::{
    columns::{Builder, Constant, Order},
    table::{BATCH_ROWS, DEFAULT_ROW_GROUP_ROWS, Row, schema},
};

/// Cache of encoded columns between segments of a table. In most segments, half of the columns contain one value in all
/// rows, the same as in the previous segment. Encoding it a million times a second would cost as much as everything
/// else.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// For each column, the last encoded row group of a single value.
    whole: Vec<Option<(Constant, Chunk)>>,
}

/// An encoded column of a row group.
#[derive(Clone, Debug)]
struct Chunk {
    /// A Parquet file with this column only.
    file: Bytes,
    close: ColumnCloseResult,
}

impl Chunks {
    /// Writes the first `rows` rows of the columns as a Parquet file to `to`, and returns `to`.
    pub(super) fn write<R: Row, W: Write + Send>(
        &mut self,
        to: W,
        properties: WriterProperties,
        columns: &mut R::Columns,
        rows: usize,
        order: Order<'_>,
    ) -> std::result::Result<W, String> {
        self.encode::<R, W>(to, properties, columns, rows, order).map_err(|e| e.to_string())
    }

    fn encode<R: Row, W: Write + Send>(
        &mut self,
        to: W,
        properties: WriterProperties,
        columns: &mut R::Columns,
        rows: usize,
        order: Order<'_>,
    ) -> Result<W> {
        let schema = schema::<R>();
        self.whole.resize(schema.fields().len(), None);
        let (mut file, factory) =
            ArrowWriter::try_new_with_options(to, schema.clone(), options(&properties))?.into_serialized_writer()?;
        for (number, first) in (0..rows).step_by(DEFAULT_ROW_GROUP_ROWS).enumerate() {
            let places = first..rows.min(first + DEFAULT_ROW_GROUP_ROWS);
            let mut group = file.next_row_group()?;
            let writers = factory.create_column_writers(number)?;
            let each = schema.fields().iter().zip(R::builders(columns)).zip(writers).zip(&mut self.whole);
            for (((field, builder), writer), kept) in each {
                let constant = if places.len() == DEFAULT_ROW_GROUP_ROWS { builder.constant(rows) } else { None };
                let Some(constant) = constant else {
                    column(writer, field, builder, places.clone(), order)?.append_to_row_group(&mut group)?;
                    continue;
                };
                let chunk = match kept {
                    Some((value, chunk)) if *value == constant => chunk,
                    _ => &mut kept.insert((constant, alone(field, builder, places.clone(), &properties)?)).1,
                };
                group.append_column(&chunk.file, chunk.close.clone())?;
            }
            group.close()?;
        }
        file.into_inner()
    }
}

fn options(properties: &WriterProperties) -> ArrowWriterOptions {
    // With Arrow's schema, pyarrow would read text as dictionaries, which fails for some encodings.
    ArrowWriterOptions::new().with_properties(properties.clone()).with_skip_arrow_metadata(true)
}

/// Encodes the values at these positions of the order.
fn column(
    mut writer: ArrowColumnWriter,
    field: &FieldRef,
    builder: &mut dyn Builder,
    places: Range<usize>,
    order: Order<'_>,
) -> Result<ArrowColumnChunk> {
    for first in places.clone().step_by(BATCH_ROWS) {
        let array = builder.take(first..places.end.min(first + BATCH_ROWS), order);
        for leaf in compute_leaves(field, &array)? {
            writer.write(&leaf)?;
        }
    }
    writer.close()
}

/// Encodes the values at these positions as a separate file.
fn alone(
    field: &FieldRef,
    builder: &mut dyn Builder,
    places: Range<usize>,
    properties: &WriterProperties,
) -> Result<Chunk> {
    let schema = Arc::new(Schema::new(vec![field.clone()]));
    let mut out = Vec::new();
    let (mut file, factory) =
        ArrowWriter::try_new_with_options(&mut out, schema, options(properties))?.into_serialized_writer()?;
    let mut group = file.next_row_group()?;
    for writer in factory.create_column_writers(0)? {
        column(writer, field, builder, places.clone(), None)?.append_to_row_group(&mut group)?;
    }
    group.close()?;
    let told = file.close()?;
    let of_one = || ParquetError::General(format!("no column of {} was written", field.name()));
    let metadata = told.row_groups().first().and_then(|g| g.columns().first()).ok_or_else(of_one)?.clone();
    let offset_index = told.offset_index().and_then(|groups| groups.first()?.first()).cloned();
    let close = ColumnCloseResult {
        bytes_written: metadata.compressed_size() as u64,
        rows_written: places.len() as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index,
    };
    Ok(Chunk { file: out.into(), close })
}
