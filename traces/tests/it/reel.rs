//! What is written comes back; what is damaged is told in one line.

use std::{fs, path::Path, sync::Arc, time::Duration};

use crate::common::{self, good, manifest, op, place, small_segments};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray, cast::AsArray,
    types::Int32Type, types::Int64Type,
};
use arrow_schema::{DataType, Field, Schema};
use ioreel_traces::{
    Manifest, Reel, ReelError, ReelWriter, TableWriter, WriterOptions,
    manifest::State,
    rotate::Keep,
    rows::{self, Content, Op},
    table::{Row, schema},
    text,
    validate::validate,
};
use parquet::arrow::{ArrowWriter, arrow_reader::ParquetRecordBatchReaderBuilder};

/// Text that breaks careless writers: empty, not UTF-8, escapes of escapes, long.
fn texts() -> Vec<String> {
    vec![
        String::new(),
        "read".into(),
        text::from_bytes(b"/not/\xff\xfeutf8").to_string(),
        text::from_bytes("/already/\u{F7FF}".as_bytes()).to_string(),
        "/\u{1F600}/a\nb".into(),
        "x".repeat(4096),
    ]
}

/// `n` rows with every column at varied values: small, extreme and, where allowed, null.
fn varied<R: Row>(n: usize) -> Vec<R> {
    let columns: Vec<ArrayRef> = R::fields()
        .iter()
        .enumerate()
        .map(|(c, info)| {
            let null = |i: usize| info.nullable && (i + c).is_multiple_of(3);
            // Distinct per column and row, so that swapped columns or rows show.
            let number = |i: usize| match (i + c) % 7 {
                _ if info.name == R::TIME => i as i64 * 1000,
                _ if R::ID == Some(info.name) => i as i64,
                5 => i64::MAX - c as i64,
                6 => i64::MIN + c as i64,
                _ => (i * 100 + c) as i64 - 1000,
            };
            match &info.data_type {
                DataType::Int64 => {
                    Arc::new((0..n).map(|i| (!null(i)).then(|| number(i))).collect::<Int64Array>()) as ArrayRef
                }
                DataType::Int32 => {
                    Arc::new((0..n).map(|i| (!null(i)).then(|| number(i) as i32)).collect::<Int32Array>())
                }
                DataType::Dictionary(_, _) => {
                    let texts = texts();
                    let values = (0..n).map(|i| (!null(i)).then(|| texts[(i * 5 + c) % texts.len()].as_str()));
                    Arc::new(values.collect::<DictionaryArray<Int32Type>>())
                }
                DataType::Binary => Arc::new(BinaryArray::from_iter_values((0..n).map(|i| vec![i as u8; i * 7 % 300]))),
                other => panic!("a column of type {other}: teach this test to make one"),
            }
        })
        .collect();
    let mut rows = Vec::new();
    R::read(&RecordBatch::try_new(schema::<R>(), columns).unwrap(), &mut rows).unwrap();
    rows
}

fn round_trip<R: Row + PartialEq + std::fmt::Debug>(table: fn(&mut ReelWriter) -> &mut TableWriter<R>) {
    let (_dir, path) = place();
    let rows = varied::<R>(250);
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    for row in rows.iter().cloned() {
        table(&mut w).push(row).unwrap();
    }
    let closed = w.close(manifest()).unwrap();
    assert_eq!(closed.segments[R::TABLE].len(), 3, "{}", R::TABLE);
    let reel = Reel::open(&path).unwrap();
    assert_eq!(reel.manifest, closed);
    assert_eq!(reel.count::<R>(), 250);
    assert_eq!(reel.read::<R>().unwrap(), rows, "{}", R::TABLE);
}

#[test]
fn every_table_comes_back_with_nulls_and_extremes() {
    round_trip(|w| &mut w.ops);
    round_trip(|w| &mut w.block);
    round_trip(|w| &mut w.bio);
    round_trip(|w| &mut w.tasks);
    round_trip(|w| &mut w.execs);
    round_trip(|w| &mut w.files);
    round_trip(|w| &mut w.fds);
    round_trip(|w| &mut w.tree);
    round_trip(|w| &mut w.contents);
}

