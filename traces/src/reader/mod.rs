//! Opens a reel and streams its rows.
//!
//! In: the folder of a reel. Out: its manifest, and rows or batches of a table, per segment or (`ordered`) by time.
//! May use: `format`, `private`.
//!
//! `kept` tells from when on a reel is complete. `guard` turns a panic of the Parquet decoder on a damaged file into an error. `limits` refuses files that
//! claim far more rows or bytes than their size explains.

mod guard;
pub mod kept;
pub(crate) mod limits;
pub(crate) mod ordered;
mod pages;
mod values;

use std::{
    marker::PhantomData,
    path::{Path, PathBuf},
    sync::Arc,
    vec,
};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Fields, Schema};
use parquet::{
    arrow::arrow_reader::{
        ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    },
    errors::ParquetError,
};

use crate::{
    Manifest, ReelError, Result,
    format::{
        manifest::{self, Segment},
        table::{Row, text_type},
    },
    private::Folder,
    reader::guard::decode,
};

/// Rows decoded at a time.
const BATCH_ROWS: usize = 16 * 1024;

/// An open reel.
#[derive(Clone, Debug)]
pub struct Reel {
    path: PathBuf,
    /// The open folder, if this process writes the reel: its path may lead elsewhere by now.
    folder: Option<Folder>,
    /// Its manifest.
    pub manifest: Manifest,
}

impl Reel {
    /// Opens the reel at `path` and reads its manifest. Refuses a newer major format, segments outside the reel or listed
    /// twice, and more rows than the files can hold.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let reel = Self::open_as_it_is(path.as_ref())?;
        let mut listed =
            reel.manifest.segments.iter().flat_map(|(table, segments)| segments.iter().map(move |s| (table, s)));
        let bad = |why| ReelError::BadManifest { path: reel.path.join(manifest::FILE_NAME), why };
        if let Some((table, segment)) = listed.find(|(table, segment)| !plain_segment(table, &segment.file)) {
            return Err(bad(format!(
                "{:?} is not of the form {table}/NAME.parquet; `ioreel validate --repair` drops it",
                segment.file
            )));
        }
        for (table, listed) in &reel.manifest.segments {
            limits::check_list(table, listed).map_err(bad)?;
        }
        Ok(reel)
    }

    /// Opens a reel without checking its list of segments, to report what is wrong with it.
    pub(crate) fn open_as_it_is(path: &Path) -> Result<Self> {
        Ok(Self { path: path.into(), folder: None, manifest: Manifest::read(path)? })
    }

    /// Opens the reel in a folder that is open already.
    pub fn open_in(folder: &Folder) -> Result<Self> {
        let manifest = Manifest::read_in(folder)?;
        Ok(Self { path: folder.path().into(), folder: Some(folder.clone()), manifest })
    }

    /// The reel's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The display name of the reel: the folder's name without `.reel`.
    pub fn name(&self) -> String {
        let name =
            self.path.file_name().map_or_else(|| self.path.display().to_string(), |n| n.to_string_lossy().into_owned());
        name.strip_suffix(".reel").map(str::to_owned).unwrap_or(name)
    }

    /// Number of rows of a table, according to the manifest.
    pub fn count<R: Row>(&self) -> i64 {
        self.manifest.segments.get(R::TABLE).map_or(0, |s| s.iter().map(|s| s.rows).fold(0, i64::saturating_add))
    }

    /// Paths of a table's segments, in order.
    pub fn segments<R: Row>(&self) -> Vec<PathBuf> {
        self.listed::<R>().iter().map(|s| self.path.join(&s.file)).collect()
    }

    fn listed<R: Row>(&self) -> &[Segment] {
        self.manifest.segments.get(R::TABLE).map(Vec::as_slice).unwrap_or_default()
    }

    fn place(&self) -> Place {
        match &self.folder {
            Some(folder) => Place::Open(folder.clone()),
            None => Place::At(self.path.clone()),
        }
    }

    /// Streams a table's rows, segment by segment, each sorted by time. Memory: one batch.
    pub fn rows<R: Row>(&self) -> Rows<R> {
        Rows { batches: self.batches::<R>(&[]), current: Vec::new().into_iter(), failed: false, row: PhantomData }
    }

    /// Like [`Reel::rows`], for the segment at `index` of [`Reel::segments`].
    pub fn segment_rows<R: Row>(&self, index: usize) -> Rows<R> {
        Rows { batches: self.segment_batches::<R>(index, &[]), ..self.rows() }
    }

    /// Streams Arrow batches of the named columns (all if empty), for column-wise processing.
    pub fn batches<R: Row>(&self, columns: &[&str]) -> Batches {
        Batches {
            reel: self.place(),
            segments: self.listed::<R>().to_vec().into_iter(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            open: None,
        }
    }

    /// Like [`Reel::batches`], for the segment at `index` of [`Reel::segments`], for code that merges segments by time.
    /// Empty if there is no such segment.
    pub fn segment_batches<R: Row>(&self, index: usize, columns: &[&str]) -> Batches {
        let one: Vec<Segment> = self.listed::<R>().get(index).cloned().into_iter().collect();
        let columns = columns.iter().map(|c| (*c).to_owned()).collect();
        Batches { reel: self.place(), segments: one.into_iter(), columns, open: None }
    }

    /// All rows of a table in time order, for small tables and tests.
    pub fn read<R: Row>(&self) -> Result<Vec<R>> {
        let mut rows = self.rows::<R>().collect::<Result<Vec<R>>>()?;
        rows.sort_by_key(Row::time_ns);
        Ok(rows)
    }
}

