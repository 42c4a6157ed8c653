//! The committed sample reels: real, small, and without fault.

use std::{fs, path::PathBuf};

use ioreel_traces::{Reel, manifest::State, rows::Op, table::Row, validate::validate};

/// What a sample may take: four of them are committed.
const MAX_BYTES: u64 = 1 << 20;

fn samples() -> Vec<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("samples");
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|p| p.extension().is_some_and(|e| e == "reel"));
    all.sort();
    all
}

fn size(folder: &PathBuf) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap());
    entries.map(|e| if e.path().is_dir() { size(&e.path()) } else { e.metadata().unwrap().len() }).sum()
}

#[test]
fn samples_are_small_valid_and_whole() {
    let samples = samples();
    assert!(samples.len() >= 4, "a tar unpack, a compile, PostMark and a mail server: {samples:?}");
    for path in samples {
        assert!(size(&path) < MAX_BYTES, "{}: {} bytes", path.display(), size(&path));
        let report = validate(&path, false).unwrap();
        assert!(
            report.valid && report.notes.is_empty(),
            "{}: {:#?} {:?}",
            path.display(),
            report.problems,
            report.notes
        );
        assert_eq!(report.state, State::Complete);
        let reel = Reel::open(&path).unwrap();
        assert_eq!(reel.manifest.lost(), 0);
        let ops = reel.rows::<Op>().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(ops.len() as i64, reel.count::<Op>());
        assert!(ops.iter().filter(|o| o.is_event()).count() > 1000, "{}", path.display());
    }
}
