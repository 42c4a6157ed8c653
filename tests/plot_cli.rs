//! `ioreel plot` as a user meets it.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ioreel_traces::{
    Manifest, ReelWriter, WriterOptions,
    manifest::{Device, Kind, Span},
    rows::Block,
};

fn plot(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ioreel")).arg("plot").args(args).output().unwrap()
}

fn sample(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(format!("{name}.reel"));
    let m = Manifest {
        span: Span { elapsed_ns: 1_000_000_000, ..Span::default() },
        devices: vec![Device { dev: 8 << 20, name: "sda".into(), ..Device::default() }],
        ..Manifest::new(Kind::Synthetic, "synthetic")
    };
    let mut w = ReelWriter::create(&path, &m, WriterOptions::default()).unwrap();
    for i in 0..1000 {
        w.block
            .push(Block {
                rq_id: -1,
                issue_ns: i * 1_000_000,
                complete_ns: Some(i * 1_000_000 + 300_000),
                dev: 8 << 20,
                sector: i * 64,
                len_bytes: 32_768,
                op: if i % 2 == 0 { "write" } else { "read" }.into(),
                ..Block::default()
            })
            .unwrap();
    }
    w.close(m).unwrap();
    path
}

#[test]
fn pictures_are_made_and_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (sample(dir.path(), "a"), sample(dir.path(), "b"));
    for kind in ["png", "svg", "PNG"] {
        let made: Vec<Vec<u8>> = (0..2)
            .map(|i| {
                let out = dir.path().join(format!("{i}.{kind}"));
                let done = plot(&[a.to_str().unwrap(), b.to_str().unwrap(), "-o", out.to_str().unwrap()]);
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
                assert!(done.stdout.is_empty() && done.stderr.is_empty(), "nothing to say on success");
                fs::read(out).unwrap()
            })
            .collect();
        assert!(made[0] == made[1]);
        let start: &[u8] = if kind == "svg" { b"<svg " } else { b"\x89PNG\r\n\x1a\n" };
        assert!(made[0].starts_with(start));
    }
}