/// Whether the path of a segment is of the form `TABLE/NAME.parquet`, and so inside the reel. A reel may come from a
/// stranger, and its listed files are opened, and renamed by a repair.
pub(crate) fn plain_segment(table: &str, file: &str) -> bool {
    file.strip_prefix(table)
        .and_then(|f| f.strip_prefix('/'))
        .is_some_and(|name| !name.contains('/') && !name.starts_with('.') && name.ends_with(".parquet"))
}

/// Batches of a table; see [`Reel::batches`].
#[derive(Debug)]
pub struct Batches {
    reel: Place,
    segments: vec::IntoIter<Segment>,
    columns: Vec<String>,
    open: Option<(PathBuf, ParquetRecordBatchReader)>,
}

/// Where a reel's folder is.
#[derive(Debug)]
enum Place {
    At(PathBuf),
    Open(Folder),
}

impl Place {
    /// Opens one segment; its path and what reads it.
    fn open(&self, listed: &Segment, columns: &[String]) -> Result<(PathBuf, ParquetRecordBatchReader)> {
        let opened;
        let folder = match self {
            Self::Open(folder) => folder,
            Self::At(path) => {
                opened = Folder::open(path).map_err(ReelError::io(path, "opening the reel"))?;
                &opened
            }
        };
        let file = &listed.file;
        Ok((folder.path().join(file), open_segment(folder, file, Some(listed), columns)?))
    }
}

/// Opens one segment for reading the named columns (all when empty). No link in the reel is followed: what it leads to is not
/// part of the reel. Refuses a file beyond the limits, or one that does not fit its entry `listed` in the manifest.
pub(crate) fn open_segment(
    reel: &Folder,
    file: &str,
    listed: Option<&Segment>,
    columns: &[String],
) -> Result<ParquetRecordBatchReader> {
    let path = reel.path().join(file);
    let bad = |why: String| ReelError::BadSegment { path: path.clone(), why };
    let (table, name) = file.split_once('/').ok_or_else(|| bad("not of the form TABLE/NAME.parquet".into()))?;
    let file = reel.folder(table).and_then(|table| table.file(name)).map_err(|e| bad(e.to_string()))?;
    // The size of the opened file: another one may have its name by now.
    let bytes = file.metadata().map_err(|e| bad(e.to_string()))?.len();
    limits::check_footer_length(&file, bytes).map_err(bad)?;
    let builder = decode(|| {
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())?;
        let options = ArrowReaderOptions::new().with_schema(with_dictionaries(metadata.schema()));
        let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)?;
        Ok::<_, ParquetError>(ParquetRecordBatchReaderBuilder::new_with_metadata(file.try_clone()?, metadata))
    })
    .map_err(bad)?;
    limits::check_footer(builder.metadata(), bytes).map_err(bad)?;
    if let Some(listed) = listed {
        limits::check_listed(listed, bytes, builder.metadata()).map_err(bad)?;
    }
    let mask = limits::columns_to_read(builder.parquet_schema(), columns);
    let file = Arc::new(file);
    let batch_rows = decode(|| limits::check_pages(&file, builder.metadata(), &mask, bytes)).map_err(bad)?;
    decode(|| builder.with_projection(mask).with_batch_size(batch_rows).build()).map_err(bad)
}