#[test]
fn other_readers_see_columns_by_name_and_signed() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    let row = Op {
        path: Some(text::from_bytes(b"/a\xff")),
        offset_bytes: Some(i64::MAX),
        aux: Some(-1),
        ret: Some(-2),
        ..op(5)
    };
    w.ops.push(row).unwrap();
    w.close(manifest()).unwrap();
    let batch = Reel::open(&path).unwrap().batches::<Op>(&[]).next().unwrap().unwrap();
    let int = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(0);
    assert_eq!((int("offset_bytes"), int("aux"), int("ret"), int("op_id")), (i64::MAX, -1, -2, 0));
    let text = batch.column_by_name("path").unwrap().as_dictionary::<Int32Type>();
    assert_eq!(text.values().as_string::<i32>().value(0), "/a\u{F7FF}");
    assert!(batch.column_by_name("path2").unwrap().is_null(0));
}

#[test]
fn segments_are_sorted_and_ids_ascend_whatever_the_order_of_arrival() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    // Ends arrive in order, starts do not: 999 rows in 10 segments.
    for i in 0..999i64 {
        w.ops.push(op((i * 7919) % 1009)).unwrap();
    }
    assert_eq!((w.ops.written(), w.ops.waiting()), (900, 99));
    let closed = w.close(manifest()).unwrap();
    let segments = &closed.segments["ops"];
    assert_eq!(segments.len(), 10);
    let rows = Reel::open(&path).unwrap().rows::<Op>().collect::<Result<Vec<_>, _>>().unwrap();
    let mut at = 0;
    for segment in segments {
        let part = &rows[at..at + segment.rows as usize];
        assert!(part.is_sorted_by_key(|r| r.start_ns));
        assert_eq!((segment.from_ns, segment.to_ns), (part[0].start_ns, part[part.len() - 1].end_ns()));
        assert_eq!(segment.bytes, fs::metadata(path.join(&segment.file)).unwrap().len() as i64);
        at += part.len();
    }
    assert!(rows.iter().enumerate().all(|(i, r)| r.op_id == i as i64));
    assert_eq!(closed.cost.reel_bytes, segments.iter().map(|s| s.bytes).sum::<i64>());
}

#[test]
fn ids_that_are_given_are_kept() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    w.block.push(common::request(42)).unwrap();
    w.close(manifest()).unwrap();
    assert_eq!(Reel::open(&path).unwrap().read::<rows::Block>().unwrap()[0].rq_id, 42);
}

#[test]
fn a_quiet_segment_is_closed_when_it_is_old() {
    let (_dir, path) = place();
    let options = WriterOptions { segment_age: Duration::ZERO, ..WriterOptions::default() };
    let mut w = ReelWriter::create(&path, &manifest(), options).unwrap();
    w.flush_if_old(Vec::new).unwrap();
    w.ops.push(op(1)).unwrap();
    w.flush_if_old(Vec::new).unwrap();
    assert_eq!((w.ops.written(), w.ops.waiting()), (1, 0));
}

/// pyarrow cannot make dictionaries of text that is written as differences, and has to wherever an Arrow schema says so.
#[test]
fn text_is_plain_text_to_other_readers() {
    let (_dir, path) = place();
    good().write(&path);
    for table in ["ops", "files", "tasks"] {
        let file = fs::File::open(path.join(table).join("000000.parquet")).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        assert!(reader.metadata().file_metadata().key_value_metadata().is_none_or(Vec::is_empty), "{table}");
        let types: Vec<DataType> = reader.schema().fields().iter().map(|f| f.data_type().clone()).collect();
        assert!(types.contains(&DataType::Utf8), "{table}: {types:?}");
        assert!(!types.iter().any(|t| matches!(t, DataType::Dictionary(_, _))), "{table}: {types:?}");
    }
}

/// Rewrites the first segment of `ops` with other columns.
fn rewrite(reel: &Path, change: impl Fn(&mut Vec<Field>, &mut Vec<ArrayRef>)) {
    let path = reel.join("ops/000000.parquet");
    let batch = Reel::open(reel).unwrap().batches::<Op>(&[]).next().unwrap().unwrap();
    let mut fields: Vec<Field> = batch.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    let mut columns = batch.columns().to_vec();
    change(&mut fields, &mut columns);
    let schema = Arc::new(Schema::new(fields));
    let mut w = ArrowWriter::try_new(fs::File::create(path).unwrap(), schema.clone(), None).unwrap();
    w.write(&RecordBatch::try_new(schema, columns).unwrap()).unwrap();
    w.close().unwrap();
}

fn index(fields: &[Field], name: &str) -> usize {
    fields.iter().position(|f| f.name() == name).unwrap()
}

