//! The validator finds each planted fault, and nothing else.

use std::{collections::HashSet, fs, path::Path, time::Duration};

use ioreel_traces::{
    Reel, ReelWriter,
    manifest::{KILLED, Loss, State},
    rows::{Block, File, Op, Task},
    validate::{Check, Report, validate},
};

use crate::common::{Draft, bio, edit_manifest, file, good, manifest, op, place, request, small_segments, task};

/// The report on a draft.
fn check(draft: Draft) -> Report {
    let (_dir, path) = place();
    draft.write(&path);
    validate(&path, false).unwrap()
}

/// The draft's one problem; its ledger follows the rows, so that only the planted fault shows.
fn one_problem(mut draft: Draft) -> (Check, String) {
    let events = draft.ops.iter().filter(|o| o.source != *"tool").count();
    for (class, rows) in [("ops", events), ("block", draft.block.len()), ("bio", draft.bio.len())] {
        let l = draft.manifest.ledger.get_mut(class).unwrap();
        l.written = rows as i64;
        l.seen = l.written + l.lost + l.filtered;
    }
    let report = check(draft);
    assert!(!report.valid);
    assert_eq!(report.problem_count, 1, "{:#?}", report.problems);
    (report.problems[0].check, report.problems[0].to_string())
}

/// Plants a fault in the good draft; it must be found once and told with these words.
fn plant(expected: Check, words: &[&str], fault: impl FnOnce(&mut Draft)) {
    let mut draft = good();
    fault(&mut draft);
    let (check, told) = one_problem(draft);
    assert_eq!(check, expected, "{told}");
    for word in words {
        assert!(told.contains(word), "{word:?} is not in {told:?}");
    }
}

#[test]
fn a_good_reel_is_valid() {
    let report = check(good());
    assert!(report.valid, "{:#?}", report.problems);
    assert_eq!((report.state, report.problem_count), (State::Complete, 0));
    assert!(report.notes.iter().any(|n| n.starts_with("5 events were lost")), "{:?}", report.notes);
    let rows = |table| report.tables.iter().find(|t| t.table == table).unwrap().rows;
    assert_eq!((rows("ops"), rows("bio"), rows("tasks"), report.tables.len()), (251, 20, 2, 8));
}

#[test]
fn dangling_references_are_found() {
    let at = Check::Reference;
    plant(at, &["ops/000000.parquet row 3", "task_id 77", "tasks"], |d| d.ops[3].task_id = 77);
    plant(at, &["ops/000001.parquet row 5", "file 9"], |d| d.ops[105].file = Some(9));
    plant(at, &["file2 9", "files"], |d| d.ops[3].file2 = Some(9));
    plant(at, &["parent 8"], |d| d.tasks[1].parent = Some(8));
    plant(at, &["rq_id 99", "block"], |d| d.bio[3].rq_id = Some(99));
    plant(at, &["task_id 99"], |d| d.bio[3].task_id = Some(99));
    plant(at, &["file 99"], |d| d.bio[3].file = Some(99));
    plant(at, &["cause 999", "ops"], |d| d.bio[3].cause = Some(999));
    plant(at, &["execs/", "task_id 99"], |d| d.execs[0].task_id = 99);
    plant(at, &["fds/", "task_id 99"], |d| d.fds[0].task_id = 99);
    plant(at, &["fds/", "file 99"], |d| d.fds[0].file = Some(99));
}

#[test]
fn a_parent_may_come_after_its_child() {
    let mut draft = good();
    draft.tasks[0].parent = Some(2);
    draft.tasks[1].parent = None;
    assert!(check(draft).valid);
}

#[test]
fn ids_met_twice_or_missing_are_found() {
    let at = Check::Ids;
    plant(at, &["task_id 2", "twice"], |d| d.tasks.push(task(2, None)));
    plant(at, &["file 0", "twice"], |d| d.files.push(file(0)));
    plant(at, &["rq_id 4", "twice"], |d| d.block.push(request(4)));
    plant(at, &["op_id", "ascend"], |d| {
        // Given ids are kept: the second row's id lies before the first one's.
        d.ops.truncate(2);
        d.ops[0].op_id = 1;
        d.ops[1].op_id = 0;
        d.bio.iter_mut().for_each(|b| b.cause = None);
    });
}

