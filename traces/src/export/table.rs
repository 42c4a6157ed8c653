//! A table as CSV (RFC 4180) or as JSON with one object per line.

use std::{
    io::{BufWriter, IsTerminal, Write},
    path::Path,
};

use arrow_array::{
    Array, BinaryArray, DictionaryArray, RecordBatch,
    cast::AsArray,
    types::{Int32Type, Int64Type},
};

use arrow_schema::DataType;

use super::{ExportError, Result};
use crate::reader::ordered::Ordered;
use crate::{
    Reel, ReelError,
    format::{
        columns::Builder,
        table::{self, Row},
        tables::{self, Visitor},
        text::is_harmful,
    },
    suggest,
};

/// Rows formatted at a time.
const ROWS: usize = 16 * 1024;

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A header line, then one line per row. Null is empty, an empty text is `""`.
    Csv,
    /// One object per line. Null members are omitted.
    JsonLines,
}

/// Writes the table `name`, ordered by time, to `output` or to standard output. Returns the number of rows.
///
/// # Errors
/// If there is no such table, the reel cannot be read, or the output already exists or cannot be written.
pub fn export(reel: &Reel, name: &str, form: Form, output: Option<&Path>) -> Result<i64> {
    struct Find<'a> {
        reel: &'a Reel,
        name: &'a str,
        form: Form,
        output: Option<&'a Path>,
        rows: Option<i64>,
    }
    impl Visitor for Find<'_> {
        type Error = ExportError;
        fn table<R: Row>(&mut self) -> Result<()> {
            if R::TABLE == self.name {
                self.rows = Some(to::<R>(self.reel, self.form, self.output)?);
            }
            Ok(())
        }
    }
    let mut find = Find { reel, name, form, output, rows: None };
    tables::each(&mut find)?;
    find.rows.ok_or_else(|| {
        let known: Vec<&str> = tables::all().iter().map(|t| t.name).collect();
        ExportError::refused(reel.path(), suggest::unknown("table", name, &known))
    })
}

fn to<R: Row>(reel: &Reel, form: Form, output: Option<&Path>) -> Result<i64> {
    let Some(path) = output else {
        let (mut out, path) = (std::io::stdout().lock(), Path::new("standard output"));
        return match out.is_terminal() {
            true => write::<R>(reel, form, &mut OnTerminal(out), path),
            false => write::<R>(reel, form, &mut out, path),
        };
    };
    let mut file = super::create(path)?;
    let rows = write::<R>(reel, form, &mut BufWriter::with_capacity(1 << 20, &mut file), path)?;
    super::keep(file)?;
    Ok(rows)
}

/// Replaces what would control the terminal. Pipes and files get all bytes as they are.
struct OnTerminal<W>(W);

impl<W: Write> Write for OnTerminal<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(text.replace(|c| c != '\n' && is_harmful(c), "\u{FFFD}").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn write<R: Row>(reel: &Reel, form: Form, out: &mut impl Write, path: &Path) -> Result<i64> {
    let failed = |e| ReelError::io(path, "writing the table")(e);
    let schema = table::schema::<R>();
    let mut text = Vec::with_capacity(4 << 20);
    if form == Form::Csv {
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        text.extend(names.join(",").bytes());
        text.push(b'\n');
    }
    let mut rows = Ordered::<R>::new(reel);
    let mut columns = R::Columns::default();
    let mut total = 0;
    // A row of bytes may be large.
    let most = if schema.fields().iter().any(|f| *f.data_type() == DataType::Binary) { 16 } else { ROWS };
    loop {
        let mut count = 0;
        while count < most
            && let Some(row) = rows.next()?
        {
            row.append(&mut columns, count);
            count += 1;
        }
        let bad = |why| ReelError::BadSegment { path: R::TABLE.into(), why };
        if count > 0 {
            let arrays = R::builders(&mut columns).into_iter().map(|b| b.take(0..count, None)).collect();
            let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(|e| bad(e.to_string()))?;
            R::builders(&mut columns).into_iter().for_each(Builder::clear);
            lines(&batch, form, &mut text).map_err(bad)?;
            total += count as i64;
        }
        out.write_all(&text).map_err(failed)?;
        text.clear();
        if count < most {
            out.flush().map_err(failed)?;
            return Ok(total);
        }
    }
}

/// A typed column of one batch.
enum Cells<'a> {
    I32(&'a arrow_array::Int32Array),
    I64(&'a arrow_array::Int64Array),
    Text(&'a DictionaryArray<Int32Type>, Vec<String>),
    Bytes(&'a BinaryArray),
}

/// The entries of a dictionary, formatted for output.
fn texts(dict: &DictionaryArray<Int32Type>, form: Form) -> Result<Vec<String>, String> {
    let values = dict.values().as_string_opt::<i32>().ok_or("a text column holds no text")?;
    let quoted = |v: Option<&str>| match form {
        Form::JsonLines => serde_json::to_string(v.unwrap_or_default()).map_err(|e| e.to_string()),
        Form::Csv => {
            let v = v.unwrap_or_default();
            let plain = !v.is_empty() && !v.contains([',', '"', '\n', '\r']);
            Ok(if plain { v.to_owned() } else { format!("\"{}\"", v.replace('"', "\"\"")) })
        }
    };
    values.iter().map(quoted).collect()
}

fn lines(batch: &RecordBatch, form: Form, out: &mut Vec<u8>) -> Result<(), String> {
    let schema = batch.schema();
    let mut cells = Vec::new();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        let typed = if let Some(a) = array.as_primitive_opt::<Int32Type>() {
            Cells::I32(a)
        } else if let Some(a) = array.as_primitive_opt::<Int64Type>() {
            Cells::I64(a)
        } else if let Some(a) = array.as_binary_opt::<i32>() {
            Cells::Bytes(a)
        } else {
            let dict = array.as_dictionary_opt::<Int32Type>().ok_or("a column of an unknown type")?;
            Cells::Text(dict, texts(dict, form)?)
        };
        cells.push((field.name(), array, typed));
    }
    for i in 0..batch.num_rows() {
        if form == Form::JsonLines {
            out.push(b'{');
        }
        let mut first = true;
        for (name, array, typed) in &cells {
            let valid = array.is_valid(i);
            if !first && (form == Form::Csv || valid) {
                out.push(b',');
            }
            if form == Form::Csv || valid {
                first = false;
            }
            if !valid {
                continue;
            }
            if form == Form::JsonLines {
                out.push(b'"');
                out.extend(name.bytes());
                out.extend(b"\":");
            }
            match typed {
                Cells::I32(a) => out.extend(a.value(i).to_string().bytes()),
                Cells::Bytes(a) => {
                    const DIGITS: &[u8; 16] = b"0123456789abcdef";
                    let quote: &[u8] = if form == Form::JsonLines { b"\"" } else { b"" };
                    out.extend(quote);
                    let digit = |b: u8| DIGITS[usize::from(b)];
                    out.extend(a.value(i).iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]));
                    out.extend(quote);
                }
                Cells::I64(a) => out.extend(a.value(i).to_string().bytes()),
                Cells::Text(dict, texts) => {
                    out.extend(dict.key(i).and_then(|k| texts.get(k)).into_iter().flat_map(|t| t.bytes()));
                }
            }
        }
        out.extend(if form == Form::JsonLines { &b"}\n"[..] } else { &b"\n"[..] });
    }
    Ok(())
}