#[test]
fn a_column_that_an_older_writer_lacked_is_null_and_an_unknown_one_is_ignored() {
    let (_dir, path) = place();
    good().write(&path);
    rewrite(&path, |fields, columns| {
        let at = index(fields, "file");
        fields.remove(at);
        let gone = columns.remove(at);
        fields.push(Field::new("colour", DataType::Int64, false));
        columns.push(Arc::new((0..gone.len() as i64).collect::<Int64Array>()));
    });
    let rows = Reel::open(&path).unwrap().rows::<Op>().take(100).collect::<Result<Vec<_>, _>>().unwrap();
    assert!(rows.iter().all(|r| r.file.is_none() && r.fd == Some(3)));
}

/// The one line that reading all operations ends with.
fn failure(reel: &Path) -> String {
    let error = Reel::open(reel).unwrap().rows::<Op>().find_map(Result::err).unwrap().to_string();
    assert!(!error.contains('\n'), "more than one line: {error}");
    error
}

#[test]
fn a_missing_column_that_must_be_there_is_told() {
    let (_dir, path) = place();
    good().write(&path);
    rewrite(&path, |fields, columns| {
        let at = index(fields, "start_ns");
        fields.remove(at);
        columns.remove(at);
    });
    assert!(failure(&path).contains("column start_ns is missing"));
}

#[test]
fn a_column_of_the_wrong_type_is_told() {
    for (name, expected) in [("start_ns", "Int64"), ("op", "Dictionary"), ("fd", "Int32")] {
        let (_dir, path) = place();
        good().write(&path);
        rewrite(&path, |fields, columns| {
            let at = index(fields, name);
            let values = 0..columns[at].len();
            columns[at] = match expected {
                "Dictionary" => Arc::new(Int64Array::from_iter_values(values.map(|i| i as i64))),
                _ => Arc::new(StringArray::from_iter_values(values.map(|i| i.to_string()))),
            };
            fields[at] = Field::new(name, columns[at].data_type().clone(), false);
        });
        let told = failure(&path);
        assert!(told.contains(&format!("column {name}: expected type {expected}")), "{told}");
        assert!(told.contains("000000.parquet"), "which file? {told}");
    }
}

#[test]
fn a_cut_or_garbled_segment_is_one_clear_error() {
    let (_dir, path) = place();
    good().write(&path);
    let segment = path.join("ops/000000.parquet");
    let whole = fs::read(&segment).unwrap();
    for length in (0..whole.len()).step_by(97) {
        fs::write(&segment, &whole[..length]).unwrap();
        assert!(failure(&path).contains("000000.parquet"));
    }
    // Any byte changed: an error or other values, never a panic.
    for at in (0..whole.len()).step_by(37) {
        let mut spoilt = whole.clone();
        spoilt[at] ^= 0xFF;
        fs::write(&segment, &spoilt).unwrap();
        let _ = Reel::open(&path).unwrap().rows::<Op>().find_map(Result::err);
    }
    fs::remove_file(&segment).unwrap();
    assert!(failure(&path).contains("No such file"));
}

