//! Segments and lists that claim more than their size explains.

use std::{fs::File, path::Path, sync::Arc, time::Instant};

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use ioreel_traces::{
    Manifest, Reel, ReelWriter,
    private::Folder,
    rows::{Op, Task},
    table::Row,
    validate::validate,
};
use parquet::{
    arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder},
    basic::{Compression, Encoding, ZstdLevel},
    file::properties::WriterProperties,
};

use crate::common::{manifest, op, small_segments, task};

/// A reel of so many tasks and operations.
fn reel(dir: &Path, rows: i64) -> std::path::PathBuf {
    let path = dir.join("r.reel");
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    (0..rows).for_each(|i| w.tasks.push(task(i, None)).unwrap());
    (0..rows).for_each(|i| w.ops.push(op(i)).unwrap());
    w.close(manifest()).unwrap();
    path
}

fn changed(reel: &Path, change: impl FnOnce(&mut Manifest)) {
    let mut manifest = Manifest::read(reel).unwrap();
    change(&mut manifest);
    manifest.write(&Folder::open(reel).unwrap()).unwrap();
}

/// Why the first table that is refused is so.
fn refused(reel: &Path) -> String {
    let read = Reel::open(reel).and_then(|r| r.read::<Task>().and(r.read::<Op>().map(drop)));
    read.expect_err("the reel is read").to_string()
}

#[test]
fn a_segment_listed_twice_is_refused_and_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let path = reel(dir.path(), 10);
    changed(&path, |m| {
        let ops = m.segments.get_mut(Op::TABLE).unwrap();
        *ops = vec![ops[0].clone(); 2000];
    });
    assert!(refused(&path).contains("ops/000000.parquet is listed twice"), "{}", refused(&path));
    let report = validate(&path, false).unwrap();
    assert!(report.problems.iter().any(|p| p.what.contains("listed more than once")), "{:?}", report.problems);
    assert!(report.tables.iter().all(|t| t.segments == 1), "{:?}", report.tables);
    let report = validate(&path, true).unwrap();
    assert!(report.repaired.iter().any(|r| r.contains("now once")), "{:?}", report.repaired);
    assert_eq!(Reel::open(&path).unwrap().read::<Op>().unwrap().len(), 10);
}

#[test]
fn a_list_of_more_rows_than_its_bytes_can_hold_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = reel(dir.path(), 10);
    for rows in [1 << 40, i64::MAX, -1] {
        changed(&path, |m| m.segments.get_mut(Task::TABLE).unwrap()[0].rows = rows);
        let why = refused(&path);
        assert!(why.contains(&format!("tasks: {rows} rows in ")), "{why}");
    }
    assert!(!validate(&path, false).unwrap().valid);
}

#[test]
fn a_segment_must_not_be_more_than_the_list_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = reel(dir.path(), 10);
    changed(&path, |m| m.segments.get_mut(Task::TABLE).unwrap()[0].rows = 3);
    assert!(refused(&path).contains("it has 10 rows, but the manifest lists 3"), "{}", refused(&path));
    changed(&path, |m| {
        let listed = &mut m.segments.get_mut(Task::TABLE).unwrap()[0];
        (listed.rows, listed.bytes) = (10, 1 << 40);
    });
    assert!(refused(&path).contains("but the manifest lists 1099511627776"), "{}", refused(&path));
    validate(&path, true).unwrap();
    assert_eq!(Reel::open(&path).unwrap().read::<Task>().unwrap().len(), 10);
}

/// Writes the batches to a segment of `tasks` instead of what was there.
fn rewritten(path: &Path, batches: impl Iterator<Item = RecordBatch>, properties: WriterProperties) {
    let mut batches = batches.peekable();
    let schema = batches.peek().unwrap().schema();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema, Some(properties)).unwrap();
    batches.for_each(|batch| writer.write(&batch).unwrap());
    writer.close().unwrap();
}

