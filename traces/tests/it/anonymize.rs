//! Anonymised reels: same numbers, no names.

use std::path::Path;

use ioreel_traces::{
    Reel,
    anonymize::Key,
    anonymized::anonymize,
    rows::{File, Op, Task, Tree},
    validate::validate,
};

fn samples() -> impl Iterator<Item = Reel> {
    std::fs::read_dir("samples")
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_dir())
        .map(|p| Reel::open(p).unwrap())
}

fn hidden(reel: &Reel, at: &Path, key: &[u8]) -> Reel {
    anonymize(reel, at, &Key::of(key).unwrap()).unwrap();
    Reel::open(at).unwrap()
}

#[test]
fn samples_stay_valid_and_keep_all_but_names() {
    let dir = tempfile::tempdir().unwrap();
    for reel in samples() {
        let copy = hidden(&reel, &dir.path().join(reel.name()), b"a key of 16 bytes");
        let report = validate(copy.path(), false).unwrap();
        assert!(report.valid, "{}: {:?}", reel.name(), report.problems);
        assert_eq!(copy.manifest.ledger, reel.manifest.ledger);
        assert_eq!(copy.manifest.span, reel.manifest.span);
        for (before, after) in reel.rows::<Op>().zip(copy.rows::<Op>()) {
            let (before, after) = (before.unwrap(), after.unwrap());
            let slashes = |p: &Option<ioreel_traces::Text>| p.as_ref().map(|p| p.matches('/').count());
            assert_eq!(slashes(&before.path), slashes(&after.path));
            assert_eq!(Op { path: None, path2: None, ..before }, Op { path: None, path2: None, ..after });
        }
        assert_eq!(copy.count::<Tree>(), reel.count::<Tree>());
        assert_eq!(copy.count::<File>(), reel.count::<File>());
    }
}

#[test]
fn no_component_of_a_sample_is_left() {
    let dir = tempfile::tempdir().unwrap();
    for reel in samples() {
        let copy = hidden(&reel, &dir.path().join(reel.name()), b"a key of 16 bytes");
        let names = |reel: &Reel| {
            let mut all = std::collections::BTreeSet::new();
            let mut add = |t: &str| all.extend(t.split('/').map(str::to_owned));
            for op in reel.rows::<Op>() {
                let op = op.unwrap();
                op.path.iter().chain(&op.path2).for_each(|p| add(p));
            }
            reel.rows::<File>().for_each(|f| f.unwrap().path.iter().for_each(|p| add(p)));
            reel.rows::<Tree>().for_each(|t| add(&t.unwrap().path));
            reel.rows::<Task>().for_each(|t| add(&t.unwrap().comm));
            all
        };
        let common: Vec<_> = names(&reel).intersection(&names(&copy)).cloned().collect();
        let plain = |n: &String| {
            ["", ".", "..", "dev", "null", "proc", "self", "sys", "tty", "urandom", "random", "zero", "fd", "shm"]
                .contains(&n.as_str())
                || n.bytes().all(|b| b.is_ascii_digit())
        };
        let told: Vec<_> = common.iter().filter(|n| !plain(n)).collect();
        assert!(told.is_empty(), "{}: {told:?}", reel.name());
    }
}

#[test]
fn one_key_gives_one_set_of_names() {
    let dir = tempfile::tempdir().unwrap();
    let reel = samples().next().unwrap();
    let paths = |r: &Reel| r.rows::<File>().map(|f| f.unwrap().path).collect::<Vec<_>>();
    let a = paths(&hidden(&reel, &dir.path().join("a"), b"a key of 16 bytes"));
    let b = paths(&hidden(&reel, &dir.path().join("b"), b"a key of 16 bytes"));
    let c = paths(&hidden(&reel, &dir.path().join("c"), b"another key of 16"));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn refusals_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut reel = samples().next().unwrap();
    let key = Key::of(b"a key of 16 bytes").unwrap();
    let at = dir.path().join("out");
    std::fs::create_dir(&at).unwrap();
    assert!(anonymize(&reel, &at, &key).unwrap_err().to_string().contains("already exists"));
    std::fs::remove_dir(&at).unwrap();
    reel.manifest.segments.get_mut("ops").unwrap()[0].file = "ops/gone.parquet".into();
    assert!(anonymize(&reel, &at, &key).is_err());
    assert!(!at.exists());
    reel.manifest.state = ioreel_traces::manifest::State::Recording;
    assert!(anonymize(&reel, &at, &key).unwrap_err().to_string().contains("--repair"));
}