#[test]
fn impossible_times_are_found() {
    let at = Check::Times;
    plant(at, &["issue_ns 11 is before queue_ns 12"], |d| d.block[1].queue_ns = Some(12));
    plant(at, &["complete_ns 10 is before issue_ns 11"], |d| d.block[1].complete_ns = Some(10));
    plant(at, &["complete_ns 0 is before queue_ns"], |d| d.bio[1].complete_ns = Some(0));
    plant(at, &["exit_ns 0 is before start_ns 1"], |d| d.tasks[0].exit_ns = Some(0));
    plant(at, &["-3 ns"], |d| d.ops[0].dur_ns = -3);
    plant(at, &["before the reel's start"], |d| d.ops[0].start_ns = -3);
    // Not known is not wrong.
    let mut draft = good();
    draft.block[1] = Block { queue_ns: None, complete_ns: None, ..request(1) };
    draft.bio[1].complete_ns = None;
    assert!(check(draft).valid);
}

#[test]
fn words_and_numbers_out_of_range_are_found() {
    let at = Check::Values;
    plant(at, &["source is \"guess\"", "syscall, tool, replay"], |d| d.ops[3].source = "guess".into());
    plant(at, &["state is \"\""], |d| d.ops[3].state = "".into());
    plant(at, &["op is \"scribble\""], |d| d.block[3].op = "scribble".into());
    plant(at, &["class is \"gossip\""], |d| d.bio[3].class = "gossip".into());
    plant(at, &["kind is \"door\""], |d| d.files[0].kind = "door".into());
    plant(at, &["origin is \"hearsay\""], |d| d.tree[0].origin = "hearsay".into());
    plant(at, &["len_bytes is -1"], |d| d.block[3].len_bytes = -1);
    plant(at, &["complete, but ret is null"], |d| d.ops[3].ret = None);
    plant(at, &["in flight, but ret is 1"], |d| d.ops[3].state = "in_flight_at_end".into());
    plant(at, &["dur_ns is not 0"], |d| {
        d.ops[3] = Op { state: "in_flight_at_end".into(), ret: None, ..d.ops[3].clone() };
    });
}

#[test]
fn a_fault_in_every_row_is_one_line_with_a_count() {
    let mut draft = good();
    draft.ops.iter_mut().take(250).for_each(|o| o.task_id = 77);
    let report = check(draft);
    assert_eq!((report.problems.len(), report.problem_count), (1, 250));
    assert!(report.problems[0].to_string().ends_with("(and 249 more like it)"));
}

#[test]
fn a_ledger_that_does_not_balance_is_found() {
    let ledger = |fault: fn(&mut Draft)| {
        let mut draft = good();
        fault(&mut draft);
        let report = check(draft);
        assert!(report.problems.iter().all(|p| p.check == Check::Ledger), "{:#?}", report.problems);
        report.problems.first().map(ToString::to_string).unwrap_or_default()
    };
    assert!(ledger(|d| d.manifest.ledger.get_mut("ops").unwrap().seen += 1).contains("does not balance: 259 seen"));
    assert!(ledger(|d| d.ops.truncate(249)).contains("250 written, but the table has 249 rows of events"));
    assert!(ledger(|d| d.manifest.left_out.clear()).contains("left_out"));
    assert!(ledger(|d| d.manifest.ledger.retain(|class, _| class != "bio")).contains("no ledger for bio"));
    assert!(ledger(|d| d.manifest.losses.push(Loss { events: 6, ..Loss::default() })).contains("contain 6 events"));
    // Not every loss can be located.
    assert_eq!(ledger(|d| d.manifest.losses.push(Loss { events: 4, ..Loss::default() })), "");
}