#[test]
fn a_manifest_that_is_none_is_told() {
    let (dir, path) = place();
    assert!(matches!(Reel::open(&path), Err(ReelError::NotAReel { .. })));
    assert!(matches!(Reel::open(dir.path()), Err(ReelError::NotAReel { .. })));
    good().write(&path);
    let with = |text: &str| {
        common::edit_manifest(&path, |_| text.into());
        Reel::open(&path).unwrap_err()
    };
    for garbage in ["", "{", "[]", "{\"format\": 1}", "{\"format\": \"one\"}", "{}", "\u{0}\u{1}"] {
        assert!(matches!(with(garbage), ReelError::BadManifest { .. }), "{garbage:?}");
    }
    let newer = with(r#"{"format": "2.0", "segments": "these are kept elsewhere now"}"#);
    assert!(matches!(newer, ReelError::NewerFormat { .. }));
    assert!(newer.to_string().contains("2.0 is newer"), "{newer}");
    common::edit_manifest(&path, |_| r#"{"format": "1.99", "moods": ["good"]}"#.into());
    assert_eq!(Reel::open(&path).unwrap().manifest, Manifest { format: "1.99".into(), ..Manifest::default() });
}

#[test]
fn a_place_that_is_none_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (place, remedy) in [("missing/a.reel", "create it first"), ("file/a.reel", "its parent is not a folder")] {
        let created = ReelWriter::create(&dir.path().join(place), &manifest(), WriterOptions::default());
        let refused = created.unwrap_err().to_string();
        assert!(refused.contains(place) && refused.contains(remedy), "{refused}");
    }
}

#[test]
fn an_existing_path_is_left_alone() {
    let (_dir, path) = place();
    fs::write(&path, "mine").unwrap();
    let refused = ReelWriter::create(&path, &manifest(), small_segments()).unwrap_err();
    assert!(matches!(refused, ReelError::Exists { .. }));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}

#[test]
fn a_segment_that_cannot_be_written_leaves_a_valid_reel() {
    let (_dir, path) = place();
    let (mut w, manifest) = good().begin(&path);
    // The next segment's name is taken by a folder: what a full disk is to the writer.
    fs::create_dir(path.join("ops/000002.parquet.tmp")).unwrap();
    let error = w.ops.flush().unwrap_err().to_string();
    assert!(error.contains("000002.parquet") && !error.contains('\n'), "{error}");
    // The open segment held 50 events and a call of ioreel's own.
    assert_eq!((w.ops.lost(), w.ops.written()), (50, 200));
    fs::remove_dir(path.join("ops/000002.parquet.tmp")).unwrap();
    // Its maker stopped counting when the disk was full; seen are 258, of which 3 were filtered.
    let mut manifest = manifest;
    manifest.ledger.get_mut("ops").unwrap().written = 200;
    manifest.ledger.get_mut("bio").unwrap().written = 0;
    let closed = w.close(manifest).unwrap();
    assert_eq!(closed.state, State::Truncated);
    assert_eq!((closed.ledger["ops"].written, closed.ledger["ops"].lost), (200, 55));
    assert_eq!((closed.ledger["bio"].written, closed.ledger["bio"].lost), (20, 0));
    let report = validate(&path, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
}

/// Of tables without a ledger, too, what did not reach the disk is counted, and an empty folder is no table.
#[test]
fn rows_without_a_ledger_that_cannot_be_written_are_counted() {
    let (_dir, path) = place();
    let (mut w, manifest) = good().begin(&path);
    let content = |n: i64| Content { first_ns: n, content_hash: format!("{n:032x}").into(), data: vec![0; 9].into() };
    for n in 0..7 {
        w.contents.push(content(n)).unwrap();
    }
    let blocked = path.join("contents/000000.parquet.tmp");
    fs::create_dir_all(&blocked).unwrap();
    w.contents.flush().unwrap_err();
    fs::remove_dir(&blocked).unwrap();
    let closed = w.close(manifest).unwrap();
    assert_eq!(closed.state, State::Truncated);
    assert_eq!(closed.warnings, ["7 rows of contents could not be written"]);
}

#[test]
fn files_are_closed_with_the_operations_on_them() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    w.files.push(common::file(0)).unwrap();
    for i in 0..99 {
        w.ops.push(op(i)).unwrap();
    }
    w.flush_if_old(Vec::new).unwrap();
    assert_eq!((w.ops.written(), w.files.written()), (0, 0));
    w.ops.push(op(99)).unwrap();
    w.flush_if_old(Vec::new).unwrap();
    assert_eq!((w.ops.written(), w.files.written()), (100, 1));
}

/// Small segments of tasks, which a rotation keeps, become one; a merge that a crash cut short is no problem.
#[test]
fn a_rotating_reel_merges_small_segments() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    for i in 0..40 {
        w.tasks.push(common::task(i, (i > 0).then_some(0))).unwrap();
        w.files.push(common::file(i)).unwrap();
        w.tasks.flush().unwrap();
        w.files.flush().unwrap();
        w.ops.push(Op { task_id: i, file: Some(i), ..op(i) }).unwrap();
        w.rotate(Keep { max_bytes: Some(1), span_ns: None }, i, &[]).unwrap();
    }
    w.ops.flush().unwrap();
    w.rotate(Keep { max_bytes: Some(1), span_ns: None }, 40, &[]).unwrap();
    let files = |table: &str| fs::read_dir(path.join(table)).unwrap().count();
    assert!(files("tasks") <= 16 && files("files") <= 16, "{} and {}", files("tasks"), files("files"));
    assert!(w.ops.written() > 0, "the newest operations stay, however small the reel is to be");
    w.files.flush().unwrap();
    let closed = w.close(manifest()).unwrap();
    assert_eq!(closed.segments["files"].iter().map(|s| s.rows).sum::<i64>(), 40);
    fs::create_dir(path.join("tasks.tmp")).unwrap();
    fs::write(path.join("tasks.tmp/000000.parquet"), "half").unwrap();
    let report = validate(&path, true).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    assert!(!path.join("tasks.tmp").exists());
    assert_eq!(Reel::open(&path).unwrap().read::<rows::File>().unwrap().len(), 40);
}

