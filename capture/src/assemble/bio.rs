//! Writes rows of requests and bios, and notes their disks.

use ioreel_bpf::types::{bio_flags, bio_how, rec_bio, rec_rq};
use ioreel_traces::Result;

use super::{Assembler, Guess, KnownFile};
use crate::assemble::classify::classify;

impl Assembler {
    fn disk_met(&mut self, dev: i64) {
        if self.last_disk != dev {
            self.disks.insert(dev);
            self.last_disk = dev;
        }
    }

    pub(crate) fn rq(&mut self, rec: &rec_rq) -> Result<()> {
        self.counts.block += 1;
        self.counts.endless_requests += i64::from(rec.no_end != 0);
        self.disk_met(i64::from(rec.dev));
        let row = self.blocks.request(rec, self.t0_ns);
        self.writer.block.push(row)
    }

    pub(crate) fn bio(&mut self, rec: &rec_bio) -> Result<()> {
        self.counts.bio += 1;
        self.counts.endless_bios += i64::from(u32::from(rec.flags) & bio_flags::BIOF_NO_END.0 != 0);
        self.disk_met(i64::from(rec.dev));
        self.task_met(rec.task_id, rec.queue_ns);
        let told = classify(rec, &mut self.blocks.layouts);
        let comm = self.comm_of(rec.task_id, rec.queue_ns);
        let mut row = self.blocks.bio(rec, told, comm, self.t0_ns);
        if told.of_file && rec.file.ino != 0 {
            let known = self.file_of(rec.file);
            if !known.described && known.disk == 0 {
                let guess = match u32::from(rec.how) {
                    how if [bio_how::BIO_BDEV.0, bio_how::BIO_BDEV_FS.0].contains(&how) => Guess::Block,
                    _ if u32::from(rec.flags) & bio_flags::BIOF_DIRECTORY.0 != 0 => Guess::Directory,
                    _ => Guess::Regular,
                };
                let sb_dev = if known.sb_dev == 0 { i64::from(rec.sb_dev) } else { known.sb_dev };
                self.remember(rec.file.into(), KnownFile { sb_dev, guess, disk: row.dev, ..known });
            }
            row.file = Some(known.id);
            row.file_offset_bytes = (rec.file_offset_bytes >= 0).then_some(rec.file_offset_bytes);
        }
        let cause = (rec.cause_ns != 0).then(|| (i64::from(rec.task_id), self.since(rec.cause_ns)));
        self.writer.push_bio(row, cause)
    }
}