#[test]
fn segments_unlike_the_manifest_are_found() {
    let (_dir, path) = place();
    good().write(&path);
    edit_manifest(&path, |text| text.replace("\"rows\": 100", "\"rows\": 101"));
    let report = validate(&path, false).unwrap();
    assert_eq!(report.problems[0].check, Check::Listed);
    assert!(report.problems[0].what.contains("the manifest says rows 101, the file says 100"));
    assert!(!validate(&path, true).unwrap().repaired.is_empty());
    assert!(validate(&path, false).unwrap().valid);
}

#[test]
fn unsorted_rows_are_found() {
    use parquet::arrow::ArrowWriter;
    let (_dir, path) = place();
    good().write(&path);
    let batch = Reel::open(&path).unwrap().batches::<Op>(&[]).next().unwrap().unwrap();
    let out = fs::File::create(path.join("ops/000000.parquet")).unwrap();
    let mut w = ArrowWriter::try_new(out, batch.schema(), None).unwrap();
    w.write(&batch.slice(50, 50)).unwrap();
    w.write(&batch.slice(0, 50)).unwrap();
    w.close().unwrap();
    let report = validate(&path, false).unwrap();
    let order = report.problems.iter().find(|p| p.check == Check::Order).unwrap();
    assert_eq!(order.to_string(), "ops/000000.parquet row 50: start_ns 0 follows 990: rows must be sorted");
}

#[test]
fn strange_files_are_told_and_break_nothing() {
    let (_dir, path) = place();
    good().write(&path);
    fs::write(path.join("notes.txt"), "hello").unwrap();
    fs::write(path.join("ops/readme"), "hello").unwrap();
    let report = validate(&path, false).unwrap();
    assert!(report.valid);
    assert!(report.notes.iter().any(|n| n.starts_with("notes.txt: not part")), "{:?}", report.notes);
    assert!(report.notes.iter().any(|n| n.starts_with("ops/readme: not part")), "{:?}", report.notes);
}

#[test]
fn a_list_that_leads_outside_the_reel_is_refused() {
    let (dir, path) = place();
    good().write(&path);
    let outside = dir.path().join("000000.parquet");
    fs::copy(path.join("ops/000000.parquet"), &outside).unwrap();
    for file in ["../000000.parquet", "ops/../../000000.parquet", outside.to_str().unwrap()] {
        let before = fs::read_to_string(path.join("manifest.json")).unwrap();
        edit_manifest(&path, |text| text.replace("ops/000000.parquet", file));
        let report = validate(&path, false).unwrap();
        assert!(report.problems.iter().any(|p| p.what.contains("not a file of the form")), "{:?}", report.problems);
        // Nor is it read.
        let refused = Reel::open(&path).unwrap_err().to_string();
        assert!(refused.contains("not of the form ops/NAME.parquet"), "{refused}");
        fs::write(path.join("manifest.json"), before).unwrap();
    }
    edit_manifest(&path, |text| text.replace("ops/000000.parquet", "../000000.parquet"));
    let report = validate(&path, true).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    assert!(outside.exists());
}

#[test]
fn a_segment_that_is_no_file_is_refused() {
    let (_dir, path) = place();
    good().write(&path);
    let segment = path.join("ops/000000.parquet");
    fs::remove_file(&segment).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &segment, rustix::fs::Mode::RUSR).unwrap();
    let refused = Reel::open(&path).unwrap().read::<Op>().unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
    assert!(!validate(&path, false).unwrap().valid);
}

/// A writer died: two segments of `ops` closed, one half written, the rest never begun.
fn crashed(path: &Path) {
    let (w, _) = good().begin(path);
    drop(w);
    fs::write(path.join("ops/000002.parquet.tmp"), "PAR1 and then the power went").unwrap();
}