#[test]
fn options_reach_the_picture() {
    let dir = tempfile::tempdir().unwrap();
    let (reel, out) = (sample(dir.path(), "a"), dir.path().join("o.svg"));
    let done = plot(&[
        reel.to_str().unwrap(),
        "-o",
        out.to_str().unwrap(),
        "--title",
        "A < B & C",
        "--width",
        "900",
        "--from",
        "0.2",
        "--to",
        "0.4s",
        "--device",
        "sda",
    ]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let svg = fs::read_to_string(out).unwrap();
    assert!(svg.contains("A &lt; B &amp; C") && svg.contains(r#"width="900""#) && svg.contains(">201</text>"));
}

#[test]
fn panels_themes_and_arrangements_reach_the_picture() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (sample(dir.path(), "a"), sample(dir.path(), "b"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let out = dir.path().join("o.svg");
    let svg = |args: &[&str]| {
        let done = plot(&[args, &["-o", out.to_str().unwrap()]].concat());
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        fs::read_to_string(&out).unwrap()
    };
    let two = svg(&[a, "--panels", "sizes,depth", "--theme", "dark"]);
    assert!(two.contains(">Sizes of requests<") && two.contains(">Queue depth<") && !two.contains(">Seeks<"));
    assert!(two.contains("#11151b") && !two.contains("#ffffff"), "nothing white on black");
    assert!(svg(&[a, b, "--overlay"]).contains(">b<"));
    assert!(svg(&[a, b, "--diff"]).contains(">difference<"));
    assert!(svg(&[a, "--color-by", "latency"]).contains(">below 1 ms<"));
}

#[test]
fn the_terminal_gets_characters() {
    let dir = tempfile::tempdir().unwrap();
    let reel = sample(dir.path(), "a");
    let done = plot(&[reel.to_str().unwrap(), "--terminal"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && !text.contains('\x1b'), "no colours on a pipe: {text}");
    assert!(text.contains("sda (8:0)") && text.contains("read MiB/s") && text.contains("seeks/s"), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 120) && text.lines().count() <= 40);
    // One sequential stream: the map is a line from the lower left to the upper right.
    let inked: Vec<usize> = text.lines().filter_map(|l| l.chars().position(|c| "▀▄█".contains(c))).take(20).collect();
    assert!(inked.len() > 15 && inked[0] > inked[15], "{text}");
}

/// A movie is what its name says, or an error that says what to do; nothing of another name appears.
#[test]
fn an_mp4_needs_ffmpeg() {
    let dir = tempfile::tempdir().unwrap();
    let (reel, out) = (sample(dir.path(), "a"), dir.path().join("o.mp4"));
    let without = Command::new(env!("CARGO_BIN_EXE_ioreel"))
        .args(["plot", reel.to_str().unwrap(), "--seconds", "1", "-o", out.to_str().unwrap()])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let said = String::from_utf8(without.stderr).unwrap();
    assert_eq!(without.status.code(), Some(1), "{said}");
    assert!(said.contains("o.mp4") && said.contains("needs ffmpeg") && said.contains(".apng"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the reel");
}

/// A reader that has seen enough is no error.
#[test]
fn a_closed_pipe_is_silent() {
    let dir = tempfile::tempdir().unwrap();
    let reel = sample(dir.path(), "a");
    for args in [&["plot", "R", "--terminal"][..], &["replay", "R", "--dry-run", "--target", "T"], &["info", "R"]] {
        let args = args.iter().map(|a| match *a {
            "R" => reel.to_str().unwrap(),
            "T" => dir.path().to_str().unwrap(),
            other => other,
        });
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let done = Command::new(env!("CARGO_BIN_EXE_ioreel")).args(args).stdout(writer).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!said.contains("ipe"), "{said}");
    }
}

#[test]
fn bad_input_gets_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let (reel, out) = (sample(dir.path(), "a"), dir.path().join("o.png"));
    let (reel, out) = (reel.to_str().unwrap(), out.to_str().unwrap());
    for (args, status, words) in [
        // What no reel can make right is wrong usage.
        (
            &[reel, "-o", "picture.jpg"][..],
            2,
            "picture.jpg: unknown picture format; expected a name ending in .png, .svg",
        ),
        (&[reel, "-o", "picture"], 2, "picture: unknown picture format; expected"),
        (&["/nowhere.reel", "-o", out], 1, "not a reel"),
        (&[reel, "-o", "/nowhere/o.png"], 1, "/nowhere/o.png: writing the picture"),
        (
            &[reel, "-o", out, "--device", "sdz"],
            1,
            "no requests of device 'sdz' (did you mean 'sda'?); devices with requests: sda (8:0)",
        ),
        (&[reel, "-o", out, "--from", "3", "--to", "2"], 1, "no time between 3 s and 1 s"),
        (&[reel, "-o", out, "--width", "10"], 2, "--width 10: out of range for 1 reels; use"),
        (&[reel, "-o", out, "--panels", "offsets,nice"], 2, "unknown panel 'nice'; there are: offsets, files"),
        (
            &[reel, "-o", out, "--panels", "ofsets"],
            2,
            "unknown panel 'ofsets'; did you mean 'offsets'? There are: offsets",
        ),
        (&[reel, "-o", out, "--diff"], 2, "--diff needs exactly two reels, 1 given"),
        (&[reel, reel, "--terminal"], 2, "--terminal draws only one reel"),
        (&[reel, reel, "-o", "film.apng"], 2, "a movie shows only one reel"),
    ] {
        let done = plot(args);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{args:?}: {said}");
        assert!(!Path::new(out).exists(), "{args:?}");
    }
    assert_eq!(plot(&[reel, "-o", out, "--from", "soon"]).status.code(), Some(2));
}

/// Without -o, the picture lies beside its reel, and its name is told; -q tells nothing.
#[test]
fn pictures_and_pages_have_names_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (sample(dir.path(), "a"), sample(dir.path(), "b"));
    let said = |args: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_ioreel")).args(args).output().unwrap();
        assert!(done.status.success() && done.stdout.is_empty(), "{args:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let made = |name: &str| dir.path().join(name);
    assert_eq!(said(&["plot", a]), format!("ioreel: drew {}\n", made("a.png").display()));
    assert_eq!(said(&["-q", "plot", a, b]), "");
    assert_eq!(said(&["report", a]), format!("ioreel: wrote {}\n", made("a.html").display()));
    assert!(["a.png", "a-b.png", "a.html"].iter().all(|name| made(name).metadata().unwrap().len() > 1000));
}