#[test]
fn a_dead_writer_leaves_its_closed_segments_and_the_first_manifest() {
    let (_dir, path) = place();
    let (w, _) = good().begin(&path);
    drop(w);
    let reel = Reel::open(&path).unwrap();
    assert_eq!(reel.manifest.state, State::Recording);
    assert!(reel.manifest.segments.is_empty());
    assert!(path.join("ops/000001.parquet").exists() && !path.join("ops/000002.parquet").exists());
}

/// Parts of an operation lead to it, wherever segments end and in whatever order their starts make them stand.
#[test]
fn parts_of_operations_name_them() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    w.tasks.push(common::task(1, None)).unwrap();
    let part = |start_ns| Op { source: "lower".into(), op: "vfs_read".into(), file: None, ..op(start_ns) };
    for i in (0..500).rev() {
        let whole = Op { file: None, ..op(i * 1000) };
        match i % 3 {
            0 => w.ops.push(whole).unwrap(),
            1 => w.push_op_tree(vec![(whole, None)], true).unwrap(),
            // The second part is one of the first.
            _ => w
                .push_op_tree(
                    vec![(whole, None), (part(i * 1000 + 10), Some(0)), (part(i * 1000 + 20), Some(1))],
                    false,
                )
                .unwrap(),
        }
    }
    w.close(manifest()).unwrap();
    let reel = Reel::open(&path).unwrap();
    let report = validate(&path, false).unwrap();
    assert!(!report.problems.iter().any(|p| format!("{p:?}").contains("parent_op")), "{:?}", report.problems);
    let rows: Vec<Op> = reel.rows::<Op>().map(Result::unwrap).collect();
    let by_id: std::collections::HashMap<i64, &Op> = rows.iter().map(|o| (o.op_id, o)).collect();
    let mut parts = 0;
    for row in &rows {
        let above = row.parent_op.map(|id| by_id[&id].start_ns);
        let expected = (row.source == *"lower").then(|| row.start_ns - 10);
        assert_eq!(above, expected, "{}", row.start_ns);
        parts += i64::from(above.is_some());
    }
    assert_eq!((rows.len(), parts), (500 + 2 * 166, 2 * 166));
}

#[test]
fn columns_of_one_value_and_of_several_come_back() {
    // Whole groups of rows, whose columns of one value are kept for the next segment, and parts of one; values that
    // change from one segment to the next, within one, from none to some and back, of rows out of order.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.reel");
    let group = ioreel_traces::table::DEFAULT_ROW_GROUP_ROWS;
    let options = WriterOptions { segment_rows: 2 * group, ..WriterOptions::default() };
    let mut w = ReelWriter::create(&path, &manifest(), options).unwrap();
    let rows: Vec<Op> = (0..7 * group as i64 + 1000)
        .map(|i| {
            let segment = i / (2 * group as i64);
            Op {
                op_id: i,
                start_ns: i * 10,
                dur_ns: 5,
                cpu: i32::from(i % 3 == 0),
                pid: if segment == 1 { 8 } else { 7 },
                op: if segment == 2 { "read" } else { "write" }.into(),
                path: match segment {
                    0 => None,
                    1 => Some("/a".into()),
                    2 => (i % 2 == 0).then(|| "/a".into()),
                    _ => Some("/b".into()),
                },
                fd: (segment != 1).then_some(3),
                ret: (i > 3 * group as i64).then_some(4096),
                len_bytes: (i < 5 * group as i64).then_some(-1),
                ..Op::default()
            }
        })
        .collect();
    let ids = |rows: &[Op]| rows.iter().map(|row| Op { op_id: -1, ..row.clone() }).collect::<Vec<_>>();
    for pair in ids(&rows).chunks(2) {
        pair.iter().rev().for_each(|row| w.ops.push(row.clone()).unwrap());
    }
    w.ops.flush().unwrap();
    assert_eq!(w.ops.values_of("fd").unwrap(), 5 * group as i64 + 1000);
    assert_eq!(w.ops.values_of("ret").unwrap(), rows.iter().filter(|r| r.ret.is_some()).count() as i64);
    w.close(manifest()).unwrap();
    let mut read = Reel::open(&path).unwrap().rows::<Op>();
    for row in &rows {
        assert_eq!(&read.next().unwrap().unwrap(), row);
    }
    assert!(read.next().is_none());
}
