//! What a recording is called if it has no name, and the lines that it ends with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ioreel_analyze::{events::targets::Bytes, summary::brief::Brief};
use ioreel_capture::{
    host::utc_stamp,
    record::{Outcome, Target},
};
use ioreel_traces::{Manifest, Reel, manifest::dev_name};
use ioreel_visualize::{PlotOptions, plot};

use crate::{
    beside::beside,
    columns::count,
    output::{one_line, say, tell, write_private},
    progress::Progress,
    units,
};

/// Longest part of a default name that says what was recorded.
const LONGEST_WORD: usize = 40;
/// Devices that the last lines name.
const MOST_DEVICES: usize = 3;

/// A name in the working directory that is not in use, such as `tar-20261127-1.reel`.
pub(super) fn unused_name(target: &Target, asked: Option<&str>) -> PathBuf {
    let stamp = utc_stamp();
    let day = stamp.split('T').next().unwrap_or_default();
    let stem = format!("{}-{day}", word_of(target, asked));
    let mut names = (1..).map(|n: u64| PathBuf::from(format!("{stem}-{n}.reel")));
    names.find(|p| p.symlink_metadata().is_err()).unwrap_or_default()
}

/// What is recorded, in one word that any shell takes as it is.
fn word_of(target: &Target, asked: Option<&str>) -> String {
    let last = |path: &str| path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let word = match (asked, target) {
        (Some(name), _) => last(name),
        (None, Target::Command(argv)) => argv.first().map(|w| last(&w.to_string_lossy())).unwrap_or_default(),
        (None, Target::Processes(pids)) => {
            pids.first().and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok()).unwrap_or_default()
        }
        (None, Target::Cgroup(name)) => last(name),
        (None, Target::All) => "all".into(),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let word: String = word.trim().chars().map(plain).take(LONGEST_WORD).collect();
    let word = word.trim_matches(['.', '-']);
    if word.is_empty() { "recording".into() } else { word.into() }
}

/// Says what was recorded, where it is, and what to do with it. With `wants_plot`, draws it.
pub(super) fn say_what_was_recorded(outcome: &Outcome, path: &Path, wants_plot: bool) {
    let manifest = &outcome.manifest;
    let read = Reel::open(path).map_err(anyhow::Error::from).and_then(|reel| {
        let _progress = Progress::start("counting what was recorded");
        Ok((Brief::of(&reel)?, reel))
    });
    let (brief, reel) = match read {
        Ok(read) => read,
        Err(e) => return tell!("ioreel: {}: reading the recording: {e}", path.display()),
    };
    say!("ioreel: {}", totals(manifest, &brief));
    let size = manifest.segments.values().flatten().map(|s| s.bytes).fold(0, i64::saturating_add);
    let name = quoted(path);
    say!("ioreel: wrote {name} ({})", units::bytes(size));
    if !wants_plot {
        return say!("ioreel: next: ioreel plot {name}, ioreel diagnose {name}, ioreel report {name}");
    }
    let picture = beside(&[path.to_owned()], "png");
    let drawn = draw(&reel, &picture);
    match drawn {
        Ok(()) => say!("ioreel: drew {}; next: ioreel diagnose {name}, ioreel report {name}", quoted(&picture)),
        Err(e) => tell!("ioreel: {}: drawing the recording: {e}", picture.display()),
    }
}

fn draw(reel: &Reel, picture: &Path) -> anyhow::Result<()> {
    let _progress = Progress::start("drawing");
    let bytes = plot(std::slice::from_ref(reel), &PlotOptions::default())?.png()?;
    Ok(write_private(picture, &bytes)?)
}

/// Elapsed time, operations, losses, and bytes of files and devices.
fn totals(manifest: &Manifest, brief: &Brief) -> String {
    let lost = match manifest.lost() {
        0 => "nothing lost".to_owned(),
        lost => format!("{} EVENTS LOST", count(lost.unsigned_abs())),
    };
    let mut parts =
        vec![format!("{}, {} operations, {lost}", units::duration(manifest.span.elapsed_ns), count(brief.calls))];
    parts.extend((brief.moved.files.sum() > 0).then(|| format!("files: {}", directions(brief.moved.files))));
    for (dev, bytes) in brief.devices.iter().take(MOST_DEVICES) {
        let name = manifest.device(*dev).map(|d| one_line(&d.name)).filter(|n| !n.is_empty());
        parts.push(format!("{}: {}", name.unwrap_or_else(|| dev_name(*dev)), directions(*bytes)));
    }
    parts.extend(
        brief
            .devices
            .get(MOST_DEVICES..)
            .filter(|rest| !rest.is_empty())
            .map(|rest| format!("{} more devices", rest.len())),
    );
    parts.join("; ")
}

fn directions(bytes: Bytes) -> String {
    let size = |n: u64| units::bytes(n.min(i64::MAX as u64) as i64);
    match (bytes.read_bytes, bytes.write_bytes) {
        (read, 0) => format!("{} read", size(read)),
        (0, written) => format!("{} written", size(written)),
        (read, written) => format!("{} read, {} written", size(read), size(written)),
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_was_recorded() {
        let command = |word: &str| word_of(&Target::Command(vec![word.into(), "x".into()]), None);
        assert_eq!(command("/usr/bin/tar"), "tar");
        assert_eq!(command("./a b;c"), "a-b-c");
        assert_eq!(command("..."), "recording");
        assert_eq!(word_of(&Target::All, None), "all");
        assert_eq!(word_of(&Target::Cgroup("/sys/fs/cgroup/system.slice/x.service/".into()), None), "x.service");
        assert_eq!(word_of(&Target::Cgroup("/sys/fs/cgroup/long".into()), Some("prod/web")), "web");
    }

    #[test]
    fn paths_are_quoted_for_a_shell() {
        assert_eq!(quoted(Path::new("a/tar-1.reel")), "a/tar-1.reel");
        assert_eq!(quoted(Path::new("it's mine.reel")), r"'it'\''s mine.reel'");
    }

    #[test]
    fn totals_name_files_and_devices() {
        let mut manifest = Manifest::new(ioreel_traces::manifest::Kind::Recording, "tracepoint");
        manifest.span.elapsed_ns = 1_500_000_000;
        let mut brief = Brief { calls: 1234, ..Brief::default() };
        assert_eq!(totals(&manifest, &brief), "1.500 s, 1,234 operations, nothing lost");
        brief.moved.files = Bytes { read_bytes: 1 << 20, write_bytes: 0 };
        let written = Bytes { read_bytes: 0, write_bytes: 2048 };
        brief.devices = (0..5).map(|minor| (7 << 20 | minor, written)).collect();
        let devices = "7:0: 2.0 KiB written; 7:1: 2.0 KiB written; 7:2: 2.0 KiB written; 2 more devices";
        let expected = format!("1.500 s, 1,234 operations, nothing lost; files: 1.0 MiB read; {devices}");
        assert_eq!(totals(&manifest, &brief), expected);
    }
}