#[test]
fn row_groups_of_one_row_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.reel");
    let mut w = ReelWriter::create(&path, &manifest(), ioreel_traces::WriterOptions::default()).unwrap();
    (0..2000).for_each(|i| w.tasks.push(task(i, None)).unwrap());
    w.close(manifest()).unwrap();
    let segment = path.join("tasks/000000.parquet");
    let rows = ParquetRecordBatchReaderBuilder::try_new(File::open(&segment).unwrap()).unwrap().build().unwrap();
    let rows: Vec<RecordBatch> = rows.map(Result::unwrap).collect();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1)).build();
    rewritten(&segment, rows.into_iter(), properties);
    let why = refused(&path);
    assert!(why.contains("2000 rows in 2000 row groups; at most 1025"), "{why}");
    assert!(why.contains("tasks/000000.parquet") && why.contains("ioreel validate"), "{why}");
}

#[test]
fn bytes_that_only_decompression_makes_are_refused_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = reel(dir.path(), 500);
    let segment = path.join("tasks/000000.parquet");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
        .set_dictionary_enabled(false)
        .set_write_batch_size(1)
        .build();
    let long = "a".repeat(4 << 20);
    let batch = |_| {
        let comm: ArrayRef = Arc::new(StringArray::from(vec![long.as_str()]));
        RecordBatch::try_from_iter([("comm", comm)]).unwrap()
    };
    rewritten(&segment, (0..90).map(batch), properties);
    assert!(segment.metadata().unwrap().len() < 200_000, "the bomb is small");
    let began = Instant::now();
    changed(&path, |m| m.segments.get_mut(Task::TABLE).unwrap()[0].bytes = 0);
    let why = refused(&path);
    assert!(why.contains("when decompressed; at most"), "{why}");
    println!("refused within {:?}", began.elapsed());
}

/// A segment of `tasks` with this column only, of 90 rows with 4 MiB of the same text each.
fn with_long_texts(dir: &Path, properties: WriterProperties) -> std::path::PathBuf {
    let path = reel(dir, 500);
    let segment = path.join("tasks/000000.parquet");
    let long = "a".repeat(4 << 20);
    let batch = |_| {
        let comm: ArrayRef = Arc::new(StringArray::from(vec![long.as_str()]));
        RecordBatch::try_from_iter([("comm", comm)]).unwrap()
    };
    rewritten(&segment, (0..90).map(batch), properties);
    assert!(segment.metadata().unwrap().len() < 200_000, "the bomb is small");
    changed(&path, |m| m.segments.get_mut(Task::TABLE).unwrap()[0].bytes = 0);
    path
}

fn compressed() -> parquet::file::properties::WriterPropertiesBuilder {
    let level = ZstdLevel::try_new(1).unwrap();
    WriterProperties::builder().set_compression(Compression::ZSTD(level)).set_write_batch_size(1)
}

#[test]
fn texts_that_share_a_long_beginning_are_refused_before_decoding() {
    let dir = tempfile::tempdir().unwrap();
    let properties = compressed()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BYTE_ARRAY)
        .set_data_page_size_limit(1 << 30)
        .build();
    let why = refused(&with_long_texts(dir.path(), properties));
    assert!(why.contains("when decompressed and decoded; at most"), "{why}");
}

#[test]
fn long_texts_of_a_dictionary_are_decoded_a_few_rows_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let properties = compressed().set_dictionary_page_size_limit(64 << 20).build();
    let reel = Reel::open(with_long_texts(dir.path(), properties)).unwrap();
    let rows: Vec<usize> = reel.batches::<Task>(&["comm"]).map(|batch| batch.unwrap().num_rows()).collect();
    assert_eq!(rows, [64, 26], "256 MiB at a time");
}

#[test]
fn a_column_with_any_number_of_values_per_row_is_not_read() {
    use arrow_array::{Int64Array, ListArray, types::Int64Type};
    let dir = tempfile::tempdir().unwrap();
    let path = reel(dir.path(), 1);
    let segment = path.join("tasks/000000.parquet");
    let many = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(7); 1 << 20])]);
    let columns: [(&str, ArrayRef); 2] = [("start_ns", Arc::new(Int64Array::from(vec![5]))), ("many", Arc::new(many))];
    rewritten(&segment, [RecordBatch::try_from_iter(columns).unwrap()].into_iter(), compressed().build());
    changed(&path, |m| m.segments.get_mut(Task::TABLE).unwrap()[0].bytes = 0);
    for columns in [&[][..], &["start_ns", "many"]] {
        let batch = Reel::open(&path).unwrap().batches::<Task>(columns).next().unwrap().unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (1, 1), "{columns:?}");
    }
}
