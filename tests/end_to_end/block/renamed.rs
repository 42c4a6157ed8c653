//! Threads that name themselves, as those of databases do.

use ioreel_traces::rows::{Bio, File, Task};

use crate::harness::{
    assert_valid,
    mount::{DEFAULT_SIZE_BYTES, Fs, Mounted},
    record, succeed, temp_dir, text,
};

/// A thread writes one block past the page cache under each of its names.
const RENAMED: &str = "
import ctypes, mmap, os, sys
prctl = ctypes.CDLL(None).prctl
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
for i, name in enumerate(sys.argv[2:]):
    assert prctl(15, name.encode(), 0, 0, 0) == 0
    os.pwritev(fd, [block], i * 4096)
";

pub(crate) fn bios_have_the_name_of_their_time() {
    const NAMES: [&str; 4] = ["first", "flush-worker", "2", "the-last-of-them"];
    let (mount, out) = (Mounted::new(Fs::Ext4, DEFAULT_SIZE_BYTES), temp_dir());
    let (reel, file) = (out.path().join("x.reel"), mount.path().join("file"));
    let command = [&["python3", "-c", RENAMED, text(&file)][..], &NAMES].concat();
    succeed(&mut record(&reel, &["--no-snapshot"], &command));
    let reel = assert_valid(&reel);
    let id = reel.rows::<File>().map(|f| f.unwrap()).find(|f| f.path.as_deref() == Some(text(&file))).unwrap().file;
    let mut bios: Vec<Bio> = reel.read().unwrap();
    bios.retain(|b| b.file == Some(id) && b.op == "write" && b.class == "data");
    bios.sort_by_key(|b| b.file_offset_bytes);
    let names: Vec<&str> = bios.iter().map(|b| &*b.comm).collect();
    // The kernel keeps 15 bytes.
    let kept = NAMES.map(|name| &name[..name.len().min(15)]);
    assert_eq!(names, kept);
    let task = bios[0].task_id.unwrap();
    let last = reel.rows::<Task>().map(|t| t.unwrap()).find(|t| t.task_id == task).unwrap();
    assert_eq!(&*last.comm, kept[3]);
}