#[test]
fn what_a_dead_writer_left_becomes_a_valid_reel() {
    let (_dir, path) = place();
    crashed(&path);
    let report = validate(&path, false).unwrap();
    assert!(!report.valid);
    let told = |check| report.problems.iter().filter(|p| p.check == check).count();
    assert_eq!((told(Check::State), told(Check::Folder)), (1, 3), "{:#?}", report.problems);

    let report = validate(&path, true).unwrap();
    assert!(report.valid, "{:#?}", report.problems);
    assert_eq!(report.state, State::Truncated);
    assert_eq!(report.repaired.len(), 4, "{:?}", report.repaired);
    // The tasks were never written, and that is natural here.
    assert!(
        report.notes.iter().any(|n| n.contains("task_id 1") && n.contains("expected, because the reel is truncated")),
        "{:?}",
        report.notes
    );

    let reel = Reel::open(&path).unwrap();
    assert_eq!(reel.count::<Op>(), 200);
    assert_eq!(reel.read::<Op>().unwrap().len(), 200);
    assert_eq!(reel.manifest.span.elapsed_ns, 199 * 10 + 7);
    assert!(
        reel.manifest.warnings[0].starts_with(
            "repaired: the writer of this reel was killed: the operations that ended in the first 0.000 s"
        )
    );
    // Nothing is left to repair.
    let again = validate(&path, true).unwrap();
    assert!(again.valid && again.repaired.is_empty());
}

/// A writer died whose segments were open: their rows are in parts, the last of which is not whole.
#[test]
fn parts_of_open_segments_become_segments() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    let living = || vec![task(1, None)];
    let wait = || std::thread::sleep(Duration::from_millis(600));
    for i in (0..130).rev() {
        w.ops.push(op(i)).unwrap();
    }
    w.files.push(file(0)).unwrap();
    wait();
    w.flush_if_old(living).unwrap();
    for i in 130..150 {
        w.ops.push(op(i)).unwrap();
    }
    w.flush_if_old(living).unwrap();
    assert_eq!(w.ops.written(), 100, "too soon for the next part");
    wait();
    w.flush_if_old(living).unwrap();
    let parts = || fs::read_dir(path.join("ops")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = parts().collect();
    names.sort();
    assert_eq!(names, ["000000.parquet", "000001-000.part", "000001-001.part"]);
    drop(w);
    fs::write(path.join("ops/000001-002.part"), "PAR1 and then it was killed").unwrap();
    // As if it had died while it removed the parts of a closed segment.
    fs::copy(path.join("ops/000001-000.part"), path.join("ops/000000-000.part")).unwrap();
    assert!(!validate(&path, false).unwrap().valid);

    let report = validate(&path, true).unwrap();
    assert!(report.valid, "{:#?}", report.problems);
    let reel = Reel::open(&path).unwrap();
    let ops: Vec<Op> = reel.read().unwrap();
    assert_eq!(ops.iter().map(|o| o.start_ns).collect::<HashSet<_>>(), (0..150).collect());
    assert_eq!(ops.iter().map(|o| o.op_id).collect::<HashSet<_>>(), (0..150).collect());
    assert_eq!((reel.count::<File>(), reel.count::<Task>()), (1, 1));
    assert!(parts().all(|name| name.ends_with(".parquet")));
    assert_eq!(reel.manifest.ended, KILLED);
}

/// A writer died after it had written the tasks that had lived, and before it closed the reel.
#[test]
fn a_task_is_in_one_place() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    w.ops.push(op(0)).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    w.flush_if_old(|| vec![task(1, None)]).unwrap();
    assert!(path.join("tasks/living.parquet").exists());
    w.tasks.push(task(1, None)).unwrap();
    w.flush_all_tasks().unwrap();
    drop(w);
    let report = validate(&path, true).unwrap();
    assert!(report.valid, "{:#?}", report.problems);
    assert_eq!(Reel::open(&path).unwrap().count::<Task>(), 1);
}

#[test]
fn parts_go_with_their_segment() {
    let (_dir, path) = place();
    let mut w = ReelWriter::create(&path, &manifest(), small_segments()).unwrap();
    w.ops.push(op(0)).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    w.flush_if_old(Vec::new).unwrap();
    assert!(path.join("ops/000000-000.part").exists());
    w.close(manifest()).unwrap();
    let left: Vec<_> = fs::read_dir(path.join("ops")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["000000.parquet"]);
}

