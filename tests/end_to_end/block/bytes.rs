//! The block tables hold what a copy wrote, on each file system that has a device.

use std::{collections::HashSet, fs};

use ioreel_traces::rows::{Bio, Block, Op};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

const COPIED_BYTES: usize = 100_000_000;

/// A file whose bytes no file system can store in less.
fn incompressible(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len).collect()
}

pub(crate) fn a_copy_is_seen_whole(fs: Fs) {
    let (mount, out) = (Mounted::new(fs, DEFAULT_SIZE_BYTES), temp_dir());
    let (source, copy) = (out.path().join("source"), mount.path().join("copy"));
    fs::write(&source, incompressible(COPIED_BYTES)).unwrap();
    let reel = out.path().join("cp.reel");
    succeed(&mut record(&reel, &[], &["cp", "--reflink=never", text(&source), text(&copy)]));
    let reel = assert_valid(&reel);
    let within = |what: &str, bytes: i64| {
        let ratio = bytes as f64 / COPIED_BYTES as f64;
        assert!((0.99..=1.01).contains(&ratio), "{what}: {bytes} bytes, {ratio:.4} of what was copied");
    };
    let asked = reel.read::<Op>().unwrap().into_iter();
    let asked =
        asked.filter(|o| matches!(&*o.op, "write" | "pwrite64" | "copy_file_range" | "sendfile") && o.fd > Some(2));
    within("asked of the file system", asked.filter_map(|o| o.ret).filter(|r| *r > 0).sum());
    let Some(dev) = mount.device_number() else {
        assert!(reel.manifest.mounts.iter().any(|m| m.fstype == "tmpfs"), "{:?}", reel.manifest.mounts);
        return;
    };
    assert!(reel.manifest.device(dev).is_some(), "{:?}", reel.manifest.devices);
    let block = reel.read::<Block>().unwrap();
    let block: Vec<&Block> = block.iter().filter(|b| b.dev == dev && b.op == "write").collect();
    let bio = reel.read::<Bio>().unwrap();
    let data: Vec<&Bio> = bio.iter().filter(|b| b.dev == dev && b.op == "write" && b.class == "data").collect();
    within("data bytes of bios", data.iter().map(|b| b.len_bytes).sum());
    let carriers: HashSet<i64> = data.iter().filter_map(|b| b.rq_id).collect();
    within("data bytes of requests", block.iter().filter(|b| carriers.contains(&b.rq_id)).map(|b| b.len_bytes).sum());
    let copied: i64 = {
        let files = reel.read::<ioreel_traces::rows::File>().unwrap();
        let id = files.iter().find(|f| f.path.as_deref() == Some(text(&copy))).map(|f| f.file);
        data.iter().filter(|b| b.file.is_some() && b.file == id).map(|b| b.len_bytes).sum()
    };
    within("attributed to the copy", copied);
    for b in block {
        assert!(b.complete_ns.is_none_or(|c| c >= b.issue_ns) && b.queue_ns.is_none_or(|q| q <= b.issue_ns), "{b:?}");
        assert_eq!(b.error, 0, "{b:?}");
    }
}
