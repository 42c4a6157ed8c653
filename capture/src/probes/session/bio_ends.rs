//! The second program for ends of bios, which only some disks need.
//!
//! The kernel skips a program that is at work on its CPU already, so an end that an interrupt brings meanwhile needs
//! another one. Each end of a bio pays for it, which on a disk in memory is felt: there bios end where they were
//! queued, and no interrupt ends one.

use std::{
    cell::{Cell, RefCell},
    fs,
    path::Path,
    time::{Duration, Instant},
};

use libbpf_rs::Link;

use super::Session;

/// How soon it is noticed that another disk is there.
const LOOK: Duration = Duration::from_millis(500);
const DISKS: &str = "/sys/block";

/// How far the second program is.
pub(super) enum SecondEnd {
    /// Attached from the start, or never.
    Settled,
    /// Loaded; no disk needs it so far.
    Waiting,
    /// One needed it, and it could not be attached.
    Refused,
    /// Attached while recording, when the kernel had skipped the first so often; detached with its link.
    Late { _link: Link, skipped: u64 },
}

/// The second program, and when it was last seen whether a disk needs it.
pub(super) struct Ends {
    second: RefCell<SecondEnd>,
    looked: Cell<Instant>,
}

impl Ends {
    pub(super) fn new(second: SecondEnd) -> Self {
        Self { second: RefCell::new(second), looked: Cell::new(Instant::now()) }
    }

    /// How often, of `skipped` times, the kernel skipped the first while there was no second.
    pub(super) fn alone(&self, skipped: u64) -> u64 {
        match &*self.second.borrow() {
            SecondEnd::Settled => 0,
            SecondEnd::Waiting | SecondEnd::Refused => skipped,
            SecondEnd::Late { skipped, .. } => *skipped,
        }
    }
}

impl Session<'_> {
    /// Attaches the second program once a disk needs it. To be called often: it looks twice a second.
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
            // What is skipped is counted, and told.
            Err(e) => {
                log::warn!("the second program for ends of bios cannot be attached: {e}");
                self.ends.second.replace(SecondEnd::Refused);
            }
        }
    }
}

/// Whether an interrupt may end a bio that no request carried.
pub(super) fn interrupts_end_bios() -> bool {
    in_interrupts(Path::new(DISKS))
}

/// Of a folder with one for each disk. Where nothing can be seen, any may be there.
fn in_interrupts(disks: &Path) -> bool {
    let Ok(mut disks) = fs::read_dir(disks) else { return true };
    disks.any(|disk| disk.is_ok_and(|disk| !ends_at_once(&disk.file_name().to_string_lossy(), &disk.path())))
}

/// A disk with requests (`mq`: they end, and their bios are told of with them), or one in memory that has done what a
/// bio asks for when it has been queued: brd, and zram unless it has a disk behind it (`drivers/block`).
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

    /// Disks by name, each with a file of its folder (or a folder, in it) and what is in the file.
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
