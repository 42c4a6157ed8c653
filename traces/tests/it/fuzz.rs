//! Importers fed with damaged input: whatever the bytes, they end with a valid reel or one line, and never panic.
//!
//! A short run is part of the tests; `make fuzz` runs longer (`IOREEL_FUZZ_SECONDS`). The corpus is real traces and the
//! texts of the other tests; what once failed is kept in `tests/data/fuzz` and tried first.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ioreel_traces::{import, validate::validate};

/// Seconds per importer when nothing else is asked for.
const DEFAULT_SECONDS: u64 = 2;

/// xorshift64*: the same numbers in every run, so that a failure comes again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Damages `input` in a few places: bits, interesting numbers, cuts, repetitions, pieces of another input.
fn damage(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=random.below(6) {
        if out.is_empty() {
            out.push(0);
        }
        let at = random.below(out.len());
        match random.below(8) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out[at] = random.next() as u8,
            2 => {
                const NUMBERS: [u64; 6] = [0, 1, u64::MAX, i64::MAX as u64, 1 << 63, 0xffff_ffff];
                let value = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
                let end = (at + 1 + random.below(8)).min(out.len());
                out[at..end].copy_from_slice(&value[..end - at]);
            }
            3 => out.truncate(at),
            4 => {
                let end = (at + random.below(200)).min(out.len());
                let piece = out[at..end].to_vec();
                let to = random.below(out.len());
                out.splice(to..to, piece);
            }
            5 => {
                let end = (at + random.below(100)).min(out.len());
                out.drain(at..end);
            }
            6 if !other.is_empty() => {
                let from = random.below(other.len());
                let to = (from + random.below(200)).min(other.len());
                out.splice(at..at, other[from..to].to_vec());
            }
            _ => {
                const TEXTS: [&[u8]; 8] = [b"\n", b"\"", b"\\", b"<", b" = ", b"99999999999999999999", b"-1", b"\0"];
                out.splice(at..at, TEXTS[random.below(TEXTS.len())].to_vec());
            }
        }
    }
    out
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let data = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("tests/data");
    let mut files: Vec<PathBuf> = Vec::new();
    let own = if name == "any" {
        fs::read_dir(data.join("fuzz")).unwrap().map(|e| e.unwrap().path()).collect()
    } else {
        vec![data.join("fuzz").join(name)]
    };
    for folder in own.into_iter().chain([data.join("blktrace/7.2.12+deb13-amd64-ext4-seqwrite")]) {
        let listed = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
        let wanted = |p: &PathBuf| name != "blktrace" || !p.to_string_lossy().ends_with(".txt");
        files.extend(listed.filter(|p| (name == "blktrace" || p.to_string_lossy().contains("/fuzz/")) && wanted(p)));
    }
    files.sort();
    let all: Vec<Vec<u8>> = files.iter().map(|f| fs::read(f).unwrap()).collect();
    assert!(!all.is_empty(), "no corpus for {name}");
    all
}

fn fuzz<E: std::fmt::Display>(name: &str, import: impl Fn(&Path, &Path) -> Result<ioreel_traces::Manifest, E>) {
    let seconds = std::env::var("IOREEL_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(DEFAULT_SECONDS);
    // Segments are synced, which in memory costs nothing.
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let corpus = corpus(name);
    // A name must not tell the format where it is to be found.
    let input = dir.path().join(if name == "any" { "x" } else { "x.blktrace.0" });
    let out = dir.path().join("x.reel");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut runs, mut taken) = (0u64, 0u64);
    while Instant::now() < end || runs < corpus.len() as u64 {
        let bytes = match corpus.get(runs as usize) {
            Some(whole) => whole.clone(),
            None => {
                let (a, b) = (random.below(corpus.len()), random.below(corpus.len()));
                damage(&corpus[a], &corpus[b], &mut random)
            }
        };
        runs += 1;
        fs::write(&input, &bytes).unwrap();
        // On a panic the input is in the message of the test, to be kept in tests/data/fuzz.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| import(&input, &out)));
        let kept = std::env::temp_dir().join(format!("ioreel-fuzz-{name}"));
        let keep = |what: &str| -> ! {
            fs::write(&kept, &bytes).unwrap();
            panic!("{what}; the input is kept as {}", kept.display())
        };
        match done {
            Err(_) => keep("a panic"),
            Ok(Err(e)) => {
                if out.exists() || e.to_string().contains('\n') {
                    keep(&format!("a failure that is not one line, or left something: {e}"));
                }
            }
            Ok(Ok(_)) => {
                taken += 1;
                let report = validate(&out, false).unwrap();
                if !report.valid {
                    keep(&format!("an invalid reel: {:?}", report.problems));
                }
                fs::remove_dir_all(&out).unwrap();
            }
        }
    }
    eprintln!("{name}: {runs} inputs, {taken} of them imported");
    assert!(taken > 0);
}

#[test]
fn blktrace_of_any_bytes() {
    fuzz("blktrace", |input, out| import::blktrace::import(&[input.to_path_buf()], out));
}

#[test]
fn fio_of_any_bytes() {
    fuzz("fio", import::fio::import);
}

#[test]
fn strace_of_any_bytes() {
    fuzz("strace", |input, out| import::strace::import(&[input.to_path_buf()], out));
}

#[test]
fn csv_of_any_bytes() {
    let options = import::csv::Options::default();
    fuzz("csv", |input, out| import::csv::import(&[input.to_path_buf()], out, &options));
}

#[test]
fn data_sets_of_any_bytes() {
    for preset in import::csv::Preset::ALL {
        let options = import::csv::Options { preset: Some(preset), ..import::csv::Options::default() };
        fuzz(preset.name(), |input, out| import::csv::import(&[input.to_path_buf()], out, &options));
    }
}

#[test]
fn blkparse_of_any_bytes() {
    fuzz("blkparse", |input, out| import::blkparse::import(&[input.to_path_buf()], out, None));
    let format = "%D %c %s %T.%t %p %a %d %S + %n [%C]".parse().unwrap();
    fuzz("blkparse", |input, out| import::blkparse::import(&[input.to_path_buf()], out, Some(&format)));
}

#[test]
fn ktrace_of_any_bytes() {
    fuzz("ktrace", |input, out| import::ktrace::import(&[input.to_path_buf()], out));
}

#[test]
fn bcc_of_any_bytes() {
    fuzz("bcc", |input, out| import::bcc::import(&[input.to_path_buf()], out));
}

/// Whatever the format is found to be, and compressed too.
#[test]
fn anything_of_any_bytes() {
    fuzz("any", |input, out| import::detect::import(&[input.to_path_buf()], out, |_| {}));
}