#[test]
fn a_damaged_segment_is_moved_aside_and_its_rows_count_as_lost() {
    let (_dir, path) = place();
    good().write(&path);
    let segment = path.join("ops/000001.parquet");
    let bytes = fs::read(&segment).unwrap();
    fs::write(&segment, &bytes[..bytes.len() / 2]).unwrap();
    let report = validate(&path, false).unwrap();
    let damaged = report.problems.iter().find(|p| p.check == Check::Segment).unwrap();
    assert!(damaged.to_string().starts_with("ops/000001.parquet: "), "{damaged}");

    let report = validate(&path, true).unwrap();
    assert!(report.valid, "{:#?}", report.problems);
    assert!(path.join("ops/000001.parquet.damaged").exists());
    let ledger = Reel::open(&path).unwrap().manifest.ledger["ops"];
    assert_eq!((ledger.seen, ledger.written, ledger.lost, ledger.filtered), (258, 150, 105, 3));
}

#[test]
fn a_segment_that_is_gone_is_dropped() {
    let (_dir, path) = place();
    good().write(&path);
    fs::remove_file(path.join("bio/000000.parquet")).unwrap();
    assert!(!validate(&path, false).unwrap().valid);
    let report = validate(&path, true).unwrap();
    assert!(report.valid && report.repaired[0].contains("20 rows are missing"), "{:?}", report.repaired);
}

#[test]
fn what_a_link_leads_to_is_not_repaired() {
    let (dir, path) = place();
    good().write(&path);
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(path.join("bio"), &elsewhere).unwrap();
    fs::write(elsewhere.join("notes.tmp"), "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, path.join("bio")).unwrap();
    let refused = validate(&path, true).unwrap_err().to_string();
    assert!(refused.contains("symbolic link"), "{refused}");
    assert!(elsewhere.join("notes.tmp").exists());
}

#[test]
fn a_manifest_that_is_no_file_is_no_reel() {
    let (_dir, path) = place();
    good().write(&path);
    fs::remove_file(path.join("manifest.json")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, path.join("manifest.json"), 0o600.into()).unwrap();
    let refused = validate(&path, false).unwrap_err().to_string();
    assert!(refused.contains("not a regular file"), "{refused}");
}

#[test]
fn a_reel_at_work_is_not_repaired() {
    let (_dir, path) = place();
    let (w, manifest) = good().begin(&path);
    let refused = validate(&path, true).unwrap_err().to_string();
    assert!(refused.contains("is still being recorded"), "{refused}");
    let report = validate(&path, false).unwrap();
    assert!(report.problems.iter().any(|p| p.what.contains("still being recorded")), "{:?}", report.problems);
    w.close(manifest).unwrap();
    assert!(validate(&path, true).unwrap().repaired.is_empty());
}

#[test]
fn a_replayed_row_names_its_original() {
    let mut draft = good();
    draft.manifest.kind = ioreel_traces::manifest::Kind::Replay;
    draft.ops = (0..10).map(|i| Op { source: "replay".into(), orig_op_id: Some(i), ..op(i) }).collect();
    draft.bio = vec![bio(0)];
    draft.ops[7].orig_op_id = None;
    let (check, told) = one_problem(draft);
    assert_eq!(check, Check::Reference);
    assert!(told.contains("orig_op_id"), "{told}");
}

#[test]
fn the_report_is_json() {
    let mut draft = good();
    draft.ops[3].task_id = 77;
    let json = serde_json::to_value(check(draft)).unwrap();
    assert_eq!(json["valid"], false);
    assert_eq!(json["problems"][0]["check"], "reference");
    assert_eq!(json["problems"][0]["file"], "ops/000000.parquet");
    assert_eq!(json["problems"][0]["row"], 3);
}

/// Whoever may write into the folder can lead the manifest's temporary name to another file.
#[test]
fn a_manifest_is_not_written_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (reel, other) = (dir.path().join("r.reel"), dir.path().join("other"));
    fs::create_dir(&reel).unwrap();
    fs::write(&other, "untouched").unwrap();
    std::os::unix::fs::symlink(&other, reel.join("manifest.json.tmp")).unwrap();
    let folder = ioreel_traces::private::Folder::open(&reel).unwrap();
    ioreel_traces::Manifest::default().write(&folder).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
    assert!(fs::symlink_metadata(reel.join("manifest.json")).unwrap().is_file());
}