/// Sets text columns to dictionary types. The files do not declare this, because other readers could not read them
/// then.
fn with_dictionaries(schema: &Schema) -> Arc<Schema> {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(text_type())),
        _ => field.clone(),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

/// The next batch of a segment, with errors as text.
pub(crate) fn next_batch(reader: &mut ParquetRecordBatchReader) -> Option<Result<RecordBatch, String>> {
    decode(|| reader.next().transpose()).transpose()
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.open.is_none() {
                let listed = self.segments.next()?;
                match self.reel.open(&listed, &self.columns) {
                    Ok(opened) => self.open = Some(opened),
                    Err(e) => return Some(Err(e)),
                }
            }
            if let Some((path, reader)) = &mut self.open {
                match next_batch(reader) {
                    Some(Ok(batch)) => return Some(Ok(batch)),
                    Some(Err(why)) => {
                        let error = ReelError::BadSegment { path: path.clone(), why };
                        self.open = None;
                        return Some(Err(error));
                    }
                    None => self.open = None,
                }
            }
        }
    }
}

/// Rows of a table; see [`Reel::rows`]. Ends after the first error.
#[derive(Debug)]
pub struct Rows<R> {
    batches: Batches,
    current: vec::IntoIter<R>,
    failed: bool,
    row: PhantomData<R>,
}

impl<R: Row> Iterator for Rows<R> {
    type Item = Result<R>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.current.next() {
                return Some(Ok(row));
            }
            if self.failed {
                return None;
            }
            let mut rows = Vec::new();
            let read = self.batches.next()?.and_then(|batch| {
                let path = || self.batches.open.as_ref().map_or_else(|| R::TABLE.into(), |(path, _)| path.clone());
                R::read(&batch, &mut rows).map_err(|why| ReelError::BadSegment { path: path(), why })
            });
            if let Err(e) = read {
                self.failed = true;
                return Some(Err(e));
            }
            self.current = rows.into_iter();
        }
    }
}

/// Time span of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSpan {
    /// Number of rows.
    pub rows: usize,
    /// Earliest start, ns.
    pub first_ns: i64,
    /// Earliest end, ns.
    pub first_end_ns: i64,
}

impl Reel {
    /// The time span of the segment at `index` of [`Reel::segments`]. Reads only two columns. `None` if it is empty.
    pub fn segment_span<R: Row>(&self, index: usize) -> Result<Option<SegmentSpan>> {
        let columns: Vec<&str> = std::iter::once(R::TIME).chain(R::DURATION).collect();
        let path = self.listed::<R>().get(index).map(|s| self.path.join(&s.file)).unwrap_or_default();
        let bad = |why: String| ReelError::BadSegment { path: path.clone(), why };
        let mut out: Option<SegmentSpan> = None;
        for batch in self.segment_batches::<R>(index, &columns) {
            let batch = batch?;
            let time = crate::format::table::column::<i64>(&batch, R::TIME).map_err(bad)?;
            let lasted =
                R::DURATION.map(|d| crate::format::table::column::<i64>(&batch, d)).transpose().map_err(bad)?;
            for row in 0..batch.num_rows() {
                let first_ns = <i64 as crate::format::table::Cell>::get(&time, row);
                let lasted_ns = lasted.as_ref().map_or(0, |l| <i64 as crate::format::table::Cell>::get(l, row).max(0));
                let end_ns = first_ns.saturating_add(lasted_ns);
                let span = out.get_or_insert(SegmentSpan { rows: 0, first_ns, first_end_ns: end_ns });
                span.rows += 1;
                span.first_ns = span.first_ns.min(first_ns);
                span.first_end_ns = span.first_end_ns.min(end_ns);
            }
        }
        Ok(out)
    }
}
