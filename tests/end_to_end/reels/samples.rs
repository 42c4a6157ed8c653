//! The committed sample reels: sound, small, and of the programs they are said to be of.

use std::{fs, path::Path};

use ioreel_traces::{Reel, rows::Op};

use crate::harness::{ioreel, succeed, temp_dir, text};

/// Their names and a call that each makes much of.
const SAMPLES: [(&str, &str); 4] =
    [("untar", "fchown"), ("compile", "openat"), ("postmark", "unlink"), ("mail", "fdatasync")];
/// What one may take in the repository.
const LIMIT_BYTES: u64 = 1 << 20;

pub(crate) fn are_valid_and_small() {
    let folder = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("traces/samples");
    let out = temp_dir();
    for (name, call) in SAMPLES {
        let path = folder.join(format!("{name}.reel"));
        succeed(&mut ioreel(["validate", text(&path)]));
        succeed(&mut ioreel(["plot", text(&path), "-o", text(&out.path().join(format!("{name}.png")))]));
        let reel = Reel::open(&path).unwrap();
        assert_eq!(reel.manifest.lost(), 0, "{name}");
        let ops = reel.read::<Op>().unwrap();
        let calls = ops.iter().filter(|o| o.op == call && o.ret.is_some_and(|r| r >= 0)).count();
        assert!(calls >= 100, "{name}: {calls} calls of {call}");
        assert!(size(&path) < LIMIT_BYTES, "{name}: {} bytes", size(&path));
    }
}

fn size(path: &Path) -> u64 {
    let meta = path.symlink_metadata().unwrap();
    if !meta.is_dir() {
        return meta.len();
    }
    fs::read_dir(path).unwrap().map(|e| size(&e.unwrap().path())).sum()
}
