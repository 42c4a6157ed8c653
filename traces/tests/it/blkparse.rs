//! Text of blkparse gives the rows of the binary trace that it was made from.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ioreel_traces::{
    Reel, import,
    rows::{Bio, Block, Task},
    validate::validate,
};

/// Imports and finds the reel valid.
fn imported(inputs: &[PathBuf], out: &Path) -> Reel {
    import::blktrace::import(inputs, out).unwrap();
    valid(out)
}

fn valid(out: &Path) -> Reel {
    let report = validate(out, false).unwrap();
    assert!(report.valid, "{:?}", report.problems);
    Reel::open(out).unwrap()
}

/// Writes `text` and imports it.
fn of_text(dir: &Path, name: &str, text: &str) -> Reel {
    let (input, out) = (dir.join(format!("{name}.txt")), dir.join(format!("{name}.reel")));
    fs::write(&input, text).unwrap();
    imported(&[input], &out)
}

/// A bio, and the number and name of its thread.
type NamedBio = (Bio, Option<(i32, String)>);

/// Requests, and bios with the number and name of their thread, without ids.
fn rows(reel: &Reel) -> (Vec<Block>, Vec<NamedBio>) {
    let tasks: HashMap<i64, (i32, String)> =
        reel.read::<Task>().unwrap().into_iter().map(|t| (t.task_id, (t.tid, t.comm.to_string()))).collect();
    let bio = |b: Bio| {
        let task = b.task_id.map(|t| tasks[&t].clone());
        (Bio { task_id: None, ..b }, task)
    };
    (reel.read().unwrap(), reel.read::<Bio>().unwrap().into_iter().map(bio).collect())
}

fn samples() -> Vec<PathBuf> {
    let data = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("tests/data/blktrace");
    let mut all: Vec<PathBuf> = fs::read_dir(data).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn text_gives_the_rows_of_the_binary_trace() {
    let dir = tempfile::tempdir().unwrap();
    for (i, sample) in samples().iter().enumerate() {
        let truth = imported(&[sample.join("vda")], &dir.path().join(format!("{i}.reel")));
        let kept = fs::read_to_string(sample.join("vda.blkparse.txt")).unwrap();
        let reel = of_text(dir.path(), &format!("kept{i}"), &kept);
        assert_eq!(reel.manifest.devices, truth.manifest.devices);
        assert!(
            reel.manifest.warnings.iter().all(|w| !w.contains("could not be read")),
            "{:?}",
            reel.manifest.warnings
        );
        let (truth, text) = (rows(&truth), rows(&reel));
        assert!(truth.0.len() > 20 && truth.0 == text.0 && truth.1 == text.1, "{}", sample.display());
        // The columns of -t, and a format of the user's.
        let blkparse = |args: &[&str]| {
            let done = Command::new("blkparse").args(["-i", "vda"]).args(args).current_dir(sample).output();
            String::from_utf8(done.expect("blkparse: scripts/setup test installs it").stdout).unwrap()
        };
        let text = of_text(dir.path(), &format!("tracked{i}"), &blkparse(&["-t"]));
        assert!(truth == rows(&text), "-t of {}", sample.display());
        for statistics in [&["-s"][..], &["-s", "-h", "-M"]] {
            let text = of_text(dir.path(), &format!("programs{i}{}", statistics.len()), &blkparse(statistics));
            let warnings = &text.manifest.warnings;
            assert!(warnings.iter().all(|w| !w.contains("could not be read")), "{statistics:?}: {warnings:?}");
            assert!(truth == rows(&text), "{statistics:?} of {}", sample.display());
        }
        let format = "%T.%t|%M.%m|%c|%-16C|%a|%d|%S|%N|%p|%e|%U\\n";
        let input = dir.path().join(format!("own{i}.txt"));
        let own = blkparse(&["-f", &format.replace("\\n", "\n")]);
        fs::write(&input, own).unwrap();
        let out = dir.path().join(format!("own{i}.reel"));
        import::blkparse::import(&[input], &out, Some(&format.parse().unwrap())).unwrap();
        let own = rows(&valid(&out));
        assert_eq!(own.0.len(), truth.0.len(), "-f of {}", sample.display());
        assert!(own == truth, "-f of {}", sample.display());
    }
}

/// What people paste: a few lines, quoted, with remarks between them.
#[test]
fn an_excerpt_in_a_mail_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let text = "Hello,\n\n> 8,0 3 11 0.009507758 697 D W 223490 + 56 [kjournald]\n> 8,0 3 12 0.011507758 0 C W 223490 + 56 [0]\n\
                 [...]\n  8,16   1        1     0.019507758   700  D  WS 512 + 8 [Web Content]\n";
    let reel = of_text(dir.path(), "mail", text);
    let requests = reel.read::<Block>().unwrap();
    let brief: Vec<_> = requests
        .iter()
        .map(|b| (b.issue_ns, b.complete_ns, b.dev, b.sector, b.len_bytes, b.op.to_string(), b.cpu))
        .collect();
    assert_eq!(
        brief,
        [
            (0, Some(2_000_000), 8 << 20, 223_490, 56 * 512, "write".to_owned(), 3),
            (10_000_000, None, 8 << 20 | 16, 512, 4096, "write".to_owned(), 1),
        ]
    );
    assert!(reel.manifest.warnings.iter().any(|w| w.starts_with("2 lines could not be read")));
    assert!(reel.manifest.losses.is_empty());
}

