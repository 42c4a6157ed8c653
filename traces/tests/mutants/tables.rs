//! The tables of a reel as rows of plain values, so that any of them can be changed; and back into Parquet.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::{
    ArrowWriter,
    arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder},
    arrow_writer::ArrowWriterOptions,
};
use serde_json::Value;

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Int32,
    Int64,
    Text,
    Bytes,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// A reel of one segment a table.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    pub(crate) manifest: Value,
    pub(crate) tables: BTreeMap<String, Table>,
}

fn cells(array: &ArrayRef) -> (Kind, Vec<Cell>) {
    let cell = |i: usize, value: Cell| if array.is_null(i) { Cell::Null } else { value };
    let places = 0..array.len();
    match array.data_type() {
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>();
            (Kind::Int32, places.map(|i| cell(i, Cell::Number(i64::from(values.value(i))))).collect())
        }
        DataType::Int64 => {
            let values = array.as_primitive::<Int64Type>();
            (Kind::Int64, places.map(|i| cell(i, Cell::Number(values.value(i)))).collect())
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            (Kind::Text, places.map(|i| cell(i, Cell::Text(values.value(i).into()))).collect())
        }
        DataType::Binary => {
            let values = array.as_binary::<i32>();
            (Kind::Bytes, places.map(|i| cell(i, Cell::Bytes(values.value(i).into()))).collect())
        }
        other => panic!("a column of type {other}"),
    }
}

impl Table {
    fn read(path: &Path) -> Self {
        // Texts plain, not as dictionaries.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let file = fs::File::open(path).unwrap();
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
        let mut table = Self { columns: Vec::new(), rows: Vec::new() };
        for batch in builder.build().unwrap() {
            let batch = batch.unwrap();
            let schema = batch.schema();
            let columns: Vec<(Kind, Vec<Cell>)> = batch.columns().iter().map(cells).collect();
            table.columns = (schema.fields().iter().zip(&columns))
                .map(|(f, (kind, _))| Column { name: f.name().clone(), kind: *kind })
                .collect();
            let row = |i: usize| columns.iter().map(|(_, cells)| cells[i].clone()).collect();
            table.rows.extend((0..batch.num_rows()).map(row));
        }
        table
    }

    fn column(&self, i: usize) -> ArrayRef {
        let number = |row: &Vec<Cell>| if let Cell::Number(n) = row[i] { Some(n) } else { None };
        match self.columns[i].kind {
            Kind::Int32 => Arc::new(self.rows.iter().map(|r| number(r).map(|n| n as i32)).collect::<Int32Array>()),
            Kind::Int64 => Arc::new(self.rows.iter().map(number).collect::<Int64Array>()),
            Kind::Text => {
                let text = |r: &Vec<Cell>| if let Cell::Text(t) = &r[i] { Some(t.clone()) } else { None };
                Arc::new(self.rows.iter().map(text).collect::<StringArray>())
            }
            Kind::Bytes => {
                let bytes = |r: &Vec<Cell>| if let Cell::Bytes(b) = &r[i] { Some(b.clone()) } else { None };
                Arc::new(self.rows.iter().map(bytes).collect::<BinaryArray>())
            }
        }
    }

    fn write(&self, path: &Path) {
        let arrays: Vec<ArrayRef> = (0..self.columns.len()).map(|i| self.column(i)).collect();
        // As the writer has them, or readers would refuse the type before they look at any row.
        let nullable = |i: usize| arrays[i].null_count() > 0;
        let fields = self.columns.iter().enumerate().map(|(i, c)| {
            let data_type = arrays[i].data_type().clone();
            Field::new(&c.name, data_type, nullable(i))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
        let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
        let mut writer = ArrowWriter::try_new_with_options(fs::File::create(path).unwrap(), schema, options).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

impl Tables {
    /// The first `rows` rows of each table of a reel.
    pub(crate) fn read(reel: &Path, rows: usize) -> Self {
        let manifest: Value = serde_json::from_slice(&fs::read(reel.join("manifest.json")).unwrap()).unwrap();
        let names = manifest["segments"].as_object().unwrap().keys().cloned();
        let read = |name: &String| {
            let mut table = Table::read(&reel.join(name).join("000000.parquet"));
            table.rows.truncate(rows);
            table
        };
        let tables = names.map(|name| (name.clone(), read(&name))).collect();
        Self { manifest, tables }
    }

    /// Writes a reel whose manifest counts its rows.
    pub(crate) fn write(&mut self, reel: &Path) {
        fs::create_dir(reel).unwrap();
        for (name, table) in &self.tables {
            let file = format!("{name}/000000.parquet");
            fs::create_dir(reel.join(name)).unwrap();
            table.write(&reel.join(&file));
            let segment = &mut self.manifest["segments"][name][0];
            segment["rows"] = table.rows.len().into();
            segment["bytes"] = fs::metadata(reel.join(&file)).unwrap().len().into();
        }
        self.write_manifest(reel);
    }

    pub(crate) fn write_manifest(&self, reel: &Path) {
        fs::write(reel.join("manifest.json"), self.manifest.to_string()).unwrap();
    }
}
