//! The second program for ends of bios, which only some disks need.
//!
//! The kernel skips a program that is already running on its CPU. So when an interrupt ends a bio while the program
//! runs, a second program must catch the end. It slows down every end of a bio, which is noticeable on disks in memory.
//! Those end bios where they are queued, so no interrupt ends one and the second program is unnecessary.

use std::{
    cell::{Cell, RefCell},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use libbpf_rs::Link;

use super::Session;

/// How often to check for new disks.
const LOOK: Duration = Duration::from_millis(500);
const DISKS: &str = "/sys/block";

/// State of the second program.
pub(super) enum SecondEnd {
    /// Attached from the start, or not needed at all.
    Settled,
    /// Loaded; no disk has needed it yet.
    Waiting,
    /// A disk needed it, but it could not be attached.
    Refused,
    /// Attached during the recording, when the kernel had skipped the first program `skipped` times.
    Late { _link: Link, skipped: u64 },
}

/// The second program, and when the disks were last checked.
pub(super) struct Ends {
    second: RefCell<SecondEnd>,
    looked: Cell<Instant>,
}

impl Ends {
    pub(super) fn new(second: SecondEnd) -> Self {
        Self { second: RefCell::new(second), looked: Cell::new(Instant::now()) }
    }

    /// Of `skipped` skips of the first program, those before the second one was attached.
    pub(super) fn alone(&self, skipped: u64) -> u64 {
        match &*self.second.borrow() {
            SecondEnd::Settled => 0,
            SecondEnd::Waiting | SecondEnd::Refused => skipped,
            SecondEnd::Late { skipped, .. } => *skipped,
        }
    }
}

impl Session<'_> {
    /// Attaches the second program once a disk needs it. Call it often: it checks twice a second.
    pub(crate) fn watch_disks(&self) {
        if self.ends.looked.get().elapsed() < LOOK || !matches!(*self.ends.second.borrow(), SecondEnd::Waiting) {
            return;
        }
        self.ends.looked.set(Instant::now());
        if !interrupts_end_bios() {
            return;
        }
        match self.skel.progs.bio_complete_again.attach() {
            Ok(link) => {
                let skipped = self.skipped(&["bio_complete"]);
                self.ends.second.replace(SecondEnd::Late { _link: link, skipped });
            }
            // Skipped ends are counted and reported.
            Err(e) => {
                log::warn!(
                    "cannot attach the second probe for bio completions: {e}; completions that the first one misses are counted as lost"
                );
                self.ends.second.replace(SecondEnd::Refused);
            }
        }
    }
}

/// Whether an interrupt may end a bio that belongs to no request.
pub(super) fn interrupts_end_bios() -> bool {
    in_interrupts(Path::new(DISKS))
}

/// Checks a folder that contains one folder per disk. If it cannot be read, such a disk may exist.
fn in_interrupts(disks: &Path) -> bool {
    let Ok(mut disks) = fs::read_dir(disks) else { return true };
    disks.any(|disk| disk.is_ok_and(|disk| !ends_at_once(&disk.file_name().to_string_lossy(), &disk.path())))
}

/// True for request-based disks (`mq`), whose bios are recorded with the request, and for disks in memory that finish a
/// bio while it is queued: brd, and zram without a backing device (`drivers/block`).
fn ends_at_once(name: &str, disk: &Path) -> bool {
    if disk.join("mq").exists() {
        return true;
    }
    let numbered = |kind: &str| {
        name.strip_prefix(kind).is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let behind = || fs::read_to_string(disk.join("backing_dev")).is_ok_and(|dev| dev.trim() != "none");
    numbered("ram") || numbered("zram") && !behind()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Disks: name, a file in the disk's folder, and the content of that file.
    fn needed(disks: &[(&str, &str, &str)]) -> bool {
        let folder = tempfile::tempdir().unwrap();
        for (disk, file, content) in disks {
            let path = folder.path().join(disk).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        in_interrupts(folder.path())
    }

    #[test]
    fn disks_in_memory_and_with_requests_need_one_program_for_ends_of_bios() {
        let disk = ("vda", "mq/0/nr_tags", "256\n");
        let zram = ("zram0", "backing_dev", "none\n");
        assert!(!needed(&[disk, zram, ("zram1", "disksize", "0\n"), ("ram15", "size", "0\n")]));
        assert!(needed(&[disk, ("dm-0", "dm/name", "crypt\n")]));
        assert!(needed(&[("md127", "md/level", "raid1\n"), disk]));
        assert!(
            needed(&[zram, ("zram1", "backing_dev", "/dev/loop0\n")]),
            "what is written back is read by interrupts"
        );
        assert!(needed(&[("pmem0", "dax", "")]), "a virtual one waits for its host");
        assert!(needed(&[("ramdax", "size", "0\n")]));
        assert!(in_interrupts(Path::new("/no/such/folder")));
    }
}
