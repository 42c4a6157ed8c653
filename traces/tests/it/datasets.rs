//! Public data sets, compressed input, and what the importer of CSV skips.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ioreel_traces::{
    Reel,
    import::csv::{self, Preset, Separator, SkipBad},
    rows::{Bio, Block, Op, Task},
    validate::validate,
};

fn import(inputs: &[PathBuf], out: &Path, options: &csv::Options) -> Result<Reel, String> {
    csv::import(inputs, out, options).map_err(|e| e.to_string())?;
    let report = validate(out, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    Ok(Reel::open(out).unwrap())
}

fn of_text(dir: &Path, name: &str, text: &str, options: &csv::Options) -> Result<Reel, String> {
    let input = dir.join(format!("{name}.csv"));
    fs::write(&input, text).unwrap();
    import(&[input], &dir.join(format!("{name}.reel")), options)
}

fn preset(preset: Preset) -> csv::Options {
    csv::Options { preset: Some(preset), ..csv::Options::default() }
}

/// Issue, completion, device, kind, sector, bytes.
type Brief = (i64, Option<i64>, i64, String, i64, i64);

fn brief(reel: &Reel) -> Vec<Brief> {
    let of = |b: Block| (b.issue_ns, b.complete_ns, b.dev, b.op.to_string(), b.sector, b.len_bytes);
    reel.read::<Block>().unwrap().into_iter().map(of).collect()
}

/// A data set, lines in its own syntax, the requests that they mean, and the number of lines that are none.
type Case = (Preset, &'static str, Vec<Brief>, i64);

fn row(issue: i64, complete: Option<i64>, dev: i64, op: &str, sector: i64, bytes: i64) -> Brief {
    (issue, complete, dev, op.to_owned(), sector, bytes)
}

fn clouds() -> Vec<Case> {
    vec![
        (
            Preset::Msr,
            "128166372003061629,hm,1,Read,383496192,32768,413\r\n128166372003061629,hm,0,Write,512,4096,1331\r\n\
             128166372003061630,hm,1,Write,0,512,2\r\n",
            vec![
                row(0, Some(41_300), 1, "read", 749_016, 32_768),
                row(0, Some(133_100), 2, "write", 1, 4096),
                row(100, Some(300), 1, "write", 0, 512),
            ],
            0,
        ),
        (
            Preset::Alibaba,
            "device_id,opcode,offset,length,timestamp\n419,W,8792731648,16384,1577808144360767\n\
             725,R,59110326272,360448,1577808144360813\n",
            vec![row(0, None, 419, "write", 17_173_304, 16_384), row(46_000, None, 725, "read", 115_449_856, 360_448)],
            0,
        ),
        (
            Preset::Tencent,
            "1538323199,12910952,8,1,1063\n1538323200,6160447,256,0,1283\n1538323200,1,2,7,1283\n",
            vec![
                row(0, None, 1063, "write", 12_910_952, 4096),
                row(1_000_000_000, None, 1283, "read", 6_160_447, 131_072),
            ],
            1,
        ),
    ]
}

fn others() -> Vec<Case> {
    vec![
        (
            Preset::Fiu,
            "89966188033 4892 syslogd 904265560 8 W 6 0 531e779d3a3a2e9b14ea4e4f5a37b12c\n\
             89966194735\t7  Web Content 16 16 R 6 2 md5\n",
            vec![row(0, None, 6 << 20, "write", 904_265_560, 4096), row(6702, None, 6 << 20 | 2, "read", 16, 8192)],
            0,
        ),
        (
            Preset::Spc,
            "0,20941264,8192,W,0.551706\n1,3072,4096,r,0.554041,extra\n",
            vec![row(0, None, 0, "write", 20_941_264, 8192), row(2_335_000, None, 1, "read", 3072, 4096)],
            0,
        ),
        (
            Preset::Systor,
            "Timestamp,Response,IOType,LUN,Offset,Size\n1456095605.9,0.1,,2,0,512\n\
             1456095606.025512,0.000133,R,1,4096,8192\n1456095606.125512,,W,2,0,512\n,0.1,R,2,0,512\n",
            vec![row(0, Some(133_000), 1, "read", 8, 8192), row(100_000_000, None, 2, "write", 0, 512)],
            2,
        ),
        (
            Preset::Cloudphysics,
            "version,time,op,size,lbn\n2,5633898,42,512,42932745\n2,5633899,40,4096,42932746\n",
            vec![row(0, None, 0, "write", 42_932_745, 512), row(1_000_000_000, None, 0, "read", 42_932_746, 4096)],
            0,
        ),
        (
            Preset::Cloudphysics,
            "1000,42932745,r,512\n2000,8,w,4096\n",
            vec![row(0, None, 0, "read", 42_932_745, 512), row(1_000_000, None, 0, "write", 8, 4096)],
            0,
        ),
    ]
}

#[test]
fn data_sets_become_the_requests_that_they_mean() {
    let dir = tempfile::tempdir().unwrap();
    for (which, text, rows, skipped) in clouds().into_iter().chain(others()) {
        let name = format!("{}{}", which.name(), text.len());
        let reel = of_text(dir.path(), &name, text, &preset(which)).unwrap();
        assert_eq!(brief(&reel), rows, "{name}");
        let told = format!("{skipped} lines could not be read");
        assert_eq!(reel.manifest.warnings.iter().any(|w| w.starts_with(&told)), skipped > 0, "{name}");
        if which == Preset::Msr {
            let names: Vec<_> = reel.manifest.devices.iter().map(|d| (d.dev, d.name.as_str())).collect();
            assert_eq!(names, [(2, "hm_0"), (1, "hm_1")]);
        }
        if which == Preset::Fiu {
            let tasks: Vec<_> = reel.read::<Task>().unwrap().iter().map(|t| (t.pid, t.comm.to_string())).collect();
            assert_eq!(tasks, [(4892, "syslogd".to_owned()), (7, "Web Content".to_owned())]);
            let bios = reel.read::<Bio>().unwrap();
            assert_eq!(bios.iter().map(|b| b.task_id.unwrap()).collect::<Vec<_>>(), [0, 1]);
        }
    }
}

#[test]
fn operations_are_mapped_and_bad_lines_skipped_with_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let columns = |names: &str| names.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mapped = csv::Options {
        columns: columns("issue_us,op,sector,len_sectors,major,minor,pid,comm"),
        separator: Separator::Blanks,
        op_map: vec![("0".into(), "read".into()), ("1".into(), "write".into())],
        skip_bad: SkipBad::UpTo(Some(2)),
        ..csv::Options::default()
    };
    let text = "time  op lba   len maj min pid comm\n1 0  8 8 8 16 5 a\n 2\t1 16 8 8 0  6 b c\nx\n3 2 1 1 8 0 1 d\n";
    let reel = of_text(dir.path(), "mapped", text, &mapped).unwrap();
    assert_eq!(
        brief(&reel),
        [(0, None, 8 << 20 | 16, "read".to_owned(), 8, 4096), (1000, None, 8 << 20, "write".to_owned(), 16, 4096)]
    );
    assert!(reel.manifest.warnings.iter().any(|w| w.starts_with("2 lines could not be read")));
    let e = of_text(dir.path(), "limit", &format!("{text}y\n"), &mapped).unwrap_err();
    assert!(e.contains("line 6 is not a row") && e.contains("after 2 other unreadable lines"), "{e}");
    // LBA, size and time only.
    let constant = csv::Options {
        columns: columns("sector,len_bytes,issue_s"),
        op: Some("read".into()),
        ..csv::Options::default()
    };
    let reel = of_text(dir.path(), "constant", "100,512,7.5\n101,1024,7.25\n", &constant).unwrap();
    assert_eq!(
        brief(&reel),
        [(0, None, 0, "read".to_owned(), 101, 1024), (250_000_000, None, 0, "read".to_owned(), 100, 512)]
    );
    let calls = csv::Options {
        rows: csv::Rows::Ops,
        columns: columns("start_s,op,len_bytes"),
        op_map: vec![("0".into(), "read".into())],
        ..csv::Options::default()
    };
    let reel = of_text(dir.path(), "calls", "1,0,5\n", &calls).unwrap();
    assert_eq!(&*reel.read::<Op>().unwrap()[0].op, "read");
    let twice = csv::Options { columns: columns("issue_s"), ..preset(Preset::Msr) };
    assert!(of_text(dir.path(), "twice", "", &twice).unwrap_err().contains("already names the table"));
    let typo = csv::Options { op: Some("raed".into()), ..csv::Options::default() };
    assert!(of_text(dir.path(), "typo", "", &typo).unwrap_err().contains("unknown request type"));
}

/// A file in the wrong format ends the import soon; a large one with many damaged lines does not.
#[test]
fn damage_is_measured_against_what_is_readable() {
    let dir = tempfile::tempdir().unwrap();
    let good = "128166372003061629,hm,0,Read,512,512,1\n";
    let text = format!("{}{}", good.repeat(3000), "broken\n".repeat(2000));
    let reel = of_text(dir.path(), "much", &text, &preset(Preset::Msr)).unwrap();
    assert_eq!(brief(&reel).len(), 3000);
    let e = of_text(dir.path(), "other", &format!("{good}{}", "a,b\n".repeat(2000)), &preset(Preset::Msr)).unwrap_err();
    assert!(e.contains("after 1000 other unreadable lines"), "{e}");
    let e = of_text(dir.path(), "none", "a\nb\n", &preset(Preset::Msr)).unwrap_err();
    assert!(e.contains("line 1 is not a row (1 fields, but there are 7 columns"), "{e}");
    let long = format!("{good}{}\n{good}", "9".repeat(3 << 20));
    let reel = of_text(dir.path(), "long", &long, &preset(Preset::Msr)).unwrap();
    assert_eq!(brief(&reel).len(), 2);
    assert!(reel.manifest.warnings.iter().any(|w| w == "1 lines are longer than 1 MiB and were ignored"));
}

/// Compresses with the usual programs; all inputs together are one trace.
#[test]
fn compressed_files_archives_and_several_files_are_one_trace() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let line = |i: i64| format!("{},hm,0,Read,{},512,1\n", 128_166_372_003_061_629 + i, 512 * i);
    let packed = |name: &str, program: &str, bytes: &[u8]| {
        let mut child = Command::new(program)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(File::create(at(name)).unwrap())
            .spawn()
            .unwrap_or_else(|e| panic!("{program}: {e}"));
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        assert!(child.wait().unwrap().success());
    };
    let text: String = (0..5).map(line).collect();
    let mut programs = vec![("a.gz", "gzip"), ("a.bz2", "bzip2"), ("a.xz", "xz"), ("a.zst", "zstd")];
    programs.retain(|(_, program)| Command::new(program).arg("--version").output().is_ok());
    assert!(programs.len() >= 2);
    for (name, program) in programs {
        packed(name, program, text.as_bytes());
        let reel = import(&[at(name)], &at(&format!("{name}.reel")), &preset(Preset::Msr)).unwrap();
        assert_eq!(brief(&reel).iter().map(|b| b.4).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{name}");
        // A download that broke off.
        let whole = fs::read(at(name)).unwrap();
        fs::write(at("cut"), &whole[..whole.len() - 3]).unwrap();
        match import(&[at("cut")], &at(&format!("{name}.cut.reel")), &preset(Preset::Msr)) {
            Ok(reel) => assert!(reel.manifest.warnings.iter().any(|w| w.contains("compressed data is damaged"))),
            Err(e) => assert!(e.contains("no line can be read") && e.contains("compressed data is damaged"), "{e}"),
        }
    }
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/one.csv"), line(7)).unwrap();
    packed("d/two.csv.gz", "gzip", line(9).as_bytes());
    let done = Command::new("tar").args(["-czf", "all.tar.gz", "d"]).current_dir(dir.path()).status().unwrap();
    assert!(done.success());
    fs::write(at("plain.csv"), line(3)).unwrap();
    let reel = import(&[at("plain.csv"), at("all.tar.gz")], &at("all.reel"), &preset(Preset::Msr)).unwrap();
    assert_eq!(brief(&reel).iter().map(|b| (b.0, b.4)).collect::<Vec<_>>(), [(0, 3), (400, 7), (600, 9)]);
}
