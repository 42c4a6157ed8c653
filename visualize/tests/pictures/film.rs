//! Movies, frame by frame.

use std::fs;

use ioreel_visualize::movie::{DEFAULT_SECONDS, Format, MovieOptions, movie};

use crate::common::{S, block, manifest, reel};

/// One frame, RGB.
struct Frame {
    width: usize,
    rgb: Vec<u8>,
}

impl Frame {
    /// Whether a pixel is much bluer than red (a read) or much redder than blue (a write).
    fn ink(&self, x: usize, y: usize) -> &'static str {
        let at = (y * self.width + x) * 3;
        let (r, b) = (i32::from(self.rgb[at]), i32::from(self.rgb[at + 2]));
        if b - r > 60 {
            "read"
        } else if r - b > 60 {
            "write"
        } else {
            "dark"
        }
    }
}

fn frames(path: &std::path::Path) -> Vec<Frame> {
    let mut reader = png::Decoder::new(std::io::BufReader::new(fs::File::open(path).unwrap())).read_info().unwrap();
    let count = reader.info().animation_control().unwrap().num_frames;
    (0..count)
        .map(|_| {
            let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
            let info = reader.next_frame(&mut rgb).unwrap();
            Frame { width: info.width as usize, rgb }
        })
        .collect()
}

/// The map's first cell and its size, as drawn.
const MAP: (usize, usize, usize) = (40, 64, 10);
const COLUMNS: usize = 120;
const CELLS: usize = COLUMNS * 44;

#[test]
fn places_light_up_when_they_are_touched_and_fade_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    // One second of reading the first tenth, silence, then writing the last tenth of a full 44 s.
    let sectors = 10_000_000;
    let mut rows = Vec::new();
    for i in 0..1000 {
        rows.push(block("read", i * S / 1000, 1000, i * sectors / 10_000, 8));
        rows.push(block("write", 43 * S + i * S / 1001, 1000, sectors * 9 / 10 + i * sectors / 10_000, 8));
    }
    let r = reel(dir.path(), "film", manifest("ext4", 44 * S, 0), rows, Vec::new());
    let path = dir.path().join("film.apng");
    let options = MovieOptions { title: None, choice: Default::default(), seconds: 4 };
    movie(&r, &options, &path).unwrap();
    let frames = frames(&path);
    assert_eq!(frames.len(), 48);
    let lit = |frame: &Frame, ink: &str| -> Vec<usize> {
        let cell = |i: &usize| (MAP.0 + i % COLUMNS * MAP.2 + 4, MAP.1 + i / COLUMNS * MAP.2 + 4);
        (0..CELLS).filter(|i| frame.ink(cell(i).0, cell(i).1) == ink).collect()
    };
    let reads = lit(&frames[1], "read");
    assert!(
        !reads.is_empty() && reads.iter().all(|i| *i < CELLS * 3 / 5),
        "low addresses are at the top; what is unused is left out"
    );
    assert!(lit(&frames[1], "write").is_empty());
    assert!(lit(&frames[40], "read").is_empty(), "the light has faded");
    let writes = lit(&frames[47], "write");
    assert!(!writes.is_empty() && writes.iter().all(|i| *i > CELLS * 2 / 5));
    // A touched place keeps a trace of it.
    let brightness =
        |f: &Frame, i: usize| f.rgb[((MAP.1 + 4 + i / COLUMNS * 10) * f.width + MAP.0 + 4 + i % COLUMNS * 10) * 3 + 2];
    assert!(brightness(&frames[40], reads[0]) > brightness(&frames[40], CELLS - 1));
}

#[test]
fn a_reel_without_requests_has_no_movie_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "empty", manifest("tmpfs", S, 0), Vec::new(), Vec::new());
    let options = MovieOptions { title: None, choice: Default::default(), seconds: DEFAULT_SECONDS };
    let e = movie(&r, &options, &dir.path().join("x.apng")).unwrap_err().to_string();
    assert!(e.contains("no requests") && e.contains("plot"), "{e}");
    assert!(!dir.path().join("x.apng").exists());
}

#[test]
fn a_movie_that_cannot_be_written_is_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let r = reel(dir.path(), "r", manifest("ext4", S, 0), vec![block("read", 0, 1000, 8, 8)], Vec::new());
    let options = MovieOptions { title: None, choice: Default::default(), seconds: 1 };
    for name in ["missing/x.apng", "missing/x.mp4"] {
        let e = movie(&r, &options, &dir.path().join(name)).unwrap_err().to_string();
        assert!(e.contains("missing") && !e.contains('\n'), "{e}");
    }
    assert_eq!(Format::for_output("x.apng".as_ref()).unwrap(), Format::Apng);
}