/// A format that begins or continues as the default one needs no name; of another one, the error names the option.
#[test]
fn formats_like_the_default_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let beginning = "8,0 3 11 0.009507758 697 D W 223490 + 56\n8,0 3 12 0.011507758 0 C W 223490 + 56\n";
    let more = "8,0 3 11 0.009507758 697 D W 223490 + 56 [kjournald] 28672 0\n\
                8,0 3 12 0.011507758 0 C W 223490 + 56 [swapper/3] 28672 0\n";
    for (name, text) in [("beginning", beginning), ("more", more)] {
        let (input, out) = (dir.path().join(name), dir.path().join(format!("{name}.reel")));
        fs::write(&input, text).unwrap();
        import::detect::import(&[input], &out, |format| assert_eq!(format, import::detect::Format::Blkparse)).unwrap();
        let reel = valid(&out);
        let requests = reel.read::<Block>().unwrap();
        let brief: Vec<_> = requests.iter().map(|b| (b.issue_ns, b.complete_ns, b.sector, b.len_bytes)).collect();
        assert_eq!(brief, [(0, Some(2_000_000), 223_490, 56 * 512)], "{name}");
        assert!(reel.manifest.warnings.is_empty(), "{:?}", reel.manifest.warnings);
    }
    let (input, out) = (dir.path().join("own"), dir.path().join("own.reel"));
    fs::write(&input, "8,0,D,W,0.009507758,223490,28672\n8,0,C,W,0.011507758,223490,28672\n").unwrap();
    let inputs = std::slice::from_ref(&input);
    let unnamed = [import::detect::import(inputs, &out, |_| ()), import::blkparse::import(inputs, &out, None)];
    for e in unnamed.map(|done| done.unwrap_err().to_string()) {
        assert!(e.contains("`ioreel import blkparse --format …`") && e.lines().count() == 1, "{e}");
    }
    let format = |text: &str| Some(text.parse().unwrap());
    let wrong = import::blkparse::import(inputs, &out, format("%T.%t %a %d %S %n").as_ref()).unwrap_err().to_string();
    assert!(wrong.contains("does not have the format given with --format"), "{wrong}");
    import::blkparse::import(inputs, &out, format("%D,%a,%d,%T.%t,%S,%N").as_ref()).unwrap();
    assert_eq!(valid(&out).read::<Block>().unwrap().len(), 1);
}
